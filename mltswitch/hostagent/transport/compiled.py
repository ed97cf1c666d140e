"""Packets of open tensors, and acknowledgements, in one compiled pass; what else arrived is left to `intake`.

Both ways tell the same of the same packets (the tests compare them), and only `intake` knows every kind of
datagram: this one knows data and acknowledgements without tags, and takes what the kernel handed over as one
message as a whole or not at all.
"""

from collections.abc import Sequence
from ctypes import CDLL, addressof, sizeof
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent import native
from mltswitch.hostagent.native import COMMON_BYTES, Answer, Grid, OpenTransfers, Transfer
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.hostagent.transport.feedback import Feedback
from mltswitch.hostagent.transport.receiving import ReceiveTransfer
from mltswitch.wire import AgentHeader, AgentKind
from mltswitch.wire.headers import AGENT_VERSION

TRANSFERS: Final = 64
"""There is room for so many at first."""
ANSWERS: Final = 1024
"""Of one read; more are left."""
_ANSWER_WORDS: Final = sizeof(Answer) // 8


@dataclass(slots=True)
class Taken:
    """What one read, or pass, has taken in for one connection."""

    transfers: list[ReceiveTransfer] = field(default_factory=list)
    """That got something."""
    answers: list[list[int]] = field(default_factory=list)
    """Of each acknowledgement the path, its time of arrival on our clock, and its fields in order."""


NOTHING: Final = Taken()


class Registry:
    """The open transfers of all connections whose datagrams are read together.

    Compiled passes write into the memory of those that stand here, and nowhere else.
    """

    def __init__(self, library: CDLL) -> None:
        self._take = library.mlt_take
        self._open: dict[int, tuple[CompiledIntake, ReceiveTransfer]] = {}
        """By the address of what the passes know of it."""
        self._order = np.zeros(TRANSFERS, np.int64)
        """Those addresses, as the passes like them."""
        self._touched = np.zeros(TRANSFERS, np.int64)
        self._tokens: list[int] = []
        """Of the connections, in the order of their numbers."""
        self._known_tokens = np.zeros(0, ">u8")
        self._answers = np.zeros((ANSWERS, _ANSWER_WORDS), np.uint64)
        self._known = OpenTransfers(
            self._order.ctypes.data,
            self._touched.ctypes.data,
            answers=self._answers.ctypes.data,
            version=AGENT_VERSION,
            most_answers=ANSWERS,
        )
        self.address: Final = addressof(self._known)
        """For `DatagramReceiver.receive`."""

    def add(self, transfer: Transfer, owner: "CompiledIntake", receiving: ReceiveTransfer) -> None:
        """From now on packets of it are taken in."""
        count = len(self._open)
        if count == len(self._order):
            self._order = np.concatenate((self._order, np.zeros(count, np.int64)))
            self._touched = np.zeros(2 * count, np.int64)
            self._known.open, self._known.touched = self._order.ctypes.data, self._touched.ctypes.data
            self._known.touched_count = 0
        address = addressof(transfer)
        self._open[address] = (owner, receiving)
        self._order[count] = address
        self._known.open_count = count + 1

    def remove(self, transfer: Transfer) -> None:
        """Nothing is written for it any more; nothing happens where it does not stand here."""
        address, count = addressof(transfer), len(self._open)
        if self._open.pop(address, None) is None:
            return
        place = int((self._order[:count] == address).argmax())
        self._order[place : count - 1] = self._order[place + 1 : count]
        self._known.open_count = count - 1

    def connect(self, token: int) -> None:
        """From now on acknowledgements with this token are taken in."""
        self._set_tokens([*self._tokens, token])

    def disconnect(self, token: int) -> None:
        """No more; nothing happens where it does not stand here."""
        self._set_tokens([other for other in self._tokens if other != token])

    def _set_tokens(self, tokens: list[int]) -> None:
        self._tokens = tokens
        self._known_tokens = np.array(tokens, ">u8")
        self._known.tokens, self._known.connections = self._known_tokens.ctypes.data, len(tokens)

    def taken(self) -> dict[int, Taken]:
        """By flow token: what the last read, or pass, has taken in. To be asked at once."""
        found: dict[int, Taken] = {}
        for address in self._touched[: self._known.touched_count].tolist():
            owner, receiving = self._open[address]
            found.setdefault(owner.token, Taken()).transfers.append(receiving)
        answers: list[list[int]] = self._answers[: self._known.answer_count].tolist()
        for connection, *answer in answers:
            found.setdefault(self._tokens[connection], Taken()).answers.append(answer)
        return found

    @property
    def datagrams(self) -> int:
        """How many the last read, or pass, has taken in."""
        return int(self._known.datagrams)

    def take(self, grids: Sequence[DatagramGrid], now_ns: int) -> tuple[list[DatagramGrid], dict[int, Taken]]:
        """One pass: (what it left, what it has taken in by flow token)."""
        is_left = np.empty(sum(grid.messages for grid in grids), np.bool_)
        arrays = [_arrays(grid, now_ns) for grid in grids]
        described = (Grid * len(grids))(*map(_described, grids, arrays))
        left = self._take(self.address, addressof(described), len(grids), is_left.ctypes.data)
        taken = self.taken()
        if not left or left == len(is_left):
            return (list(grids) if left else []), taken
        ends = np.cumsum([grid.messages for grid in grids])
        rests = zip(grids, np.split(is_left, ends[:-1]), strict=True)
        return [grid.picked(np.flatnonzero(which)) for grid, which in rests if which.any()], taken


