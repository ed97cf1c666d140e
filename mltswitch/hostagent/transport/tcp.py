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
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import Any, Final, cast

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.hostagent import errors
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.errors import AgentError, PeerUnreachableError, ProtocolViolationError
from mltswitch.hostagent.protocol.frames import text
from mltswitch.hostagent.streams import listening_socket
from mltswitch.hostagent.transport import description as api
from mltswitch.hostagent.transport import tcp_frames as wire
from mltswitch.hostagent.transport.description import Moment, Receive, Send
from mltswitch.hostagent.transport.tcp_frames import Key, TcpSettings
from mltswitch.hostagent.transport.tcp_streams import Incoming, Outgoing, _Ticket, data_socket
from mltswitch.wire import ElementType

LAST_WORDS_SECONDS: Final = 0.5
"""A data connection may end before the control channel says why."""
MOST_TRANSFERS: Final = 16_384
"""Open ones of a connection; and READYs of the peer's that no send has met, or that ended before one did."""
MOST_UNREAD_MESSAGES: Final = 64
STRANGER_SECONDS: Final = 3
"""Until then the kernel keeps who connects and says nothing; it keeps MOST_STRANGERS at most."""
MOST_STRANGERS: Final = 256
_ERRORS: Final = {
    "cancelled": errors.CancelledError,
    "deadline": errors.DeadlineExceededError,
    "mismatch": errors.TransferMismatchError,
}


