"""What a probe's figures prove, or do not: one verdict per promise of the plan."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from mltswitch.measure.probe import ClassLoss, LoadResult, ProbeResult
from mltswitch.measure.ramp import THRESHOLD_TOLERANCE_PACKETS, RampResult
from mltswitch.plan import ClassKind, Plan
from mltswitch.units import BITS_PER_BYTE

EXCEPTIONS = 0.03
"""Share of packets that may stand on the wrong side of a threshold: a busy machine delays some."""
CHANCE_DEVIATIONS = 3.0
"""Standard deviations by which two losses may differ by chance."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One promise, whether it held, and the figures."""

    promise: str
    holds: bool
    figures: str


def judge(plan: Plan, result: ProbeResult) -> tuple[Verdict, ...]:
    """All verdicts; a probe passes when every one holds."""
    tolerance = THRESHOLD_TOLERANCE_PACKETS * result.packet_bytes
    verdicts = [verdict for ramp in result.ramps for verdict in _thresholds(ramp, tolerance)]
    packet_seconds = result.packet_bytes * BITS_PER_BYTE / result.rate_bps
    kinds = {entry.name: entry.kind for entry in plan.classes}
    for load in result.loads:
        verdicts += _order(load, kinds, packet_seconds)
        verdicts += _importance(load)
        verdicts += _control(load, kinds)
    return tuple(verdicts)


def _thresholds(ramp: RampResult, tolerance_bytes: int) -> Iterator[Verdict]:
    name, s, limit = ramp.traffic_class, ramp.ecn_threshold_bytes, ramp.limit_bytes
    yield _near(f"{name}: Not-ECT is dropped above S", ramp.drop_seen_bytes, s, tolerance_bytes)
    if limit - s > tolerance_bytes:
        yield _near(f"{name}: ECT is marked above S", ramp.mark_seen_bytes, s, tolerance_bytes)
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
    yield _near(f"{name}: everything is dropped at L", ramp.full_seen_bytes, limit, tolerance_bytes)


def _near(promise: str, found_bytes: int | None, planned_bytes: int, tolerance_bytes: int) -> Verdict:
    if found_bytes is None:
        return Verdict(promise, False, f"planned {planned_bytes:,} B, no packet to judge by")
    return Verdict(
        promise,
        abs(found_bytes - planned_bytes) <= tolerance_bytes,
        f"planned {planned_bytes:,} B, seen {found_bytes:,} B",
    )


def _order(load: LoadResult, kinds: dict[str, ClassKind], packet_seconds: float) -> Iterator[Verdict]:
    """Strict priority: no class waits longer than the one below it, give or take a packet on the wire."""
    gradients: dict[str, list[ClassLoss]] = {}
    for entry in load.classes:
        if kinds[entry.traffic_class] is ClassKind.GRADIENT:
            gradients.setdefault(entry.traffic_class, []).append(entry)
    delays = [(name, max((e.delay_p50_seconds or 0.0) for e in group)) for name, group in gradients.items()]
    broken = [
        f"{a} {x * 1e3:.2f} ms > {b} {y * 1e3:.2f} ms"
        for (a, x), (b, y) in pairwise(delays)
        if x > y + packet_seconds and y > 0
    ]
    yield Verdict(
        f"load {load.load:g}: strict priority, delays rise from class to class",
        not broken,
        "; ".join(broken) or ", ".join(f"{name} {delay * 1e3:.2f} ms" for name, delay in delays),
    )


def _importance(load: LoadResult) -> Iterator[Verdict]:
    """Unimportant packets are lost first: no class loses more important ones than chance explains."""
    by_class: dict[str, dict[bool, ClassLoss]] = {}
    for entry in load.classes:
        by_class.setdefault(entry.traffic_class, {})[entry.is_important] = entry
    pairs = [(name, both[False], both[True]) for name, both in by_class.items() if len(both) == 2]
    if not pairs:
        return
    broken = [name for name, small, large in pairs if _loses_more(large, small, load.burst_packets)]
    figures = [f"{name} {small.loss or 0:.1%} / {large.loss or 0:.1%}" for name, small, large in pairs]
    yield Verdict(
        f"load {load.load:g}: unimportant packets are lost first", not broken, ", ".join(broken or figures)
    )


def _loses_more(one: ClassLoss, other: ClassLoss, burst_packets: int) -> bool:
    """Whether `one` lost a larger share by more than chance; packets of a burst share their fate."""
    sent = one.sent + other.sent
    share = (one.lost + other.lost) / sent if sent else 0.0
    variance = share * (1 - share) * (1 / max(1, one.sent) + 1 / max(1, other.sent)) * burst_packets
    return (one.loss or 0.0) - (other.loss or 0.0) > CHANCE_DEVIATIONS * sqrt(variance)


def _control(load: LoadResult, kinds: dict[str, ClassKind]) -> Iterator[Verdict]:
    for entry in load.classes:
        if kinds[entry.traffic_class] is ClassKind.CONTROL:
            p99 = entry.delay_p99_seconds
            yield Verdict(
                f"load {load.load:g}: {entry.traffic_class} untouched",
                entry.lost == 0 and entry.received > 0,
                f"{entry.lost} of {entry.sent} lost"
                + (f", p99 {p99 * 1e3:.2f} ms" if p99 is not None else ""),
            )
