"""Figures of chips, boxes and switch OSes, each with its source, from `hardware.yaml` beside this module.

A figure has a value and its source, or no value and a note on what was searched. `require` returns the
value, or raises an error that names the figure: nothing falls back to a guess.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Generic, Literal, TypeVar

from mltswitch.capabilities.device import ThresholdCapability
from mltswitch.capabilities.hardware_document import (
    BoxEntry,
    ChipEntry,
    FigureEntry,
    HardwareDocument,
    SystemEntry,
)
from mltswitch.capabilities.ports import PortGroup
from mltswitch.documents import parse_yaml, validate
from mltswitch.errors import UserInputError

FILE: Final = "hardware.yaml"
MIB_OF_MB: Final = 2**20 / 10**6

Value = TypeVar("Value")
_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Generic[Value]):
    """One figure of one piece of hardware."""

    hardware: str
    name: str
    value: Value | None
    """The value; None: no public source is known."""
    source: str
    """Source of the value; without a value, what was searched in vain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A switch chip."""

    name: str
    description: str
    unicast_queues: Figure[int]
    """Egress queues of a port for unicast packets."""
    cell_bytes: Figure[int]
    """Bytes of a buffer cell, the unit in which the chip allocates buffer."""
    threshold_step_cells: Figure[int]
    """The step of a RED threshold, in buffer cells."""
    buffer_bytes: Figure[int]
    buffer_parts: Figure[int]
    """How many parts the buffer has that ports cannot share; a queue can use one part at most."""
    largest_pool_bytes: Figure[int]
    """Bytes of the largest egress pool of a published profile: above it no threshold has an effect."""
    separate_thresholds: Figure[bool]
    """Whether RED may drop at another queue length than that at which ECN marks."""
    instantaneous_length: Figure[bool]
    """Whether RED can act on the queue length itself, without averaging."""
    averaging_weight: Figure[bool]
    """Whether the averaging weight can be configured."""
    drops_not_capable: Figure[bool]
    """Whether, above the threshold, packets that are not ECN-capable are dropped while others are marked."""
    marks_at: Figure[Literal["enqueue", "dequeue"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A box (switch model) with one such chip."""

    name: str
    description: str
    chip: str
    ports: Figure[tuple[PortGroup, ...]]
    """The ports of the box: the main ones first, then the others."""
    port_share_bytes: Figure[int]
    """Bytes of the buffer that one port, or its queue, may take by default."""
    lossy_pool_bytes: Figure[int]
    """Bytes of the egress pool of lossy queues in SONiC's default profile for a top-of-rack switch."""
    lossy_alpha_exponent: Figure[int]
    """Exponent of alpha: a lossy queue under SONiC may hold 2**exponent times the pool's free part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What a switch OS lets users configure, whatever the chip can do."""

    name: str
    separate_thresholds: Figure[bool]
    averaging_weight: Figure[bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareData:
    """The content of the file of hardware figures: chips, boxes and systems by name, and the sources."""

    sources: Mapping[str, str]
    """Short name of a source, as figures use it → the publication."""
    chips: Mapping[str, Chip]
    boxes: Mapping[str, Box]
    systems: Mapping[str, System]
    fastpath_scale_bytes: Mapping[str, Figure[int]]
    """Switch series, such as n4000 → bytes in a port's queue that a RED threshold of 100 % stands for."""


def require(figure: Figure[Value]) -> Value:
    """The figure's value; raises UserInputError naming hardware and figure where no source is known."""
    if figure.value is None:
        raise UserInputError(
            f"hardware {figure.hardware}: no source is known for {figure.name} (looked for: {figure.source})",
            hint=f"name one in {FILE}, with the figure",
        )
    return figure.value


@cache
def hardware_data() -> HardwareData:
    """The hardware figures that come with mltswitch; the file is read once."""
    text = (files(__package__) / FILE).read_text(encoding="utf-8")
    return read_hardware(text, where=FILE)


def read_hardware(text: str, *, where: str) -> HardwareData:
    """Parse hardware figures from YAML; raises UserInputError naming the entry that is wrong."""
    document = validate(parse_yaml(text, where=where), HardwareDocument, where=where)
    for name, entry in document.boxes.items():
        if entry.chip not in document.chips:
            raise UserInputError(
                f"no chip {entry.chip!r}",
                where=f"{where}: boxes.{name}.chip",
                expected=f"one of {', '.join(document.chips)}",
            )
    return HardwareData(
        sources=MappingProxyType(document.sources),
        chips=MappingProxyType({name: _chip(name, entry) for name, entry in document.chips.items()}),
        boxes=MappingProxyType({name: _box(name, entry) for name, entry in document.boxes.items()}),
        systems=MappingProxyType({name: _system(name, entry) for name, entry in document.systems.items()}),
        fastpath_scale_bytes=MappingProxyType(
            {
                name: _figure(name, "fastpath_scale_bytes", entry)
                for name, entry in document.fastpath_scale_bytes.items()
            }
        ),
    )


def chip(name: str) -> Chip:
    """A chip by name; raises UserInputError listing the chips."""
    return _named(hardware_data().chips, name, "chip")


def box(name: str) -> Box:
    """A box by name; raises UserInputError listing the boxes."""
    return _named(hardware_data().boxes, name, "box")


def threshold_step_bytes(of: Chip) -> int:
    """The step of a chip's RED threshold in bytes; raises UserInputError if a figure for it has no source."""
    return require(of.cell_bytes) * require(of.threshold_step_cells)


def threshold_step_source(of: Chip) -> str:
    """Text on how the step is computed, with its sources; raises UserInputError where a figure has none."""
    cells, cell_bytes = require(of.threshold_step_cells), require(of.cell_bytes)
    unit = f"the chip's buffer cell of {cell_bytes} B" if cells == 1 else f"{cells} cells of {cell_bytes} B"
    return f"{unit}, {of.cell_bytes.source}; {of.threshold_step_cells.source}"


def largest_queue_bytes(of: Chip) -> int:
    """Bytes that one queue can hold at most; raises UserInputError where a figure for it has no source."""
    return require(of.largest_pool_bytes) // require(of.buffer_parts)


def threshold_capability(of: Chip) -> ThresholdCapability:
    """Steps and range of a RED threshold that is set in bytes.

    Raises:
        UserInputError: a figure that it depends on has no source.
    """
    step_bytes, parts = threshold_step_bytes(of), require(of.buffer_parts)
    part = "" if parts == 1 else f"; one of {parts} parts: {of.buffer_parts.source}"
    return ThresholdCapability(
        step_bytes=step_bytes,
        minimum_bytes=step_bytes,
        maximum_bytes=largest_queue_bytes(of) // step_bytes * step_bytes,
        source=f"step: {threshold_step_source(of)}; maximum: {of.largest_pool_bytes.source}{part}",
    )


@dataclass(frozen=True, slots=True)
class PacketMemory:
    """Packet memory of a box with what its default profile makes of it."""

    total_bytes: int
    """Bytes of packet memory of the whole chip, at most."""
    pool_bytes: int
    """Bytes of the largest egress pool of a published profile, within one part of the buffer."""
    alpha: float
    """The alpha of a lossy queue: how many times the pool's free part it may hold."""
    parts: int
    """Parts of the chip's buffer that ports cannot share; a queue has one."""
    ports: int
    """Main ports of the box, or of the largest box with this chip; 0: no source is known."""


def packet_memory(hardware: str) -> PacketMemory | None:
    """Packet memory of a box, or of the first box with this chip; None: no source says it."""
    for entry in hardware_data().boxes.values():
        inside = hardware_data().chips[entry.chip]
        pool, exponent = inside.largest_pool_bytes.value, entry.lossy_alpha_exponent.value
        total, parts = inside.buffer_bytes.value, inside.buffer_parts.value
        if hardware in (entry.name, entry.chip) and pool and exponent is not None and total and parts:
            # Data sheets say MB for what is MiB: what a published profile gives away is there, too.
            return PacketMemory(
                max(int(total * MIB_OF_MB), pool), pool // parts, 2.0**exponent, parts, _port_count(hardware)
            )
    return None


def _port_count(hardware: str) -> int:
    boxes = (box for box in hardware_data().boxes.values() if hardware in (box.name, box.chip))
    return max((box.ports.value[0].count for box in boxes if box.ports.value), default=0)


def _named(known: Mapping[str, _Entry], name: str, kind: str) -> _Entry:
    try:
        return known[name]
    except KeyError:
        raise UserInputError(f"unknown {kind} {name!r}", expected=f"one of {', '.join(known)}") from None


def _figure(hardware: str, name: str, entry: FigureEntry[Value]) -> Figure[Value]:
    return Figure(
        hardware=hardware, name=name, value=entry.value, source=entry.source or entry.looked_for or ""
    )


def _chip(name: str, entry: ChipEntry) -> Chip:
    return Chip(
        name=name,
        description=entry.description,
        unicast_queues=_figure(name, "unicast_queues", entry.unicast_queues),
        cell_bytes=_figure(name, "cell_bytes", entry.cell_bytes),
        threshold_step_cells=_figure(name, "threshold_step_cells", entry.threshold_step_cells),
        buffer_bytes=_figure(name, "buffer_bytes", entry.buffer_bytes),
        buffer_parts=_figure(name, "buffer_parts", entry.buffer_parts),
        largest_pool_bytes=_figure(name, "largest_pool_bytes", entry.largest_pool_bytes),
        separate_thresholds=_figure(name, "separate_thresholds", entry.separate_thresholds),
        instantaneous_length=_figure(name, "instantaneous_length", entry.instantaneous_length),
        averaging_weight=_figure(name, "averaging_weight", entry.averaging_weight),
        drops_not_capable=_figure(name, "drops_not_capable", entry.drops_not_capable),
        marks_at=_figure(name, "marks_at", entry.marks_at),
    )


def _box(name: str, entry: BoxEntry) -> Box:
    return Box(
        name=name,
        description=entry.description,
        chip=entry.chip,
        ports=_figure(name, "ports", entry.ports),
        port_share_bytes=_figure(name, "port_share_bytes", entry.port_share_bytes),
        lossy_pool_bytes=_figure(name, "lossy_pool_bytes", entry.lossy_pool_bytes),
        lossy_alpha_exponent=_figure(name, "lossy_alpha_exponent", entry.lossy_alpha_exponent),
    )


def _system(name: str, entry: SystemEntry) -> System:
    return System(
        name=name,
        separate_thresholds=_figure(name, "separate_thresholds", entry.separate_thresholds),
        averaging_weight=_figure(name, "averaging_weight", entry.averaging_weight),
    )
