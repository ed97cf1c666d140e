"""What the measurements of an examination mean for a job."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from mltswitch.hostagent.doctor.addresses import route_findings
from mltswitch.hostagent.doctor.clocks import ClockChange
from mltswitch.hostagent.doctor.examination import MAXIMUM_MTU_BYTES, Direction, PathResult, PeerResult
from mltswitch.hostagent.doctor.findings import Finding, HostReport, Status, worst
from mltswitch.hostagent.doctor.settings import DoctorSettings
from mltswitch.wire import CS6, CS7, Dscp, Ecn, TrafficClassByte

GREY_SHARE: Final = 0.01
"""Of lost datagrams, with nothing else on the network: more than cables and switches in order lose."""
FEWEST_LOST: Final = 3
"""Fewer may be an accident of this host."""
DRIFT_PARTS_PER_MILLION: Final = 500.0
"""More than a clock of a host in order is off (ntp_adjtime(3)); delays would grow or shrink by it."""
ECN_NAMES: Final = {Ecn.NOT_ECT: "Not-ECT", Ecn.ECT_0: "ECT(0)", Ecn.ECT_1: "ECT(1)", Ecn.CE: "CE"}
_DROPPED_MEANINGS: Final = {
    Ecn.NOT_ECT: "unimportant packets do not get through at all",
    Ecn.ECT_0: "important packets do not get through at all",
    Ecn.ECT_1: "no job sends it: agents send ECT(0)",
    Ecn.CE: "important packets that a switch marks are lost",
}
_BORDER: Final = "look for the switch on this path that rewrites it: an untrusted port, a policy, a tunnel"
_SHOWN: Final = 6


@dataclass(frozen=True, slots=True)
class DirectionReport:
    """One path, one way."""

    sender: str
    receiver: str
    findings: tuple[Finding, ...]
    measured: Direction


@dataclass(frozen=True, slots=True)
class PathReport:
    """One path between two hosts."""

    number: int
    local: str
    remote: str
    round_trip_minimum_ns: int | None
    round_trip_median_ns: float | None
    findings: tuple[Finding, ...]
    """About the path as such: the route to the peer, round trips."""
    directions: tuple[DirectionReport, DirectionReport]

    @property
    def every_finding(self) -> Iterator[Finding]:
        """Of the path and both directions."""
        yield from self.findings
        for direction in self.directions:
            yield from direction.findings


@dataclass(frozen=True, slots=True)
class Report:
    """Everything."""

    host: HostReport
    peer: HostReport | None
    paths: tuple[PathReport, ...]

    @property
    def status(self) -> Status:
        """The worst that was found."""
        hosts = [self.host, self.peer] if self.peer else [self.host]
        findings = [finding for host in hosts for finding in host.findings]
        return worst([*findings, *(finding for path in self.paths for finding in path.every_finding)])


def judge(host: HostReport, result: PeerResult, settings: DoctorSettings) -> Report:
    """The whole report."""
    ours, theirs = host.name, result.peer
    return Report(
        HostReport(ours, (*host.findings, *clock_findings(result.own_clock), *_between(result))),
        HostReport(
            theirs,
            (
                *(
                    Finding(told.subject, told.status, told.seen, told.meaning, told.remedy)
                    for told in result.told
                ),
                *clock_findings(result.peer_clock),
            ),
        ),
        tuple(_path(path, settings, ours, theirs) for path in result.paths),
    )


def _path(path: PathResult, settings: DoctorSettings, ours: str, theirs: str) -> PathReport:
    directions = tuple(
        DirectionReport(
            sender,
            receiver,
            direction_findings(direction, path.header_bytes, settings.payload_bytes),
            direction,
        )
        for sender, receiver, direction in ((ours, theirs, path.outgoing), (theirs, ours, path.incoming))
    )
    return PathReport(
        path.number,
        path.local,
        path.remote,
        path.round_trip_minimum_ns,
        path.round_trip_median_ns,
        (*route_findings(settings.paths[path.number], path.remote), _round_trips(path)),
        (directions[0], directions[1]),
    )


def _round_trips(path: PathResult) -> Finding:
    least, middle = path.round_trip_minimum_ns, path.round_trip_median_ns
    if least is None or middle is None:
        lives = path.outgoing.is_alive and path.incoming.is_alive
        return Finding(
            "round trip",
            Status.PROBLEM,
            f"none of {path.questions} questions was answered",
            "questions are important packets: one direction, or both, drops them"
            if lives
            else "one direction of the path, or both, is dead",
        )
    seen = f"least {least / 1e6:.3f} ms, median {middle / 1e6:.3f} ms, of {len(path.round_trips_ns)} answers"
    return Finding("round trip", Status.OK, seen)


def _between(result: PeerResult) -> Iterator[Finding]:
    """About both hosts together."""
    proved = f"TLS 1.3, {result.peer} has proved its name"
    claimed = f"plain text, {result.peer} is what the peer calls itself"
    yield Finding("control channel", Status.OK, proved if result.is_authenticated else claimed)
    if result.drift is None:
        return
    rate, open_to = result.drift.parts_per_million, result.drift.uncertainty
    wrong = abs(rate) - open_to > DRIFT_PARTS_PER_MILLION
    yield Finding(
        "clock drift",
        Status.WARNING if wrong else Status.OK,
        f"the clock of {result.peer} runs {rate:+.0f} ± {open_to:.0f} parts in a million against ours",
        "delays between hosts seem to grow or shrink" if wrong else "",
        "look at the time service of both hosts (chronyc tracking)" if wrong else "",
    )


def clock_findings(change: ClockChange) -> tuple[Finding, ...]:
    """Of one host, over the examination."""
    seen = f"time of day changed by {change.change_ns / 1e6:+.3f} ms in {change.elapsed_ns / 1e9:.1f} s"
    if not change.is_step:
        return (Finding("clock steps", Status.OK, seen),)
    return (
        Finding(
            "clock steps",
            Status.WARNING,
            seen,
            "somebody sets the clock: certificates may seem expired; transfers do not read it",
            "let one time service slew it (chrony)",
        ),
    )


def direction_findings(direction: Direction, header_bytes: int, payload_bytes: int) -> tuple[Finding, ...]:
    """Everything about one direction of one path."""
    if not direction.is_alive:
        return (_dead(direction),)
    return (
        *dscp_findings(direction),
        *ecn_findings(direction),
        path_mtu(direction, header_bytes, payload_bytes),
        *_losses(direction),
        *_oddities(direction),
    )


def _dead(direction: Direction) -> Finding:
    if direction.is_withheld:
        return Finding(
            "alive",
            Status.WARNING,
            "not examined: the other direction is dead, and in plain text nobody sends to unproved addresses",
            "nothing is known about this direction",
            "mend the other direction, or give both hosts keys",
        )
    if direction.errors:
        return Finding(
            "alive",
            Status.PROBLEM,
            f"the sender's own kernel refuses: {_refusals(direction)}",
            "the path is dead, and the agent leaves it out",
            "look at the sender's routes and packet filter",
        )
    return Finding(
        "alive",
        Status.PROBLEM,
        f"none of {sum(direction.sent.values())} datagrams arrived",
        "the path is dead, and the agent leaves it out",
        "look at the routes to the receiver's address, at packet filters, and at the receiver's rp_filter",
    )


# DSCP


def dscp_findings(direction: Direction) -> Iterator[Finding]:
    """Which code points arrive as they were sent, and what becomes of the others."""
    arrivals = dscp_arrivals(direction.received)
    sent = sorted({byte >> 2 for byte in direction.sent})
    lost = [dscp for dscp in sent if not arrivals.get(dscp)]
    changed = {dscp: new for dscp in sent if (new := set(arrivals.get(dscp, ())) - {dscp})}
    kept = len(sent) - len(lost) - len(changed)
    if not lost and not changed:
        yield Finding("DSCP", Status.OK, f"all {len(sent)} kept")
        return
    if changed:
        routing = set(changed) <= {CS6, CS7}
        yield Finding(
            "DSCP",
            Status.WARNING if routing else Status.PROBLEM,
            f"{kept} of {len(sent)} kept; {_remapped(changed, arrivals)}",
            "these belong to routing protocols, and no job sends them"
            if routing
            else "switches behind it serve these classes as others",
            "" if routing else _BORDER,
        )
    if lost:
        routing = set(lost) <= {CS6, CS7}
        yield Finding(
            "DSCP dropped",
            Status.WARNING if routing else Status.PROBLEM,
            f"nothing arrives with {ranges(lost)}",
            "" if routing else "these classes do not get through at all",
            "" if routing else "look for a packet filter or a policer on this path",
        )


def dscp_arrivals(received: Mapping[tuple[int, int], int]) -> dict[Dscp, Counter[Dscp]]:
    """Code point as sent → as received → how many."""
    found: dict[Dscp, Counter[Dscp]] = defaultdict(Counter)
    for (sent, seen), count in received.items():
        found[sent >> 2][seen >> 2] += count
    return dict(found)


def _remapped(changed: Mapping[Dscp, set[Dscp]], arrivals: Mapping[Dscp, Counter[Dscp]]) -> str:
    """`10-12, 46 → 0 (bleached)`, by what they become."""
    becomes: dict[str, list[Dscp]] = defaultdict(list)
    for dscp, new in changed.items():
        target = "0 (bleached)" if new == {0} else ranges(sorted(new))
        partly = dscp in arrivals[dscp]
        becomes[f"{target}{', some of them' if partly else ''}"].append(dscp)
    texts = [f"{ranges(sorted(points))} → {target}" for target, points in becomes.items()]
    return "; ".join(texts[:_SHOWN]) + (f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")


def ranges(numbers: Sequence[int]) -> str:
    """`0-7, 46` of sorted numbers."""
    found = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        found.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ", ".join(found)


# ECN


def ecn_findings(direction: Direction) -> Iterator[Finding]:
    """Whether importance and congestion marks get through."""
    changes: dict[tuple[Ecn, Ecn], Counter[Dscp]] = defaultdict(Counter)
    totals: Counter[Ecn] = Counter()
    for (sent, seen), count in direction.received.items():
        byte, new = TrafficClassByte.from_int(sent), Ecn(seen & 3)
        totals[byte.ecn] += count
        if byte.ecn is not new:
            changes[byte.ecn, new][byte.dscp] += count
    dropped = tuple(_dropped(direction))
    yield from dropped
    if not changes and not dropped:
        yield Finding("ECN", Status.OK, "all four code points kept")
    everywhere = {byte >> 2 for byte in direction.sent}
    for (before, after), points in sorted(changes.items()):
        status, meaning, remedy = _ecn_meaning(before, after)
        became = f"{ECN_NAMES[before]} arrive as {ECN_NAMES[after]}"
        where = "" if set(points) == everywhere else f", of DSCP {ranges(sorted(points))}"
        yield Finding(
            "ECN",
            status,
            f"{sum(points.values())} of {totals[before]} {became}{where}",
            meaning,
            remedy,
        )


def _dropped(direction: Direction) -> Iterator[Finding]:
    """ECN code points of which nothing arrives, under DSCPs of which others do."""
    came: Counter[int] = Counter()
    for (sent, _), count in direction.received.items():
        came[sent] += count
    living = {byte >> 2 for byte, count in came.items() if count}
    for ecn in Ecn:
        of_ecn = [byte for byte in sorted(direction.sent) if byte & 3 == ecn and byte >> 2 in living]
        lost = [byte for byte in of_ecn if not came[byte]]
        if not lost:
            continue
        points = [byte >> 2 for byte in lost]
        count = sum(direction.sent[byte] for byte in lost)
        is_harmless = ecn is Ecn.ECT_1 or set(points) <= {CS6, CS7}
        yield Finding(
            "ECN dropped",
            Status.WARNING if is_harmless else Status.PROBLEM,
            f"nothing arrives as {ECN_NAMES[ecn]} (0 of {count} under {ranges(points)})",
            _DROPPED_MEANINGS[ecn],
            "look for a packet filter or a policer on this path",
        )


def _ecn_meaning(before: Ecn, after: Ecn) -> tuple[Status, str, str]:
    if after is Ecn.CE and before.is_capable:
        return (
            Status.WARNING,
            "a switch marks congestion: the network was not idle, or marks whatever queue it has",
            "examine an idle network; else look at the switches' thresholds (mltswitch verify)",
        )
    if before is Ecn.CE:
        return Status.PROBLEM, "congestion marks do not reach the receiver", _BORDER
    if before.is_capable and not after.is_capable:
        return Status.PROBLEM, "important packets are dropped as unimportant ones are", _BORDER
    if not before.is_capable:
        return Status.PROBLEM, "unimportant packets are spared as important ones are", _BORDER
    return Status.WARNING, "both are important to switches; agents send ECT(0)", ""


# MTU, loss


def path_mtu(direction: Direction, header_bytes: int, payload_bytes: int) -> Finding:
    """Whether the job's packets fit."""
    subject = "path MTU"
    longest = direction.payload_limit_bytes
    limit = direction.sender_limit_bytes
    by_sender = limit is not None and limit <= longest + 1
    packet_bytes = longest + header_bytes
    at_least = " or more" if packet_bytes >= MAXIMUM_MTU_BYTES else ""
    seen = f"{packet_bytes:,} bytes{at_least}: payload of {longest:,} arrives"
    if by_sender:
        seen += ", the sender's kernel takes no more"
    if longest < payload_bytes:
        return Finding(
            subject,
            Status.PROBLEM,
            f"{seen}, {payload_bytes:,} wanted",
            "full packets vanish, and no message tells the sender",
            f"raise the MTU on the way, or give agents mtu_bytes: {packet_bytes}",
        )
    is_short = longest - payload_bytes >= payload_bytes
    meaning = f"{payload_bytes:,} wanted; longer packets cost less processor time" if is_short else ""
    return Finding(subject, Status.OK, seen, meaning)


