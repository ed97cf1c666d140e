"""Begins an agent's sessions: accepts the calls of peers, and calls them; both may happen at once.

Of two calls that cross, that of the agent with the lesser name goes on. A call counts as crossing once
it has said HELLO; until then it holds nobody back.
"""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

from mltswitch.errors import MltswitchError
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.errors import AgentError, PeerBusyError, PeerRefusedError, PeerUnreachableError
from mltswitch.hostagent.protocol.frames import MOST_HELLO_BYTES, MOST_PEERS, ChannelOffer
from mltswitch.hostagent.protocol.handshake import (
    CrossedCallError,
    checked_hello,
    goodbye_for,
    hello,
)
from mltswitch.hostagent.security.tls import TlsIdentity
from mltswitch.hostagent.session import Peers, Session, guarded
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
from mltswitch.hostagent.telemetry.events import PeerLost

_log: Final = logging.getLogger(__name__)
MOST_UNIDENTIFIED: Final = 256
"""The most accepted connections that have not yet said HELLO; further ones wait in the kernel."""
MOST_UNIDENTIFIED_OF_ADDRESS: Final = 32
HELLO_SECONDS: Final = 10.0
FIRST_PAUSE_SECONDS: Final = 0.02
LONGEST_PAUSE_SECONDS: Final = 1.0
"""Longest pause between two calls to a peer that cannot be reached yet."""


