"""The device's own counters of one queue, where we know how to read them, beside what the hosts saw."""

from typing import Final

import numpy as np

from mltswitch.measure.acceptance.checks import Check, ExpectedQueue, Question
from mltswitch.measure.acceptance.observe import Trace
from mltswitch.targets.base import EgressCounters

COUNTER_SHARE: Final = 0.03
COUNTER_PACKETS: Final = 5
"""By how much a counter may differ: other traffic of the class, losses on the way."""
COUNTED: Final = ("ce_marked_packets", "dropped_at_threshold_packets", "dropped_at_limit_packets")
"""Counters of which a check needs one at least."""


def judge_counters(
    trace: Trace, expected: ExpectedQueue, before: EgressCounters | str, after: EgressCounters | str
) -> Check:
    """Whether the device counted the marks and drops that the hosts saw; a text says why it was not read."""
    name = expected.traffic_class
    if isinstance(before, str) or isinstance(after, str):
        return Check(
            Question.COUNTERS, name, None, "not read", "", before if isinstance(before, str) else str(after)
        )
    counted_marked, early, full = (_risen(getattr(before, field), getattr(after, field)) for field in COUNTED)
    lost = int(np.sum(~trace.is_received))
    ect_lost = int(np.sum(~trace.is_received & trace.is_ect))
    marked = int(np.sum(trace.is_marked))
    # Of the ECT packets lost, those dropped at L were marked before, those dropped elsewhere were not.
    found = [("marked", counted_marked, marked, marked + ect_lost)]
    if early is None or full is None:
        found += [("dropped at S", early, lost - ect_lost, lost - ect_lost)]
    else:
        found += [("dropped", early + full, lost, lost)]
    seen = [(what, count, least, most) for what, count, least, most in found if count is not None]
    holds = all(_within(count, least, most) for _, count, least, most in seen)
    return Check(
        Question.COUNTERS,
        name,
        holds,
        ", ".join(f"{what} {count:,}" for what, count, _, _ in seen),
        ", ".join(
            f"{what} {least:,}" + (f" to {most:,}" if most > least else "") for what, _, least, most in seen
        ),
        ""
        if holds
        else "the device counts other packets than the hosts saw: another queue of the port serves "
        "this class, packets are lost elsewhere, or other traffic crosses the port",
    )


def _risen(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _within(counted: int, least: int, most: int) -> bool:
    slack = COUNTER_PACKETS + COUNTER_SHARE * most
    return least - slack <= counted <= most + slack
