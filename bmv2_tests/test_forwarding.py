"""Routes, neighbours, TTL, tags and addresses; and every reason for which a packet is refused."""

from collections.abc import Sequence

import pytest
from scapy.layers.inet import IP, IPOption_Router_Alert, IPOption_Timestamp
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from bmv2_tests.packets import PORTS, SWITCH_MAC, ethernet, ipv4, ipv6, neighbour
from bmv2_tests.switch import Bmv2

TAG = Dot1Q(vlan=77, prio=5, dei=1)


def only(came: list[tuple[int, bytes]]) -> tuple[int, Ether]:
    """The one frame that came."""
    assert len(came) == 1, came
    port, frame = came[0]
    return port, Ether(frame)


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("link", [(), (TAG,)], ids=["untagged", "tagged"])
def test_ipv4_goes_out_aged_addressed_and_otherwise_the_same(
    switch: Bmv2, port: int, link: Sequence[Packet]
) -> None:
    sent = ipv4(port, link=link, ttl=64, id=0x1234)
    came_from, frame = only(switch.exchange(sent))
    assert came_from == port
    expected = Ether(sent)
    expected.src, expected.dst = SWITCH_MAC, neighbour(port)
    expected[IP].ttl = 63
    del expected[IP].chksum
    assert bytes(frame) == bytes(expected)


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("link", [(), (TAG,)], ids=["untagged", "tagged"])
def test_ipv6_goes_out_aged_addressed_and_otherwise_the_same(
    switch: Bmv2, port: int, link: Sequence[Packet]
) -> None:
    sent = ipv6(port, link=link, hop_limit=2)
    came_from, frame = only(switch.exchange(sent))
    assert came_from == port
    expected = Ether(sent)
    expected.src, expected.dst = SWITCH_MAC, neighbour(port)
    expected[IPv6].hlim = 1
    assert bytes(frame) == bytes(expected)


def test_the_longest_prefix_wins_in_whatever_order_they_came(switch: Bmv2) -> None:
    prefixes = {"0.0.0.0/0": 1, "10.77.1.1/32": 4, "10.77.0.0/16": 2, "10.77.1.0/24": 3}
    switch.control.write(
        [
            f"table_add ipv4_routes forward {prefix} => {port} {neighbour(port)}"
            for prefix, port in prefixes.items()
        ]
    )
    for address, port in (("10.77.1.1", 4), ("10.77.1.2", 3), ("10.77.2.1", 2), ("192.0.2.1", 1)):
        assert only(switch.exchange(ipv4(dst=address)))[0] == port


def test_the_longest_ipv6_prefix_wins(switch: Bmv2) -> None:
    switch.control.write(
        [
            f"table_add ipv6_routes forward fd00:2:1::/48 => 3 {neighbour(3)}",
            f"table_add ipv6_routes forward fd00:2:1::1/128 => 4 {neighbour(4)}",
        ]
    )
    for address, port in (("fd00:2:1::1", 4), ("fd00:2:1::2", 3), ("fd00:2:2::1", 2)):
        packet = ethernet() / IPv6(dst=address)
        assert only(switch.exchange(bytes(packet)))[0] == port


@pytest.mark.parametrize("protocol", [1, 6, 17, 89])
def test_other_protocols_are_forwarded_too(switch: Bmv2, protocol: int) -> None:
    packet = ethernet() / IP(dst="10.3.0.1", proto=protocol) / Raw(bytes(20))
    assert only(switch.exchange(bytes(packet)))[0] == 3


@pytest.mark.parametrize("flags", ["MF", 0], ids=["first", "later"])
def test_fragments_are_forwarded(switch: Bmv2, flags: str | int) -> None:
    packet = ethernet() / IP(dst="10.3.0.1", proto=17, flags=flags, frag=0 if flags else 20) / Raw(bytes(8))
    assert only(switch.exchange(bytes(packet)))[0] == 3


def test_a_later_fragment_need_not_hold_ports(switch: Bmv2) -> None:
    packet = ethernet() / IP(dst="10.3.0.1", proto=17, frag=20) / Raw(b"xy")
    assert only(switch.exchange(bytes(packet)))[0] == 3


