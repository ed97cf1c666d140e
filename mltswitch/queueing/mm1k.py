"""Two-threshold birth-death chain: each class alone, Poisson arrivals, exponential service.

Strict priority shows in two places. The classes above slow the service down as in `paper`, to mu_i = mu (1 -
rho_1) … (1 - rho_{i-1}). And a packet that comes while its class is empty may find a packet of another class
in transmission: then it waits for the rest of it, in the mean one whole service, because exponential service
forgets its past. What the other classes carry is taken from their loads alone, never from their thresholds:
so a class's losses depend on its own thresholds only, which the optimiser relies on.

States: own class empty; or busy with 0 … L packets waiting. With `count_in_service` the thresholds see the
class's own packet in transmission, and a packet that waits for another class's is counted apart from one that
waits for its own. Below S everything joins, from S to L important packets alone, at L nothing.

Bursts are ignored, and the size of packets is exponential whatever the port says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
import numpy.typing as npt

from mltswitch.errors import UserInputError
from mltswitch.queueing.paper import FloatArray, utilisations
from mltswitch.queueing.problem import Port, QueuePrediction, QueueThresholds, QueueTraffic

IntArray = npt.NDArray[np.int64]

SMALLEST = 1e-300
"""Stands for a rate of 0 where a logarithm is taken."""
WINDOW_DEVIATIONS = 12.0
"""Standard deviations of a Poisson count beyond which its probability is below every rounding error."""


@dataclass(frozen=True, slots=True)
class ClassService:
    """What strict priority leaves of the port for one class."""

    rate: float
    """Services per packet time; 0: nothing is left."""
    utilisation: float
    """Offered load over the rate."""
    residual: float
    """Probability that a packet that finds its class empty waits for a packet of another class."""


def class_services(loads: Sequence[float]) -> tuple[ClassService, ...]:
    """Reduce a port to one server for each class, highest priority first.

    While class i is empty, the classes above keep the port busy for 1 - mu_i of the time. The classes below
    are served only then: their load falls into the share 1 - rho_i of the time in which class i is empty.
    """
    rho = utilisations(loads)
    rates = np.cumprod(np.concatenate(([1.0], np.maximum(0.0, 1.0 - rho))))
    services: list[ClassService] = []
    for index, utilisation in enumerate(rho):
        below = sum(loads[index + 1 :])
        empty = max(0.0, 1.0 - float(utilisation))
        below_while_empty = below / empty if empty > 0 else (inf if below > 0 else 0.0)
        residual = min(1.0, 1.0 - float(rates[index]) + below_while_empty)
        services.append(ClassService(float(rates[index]), float(utilisation), residual))
    return tuple(services)


def predict(
    port: Port, traffic: Sequence[QueueTraffic], thresholds: Sequence[QueueThresholds]
) -> tuple[QueuePrediction, ...]:
    """Losses, delays, marks and queue lengths of each queue, highest priority first.

    Lengths are whole packets, so that a fractional threshold acts as the next whole one.

    Raises:
        UserInputError: the port shares by weights, or a threshold is more than a step on the queue's length.
    """
    _check(port, thresholds)
    services = class_services([queue.load for queue in traffic])
    return tuple(
        predict_class(service, offered.unimportant_share, limits, count_in_service=port.count_in_service)
        for service, offered, limits in zip(services, traffic, thresholds, strict=True)
    )


def predict_class(
    service: ClassService, unimportant_share: float, thresholds: QueueThresholds, *, count_in_service: bool
) -> QueuePrediction:
    """One class alone."""
    limit = ceil(thresholds.limit_packets)
    threshold = limit
    if thresholds.ecn_threshold_packets is not None:
        threshold = min(ceil(thresholds.ecn_threshold_packets), limit)
    if limit == 0:
        return QueuePrediction(1.0, 1.0, mean_queue_packets=0.0, queue_probabilities=(1.0,))
    if service.rate <= 0:
        return _without_service(service, limit)
    return Chain.solve(service, unimportant_share, threshold, limit, count_in_service).prediction()


def _without_service(service: ClassService, limit: int) -> QueuePrediction:
    """Whatever is offered fills the queue once and stays; a class that offers nothing loses nothing."""
    is_offered = service.utilisation > 0
    loss = 1.0 if is_offered else 0.0
    probabilities = [0.0] * (limit + 1)
    probabilities[limit if is_offered else 0] = 1.0
    return QueuePrediction(
        loss,
        loss,
        mean_queue_packets=float(limit) if is_offered else 0.0,
        queue_probabilities=tuple(probabilities),
    )


def _check(port: Port, thresholds: Sequence[QueueThresholds]) -> None:
    hint = "the model simulate can"
    if port.weights is not None and any(port.weights):
        raise UserInputError("the model mm1k knows strict priority only", where="weights", hint=hint)
    limits = sum(queue.limit_packets for queue in thresholds)
    if port.buffer_packets is not None and port.buffer_packets < limits:
        raise UserInputError(
            f"the model mm1k cannot say who finds room: the limits together are {limits:g} packets",
            where="buffer_packets",
            expected=f"at least {limits:g}",
            hint=hint,
        )
    for index, queue in enumerate(thresholds):
        if not queue.is_step:
            raise UserInputError(
                "the model mm1k knows thresholds that are a step on the instantaneous length, and no alpha",
                where=f"queues[{index}]",
                hint=hint,
            )


@dataclass(frozen=True, slots=True)
class Chain:
    """Stationary distribution of one class: the empty state, and arrays with an entry for each busy state."""

    service: ClassService
    unimportant_share: float
    threshold: int
    limit: int
    empty: float
    probability: FloatArray
    length: IntArray
    """What the thresholds see."""
    waiting: IntArray
    ahead: IntArray
    """Services that a packet waits for if it joins in this state."""

    @classmethod
    def solve(
        cls,
        service: ClassService,
        unimportant_share: float,
        threshold: int,
        limit: int,
        count_in_service: bool,
    ) -> "Chain":
        """Solve the cut equations from the empty state upwards, as logarithms: no load or limit overflows."""
        length = np.arange(limit + 1)
        below = np.arange(limit) < threshold
        births = service.utilisation * np.where(below, 1.0, 1.0 - unimportant_share)
        if count_in_service:
            logs, length, waiting, ahead = _own_in_service(births, service.residual)
        else:
            logs = _waiting_only(births, service.residual)
            waiting, ahead = length, length + 1
        highest = max(0.0, float(logs.max()))
        weights = np.exp(logs - highest)
        empty = float(np.exp(-highest))
        total = empty + float(weights.sum())
        return cls(
            service,
            unimportant_share,
            threshold,
            limit,
            empty / total,
            weights / total,
            length,
            waiting,
            ahead,
        )

    def prediction(self) -> QueuePrediction:
        """All figures of the class."""
        lost_unimportant = float(self.probability[self.length >= self.threshold].sum())
        if self.threshold == 0:
            lost_unimportant = 1.0
        lost_important = float(self.probability[self.length >= self.limit].sum())
        time_waiting = np.bincount(self.waiting, self.probability, minlength=self.limit + 1)
        time_waiting[0] += self.empty
        # A class that offers nothing has no packet that could wait.
        delays = self.delays() if self.service.utilisation > 0 else None
        important_in = 1.0 - lost_important
        return QueuePrediction(
            loss_unimportant=min(1.0, lost_unimportant),
            loss_important=min(1.0, lost_important),
            mean_delay_packet_times=None if delays is None else delays.mean,
            p50_delay_packet_times=None if delays is None else delays.quantile(0.5),
            p99_delay_packet_times=None if delays is None else delays.quantile(0.99),
            p999_delay_packet_times=None if delays is None else delays.quantile(0.999),
            mean_queue_packets=float(time_waiting @ np.arange(len(time_waiting))),
            mark_share=(
                min(1.0, max(0.0, lost_unimportant - lost_important) / important_in)
                if important_in > 0
                else None
            ),
            queue_probabilities=tuple(time_waiting.tolist()),
        )

    def delays(self) -> "ServicesWaited":
        """Waiting time of the packets that are let in."""
        important = 1.0 - self.unimportant_share
        into_empty = self.empty * (1.0 if self.threshold > 0 else important)
        admitted = np.where(self.length < self.threshold, 1.0, important) * (self.length < self.limit)
        shares = np.bincount(self.ahead, self.probability * admitted, minlength=2)
        shares[0] += into_empty * (1.0 - self.service.residual)
        shares[1] += into_empty * self.service.residual
        total = float(shares.sum())
        return ServicesWaited(shares / total if total > 0 else np.ones(1), self.service.rate)


def _waiting_only(births: FloatArray, residual: float) -> FloatArray:
    """Logarithms of the states with 0 … L waiting; the empty state has 0.

    Cuts: p_0 = x_0 p_empty; p_1 = x_0 (residual · p_empty + p_0); p_{w+1} = x_w p_w.
    """
    steps = np.log(np.maximum(births, SMALLEST))
    second = steps[0] + np.log(max(residual + births[0], SMALLEST))
    return np.concatenate(([steps[0]], second + np.concatenate(([0.0], np.cumsum(steps[1:])))))


def _own_in_service(births: FloatArray, residual: float) -> tuple[FloatArray, IntArray, IntArray, IntArray]:
    """States with n = 1 … L own packets: with an own one in transmission (o), then with another class's (r).

    r_1 = x_0 · residual / (1 + x_1), r_{n+1} = x_n r_n / (1 + x_{n+1}), o_1 = x_0, o_{n+1} = x_n (o_n + r_n),
    with x_L = 0. Divided by the product of the x before n, o is a sum of positive terms: no digit is lost.
    """
    numbers = np.arange(1, len(births) + 1)
    products = np.cumsum(np.log(np.maximum(births, SMALLEST)))
    others = residual * np.exp(-np.cumsum(np.log1p(np.append(births[1:], 0.0))))
    own = 1.0 + np.concatenate(([0.0], np.cumsum(others)[:-1]))
    logs = np.concatenate((products + np.log(own), products + np.log(np.maximum(others, SMALLEST))))
    return (
        logs,
        np.concatenate((numbers, numbers)),
        np.concatenate((numbers - 1, numbers)),
        np.concatenate((numbers, numbers + 1)),
    )


class ServicesWaited:
    """Waiting time that is a random number of exponential services."""

    def __init__(self, shares: FloatArray, rate: float) -> None:
        """Shares of the packets that wait for 0, 1, … services, which add up to 1."""
        self._rate = rate
        self._mean_services = float(shares @ np.arange(len(shares)))
        self._more_than = np.maximum(0.0, np.cumsum(shares[::-1])[::-1] - shares)
        counts = np.arange(1, len(shares))
        self._log_factorials = np.concatenate(([0.0], np.cumsum(np.log(counts))))

    @property
    def mean(self) -> float:
        """In packet times."""
        return self._mean_services / self._rate

    def beyond(self, packet_times: float) -> float:
        """Probability of a longer wait: more services are ahead than the server completes in that time."""
        mean = packet_times * self._rate
        if mean == 0:
            return float(self._more_than[0])
        reach = WINDOW_DEVIATIONS * (mean**0.5 + WINDOW_DEVIATIONS)
        first, last = max(0, int(mean - reach)), min(len(self._more_than), int(mean + reach) + 1)
        if first >= last:
            return 0.0
        counts = np.arange(first, last)
        completed = np.exp(counts * np.log(mean) - mean - self._log_factorials[first:last])
        return float(completed @ self._more_than[first:last])

    def quantile(self, probability: float) -> float:
        """Smallest wait that this part of the packets does not exceed, in packet times."""
        target = 1.0 - probability
        if self.beyond(0.0) <= target:
            return 0.0
        high = 1.0 / self._rate
        while self.beyond(high) > target:
            high *= 2.0
        low = 0.0
        while high - low > 1e-10 * high:
            middle = (low + high) / 2.0
            if self.beyond(middle) > target:
                low = middle
            else:
                high = middle
        return high
