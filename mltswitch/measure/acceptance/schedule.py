"""What the hosts send in each run of an acceptance test, as flows: bounded, even, and known before it leaves.

Loads are in parts of the port's rate. Two hosts with links as fast as the port offer at most twice its rate:
all flows of a moment together are below 1.9, and each host's part stays below its own link's rate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from mltswitch.units import BITS_PER_BYTE
from mltswitch.wire import Ecn

IDLE_PACKETS: Final = 25
"""Lone packets before and after a run: their delay is that of the empty path."""
IDLE_GAP_SECONDS: Final = 0.008
PAUSE_SECONDS: Final = 0.15
"""Between two phases, beyond what the longest queue needs to empty."""
BURSTS: Final = 5
HOLD_LOAD: Final = 1.6
"""Half ECT, half Not-ECT: ECT alone leave the port room, so drops of Not-ECT hold the queue at S."""
FILL_LOAD: Final = 1.3
"""ECT alone: the queue grows to L, and stays."""
FILL_PERIOD: Final = 10
"""While it does, one Not-ECT packet is sent with so many ECT ones."""
UPPER_LOAD: Final = 1.5
LOWER_LOAD: Final = 0.3
"""Two classes that compete: the upper one alone fills the port."""
GRADIENT_LOAD: Final = 1.6
"""Of all gradient classes together, while control is sent."""
CONTROL_GAP_SECONDS: Final = 0.01
CONTROL_PACKETS: Final = 30
GREED: Final = 2.0
"""Times its cap that control offers, and times its share that background does; but no more than
`GREATEST_EXCESS` of the port above either."""
GREATEST_EXCESS: Final = 0.4
HOST_CONTROL_LOAD: Final = 0.05
HOST_CONTROL_PACKETS: Final = 60
FULLEST_LINK: Final = 0.95
"""Part of a link that a sender may use where the port's other half comes from elsewhere."""
GRANTED_PACKETS: Final = 100
"""Of a class at its cap or its share: fewer say little about a rate."""
SETTLING_RUNS: Final = 4
"""A phase lasts at least this many times what the queue needs to grow to its length."""
FEWEST_PACKETS: Final = 1500
SHORTEST_SECONDS: Final = 0.5
"""Of a phase: hosts begin at the same moment only as nearly as they hear of it."""
LONGEST_SECONDS: Final = 12.0


@dataclass(frozen=True, slots=True)
class Flow:
    """Evenly spaced packets of one class from one host; `ecn` code points are taken in turn."""

    phase: str
    class_index: int
    dscp: int
    ecn: tuple[int, ...]
    start_seconds: float
    gap_seconds: float
    count: int

    def request(self) -> dict[str, Any]:
        """The flow as the host's program takes it."""
        return {
            "start": self.start_seconds,
            "gap": self.gap_seconds,
            "count": self.count,
            "dscp": self.dscp,
            "ecn": self.ecn,
        }

    @property
    def end_seconds(self) -> float:
        """When the last packet is due."""
        return self.start_seconds + max(0, self.count - 1) * self.gap_seconds


Run = tuple[tuple[Flow, ...], ...]
"""The flows of each sender."""


@dataclass(frozen=True, slots=True)
class Port:
    """What a schedule needs to know of the port under test."""

    rate_bps: int
    packet_bytes: int
    senders: int
    burst_senders: tuple[int, ...]
    """Whose bursts meet no other queue before the port's."""

    @property
    def packet_seconds(self) -> float:
        """Transmission time of one packet."""
        return self.packet_bytes * BITS_PER_BYTE / self.rate_bps

    def drain_seconds(self, queue_bytes: int) -> float:
        """What a queue needs to empty."""
        return queue_bytes * BITS_PER_BYTE / self.rate_bps


@dataclass(frozen=True, slots=True)
class Marking:
    """One class: its place in the plan and its code point."""

    class_index: int
    dscp: int


