"""What compiled passes prepare for sending, against what numpy prepares."""

import errno
import socket
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mltswitch.hostagent import native
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.outgoing import Cut, Messages, Vectors, cut_for_segmentation
from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.network.sender import BurstSender
from mltswitch.hostagent.network.sockets import PathSocket, open_socket
from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.tensor import PacketLayout, TensorView, view_of
from mltswitch.hostagent.transport.datagrams import Bursts
from mltswitch.hostagent.transport.hello import KEY_BYTES
from mltswitch.hostagent.transport.packets import Chunk
from tests.hostagent.native.passes import needs_passes, without_passes
from tests.hostagent.network.bursts import bursts_of, datagrams_of, receive_all, some_bursts, tos_of
from tests.hostagent.tagging.tensors import any_tensors
from tests.hostagent.transport.chunks import chunk_of

NAMES = np.array([7 << 40, 8 << 40, 0, 9 << 40])
"""Addresses of four paths' names, of which the third has none."""


def whole(chunk: Chunk, allowed_bytes: int) -> list[list[Any]]:
    """All that a chunk gives, a batch an entry."""
    sprayer, found = PathSprayer(3, seed=1), []
    while not chunk.is_over:
        bursts = chunk.take(allowed_bytes, 50, sprayer, 5 << 40)
        tags = None if bursts.tags is None else bursts.tags.tobytes()
        numbers = (
            bursts.payload_offsets_bytes,
            bursts.payload_bytes,
            bursts.starts,
            bursts.paths,
            bursts.tos,
        )
        found.append([bursts.headers.tobytes(), tags, *(part.tolist() for part in numbers)])
    return found


@needs_passes
@given(
    any_tensors(),
    st.randoms(use_true_random=False),
    st.integers(1, 70),
    st.sampled_from([None, bytes(KEY_BYTES)]),
    st.booleans(),
)
def test_chunks(
    case: tuple[TensorView, PacketLayout],
    random: Any,
    burst_packets: int,
    key: bytes | None,
    is_repeated: bool,
) -> None:
    tensor, layout = case
    count = random.randint(1, layout.packet_count)
    sequences = np.sort(np.array(random.sample(range(layout.packet_count), count)))
    important = np.array([random.random() < 0.5 for _ in range(count)])

    def found() -> list[list[Any]]:
        chunk = chunk_of(
            tensor,
            layout,
            sequences,
            important,
            burst_packets,
            key=key,
            is_repeated=is_repeated,
            mixed_packets=mixed_packets,
        )
        return whole(chunk, random_bytes)

    random_bytes, mixed_packets = random.randint(1, 2000), random.randint(0, count)
    compiled = found()
    with without_passes():
        assert found() == compiled


@needs_passes
@settings(max_examples=25)
@given(
    st.sampled_from([1, 15, 16, 350]),
    st.integers(2, 900),
    st.sampled_from([1, 2, 3, 44]),
    st.sampled_from([2, 3, 9]),
    st.sampled_from([None, bytes(KEY_BYTES)]),
)
@example(16, 3, 2, 2, None)
@example(350, 400, 44, 2, bytes(KEY_BYTES))
def test_what_is_read_ahead_is_the_tensor(
    elements: int, packets: int, burst_packets: int, every: int, key: bytes | None
) -> None:
    """And what arrives is what was to be sent; where the compiler watches, nothing else may be read. 16
    elements are a cache line."""
    tensor = view_of(np.arange(elements * packets, dtype=np.float32), writable=False)
    layout = PacketLayout(tensor.element_type, tensor.element_count, elements)
    sequences = np.arange(packets)
    chunk = chunk_of(tensor, layout, sequences, sequences % every == 0, burst_packets, key=key)
    bursts = chunk.take(1 << 40, 1 << 20, PathSprayer(1, seed=1), 5)
    opened, source = open_socket(("127.0.0.1",), 0), open_socket(("127.0.0.1",), 0)
    with opened.socket, source.socket:
        receiver = DatagramReceiver(opened.socket)
        sender = BurstSender({0: PathSocket(source.socket, "127.0.0.1", opened.port)})
        assert sender.send(bursts) == bursts.packet_count
        found = Counter(receive_all(receiver, bursts.packet_count))
    assert found == Counter(zip(datagrams_of(bursts), tos_of(bursts), strict=True))


