"""What two connections over TCP make of tensors, however bytes are cut and whenever somebody gives up."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
    TaggingError,
    TransferMismatchError,
)
from mltswitch.hostagent.tcp.connection import TcpConnection
from mltswitch.hostagent.tcp.frames import GIVEN_UP, WHOLE, FrameHeader
from mltswitch.hostagent.transport.interfaces import (
    ConnectionLost,
    Direction,
    Outgoing,
    TransferDone,
    TransferKey,
)
from mltswitch.hostagent.transport.messages import Bitmap, Message, Probe, encode_message
from mltswitch.hostagent.transport.settings import ConnectionSettings
from tests.hostagent.tcp.ends import CHUNK_BYTES, Flow, end, flow, greeted, incoming, outgoing, run
from tests.hostagent.transport.ends import connection as datagram_connection
from tests.hostagent.transport.ends import failing, talk

KEY = TransferKey(7, 1)
LATER_NS = 500_000_000
NUDGED_NS = LATER_NS + ConnectionSettings().nudge_ns
"""A ping follows what is said at that time."""
Bytes = NDArray[np.uint8]


def data(size_bytes: int, seed: int = 1) -> Bytes:
    return np.random.default_rng(seed).integers(1, 256, size_bytes, np.uint8)


def done(connection: TcpConnection) -> list[TransferDone]:
    return [event for event in connection.events() if isinstance(event, TransferDone)]


def lost(connection: TcpConnection) -> AgentError:
    (event,) = [event for event in connection.events() if isinstance(event, ConnectionLost)]
    return event.error


@pytest.mark.parametrize("sender_first", [True, False])
@pytest.mark.parametrize("size_bytes", [4, CHUNK_BYTES, CHUNK_BYTES + 4, 5 * CHUNK_BYTES - 8])
def test_a_tensor_crosses_whole(sender_first: bool, size_bytes: int) -> None:
    sender, receiver = greeted()
    sent, buffer = data(size_bytes), np.zeros(size_bytes, np.uint8)
    if sender_first:
        sender.send(outgoing(KEY, sent), 1)
        talk(sender, receiver)
        assert not sender.has_frames  # it has no memory to go to
    receiver.receive(incoming(KEY, buffer, loss_bound=0.5), 1)
    if not sender_first:
        talk(sender, receiver)
        sender.send(outgoing(KEY, sent), 1)
    talk(sender, receiver)
    moved = sum(run(flow(sender, receiver)))
    talk(sender, receiver)
    (there,), (here,) = done(receiver), done(sender)
    assert (buffer == sent).all()
    assert there.error is None
    assert here.error is None
    chunks = -(-size_bytes // CHUNK_BYTES)
    assert moved == 2 * (size_bytes + 21 * chunks)
    assert there.received is not None
    assert there.received.tolist() == [True] * chunks
    assert here.statistics is not None
    assert there.statistics is not None
    assert here.statistics.bytes_received == there.statistics.bytes_received == size_bytes
    assert here.statistics.packets_sent == here.statistics.packets_received == chunks
    assert there.statistics.packets_received == there.statistics.packets == chunks
    assert here.statistics.important_packets is None
    assert there.statistics.important_received is None
    assert [(entry.dscp, entry.packets_sent) for entry in here.statistics.classes] == [(34, chunks)]


def test_the_lesser_chunk_counts() -> None:
    sender, receiver = greeted(chunk_bytes=8 * CHUNK_BYTES)
    receiver.receive(incoming(KEY, np.zeros(8 * CHUNK_BYTES, np.uint8)), 1)
    sender.send(outgoing(KEY, data(8 * CHUNK_BYTES)), 1)
    talk(sender, receiver)
    assert sum(run(flow(sender, receiver))) == 2 * 8 * (CHUNK_BYTES + 21)
    assert done(receiver)[0].error is None


def test_front_layers_overtake_at_the_next_chunk() -> None:
    sender, receiver = greeted()
    back, front = TransferKey(1, 1), TransferKey(2, 1)
    for key in (back, front):
        receiver.receive(incoming(key, np.zeros(4 * CHUNK_BYTES, np.uint8)), 1)
    sender.send(outgoing(back, data(4 * CHUNK_BYTES), layer=9, dscp=10), 1)
    talk(sender, receiver)
    dscps = [frame.dscp for frame in (sender.next_frame(1),) if frame]
    sender.send(outgoing(front, data(4 * CHUNK_BYTES), layer=0, dscp=20), 1)
    while (frame := sender.next_frame(1)) is not None:
        dscps.append(frame.dscp)
    assert dscps == [10] + 4 * [20] + 3 * [10]


class World:
    """Both ends, three flows each way, and a list of what was posted; everything by chance."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.ends = end(1), end(2, chunk_bytes=3 * CHUNK_BYTES)
        self.control = [bytearray(), bytearray()]
        """To each end."""
        self.flows: list[Flow] = []
        self.sent: dict[tuple[int, TransferKey], tuple[Bytes, Bytes]] = {}
        """By sending end: what is in its memory, and what was when it was posted."""
        self.buffers: dict[tuple[int, TransferKey], Bytes] = {}
        """By sending end, too: memory of the other one."""
        self.frozen: dict[tuple[int, TransferKey], Bytes] = {}
        """What a buffer held when its transfer had ended."""
        self.results: dict[tuple[int, TransferKey, Direction], AgentError | None] = {}

    def step(self) -> None:
        actions = (
            self.post_send,
            self.post_receive,
            self.cancel,
            self.carry,
            self.carry,
            self.write,
            self.read,
        )
        self.random.choice(actions)()
        self.look()

    def post_send(self) -> None:
        side, key = self.random.randrange(2), TransferKey(self.random.randrange(6), 1)
        if (side, key) in self.sent:
            return
        memory = data(self.size_bytes(key), seed=side * 100 + key.tensor)
        self.sent[side, key] = memory, memory.copy()
        self.ends[side].send(outgoing(key, memory, layer=self.random.randrange(3)), 1)

    def post_receive(self) -> None:
        side, key = self.random.randrange(2), TransferKey(self.random.randrange(6), 1)
        if (side, key) in self.buffers:
            return
        buffer = self.buffers[side, key] = np.zeros(self.size_bytes(key), np.uint8)
        self.ends[1 - side].receive(incoming(key, buffer), 1)

    def size_bytes(self, key: TransferKey) -> int:
        return (key.tensor * 3001 + 1) * 4

    def cancel(self) -> None:
        if self.random.random() < 0.1:
            key = TransferKey(self.random.randrange(6), 1)
            self.random.choice(self.ends).cancel(key, self.random.choice(list(Direction)), "by chance", 1)

    def carry(self) -> None:
        side = self.random.randrange(2)
        self.control[1 - side] += self.ends[side].control_to_send()
        size_bytes = self.random.randrange(1, 200)
        piece = bytes(self.control[side][:size_bytes])
        del self.control[side][:size_bytes]
        self.ends[side].control_received(piece, 1)
        if not self.flows and all(each.peer is not None for each in self.ends):
            self.flows = [flow(*self.ends[::way]) for way in (1, -1) for _ in range(3)]

    def write(self) -> None:
        if self.flows:
            self.random.choice(self.flows).write(self.random.choice((1, 20, 21, 22, 5000, 20000)))

    def read(self) -> None:
        if self.flows:
            self.random.choice(self.flows).read(self.random.choice((1, 20, 21, 22, 5000, 20000)))

    def look(self) -> None:
        for side, connection in enumerate(self.ends):
            for event in connection.events():
                assert not isinstance(event, ConnectionLost), event.error
                if not isinstance(event, TransferDone):
                    continue
                self.results[side, event.key, event.direction] = event.error
                if event.direction is Direction.SEND:
                    self.sent[side, event.key][0][:] = 0  # the memory is the user's again
                else:
                    place = 1 - side, event.key
                    self.frozen[place] = self.buffers[place].copy()

    def settle(self) -> None:
        while True:
            for side in (0, 1):
                self.control[1 - side] += self.ends[side].control_to_send()
            said = [bytes(each) for each in self.control]
            self.control = [bytearray(), bytearray()]
            for side in (0, 1):
                self.ends[side].control_received(said[side], 1)
            moved = sum(run(*self.flows))
            self.look()
            if not moved and not any(said):
                return


