"""Data connections of the transport `tcp`, which carry chunks out and in.

Callbacks in the engine's thread; none waits. Elements go between the tensor and the kernel without a copy.
"""

import errno
import socket
import struct
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic_ns, time_ns
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.errors import AgentError, PeerUnreachableError, ProtocolViolationError
from mltswitch.hostagent.streams import set_up
from mltswitch.hostagent.transport.tcp_frames import CHUNK, GIVEN_UP, WHOLE, TcpSettings
from mltswitch.hostagent.transport.tcp_transfers import Transfers, _Ticket
from mltswitch.units import NANOSECONDS

ATTEMPTS: Final = 3
"""How often the kernel repeats its attempt to reach a data port: after 1, 2 and 4 s."""
TURN_BYTES: Final = 4 << 20
"""The most bytes that one data connection handles before others have their turn."""
SO_TIMESTAMPNS: Final = 35
"""Linux socket option, and message type, for receive times: a struct timespec, wall clock (socket(7))."""
TIMESPEC: Final = struct.Struct("@qq")
MOST_AGE_NS: Final = NANOSECONDS
"""Highest credible age in ns of data that is read: nothing waits longer in a process that runs."""
TOLD_BYTES: Final = socket.CMSG_SPACE(TIMESPEC.size)
_SCRATCH: Final = memoryview(bytearray(64 << 10))
"""Where the bytes go that are nobody's any more; it is never read."""


def data_socket(settings: TcpSettings, version: int = 4) -> socket.socket:
    """A socket for a data connection; raises UserInputError if its congestion control cannot be used."""
    opened = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6)
    name = settings.congestion_control
    if name is not None:
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            opened.close()
            names = "allowed" if error.errno == errno.EPERM else "available"
            problem, known = f"{name!r} cannot be used", f"one of net.ipv4.tcp_{names}_congestion_control"
            raise UserInputError(problem, where="tcp.congestion_control", expected=known) from None
    return opened


class DataConnection:
    """One TCP connection for tensors; when it breaks, all that is open with the peer soon fails."""

    def __init__(self, connection: Transfers, opened: socket.socket) -> None:
        self._connection, self._loop, self._socket = connection, connection.loop, opened
        self._dscp, self._trouble = connection.dscp, "a data connection broke"
        opened.setblocking(False)
        set_up(opened, self._dscp)
        self._loop.add_reader(opened, self._guarded, self._read)

    def close(self) -> None:
        """Close the connection at once; the kernel still sends what it holds."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    @abstractmethod
    def _read(self) -> None: ...

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BlockingIOError:
            return
        except (OSError, AgentError) as problem:
            error = problem
            if isinstance(error, OSError):
                error = PeerUnreachableError(f"{self._trouble}: {error.strerror}")
            self.close()
            self._connection.fail(error)


class Outgoing(DataConnection):
    """A data connection to the peer, which takes the next chunk whenever it has room."""

    def __init__(
        self, connection: Transfers, opened: socket.socket, own: str, remote: Endpoint, opening: bytes
    ) -> None:
        def connect() -> None:
            if (":" in own) == (":" in remote.address):
                opened.bind((own, 0))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, ATTEMPTS - 1)
            opened.connect((remote.address, remote.port))

        super().__init__(connection, opened)
        self._trouble = f"cannot be reached at its data port {remote}"
        self._send: _Ticket | None = None
        self._parts = [memoryview(opening)]
        """Then header, elements and end mark of a chunk: what of them has not been written."""
        self._guarded(connect)
        self.write()

    def write(self) -> None:
        """Write chunks until none is left, or the socket has no room."""
        if self._socket.fileno() >= 0:
            self._guarded(self._write)

    def _write(self) -> None:
        budget = TURN_BYTES
        with suppress(BlockingIOError):  # not connected yet, or full
            while budget > 0 and (self._parts or self._begin()):
                if self._send is not None and self._send.is_over:
                    self._give_up()
                written = self._socket.sendmsg(self._parts)
                budget -= written
                while self._parts and written >= len(self._parts[0]):
                    written -= len(self._parts.pop(0))
                if written:
                    self._parts[0] = self._parts[0][written:]
        if self._parts or budget <= 0:
            self._loop.add_writer(self._socket, self._guarded, self._write)
        else:
            self._send = None  # its memory is the user's, who may have other plans with it
            self._loop.remove_writer(self._socket)

    def _begin(self) -> bool:
        self._trouble = "a data connection broke"
        chunk = self._connection.next_chunk()
        if chunk is None:
            return False
        self._send, first = chunk
        send, elements = self._send, self._send.view[first : first + self._send.chunk_bytes]
        if send.dscp != self._dscp:
            self._dscp = send.dscp
            set_up(self._socket, send.dscp)
        header = CHUNK.pack(*send.key, send.number, first, len(elements))
        self._parts = [memoryview(header), elements, memoryview(WHOLE)]
        return True

    def _give_up(self) -> None:
        """What has begun is filled up; the memory is the user's."""
        self._send, self._parts[-1] = None, memoryview(GIVEN_UP)
        if len(self._parts) > 1:
            self._parts[-2] = memoryview(bytes(len(self._parts[-2])))

    def _read(self) -> None:
        """The peer says nothing here; this notices when it has gone."""
        if self._socket.recv(1):
            raise ProtocolViolationError("answers on a data connection of ours")
        raise PeerUnreachableError("closed a data connection")


