"""The UDP sockets of an examination: one for each path, each with its own address, port or segments."""

import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.hostagent.doctor.settings import DoctorSettings
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.sockets import DataSocket, kernel_drops, open_socket, set_segments
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_PAYLOAD_BYTES

AT_ONCE: Final = 256
"""Datagrams taken from one socket before the others get their turn."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A datagram as it came."""

    data: bytes
    traffic_byte: int
    source: tuple[str, int]
    """Address and port."""
    at_ns: int


class Port:
    """One path's socket; non-blocking."""

    def __init__(self, opened: DataSocket) -> None:
        self._socket = opened.socket
        self._level, received, self._traffic_class = (
            (socket.IPPROTO_IP, libc.IP_RECVTOS, libc.IP_TOS)
            if self._socket.family == socket.AF_INET
            else (socket.IPPROTO_IPV6, libc.IPV6_RECVTCLASS, libc.IPV6_TCLASS)
        )
        self._socket.setsockopt(self._level, received, 1)
        self._memory = bytearray(UDP_MAXIMUM_PAYLOAD_BYTES + 1)
        self.address = opened.addresses[0]
        self.number = opened.port

    def fileno(self) -> int:
        """For the selector."""
        return self._socket.fileno()

    def send(self, data: bytes, traffic_byte: int, address: str, number: int) -> None:
        """One datagram with this DSCP/ECN byte; raises OSError as sendmsg(2)."""
        control = (self._level, self._traffic_class, struct.pack("=i", traffic_byte))
        self._socket.sendmsg((data,), (control,), 0, (address, number))

    def arrivals(self) -> Iterator[Arrival]:
        """What waits, up to `AT_ONCE`."""
        for _ in range(AT_ONCE):
            try:
                length, controls, _, source = self._socket.recvmsg_into((self._memory,), 64)
            except OSError:  # nothing more, or an error that the network reported of a datagram sent before
                return
            traffic_byte = controls[0][2][0] if controls else 0
            yield Arrival(
                bytes(self._memory[:length]), traffic_byte, (source[0], source[1]), time.monotonic_ns()
            )

    def dropped(self) -> int:
        """Datagrams that found the buffer full, ever since; 0 where the kernel does not tell."""
        try:
            return kernel_drops(self._socket)
        except OSError:
            return 0

    def close(self) -> None:
        """The socket is gone."""
        self._socket.close()


@contextmanager
def opened_ports(settings: DoctorSettings) -> Iterator[Sequence[Port]]:
    """One for each path of the settings.

    Raises UserInputError for addresses that this host does not have, MachineError for a port that is taken
    and where the kernel knows no segment routing.
    """
    versions = {ip_address(path.address).version for path in settings.paths}
    if len(versions) != 1:
        raise UserInputError(
            "addresses of both versions of IP" if versions else "no address",
            where="local addresses",
            expected="one a path, all IPv4 or all IPv6",
        )
    ports: list[Port] = []
    try:
        for path in settings.paths:
            opened = open_socket(
                (path.address,),
                path.port,
                receive_buffer_bytes=settings.buffer_bytes,
                send_buffer_bytes=settings.buffer_bytes,
            )
            ports.append(Port(opened))
            if path.segments:
                set_segments(opened.socket, path.segments)
        yield ports
    finally:
        for port in ports:
            port.close()
