"""Compiled passes write into the arrays that they were given, and nowhere beside them."""

import ctypes
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mltswitch.hostagent import native
from mltswitch.hostagent.native import COMMON_BYTES, FeedbackCounts, Grid, OpenTransfers, Transfer
from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.network.sockets import open_socket
from mltswitch.wire import AgentFlag, AgentHeader, AgentKind, ElementType
from mltswitch.wire.headers import ACKNOWLEDGEMENT, AGENT_VERSION
from tests.hostagent.native.passes import needs_passes

TOKEN = 7
ELEMENTS_PER_PACKET, PACKETS = 16, 7
FULL_BYTES, LAST_BYTES = 64, 16
GUARD_BYTES = 8 << 16
"""A number for each path that a header can name."""
PATTERN = 0xA5

pytestmark = needs_passes


class Guarded:
    """An array of zeros between memory that must stay as it is."""

    def __init__(self, count: int, dtype: type[np.generic]) -> None:
        size_bytes = count * np.dtype(dtype).itemsize
        self._memory = np.full(size_bytes + 2 * GUARD_BYTES, PATTERN, np.uint8)
        self._end = GUARD_BYTES + size_bytes
        self.array: Any = self._memory[GUARD_BYTES : self._end].view(dtype)
        self.array[:] = 0
        self.address: int = self.array.ctypes.data

    @property
    def is_alone_changed(self) -> bool:
        before, behind = self._memory[:GUARD_BYTES], self._memory[self._end :]
        return bool((before == PATTERN).all() and (behind == PATTERN).all())


class Memory:
    """Of one transfer, of its connection's counts, and of a registry in which it stands."""

    def __init__(
        self, *, paths: int = 1, known_paths: int = 1, most_answers: int = 1, messages: int = 1
    ) -> None:
        """`paths` of the transfer; `known_paths` of the connection; one read of so many `messages`."""
        self.counts = [Guarded(known_paths, np.int64) for _ in range(5)]
        self.feedback = FeedbackCounts(*(each.address for each in self.counts), known_paths, 0)
        self.elements = Guarded((PACKETS - 1) * FULL_BYTES + LAST_BYTES, np.uint8)
        self.received, self.important = Guarded(PACKETS, np.uint8), Guarded(PACKETS, np.uint8)
        self.by_tos, self.by_path = Guarded(256, np.int64), Guarded(paths, np.int64)
        self.transfer = Transfer(
            (ctypes.c_uint8 * COMMON_BYTES)(*packet(0, 0)[:COMMON_BYTES]),
            ctypes.pointer(self.feedback),
            *(each.address for each in (self.elements, self.received, self.important)),
            self.by_tos.address,
            self.by_path.address,
            paths,
            PACKETS,
            ELEMENTS_PER_PACKET,
            FULL_BYTES,
            LAST_BYTES,
        )
        self.open, self.touched = Guarded(1, np.int64), Guarded(1, np.int64)
        self.open.array[:] = ctypes.addressof(self.transfer)
        self.tokens, self.answers = Guarded(1, np.uint64), Guarded(7 * most_answers, np.uint64)
        self.tokens.array[:] = np.uint64(TOKEN).byteswap()
        self.registry = OpenTransfers(
            self.open.address,
            self.touched.address,
            open_count=1,
            tokens=self.tokens.address,
            answers=self.answers.address,
            version=AGENT_VERSION,
            connections=1,
            most_answers=most_answers,
        )
        self.is_left = Guarded(messages, np.uint8)

    def take(self, messages: Sequence[Sequence[bytes]], tos: int = 0) -> list[int]:
        """What is left, of messages that are a pass together."""
        memories = [Guarded(sum(map(len, parts)), np.uint8) for parts in messages]
        of_message, arrived_ns = np.array([tos], np.uint8), np.array([5])
        grids = []
        for parts, memory in zip(messages, memories, strict=True):
            memory.array[:] = np.frombuffer(b"".join(parts), np.uint8)
            size = len(memory.array)
            grids.append(
                Grid(
                    memory.address,
                    of_message.ctypes.data,
                    arrived_ns.ctypes.data,
                    1,
                    size,
                    size,
                    len(parts[0]),
                )
            )
        described = (Grid * len(grids))(*grids)
        assert native.LIBRARY is not None
        left = native.LIBRARY.mlt_take(
            ctypes.addressof(self.registry), ctypes.addressof(described), len(grids), self.is_left.address
        )
        found: list[int] = self.is_left.array.tolist()
        assert left == sum(found)
        written = [*vars(self).values(), *self.counts, *memories]
        assert all(each.is_alone_changed for each in written if isinstance(each, Guarded))
        return found


