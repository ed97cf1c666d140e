"""TCP sockets: addresses, the options that every one of them has, and what accept(2) says."""

import errno
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.values import integer, shown
from mltswitch.wire import Dscp, Ecn, TrafficClassByte

KEEPALIVE_IDLE_SECONDS: Final = 10
KEEPALIVE_INTERVAL_SECONDS: Final = 5
KEEPALIVE_PROBES: Final = 3
USER_TIMEOUT_MILLISECONDS: Final = 25_000
"""A peer whose kernel has acknowledged no data for so long, or had no room for any, is gone (RFC 5482)."""
RETRANSMISSION_MICROSECONDS: Final = 8_000
"""What TCP waits at least, beyond the round trip, before it takes for lost what nobody acknowledges. Its own
200 ms are for the Internet: here they are as long as many round trips, and a transfer waits for them."""
_RETRANSMISSION_LEAST: Final = 45
"""TCP_RTO_MIN_US of linux/tcp.h, since Linux 6.15,"""
_ACKNOWLEDGEMENT_MOST: Final = 46
"""and TCP_DELACK_MAX_US, without which the peer's kernel may hold acknowledgements for longer than that."""
_OURS: Final = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK}
_THE_NEWCOMERS: Final = {
    errno.ECONNABORTED,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENONET,
    errno.ENOPROTOOPT,
    errno.EOPNOTSUPP,
    errno.EPERM,
    errno.EPROTO,
}
"""accept(2): what the network has to say about the new connection, which is gone."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An IP address and a TCP port; port 0: the kernel chooses one to listen on."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in str(self.address) else f"{self.address}:{self.port}"

    @property
    def ip(self) -> IPv4Address | IPv6Address:
        """The address, an IPv4 one out of its IPv6 clothes; raises UserInputError where it is none."""
        try:
            address = ip_address(str(self.address))  # of numbers and bytes it would make addresses
        except ValueError:
            raise UserInputError("is not an IP address", where=str(self.address)[:60]) from None
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return mapped or address

    def resolved(self) -> tuple[socket.AddressFamily, Any]:
        """Family and address as socket calls want them; asks no name server.

        Raises:
            UserInputError: no IP address, or no port.
        """
        port = integer(self.port)
        if port is None or not 0 <= port <= 65535:
            raise UserInputError(
                f"port {shown(self.port)}", where=str(self), expected="a whole number, 0-65535"
            )
        _ = self.ip
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        try:
            found = socket.getaddrinfo(str(self.address), port, type=socket.SOCK_STREAM, flags=flags)
        except socket.gaierror:  # a scope that this machine has not, as in fe80::1%eth7
            raise UserInputError("is no address on this machine's networks", where=self.address) from None
        family, _, _, _, address = found[0]
        return family, address


def endpoint_of(address: Any) -> Endpoint:
    """Of what a socket call returned."""
    return Endpoint(str(address[0]), int(address[1]))


def accept_next(listener: socket.socket) -> tuple[socket.socket, Endpoint] | None:
    """Who waits longest; None: nobody, or one that is gone.

    Raises:
        MachineError: the listening socket itself is broken.
        OSError: no room for another one now: no descriptor or no memory left, above all.
    """
    try:
        connection, address = listener.accept()
    except (BlockingIOError, InterruptedError):
        return None
    except OSError as error:
        if error.errno in _OURS:
            reason = os.strerror(error.errno or 0)
            raise MachineError(f"cannot accept connections: {reason}") from None
        if error.errno in _THE_NEWCOMERS:
            return None
        raise
    return connection, endpoint_of(address)


def set_options(connection: socket.socket, dscp: Dscp) -> None:
    """Of a listener, too: its answers to SYN carry its DSCP, and accepted sockets inherit the rest.

    Raises:
        MachineError: the kernel refuses one.
    """
    connection.setblocking(False)
    set_dscp(connection, dscp)
    for level, option, value in (
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_SECONDS),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MILLISECONDS),
    ):
        _set(connection, level, option, value)
    for option in (_RETRANSMISSION_LEAST, _ACKNOWLEDGEMENT_MOST):
        with suppress(OSError):  # an older kernel: messages are followed by others (`Exchange.nudge_ns`)
            connection.setsockopt(socket.IPPROTO_TCP, option, RETRANSMISSION_MICROSECONDS)


def acknowledge_at_once(connection: socket.socket) -> None:
    """What the peer says next; to be repeated after each sending.

    Where the kernel has seen a dialogue, it keeps acknowledgements for up to 40 ms, for something to send
    along (TCP_QUICKACK in tcp(7)); meanwhile the peer asks whether its word was lost.
    """
    with suppress(OSError):  # the connection may be gone: the next read says so
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def set_dscp(connection: socket.socket, dscp: Dscp) -> None:
    """Of what leaves from now on; raises MachineError where the kernel refuses it."""
    byte = int(TrafficClassByte(dscp, Ecn.NOT_ECT))  # TCP chooses its ECN bits itself
    if connection.family == socket.AF_INET6:
        _set(connection, socket.IPPROTO_IPV6, socket.IPV6_TCLASS, byte)
    else:
        _set(connection, socket.IPPROTO_IP, socket.IP_TOS, byte)


def _set(connection: socket.socket, level: int, option: int, value: int) -> None:
    try:
        connection.setsockopt(level, option, value)
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "error")
        raise MachineError(f"the kernel refuses TCP socket option {level}/{option}: {name}") from None