def _losses(direction: Direction) -> Iterator[Finding]:
    lost = direction.loss_sent - direction.loss_arrived
    by_host = min(lost, direction.dropped_by_host)
    share = (lost - by_host) / direction.loss_sent if direction.loss_sent else 0.0
    seen = f"{lost} of {direction.loss_sent} datagrams of {direction.loss_payload_bytes:,} bytes lost"
    if direction.dropped_by_host:
        yield Finding(
            "receiver",
            Status.WARNING,
            f"its own kernel dropped {direction.dropped_by_host} datagrams: the socket's buffer was full",
            "it reads too slowly, or the buffer is too small",
            "see the host's finding about its receive buffer",
        )
    if lost - by_host >= FEWEST_LOST and share >= GREY_SHARE:
        yield Finding(
            "loss",
            Status.PROBLEM,
            f"{seen}: {share:.1%}",
            "the path is grey: the agent leaves it out, or each tensor sends these again",
            "look at error counters of the ports on this path; other traffic counts, too",
        )
    elif lost - by_host > 0:
        yield Finding(
            "loss",
            Status.WARNING,
            f"{seen}: {share:.2%}",
            "within what the agent tolerates; a sound idle path loses nothing",
            "examine again; look at error counters of the ports on this path",
        )
    else:
        yield Finding("loss", Status.OK, seen)


def _oddities(direction: Direction) -> Iterable[Finding]:
    if direction.doubled:
        yield Finding(
            "duplicates",
            Status.WARNING,
            f"{direction.doubled} datagrams arrived twice",
            "harmless for tensors; something on the path copies packets",
            "look for a mirror port or a loop",
        )
    if direction.misdirected:
        yield Finding(
            "misdirected",
            Status.PROBLEM,
            f"{direction.misdirected} datagrams came in at another path's address",
            "both hosts number their paths differently, or something rewrites addresses",
            "give both ends their addresses in the same order",
        )
    if direction.errors:
        seen = f"its own kernel refused some: {_refusals(direction)}"
        yield Finding("sender", Status.WARNING, seen, "these count as never sent")


def _refusals(direction: Direction) -> str:
    return ", ".join(f"{os.strerror(number)} ({count})" for number, count in direction.errors.items())
