"""After a completion nothing of ours refers to a tensor's memory: it can be resized, closed and freed."""

import gc
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.credentials import Credentials
from mltswitch.hostagent.control.keys import make_keys
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.tls import load_identity
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.tcp.connection import TcpConnection
from mltswitch.hostagent.tcp.flows import OutgoingFlow
from mltswitch.hostagent.tcp.sending import ZEROS_BYTES
from mltswitch.hostagent.transport.interfaces import Direction, TransferDone, TransferKey
from mltswitch.wire import ElementType
from tests.hostagent.background import eventually
from tests.hostagent.tcp.ends import CHUNK_BYTES, end, flow, greeted, incoming, outgoing, run
from tests.hostagent.tcp.test_agents import (
    DSCP,
    LARGE,
    PATIENCE_SECONDS,
    flows,
    gradients,
    joined,
    settings,
)
from tests.hostagent.transport.ends import talk

KEY, OTHER = TransferKey(7, 1), TransferKey(8, 1)
SIZE_BYTES = 3 * CHUNK_BYTES
FALSE_RECORD = b"\x17\x03\x03\x00\x20" + bytes(32)
"""That no key of TLS has made."""


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """What only the collector of cycles would let go is held."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def bytes_of(memory: bytearray) -> Any:
    return np.frombuffer(memory, np.uint8)


def errors_of(connection: TcpConnection) -> list[AgentError | None]:
    return [event.error for event in connection.events() if isinstance(event, TransferDone)]


def check_free(memory: bytearray) -> None:
    memory.append(0)  # raises BufferError where somebody refers to it


def test_of_a_tensor_that_is_there() -> None:
    sender, receiver = greeted()
    sent, buffer = bytearray(b"x" * SIZE_BYTES), bytearray(SIZE_BYTES)
    receiver.receive(incoming(KEY, bytes_of(buffer)), 1)
    sender.send(outgoing(KEY, bytes_of(sent)), 1)
    talk(sender, receiver)
    way = flow(sender, receiver)
    list(run(way))
    talk(sender, receiver)
    assert errors_of(receiver) == errors_of(sender) == [None]
    assert buffer == sent
    check_free(buffer)
    check_free(sent)


@pytest.mark.parametrize("read_bytes", [CHUNK_BYTES // 2, 20 + CHUNK_BYTES, 21 + CHUNK_BYTES + 20])
def test_of_a_receiver_that_gives_up_within_a_chunk(read_bytes: int) -> None:
    sender, receiver = greeted()
    buffer = bytearray(SIZE_BYTES)
    receiver.receive(incoming(KEY, bytes_of(buffer)), 1)
    sender.send(outgoing(KEY, np.ones(SIZE_BYTES, np.uint8)), 1)
    talk(sender, receiver)
    way = flow(sender, receiver)
    way.write(SIZE_BYTES)
    way.write(SIZE_BYTES)
    way.read(read_bytes)
    receiver.cancel(KEY, Direction.RECEIVE, "no longer wanted", 1)
    check_free(buffer)
    held = bytes(buffer)
    list(run(way))
    assert bytes(buffer) == held


def test_of_a_sender_that_gives_up_within_a_chunk() -> None:
    sender, receiver = greeted()
    sent, buffer = bytearray(b"x" * SIZE_BYTES), np.zeros(SIZE_BYTES, np.uint8)
    receiver.receive(incoming(KEY, buffer), 1)
    sender.send(outgoing(KEY, bytes_of(sent)), 1)
    talk(sender, receiver)
    way = flow(sender, receiver)
    way.write(CHUNK_BYTES // 2)
    sender.cancel(KEY, Direction.SEND, "no longer wanted", 1)
    check_free(sent)


def test_of_a_sender_that_gives_up_behind_another() -> None:
    sender, receiver = greeted()
    sent = bytearray(b"x" * SIZE_BYTES)
    for number, key in enumerate((OTHER, KEY)):
        receiver.receive(incoming(key, np.zeros(SIZE_BYTES, np.uint8)), 1)
        memory = bytes_of(sent) if key == KEY else np.ones(SIZE_BYTES, np.uint8)
        sender.send(outgoing(key, memory, layer=number), 1)
    del memory
    talk(sender, receiver)
    way = flow(sender, receiver)
    way.write(CHUNK_BYTES // 2)
    sender.cancel(KEY, Direction.SEND, "no longer wanted", 1)
    check_free(sent)
    list(run(way))
    talk(sender, receiver)
    assert errors_of(receiver).count(None) == errors_of(sender).count(None) == 1


def test_what_fills_a_long_chunk_is_zeros() -> None:
    size_bytes = 5 * ZEROS_BYTES + 4
    both = end(1, chunk_bytes=size_bytes), end(2, chunk_bytes=size_bytes)
    sender, receiver = both
    talk(*both)
    sent, buffer = np.ones(size_bytes, np.uint8), np.zeros(size_bytes, np.uint8)
    receiver.receive(incoming(KEY, buffer), 1)
    sender.send(outgoing(KEY, sent), 1)
    talk(*both)
    way = flow(*both)
    way.write(20 + 10)
    sender.cancel(KEY, Direction.SEND, "no longer wanted", 1)
    assert sum(run(way)) == (size_bytes - 10 + 1) + (20 + size_bytes + 1)
    assert buffer[:10].all()
    assert not buffer[10:].any()
    talk(*both)
    after = np.zeros(8, np.uint8)
    receiver.receive(incoming(OTHER, after), 1)
    sender.send(outgoing(OTHER, np.ones(8, np.uint8)), 1)
    talk(*both)
    list(run(way))
    assert after.all()


def test_at_once_and_not_when_something_else_arrives() -> None:
    with (
        Agent(settings("host-a", ("127.0.0.91",))) as first,
        Agent(settings("host-b", ("127.0.0.92",))) as second,
    ):
        sender, receiver = joined(first, second)
        buffer = bytearray(4_000_000)
        data = gradients(1_000_000)
        there = receiver.post_recv(
            "host-a", buffer, tensor=1, round_number=1, element_type=ElementType.FLOAT32
        )
        here = sender.post_send("host-b", data, tensor=1, round_number=1, dscp=DSCP)
        there.wait(PATIENCE_SECONDS)
        here.wait(PATIENCE_SECONDS)
        held = weakref.ref(data)
        del data

        def is_free() -> bool:
            try:
                buffer.append(0)
            except BufferError:
                return False
            return held() is None

        eventually(is_free)
        assert np.frombuffer(buffer, np.float32, 1_000_000).any()


@pytest.mark.parametrize("said", [None, FALSE_RECORD], ids=["closed", "false"])
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_of_a_data_connection_that_breaks(tmp_path: Path, is_tls: bool, said: bytes | None) -> None:
    options: list[dict[str, Any]] = [{"security": Plaintext()}, {"security": Plaintext()}]
    if is_tls:
        now = datetime.now(UTC)
        made = make_keys(
            tmp_path / "job", {"host-a": [], "host-b": []}, days=1, authority_days=2, now=now
        ).hosts
        options = [
            {"security": load_identity(Credentials.in_folder(host.folder)), "authenticate": True}
            for host in made
        ]
    with (
        Agent(settings("host-a", ("127.0.0.93",), **options[0])) as first,
        Agent(settings("host-b", ("127.0.0.94",), **options[1])) as second,
    ):
        sender, receiver = joined(first, second)
        data, buffer = gradients(LARGE), np.zeros(LARGE, np.float32)
        there = receiver.post_recv("host-a", buffer, tensor=1, round_number=1)
        chunks, is_broken = count(), threading.Event()

        def dscp_of_chunk() -> int:
            if next(chunks) == 2:  # some have left, and others will not
                is_broken.wait(PATIENCE_SECONDS)
            return DSCP

        here = sender.post_send("host-b", data, tensor=1, round_number=1, dscp=dscp_of_chunk)
        eventually(buffer.any)  # type: ignore[arg-type]  # numpy's truth value is one
        (way,) = flows(sender, OutgoingFlow)
        opened = way._pipe.kernel_socket
        if said is not None:
            with suppress(BlockingIOError):
                opened.send(said)
        with suppress(OSError):  # the other end may have closed it already
            opened.shutdown(socket.SHUT_WR)
        is_broken.set()
        del way, opened
        for transfer in (here, there):
            with pytest.raises(AgentError):
                transfer.wait(PATIENCE_SECONDS)
        held = [weakref.ref(data), weakref.ref(buffer)]
        del data, buffer
        eventually(lambda: not any(each() is not None for each in held))