@given(st.randoms(use_true_random=False), st.integers(0, 400))
def test_whatever_happens_tensors_are_whole_or_given_up(random: Random, steps: int) -> None:
    world = World(random)
    for _ in range(steps):
        world.step()
    for _ in range(4):
        world.carry()
        world.settle()
    for place, (_, original) in world.sent.items():
        side, key = place
        here = world.results.get((side, key, Direction.SEND), "open")
        there = world.results.get((1 - side, key, Direction.RECEIVE), "open")
        if place in world.buffers:
            assert here != "open"
            assert there != "open"
            assert here is None or isinstance(here, CancelledError)
            assert there is None or isinstance(there, CancelledError)
        if there is None:
            assert (world.frozen[place] == original).all()
    for place, frozen in world.frozen.items():
        assert (world.buffers[place] == frozen).all()


@pytest.mark.parametrize("direction", list(Direction))
def test_a_transfer_that_the_other_end_never_posted_has_no_statistics(direction: Direction) -> None:
    end, peer = greeted()
    if direction is Direction.SEND:
        end.send(outgoing(KEY, data(CHUNK_BYTES)), 1)
    else:
        end.receive(incoming(KEY, np.zeros(CHUNK_BYTES, np.uint8)), 1)
    talk(end, peer)
    end.cancel(KEY, direction, "too late", 1)
    (ended,) = done(end)
    assert (ended.statistics, ended.received, ended.layout) == (None, None, None)


