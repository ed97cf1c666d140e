"""Exact results to hold the models and the simulator against, derived apart from them.

The chain is for few short queues: strict priority without preemption, packets of one size, bursts that
arrive at once at exponential gaps. It looks at the port whenever a packet starts its transmission. The state
is the number of waiting packets of every queue, and which queue is served. During one packet time the queues
only grow, each by its own bursts and independently of the others; so a step is one small matrix per queue. No
approximation is made but cutting the Poisson distribution of the bursts in one packet time where less than
1e-15 is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp

import numpy as np
import numpy.typing as npt

from mltswitch.queueing import Batch, Poisson, Port, QueueThresholds, QueueTraffic, Trace, decide

FloatArray = npt.NDArray[np.float64]

TAIL = 1e-15
CONVERGED = 1e-14
MOST_STEPS = 2_000_000


def md1_mean_wait(load: float) -> float:
    """Mean wait of M/D/1 in packet times (Pollaczek and Khinchine)."""
    return batch_md1_mean_wait(load, 1)


def batch_md1_mean_wait(load: float, burst: int) -> float:
    """Mean wait of a packet of M^[b]/D/1, that of its place within the burst included."""
    return (load + burst - 1) / (2 * (1 - load))


def priority_mean_waits(loads: Sequence[float], bursts: Sequence[int]) -> list[float]:
    """Mean waits of M^[b]/D/1 with strict priority and endless queues, highest first.

    A packet waits for the rest of the transmission it meets, for what waits of its own and higher classes
    (Little: load times wait), for its forerunners in the burst, and for what of higher classes comes
    meanwhile.
    """
    residual = sum(loads) / 2
    waits: list[float] = []
    for index, burst in enumerate(bursts):
        met = sum(load * wait for load, wait in zip(loads, waits, strict=False))
        waits.append((residual + (burst - 1) / 2 + met) / (1 - sum(loads[: index + 1])))
    return waits


def mm1k_loss(load: float, capacity: int) -> float:
    """Loss of M/M/1/K, the K places counting the packet in service."""
    weights = [load**n for n in range(capacity + 1)]
    return weights[-1] / sum(weights)


@dataclass(frozen=True, slots=True)
class ChainQueue:
    """Exact figures of one queue."""

    loss_unimportant: float
    loss_important: float
    mark_share: float
    """Of the important packets that were let in."""
    mean_queue_packets: float
    """Waiting, over time."""
    mean_delay_packet_times: float
    queue_probabilities: tuple[float, ...]
    """Share of time with 0, 1, … packets waiting."""


def solve_chain(
    port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
) -> list[ChainQueue]:
    """Everything that the chain knows of each queue."""
    assert port.buffer_packets is None
    assert port.weights is None
    assert port.service == "fixed"
    return _Chain(port, traffic, thresholds).solve()


@dataclass(frozen=True, slots=True)
class _Admission:
    """What a burst does to a queue of each length; the counts are expected packets of one burst."""

    step: FloatArray
    """[waiting before, waiting after]."""
    dropped_unimportant: FloatArray
    dropped_important: FloatArray
    marked: FloatArray


def _burst_sizes(offered: QueueTraffic) -> list[tuple[int, float]]:
    match offered.arrivals:
        case Poisson():
            return [(1, 1.0)]
        case Batch(burst_packets=mean, distribution="geometric"):
            sizes: list[tuple[int, float]] = []
            left = 1.0
            while left > TAIL and mean > 1:
                sizes.append((len(sizes) + 1, left / mean))
                left -= left / mean
            return sizes or [(1, 1.0)]
        case Batch(burst_packets=size):
            return [(int(size), 1.0)]
        case Trace(sizes_packets=trace_sizes, probabilities=shares):
            return list(zip(trace_sizes, shares, strict=True))
        case _:
            raise AssertionError(f"the chain does not know {offered.arrivals}")


def _mean(sizes: list[tuple[int, float]]) -> float:
    return sum(size * share for size, share in sizes)


def _length(limits: QueueThresholds) -> int:
    """Lengths that the queue can have: 0 … the least whole number that is not below L."""
    return ceil(limits.limit_packets) + 1


def _admission(offered: QueueTraffic, limits: QueueThresholds, counted: int) -> _Admission:
    """One burst at a queue whose thresholds see `counted` packets more than wait."""
    length = _length(limits)
    packet_kinds = (
        [(offered.unimportant_share, 1.0)]
        if offered.importance == "packet"
        else [(1.0, offered.unimportant_share), (0.0, 1 - offered.unimportant_share)]
    )
    step = np.zeros((length, length))
    counts = np.zeros((3, length))
    for unimportant, share_of_bursts in packet_kinds:
        packet, rates = _one_packet(unimportant, limits, counted)
        lengths_after = np.eye(length)
        longest = max(size for size, _ in _burst_sizes(offered))
        probability = dict(_burst_sizes(offered))
        reaches = sum(probability.values())
        for place in range(1, longest + 1):
            counts += share_of_bursts * reaches * (lengths_after @ rates.T).T
            lengths_after = lengths_after @ packet
            ends_here = probability.get(place, 0.0)
            reaches -= ends_here
            step += share_of_bursts * ends_here * lengths_after
    return _Admission(step, *counts)


def _one_packet(unimportant: float, limits: QueueThresholds, counted: int) -> tuple[FloatArray, FloatArray]:
    """(step of the length, rates of the three counts at each length) for one packet."""
    length = _length(limits)
    step, rates = np.zeros((length, length)), np.zeros((3, length))
    for waiting in range(length):
        for is_capable, share in ((False, unimportant), (True, 1 - unimportant)):
            decision = decide(
                waiting + counted,
                is_capable=is_capable,
                ecn_threshold=limits.ecn_threshold_packets,
                limit=limits.limit_packets,
            )
            after = waiting + 1 if decision.is_admitted else waiting
            step[waiting, min(after, length - 1)] += share
            if not decision.is_admitted:
                rates[1 if is_capable else 0, waiting] += share
            elif decision.value == "mark":
                rates[2, waiting] += share
    return step, rates


def _poisson(mean: float) -> FloatArray:
    """Probabilities of 0, 1, … until less than TAIL is left."""
    term, terms = exp(-mean), [exp(-mean)]
    while 1 - sum(terms) > TAIL and (term > TAIL * TAIL or len(terms) < mean):
        term *= mean / len(terms)
        terms.append(term)
    return np.array(terms)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One packet time of one queue: averages over the bursts that come in it, by the length at its start."""

    step: FloatArray
    over_time: FloatArray
    """[length at the start, length at a random moment of the slot]."""
    counts: FloatArray
    """Expected dropped unimportant, dropped important and marked packets."""


