"""Received datagrams sorted: those of one kind and one transfer together, without the false ones.

Headers are read once for everything that arrived together: turned into columns of 32-bit words, so that each
question about all of them is one pass over contiguous memory. A handful of datagrams is read one by one: so
few cost less than the passes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.transport.authentication import genuine, is_genuine
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.hostagent.transport.interfaces import TransferKey
from mltswitch.wire import (
    AGENT_HEADER_BYTES,
    AUTHENTICATION_TAG_BYTES,
    AgentFlag,
    AgentHeader,
    WireFormatError,
)
from mltswitch.wire.headers import AGENT, AGENT_VERSION

_WORD_BITS: Final = 32
_WORDS: Final = AGENT_HEADER_BYTES * 8 // _WORD_BITS
_OFFSETS_BITS: Final = {field.name: (offset, field.bits) for offset, field in AGENT.with_offsets()}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a field of at most 32 bits lies."""

    word: int
    shift: int
    mask: int


def _place(name: str) -> _Place:
    offset_bits, bits = _OFFSETS_BITS[name]
    word, inside = divmod(offset_bits, _WORD_BITS)
    return _Place(word, _WORD_BITS - inside - bits, (1 << bits) - 1)


_VERSION: Final = _place("version")
_KIND: Final = _place("kind")
_FLAGS: Final = _place("flags")
_ELEMENT_TYPE: Final = _place("element_type")
_TENSOR: Final = _place("tensor")
_ROUND: Final = _place("round")
_PATH: Final = _place("path")
_SEQUENCE: Final = _place("sequence")
_ELEMENT_OFFSET: Final = _place("element_offset")
_TOKEN_WORD: Final = _OFFSETS_BITS["flow_token"][0] // _WORD_BITS
_SENT_WORD: Final = _OFFSETS_BITS["sent_nanoseconds"][0] // _WORD_BITS
_FIRST_WORD_MASK: Final = np.uint32(0xFFFFFFFF ^ _FLAGS.mask << _FLAGS.shift)
"""Version, kind and element type: what the first word says of the transfer."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some datagrams of one grid."""

    grid: DatagramGrid
    place: slice
    """Theirs in the group's arrays."""
    body_bytes: int
    """Between header and tag, 0 or more."""
    chosen: NDArray[np.bool_] | None
    """Which of the grid, shape (messages, datagrams a message); None: all."""

    def bodies(self) -> NDArray[np.void]:
        """One item each, shape (datagrams,) or that of the grid; raises ValueError where bodies are empty."""
        bodies = self.grid.bodies(self.body_bytes)
        return bodies if self.chosen is None else bodies[self.chosen]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the bodies."""
        if self.chosen is not None:
            return (self.place.stop - self.place.start,)
        return self.grid.messages, self.grid.datagrams_per_message


class Group:
    """Datagrams of one kind, element type and transfer; all arrays have the shape (datagrams,)."""

    def __init__(
        self,
        words: NDArray[np.uint32],
        tos: NDArray[np.uint8],
        arrived_ns: NDArray[np.int64],
        parts: Sequence[Part],
    ) -> None:
        """`words`: shape (10, datagrams), one datagram or more."""
        self._words = words
        self.tos = tos
        """DSCP/ECN bytes as received."""
        self.arrived_ns = arrived_ns
        """On our clock."""
        self.parts = parts
        self.size = words.shape[1]
        """Datagrams."""
        first = words[:, 0].tolist()
        self.kind = first[_KIND.word] >> _KIND.shift & _KIND.mask
        """As the wire says it."""
        self.element_type = first[_ELEMENT_TYPE.word] >> _ELEMENT_TYPE.shift & _ELEMENT_TYPE.mask
        """As the wire says it."""
        self.transfer = TransferKey(first[_TENSOR.word], first[_ROUND.word])
        """Of data."""
        self.paths = self._field(_PATH)
        self.sent_ns = words[_SENT_WORD].astype(np.uint64) << np.uint64(_WORD_BITS) | words[_SENT_WORD + 1]

    @property
    def sequences(self) -> NDArray[np.int64]:
        """Of data."""
        sequences: NDArray[np.int64] = self._words[_SEQUENCE.word].astype(np.int64)
        return sequences

    @property
    def element_offsets(self) -> NDArray[np.uint32]:
        """Of data."""
        offsets: NDArray[np.uint32] = self._words[_ELEMENT_OFFSET.word]
        return offsets

    @property
    def is_important(self) -> NDArray[np.bool_]:
        """Of data."""
        return _has_flag(self._words, AgentFlag.IMPORTANT)

    @property
    def has_bodies(self) -> bool:
        """Whether all have one, or none."""
        return self.parts[0].body_bytes > 0

    def _field(self, place: _Place) -> NDArray[np.uint32]:
        numbers: NDArray[np.uint32] = self._words[place.word] >> np.uint32(place.shift) & np.uint32(
            place.mask
        )
        return numbers


@dataclass(frozen=True, slots=True)
class Packet:
    """One datagram of the peer's."""

    header: AgentHeader
    body: memoryview
    """Between header and tag, of the receiver's memory."""
    tos: int
    """DSCP/ECN byte as received."""
    arrived_ns: int
    """On our clock."""


def packets(grids: Iterable[DatagramGrid], token: int, key: bytes | None, now_ns: int) -> Iterator[Packet]:
    """The same datagrams as those of `groups`, each by itself."""
    for grid in grids:
        for message in range(grid.messages):
            tos = int(grid.tos[message])
            arrived_ns = now_ns if grid.arrived_ns is None else int(grid.arrived_ns[message])
            for place in range(grid.datagrams_per_message):
                found = _packet(grid.datagram(message, place), token, key)
                if found is not None:
                    yield Packet(*found, tos, arrived_ns)


