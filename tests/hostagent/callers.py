"""Calls of the control channel that no agent makes: what is said is chosen byte by byte."""

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.transport.hello import KEY_BYTES, LocalEnd, PathAddress, Secrets, encode_hello
from mltswitch.hostagent.transport.messages import Hello, encode_message
from tests.hostagent.background import eventually

PATIENCE_SECONDS = 30.0


def listening(agent: Agent) -> Endpoint:
    assert agent.listening_at is not None
    return agent.listening_at


def hello(name: str, token: int) -> bytes:
    """What an agent of this name says first, in plain text."""
    paths = (PathAddress(0, "127.0.99.1", 9999),)
    local = LocalEnd(
        name, paths, window_bytes=100_000, payload_bytes=1400, authenticate=False, control_dscp=40
    )
    return encode_message(Hello(encode_hello(local, Secrets(token, bytes(KEY_BYTES)))))


def called(agent: Agent, words: bytes) -> socket.socket:
    """A stranger's call, and what it says."""
    there = listening(agent)
    opened = socket.create_connection((str(there.ip), there.port))
    opened.settimeout(PATIENCE_SECONDS)
    opened.sendall(words)
    return opened


def answered(agent: Agent, words: bytes) -> bytes:
    """All that such a caller hears until it is left."""
    with called(agent, words) as caller:
        heard = b""
        while more := caller.recv(1000):
            heard += more
        return heard


@contextmanager
def calling_in_vain(agent: Agent, name: str) -> Iterator[tuple["Future[None]", Callable[[], None]]]:
    """Its attempt to connect with a peer of this name, which somebody takes who says nothing; and what ends
    that."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        nobody = Endpoint("127.0.0.1", silent.getsockname()[1])
        calling = pool.submit(agent.connect, name, nobody, PATIENCE_SECONDS)
        taken, _ = silent.accept()
        with taken:
            eventually(lambda: any(link.channel.is_open for link in agent._engine._roster.links))
            yield calling, taken.close
