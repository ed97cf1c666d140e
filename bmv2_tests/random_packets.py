"""Random frames and tables: most valid, some wrong in one place, some rubbish; without scapy, for speed."""

import struct
from dataclasses import dataclass
from random import Random
from typing import Final

from bmv2_tests.model_packet import ipv4_checksum
from bmv2_tests.packets import FRAME_BYTES, HOST_MAC, SWITCH_MAC, neighbour, own_address, port_lines
from mltswitch.wire import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SOURCE_ROUTE,
    SOURCE_ROUTE_MAXIMUM_HOPS,
)

GROUP_SHARE: Final = 0.03
"""Of frames to a multicast address."""
_MACS: Final = bytes.fromhex((SWITCH_MAC + HOST_MAC).replace(":", ""))
ETHERTYPE_VLAN: Final = 0x8100
_ETHER_TYPES: Final = (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_SOURCE_ROUTE,
    ETHERTYPE_VLAN,
    0x0806,
    0x88B6,
    100,
)
_HOPS: Final = (1, *(2, 3, 4) * 4, 8, 9, 514, 32767)
_EDGES: Final = (0, 0, 1, 1, 2, 3, 0xFE, 0xFEFE, 0xFEFF, 0xFF00, 0xFFFD, 0xFFFE)
"""Checksums at which sums in ones' complement carry."""
_ROUTE_ACTIONS: Final = (
    *("forward", "forward_back") * 3,
    *("share_flows", "share_packets") * 2,
    "discard",
)
UNLIMITED_BYTES: Final = 2**32 - 1
EMPTY_PORTS: Final = (9, 300)
"""No cable is in them; what goes there is counted, and gone."""


@dataclass(frozen=True)
class Round:
    """Random tables, and the state of queues to begin with."""

    lines: tuple[str, ...]
    held: tuple[tuple[int, int], ...]
    """The queues that have thresholds."""
    states: dict[tuple[int, int], tuple[int, int]]
    """Bytes admitted and left of each of them."""
    bursts_bytes: dict[tuple[int, int], int]
    """What each policer lets pass."""
    ingress_port: int
    dscps: tuple[int, ...]


def random_round(rng: Random, ports: int) -> Round:
    """Tables for a switch with cables in the ports 1 to `ports`; plugs come by port 1.

    All queues of port 1 and the last queue of every other port take everything, so that barriers pass.
    """
    ingress_port = rng.choice((1, *range(2, ports + 1), *range(2, ports + 1)))
    dscps = tuple(rng.sample(range(64), 10))
    places = [(port, queue) for port in range(2, ports + 1) for queue in range(1, 8)]
    held = tuple(sorted(rng.sample(places, len(places) - rng.randrange(5))))
    thresholds = {place: _threshold_and_limit(rng) for place in held}
    policed = {place: rng.random() < 0.4 for place in held}
    return Round(
        lines=(
            *_port_lines(rng, ports, ingress_port, dscps),
            *_queue_lines(rng, ports, thresholds, policed),
            *_route_lines(rng, ports),
        ),
        held=held,
        states={place: _state(rng, *thresholds[place]) for place in held},
        bursts_bytes={place: rng.randrange(3000) for place in held if policed[place]},
        ingress_port=ingress_port,
        dscps=dscps,
    )


def random_frame(rng: Random, dscps: tuple[int, ...]) -> bytes:
    """One frame: seven of ten valid, some wrong in one place, one of twenty rubbish."""
    kind = rng.random()
    if kind > 0.95:
        ether_type = rng.choice(_ETHER_TYPES)
        return (
            _MACS + struct.pack("!H", ether_type) + rng.randbytes(rng.choice((0, 1, 3, 19, 20, 39, 40, 99)))
        )
    frame = _frame(rng, dscps, flawed=kind > 0.7)
    if kind > 0.85:
        frame = frame[: rng.randint(0, len(frame))]
    elif kind > 0.8:
        changed = bytearray(frame)
        changed[rng.randrange(12, len(changed))] ^= 1 << rng.randrange(8)
        frame = bytes(changed)
    return frame


def is_for_a_cable(frame: bytes) -> bool:
    """Whether the kernel would carry it as it is: it fills up short frames, and drops those cut at a tag."""
    return len(frame) >= (20 if frame[12:14] in (b"\x81\x00", b"\x88\xa8") else 14)


