"""Judgements about classes that compete for the port: strict order, and control under overload."""

from typing import Final

import numpy as np

from mltswitch.measure.acceptance.checks import Check, ExpectedPort, ExpectedQueue, Question
from mltswitch.measure.acceptance.judge import RESOLUTION_PACKETS
from mltswitch.measure.acceptance.observe import Bools, Trace
from mltswitch.units import BITS_PER_BYTE, format_bps

STARVED_SHARE: Final = 0.1
"""Of a lower class's packets, that may be served while the upper one fills the port: hosts pause at times."""
SHARED_SHARE: Final = 0.5
"""Beyond this it is no matter of pauses."""
SETTLED_SHARE: Final = 0.25
"""Part of a phase in which queues grow."""
FILLED_SHARE: Final = 0.85
"""Of the port's rate, that an upper class must get before a lower one can be said to starve."""
CONTROL_PACKETS: Final = 4
"""Wait of control traffic: a packet in transmission, one in a shaper's hands, and others of its own class."""
CONTROL_PERCENTILE: Final = 90.0


def judge_order(trace: Trace, upper: ExpectedQueue, lower: ExpectedQueue, port: ExpectedPort) -> Check:
    """Whether the lower class starves while the upper one, ECT alone, offers more than the port's rate.

    A short upper queue empties whenever a host pauses, and then the lower class is served by right. So a
    lower class that gets a little counts as wrongly served only where upper packets were overtaken.
    """
    name = f"{upper.traffic_class} > {lower.traffic_class}"
    above, below = trace.of("upper"), trace.of("lower")
    expected = f"at most {STARVED_SHARE:.0%} of {lower.traffic_class} served"
    start, end = float(above.time_seconds[0]), float(above.time_seconds[-1])
    start += SETTLED_SHARE * (end - start)
    sent = int(np.sum((below.time_seconds >= start) & (below.time_seconds <= end)))
    served = _leaves_between(below, start, end)
    rate = int(np.sum(_leaves_between(above, start, end))) * port.packet_bytes * BITS_PER_BYTE / (end - start)
    share = int(np.sum(served)) / max(1, sent)
    seen = f"{share:.1%} served, {upper.traffic_class} at {format_bps(round(rate, -3))}"
    if share <= STARVED_SHARE:
        full = rate >= FILLED_SHARE * port.rate_bps
        reason = "" if full else f"{upper.traffic_class} did not fill the port, so nothing had to wait for it"
        return Check(Question.ORDER, name, True if full else None, seen, expected, reason)
    packet_seconds = port.packet_bytes * BITS_PER_BYTE / port.rate_bps
    overtaking = int(np.sum(_overtakes(below.where(served), above, packet_seconds))) / max(1, sent)
    if share <= SHARED_SHARE and overtaking <= STARVED_SHARE:
        return Check(
            Question.ORDER,
            name,
            None,
            seen,
            expected,
            f"{lower.traffic_class} was served, but {upper.traffic_class}, whose queue is short, was "
            "not seen to wait for it: the hosts paused too often to tell",
        )
    return Check(
        Question.ORDER,
        name,
        False,
        f"{seen}, {overtaking:.1%} before older {upper.traffic_class}",
        expected,
        f"{lower.traffic_class} is served while {upper.traffic_class} waits: the order is reversed, or a "
        "scheduler shares the port between the queues (WRR, DWRR)",
    )


def _overtakes(lower: Trace, upper: Trace, packet_seconds: float) -> Bools:
    """Which lower packets left while an upper one waited that had come before their turn was decided.

    It is decided up to two packet times before: a shaper holds one packet, one is in transmission.
    """
    waiting = upper.where(upper.is_received)
    left = waiting.time_seconds + waiting.wait_seconds
    order = np.argsort(left, kind="stable")
    arrived, left = waiting.time_seconds[order], left[order]
    leaves = lower.time_seconds + lower.wait_seconds
    following = np.searchsorted(left, leaves, side="right")
    is_followed = following < len(left)
    came = np.where(is_followed, arrived[np.minimum(following, len(left) - 1)], np.inf)
    decided = leaves - RESOLUTION_PACKETS * packet_seconds - lower.noise_seconds
    return np.asarray(came < decided, dtype=np.bool_)


def judge_control(trace: Trace, name: str, port: ExpectedPort) -> Check:
    """Whether control traffic passes at once, and all of it, while the gradients overload the port."""
    control, overload = trace.of("control"), trace.of("overload")
    lost = int(np.sum(~control.is_received))
    allowed = CONTROL_PACKETS * port.packet_bytes * BITS_PER_BYTE / port.rate_bps + trace.noise_seconds
    expected = f"0 lost, waits of at most {allowed * 1e3:.3g} ms"
    if not np.any(~overload.is_received):
        return Check(
            Question.CONTROL, name, None, "no gradient packet was lost", expected, "the port was not full"
        )
    waits = control.wait_seconds[control.is_received]
    wait = float(np.percentile(waits, CONTROL_PERCENTILE)) if len(waits) else float("inf")
    holds = lost == 0 and wait <= allowed
    return Check(
        Question.CONTROL,
        name,
        holds,
        f"{lost} of {len(control)} lost, p{CONTROL_PERCENTILE:.0f} wait {wait * 1e3:.3g} ms",
        expected,
        ""
        if holds
        else "control traffic suffers from gradients: its queue is not above theirs, its DSCP is not "
        "believed on the way, or the shared buffer is full before it comes",
    )


def _leaves_between(trace: Trace, start: float, end: float) -> Bools:
    left = trace.time_seconds + trace.wait_seconds
    return trace.is_received & (left >= start) & (left <= end)