def _packet(data: memoryview, token: int, key: bytes | None) -> tuple[AgentHeader, memoryview] | None:
    """(header, body) of one of ours."""
    try:
        header = AgentHeader.decode(data)
    except WireFormatError:
        return None
    end = len(data) - (0 if key is None else AUTHENTICATION_TAG_BYTES)
    if header.flow_token != token or end < AGENT_HEADER_BYTES:
        return None
    if key is not None and not (header.flags & AgentFlag.AUTHENTICATED and is_genuine(key, data)):
        return None
    return header, data[AGENT_HEADER_BYTES:end]


def groups(grids: Sequence[DatagramGrid], token: int, key: bytes | None, now_ns: int) -> Iterator[Group]:
    """Those with this token, our version and, where there is a key, the right tag; no others."""
    overhead_bytes = AGENT_HEADER_BYTES + (0 if key is None else AUTHENTICATION_TAG_BYTES)
    with_bodies = [grid for grid in grids if grid.datagram_bytes > overhead_bytes]
    if with_bodies:
        yield from _groups(with_bodies, token, key, now_ns, overhead_bytes)
    without = [grid for grid in grids if grid.datagram_bytes == overhead_bytes]
    if without:
        yield from _groups(without, token, key, now_ns, overhead_bytes)


def _groups(
    grids: Sequence[DatagramGrid], token: int, key: bytes | None, now_ns: int, overhead_bytes: int
) -> Iterator[Group]:
    words = _header_words(grids)
    tos = np.concatenate([np.repeat(grid.tos, grid.datagrams_per_message) for grid in grids])
    arrived_ns = np.concatenate([_arrivals_ns(grid, now_ns) for grid in grids])
    of_transfer = words[: _PATH.word].copy()
    of_transfer[0] &= _FIRST_WORD_MASK
    is_valid = None if key is None else _is_tagged(words, grids, key)
    changes = (of_transfer[:, 1:] != of_transfer[:, :-1]).any(axis=0).nonzero()[0] + 1
    runs: dict[tuple[int, ...], list[slice]] = {}
    starts = [0, *changes.tolist()]
    for start, end in zip(starts, [*starts[1:], words.shape[1]], strict=True):
        common = of_transfer[:, start].tolist()
        if _is_ours(common, token):
            runs.setdefault(tuple(common), []).append(slice(start, end))
    if len(changes) == 0 and runs and (is_valid is None or is_valid.all()):
        yield Group(words, tos, arrived_ns, list(_parts(grids, overhead_bytes, None)))
        return
    for places in runs.values():
        chosen = np.zeros(words.shape[1], np.bool_)
        for place in places:
            chosen[place] = True
        if is_valid is not None:
            chosen &= is_valid
        if chosen.any():
            parts = list(_parts(grids, overhead_bytes, chosen))
            yield Group(words[:, chosen], tos[chosen], arrived_ns[chosen], parts)


def _arrivals_ns(grid: DatagramGrid, now_ns: int) -> NDArray[np.int64]:
    if grid.arrived_ns is None:
        return np.full(grid.datagram_count, now_ns)
    return np.repeat(grid.arrived_ns, grid.datagrams_per_message)


def _header_words(grids: Sequence[DatagramGrid]) -> NDArray[np.uint32]:
    """Shape (10, datagrams), in the machine's byte order."""
    rows = np.empty(sum(grid.datagram_count for grid in grids), np.dtype((np.void, AGENT_HEADER_BYTES)))
    first = 0
    for grid in grids:
        end = first + grid.datagram_count
        rows[first:end].reshape(grid.messages, grid.datagrams_per_message)[...] = grid.header_bytes()
        first = end
    return rows.view(">u4").reshape(-1, _WORDS).T.astype(np.uint32, order="C")


def _parts(
    grids: Sequence[DatagramGrid], overhead_bytes: int, chosen: NDArray[np.bool_] | None
) -> Iterator[Part]:
    first = place = 0
    for grid in grids:
        end = first + grid.datagram_count
        of_grid, count = None, grid.datagram_count
        if chosen is not None and not chosen[first:end].all():
            of_grid = chosen[first:end].reshape(grid.messages, grid.datagrams_per_message)
            count = int(np.count_nonzero(of_grid))
        if count:
            yield Part(grid, slice(place, place + count), grid.datagram_bytes - overhead_bytes, of_grid)
        first, place = end, place + count


def _is_ours(words: list[int], token: int) -> bool:
    version = words[_VERSION.word] >> _VERSION.shift & _VERSION.mask
    return version == AGENT_VERSION and words[_TOKEN_WORD] << _WORD_BITS | words[_TOKEN_WORD + 1] == token


def _is_tagged(words: NDArray[np.uint32], grids: Sequence[DatagramGrid], key: bytes) -> NDArray[np.bool_]:
    right = np.concatenate([genuine(key, grid).reshape(-1) for grid in grids])
    says_so = _has_flag(words, AgentFlag.AUTHENTICATED)
    says_so &= right
    return says_so


def _has_flag(words: NDArray[np.uint32], flag: AgentFlag) -> NDArray[np.bool_]:
    bits: NDArray[np.uint32] = words[_FLAGS.word] & np.uint32(flag << _FLAGS.shift)
    return bits.astype(np.bool_)
