"""The reports of operations on a fleet, device by device, ready to be printed as JSON."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mltswitch.errors import DeviceError, VerificationError, printable
from mltswitch.targets import Lossless, Rounding
from mltswitch.targets.state import FIELD_WORDS
from mltswitch.units import format_bps, format_bytes

PUSH: Final = "push"
"""`field` of a difference that is not a value: what a push would still do where every value is the plan's."""
TRAFFIC: Final = "traffic"
"""`field` of a difference in traffic: packets of a class counted at a queue, and how many should be."""
CABLING: Final = "cabling"
"""`field` of a difference in cabling: where a port leads by LLDP, and by the plan."""


_WORDS: Final = {"None": "none", "True": "yes", "False": "no", "()": "none"}


class Question(StrEnum):
    """What a push does only if the operator agrees; each has its own name for `--accept`."""

    LEAK = "leak"
    """Packets pass with code points that their port may not use: see `FittedState.leak`."""
    LOSSLESS = "lossless"
    """Running lossless classes lose packets: see `DeviceReport.loses`."""


class Status(StrEnum):
    """The state of one device after an operation."""

    OK = "ok"
    """The device runs the plan, and ran it before."""
    CHANGED = "changed"
    """The device runs the plan now; it was read back, and saved where the target can."""
    WOULD_CHANGE = "would-change"
    """A push would change the device."""
    DIFFERS = "differs"
    """The device runs something else than the plan; after `diff`: something that a push does not mend."""
    CANNOT = "cannot"
    """A push would be refused before its first line, because of the differences marked `cannot`."""
    FAILED = "failed"
    """The operation failed on the device; `error` says why."""
    ROLLED_BACK = "rolled-back"
    """The device was read back and runs again what it ran before the change."""
    RUNS_NEW = "runs-the-plan"
    """Status of a recorded change: the device now runs the change's plan."""
    RUNS_OLD = "runs-what-ran-before"
    """Status of a recorded change: the device now runs what it ran before the change."""
    UNCERTAIN = "uncertain"
    """The device may still be working on what was sent to it, or somebody else works on it: see the notes."""
    CONTRADICTS = "contradicts-the-record"
    """The device runs the old configuration where the record says the new one, or the other way round."""
    NOT_BEGUN = "not-begun"
    """An earlier wave of the change failed, so nothing was asked of this device."""


@dataclass(frozen=True, slots=True)
class DeviceDifference:
    """One value on one device that differs from the plan."""

    device: str
    port: str
    """Name of the port; empty for routes and for `PUSH`."""
    queue: int | None
    """Number of the hardware queue; None: the value belongs to no queue."""
    traffic_class: str | None
    """The plan's traffic class in that queue; None: no class."""
    field: str
    expected: str
    found: str
    cannot: bool = False
    """Whether no line of a push removes what was found, so that the operator has to before a push."""

    def __post_init__(self) -> None:
        """What a device says must not steer the terminal on which it is printed."""
        for name in ("port", "expected", "found"):
            object.__setattr__(self, name, printable(getattr(self, name)))

    @property
    def change(self) -> str:
        """What runs → what the plan has, as text."""
        if self.field == PUSH:
            return f"push expected {self.expected}, found {self.found}"
        if self.field == TRAFFIC:
            return f"counted {self.found} where {self.expected} should come"
        if self.field == CABLING:
            return f"leads to {self.found} by LLDP, to {self.expected} by the plan's cabling"
        if self.cannot:
            return f"cannot: remove by hand what is not the plan's: {self.found}"
        old, new = (_in_words(self.field, text) for text in (self.found, self.expected))
        return f"{FIELD_WORDS.get(self.field, self.field)} {old} → {new}"

    @property
    def place(self) -> str:
        """The port as text, or `the switch` where the difference belongs to no port."""
        return f"port {self.port}" if self.port else "the switch"

    @property
    def queue_name(self) -> str:
        """The plan's class in the queue, or the hardware number of a queue without one; empty: no queue."""
        return self.traffic_class or ("" if self.queue is None else f"queue {self.queue}")

    def __str__(self) -> str:
        place = ", ".join(filter(None, (f"{self.device} {self.port}".rstrip(), self.queue_name)))
        return f"{place}: {self.change}"


def _in_words(field: str, text: str) -> str:
    if text in _WORDS:
        return _WORDS[text]
    if field == "ecn_threshold_bytes":
        return format_bytes(int(text))
    if field == "shaped_bps":
        return format_bps(int(text))
    return text.strip("(,)") if field == "dscps" else text


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """The result of an operation on one device."""

    device: str
    platform: str
    status: Status
    seconds: float
    """Measured duration in seconds, from before the connection until after it."""
    change: str = ""
    """The change that was, or would be, sent, in the device's own language."""
    differences: tuple[DeviceDifference, ...] = ()
    """Differences from the plan before the change; of a failed push, after it."""
    roundings: tuple[Rounding, ...] = ()
    """Values of the plan that the device cannot express exactly."""
    error: str = ""
    """Why the operation failed, in one line; else empty."""
    notes: tuple[str, ...] = ()
    """What else the operator has to know, a sentence each, such as that nothing survives a reboot."""
    shortfalls: tuple[str, ...] = ()
    """What the plan asks for and the device cannot do, a sentence each; JSON has it by this name."""
    way_back: str = ""
    """What to enter on the device itself to undo the change; empty: the device keeps no state for that."""
    takes_down: tuple[str, ...] = ()
    """Ports that stop forwarding for a while when the change is pushed."""
    loses: tuple[Lossless, ...] = ()
    """Code points that the change moves out of a running lossless class, which an operator has to accept."""
    hardware: str = ""
    """Hardware model for which the plan was made."""
    wave: int = 0
    """Number of the device's wave in a push, from 1; 0: there were no waves."""

    def __post_init__(self) -> None:
        """The change quotes what the device runs, and it has more than one line."""
        change = "\n".join(printable(line) for line in self.change.split("\n"))
        object.__setattr__(self, "change", change)
        object.__setattr__(self, "way_back", printable(self.way_back))
        object.__setattr__(self, "notes", tuple(printable(note) for note in self.notes))


@dataclass(frozen=True, slots=True)
class FleetReport:
    """The results of one operation on all devices, in the inventory's order."""

    devices: tuple[DeviceReport, ...]
    warnings: tuple[str, ...] = ()
    change: str = ""
    """Name of the recorded change to which the devices belong; empty where nothing was to be sent."""

    def with_status(self, status: Status) -> tuple[DeviceReport, ...]:
        """The devices that have this status."""
        return tuple(report for report in self.devices if report.status is status)

    @property
    def exit_code(self) -> int:
        """The command's exit code: 0 where all is well; a failed device counts more than one that differs."""
        if self.with_status(Status.FAILED):
            return DeviceError.exit_code
        unwell = {Status.DIFFERS, Status.CANNOT, Status.UNCERTAIN, Status.CONTRADICTS}
        return VerificationError.exit_code if any(each.status in unwell for each in self.devices) else 0