def packet(
    path: int, sequence: int, size_bytes: int | None = None, *, kind: AgentKind = AgentKind.DATA
) -> bytes:
    header = AgentHeader(
        kind,
        AgentFlag.IMPORTANT,
        ElementType.FLOAT32,
        TOKEN,
        3,
        1,
        0,
        path,
        sequence,
        sequence * ELEMENTS_PER_PACKET % 2**32,
        9,
    )
    if size_bytes is None:
        size_bytes = LAST_BYTES if sequence == PACKETS - 1 else FULL_BYTES
    return header.encode() + bytes([1 + sequence % 200]) * size_bytes


@pytest.mark.parametrize(("paths", "known_paths"), [(1, 1), (3, 5), (5, 3)])
def test_packets_of_paths_that_there_are_not(paths: int, known_paths: int) -> None:
    memory = Memory(paths=paths, known_paths=known_paths)
    named = [*range(8), 2**16 - 1]
    assert memory.take([[packet(path, 0) for path in named]], tos=3) == [0]
    assert memory.by_path.array.tolist() == [1] * paths
    assert [each.array.tolist() for each in memory.counts] == [
        [number] * known_paths for number in (1, 1, 1, 9, 5)
    ]
    assert memory.feedback.unknown_paths == len(named) - known_paths
    assert memory.by_tos.array.tolist() == [0, 0, 0, len(named), *[0] * 252]


@pytest.mark.parametrize(
    "other",
    [
        (PACKETS - 1, FULL_BYTES),
        (PACKETS - 2, LAST_BYTES),
        (PACKETS - 2, FULL_BYTES + 4),
        (PACKETS, FULL_BYTES),
        (PACKETS, LAST_BYTES),
        (PACKETS + 1, LAST_BYTES),
        (2**28, FULL_BYTES),
        (2**32 - 1, FULL_BYTES),
    ],
)
def test_packets_that_the_tensor_does_not_have(other: tuple[int, int]) -> None:
    memory = Memory(messages=2)
    last = PACKETS - 1
    assert memory.take([[packet(0, *other)], [packet(0, last)]]) == [0, 0]
    expected = bytes(last * FULL_BYTES) + bytes([1 + last]) * LAST_BYTES
    assert memory.elements.array.tobytes() == expected
    assert memory.received.array.tolist() == memory.important.array.tolist() == [*[0] * last, 1]
    assert memory.by_path.array.tolist() == [1]


@pytest.mark.parametrize(
    ("counts", "left"),
    [
        ([6], [1]),
        ([5, 1], [0, 1]),
        ([3, 3, 2, 1], [0, 1, 0, 1]),
        ([40, 1], [1, 0]),
    ],
)
def test_acknowledgements_for_which_there_is_no_room(counts: list[int], left: list[int]) -> None:
    memory = Memory(most_answers=5, messages=len(counts))
    one = packet(0, 0, ACKNOWLEDGEMENT.size_bytes, kind=AgentKind.ACKNOWLEDGEMENT)
    assert memory.take([[one] * count for count in counts]) == left
    taken = sum(count for count, is_left in zip(counts, left, strict=True) if not is_left)
    assert memory.registry.answer_count == memory.registry.datagrams == taken
    assert np.count_nonzero(memory.answers.array.reshape(5, 7).any(axis=1)) == taken


@pytest.mark.parametrize("waiting", [5, 6, 7, 12])
def test_more_messages_than_slots(waiting: int) -> None:
    opened, slots = open_socket(("127.0.0.1",), 0), 6
    reader = DatagramReceiver(opened.socket, slots)
    tos, segments, arrived = Guarded(slots, np.uint8), Guarded(slots, np.int64), Guarded(slots, np.int64)
    compiled = reader._compiled
    compiled.tos, compiled.segments_bytes, compiled.arrived_ns = (
        tos.address,
        segments.address,
        arrived.address,
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number in range(waiting):
            sender.sendto(packet(0, number), ("127.0.0.1", opened.port))
    assert native.LIBRARY is not None
    read = native.LIBRARY.mlt_receive(opened.socket.fileno(), ctypes.addressof(compiled), 0)
    assert (read, bool(compiled.was_full)) == (min(waiting, slots), waiting >= slots)
    assert tos.is_alone_changed
    assert segments.is_alone_changed
    assert arrived.is_alone_changed
