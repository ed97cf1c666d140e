"""The transport `tcp` between two ends over loopback."""

import gc
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mltswitch.errors import UserInputError
from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
    TransferMismatchError,
)
from mltswitch.hostagent.transport import tcp_frames as wire
from mltswitch.hostagent.transport import tcp_streams, tcp_transfers
from mltswitch.hostagent.transport.description import transports
from mltswitch.hostagent.transport.records import AtDeadline, Moment
from mltswitch.hostagent.transport.tcp_frames import TcpSettings
from mltswitch.hostagent.transport.tcp_transfers import _Ticket as TcpTicket
from tests.hostagent.transport.tcp_ends import (
    PATIENCE,
    SECOND,
    End,
    Ends,
    completion,
    floats,
    posted,
    receive,
    running_ends,
    send,
    until,
)

SMALL = TcpSettings(chunk_bytes=4096)


def failure(ticket: TcpTicket) -> AgentError:
    error = completion(ticket).error
    assert error is not None
    return error


def cross(ends: Ends, data: Any, buffer: Any, **changes: Any) -> tuple[TcpTicket, TcpTicket]:
    [receiving] = ends.b.post_receives([receive(buffer, **changes)])
    [sending] = ends.a.post_sends([send(data, round_number=changes.get("round_number", 0))])
    return sending, receiving


class Tap:
    """A data connection of nobody's agent: what a peer's program, or a stranger, could send."""

    def __init__(self, end: End, token: bytes | None = None, magic: bytes = wire.MAGIC) -> None:
        port = end.engine.ports["127.0.0.1"]
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.sendall(magic + (bytes.fromhex(end.connection.token) if token is None else token))

    def chunk(self, ticket: TcpTicket, first: int, size: int, data: bytes, mark: bytes = wire.WHOLE) -> None:
        self.socket.sendall(wire.CHUNK.pack(*ticket.key, ticket.number, first, size) + data + mark)

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


WITHOUT_COMPILER = """
import sys
sys.modules["mltswitch.hostagent.dataplane._dataplane"] = None  # as where it was not built
from mltswitch.hostagent import Agent, AgentConfig
a, b = (Agent(AgentConfig(name=name, transport="tcp", listen="127.0.0.1:0")) for name in "ab")
a.connect("b", b.listening_at, timeout_seconds=20)
b.wait_for_peers(["a"], 20)
buffer = bytearray(5)
receiving = b.post_receive("a", buffer, tensor=1)
a.post_send("b", b"hello", tensor=1).wait(20)
receiving.wait(20)
print(buffer.decode(), a.snapshot().name)
a.close(), b.close()
"""


def test_agents_use_it_where_nothing_is_compiled() -> None:
    assert transports()["tcp"].settings is TcpSettings
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER], check=False, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == "hello a\n", done.stderr


@pytest.mark.parametrize("bad", [{"streams": 0}, {"streams": 33}, {"chunk_bytes": 4095}, {"more": 1}])
def test_settings_are_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TcpSettings(**bad)


