"""What a queue makes of bursts that are offered while nothing leaves it: who joins, and where the queue ends.

Below S every packet joins, from S to L only important ones, at L none. The two rules differ in how the
packets of one burst share their importance. Both are weights over what is offered, the same for every
transform point: in the arrays here each row belongs to one point s.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

import numpy as np

from mltswitch.queueing.completion.rational import FloatArray
from mltswitch.queueing.completion.tables import Array, chosen

SAFETY: Final = 9.0
"""Standard deviations beyond the mean after which a queue that was offered so much counts as full."""
MOST_PACKETS: Final = 100_000
HARDLY: Final = 1e-13
"""Probability of more arrivals below which nobody looks."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What arrives during one duration, weighted by exp(-s T)."""

    bursts: Array
    """Weight of 0, 1, … bursts."""
    packets: Array
    """Weight of 0, 1, … packets in these bursts."""
    more: Array
    """Weight of still more: whoever is offered that is full."""
    total: Array
    """Sum of all: the transform of the duration."""


@dataclass(frozen=True, slots=True)
class ClassQueue:
    """One class that is offered something, with whole thresholds."""

    rate: float
    """Bursts per packet time."""
    threshold: int
    limit: int
    important_share: float
    sizes: tuple[int, ...]
    """Burst sizes, each with its probability."""
    probabilities: tuple[float, ...]
    is_burst_alike: bool
    """All packets of a burst are important, or none."""

    @property
    def mean_burst(self) -> float:
        """Packets."""
        return float(np.dot(self.sizes, self.probabilities))

    @property
    def load(self) -> float:
        """Packets per packet time."""
        return self.rate * self.mean_burst


def filling_packets(threshold: int, limit: int, important_share: float) -> int:
    """Packets that fill an empty queue, but for a chance of about 1e-13."""
    room = limit - threshold
    if not room:
        return threshold + 1
    spread = SAFETY * sqrt((room + SAFETY**2) * (1 - important_share))
    return min(MOST_PACKETS, ceil(threshold + (room + spread) / important_share + 1))


