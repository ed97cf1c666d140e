"""What may be chosen: S and L of each queue within buffer, device steps and order."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from mltswitch.errors import UserInputError
from mltswitch.queueing.objective import ThresholdProblem, admissible_limits, least_buffer_packets
from mltswitch.queueing.problem import QueueThresholds


@dataclass(frozen=True, slots=True)
class Choice:
    """S and L of the chosen queues in packets, highest priority first."""

    thresholds: tuple[int, ...]
    limits: tuple[int, ...]

    def with_queue(self, queue: int, threshold: int, limit: int) -> "Choice":
        """One queue changed."""
        thresholds, limits = list(self.thresholds), list(self.limits)
        thresholds[queue], limits[queue] = threshold, limit
        return Choice(tuple(thresholds), tuple(limits))


class Constraints:
    """The feasible choices of a problem."""

    def __init__(self, problem: ThresholdProblem) -> None:
        """Raises UserInputError where the buffer is too small for any choice."""
        self.problem = problem
        self.step = problem.granularity_packets
        self.count = len(problem.objectives)
        self.limits = admissible_limits(problem)
        self.is_shared = problem.buffer == "shared"
        self._check()

    @cached_property
    def least(self) -> Choice:
        """The smallest S and L that any choice has."""
        thresholds = tuple(self._least_threshold(queue) for queue in range(self.count))
        return Choice(thresholds, tuple(self._limit_at_least(threshold) for threshold in thresholds))

    def is_feasible(self, choice: Choice) -> bool:
        """Whether the device and the buffer take it."""
        pairs = zip(choice.thresholds, choice.limits, strict=True)
        in_order = all(above < below for above, below in pairwise(choice.thresholds))
        return (
            all(self._fits(threshold, limit) for threshold, limit in pairs)
            and self.fits_buffer(sum(choice.limits))
            and (in_order or not self.problem.is_ordered)
        )

    def fits_buffer(self, total_packets: int) -> bool:
        """Whether limits with this sum fit; those of a shared buffer each fit alone."""
        return self.is_shared or total_packets <= self.problem.buffer_packets

    def most_limit(self, queue: int) -> int:
        """The largest L that leaves the other queues their least."""
        if self.is_shared:
            return self.limits[-1]
        others = sum(self.least.limits) - self.least.limits[queue]
        return self._limit_at_most(self.problem.buffer_packets - others)

    def moved(self, choice: Choice, queue: int, moves: tuple[int, int], step: int) -> tuple[int, int]:
        """S and L of one queue moved by (-1, 0 or 1) · step places, kept within S <= L and the bounds."""
        threshold, limit = choice.thresholds[queue], choice.limits[queue]
        most = self.most_limit(queue)
        place = bisect_left(self.limits, limit) + moves[1] * self._limit_step(step)
        place = min(max(place, 0), len(self.limits) - 1)
        limit = min(max(self.limits[place], self.least.limits[queue]), most)
        threshold = max(threshold + moves[0] * step * self.step, self.least.thresholds[queue])
        if moves[1] < 0:
            return threshold, max(limit, self._limit_at_least(threshold))
        return min(threshold, limit // self.step * self.step), limit

    @property
    def largest_step(self) -> int:
        """A quarter of the largest S, as a power of two."""
        places = max(1, self.limits[-1] // self.step // (1 if self.is_shared else self.count))
        return int(2 ** max(0, (places // 4).bit_length() - 1))

    def proportional(self, weights: Sequence[float], threshold_share: float) -> Choice:
        """What is left above the least, divided in proportion, and S a share of each L."""
        total = sum(weights) or 1.0
        spare = self.problem.buffer_packets - (0 if self.is_shared else sum(self.least.limits))
        limits = tuple(
            min(self._limit_at_most(least + int(spare * weight / total)), self.most_limit(queue))
            for queue, (least, weight) in enumerate(zip(self.least.limits, weights, strict=True))
        )
        return self.nearest(Choice(tuple(int(limit * threshold_share) for limit in limits), limits))

    def nearest(self, choice: Choice) -> Choice:
        """A feasible choice close to any other: rounded down to the steps, then cut to the buffer."""
        limits = [
            min(max(self._limit_at_most(limit), least), self.most_limit(queue))
            for queue, (limit, least) in enumerate(zip(choice.limits, self.least.limits, strict=True))
        ]
        while not self.fits_buffer(sum(limits)):
            spare = [limit - least for limit, least in zip(limits, self.least.limits, strict=True)]
            queue = spare.index(max(spare))
            limits[queue] = self._limit_at_most(limits[queue] - 1)
        return Choice(self._nearest_thresholds(choice.thresholds, limits), tuple(limits))

    def count_up_to(self, most: int) -> int:
        """How many choices there are at most, or a number above `most`."""
        per_queue = sum(limit // self.step for limit in self.limits)
        total = 1
        for _ in range(self.count):
            total *= per_queue
            if total > most:
                break
        return total

    def full(self, choice: Choice) -> tuple[QueueThresholds, ...]:
        """All queues of the port, the fixed ones among them."""
        chosen = iter(zip(choice.thresholds, choice.limits, strict=True))
        return tuple(
            QueueThresholds(*map(float, next(chosen))) if given is None else given
            for given in self.problem.fixed
        )

    def _nearest_thresholds(self, wanted: Sequence[int], limits: Sequence[int]) -> tuple[int, ...]:
        most = [limit // self.step * self.step for limit in limits]
        if self.problem.is_ordered:
            # A queue may not reach the S of the next, so what bounds the last bounds those above it.
            bounds = [entry - self.step * queue for queue, entry in enumerate(most)]
            lowest = list(accumulate(reversed(bounds), min))[::-1]
            most = [bound + self.step * queue for queue, bound in enumerate(lowest)]
        chosen: list[int] = []
        for queue, threshold in enumerate(wanted):
            floor = self._least_threshold(queue)
            if self.problem.is_ordered and chosen:
                floor = chosen[-1] + self.step
            chosen.append(min(max(threshold // self.step * self.step, floor), most[queue]))
        return tuple(chosen)

    def _least_threshold(self, queue: int) -> int:
        return self.step * (queue + 1 if self.problem.is_ordered else 1)

    def _limit_step(self, step: int) -> int:
        if len(self.limits) * self.step >= self.limits[-1]:
            return step
        return max(1, step * self.step * len(self.limits) // self.limits[-1])

    def _fits(self, threshold: int, limit: int) -> bool:
        place = bisect_left(self.limits, limit)
        return (
            self.step <= threshold <= limit
            and threshold % self.step == 0
            and place < len(self.limits)
            and self.limits[place] == limit
        )

    def _limit_at_most(self, length: int) -> int:
        return self.limits[max(0, bisect_right(self.limits, length) - 1)]

    def _limit_at_least(self, length: int) -> int:
        return self.limits[min(bisect_left(self.limits, length), len(self.limits) - 1)]

    def _check(self) -> None:
        needed = self._least_threshold(self.count - 1)
        if not self.limits or self.limits[-1] < needed or not self.fits_buffer(sum(self.least.limits)):
            raise UserInputError(
                f"{self.problem.buffer_packets} packets are too few for {self.count} queues "
                f"in steps of {self.step}",
                where="buffer_packets",
                expected=f"at least {self._least_buffer()} packets",
            )

    def _least_buffer(self) -> int:
        return least_buffer_packets(
            self.count, self.step, is_ordered=self.problem.is_ordered, is_shared=self.is_shared
        )
