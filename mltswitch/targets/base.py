"""What a target takes and gives: steps, changes, what runs, and a plan rounded to a device."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from mltswitch.capabilities import Capabilities
from mltswitch.targets.state import SwitchState


class Session(StrEnum):
    """How one talks to the device: over SSH, but for P4Runtime."""

    CLI = "cli"
    """An interactive vendor command line with a configuration mode."""
    SHELL = "shell"
    """A POSIX shell: one exec channel per command, with standard input and an exit status."""
    P4RUNTIME = "p4runtime"
    """Table entries over gRPC, in the words of targets/p4runtime.py."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing sent to a device.

    CLI: `command` is one configuration line. Shell: one command, fed `stdin`; a non-zero exit is a refusal.
    """

    command: str
    stdin: str = ""
    seconds: float | None = None
    """How long the device may take for it; None: the session's usual bound."""
    prepares: bool = False
    """Nothing of it runs before a later step: it and its neighbours may be sent in one round trip."""


@dataclass(frozen=True, slots=True)
class Change:
    """What takes a device from what it runs to what it should run."""

    steps: tuple[Step, ...]
    save: tuple[Step, ...] = ()
    """What makes it survive a reboot; sent only after the change was read back and found right.

    Also filled where `steps` is empty: the change before may have been applied, but never saved.
    """
    text: str = ""
    """The change as the operator sees it, in the device's own language."""
    way_back: str = ""
    """What the operator enters on the device to return to the state before; empty: it keeps none."""
    takes_down: tuple[str, ...] = ()
    """Ports that stop forwarding for a while."""

    @property
    def is_empty(self) -> bool:
        """Whether the device already runs the plan."""
        return not self.steps


@dataclass(frozen=True, slots=True)
class Timer:
    """How a device takes a change back by itself, unless it is told in time to keep it."""

    arm: Callable[[Change, Mapping[str, str], SwitchState, str, int], Change]
    """A change, what the device answered before it, the wanted state, a name that nothing else has, seconds →
    the same change, which the device undoes after that time."""
    keep: Callable[[str], tuple[Step, ...]]
    """What keeps the change of this name, also a second time; the device refuses it while it goes back, and
    where it has gone back, nothing happens."""
    armed: str = ""
    """Query for the names of all that wait or go back now; empty: the device refuses other changes then."""
    is_named: bool = True
    """False: `keep` keeps whatever waits, so it is sent only to a device that runs the change."""


@dataclass(frozen=True, slots=True)
class RunningState:
    """What a device answered: the part that we own, as state, and the raw answers by query."""

    state: SwitchState
    answers: Mapping[str, str]
    notes: tuple[str, ...] = ()
    """What the operator has to know and no value of the state says, a sentence each."""
    unconfirmed: tuple[str, ...] = ()
    """What the device undoes by itself unless a push confirms it, a sentence each; verify fails for it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a device says it is; a field is empty where its OS does not tell."""

    hostname: str = ""
    serial: str = ""
    """Of the chassis; of a machine without one its machine-id, or its base MAC address."""
    model: str = ""
    """Hardware, in the vendor's words."""
    release: str = ""
    """Version of its OS."""


@dataclass(frozen=True, slots=True)
class EgressCounters:
    """What the hardware queue of one port holds and has counted; None where the device does not tell."""

    depth_bytes: int | None = None
    """Of the packets that wait in the queue now."""
    sent_bytes: int | None = None
    sent_packets: int | None = None
    dropped_packets: int | None = None
    """At the threshold and at the limit."""
    ce_marked_packets: int | None = None


QueueCounters = Mapping[tuple[str, int], EgressCounters]
"""Port and hardware queue → its counters, for the queues of which the device tells something."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Who is at the other end of a port's cable, as it says by LLDP: untrusted text."""

    port: str
    """Of the device that is asked."""
    system: str
    """The neighbour's host name."""
    ports: tuple[str, ...]
    """What it calls its port, its identifier before its description."""


@dataclass(frozen=True, slots=True)
class Release:
    """Versions of an OS whose commands have been read: what a target sends and reads is there, it says."""

    versions: str
    """In words, such as 5.4 to 5.14."""
    pattern: re.Pattern[str]
    """Matches the beginning of what the device calls such a version."""
    source: str


class Rounding(NamedTuple):
    """One value that the device cannot express exactly."""

    port: str
    queue: int
    traffic_class: str
    field: str
    wanted: str
    given: str


@dataclass(frozen=True, slots=True)
class Quantised:
    """The plan for one switch as the device can express it, and how that differs from the plan."""

    state: SwitchState
    roundings: tuple[Rounding, ...]
    class_queues: Mapping[str, int]
    """Traffic class → hardware queue."""
    capabilities: Capabilities
    """What the state was rounded to."""
    shortfalls: tuple[str, ...] = ()
    """What the plan asks for and the device cannot do, a sentence each; the rest is rendered without it."""
    leak: str = ""
    """That of the shortfalls which harms other switches: a push has to be told to accept it."""


class LineError(Exception):
    """A line of a file outside a target's grammar.

    `number` counts from 1, 0 where no line is to blame; `file` is empty where the target has only one.
    """

    def __init__(self, number: int, line: str, problem: str, file: str = "") -> None:
        super().__init__(f"{problem}: {line[:120]!r}" if line else problem)
        self.number = number
        self.file = file


class FileError(Exception):
    """Several of them, in the order of the file."""

    def __init__(self, errors: list[LineError]) -> None:
        super().__init__()
        self.errors = errors
