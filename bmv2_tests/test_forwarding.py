"""Routes, neighbours, TTL, tags and addresses; and every reason for which a packet is refused."""

from collections.abc import Sequence

import pytest
from scapy.layers.inet import IP, IPOption_Router_Alert, IPOption_Timestamp
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from bmv2_tests.packets import (
    FRAME_BYTES,
    PORTS,
    ethernet,
    ipv4,
    ipv6,
    neighbour,
    own_address,
    route,
)
from bmv2_tests.random_packets import with_checksum
from bmv2_tests.switch import AnySwitch

TAG = Dot1Q(vlan=77, prio=5, dei=1)


def only(came: list[tuple[int, bytes]]) -> tuple[int, Ether]:
    """The one frame that came."""
    assert len(came) == 1, came
    port, frame = came[0]
    return port, Ether(frame)


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("link", [(), (TAG,)], ids=["untagged", "tagged"])
def test_ipv4_goes_out_aged_addressed_and_otherwise_the_same(
    switch: AnySwitch, port: int, link: Sequence[Packet]
) -> None:
    sent = ipv4(port, link=link, ttl=64, id=0x1234)
    came_from, frame = only(switch.exchange(sent, 2 if port == 1 else 1))
    assert came_from == port
    expected = Ether(sent)
    expected.src, expected.dst = own_address(port), neighbour(port)
    expected[IP].ttl = 63
    del expected[IP].chksum
    assert bytes(frame) == bytes(expected)


@pytest.mark.parametrize("port", PORTS)
@pytest.mark.parametrize("link", [(), (TAG,)], ids=["untagged", "tagged"])
def test_ipv6_goes_out_aged_addressed_and_otherwise_the_same(
    switch: AnySwitch, port: int, link: Sequence[Packet]
) -> None:
    sent = ipv6(port, link=link, hop_limit=2)
    came_from, frame = only(switch.exchange(sent, 2 if port == 1 else 1))
    assert came_from == port
    expected = Ether(sent)
    expected.src, expected.dst = own_address(port), neighbour(port)
    expected[IPv6].hlim = 1
    assert bytes(frame) == bytes(expected)


def test_the_longest_prefix_wins_in_whatever_order_they_came(switch: AnySwitch) -> None:
    prefixes = {"0.0.0.0/0": 4, "10.77.1.1/32": 4, "10.77.0.0/16": 2, "10.77.1.0/24": 3}
    switch.control.write(
        [f"table_add ipv4_routes forward {prefix} => {port}" for prefix, port in prefixes.items()]
    )
    for address, port in (("10.77.1.1", 4), ("10.77.1.2", 3), ("10.77.2.1", 2), ("192.0.2.1", 4)):
        assert only(switch.exchange(ipv4(dst=address)))[0] == port


def test_the_longest_ipv6_prefix_wins(switch: AnySwitch) -> None:
    switch.control.write(
        [
            "table_add ipv6_routes forward fd00:2:1::/48 => 3",
            "table_add ipv6_routes forward fd00:2:1::1/128 => 4",
        ]
    )
    for address, port in (("fd00:2:1::1", 4), ("fd00:2:1::2", 3), ("fd00:2:2::1", 2)):
        packet = ethernet() / IPv6(src="fd00::9", dst=address)
        assert only(switch.exchange(bytes(packet)))[0] == port


@pytest.mark.parametrize("protocol", [1, 6, 17, 89])
def test_other_protocols_are_forwarded_too(switch: AnySwitch, protocol: int) -> None:
    packet = ethernet() / IP(src="10.200.0.1", dst="10.3.0.1", proto=protocol) / Raw(bytes(20))
    assert only(switch.exchange(bytes(packet)))[0] == 3


@pytest.mark.parametrize("flags", ["MF", 0], ids=["first", "later"])
def test_fragments_are_forwarded(switch: AnySwitch, flags: str | int) -> None:
    packet = (
        ethernet()
        / IP(src="10.200.0.1", dst="10.3.0.1", proto=17, flags=flags, frag=0 if flags else 20)
        / Raw(bytes(8))
    )
    assert only(switch.exchange(bytes(packet)))[0] == 3


def test_a_later_fragment_need_not_hold_ports(switch: AnySwitch) -> None:
    packet = ethernet() / IP(src="10.200.0.1", dst="10.3.0.1", proto=17, frag=20) / Raw(b"xy")
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
def test_options_stay_and_the_checksum_covers_them(switch: AnySwitch, options: list[Packet]) -> None:
    sent = ipv4(3, options=options, size_bytes=150)
    assert Ether(sent)[IP].ihl > 5
    _, frame = only(switch.exchange(sent))
    expected = Ether(sent)
    expected.src, expected.dst, expected[IP].ttl = own_address(3), neighbour(3), 8
    del expected[IP].chksum
    assert bytes(frame) == bytes(expected)


def test_payload_behind_the_ip_packet_is_kept(switch: AnySwitch) -> None:
    sent = ipv4(3) + b"trailer"
    came = switch.exchange(sent)
    assert came[0][1][-7:] == b"trailer"
    assert len(came[0][1]) == len(sent)


