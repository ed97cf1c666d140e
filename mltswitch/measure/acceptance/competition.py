"""Judgements about classes that compete for the port: strict order, caps, shares, control under overload."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from mltswitch.measure.acceptance.checks import Check, Question, TestedClass
from mltswitch.measure.acceptance.judge import RESOLUTION_PACKETS
from mltswitch.measure.observe import Trace
from mltswitch.measure.runs import TestedPort
from mltswitch.measure.schedule import Bools
from mltswitch.units import BITS_PER_BYTE, format_bps, format_seconds

STARVED_SHARE: Final = 0.1
"""Share of a lower class's packets that may be served while the upper one fills the port: hosts pause."""
SHARED_SHARE: Final = 0.5
"""Share of a lower class's served packets above which pauses of hosts are no explanation."""
SETTLED_SHARE: Final = 0.25
"""Share of a phase, at its start, that is left out because queues still grow."""
FILLED_SHARE: Final = 0.85
"""Share of the port's rate that an upper class must get before a lower one can be said to starve."""
CARRIED_SHARE: Final = 0.95
"""Share of the port's rate that all classes together must get before background can be said to fall short."""
CONTROL_PACKETS: Final = 4
"""Packet times that control may wait: one packet in transmission, one in a shaper, others of its class."""
CONTROL_PERCENTILE: Final = 90.0
CAP_SHARE: Final = 0.15
"""Share by which control may exceed its cap, for bursts of the device's own shaper, besides four packets."""
GUARANTEE_SHARE: Final = 0.2
"""Share by which background may fall short, for the turns of a round robin, besides four packets."""
SLACK_PACKETS: Final = 4
SUFFERING_SHARE: Final = 0.8
"""Share of background's packets that must be late or lost before others can be said to fare like it; and the
share of that share which others must suffer."""


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of a phase in which queues have grown."""

    start: float
    end: float
    port: TestedPort

    @classmethod
    def of(cls, phase: Trace, port: TestedPort) -> "_Window":
        start, end = float(phase.time_seconds[0]), float(phase.time_seconds[-1])
        return cls(start + SETTLED_SHARE * (end - start), end, port)

    def bps(self, packets: int) -> float:
        """The rate of so many packets."""
        return packets * self.port.packet_bytes * BITS_PER_BYTE / (self.end - self.start)

    def is_served(self, trace: Trace) -> Bools:
        """Which packets left the port in that time."""
        return trace.is_received & (trace.left_seconds >= self.start) & (trace.left_seconds <= self.end)

    def served_bps(self, trace: Trace) -> float:
        """The rate of the packets that left the port in that time."""
        return self.bps(int(np.sum(self.is_served(trace))))


def judge_order(trace: Trace, upper: TestedClass, lower: TestedClass, port: TestedPort) -> Check:
    """Check that the lower class starves while the upper one, ECT alone, offers more than the port's rate.

    A short upper queue empties whenever a host pauses, and then the lower class is rightly served. So a
    lower class that gets a little counts as wrongly served only where upper packets were overtaken.
    """
    above, below = trace.of("upper"), trace.of("lower")
    window = _Window.of(above, port)
    served, rate = window.is_served(below), window.served_bps(above)
    sent = np.sum((below.time_seconds >= window.start) & (below.time_seconds <= window.end))
    share = int(np.sum(served)) / max(1, int(sent))
    first, second = upper.traffic_class, lower.traffic_class
    name, seen = f"{first} > {second}", f"{share:.1%} served, {first} at {format_bps(round(rate, -3))}"
    expected = f"at most {STARVED_SHARE:.0%} of {second} served"
    asked = Check(Question.ORDER, name, None, seen, expected)
    if share <= STARVED_SHARE:
        if rate >= FILLED_SHARE * port.rate_bps:
            return asked.answer(True)
        return asked.unanswered(
            f"{first} did not fill the port, so nothing had to wait for it", is_disturbed=True
        )
    overtaking = int(np.sum(_overtakes(below.where(served), above, port))) / max(1, int(sent))
    if share <= SHARED_SHARE and overtaking <= STARVED_SHARE:
        return asked.unanswered(
            f"{second} was served, but {first}, whose queue is short, was not seen to wait for it: the hosts "
            "paused too often to tell",
            is_disturbed=True,
        )
    asked = Check(Question.ORDER, name, None, f"{seen}, {overtaking:.1%} before older {first}", expected)
    return asked.answer(
        False,
        f"{second} is served while {first} waits: the order is reversed, or a scheduler shares the port "
        "between the queues (WRR, DWRR)",
    )


def judge_control(trace: Trace, control: TestedClass, port: TestedPort) -> Check:
    """Whether control traffic passes at once, and all of it, while the gradients overload the port."""
    sent = trace.of("control")
    lost, allowed = int(np.sum(~sent.is_received)), _allowed_wait_seconds(trace, port)
    waits = sent.wait_seconds[sent.is_received]
    wait = float(np.percentile(waits, CONTROL_PERCENTILE)) if len(waits) else float("inf")
    is_full = np.any(~trace.of("overload").is_received)
    seen = f"{lost} of {len(sent)} lost, p{CONTROL_PERCENTILE:.0f} wait {format_seconds(wait)}"
    asked = Check(
        Question.CONTROL,
        control.traffic_class,
        None,
        seen if is_full else "no gradient packet was lost",
        f"0 lost, waits of at most {format_seconds(allowed)}",
    )
    if not is_full:
        return asked.unanswered("the port was not full", is_disturbed=True)
    return asked.answer(lost == 0 and wait <= allowed)


def judge_cap(trace: Trace, control: TestedClass, maximum_bps: int, port: TestedPort) -> Check:
    """Check that control, which offers more than its cap, gets no more than the cap."""
    greedy = trace.of("greedy")
    window = _Window.of(greedy, port)
    got = window.served_bps(greedy)
    offered = window.bps(int(np.sum(greedy.time_seconds >= window.start)))
    most = maximum_bps * (1 + CAP_SHARE) + window.bps(SLACK_PACKETS)
    asked = Check(
        Question.CAPPED,
        control.traffic_class,
        None,
        f"{format_bps(round(got, -3))} of {format_bps(round(offered, -3))} offered",
        f"at most {format_bps(round(most, -3))}",
    )
    if offered <= most:
        return asked.unanswered("the hosts did not offer more than the cap", is_disturbed=True)
    return asked.answer(got <= most)


def judge_share(trace: Trace, background: TestedClass, share_bps: int, port: TestedPort) -> Check:
    """Check that background gets its share while gradients wait; an idle port's service proves nothing."""
    last, overload = trace.of("background"), trace.of("overload")
    window = _Window.of(last, port)
    got, carried = window.served_bps(last), window.served_bps(trace)
    least = share_bps * (1 - GUARANTEE_SHARE) - window.bps(SLACK_PACKETS)
    asked = Check(
        Question.SHARE,
        background.traffic_class,
        None,
        format_bps(round(got, -3)),
        f"at least {format_bps(round(least, -3))}",
    )
    served_in_turn = last.where(window.is_served(last))
    overtaking = window.bps(int(np.sum(_overtakes(served_in_turn, overload, port))))
    why_not = ""
    if not np.any(~overload.is_received):
        why_not = "the port was not full"
    elif got < least and carried < CARRIED_SHARE * port.rate_bps:
        why_not = f"the port sent only {format_bps(round(carried, -3))} meanwhile: the hosts paused too often"
    elif overtaking < least <= got:
        why_not = (
            "background was served, but not while gradients were seen to wait: the hosts paused too often"
        )
    return asked.unanswered(why_not, is_disturbed=True) if why_not else asked.answer(got >= least)


