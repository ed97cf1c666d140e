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
FRAME_BYTES: Final = 1514
CONTROL_LIMIT_BYTES: Final = 48000
SELECTIVE_QUEUES: Final = (1, 2, 3, 4, 5)
POLICED_QUEUE: Final = 6
CONTROL_QUEUE: Final = 7
BACKGROUND_QUEUE: Final = 0


def neighbour(port: int) -> str:
    """MAC address behind a port."""
    return f"02:4d:0a:00:00:{port:02x}"


def own_address(port: int) -> str:
    """MAC address of a port: what it sends has it, and tests send to `SWITCH_MAC` on all."""
    return f"02:4d:0a:00:01:{port:02x}"


def dscp_of(queue: int) -> int:
    """The code point that trusted ports map to a queue: its class selector (RFC 2474)."""
    return 8 * queue


def base_lines() -> list[str]:
    """Four ports, of which the last is not trusted; all queues; one route to each port."""
    lines = barrier_lines(PORTS)
    for port in PORTS:
        lines += port_lines(port, is_trusted=port != UNTRUSTED_PORT)
        lines += [
            f"table_add ipv4_routes forward 10.{port}.0.0/16 => {port}",
            f"table_add ipv6_routes forward fd00:{port}::/32 => {port}",
            f"table_add queues set_limit {port} {BACKGROUND_QUEUE} => 10000000 0 {FRAME_BYTES}",
            f"table_add queues set_limit {port} {POLICED_QUEUE} => {LIMIT_BYTES} 1 {FRAME_BYTES}",
            f"table_add queues set_limit {port} {CONTROL_QUEUE} => {CONTROL_LIMIT_BYTES} 0 {FRAME_BYTES}",
        ]
        lines += [selective_line("table_add", port, queue) for queue in SELECTIVE_QUEUES]
    return lines


def port_lines(port: int, *, is_trusted: bool) -> list[str]:
    """Its MAC addresses, and a queue for each class selector if it is trusted."""
    lines = [f"table_add neighbours set_neighbour {port} => {own_address(port)} {neighbour(port)}"]
    if not is_trusted:
        return [*lines, f"table_add ports distrust {port} {SWITCH_MAC} => 0"]
    lines.append(f"table_add ports trust {port} {SWITCH_MAC} =>")
    key = f"{port} {SWITCH_MAC}"
    return lines + [f"table_add classes set_queue {key} {dscp_of(queue)} => {queue}" for queue in range(1, 8)]


def selective_line(
    verb: str, port: int, queue: int, threshold: int = THRESHOLD_BYTES, limit: int = LIMIT_BYTES
) -> str:
    """The line that gives a queue S and L."""
    return f"{verb} queues set_threshold_and_limit {port} {queue} => {threshold} {limit} 0 {FRAME_BYTES}"


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
    src: str = "fd00:200::1",
    source_port: int = 1000,
    link: Sequence[Packet] = (),
    size_bytes: int = 120,
    number: int = 0,
) -> bytes:
    """Like `ipv4`."""
    network = IPv6(src=src, dst=f"fd00:{port}::1", tc=dscp_of(queue) << 2 | ecn, hlim=hop_limit, fl=0x12345)
    return _fill(link, network / UDP(sport=source_port, dport=9), size_bytes, number)


def route(*ports: int, **fields: Any) -> list[Packet]:
    """The layers of a source route."""
    return [SourceRoute(**fields), *(Hop(port=port) for port in ports)]


def sent_on(frame: bytes) -> bytes:
    """A frame that came out, as it would come to a next switch."""
    return bytes.fromhex(SWITCH_MAC.replace(":", "")) + frame[6:]


def number_of(frame: bytes) -> int:
    """What `number` was."""
    return int.from_bytes(frame[-8:], "big")


def barrier(port: int, number: int) -> bytes:
    """A frame to a port by `barrier_lines`, into its last queue from whichever port, trusted or not."""
    return _barrier_head(port) + number.to_bytes(8, "big")


def barrier_lines(ports: Iterable[int]) -> list[str]:
    """The routes of barriers."""
    return [f"table_add ipv4_routes forward_back 10.255.{port}.2/32 => {port}" for port in ports]


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