def test_the_longest_frame(switch: AnySwitch) -> None:
    """A tag, or hops that are still to come, take nothing from what it may carry."""
    switch.control.write(["table_modify_match queues set_limit 3 5 => 10000 0 500"])
    for link in ((), (TAG,), route(3), (TAG, *route(3, 2, 1))):
        size_bytes = 500 + sum(len(bytes(layer)) for layer in link)
        frame = ipv4(3, link=link, size_bytes=size_bytes)
        assert [port for port, _ in switch.exchange(frame)] == [3]
        assert switch.exchange(ipv4(3, link=link, size_bytes=size_bytes + 1)) == []


@pytest.mark.parametrize("payload_bytes", range(9))
@pytest.mark.parametrize("protocol", [6, 17])
def test_what_is_too_short_for_ports_is_forwarded_too(
    switch: AnySwitch, payload_bytes: int, protocol: int
) -> None:
    """What TCP or UDP make of it is the business of hosts."""
    network = IP(src="10.200.0.1", dst="10.3.0.1", proto=protocol) / Raw(bytes(payload_bytes))
    assert only(switch.exchange(bytes(ethernet() / network)))[0] == 3
    other = IPv6(src="fd00::9", dst="fd00:3::1", nh=protocol) / Raw(bytes(payload_bytes))
    assert only(switch.exchange(bytes(ethernet() / other)))[0] == 3


def test_a_checksum_of_zero_may_be_written_both_ways(switch: AnySwitch) -> None:
    """RFC 1624, section 3: 0 and 0xFFFF are the same in ones' complement."""
    frame = ipv4(3)
    frame = frame[:14] + with_checksum(frame[14:34], 0) + frame[34:]
    assert len(switch.exchange(frame[:24] + b"\0\1" + frame[26:])) == 0
    for checksum in (b"\0\0", b"\xff\xff"):
        came = only(switch.exchange(frame[:24] + checksum + frame[26:]))[1]
        sent = bytes(came)
        del came[IP].chksum
        assert bytes(came) == sent


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
        pytest.param(b"\xff" * 6 + ipv4()[6:], "not_ours", id="broadcast"),
        pytest.param(b"\x33\x33" + ipv6()[2:], "not_ours", id="IPv6 multicast"),
        pytest.param(b"\x02" * 6 + ipv4()[6:], "not_ours", id="another host's MAC address"),
        pytest.param(with_byte(ipv4(), 16, 1), "malformed", id="IPv4 says more bytes than there are"),
        pytest.param(with_byte(ipv4(), 17, 19), "malformed", id="IPv4 says less bytes than its header has"),
        pytest.param(with_byte(ipv6(), 18, 1), "malformed", id="IPv6 says more bytes than there are"),
        pytest.param(ipv4(src="0.0.0.1"), "martian", id="this network"),
        pytest.param(ipv4(src="127.0.0.1"), "martian", id="loopback"),
        pytest.param(ipv4(src="224.0.0.5"), "martian", id="group"),
        pytest.param(ipv4(src="255.255.255.255"), "martian", id="broadcast source"),
        pytest.param(ipv6(src="::1"), "martian", id="IPv6 loopback"),
        pytest.param(ipv6(src="::"), "martian", id="IPv6 without a source"),
        pytest.param(ipv6(src="ff02::1"), "martian", id="IPv6 group"),
        pytest.param(ipv4(queue=4, size_bytes=501), "too_big", id="one byte more than the MTU"),
        pytest.param(ipv6(queue=4, size_bytes=501), "too_big", id="IPv6, one byte more"),
        pytest.param(ipv4(1), "returned", id="back to where it came from"),
        pytest.param(ipv4(dst="10.7.0.1"), "unreachable", id="nobody has the address"),
        pytest.param(ipv4(dst="10.6.0.1"), "no_neighbour", id="nobody behind the port"),
        pytest.param(ipv4(dst="10.8.0.1"), "no_queue", id="route to a port without queues"),
    ],
)
def test_refusals_are_counted_once_under_one_reason(switch: AnySwitch, frame: bytes, reason: str) -> None:
    switch.control.write(
        [
            "table_add ipv4_routes forward 10.8.0.0/16 => 8",
            "table_add ipv4_routes discard 10.7.0.0/16 =>",
            "table_add ipv4_routes forward 10.6.0.0/16 => 6",
            f"table_add queues set_limit 6 5 => 1000 0 {FRAME_BYTES}",
            "table_modify_match queues set_limit 2 4 => 1000 0 500",
        ]
    )
    assert switch.exchange(frame) == []
    assert switch.refused() == {reason: 1}


def test_a_route_is_changed_and_removed_at_run_time(switch: AnySwitch) -> None:
    switch.control.write(["table_modify_match ipv4_routes forward 10.2.0.0/16 => 3"])
    assert only(switch.exchange(ipv4(2)))[0] == 3
    switch.control.write(["table_delete_match ipv4_routes 10.2.0.0/16"])
    assert switch.exchange(ipv4(2)) == []
    assert switch.refused() == {"no_route": 1}
