"""The types that targets take and return: steps, changes, running states, and plans rounded to a device."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from mltswitch.capabilities import Capabilities
from mltswitch.targets.state import Difference, SwitchState


class SessionKind(StrEnum):
    """The kind of session in which a device is configured: over SSH, or for some kinds over gRPC."""

    CLI = "cli"
    """An interactive vendor command line with a configuration mode."""
    SHELL = "shell"
    """A POSIX shell: one exec channel per command, with standard input and an exit status."""
    P4RUNTIME = "p4runtime"
    """Table entries over gRPC (P4Runtime), with the queries and commands of targets/p4runtime.py."""
    GNMI = "gnmi"
    """Leaves of OpenConfig models over gRPC (gNMI), with the queries of targets/openconfig/model.py."""

    @property
    def is_grpc(self) -> bool:
        """Whether the session is over gRPC, so that it has no SSH key and no host key."""
        return self in {SessionKind.P4RUNTIME, SessionKind.GNMI}


@dataclass(frozen=True, slots=True)
class Step:
    """One command that is sent to a device.

    CLI: `command` is one configuration line. Shell: one command, fed `stdin`; a non-zero exit is a refusal.
    """

    command: str
    stdin: str = ""
    seconds: float | None = None
    """How long the device may take for the step; None: the session's usual time limit."""
    prepares: bool = False
    """Whether the step takes no effect before a later one, so that both may be sent in one round trip."""
    modes: tuple[str, ...] = ()
    """Commands of earlier steps that open the modes in which this one is entered, the outermost first."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a device is asked before the first line of a change; it changes nothing."""

    command: str
    judge: Callable[[str], tuple[str, ...]]
    """The answer → sentences for the operator; raises DeviceError where the device would refuse the change,
    or not do what it says."""


@dataclass(frozen=True, slots=True)
class Change:
    """The steps that take a device from what it runs to what it should run."""

    steps: tuple[Step, ...]
    save: tuple[Step, ...] = ()
    """Steps that make the change survive a reboot; sent only after it was read back and found right.

    Also filled where `steps` is empty: the change before may have been applied, but never saved.
    """
    text: str = ""
    """The change as the operator is shown it, in the device's own language."""
    rollback_hint: str = ""
    """What the operator enters on the device to return to the former state; empty: the device keeps none."""
    takes_down: tuple[str, ...] = ()
    """Ports that stop forwarding for a while during the change."""
    trial: Trial | None = None
    stays: tuple[Difference, ...] = ()
    """What will differ from the plan even after the change: foreign settings that no line can remove."""

    @property
    def is_empty(self) -> bool:
        """Whether the device already runs the plan."""
        return not self.steps


@dataclass(frozen=True, slots=True)
class Timer:
    """How a device undoes a change by itself, unless it is told in time to keep it."""

    arm: Callable[[Change, Mapping[str, str], SwitchState, str, int], Change]
    """(the change, the device's answers before it, the wanted state, a unique name, seconds) → the same
    change, which the device undoes after that time."""
    keep: Callable[[str], tuple[Step, ...]]
    """Name of a change → steps that keep it, harmless when repeated; the device refuses them while it undoes
    the change, and once it has undone it they do nothing."""
    armed: str = ""
    """Query for the names of changes that wait or are being undone; empty: the device refuses others then."""
    is_named: bool = True
    """Whether `keep` names its change; if not, it is sent only to a device that runs the change."""
    has_ended: re.Pattern[str] | None = None
    """What the device answers where it refuses `keep` because no change waits; None: it never refuses it."""


class Lossless(NamedTuple):
    """What a priority with flow control (PFC) serves on a port now, or would lose by a push."""

    port: str
    """A port of the plan, or another one where the plan moves code points on all ports of the switch."""
    priority: int
    dscps: tuple[int, ...]
    """DSCPs that lead to the priority; on a port outside the plan, those of them that the plan moves."""
    otherwise: str = ""
    """The setting by which packets reach the priority whatever their DSCP, and which the plan replaces."""


class Claim(NamedTuple):
    """Who has taken a device for himself, as the mark on the device says it."""

    owner: str
    """The ID of the operator's state directory, 8 hexadecimal digits."""
    who: str
    """User and host of the operator who took the device, as `anna@jump1`."""
    since: int
    """When the device was taken, in seconds since 1970 by the clock that `Lock.read` tells."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A mark on the device that keeps other operators away, whatever machine they push from."""

    query: str
    read: Callable[[str], tuple[int, tuple[Claim, ...]]]
    """Answer to `query` → the time now, and all claims; raises DeviceError if it cannot be read."""
    take: Callable[[Claim, str], tuple[Step, ...]]
    """(claim, answer to `query`) → steps that put the claim on the device, where nobody else has one."""
    release: Callable[[str, str], tuple[Step, ...]]
    """(answer to `query`, owner) → steps that remove his claim, and a change that he left unfinished."""
    configured: re.Pattern[str] | None = None
    """Pattern that finds a claim in the running configuration, where claims are a part of it; else None.

    Such a claim is made only before the first line that takes effect, and removed before the configuration is
    saved.
    """