def test_part_of_a_chunk_is_a_beginning() -> None:
    sender, receiver = greeted()
    buffer = np.zeros(CHUNK_BYTES, np.uint8)
    receiver.receive(incoming(KEY, buffer), 1)
    sender.send(outgoing(KEY, data(CHUNK_BYTES)), 1)
    talk(sender, receiver)
    frame = sender.next_frame(1)
    assert frame is not None
    reader = receiver.reader()
    space = memoryview(bytearray(b"".join(frame.parts()))[:24])
    while space:
        place = reader.spaces()[0]
        size = min(len(place), len(space))
        place[:size] = space[:size]
        receiver.received(reader, size, 1)
        space = space[size:]
    receiver.cancel(KEY, Direction.RECEIVE, "too late", 1)
    (ended,) = done(receiver)
    assert buffer.any(), "a test that writes nothing"
    assert ended.received is not None
    assert ended.layout is not None
    assert ended.statistics is not None
    assert ended.statistics.bytes_received == 0


@pytest.mark.parametrize(
    "written", [0, 1, 19, 20, 21, 20 + CHUNK_BYTES - 1, 20 + CHUNK_BYTES, 21 + CHUNK_BYTES]
)
def test_what_is_given_up_in_the_middle_leaves_no_memory_behind(written: int) -> None:
    sender, receiver = greeted()
    sent, buffer = data(CHUNK_BYTES), np.zeros(CHUNK_BYTES, np.uint8)
    receiver.receive(incoming(KEY, buffer), 1)
    sender.send(outgoing(KEY, sent), 1)
    talk(sender, receiver)
    frame = sender.next_frame(1)
    assert frame is not None
    wire = b"".join(frame.parts())[:written]
    frame.written(written)
    sender.cancel(KEY, Direction.SEND, "skipped", 1)
    secret = sent.copy()
    sent[:] = 0xEE
    rest = b"".join(frame.parts())
    assert b"\xee" not in rest
    wire += rest
    assert len(wire) == (21 + CHUNK_BYTES if written else 0)
    if 0 < written < 20 + CHUNK_BYTES:
        assert wire.endswith(GIVEN_UP)
        assert not any(wire[max(20, written) :])
    elif written:
        assert wire[20:] == secret.tobytes() + WHOLE


