"""Received datagrams sorted: those of one kind and one transfer together, without the false ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.tagging import congestion_marked
from mltswitch.hostagent.transport.authentication import genuine
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.hostagent.transport.interfaces import TransferKey
from mltswitch.wire import AGENT_HEADER_BYTES, AUTHENTICATION_TAG_BYTES, AgentFlag
from mltswitch.wire.headers import AGENT, AGENT_VERSION

_WORD_BYTES: Final = 8
_COMMON_FIELDS: Final = frozenset({"version", "kind", "element_type", "flow_token", "tensor", "round"})
_COMMON_MASK: Final = np.frombuffer(
    b"".join(
        (b"\xff" if field.name in _COMMON_FIELDS else b"\x00") * (field.bits // 8) for field in AGENT.fields
    ),
    np.uint64,
)
"""What datagrams of one kind and transfer have in common, as the words of a header."""
_COMMON_WORDS: Final = int(np.flatnonzero(_COMMON_MASK)[-1]) + 1


@dataclass(frozen=True, slots=True)
class Group:
    """Datagrams of one kind, element type and transfer; the arrays have one shape."""

    headers: NDArray[np.void]
    is_marked: NDArray[np.bool_]
    """Which arrived with CE."""
    body_bytes: int
    """Between header and tag."""
    grid: DatagramGrid
    chosen: NDArray[np.bool_] | None
    """Which of the grid; None: all."""

    @property
    def kind(self) -> int:
        """As the wire says it."""
        return int(self.headers.reshape(-1)[0]["kind"])

    @property
    def element_type(self) -> int:
        """As the wire says it."""
        return int(self.headers.reshape(-1)[0]["element_type"])

    @property
    def transfer(self) -> TransferKey:
        """Of data."""
        first = self.headers.reshape(-1)[0]
        return TransferKey(int(first["tensor"]), int(first["round"]))

    def bodies(self) -> NDArray[np.void]:
        """One item each, in the shape of the headers; raises ValueError where bodies are empty."""
        bodies = self.grid.bodies(self.body_bytes)
        return bodies if self.chosen is None else bodies[self.chosen]


def groups(grid: DatagramGrid, token: int, key: bytes | None) -> Iterator[Group]:
    """Those with this token, our version and, where there is a key, the right tag; no others."""
    body_bytes = grid.datagram_bytes - AGENT_HEADER_BYTES - (0 if key is None else AUTHENTICATION_TAG_BYTES)
    if body_bytes < 0:
        return
    headers = np.ascontiguousarray(grid.headers())
    words = headers.view(np.uint64).reshape(*headers.shape, AGENT_HEADER_BYTES // _WORD_BYTES)
    words = words[..., :_COMMON_WORDS] & _COMMON_MASK[:_COMMON_WORDS]
    is_marked = np.broadcast_to(congestion_marked(grid.tos)[:, np.newaxis], headers.shape)
    is_uniform = not (words ^ words[0, 0]).any()
    is_valid = _is_ours(headers[:1, :1] if is_uniform else headers, token)
    if key is not None and is_valid.any():
        is_tagged = (headers["flags"] & AgentFlag.AUTHENTICATED) != 0
        is_valid = is_valid & is_tagged & genuine(key, grid)
    if is_uniform and is_valid.all():
        yield Group(headers, is_marked, body_bytes, grid, None)
        return
    is_valid = np.broadcast_to(is_valid, headers.shape)
    for common in np.unique(words[is_valid], axis=0):
        chosen = is_valid & (words == common).all(axis=-1)
        yield Group(headers[chosen], is_marked[chosen], body_bytes, grid, chosen)


def _is_ours(headers: NDArray[np.void], token: int) -> NDArray[np.bool_]:
    return np.asarray((headers["flow_token"] == token) & (headers["version"] == AGENT_VERSION), np.bool_)
