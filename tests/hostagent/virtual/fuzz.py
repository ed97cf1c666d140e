"""Bytes without sense for everything that reads bytes from the network.

The promise: a codec gives what the bytes say or raises WireFormatError (ProtocolViolationError for a HELLO).
A connection raises nothing at all: what it makes of a peer without sense is events with an AgentError. It
holds no more memory than its caps allow, writes nowhere but into tensors that are being received, and answers
datagrams with fewer bytes than it got.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from mltswitch.hostagent.errors import AgentError, ProtocolViolationError
from mltswitch.hostagent.tagging import AllImportant
from mltswitch.hostagent.tensor.bitmap import decode_bitmap
from mltswitch.hostagent.tensor.layout import MAXIMUM_PACKETS
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.hostagent.transport import messages
from mltswitch.hostagent.transport.authentication import tag
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.datagrams import HEADER_DTYPE
from mltswitch.hostagent.transport.hello import decode_hello
from mltswitch.hostagent.transport.interfaces import (
    ConnectionLost,
    Event,
    Incoming,
    Outgoing,
    PeerReady,
    TransferDone,
    TransferKey,
)
from mltswitch.hostagent.transport.messages import MessageReader, encode_message
from mltswitch.wire import AgentHeader, ElementType, WireFormatError
from mltswitch.wire.headers import AGENT_VERSION
from tests.hostagent.virtual.campaign import Failure
from tests.hostagent.virtual.ends import connections
from tests.hostagent.virtual.footprint import footprint
from tests.hostagent.virtual.grids import Arrived, grids
from tests.hostagent.virtual.mutations import message, mutated, number
from tests.hostagent.virtual.scenario import SECOND, Dice, Kind, random_pair

MOST_WAITING_BYTES = MAXIMUM_PACKETS // 8 + 64
"""Of one message that has not ended: the longest one is a bitmap."""
MOST_MEMORY_BYTES = 8 * 1024 * 1024
MOST_OBJECTS = 50_000
MOST_CONTROL_BYTES = 1024 * 1024
INPUTS_A_CONNECTION = 200
KEYS = tuple(TransferKey(tensor, round_number) for tensor in (0, 1) for round_number in (1, 2))
GUARD_BYTES = 32


@dataclass(slots=True)
class FuzzTally:
    """What many inputs came to."""

    inputs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: "FuzzTally") -> None:
        """Take another's inputs to these."""
        self.inputs += other.inputs
        self.refused += other.refused
        self.failures += other.failures

    def figures(self) -> dict[str, float]:
        """One flat object."""
        return {
            "fuzz_inputs": sum(self.inputs.values()),
            "fuzz_failures": len(self.failures),
            **{f"inputs_{name}": count for name, count in sorted(self.inputs.items())},
            **{f"refused_{name}": count for name, count in sorted(self.refused.items())},
        }


def fuzz(seed: int, inputs: int) -> FuzzTally:
    """About so many inputs, from one seed."""
    random, found = Random(seed), FuzzTally()  # noqa: S311  (no secret)
    parts: tuple[tuple[float, Callable[[Random, int, FuzzTally], None]], ...] = (
        (0.2, fuzz_messages),
        (0.05, fuzz_hello),
        (0.1, fuzz_headers),
        (0.05, fuzz_bitmaps),
        (0.2, fuzz_control),
        (0.4, fuzz_datagrams),
    )
    for share, part in parts:
        try:
            part(random, round(inputs * share), found)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
            *where, what = traceback.format_exception(error)
            found.failures.append(Failure(seed, part.__name__, what.strip(), "".join(where)))
    return found


def fuzz_messages(random: Random, inputs: int, found: FuzzTally) -> None:
    """The reader of control messages: whole or cut anywhere."""
    reader = MessageReader()
    for _ in range(inputs):
        found.inputs["messages"] += 1
        data = encoded(random) if random.random() < 0.9 else random.randbytes(random.randint(0, 60))
        try:
            for piece in pieces(random, data):
                for read in reader.messages(piece):
                    assert encode_message(read), "a message that cannot be written again"
                assert reader.waiting_bytes <= MOST_WAITING_BYTES
        except WireFormatError:
            found.refused["messages"] += 1
            reader = MessageReader()
        if reader.waiting_bytes > 10_000:
            reader = MessageReader()


