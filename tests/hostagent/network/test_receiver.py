"""Control messages by their type, and what the real kernel hands over on the loopback interface."""

import socket
import struct
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent import native
from mltswitch.hostagent.network import libc, receiver
from mltswitch.hostagent.network.receiver import DatagramReceiver, parse_controls
from mltswitch.hostagent.network.sockets import open_socket
from tests.hostagent.background import eventually
from tests.hostagent.network.bursts import contents, nothing_waits, receive_all

KEY_OF_TOS = socket.IPPROTO_IP | libc.IP_TOS << 32
SO_RXQ_OVFL = 40
HEADER = bytes(40)


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def is_compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    is_compiled: bool = request.param == "compiled"
    if not is_compiled:
        monkeypatch.setattr(native, "LIBRARY", None)
    elif native.LIBRARY is None:
        pytest.skip(native.PROBLEM)
    return is_compiled


@st.composite
def control_areas(draw: st.DrawFn) -> tuple[bytes, int, int, int]:
    """(what the kernel leaves for one message, over what was there before; its TOS; its segment size)."""
    tos = draw(st.integers(0, 255))
    segment = draw(st.one_of(st.just(0), st.integers(1, 65_507)))
    found = [(socket.IPPROTO_IP, libc.IP_TOS, struct.pack("=B", tos))]
    if segment:
        found.append((libc.SOL_UDP, libc.UDP_GRO, struct.pack("=i", segment)))
    seconds, nanoseconds = draw(st.tuples(st.integers(0, 2**32), st.integers(0, 10**9 - 1)))
    time_ns = seconds * 10**9 + nanoseconds
    if time_ns:
        found.append((socket.SOL_SOCKET, libc.SO_TIMESTAMPNS, struct.pack("=qq", seconds, nanoseconds)))
    if draw(st.booleans()):
        found.append((socket.SOL_SOCKET, SO_RXQ_OVFL, struct.pack("=I", draw(st.integers(0, 2**32 - 1)))))
    area = bytearray(128)
    begin = 0
    for level, kind, value in draw(st.permutations(found)):
        content = struct.pack("=Qii", 16 + len(value), level, kind) + value
        area[begin : begin + len(content)] = content
        begin += -(-len(content) // 8) * 8
    return bytes(area), tos, segment, time_ns


@given(st.lists(control_areas(), min_size=1, max_size=20))
def test_control_messages_are_told_apart_by_type(areas: list[tuple[bytes, int, int, int]]) -> None:
    words = np.frombuffer(b"".join(area for area, *_ in areas), np.int64).reshape(-1, 16)
    found = parse_controls(words, KEY_OF_TOS)
    assert found.tos.tolist() == [tos for _, tos, _, _ in areas]
    assert found.segments.tolist() == [segment for _, _, segment, _ in areas]
    assert found.times_ns.tolist() == [time_ns for _, _, _, time_ns in areas]


def test_a_datagram_arrives_when_the_kernel_has_it_not_when_it_is_read() -> None:
    sender, receiver, target = pair()

    def is_known() -> bool:
        before_ns = time.monotonic_ns()
        sender.sendto(HEADER, target)
        after_ns = time.monotonic_ns()
        time.sleep(0.05)  # the time that must not be counted
        (grid,) = receiver.receive()
        assert grid.arrived_ns is not None
        # The clock of the day is slewed meanwhile, by less than a millisecond.
        return bool(before_ns - 10**6 <= grid.arrived_ns[0] <= after_ns + 10**6)

    # The kernel begins to note times a moment after the first socket of the machine asks.
    eventually(is_known)
    assert is_known()


def pair(
    address: str = "127.0.0.1", **options: int
) -> tuple[socket.socket, DatagramReceiver, tuple[str, int]]:
    """(sender, receiver, destination)."""
    opened = open_socket((address,), 0)
    sender = socket.socket(opened.socket.family, socket.SOCK_DGRAM)
    return sender, DatagramReceiver(opened.socket, **options), (address, opened.port)  # type: ignore[arg-type]  # any option


@pytest.mark.parametrize(
    ("address", "level", "kind"),
    [
        ("127.0.0.1", socket.IPPROTO_IP, libc.IP_TOS),
        ("::1", socket.IPPROTO_IPV6, libc.IPV6_TCLASS),
    ],
)
def test_every_tos_is_told(address: str, level: int, kind: int) -> None:
    sender, receiver, target = pair(address)
    wanted = []
    for tos in range(256):
        payload = HEADER + bytes([tos])
        sender.sendmsg((payload,), ((level, kind, struct.pack("=i", tos)),), 0, target)
        wanted.append((payload, tos))
    assert Counter(receive_all(receiver, 256)) == Counter(wanted)


@pytest.mark.parametrize("coalescing", [True, False])
def test_a_burst_comes_as_it_was_sent(coalescing: bool) -> None:
    sender, receiver, target = pair(coalescing=coalescing)
    payload = np.random.default_rng(1).integers(0, 256, 1000, np.uint8).tobytes()
    sender.sendmsg((payload,), ((libc.SOL_UDP, libc.UDP_SEGMENT, struct.pack("=H", 300)),), 0, target)
    pieces = [payload[at : at + 300] for at in range(0, 1000, 300)]
    assert sorted(receive_all(receiver, 4)) == sorted((piece, 0) for piece in pieces)
    assert receiver.counters.messages == (1 if receiver.is_coalescing else 4)


def test_a_burst_comes_as_it_was_sent_where_less_has_come_before() -> None:
    sender, receiver, target = pair()
    sender.sendto(HEADER, target)
    assert receive_all(receiver, 1) == [(HEADER, 0)]
    segmented = (libc.SOL_UDP, libc.UDP_SEGMENT, struct.pack("=H", 50))
    marked = (socket.IPPROTO_IP, libc.IP_TOS, struct.pack("=i", 7))
    sender.sendmsg((bytes(100),), (segmented, marked), 0, target)  # its control messages need more room
    assert receive_all(receiver, 2) == [(bytes(50), 7)] * 2


def test_sizes_of_all_kinds_in_one_batch() -> None:
    sender, receiver, target = pair()
    wanted = []
    for number in range(100):
        payload = HEADER + bytes([number]) * (number % 7 * 11)
        sender.sendto(payload, target)
        wanted.append((payload, 0))
        if number % 5 == 0:
            burst = bytes([number]) * (50 * (2 + number % 3) + 45)
            sender.sendmsg((burst,), ((libc.SOL_UDP, libc.UDP_SEGMENT, struct.pack("=H", 50)),), 0, target)
            wanted += [(burst[at : at + 50], 0) for at in range(0, len(burst), 50)]
    assert Counter(receive_all(receiver, len(wanted))) == Counter(wanted)


def test_the_largest_datagram_fits() -> None:
    sender, receiver, target = pair()
    payload = np.random.default_rng(2).integers(0, 256, 65_507, np.uint8).tobytes()
    sender.sendto(payload, target)
    assert receive_all(receiver, 1) == [(payload, 0)]
    assert not receiver.counters.truncated


def test_nothing_there_is_no_error() -> None:
    _, receiver, _ = pair()
    assert receiver.receive() == []
    assert receiver.receive() == []
    assert not receiver.was_full
    assert receiver.counters.errors == 0


def test_what_is_shorter_than_a_header_is_dropped() -> None:
    sender, receiver, target = pair()
    for size in (0, 1, 39, 40):
        sender.sendto(bytes(size), target)
    # The last segment alone is too short.
    segmented = (libc.SOL_UDP, libc.UDP_SEGMENT, struct.pack("=H", 50))
    sender.sendmsg((bytes(110),), (segmented,), 0, target)
    sender.sendmsg((bytes(90),), ((*segmented[:2], struct.pack("=H", 30)),), 0, target)
    assert Counter(receive_all(receiver, 3)) == Counter([(bytes(40), 0), (bytes(50), 0), (bytes(50), 0)])
    assert receiver.receive() == []
    assert receiver.counters.short == 2 + 1 + 3


def test_a_batch_has_a_limit() -> None:
    sender, receiver, target = pair(messages=8)
    for number in range(20):
        sender.sendto(HEADER + bytes([number]), target)
    sizes = []
    while grids := receiver.receive():
        sizes.append((len(contents(grids)), receiver.was_full))
    assert sizes == [(8, True), (8, True), (4, False)]


def test_batches_of_small_messages_grow(is_compiled: bool) -> None:
    sender, receiver, target = pair(messages=256)
    for _ in range(300):
        sender.sendto(HEADER, target)
    sizes = []
    while grids := receiver.receive():
        sizes.append(len(contents(grids)))
    assert sizes == ([256, 44] if is_compiled else [32, 256, 12])
    assert receiver.counters.messages == 300


def test_others_get_their_turn_when_much_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "READ_BYTES", 100_000)
    monkeypatch.setattr(receiver, "COMPILED_BATCH_BYTES", 20_000)
    monkeypatch.setattr(receiver, "BATCH_BYTES", 100_000)
    sender, reader, target = pair(messages=256)
    for _ in range(40):
        sender.sendto(bytes(10_000), target)
    first = len(contents(reader.receive()))
    assert 10 <= first < 40
    assert reader.was_full
    newest_ns = reader.newest_ns
    assert len(receive_all(reader, 40 - first)) == 40 - first
    assert reader.newest_ns >= newest_ns


