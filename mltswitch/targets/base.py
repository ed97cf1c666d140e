"""What a target takes and gives: steps, changes, what runs, and a plan rounded to a device."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from mltswitch.capabilities import Capabilities
from mltswitch.targets.state import Difference, SwitchState


class SessionKind(StrEnum):
    """How one talks to the device: over SSH, but for those by gRPC."""

    CLI = "cli"
    """An interactive vendor command line with a configuration mode."""
    SHELL = "shell"
    """A POSIX shell: one exec channel per command, with standard input and an exit status."""
    P4RUNTIME = "p4runtime"
    """Table entries over gRPC, in the words of targets/p4runtime.py."""
    GNMI = "gnmi"
    """Leaves of models over gRPC, in the words of targets/openconfig/model.py."""

    @property
    def is_grpc(self) -> bool:
        """Whether there is no SSH: no key and no host key."""
        return self in {SessionKind.P4RUNTIME, SessionKind.GNMI}


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
class Trial:
    """What a device is asked before the first line of a change; it changes nothing."""

    command: str
    judge: Callable[[str], tuple[str, ...]]
    """The answer → what the operator has to know, a sentence each; raises DeviceError where the device says
    that it would refuse the change, or not do what it says."""


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
    rollback_hint: str = ""
    """What the operator enters on the device to return to the state before; empty: it keeps none."""
    takes_down: tuple[str, ...] = ()
    """Ports that stop forwarding for a while."""
    trial: Trial | None = None
    stays: tuple[Difference, ...] = ()
    """What will not be as planned even after it: somebody else's settings, which no line of ours removes."""

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
    has_ended: re.Pattern[str] | None = None
    """What the device says where it refuses `keep` because nothing waits; None: it does not refuse that."""


class Lossless(NamedTuple):
    """What a priority with flow control (PFC) serves on a port now, or would lose."""

    port: str
    """Of the plan; another one where the plan moves code points on all ports of the switch."""
    priority: int
    dscps: tuple[int, ...]
    """Of another port, those that the plan moves."""
    otherwise: str = ""
    """The setting, which the plan replaces, by which packets get there without regard to their DSCP."""


class Claim(NamedTuple):
    """Who has a device to himself, as it stands on the device."""

    owner: str
    """The state directory's mark, 8 hexadecimal digits."""
    who: str
    """User and host of the operator who took the device, as `anna@jump1`."""
    since: int
    """Seconds since 1970, by the clock that `Lock.read` tells."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A mark on the device that keeps other operators away, whatever machine they push from."""

    query: str
    read: Callable[[str], tuple[int, tuple[Claim, ...]]]
    """Its answer → the time now, and all claims; raises DeviceError for what it cannot read."""
    take: Callable[[Claim, str], tuple[Step, ...]]
    """A claim, the answer → what makes it, where nobody else has one."""
    release: Callable[[str, str], tuple[Step, ...]]
    """An answer, an owner → what removes his claim, and what he has begun and not made run."""
    configured: re.Pattern[str] | None = None
    """What finds a claim in what runs, where it is a part of that: then it is made only before the first line
    that takes effect, and gone before what runs is saved."""


@dataclass(frozen=True, slots=True)
class Guard:
    """How a device keeps two operators apart, and tells whether anything still works on its configuration."""

    lock: Lock | None = None
    enter: tuple[Step, ...] = ()
    """Instead of a lock, before the last look: what only one session can have, as long as that is open."""
    busy: str = ""
    """Query that lists what changes the configuration now; nothing in the answer: nothing does. Empty: the
    device does not tell, so it is looked at twice."""
    compares: bool = False
    """Whether what runs is read once more before the first line that takes effect, and has to be the same."""
    whole: str = ""
    """Query whose answer has to be the same, too, comments aside: the whole configuration."""
    discard: tuple[Step, ...] = ()
    """What drops the lines of ours that wait to take effect."""


@dataclass(frozen=True, slots=True)
class RunningState:
    """What a device answered: the part that we own, as state, and the raw answers by query."""

    state: SwitchState
    answers: Mapping[str, str]
    notes: tuple[str, ...] = ()
    """What the operator has to know and no value of the state says, a sentence each."""
    unconfirmed: tuple[str, ...] = ()
    """What the device undoes by itself unless a push confirms it, a sentence each; verify fails for it."""
    lossless: tuple[Lossless, ...] = ()
    """What runs with flow control, and is not the plan's."""


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
    """Those that the limit drops afterwards among them."""
    admitted_packets: int | None = None
    """Let into the queue, where nothing tells how many have left it."""
    dropped_at_threshold_packets: int | None = None
    dropped_at_limit_packets: int | None = None


QueuePlace = tuple[str, int]
"""Port and hardware queue."""
QueueCounters = Mapping[QueuePlace, EgressCounters]
"""The counters of the queues of which the device tells something."""


@dataclass(frozen=True, slots=True)
class CounterSource:
    """How a device is asked for the counters of its queues."""

    queries: Callable[[Iterable[str]], tuple[str, ...]]
    """Ports → commands whose answers `read` needs; they change nothing."""
    read: Callable[[Mapping[str, str], Iterable[QueuePlace]], QueueCounters]
    """Answers, queues → their counters; raises DeviceError for answers that it cannot read."""
    poll_seconds: float = 0.0
    """How old an answer may be, for the OS copies what its chip counts only now and then."""
    tells_traffic: bool = True
    """Whether it tells how many packets came to a queue; else its marks and drops alone, which an acceptance
    test can use, for there one class at a time queues on a port."""


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
class FittedState:
    """The plan for one switch as the device can express it, and how that differs from the plan."""

    state: SwitchState
    roundings: tuple[Rounding, ...]
    class_queues: Mapping[str, int]
    """Traffic class → hardware queue."""
    capabilities: Capabilities
    """What the state was rounded to."""
    unsupported: tuple[str, ...] = ()
    """What the plan asks for and the device cannot do, a sentence each; the rest is rendered without it."""
    leak: str = ""
    """The sentence of `unsupported` that harms other switches: a push has to be told to accept it."""


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
