"""Verdicts on a probe's figures: for each promise of the plan, what they prove or do not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from mltswitch.measure.probe import ClassLoss, LoadResult, ProbeResult, RampResult
from mltswitch.plan import ClassKind, Plan
from mltswitch.units import BITS_PER_BYTE, format_seconds

RESOLUTION_PACKETS = 2
RESOLUTION_SHARE = 0.05
"""Relative uncertainty of a threshold, besides two packets (switches average, shapers send in bursts)."""
EXCEPTIONS = 0.03
"""Share of packets that may stand on the wrong side of a threshold: a busy machine delays some."""
CHANCE_DEVIATIONS = 3.0
"""Standard deviations by which two loss ratios may differ by chance."""
STALL_LOSS = 0.01
"""Loss ratio that a moment's stall of the measuring machine explains, in any class."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise of the plan, whether it held (None: the figures cannot tell), and the figures."""

    promise: str
    holds: bool | None
    figures: str


def judge(plan: Plan, result: ProbeResult) -> tuple[Verdict, ...]:
    """The verdicts on all promises of the plan; a probe passes when no promise is broken."""
    kinds = {entry.name: entry.kind for entry in plan.classes}
    packet_seconds = result.packet_bytes * BITS_PER_BYTE / result.rate_bps
    selective = {ramp.traffic_class for ramp in result.ramps if ramp.limit_bytes > ramp.ecn_threshold_bytes}
    verdicts = [verdict for ramp in result.ramps for verdict in _thresholds(ramp, result.packet_bytes)]
    for load in result.loads:
        classes: dict[str, list[ClassLoss]] = {}
        for entry in load.classes:
            classes.setdefault(entry.traffic_class, []).append(entry)
        gradients = {name: each for name, each in classes.items() if kinds[name] is ClassKind.GRADIENT}
        pairs = [each for name, each in classes.items() if len(each) == 2 and name in selective]
        verdicts.append(_order(load, gradients, packet_seconds))
        verdicts.append(_importance(load, pairs))
        verdicts += [
            _control(load, each) for each in load.classes if kinds[each.traffic_class] is ClassKind.CONTROL
        ]
    return tuple(verdicts)


def _thresholds(ramp: RampResult, packet_bytes: int) -> Iterator[Verdict]:
    name, s, limit = ramp.traffic_class, ramp.ecn_threshold_bytes, ramp.limit_bytes
    yield _near(f"{name}: Not-ECT is dropped above S", ramp.drop_seen_bytes, s, packet_bytes)
    marking = f"{name}: ECT is marked above S"
    if limit - s <= _resolution(limit, packet_bytes):
        room = (limit - s) // packet_bytes
        yield Verdict(
            marking, None, f"L is only {room} packets above S, too few to be told apart from outside"
        )
    else:
        yield _near(marking, ramp.mark_seen_bytes, s, packet_bytes)
        yield Verdict(
            f"{name}: marks stand on one side of S only",
            ramp.wrong_marks is not None and ramp.wrong_marks <= EXCEPTIONS,
            "no marks" if ramp.wrong_marks is None else f"{ramp.wrong_marks:.1%} exceptions",
        )
        yield Verdict(
            f"{name}: no Not-ECT passes a full queue",
            ramp.survivors_when_full <= EXCEPTIONS,
            f"{ramp.survivors_when_full:.1%} passed",
        )
    yield _near(f"{name}: everything is dropped at L", ramp.full_seen_bytes, limit, packet_bytes)


def _resolution(planned_bytes: int, packet_bytes: int) -> float:
    return RESOLUTION_PACKETS * packet_bytes + RESOLUTION_SHARE * planned_bytes


def _near(promise: str, found_bytes: int | None, planned_bytes: int, packet_bytes: int) -> Verdict:
    if found_bytes is None:
        return Verdict(promise, False, f"planned {planned_bytes:,} B, no packet to judge by")
    return Verdict(
        promise,
        abs(found_bytes - planned_bytes) <= _resolution(planned_bytes, packet_bytes),
        f"planned {planned_bytes:,} B, seen {found_bytes:,} B",
    )


def _order(load: LoadResult, gradients: Mapping[str, list[ClassLoss]], packet_seconds: float) -> Verdict:
    """Strict priority: nobody waits longer than the class below, or starves while a lower one is served."""
    delays = {}  # the longer median delay of a class's two kinds; None where nothing of it arrived
    for name, kinds in gradients.items():
        known = [entry.delay_p50_seconds for entry in kinds if entry.delay_p50_seconds is not None]
        delays[name] = max(known, default=None)
    shown = {
        name: f"{name} {'starved' if delay is None else format_seconds(delay)}"
        for name, delay in delays.items()
    }
    broken = [
        f"{shown[above]} > {shown[below]}"
        for (above, mine), (below, other) in pairwise(delays.items())
        if other is not None and (mine is None or mine > other + packet_seconds)
    ]
    return Verdict(
        f"load {load.load:g}: strict priority, no delay falls from class to class",
        None if len(delays) < 2 else not broken,
        "; ".join(broken) or ", ".join(shown.values()) or "no gradients",
    )


def _importance(load: LoadResult, pairs: list[list[ClassLoss]]) -> Verdict:
    """Unimportant packets, the first of each pair, are lost first, in the classes whose L stands above S."""
    broken = [small.traffic_class for small, large in pairs if _loses_more(large, small, load.burst_packets)]
    figures = [
        f"{small.traffic_class} {small.loss or 0:.1%} / {large.loss or 0:.1%}" for small, large in pairs
    ]
    return Verdict(
        f"load {load.load:g}: unimportant packets are lost first",
        not broken if any(small.lost + large.lost for small, large in pairs) else None,
        "broken by " + ", ".join(broken)
        if broken
        else "unimportant / important: " + (", ".join(figures) or "S = L everywhere"),
    )


def _loses_more(one: ClassLoss, other: ClassLoss, burst_packets: int) -> bool:
    """Whether `one` lost a larger share by more than chance; packets of a burst share their fate."""
    sent = one.sent + other.sent
    share = (one.lost + other.lost) / sent if sent else 0.0
    variance = share * (1 - share) * (1 / max(1, one.sent) + 1 / max(1, other.sent)) * burst_packets
    return (one.loss or 0.0) - (other.loss or 0.0) > CHANCE_DEVIATIONS * sqrt(variance) + STALL_LOSS


def _control(load: LoadResult, entry: ClassLoss) -> Verdict:
    p99 = entry.delay_p99_seconds
    figures = f"{entry.lost} of {entry.sent} lost" + (
        f", p99 {format_seconds(p99)}" if p99 is not None else ""
    )
    promise = f"load {load.load:g}: {entry.traffic_class} untouched"
    return Verdict(promise, entry.lost == 0 and entry.received > 0, figures)
