"""The reference model of the P4 program against packets written down by hand and by scapy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet as ScapyPacket

from bmv2_tests.layers import Hop, SourceRoute
from mltswitch.errors import UserInputError
from mltswitch.p4.model import ReferenceSwitch, Refusal, Verdict, flow_hash
from mltswitch.p4.model_packet import MartianError, NotIpError, Packet, ipv4_checksum
from mltswitch.p4.model_tables import Tables
from mltswitch.queueing.decision import Decision
from mltswitch.wire.codec import WireFormatError

US, OWN, HOST = "02:4d:00:00:00:01", "02:4d:00:00:00:02", "02:4d:00:00:00:09"
UNTRUSTED_PORT = 4
LINES = (
    f"table_add ports trust 1 {US} =>",
    f"table_add ports distrust {UNTRUSTED_PORT} {US} => 1",
    f"table_add classes set_queue 1 {US} 34 => 5",
    f"table_add classes set_queue 1 {US} 46 => 6",
    f"table_add classes set_queue_and_dscp 1 {US} 48 => 0 1",
    "table_add queues set_threshold_and_limit 2 5 => 300 600 0 1514",
    "table_add queues set_limit 2 6 => 600 1 1514",
    "table_add queues set_limit 2 0 => 600 0 1514",
    "table_add queues set_limit 3 5 => 600 0 1514",
    "table_add queues set_limit 8 5 => 600 0 1514",
    "table_add queues set_limit 1 5 => 600 0 1514",
    "table_add ipv4_routes forward 10.0.0.0/8 => 2",
    "table_add ipv4_routes share_flows 10.1.0.0/16 => 7",
    "table_add ipv4_routes discard 10.2.0.0/16 =>",
    "table_add ipv4_routes forward 10.3.0.0/16 => 8",
    "table_add ipv4_routes forward 10.4.0.0/16 => 1",
    "table_add ipv4_routes forward_back 10.5.0.0/16 => 1",
    "table_add ipv4_routes share_flows 10.6.0.0/16 => 8",
    "table_add ipv4_routes share_packets 10.7.0.0/16 => 9",
    "table_add groups forward 7 => 2 3",
    "table_add groups forward 8 => 1",
    "table_add ipv6_routes forward 2001:db8::/32 => 2",
    f"table_add neighbours set_neighbour 1 => {OWN} 02:00:00:00:00:01",
    f"table_add neighbours set_neighbour 2 => {OWN} 02:00:00:00:00:02",
    f"table_add neighbours set_neighbour 3 => {OWN} 02:00:00:00:00:03",
    "set_queue_depth 16384",
)


def frame(
    *layers: ScapyPacket,
    tos: int = 34 << 2,
    ttl: int = 9,
    size_bytes: int = 100,
    src: str = "10.9.9.9",
    dst: str = "10.0.0.1",
) -> bytes:
    """Ethernet, the layers, IPv4 and UDP, filled up with zeros."""
    packet = Ether(src=HOST, dst=US)
    for layer in layers:
        packet /= layer
    packet /= IP(src=src, dst=dst, tos=tos, ttl=ttl) / UDP(sport=7, dport=8)
    return bytes(packet / bytes(size_bytes - len(packet)))


def frame6(*, tos: int = 34 << 2, src: str = "fd00::9", size_bytes: int = 100) -> bytes:
    """Likewise with IPv6."""
    packet = Ether(src=HOST, dst=US) / IPv6(src=src, dst="2001:db8::1", tc=tos) / UDP(sport=7, dport=8)
    return bytes(packet / bytes(size_bytes - len(packet)))


def verdict(switch: ReferenceSwitch, packet: bytes, port: int = 1) -> Verdict:
    result = switch.receive(port, packet)
    assert isinstance(result, Verdict)
    return result


def test_a_packet_is_routed_classified_aged_and_addressed() -> None:
    switch = ReferenceSwitch(LINES)
    result = verdict(switch, frame())
    assert (result.port, result.queue, result.decision) == (2, 5, Decision.FORWARD)
    assert result.data is not None
    sent = Ether(result.data)
    assert (sent.src, sent.dst, sent[IP].ttl) == (OWN, "02:00:00:00:00:02", 8)
    expected = sent.copy()
    del expected[IP].chksum
    assert bytes(expected) == result.data
    assert switch.serve(2, 5) == result.data


def test_a_source_route_from_an_untrusted_port_is_refused() -> None:
    switch = ReferenceSwitch(LINES)
    assert switch.receive(UNTRUSTED_PORT, frame(SourceRoute(), Hop(port=3))) is Refusal.UNTRUSTED
    assert verdict(switch, frame(SourceRoute(), Hop(port=3))).port == 3


def test_what_finds_a_policed_queue_full_takes_nothing_from_the_policer() -> None:
    asked: list[int] = []

    def is_exceeding(_port: int, _queue: int, size_bytes: int) -> bool:
        asked.append(size_bytes)
        return False

    switch = ReferenceSwitch(LINES, is_exceeding)
    assert verdict(switch, frame(tos=46 << 2)).decision is Decision.FORWARD
    switch.queues[2, 6].admitted_bytes = 600
    assert verdict(switch, frame(tos=46 << 2)).decision is Decision.DROP_LIMIT
    assert asked == [100]


def test_untrusted_ports_and_unknown_code_points_go_last() -> None:
    switch = ReferenceSwitch(LINES)
    assert verdict(switch, frame(), port=UNTRUSTED_PORT).queue == 0
    assert verdict(switch, frame(tos=20 << 2)).queue == 0


@pytest.mark.parametrize(
    ("port", "tos", "sent"),
    [
        (1, 34 << 2 | 1, 34 << 2 | 1),
        (1, 20 << 2 | 1, 20 << 2 | 1),
        (1, 48 << 2 | 1, 1 << 2 | 1),
        (UNTRUSTED_PORT, 34 << 2 | 2, 1 << 2 | 2),
        (UNTRUSTED_PORT, 48 << 2, 1 << 2),
    ],
)
def test_what_a_port_may_not_say_is_backgrounds_from_here_on(port: int, tos: int, sent: int) -> None:
    data = verdict(ReferenceSwitch(LINES), frame(tos=tos), port).data
    assert data is not None
    assert data[15] == sent
    assert data[24:26] == ipv4_checksum(data[14:34]).to_bytes(2, "big")
    data = verdict(ReferenceSwitch(LINES), frame6(tos=tos), port).data
    assert data is not None
    assert IPv6(data[14:]).tc == sent


@pytest.mark.parametrize(
    ("waiting_bytes", "ecn", "decision"),
    [
        (299, 0, Decision.FORWARD),
        (299, 2, Decision.FORWARD),
        (300, 0, Decision.DROP_UNIMPORTANT),
        (300, 1, Decision.MARK),
        (599, 3, Decision.MARK),
        (599, 0, Decision.DROP_UNIMPORTANT),
        (600, 0, Decision.DROP_LIMIT),
        (600, 2, Decision.DROP_LIMIT),
    ],
)
def test_thresholds_are_met_exactly(waiting_bytes: int, ecn: int, decision: Decision) -> None:
    switch = ReferenceSwitch(LINES)
    switch.queues[2, 5].admitted_bytes = waiting_bytes
    result = verdict(switch, frame(tos=34 << 2 | ecn))
    assert result.decision is decision
    if result.data is not None:
        assert IP(result.data[14:]).tos & 3 == (3 if decision is Decision.MARK else ecn)


def test_counters_add_up_and_a_queue_empties() -> None:
    switch = ReferenceSwitch(LINES)
    for number in range(20):
        switch.receive(1, frame(tos=34 << 2 | number % 4))
    state = switch.queues[2, 5]
    assert state.arrived.packets == 20
    assert sum(count.packets for count in state.decided.values()) == 20
    assert sum(count.size_bytes for count in state.decided.values()) == state.arrived.size_bytes == 2000
    assert state.waiting_bytes == 100 * len(state.waiting) == 600
    while state.waiting:
        switch.serve(2, 5)
    assert state.waiting_bytes == 0


def test_byte_counts_wrap() -> None:
    switch = ReferenceSwitch(LINES)
    state = switch.queues[2, 5]
    state.admitted_bytes = state.left_bytes = (1 << 32) - 150
    assert [verdict(switch, frame()).decision for _ in range(4)] == [
        *[Decision.FORWARD] * 3,
        Decision.DROP_UNIMPORTANT,
    ]
    assert state.admitted_bytes == 150


def test_a_policer_that_is_exceeded_drops_at_any_length() -> None:
    asked: list[tuple[int, int, int]] = []

    def is_exceeding(port: int, queue: int, size_bytes: int) -> bool:
        asked.append((port, queue, size_bytes))
        return len(asked) > 1

    switch = ReferenceSwitch(LINES, is_exceeding)
    decisions = [verdict(switch, frame(tos=46 << 2)).decision for _ in range(2)]
    assert decisions == [Decision.FORWARD, Decision.DROP_LIMIT]
    verdict(switch, frame())
    assert asked == [(2, 6, 100)] * 2


def test_a_source_route_is_popped_and_ends() -> None:
    switch = ReferenceSwitch(LINES)
    first = verdict(switch, frame(SourceRoute(), Hop(port=3), Hop(port=2)))
    assert first.port == 3
    assert first.data is not None
    assert first.data[12:14] == bytes.fromhex("88b5")
    assert first.data[18:20] == bytes.fromhex("8002")
    last = verdict(switch, frame(Dot1Q(vlan=7), SourceRoute(), Hop(port=3)))
    assert last.data is not None
    assert last.data[12:18] == bytes.fromhex("810000070800")


@pytest.mark.parametrize(
    ("packet", "refusal"),
    [
        (b"", Refusal.MALFORMED),
        (bytes(13), Refusal.MALFORMED),
        (bytes(14), Refusal.NOT_IP),
        (frame()[:33], Refusal.MALFORMED),
        (frame()[:37], Refusal.MALFORMED),
        (frame(SourceRoute(version=2), Hop(port=3)), Refusal.MALFORMED),
        (frame(SourceRoute(), *[Hop(port=3)] * 9), Refusal.MALFORMED),
        (frame(SourceRoute(ether_type=1), Hop(port=3)), Refusal.NOT_IP),
        (frame(SourceRoute(), Hop(port=6)), Refusal.NO_QUEUE),
        (frame(SourceRoute(), Hop(port=512 + 3)), Refusal.NO_QUEUE),
        (frame()[:24] + b"\0\0" + frame()[26:], Refusal.CHECKSUM),
        (b"\xff" * 6 + frame()[6:], Refusal.NOT_OURS),
        (b"\x01\x00\x5e" + frame(ttl=1)[3:], Refusal.NOT_OURS),
        (b"\x02" * 6 + frame()[6:], Refusal.NOT_OURS),
        (frame(src="127.0.0.1"), Refusal.MARTIAN),
        (frame(src="0.1.2.3"), Refusal.MARTIAN),
        (frame(src="224.0.0.1", ttl=1), Refusal.MARTIAN),
        (frame(src="255.255.255.255"), Refusal.MARTIAN),
        (frame6(src="::"), Refusal.MARTIAN),
        (frame6(src="::1"), Refusal.MARTIAN),
        (frame6(src="ff02::1"), Refusal.MARTIAN),
        (b"\x02" * 6 + frame6()[6:], Refusal.NOT_OURS),
        (frame6(size_bytes=1515), Refusal.TOO_BIG),
        (frame6()[:-1], Refusal.MALFORMED),
        (frame6()[:14] + b"\x70" + frame6()[15:], Refusal.MALFORMED),
        (frame(size_bytes=1515), Refusal.TOO_BIG),
        (frame(Dot1Q(vlan=7), size_bytes=1519), Refusal.TOO_BIG),
        (frame(SourceRoute(), Hop(port=3), size_bytes=1521), Refusal.TOO_BIG),
        (frame(size_bytes=1515, ttl=1), Refusal.TOO_BIG),
        (frame(dst="10.4.0.1", size_bytes=1515), Refusal.TOO_BIG),
        (frame(dst="10.4.0.1", ttl=1), Refusal.EXPIRED),
        (frame(dst="10.6.0.1"), Refusal.RETURNED),
        (frame(dst="10.7.0.1", ttl=1), Refusal.NO_QUEUE),
        (frame(dst="10.2.0.1"), Refusal.UNREACHABLE),
        (frame(dst="10.4.0.1"), Refusal.RETURNED),
        (frame()[:16] + b"\1\0" + frame()[18:], Refusal.MALFORMED),
        (frame()[:16] + b"\0\x13" + frame()[18:], Refusal.MALFORMED),
        (frame(ttl=1), Refusal.EXPIRED),
        (frame(ttl=0), Refusal.EXPIRED),
        (bytes(Ether(src=HOST, dst=US) / IPv6(src="fd00::9", dst="2001:db9::1")), Refusal.NO_ROUTE),
        (bytes(Ether(src=HOST, dst=US) / IP(src="10.9.9.9", dst="11.0.0.1")), Refusal.NO_ROUTE),
    ],
)
def test_refusals(packet: bytes, refusal: Refusal) -> None:
    switch = ReferenceSwitch(LINES)
    assert switch.receive(1, packet) is refusal
    assert switch.refused == {entry: int(entry is refusal) for entry in Refusal}


def test_what_nobody_is_behind_the_port_for_is_refused_when_it_leaves() -> None:
    switch = ReferenceSwitch(LINES)
    assert verdict(switch, frame(dst="10.3.0.1")).data is None
    assert switch.serve(8, 5) is None
    assert switch.refused[Refusal.NO_NEIGHBOUR] == 1


def test_a_route_may_lead_back_and_so_may_a_source_route() -> None:
    switch = ReferenceSwitch(LINES)
    assert verdict(switch, frame(dst="10.5.0.1")).port == 1
    assert verdict(switch, frame(SourceRoute(), Hop(port=1))).port == 1


def test_a_tag_and_a_source_route_take_nothing_from_what_a_frame_may_carry() -> None:
    switch = ReferenceSwitch(LINES)
    assert verdict(switch, frame(size_bytes=1514)).port == 2
    assert verdict(switch, frame(Dot1Q(vlan=7), size_bytes=1518)).port == 2
    assert verdict(switch, frame(SourceRoute(), Hop(port=3), size_bytes=1520)).port == 3


@pytest.mark.parametrize("protocol", [6, 17])
@pytest.mark.parametrize("payload_bytes", range(5))
def test_what_is_too_short_for_ports_is_forwarded(protocol: int, payload_bytes: int) -> None:
    for network in (
        IP(src="10.9.9.9", dst="10.0.0.1", tos=34 << 2, proto=protocol),
        IPv6(src="fd00::9", dst="2001:db8::1", tc=34 << 2, nh=protocol),
    ):
        packet = bytes(Ether(src=HOST, dst=US) / network / bytes(payload_bytes))
        assert verdict(ReferenceSwitch(LINES), packet).port == 2


def test_a_checksum_of_0_may_be_written_as_0xffff() -> None:
    """Both are zero in ones' complement (RFC 1624)."""
    blank = frame()[:18] + b"\0\0" + frame()[20:]
    identification = ipv4_checksum(blank[14:34]).to_bytes(2, "big")
    for checksum in (b"\0\0", b"\xff\xff"):
        packet = blank[:18] + identification + blank[20:24] + checksum + blank[26:]
        data = verdict(ReferenceSwitch(LINES), packet).data
        assert data is not None
        assert data[24:26] == ipv4_checksum(data[14:34]).to_bytes(2, "big") == b"\1\0"


