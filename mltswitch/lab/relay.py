"""TCP relays: from addresses on the user's side into the management namespace."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.lab.namespaces import NamespaceHandle
from mltswitch.lab.state import Relay

MAXIMUM_CONNECTIONS: Final = 256
"""Per switch; a further one is closed at once."""
CONNECT_SECONDS: Final = 10.0

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
        if not self._relay.authenticates and not _is_own(writer):
            _log.warning("%s: another user was refused", self._relay.name)
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
            await asyncio.get_running_loop().sock_connect(near, (self._relay.target, self._relay.target_port))
        except BaseException:
            near.close()
            raise
        return await asyncio.open_connection(sock=near)


def _is_own(writer: asyncio.StreamWriter) -> bool:
    """Whether the caller is a process of our own user: anybody on this machine reaches a loopback address."""
    address, port = writer.get_extra_info("peername")
    return connecting_user(address, port) == os.geteuid()


def connecting_user(address: str, port: int) -> int | None:
    """User of the socket of this namespace that is bound to an IPv4 address (proc(5), /proc/net/tcp).

    None where there is no such socket: then the caller is no process of this machine, or it has left.
    """
    # The kernel prints an address as numbers in its own byte order; gRPC speaks IPv4 by IPv6 sockets.
    word, mapped = (
        f"{int.from_bytes(octets, sys.byteorder):08X}"
        for octets in (socket.inet_aton(address), b"\0\0\xff\xff")
    )
    places = {"tcp": f"{word}:{port:04X}", "tcp6": f"{'0' * 16}{mapped}{word}:{port:04X}"}
    for table, wanted in places.items():
        with Path("/proc/net", table).open(encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if fields[1] == wanted:
                    return int(fields[7])
    return None


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
