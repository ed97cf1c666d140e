"""The agent's thread: an asyncio loop that listens, dials, keeps peers, and hears of the transports' events.

No tensor passes here. Two ends may call each other at once: the call of the lesser name goes on.
"""

import asyncio
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError as FutureCancelledError
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mltswitch.errors import UserInputError
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerBusyError,
    PeerRefusedError,
    PeerUnreachableError,
)
from mltswitch.hostagent.protocol.frames import (
    MOST_CHANNELS,
    MOST_HELLO_BYTES,
    ChannelOffer,
    Goodbye,
    TransportFrame,
    is_channel_name,
)
from mltswitch.hostagent.protocol.handshake import (
    CrossedCallError,
    checked_hello,
    goodbye_for,
    hello,
    keeps_own_call,
)
from mltswitch.hostagent.security.tls import TlsIdentity
from mltswitch.hostagent.session import Session, guarded
from mltswitch.hostagent.streams import (
    as_agent_error,
    certified_name,
    dialled,
    listening_socket,
    read_frame,
    send_frame,
    set_up,
    streams_of,
)
from mltswitch.hostagent.telemetry.events import AgentEvent, Observer, PeerConnected, PeerLost, Warned
from mltswitch.hostagent.transport.description import Connection, TransportEngine, transport_named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mltswitch.hostagent.config import AgentConfig

_log: Final = logging.getLogger(__name__)
_Result = TypeVar("_Result")

MOST_PEERS: Final = 1024
MOST_STRANGERS: Final = 256
"""Connections that have not yet said HELLO; more wait in the kernel."""
MOST_STRANGERS_OF_ADDRESS: Final = 32
HELLO_SECONDS: Final = 10.0
FIRST_PAUSE_SECONDS: Final = 0.02
LONGEST_PAUSE_SECONDS: Final = 1.0
"""Between two calls to who is not there yet."""
STOP_SECONDS: Final = 5.0

