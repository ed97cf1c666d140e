"""Agents on loopback, alone or connected, and peers that say on the control channel what a test wants."""

import ctypes
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent import Agent, AgentConfig, Completion, Endpoint
from mltswitch.hostagent.telemetry.events import AgentEvent, Observer

PATIENCE_SECONDS: Final = 60.0
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
"""Of Linux (socket(7))."""
SO_NO_CHECK = 11
SENDER, RECEIVER = "worker", "server"
SLOW: Final[dict[str, Any]] = {"line_rate": "20Mbps", "mtu_bytes": 1500}
"""Fields of an agent that sends a megabyte in half a second."""


class Make(Protocol):
    """Opens agents on loopback that are closed when the test ends."""

    def __call__(
        self,
        name: str,
        *,
        admit: Callable[[str], str | None] | None = None,
        observers: Sequence[Observer] = (),
        **fields: Any,
    ) -> Agent: ...


@contextmanager
def opening() -> Iterator[Make]:
    """With any free port, unless the fields say another one."""
    with ExitStack() as stack:

        def make(name: str, *, admit: Any = None, observers: Sequence[Observer] = (), **fields: Any) -> Agent:
            config = AgentConfig(name=name, **{"listen": "127.0.0.1:0"} | fields)
            return stack.enter_context(Agent(config, admit=admit, observers=observers))

        yield make


def connect(caller: Agent, called: Agent) -> None:
    """Both know it."""
    caller.connect(called.name, called.listening_at, timeout_seconds=PATIENCE_SECONDS)
    called.wait_for_peers([caller.name], PATIENCE_SECONDS)


def joined(make: Make, **fields: Any) -> tuple[Agent, Agent]:
    """A sender and a receiver with the same fields."""
    sender, receiver = make(SENDER, **fields), make(RECEIVER, **fields)
    connect(sender, receiver)
    return sender, receiver


def values(count: int = 100_003, seed: int = 1) -> NDArray[np.float32]:
    """None of them 0."""
    found = np.random.default_rng(seed).standard_normal(count).astype(np.float32)
    found[found == 0] = 1
    return found


def exchange(
    sender: Agent,
    receiver: Agent,
    *,
    tensor: int = 1,
    round_number: int = 0,
    data: Any = None,
    **options: Any,
) -> tuple[Completion, Completion]:
    """One tensor that must arrive whole."""
    original = values(5000) if data is None else data
    buffer = np.full_like(original, 7)
    there = receiver.post_receive(sender.name, buffer, tensor=tensor, round_number=round_number)
    here = sender.post_send(receiver.name, original, tensor=tensor, round_number=round_number, **options)
    ended = here.wait(PATIENCE_SECONDS), there.wait(PATIENCE_SECONDS)
    assert (buffer == original).all()
    return ended


@contextmanager
def cutting_no_bursts(agent: Agent) -> Iterator[None]:
    """The kernel answers EINVAL to bursts of an agent over IPv4, as older ones do where an MTU has fallen."""
    places = _places(agent, None)
    held = [entry for entry in _datagram_sockets() if entry.getsockname()[:2] in places]
    try:
        for value in (1, 0):
            for entry in held:
                entry.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, value)  # a burst needs its checksums
            if value:
                yield
    finally:
        for entry in held:
            entry.close()


@contextmanager
def losing(agent: Agent, share: float, address: str | None = None) -> Iterator[None]:
    """Data sockets of an agent, or that of one path, drop so many of the datagrams that come, by chance.

    The kernel drops by a filter of the socket; each burst is one datagram to it.
    """
    places = _places(agent, address)
    held = {entry.getsockname()[:2]: entry for entry in _datagram_sockets()}
    held = {place: entry for place, entry in held.items() if place in places}
    assert len(held) == len(places)
    random, none, all_of_it = 0xFFFFF000 + 56, 0, 0xFFFFFFFF
    program = [
        (0x20, 0, 0, random),
        (0x35, 1, 0, int(share * all_of_it)),
        (6, 0, 0, none),
        (6, 0, 0, all_of_it),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    try:
        for entry in held.values():
            entry.setsockopt(
                socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code))
            )
        yield
    finally:
        for entry in held.values():
            entry.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
            entry.close()


def _places(agent: Agent, address: str | None) -> set[tuple[str, int]]:
    planes = [engine.plane for engine in agent.engine.peers.transports.values() if hasattr(engine, "plane")]
    return {(place, port) for _, place, port in planes[0].sockets if address in {None, place}}


def _datagram_sockets() -> Iterator[socket.socket]:
    """Second handles of those of this process."""
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208  (names are numbers)
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{entry}").startswith("socket:"):  # noqa: PTH115
                found = socket.socket(fileno=os.dup(int(entry)))
                if found.type is socket.SOCK_DGRAM and found.family is not socket.AF_UNIX:
                    yield found


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[AgentEvent] = []

    def observe(self, event: AgentEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[AgentEvent]) -> list[Any]:
        """In order."""
        return [event for event in self.events if isinstance(event, kind)]


class RawPeer:
    """One end of a control connection, without an agent behind it."""

    def __init__(self, at: Endpoint, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(
            (at.address, at.port), timeout=PATIENCE_SECONDS, source_address=(source, 0)
        )

    def say(self, frame: dict[str, Any]) -> None:
        body = json.dumps(frame).encode()
        self.socket.sendall(len(body).to_bytes(4, "big") + body)

    def hear(self) -> dict[str, Any] | None:
        """The next frame; None: the connection has ended."""
        length = self._exactly(4)
        if length is None:
            return None
        body = self._exactly(int.from_bytes(length, "big"))
        return None if body is None else dict(json.loads(body))

    def ends(self) -> bool:
        """Whether nothing but frames come, and then the end."""
        while self.hear() is not None:
            pass
        return True

    def _exactly(self, count: int) -> bytes | None:
        found = b""
        while len(found) < count:
            try:
                part = self.socket.recv(count - len(found))
            except ConnectionResetError:
                part = b""
            if not part:
                return None
            found += part
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


def hello(name: str, **changes: Any) -> dict[str, Any]:
    """With one good channel; nobody is at its data address."""
    return {
        "type": "hello",
        "versions": [2],
        "name": name,
        "software": "a test",
        "capabilities": ["what nobody knows"],
        "channels": {"default": {"transport": "mlt", "parameters": offer()}},
    } | changes


def offer(**changes: Any) -> dict[str, Any]:
    """Of the transport mlt."""
    return {
        "token": 7,
        "paths": [{"address": "127.0.0.1", "port": 9}],
        "datagram_bytes": 1472,
        "window_bytes": 1 << 20,
        "authenticate": False,
        "key": "00" * 16,
        "salt": "00" * 4,
        "of a later version": 1,
    } | changes


@contextmanager
def acquainted(agent: Agent, name: str, **changes: Any) -> Iterator[RawPeer]:
    """A raw peer whose HELLO has been answered."""
    with RawPeer(agent.listening_at) as peer:
        peer.say(hello(name, **changes))
        answer = peer.hear()
        assert answer is not None
        assert answer["type"] == "hello", answer
        agent.wait_for_peers([name], PATIENCE_SECONDS)
        yield peer


@contextmanager
def acquainted_or_refused(agent: Agent, channels: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What an agent says after its own HELLO to one with these channels."""
    with RawPeer(agent.listening_at) as peer:
        peer.say(hello("stranger", channels=channels))
        peer.hear()
        answer = peer.hear()
        assert answer is not None
        assert peer.ends()
        yield answer