def judge_host_control(
    trace: Trace, host_control: TestedClass, background: TestedClass, port: TestedPort
) -> Check:
    """Check that hosts' network control is late or lost like background, while gradients overload the
    port."""
    allowed = _allowed_wait_seconds(trace, port)

    def suffering(phase: str) -> float:
        packets = trace.of(phase)
        settled = packets.where(packets.time_seconds >= _Window.of(packets, port).start)
        return float(np.mean(~settled.is_received | (settled.wait_seconds > allowed)))

    theirs, lasts = suffering("host-control"), suffering("beside")
    name, late = background.traffic_class, format_seconds(allowed)
    seen = f"{theirs:.0%} lost or later than {late}, of {name} {lasts:.0%}"
    asked = Check(Question.HOST_CONTROL, host_control.traffic_class, None, seen, f"as {name}")
    if lasts < SUFFERING_SHARE:
        return asked.unanswered(
            f"{name} did not suffer from the gradients, so nothing can be told from it", is_disturbed=True
        )
    return asked.answer(
        theirs >= SUFFERING_SHARE * lasts,
        f"a host that sends DSCP {host_control.dscp} is served before gradients: the ports of hosts map it "
        "to a stricter queue than background's",
    )


def _allowed_wait_seconds(trace: Trace, port: TestedPort) -> float:
    """What a packet may wait that is served before all gradients."""
    return CONTROL_PACKETS * port.packet_seconds + trace.noise_seconds


def _overtakes(lower: Trace, upper: Trace, port: TestedPort) -> Bools:
    """Which lower packets left while some upper one waited that had come before their turn was decided.

    It is decided up to two packet times before: a shaper holds one packet, one is in transmission.
    """
    waiting = upper.where(upper.is_received)
    left, came = np.sort(waiting.left_seconds), np.sort(waiting.time_seconds)
    decided = lower.left_seconds - RESOLUTION_PACKETS * port.packet_seconds - lower.noise_seconds
    # More had come by then than had left at the end, so that at least one of them was there all the time.
    there = np.searchsorted(came, decided) > np.searchsorted(left, lower.left_seconds, side="right")
    return np.asarray(there, dtype=np.bool_)