def _slot(admission: _Admission, bursts_per_slot: float) -> _Slot:
    probabilities = _poisson(bursts_per_slot)
    beyond = np.maximum(0.0, 1 - np.cumsum(probabilities))
    counts = np.array([admission.dropped_unimportant, admission.dropped_important, admission.marked])
    length = len(admission.step)
    step, over_time, total = np.zeros((length, length)), np.zeros((length, length)), np.zeros((3, length))
    after = np.eye(length)
    for index, probability in enumerate(probabilities):
        step += probability * after
        # The next burst comes within the slot with `beyond`; by a random moment there were exactly `index`
        # bursts with probability beyond / mean (the integral of the Poisson probability over the slot).
        total += beyond[index] * (after @ counts.T).T
        if bursts_per_slot > 0:
            over_time += beyond[index] / bursts_per_slot * after
        after = after @ admission.step
    if bursts_per_slot == 0:
        over_time = np.eye(length)
    return _Slot(step, over_time, total)


class _Chain:
    def __init__(
        self, port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
    ) -> None:
        self.port, self.traffic, self.thresholds = port, traffic, thresholds
        self.queues = range(len(traffic))
        self.shape = tuple(_length(limits) for limits in thresholds)
        self.burst_rates = [offered.load / _mean(_burst_sizes(offered)) for offered in traffic]
        self.slots = [[self._slot(queue, served) for queue in self.queues] for served in self.queues]

    def _counted(self, queue: int, served: int) -> int:
        return int(self.port.count_in_service and queue == served)

    def _slot(self, queue: int, served: int) -> _Slot:
        admission = _admission(self.traffic[queue], self.thresholds[queue], self._counted(queue, served))
        return _slot(admission, self.burst_rates[queue])

    def _after_slot(self, state: FloatArray) -> FloatArray:
        """Waiting packets at the end of the transmissions; `state` is [served, waiting…] at their start."""
        ended = np.zeros(self.shape)
        for served in self.queues:
            lengths = state[served]
            for queue in self.queues:
                lengths = np.moveaxis(
                    np.tensordot(lengths, self.slots[served][queue].step, axes=(queue, 0)), -1, queue
                )
            ended += lengths
        return ended

    def _next_start(self, ended: FloatArray) -> FloatArray:
        """Who is served next, and who waits then."""
        state = np.zeros((len(self.queues), *self.shape))
        left = ended.copy()
        for served in self.queues:
            waiting = np.moveaxis(left, served, 0)
            np.moveaxis(state[served], served, 0)[:-1] += waiting[1:]
            waiting[1:] = 0
        empty = left[(0,) * len(self.shape)]
        for queue, (start, _) in enumerate(self.first_bursts):
            index: list[int | slice] = [queue, *(0 for _ in self.queues)]
            index[1 + queue] = slice(None)
            state[tuple(index)] += empty * start
        return state

    def _prepare_first_bursts(self) -> None:
        """What the burst that ends an idle time does, weighted by the probability that it is of each queue.

        Per queue: how many wait once one of its packets is served, and the expected counts.
        """
        shares = [rate / sum(self.burst_rates) for rate in self.burst_rates]
        found = [self._burst_at_idle(queue) for queue in self.queues]
        all_lost = sum(share * lost for share, (_, _, lost) in zip(shares, found, strict=True))
        assert all_lost < 1, "no packet is ever let in"
        # Wholly lost bursts leave the port idle: the wait for the next one starts anew.
        self.idle_bursts = [share / (1 - all_lost) for share in shares]
        self.first_bursts = [
            (share * start, share * counts)
            for share, (start, counts, _) in zip(self.idle_bursts, found, strict=True)
        ]

    def _burst_at_idle(self, queue: int) -> tuple[FloatArray, FloatArray, float]:
        offered, limits = self.traffic[queue], self.thresholds[queue]
        kinds = (
            [(offered.unimportant_share, 1.0)]
            if offered.importance == "packet"
            else [(1.0, offered.unimportant_share), (0.0, 1 - offered.unimportant_share)]
        )
        start, counts, lost = np.zeros(_length(limits)), np.zeros(3), 0.0
        for unimportant, share_of_bursts in kinds:
            idle_step, idle_rates = _one_packet(unimportant, limits, 0)
            busy_step, busy_rates = _one_packet(unimportant, limits, self._counted(queue, queue))
            for size, probability in _burst_sizes(offered):
                idle, waiting, seen = 1.0, np.zeros(_length(limits)), np.zeros(3)
                for _ in range(size):
                    seen += idle * idle_rates[:, 0] + busy_rates @ waiting
                    waiting = waiting @ busy_step
                    waiting[0] += idle * idle_step[0, 1:].sum()
                    idle *= idle_step[0, 0]
                start += share_of_bursts * probability * waiting
                counts += share_of_bursts * probability * seen
                lost += share_of_bursts * probability * idle
        return start, counts, lost

    def solve(self) -> list[ChainQueue]:
        self._prepare_first_bursts()
        state = self._stationary()
        idle_times = float(self._after_slot(state)[(0,) * len(self.shape)])
        cycle = 1.0 + idle_times * sum(self.idle_bursts) / sum(self.burst_rates)
        return [self._figures(queue, state, idle_times, cycle) for queue in self.queues]

    def _stationary(self) -> FloatArray:
        state = self._next_start(self._empty())
        for _ in range(MOST_STEPS):
            # Fixed bursts without losses make the chain periodic (lengths fall by 1 modulo the burst): half a
            # step has the same stationary state, and no period.
            following = (state + self._next_start(self._after_slot(state))) / 2
            following /= following.sum()
            if np.abs(following - state).sum() < CONVERGED:
                return following
            state = following
        raise AssertionError("the chain did not converge")

    def _empty(self) -> FloatArray:
        empty = np.zeros(self.shape)
        empty[(0,) * len(self.shape)] = 1.0
        return empty

    def _figures(self, queue: int, state: FloatArray, idle_times: float, cycle: float) -> ChainQueue:
        counts = idle_times * self.first_bursts[queue][1]
        others = tuple(index for index in self.queues if index != queue)
        over_time = np.zeros(self.shape[queue])
        for served in self.queues:
            lengths = state[served].sum(axis=others)
            counts = counts + self.slots[served][queue].counts @ lengths
            over_time += lengths @ self.slots[served][queue].over_time
        over_time[0] += cycle - 1.0
        over_time /= cycle
        offered = self.traffic[queue].load * cycle
        admitted = offered - counts[0] - counts[1]
        # What comes in goes out: each cycle serves one packet, of this queue with this probability.
        assert abs(admitted - state[queue].sum()) < 1e-9
        unimportant = offered * self.traffic[queue].unimportant_share
        important = offered - unimportant
        mean_queue = float(over_time @ np.arange(len(over_time)))
        return ChainQueue(
            loss_unimportant=_ratio(counts[0], unimportant),
            loss_important=_ratio(counts[1], important),
            mark_share=_ratio(counts[2], important - counts[1]),
            mean_queue_packets=mean_queue,
            mean_delay_packet_times=_ratio(mean_queue * cycle, admitted),
            queue_probabilities=tuple(over_time.tolist()),
        )


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else 0.0