class _Timeline:
    def __init__(self, port: Port) -> None:
        self.port = port
        self.flows: list[list[Flow]] = [[] for _ in range(port.senders)]
        self.now_seconds = 0.0

    def idle(self, phase: str, marking: Marking) -> None:
        gap = max(IDLE_GAP_SECONDS, 4 * self.port.packet_seconds)
        for sender in range(self.port.senders):
            start = self.now_seconds + gap * sender
            self.flows[sender].append(
                Flow(
                    phase,
                    marking.class_index,
                    marking.dscp,
                    (Ecn.ECT_0, Ecn.NOT_ECT),
                    start,
                    gap * self.port.senders,
                    IDLE_PACKETS,
                )
            )
        self.now_seconds += gap * self.port.senders * IDLE_PACKETS

    def pause(self, queue_bytes: int) -> None:
        self.now_seconds += PAUSE_SECONDS + self.port.drain_seconds(queue_bytes)

    def stream(
        self,
        phase: str,
        marking: Marking,
        load: float,
        ecn: tuple[int, ...],
        seconds: float,
        among: Sequence[int] = (),
    ) -> None:
        """These senders together, or all, offer `load`; the clock stays where it is."""
        senders = tuple(among) or tuple(range(self.port.senders))
        gap = self.port.packet_seconds * len(senders) / load
        for place, sender in enumerate(senders):
            start = self.now_seconds + gap * place / len(senders)
            self.flows[sender].append(
                Flow(phase, marking.class_index, marking.dscp, ecn, start, gap, max(1, int(seconds / gap)))
            )

    def run(self) -> Run:
        return tuple(tuple(flows) for flows in self.flows)


def threshold_run(port: Port, marking: Marking, threshold_bytes: int, standing_bytes: int) -> Run:
    """Bursts that stay below S, a queue that drops hold at S, and one that grows to `standing_bytes`."""
    line = _Timeline(port)
    line.idle("idle", marking)
    line.pause(0)
    burst = burst_packets(threshold_bytes, port.packet_bytes)
    for _ in range(BURSTS if burst else 0):
        for number, sender in enumerate(port.burst_senders):
            count = burst // len(port.burst_senders) + (number < burst % len(port.burst_senders))
            line.flows[sender].append(
                Flow(
                    "burst",
                    marking.class_index,
                    marking.dscp,
                    (Ecn.ECT_0, Ecn.NOT_ECT),
                    line.now_seconds,
                    0.0,
                    count,
                )
            )
        line.now_seconds += 0.05 + 2 * port.drain_seconds(threshold_bytes)
    line.pause(threshold_bytes)
    seconds = _phase_seconds(port, HOLD_LOAD, threshold_bytes, HOLD_LOAD - 1)
    line.stream("hold", marking, HOLD_LOAD, (Ecn.ECT_0, Ecn.NOT_ECT), seconds)
    line.now_seconds += seconds
    line.pause(standing_bytes)
    seconds = _phase_seconds(port, FILL_LOAD, standing_bytes, FILL_LOAD - 1)
    pattern = (Ecn.ECT_0,) * FILL_PERIOD + (Ecn.NOT_ECT,)
    line.stream("fill", marking, FILL_LOAD * (1 + 1 / FILL_PERIOD), pattern, seconds)
    line.now_seconds += seconds
    line.pause(standing_bytes)
    line.idle("idle", marking)
    return line.run()


def burst_packets(threshold_bytes: int, packet_bytes: int) -> int:
    """Packets of which, come at once, the last finds a packet less than S; 0 where S is too short."""
    packets = threshold_bytes // packet_bytes
    return packets if packets >= 2 else 0


def order_run(port: Port, upper: Marking, lower: Marking, standing_bytes: tuple[int, int]) -> Run:
    """Two classes at once, ECT alone; the upper one fills the port."""
    line = _Timeline(port)
    line.idle("idle", upper)
    line.pause(0)
    seconds = _phase_seconds(port, UPPER_LOAD, max(standing_bytes), UPPER_LOAD - 1)
    line.stream("upper", upper, UPPER_LOAD, (Ecn.ECT_0,), seconds)
    line.stream("lower", lower, LOWER_LOAD, (Ecn.ECT_0,), seconds)
    line.now_seconds += seconds
    line.pause(sum(standing_bytes))
    line.idle("idle", upper)
    return line.run()


def control_run(
    port: Port,
    control: Marking,
    gradients: Sequence[Marking],
    standing_bytes: int,
    maximum_bps: int | None = None,
) -> Run:
    """All gradient classes overload the port together, and control sends a little, half of what it may."""
    line = _Timeline(port)
    line.idle("idle", gradients[0])
    line.pause(0)
    gap = max(CONTROL_GAP_SECONDS, 20 * port.packet_seconds)
    if maximum_bps is not None:
        gap = max(gap, 2 * port.packet_bytes * BITS_PER_BYTE / maximum_bps)
    seconds = _phase_seconds(port, GRADIENT_LOAD, standing_bytes, GRADIENT_LOAD - 1)
    seconds = min(LONGEST_SECONDS, max(seconds, CONTROL_PACKETS * gap))
    for gradient in gradients:
        line.stream("overload", gradient, GRADIENT_LOAD / len(gradients), (Ecn.ECT_0, Ecn.NOT_ECT), seconds)
    line.stream("control", control, port.packet_seconds / gap, (Ecn.NOT_ECT,), seconds)
    line.now_seconds += seconds
    line.pause(standing_bytes)
    line.idle("idle", gradients[0])
    return line.run()


