"""All of a frame before its UDP payload, for packets that carry their route (mode `p4`, docs/wire-format.md).

The data plane fills in what differs from packet to packet: lengths, DSCP/ECN and the checksum of IPv4.
"""

import fcntl
import socket
import struct
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Final

from mltswitch.errors import MachineError
from mltswitch.wire import ETHERTYPE_IPV4, ETHERTYPE_SOURCE_ROUTE, SourceRoute

_SIOCGIFHWADDR: Final = 0x8927


def frame_header(
    interface: str,
    gateway: str,
    ports: Sequence[int],
    *,
    source: tuple[str, int],
    destination: tuple[str, int],
) -> bytes:
    """Ethernet (from the interface to the gateway's MAC address), source route, IPv4 and UDP.

    `ports` are the switches' egress ports in order; source and destination are IPv4 address and UDP port.
    Raises MachineError where the interface has no address.
    """
    try:
        # In sysfs a thread may see the interfaces of another network namespace.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            answer = fcntl.ioctl(asking, _SIOCGIFHWADDR, struct.pack("256s", interface.encode()))
    except OSError:
        raise MachineError("has no MAC address", where=f"interface {interface}") from None
    # Version and length, DSCP/ECN, total length, identification, don't fragment, time to live, UDP, checksum.
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 0, 0, 0x4000, 64, socket.IPPROTO_UDP, 0)
    addresses = IPv4Address(source[0]).packed + IPv4Address(destination[0]).packed
    udp = struct.pack(">HHHH", source[1], destination[1], 0, 0)
    ethernet = bytes.fromhex(gateway.replace(":", "")) + answer[18:24]
    route = ETHERTYPE_SOURCE_ROUTE.to_bytes(2, "big") + SourceRoute(tuple(ports), ETHERTYPE_IPV4).encode()
    return ethernet + route + ip + addresses + udp
