"""The doctor's report: findings about a machine, and about each path in one direction."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.hostagent.errors import AgentError
from mltswitch.wire import Dscp, Ecn

FEWEST_LOST: Final = 3
"""Number of lost full packets that counts as an error; fewer may be an accident on one of the hosts."""
ECN_NAMES: Final = {Ecn.NOT_ECT: "Not-ECT", Ecn.ECT_0: "ECT(0)", Ecn.ECT_1: "ECT(1)", Ecn.CE: "CE"}
_BORDER: Final = "look for the switch on this path that rewrites it: an untrusted port, a policy, a tunnel"
_FILTER: Final = "look for a packet filter or a policer on this path"
_IDLE: Final = "examine an idle network; else look at the switches' thresholds (mltswitch verify), and cables"


class Status(StrEnum):
    """Severity of a finding, in ascending order."""

    OK = "ok"
    WARNING = "warning"
    """A job works, but slower or less exactly than it could."""
    ERROR = "error"
    """A job fails, or the network does not do what the plan rests on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of the doctor and its result."""

    status: Status
    where: str
    what: str
    hint: str = ""
    """What the user can do about it; empty if there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathReport:
    """Findings about one path from a sending host to a receiving one."""

    path: int
    sender: str
    receiver: str
    local: str
    """Address of the sending host on this path."""
    remote: str
    longest_packet_bytes: int
    """Length in bytes of the longest packet that arrived, with its IP header; 0: none arrived."""
    sent_packets: int
    lost_packets: int
    """How many of the sent packets, all full ones of one class, were lost."""
    round_trip_seconds: float | None
    least_round_trip_seconds: float | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings about this host, and where there is a peer, about it and the paths between both."""

    name: str
    machine: tuple[Finding, ...]
    peer: str | None = None
    peer_machine: tuple[Finding, ...] = ()
    """The peer's findings about its own host."""
    paths: tuple[PathReport, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings: about this host, the peer's host, and the paths."""
        return (*self.machine, *self.peer_machine, *(found for path in self.paths for found in path.findings))

    @property
    def exit_code(self) -> int:
        """Exit code for the worst finding; errors of this machine take precedence over those of paths."""
        if worst(self.machine) is Status.ERROR:
            return MachineError.exit_code
        return AgentError.exit_code if worst(self.findings) is Status.ERROR else 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """Counts of what a receiver got of one tensor."""

    data_packets: int
    paths: tuple[int, ...]
    """Packets by path, including those that end a pass over the tensor and those of the agent itself."""
    by_byte: Counter[int]
    """Packets by their DSCP/ECN byte, of the whole connection."""

    def since(self, before: "Arrival") -> "Arrival":
        """These counts less those of an earlier moment."""
        paths = (now - then for now, then in zip(self.paths, before.paths, strict=True))
        return Arrival(self.data_packets, tuple(paths), self.by_byte - before.by_byte)


def worst(findings: Iterable[Finding]) -> Status:
    """The most severe status of these findings; ok if there are none."""
    return max((finding.status for finding in findings), key=list(Status).index, default=Status.OK)


def checked(is_ok: bool, where: str, what: str, hint: str, status: Status = Status.WARNING) -> Finding:
    """A finding with status ok if `is_ok`, otherwise with this status and hint."""
    return Finding(Status.OK, where, what) if is_ok else Finding(status, where, what, hint)


def mtu(longest_bytes: int, wanted_bytes: int) -> Finding:
    """The finding on the MTU, from the longest packet that arrived and that wanted, with IP headers."""
    if longest_bytes >= wanted_bytes:
        return Finding(Status.OK, "MTU", f"packets of {wanted_bytes:,} bytes arrive")
    what = f"packets of {wanted_bytes:,} bytes vanish; up to {longest_bytes:,} arrive"
    hint = f"raise the MTU on the way, or give agents mtu_bytes: {longest_bytes}"
    return Finding(Status.ERROR, "MTU", what, hint)


def loss(sent: int, lost: int) -> Finding:
    """The finding on lost full packets of one class: ok without any, an error from FEWEST_LOST on."""
    status = Status.ERROR if lost >= FEWEST_LOST else Status.WARNING
    return checked(not lost, "loss", f"{lost} of {sent} full packets lost", _IDLE, status)


def judge(arrivals: Mapping[tuple[Dscp, bool], Arrival]) -> Iterator[Finding]:
    """Findings on which DSCP and ECN marks are kept on a path, from what arrived of each DSCP and importance.

    Important packets are sent as ECT(0), others as Not-ECT.
    """
    classes: dict[Dscp, set[Dscp]] = defaultdict(set)
    marks: dict[tuple[Ecn, Ecn | None], list[Dscp]] = defaultdict(list)
    for (dscp, is_important), arrival in sorted(arrivals.items()):
        sent = Ecn.ECT_0 if is_important else Ecn.NOT_ECT
        byte = _became(arrival, dscp << 2 | sent)
        marks[sent, None if byte is None else Ecn(byte & 3)].append(dscp)
        classes[dscp if byte is None else byte >> 2].add(dscp)
    rewritten = {target: those - {target} for target, those in sorted(classes.items()) if those - {target}}
    for target, those in rewritten.items():
        what = f"{ranges(those)} arrive as {target}: switches behind it serve them as others"
        yield Finding(Status.ERROR, "DSCP", what, _BORDER)
    if not rewritten:
        yield Finding(Status.OK, "DSCP", f"{ranges(classes)} kept")
    for (sent, after), points in marks.items():
        yield _mark(sent, after, ranges(points))


def _mark(sent: Ecn, after: Ecn | None, points: str) -> Finding:
    name = ECN_NAMES[sent]
    if after is None:
        return Finding(Status.ERROR, "ECN", f"no {name} packets of DSCP {points} arrive", _FILTER)
    if after is sent:
        return Finding(Status.OK, "ECN", f"{name} kept in DSCP {points}")
    status, means, hint = Status.WARNING, "both are important to switches", _BORDER
    if not sent.is_capable:
        status, means = Status.ERROR, "unimportant packets are spared"
    elif not after.is_capable:
        status, means = Status.ERROR, "important packets are dropped as others"
    elif after is Ecn.CE:
        means, hint = "switches mark without congestion", _IDLE
    return Finding(status, "ECN", f"{name} arrives as {ECN_NAMES[after]} in DSCP {points}: {means}", hint)


def _became(arrival: Arrival, byte: int) -> int | None:
    """The byte of most packets; as sent where half have it, for others are among them. None: dropped."""
    if not arrival.data_packets:
        return None
    others = Counter({other: count for other, count in arrival.by_byte.items() if other != byte})
    if 2 * arrival.by_byte[byte] >= arrival.data_packets or not others:
        return byte
    return others.most_common(1)[0][0]


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as text with runs shortened, such as `0-7, 46`."""
    runs = groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0])
    found = [[number for _, number in run] for _, run in runs]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found)