def test_chunks_of_what_has_ended_are_thrown_away() -> None:
    sender, receiver = greeted()
    buffer = np.zeros(3 * CHUNK_BYTES, np.uint8)
    receiver.receive(incoming(KEY, buffer), 1)
    sender.send(outgoing(KEY, data(3 * CHUNK_BYTES)), 1)
    talk(sender, receiver)
    way = flow(sender, receiver)
    way.write(1000)
    way.read(600)
    receiver.cancel(KEY, Direction.RECEIVE, "skipped", 1)
    buffer[:] = 5
    assert sum(run(way)) > 3 * CHUNK_BYTES
    assert (buffer == 5).all()
    assert receiver.late_packets == 3
    other = TransferKey(8, 1)
    receiver.receive(incoming(other, buffer), 1)
    sender.send(outgoing(other, data(3 * CHUNK_BYTES)), 1)
    talk(sender, receiver)
    list(run(way))
    assert (buffer == data(3 * CHUNK_BYTES)).all()


@pytest.mark.parametrize(
    ("offset_bytes", "size_bytes"),
    [
        (0, CHUNK_BYTES - 4),
        (4, CHUNK_BYTES),
        (CHUNK_BYTES, CHUNK_BYTES),
        (2 * CHUNK_BYTES, 8),
        (1 << 63, 8),
        (0, 0),
        (0, CHUNK_BYTES + 1),
        (0, (1 << 32) - 1),
    ],
)
def test_what_is_no_chunk_ends_the_connection(offset_bytes: int, size_bytes: int) -> None:
    _, receiver = greeted()
    buffer = np.zeros(CHUNK_BYTES + 8, np.uint8)
    receiver.receive(incoming(KEY, buffer), 1)
    way = flow(receiver, receiver)
    way.waiting += FrameHeader(KEY, offset_bytes, size_bytes).encode() + b"\xff" * 100
    way.read(1000)
    assert isinstance(lost(receiver), ProtocolViolationError)
    assert not buffer.any()


def test_a_chunk_comes_once() -> None:
    _, receiver = greeted()
    receiver.receive(incoming(KEY, np.zeros(CHUNK_BYTES + 8, np.uint8)), 1)
    way = flow(receiver, receiver)
    frame = FrameHeader(KEY, CHUNK_BYTES, 8).encode() + bytes(8) + WHOLE
    way.waiting += frame + frame
    way.read(1000)
    assert isinstance(lost(receiver), ProtocolViolationError)


def test_an_unknown_end_mark_ends_the_connection() -> None:
    _, receiver = greeted()
    way = flow(receiver, receiver)
    way.waiting += FrameHeader(KEY, 0, 8).encode() + bytes(8) + b"\x02"
    way.read(1000)
    assert "end mark 2" in str(lost(receiver))


@given(st.binary(max_size=300), st.data())
def test_bytes_without_sense(noise: bytes, choice: st.DataObject) -> None:
    _, receiver = greeted()
    guarded = np.zeros(3000, np.uint8)
    receiver.receive(incoming(TransferKey(0, 0), guarded[1000:2000]), 1)
    way = flow(receiver, receiver)
    way.waiting += (
        choice.draw(st.sampled_from([b"", FrameHeader(TransferKey(0, 0), 0, 1000).encode()])) + noise
    )
    while way.waiting and not receiver.is_over:
        way.read(choice.draw(st.integers(1, 100)))
    assert not guarded[:1000].any()
    assert not guarded[2000:].any()
    assert {type(event.error) for event in receiver.events() if isinstance(event, ConnectionLost)} <= {
        ProtocolViolationError
    }


@pytest.mark.parametrize("message", [Probe(KEY, 1, 0), Bitmap(KEY, 0, b"\0")])
def test_probes_and_bitmaps_are_of_the_other_transport(message: Message) -> None:
    sender, receiver = greeted()
    receiver.receive(incoming(KEY, np.zeros(8, np.uint8)), 1)
    sender.send(outgoing(KEY, data(8)), 1)
    talk(sender, receiver)
    target = receiver if isinstance(message, Probe) else sender
    target.control_received(encode_message(message), 1)
    assert isinstance(lost(target), ProtocolViolationError)


