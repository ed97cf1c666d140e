"""What came of a fleet operation, device by device, ready to be printed as JSON."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mltswitch.errors import DeviceError, VerificationError, printable
from mltswitch.targets import Lossless, Rounding
from mltswitch.targets.state import FIELD_WORDS
from mltswitch.units import format_bps, format_bytes

PUSH: Final = "push"
"""Field of a difference that no value says: what a push would still do where every value is the plan's."""
TRAFFIC: Final = "traffic"
"""Field of a difference: packets of a class that came to a queue, and how many should have."""
CABLING: Final = "cabling"
"""Field of a difference: where a port leads by LLDP, and by the plan."""


_WORDS: Final = {"None": "none", "True": "yes", "False": "no", "()": "none"}


class Question(StrEnum):
    """What a push does only where the operator has agreed, each by itself; `--accept` names them."""

    LEAK = "leak"
    """Packets pass with code points that their port may not use: see `FittedState.leak`."""
    LOSSLESS = "lossless"
    """Running lossless classes lose packets: see `DeviceReport.loses`."""


class Status(StrEnum):
    """How one device stands."""

    OK = "ok"
    """It runs the plan, and ran it before."""
    CHANGED = "changed"
    """The device runs the plan now; it was read back, and saved where the target can."""
    WOULD_CHANGE = "would-change"
    """A push would change it."""
    DIFFERS = "differs"
    """It runs something else than the plan, which a push does not mend in the case of `diff`."""
    CANNOT = "cannot"
    """A push would be refused before its first line, because of the differences marked so."""
    FAILED = "failed"
    """See `error`."""
    ROLLED_BACK = "rolled-back"
    """It runs again what it ran before the change, read back."""
    RUNS_NEW = "runs-the-plan"
    """What a device of a change runs now is the plan."""
    RUNS_OLD = "runs-what-ran-before"
    """What a device of a change runs now is what it ran before it."""
    UNCERTAIN = "uncertain"
    """It may still be working on what was sent to it, or somebody else works on it: see the notes."""
    CONTRADICTS = "contradicts-the-record"
    """It runs the old configuration where the record says the new one, or the other way round."""
    NOT_BEGUN = "not-begun"
    """An earlier wave of the change failed, so nothing was asked of this device."""


@dataclass(frozen=True, slots=True)
class DeviceDifference:
    """One value on one device that is not as the plan has it."""

    device: str
    port: str
    """Empty for routes and for `PUSH`."""
    queue: int | None
    """The hardware's number."""
    traffic_class: str | None
    """The plan's class in that queue."""
    field: str
    expected: str
    found: str
    cannot: bool = False
    """Whether no line of a push removes what was found: the operator has to, before a push."""

    def __post_init__(self) -> None:
        """What a device says must not steer the terminal on which it is printed."""
        for name in ("port", "expected", "found"):
            object.__setattr__(self, name, printable(getattr(self, name)))

    @property
    def change(self) -> str:
        """What runs → what the plan has, in words."""
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
        """Port, or the whole switch."""
        return f"port {self.port}" if self.port else "the switch"

    @property
    def queue_name(self) -> str:
        """The plan's class, or the hardware's number of a queue that has none."""
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
    """What came of one device."""

    device: str
    platform: str
    status: Status
    seconds: float
    """Measured, from before the connection until after it."""
    change: str = ""
    """What was, or would be, sent, in the device's own language."""
    differences: tuple[DeviceDifference, ...] = ()
    """Before the change; of a failed push: after it."""
    roundings: tuple[Rounding, ...] = ()
    """Where the device cannot express the plan exactly."""
    error: str = ""
    """One line, where it failed."""
    notes: tuple[str, ...] = ()
    """What the operator has to know beside: that nothing survives a reboot, for instance. A sentence each."""
    shortfalls: tuple[str, ...] = ()
    """What the plan asks for and the device cannot do, a sentence each; JSON has it by this name."""
    way_back: str = ""
    """After a change: what to enter on the device itself to undo it; empty: it keeps no state for that."""
    takes_down: tuple[str, ...] = ()
    """Ports that stop forwarding for a while when the change is pushed."""
    loses: tuple[Lossless, ...] = ()
    """Code points that leave a running lossless class by the change, which an operator has to accept."""
    hardware: str = ""
    """Model for which the plan was made."""
    wave: int = 0
    """Of the push, from 1; 0: it went in one, or in none."""

    def __post_init__(self) -> None:
        """The change quotes what the device runs, and it has more than one line."""
        change = "\n".join(printable(line) for line in self.change.split("\n"))
        object.__setattr__(self, "change", change)
        object.__setattr__(self, "way_back", printable(self.way_back))
        object.__setattr__(self, "notes", tuple(printable(note) for note in self.notes))


@dataclass(frozen=True, slots=True)
class FleetReport:
    """What came of one operation, in the inventory's order."""

    devices: tuple[DeviceReport, ...]
    warnings: tuple[str, ...] = ()
    change: str = ""
    """The change in the journal that these devices belong to; empty where nothing was to be sent."""

    def with_status(self, status: Status) -> tuple[DeviceReport, ...]:
        """The devices that stand like this."""
        return tuple(report for report in self.devices if report.status is status)

    @property
    def exit_code(self) -> int:
        """0 where all is well; a device that failed weighs more than one that differs."""
        if self.with_status(Status.FAILED):
            return DeviceError.exit_code
        unwell = {Status.DIFFERS, Status.CANNOT, Status.UNCERTAIN, Status.CONTRADICTS}
        return VerificationError.exit_code if any(each.status in unwell for each in self.devices) else 0
