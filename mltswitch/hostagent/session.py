"""Peers: the control connection of each, and the channels open with it. Lives in the engine's thread."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.errors import (
    AgentError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
)
from mltswitch.hostagent.protocol.frames import (
    MOST_CHANNELS,
    ChannelOffer,
    Frame,
    Goodbye,
    Hello,
    OpenChannel,
    TransportFrame,
    is_channel_name,
    text,
)
from mltswitch.hostagent.protocol.handshake import goodbye_for
from mltswitch.hostagent.streams import as_agent_error, read_frame, send_frame
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerConnected, PeerLost
from mltswitch.hostagent.transport.description import Connection, TransportEngine, transport_named

_log: Final = logging.getLogger(__name__)
MOST_WAITING_BYTES: Final = 8 << 20
"""Most bytes of frames that wait because the peer does not take them."""
MOST_LOST: Final = 64


class Session:
    """The session with one peer, from the exchange of HELLOs to the end of the connection.

    Args:
        peers: all peers of the agent.
        peer: name of the peer.
        reader: reader of the control connection.
        writer: writer of the control connection.
        ours: the channels offered in our HELLO.
    """

    def __init__(
        self,
        peers: "Peers",
        peer: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ours: dict[str, ChannelOffer],
    ) -> None:
        self.peer: Final = peer
        self.connections: dict[str, Connection] = {}
        self._peers = peers
        self._reader, self._writer = reader, writer
        self._ours = ours
        self._theirs: dict[str, ChannelOffer] = {}
        self._is_over = False

    def begin(self, theirs: Hello) -> None:
        """Open every channel that both ends have declared; raises PeerRefusedError."""
        self._theirs.update(theirs.channels)
        for name in self._ours:
            self._open(name)

    def declare(self, name: str) -> None:
        """Offer the peer a channel that this agent has declared since HELLO."""
        if name not in self._ours and not self._is_over:
            self._ours[name] = offer = self._peers.offer(self.peer, name)
            self.send(OpenChannel(name=name, offer=offer))
            try:
                self._open(name)
            except AgentError as error:
                self.end(error)

    def send(self, frame: Frame) -> None:
        """Send a frame to the peer without waiting; a peer that has stopped reading is disconnected."""
        send_frame(self._writer, frame)
        if self._writer.transport.get_write_buffer_size() > MOST_WAITING_BYTES:
            self.end(PeerUnreachableError("reads its control connection no more", peer=self.peer))

    async def run(self) -> None:
        """Handle the peer's frames until the connection ends, or the peer breaks the protocol."""
        try:
            while not self._is_over:
                self._take(await read_frame(self._reader, self.peer))
        except AgentError as error:
            self.end(error)
        except Exception:
            self.end(ProtocolViolationError("says what this agent cannot cope with", peer=self.peer))
            raise  # a fault of ours: the loop logs it

    def end(self, error: AgentError, goodbye: Goodbye | None = None) -> None:
        """End the session: all that is open with the peer fails with this error, and the peer is told why."""
        if self._is_over:
            return
        self._is_over = True
        if not isinstance(error, PeerUnreachableError) or goodbye:
            send_frame(self._writer, goodbye or goodbye_for(error))
        for connection in self.connections.values():
            connection.close(error)
        for name, offer in self._ours.items():
            if name not in self.connections:
                self._peers.withdraw(offer)
        self._writer.close()
        self._peers.ended(self, error)
        self.connections.clear()

    def _take(self, frame: Frame | None) -> None:
        match frame:
            case None:
                return  # of a later version
            case OpenChannel():
                if frame.name in self._theirs or len(self._theirs) >= MOST_CHANNELS:
                    raise ProtocolViolationError("declares a channel twice, or too many", peer=self.peer)
                self._theirs[frame.name] = frame.offer
                self._open(frame.name)
            case TransportFrame():
                connection = self.connections.get(frame.channel)
                if connection is not None:  # else it was closed meanwhile
                    connection.frame_received(frame.body)
            case Goodbye():
                reason = text(frame.reason) or "without a reason"
                raise PeerUnreachableError(f"has left: {reason}", peer=self.peer)
            case Hello():
                raise ProtocolViolationError("says HELLO twice", peer=self.peer)

    def _open(self, name: str) -> None:
        ours, theirs = self._ours.get(name), self._theirs.get(name)
        if ours is None or theirs is None or name in self.connections:
            return
        if ours.transport != theirs.transport:
            raise PeerRefusedError(
                f"channel {name} has transport {ours.transport} at one end and {text(theirs.transport)} at"
                " the other",
                peer=self.peer,
            )
        self.connections[name] = self._peers.accept(self.peer, name, ours, theirs)