def test_transports_that_differ_are_named_at_both_ends() -> None:
    over_tcp, over_udp = end(1), datagram_connection(2)
    said = over_tcp.control_to_send(), over_udp.control_to_send()
    over_tcp.control_received(said[1], 1)
    over_udp.control_received(said[0], 1)
    (event,) = [event for event in over_udp.events() if isinstance(event, ConnectionLost)]
    errors = lost(over_tcp), event.error
    assert [type(error) for error in errors] == [PeerRefusedError] * 2
    assert "tcp here, mlt there" in str(errors[0])
    assert "mlt here, tcp there" in str(errors[1])


def test_a_hello_without_chunks_is_refused() -> None:
    ours, theirs = end(1), end(2)
    body = theirs.control_to_send()[5:].replace(b'"chunk_bytes": 4096', b'"chunk_bytes": 1000')
    ours.control_received(len(body + b".").to_bytes(4, "big") + b"\x01" + body, 1)
    assert "chunks of 1000 bytes" in str(lost(ours))


def test_a_broken_data_connection_ends_every_transfer() -> None:
    sender, receiver = greeted()
    receiver.receive(incoming(KEY, np.zeros(8, np.uint8)), 1)
    sender.send(outgoing(KEY, data(8)), 1)
    talk(sender, receiver)
    receiver.broken(PeerUnreachableError("a data connection broke"), "it broke", 1)
    talk(sender, receiver)
    for connection, peer in ((receiver, "host1"), (sender, "host2")):
        (event,) = done(connection)
        assert isinstance(event.error, PeerUnreachableError)
        assert f"peer {peer}, tensor 7, round 1" in str(event.error)
        assert not connection.has_frames
        assert connection.next_frame(1) is None


def test_a_class_that_fails_fails_its_transfer_alone() -> None:
    sender, receiver = greeted()
    other = TransferKey(8, 1)
    for key in (KEY, other):
        receiver.receive(incoming(key, np.zeros(8, np.uint8)), 1)
    good = outgoing(KEY, data(8))
    sender.send(Outgoing(KEY, good.tensor, 0, failing, good.policy, good.deadline_ns, 1), 1)
    sender.send(outgoing(other, data(8)), 1)
    talk(sender, receiver)
    list(run(flow(sender, receiver)))
    talk(sender, receiver)
    errors = {event.key: type(event.error) for event in done(sender)}
    assert errors == {KEY: TaggingError, other: type(None)}


def test_what_a_chunk_makes_its_receiver_say_has_its_time() -> None:
    sender, receiver = greeted()
    receiver.receive(incoming(KEY, np.zeros(8, np.uint8)), 1)
    talk(sender, receiver)
    way = flow(receiver, receiver)
    way.now_ns = LATER_NS
    way.waiting += FrameHeader(KEY, 0, 8).encode() + bytes(8) + WHOLE
    way.read(1000)
    assert receiver.next_timer_ns() == NUDGED_NS


def test_what_a_sender_gives_up_has_its_time() -> None:
    sender, receiver = greeted()
    receiver.receive(incoming(KEY, np.zeros(8, np.uint8)), 1)
    good = outgoing(KEY, data(8))
    sender.send(Outgoing(KEY, good.tensor, 0, failing, good.policy, good.deadline_ns, 1), 1)
    talk(sender, receiver)
    assert sender.next_frame(LATER_NS) is None
    assert sender.next_timer_ns() == NUDGED_NS


def test_sizes_that_differ() -> None:
    sender, receiver = greeted()
    receiver.receive(incoming(KEY, np.zeros(8, np.uint8)), 1)
    sender.send(outgoing(KEY, data(12)), 1)
    talk(sender, receiver)
    assert [type(event.error) for event in (*done(sender), *done(receiver))] == [TransferMismatchError] * 2
