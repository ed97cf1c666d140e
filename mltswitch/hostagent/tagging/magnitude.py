"""Importance by magnitude: packets of large gradients matter more (MLT, sections 3.3 and 4.2.2).

The paper compares a packet's mean |g| with the median of the *gradients*. A mean of |g| mostly exceeds the
median |g|, so that marks 61 to 100 % of the packets. We compare it with the median of packet means, which
splits in the middle, as intended. The median is that of a sample of whole packets.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.hostagent.tagging.sums import PacketSums
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.tensor.rows import PacketRows, packet_rows
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.hostagent.values import real, shown

SAMPLE_SHARE: Final = 0.05
"""The paper's."""
LEAST_SAMPLE: Final = 64
"""Packets; 5 % of a small tensor would be too few for a median."""
LARGEST_SAMPLE: Final = 4096
"""Packets; with so many, the share that is marked strays by 0.8 % of all packets (one standard deviation)."""
MARGIN: Final = 2.0**-14
"""How far above the median, as a ratio, a packet is important: sums of equal packets differ by rounding."""
_GOLDEN: Final = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class ByMagnitude:
    """Important: mean |element| above the median of the packets' means.

    A packet that holds NaN or an infinity is important. Where more than half of the packets are equal,
    exactly those above them are important: of a constant tensor none, of a sparse one those that are not all
    zeros. A tensor of one packet, which nothing can be compared with, is important unless it is all zeros.
    """

    sample_share: float = SAMPLE_SHARE
    """Of the packets, for the median; at least 64 of them and at most 4,096."""

    def __post_init__(self) -> None:
        share = real(self.sample_share)
        if share is None or not 0 < share <= 1:
            raise UserInputError(
                f"{shown(self.sample_share)} is no share of packets",
                where="sample_share",
                expected="above 0, at most 1",
            )

    def mark(self, tensor: TensorView, layout: PacketLayout) -> "MagnitudeMarking":
        """Sample the tensor."""
        rows = packet_rows(tensor, layout)
        sums = PacketSums(layout.element_type, layout.elements_per_packet)
        if layout.packet_count == 1:
            return MagnitudeMarking(rows, sums, 0.0)
        chosen = sampled_packets(len(rows.full), self.sample_share)
        means = sums.of_chosen(rows.full, chosen).astype(np.float64) / layout.elements_per_packet
        finite = means[np.isfinite(means)]
        return MagnitudeMarking(rows, sums, float(np.median(finite)) if len(finite) else np.inf)


class MagnitudeMarking:
    """Compares packets of one tensor with a threshold."""

    def __init__(self, rows: PacketRows, sums: PacketSums, threshold: float) -> None:
        self.threshold: Final = threshold
        """Mean |element| of a packet in the middle; infinite: only what is not finite is important."""
        self._rows = rows
        self._sums = sums

    def important(self, first: int, last: int) -> NDArray[np.bool_]:
        """Of packets `first` to `last` - 1, shape (packets,)."""
        full = self._rows.full
        found = _above(self._sums.of(full[first:last]), self.threshold * full.shape[1], self._sums.dtype)
        tail = self._rows.tail
        if tail is None or last <= len(full):
            return found
        # In the full packets' sums a tail would need a row of its own; it comes once a tensor.
        padded = np.zeros((1, full.shape[1]), full.dtype)
        padded[:, : tail.shape[1]] = tail
        last_one = _above(self._sums.of(padded), self.threshold * tail.shape[1], self._sums.dtype)
        return np.concatenate([found, last_one])


def _above(sums: NDArray[np.floating[Any]], threshold: float, dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    """NaN is above everything, and so is an infinity."""
    highest = float(np.finfo(dtype).max)
    ordinary: NDArray[np.bool_] = sums <= dtype.type(min(threshold * (1 + MARGIN), highest))
    return np.logical_not(ordinary)


def sampled_packets(packets: int, share: float) -> NDArray[np.int64]:
    """Which packets are looked at, in order: one in each of equal stretches.

    Where in its stretch follows the multiples of the golden ratio, so that no period of the tensor (the rows
    of a weight matrix, say) hides from the sample. Always the same for the same numbers.
    """
    count = min(packets, max(LEAST_SAMPLE, min(LARGEST_SAMPLE, round(packets * share))))
    numbers = np.arange(count + 1)
    begins = numbers * packets // count
    places = numbers[:-1] * _GOLDEN % 1
    return begins[:-1] + (places * np.diff(begins)).astype(np.int64)