def written(bursts: Bursts) -> tuple[Cut | None, Messages, Vectors]:
    """By a compiled pass."""
    assert native.LIBRARY is not None
    messages = Messages(0, libc.IP_TOS, 16)
    vectors = Vectors(2 if bursts.tags is None else 3)
    return messages.write_compiled(native.LIBRARY, bursts, NAMES, vectors), messages, vectors


def structures(messages: Messages, vectors: Vectors, cut: Cut) -> list[Any]:
    """What the kernel reads of them."""
    found: list[Any] = []
    for number in range(cut.count):
        message = messages._array[number]
        start = (int(message["vectors"]) - vectors.address) // libc.VECTOR.itemsize
        pieces = vectors._array.reshape(-1)[start : start + int(message["vector_count"])]
        controls = messages._controls[number][: int(message["control_length"]) // libc.CONTROL.itemsize]
        place = int(message["control"]) - libc.address_of(messages._controls)
        assert place == number * messages._controls[0].nbytes
        found.append((int(message["name"]), int(message["name_length"]), pieces.tolist(), controls.tolist()))
    return found


@needs_passes
@given(some_bursts())
def test_messages(bursts: Bursts) -> None:
    bursts = replace(bursts, paths=np.where(bursts.paths == 2, 3, bursts.paths))
    expected = cut_for_segmentation(bursts)
    cut, messages, vectors = written(bursts)
    if expected.count > len(bursts.paths):
        assert cut is None  # a burst that needs several messages
        return
    assert cut is not None
    assert (cut.starts.tolist(), cut.packets.tolist()) == (
        expected.starts.tolist(),
        expected.packets.tolist(),
    )
    assert (cut.paths.tolist(), cut.tos.tolist()) == (bursts.paths.tolist(), bursts.tos.tolist())
    other, others = Messages(0, libc.IP_TOS, 16), Vectors(vectors.pieces)
    others.reserve(bursts.packet_count)
    others.write_bursts(bursts, 0)
    other.write(expected, NAMES[bursts.paths], others)
    assert structures(messages, vectors, cut) == structures(other, others, expected)


TENSOR = np.arange(100_000, dtype=np.uint8)
GOOD = bursts_of(TENSOR, 1000, [10], [0, 1])


def with_one(numbers: NDArray[np.int64], place: int, number: int) -> NDArray[np.int64]:
    changed = numbers.copy()
    changed[place] = number
    return changed


@needs_passes
@pytest.mark.parametrize(
    "bursts",
    [
        replace(GOOD, tensor=TENSOR[:-1]),
        replace(GOOD, payload_offsets_bytes=with_one(GOOD.payload_offsets_bytes, 50, -1)),
        replace(GOOD, payload_offsets_bytes=with_one(GOOD.payload_offsets_bytes, 50, 2**62)),
        replace(GOOD, payload_bytes=with_one(GOOD.payload_bytes, 50, -1)),
        replace(GOOD, payload_bytes=with_one(GOOD.payload_bytes, 50, 2**62)),
        replace(GOOD, payload_bytes=with_one(GOOD.payload_bytes, 50, 7000)),
        replace(GOOD, starts=with_one(GOOD.starts, 0, 1)),
        replace(GOOD, starts=with_one(GOOD.starts, 10, 99)),
        replace(GOOD, starts=with_one(GOOD.starts, 5, 2**40)),
        replace(GOOD, starts=with_one(GOOD.starts, 5, -1)),
        replace(GOOD, starts=with_one(GOOD.starts, 5, 40)),
        replace(GOOD, paths=with_one(GOOD.paths, 3, 2)),
        replace(GOOD, paths=with_one(GOOD.paths, 3, 4)),
        replace(GOOD, paths=with_one(GOOD.paths, 3, -1)),
        bursts_of(TENSOR[:6500], 100, [65], [0]),
    ],
)
def test_what_is_not_as_it_should_be_is_left(bursts: Bursts) -> None:
    assert written(GOOD)[0] is not None
    assert written(bursts)[0] is None


class Full:
    """Datagrams to a socket of this machine that nobody reads, and where they go."""

    def __init__(self, folder: Path) -> None:
        self.sender, self.receiver = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        self.receiver.bind(str(folder / "there"))
        self.names = [
            np.frombuffer(struct.pack("=H", socket.AF_UNIX) + str(folder / name).encode() + b"\0", np.uint8)
            for name in ("there", "nobody")
        ]

    def received(self) -> list[bytes]:
        found = []
        with suppress(BlockingIOError):
            while True:
                found.append(self.receiver.recv(1 << 17, socket.MSG_DONTWAIT))
        return found

    def messages(self, sizes_bytes: list[int], wrong: set[int]) -> tuple[NDArray[Any], list[NDArray[Any]]]:
        """For sendmmsg(2), and what must outlive it; the wrong ones go where nobody is."""
        tensor = np.random.default_rng(1).integers(0, 256, sum(sizes_bytes), np.uint8)
        header = np.arange(40, dtype=np.uint8)
        vectors = np.zeros((len(sizes_bytes), 2), libc.VECTOR)
        vectors["base"][:, 0], vectors["length"][:, 0] = libc.address_of(header), len(header)
        ends = np.cumsum(sizes_bytes)
        vectors["base"][:, 1] = libc.address_of(tensor) + ends - sizes_bytes
        vectors["length"][:, 1] = sizes_bytes
        messages = np.zeros(len(sizes_bytes), libc.MESSAGE)
        for number in range(len(sizes_bytes)):
            name = self.names[number in wrong]
            messages[number]["name"], messages[number]["name_length"] = libc.address_of(name), len(name)
            messages[number]["vectors"], messages[number]["vector_count"] = vectors[number].ctypes.data, 2
        return messages, [tensor, header, vectors]


GROUP = 4
"""Messages of 16 KiB that are one system call."""


@needs_passes
@pytest.mark.parametrize("wrong", [set(), {0}, {1}, {GROUP - 1}, {GROUP}, {GROUP + 1}, {2 * GROUP}])
@pytest.mark.parametrize("count", [1, GROUP, 2 * GROUP, 9 * GROUP + 3])
def test_sending_ends_where_the_kernel_ends_it(tmp_path: Path, wrong: set[int], count: int) -> None:
    """As sendmmsg(2) to whoever offers the rest again: each message once, and the same errors.

    The socket takes a few at a time, and would wait for more room."""
    library = native.LIBRARY
    assert library is not None
    found = []
    for number, send in enumerate((libc.send_messages, lambda *words: library.mlt_send(*words, 2))):
        folder = tmp_path / str(number)
        folder.mkdir()
        ends = Full(folder)
        with ends.sender, ends.receiver:
            messages, _kept = ends.messages([1 << 14] * count, wrong)
            place, errors, received = 0, [], []
            while place < count:
                sent = send(
                    ends.sender.fileno(),
                    messages.ctypes.data + place * libc.MESSAGE.itemsize,
                    count - place,
                )
                received += ends.received()
                if sent < 0 and -sent != errno.EAGAIN:
                    errors.append((place, -sent))
                    place += 1
                place += max(sent, 0)
            found.append((received, errors))
    assert found[0] == found[1]
    assert len(found[1][0]) == count - len(found[1][1])
    assert [place for place, _ in found[1][1]] == sorted(place for place in wrong if place < count)


def test_numbers_that_overflow_are_refused() -> None:
    opened = open_socket(("127.0.0.1",), 0)
    with opened.socket:
        sender = BurstSender({0: PathSocket(opened.socket, "127.0.0.1", 9)})
        bursts = replace(
            bursts_of(TENSOR[:2000], 1000, [2], [0]),
            payload_offsets_bytes=np.array([2**63 - 1000, 2**63 - 1]),
            payload_bytes=np.array([1000, 3000]),
        )
        with pytest.raises(ValueError, match="outside the tensor"):
            sender.send(bursts)
        with pytest.raises(ValueError, match="outside the tensor"):
            sender.send(
                replace(
                    bursts, payload_offsets_bytes=np.zeros(2, np.int64), payload_bytes=np.array([1000, -1])
                )
            )
