"""TCP relays: from addresses on the user's side into the management namespace."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.lab.bmv2_node import GRPC_PORT, THRIFT_PORT, tcp_rows
from mltswitch.lab.layout import MANAGEMENT_NAMESPACE, Layout
from mltswitch.lab.model import LINUX_PLATFORM
from mltswitch.lab.namespaces import NamespaceHandle

MAXIMUM_CONNECTIONS: Final = 256
"""The most connections relayed to one switch at a time; a further one is closed at once."""
CONNECT_SECONDS: Final = 10.0
SSH_PORT: Final = 22
LOOPBACK: Final = "127.0.0.1"

_CHUNK_BYTES: Final = 1 << 16
_ESTABLISHED: Final = "01"
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Relay:
    """A TCP relay from an address on the user's side to one that only a namespace reaches."""

    name: str
    address: str
    port: int
    namespace: str
    target: str
    target_port: int
    authenticates: bool
    """Whether the server authenticates its clients; if not, the relay serves the lab's own user only."""


def relays_of(layout: Layout) -> Iterator[Relay]:
    """The relays of a lab: to the SSH server of each Linux switch, or to both servers of each BMv2."""
    for switch, place in layout.reachable(layout.switches):
        if layout.platform == LINUX_PLATFORM:
            target = str(layout.management_address(switch)), SSH_PORT
            yield Relay(
                switch.name, place.address, place.port, MANAGEMENT_NAMESPACE, *target, authenticates=True
            )
            continue
        namespace = layout.namespace(switch.name)
        for server, port, target_port in (
            ("gRPC", place.port, GRPC_PORT),
            ("thrift", place.thrift_port, THRIFT_PORT),
        ):
            if port is not None:
                target = LOOPBACK, target_port
                name = f"{switch.name} {server}"
                yield Relay(name, place.address, port, namespace, *target, authenticates=False)


class RelayServer:
    """Listens for one relay and copies bytes both ways."""

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
            if not self._relay.authenticates and not _is_own(writer):
                _log.warning("%s: refused a caller that is not known to be its own user", self._relay.name)
                return
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
    """Whether the caller is a process of our own user: anybody on this machine reaches a loopback address.

    Raises OSError when the caller has left.
    """
    caller, here = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
    if caller is None or here is None:
        return False
    user = connecting_user(caller, here)
    # Only while our end lives can no later connection, of another user, have had the same two ends.
    writer.get_extra_info("socket").getpeername()
    return user == os.geteuid()


def connecting_user(caller: tuple[str, int], here: tuple[str, int]) -> int | None:
    """User id of the local socket that is connected from one IPv4 address and port to another.

    None where no such socket is established (proc(5), /proc/net/tcp): then the caller is no process of this
    machine, or it has left. What a closed socket leaves behind, in TIME_WAIT, has no inode and says user 0
    whoever it was, and many sockets may share a local port: only the whole connection tells whose it is.
    """
    for table, wanted in {
        "tcp": (_place(caller), _place(here)),
        "tcp6": (_MAPPED + _place(caller), _MAPPED + _place(here)),  # gRPC speaks IPv4 by IPv6 sockets
    }.items():
        for _, local, remote, state, _, _, _, user, _, inode, *_ in tcp_rows(Path("/proc/net", table)):
            if (local, remote) == wanted and state == _ESTABLISHED and inode != "0":
                return int(user)
    return None


def _place(place: tuple[str, int]) -> str:
    address, port = place
    return f"{_word(socket.inet_aton(address))}:{port:04X}"


def _word(octets: bytes) -> str:
    """Four octets as the kernel prints them: as one number in its own byte order."""
    return f"{int.from_bytes(octets, sys.byteorder):08X}"


_MAPPED: Final = "0" * 16 + _word(b"\0\0\xff\xff")
"""What precedes an IPv4 address in an IPv6 one (RFC 4291, 2.5.5.2)."""


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
