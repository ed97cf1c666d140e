"""Admission where every packet is important or not by itself."""

from typing import Final

import numpy as np

from mltswitch.queueing.completion.admission import Admission, Offer
from mltswitch.queueing.completion.rational import FloatArray
from mltswitch.queueing.completion.tables import Array, binomials, sums_of_bursts, times_real

FEW_BURSTS: Final = 96
"""So many are summed one by one, more by Fourier transform."""
NO_TABLE: Final[FloatArray] = np.zeros((0, 0))


class PacketAdmission(Admission):
    """Every packet is important or not by itself."""

    def make_tables(self) -> None:
        """See Admission."""
        size = self.fixed_burst
        largest = self.most_bursts * int(self._sizes.max())
        self._most_packets = self.most_bursts * size if size else min(largest, self.filling_packets)
        self._joining = binomials(self._most_packets, self.important_share, self.room)
        self._at_least = self._joining[:, ::-1].cumsum(axis=1)[:, ::-1]
        if self.fixed_burst is None:
            self._table = sums_of_bursts(
                self._sizes.tobytes(), self._shares.tobytes(), self.most_bursts, self._most_packets
            )

    @property
    def has_tables(self) -> bool:
        """See Admission."""
        return bool(self._joining.size)

    def forget_tables(self) -> None:
        """See Admission."""
        self._joining = self._at_least = self._table = NO_TABLE

    def _packets_of(self, bursts: Array) -> Array:
        return self.spaced(bursts) if self.fixed_burst else bursts @ self._table

    def _landing_above(self, packets: int) -> FloatArray:
        return np.asarray(binomials(packets, self.important_share, self.room)[packets])

    def _missed(self, packets: int) -> float:
        beyond = packets - self.threshold
        if beyond <= self.room:
            return 0.0
        joined = binomials(beyond, self.important_share, beyond)[beyond]
        return float(joined @ np.maximum(np.arange(beyond + 1) - self.room, 0))

    def above(self, offer: Offer) -> Array:
        """See Admission."""
        step = self.fixed_burst or 1
        joined = times_real(offer.packets[:, ::step], self._joining[::step])
        joined[:, -1] += offer.more
        return joined

    def crossing_values(self, offer: Offer, values: Array) -> Array:
        """See Admission."""
        worth = times_real(values, self._joining.T)
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
        beyond = self._beyond(starts, offer)
        tails: FloatArray = beyond @ self._at_least[:, 1:]
        return np.asarray(tails + starts[:, : self.threshold].sum(axis=1, keepdims=True) * offer.more)

    def lost_important(self, starts: FloatArray, offer: Offer, mean_packets: float) -> FloatArray:
        """See Admission."""
        # [n, room]: dropped of n offered to a queue above S with so much room.
        joined = np.arange(self._most_packets + 1) * self.important_share
        missed = np.tile(joined[:, None], self.room + 1)
        missed[:, 1:] -= self._at_least[:, 1:].cumsum(axis=1)
        np.maximum(missed, 0, out=missed)
        lost: FloatArray = self._beyond(starts, offer) @ missed[:, -1]
        lost += starts[:, self.threshold :] @ (offer.packets[0] @ missed)[::-1]
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
