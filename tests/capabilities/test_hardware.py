"""The hardware data: every figure is sourced or null, a null refuses by name, and wrong data is one line."""

import dataclasses
import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

import pytest
import yaml

from mltswitch.capabilities.hardware import (
    FILE,
    Box,
    Chip,
    Figure,
    System,
    box,
    chip,
    hardware_data,
    largest_queue_bytes,
    read_hardware,
    require,
    threshold_capability,
    threshold_step_bytes,
)
from mltswitch.errors import UserInputError

TEXT = (files("mltswitch.capabilities") / FILE).read_text(encoding="utf-8")
LARGEST_BUFFER_OVER_POOL = 1.07
"""Data sheets round a buffer to megabytes; a pool is counted in cells."""


def figures() -> Iterator[Figure[Any]]:
    data = hardware_data()
    entries: list[Chip | Box | System] = [
        *data.chips.values(),
        *data.boxes.values(),
        *data.systems.values(),
    ]
    for entry in entries:
        for field in dataclasses.fields(entry):
            value = getattr(entry, field.name)
            if isinstance(value, Figure):
                assert (value.hardware, value.name) == (entry.name, field.name)
                yield value
    yield from data.fastpath_scale_bytes.values()


def document() -> dict[str, Any]:
    """The file as plain data, to be spoilt."""
    data: dict[str, Any] = yaml.safe_load(TEXT)
    return data


def refusal(data: dict[str, Any]) -> str:
    with pytest.raises(UserInputError) as error:
        read_hardware(yaml.safe_dump(data, sort_keys=False), where="test.yaml")
    return str(error.value)


def test_every_figure_gives_its_value_or_refuses_by_name() -> None:
    known = refused = 0
    for figure in figures():
        assert len(figure.source) > len("a source"), figure
        if figure.value is not None:
            assert require(figure) == figure.value
            known += 1
            continue
        with pytest.raises(UserInputError) as error:
            require(figure)
        text = str(error.value)
        assert text.startswith(f"hardware {figure.hardware}: no source is known for {figure.name} "), text
        assert figure.source in text
        refused += 1
    assert known > refused > 0


def test_the_file_is_what_is_read() -> None:
    data = document()
    assert list(hardware_data().chips) == list(data["chips"])
    assert list(hardware_data().boxes) == list(data["boxes"])
    for name, entry in data["chips"].items():
        for field, figure in entry.items():
            if field != "description":
                assert getattr(chip(name), field).value == figure["value"]


def test_every_short_name_is_used_and_explained() -> None:
    data = hardware_data()
    words = {word for figure in figures() for word in re.findall(r"[\w-]+", figure.source)}
    assert set(data.sources) <= words
    abbreviations = {word for word in words if re.fullmatch(r"[A-Z]{2,4}", word)}
    named = {"MB", "GB", "RED", "ECN", "EOS", "ICOS", "CWTP", "CWTPM", "NVIDIA", "WRED"}
    assert abbreviations - named <= set(data.sources)


def test_the_file_ships_with_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["mltswitch"]
    assert any(PurePath("capabilities", FILE).match(pattern) for pattern in patterns)


@pytest.mark.parametrize("name", hardware_data().chips)
def test_figures_of_a_chip_agree_with_each_other(name: str) -> None:
    entry = chip(name)
    pool, buffer, cell = entry.largest_pool_bytes, entry.buffer_bytes, entry.cell_bytes
    if pool.value is not None and buffer.value is not None:
        assert buffer.value / 2 < pool.value < buffer.value * LARGEST_BUFFER_OVER_POOL
    if pool.value is not None and cell.value is not None:
        assert threshold_step_bytes(entry) < pool.value / 1000
        assert threshold_step_bytes(entry) % cell.value == 0


@pytest.mark.parametrize("name", hardware_data().boxes)
def test_figures_of_a_box_agree_with_those_of_its_chip(name: str) -> None:
    entry = box(name)
    of = chip(entry.chip)
    if entry.lossy_pool_bytes.value is not None:
        assert of.largest_pool_bytes.value is not None
        assert entry.lossy_pool_bytes.value <= of.largest_pool_bytes.value
    assert (entry.lossy_pool_bytes.value is None) == (entry.lossy_alpha_exponent.value is None)
    if entry.ports.value is not None:
        rates = [group.rate_bps for group in entry.ports.value]
        assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("name", [name for name in hardware_data().chips if name != "jericho"])
