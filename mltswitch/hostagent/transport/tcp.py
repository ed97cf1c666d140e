"""The transport `tcp`: whole tensors over the kernel's TCP, what one would use without this project.

The receiver's READY lets a tensor leave; chunks go out by all data connections, front layers first; its DONE
ends the send. Everything but posting happens in the engine's thread, in callbacks that do not wait: between
two of them nobody touches a tensor, so that its memory is the user's at once when its transfer ends.
"""

import heapq
import itertools
import secrets
import socket
import threading
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from hmac import compare_digest
from time import monotonic_ns
from typing import Any, Final, cast

import numpy as np
from pydantic import BaseModel

from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerUnreachableError,
    ProtocolViolationError,
    TooManyTransfersError,
    TransferMismatchError,
)
from mltswitch.hostagent.protocol.frames import text
from mltswitch.hostagent.transport import tcp_frames as wire
from mltswitch.hostagent.transport.description import (
    AtDeadline,
    ConnectionSnapshot,
    Moment,
    Receive,
    Send,
    Ticket,
    Transport,
    TransportHost,
)
from mltswitch.hostagent.transport.tcp_frames import TcpSettings
from mltswitch.hostagent.transport.tcp_streams import Incoming, Listeners, Outgoing, choose, data_socket, dial
from mltswitch.hostagent.transport.tcp_transfer import Key, TcpTicket
from mltswitch.wire import ElementType

LAST_WORDS_SECONDS: Final = 0.5
"""A data connection may end before the control channel says why."""
MOST_TRANSFERS: Final = 16_384
"""Open receives of a connection, and READYs of the peer's that no send has met."""
MOST_UNREAD_BYTES: Final = 64 << 10
"""Of messages, each with MESSAGE_BYTES on top."""
MESSAGE_BYTES: Final = 4
_ERRORS: Final = {
    "cancelled": CancelledError,
    "deadline": DeadlineExceededError,
    "mismatch": TransferMismatchError,
}


