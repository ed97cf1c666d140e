"""A control channel as an engine drives it: one socket that never blocks, one `step` whenever it is ready.

    connecting ── TCP is up ──▶ setting up ── both accept ──▶ open
         └────────────────┬───────────┴───────────┬────────────┘
                          ▼ AgentError            ▼ close()
                        ended ────── close() ──▶ closed

No method blocks, sleeps or reads a clock: times are nanoseconds of the caller's monotonic clock. An
AgentError from `step`, `send` or `timer` is the channel's end: forget it in the selector, then `close()` it.
"""

import errno
import fcntl
import os
import socket
import termios
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.identity import host_name_problem
from mltswitch.hostagent.control.security import Security, check_plaintext, stream_for
from mltswitch.hostagent.control.sockets import Endpoint, acknowledge_at_once, endpoint_of, set_options
from mltswitch.hostagent.control.streams import ControlStream
from mltswitch.hostagent.errors import AgentError, PeerUnreachableError
from mltswitch.wire import Dscp

READ_BYTES: Final = 64 * 1024
"""At once, of one channel: the others get their turn."""
DRAINED_BYTES: Final = 256 * 1024
"""Thrown away at the end, so that the peer can read our last words before a reset."""
DEFAULT_HANDSHAKE_LIMIT_NS: Final = 5 * 10**9
DEFAULT_IDLE_LIMIT_NS: Final = 30 * 10**9
DEFAULT_OUTGOING_LIMIT_BYTES: Final = 8 * 1024 * 1024
"""Four bitmaps of the largest tensor."""
_NO_BYTES: Final = bytes(4)
"""A C int, 0."""
_STILL_CONNECTING: Final = {errno.EINPROGRESS, errno.EALREADY, errno.EINTR}
_HUNG_UP: Final = {errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED}


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Of every channel of one agent."""

    dscp: Dscp
    """Of the plan's control class."""
    handshake_limit_ns: int = DEFAULT_HANDSHAKE_LIMIT_NS
    """From the first SYN, or from the accept, until both ends have accepted each other."""
    idle_limit_ns: int | None = DEFAULT_IDLE_LIMIT_NS
    """An open channel on which nothing has come for so long has ended: the agents' pings keep it alive."""
    outgoing_limit_bytes: int = DEFAULT_OUTGOING_LIMIT_BYTES
    """What may wait for a peer that does not read."""


