"""Listens for data connections, and keeps those that have not said yet whose they are, few and not for long.

Nothing is ever said to them, but by TLS where they begin it; what is wrong with one closes it without a word.
"""

import errno
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.control.refusals import TLS_HANDSHAKE
from mltswitch.hostagent.control.security import Security, check_plaintext
from mltswitch.hostagent.control.sockets import Endpoint, accept_next, endpoint_of, set_options
from mltswitch.hostagent.control.streams import TlsStream
from mltswitch.hostagent.control.tls import TlsIdentity
from mltswitch.hostagent.errors import AgentError
from mltswitch.hostagent.forks import not_in_children
from mltswitch.hostagent.network.waiting import READABLE, WRITABLE
from mltswitch.hostagent.tcp.connection import TcpConnection
from mltswitch.hostagent.tcp.frames import OPENING_BYTES
from mltswitch.hostagent.tcp.pipes import Pipe, PlainPipe, TlsPipe
from mltswitch.wire import Dscp

BACKLOG: Final = 128
ACCEPTED_AT_ONCE: Final = 32
MAXIMUM_STRANGERS: Final = 256
"""Beyond it newcomers wait in the kernel's queue."""
MAXIMUM_STRANGERS_PER_ADDRESS: Final = 64
"""Beyond it they are closed."""
PATIENCE_NS: Final = 5_000_000_000
PAUSE_NS: Final = 100_000_000
"""After the machine had no descriptor or memory left for another connection."""


class Stranger:
    """A connection whose opening is not there yet, or is of a peer whose HELLO is not."""

    def __init__(self, connection: socket.socket, remote: Endpoint, security: Security, now_ns: int) -> None:
        self.remote = remote
        self.due_ns = now_ns + PATIENCE_NS
        self.pipe: Pipe | None = None
        """None before the first byte."""
        self.named: TcpConnection | None = None
        """Whose it says it is; None: not looked up yet."""
        self._socket, self._security = connection, security
        self._opening = bytearray(OPENING_BYTES)
        self._received = 0

    def fileno(self) -> int:
        """For the selector; -1 after `close`."""
        return self._socket.fileno()

    @property
    def wanted(self) -> int:
        """What the selector should wait for; nothing where it has said all that it may for now."""
        if self.pipe is not None and self.pipe.has_unsent:
            return READABLE | WRITABLE
        return 0 if self.opening is not None else READABLE

    @property
    def opening(self) -> bytes | None:
        """None before all of it is there."""
        return bytes(self._opening) if self._received == OPENING_BYTES else None

    def step(self) -> None:
        """Read on; raises AgentError or OSError where it has ended."""
        if self.pipe is None:
            self.pipe = self._begun()
        if self.pipe is not None and self._received < OPENING_BYTES:
            if self.pipe.has_unsent:
                self.pipe.send(())
            self._received += self.pipe.receive([memoryview(self._opening)[self._received :]])

    def close(self) -> None:
        """Without a word: a reset leaves nothing behind."""
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._socket.close()

    def _begun(self) -> Pipe | None:
        try:
            first = self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return None
        if first == TLS_HANDSHAKE[:1] and isinstance(self._security, TlsIdentity):
            stream = TlsStream(self._security, expected_peer=None, address=str(self.remote))
            return TlsPipe(self._socket, stream)
        return PlainPipe(self._socket)


class DataListeners:
    """One listening socket for each of our addresses."""

    def __init__(self, addresses: Sequence[str], port: int, security: Security, dscp: Dscp) -> None:
        """Port 0: any free one at each address.

        Raises UserInputError for an address that is not this machine's or that plain text would leave from,
        MachineError where the port is taken.
        """
        self.strangers: list[Stranger] = []
        self.turned_away = 0
        """Closed at once, because too many of their address were there."""
        self._security = security
        self._paused_until_ns = 0
        self._sockets: dict[str, socket.socket] = {}
        try:
            for address in dict.fromkeys(addresses):
                local = Endpoint(address, port)
                check_plaintext(security, local)
                self._sockets[address] = _listening(local, dscp)
        except BaseException:
            self.close()
            raise

    def port(self, address: str) -> int:
        """Where peers connect to at this address."""
        return endpoint_of(self._sockets[address].getsockname()).port

    def wanted(self, now_ns: int) -> dict[int, int]:
        """What the selector should wait for."""
        found = {stranger.fileno(): stranger.wanted for stranger in self.strangers}
        if len(self.strangers) < MAXIMUM_STRANGERS and now_ns >= self._paused_until_ns:
            found |= {listener.fileno(): READABLE for listener in self._sockets.values()}
        return found

    def next_timer_ns(self, now_ns: int) -> int | None:
        """When to call `step` although nothing is ready."""
        times = [stranger.due_ns for stranger in self.strangers]
        if self._paused_until_ns > now_ns:
            times.append(self._paused_until_ns)
        return min(times, default=None)

    def step(self, ready: set[int], released: Callable[[int], None], now_ns: int) -> None:
        """Accept, and read on; `released` is told of each descriptor before it is closed.

        Raises MachineError where a listening socket itself is broken.
        """
        for listener in self._sockets.values():
            if listener.fileno() in ready:
                self._accept(listener, now_ns)
        for stranger in list(self.strangers):
            try:
                if stranger.fileno() in ready:  # no bytes wait in the pipe of one whose opening is not there
                    stranger.step()
            except (AgentError, OSError):
                self.turn_out(stranger, released)
            else:
                if now_ns >= stranger.due_ns:
                    self.turn_out(stranger, released)

    def turn_out(self, stranger: Stranger, released: Callable[[int], None]) -> None:
        """It is nobody's."""
        self.strangers.remove(stranger)
        released(stranger.fileno())
        stranger.close()

    def close(self) -> None:
        """All of them."""
        for stranger in self.strangers:
            stranger.close()
        self.strangers.clear()
        for listener in self._sockets.values():
            listener.close()

    def _accept(self, listener: socket.socket, now_ns: int) -> None:
        per_address = Counter(stranger.remote.ip for stranger in self.strangers)
        for _ in range(min(ACCEPTED_AT_ONCE, MAXIMUM_STRANGERS - len(self.strangers))):
            try:
                newcomer = accept_next(listener)
            except OSError:
                self._paused_until_ns = now_ns + PAUSE_NS
                return
            if newcomer is None:
                return
            connection, remote = newcomer
            connection.setblocking(False)
            stranger = Stranger(connection, remote, self._security, now_ns)
            if per_address[stranger.remote.ip] >= MAXIMUM_STRANGERS_PER_ADDRESS:
                self.turned_away += 1
                stranger.close()
                continue
            per_address[stranger.remote.ip] += 1
            self.strangers.append(stranger)


def _listening(local: Endpoint, dscp: Dscp) -> socket.socket:
    """Accepted sockets inherit its options."""
    family, address = local.resolved()
    kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    listener = not_in_children(socket.socket(family, kind))
    try:
        _bind(listener, local, address)
        set_options(listener, dscp)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _bind(listener: socket.socket, local: Endpoint, address: Any) -> None:
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise UserInputError("is not an address of this machine", where=str(local)) from None
        reason = os.strerror(error.errno or 0)
        raise MachineError(f"cannot listen for data there: {reason}", where=str(local)) from None