def _port_lines(rng: Random, ports: int, ingress_port: int, dscps: tuple[int, ...]) -> list[str]:
    """Plugs come by port 1, which is trusted; the port under test is or is not, with classes of its own."""
    lines = port_lines(1, is_trusted=True)
    is_trusted = rng.random() < 0.5
    for port in range(2, ports + 1):
        neighbours, *_ = port_lines(port, is_trusted=False)
        lines.append(neighbours)
        trust = "trust" if is_trusted or port != ingress_port else "distrust"
        remark = str(rng.choice((0, 10, 63))) if trust == "distrust" else ""
        lines.append(f"table_add ports {trust} {port} {SWITCH_MAC} => {remark}".rstrip())
    if ingress_port == 1 or not is_trusted:
        return lines
    for dscp in rng.sample(dscps, 9):
        key = f"{ingress_port} {SWITCH_MAC} {dscp}"
        if rng.random() < 0.8:
            lines.append(f"table_add classes set_queue {key} => {rng.randrange(8)}")
        else:
            dscp_out = rng.choice((0, rng.randrange(64)))
            lines.append(f"table_add classes set_queue_and_dscp {key} => {rng.randrange(8)} {dscp_out}")
    return lines


def _queue_lines(
    rng: Random,
    ports: int,
    thresholds: dict[tuple[int, int], tuple[int, int]],
    policed: dict[tuple[int, int], bool],
) -> list[str]:
    lines = []
    for (port, queue), (threshold, limit) in thresholds.items():
        end = f"{int(policed[port, queue])} {rng.choice((FRAME_BYTES, FRAME_BYTES, 400, 154, 142))}"
        if rng.random() < 0.6:
            lines.append(
                f"table_add queues set_threshold_and_limit {port} {queue} => {threshold} {limit} {end}"
            )
        else:
            lines.append(f"table_add queues set_limit {port} {queue} => {limit} {end}")
    unlimited = [(port, queue) for port in (1, *EMPTY_PORTS) for queue in range(8)]
    unlimited += [(port, 0) for port in range(2, ports + 1)]
    lines += [
        f"table_add queues set_limit {port} {queue} => {UNLIMITED_BYTES} 0 {FRAME_BYTES}"
        for port, queue in unlimited
    ]
    return lines


