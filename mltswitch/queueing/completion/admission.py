"""Admission of bursts to a queue while nothing leaves it: which packets join, and how long the queue becomes.

Below S every packet joins, from S to L only important ones, at L none. The two rules differ in how the
packets of one burst share their importance: each by itself, or all alike. Both are weights over what is
offered, the same for every transform point: in the arrays here each row belongs to one point s.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.completion.rational import FloatArray
from mltswitch.queueing.completion.tables import Array, chosen, sums_of_bursts

SAFETY: Final = 9.0
"""Standard deviations beyond the mean number of packets after which a queue counts as surely full."""
MOST_PACKETS: Final = 100_000
HARDLY: Final = 1e-13
"""Probability below which the arrival of still more bursts is neglected."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The bursts and packets that arrive during a random duration T, weighted by exp(-s T)."""

    bursts: Array
    """Weights of 0, 1, … bursts arriving."""
    packets: Array
    """Weights of 0, 1, … packets arriving in these bursts."""
    more: Array
    """Weight of more arrivals than the tables hold, which always fill the queue."""
    total: Array
    """Sum of all weights: the transform E exp(-s T) of the duration."""


@dataclass(frozen=True, slots=True)
class ClassQueue:
    """One traffic class with a positive load and integer thresholds."""

    rate: float
    """The class's arrival rate in bursts per packet time."""
    threshold: int
    limit: int
    important_share: float
    sizes: tuple[int, ...]
    """Burst sizes in packets, each with its probability in `probabilities`."""
    probabilities: tuple[float, ...]
    is_burst_alike: bool
    """Whether all packets of a burst share one importance."""

    @property
    def mean_burst(self) -> float:
        """Mean burst size in packets."""
        return float(np.dot(self.sizes, self.probabilities))

    @property
    def load(self) -> float:
        """Offered load in packets per packet time."""
        return self.rate * self.mean_burst


def filling_packets(threshold: int, limit: int, important_share: float) -> int:
    """Number of offered packets that fill an empty queue, except with a probability of about 1e-13."""
    room = limit - threshold
    if not room:
        return threshold + 1
    spread = SAFETY * sqrt((room + SAFETY**2) * (1 - important_share))
    return min(MOST_PACKETS, ceil(threshold + (room + spread) / important_share + 1))


