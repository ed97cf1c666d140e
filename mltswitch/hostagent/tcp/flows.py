"""TCP connections that carry tensors one way, from the first SYN to the last frame."""

import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.security import Security
from mltswitch.hostagent.control.sockets import Endpoint, set_dscp, set_options
from mltswitch.hostagent.control.streams import TlsStream
from mltswitch.hostagent.control.tls import TlsIdentity
from mltswitch.hostagent.errors import PeerUnreachableError, ProtocolViolationError
from mltswitch.hostagent.network.waiting import READABLE, WRITABLE
from mltswitch.hostagent.tcp.connection import TcpConnection
from mltswitch.hostagent.tcp.pipes import Pipe, PlainPipe, TlsPipe
from mltswitch.hostagent.tcp.sending import Frame
from mltswitch.hostagent.tcp.settings import TcpSettings
from mltswitch.wire import Dscp

TCP_NOTSENT_LOWAT: Final = 25
"""linux/tcp.h; the socket module has it from Python 3.12 on."""
TURN_BYTES: Final = 4 << 20
"""Of one flow, before others have their turn."""
_STILL_CONNECTING: Final = {errno.EINPROGRESS, errno.EALREADY, errno.EINTR}


class OutgoingFlow:
    """To a peer: asks the connection for frames whenever it has room."""

    def __init__(
        self,
        connection: TcpConnection,
        remote: Endpoint,
        source: str | None,
        security: Security,
        settings: TcpSettings,
        until_ns: int,
    ) -> None:
        """Begins to connect, from our address `source` if any, and gives up at `until_ns`.

        Raises PeerUnreachableError, or UserInputError or MachineError for what the kernel refuses.
        """
        self._connection, self._remote, self._until_ns = connection, remote, until_ns
        family, self._address = remote.resolved()
        opened = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            set_options(opened, connection.control_dscp)
            if settings.unsent_bytes is not None:
                opened.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, settings.unsent_bytes)
            if settings.congestion_control is not None:
                choose_congestion_control(opened, settings.congestion_control)
            if source is not None:
                opened.bind(Endpoint(source, 0).resolved()[1])
            self._is_connected = self._connects(opened)
        except OSError as error:
            opened.close()
            raise self._unreachable(error.errno or 0) from None
        except BaseException:
            opened.close()
            raise
        self._pipe: Pipe = PlainPipe(opened)
        if connection.authenticates and isinstance(security, TlsIdentity):
            stream = TlsStream(security, expected_peer=connection.peer_name, address=str(remote))
            self._pipe = TlsPipe(opened, stream)
        self._is_blocked = not self._is_connected
        self._opening = memoryview(connection.opening)
        self._frame: Frame | None = None
        self._dscp: Dscp = connection.control_dscp

    def fileno(self) -> int:
        """For the selector; -1 after `close`."""
        return self._pipe.fileno()

    @property
    def wanted(self) -> int:
        """What the selector should wait for."""
        pipe = self._pipe
        has_more = bool(self._opening) or self._frame is not None
        waits_for_room = pipe.has_unsent or (pipe.is_open and self._is_blocked and has_more)
        needs_room = not self._is_connected or waits_for_room
        return READABLE | (WRITABLE if needs_room else 0)

    @property
    def due_ns(self) -> int | None:
        """When it must have said whose it is; None: it has."""
        return self._until_ns if self._opening else None

    def step(self, *, is_ready: bool, now: Callable[[], int]) -> bool:
        """Send what may leave; whether there is more that may leave at once. Raises AgentError at its end."""
        if self._opening and now() >= self._until_ns:
            raise PeerUnreachableError(f"does not answer at its data port {self._remote}")
        if is_ready:
            self._is_connected = self._is_connected or self._connects(self._pipe.kernel_socket)
            if self._is_connected:
                self._is_blocked = False
                self._listen()
        if not self._is_connected or self._is_blocked:
            return False
        return self._send(now)

    def close(self) -> None:
        """At once; what the kernel has still leaves."""
        self._frame = None
        self._pipe.close()

    def _send(self, now: Callable[[], int]) -> bool:
        sent = 0
        while sent < TURN_BYTES:
            parts = self._parts(now)
            if not parts:
                return False
            taken = self._pipe.send(parts)
            if not taken:
                self._is_blocked = True
                return False
            sent += taken
            if self._opening:
                self._opening = self._opening[taken:]
            elif self._frame is not None:
                self._frame.written(taken)
        return True

    def _parts(self, now: Callable[[], int]) -> list[memoryview]:
        if self._opening:
            return [self._opening]
        while True:
            parts = self._frame.parts() if self._frame is not None else []
            if parts:
                return parts
            self._frame = self._connection.next_frame(now())
            if self._frame is None:
                return []
            self._mark(self._frame.dscp)

    def _mark(self, dscp: Dscp) -> None:
        """What the kernel still holds of another class leaves with the new one's DSCP, too."""
        if dscp != self._dscp:
            set_dscp(self._pipe.kernel_socket, dscp)
            self._dscp = dscp

    def _listen(self) -> None:
        """The peer says nothing here but in its TLS handshake; this notices when it has gone."""
        if self._pipe.receive([memoryview(bytearray(1))]):
            raise ProtocolViolationError("answers on a data connection of ours")

    def _connects(self, opened: socket.socket) -> bool:
        """Begin, or ask how far it is: connect(2) does both; raises PeerUnreachableError."""
        code = opened.connect_ex(self._address)
        if code and code != errno.EISCONN and code not in _STILL_CONNECTING:
            raise self._unreachable(code)
        return code not in _STILL_CONNECTING

    def _unreachable(self, code: int) -> PeerUnreachableError:
        return PeerUnreachableError(f"cannot be reached at its data port {self._remote}: {os.strerror(code)}")


