"""Measures the rates of the links into a node from the pieces that arrive anyway, without probes.

A rate is bytes over the time in which pieces were arriving, from the first packet of each to its last so far,
those side by side or close behind each other together: what waits at the sender, for a sum that is not made
yet, is no time of the link. The receiver's clock alone is asked (NetStorm, section V, where departures count,
too, and clocks must agree). Packets come in bunches with one time, so short periods by themselves tell
nothing.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

CLOSE_NS: Final = 5_000_000
"""The longest gap between two pieces that still belong to one busy period."""
LEAST_NS: Final = 2_000_000
"""The shortest busy period that counts for a rate."""


class Arrival(NamedTuple):
    """What has come of a piece: whole, or so far."""

    peer: int
    size_bytes: int
    first_ns: int
    """When the piece's first packet came; 0: none has."""
    last_ns: int


@dataclass(slots=True)
class _Seen:
    """What has come of one peer since its last figure."""

    since_ns: int = 0
    before_bytes: int = 0
    """What had come by then of pieces that were open."""
    pieces: list[Arrival] = field(default_factory=list)

    def busy(self, pieces: Iterable[Arrival]) -> tuple[int, int]:
        """Bytes that have come in periods that count, and how long these were in ns."""
        size_bytes = busy_ns = 0
        first = last = self.since_ns
        period_bytes = -self.before_bytes
        end = Arrival(0, 0, 1 << 63, 1 << 63)
        for piece in (*sorted(pieces, key=lambda piece: piece.first_ns), end):
            if piece.first_ns > last + CLOSE_NS:
                if last - first >= LEAST_NS:
                    size_bytes, busy_ns = size_bytes + period_bytes, busy_ns + last - first
                first, period_bytes = piece.first_ns, 0
            period_bytes += piece.size_bytes
            last = max(last, piece.last_ns)
        return size_bytes, busy_ns


class Links:
    """Measures the rates of the links into one node.

    Args:
        probe_bytes: the fewest bytes that a rate is computed from.
        probe_pieces: the fewest pieces that a rate is computed from.
    """

    def __init__(self, probe_bytes: int, probe_pieces: int) -> None:
        self._probe_bytes, self._probe_pieces = probe_bytes, probe_pieces
        self._seen: defaultdict[int, _Seen] = defaultdict(_Seen)

    def arrived(self, piece: Arrival) -> None:
        """Note a piece that has arrived, or the part of it that will."""
        self._seen[piece.peer].pieces.append(piece)

    def clear(self) -> None:
        """Forget all arrivals, since open pieces were withdrawn."""
        self._seen.clear()

    def rates_bps(self, so_far: Iterable[Arrival]) -> dict[int, float]:
        """Rates by peer, where enough bytes have come since the last figure; `so_far` is what has come of
        open pieces."""
        opened: defaultdict[int, list[Arrival]] = defaultdict(list)
        for piece in so_far:
            if piece.first_ns:
                opened[piece.peer].append(piece)
        found = {}
        for peer in {*self._seen, *opened}:
            seen, open_bytes = self._seen[peer], sum(piece.size_bytes for piece in opened[peer])
            pieces = [*seen.pieces, *opened[peer]]
            come_bytes = sum(piece.size_bytes for piece in pieces) - seen.before_bytes
            if come_bytes >= self._probe_bytes and len(pieces) >= self._probe_pieces:
                size_bytes, busy_ns = seen.busy(pieces)
                if busy_ns and size_bytes > 0:
                    found[peer] = size_bytes * BITS_PER_BYTE * NANOSECONDS / busy_ns
                self._seen[peer] = _Seen(max(piece.last_ns for piece in pieces), open_bytes)
        return found
