"""The reference model by hand, where comparing it with the compiled program (bmv2_tests) is not enough."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet as ScapyPacket

from bmv2_tests.layers import Hop, SourceRoute
from bmv2_tests.model import flow_hash
from bmv2_tests.model_packet import MartianError, NotIpError, Packet
from bmv2_tests.model_tables import Tables
from bmv2_tests.received import WireFormatError
from mltswitch.errors import UserInputError

US, HOST = "02:4d:00:00:00:01", "02:4d:00:00:00:09"
LINE = "table_add queues set_limit 2 0 => 600 0 1514"


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
    packet: ScapyPacket = Ether(src=HOST, dst=US)
    for layer in (*tags, SourceRoute(reserved=9), *(Hop(port=number) for number in range(hops))):
        packet /= layer
    frame = bytes(packet / IP(src="10.9.9.9", dst="10.0.0.1", tos=34 << 2) / UDP() / bytes(100))
    assert Packet.decode(frame).encode() == frame


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
        Tables.from_lines((LINE, line))
