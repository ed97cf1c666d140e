"""How fast the links into a node are, by what arrives on them anyway: nothing is sent to find out.

Bytes over the time in which pieces were arriving, from the first packet of each to its last so far, those
side by side together: what waits at the sender, for a sum that is not made yet, is no time of the link. The
receiver's clock alone is asked (NetStorm, section V, where departures count, too, and clocks must agree).
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from mltswitch.units import BITS_PER_BYTE, NANOSECONDS


class Arrival(NamedTuple):
    """What has come of a piece: whole, or so far."""

    peer: int
    size_bytes: int
    first_ns: int
    """When its first packet came; 0: none has."""
    last_ns: int


@dataclass(slots=True)
class _Seen:
    """Of one peer, since its last figure."""

    since_ns: int = 0
    before_bytes: int = 0
    """Of pieces that were open then: what had come of them."""
    size_bytes: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list)

    def busy_ns(self, spans: Iterable[tuple[int, int]]) -> int:
        busy, until = 0, self.since_ns
        for first, last in sorted([*self.spans, *spans]):
            busy += max(0, last - max(first, until))
            until = max(until, last)
        return busy


class Links:
    """Into one node.

    Args:
        probe_bytes: that a figure needs.
        probe_pieces: of which these are.
    """

    def __init__(self, probe_bytes: int, probe_pieces: int) -> None:
        self._probe_bytes, self._probe_pieces = probe_bytes, probe_pieces
        self._seen: defaultdict[int, _Seen] = defaultdict(_Seen)

    def arrived(self, piece: Arrival) -> None:
        """All of a piece, or as much of it as comes."""
        seen = self._seen[piece.peer]
        seen.size_bytes += piece.size_bytes
        seen.spans.append((piece.first_ns, piece.last_ns))

    def rates_bps(self, so_far: Iterable[Arrival]) -> dict[int, float]:
        """By peer, where enough has come since the last figure; with what has come of open pieces so far."""
        opened: defaultdict[int, list[Arrival]] = defaultdict(list)
        for piece in so_far:
            if piece.first_ns:
                opened[piece.peer].append(piece)
        found = {}
        for peer in {*self._seen, *opened}:
            seen, open_bytes = self._seen[peer], sum(piece.size_bytes for piece in opened[peer])
            spans = [(piece.first_ns, piece.last_ns) for piece in opened[peer]]
            size_bytes, busy_ns = seen.size_bytes + open_bytes - seen.before_bytes, seen.busy_ns(spans)
            if size_bytes >= self._probe_bytes and len(seen.spans) + len(spans) >= self._probe_pieces:
                if busy_ns:  # what came at once tells of no rate
                    found[peer] = size_bytes * BITS_PER_BYTE * NANOSECONDS / busy_ns
                ends = [last for _, last in (*seen.spans, *spans)]
                self._seen[peer] = _Seen(max(ends), open_bytes)
        return found
