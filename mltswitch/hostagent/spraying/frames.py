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

_TIME_TO_LIVE: Final = 64
_DONT_FRAGMENT: Final = 0x4000
_VERSION_AND_LENGTH: Final = 0x45
_UDP: Final = 17
_SIOCGIFHWADDR: Final = 0x8927


def frame_header(
    interface: str,
    gateway: str,
    ports: Sequence[int],
    *,
    source: tuple[str, int],
    destination: tuple[str, int],
) -> bytes:
    """Ethernet, source route, IPv4 and UDP.

    Args:
        interface: that the frames leave from.
        gateway: MAC address that they go to.
        ports: egress ports of the switches, in order.
        source: IPv4 address and UDP port that answers go to.
        destination: the peer's.

    Raises MachineError where the interface has no address.
    """
    try:
        # In sysfs a thread may see the interfaces of another network namespace.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            answer = fcntl.ioctl(asking, _SIOCGIFHWADDR, struct.pack("256s", interface.encode()))
    except OSError:
        raise MachineError("has no MAC address", where=f"interface {interface}") from None
    ethernet = bytes.fromhex(gateway.replace(":", "")) + answer[18:24]
    ip = struct.pack(
        ">BBHHHBBH4s4s",
        _VERSION_AND_LENGTH,
        0,
        0,
        0,
        _DONT_FRAGMENT,
        _TIME_TO_LIVE,
        _UDP,
        0,
        IPv4Address(source[0]).packed,
        IPv4Address(destination[0]).packed,
    )
    udp = struct.pack(">HHHH", source[1], destination[1], 0, 0)
    route = SourceRoute(tuple(ports), ETHERTYPE_IPV4).encode()
    return ethernet + ETHERTYPE_SOURCE_ROUTE.to_bytes(2, "big") + route + ip + udp
