"""Data connections of the transport `tcp`: their sockets, and chunks on their way out and in.

Callbacks in the engine's thread; none waits. Elements go between the tensor and the kernel without a copy.
"""

import asyncio
import errno
import socket
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.errors import AgentError, PeerUnreachableError, ProtocolViolationError
from mltswitch.hostagent.transport.description import TransportHost
from mltswitch.hostagent.transport.tcp_frames import CHUNK, GIVEN_UP, MAGIC, OPENING_BYTES, WHOLE

if TYPE_CHECKING:
    from mltswitch.hostagent.transport.tcp import TcpConnection
    from mltswitch.hostagent.transport.tcp_transfer import TcpTicket

DIAL_SECONDS: Final = 5.0
"""For a data port to answer."""
OPENING_SECONDS: Final = 5.0
"""For a stranger to say whose it is."""
MOST_STRANGERS: Final = 256
"""Beyond it newcomers wait in the kernel's queue."""
MOST_STRANGERS_OF_ADDRESS: Final = 64
PAUSE_SECONDS: Final = 0.1
"""After the machine had no descriptor or memory left for another connection."""
TURN_BYTES: Final = 4 << 20
"""Of one data connection, before others have their turn."""
KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))
SILENCE_MS: Final = 25_000
"""Without an acknowledgement by the peer's kernel a data connection is over."""
_NOTHING: Final = memoryview(b"")
_ZEROS: Final = memoryview(bytes(64 << 10))
_SCRATCH: Final = memoryview(bytearray(64 << 10))
"""Where the bytes go that are nobody's any more; it is never read."""


def data_socket(address: str, dscp: int) -> socket.socket:
    """One that does not block, for or at this address; all else is as the kernel has it."""
    opened = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    opened.setblocking(False)
    set_dscp(opened, dscp)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        opened.setsockopt(socket.IPPROTO_TCP, option, value)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)
    return opened


def set_dscp(opened: socket.socket, dscp: int) -> None:
    """Of what leaves from now on; TCP chooses its ECN bits itself."""
    if opened.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    else:
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)


def choose(opened: socket.socket, congestion_control: str | None) -> None:
    """None: the kernel's default. Raises UserInputError where the kernel does not have it, or not for us."""
    if congestion_control is None:
        return
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
    except OSError as error:
        allowed = "others than root may use those of net.ipv4.tcp_allowed_congestion_control"
        raise UserInputError(
            f"{congestion_control!r} cannot be used: {error.strerror}",
            where="tcp.congestion_control",
            expected="one of net.ipv4.tcp_available_congestion_control",
            hint=allowed if error.errno == errno.EPERM else f"`modprobe tcp_{congestion_control}`",
        ) from None


async def dial(
    loop: asyncio.AbstractEventLoop,
    own: str,
    remote: Endpoint,
    token: str,
    dscp: int,
    congestion_control: str | None,
) -> socket.socket:
    """A data connection from an address of ours, behind its opening; raises PeerUnreachableError."""
    opened = data_socket(remote.address, dscp)
    try:
        choose(opened, congestion_control)
        if (":" in own) == (":" in remote.address):
            opened.bind((own, 0))
        async with asyncio.timeout(DIAL_SECONDS):
            await loop.sock_connect(opened, (remote.address, remote.port))
        opened.send(MAGIC + bytes.fromhex(token))
    except BaseException as error:
        opened.close()
        if isinstance(error, TimeoutError) and not error.errno:
            raise PeerUnreachableError(f"does not answer at its data port {remote}") from None
        if isinstance(error, OSError):
            what = f"cannot be reached at its data port {remote}: {error.strerror}"
            raise PeerUnreachableError(what) from None
        raise
    return opened


class _Stream:
    """One data connection of a channel with a peer."""

    def __init__(
        self, connection: "TcpConnection", loop: asyncio.AbstractEventLoop, opened: socket.socket
    ) -> None:
        self._connection, self._loop, self._socket = connection, loop, opened
        loop.add_reader(opened, self._guarded, self._read)

    def close(self) -> None:
        """At once; what the kernel has still leaves."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()

    @abstractmethod
    def _read(self) -> None: ...

    def _guarded(self, work: Callable[[], None]) -> None:
        """What breaks ends this data connection, and soon the peer's others."""
        peer = self._connection.peer
        try:
            work()
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(PeerUnreachableError(f"a data connection broke: {error.strerror}", peer=peer))
        except AgentError as error:
            self._fail(error)

    def _fail(self, error: AgentError) -> None:
        self.close()
        self._connection.fail(error)


