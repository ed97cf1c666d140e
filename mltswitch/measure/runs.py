"""The packets that hosts send in each run that tests a port: bounded, even, and known in advance.

Loads are in parts of the port's rate. Two hosts with links as fast as the port offer at most twice its rate:
all flows of a moment together are below 1.9, and each host's part stays below its own link's rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from mltswitch.measure.schedule import Run, Schedule, merged, packets_at
from mltswitch.units import BITS_PER_BYTE

IDLE_PACKETS: Final = 25
"""Lone packets before and after a run: their delay is that of the empty path."""
IDLE_GAP_SECONDS: Final = 0.008
PAUSE_SECONDS: Final = 0.15
"""Pause in seconds between two phases, beyond what the longest queue needs to empty."""
BURSTS: Final = 5
HOLD_LOAD: Final = 1.6
"""Load, half ECT and half Not-ECT: ECT alone leaves room, so drops of Not-ECT hold the queue at S."""
FILL_LOAD: Final = 1.3
"""Load of ECT alone, which makes the queue grow to the limit L and stay there."""
FILL_PERIOD: Final = 10
"""How many ECT packets are sent for each Not-ECT one while the queue fills."""
UPPER_LOAD: Final = 1.5
LOWER_LOAD: Final = 0.3
"""Load of the lower of two competing classes; the upper one alone fills the port."""
GRADIENT_LOAD: Final = 1.6
"""Load of all gradient classes together, while control is sent."""
CONTROL_GAP_SECONDS: Final = 0.01
CONTROL_PACKETS: Final = 30
GREED: Final = 2.0
"""How many times its cap control offers, and how many times its share background does.

Neither offers more than `GREATEST_EXCESS` of the port above it.
"""
GREATEST_EXCESS: Final = 0.4
HOST_CONTROL_LOAD: Final = 0.05
HOST_CONTROL_PACKETS: Final = 60
FULLEST_LINK: Final = 0.95
"""Share of a link that a sender may use where the port's other half comes from elsewhere."""
GRANTED_PACKETS: Final = 100
"""The fewest packets of a class at its cap or share: fewer say little about a rate."""
SETTLING_RUNS: Final = 4
"""How many times as long as its queue needs to grow to its length a phase lasts at least."""
FEWEST_PACKETS: Final = 1500
SHORTEST_SECONDS: Final = 0.5
"""The shortest phase in seconds: hosts start at the same moment only as exactly as they are told."""
LONGEST_SECONDS: Final = 12.0


ECT: Final = (True,)
NOT_ECT: Final = (False,)
ALTERNATING: Final = (*ECT, *NOT_ECT)
"""Pattern of ECT and Not-ECT by which packets of a stream alternate."""


@dataclass(frozen=True, slots=True)
class TestedPort:
    """The port under test, and the senders that load it."""

    __test__ = False  # pytest takes every Test… for its own
    rate_bps: int
    packet_bytes: int
    senders: int
    burst_senders: tuple[int, ...]
    """Indices of the senders from which no other queue lies before the port's."""
    marks_at: Literal["enqueue", "dequeue"] = "enqueue"
    averaging_packets: int = 0

    @property
    def packet_seconds(self) -> float:
        """Seconds to transmit one packet."""
        return self.seconds(self.packet_bytes)

    def seconds(self, size_bytes: float) -> float:
        """Seconds that the port needs to send so many bytes, such as those of a queue."""
        return size_bytes * BITS_PER_BYTE / self.rate_bps