def test_thresholds_of_a_chip_are_whole_steps_that_a_queue_can_hold(name: str) -> None:
    entry = chip(name)
    can = threshold_capability(entry)
    assert can.step_bytes == can.minimum_bytes == threshold_step_bytes(entry)
    assert can.maximum_bytes % can.step_bytes == 0
    assert 0 <= largest_queue_bytes(entry) - can.maximum_bytes < can.step_bytes
    assert largest_queue_bytes(entry) * require(entry.buffer_parts) <= require(entry.largest_pool_bytes)
    for figure in (entry.cell_bytes, entry.threshold_step_cells, entry.largest_pool_bytes):
        assert figure.source in can.source
    assert (entry.buffer_parts.source in can.source) == (require(entry.buffer_parts) > 1)


def test_known_figures() -> None:
    """Against the sources, read apart from the file."""
    assert threshold_step_bytes(chip("spectrum")) == 64 * 96
    assert threshold_step_bytes(chip("spectrum2")) == 64 * 144
    assert [require(chip(name).cell_bytes) for name in ("trident2", "trident3", "tomahawk3")] == [
        208,
        256,
        254,
    ]
    assert [require(box(name).ports)[0].count for name in ("sn2100", "sn2700", "7260cx3-64")] == [16, 32, 64]
    assert require(box("sn3700").ports)[0].rate_bps == 200 * 10**9
    # A pool is whole cells of the chip: what SONiC gives Trident and Tomahawk was counted in them.
    for name in ("trident2", "trident3", "tomahawk", "tomahawk2", "tomahawk3"):
        assert require(chip(name).largest_pool_bytes) % require(chip(name).cell_bytes) == 0, name


def test_jericho_is_refused_for_what_a_plan_depends_on() -> None:
    with pytest.raises(UserInputError, match="hardware jericho: no source is known for drops_not_capable"):
        require(chip("jericho").drops_not_capable)
    with pytest.raises(UserInputError, match="hardware jericho: no source is known for cell_bytes"):
        threshold_step_bytes(chip("jericho"))
    with pytest.raises(UserInputError, match="hardware jericho: no source is known for "):
        threshold_capability(chip("jericho"))
    with pytest.raises(UserInputError, match="hardware 7280r: no source is known for ports"):
        require(box("7280r").ports)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UserInputError, match=r"unknown chip 'sn2100' \(expected one of spectrum, spectrum2, "
    ):
        chip("sn2100")
    with pytest.raises(UserInputError, match=r"unknown box 'spectrum' \(expected one of sn2100, "):
        box("spectrum")


@pytest.mark.parametrize(
    ("figure", "line"),
    [
        ({"value": 96}, "a figure with a value has a source, and no looked_for"),
        ({"value": 96, "source": ""}, "must have at least 1 character"),
        ({"value": 96, "source": "S", "looked_for": "L"}, "a figure with a value has a source"),
        ({"value": None}, "a figure that is null has no source, and says in looked_for"),
        ({"value": None, "source": "S", "looked_for": "L"}, "a figure that is null has no source"),
        ({"source": "S"}, "cell_bytes.value: is missing"),
        ({"value": 0, "source": "S"}, "must be more than 0"),
        ({"value": "96", "source": "S"}, "must be a whole number"),
        ({"value": True, "source": "S"}, "must be a whole number"),
        ({"value": 96, "source": "S", "unit": "B"}, "cell_bytes.unit: is no field that is known here"),
    ],
)
def test_a_figure_is_sourced_or_null(figure: dict[str, Any], line: str) -> None:
    data = document()
    data["chips"]["spectrum"]["cell_bytes"] = figure
    text = refusal(data)
    assert text.startswith("test.yaml: chips.spectrum.cell_bytes"), text
    assert line in text


def test_a_box_has_a_known_chip_and_whole_ports() -> None:
    data = document()
    data["boxes"]["sn2100"]["chip"] = "spectrum9"
    assert refusal(data).startswith(
        "test.yaml: boxes.sn2100.chip: no chip 'spectrum9' (expected one of spectrum,"
    )
    data = document()
    data["boxes"]["sn2100"]["ports"]["value"] = [{"count": 16, "rate": "100GB"}]
    assert "boxes.sn2100.ports.value" in refusal(data)
    data["boxes"]["sn2100"]["ports"]["value"] = []
    assert "boxes.sn2100.ports.value" in refusal(data)


def test_a_figure_that_is_left_out_is_missing() -> None:
    data = document()
    del data["chips"]["jericho"]["marks_at"]
    assert refusal(data) == "test.yaml: chips.jericho.marks_at: is missing"