def test_eight_hops_are_not_too_many() -> None:
    assert verdict(ReferenceSwitch(LINES), frame(SourceRoute(), *[Hop(port=3)] * 8)).port == 3


def test_packet_by_packet_all_members_get_the_same() -> None:
    lines = [line.replace("share_flows", "share_packets") for line in LINES]
    switch = ReferenceSwitch(lines)
    packet = bytes(Ether(src=HOST, dst=US) / IP(src="10.9.9.9", dst="10.1.0.1", tos=34 << 2) / UDP())
    assert [verdict(switch, packet).port for _ in range(4)] == [3, 2, 3, 2]


def test_flow_by_flow_a_flow_keeps_its_path() -> None:
    switch = ReferenceSwitch(LINES)
    packets = [
        bytes(Ether(src=HOST, dst=US) / IP(src="10.9.9.9", dst="10.1.0.1", tos=34 << 2) / UDP(sport=port))
        for port in range(64)
    ]
    ports = [verdict(switch, packet).port for packet in packets[:6]]
    assert ports == [verdict(ReferenceSwitch(LINES), packet).port for packet in packets[:6]]
    assert {verdict(ReferenceSwitch(LINES), packet).port for packet in packets} == {2, 3}


@pytest.mark.parametrize("members", [2, 3, 4, 8])
@pytest.mark.parametrize("first", [0, 32768])
def test_flows_with_neighbouring_ports_spread(members: int, first: int) -> None:
    shares = [0] * members
    for port in range(first, first + 800):
        network = Packet.decode(
            bytes(Ether(src=HOST, dst=US) / IP(src="10.9.9.9", dst="10.1.0.1") / UDP(sport=port))
        ).network
        shares[flow_hash(network) % members] += 1
    assert min(shares) > 0.8 * 800 / members