class Connector:
    """The part of an agent that begins sessions: it answers peers' calls, and calls peers itself.

    Args:
        peers: the agent's peers, to which new sessions are added.
        dscp: DSCP of control traffic.
        identity: this host's TLS identity; None: connections are not encrypted.
        admit: returns why a peer that calls is refused; None or an empty text: it is accepted.
    """

    def __init__(
        self,
        peers: Peers,
        dscp: int,
        identity: TlsIdentity | None,
        admit: Callable[[str], str | None] | None,
    ) -> None:
        self._peers, self._dscp = peers, dscp
        self._identity, self._admit = identity, admit
        self._tasks: set[asyncio.Task[None]] = set()
        self._dialling: Counter[str] = Counter()
        """Calls of ours, from the first attempt to the last: whom we call ourselves needs no leave."""
        self._handshaking: Counter[str] = Counter()
        """Those of them that have said HELLO and wait for the peer's."""
        self._unidentified: Counter[str] = Counter()
        self._room = asyncio.Event()

    def task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background until it ends or the agent does."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def listen(self, at: Endpoint) -> Endpoint:
        """Accept calls from now on; returns the address, with the port chosen. Raises MachineError."""
        listener = listening_socket(at, MOST_UNIDENTIFIED)
        set_up(listener, self._dscp)  # answers to calls are of that class, too
        self.task(self._accept_all(listener))
        return Endpoint(at.address, listener.getsockname()[1])

    async def _accept_all(self, listener: socket.socket) -> None:
        with listener:
            while True:
                while self._unidentified.total() >= MOST_UNIDENTIFIED:
                    self._room.clear()
                    await self._room.wait()
                try:
                    accepted, address = await asyncio.get_running_loop().sock_accept(listener)
                except OSError as error:
                    _log.warning("a call could not be taken: %s", error)
                    await asyncio.sleep(FIRST_PAUSE_SECONDS)
                    continue
                if self._unidentified[address[0]] >= MOST_UNIDENTIFIED_OF_ADDRESS:
                    accepted.close()
                else:
                    self._unidentified[address[0]] += 1
                    self.task(self._accept(accepted, address[0]))
                await asyncio.sleep(0)  # others have their turn, however many call

    async def _accept(self, accepted: socket.socket, address: str) -> None:
        """Somebody calls: from here to the session's end."""
        session: Session | None = None
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                set_up(accepted, self._dscp)
                reader, writer = await streams_of(accepted, self._identity, is_server=True)
                certified = certified_name(writer, self._identity, is_client=True)
                frame = await read_frame(reader, address, MOST_HELLO_BYTES)
                theirs = checked_hello(frame, own_name=self._peers.name, certified=certified)
                self._check_caller(theirs.name)
            ours = self._peers.offers(theirs.name)
            session = Session(self._peers, theirs.name, reader, writer, ours)
            send_frame(writer, hello(self._peers.name, ours))
            self._peers.begin(session, theirs)
        except (MltswitchError, OSError, TimeoutError) as problem:
            error = as_agent_error(problem, address)
            if writer is None:
                accepted.close()
            else:
                if not isinstance(error, PeerUnreachableError) and session is None:
                    send_frame(writer, goodbye_for(error))
                writer.close()
            is_here = error.peer in self._peers.sessions  # by another call
            if not is_here and session is None and not isinstance(error, CrossedCallError):
                who = error.peer or address
                self._peers.tell(PeerLost(peer=who, result=error.result, reason=error.what))
            return
        finally:
            self._unidentified[address] -= 1
            if not self._unidentified[address]:
                del self._unidentified[address]
            self._room.set()
        await session.run()

    def _check_caller(self, peer: str) -> None:
        if peer in self._peers.sessions:
            raise PeerBusyError(f"{peer} is connected already", peer=peer)
        if len(self._peers.sessions) >= MOST_PEERS:
            raise PeerBusyError(f"{MOST_PEERS} peers are connected", peer=peer)
        if self._handshaking[peer] and self._peers.name < peer:
            raise CrossedCallError("our own call to you goes on", peer=peer)
        if self._admit is not None and not self._dialling[peer]:
            reasons: list[str | None] = []
            admit = self._admit
            if not guarded(lambda: reasons.append(admit(peer)), "the function that admits peers"):
                reasons = ["it could not be asked whether you may"]
            if reasons[0]:
                raise PeerRefusedError(str(reasons[0]), peer=peer)

    # Calls of ours

    async def connect(self, peer: str, remote: Endpoint, until: float) -> None:
        """Call a peer until it is connected or the time is up; raises the last attempt's AgentError."""
        pause = FIRST_PAUSE_SECONDS
        self._dialling[peer] += 1
        try:
            while peer not in self._peers.sessions:
                last: AgentError
                try:
                    async with asyncio.timeout(max(0.05, min(HELLO_SECONDS, until - time.monotonic()))):
                        await self._dial(peer, remote)
                except (PeerUnreachableError, PeerBusyError, CrossedCallError) as error:
                    last = error
                except (TimeoutError, OSError) as error:
                    last = as_agent_error(error, peer)
                if peer in self._peers.sessions:
                    return
                if time.monotonic() + pause >= until:
                    raise last
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        finally:
            self._dialling[peer] -= 1

    async def _dial(self, peer: str, remote: Endpoint) -> None:
        """Say HELLO, and begin when the peer has."""
        peers = self._peers
        connected = await dialled(remote, peer, self._dscp)
        writer: asyncio.StreamWriter | None = None
        session: Session | None = None
        ours: dict[str, ChannelOffer] = {}
        try:
            reader, writer = await streams_of(connected, self._identity, peer=peer)
            certified = certified_name(writer, self._identity, is_client=False)
            self._check_not_connected(peer)
            ours = peers.offers(peer)
            self._handshaking[peer] += 1
            try:
                send_frame(writer, hello(peers.name, ours))
                frame = await read_frame(reader, peer, MOST_HELLO_BYTES)
            finally:
                self._handshaking[peer] -= 1
            theirs = checked_hello(frame, own_name=peers.name, certified=certified, expected=peer)
            self._check_not_connected(peer)
            session = Session(peers, peer, reader, writer, ours)
            peers.begin(session, theirs)
        except BaseException as error:
            for offer in ours.values() if session is None else ():
                peers.withdraw(offer)
            if writer is None:
                connected.close()
            else:
                if isinstance(error, AgentError):
                    send_frame(writer, goodbye_for(error))
                writer.close()
            raise
        self.task(session.run())

    def _check_not_connected(self, peer: str) -> None:
        if peer in self._peers.sessions:  # it has called meanwhile
            raise CrossedCallError("is connected already", peer=peer)
