"""`mltswitch targets`: what each switch OS can do on each hardware, and the figures behind it."""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click
from rich.console import RenderableType

from mltswitch.capabilities import BandwidthCapability, Capabilities, PortGroup, Unverified
from mltswitch.capabilities.hardware import Box, Chip, Figure, System, hardware_data
from mltswitch.cli.command import command, flag, option
from mltswitch.cli.output import Answer, table
from mltswitch.errors import UserInputError
from mltswitch.targets import Release, known_hardware, targets
from mltswitch.units import format_bps, format_bytes

MATRIX_COLUMNS: Final = (
    "platform | hardware | queues, first served first | S step | limit | minimum bandwidth | "
    "maximum bandwidth | marks at | unverified #"
)
RELEASE_COLUMNS: Final = "platform | versions | source"
NOT_KNOWN: Final = "not known"


@command(
    "mltswitch targets --json",
    "mltswitch targets --hardware sn2700",
    "mltswitch targets --unverified",
    name="targets",
)
def targets_command(
    hardware: str | None = option(
        "Print the figures of a chip or a box, with their sources.", metavar="NAME"
    ),
    unverified: bool = flag("Print what nobody has tested on real hardware."),
) -> Answer:
    """Capabilities of each switch OS on each hardware: queues, units, ranges, and what is unverified."""
    if unverified and hardware is not None:
        raise click.UsageError("--unverified lists all hardware; it does not go with --hardware")
    if hardware is not None:
        figures = figures_of(hardware)
        return Answer(figures, _figures_text(hardware, figures))
    return _unverified() if unverified else _matrix()


def _matrix() -> Answer:
    usable, refused = known_hardware()
    releases = [
        {"platform": platform, "versions": each.versions, "source": each.source}
        for platform, each in known_releases()
    ]

    def text() -> Iterator[RenderableType]:
        yield table("Targets", MATRIX_COLUMNS, map(matrix_row, usable))
        if refused:
            rows = [(entry.platform, entry.hardware, entry.reason) for entry in refused]
            yield table("Refused", "platform | hardware | reason", rows)
        yield table("Releases", RELEASE_COLUMNS, (each.values() for each in releases))

    return Answer({"hardware": usable, "refused": refused, "releases": releases}, text())


def _unverified() -> Answer:
    """Each item once for a platform, with the hardware that it concerns."""
    found: dict[str, dict[Unverified, list[str]]] = {}
    for entry in known_hardware()[0]:
        for item in entry.unverified:
            found.setdefault(entry.platform, {}).setdefault(item, []).append(entry.hardware)
    document = {
        platform: [{**item._asdict(), "hardware": hardware} for item, hardware in items.items()]
        for platform, items in found.items()
    }
    lines = (
        f"{item.id} ({', '.join(hardware)}): {item.sentence}"
        for items in found.values()
        for item, hardware in items.items()
    )
    return Answer(document, lines)


def _figures_text(name: str, figures: Iterable[Figure[Any]]) -> Iterator[RenderableType]:
    rows = [
        (each.hardware, each.name, value_text(each), each.source)
        for each in figures
        if each.value is not None
    ]
    yield table(f"Figures of {name}", "of | figure | value | source", rows)
    unknown = [(each.hardware, each.name, each.source) for each in figures if each.value is None]
    if unknown:
        yield table("Not known", "of | figure | looked for", unknown)
    yield table("Short names", "name | source", sources_of(figures).items())


def matrix_row(entry: Capabilities) -> tuple[object, ...]:
    """One hardware model as a row of the overview, in the order of `MATRIX_COLUMNS`."""
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
    """Short name of a source → the publication, for the sources that the figures name."""
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
    """The figures of one chip, box or system, in the order of its fields."""
    values = (getattr(entry, field.name) for field in dataclasses.fields(entry))
    return [value for value in values if isinstance(value, Figure)]


def bandwidth_kind(can: BandwidthCapability | None) -> str:
    """How a bandwidth is set, as text: by rate or percentage, and in which steps."""
    if can is None:
        return "none"
    return "percents of the port" if can.kind == "percent" else f"steps of {format_bps(can.step_bps)}"