class _Connection:
    """One channel with one peer; the peer may connect to it from our offer on, before we know the peer's."""

    chunk_bytes: int

    def __init__(self, engine: "_Engine") -> None:
        self.peer = self.channel = ""
        self.loop, self.dscp, self.chunk_bytes = engine.host.loop, engine.dscp, engine.settings.chunk_bytes
        self.token = secrets.token_hex(wire.TOKEN_BYTES)
        self.incoming: list[Incoming] = []
        self.outgoing: list[Outgoing] = []
        self._engine = engine
        self._lock = threading.Lock()
        """Over what posts and messages change from any thread."""
        self._error: AgentError | None = None
        self._open: dict[tuple[bool, Key], _Ticket] = {}
        """Transfers, by whether it is a send."""
        self._ready: dict[Key, tuple[int, int, ElementType]] = {}
        """The peer's READYs that no send of ours has met: number, elements, their type."""
        self._taken: dict[Key, None] = {}
        """Those that the peer has ended before one met them."""
        self._numbers = itertools.count()
        self._sendable: list[tuple[int, int, _Ticket]] = []
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

    # Any thread

    def soon(self, call: Callable[[], object]) -> None:
        try:
            self.loop.call_soon_threadsafe(call)
        except RuntimeError:  # the agent is closed, and has no thread any more
            call()

    def _post(self, requests: Sequence[Send | Receive]) -> list[api.Ticket]:
        tickets = [_Ticket(self, request) for request in requests]
        added: dict[tuple[bool, Key], _Ticket] = {}
        with self._lock:
            self._check_open()
            if len(self._open) + len(tickets) > MOST_TRANSFERS:
                raise errors.TooManyTransfersError(f"{MOST_TRANSFERS} may be open, no more", peer=self.peer)
            for ticket in tickets:
                if ticket.slot in self._open or added.setdefault(ticket.slot, ticket) is not ticket:
                    error = errors.TransferMismatchError("is open already", peer=self.peer)
                    raise error.of_transfer(*ticket.key)
            self._open |= added
        self.soon(lambda: self._begin(tickets))
        return [*tickets]

    post_sends = post_receives = _post

    def send_message(self, message: bytes) -> bool:
        with self._lock:
            self._check_open()
            if self._unread_there >= MOST_UNREAD_MESSAGES:
                return False
            self._unread_there += 1
        self.soon(lambda: self._say("message", b64encode(message).decode()))
        return True

    def take_message(self) -> bytes | None:
        with self._lock:
            if not self._messages:
                return None
            message = self._messages.popleft()
        self.soon(lambda: self._say("read"))
        return message

    def snapshot(self) -> api.ConnectionSnapshot:
        return api.ConnectionSnapshot(transport="tcp", open_transfers=len(self._open))

    def _check_open(self) -> None:
        if self._error is not None:
            raise type(self._error)(self._error.what, peer=self.peer)

    def _violation(self, key: Key, what: str) -> AgentError:
        return ProtocolViolationError(what, peer=self.peer).of_transfer(*key)

    # The control channel

    def _say(self, *entry: Any) -> None:
        if self._error is None:
            self._engine.host.send_frame(self.peer, self.channel, {"entry": entry})

    def frame_received(self, body: dict[str, Any]) -> None:
        kind, fields = wire.checked_entry(body, self.peer)
        getattr(self, f"_peer_{kind}")(*fields)
        self._write()

    def _peer_ready(self, key: Key, number: int, elements: int, element_type: ElementType) -> None:
        send = self._open.get((True, key))
        is_second = key in self._ready or (send is not None and send.number >= 0)
        if is_second or len(self._ready) >= MOST_TRANSFERS:
            raise self._violation(key, "says READY twice, or too often")
        self._taken.pop(key, None)
        self._ready[key] = number, elements, element_type
        if send is not None:
            self._meet(send)

    def _peer_done(self, key: Key, number: int, bitmap: bytes) -> None:
        if self._forget_ready(key, number):
            self._taken[key] = None
            if len(self._taken) > MOST_TRANSFERS:
                del self._taken[next(iter(self._taken))]
        send = self._find(True, key, number)
        if send is None:
            return
        if bitmap and len(bitmap) != -(-len(send.arrived) // 8):
            raise self._violation(key, "sends the bitmap of another tensor")
        bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=len(send.arrived)) if bitmap else True
        send.arrived[:] = bits
        send.arrived_count = int(np.count_nonzero(send.arrived))
        self._end(send, None)

    def _peer_cancel(self, key: Key, number: int, by_sender: bool, kind: str, reason: str) -> None:
        if not by_sender:
            self._forget_ready(key, number)
        ticket = self._find(not by_sender, key, number)
        if ticket is not None:
            what = text(reason) if kind == "mismatch" else f"given up by the peer: {text(reason)}"
            self._end(ticket, _ERRORS[kind](what, peer=self.peer))

    def _peer_message(self, message: bytes) -> None:
        if len(self._messages) >= MOST_UNREAD_MESSAGES:
            raise ProtocolViolationError("sends more messages than it may", peer=self.peer)
        self._messages.append(message)
        self._engine.host.message_arrived(self.peer, self.channel)

    def _peer_read(self) -> None:
        with self._lock:
            self._unread_there -= 1

    def _find(self, is_send: bool, key: Key, number: int) -> _Ticket | None:
        """Of this attempt."""
        ticket = self._open.get((is_send, key))
        return ticket if ticket is not None and ticket.number == number else None

    def _forget_ready(self, key: Key, number: int) -> bool:
        return key in self._ready and self._ready[key][0] == number and bool(self._ready.pop(key))

    # A transfer's way

    def _begin(self, tickets: list[_Ticket]) -> None:
        for ticket in tickets:
            if ticket.is_over:
                continue
            self._count_from(Moment.POST, ticket)
            if ticket.is_send:
                self._meet(ticket)
            else:
                memory = ticket.request.memory
                ticket.number = next(self._numbers) & 0xFFFFFFFF
                self._say("ready", ticket.key, ticket.number, memory.element_count, memory.element_type)
        self._write()

    def _meet(self, send: _Ticket) -> None:
        """Begin to send if the peer is ready; or it has taken already what was there, nothing."""
        if send.key in self._taken:
            del self._taken[send.key]
            self._end(send, None)
        elif send.key in self._ready:
            send.number, *theirs = self._ready.pop(send.key)
            memory = send.request.memory
            if theirs != [memory.element_count, memory.element_type]:
                there = f"{theirs[0]} elements of {ElementType(theirs[1]).name.lower()}"
                here = f"{memory.element_count} elements of {memory.element_type.name.lower()}"
                self.give_up(send, "mismatch", f"the receiver expects {there}, the sender has {here}")
                return
            self._count_from(Moment.PEER_READY, send)
            heapq.heappush(self._sendable, (cast(Send, send.request).priority, next(self._numbers), send))

    def next_chunk(self) -> tuple[_Ticket, int] | None:
        """For a data connection that has room: a send, and the first byte of its next chunk."""
        while self._sendable:
            send = self._sendable[0][2]
            if not send.is_over and send.taken < len(send.arrived):
                if not send.taken:
                    self._count_from(Moment.FIRST_BYTE, send)
                send.taken += 1
                return send, (send.taken - 1) * send.chunk_bytes
            heapq.heappop(self._sendable)
        return None

    def receive_of(self, key: Key, number: int, first: int, size: int, at_ns: int) -> _Ticket | None:
        """Where a chunk belongs that begins to arrive at a time; None: its transfer is over."""
        receive = self._find(False, key, number)
        if receive is None:
            return None
        chunk, rest = divmod(first, receive.chunk_bytes)
        whole = min(receive.chunk_bytes, receive.size - first)
        if rest or size != whole or size <= 0 or receive.arrived[chunk]:
            raise self._violation(key, f"sends no chunk, or one twice: {size} at {first}")
        if not receive.times["first_ns"]:
            self._count_from(Moment.PEER_READY, receive)
            self._count_from(Moment.FIRST_BYTE, receive)
            receive.times["first_ns"] = at_ns
        return receive

    def chunk_arrived(self, receive: _Ticket, end: int, at_ns: int) -> None:
        """The chunk that ends before this byte is in its place; its last packet came then."""
        chunk = (end - 1) // receive.chunk_bytes
        receive.arrived_count += not receive.arrived[chunk]
        receive.arrived[chunk] = True
        receive.times["last_ns"] = at_ns
        self._take_if_enough(receive)

    def _take_if_enough(self, receive: _Ticket) -> None:
        if len(receive.arrived) - receive.arrived_count <= receive.bound * len(receive.arrived):
            self.take(receive)

    def take(self, receive: _Ticket) -> None:
        """Complete it with the chunks that are there whole."""
        if receive.is_over:
            return
        missing = np.flatnonzero(~receive.arrived).tolist()
        if not cast(Receive, receive.request).keep_missing:
            for first in (chunk * receive.chunk_bytes for chunk in missing):
                receive.request.memory.data[first : first + receive.chunk_bytes] = 0
        if receive.number >= 0:
            bitmap = b64encode(np.packbits(receive.arrived).tobytes()).decode() if missing else ""
            self._say("done", receive.key, receive.number, bitmap)
        self._end(receive, None)

    def give_up(self, ticket: _Ticket, kind: str, what: str) -> None:
        """Here and at the peer."""
        if ticket.is_over:
            return
        if ticket.number >= 0:
            self._say("cancel", ticket.key, ticket.number, ticket.is_send, kind, text(what))
        self._end(ticket, _ERRORS[kind](what, peer=self.peer))

    def _end(self, ticket: _Ticket, error: AgentError | None) -> None:
        with self._lock:
            if self._open.pop(ticket.slot, None) is None:
                return  # what was said last has ended the connection, and with it the transfer
        ticket.end(error and error.of_transfer(*ticket.key))

    def _count_from(self, moment: Moment, ticket: _Ticket) -> None:
        """It is now; times run from it, if they are to."""
        request = ticket.request
        if moment is not Moment.POST:
            ticket.times["ready_ns" if moment is Moment.PEER_READY else "first_ns"] = monotonic_ns()
        if request.deadline_from is moment:
            calls: list[tuple[int, Callable[[_Ticket], None]]] = [(request.deadline_ns, self._time_is_up)]
            if isinstance(request, Receive) and request.soft_ns:
                calls.append((request.soft_ns, self._soft_time_is_up))
            ticket.timers += [self.loop.call_later(after / 1e9, call, ticket) for after, call in calls]

    def _soft_time_is_up(self, receive: _Ticket) -> None:
        request = cast(Receive, receive.request)
        # No chunk is more important than another: both bounds are of all of them.
        receive.bound = min(request.loss_bound, request.important_loss_bound)
        self._take_if_enough(receive)

    def _time_is_up(self, ticket: _Ticket) -> None:
        request, chunks = ticket.request, len(ticket.arrived)
        state = f"{ticket.taken} of {chunks} chunks sent"
        if isinstance(request, Receive):
            if request.at_deadline is api.AtDeadline.TAKE:
                self.take(ticket)
            state = f"{ticket.arrived_count} of {chunks} chunks arrived"
        elif ticket.number < 0:
            state = "the peer has not posted it"
        self.give_up(ticket, "deadline", f"time is up: {state}")

    def is_settled(self) -> bool:
        """What ends transfers goes by the control connection, before its end."""
        return True

    def set_rate(self, cap_bps: float | None, controller: api.RateController | None) -> None:  # noqa: ARG002
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

    def _write(self) -> None:
        for stream in self.outgoing:
            stream.write()


class _Engine:
    """All data connections of one agent."""

    def __init__(self, host: api.TransportHost) -> None:
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
        return {
            "version": 1,
            "token": connection.token,
            "addresses": [[address, self.ports[address]] for address in self.addresses],
            "chunk_bytes": self.settings.chunk_bytes,
        }

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


TRANSPORT: Final = api.Transport(name="tcp", settings=TcpSettings, open=_Engine)