def cap_run(
    port: Port, control: Marking, gradients: Sequence[Marking], maximum_bps: int, limit_bytes: int | None
) -> Run:
    """Control offers more than its cap, from hosts behind the device, beside gradients that fill the rest."""
    line = _Timeline(port)
    line.idle("idle", gradients[0])
    line.pause(0)
    cap = maximum_bps / port.rate_bps
    load = greedy_load(cap)
    near = len(port.burst_senders)
    rest = GRADIENT_LOAD - load
    if port.senders > 1:
        rest = min(rest, port.senders * (FULLEST_LINK - load / near))
    seconds = _granted_seconds(port, cap)
    for gradient in gradients if rest > 0 else ():
        line.stream("overload", gradient, rest / len(gradients), (Ecn.ECT_0, Ecn.NOT_ECT), seconds)
    line.stream("greedy", control, load, (Ecn.NOT_ECT,), seconds, port.burst_senders)
    line.now_seconds += seconds
    excess = int((load - cap) * seconds * port.rate_bps / BITS_PER_BYTE)
    line.now_seconds += (
        min(excess, excess if limit_bytes is None else limit_bytes) * BITS_PER_BYTE / maximum_bps
    )
    line.pause(0)
    line.idle("idle", gradients[0])
    return line.run()


def background_run(
    port: Port,
    background: Marking,
    share_bps: int | None,
    host_control: Marking | None,
    near: Sequence[int],
    gradients: Sequence[Marking],
    standing_bytes: int,
) -> Run:
    """Gradients overload the port, and background wants more than its share; then hosts send network control.

    One after the other: in background's queue network control takes its part of the share, and which packet
    finds room in a full queue is a matter of who sends just after one has left.
    """
    line = _Timeline(port)
    line.idle("idle", gradients[0])
    line.pause(0)
    share = (share_bps or 0) / port.rate_bps
    load = max(HOST_CONTROL_LOAD, greedy_load(share))
    settling = _phase_seconds(port, GRADIENT_LOAD, standing_bytes, GRADIENT_LOAD - 1)
    alone = max(settling, _granted_seconds(port, share)) if share else 0.0
    beside = 0.0
    if host_control is not None:
        packets = HOST_CONTROL_PACKETS * port.packet_seconds / HOST_CONTROL_LOAD
        beside = min(LONGEST_SECONDS, max(SHORTEST_SECONDS if share else settling, packets))
    rest = GRADIENT_LOAD - load - (HOST_CONTROL_LOAD if host_control else 0)
    for gradient in gradients:
        line.stream("overload", gradient, rest / len(gradients), (Ecn.ECT_0, Ecn.NOT_ECT), alone + beside)
    if alone:
        line.stream("background", background, load, (Ecn.NOT_ECT,), alone)
        line.now_seconds += alone
    if host_control is not None:
        line.stream("beside", background, load, (Ecn.NOT_ECT,), beside)
        line.stream("host-control", host_control, HOST_CONTROL_LOAD, (Ecn.NOT_ECT,), beside, near)
        line.now_seconds += beside
    line.pause(standing_bytes + int(load * (alone + beside) * port.rate_bps / BITS_PER_BYTE))
    line.idle("idle", gradients[0])
    return line.run()


def greedy_load(granted: float) -> float:
    """What a class offers that may have, or is to get, so much of the port."""
    return min(GREED * granted, granted + GREATEST_EXCESS)


def _granted_seconds(port: Port, granted: float) -> float:
    packets = GRANTED_PACKETS * port.packet_seconds / granted
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, packets))


def _phase_seconds(port: Port, load: float, queue_bytes: int, growth: float) -> float:
    fill = port.drain_seconds(queue_bytes) / growth
    packets = FEWEST_PACKETS * port.packet_seconds / load
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, SETTLING_RUNS * fill, packets))


def run_seconds(run: Run) -> float:
    """When the last packet of a run is due."""
    return max(flow.end_seconds for flows in run for flow in flows)


def pairs(markings: Mapping[str, Marking]) -> tuple[tuple[str, str], ...]:
    """Neighbours in the order of service."""
    return tuple(pairwise(markings))
