"""TCP relays: from addresses on the user's side into the management namespace."""

import asyncio
import contextlib
import logging
import socket
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.lab.namespaces import NamespaceHandle
from mltswitch.lab.state import Relay

MAXIMUM_CONNECTIONS: Final = 256
"""Per switch; a further one is closed at once."""
CONNECT_SECONDS: Final = 10.0
SSH_PORT: Final = 22

_CHUNK_BYTES: Final = 1 << 16
_log: Final = logging.getLogger(__name__)


class RelayServer:
    """Listens for one switch and copies bytes both ways."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._connections = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to listen; raises MachineError when the address cannot be had."""
        try:
            self._server = await asyncio.start_server(self._serve, self._relay.address, self._relay.port)
        except OSError as error:
            raise MachineError(
                f"cannot listen on {self._relay.address} port {self._relay.port}: {error.strerror}",
                where=self._relay.name,
            ) from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MAXIMUM_CONNECTIONS:
            _log.warning("%s: more than %d connections", self._relay.name, MAXIMUM_CONNECTIONS)
            writer.close()
            return
        self._connections += 1
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                far_reader, far_writer = await self._connect()
            try:
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            finally:
                far_writer.close()
        except (OSError, MachineError) as error:  # TimeoutError is an OSError
            _log.info("%s: %s", self._relay.name, error)
        finally:
            self._connections -= 1
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # Nothing is awaited inside, so no other connection's socket is opened in the wrong namespace.
        with NamespaceHandle(self._relay.namespace).entered():
            near = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        near.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(near, (self._relay.target, SSH_PORT))
        except BaseException:
            near.close()
            raise
        return await asyncio.open_connection(sock=near)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):  # the other side left first
            writer.write_eof()
    except OSError:
        writer.close()
        raise