class ControlChannel:
    """One end of a reliable, ordered stream of bytes; see the module's text."""

    def __init__(
        self,
        connection: socket.socket,
        stream: ControlStream,
        remote: Endpoint,
        settings: ChannelSettings,
        now_ns: int,
        *,
        is_connecting: bool,
    ) -> None:
        self._socket, self._stream, self._settings = connection, stream, settings
        self._remote, self._is_connecting = remote, is_connecting
        self._is_ours, self._has_heard = is_connecting, False
        self._unsent = bytearray()
        self._started_ns = self._heard_ns = now_ns
        self._cannot_send = False
        self._is_greeted = False
        self._failure: AgentError | None = None

    @classmethod
    def connect(
        cls,
        remote: Endpoint,
        peer: str,
        security: Security,
        settings: ChannelSettings,
        now_ns: int,
        *,
        source: str | None = None,
    ) -> "ControlChannel":
        """Begin to connect to the peer of this name, from the address `source` where one is given.

        Raises:
            UserInputError: no name that a certificate could carry, no address, a source that is not this
                machine's, or plain text that would leave it.
            PeerUnreachableError: the kernel knows at once that there is no way.
        """
        problem = host_name_problem(peer)
        if problem:
            raise UserInputError(problem, where=f"peer {peer[:80]}")
        check_plaintext(security, remote)
        family, address = remote.resolved()
        bound = None if source is None else Endpoint(source, 0).resolved()
        if bound is not None and bound[0] != family:
            raise UserInputError(f"{source} and {remote} are of different versions of IP")
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            set_options(connection, settings.dscp)
            if bound is not None:
                _bind(connection, bound[1])
            _is_connected(connection, address, remote, peer)
            stream = stream_for(security, remote, peer)
        except BaseException:
            connection.close()
            raise
        return cls(connection, stream, remote, settings, now_ns, is_connecting=True)

    def fileno(self) -> int:
        """For the selector; -1 after `close`."""
        return self._socket.fileno()

    @property
    def wants_read(self) -> bool:
        """Call `step` when the socket can be read."""
        return self._failure is None and not self._is_connecting

    @property
    def wants_write(self) -> bool:
        """Call `step` when the socket can be written."""
        has_output = len(self._unsent) > 0 or self._stream.has_output
        return self._failure is None and (self._is_connecting or has_output)

    @property
    def is_open(self) -> bool:
        """Both ends have accepted each other."""
        return self._failure is None and not self._is_connecting and self._stream.is_open

    @property
    def is_setting_up(self) -> bool:
        """Neither open yet nor ended."""
        return self._failure is None and not self.is_open

    def greeted(self) -> None:
        """The peer has said who it is, and is welcome: it is no stranger any more (`ListenerLimits`)."""
        self._is_greeted = True

    @property
    def is_strange(self) -> bool:
        """Not ended, and nobody has called `greeted` yet."""
        return self._failure is None and not self._is_greeted

    @property
    def has_ended(self) -> bool:
        """It told so by an AgentError, or was closed."""
        return self._failure is not None

    @property
    def is_authenticated(self) -> bool:
        """The peer has proved that `peer` is its name."""
        return self._stream.is_authenticated

    @property
    def peer(self) -> str:
        """The peer's name: of its certificate, or else the expected one; empty where nobody knows it yet."""
        return self._stream.peer

    @property
    def remote(self) -> Endpoint:
        """The peer's address and TCP port."""
        return self._remote

    @property
    def waiting_bytes(self) -> int:
        """Handed to `send`, and not yet to the kernel."""
        return len(self._unsent) + self._stream.waiting_bytes

    @property
    def has_arrived(self) -> bool:
        """Whether the peer's kernel has acknowledged all that was sent (tcp(7), SIOCOUTQ)."""
        if self.waiting_bytes or self._failure is not None:
            return False
        left = fcntl.ioctl(self._socket, termios.TIOCOUTQ, _NO_BYTES)
        return left == _NO_BYTES

    def local(self) -> Endpoint:
        """Our own address on this channel; not after `close`."""
        return endpoint_of(self._socket.getsockname())

    def step(self, now_ns: int) -> bytes:
        """Whenever the socket is ready: connect, shake hands, send what waits; returns what the peer said.

        Afterwards nothing lies ready inside that a level-triggered selector would not show, but for the end:
        the next `step` or `timer` tells it.
        """
        self._raise_failure()
        try:
            if self._is_connecting:
                address = self._remote.resolved()[1]
                self._is_connecting = not _is_connected(self._socket, address, self._remote, self._label)
                if self._is_connecting:
                    return b""
            said = self._read(now_ns)
        except AgentError as error:
            raise self._failed(error) from None
        self._write()
        if not said:
            if self._cannot_send:
                self._stream.received_end()
            if self._stream.ended is not None:
                raise self._failed(self._stream.ended)
        return said

    def send(self, data: bytes) -> None:
        """Queue bytes for the peer, before the channel is open, too; `flush` or `step` sends them.

        Raises:
            PeerUnreachableError: too much waits already, because the peer does not read.
        """
        self._raise_failure()
        if self.waiting_bytes + len(data) > self._settings.outgoing_limit_bytes:
            raise self._failed(
                PeerUnreachableError(
                    f"does not read its control channel: {self.waiting_bytes} bytes wait for it",
                    peer=self._label,
                )
            )
        if self._stream.ended is not None:
            return  # the next `step` or `timer` says why
        try:
            self._stream.send(data)
        except AgentError as error:
            raise self._failed(error) from None

    def flush(self) -> None:
        """Hand what waits to the kernel, as much as it takes; `step` tells if it takes nothing any more."""
        if self._failure is None and not self._is_connecting and (self._unsent or self._stream.has_output):
            self._write()

    def next_timer_ns(self) -> int | None:
        """When to call `timer` at the latest; None: never."""
        if self._failure is not None:
            return None
        if self._stream.ended is not None:
            return self._heard_ns
        if not self.is_open:
            return self._started_ns + self._settings.handshake_limit_ns
        idle_ns = self._settings.idle_limit_ns
        return None if idle_ns is None else self._heard_ns + idle_ns

    def timer(self, now_ns: int) -> None:
        """Raises the error with which the channel has ended, if it has by now."""
        self._raise_failure()
        if self._stream.ended is not None:
            raise self._failed(self._stream.ended)
        due_ns = self.next_timer_ns()
        if due_ns is None or now_ns < due_ns:
            return
        if self.is_open:
            what = f"has been silent for {(now_ns - self._heard_ns) / 1e9:.1f} s"
        elif self._is_connecting:
            what = f"does not answer at {self._remote}"
        elif self._is_ours and not self._has_heard:
            what = (
                f"takes connections at {self._remote}, and says nothing: no agent answers there, or it has "
                "no time for us"
            )
        else:
            what = "does not finish setting up the control channel"
        raise self._failed(PeerUnreachableError(what, peer=self._label))

    def close(self) -> None:
        """Say farewell if the kernel takes it, and close; forget the channel in the selector before."""
        if self._socket.fileno() < 0:
            return
        if not self._is_connecting:
            if self._failure is None:  # else what waited is gone, and nothing may follow it
                self._stream.close()
                self._write()
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_WR)
                self._drain()
        self._socket.close()
        self._failure = self._failure or PeerUnreachableError("was left by us", peer=self._label)

    @property
    def _label(self) -> str:
        return self._stream.peer or str(self._remote)

    def _read(self, now_ns: int) -> bytes:
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return b""
        except OSError as error:
            if error.errno not in _HUNG_UP:
                raise _unreachable(error.errno or 0, self._remote, self._label) from None
            data = b""
        if not data:
            self._stream.received_end()
            return b""
        self._heard_ns, self._has_heard = now_ns, True
        return self._stream.received(data)

    def _write(self) -> None:
        self._unsent += self._stream.to_send()
        while self._unsent and not self._cannot_send:
            try:
                with memoryview(self._unsent) as waiting:
                    sent = self._socket.send(waiting, socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                # What the peer said before it went may still lie there to be read, and why.
                self._cannot_send = True
            else:
                del self._unsent[:sent]
                acknowledge_at_once(self._socket)
        if self._cannot_send:
            self._unsent.clear()

    def _drain(self) -> None:
        left = DRAINED_BYTES
        while left > 0 and (data := self._socket.recv(READ_BYTES)):
            left -= len(data)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: AgentError) -> AgentError:
        self._failure = error
        self._unsent.clear()
        return error


def _is_connected(connection: socket.socket, address: Any, remote: Endpoint, peer: str) -> bool:
    """Begin, or ask how far it is: connect(2) does both; raises PeerUnreachableError."""
    code = connection.connect_ex(address)
    if code and code != errno.EISCONN and code not in _STILL_CONNECTING:
        raise _unreachable(code, remote, peer)
    return code not in _STILL_CONNECTING


def _bind(connection: socket.socket, address: Any) -> None:
    try:
        connection.bind(address)
    except OSError as error:
        raise UserInputError(f"cannot be sent from: {error.strerror}", where=str(address)) from None


def _unreachable(code: int, remote: Endpoint, peer: str) -> PeerUnreachableError:
    if code == errno.ECONNREFUSED:
        return PeerUnreachableError(f"nothing listens at {remote}: is its agent running?", peer=peer)
    return PeerUnreachableError(f"cannot be reached at {remote}: {os.strerror(code)}", peer=peer)