class Outgoing(_Stream):
    """To the peer; takes the next chunk whenever it has room."""

    def __init__(
        self, connection: "TcpConnection", loop: asyncio.AbstractEventLoop, opened: socket.socket, dscp: int
    ) -> None:
        super().__init__(connection, loop, opened)
        self._is_blocked = False
        self._dscp = dscp
        self._send: TcpTicket | None = None
        """Of the chunk on its way."""
        self._header = self._mark = _NOTHING
        self._first = self._last = 0
        """Of its bytes that have not been written."""

    def write(self) -> None:
        """Until there is nothing left, or no room."""
        if not self._is_blocked:
            self._guarded(self._write)

    def _write(self) -> None:
        budget = TURN_BYTES
        while budget > 0 and self._socket.fileno() >= 0:
            parts = self._parts()
            if not parts:
                break
            try:
                written = self._socket.sendmsg(parts)
            except BlockingIOError:
                budget = 0
                break
            self._written(written)
            budget -= written
        if (budget <= 0) != self._is_blocked:
            self._is_blocked = budget <= 0
            if self._is_blocked:
                self._loop.add_writer(self._socket, self._guarded, self._write)
            else:
                self._loop.remove_writer(self._socket)

    def _parts(self) -> list[memoryview]:
        """Never memory of a send that has ended: zeros fill up what has begun."""
        if not self._mark and not self._begin():
            return []
        send = self._send
        if self._first == self._last:
            elements = _NOTHING
        elif send is not None and not send.is_over:
            elements = send.view[self._first : self._last]
        else:
            self._send, self._mark = None, memoryview(GIVEN_UP)
            elements = _ZEROS[: self._last - self._first]
        is_rest = len(elements) == self._last - self._first
        return [part for part in (self._header, elements, self._mark if is_rest else _NOTHING) if part]

    def _begin(self) -> bool:
        chunk = self._connection.next_chunk()
        if chunk is None:
            return False
        self._send, number = chunk
        send = self._send
        if send.dscp != self._dscp:
            self._dscp = send.dscp
            set_dscp(self._socket, send.dscp)
        self._first = number * send.chunk_bytes
        self._last = min(self._first + send.chunk_bytes, len(send.view))
        header = CHUNK.pack(*send.key, send.number, self._first, self._last - self._first)
        self._header, self._mark = memoryview(header), memoryview(WHOLE)
        return True

    def _written(self, count: int) -> None:
        of_header = min(count, len(self._header))
        of_elements = min(count - of_header, self._last - self._first)
        self._header = self._header[of_header:]
        self._first += of_elements
        if self._send is not None:
            self._send.bytes_sent += of_elements
        self._mark = self._mark[count - of_header - of_elements :]
        if not self._mark:
            self._send = None  # its memory is the user's, who may have other plans with it

    def _read(self) -> None:
        """The peer says nothing here; this notices when it has gone."""
        if self._socket.recv(1):
            raise ProtocolViolationError("answers on a data connection of ours", peer=self._connection.peer)
        raise PeerUnreachableError("closed a data connection", peer=self._connection.peer)