def encoded(random: Random, named: TransferKey | None = None) -> bytes:
    """A message as it is sent; most are changed."""
    try:
        data = encode_message(message(random, named))
    except (ValueError, OverflowError):
        return random.randbytes(9)
    return mutated(random, data) if random.random() < 0.7 else data


def pieces(random: Random, data: bytes) -> Iterator[bytes]:
    """The data whole, byte by byte where it is short, or in a few pieces."""
    small = max(1, len(data) // 100)
    step = random.choice((len(data) or 1, len(data) or 1, small, small * random.randint(1, 9)))
    for first in range(0, len(data), step):
        yield data[first : first + step]


def fuzz_hello(random: Random, inputs: int, found: FuzzTally) -> None:
    """Bodies of a HELLO: JSON of a peer."""
    body = _control_of(connections(random_pair(Dice(1), Kind.BENIGN), 0, random)[0])[5:]
    for _ in range(inputs):
        found.inputs["hello"] += 1
        try:
            decode_hello(mutated(random, body))
        except ProtocolViolationError as error:
            found.refused["hello"] += 1
            assert len(str(error)) < 500, "an error as long as what the peer sent"


def fuzz_headers(random: Random, inputs: int, found: FuzzTally) -> None:
    """The agent header of single packets."""
    for _ in range(inputs):
        found.inputs["headers"] += 1
        try:
            AgentHeader.decode(
                mutated(random, bytes([AGENT_VERSION]) + random.randbytes(random.choice((39, 60))))
            )
        except WireFormatError:
            found.refused["headers"] += 1


def fuzz_bitmaps(random: Random, inputs: int, found: FuzzTally) -> None:
    """Bitmaps of a known number of packets."""
    for _ in range(inputs):
        found.inputs["bitmaps"] += 1
        packets = random.randint(1, 100)
        try:
            size = -(-packets // 8) if random.random() < 0.8 else random.randint(0, 14)
            assert decode_bitmap(random.randbytes(size), packets).shape == (packets,)
        except WireFormatError:
            found.refused["bitmaps"] += 1


class Victim:
    """A connection with open transfers both ways, and a peer that has said hello and then loses its mind."""

    def __init__(self, random: Random) -> None:
        self.random, self.now_ns = random, 0
        pair = replace(
            random_pair(Dice(random.getrandbits(32)), Kind.BENIGN),
            authenticate=(random.random() < 0.3, False),
        )
        self.end, self.peer = connections(pair, 0, random)
        for _ in range(3):
            ours, theirs = _control_of(self.end), _control_of(self.peer)
            self.peer.control_received(ours, 0)
            self.end.control_received(theirs, 0)
        assert any(isinstance(event, PeerReady) for event in self.end.events())
        assert self.peer.peer is not None
        self.authenticates, self.key = any(pair.authenticate), self.peer.peer.key_bytes
        self.lost = False
        self.guarded = [np.full(4000 + 2 * GUARD_BYTES, 0xA7, np.uint8) for _ in KEYS]
        sent = np.frombuffer(random.randbytes(4000), np.uint8)
        for key, guarded in zip(KEYS, self.guarded, strict=True):
            buffer = TensorView(guarded[GUARD_BYTES:-GUARD_BYTES], ElementType.FLOAT32)
            self.end.receive(Incoming(key, buffer, 0.1, None, False, 100 * SECOND), 0)
            outgoing = TensorView(sent, ElementType.FLOAT32)
            self.end.send(Outgoing(key, outgoing, 0, lambda: 10, AllImportant(), 100 * SECOND, 4), 0)

    def rest(self) -> int:
        """Take what it wants to send; the bytes of answers to datagrams."""
        self.now_ns += self.random.choice((0, 1000, 1_000_000, 30_000_000))
        self.end.timer(self.now_ns)
        rounds = 0
        while self.end.bursts(self.now_ns, 64) is not None:
            rounds += 1
            assert rounds < 1000, "no end of bursts"
        self.end.markers_to_send(self.now_ns)
        answers = sum(len(datagram.payload) for datagram in self.end.datagrams_to_send(self.now_ns))
        assert len(self.end.control_to_send()) < MOST_CONTROL_BYTES
        self.look(self.end.events())
        self.end.next_timer_ns()
        return answers

    def look(self, events: list[Event]) -> None:
        """No event carries anything but an AgentError."""
        for event in events:
            if isinstance(event, TransferDone):
                assert event.error is None or isinstance(event.error, AgentError)
            elif isinstance(event, ConnectionLost):
                assert isinstance(event.error, AgentError)
                self.lost = True

    def check(self) -> None:
        """What must hold at the end."""
        for guarded in self.guarded:
            assert (guarded[:GUARD_BYTES] == 0xA7).all(), "bytes before the tensor have changed"
            assert (guarded[-GUARD_BYTES:] == 0xA7).all(), "bytes behind the tensor have changed"
        objects, size_bytes = footprint(self.end)
        assert objects < MOST_OBJECTS, f"{objects} objects"
        assert size_bytes < MOST_MEMORY_BYTES, f"{size_bytes} bytes"


def _control_of(end: Connection) -> bytes:
    data: bytes = end.control_to_send()
    return data


def fuzz_control(random: Random, inputs: int, found: FuzzTally) -> None:
    """A connection whose peer says anything on the control channel."""
    left = inputs
    while left > 0:
        victim = Victim(random)
        for _ in range(INPUTS_A_CONNECTION):
            left -= 1
            found.inputs["control"] += 1
            # Messages in order first, or the connection would end at once.
            about = random.choice((*KEYS, None))
            data = encode_well(random, about) if random.random() < 0.95 else encoded(random, about)
            for piece in pieces(random, data):
                victim.end.control_received(piece, victim.now_ns)
            victim.rest()
            if victim.lost:
                found.refused["control"] += 1
                break
        with suppress(AgentError):
            victim.end.close("enough", victim.now_ns)
        victim.rest()
        victim.check()


def encode_well(random: Random, named: TransferKey | None) -> bytes:
    """A well-formed message that does not end the connection by itself."""
    while True:
        made = message(random, named)
        if isinstance(made, messages.Hello | messages.Goodbye):
            continue
        try:
            return encode_message(made)
        except (ValueError, OverflowError):
            continue


def fuzz_datagrams(random: Random, inputs: int, found: FuzzTally) -> None:
    """A connection that gets datagrams with its token and anything else, some with the right tag."""
    left = inputs
    while left > 0:
        victim = Victim(random)
        for _ in range(10):
            arrived = [datagram(random, victim) for _ in range(random.randint(1, INPUTS_A_CONNECTION // 5))]
            left -= len(arrived)
            found.inputs["datagrams"] += len(arrived)
            got = sum(len(payload) for payload, _, _ in arrived)
            for _, grid in grids(sorted(arrived, key=lambda entry: len(entry[0])), random, 8):
                victim.end.datagrams_received([grid], victim.now_ns)
                grid.memory[:] = 0xEE
            answers = victim.rest()
            assert answers <= max(got, 256), f"{answers} bytes of answers to {got}"
        victim.check()


def datagram(random: Random, victim: Victim) -> Arrived:
    """With the right token; its fields near what a peer would send, or not at all."""
    header = np.zeros(1, HEADER_DTYPE)[0]
    header["version"] = AGENT_VERSION if random.random() < 0.95 else number(random, 8)
    header["kind"] = random.choice((1, 1, 1, 2, 2, 3, number(random, 8)))
    header["flags"] = random.choice((0, 1, 3, 8, 9, number(random, 8)))
    header["element_type"] = random.choice((1, 1, 1, number(random, 8)))
    header["flow_token"] = victim.end.receive_token if random.random() < 0.98 else random.getrandbits(64)
    key = random.choice(KEYS)
    header["tensor"] = key.tensor if random.random() < 0.9 else number(random, 32)
    header["round"] = key.round_number if random.random() < 0.9 else number(random, 32)
    header["layer"], header["path"] = number(random, 16), number(random, 16)
    header["sequence"] = random.randrange(300) if random.random() < 0.9 else number(random, 32)
    header["element_offset"] = (
        int(header["sequence"]) * random.randint(1, 20) % (1 << 32)
        if random.random() < 0.7
        else number(random, 32)
    )
    header["sent_nanoseconds"] = random.choice((victim.now_ns, number(random, 64)))
    size = random.choice((0, 4, 8, 20, 20, 24, random.randrange(300)))
    payload = header.tobytes() + random.randbytes(size)
    if random.random() < 0.1:
        payload = payload[: random.randint(12, len(payload))]
    if victim.authenticates and random.random() < 0.5:
        payload += tag(victim.key, payload)
    return payload, random.randrange(256), random.randrange(2)
