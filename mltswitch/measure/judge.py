"""What a probe's figures prove, or do not: one verdict per promise of the plan."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from mltswitch.measure.probe import (
    THRESHOLD_TOLERANCE_PACKETS,
    ClassLoss,
    LoadResult,
    ProbeResult,
    RampResult,
)
from mltswitch.plan import ClassKind, Plan

FAIR_SAMPLE = 100
"""Packets below which a loss ratio says nothing."""
ORDER_TOLERANCE = 0.02
"""By how much a higher class may lose more than a lower one before the order counts as broken."""


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
    kinds = {entry.name: entry.kind for entry in plan.classes}
    for load in result.loads:
        verdicts += _order(load, kinds)
        verdicts += _control(load, kinds)
    return tuple(verdicts)


def _thresholds(ramp: RampResult, tolerance_bytes: int) -> Iterator[Verdict]:
    name, s, limit = ramp.traffic_class, ramp.ecn_threshold_bytes, ramp.limit_bytes
    yield _near(f"{name}: Not-ECT is dropped above S", ramp.deepest_unimportant_bytes, s, tolerance_bytes)
    if limit - s > 2 * tolerance_bytes:
        yield _near(f"{name}: ECT is marked above S", ramp.shallowest_mark_bytes, s, tolerance_bytes)
        yield Verdict(
            f"{name}: no ECT passes unmarked above S",
            ramp.unmarked_above_threshold == 0,
            f"{ramp.unmarked_above_threshold} packets",
        )
    yield _near(f"{name}: everything is dropped at L", ramp.deepest_important_bytes, limit, tolerance_bytes)


def _near(promise: str, found_bytes: int | None, planned_bytes: int, tolerance_bytes: int) -> Verdict:
    if found_bytes is None:
        return Verdict(promise, False, f"planned {planned_bytes:,} B, no packet to judge by")
    return Verdict(
        promise,
        abs(found_bytes - planned_bytes) <= tolerance_bytes,
        f"planned {planned_bytes:,} B, seen {found_bytes:,} B",
    )


def _order(load: LoadResult, kinds: dict[str, ClassKind]) -> Iterator[Verdict]:
    """Strict priority: losses and delays do not fall from a higher gradient class to a lower one."""
    gradients: dict[str, list[ClassLoss]] = {}
    for entry in load.classes:
        if kinds[entry.traffic_class] is ClassKind.GRADIENT:
            gradients.setdefault(entry.traffic_class, []).append(entry)
    delays = [(name, max((e.delay_p50_seconds or 0.0) for e in group)) for name, group in gradients.items()]
    broken = [
        f"{a} {x * 1e3:.2f} ms > {b} {y * 1e3:.2f} ms" for (a, x), (b, y) in pairwise(delays) if x > y > 0
    ]
    yield Verdict(
        f"load {load.load:g}: strict priority, delays rise from class to class",
        not broken,
        "; ".join(broken) or ", ".join(f"{name} {delay * 1e3:.2f} ms" for name, delay in delays),
    )


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