class Incoming(_Stream):
    """From the peer, behind the opening: elements go straight to their places."""

    def __init__(
        self, connection: "TcpConnection", loop: asyncio.AbstractEventLoop, opened: socket.socket
    ) -> None:
        super().__init__(connection, loop, opened)
        self._between = memoryview(bytearray(len(WHOLE) + CHUNK.size))
        """The end mark of one chunk and the header of the next."""
        self._filled = len(WHOLE)
        self._key, self._ready, self._number = (0, 0), -1, 0
        self._first = self._left = 0

    def _read(self) -> None:
        budget = TURN_BYTES
        while budget > 0 and self._socket.fileno() >= 0:
            spaces = self._spaces()
            count = self._socket.recvmsg_into(spaces)[0]
            if not count:
                raise PeerUnreachableError("closed a data connection", peer=self._connection.peer)
            self._took(count)
            budget -= count

    def _spaces(self) -> list[memoryview]:
        if not self._left:
            return [self._between[self._filled :]]
        receive = self._connection.open_receive(self._key, self._ready)
        place = (
            _SCRATCH[: self._left]
            if receive is None
            else receive.view[self._first : self._first + self._left]
        )
        return [place] if len(place) < self._left else [place, self._between]

    def _took(self, count: int) -> None:
        of_elements = min(count, self._left)
        if of_elements:
            self._first += of_elements
            self._left -= of_elements
            self._filled = 0
        if count == of_elements:
            return
        if not self._filled:
            self._chunk_ended()
        self._filled += count - of_elements
        if self._filled == len(self._between):
            self._chunk_begins()

    def _chunk_ended(self) -> None:
        mark = bytes(self._between[:1])
        if mark not in {WHOLE, GIVEN_UP}:
            raise ProtocolViolationError("sends a chunk without an end mark", peer=self._connection.peer)
        receive = self._connection.open_receive(self._key, self._ready)
        if receive is not None and mark == WHOLE:
            self._connection.chunk_arrived(receive, self._number)

    def _chunk_begins(self) -> None:
        tensor, round_number, self._ready, self._first, self._left = CHUNK.unpack(self._between[len(WHOLE) :])
        self._key = tensor, round_number
        receive = self._connection.open_receive(self._key, self._ready)
        if receive is not None:
            self._number, rest = divmod(self._first, receive.chunk_bytes)
            size = min(receive.chunk_bytes, len(receive.view) - self._first)
            if rest or size <= 0 or self._left != size or receive.arrived[self._number]:
                raise ProtocolViolationError(
                    f"sends no chunk, or one twice: {self._left} bytes at {self._first}",
                    peer=self._connection.peer,
                    tensor=tensor,
                    round_number=round_number,
                )
            if not receive.first_ns:
                self._connection.first_byte(receive)
        elif not self._left:
            raise ProtocolViolationError("sends an empty chunk", peer=self._connection.peer)


class Listeners:
    """Where peers connect to; who has not said whose it is stays outside, few and not for long."""

    def __init__(
        self, host: TransportHost, addresses: Iterable[str], welcome: Callable[[bytes, socket.socket], None]
    ) -> None:
        """Raises UserInputError, MachineError."""
        self.ports: dict[str, int] = {}
        self._loop, self._welcome = host.loop, welcome
        self._strangers: Counter[str] = Counter()
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        listeners: list[socket.socket] = []
        try:
            for address in dict.fromkeys(addresses):
                listener = data_socket(address, host.config.control_dscp)
                listeners.append(listener)
                self.ports[address] = _listen(listener, address, host.config.data_port or 0)
        except BaseException:
            for listener in listeners:
                listener.close()
            raise
        for listener in listeners:
            self._task(self._accept_all(listener))

    def close(self) -> None:
        """At once."""
        for task in self._tasks:
            task.cancel()

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept_all(self, listener: socket.socket) -> None:
        with listener:
            while True:
                while self._strangers.total() >= MOST_STRANGERS:
                    self._room.clear()
                    await self._room.wait()
                try:
                    accepted, (address, *_) = await self._loop.sock_accept(listener)
                except OSError:
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                if self._strangers[address] >= MOST_STRANGERS_OF_ADDRESS:
                    accepted.close()
                else:
                    self._strangers[address] += 1
                    self._task(self._greet(accepted, address))

    async def _greet(self, accepted: socket.socket, address: str) -> None:
        opening = memoryview(bytearray(OPENING_BYTES))
        filled = 0
        try:
            async with asyncio.timeout(OPENING_SECONDS):
                while filled < OPENING_BYTES:
                    count = await self._loop.sock_recv_into(accepted, opening[filled:])
                    if not count:
                        break
                    filled += count
        except (OSError, TimeoutError):
            filled = 0
        except BaseException:
            accepted.close()
            raise
        finally:
            self._strangers[address] -= 1
            self._strangers += Counter()  # forget who is not there any more
            self._room.set()
        if filled == OPENING_BYTES and bytes(opening[: len(MAGIC)]) == MAGIC:
            self._welcome(bytes(opening[len(MAGIC) :]), accepted)
        else:
            accepted.close()


def _listen(listener: socket.socket, address: str, port: int) -> int:
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(MOST_STRANGERS)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise UserInputError("is not an address of this machine", where=address) from None
        raise MachineError(
            f"cannot listen for data there: {error.strerror}", where=f"{address} port {port}"
        ) from None
    return int(listener.getsockname()[1])
