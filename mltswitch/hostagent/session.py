"""One peer: its control connection, and the channels that are open with it. Lives in the engine's thread."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

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
    text,
)
from mltswitch.hostagent.protocol.handshake import goodbye_for
from mltswitch.hostagent.streams import read_frame, send_frame
from mltswitch.hostagent.transport.description import Connection

if TYPE_CHECKING:
    from mltswitch.hostagent.engine import Engine

_log: Final = logging.getLogger(__name__)
MOST_WAITING_BYTES: Final = 8 << 20
"""Of frames that the peer does not take."""


class Session:
    """From both HELLOs to the end.

    Args:
        engine: whose peer it is.
        peer: its name.
        reader: of the control connection.
        writer: of the control connection.
        ours: the channels of our HELLO.
    """

    def __init__(
        self,
        engine: "Engine",
        peer: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ours: dict[str, ChannelOffer],
    ) -> None:
        self.peer: Final = peer
        self.connections: dict[str, Connection] = {}
        self._engine = engine
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
        """A channel of ours that is new."""
        if name not in self._ours and not self._is_over:
            self._ours[name] = offer = self._engine.offer(self.peer, name)
            self.send(OpenChannel(name=name, offer=offer))
            try:
                self._open(name)
            except AgentError as error:
                self.end(error)

    def send(self, frame: Frame) -> None:
        """To the peer, soon; one that reads nothing any more is given up."""
        send_frame(self._writer, frame)
        if self._writer.transport.get_write_buffer_size() > MOST_WAITING_BYTES:
            self.end(PeerUnreachableError("reads its control connection no more", peer=self.peer))

    async def run(self) -> None:
        """Take its frames until the connection ends, or breaks the rules."""
        try:
            while not self._is_over:
                self._take(await read_frame(self._reader, self.peer))
        except AgentError as error:
            self.end(error)
        except Exception:
            self.end(ProtocolViolationError("says what this agent cannot cope with", peer=self.peer))
            raise  # a fault of ours: the loop logs it

    def end(self, error: AgentError, goodbye: Goodbye | None = None) -> None:
        """Everything that is open with the peer fails with this; the peer hears why."""
        if self._is_over:
            return
        self._is_over = True
        if not isinstance(error, PeerUnreachableError) or goodbye:
            send_frame(self._writer, goodbye or goodbye_for(error))
        for connection in self.connections.values():
            connection.close(error)
        for name, offer in self._ours.items():
            if name not in self.connections:
                self._engine.withdraw(offer)
        self._writer.close()
        self._engine.ended(self, error)
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
        self.connections[name] = self._engine.accept(self.peer, name, ours, theirs)


def guarded(call: Callable[[], object], what: str) -> bool:
    """Call what is the user's, in the engine's thread; whether it went well. The log says how it did not."""
    try:
        call()
    except Exception:  # noqa: BLE001  (the user's code must not end the engine)
        _log.exception("%s has failed", what)
        return False
    return True
