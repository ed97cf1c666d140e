"""What measurements of a path, one way, mean for a job."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.hostagent.doctor.report import Finding, Status
from mltswitch.wire import Dscp, Ecn

LOSS_SHARE: Final = 0.01
"""An idle network in order loses less."""
FEWEST_LOST: Final = 3
"""Fewer may be an accident of one of the hosts."""
ECN_NAMES: Final = {Ecn.NOT_ECT: "Not-ECT", Ecn.ECT_0: "ECT(0)", Ecn.ECT_1: "ECT(1)", Ecn.CE: "CE"}
_BORDER: Final = "look for the switch on this path that rewrites it: an untrusted port, a policy, a tunnel"
_FILTER: Final = "look for a packet filter or a policer on this path"
_IDLE: Final = "examine an idle network; else look at the switches' thresholds (mltswitch verify), and cables"


class Arrival(NamedTuple):
    """Of one tensor, at its receiver."""

    data_packets: int
    packets: int
    """On the path, those included that end a pass, and that the agent itself sends."""
    by_byte: Counter[int]
    """By DSCP/ECN byte; of the whole connection."""


def dead() -> Finding:
    """Of a path by which nothing arrives."""
    hint = "look at routes to the receiver's address, packet filters, and the receiver's rp_filter"
    return Finding(Status.ERROR, "path", "no packet arrives: agents leave the path out", hint)


def mtu(longest_bytes: int, wanted_bytes: int) -> Finding:
    """Of the longest packet that arrives and that of the job, with IP headers."""
    if longest_bytes >= wanted_bytes:
        return Finding(Status.OK, "MTU", f"packets of {wanted_bytes:,} bytes arrive")
    what = f"packets of {wanted_bytes:,} bytes vanish; up to {longest_bytes:,} arrive"
    hint = f"raise the MTU on the way, or give agents mtu_bytes: {longest_bytes}"
    return Finding(Status.ERROR, "MTU", what, hint)


def loss(sent: int, lost: int) -> Finding:
    """Of full packets of one class."""
    status = Status.ERROR if lost >= max(FEWEST_LOST, LOSS_SHARE * sent) else Status.WARNING
    what = f"{lost} of {sent} full packets lost"
    return Finding(status, "loss", what, _IDLE) if lost else Finding(Status.OK, "loss", what)


def judge(arrivals: Mapping[tuple[Dscp, bool], Arrival]) -> Iterator[Finding]:
    """By code point, and whether it was sent as important, ECT(0), or not, Not-ECT: which are kept."""
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
    what = f"{name} arrives as {ECN_NAMES[after]} in DSCP {points}"
    if not sent.is_capable:
        return Finding(Status.ERROR, "ECN", f"{what}: unimportant packets are spared", _BORDER)
    if not after.is_capable:
        return Finding(Status.ERROR, "ECN", f"{what}: important packets are dropped as others", _BORDER)
    if after is Ecn.CE:
        return Finding(Status.WARNING, "ECN", f"{what}: switches mark without congestion", _IDLE)
    return Finding(Status.WARNING, "ECN", f"{what}: both are important to switches", _BORDER)


def _became(arrival: Arrival, byte: int) -> int | None:
    """The byte of most packets; as sent where half have it, for others are among them. None: dropped."""
    if not arrival.data_packets:
        return None
    others = [other for other in arrival.by_byte if other != byte]
    if 2 * arrival.by_byte[byte] >= arrival.data_packets or not others:
        return byte
    return max(others, key=arrival.by_byte.__getitem__)


def ranges(numbers: Iterable[int]) -> str:
    """`0-7, 46`."""
    found = []
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        found.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(found)