def _arrival_ns(told: Sequence[tuple[int, int, bytes]]) -> int:
    """When the kernel had the last packet of what was read, by the monotonic clock; else now."""
    now_ns = monotonic_ns()
    for level, kind, value in told:
        if (level, kind, len(value)) == (socket.SOL_SOCKET, SO_TIMESTAMPNS, TIMESPEC.size):
            seconds, nanoseconds = map(int, TIMESPEC.unpack(value))
            age_ns = time_ns() - seconds * NANOSECONDS - nanoseconds
            return now_ns - age_ns if 0 <= age_ns < MOST_AGE_NS else now_ns  # else the wall clock was set
    return now_ns


class Incoming(DataConnection):
    """A data connection from the peer; elements are received directly into their places."""

    def __init__(self, connection: Transfers, opened: socket.socket) -> None:
        super().__init__(connection, opened)
        self._between = memoryview(bytearray(len(WHOLE) + CHUNK.size))
        """The end mark of one chunk and the header of the next."""
        self._filled = len(WHOLE)
        self._receive: _Ticket | None = None
        with suppress(OSError):  # not Linux: times are those of reading
            opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._left = self._end = 0
        """Bytes of the chunk that are to come, and where they end in the tensor."""
        self._read_ns = 0
        """When the last packet came."""

    def _read(self) -> None:
        budget = TURN_BYTES
        while budget > 0:
            count, told, _, _ = self._socket.recvmsg_into(self._spaces(), TOLD_BYTES)
            if not count:
                raise PeerUnreachableError("closed a data connection")
            at_ns = self._read_ns = max(self._read_ns, _arrival_ns(told))
            budget -= count
            of_elements = min(count, self._left)
            self._left -= of_elements
            self._filled += count - of_elements
            if self._filled and self._receive is not None:
                receive, self._receive = self._receive, None
                if self._between[0] == WHOLE[0] and not receive.is_over:
                    self._connection.chunk_arrived(receive, self._end, at_ns)
            if self._filled == len(self._between):
                tensor, turn, number, first, self._left = CHUNK.unpack(self._between[len(WHOLE) :])
                self._filled, self._end = 0, first + self._left
                key = (tensor, turn)
                self._receive = self._connection.receive_of(key, number, first, self._left, at_ns)

    def _spaces(self) -> list[memoryview]:
        if not self._left:
            return [self._between[self._filled :]]
        if self._receive is not None and not self._receive.is_over:
            return [self._receive.view[self._end - self._left : self._end], self._between]
        self._receive, place = None, _SCRATCH[: self._left]
        return [place, self._between] if len(place) == self._left else [place]