@pytest.mark.parametrize(
    "options",
    [
        [IPOption_Router_Alert()],
        [IPOption_Timestamp(length=36)],
        [Raw(bytes([1] * 40))],
    ],
    ids=["4 bytes", "36 bytes", "40 bytes"],
)
def test_options_stay_and_the_checksum_covers_them(switch: Bmv2, options: list[Packet]) -> None:
    sent = ipv4(3, options=options, size_bytes=150)
    assert Ether(sent)[IP].ihl > 5
    _, frame = only(switch.exchange(sent))
    expected = Ether(sent)
    expected.src, expected.dst, expected[IP].ttl = SWITCH_MAC, neighbour(3), 8
    del expected[IP].chksum
    assert bytes(frame) == bytes(expected)


def test_payload_behind_the_ip_packet_is_kept(switch: Bmv2) -> None:
    sent = ipv4(3) + b"trailer"
    came = switch.exchange(sent)
    assert came[0][1][-7:] == b"trailer"
    assert len(came[0][1]) == len(sent)


def test_the_longest_frame(switch: Bmv2) -> None:
    assert len(bytes(only(switch.exchange(ipv4(3, size_bytes=1514)))[1])) == 1514


def broken_checksum(frame: bytes) -> bytes:
    return frame[:24] + bytes([frame[24] ^ 1]) + frame[25:]


def with_byte(frame: bytes, offset: int, value: int) -> bytes:
    return frame[:offset] + bytes([value]) + frame[offset + 1 :]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        pytest.param(ipv4(size_bytes=60)[:33], "malformed", id="IPv4 header cut"),
        pytest.param(ipv6()[:53], "malformed", id="IPv6 header cut"),
        pytest.param(ipv4()[:37], "malformed", id="UDP ports cut"),
        pytest.param(with_byte(ipv4(), 14, 0x55), "malformed", id="IPv4 with version 5"),
        pytest.param(with_byte(ipv6(), 14, 0x40), "malformed", id="IPv6 with version 4"),
        pytest.param(with_byte(ipv4(), 14, 0x44), "malformed", id="IPv4 with 4 words"),
        pytest.param(with_byte(ipv4(size_bytes=50), 14, 0x4F), "malformed", id="IPv4 options cut"),
        pytest.param(broken_checksum(ipv4()), "checksum", id="checksum"),
        pytest.param(with_byte(ipv4(), 22, 200), "checksum", id="TTL changed alone"),
        pytest.param(bytes(ethernet())[:12] + b"\x08\x06" + bytes(46), "not_ip", id="ARP"),
        pytest.param(bytes(ethernet())[:12] + b"\x00\x2e" + bytes(46), "not_ip", id="IEEE 802.3 length"),
        pytest.param(bytes(ethernet() / TAG)[:16] + b"\x08\x06" + bytes(46), "not_ip", id="ARP, tagged"),
        pytest.param(bytes(ethernet() / TAG / TAG / IP()), "not_ip", id="two tags"),
        pytest.param(ipv4(dst="192.0.2.1"), "no_route", id="no IPv4 route"),
        pytest.param(ipv6(77), "no_route", id="no IPv6 route"),
        pytest.param(ipv4(ttl=1), "expired", id="TTL 1"),
        pytest.param(ipv4(ttl=0), "expired", id="TTL 0"),
        pytest.param(ipv6(hop_limit=1), "expired", id="hop limit 1"),
        pytest.param(ipv6(hop_limit=0), "expired", id="hop limit 0"),
        pytest.param(b"\xff" * 6 + ipv4()[6:], "group_address", id="broadcast"),
        pytest.param(b"\x33\x33" + ipv6()[2:], "group_address", id="IPv6 multicast"),
        pytest.param(ipv4(dst="10.8.0.1"), "no_queue", id="route to a port without queues"),
    ],
)
def test_refusals_are_counted_once_under_one_reason(switch: Bmv2, frame: bytes, reason: str) -> None:
    switch.control.write([f"table_add ipv4_routes forward 10.8.0.0/16 => 8 {neighbour(8)}"])
    assert switch.exchange(frame) == []
    assert switch.refused() == {reason: 1}


def test_a_route_is_changed_and_removed_at_run_time(switch: Bmv2) -> None:
    switch.control.write([f"table_modify_match ipv4_routes forward 10.2.0.0/16 => 3 {neighbour(3)}"])
    assert only(switch.exchange(ipv4(2)))[0] == 3
    switch.control.write(["table_delete_match ipv4_routes 10.2.0.0/16"])
    assert switch.exchange(ipv4(2)) == []
    assert switch.refused() == {"no_route": 1}
