"""The transport `tcp`: whole tensors over the kernel's TCP, what one would use without this project.

The receiver's READY lets a tensor leave; chunks go out by all data connections, front layers first; its DONE
ends the send. Everything but posting happens in the engine's thread, in callbacks that do not wait: between
two of them no code touches a tensor, so that its memory is the user's at once when its transfer ends.
"""

import itertools
import secrets
import socket
from base64 import b64encode
from collections import deque
from contextlib import suppress
from typing import Any, Final, cast

from mltswitch.errors import UserInputError
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.errors import AgentError, PeerUnreachableError, ProtocolViolationError
from mltswitch.hostagent.streams import listening_socket
from mltswitch.hostagent.transport import tcp_frames as wire
from mltswitch.hostagent.transport.description import Transport
from mltswitch.hostagent.transport.host import TransportHost
from mltswitch.hostagent.transport.records import ConnectionSnapshot, RateController
from mltswitch.hostagent.transport.tcp_frames import TcpSettings
from mltswitch.hostagent.transport.tcp_streams import Incoming, Outgoing, data_socket
from mltswitch.hostagent.transport.tcp_transfers import Transfers

LAST_WORDS_SECONDS: Final = 0.5
"""Time to wait for the control channel's reason after a data connection has ended."""
MOST_UNREAD_MESSAGES: Final = 64
STRANGER_SECONDS: Final = 3
"""Time for which the kernel keeps a connection that sends nothing; it keeps MOST_STRANGERS at most."""
MOST_STRANGERS: Final = 256


class _Connection(Transfers):
    """One channel with one peer; the peer may connect to it from our offer on, before we know the peer's."""

    def __init__(self, engine: "_Engine") -> None:
        super().__init__(engine.host.loop, engine.dscp, engine.settings.chunk_bytes)
        self.token = secrets.token_hex(wire.TOKEN_BYTES)
        self.incoming: list[Incoming] = []
        self.outgoing: list[Outgoing] = []
        self._engine = engine
        self._messages: deque[bytes] = deque()
        self._unread_there = 0

    def open(self, peer: str, channel: str, theirs: wire.TcpOffer) -> None:
        self.peer, self.channel = peer, channel
        self.chunk_bytes = min(theirs.chunk_bytes, self.chunk_bytes)
        opening, settings = wire.MAGIC + bytes.fromhex(theirs.token), self._engine.settings
        ways = itertools.cycle(zip(theirs.addresses, itertools.cycle(self._engine.addresses)))
        for (address, port), own in itertools.islice(ways, settings.streams):
            remote = Endpoint(str(address), port)
            self.outgoing.append(Outgoing(self, data_socket(settings, address.version), own, remote, opening))

    def send_message(self, message: bytes) -> bool:
        with self._lock:
            self._check_open()
            if self._unread_there >= MOST_UNREAD_MESSAGES:
                return False
            self._unread_there += 1
        self.soon(lambda: self.say("message", b64encode(message).decode()))
        return True

    def take_message(self) -> bytes | None:
        with self._lock:
            if not self._messages:
                return None
            message = self._messages.popleft()
        self.soon(lambda: self.say("read"))
        return message

    def snapshot(self) -> ConnectionSnapshot:
        return ConnectionSnapshot(transport="tcp", open_transfers=len(self._open))

    # The control channel

    def say(self, *entry: Any) -> None:
        if self._error is None:
            self._engine.host.send_frame(self.peer, self.channel, {"entry": entry})

    def frame_received(self, body: dict[str, Any]) -> None:
        kind, fields = wire.checked_entry(body, self.peer)
        getattr(self, f"_peer_{kind}")(*fields)
        self.write()

    def _peer_message(self, message: bytes) -> None:
        if len(self._messages) >= MOST_UNREAD_MESSAGES:
            raise ProtocolViolationError("sends more messages than it may", peer=self.peer)
        self._messages.append(message)
        self._engine.host.message_arrived(self.peer, self.channel)

    def _peer_read(self) -> None:
        with self._lock:
            self._unread_there -= 1

    def is_settled(self) -> bool:
        """What ends transfers goes by the control connection, before its end."""
        return True

    def set_rate(self, cap_bps: float | None, controller: RateController | None) -> None:  # noqa: ARG002
        """See Connection."""
        raise UserInputError("over tcp the kernel decides the rate", where=f"peer {self.peer}")

    # Data connections

    def close(self, error: AgentError) -> None:
        with self._lock:
            self._error = self._error or error
            tickets = [*self._open.values()]
        for stream in (*self.outgoing, *self.incoming):
            stream.close()
        self._engine.doors.pop(self.token, None)
        for ticket in tickets:
            self._end(ticket, error)

    def fail(self, error: AgentError) -> None:
        """What was in a data connection is gone: so is the peer."""
        delay = 0 if isinstance(error, ProtocolViolationError) else LAST_WORDS_SECONDS
        self.loop.call_later(delay, self._failed, type(error)(error.what, peer=self.peer))

    def _failed(self, error: AgentError) -> None:
        if self._error is None:  # else the peer may be connected anew by now
            self._engine.host.connection_failed(self.peer, error)

    def write(self) -> None:
        for stream in self.outgoing:
            stream.write()


