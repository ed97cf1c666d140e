"""Judgements about classes that compete for the port: strict order, caps, shares, control under overload."""

from typing import Final

import numpy as np

from mltswitch.measure.acceptance.checks import (
    BackgroundClass,
    Check,
    ControlClass,
    ExpectedPort,
    ExpectedQueue,
    HostControl,
    Question,
)
from mltswitch.measure.acceptance.judge import RESOLUTION_PACKETS
from mltswitch.measure.acceptance.observe import Bools, Trace
from mltswitch.units import BITS_PER_BYTE, format_bps, format_seconds

STARVED_SHARE: Final = 0.1
"""Of a lower class's packets, that may be served while the upper one fills the port: hosts pause at times."""
SHARED_SHARE: Final = 0.5
"""Beyond this it is no matter of pauses."""
SETTLED_SHARE: Final = 0.25
"""Part of a phase in which queues grow."""
FILLED_SHARE: Final = 0.85
"""Of the port's rate, that an upper class must get before a lower one can be said to starve."""
CARRIED_SHARE: Final = 0.95
"""Of the port's rate, that all classes together must get before background can be said to fall short."""
CONTROL_PACKETS: Final = 4
"""Wait of control traffic: a packet in transmission, one in a shaper's hands, and others of its own class."""
CONTROL_PERCENTILE: Final = 90.0
CAP_SHARE: Final = 0.15
"""By how much what control gets may exceed its cap: bursts of the device's own shaper, and four packets."""
GUARANTEE_SHARE: Final = 0.2
"""By how much background may fall short: a round robin's turns, and four packets."""
SLACK_PACKETS: Final = 4
SUFFERING_SHARE: Final = 0.8
"""Of background's packets, that must be late or lost before others can be said to fare like it; and of that
part, what others must suffer."""


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
        return Check(
            Question.ORDER, name, True if full else None, seen, expected, reason, is_disturbed=not full
        )
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
            is_disturbed=True,
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
    expected = f"0 lost, waits of at most {format_seconds(allowed)}"
    if not np.any(~overload.is_received):
        return Check(
            Question.CONTROL,
            name,
            None,
            "no gradient packet was lost",
            expected,
            "the port was not full",
            is_disturbed=True,
        )
    waits = control.wait_seconds[control.is_received]
    wait = float(np.percentile(waits, CONTROL_PERCENTILE)) if len(waits) else float("inf")
    holds = lost == 0 and wait <= allowed
    return Check(
        Question.CONTROL,
        name,
        holds,
        f"{lost} of {len(control)} lost, p{CONTROL_PERCENTILE:.0f} wait {format_seconds(wait)}",
        expected,
        ""
        if holds
        else "control traffic suffers from gradients: its queue is not above theirs, its DSCP is not "
        "believed on the way, or the shared buffer is full before it comes",
    )


def judge_cap(trace: Trace, control: ControlClass, maximum_bps: int, port: ExpectedPort) -> Check:
    """Whether control, which offers more than its cap, gets no more."""
    name = control.traffic_class
    greedy = trace.of("greedy")
    start, end = _settled(greedy)
    got = _rate_bps(int(np.sum(_leaves_between(greedy, start, end))), start, end, port)
    offered = _rate_bps(int(np.sum(greedy.time_seconds >= start)), start, end, port)
    most = maximum_bps * (1 + CAP_SHARE) + _rate_bps(SLACK_PACKETS, start, end, port)
    seen = f"{format_bps(round(got, -3))} of {format_bps(round(offered, -3))} offered"
    expected = f"at most {format_bps(round(most, -3))}"
    if offered <= most:
        return Check(
            Question.CAPPED,
            name,
            None,
            seen,
            expected,
            "the hosts did not offer more than the cap",
            is_disturbed=True,
        )
    return Check(
        Question.CAPPED,
        name,
        got <= most,
        seen,
        expected,
        ""
        if got <= most
        else "control takes more than its cap: its queue has no shaper, or another rate, and whoever sends "
        "so much control starves the gradients",
    )