class TcpConnection:
    """One channel with one peer, a `Connection`."""

    def __init__(
        self, engine: "TcpEngine", peer: str, channel: str, token: bytes, theirs: wire.TcpOffer
    ) -> None:
        self.peer, self.token = peer, token
        self.chunk_bytes = min(theirs.chunk_bytes, engine.settings.chunk_bytes)
        self.lock = threading.Lock()
        """Over what posts and messages change from any thread: transfers, entries to be said, counts."""
        self._engine, self._host, self._channel = engine, engine.host, channel
        self._loop = engine.host.loop
        self._error: AgentError | None = None
        self._sends: dict[Key, TcpTicket] = {}
        self._receives: dict[Key, TcpTicket] = {}
        self._ready: dict[Key, tuple[int, int, int]] = {}
        """The peer's READYs that no send of ours has met: number, elements, their type."""
        self._numbers, self._order = itertools.count(), itertools.count()
        self._sendable: list[tuple[int, int, TcpTicket]] = []
        self._entries: list[tuple[Any, ...]] = []
        self._messages: deque[bytes] = deque()
        self._unread_here = self._unread_there = 0
        self._outgoing: list[Outgoing] = []
        self._incoming: list[Incoming] = []
        self._tasks = [
            self._loop.create_task(self._dial(number, theirs)) for number in range(engine.settings.streams)
        ]

    # Any thread

    def soon(self, call: Callable[[], object]) -> None:
        """In the engine's thread; nothing happens once its loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def post_sends(self, requests: Sequence[Send]) -> list[Ticket]:
        """See Connection."""
        return self._post(self._sends, requests, self._meet)

    def post_receives(self, requests: Sequence[Receive]) -> list[Ticket]:
        """See Connection."""
        return self._post(self._receives, requests, self._announce)

    def _post(
        self,
        table: dict[Key, TcpTicket],
        requests: Sequence[Send] | Sequence[Receive],
        begin: Callable[[TcpTicket], None],
    ) -> list[Ticket]:
        tickets = [TcpTicket(self, request) for request in requests]
        with self.lock:
            if self._error is not None:
                raise type(self._error)(self._error.what, peer=self.peer)
            if table is self._receives and len(table) + len(tickets) > MOST_TRANSFERS:
                raise TooManyTransfersError(f"{len(table)} receives are open, no more may be", peer=self.peer)
            seen = set(table)
            for ticket in tickets:
                if ticket.key in seen:
                    raise TransferMismatchError("is open already", peer=self.peer).of_transfer(*ticket.key)
                seen.add(ticket.key)
            table.update((ticket.key, ticket) for ticket in tickets)

        def begin_all() -> None:
            for ticket in tickets:
                if not ticket.is_over:
                    self._set_timers(ticket, Moment.POST)
                    begin(ticket)
            self._write_all()

        self.soon(begin_all)
        return [*tickets]

    def send_message(self, message: bytes) -> bool:
        """See Connection."""
        with self.lock:
            if self._error is not None:
                raise type(self._error)(self._error.what, peer=self.peer)
            size = len(message) + MESSAGE_BYTES
            if self._unread_there + size > MOST_UNREAD_BYTES:
                return False
            self._unread_there += size
            self._say("message", b64encode(message).decode())
        return True

    def take_message(self) -> bytes | None:
        """See Connection."""
        with self.lock:
            if not self._messages:
                return None
            message = self._messages.popleft()
            self._unread_here -= len(message) + MESSAGE_BYTES
            self._say("read", len(message) + MESSAGE_BYTES)
        return message

    def snapshot(self) -> ConnectionSnapshot:
        """See Connection."""
        return ConnectionSnapshot(transport="tcp", open_transfers=len(self._sends) + len(self._receives))

    def _say(self, *entry: Any) -> None:
        """Under the lock, so that messages keep their order."""
        self._entries.append(entry)
        if len(self._entries) == 1:
            self.soon(self._flush)

    def _flush(self) -> None:
        with self.lock:
            entries, self._entries = self._entries, []
        if self._error is None:
            for first in range(0, len(entries), wire.MOST_ENTRIES):
                body = {"entries": entries[first : first + wire.MOST_ENTRIES]}
                self._host.send_frame(self.peer, self._channel, body)

    # The peer's frames

    def frame_received(self, body: dict[str, Any]) -> None:
        """See Connection."""
        for kind, *fields in wire.checked_entries(body, self.peer):
            if kind == "ready":
                self._is_ready((fields[0], fields[1]), *fields[2:])
            elif kind == "done":
                self._is_done((fields[0], fields[1]), *fields[2:])
            elif kind == "cancel":
                self._is_cancelled((fields[0], fields[1]), *fields[2:])
            elif kind == "message":
                self._message(*fields)
            else:
                self._is_read(*fields)
        self._write_all()

    def _is_ready(self, key: Key, number: int, elements: int, element_type: int) -> None:
        send = self._sends.get(key)
        if key in self._ready or (send is not None and send.number >= 0):
            raise self._violation("says READY twice", key)
        if len(self._ready) >= MOST_TRANSFERS:
            raise self._violation("says READY too often", key)
        self._ready[key] = number, elements, element_type
        if send is not None:
            self._meet(send)

    def _is_done(self, key: Key, number: int, bitmap: str) -> None:
        send = self._open_send(key, number)
        if send is None:
            return
        packed = np.frombuffer(self._decoded(bitmap), np.uint8)
        if bitmap and len(packed) != -(-len(send.arrived) // 8):
            raise self._violation("sends the bitmap of another tensor", key)
        send.arrived[:] = np.unpackbits(packed, count=len(send.arrived)) if bitmap else True
        send.arrived_count = int(np.count_nonzero(send.arrived))
        self._end(send, None)

    def _is_cancelled(self, key: Key, number: int, by_sender: bool, kind: str, reason: str) -> None:
        ticket = self.open_receive(key, number) if by_sender else self._open_send(key, number)
        if ticket is not None:
            what = text(reason) if kind == "mismatch" else f"given up by the peer: {text(reason)}"
            self._end(ticket, _ERRORS[kind](what, peer=self.peer))

    def _open_send(self, key: Key, number: int) -> TcpTicket | None:
        """That the peer's READY belongs to; it is over."""
        if key in self._ready and self._ready[key][0] == number:
            del self._ready[key]
        send = self._sends.get(key)
        return send if send is not None and send.number == number else None

    def _message(self, encoded: str) -> None:
        message = self._decoded(encoded)
        with self.lock:
            self._messages.append(message)
            self._unread_here += len(message) + MESSAGE_BYTES
        if self._unread_here > MOST_UNREAD_BYTES:
            raise ProtocolViolationError("sends more messages than it may", peer=self.peer)
        self._host.message_arrived(self.peer, self._channel)

    def _is_read(self, size_bytes: int) -> None:
        with self.lock:
            self._unread_there -= size_bytes
        if self._unread_there < 0:
            raise ProtocolViolationError("has read more than we sent", peer=self.peer)

    def _decoded(self, encoded: str) -> bytes:
        try:
            return b64decode(encoded, validate=True)
        except ValueError:
            raise ProtocolViolationError("sends what is no base64", peer=self.peer) from None

    def _violation(self, what: str, key: Key) -> AgentError:
        return ProtocolViolationError(what, peer=self.peer).of_transfer(*key)

    def _announce(self, receive: TcpTicket) -> None:
        memory = receive.request.memory
        receive.number = next(self._numbers) & 0xFFFFFFFF
        with self.lock:
            self._say("ready", *receive.key, receive.number, memory.element_count, int(memory.element_type))

    def _meet(self, send: TcpTicket) -> None:
        """Begin to send if the peer is ready."""
        ready = self._ready.pop(send.key, None)
        if ready is None:
            return
        send.number, send.ready_ns = ready[0], monotonic_ns()
        memory = send.request.memory
        mine = memory.element_count, int(memory.element_type)
        if ready[1:] != mine:
            theirs, ours = (f"{count} elements of {_type_name(kind)}" for count, kind in (ready[1:], mine))
            self.give_up(send, "mismatch", f"the receiver expects {theirs}, the sender has {ours}")
            return
        self._set_timers(send, Moment.PEER_READY)
        heapq.heappush(self._sendable, (cast(Send, send.request).layer, next(self._order), send))

    def next_chunk(self) -> tuple[TcpTicket, int] | None:
        """For a data connection that has room: a send, and the number of its next chunk."""
        while self._sendable:
            send = self._sendable[0][2]
            if not send.is_over and send.taken < len(send.arrived):
                if not send.taken:
                    self.first_byte(send)
                send.taken += 1
                return send, send.taken - 1
            heapq.heappop(self._sendable)
        return None

    def open_receive(self, key: Key, number: int) -> TcpTicket | None:
        """Whose memory is still ours to write."""
        receive = self._receives.get(key)
        return receive if receive is not None and receive.number == number else None

    def first_byte(self, ticket: TcpTicket) -> None:
        """Of the tensor, on its way out or in."""
        ticket.first_ns = monotonic_ns()
        if not ticket.is_send:
            ticket.ready_ns = ticket.first_ns
            self._set_timers(ticket, Moment.PEER_READY)
        self._set_timers(ticket, Moment.FIRST_BYTE)

    def chunk_arrived(self, receive: TcpTicket, number: int) -> None:
        """All of it is in its place."""
        receive.arrived[number] = True
        receive.arrived_count += 1
        receive.last_ns = monotonic_ns()
        self._take_if_enough(receive)

    def _take_if_enough(self, receive: TcpTicket) -> None:
        request = cast(Receive, receive.request)
        # No chunk is more important than another: both bounds are of all of them.
        bound = min(request.loss_bound, request.important_loss_bound) if receive.is_soft else 0
        if len(receive.arrived) - receive.arrived_count <= bound * len(receive.arrived):
            self.take(receive)

    def take(self, receive: TcpTicket) -> None:
        """Complete it with the chunks that are there whole."""
        if receive.is_over:
            return
        bitmap = ""
        if receive.arrived_count < len(receive.arrived):
            bitmap = b64encode(np.packbits(receive.arrived).tobytes()).decode()
            if not cast(Receive, receive.request).keep_missing:
                for chunk in np.flatnonzero(~receive.arrived).tolist():
                    first = chunk * receive.chunk_bytes
                    receive.request.memory.data[first : first + receive.chunk_bytes] = 0
        if receive.number >= 0:
            with self.lock:
                self._say("done", *receive.key, receive.number, bitmap)
        self._end(receive, None)

    def give_up(self, ticket: TcpTicket, kind: str, what: str) -> None:
        """Here and at the peer."""
        if ticket.is_over:
            return
        if ticket.number >= 0:
            with self.lock:
                self._say("cancel", *ticket.key, ticket.number, ticket.is_send, kind, text(what))
        self._end(ticket, _ERRORS[kind](what, peer=self.peer))

    def _end(self, ticket: TcpTicket, error: AgentError | None) -> None:
        with self.lock:
            (self._sends if ticket.is_send else self._receives).pop(ticket.key, None)
        ticket.end(error and error.of_transfer(*ticket.key))

    def _set_timers(self, ticket: TcpTicket, moment: Moment) -> None:
        request = ticket.request
        passed_ns = monotonic_ns() - ticket.posted_ns if moment is Moment.POST else 0
        calls: list[tuple[int, Callable[[TcpTicket], None]]] = [(request.deadline_ns, self._time_is_up)]
        if isinstance(request, Receive):
            calls.append((request.soft_ns, self._soft_time_is_up))
        for after_ns, call in calls if request.deadline_from is moment else ():
            if after_ns:
                delay = max(0, after_ns - passed_ns) / 1e9
                ticket.timers.append(self._loop.call_later(delay, call, ticket))

    def _soft_time_is_up(self, receive: TcpTicket) -> None:
        receive.is_soft = True
        self._take_if_enough(receive)

    def _time_is_up(self, ticket: TcpTicket) -> None:
        request, chunks = ticket.request, len(ticket.arrived)
        if isinstance(request, Receive) and request.at_deadline is AtDeadline.TAKE:
            self.take(ticket)
            return
        state = f"{ticket.arrived_count} of {chunks} chunks arrived"
        if ticket.is_send:
            is_ready = "the peer did not end it" if ticket.ready_ns else "the peer has not posted it"
            state = f"{is_ready}, {ticket.taken} of {chunks} chunks sent"
        self.give_up(ticket, "deadline", f"time is up: {state}")

    # Data connections

    def close(self, error: AgentError) -> None:
        """See Connection."""
        with self.lock:
            self._error = self._error or error
        for task in self._tasks:
            task.cancel()
        for stream in (*self._outgoing, *self._incoming):
            stream.close()
        self._engine.forget(self.token)
        for ticket in (*self._sends.values(), *self._receives.values()):
            self._end(ticket, error)

    def fail(self, error: AgentError) -> None:
        """What was in a data connection is gone: so is the peer."""
        delay = 0 if isinstance(error, ProtocolViolationError) else LAST_WORDS_SECONDS
        self._loop.call_later(delay, self._failed, error)

    def _failed(self, error: AgentError) -> None:
        if self._error is None:
            self._host.connection_failed(self.peer, error)

    def take_in(self, accepted: socket.socket) -> None:
        """A data connection of the peer's, behind its opening."""
        if len(self._incoming) < wire.MOST_STREAMS:
            self._incoming.append(Incoming(self, self._loop, accepted))
        else:
            accepted.close()

    def _write_all(self) -> None:
        for stream in self._outgoing:
            stream.write()

    async def _dial(self, number: int, theirs: wire.TcpOffer) -> None:
        path = number % len(theirs.addresses)
        address, port = theirs.addresses[path]
        own = self._engine.addresses[path % len(self._engine.addresses)]
        dscp, congestion_control = self._host.config.control_dscp, self._engine.settings.congestion_control
        try:
            opened = await dial(
                self._loop, own, Endpoint(str(address), port), theirs.token, dscp, congestion_control
            )
        except PeerUnreachableError as error:
            self.fail(PeerUnreachableError(error.what, peer=self.peer))
            return
        self._outgoing.append(Outgoing(self, self._loop, opened, dscp))
        self._write_all()