@given(
    elements=st.integers(1, 40_000),
    element_type=st.sampled_from(["float32", "float64", "int16", "uint8"]),
    chunks=st.tuples(st.integers(4096, 20_000), st.integers(4096, 20_000)),
    streams=st.integers(1, 4),
    is_receiver_first=st.booleans(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_tensor_arrives_whole(
    elements: int, element_type: str, chunks: tuple[int, int], streams: int, is_receiver_first: bool
) -> None:
    data = np.random.default_rng(elements).integers(1, 100, elements).astype(element_type)
    buffer = np.zeros_like(data)
    ours, theirs = (TcpSettings(chunk_bytes=size, streams=streams) for size in chunks)
    with running_ends(ours, theirs) as ends:
        posts: list[Callable[[], TcpTicket]] = [
            lambda: ends.b.post_receives([receive(buffer)])[0],
            lambda: ends.a.post_sends([send(data)])[0],
        ]
        for ticket in [post() for post in (posts if is_receiver_first else reversed(posts))]:
            found = completion(ticket)
            assert found.error is None
            assert found.arrived.all()
            whole = min(chunks) // data.itemsize
            assert found.elements_per_packet == whole
            assert len(found.arrived) == -(-elements // whole) == found.statistics.packets
            assert found.statistics.bytes_received == found.statistics.size_bytes == data.nbytes
    assert np.array_equal(buffer, data)


def test_layers_in_front_overtake_and_the_traffic_class_follows() -> None:
    with running_ends(TcpSettings(chunk_bytes=1 << 18)) as ends:
        big, small = floats(2_000_000), floats(1000)
        sends = ends.a.post_sends([send(big, 1, layer=5, dscp=10), send(small, 2, layer=1, dscp=46)])
        sends[0].retag(12)
        receives = ends.b.post_receives([receive(np.zeros_like(big), 1), receive(np.zeros_like(small), 2)])
        last = [completion(ticket).statistics.last_ns for ticket in receives]
        assert last[1] < last[0]
        assert all(completion(ticket).error is None for ticket in sends)
        [stream] = ends.a.connection.outgoing
        assert stream._socket.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) >> 2 == 12


def test_the_same_tensor_and_round_is_open_once() -> None:
    with running_ends() as ends:
        data = floats(10)
        ends.a.post_sends([send(data)])
        with pytest.raises(TransferMismatchError, match="tensor 1, round 0: is open already"):
            ends.a.post_sends([send(data, 2), send(data)])
        with pytest.raises(TransferMismatchError):
            ends.a.post_sends([send(data, 3), send(data, 3)])
        assert ends.a.connection.snapshot().open_transfers == 1
        ends.a.post_sends([send(data, round_number=1)])


@pytest.mark.parametrize("by_sender", [True, False])
def test_cancelled_in_the_middle_fails_at_both_ends_and_the_next_one_crosses(
    by_sender: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk on its way is filled up; nothing of it may lie in memory that is the user's again."""
    monkeypatch.setattr(tcp_streams, "TURN_BYTES", 100_000)
    with running_ends(TcpSettings(chunk_bytes=16 << 20)) as ends:
        until(lambda: ends.b.connection.incoming)
        [stream] = ends.b.connection.incoming

        def read_a_little() -> None:
            stream._guarded(stream._read)
            if stream._left:
                ends.loop.remove_reader(stream._socket)

        ends.call(lambda: ends.loop.add_reader(stream._socket, read_a_little))
        data, buffer = floats(4_000_000), np.zeros(4_000_000, np.float32)
        sending, receiving = cross(ends, data, buffer)
        until(lambda: stream._left)
        assert sending.taken > 0
        (sending if by_sender else receiving).cancel("enough")
        for ticket in (sending, receiving):
            error = failure(ticket)
            assert isinstance(error, CancelledError)
            assert "enough" in str(error)
        data[:], buffer[:] = -1, -2
        ends.call(lambda: ends.loop.add_reader(stream._socket, stream._guarded, stream._read))
        again = floats(100_000)
        into = np.zeros_like(again)
        assert all(completion(ticket).error is None for ticket in cross(ends, again, into, round_number=1))
        assert np.array_equal(again, into)
        assert (buffer == -2).all()
        assert not ends.a.failures + ends.b.failures


def test_chunks_of_an_earlier_attempt_are_nobodys() -> None:
    with running_ends() as ends:
        buffer = np.zeros(1000, np.float32)
        first = posted(ends.b, buffer)
        first.cancel("once more")
        failure(first)
        second = posted(ends.b, buffer)
        tap = Tap(ends.b)
        tap.chunk(first, 0, 4000, floats(1000).tobytes())
        tap.chunk(second, 0, 4000, np.full(1000, 7, np.float32).tobytes())
        assert completion(second).error is None
        assert (buffer == 7).all()


@pytest.mark.parametrize("moment", list(Moment))
def test_deadlines_say_what_arrived(moment: Moment) -> None:
    with running_ends(SMALL) as ends:
        buffer = np.zeros(4096, np.float32)
        changes: dict[str, Any] = {"deadline_ns": SECOND // 20, "deadline_from": moment}
        receiving = posted(ends.b, buffer, **changes)
        if moment is not Moment.POST:
            assert not receiving.wait(0.2)
        Tap(ends.b).chunk(receiving, 4096, 4096, bytes(range(256)) * 16)
        error = failure(receiving)
        assert isinstance(error, DeadlineExceededError)
        assert "of 4 chunks arrived" in str(error)


def test_a_send_nobody_wants_ends_by_its_deadline() -> None:
    with running_ends() as ends:
        [sending] = ends.a.post_sends([send(floats(10), deadline_ns=SECOND // 50)])
        assert "the peer has not posted it" in str(failure(sending))


@pytest.mark.parametrize("keep_missing", [True, False])
@pytest.mark.parametrize("how", ["deadline", "finish"])
def test_what_is_there_can_be_taken(keep_missing: bool, how: str) -> None:
    """Whole chunks count; the sender learns which."""
    with running_ends(SMALL) as ends:
        buffer = np.full(4096, 5, np.float32)
        changes: dict[str, Any] = {"keep_missing": keep_missing, "deadline_from": Moment.FIRST_BYTE}
        if how == "deadline":
            changes |= {"deadline_ns": SECOND // 10, "at_deadline": AtDeadline.TAKE}
        ends.a.connection.next_chunk = lambda: None  # type: ignore[method-assign]  # of a slow sender
        sending, receiving = cross(ends, floats(4096), buffer, **changes)
        until(lambda: sending.number >= 0)
        tap = Tap(ends.b)
        tap.chunk(receiving, 4096, 4096, np.full(1024, 9, np.float32).tobytes())
        tap.socket.sendall(wire.CHUNK.pack(*receiving.key, receiving.number, 8192, 4096) + bytes(100))
        until(lambda: receiving.statistics().packets_received)
        if how == "finish":
            receiving.finish()
        for ticket in (sending, receiving):
            found = completion(ticket)
            assert found.error is None
            assert found.arrived.tolist() == [False, True, False, False]
            assert found.statistics.missing_share == 0.75
        assert (buffer[1024:2048] == 9).all()
        for missing in (buffer[3072:], buffer[:1024]):
            assert (missing == (5 if keep_missing else 0)).all()


@pytest.mark.parametrize(
    ("bound", "important", "is_enough"), [(0.5, 1.0, True), (0.5, 0.1, False), (0.4, 1.0, False)]
)
def test_the_soft_time_makes_the_bounds_enough(bound: float, important: float, is_enough: bool) -> None:
    with running_ends(SMALL) as ends:
        bounds: dict[str, Any] = {"loss_bound": bound, "important_loss_bound": important}
        receiving = posted(ends.b, np.zeros(2048, np.float32), soft_ns=SECOND // 20, **bounds)
        tap = Tap(ends.b)
        tap.chunk(receiving, 0, 4096, bytes(4096))
        assert receiving.wait(PATIENCE if is_enough else 0.3) is is_enough
        if not is_enough:
            tap.chunk(receiving, 4096, 4096, bytes(4096))
            assert completion(receiving).arrived.all()


def test_a_broken_data_connection_ends_all_that_is_open() -> None:
    with running_ends() as ends:
        [sending] = ends.a.post_sends([send(floats(10), 3)])
        [receiving] = ends.b.post_receives([receive(np.zeros(10, np.float32), 4)])
        until(lambda: ends.b.connection.incoming)
        ends.call(lambda: ends.a.connection.outgoing[0]._socket.shutdown(socket.SHUT_WR))
        error = failure(receiving)
        assert isinstance(error, PeerUnreachableError)
        assert str(error) == "peer a, tensor 4, round 0: closed a data connection"
        with pytest.raises(PeerUnreachableError):
            ends.b.post_receives([receive(np.zeros(10, np.float32))])
        with pytest.raises(PeerUnreachableError):
            ends.b.connection.send_message(b"x")
        assert isinstance(failure(sending), PeerUnreachableError)  # its own end of what broke


def test_a_peer_whose_data_port_is_closed_cannot_be_reached() -> None:
    with running_ends(is_connected=False) as ends:
        offer = ends.call(lambda: ends.b.engine.offer("a", "default"))
        with socket.create_server(("127.0.0.1", 0)) as gone:
            port = gone.getsockname()[1]

        offer["addresses"] = [["127.0.0.1", port]]

        def accept() -> None:
            ours = ends.a.engine.offer("b", "default")
            ends.a.connection = ends.a.engine.accept("b", "default", ours, offer)

        ends.call(accept)
        [sending] = ends.a.post_sends([send(floats(10))])
        error = failure(sending)
        assert isinstance(error, PeerUnreachableError)
        assert f"peer b, tensor 1, round 0: cannot be reached at its data port 127.0.0.1:{port}" in str(error)


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"token": "12"}, {"addresses": []}, {"addresses": [["x", 1]]}, {"chunk_bytes": 1}],
)
def test_an_offer_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with running_ends(is_connected=False) as ends:

        def accept() -> None:
            theirs = ends.b.engine.offer("a", "default") | change
            ours = ends.a.engine.offer("b", "default")
            try:
                ends.a.engine.accept("b", "default", ours, theirs)
            finally:
                ends.a.engine.withdraw(ours)

        with pytest.raises(PeerRefusedError, match="peer b"):
            ends.call(accept)
        assert not ends.a.engine.doors


@pytest.mark.parametrize(
    ("token", "magic"), [(bytes(8), wire.MAGIC), (None, b"GET "), (bytes(7) + b"\1", b"MLT\2")]
)
def test_who_does_not_know_the_token_is_closed_without_a_word(token: bytes | None, magic: bytes) -> None:
    with running_ends() as ends:
        until(lambda: ends.b.connection.incoming)
        assert Tap(ends.b, token, magic).is_closed()
        assert len(ends.b.connection.incoming) == 1
        tickets = cross(ends, floats(9), np.zeros(9, np.float32))
        assert all(completion(ticket).error is None for ticket in tickets)


def test_strangers_are_not_kept_for_long() -> None:
    with running_ends() as ends:
        until(lambda: ends.b.connection.incoming)
        silent = [Tap(ends.b, b"", b"") for _ in range(4)]
        _peer = Tap(
            ends.b
        )  # who knows the token need not wait for them; collected, it would be a peer that left
        until(lambda: len(ends.b.connection.incoming) == 2)
        assert all(stranger.is_closed() for stranger in silent)


def test_more_data_connections_than_there_may_be_are_closed() -> None:
    with running_ends() as ends:
        until(lambda: ends.b.connection.incoming)
        taps = [Tap(ends.b) for _ in range(wire.MOST_STREAMS)]
        until(lambda: len(ends.b.connection.incoming) == wire.MOST_STREAMS)
        assert taps[-1].is_closed()


@pytest.mark.parametrize(
    "chunks", [[(1, 4096)], [(0, 4095)], [(1 << 40, 4096)], [(0, 0)], [(0, 4096), (0, 4096)]]
)
def test_a_peer_that_breaks_the_rules_on_its_data_connection_is_left(chunks: list[tuple[int, int]]) -> None:
    with running_ends(SMALL) as ends:
        receiving = posted(ends.b, np.zeros(2048, np.float32))
        tap = Tap(ends.b)
        for first, size in chunks:
            tap.chunk(receiving, first, size, bytes(size))
        assert isinstance(failure(receiving), ProtocolViolationError)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"entry": 1},
        {"entry": [{}]},
        {"entry": ["ready", [1, 0], 0, 0, 1]},
        {"entry": ["ready", [1, 0], 1 << 32, 1, 1]},
        {"entry": ["ready", [1, 0], 0, 5, 99]},
        {"entry": ["ready", [1, 0], 0, 5, 1]},
        {"entry": ["read", 1]},
        {"entry": ["message", "A"]},
        {"entry": ["message", "A" * 1400]},
        {"entry": ["unknown"]},
        {"entry": ["cancel", [1, 0], 0, True, "bored", ""]},
    ],
    ids=range(12),
)
def test_frames_that_no_correct_peer_sends(body: dict[str, Any]) -> None:
    with running_ends() as ends:

        def deliver() -> None:
            for _ in range(100):
                ends.b.connection.frame_received(body)

        with pytest.raises(ProtocolViolationError, match="peer a"):
            ends.call(deliver)


@pytest.mark.parametrize(("bitmap", "problem"), [("AAAA", "another tensor"), ("A", "base64")])
def test_a_bitmap_of_another_tensor(bitmap: str, problem: str) -> None:
    with running_ends(SMALL) as ends:
        ends.a.connection.next_chunk = lambda: None  # type: ignore[method-assign]
        sending, _ = cross(ends, floats(4096), np.zeros(4096, np.float32))
        until(lambda: sending.number >= 0)
        entry = ["done", sending.key, sending.number, bitmap]
        with pytest.raises(ProtocolViolationError, match=problem):
            ends.call(lambda: ends.a.connection.frame_received({"entry": entry}))


def test_a_peer_cannot_make_us_remember_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp_transfers, "MOST_TRANSFERS", 100)
    with running_ends() as ends:
        buffer = np.zeros(1, np.float32)
        ends.b.post_receives([receive(buffer, tensor) for tensor in range(100)])
        with pytest.raises(AgentError, match="100 may be open, no more"):
            ends.b.post_receives([receive(buffer, 100)])
        until(lambda: len(ends.a.connection._ready) == 100)
        with pytest.raises(ProtocolViolationError, match="too often"):
            ends.call(lambda: ends.a.connection.frame_received({"entry": ["ready", [500, 0], 500, 1, 1]}))


def test_a_tensors_memory_is_let_go_with_its_ticket() -> None:
    with running_ends() as ends:
        data = bytearray(1000)
        sending, receiving = cross(ends, data, np.zeros(1000, np.uint8))
        assert completion(sending).error is None
        assert completion(receiving).error is None
        del sending, receiving
        ends.call(gc.collect)
        until(lambda: not ends.a.connection._sendable)
        gc.collect()
        data.append(1)  # raises BufferError while somebody still holds it


def test_congestion_control_is_the_kernels_or_refused() -> None:
    with running_ends(TcpSettings(congestion_control="reno")) as ends:
        until(lambda: ends.a.connection.outgoing)
        [stream] = ends.a.connection.outgoing
        name = stream._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert name.rstrip(b"\0") == b"reno"
    problem = r"tcp\.congestion_control: 'nosuch' cannot be used"
    with pytest.raises(UserInputError, match=problem), running_ends(TcpSettings(congestion_control="nosuch")):
        pass