class Admission(ABC):
    """Rules of one queue with whole S and L, packets important with probability `important_share`."""

    def __init__(
        self,
        threshold: int,
        limit: int,
        important_share: float,
        sizes: Sequence[int],
        shares: Sequence[float],
    ) -> None:
        self.threshold = threshold
        self.limit = limit
        self.room = limit - threshold
        self.important_share = important_share
        self._important = chosen(important_share)
        self.mean_burst = float(np.dot(sizes, shares))
        self._sizes = np.asarray(sizes, dtype=np.int64)
        self._shares = np.asarray(shares, dtype=float)
        self.filling_packets = filling_packets(threshold, limit, important_share)
        spread = float(np.dot(shares, (np.asarray(sizes) - self.mean_burst) ** 2)) ** 0.5 / self.mean_burst
        mean_bursts = self.filling_packets / self.mean_burst
        self.most_bursts = ceil(mean_bursts + SAFETY * spread * sqrt(mean_bursts)) + 1
        """Bursts after which the queue is full, wherever it began."""

    @property
    def fixed_burst(self) -> int | None:
        """Size of every burst, where they are alike."""
        return int(self._sizes[0]) if len(self._sizes) == 1 else None

    @property
    def stride_above(self) -> int:
        """Packets let in above S are a multiple of it, unless they fill the queue."""
        return 1

    def trim(self, counts: FloatArray) -> None:
        """Forget what hardly arrives, from the probabilities of 0, 1, … bursts in the longest duration."""
        tail = np.cumsum(counts[::-1])[::-1]
        self.most_bursts = min(self.most_bursts, max(1, int(np.count_nonzero(tail > HARDLY))))

    def offer(self, bursts: Array, total: Array) -> Offer:
        """Packets from bursts."""
        packets = self._packets_of(bursts)
        return Offer(bursts, packets, total - packets.sum(axis=1), total)

    def landing(self, packets: int) -> FloatArray:
        """Probabilities of 0 … L waiting after so many packets of one burst have come to an empty queue."""
        ended = np.zeros(self.limit + 1)
        if packets <= self.threshold:
            ended[packets] = 1.0
        else:
            ended[self.threshold :] = self._landing_above(packets - self.threshold)
        return ended

    def time_at_lengths(self, change: FloatArray, busy_time: float, rate: float) -> FloatArray:
        """Time with 0 … L waiting, from the balance of each length.

        Between the start and the end of a stay the length changes by arrivals alone, `rate` bursts per
        time; so rate · time · (one - one burst) = `change`: stays that start at a length less those that
        end there.
        """
        threshold, limit = self.threshold, self.limit
        inflow = change / rate
        passing = self._one_burst_above()
        time = np.zeros(limit + 1)
        for length in range(limit):
            if length < threshold:
                time[length] = inflow[length]
                for size, share in zip(self._sizes, self._shares, strict=True):
                    if length + size <= threshold:
                        inflow[length + size] += share * time[length]
                distance = threshold - length
                if distance < len(passing):
                    inflow[threshold:] += time[length] * passing[distance]
            else:
                joined = passing[0]
                time[length] = inflow[length] / (1 - joined[0])
                inflow[length + 1 : limit] += time[length] * joined[1 : limit - length]
        time[limit] = max(0.0, busy_time - time.sum())
        return np.maximum(time, 0.0)

    def _one_burst_above(self) -> FloatArray:
        """Row d: where a burst that passes S by its packet d + 1 leads from S - d, as 0 … L - S above S."""
        largest = int(self._sizes.max())
        rows = np.zeros((largest, self.room + 1))
        for size, share in zip(self._sizes, self._shares, strict=True):
            for distance in range(int(size)):
                rows[distance] += share * self._landing_above(int(size) - distance)
        return rows

    def rest_of_burst(self) -> FloatArray:
        """Probabilities of 0 … L waiting after a burst at an idle port, which serves its first packet."""
        ended = np.zeros(self.limit + 1)
        for size, share in zip(self._sizes, self._shares, strict=True):
            ended += share * self.landing(int(size) - 1)
        return ended

    @property
    def lost_at_idle(self) -> float:
        """Important packets that such a burst loses on average."""
        rests = self._sizes - 1
        return float(
            sum(share * self._missed(int(rest)) for rest, share in zip(rests, self._shares, strict=True))
        )

    @abstractmethod
    def above(self, offer: Offer) -> Array:
        """From S: weights of 0, 1, … L - S packets let in, the last one standing for all that follow."""

    @abstractmethod
    def crossing_values(self, offer: Offer, values: Array) -> Array:
        """Column d: worth of what comes from S - d, where it passes S; values[:, r] is that of S + r."""

    @abstractmethod
    def crossing_tails(self, starts: FloatArray, offer: Offer) -> FloatArray:
        """Column r: weight that ends above S + r, from starts[:, v] at v < S, where it passes S."""

    @abstractmethod
    def lost_important(self, starts: FloatArray, offer: Offer, mean_packets: float) -> FloatArray:
        """Important packets dropped at L, from starts[:, v] at v = 0 … L, of mean_packets offered."""

    @abstractmethod
    def _landing_above(self, packets: int) -> FloatArray: ...

    @abstractmethod
    def _missed(self, packets: int) -> float:
        """Important packets dropped at L when so many of one burst come to an empty queue."""

    @abstractmethod
    def _packets_of(self, bursts: Array) -> Array: ...

    def spaced(self, bursts: Array) -> Array:
        """Weights of packets from those of bursts of one size."""
        size = int(self._sizes[0])
        packets = np.zeros((len(bursts), self.most_bursts * size + 1), dtype=bursts.dtype)
        packets[:, ::size] = bursts
        return packets

    def lost_beyond(self, starts: FloatArray, offer: Offer, mean_packets: float) -> FloatArray:
        """Important packets dropped where more is offered than the tables show."""
        more = float(offer.more[0])
        if more <= HARDLY:
            return np.zeros(len(starts))
        offered = mean_packets - float(offer.packets[0] @ np.arange(offer.packets.shape[1]))
        lengths = np.arange(self.limit + 1)
        free = np.maximum(self.threshold - lengths, 0)
        room = np.minimum(self.room, self.limit - lengths)
        missed = self.important_share * (offered - more * free) - more * room
        return np.asarray(starts @ np.maximum(missed, 0))
