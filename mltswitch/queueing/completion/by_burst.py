"""Admission where the packets of a burst are important together (they share one ECN field)."""

import numpy as np

from mltswitch.queueing.completion.admission import Admission, Offer
from mltswitch.queueing.completion.rational import FloatArray
from mltswitch.queueing.completion.tables import Array, binomials, times_real


class BurstAdmission(Admission):
    """The packets of a burst, all bursts of one size, are important together (they share one ECN field)."""

    def make_tables(self) -> None:
        """See Admission."""
        self._burst = int(self._sizes[0])
        self._joining = binomials(self.most_bursts, self.important_share, self.most_bursts)
        self._ends = np.minimum(
            np.arange(self._burst)[:, None] + self._burst * np.arange(self.most_bursts + 1), self.room
        )
        """Where r important bursts lead from S + offset, less S: [offset, r]."""

    @property
    def has_tables(self) -> bool:
        """Always: they are small."""
        return True

    def forget_tables(self) -> None:
        """See Admission; these are small."""

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
        important = times_real(offer.bursts, self._joining)
        for count, end in enumerate(self._ends[0]):
            joined[:, end] += important[:, count]
        joined[:, -1] += offer.more
        return joined

    def crossing_values(self, offer: Offer, values: Array) -> Array:
        """See Admission."""
        columns = np.zeros((len(values), self.threshold + 1), dtype=complex)
        stay = 1 - self.important_share
        at_threshold = times_real(values[:, self._ends[0]], self._joining.T)
        for offset in range(self._burst):
            worth = at_threshold
            if offset:
                further = times_real(values[:, self._ends[offset]], self._joining.T)
                worth = stay * at_threshold + self.important_share * further
            for distance, bursts in self._crossings(offset):
                later = offer.bursts[:, bursts:]
                skipped = 1 if offset == 0 else 0  # just S reached is no crossing
                columns[:, distance] = (later[:, skipped:] * worth[:, skipped : later.shape[1]]).sum(axis=1)
        return np.asarray(columns + (offer.more * values[:, -1])[:, None])

    def _crossings(self, offset: int) -> list[tuple[int, int]]:
        """(distance below S, bursts that reach S + offset) for this offset."""
        first = self._burst - offset
        return [
            (distance, (distance + offset) // self._burst)
            for distance in range(first, self.threshold + 1, self._burst)
            if (distance + offset) // self._burst <= self.most_bursts
        ]

    def crossing_tails(self, starts: FloatArray, offer: Offer) -> FloatArray:
        """See Admission."""
        tails = np.zeros((len(starts), self.room))
        rooms = np.arange(self.room)
        for offset, beyond in self._beyond(starts, offer):
            important = beyond @ self._joining
            for end_offset, share in self._after_crossing(offset):
                above = self._ends[end_offset][:, None] > rooms
                tails += share * (important @ above)
        return np.asarray(tails + starts[:, : self.threshold].sum(axis=1, keepdims=True) * offer.more)

    def lost_important(self, starts: FloatArray, offer: Offer, mean_packets: float) -> FloatArray:
        """See Admission."""
        lost = np.zeros(len(starts))
        counts = np.arange(self.most_bursts + 1) * self._burst
        for offset, beyond in self._beyond(starts, offer):
            important = beyond @ self._joining
            for end_offset, share in self._after_crossing(offset):
                lost += share * (important @ np.maximum(end_offset + counts - self.room, 0))
        important = offer.bursts[0] @ self._joining
        rooms = np.arange(self.room, -1, -1)
        missed = np.maximum(counts - rooms[:, None], 0) @ important
        lost += starts[:, self.threshold :] @ missed
        return lost + self.lost_beyond(starts, offer, mean_packets)

    def _after_crossing(self, offset: int) -> list[tuple[int, float]]:
        """(place above S, probability) once the burst that passes S has come."""
        if offset == 0:
            return [(0, 1.0)]
        return [(0, 1 - self.important_share), (offset, self.important_share)]

    def _beyond(self, starts: FloatArray, offer: Offer) -> list[tuple[int, FloatArray]]:
        """(offset, weights of 0, 1, … bursts after the one that reaches S + offset), from starts below S."""
        found = []
        for offset in range(self._burst):
            beyond = np.zeros((len(starts), self.most_bursts + 1))
            for distance, bursts in self._crossings(offset):
                later = offer.bursts[0, bursts:]
                beyond[:, : len(later)] += starts[:, self.threshold - distance, None] * later
            if offset == 0:
                beyond[:, 0] = 0
            found.append((offset, beyond))
        return found
