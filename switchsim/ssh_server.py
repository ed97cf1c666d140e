"""An SSH server in front of one emulated device: accepts connections and counts them.

Clients authenticate with a public key (RFC 4252, section 7), or with a password where a test gives one.
"""

import base64
import binascii
import contextlib
import logging
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import paramiko

from switchsim.connection import Connection
from switchsim.device import EmulatedDevice
from switchsim.errors import ListenError, UsageError
from switchsim.faults import Faults

MAX_CONNECTIONS: Final = 16
"""How many connections may be open at once; a further client finds its own closed, as on a switch whose
terminals are all taken."""
STOP_SECONDS: Final = 5.0
LOG_NAME: Final = "switchsim"

_BACKLOG: Final = 16

logging.getLogger(LOG_NAME).addHandler(logging.NullHandler())


class EmulatorServer:
    """Serves one device on one address, in threads of its own, until `stop`.

    Also a context manager. Port 0 takes a free one; `port` says which, after `start`.
    """

    def __init__(
        self,
        device: EmulatedDevice,
        address: str = "127.0.0.1",
        port: int = 0,
        *,
        host_key: paramiko.PKey,
        authorized_keys: Iterable[paramiko.PKey] = (),
        username: str = "admin",
        password: str | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.device = device
        self.address = address
        self.port = port
        self.host_key = host_key
        self.authorized_keys = frozenset(key.asbytes() for key in authorized_keys)
        self.username = username
        self.password = password
        self.faults = faults or Faults()
        self._listener: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self._connections: set[Connection] = set()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Listen and return; raises ListenError where the address cannot be taken."""
        try:
            self._listener = socket.create_server((self.address, self.port), backlog=_BACKLOG)
        except OSError as error:
            raise ListenError(
                f"cannot listen: {error.strerror}", where=f"{self.device.name} on {self.address}:{self.port}"
            ) from None
        self.port = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(
            target=self._accept, args=(self._listener,), name=f"{self.device.name} accept", daemon=True
        )
        self._acceptor.start()

    def stop(self) -> None:
        """Close the port and every connection; calling it again does no harm."""
        if self._listener is not None:
            with contextlib.suppress(OSError):  # not connected: a listener; the call still wakes accept()
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        if self._acceptor is not None:
            self._acceptor.join(STOP_SECONDS)
            self._acceptor = None
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()
        for connection in connections:
            connection.join(STOP_SECONDS)

    def reboot(self) -> None:
        """Restart the device with its saved configuration; every connection closes."""
        self.device.reboot()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()

    @property
    def is_stopped(self) -> bool:
        """Whether the port is closed and all connections have ended."""
        return self._acceptor is None and not self.connection_count

    @property
    def connection_count(self) -> int:
        """How many connections are open now."""
        with self._lock:
            return len(self._connections)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with self._lock:
                if len(self._connections) >= MAX_CONNECTIONS:
                    client.close()
                    continue
                connection = Connection(self, client)
                self._connections.add(connection)
            connection.start()

    def forget(self, connection: Connection) -> None:
        """Called by a connection that has ended, so that the server no longer counts it."""
        with self._lock:
            self._connections.discard(connection)


MAX_KEY_FILE_BYTES: Final = 1 << 16

_KEY_KIND: Final = "an ssh-ed25519, ecdsa-sha2-* or ssh-rsa key"


def load_host_key(path: Path) -> paramiko.PKey:
    """Load an emulator's private host key, unencrypted; raises UsageError."""
    try:
        return paramiko.PKey.from_path(path)
    except (OSError, ValueError, paramiko.SSHException) as error:
        raise UsageError(
            f"no private key can be read: {error}", where=str(path), expected=_KEY_KIND
        ) from None


def load_authorized_keys(path: Path) -> tuple[paramiko.PKey, ...]:
    """Load public keys, one a line, without options (sshd(8), AUTHORIZED_KEYS); raises UsageError."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if len(text) > MAX_KEY_FILE_BYTES:
        raise UsageError("the file is too long", where=str(path), expected=f"at most {MAX_KEY_FILE_BYTES} B")
    return tuple(_parse(text.decode("utf-8", "replace"), path))


def _parse(text: str, path: Path) -> Iterator[paramiko.PKey]:
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        try:
            yield paramiko.PKey.from_type_string(fields[0], base64.b64decode(fields[1], validate=True))
        except (IndexError, binascii.Error, ValueError, paramiko.SSHException):
            raise UsageError("no public key", where=f"{path}:{number}", expected=_KEY_KIND) from None