class TcpEngine:
    """All data connections of one agent, a `TransportEngine`."""

    def __init__(self, host: TransportHost, settings: TcpSettings) -> None:
        self.host, self.settings = host, settings
        self.addresses = host.config.addresses or ("127.0.0.1",)
        with data_socket(self.addresses[0], 0) as probe:
            choose(probe, settings.congestion_control)
        self._doors: dict[bytes, TcpConnection | list[socket.socket]] = {}
        """By token; data connections that are earlier than their peer's offer wait."""
        self._listeners = Listeners(host, self.addresses, self._welcome)

    def offer(self, peer: str, channel: str) -> dict[str, Any]:  # noqa: ARG002  (all get the same)
        """See TransportEngine."""
        token = secrets.token_bytes(wire.TOKEN_BYTES)
        self._doors[token] = []
        return {
            "version": wire.VERSION,
            "token": token.hex(),
            "addresses": [[address, self._listeners.ports[address]] for address in self.addresses],
            "chunk_bytes": self.settings.chunk_bytes,
        }

    def withdraw(self, ours: dict[str, Any]) -> None:
        """See TransportEngine."""
        self.forget(bytes.fromhex(ours["token"]))

    def accept(self, peer: str, channel: str, ours: dict[str, Any], theirs: dict[str, Any]) -> TcpConnection:
        """See TransportEngine."""
        offer, token = wire.checked_offer(theirs, peer), bytes.fromhex(ours["token"])
        connection = TcpConnection(self, peer, channel, token, offer)
        waiting, self._doors[token] = self._doors[token], connection
        for accepted in waiting if isinstance(waiting, list) else ():
            connection.take_in(accepted)
        return connection

    def forget(self, token: bytes) -> None:
        """Data connections with it are strangers from now on."""
        waiting = self._doors.pop(token, None)
        for accepted in waiting if isinstance(waiting, list) else ():
            accepted.close()

    def counters(self) -> dict[str, int]:
        """See TransportEngine; the kernel counts, not we."""
        return {}

    def close(self) -> None:
        """See TransportEngine."""
        self._listeners.close()
        for token in list(self._doors):
            self.forget(token)

    def _welcome(self, token: bytes, accepted: socket.socket) -> None:
        door = None
        for known, candidate in self._doors.items():  # all of them: the time must not tell how near it was
            if compare_digest(known, token):
                door = candidate
        if isinstance(door, TcpConnection):
            door.take_in(accepted)
        elif door is not None and len(door) < wire.MOST_STREAMS:
            door.append(accepted)
        else:
            accepted.close()


class TcpTransport:
    """The description."""

    name = "tcp"
    is_datagram = False
    settings: type[BaseModel] = TcpSettings

    def open(self, host: TransportHost) -> TcpEngine:
        """See Transport."""
        return TcpEngine(host, cast(TcpSettings, host.config.section(self.name)))


TRANSPORT: Final[Transport] = TcpTransport()


def _type_name(number: int) -> str:
    return ElementType(number).name.lower() if number in set(ElementType) else f"type {number}"
