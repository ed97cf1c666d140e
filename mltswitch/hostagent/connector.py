"""How sessions begin: peers call us, and we call them; both may happen at once.

Of two calls that cross, the one of the lesser name goes on. A call crosses another one once it
has said HELLO; until then it holds nobody back.
"""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

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
from mltswitch.hostagent.telemetry.events import PeerLost

if TYPE_CHECKING:
    from mltswitch.hostagent.engine import Engine

_log: Final = logging.getLogger(__name__)
MOST_UNIDENTIFIED: Final = 256
"""Connections that have not yet said HELLO; more wait in the kernel."""
MOST_UNIDENTIFIED_OF_ADDRESS: Final = 32
HELLO_SECONDS: Final = 10.0
FIRST_PAUSE_SECONDS: Final = 0.02
LONGEST_PAUSE_SECONDS: Final = 1.0
"""Between two calls to who is not there yet."""


class Connector:
    """Of one agent.

    Args:
        engine: whose sessions they become.
        identity: None: plain text.
        admit: why a peer that calls is refused; None or an empty text: it is not.
    """

    def __init__(
        self, engine: "Engine", identity: TlsIdentity | None, admit: Callable[[str], str | None] | None
    ) -> None:
        self._engine = engine
        self._identity, self._admit = identity, admit
        self._dialling: Counter[str] = Counter()
        """Calls of ours, from the first attempt to the last: whom we call ourselves needs no leave."""
        self._handshaking: Counter[str] = Counter()
        """Those of them that have said HELLO and wait for the peer's."""
        self._unidentified: Counter[str] = Counter()
        self._room = asyncio.Event()

    async def listen(self, at: Endpoint) -> Endpoint:
        """Take calls from now on; where, with the port that the kernel chose. Raises MachineError."""
        listener = listening_socket(at, MOST_UNIDENTIFIED)
        set_up(listener, self._engine.config.control_dscp)  # answers to calls are of that class, too
        self._engine.task(self._accept_all(listener))
        return Endpoint(at.address, listener.getsockname()[1])

    async def _accept_all(self, listener: socket.socket) -> None:
        with listener:
            while True:
                while self._unidentified.total() >= MOST_UNIDENTIFIED:
                    self._room.clear()
                    await self._room.wait()
                try:
                    accepted, address = await self._engine.loop.sock_accept(listener)
                except OSError as error:
                    _log.warning("a call could not be taken: %s", error)
                    await asyncio.sleep(FIRST_PAUSE_SECONDS)
                    continue
                if self._unidentified[address[0]] >= MOST_UNIDENTIFIED_OF_ADDRESS:
                    accepted.close()
                else:
                    self._unidentified[address[0]] += 1
                    self._engine.task(self._accept(accepted, address[0]))
                await asyncio.sleep(0)  # others have their turn, however many call

    async def _accept(self, accepted: socket.socket, address: str) -> None:
        """Somebody calls: from here to the session's end."""
        session: Session | None = None
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                set_up(accepted, self._engine.config.control_dscp)
                reader, writer = await streams_of(accepted, self._identity, is_server=True)
                certified = certified_name(writer, self._identity, is_client=True)
                frame = await read_frame(reader, address, MOST_HELLO_BYTES)
                theirs = checked_hello(frame, own_name=self._engine.name, certified=certified)
                self._check_caller(theirs.name)
            ours = self._engine.offers(theirs.name)
            session = Session(self._engine, theirs.name, reader, writer, ours)
            send_frame(writer, hello(self._engine.name, ours))
            self._engine.begin(session, theirs)
        except (MltswitchError, OSError, TimeoutError) as problem:
            error = as_agent_error(problem, address)
            if writer is None:
                accepted.close()
            else:
                if not isinstance(error, PeerUnreachableError) and session is None:
                    send_frame(writer, goodbye_for(error))
                writer.close()
            is_here = error.peer in self._engine.sessions  # by another call
            if not is_here and session is None and not isinstance(error, CrossedCallError):
                who = error.peer or address
                self._engine.tell(PeerLost(peer=who, result=error.result, reason=error.what))
            return
        finally:
            self._unidentified[address] -= 1
            if not self._unidentified[address]:
                del self._unidentified[address]
            self._room.set()
        await session.run()

    def _check_caller(self, peer: str) -> None:
        if peer in self._engine.sessions:
            raise PeerBusyError(f"{peer} is connected already", peer=peer)
        if len(self._engine.sessions) >= MOST_PEERS:
            raise PeerBusyError(f"{MOST_PEERS} peers are connected", peer=peer)
        if self._handshaking[peer] and self._engine.name < peer:
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
        """Call until the peer is connected, or the time is up; raises the last attempt's AgentError."""
        pause = FIRST_PAUSE_SECONDS
        self._dialling[peer] += 1
        try:
            while peer not in self._engine.sessions:
                last: AgentError
                try:
                    async with asyncio.timeout(max(0.05, min(HELLO_SECONDS, until - time.monotonic()))):
                        await self._dial(peer, remote)
                except (PeerUnreachableError, PeerBusyError, CrossedCallError) as error:
                    last = error
                except (TimeoutError, OSError) as error:
                    last = as_agent_error(error, peer)
                if peer in self._engine.sessions:
                    return
                if time.monotonic() + pause >= until:
                    raise last
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        finally:
            self._dialling[peer] -= 1

    async def _dial(self, peer: str, remote: Endpoint) -> None:
        """Say HELLO, and begin when the peer has."""
        engine = self._engine
        connected = await dialled(remote, peer, engine.config.control_dscp)
        writer: asyncio.StreamWriter | None = None
        session: Session | None = None
        ours: dict[str, ChannelOffer] = {}
        try:
            reader, writer = await streams_of(connected, self._identity, peer=peer)
            certified = certified_name(writer, self._identity, is_client=False)
            self._check_not_connected(peer)
            ours = engine.offers(peer)
            self._handshaking[peer] += 1
            try:
                send_frame(writer, hello(engine.name, ours))
                frame = await read_frame(reader, peer, MOST_HELLO_BYTES)
            finally:
                self._handshaking[peer] -= 1
            theirs = checked_hello(frame, own_name=engine.name, certified=certified, expected=peer)
            self._check_not_connected(peer)
            session = Session(engine, peer, reader, writer, ours)
            engine.begin(session, theirs)
        except BaseException as error:
            for offer in ours.values() if session is None else ():
                engine.withdraw(offer)
            if writer is None:
                connected.close()
            else:
                if isinstance(error, AgentError):
                    send_frame(writer, goodbye_for(error))
                writer.close()
            raise
        engine.task(session.run())

    def _check_not_connected(self, peer: str) -> None:
        if peer in self._engine.sessions:  # it has called meanwhile
            raise CrossedCallError("is connected already", peer=peer)
