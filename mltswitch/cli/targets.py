"""`mltswitch targets`: what each switch OS can do on each hardware, and the figures behind it."""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from mltswitch.capabilities import BandwidthCapability, Capabilities, PortGroup, Unverified
from mltswitch.capabilities.hardware import Box, Chip, Figure, System, hardware_data
from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.errors import UserInputError
from mltswitch.targets import Release, known_hardware, targets
from mltswitch.units import format_bps, format_bytes

MATRIX_COLUMNS: Final = (
    "platform",
    "hardware",
    "queues, first served first",
    "S step",
    "limit",
    "minimum bandwidth",
    "maximum bandwidth",
    "marks at",
    "unverified #",
)
RELEASE_COLUMNS: Final = ("platform", "versions", "source")
NOT_KNOWN: Final = "not known"


@click.command(
    "targets",
    epilog="\b\nExamples:\n  mltswitch targets --json\n  mltswitch targets --hardware sn2700\n"
    "  mltswitch targets --unverified",
)
@click.option("--hardware", metavar="NAME", help="Print the figures of a chip or a box, with their sources.")
@click.option("--unverified", is_flag=True, help="Print what nobody has tested on real hardware.")
@json_option
def targets_command(hardware: str | None, unverified: bool, as_json: bool) -> None:
    """Capabilities of each switch OS on each hardware: queues, units, ranges, and what is unverified."""
    if unverified and hardware is not None:
        raise click.UsageError("--unverified lists all hardware; it does not go with --hardware")
    if hardware is not None:
        _print_figures(hardware, as_json=as_json)
    elif unverified:
        _print_unverified(as_json=as_json)
    else:
        _print_matrix(as_json=as_json)


def _print_matrix(*, as_json: bool) -> None:
    usable, refused = known_hardware()
    if as_json:
        releases = [
            {"platform": platform, "versions": each.versions, "source": each.source}
            for platform, each in known_releases()
        ]
        print_json({"hardware": usable, "refused": refused, "releases": releases})
        return
    console().print(table("Targets", MATRIX_COLUMNS, map(matrix_row, usable)))
    if refused:
        rows = [(entry.platform, entry.hardware, entry.reason) for entry in refused]
        console().print(table("Refused", ("platform", "hardware", "reason"), rows))
    rows = [(platform, each.versions, each.source) for platform, each in known_releases()]
    console().print(table("Releases", RELEASE_COLUMNS, rows))


def _print_unverified(*, as_json: bool) -> None:
    """Each item once for a platform, with the hardware that it concerns."""
    found: dict[str, dict[Unverified, list[str]]] = {}
    for entry in known_hardware()[0]:
        for item in entry.unverified:
            found.setdefault(entry.platform, {}).setdefault(item, []).append(entry.hardware)
    if as_json:
        print_json(
            {
                platform: [{**item._asdict(), "hardware": hardware} for item, hardware in items.items()]
                for platform, items in found.items()
            }
        )
        return
    for items in found.values():
        for item, hardware in items.items():
            click.echo(f"{item.id} ({', '.join(hardware)}): {item.sentence}")


def _print_figures(name: str, *, as_json: bool) -> None:
    figures = figures_of(name)
    if as_json:
        print_json(figures)
        return
    rows = [
        (figure.hardware, figure.name, value_text(figure), figure.source)
        for figure in figures
        if figure.value is not None
    ]
    console().print(table(f"Figures of {name}", ("of", "figure", "value", "source"), rows))
    unknown = [(figure.hardware, figure.name, figure.source) for figure in figures if figure.value is None]
    if unknown:
        console().print(table("Not known", ("of", "figure", "looked for"), unknown))
    console().print(table("Short names", ("name", "source"), sources_of(figures).items()))


def matrix_row(entry: Capabilities) -> tuple[object, ...]:
    """One line of the overview, in the order of `MATRIX_COLUMNS`."""
    return (
        entry.platform,
        entry.hardware,
        " ".join(map(str, entry.queues)),
        format_bytes(entry.threshold.step_bytes),
        entry.limit.kind,
        bandwidth_kind(entry.minimum_bandwidth),
        bandwidth_kind(entry.maximum_bandwidth),
        entry.marks_at,
        len(entry.unverified),
    )


def known_releases() -> Iterator[tuple[str, Release]]:
    """(platform, versions of its OS that a device may run), of the platforms that name them."""
    yield from ((name, each) for name, target in targets().items() for each in target.releases)


def figures_of(name: str) -> tuple[Figure[Any], ...]:
    """Figures of a chip, or of a box and its chip; raises UserInputError listing the names."""
    data = hardware_data()
    found: list[Figure[Any]] = []
    if name in data.boxes:
        found += figures_in(data.boxes[name])
    chip_name = data.boxes[name].chip if name in data.boxes else name
    if chip_name in data.chips:
        found += figures_in(data.chips[chip_name])
    if name in data.fastpath_scale_bytes:
        found.append(data.fastpath_scale_bytes[name])
    if not found:
        known = dict.fromkeys((*data.boxes, *data.chips, *data.fastpath_scale_bytes))
        raise UserInputError(f"no figures of hardware {name!r}", expected=f"one of {', '.join(known)}")
    return tuple(found)


def sources_of(figures: Iterable[Figure[Any]]) -> dict[str, str]:
    """Short name → work, of the works that the figures name."""
    words = {word for figure in figures for word in re.findall(r"[\w-]+", figure.source)}
    return {name: work for name, work in hardware_data().sources.items() if name in words}


def value_text(figure: Figure[Any]) -> str:
    """A figure's value as the page prints it: bytes with their unit, yes or no, ports by count and rate."""
    value = figure.value
    if value is None:
        return NOT_KNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(_ports_text(group) for group in value)
    return format_bytes(value) if figure.name.endswith("_bytes") else str(value)


def _ports_text(group: PortGroup) -> str:
    return f"{group.count} x {format_bps(group.rate_bps)}"


def figures_in(entry: Chip | Box | System) -> list[Figure[Any]]:
    """Figures of one entry, in its order."""
    values = (getattr(entry, field.name) for field in dataclasses.fields(entry))
    return [value for value in values if isinstance(value, Figure)]


def bandwidth_kind(can: BandwidthCapability | None) -> str:
    """In which steps a bandwidth is set."""
    if can is None:
        return "none"
    return "percents of the port" if can.kind == "percent" else f"steps of {format_bps(can.step_bps)}"