def _route_lines(rng: Random, ports: int) -> list[str]:
    targets = [*range(2, ports + 1)] * 8 + [1, *EMPTY_PORTS, 8]
    empty = EMPTY_PORTS[0]
    lines = [f"table_add neighbours set_neighbour {empty} => {own_address(empty)} {neighbour(empty)}"]
    groups = rng.sample(range(1, 256), 3)
    # The last one is missing now and then.
    for group in groups if rng.random() < 0.9 else groups[:-1]:
        members = rng.sample(sorted(set(targets)), rng.randint(1, 5))
        lines.append(f"table_add groups forward {group} => {' '.join(map(str, members))}")
    for table, prefixes in (
        (
            "ipv4_routes",
            ("0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "10.1.1.1/32", "10.2.0.0/15"),
        ),
        ("ipv6_routes", ("::/0", "fd00::/8", "fd00:1::/32", "fd00:1:1::/48", "fd00:1:1::1/128")),
    ):
        for prefix in rng.sample(prefixes, len(prefixes) - 1):
            action = rng.choice(_ROUTE_ACTIONS)
            number = rng.choice(groups if action.startswith("share") else targets)
            lines.append(f"table_add {table} {action} {prefix} =>" + (f" {number}" * (action != "discard")))
    return lines


def _threshold_and_limit(rng: Random) -> tuple[int, int]:
    """S and L, now and then the same; a plug always fits below L."""
    threshold = rng.randrange(3000)
    return threshold, max(60, threshold + rng.choice((0, rng.randint(0, 12000))))


def _state(rng: Random, threshold: int, limit: int) -> tuple[int, int]:
    """Byte counts whose difference lies near a threshold, and which may be about to wrap."""
    waiting = max(
        0, rng.choice((0, threshold - 300, threshold - 1, threshold, limit - 300, limit - 1, limit))
    )
    left = rng.choice((0, rng.randrange(2**32), 2**32 - 1 - rng.randrange(3000)))
    return (left + waiting) % 2**32, left


def _frame(rng: Random, dscps: tuple[int, ...], *, flawed: bool) -> bytes:
    flaw = rng.randrange(10) if flawed else None
    is_ipv4 = rng.random() < 0.6
    network = (_ipv4 if is_ipv4 else _ipv6)(rng, dscps, flaw)
    ether_type = ETHERTYPE_IPV4 if is_ipv4 else ETHERTYPE_IPV6
    if flaw == 0:
        ether_type = rng.choice((0x0806, ETHERTYPE_VLAN, ETHERTYPE_IPV4 + ETHERTYPE_IPV6 - ether_type))
    link = b""
    if rng.random() < 0.3 or flaw in (1, 2):
        hops = rng.randint(1, SOURCE_ROUTE_MAXIMUM_HOPS) if flaw != 1 else SOURCE_ROUTE_MAXIMUM_HOPS + 1
        ports = [rng.choice(_HOPS) for _ in range(hops)]
        link = struct.pack("!BBH", 2 if flaw == 2 else 1, rng.randrange(256), ether_type)
        link += b"".join(struct.pack("!H", port) for port in ports[:-1]) + struct.pack(
            "!H", 0x8000 | ports[-1]
        )
        ether_type = ETHERTYPE_SOURCE_ROUTE
    link = struct.pack("!H", ether_type) + link
    if rng.random() < 0.2:
        link = struct.pack("!HH", ETHERTYPE_VLAN, rng.randrange(65536)) + link
    macs = bytes([_MACS[0] | 1]) + _MACS[1:] if rng.random() < GROUP_SHARE else _MACS
    return macs + link + network


def _ipv4(rng: Random, dscps: tuple[int, ...], flaw: int | None) -> bytes:
    options = rng.randbytes(4 * rng.choice((0, 0, 0, 0, 1, 3, 10)))
    version, words = 4, 5 + len(options) // 4
    if flaw == 3:
        version = rng.randrange(16)
    if flaw == 4:
        words = rng.randrange(16)
    protocol, below = _below(rng)
    header = struct.pack(
        "!BBHHHBBH4s4s",
        version << 4 | words,
        rng.choice(dscps) << 2 | rng.randrange(4),
        20 + len(options) + len(below),
        rng.randrange(65536),
        rng.choice((0, 0, 0, 0x4000, 0x2000, 0x0010, 0x3FFF)),
        _lifetime(rng, flaw),
        protocol,
        0,
        _source(rng, flaw) + rng.choice((b"\0\1", b"\0\2", rng.randbytes(2))),
        rng.choice(
            (b"\x0a\1\1\1", b"\x0a\1\1\2", b"\x0a\1\2\3", b"\x0a\3\0\1", b"\x0a\x09\0\1", b"\xc0\0\2\1")
        ),
    )
    header += options
    if rng.random() < 0.8:
        # To mark ECT(0) adds 1 to the header and to mark ECT(1) adds 2: at 0 and at 1 their sums carry twice.
        carries = rng.choice(_EDGES) if rng.random() < 0.5 else int(header[1] & 3 == 1)
        header = with_checksum(header, carries)
    checksum = ipv4_checksum(header) ^ (1 << rng.randrange(16) if flaw == 6 else 0)
    if checksum == 0:
        checksum = rng.choice((0, 0xFFFF))
    return header[:10] + struct.pack("!H", checksum) + header[12:] + below


def _ipv6(rng: Random, dscps: tuple[int, ...], flaw: int | None) -> bytes:
    protocol, below = _below(rng)
    version = rng.randrange(16) if flaw == 3 else 6
    traffic_class = rng.choice(dscps) << 2 | rng.randrange(4)
    source = b"\xfd" + bytes(14) + rng.choice((b"\1", b"\2", rng.randbytes(1)))
    if flaw == 8:  # an address that no host has
        source = rng.choice((bytes(16), bytes(15) + b"\1", b"\xff\2" + bytes(14)))
    destination = rng.choice(
        (
            bytes.fromhex("fd0000010001") + bytes(9) + b"\1",
            bytes.fromhex("fd0000010001") + bytes(9) + b"\2",
            bytes.fromhex("fd000001") + bytes(12),
            b"\xfd\xff" + bytes(14),
            bytes.fromhex("20010db8") + bytes(12),
        )
    )
    word = version << 28 | traffic_class << 20 | rng.randrange(1 << 20)
    return (
        struct.pack("!IHBB", word, len(below), protocol, _lifetime(rng, flaw)) + source + destination + below
    )


def _source(rng: Random, flaw: int | None) -> bytes:
    """The first half of an address, now and then of one that no host has."""
    return rng.choice((b"\0\1", b"\x7f\0", b"\xe0\0", b"\xff\xff")) if flaw == 8 else b"\x0a\xc8"


def with_checksum(header: bytes, checksum: int) -> bytes:
    """The header with an identification that makes its checksum this one."""
    blank = header[:4] + bytes(2) + header[6:]
    # What is missing in ones' complement.
    missing = (ipv4_checksum(blank) - checksum) % 0xFFFF
    return header[:4] + struct.pack("!H", missing) + header[6:10] + struct.pack("!H", checksum) + header[12:]


def _below(rng: Random) -> tuple[int, bytes]:
    """Protocol, and what follows the IP header."""
    protocol = rng.choice((17, 17, 17, 6, 1, 58, 0))
    size_bytes = rng.choice((0, 3, 4, 8, 8, 20, 40, 100, 300, 900))
    return protocol, struct.pack("!HH", rng.randrange(4), 9)[:size_bytes] + rng.randbytes(
        max(0, size_bytes - 4)
    )


def _lifetime(rng: Random, flaw: int | None) -> int:
    return rng.choice((0, 1)) if flaw == 5 else rng.choice((2, 3, 64, 255))