class IncomingFlow:
    """From a peer: hands the connection what arrives, in its place."""

    def __init__(self, connection: TcpConnection, pipe: Pipe) -> None:
        """Behind the opening."""
        self._connection, self._pipe = connection, pipe
        self._reader = connection.reader()

    def fileno(self) -> int:
        """For the selector; -1 after `close`."""
        return self._pipe.fileno()

    @property
    def wanted(self) -> int:
        """What the selector should wait for."""
        return READABLE | (WRITABLE if self._pipe.has_unsent else 0)

    def step(self, *, is_ready: bool, now: Callable[[], int]) -> bool:
        """Take in what is there; whether more is that no selector shows. Raises AgentError at its end."""
        if not is_ready and not self._pipe.has_unread:
            return False
        if self._pipe.has_unsent:
            self._pipe.send(())
        received = 0
        while received < TURN_BYTES and not self._connection.is_over:
            spaces = self._reader.spaces()
            size_bytes = self._pipe.receive(spaces)
            if not size_bytes:
                break
            self._connection.received(self._reader, size_bytes, now())
            received += size_bytes
            if size_bytes < sum(map(len, spaces)) and not self._pipe.has_unread:
                break
        return self._pipe.has_unread

    def close(self) -> None:
        """At once."""
        self._pipe.close()


def choose_congestion_control(opened: socket.socket, name: str) -> None:
    """Of a TCP socket; raises UserInputError where the kernel does not have it, or not for us."""
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        allowed = "others than root may use those of net.ipv4.tcp_allowed_congestion_control"
        raise UserInputError(
            f"{name!r} cannot be used: {os.strerror(error.errno or 0)}",
            where="congestion control of tcp",
            expected="one of net.ipv4.tcp_available_congestion_control",
            hint=allowed if error.errno == errno.EPERM else f"`modprobe tcp_{name[:16]}`",
        ) from None


def probe_congestion_control(name: str | None) -> None:
    """Whether it could be chosen; raises UserInputError."""
    if name is not None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            choose_congestion_control(probe, name)