class _Timeline:
    """A run in the making: lone packets of one class before and after the phases that are added to it."""

    def __init__(self, port: TestedPort, idle_class: int) -> None:
        self.port = port
        self.now_seconds = 0.0
        self._idle_class = idle_class
        self._parts: list[list[Schedule]] = [[] for _ in range(port.senders)]
        self._idle()
        self.pause(0)

    def _idle(self) -> None:
        senders = self.port.senders
        gap = max(IDLE_GAP_SECONDS, 4 * self.port.packet_seconds)
        for sender in range(senders):
            self.add(sender, "idle", self._idle_class, ALTERNATING, gap * sender, gap * senders, IDLE_PACKETS)
        self.now_seconds += gap * senders * IDLE_PACKETS

    def pause(self, queue_bytes: float) -> None:
        """Wait until a queue has emptied, and a little more."""
        self.now_seconds += PAUSE_SECONDS + self.port.seconds(queue_bytes)

    def add(
        self,
        sender: int,
        phase: str,
        class_index: int,
        ect: Sequence[bool],
        start: float,
        gap: float,
        count: int,
    ) -> None:
        """Evenly spaced packets of one sender; a whole turn of `ect` takes one path: none sees one kind."""
        times = self.now_seconds + start + np.arange(count) * gap
        part = packets_at(times, class_index, ect, turn_packets=len(ect), phase=phase)
        self._parts[sender].append(part)

    def stream(
        self,
        phase: str,
        classes: Sequence[int],
        load: float,
        ect: Sequence[bool],
        seconds: float,
        among: Sequence[int] = (),
    ) -> None:
        """These senders together, or all, offer `load` in equal parts of the classes; the clock stays."""
        senders = tuple(among) or tuple(range(self.port.senders))
        gap = self.port.packet_seconds * len(senders) * len(classes) / load if classes else 0.0
        for class_index in classes:
            for place, sender in enumerate(senders):
                start = gap * place / len(senders)
                self.add(sender, phase, class_index, ect, start, gap, max(1, int(seconds / gap)))

    def run(self, queue_bytes: float) -> Run:
        """The whole run, which ends when a queue of this length has emptied."""
        self.pause(queue_bytes)
        self._idle()
        return tuple(merged(parts) for parts in self._parts)


def threshold_run(
    port: TestedPort,
    class_index: int,
    threshold_bytes: int,
    standing_bytes: int,
    longest_seconds: float = LONGEST_SECONDS,
) -> Run:
    """A run with bursts that stay below the ECN threshold S, a queue that drops hold at S, and one that
    grows to `standing_bytes`.

    Neither of the two phases lasts more than `longest_seconds`, in which deep queues do not fill.
    """
    line = _Timeline(port, class_index)
    near = len(port.burst_senders)
    burst = threshold_bytes // port.packet_bytes  # come at once, the last of them finds less than S
    for _ in range(BURSTS if burst >= 2 else 0):
        for number, sender in enumerate(port.burst_senders):
            count = burst // near + (number < burst % near)
            line.add(sender, "burst", class_index, ALTERNATING, 0.0, 0.0, count)
        line.now_seconds += 0.05 + 2 * port.seconds(threshold_bytes)
    line.pause(threshold_bytes)
    seconds = _phase_seconds(port, HOLD_LOAD, threshold_bytes, HOLD_LOAD - 1, longest_seconds)
    line.stream("hold", (class_index,), HOLD_LOAD, ALTERNATING, seconds)
    line.now_seconds += seconds
    line.pause(standing_bytes)
    seconds = _phase_seconds(port, FILL_LOAD, standing_bytes, FILL_LOAD - 1, longest_seconds)
    pattern = ECT * FILL_PERIOD + NOT_ECT
    line.stream("fill", (class_index,), FILL_LOAD * (1 + 1 / FILL_PERIOD), pattern, seconds)
    line.now_seconds += seconds
    return line.run(standing_bytes)


def order_run(port: TestedPort, upper: int, lower: int, standing_bytes: tuple[int, int]) -> Run:
    """A run of two classes at once, ECT alone; the upper one fills the port."""
    line = _Timeline(port, upper)
    seconds = _phase_seconds(port, UPPER_LOAD, max(standing_bytes), UPPER_LOAD - 1)
    line.stream("upper", (upper,), UPPER_LOAD, ECT, seconds)
    line.stream("lower", (lower,), LOWER_LOAD, ECT, seconds)
    line.now_seconds += seconds
    return line.run(sum(standing_bytes))