class _Engine:
    """All data connections of one agent."""

    def __init__(self, host: TransportHost) -> None:
        self.host, self.dscp = host, host.config.control_dscp
        self.settings = cast(TcpSettings, host.config.section(TRANSPORT.name))
        self.addresses = host.config.addresses or ("127.0.0.1",)
        self.doors: dict[str, _Connection] = {}
        """By token. Looking one up says nothing about the others: the hash is of all of it, and secret."""
        data_socket(self.settings).close()
        self._listeners: dict[str, socket.socket] = {}
        try:
            for address in dict.fromkeys(self.addresses):
                at = Endpoint(address, host.config.data_port or 0)
                self._listeners[address] = listener = listening_socket(at, MOST_STRANGERS)
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, STRANGER_SECONDS)
                self._listen(listener)
        except BaseException:
            self.close()
            raise
        self.ports = {address: each.getsockname()[1] for address, each in self._listeners.items()}

    def offer(self, peer: str, channel: str) -> dict[str, Any]:  # noqa: ARG002  (all get the same)
        connection = _Connection(self)
        self.doors[connection.token] = connection
        addresses = [[address, self.ports[address]] for address in self.addresses]
        offer = {"token": connection.token, "addresses": addresses, "chunk_bytes": self.settings.chunk_bytes}
        return {"version": 1, **offer}

    def withdraw(self, ours: dict[str, Any]) -> None:
        if ours["token"] in self.doors:
            self.doors[ours["token"]].close(PeerUnreachableError("is not connected"))

    def accept(self, peer: str, channel: str, ours: dict[str, Any], theirs: dict[str, Any]) -> _Connection:
        connection = self.doors[ours["token"]]
        connection.open(peer, channel, wire.checked_offer(theirs, peer))
        return connection

    def counters(self) -> dict[str, int]:
        return {}  # the kernel counts, not we

    def close(self) -> None:
        for listener in self._listeners.values():
            self.host.loop.remove_reader(listener)
            listener.close()

    def _listen(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            self.host.loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Somebody has connected and, if it is a peer, said whose the connection is."""
        try:
            accepted, _ = listener.accept()
        except OSError:  # no descriptor or memory is left for it
            self.host.loop.remove_reader(listener)
            self.host.loop.call_later(0.1, self._listen, listener)
            return
        connection = None
        with suppress(OSError):  # who has said nothing is a stranger, too
            opening = accepted.recv(len(wire.MAGIC) + wire.TOKEN_BYTES, socket.MSG_DONTWAIT)
            if opening.startswith(wire.MAGIC):
                connection = self.doors.get(opening.removeprefix(wire.MAGIC).hex())
        if connection is None or len(connection.incoming) >= wire.MOST_STREAMS:
            accepted.close()
        else:
            connection.incoming.append(Incoming(connection, accepted))


TRANSPORT: Final = Transport(name="tcp", settings=TcpSettings, open=_Engine)