def judge_share(trace: Trace, background: BackgroundClass, share_bps: int, port: ExpectedPort) -> Check:
    """Whether background gets its share while gradients wait; what an idle port gives it proves nothing."""
    name = background.traffic_class
    last, overload = trace.of("background"), trace.of("overload")
    start, end = _settled(last)
    served = _leaves_between(last, start, end)
    got = _rate_bps(int(np.sum(served)), start, end, port)
    least = share_bps * (1 - GUARANTEE_SHARE) - _rate_bps(SLACK_PACKETS, start, end, port)
    seen, expected = format_bps(round(got, -3)), f"at least {format_bps(round(least, -3))}"
    if not np.any(~overload.is_received):
        return Check(Question.SHARE, name, None, seen, expected, "the port was not full", is_disturbed=True)
    carried = _rate_bps(int(np.sum(_leaves_between(trace, start, end))), start, end, port)
    if got < least and carried < CARRIED_SHARE * port.rate_bps:
        return Check(
            Question.SHARE,
            name,
            None,
            seen,
            expected,
            f"the port sent only {format_bps(round(carried, -3))} meanwhile: the hosts paused too often",
            is_disturbed=True,
        )
    if got < least:
        return Check(
            Question.SHARE,
            name,
            False,
            seen,
            expected,
            "gradients starve background: its queue has no guaranteed share, or a smaller one",
        )
    packet_seconds = port.packet_bytes * BITS_PER_BYTE / port.rate_bps
    overtaking = int(np.sum(_leaves_before_waiting(last.where(served), overload, packet_seconds)))
    if _rate_bps(overtaking, start, end, port) < least:
        return Check(
            Question.SHARE,
            name,
            None,
            seen,
            expected,
            "background was served, but not while gradients were seen to wait: the hosts paused too often",
            is_disturbed=True,
        )
    return Check(Question.SHARE, name, True, seen, expected)


def judge_host_control(
    trace: Trace, host_control: HostControl, background: BackgroundClass, port: ExpectedPort
) -> Check:
    """Whether network control from hosts is late or lost as background is, under gradients' overload."""
    allowed = CONTROL_PACKETS * port.packet_bytes * BITS_PER_BYTE / port.rate_bps + trace.noise_seconds
    suffering = {}
    for phase in ("beside", "host-control"):
        packets = trace.of(phase)
        settled = packets.where(packets.time_seconds >= _settled(packets)[0])
        hurt = ~settled.is_received | (settled.wait_seconds > allowed)
        suffering[phase] = float(np.mean(hurt))
    theirs, lasts = suffering["host-control"], suffering["beside"]
    name, late = background.traffic_class, format_seconds(allowed)
    seen = f"{theirs:.0%} lost or later than {late}, of {name} {lasts:.0%}"
    expected = f"as {background.traffic_class}"
    if lasts < SUFFERING_SHARE:
        reason = (
            f"{background.traffic_class} did not suffer from the gradients, so nothing can be told from it"
        )
        return Check(
            Question.HOST_CONTROL,
            host_control.traffic_class,
            None,
            seen,
            expected,
            reason,
            is_disturbed=True,
        )
    holds = theirs >= SUFFERING_SHARE * lasts
    return Check(
        Question.HOST_CONTROL,
        host_control.traffic_class,
        holds,
        seen,
        expected,
        ""
        if holds
        else f"a host that sends DSCP {host_control.dscp} is served before gradients: the ports of hosts "
        "map it to a stricter queue than background's",
    )


def _settled(trace: Trace) -> tuple[float, float]:
    """(when queues have grown, end) of a phase."""
    start, end = float(trace.time_seconds[0]), float(trace.time_seconds[-1])
    return start + SETTLED_SHARE * (end - start), end


def _rate_bps(packets: int, start: float, end: float, port: ExpectedPort) -> float:
    return packets * port.packet_bytes * BITS_PER_BYTE / (end - start)


def _leaves_before_waiting(lower: Trace, upper: Trace, packet_seconds: float) -> Bools:
    """Which lower packets left while some upper one waited that had come before their turn was decided."""
    waiting = upper.where(upper.is_received)
    left = np.sort(waiting.time_seconds + waiting.wait_seconds)
    came = np.sort(waiting.time_seconds)
    leaves = lower.time_seconds + lower.wait_seconds
    decided = leaves - RESOLUTION_PACKETS * packet_seconds - lower.noise_seconds
    # More had come by then than had left at the end, so that at least one of them was there all the time.
    there = np.searchsorted(came, decided) > np.searchsorted(left, leaves, side="right")
    return np.asarray(there, dtype=np.bool_)


def _leaves_between(trace: Trace, start: float, end: float) -> Bools:
    left = trace.time_seconds + trace.wait_seconds
    return trace.is_received & (left >= start) & (left <= end)