class CompiledIntake:
    """Of one connection: its tensors that packets without tags may belong to."""

    def __init__(self, registry: Registry, token: int, feedback: Feedback) -> None:
        self.token: Final = token
        self._registry = registry
        self._feedback = feedback
        self._open: dict[ReceiveTransfer, Transfer] = {}
        self.is_connected = False
        """Whether there may be anything to take in."""

    def take(self, grids: Sequence[DatagramGrid], now_ns: int) -> tuple[list[DatagramGrid], Taken]:
        """One pass over datagrams of this connection: (what it left, what it has taken in).

        For whoever has no sockets, and so for a registry that no other connection shares.
        """
        left, taken = self._registry.take(grids, now_ns)
        return left, taken.get(self.token, Taken())

    def connect(self) -> None:
        """The peer is known, and there are no keys."""
        self._registry.connect(self.token)
        self.is_connected = True

    def open(self, receiving: ReceiveTransfer) -> None:
        """Its packets may come; it has begun."""
        incoming = receiving.incoming
        key, element_type = incoming.key, incoming.tensor.element_type
        header = AgentHeader(
            AgentKind.DATA, 0, element_type, self.token, key.tensor, key.round_number, 0, 0, 0, 0, 0
        )
        transfer = receiving.compiled(header.encode()[:COMMON_BYTES], self._feedback.compiled())
        self._open[receiving] = transfer
        self._registry.add(transfer, self, receiving)

    def close(self, receiving: ReceiveTransfer) -> None:
        """It has ended: its memory is the user's again. Nothing happens where it is not open."""
        transfer = self._open.pop(receiving, None)
        if transfer is not None:
            self._registry.remove(transfer)

    def close_all(self) -> None:
        """The connection is over."""
        self._registry.disconnect(self.token)
        self.is_connected = False
        for receiving in list(self._open):
            self.close(receiving)


def compiled_intake(registry: Registry | None, token: int, feedback: Feedback) -> CompiledIntake | None:
    """Of a connection, in a registry of its own where none is given; None: there are no compiled passes."""
    if native.LIBRARY is None:
        return None
    return CompiledIntake(registry or Registry(native.LIBRARY), token, feedback)


def _arrays(grid: DatagramGrid, now_ns: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """DSCP/ECN byte and time of arrival of each message."""
    arrived_ns = np.full(grid.messages, now_ns) if grid.arrived_ns is None else grid.arrived_ns
    return np.ascontiguousarray(grid.tos), np.ascontiguousarray(arrived_ns)


def _described(grid: DatagramGrid, arrays: tuple[NDArray[np.uint8], NDArray[np.int64]]) -> Grid:
    tos, arrived_ns = arrays
    if grid.end_bytes > grid.memory.size or not len(tos) == len(arrived_ns) == grid.messages:
        raise ValueError("datagrams lie outside their memory")
    return Grid(
        grid.memory.ctypes.data + grid.offset_bytes,
        tos.ctypes.data,
        arrived_ns.ctypes.data,
        grid.messages,
        grid.message_stride_bytes,
        grid.datagrams_per_message * grid.datagram_bytes,
        grid.datagram_bytes,
    )
