"""docs/targets.md, from the capabilities that planning uses and the figures behind them."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from mltswitch.capabilities import BandwidthCapability, Capabilities, Unverified
from mltswitch.capabilities.hardware import Figure, hardware_data
from mltswitch.cli.targets import (
    MATRIX_COLUMNS,
    NOT_KNOWN,
    RELEASE_COLUMNS,
    bandwidth_kind,
    figures_in,
    known_releases,
    matrix_row,
    value_text,
)
from mltswitch.targets import RefusedHardware, known_hardware
from mltswitch.units import format_bps, format_bytes

PAGE_HEAD: Final = """\
# Targets

What a switch can do, as planning and rendering see it. `make golden` makes this page from the same data.
A plan that a device cannot express exactly is rounded, and `render` reports each rounding; one that it cannot
express is refused.

*Unverified* is what the sources leave open and nobody has tested on that hardware. Test it before you rely on
it.
"""
FIGURES_HEAD: Final = """
## Figures of the hardware

Every figure has a source, or is *not known*, and then says where one was sought. What depends on a figure
that is not known is refused. `mltswitch targets --hardware NAME` prints those of one chip or box. They are
kept in `mltswitch/capabilities/hardware.yaml`: a figure with a better source goes there.

| short name | source |
|---|---|
"""


def targets_page() -> str:
    """docs/targets.md."""
    usable, refused = known_hardware()
    return PAGE_HEAD + "".join((*_overview(usable, refused), *_platforms(usable), *_figures()))


def _columns(line: str) -> list[str]:
    """The names of a printed table's columns."""
    return [column.strip().removesuffix(" #") for column in line.split("|")]


def _overview(usable: Iterable[Capabilities], refused: tuple[RefusedHardware, ...]) -> Iterator[str]:
    yield "\n## Overview\n\nThe first hardware of a platform is its default.\n\n"
    yield from _table(_columns(MATRIX_COLUMNS), map(matrix_row, usable))
    if refused:
        yield "\nKnown by name, and refused:\n\n"
        rows = [(entry.platform, entry.hardware, entry.reason) for entry in refused]
        yield from _table(("platform", "hardware", "reason"), rows)
    yield (
        "\nA device that runs another release than these is refused, unless `mltswitch_release` in the "
        "inventory names it.\nCommunity SONiC is asked for its release, which decides what is sent "
        "([os-sonic.md](os-sonic.md)).\n\n"
    )
    rows = [(platform, each.versions, each.source) for platform, each in known_releases()]
    yield from _table(_columns(RELEASE_COLUMNS), rows)


def _platforms(usable: Iterable[Capabilities]) -> Iterator[str]:
    for platform, group in groupby(usable, key=lambda entry: entry.platform):
        entries = list(group)
        shared = [item for item in entries[0].unverified if all(item in e.unverified for e in entries)]
        yield f"\n## `{platform}`\n"
        for entry in entries:
            yield from _hardware_section(entry)
            own = [item for item in entry.unverified if item not in shared]
            if own:
                yield f"\nUnverified on {entry.hardware}:\n\n"
                yield from map(_item, own)
        if shared:
            yield f"\n### Unverified under `{platform}`\n\n"
            yield from map(_item, shared)


def _item(item: Unverified) -> str:
    return f"- `{item.id}`: {item.sentence}\n"


def _hardware_section(entry: Capabilities) -> Iterator[str]:
    yield f"\n### `{entry.platform}`: {entry.hardware}\n\n{entry.description}.\n\n"
    threshold = entry.threshold
    rows: list[tuple[object, ...]] = [("queues, first served first", ", ".join(map(str, entry.queues)), "")]
    rows += [(f"not used: queue {queue}", reason, "") for queue, reason in entry.reserved_queues]
    rows += [
        (
            "ECN threshold",
            f"steps of {format_bytes(threshold.step_bytes)}, {format_bytes(threshold.minimum_bytes)} to "
            f"{format_bytes(threshold.maximum_bytes)}",
            threshold.source,
        ),
        ("limit per queue", _limit(entry), entry.limit.source),
        _bandwidth_row("minimum bandwidth of a queue", entry.minimum_bandwidth),
        _bandwidth_row("maximum bandwidth of a queue", entry.maximum_bandwidth),
        ("averaging", entry.averaging, ""),
        ("marks at", entry.marks_at, ""),
        (
            "rewrites DSCPs that a port may not use",
            "yes" if entry.rewrites_code_points else "not known",
            entry.rewrites_code_points or "",
        ),
        ("control packets of hosts remapped", "yes" if entry.demotes_host_control else "no", ""),
        ("SRv6 endpoints", "yes" if entry.segment_routing else "no", entry.segment_routing or ""),
        ("sprays packet by packet", "yes" if entry.packet_spraying else "no", entry.packet_spraying or ""),
        ("source routes of mltswitch", "yes" if entry.source_routing else "no", entry.source_routing or ""),
    ]
    yield from _table(("", "", "source"), rows)


def _bandwidth_row(title: str, can: BandwidthCapability | None) -> tuple[str, str, str]:
    if can is None:
        return (title, "none", "")
    text = bandwidth_kind(can)
    if can.kind == "rate":
        text += f", {format_bps(max(can.minimum_bps, can.step_bps))} to {format_bps(can.maximum_bps)}"
    return (title, text, can.source)


def _limit(entry: Capabilities) -> str:
    limit = entry.limit
    if limit.kind == "alpha":
        exponents = ", ".join(map(str, limit.alpha_exponents))
        pool = NOT_KNOWN if limit.pool_bytes is None else format_bytes(limit.pool_bytes)
        return f"alpha = 2^n of the free pool, n = {exponents}; pool {pool}"
    if limit.kind == "bytes":
        return f"steps of {format_bytes(limit.step_bytes)}, up to {format_bytes(limit.maximum_bytes)}"
    return "none: only the port's buffer bounds it"


def _figures() -> Iterator[str]:
    data = hardware_data()
    yield FIGURES_HEAD
    yield from (f"| {name} | {_cell(text)} |\n" for name, text in data.sources.items())
    for chip in data.chips.values():
        yield f"\n### Chip `{chip.name}`: {chip.description}\n\n"
        yield from _figure_table(figures_in(chip))
    for box in data.boxes.values():
        yield f"\n### Box `{box.name}`: {box.description}, chip `{box.chip}`\n\n"
        yield from _figure_table(figures_in(box))
    yield "\n### What a switch OS lets one set\n\n"
    yield from _named_figure_table(
        {f"{system.name}: {f.name}": f for system in data.systems.values() for f in figures_in(system)}
    )
    yield "\n### A RED threshold of 100 % under FASTPATH\n\n"
    yield from _named_figure_table(data.fastpath_scale_bytes)


def _figure_table(figures: Iterable[Figure[Any]]) -> Iterator[str]:
    return _named_figure_table({figure.name: figure for figure in figures})


def _named_figure_table(figures: Mapping[str, Figure[Any]]) -> Iterator[str]:
    rows = [(name, value_text(figure), _origin(figure)) for name, figure in figures.items()]
    return _table(("figure", "value", "source"), rows)


def _origin(figure: Figure[Any]) -> str:
    return f"looked for: {figure.source}" if figure.value is None else figure.source


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    head = list(columns)
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n"
    for row in rows:
        yield f"| {' | '.join(_cell(value) for value in row)} |\n"


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|")
