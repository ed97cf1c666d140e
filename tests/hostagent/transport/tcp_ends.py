"""Two ends of the transport `tcp` over loopback: real sockets and loop, a control channel in memory."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast

import numpy as np

from mltswitch.hostagent.elements import memory_of
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.tagging.policies import ImportancePolicy
from mltswitch.hostagent.transport import tcp
from mltswitch.hostagent.transport.host import TransportHost
from mltswitch.hostagent.transport.records import AtDeadline, Completion, Moment, Receive, Send, StopRule
from mltswitch.hostagent.transport.tcp_frames import TcpSettings
from mltswitch.hostagent.transport.tcp_transfers import _Ticket

PATIENCE: Final = 20.0
SECOND: Final = 1_000_000_000
_Result = TypeVar("_Result")


class End:
    """One agent's end: what the core would be to the transport."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, settings: TcpSettings) -> None:
        self.name, self.loop = name, loop
        self.config: Any = SimpleNamespace(
            addresses=("127.0.0.1",), data_port=None, control_dscp=40, section=lambda _: settings
        )
        self.peer: End
        self.connection: tcp._Connection
        self.engine: tcp._Engine
        self.failures: list[AgentError] = []
        self.messages = threading.Semaphore(0)

    def post_sends(self, requests: Sequence[Send]) -> list[_Ticket]:
        return self.connection.post_sends(requests)

    def post_receives(self, requests: Sequence[Receive]) -> list[_Ticket]:
        return self.connection.post_receives(requests)

    def send_frame(self, peer: str, channel: str, body: dict[str, Any]) -> None:
        """Through JSON, as the control channel does, and later."""
        encoded = json.dumps(body)
        self.loop.call_soon(lambda: self.peer.deliver(json.loads(encoded)))

    def deliver(self, body: dict[str, Any]) -> None:
        """What the engine does with the peer's frames."""
        try:
            self.connection.frame_received(body)
        except AgentError as error:
            self.connection_failed(self.peer.name, error)

    def tell(self, event: object) -> None: ...

    def warn(self, text: str) -> None: ...

    def message_arrived(self, peer: str, channel: str) -> None:
        self.messages.release()

    def connection_failed(self, peer: str, error: AgentError) -> None:
        """The agent's answer: both ends close."""
        self.failures.append(error)
        self.connection.close(error)


class Ends:
    """A connected pair; `a` and `b` may both send."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ours: TcpSettings, theirs: TcpSettings) -> None:
        self.loop = loop
        self.a, self.b = End("a", loop, ours), End("b", loop, theirs)
        self.a.peer, self.b.peer = self.b, self.a

    def call(self, work: Callable[[], _Result]) -> _Result:
        """In the loop's thread."""

        async def run() -> _Result:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(PATIENCE)

    def open(self) -> None:
        for end in (self.a, self.b):
            end.engine = tcp._Engine(cast(TransportHost, end))

    def connect(self) -> None:
        offers = {end.name: end.engine.offer(end.peer.name, "default") for end in (self.a, self.b)}
        for end in (self.a, self.b):
            end.connection = end.engine.accept(
                end.peer.name, "default", offers[end.name], json.loads(json.dumps(offers[end.peer.name]))
            )

    def close(self) -> None:
        for end in (self.a, self.b):
            if hasattr(end, "connection"):
                end.connection.close(AgentError("closed"))
            if hasattr(end, "engine"):
                end.engine.close()


@contextmanager
def running_ends(
    settings: TcpSettings | None = None, theirs: TcpSettings | None = None, *, is_connected: bool = True
) -> Iterator[Ends]:
    """Closed at the end."""
    ours = settings or TcpSettings()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ends = Ends(loop, ours, theirs or ours)
    try:
        ends.call(ends.open)
        if is_connected:
            ends.call(ends.connect)
        yield ends
    finally:
        ends.call(ends.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


def send(data: object, tensor: int = 1, **changes: Any) -> Send:
    """As the agent fills it in."""
    layer = changes.get("layer", 0)
    values: dict[str, Any] = {"layer": layer, "priority": layer, "dscp": 34, "burst_packets": 0}
    values["importance"] = cast(ImportancePolicy, None)
    return Send(memory=memory_of(data), **(_of_both(tensor) | values | changes))


def receive(buffer: object, tensor: int = 1, **changes: Any) -> Receive:
    """As the agent fills it in."""
    values: dict[str, Any] = {"loss_bound": 0.0, "important_loss_bound": 1.0, "soft_ns": 0}
    values |= {"at_deadline": AtDeadline.FAIL, "stop": StopRule.PATIENT, "keep_missing": False}
    return Receive(memory=memory_of(buffer, writable=True), **(_of_both(tensor) | values | changes))


def _of_both(tensor: int) -> dict[str, Any]:
    times = {"deadline_ns": int(PATIENCE * SECOND), "deadline_from": Moment.POST}
    return {"tensor": tensor, "round_number": 0} | times


def posted(end: End, buffer: object, **changes: Any) -> _Ticket:
    """A receive that has said READY."""
    [receiving] = end.post_receives([receive(buffer, **changes)])
    until(lambda: receiving.number >= 0)
    return receiving


def until(condition: Callable[[], object]) -> None:
    """Bounded."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def completion(ticket: _Ticket) -> Completion:
    """Bounded."""
    assert ticket.wait(PATIENCE), ticket.request
    found = ticket.completion()
    assert found is not None
    return found


def floats(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """None is 0."""
    return np.random.default_rng(seed).uniform(1, 2, count).astype(np.float32)
