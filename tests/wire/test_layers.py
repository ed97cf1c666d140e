"""bmv2_tests/layers.py, the scapy layers: the same bytes as the codecs, and the same layers back."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from bmv2_tests.layers import Agent, Hop, SourceRoute
from bmv2_tests.received import AgentHeader
from mltswitch import wire
from mltswitch.wire.headers import AGENT_PORT, AGENT_VERSION
from tests.wire.test_agent import any_header, any_route

ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def routed(route: wire.SourceRoute, packet: Packet) -> Packet:
    """The layers of a route in front of a packet."""
    layers: Packet = SourceRoute(ether_type=route.ether_type)
    for port in route.ports:
        layers /= Hop(port=port)
    return layers / packet


@settings(deadline=None)
@given(any_header, st.binary(max_size=40))
def test_the_agent_header(header: AgentHeader, payload: bytes) -> None:
    layer = Agent(version=AGENT_VERSION, **header._asdict()) / payload
    assert bytes(layer) == header.encode() + payload
    back = Agent(header.encode() + payload)
    assert {name: int(getattr(back, name)) for name in header._fields} == header._asdict()
    assert bytes(back.payload) == payload


@settings(deadline=None)
@given(any_route, st.booleans())
def test_a_route_in_front_of_a_packet(route: wire.SourceRoute, is_tagged: bool) -> None:
    address: Any = {wire.ETHERTYPE_IPV4: IP, wire.ETHERTYPE_IPV6: IPv6}[route.ether_type]
    inner = address() / UDP(dport=AGENT_PORT) / Agent(tensor=7) / b"abcd"
    link = ETHERNET / Dot1Q(vlan=5) if is_tagged else ETHERNET
    frame = bytes(link / routed(route, inner))
    assert frame[18 if is_tagged else 14 :] == route.encode() + bytes(inner)
    assert frame[16 if is_tagged else 12 :][:2] == b"\x88\xb5"
    back = Ether(frame)
    hops = [layer for layer in back.iterpayloads() if isinstance(layer, Hop)]
    assert tuple(hop.port for hop in hops) == route.ports
    assert [hop.last for hop in hops] == [0] * (len(hops) - 1) + [1]
    assert back[Agent].tensor == 7
    assert back[address].payload.name == "UDP"
    assert bytes(back) == frame


@pytest.mark.parametrize(("layer", "ether_type"), [(IP, 0x0800), (IPv6, 0x86DD), (Raw, 0)])
def test_the_ether_type_follows_from_the_packet(layer: Any, ether_type: int) -> None:
    built = SourceRoute(bytes(SourceRoute() / Hop(port=1) / Hop(port=2) / layer()))
    assert built.ether_type == ether_type


def test_what_is_given_is_sent_right_or_wrong() -> None:
    wrong = SourceRoute(version=9, reserved=1, ether_type=5) / Hop(last=1, port=1) / Hop(last=0, port=2)
    assert bytes(wrong).hex(" ", 2) == "0901 0005 8001 0002"
    behind = SourceRoute(ether_type=5) / Hop(last=1) / b"abc"
    assert isinstance(SourceRoute(bytes(behind))[Hop].payload, Raw)


def test_names_of_numbers() -> None:
    shown = Agent(kind=2, flags=9, element_type=5).show(dump=True)
    for name in ("acknowledgement", "important+authenticated", "int8"):
        assert name in str(shown)
    assert "selective" in str(Agent(kind=5).show(dump=True))
