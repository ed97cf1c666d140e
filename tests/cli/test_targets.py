"""`mltswitch targets`: every platform and hardware, refusals with reasons, sourced figures, and the page."""

import json
import re
from pathlib import Path

import pytest

from mltswitch.capabilities import Capabilities
from mltswitch.capabilities.hardware import hardware_data
from mltswitch.cli.targets import MATRIX_COLUMNS, matrix_row
from mltswitch.errors import UserInputError
from mltswitch.targets import RefusedHardware, known_hardware, targets
from scripts.targets_page import targets_page
from tests.cli.test_cli import Run, refused, run

__all__ = ["run"]


def _pairs(usable: tuple[Capabilities, ...], refusals: tuple[RefusedHardware, ...]) -> list[tuple[str, str]]:
    found = [(entry.platform, entry.hardware) for entry in usable]
    return found + [(entry.platform, entry.hardware) for entry in refusals]


def _sections(page: str) -> list[str]:
    return re.findall(r"^#{2,3} (.*)$", page, flags=re.MULTILINE)


def test_every_pair_is_known_or_refused_with_its_reason() -> None:
    usable, refusals = known_hardware()
    pairs = _pairs(usable, refusals)
    assert len(pairs) == len(set(pairs))
    assert sorted(pairs) == sorted(
        (platform, name)
        for platform, target in targets().items()
        for name in (*target.models, *target.refused)
    )
    for platform, target in targets().items():
        first = next(entry for entry in usable if entry.platform == platform)
        assert first == target.hardware(None), "the default comes first"
    for entry in refusals:
        with pytest.raises(UserInputError) as error:
            targets()[entry.platform].hardware(entry.hardware)
        assert error.value.what == entry.reason
        assert entry.hardware in entry.reason


def test_the_figures_know_every_platform() -> None:
    assert set(targets()) <= set(hardware_data().systems)


def test_the_matrix_has_a_line_for_every_pair(run: Run) -> None:
    usable, refusals = known_hardware()
    outcome = run("targets")
    assert outcome.code == 0
    lines = [line.split() for line in outcome.out.splitlines()]
    for pair in _pairs(usable, refusals):
        assert any(line[:2] == list(pair) for line in lines), pair
    for entry in usable:
        row = matrix_row(entry)
        assert len(row) == len(MATRIX_COLUMNS.split("|"))
        assert row[-1] == len(entry.unverified)


def test_json_has_the_capabilities_and_what_is_refused(run: Run) -> None:
    usable, refusals = known_hardware()
    document = json.loads(run("targets", "--json").out)
    assert [(entry["platform"], entry["hardware"]) for entry in document["hardware"]] == [
        (entry.platform, entry.hardware) for entry in usable
    ]
    for written, entry in zip(document["hardware"], usable, strict=True):
        assert written["threshold"]["step_bytes"] == entry.threshold.step_bytes
        assert written["unverified"] == [item._asdict() for item in entry.unverified]
    assert document["refused"] == [
        {"platform": entry.platform, "hardware": entry.hardware, "reason": entry.reason} for entry in refusals
    ]


def test_figures_of_a_box_come_with_those_of_its_chip(run: Run) -> None:
    figures = json.loads(run("targets", "--hardware", "sn2700", "--json").out)
    found = {(figure["hardware"], figure["name"]): figure for figure in figures}
    assert found["spectrum", "cell_bytes"]["value"] == 96
    assert found["sn2700", "ports"]["value"] == [{"count": 32, "rate_bps": 100 * 10**9}]
    assert found["sn2700", "port_share_bytes"]["value"] is None
    assert all(figure["source"] for figure in figures)
    text = run("targets", "--hardware", "sn2700").out
    known, unknown = text.split("Not known\n")
    assert "32 x 100 Gbit/s" in known
    assert "port_share_bytes" in unknown
    assert "port_share_bytes" not in known
    assert "sonic-net/sonic-buildimage" in unknown, "short names are explained"


@pytest.mark.parametrize("name", ["trident2", "7280r", "n4000", "jericho"])
def test_every_kind_of_name_has_figures(run: Run, name: str) -> None:
    figures = json.loads(run("targets", "--hardware", name, "--json").out)
    assert name in {figure["hardware"] for figure in figures}


def test_unknown_hardware_is_one_line_with_the_names(run: Run, tmp_path: Path) -> None:
    line = refused(run("targets", "--hardware", "sn9999"), tmp_path)
    assert "no figures of hardware 'sn9999' (expected one of sn2100, " in line
    assert "jericho" in line


def test_the_page_has_every_pair_figure_and_reason() -> None:
    page = targets_page()
    usable, refusals = known_hardware()
    sections = _sections(page)
    for entry in usable:
        assert f"`{entry.platform}`: {entry.hardware}" in sections
        for item in entry.unverified:
            assert page.count(f"- `{item.id}`: {item.sentence}\n") >= 1
    for refusal in refusals:
        assert f"| {refusal.platform} | {refusal.hardware} | {refusal.reason} |\n" in page
    data = hardware_data()
    for chip in data.chips.values():
        assert f"Chip `{chip.name}`: {chip.description}" in sections
    for box in data.boxes.values():
        assert f"Box `{box.name}`: {box.description}, chip `{box.chip}`" in sections
    jericho = page.split("### Chip `jericho`")[1].split("###")[0]
    assert "| cell_bytes | not known | looked for: " in jericho


def test_what_is_unverified_is_listed_in_full(run: Run) -> None:
    shown = run("targets", "--unverified")
    listed = json.loads(run("targets", "--unverified", "--json").out)
    for entry in known_hardware()[0]:
        for item in entry.unverified:
            [found] = [each for each in listed[entry.platform] if (each["id"], each["sentence"]) == item]
            assert entry.hardware in found["hardware"]
            assert f"{item.id} (" in shown.out


def test_ids_of_unverified_items_are_unique_on_each_hardware() -> None:
    for entry in known_hardware()[0]:
        ids = [item.id for item in entry.unverified]
        assert len(ids) == len(set(ids))
        assert all(identifier.startswith(f"{entry.platform}.") for identifier in ids)