class Engine:
    """Of one agent; `start` before all else.

    Args:
        config: resolved.
        identity: None: plain text.
        admit: why a peer that calls is refused; None or an empty text: it is not.
    """

    def __init__(
        self,
        config: "AgentConfig",
        name: str,
        identity: TlsIdentity | None,
        admit: Callable[[str], str | None] | None,
        observers: tuple[Observer, ...],
    ) -> None:
        self.config: Final = config
        self.name: Final = name
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self.connections: dict[tuple[str, str], Connection] = {}
        """By peer and channel; changed under `changed`, in the engine's thread alone."""
        self.sessions: dict[str, Session] = {}
        self.changed = threading.Condition()
        self.warnings: list[str] = []
        self.listening_at = Endpoint("127.0.0.1", 0)
        self._identity, self._admit = identity, admit
        self._observers = list(observers)
        self._channels: dict[str, str] = {}
        self._transports: dict[str, TransportEngine] = {}
        self._dialling: Counter[str] = Counter()
        """Calls of ours, from the first attempt to the last: whom we call ourselves needs no leave."""
        self._greeting: Counter[str] = Counter()
        """Those of them that have said HELLO and wait for the peer's."""
        self._strangers: Counter[str] = Counter()
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_closed = False
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"mltswitch-{name}", daemon=True)

    # Doors for other threads

    def start(self, listen: Endpoint) -> None:
        """Listen; raises MachineError or UserInputError."""
        self._thread.start()
        try:
            self.run(self._listen(listen), STOP_SECONDS)
        except BaseException:
            self.stop()
            raise

    def run(self, work: Coroutine[Any, Any, _Result], timeout_seconds: float) -> _Result:
        """In the engine's thread, and wait for it; raises what it raises, DeadlineExceededError, or
        CancelledError once the agent is closed."""
        self.check_wait()
        if self.is_closed:
            work.close()
            raise CancelledError("the agent is closed")
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:  # the loop has been closed meanwhile
            work.close()
            raise CancelledError("the agent is closed") from None
        try:
            return future.result(timeout_seconds)
        except TimeoutError:
            future.cancel()
            raise DeadlineExceededError(f"no answer within {timeout_seconds:g} s") from None
        except FutureCancelledError:
            raise CancelledError("the agent is closed") from None

    def soon(self, call: Callable[[], object]) -> None:
        """In the engine's thread; nothing happens once the agent is closed."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(call)

    def check_wait(self) -> None:
        """Raises where this thread must not wait."""
        if threading.get_ident() == self._thread.ident:
            raise UserInputError("would wait for itself", where="the agent's own thread")
        if os.getpid() != self._process:
            raise UserInputError(
                "belongs to the process that opened it", where="agent", hint="open one in each process"
            )

    def connection(self, peer: str, channel: str, timeout_seconds: float) -> Connection:
        """The channel with a peer that is connected; waits where the peer has yet to declare it.

        Raises PeerUnreachableError, DeadlineExceededError.
        """
        found = self.connections.get((peer, channel))
        if found is not None:
            return found
        self.check_wait()
        with self.changed:
            self.changed.wait_for(
                lambda: (peer, channel) in self.connections or peer not in self.sessions, timeout_seconds
            )
            if (peer, channel) in self.connections:
                return self.connections[peer, channel]
            if peer in self.sessions:
                raise DeadlineExceededError(f"has not declared channel {channel}", peer=peer)
        raise PeerUnreachableError("the agent is closed" if self.is_closed else "is not connected", peer=peer)

    def stop(self) -> None:
        """Say goodbye to all, close everything; at most STOP_SECONDS. In a forked child nothing happens."""
        if os.getpid() != self._process:
            return
        self.check_wait()
        if not self.is_closed and self._thread.is_alive():
            self.is_closed = True
            with suppress(AgentError):
                future = asyncio.run_coroutine_threadsafe(self._stop(), self.loop)
                with suppress(TimeoutError):
                    future.result(STOP_SECONDS)
            self.soon(self.loop.stop)
            self._thread.join(STOP_SECONDS)
        self.is_closed = True
        with self.changed:
            self.changed.notify_all()

    def declare(self, name: str, transport: str) -> None:
        """A channel, towards every peer; raises UserInputError, MachineError."""
        self.run(self._declare(name, transport), STOP_SECONDS)

    def connect(self, peer: str, remote: Endpoint, timeout_seconds: float) -> None:
        """Patiently; raises what the last attempt raised."""
        self.run(
            self._connect(peer, remote, time.monotonic() + timeout_seconds), timeout_seconds + STOP_SECONDS
        )

    def disconnect(self, peer: str, reason: str) -> None:
        """Everything that is open with the peer fails, here and there."""

        def leave() -> None:
            session = self.sessions.get(peer)
            if session is not None:
                error = PeerUnreachableError(f"was disconnected: {reason}", peer=peer)
                session.end(error, Goodbye(reason=reason))

        self.soon(leave)

    def observe(self, observer: Observer, *, is_wanted: bool) -> None:
        """From now on, or no more."""
        if is_wanted and observer not in self._observers:
            self._observers.append(observer)
        elif not is_wanted and observer in self._observers:
            self._observers.remove(observer)

    @property
    def has_observers(self) -> bool:
        """Whether anybody is told."""
        return bool(self._observers)

    def tell(self, event: AgentEvent) -> None:
        """Observers, in the engine's thread; from any thread."""
        if not self._observers:
            return
        if threading.get_ident() != self._thread.ident:
            self.soon(lambda: self.tell(event))
            return
        for observer in list(self._observers):
            if not guarded(lambda told=observer: told.observe(event), "an observer"):  # type: ignore[misc]
                self.observe(observer, is_wanted=False)

    def counters(self) -> dict[str, int]:
        """Of all transports; any thread may ask."""
        return {
            name: count for each in list(self._transports.values()) for name, count in each.counters().items()
        }

    # What transports and sessions ask for, in the engine's thread

    def send_frame(self, peer: str, channel: str, body: dict[str, Any]) -> None:
        """See TransportHost."""
        session = self.sessions.get(peer)
        if session is not None:
            session.send(TransportFrame(channel=channel, body=body))

    def message_arrived(self, peer: str, channel: str) -> None:  # noqa: ARG002  (who waits looks at its own)
        """See TransportHost."""
        with self.changed:
            self.changed.notify_all()

    def connection_failed(self, peer: str, error: AgentError) -> None:
        """See TransportHost."""
        session = self.sessions.get(peer)
        if session is not None:
            session.end(error, goodbye_for(error))

    def warn(self, text: str) -> None:
        """See TransportHost."""
        if text not in self.warnings:
            self.warnings.append(text)
            self.tell(Warned(text=text))

    def offer(self, peer: str, channel: str) -> ChannelOffer:
        """Of a declared channel."""
        transport = self._channels[channel]
        return ChannelOffer(transport=transport, parameters=self._transports[transport].offer(peer, channel))

    def withdraw(self, offer: ChannelOffer) -> None:
        """It came to nothing."""
        self._transports[offer.transport].withdraw(offer.parameters)

    def accept(self, peer: str, channel: str, ours: ChannelOffer, theirs: ChannelOffer) -> Connection:
        """Both ends have declared the channel."""
        return self._transports[ours.transport].accept(peer, channel, ours.parameters, theirs.parameters)

    def opened(self, peer: str, channel: str, connection: Connection) -> None:
        """Posts may begin."""
        with self.changed:
            self.connections[peer, channel] = connection
            self.changed.notify_all()

    def closed(self, peer: str, channel: str) -> None:
        """No more posts."""
        with self.changed:
            self.connections.pop((peer, channel), None)

    def ended(self, session: Session, error: AgentError) -> None:
        """A peer is gone."""
        with self.changed:
            if self.sessions.get(session.peer) is session:
                del self.sessions[session.peer]
            self.changed.notify_all()
        self.tell(PeerLost(peer=session.peer, result=error.result, reason=error.what))

    # The thread

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            with suppress(RuntimeError):
                self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for session in list(self.sessions.values()):
            session.end(
                CancelledError("the agent was closed", peer=session.peer),
                Goodbye(reason="the agent was closed"),
            )
        for transport in self._transports.values():
            transport.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)
        await asyncio.sleep(0)  # what was written goes to the kernel

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _declare(self, name: str, transport: str) -> None:
        if self._channels.get(name, transport) != transport:
            raise UserInputError(
                f"has transport {self._channels[name]} already", where=f"channel {name}", expected=transport
            )
        if transport not in self._transports:
            self._transports[transport] = transport_named(transport).open(self)
        self._channels[name] = transport
        for session in list(self.sessions.values()):
            session.declare(name)

    # Calls that come

    async def _listen(self, listen: Endpoint) -> None:
        family = socket.AF_INET6 if listen.ip.version == 6 else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((listen.address, listen.port))
        except OSError as error:
            listener.close()
            raise MachineError(
                f"cannot listen: {error.strerror}",
                where=str(listen),
                hint="give an address of this host and a port that is free",
            ) from None
        listener.listen(MOST_STRANGERS)
        listener.setblocking(False)
        self.listening_at = Endpoint(listen.address, listener.getsockname()[1])
        self._task(self._accept_all(listener))

    async def _accept_all(self, listener: socket.socket) -> None:
        with listener:
            while True:
                while self._strangers.total() >= MOST_STRANGERS:
                    self._room.clear()
                    await self._room.wait()
                try:
                    accepted, address = await self.loop.sock_accept(listener)
                except OSError as error:
                    _log.warning("a call could not be taken: %s", error)
                    await asyncio.sleep(FIRST_PAUSE_SECONDS)
                    continue
                if self._strangers[address[0]] >= MOST_STRANGERS_OF_ADDRESS:
                    accepted.close()
                    continue
                self._task(self._greet(accepted, address[0]))

    async def _greet(self, accepted: socket.socket, address: str) -> None:
        """Somebody calls: from here to the session's end."""
        session: Session | None = None
        with self._counted(address):
            writer: asyncio.StreamWriter | None = None
            try:
                async with asyncio.timeout(HELLO_SECONDS):
                    self._set_up(accepted)
                    reader, writer = await self._streams(accepted, server_side=True)
                    certified = self._certified(writer, is_client=True)
                    frame = await read_frame(reader, address, MOST_HELLO_BYTES)
                    theirs = checked_hello(frame, own_name=self.name, certified=certified)
                    self._check_caller(theirs.name)
                ours = self._offers(theirs.name)
                session = Session(self, theirs.name, reader, writer, ours)
                send_frame(writer, hello(self.name, ours))
                self._begin(session, lambda: session.begin(theirs))
            except (AgentError, OSError, TimeoutError) as problem:
                error = _as_agent_error(problem, address)
                if writer is not None:
                    if not isinstance(error, PeerUnreachableError) and session is None:
                        send_frame(writer, goodbye_for(error))
                    writer.close()
                else:
                    accepted.close()
                if session is None and not isinstance(error, CrossedCallError):
                    self.tell(PeerLost(peer=error.peer or address, result=error.result, reason=error.what))
                return
        await session.run()

    @contextmanager
    def _counted(self, address: str) -> "Iterator[None]":
        self._strangers[address] += 1
        try:
            yield
        finally:
            self._strangers[address] -= 1
            if not self._strangers[address]:
                del self._strangers[address]
            self._room.set()

    def _check_caller(self, peer: str) -> None:
        if peer in self.sessions:
            raise PeerBusyError(f"{peer} is connected already", peer=peer)
        if len(self.sessions) >= MOST_PEERS:
            raise PeerBusyError(f"{MOST_PEERS} peers are connected", peer=peer)
        if self._dialling[peer]:
            if keeps_own_call(self.name, peer):
                raise CrossedCallError("our own call to you goes on", peer=peer)
            return  # whom we call ourselves needs no leave
        if self._admit is not None:
            reasons: list[str | None] = []
            admit = self._admit
            if not guarded(lambda: reasons.append(admit(peer)), "the function that admits peers"):
                reasons = ["it could not be asked whether you may"]
            if reasons[0]:
                raise PeerRefusedError(reasons[0], peer=peer)

    # Calls of ours

    async def _connect(self, peer: str, remote: Endpoint, until: float) -> None:
        pause = FIRST_PAUSE_SECONDS
        self._dialling[peer] += 1
        try:
            while peer not in self.sessions:
                last: AgentError
                try:
                    async with asyncio.timeout(max(0.05, min(HELLO_SECONDS, until - time.monotonic()))):
                        await self._dial(peer, remote)
                except (PeerUnreachableError, PeerBusyError, CrossedCallError) as error:
                    last = error
                except (TimeoutError, OSError) as error:
                    last = _as_agent_error(error, peer)
                if peer in self.sessions:
                    return
                if time.monotonic() + pause >= until:
                    raise last
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        finally:
            self._dialling[peer] -= 1

    async def _dial(self, peer: str, remote: Endpoint) -> None:
        family = socket.AF_INET6 if remote.ip.version == 6 else socket.AF_INET
        dialled = socket.socket(family, socket.SOCK_STREAM)
        writer: asyncio.StreamWriter | None = None
        ours: dict[str, ChannelOffer] = {}
        session: Session | None = None
        try:
            dialled.setblocking(False)
            self._set_up(dialled)
            try:
                await self.loop.sock_connect(dialled, (remote.address, remote.port))
            except OSError as error:
                what = f"cannot be reached at {remote}: {error.strerror or error}"
                raise PeerUnreachableError(what, peer=peer) from None
            reader, writer = await self._streams(dialled, peer=peer)
            certified = self._certified(writer, is_client=False)
            ours = self._offers(peer)
            send_frame(writer, hello(self.name, ours))
            frame = await read_frame(reader, peer, MOST_HELLO_BYTES)
            theirs = checked_hello(frame, own_name=self.name, certified=certified, expected=peer)
            if peer in self.sessions:
                raise CrossedCallError("is connected already", peer=peer)  # noqa: TRY301  (as all that fails)
            session = Session(self, peer, reader, writer, ours)
            self._begin(session, lambda: session.begin(theirs))
        except BaseException as error:
            if session is None:
                for offer in ours.values():
                    self.withdraw(offer)
            if writer is not None:
                if isinstance(error, AgentError) and session is None:
                    send_frame(writer, goodbye_for(error))
                writer.close()
            else:
                dialled.close()
            raise
        self._task(session.run())

    # Both

    def _set_up(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)
        tos = self.config.control_dscp << 2
        if connected.family == socket.AF_INET6:
            connected.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
        else:
            connected.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)

    async def _streams(
        self, connected: socket.socket, *, peer: str = "", server_side: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not server_side:
            context = self._identity.client if self._identity else None
            try:
                return await asyncio.open_connection(
                    sock=connected, ssl=context, server_hostname=peer if context else None
                )
            except ssl.SSLError as error:
                raise refusal(error, peer) from None
        reader = asyncio.StreamReader(loop=self.loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self.loop)
        context = self._identity.server if self._identity else None
        try:
            transport, _ = await self.loop.connect_accepted_socket(lambda: protocol, connected, ssl=context)
        except ssl.SSLError as error:
            raise refusal(error, peer) from None
        return reader, asyncio.StreamWriter(transport, protocol, reader, self.loop)

    def _certified(self, writer: asyncio.StreamWriter, *, is_client: bool) -> str | None:
        """The name in the peer's certificate; None in plain text."""
        if self._identity is None:
            return None
        return peer_name(writer.get_extra_info("ssl_object"), is_client=is_client)

    def _offers(self, peer: str) -> dict[str, ChannelOffer]:
        return {name: self.offer(peer, name) for name in self._channels}

    def _begin(self, session: Session, begin: Callable[[], None]) -> None:
        with self.changed:
            self.sessions[session.peer] = session
        try:
            begin()
        except AgentError as error:
            session.end(error)
            raise
        with self.changed:
            self.changed.notify_all()
        self.tell(PeerConnected(peer=session.peer, channels=tuple(session.connections)))


def _as_agent_error(problem: Exception, peer: str) -> AgentError:
    if isinstance(problem, AgentError):
        return problem
    if isinstance(problem, TimeoutError):
        return PeerUnreachableError("has not answered in time", peer=peer)
    return PeerUnreachableError(
        f"the connection broke: {getattr(problem, 'strerror', None) or problem}", peer=peer
    )
