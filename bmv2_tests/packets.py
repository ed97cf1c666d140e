"""Frames that the tests send, and the configuration that most of them run with."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from bmv2_tests.layers import Hop, SourceRoute
from mltswitch.wire import Ecn

SWITCH_MAC: Final = "02:4d:ff:00:00:01"
HOST_MAC: Final = "02:4d:ff:00:00:09"
BARRIER_DSCP: Final = 63
"""No test maps it to a queue, so barriers go last."""
_BARRIER: Final = b"barrier "
_PLUG: Final = b"the plug"

PORTS: Final = (1, 2, 3, 4)
UNTRUSTED_PORT: Final = 4
THRESHOLD_BYTES: Final = 3000
LIMIT_BYTES: Final = 6000
CONTROL_LIMIT_BYTES: Final = 48000
SELECTIVE_QUEUES: Final = (1, 2, 3, 4, 5)
POLICED_QUEUE: Final = 6
CONTROL_QUEUE: Final = 7
BACKGROUND_QUEUE: Final = 0


def neighbour(port: int) -> str:
    """MAC address behind a port."""
    return f"02:4d:0a:00:00:{port:02x}"


def dscp_of(queue: int) -> int:
    """The code point that trusted ports map to a queue: its class selector (RFC 2474)."""
    return 8 * queue


def base_lines() -> list[str]:
    """Four ports, of which the last is not trusted; all queues; one route to each port."""
    lines = [f"table_add trusted_ports trust {port} => 1" for port in PORTS if port != UNTRUSTED_PORT]
    lines += barrier_lines(PORTS)
    lines += [f"table_add dscp_queues set_queue 1 {dscp_of(queue)} => {queue}" for queue in range(1, 8)]
    for port in PORTS:
        lines += [
            f"table_add neighbours set_neighbour {port} => {neighbour(port)}",
            f"table_add ipv4_routes forward 10.{port}.0.0/16 => {port} {neighbour(port)}",
            f"table_add ipv6_routes forward fd00:{port}::/32 => {port} {neighbour(port)}",
            f"table_add queues set_limit {port} {BACKGROUND_QUEUE} => 10000000 0",
            f"table_add queues set_limit {port} {POLICED_QUEUE} => {LIMIT_BYTES} 1",
            f"table_add queues set_limit {port} {CONTROL_QUEUE} => {CONTROL_LIMIT_BYTES} 0",
        ]
        lines += [
            f"table_add queues set_threshold_and_limit {port} {queue} => {THRESHOLD_BYTES} {LIMIT_BYTES} 0"
            for queue in SELECTIVE_QUEUES
        ]
    return lines


def ethernet() -> Ether:
    """From a host to the switch."""
    return Ether(src=HOST_MAC, dst=SWITCH_MAC)


def ipv4(
    port: int = 2,
    *,
    queue: int = 5,
    ecn: int = Ecn.NOT_ECT,
    ttl: int = 9,
    source_port: int = 1000,
    link: Sequence[Packet] = (),
    size_bytes: int = 100,
    number: int = 0,
    dscp: int | None = None,
    **fields: Any,
) -> bytes:
    """A UDP packet that the base configuration sends to that port and, if trusted, into that queue."""
    dscp = dscp_of(queue) if dscp is None else dscp
    fields.setdefault("dst", f"10.{port}.0.1")
    fields.setdefault("src", "10.200.0.1")
    network = IP(tos=dscp << 2 | ecn, ttl=ttl, **fields)
    return _fill(link, network / UDP(sport=source_port, dport=9), size_bytes, number)


def ipv6(
    port: int = 2,
    *,
    queue: int = 5,
    ecn: int = Ecn.NOT_ECT,
    hop_limit: int = 9,
    source_port: int = 1000,
    link: Sequence[Packet] = (),
    size_bytes: int = 120,
    number: int = 0,
) -> bytes:
    """Like `ipv4`."""
    network = IPv6(
        src="fd00:200::1", dst=f"fd00:{port}::1", tc=dscp_of(queue) << 2 | ecn, hlim=hop_limit, fl=0x12345
    )
    return _fill(link, network / UDP(sport=source_port, dport=9), size_bytes, number)


def route(*ports: int, **fields: Any) -> list[Packet]:
    """The layers of a source route."""
    return [SourceRoute(**fields), *(Hop(port=port) for port in ports)]


def number_of(frame: bytes) -> int:
    """What `number` was."""
    return int.from_bytes(frame[-8:], "big")


def barrier(port: int, number: int) -> bytes:
    """A frame to a port by `barrier_lines`, into its last queue from whichever port, trusted or not."""
    return _barrier_head(port) + number.to_bytes(8, "big")


def barrier_lines(ports: Iterable[int]) -> list[str]:
    """The routes of barriers."""
    return [f"table_add ipv4_routes forward 10.255.{port}.2/32 => {port} {neighbour(port)}" for port in ports]


def is_barrier(frame: bytes) -> bool:
    """Whether a frame is one of those."""
    return frame[-16:-8] == _BARRIER


def plug(port: int, queue: int, number: int) -> bytes:
    """A source-routed frame that a trusted port puts into that queue."""
    return _plug_head(port, dscp_of(queue)) + number.to_bytes(8, "big")


def is_plug(frame: bytes) -> bool:
    """Whether a frame is one of those."""
    return frame[-16:-8] == _PLUG


@cache
def _barrier_head(port: int) -> bytes:
    network = IP(src="10.255.0.1", dst=f"10.255.{port}.2", tos=BARRIER_DSCP << 2 | Ecn.ECT_0, ttl=2)
    return bytes(ethernet() / network / Raw(_BARRIER + bytes(8)))[:-8]


@cache
def _plug_head(port: int, dscp: int) -> bytes:
    network = IP(src="10.255.0.1", dst="10.255.0.2", tos=dscp << 2 | Ecn.ECT_0, ttl=2)
    return bytes(ethernet() / SourceRoute() / Hop(port=port) / network / Raw(_PLUG + bytes(8)))[:-8]


def _fill(link: Sequence[Packet], network: Packet, size_bytes: int, number: int) -> bytes:
    packet = ethernet()
    for layer in link:
        packet /= layer
    packet /= network
    return bytes(packet / Raw(bytes(size_bytes - len(packet) - 8) + number.to_bytes(8, "big")))
