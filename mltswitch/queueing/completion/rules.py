"""How the packets of a class join: each important or not by itself, or all of a burst alike."""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from mltswitch.queueing.completion.admission import Admission, ClassQueue, Offer
from mltswitch.queueing.completion.rational import FloatArray
from mltswitch.queueing.completion.tables import Array, sums_of_bursts

FEW_BURSTS: Final = 96
"""So many are summed one by one, more by Fourier transform."""


class BurstAdmission(Admission):
    """The packets of a burst, all bursts of one size, are important together (they share one ECN field)."""

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
        """See Admission."""
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
        """See Admission."""
        joined = np.zeros((len(offer.bursts), self.room + 1), dtype=offer.bursts.dtype)
        important = self._important.distributed(offer.bursts)
        for count, end in enumerate(self._ends[0]):
            joined[:, end] += important[:, count]
        joined[:, -1] += offer.more
        return joined

    def crossing_values(self, offer: Offer, values: Array) -> Array:
        """See Admission."""
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
        """See Admission."""
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
        """See Admission."""
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
    """Every packet is important or not by itself."""

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
        """See Admission."""
        joined = self._folded(self._important.distributed(offer.packets))
        joined[:, -1] += offer.more
        return joined

    def crossing_values(self, offer: Offer, values: Array) -> Array:
        """See Admission."""
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
        """See Admission."""
        landed = self._folded(self._important.distributed(self._beyond(starts, offer)))
        tails = landed[:, :0:-1].cumsum(axis=1)[:, ::-1]
        return np.asarray(tails + starts[:, : self.threshold].sum(axis=1, keepdims=True) * offer.more)

    def lost_important(self, starts: FloatArray, offer: Offer, mean_packets: float) -> FloatArray:
        """See Admission."""
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
    """How the packets of a class join its queue."""
    kind = BurstAdmission if queue.is_burst_alike and queue.sizes != (1,) else PacketAdmission
    return kind(queue.threshold, queue.limit, queue.important_share, queue.sizes, queue.probabilities)