@dataclass(frozen=True, slots=True)
class Guard:
    """How a device keeps two operators apart, and tells that its configuration is being changed."""

    lock: Lock | None = None
    enter: tuple[Step, ...] = ()
    """Steps instead of a lock, before the last look: they take what only one open session can have."""
    busy: str = ""
    """Query that lists what is changing the configuration now; an empty answer: nothing is. If the query
    itself is empty, the device cannot tell, so it is read twice."""
    compares: bool = False
    """Whether what runs is read once more, and must be unchanged, before a line takes effect."""
    whole: str = ""
    """Query for the whole configuration, whose answer must be unchanged, too, apart from comments."""
    discard: tuple[Step, ...] = ()
    """Steps that drop the lines that mltswitch has entered and that wait to take effect."""


@dataclass(frozen=True, slots=True)
class RunningState:
    """What a device answered: the part that mltswitch manages, as state, and the raw answers by query."""

    state: SwitchState
    answers: Mapping[str, str]
    notes: tuple[str, ...] = ()
    """What the operator has to know and no field of the state holds, a sentence each."""
    unconfirmed: tuple[str, ...] = ()
    """What the device undoes by itself unless a push confirms it, a sentence each; verify fails for it."""
    lossless: tuple[Lossless, ...] = ()
    """What runs with priority flow control and is not part of the plan."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a device says it is; a field is empty where its OS does not tell."""

    hostname: str = ""
    serial: str = ""
    """Serial number of the chassis; of a machine without one, its machine-id or base MAC address."""
    model: str = ""
    """Hardware model, as the vendor calls it."""
    release: str = ""
    """Version of the device's OS."""


@dataclass(frozen=True, slots=True)
class EgressCounters:
    """Depth and counters of one hardware queue of a port; None where the device does not tell."""

    depth_bytes: int | None = None
    """Bytes of the packets that wait in the queue now."""
    sent_bytes: int | None = None
    sent_packets: int | None = None
    dropped_packets: int | None = None
    """Packets dropped at the ECN threshold and at the queue's limit."""
    ce_marked_packets: int | None = None
    """Packets marked CE, those that the queue's limit dropped afterwards among them."""
    admitted_packets: int | None = None
    """Packets let into the queue, where the device does not count those that have left it."""
    dropped_at_threshold_packets: int | None = None
    dropped_at_limit_packets: int | None = None


QueuePlace = tuple[str, int]
"""Name of a port and number of a hardware queue."""
QueueCounters = Mapping[QueuePlace, EgressCounters]
"""Queue → its counters, for the queues of which the device tells any."""


@dataclass(frozen=True, slots=True)
class CounterSource:
    """How a device is asked for the counters of its queues."""

    queries: Callable[[Iterable[str]], tuple[str, ...]]
    """Ports → commands whose answers `read` needs; they change nothing."""
    read: Callable[[Mapping[str, str], Iterable[QueuePlace]], QueueCounters]
    """(answers, queues) → counters of the queues; raises DeviceError for answers that it cannot read."""
    poll_seconds: float = 0.0
    """How many seconds old an answer may be, because the OS copies its chip's counters only now and then."""
    tells_traffic: bool = True
    """Whether the device counts all packets that came to a queue.

    If it counts marks and drops alone, only an acceptance test can use them, where one class at a time queues
    on a port.
    """


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The device at the other end of a port's cable, as it says by LLDP: untrusted text."""

    port: str
    """The port of the device that was asked."""
    system: str
    """The neighbour's host name."""
    ports: tuple[str, ...]
    """The neighbour's names of its own port: the identifier before the description."""


@dataclass(frozen=True, slots=True)
class Release:
    """Versions of an OS whose commands have been read in its sources, so that the target knows them."""

    versions: str
    """The versions in words, such as 5.4 to 5.14."""
    pattern: re.Pattern[str]
    """Pattern that matches the beginning of the version text of such a device."""
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
    """The capabilities to which the state was rounded."""
    unsupported: tuple[str, ...] = ()
    """What the plan asks for and the device cannot do, a sentence each; the rest is rendered without it."""
    leak: str = ""
    """The sentence of `unsupported` that harms other switches; pushing needs consent to it. Empty: none."""


class LineError(Exception):
    """A line of a file outside a target's grammar.

    `number` counts from 1, 0 where no line is to blame; `file` is empty where the target has only one.
    """

    def __init__(self, number: int, line: str, problem: str, file: str = "") -> None:
        super().__init__(f"{problem}: {line[:120]!r}" if line else problem)
        self.number = number
        self.file = file


class FileError(Exception):
    """Several faulty lines of a file, in its order."""

    def __init__(self, errors: list[LineError]) -> None:
        super().__init__()
        self.errors = errors