def test_ipv6_is_marked_in_its_traffic_class() -> None:
    switch = ReferenceSwitch(LINES)
    switch.queues[2, 5].admitted_bytes = 400
    packet = (
        Ether(src=HOST, dst=US)
        / IPv6(src="fd00::9", dst="2001:db8::1", tc=34 << 2 | 1, fl=0xABCDE, hlim=3)
        / UDP()
    )
    result = verdict(switch, bytes(packet))
    assert result.data is not None
    sent = IPv6(result.data[14:])
    assert (sent.tc, sent.fl, sent.hlim) == (34 << 2 | 3, 0xABCDE, 2)


def test_options_are_covered_by_the_checksum() -> None:
    packet = bytes(
        Ether(src=HOST, dst=US)
        / IP(src="10.9.9.9", dst="10.0.0.1", options=[IPOption_Router_Alert()])
        / UDP()
    )
    data = verdict(ReferenceSwitch(LINES), packet).data
    assert data is not None
    header = data[14:38]
    assert header[10:12] == ipv4_checksum(header).to_bytes(2, "big")


@given(st.binary(max_size=120))
def test_whatever_is_read_is_written_back(text: bytes) -> None:
    try:
        packet = Packet.decode(text)
    except (WireFormatError, NotIpError, MartianError):
        return
    assert packet.encode() == text


@pytest.mark.parametrize("hops", [1, 2, 8])
@pytest.mark.parametrize("tags", [(), (Dot1Q(vlan=5, prio=3),)])
def test_packets_of_every_shape_are_written_back(hops: int, tags: tuple[ScapyPacket, ...]) -> None:
    packet = frame(
        *tags, SourceRoute(reserved=9), *(Hop(port=number) for number in range(hops)), size_bytes=200
    )
    assert Packet.decode(packet).encode() == packet


@pytest.mark.parametrize(
    "line",
    [
        "table_add nowhere forward 1 => 2",
        "table_add queues set_limit 9 => 5 0 1514",
        "table_add queues set_limit one 1 => 5 0 1514",
        "table_add queues set_limit 2 0 => 5 0 1514",
        "table_add ipv4_routes forward 10.0.0.1/8 => 2",
        "table_add ipv4_routes nowhere 10.0.0.0/9 => 2",
        "table_add neighbours set_neighbour 9 => 02:00:00:00:00:02",
    ],
)
def test_lines_that_no_switch_would_take(line: str) -> None:
    with pytest.raises(UserInputError, match="table_add"):
        Tables.from_lines((*LINES, line))