def control_run(
    port: TestedPort,
    control: int,
    gradients: Sequence[int],
    standing_bytes: int,
    maximum_bps: int | None = None,
) -> Run:
    """A run in which all gradient classes overload the port, and control sends half of what it may."""
    line = _Timeline(port, gradients[0])
    gap = max(CONTROL_GAP_SECONDS, 20 * port.packet_seconds)
    if maximum_bps is not None:
        gap = max(gap, 2 * port.packet_bytes * BITS_PER_BYTE / maximum_bps)
    seconds = _phase_seconds(port, GRADIENT_LOAD, standing_bytes, GRADIENT_LOAD - 1)
    seconds = min(LONGEST_SECONDS, max(seconds, CONTROL_PACKETS * gap))
    line.stream("overload", gradients, GRADIENT_LOAD, ALTERNATING, seconds)
    line.stream("control", (control,), port.packet_seconds / gap, NOT_ECT, seconds)
    line.now_seconds += seconds
    return line.run(standing_bytes)


def cap_run(
    port: TestedPort, control: int, gradients: Sequence[int], maximum_bps: int, limit_bytes: int | None
) -> Run:
    """A run in which control, from hosts behind the device, exceeds its cap while gradients fill the rest."""
    line = _Timeline(port, gradients[0])
    cap = maximum_bps / port.rate_bps
    load = greedy_load(cap)
    rest = GRADIENT_LOAD - load
    if port.senders > 1:
        rest = min(rest, port.senders * (FULLEST_LINK - load / len(port.burst_senders)))
    seconds = _granted_seconds(port, cap)
    if rest > 0:
        line.stream("overload", gradients, rest, ALTERNATING, seconds)
    line.stream("greedy", (control,), load, NOT_ECT, seconds, port.burst_senders)
    line.now_seconds += seconds
    excess = int((load - cap) * seconds * port.rate_bps / BITS_PER_BYTE)
    waiting = excess if limit_bytes is None else min(excess, limit_bytes)
    line.now_seconds += waiting * BITS_PER_BYTE / maximum_bps
    return line.run(0)


def background_run(
    port: TestedPort,
    background: int,
    share_bps: int | None,
    host_control: int | None,
    near: Sequence[int],
    gradients: Sequence[int],
    standing_bytes: int,
) -> Run:
    """A run in which gradients overload the port, and background exceeds its share; then hosts send control.

    Background and hosts' control come one after the other: in background's queue network control takes its
    part of the share, and which packet finds room in a full queue is a matter of who sends just after one has
    left.
    """
    line = _Timeline(port, gradients[0])
    share = (share_bps or 0) / port.rate_bps
    load = max(HOST_CONTROL_LOAD, greedy_load(share))
    settling = _phase_seconds(port, GRADIENT_LOAD, standing_bytes, GRADIENT_LOAD - 1)
    alone = max(settling, _granted_seconds(port, share)) if share else 0.0
    beside = 0.0
    if host_control is not None:
        packets = HOST_CONTROL_PACKETS * port.packet_seconds / HOST_CONTROL_LOAD
        beside = min(LONGEST_SECONDS, max(SHORTEST_SECONDS if share else settling, packets))
    rest = GRADIENT_LOAD - load - (0 if host_control is None else HOST_CONTROL_LOAD)
    line.stream("overload", gradients, rest, ALTERNATING, alone + beside)
    if alone:
        line.stream("background", (background,), load, NOT_ECT, alone)
        line.now_seconds += alone
    if host_control is not None:
        line.stream("beside", (background,), load, NOT_ECT, beside)
        line.stream("host-control", (host_control,), HOST_CONTROL_LOAD, NOT_ECT, beside, near)
        line.now_seconds += beside
    return line.run(standing_bytes + load * (alone + beside) * port.rate_bps / BITS_PER_BYTE)


def greedy_load(granted: float) -> float:
    """The load that a class offers which may have, or is to get, the share `granted` of the port."""
    return min(GREED * granted, granted + GREATEST_EXCESS)


def _granted_seconds(port: TestedPort, granted: float) -> float:
    packets = GRANTED_PACKETS * port.packet_seconds / granted
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, packets))


def _phase_seconds(
    port: TestedPort,
    load: float,
    queue_bytes: int,
    growth: float,
    longest_seconds: float = LONGEST_SECONDS,
) -> float:
    fill = port.seconds(queue_bytes) / growth
    packets = FEWEST_PACKETS * port.packet_seconds / load
    return min(longest_seconds, max(SHORTEST_SECONDS, SETTLING_RUNS * fill, packets))
