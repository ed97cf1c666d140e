"""A data connection's bytes in both directions, plain or over TLS 1.3, without ever blocking."""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from mltswitch.hostagent.control.streams import TlsStream
from mltswitch.hostagent.errors import AgentError, PeerUnreachableError

RECORDS_BYTES: Final = 64 * 1024
"""Encrypted, or decrypted, at once; so much may lie in between."""


class Pipe(Protocol):
    """One connected socket; raises AgentError when it has ended."""

    def fileno(self) -> int:
        """For the selector; -1 after `close`."""
        ...

    @property
    def kernel_socket(self) -> socket.socket:
        """For its options."""
        ...

    @property
    def is_open(self) -> bool:
        """Both ends have accepted each other: nothing is sent before."""
        ...

    @property
    def certified_peer(self) -> str | None:
        """The name that the peer has proved here; None: it has proved none."""
        ...

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait in it for room in the socket."""
        ...

    @property
    def has_unread(self) -> bool:
        """Whether bytes wait in it that a selector does not show."""
        ...

    def send(self, parts: Sequence[memoryview]) -> int:
        """How many bytes of the parts it took, the first ones first; 0: it has no room now."""
        ...

    def receive(self, spaces: Sequence[memoryview]) -> int:
        """How many bytes it wrote there, the first ones first; 0: nothing is there now."""
        ...

    def close(self) -> None:
        """At once."""
        ...


class PlainPipe:
    """The bytes as they are."""

    is_open: Final = True
    certified_peer: Final = None
    has_unsent: Final = False
    has_unread: Final = False

    def __init__(self, connection: socket.socket) -> None:
        """Takes the socket, which does not block."""
        self.kernel_socket = connection

    def fileno(self) -> int:
        """For the selector; -1 after `close`."""
        return self.kernel_socket.fileno()

    def send(self, parts: Sequence[memoryview]) -> int:
        """Straight from where they lie."""
        try:
            return self.kernel_socket.sendmsg(parts, (), socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise _broken(error) from None

    def receive(self, spaces: Sequence[memoryview]) -> int:
        """Straight to where they belong."""
        try:
            if len(spaces) == 1:
                size_bytes = self.kernel_socket.recv_into(spaces[0])
            else:
                size_bytes = self.kernel_socket.recvmsg_into(spaces)[0]
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise _broken(error) from None
        if not size_bytes:
            raise PeerUnreachableError("closed a data connection")
        return size_bytes

    def close(self) -> None:
        """At once."""
        self.kernel_socket.close()


class TlsPipe:
    """Within TLS 1.3, as the control channel has it."""

    def __init__(self, connection: socket.socket, stream: TlsStream) -> None:
        """Takes the socket, which does not block."""
        self.kernel_socket = connection
        self._stream = stream
        self._unsent = memoryview(stream.to_send())
        self._unread = memoryview(b"")

    def fileno(self) -> int:
        """For the selector; -1 after `close`."""
        return self.kernel_socket.fileno()

    @property
    def is_open(self) -> bool:
        """Both ends have accepted each other."""
        return self._stream.is_open

    @property
    def certified_peer(self) -> str | None:
        """The name that the peer has proved here."""
        return self._stream.peer if self._stream.is_authenticated else None

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait in it for room in the socket."""
        return len(self._unsent) > 0

    @property
    def has_unread(self) -> bool:
        """Whether decrypted bytes wait in it."""
        return len(self._unread) > 0

    def send(self, parts: Sequence[memoryview]) -> int:
        """Takes what it encrypts, nothing before both ends have accepted each other."""
        self._flush()
        if self._unsent or not self._stream.is_open:
            return 0
        taken = 0
        for part in parts:
            piece = bytes(part[: RECORDS_BYTES - taken])
            self._stream.send(piece)
            taken += len(piece)
        self._flush()
        return taken

    def receive(self, spaces: Sequence[memoryview]) -> int:
        """What it has decrypted."""
        if not self._unread:
            self._read()
        filled = 0
        for space in spaces:
            size_bytes = min(len(space), len(self._unread))
            space[:size_bytes] = self._unread[:size_bytes]
            self._unread = self._unread[size_bytes:]
            filled += size_bytes
        return filled

    def close(self) -> None:
        """At once, with TLS's farewell if the kernel takes it."""
        with suppress(AgentError):
            self._stream.close()
            self._flush()
        self.kernel_socket.close()

    def _read(self) -> None:
        try:
            data = self.kernel_socket.recv(RECORDS_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise _broken(error) from None
        if data:
            self._unread = memoryview(self._stream.received(data))
            self._flush()
        if self._unread:
            return
        if not data:
            raise PeerUnreachableError("closed a data connection")
        if self._stream.ended is not None:
            raise self._stream.ended

    def _flush(self) -> None:
        self._unsent = memoryview(bytes(self._unsent) + self._stream.to_send())
        while self._unsent:
            try:
                self._unsent = self._unsent[self.kernel_socket.send(self._unsent, socket.MSG_NOSIGNAL) :]
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise _broken(error) from None


def _broken(error: OSError) -> PeerUnreachableError:
    return PeerUnreachableError(f"a data connection broke: {os.strerror(error.errno or 0)}")
