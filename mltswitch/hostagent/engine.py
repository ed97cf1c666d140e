"""The agent's thread: an asyncio loop that accepts and makes connections, keeps peers, and handles events.

No tensor passes through this thread.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError as FutureCancelledError
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from mltswitch.errors import UserInputError
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.connector import Connector
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerUnreachableError,
)
from mltswitch.hostagent.protocol.frames import Goodbye, TransportFrame
from mltswitch.hostagent.protocol.handshake import goodbye_for
from mltswitch.hostagent.security.tls import TlsIdentity
from mltswitch.hostagent.session import Peers, Session, guarded
from mltswitch.hostagent.telemetry.events import (
    AgentEnded,
    AgentEvent,
    Observer,
    TransferEnded,
    Warned,
)
from mltswitch.hostagent.telemetry.snapshot import COMPLETED, EndedTransfers
from mltswitch.hostagent.transport.description import Connection
from mltswitch.hostagent.transport.records import Completion
from mltswitch.hostagent.waiting import wait_in_slices

_log: Final = logging.getLogger(__name__)
_Result = TypeVar("_Result")

STOP_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 1.0
SETTLE_PAUSE_SECONDS: Final = 0.001


class Engine:
    """The thread of one agent with its sessions and transports; call `start` before anything else.

    Args:
        config: the agent's settings, resolved.
        identity: this host's TLS identity; None: connections are not encrypted.
        admit: returns why a peer that calls is refused; None or an empty text: it is accepted.
    """

    def __init__(
        self,
        config: AgentConfig,
        name: str,
        identity: TlsIdentity | None,
        admit: Callable[[str], str | None] | None,
        observers: tuple[Observer, ...],
    ) -> None:
        self.config: Final = config
        self.name: Final = name
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.peers: Final = Peers(name, self.tell)
        self.warnings: list[str] = []
        self.ended: Final = EndedTransfers()
        self.listening_at = Endpoint("127.0.0.1", 0)
        self.connector: Final = Connector(self.peers, config.control_dscp, identity, admit)
        self._observers: list[tuple[Observer, tuple[type[AgentEvent], ...]]] = []
        """Each with the kinds of events that it wants."""
        for observer in observers:
            self.observe(observer)
        self.readers: dict[str, Callable[[str], object]] = {}
        """By channel, who is called with the peer whose message has arrived, in the engine's thread."""
        self.is_closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"mltswitch-{name}", daemon=True)

    # Doors for other threads

    def start(self, listen: Endpoint) -> None:
        """Start the thread and listen for peers; raises MachineError or UserInputError."""
        self._thread.start()
        try:
            self.listening_at = self.run(self.connector.listen(listen), STOP_SECONDS)
        except BaseException:
            self.stop()
            raise

    def run(self, work: Coroutine[Any, Any, _Result], timeout_seconds: float) -> _Result:
        """Run a coroutine in the engine's thread and wait for its result; raises what it raises,
        DeadlineExceededError, or CancelledError once the agent is closed."""
        future: Future[_Result] | None = None
        try:
            self.check_wait()
            if not self.is_closed:
                with suppress(RuntimeError):  # the loop has been closed meanwhile
                    future = asyncio.run_coroutine_threadsafe(work, self.loop)
        finally:
            if future is None:
                work.close()
        if future is None:
            raise CancelledError("the agent is closed")
        try:
            if not wait_in_slices(lambda left: wait_for_futures([future], left).done, timeout_seconds):
                future.cancel()
                raise DeadlineExceededError(f"no answer within {timeout_seconds:g} s")
            return future.result()
        except FutureCancelledError:
            raise CancelledError("the agent is closed") from None

    def soon(self, call: Callable[[], object]) -> None:
        """Call a function in the engine's thread, soon; it is not called once the agent is closed."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(call)

    def wait_for_change(self, is_so: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait until `is_so` holds, False after the timeout; the caller holds the condition `changed`."""
        return wait_in_slices(partial(self.peers.changed.wait_for, is_so), timeout_seconds)

    def check_wait(self) -> None:
        """Raises UserInputError in a thread that must not wait, such as the engine's own."""
        if threading.get_ident() == self._thread.ident:
            raise UserInputError("would wait for itself", where="the agent's own thread")
        self._check_process()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise UserInputError(
                "belongs to the process that opened it", where="agent", hint="open one in each process"
            )

    def connection(self, peer: str, channel: str, timeout_seconds: float) -> Connection:
        """A connected peer's connection on a channel; waits until the peer has declared the channel.

        Raises PeerUnreachableError, DeadlineExceededError.
        """
        self._check_process()
        found = self.peers.connections.get((peer, channel))
        if found is not None:
            return found
        self.check_wait()
        with self.peers.changed:
            self.wait_for_change(
                lambda: (peer, channel) in self.peers.connections or peer not in self.peers.sessions,
                timeout_seconds,
            )
            if (peer, channel) in self.peers.connections:
                return self.peers.connections[peer, channel]
            if peer in self.peers.sessions:
                raise DeadlineExceededError(f"has not declared channel {channel}", peer=peer)
            why = f": {self.peers.lost[peer][0]}" if peer in self.peers.lost else ""
        what = "the agent is closed" if self.is_closed else f"is not connected{why}"
        raise PeerUnreachableError(what, peer=peer)

    def stop(self) -> None:
        """Say goodbye to all peers and close everything, in STOP_SECONDS; in a forked child do nothing."""
        if os.getpid() != self._process:
            return
        self.check_wait()
        if not self.is_closed and self._thread.is_alive():
            self.is_closed = True
            future = asyncio.run_coroutine_threadsafe(self._stop(), self.loop)
            with suppress(AgentError, TimeoutError):
                future.result(STOP_SECONDS)
            self.soon(self.loop.stop)
            self._thread.join(STOP_SECONDS)
        self.is_closed = True
        with self.peers.changed:
            self.peers.changed.notify_all()

    def connect(self, peer: str, remote: Endpoint, timeout_seconds: float) -> None:
        """Connect with a peer, trying again until the timeout; raises the last attempt's error."""
        until = time.monotonic() + timeout_seconds
        self.run(self.connector.connect(peer, remote, until), timeout_seconds + STOP_SECONDS)

    def disconnect(self, peer: str, reason: str) -> None:
        """End the connection with a peer: all open transfers with it fail, here and at the peer."""

        async def leave() -> None:
            session = self.peers.sessions.get(peer)
            if session is not None:
                await self._settled([session])
                error = PeerUnreachableError(f"was disconnected: {reason}", peer=peer)
                session.end(error, Goodbye(reason=reason))

        self.soon(lambda: self.connector.task(leave()))

    def observe(self, observer: Observer, kinds: tuple[type[AgentEvent], ...] = (AgentEvent,)) -> None:
        """Tell an observer of events of these kinds from now on, as `Agent.observe` does."""
        if not any(each is observer for each, _ in self._observers):
            self._observers.append((observer, kinds))

    def stop_observing(self, observer: Observer) -> None:
        """Tell this observer of no further events."""
        self._observers = [each for each in self._observers if each[0] is not observer]

    def hears(self, kind: type[AgentEvent]) -> bool:
        """Whether any observer wants events of this kind; an event for each transfer is costly."""
        return any(issubclass(kind, kinds) for _, kinds in self._observers)

    def tell(self, event: AgentEvent) -> None:
        """Tell observers of an event, in the engine's thread; may be called from any thread."""
        if not self.hears(type(event)):
            return
        if threading.get_ident() != self._thread.ident:
            self.soon(lambda: self.tell(event))
            return
        for observer, kinds in list(self._observers):
            if isinstance(event, kinds) and not guarded(partial(observer.observe, event), "an observer"):
                self.stop_observing(observer)

    def counters(self) -> dict[str, int]:
        """Counters of all transports together; may be called from any thread."""
        self._check_process()
        return {
            name: count
            for each in list(self.peers.transports.values())
            for name, count in each.counters().items()
        }

    async def declare(self, channel: str, transport: str) -> None:
        """Declare a channel towards every peer; raises UserInputError, MachineError."""
        self.peers.declare(channel, transport, self)

    def transfer_ended(self, completion: Completion) -> None:
        """Count an ended transfer and tell observers of it; may be called from any thread."""
        error = completion.error
        result = COMPLETED if error is None else error.result
        self.ended.count(completion.direction, result, completion.statistics)
        if self.hears(TransferEnded):
            self.tell(
                TransferEnded(
                    peer=completion.peer,
                    channel=completion.channel,
                    tensor=completion.tensor,
                    round_number=completion.round_number,
                    direction=completion.direction,
                    result=result,
                    reason="" if error is None else error.what,
                    statistics=completion.statistics,
                )
            )

    # What transports and sessions ask for, in the engine's thread

    def send_frame(self, peer: str, channel: str, body: dict[str, Any]) -> None:
        """Send a transport's frame to a peer's end of a channel, on the control connection."""
        session = self.peers.sessions.get(peer)
        if session is not None:
            session.send(TransportFrame(channel=channel, body=body))

    def message_arrived(self, peer: str, channel: str) -> None:
        """Called by a transport when a message of the peer can be received on a channel."""
        with self.peers.changed:
            self.peers.changed.notify_all()
        call = self.readers.get(channel)
        if call is not None:
            call(peer)

    def connection_failed(self, peer: str, error: AgentError) -> None:
        """Called by a transport when the peer is gone or breaks the protocol: disconnects the peer."""
        session = self.peers.sessions.get(peer)
        if session is not None:
            session.end(error, goodbye_for(error))

    def warn(self, text: str) -> None:
        """Warn the user about this machine, in the log and as an event."""
        if text not in self.warnings:
            self.warnings.append(text)
            self.tell(Warned(text=text))

    # The thread

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            if not self.is_closed:  # by a SystemExit, say, of the user's code
                _log.error("the thread of agent %s has been ended by what it called", self.name)
                self.is_closed = True
                self.loop.run_until_complete(self._stop())
                with self.peers.changed:
                    self.peers.changed.notify_all()
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            with suppress(RuntimeError):
                self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    async def _settled(self, sessions: Sequence[Session]) -> None:
        """Until the peers have heard how our receives ended, for a moment: else their sends would fail."""
        until = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < until:
            if all(each.is_settled() for session in sessions for each in session.connections.values()):
                return
            await asyncio.sleep(SETTLE_PAUSE_SECONDS)

    async def _stop(self) -> None:
        await self._settled(list(self.peers.sessions.values()))
        for session in list(self.peers.sessions.values()):
            session.end(
                CancelledError("the agent was closed", peer=session.peer),
                Goodbye(reason="the agent was closed"),
            )
        for transport in self.peers.transports.values():
            transport.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}  # ours, and what other threads wait for
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=1.0)
        self.tell(AgentEnded())