def test_what_was_read_had_arrived_by_the_newest_time() -> None:
    sender, receiver, target = pair()
    for _ in range(3):
        sender.sendto(HEADER, target)
    grids = receiver.receive()
    assert receiver.newest_ns == max(
        int(grid.arrived_ns.max()) for grid in grids if grid.arrived_ns is not None
    )


def test_the_kernel_counts_what_a_full_socket_drops() -> None:
    opened = open_socket(("127.0.0.1",), 0, receive_buffer_bytes=4096)
    receiver = DatagramReceiver(opened.socket)
    assert receiver.kernel_drops() == 0
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(50):
        sender.sendto(bytes(1000), ("127.0.0.1", opened.port))
    received = 0
    while grids := receiver.receive():
        received += len(contents(grids))
    assert 0 < received < 50
    assert received + receiver.kernel_drops() == 50


def test_a_truncated_message_is_counted_and_dropped() -> None:
    sender, receiver, target = pair()
    vectors, _ = receiver._keep
    assert isinstance(vectors, np.ndarray)
    vectors["length"][0] = 10  # nothing that is sent is longer than the memory for it
    for number in range(3):
        sender.sendto(HEADER + bytes([number]), target)
    assert sorted(contents(receiver.receive())) == [(HEADER + b"\1", 0), (HEADER + b"\2", 0)]
    assert receiver.counters.truncated == 1
    assert receiver.counters.short == 0


def test_errors_of_the_network_are_counted() -> None:
    _, receiver, _ = pair()
    closed = open_socket(("127.0.0.1",), 0)
    receiver._socket.connect(("127.0.0.1", closed.port))
    closed.socket.close()
    receiver._socket.send(b"x")  # the answer says that nobody is there
    assert receiver.receive() == []
    assert receiver.counters.errors == 1


def test_a_closed_socket_is_an_error() -> None:
    _, receiver, _ = pair()
    receiver._socket.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        receiver.receive()


@pytest.mark.parametrize("messages", [0, 1025])
def test_a_batch_is_what_one_call_takes(messages: int) -> None:
    opened = open_socket(("127.0.0.1",), 0)
    assert nothing_waits(opened.socket)
    with pytest.raises(ValueError, match="expected 1-1024"):
        DatagramReceiver(opened.socket, messages)