class Admission(ABC):
    """Admission rules of one queue with an integer ECN threshold S and limit L, its packets
    important with probability `important_share`.
    """

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
        """The size of every burst in packets where all are equal; None: sizes differ."""
        return int(self._sizes[0]) if len(self._sizes) == 1 else None

    @property
    def stride_above(self) -> int:
        """The number of packets admitted above the ECN threshold S is a multiple of this, unless they
        fill the queue.
        """
        return 1

    def trim(self, counts: FloatArray) -> None:
        """Shorten the tables to counts that hardly ever are exceeded, given the probabilities of 0, 1, …
        bursts in the longest duration."""
        tail = np.cumsum(counts[::-1])[::-1]
        self.most_bursts = min(self.most_bursts, max(1, int(np.count_nonzero(tail > HARDLY))))

    def offer(self, bursts: Array, total: Array) -> Offer:
        """The offer of packets that follows from the weights of 0, 1, … bursts and their total."""
        packets = self._packets_of(bursts)
        return Offer(bursts, packets, total - packets.sum(axis=1), total)

    def landing(self, packets: int) -> FloatArray:
        """Probabilities of queue lengths 0 … L after this many packets of one burst have come to an empty
        queue."""
        ended = np.zeros(self.limit + 1)
        if packets <= self.threshold:
            ended[packets] = 1.0
        else:
            ended[self.threshold :] = self._landing_above(packets - self.threshold)
        return ended

    def time_at_lengths(self, change: FloatArray, busy_time: float, rate: float) -> FloatArray:
        """Expected time at queue lengths 0 … L, from the balance of flows into and out of each length.

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
        """Probabilities of queue lengths 0 … L after a burst at an idle port, which transmits its first
        packet at once."""
        ended = np.zeros(self.limit + 1)
        for size, share in zip(self._sizes, self._shares, strict=True):
            ended += share * self.landing(int(size) - 1)
        return ended

    @property
    def lost_at_idle(self) -> float:
        """Mean number of important packets that a burst at an idle port loses."""
        rests = self._sizes - 1
        return float(
            sum(share * self._missed(int(rest)) for rest, share in zip(rests, self._shares, strict=True))
        )

    @abstractmethod
    def above(self, offer: Offer) -> Array:
        """Weights of 0, 1, … L - S admitted packets from a queue as long as the ECN threshold S; the last one
        stands for all larger numbers.
        """

    @abstractmethod
    def crossing_values(self, offer: Offer, values: Array) -> Array:
        """Column d: expected value after arrivals at length S - d that carry the queue past the ECN
        threshold S; values[:, r] is that of S + r.
        """

    @abstractmethod
    def crossing_tails(self, starts: FloatArray, offer: Offer) -> FloatArray:
        """Column r: weight of queues that end above S + r, from the weights starts[:, v] of lengths v < S."""

    @abstractmethod
    def lost_important(self, starts: FloatArray, offer: Offer, mean_packets: float) -> FloatArray:
        """Mean number of important packets dropped at the limit L, from the weights starts[:, v] of
        lengths v = 0 … L, with mean_packets offered.
        """

    @abstractmethod
    def _landing_above(self, packets: int) -> FloatArray: ...

    @abstractmethod
    def _missed(self, packets: int) -> float:
        """Important packets dropped at L when so many of one burst come to an empty queue."""

    @abstractmethod
    def _packets_of(self, bursts: Array) -> Array: ...

    def spaced(self, bursts: Array) -> Array:
        """Weights of 0, 1, … packets from the weights of 0, 1, … bursts that all have one size."""
        size = int(self._sizes[0])
        packets = np.zeros((len(bursts), self.most_bursts * size + 1), dtype=bursts.dtype)
        packets[:, ::size] = bursts
        return packets

    def lost_beyond(self, starts: FloatArray, offer: Offer, mean_packets: float) -> FloatArray:
        """Mean number of important packets dropped where more packets arrive than the tables hold."""
        more = float(offer.more[0])
        if more <= HARDLY:
            return np.zeros(len(starts))
        offered = mean_packets - float(offer.packets[0] @ np.arange(offer.packets.shape[1]))
        lengths = np.arange(self.limit + 1)
        free = np.maximum(self.threshold - lengths, 0)
        room = np.minimum(self.room, self.limit - lengths)
        missed = self.important_share * (offered - more * free) - more * room
        return np.asarray(starts @ np.maximum(missed, 0))


FEW_BURSTS: Final = 96
"""Up to this many bursts convolutions are summed directly, beyond it by Fourier transform."""


class BurstAdmission(Admission):
    """Admission where all bursts have one size and the packets of each burst share one importance (one ECN
    field)."""

    @property
    def _burst(self) -> int:
        return int(self._sizes[0])

    @property
    def _ends(self) -> npt.NDArray[np.int64]:
        """Where r important bursts lead from S + offset, less S: [offset, r]."""
        counts = np.arange(self.most_bursts + 1)
        return np.asarray(np.minimum(np.arange(self._burst)[:, None] + self._burst * counts, self.room))

    @property
    def stride_above(self) -> int:
        """The burst size: above the ECN threshold S whole bursts are admitted, unless they fill the queue."""
        return self._burst

    def _packets_of(self, bursts: Array) -> Array:
        return self.spaced(bursts)

    def _landing_above(self, packets: int) -> FloatArray:
        ended = np.zeros(self.room + 1)
        ended[0] = 1 - self.important_share
        ended[min(packets, self.room)] += self.important_share
        return ended

    def _missed(self, packets: int) -> float:
        return self.important_share * max(0, packets - self.limit)

    def above(self, offer: Offer) -> Array:
        """Weights of 0, 1, … L - S admitted packets from a queue as long as the ECN threshold S; the last one
        stands for all larger numbers.
        """
        joined = np.zeros((len(offer.bursts), self.room + 1), dtype=offer.bursts.dtype)
        important = self._important.distributed(offer.bursts)
        for count, end in enumerate(self._ends[0]):
            joined[:, end] += important[:, count]
        joined[:, -1] += offer.more
        return joined

    def crossing_values(self, offer: Offer, values: Array) -> Array:
        """Column d: expected value after arrivals at length S - d that carry the queue past the ECN
        threshold S; values[:, r] is that of S + r.
        """
        columns = np.zeros((len(values), self.threshold + 1), dtype=complex)
        stay = 1 - self.important_share
        at_threshold = self._important.expected(values[:, self._ends[0]], self.most_bursts)
        first = self._first_offset
        further = self._important.expected(values[:, self._ends[first:]], self.most_bursts)
        worth = stay * at_threshold[:, None] + self.important_share * further
        if not first:
            worth[:, 0, 0] = 0  # just S reached is no crossing
        for bursts, offsets, distances in self._crossings():
            later = offer.bursts[:, bursts:]
            columns[:, distances] = np.einsum("soj,sj->so", worth[:, offsets, : later.shape[1]], later)
        return np.asarray(columns + (offer.more * values[:, -1])[:, None])

    @property
    def _first_offset(self) -> int:
        """Bursts from below S end at S + this at least, or below S."""
        return max(0, self._burst - self.threshold)

    def _crossings(self) -> Iterator[tuple[int, slice, slice]]:
        """(bursts that reach S or pass it, offsets beyond S less the first one, distances below S)."""
        first = self._first_offset
        for bursts in range(1, self.most_bursts + 1):
            packets = bursts * self._burst
            lowest = max(first, packets - self.threshold)
            if lowest < self._burst:
                distances = slice(packets - lowest, packets - self._burst, -1)
                yield bursts, slice(lowest - first, self._burst - first), distances

    def crossing_tails(self, starts: FloatArray, offer: Offer) -> FloatArray:
        """Column r: weight of queues that end above S + r, from the weights starts[:, v] of lengths v < S."""
        important = self._important_beyond(starts, offer)
        landed = np.zeros((len(starts), self.room + 1))
        ended = important.sum(axis=0)
        for count, ends in enumerate(self._ends[self._first_offset :].T):
            landed[:, self._ends[0, count]] += (1 - self.important_share) * ended[:, count]
            inside = int(np.searchsorted(ends, self.room))
            further = self.important_share * important[:, :, count].T
            landed[:, ends[:inside]] += further[:, :inside]
            landed[:, -1] += further[:, inside:].sum(axis=1)
        tails = landed[:, :0:-1].cumsum(axis=1)[:, ::-1]
        return np.asarray(tails + starts[:, : self.threshold].sum(axis=1, keepdims=True) * offer.more)

    def lost_important(self, starts: FloatArray, offer: Offer, mean_packets: float) -> FloatArray:
        """Mean number of important packets dropped at the limit L, from the weights starts[:, v] of
        lengths v = 0 … L.
        """
        counts = np.arange(self.most_bursts + 1) * self._burst
        offsets = np.arange(self._first_offset, self._burst)[:, None]
        missed = self.important_share * np.maximum(offsets + counts - self.room, 0)
        missed += (1 - self.important_share) * np.maximum(counts - self.room, 0)
        lost = np.einsum("osj,oj->s", self._important_beyond(starts, offer), missed)
        important = self._important.distributed(offer.bursts[:1])[0]
        rooms = np.arange(self.room, -1, -1)
        lost += starts[:, self.threshold :] @ (np.maximum(counts - rooms[:, None], 0) @ important)
        return np.asarray(lost + self.lost_beyond(starts, offer, mean_packets))

    def _important_beyond(self, starts: FloatArray, offer: Offer) -> FloatArray:
        """[offset less the first, start, r]: weight of r important bursts behind one that reaches S."""
        first = self._first_offset
        beyond = np.zeros((self._burst - first, len(starts), self.most_bursts + 1))
        for bursts, offsets, distances in self._crossings():
            later = offer.bursts[0, bursts:]
            begun = starts[:, self.threshold - distances.start : self.threshold - distances.stop]
            beyond[offsets, :, : len(later)] += begun.T[:, :, None] * later
        if not first:
            beyond[0, :, 0] = 0
        return self._important.distributed(beyond)


class PacketAdmission(Admission):
    """Admission where each packet is important or not independently of the others."""

    @property
    def _most_packets(self) -> int:
        largest = self.most_bursts * int(self._sizes.max())
        return int(largest) if self.fixed_burst else min(largest, self.filling_packets)

    def _packets_of(self, bursts: Array) -> Array:
        if self.fixed_burst:
            return self.spaced(bursts)
        sizes, shares = self._sizes.tobytes(), self._shares.tobytes()
        return bursts @ sums_of_bursts(sizes, shares, self.most_bursts, self._most_packets)

    def _landing_above(self, packets: int) -> FloatArray:
        return np.asarray(self._folded(self._important.row(packets)))

    def _missed(self, packets: int) -> float:
        joined = self._important.row(max(0, packets - self.threshold))
        return float(joined[self.room :] @ np.arange(len(joined[self.room :])))

    def _folded(self, joined: Array) -> Array:
        """Columns 0 … L - S, the last one with all that follow."""
        folded = np.zeros((*joined.shape[:-1], self.room + 1), dtype=joined.dtype)
        count = min(self.room, joined.shape[-1])
        folded[..., :count] = joined[..., :count]
        folded[..., -1] = joined[..., self.room :].sum(axis=-1)
        return folded

    def above(self, offer: Offer) -> Array:
        """Weights of 0, 1, … L - S admitted packets from a queue as long as the ECN threshold S; the last one
        stands for all larger numbers.
        """
        joined = self._folded(self._important.distributed(offer.packets))
        joined[:, -1] += offer.more
        return joined

    def crossing_values(self, offer: Offer, values: Array) -> Array:
        """Column d: expected value after arrivals at length S - d that carry the queue past the ECN
        threshold S; values[:, r] is that of S + r.
        """
        worth = self._important.expected(values, self._most_packets)
        worth[:, 0] = 0  # just S reached is no crossing
        size = self.fixed_burst
        if size and self.most_bursts <= FEW_BURSTS:
            columns = np.repeat((offer.more * values[:, -1])[:, None], self.threshold + 1, axis=1)
            for count in range(1, self.most_bursts + 1):
                reach = min(count * size, self.threshold + 1)
                beyond = worth[:, count * size : count * size - reach : -1]
                columns[:, :reach] += offer.bursts[:, count, None] * beyond
            return columns
        length = 1 << (2 * self._most_packets + 1).bit_length()
        product = np.fft.fft(offer.packets, length) * np.fft.fft(worth[:, ::-1], length)
        # Column most_packets + d of the convolution pairs m offered with m - d beyond S.
        columns = np.zeros((len(values), self.threshold + 1), dtype=complex)
        width = min(self.threshold, self._most_packets)
        columns[:, : width + 1] = np.fft.ifft(product)[:, self._most_packets : self._most_packets + width + 1]
        return np.asarray(columns + (offer.more * values[:, -1])[:, None])

    def crossing_tails(self, starts: FloatArray, offer: Offer) -> FloatArray:
        """Column r: weight of queues that end above S + r, from the weights starts[:, v] of lengths v < S."""
        landed = self._folded(self._important.distributed(self._beyond(starts, offer)))
        tails = landed[:, :0:-1].cumsum(axis=1)[:, ::-1]
        return np.asarray(tails + starts[:, : self.threshold].sum(axis=1, keepdims=True) * offer.more)

    def lost_important(self, starts: FloatArray, offer: Offer, mean_packets: float) -> FloatArray:
        """Mean number of important packets dropped at the limit L, from the weights starts[:, v] of
        lengths v = 0 … L.
        """
        beyond = self._important.distributed(self._beyond(starts, offer))[:, self.room :]
        lost: FloatArray = beyond @ np.arange(beyond.shape[1])
        # Column r: dropped of all offered to a queue above S with room for r.
        at_least = self._important.distributed(offer.packets[:1])[0, :0:-1].cumsum()
        missed = np.zeros(max(len(at_least), self.room + 1))
        missed[: len(at_least)] = at_least.cumsum()[::-1]
        lost += starts[:, self.threshold :] @ missed[self.room :: -1]
        return lost + self.lost_beyond(starts, offer, mean_packets)

    def _beyond(self, starts: FloatArray, offer: Offer) -> FloatArray:
        """Column n: weight of n packets offered beyond S, from starts below S."""
        threshold, width = self.threshold, self._most_packets + 1
        beyond = np.zeros((len(starts), width))
        if threshold:
            for row, start in zip(beyond, starts, strict=True):
                passed = np.convolve(offer.packets[0], start[:threshold])[threshold:]
                row[: len(passed)] = passed[:width]
            beyond[:, 0] = 0
        return beyond


def admission_of(queue: ClassQueue) -> Admission:
    """The admission rules of a class: per burst or per packet."""
    kind = BurstAdmission if queue.is_burst_alike and queue.sizes != (1,) else PacketAdmission
    return kind(queue.threshold, queue.limit, queue.important_share, queue.sizes, queue.probabilities)