class Peers:
    """All peers of one agent, and the channels that it declares to them.

    Args:
        name: name of the agent.
        tell: called with each event for observers.
    """

    def __init__(self, name: str, tell: Callable[[AgentEvent], None]) -> None:
        self.name: Final = name
        self.tell: Final = tell
        self.sessions: Final[dict[str, Session]] = {}
        self.connections: Final[dict[tuple[str, str], Connection]] = {}
        """By peer and channel; changed under `changed`, in the engine's thread alone."""
        self.changed: Final = threading.Condition()
        self.transports: Final[dict[str, TransportEngine]] = {}
        self._channels: dict[str, str] = {}
        """Transports of the channels that are declared, by name."""
        self.lost: Final[dict[str, tuple[str, dict[str, Connection]]]] = {}
        """Why peers went, the last ones, and what they had open: their messages can still be read."""

    def left(self, peer: str, channel: str) -> Connection | None:
        """The connection that a peer which has left had on a channel; None if there was none."""
        return None if peer in self.sessions else self.lost.get(peer, ("", {}))[1].get(channel)

    def declare(self, name: str, transport: str, host: Any) -> None:
        """Declare a channel towards every peer; `host` is the TransportHost of a transport that is new.

        Raises UserInputError, MachineError.
        """
        problem = "" if is_channel_name(name) else "is no name: letters, digits and '_.:-', 63 or fewer"
        if self._channels.get(name, transport) != transport:
            problem = f"has transport {self._channels[name]} already"
        elif name not in self._channels and len(self._channels) >= MOST_CHANNELS:
            problem = f"is one more than {MOST_CHANNELS}"
        if problem:
            raise UserInputError(problem, where=f"channel {name[:80]}")
        if transport not in self.transports:
            self.transports[transport] = transport_named(transport).open(host)
        self._channels[name] = transport
        for session in list(self.sessions.values()):
            session.declare(name)

    def offers(self, peer: str) -> dict[str, ChannelOffer]:
        """The offers to a peer for all declared channels, by channel name."""
        return {name: self.offer(peer, name) for name in self._channels}

    def offer(self, peer: str, channel: str) -> ChannelOffer:
        """What this agent offers a peer for a declared channel: the transport and its parameters."""
        transport = self._channels[channel]
        return ChannelOffer(transport=transport, parameters=self.transports[transport].offer(peer, channel))

    def withdraw(self, offer: ChannelOffer) -> None:
        """Take back an offer that led to no connection."""
        self.transports[offer.transport].withdraw(offer.parameters)

    def accept(self, peer: str, channel: str, ours: ChannelOffer, theirs: ChannelOffer) -> Connection:
        """Open a channel that both ends have declared, after which tensors can be posted."""
        transport = self.transports[ours.transport]
        connection = transport.accept(peer, channel, ours.parameters, theirs.parameters)
        with self.changed:
            self.connections[peer, channel] = connection
            self.changed.notify_all()
        return connection

    def ended(self, session: Session, error: AgentError) -> None:
        """Record the end of a session, and tell observers that the peer is lost."""
        with self.changed:
            for channel in session.connections:
                self.connections.pop((session.peer, channel), None)
            if self.sessions.get(session.peer) is session:
                del self.sessions[session.peer]
            self.lost.pop(session.peer, None)
            self.lost[session.peer] = error.what, session.connections.copy()
            if len(self.lost) > MOST_LOST:
                del self.lost[next(iter(self.lost))]
            self.changed.notify_all()
        self.tell(PeerLost(peer=session.peer, result=error.result, reason=error.what))

    def begin(self, session: Session, theirs: Hello) -> None:
        """Begin a session after both HELLOs; raises AgentError, and ends it, where channels do not fit."""
        try:
            with self.changed:  # who waits for the peer sees it with its channels
                self.sessions[session.peer] = session
                session.begin(theirs)
                self.changed.notify_all()
        except Exception as error:
            session.end(as_agent_error(error, session.peer))
            raise
        for name in self._channels:
            session.declare(name)  # those that are newer than our HELLO
        self.tell(PeerConnected(peer=session.peer, channels=tuple(session.connections)))


def guarded(call: Callable[[], object], what: str) -> bool:
    """Call a function of the user's in the engine's thread; False if it raised, which is then logged."""
    try:
        call()
    except Exception:  # noqa: BLE001  (the user's code must not end the engine)
        _log.exception("%s has failed", what)
        return False
    return True
