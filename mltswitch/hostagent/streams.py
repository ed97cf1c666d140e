"""Sockets of the control connection, TLS on them, and frames in them; all in the engine's thread."""

import asyncio
import os
import socket
import ssl
from typing import Final
from weakref import WeakSet

from mltswitch.errors import MachineError, MltswitchError
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.errors import (
    AgentError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
)
from mltswitch.hostagent.protocol.frames import (
    LENGTH_BYTES,
    MOST_FRAME_BYTES,
    Frame,
    body_bytes,
    decoded,
    encoded,
)
from mltswitch.hostagent.security.tls import TlsIdentity, peer_name, refusal

KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 9))
"""TCP keep-alive options, a probe a second: a link that loses a fifth of all packets must not look dead."""
SILENCE_MS: Final = 10_000
"""Time in ms without an acknowledgement by the peer's kernel after which the connection is closed."""
CANNOT_LISTEN: Final = "cannot listen"
_sockets: Final[WeakSet[socket.socket]] = WeakSet()


def _after_fork() -> None:
    """A child, of a data loader say, holds no port, and no connection open that its parent has left."""
    for entry in list(_sockets):
        entry.close()


os.register_at_fork(after_in_child=_after_fork)


def listening_socket(at: Endpoint, backlog: int) -> socket.socket:
    """A bound, listening, non-blocking socket; raises MachineError."""
    listener = _socket_for(at)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((at.address, at.port))
    except OSError as error:
        listener.close()
        raise MachineError(
            f"{CANNOT_LISTEN}: {error.strerror}",
            where=str(at),
            hint="give an address of this host and a port that is free",
        ) from None
    listener.listen(backlog)
    return listener


async def dialled(remote: Endpoint, peer: str, dscp: int) -> socket.socket:
    """A socket connected to a listening peer; raises PeerUnreachableError."""
    found = _socket_for(remote)
    try:
        set_up(found, dscp)
        await asyncio.get_running_loop().sock_connect(found, (remote.address, remote.port))
    except BaseException as error:
        found.close()
        if not isinstance(error, OSError):
            raise
        what = f"cannot be reached at {remote}: {os.strerror(error.errno or 0)}"
        raise PeerUnreachableError(what, peer=peer) from None
    return found


def set_up(connected: socket.socket, dscp: int) -> None:
    """Set a control socket's options: no delay for small frames, the DSCP, and timeouts for a silent peer."""
    _sockets.add(connected)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE:
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)
    if connected.family == socket.AF_INET6:
        connected.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    else:
        connected.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)


async def streams_of(
    connected: socket.socket, identity: TlsIdentity | None, *, peer: str = "", is_server: bool = False
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Reader and writer on a connected socket, with TLS if there is an identity; raises AgentError."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    try:
        if is_server:
            context = identity.server if identity else None
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, connected, ssl=context)
        else:
            context, name = (identity.client, peer) if identity else (None, None)
            transport, _ = await loop.create_connection(
                lambda: protocol, sock=connected, ssl=context, server_hostname=name
            )
    except ssl.SSLError as error:
        raise refusal(error, peer) from None
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def certified_name(
    writer: asyncio.StreamWriter, identity: TlsIdentity | None, *, is_client: bool
) -> str | None:
    """The name in the peer's certificate; None without TLS."""
    if identity is None:
        return None
    return peer_name(writer.get_extra_info("ssl_object"), is_client=is_client)


async def read_frame(reader: asyncio.StreamReader, peer: str, most: int = MOST_FRAME_BYTES) -> Frame | None:
    """The peer's next frame; None for a frame type of a later protocol version.

    Raises ProtocolViolationError, or PeerUnreachableError where the connection has ended.
    """
    try:
        length = await reader.readexactly(LENGTH_BYTES)
        return decoded(await reader.readexactly(body_bytes(length, most)))
    except asyncio.IncompleteReadError:
        raise PeerUnreachableError("has closed the connection", peer=peer) from None
    except ssl.SSLError as error:
        raise refusal(error, peer) from None
    except OSError as error:
        raise as_agent_error(error, peer) from None
    except ProtocolViolationError as error:
        raise ProtocolViolationError(error.what, peer=peer) from None


def send_frame(writer: asyncio.StreamWriter, frame: Frame) -> None:
    """Send a frame without waiting for room in the buffer."""
    if not writer.transport.is_closing():
        writer.write(encoded(frame))


def as_agent_error(problem: Exception, peer: str) -> AgentError:
    """The AgentError for a problem with the connection to a peer."""
    if isinstance(problem, AgentError):
        return problem
    if isinstance(problem, TimeoutError):
        return PeerUnreachableError("has not answered in time", peer=peer)
    if isinstance(problem, MltswitchError):
        return PeerRefusedError(f"this end cannot open what it needs: {problem}", peer=peer)
    why = getattr(problem, "strerror", None) or str(problem) or "the peer has ended it"
    return PeerUnreachableError(f"the connection broke: {why}", peer=peer)


def _socket_for(endpoint: Endpoint) -> socket.socket:
    family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setblocking(False)
    _sockets.add(found)
    return found
