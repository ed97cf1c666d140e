"""Transfers of the transport `tcp` with one peer: who is ready, which chunk goes next, what ends them.

This module touches no socket. All but posting runs in the engine's thread.
"""

import asyncio
import heapq
import itertools
import threading
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from time import monotonic_ns
from typing import Any, Final, cast

import numpy as np

from mltswitch.hostagent import errors
from mltswitch.hostagent.errors import AgentError, ProtocolViolationError
from mltswitch.hostagent.protocol.frames import text
from mltswitch.hostagent.transport.records import (
    AtDeadline,
    Completion,
    Direction,
    Moment,
    Receive,
    Send,
    TransferStatistics,
)
from mltswitch.hostagent.transport.tcp_frames import MOST_CHUNKS, Key
from mltswitch.hostagent.waiting import wait_in_slices
from mltswitch.wire import ElementType

MOST_TRANSFERS: Final = 16_384
"""The most open transfers of a connection, and the most READYs of the peer that no send has answered."""
_ERRORS: Final = {
    "cancelled": errors.CancelledError,
    "deadline": errors.DeadlineExceededError,
    "mismatch": errors.TransferMismatchError,
}


class _Ticket:
    """One transfer; all but what its user calls is the engine's thread's."""

    def __init__(self, connection: "Transfers", request: Send | Receive) -> None:
        memory = request.memory
        self.request = request
        self.slot = isinstance(request, Send), (request.tensor, request.round_number)
        self.is_send, self.key = self.slot
        self.number = -1
        """Of its READY, which tells chunks of an earlier attempt apart; -1: there was none."""
        self.view, self.size = memory.data.data, len(memory.data)
        element_bytes = memory.element_type.size_bytes
        elements = max(connection.chunk_bytes // element_bytes, -(-memory.element_count // MOST_CHUNKS))
        self.chunk_elements, self.chunk_bytes = elements, elements * element_bytes
        self.arrived = np.zeros(-(-self.size // self.chunk_bytes), np.bool_)
        self.arrived_count = self.taken = 0
        self.bound = 0.0
        """The share of chunks that may be missing: more than none from the soft time on."""
        self.dscp = request.dscp if isinstance(request, Send) else 0
        self.times: dict[str, Any] = {"posted_ns": monotonic_ns(), "ready_ns": 0, "first_ns": 0, "last_ns": 0}
        self.timers: list[asyncio.TimerHandle] = []
        self.is_over = False
        self._connection = connection
        self._completion: Future[Completion] = Future()

    def wait(self, timeout_seconds: float | None) -> bool:
        mine = self._completion
        return mine.done() or wait_in_slices(
            lambda left: wait_for_futures([mine], left).done, timeout_seconds
        )

    def notify(self, callback: Callable[[], object]) -> None:
        self._completion.add_done_callback(lambda _: self._connection.soon(callback))

    def completion(self) -> Completion | None:
        return self._completion.result() if self._completion.done() else None

    def statistics(self, ended_ns: int = 0) -> TransferStatistics:
        short = len(self.arrived) * self.chunk_bytes - self.size if self.arrived[-1] else 0
        return TransferStatistics(
            size_bytes=self.size,
            packets=len(self.arrived),
            packets_sent=self.taken,
            packets_resent=0,
            bytes_sent=min(self.taken * self.chunk_bytes, self.size),
            packets_received=self.arrived_count,
            bytes_received=self.arrived_count * self.chunk_bytes - short,
            packets_duplicate=None if self.is_send else 0,
            ended_ns=ended_ns,
            **self.times,
        )

    def finish(self) -> None:
        self._connection.soon(lambda: self._connection.take(self))

    def cancel(self, reason: str) -> None:
        self._connection.soon(lambda: self._connection.give_up(self, "cancelled", reason))

    def retag(self, dscp: int) -> None:
        self.dscp = dscp

    def end(self, error: AgentError | None) -> None:
        """The memory is the user's again."""
        self.is_over, self.view = True, memoryview(b"")
        for timer in self.timers:
            timer.cancel()
        completion = Completion(
            self._connection.peer,
            self._connection.channel,
            *self.key,
            Direction.SEND if self.is_send else Direction.RECEIVE,
            error,
            self.statistics(monotonic_ns()),
            np.packbits(self.arrived, bitorder="little").tobytes(),
            self.chunk_elements,
            self.request.memory.element_count,
        )
        self._completion.set_result(completion)


class Transfers(ABC):
    """All transfers of one channel with one peer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dscp: int, chunk_bytes: int) -> None:
        self.peer = self.channel = ""
        self.loop, self.dscp, self.chunk_bytes = loop, dscp, chunk_bytes
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

    @abstractmethod
    def say(self, *entry: Any) -> None:
        """Send the peer a message on the control channel."""

    @abstractmethod
    def write(self) -> None:
        """Let the data connections take further chunks."""

    @abstractmethod
    def fail(self, error: AgentError) -> None:
        """Fail the connection with the peer, because what was in a broken data connection is lost."""

    # Any thread

    def soon(self, call: Callable[[], object]) -> None:
        """Call a function in the engine's thread, or at once if the closed agent has none any more."""
        try:
            self.loop.call_soon_threadsafe(call)
        except RuntimeError:  # the agent is closed, and has no thread any more
            call()

    def _post(self, requests: Sequence[Send | Receive]) -> list[_Ticket]:
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
        return tickets

    post_sends = post_receives = _post

    def _check_open(self) -> None:
        if self._error is not None:
            raise type(self._error)(self._error.what, peer=self.peer)

    def _violation(self, key: Key, what: str) -> AgentError:
        return ProtocolViolationError(what, peer=self.peer).of_transfer(*key)

    # What the peer says

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
                self.say("ready", ticket.key, ticket.number, memory.element_count, memory.element_type)
        self.write()

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
        """The next chunk to send: the send it is of, and its first byte; None: no chunk waits."""
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
        """The receive to which an arriving chunk belongs; None: its transfer has ended."""
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
        """Record that a receive's chunk up to byte `end` is complete; its last packet came at `at_ns`."""
        chunk = (end - 1) // receive.chunk_bytes
        receive.arrived_count += not receive.arrived[chunk]
        receive.arrived[chunk] = True
        receive.times["last_ns"] = at_ns
        self._take_if_enough(receive)

    def _take_if_enough(self, receive: _Ticket) -> None:
        if len(receive.arrived) - receive.arrived_count <= receive.bound * len(receive.arrived):
            self.take(receive)

    def take(self, receive: _Ticket) -> None:
        """Complete a receive with the chunks that are complete."""
        if receive.is_over:
            return
        missing = np.flatnonzero(~receive.arrived).tolist()
        if not cast(Receive, receive.request).keep_missing:
            for first in (chunk * receive.chunk_bytes for chunk in missing):
                receive.request.memory.data[first : first + receive.chunk_bytes] = 0
        if receive.number >= 0:
            bitmap = b64encode(np.packbits(receive.arrived).tobytes()).decode() if missing else ""
            self.say("done", receive.key, receive.number, bitmap)
        self._end(receive, None)

    def give_up(self, ticket: _Ticket, kind: str, what: str) -> None:
        """Fail a transfer, here and at the peer."""
        if ticket.is_over:
            return
        if ticket.number >= 0:
            self.say("cancel", ticket.key, ticket.number, ticket.is_send, kind, text(what))
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
            if request.at_deadline is AtDeadline.TAKE:
                self.take(ticket)
            state = f"{ticket.arrived_count} of {chunks} chunks arrived"
        elif ticket.number < 0:
            state = "the peer has not posted it"
        self.give_up(ticket, "deadline", f"time is up: {state}")
