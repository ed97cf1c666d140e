"""Source routes: every stack is walked hop by hop; wrong, expired and endless ones are refused."""

from itertools import product

import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import Dot1Q, Ether

from bmv2_tests.layers import Hop, SourceRoute
from bmv2_tests.packets import PORTS, UNTRUSTED_PORT, ipv4, ipv6, neighbour, own_address, route, sent_on
from bmv2_tests.switch import AnySwitch
from mltswitch.wire import ETHERTYPE_IPV4, SOURCE_ROUTE_MAXIMUM_HOPS


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("packet", [ipv4, ipv6], ids=["IPv4", "IPv6"])
def test_every_path_is_walked(switch: AnySwitch, length: int, packet: object) -> None:
    """Each frame that comes out is sent in again, as the next switch would get it: 4 + 16 + 64 paths."""
    assert callable(packet)
    for path in product(PORTS, repeat=length):
        frame = packet(77, link=route(*path), size_bytes=140)
        payload = frame[-8:]
        for position, port in enumerate(path):
            came = switch.exchange(frame)
            assert [came_from for came_from, _ in came] == [port], path
            frame = sent_on(came[0][1])
            assert (SourceRoute in Ether(frame)) == (position < length - 1)
        assert len(frame) == 140 - len(bytes(SourceRoute())) - 2 * length
        assert frame[-8:] == payload
    assert switch.refused() == {}


def test_the_longest_stack(switch: AnySwitch) -> None:
    path = [2, 3, 4, 1, 4, 3, 2, 3]
    assert len(path) == SOURCE_ROUTE_MAXIMUM_HOPS
    frame = ipv4(77, link=route(*path), ttl=9)
    for port in path:
        came = switch.exchange(frame)
        assert [came_from for came_from, _ in came] == [port]
        frame = sent_on(came[0][1])
    last = Ether(came[0][1])
    assert (last.type, last[IP].ttl, last.dst) == (ETHERTYPE_IPV4, 1, neighbour(3))


def test_one_hop_is_popped_and_nothing_else_changes(switch: AnySwitch) -> None:
    sent = Ether(ipv4(77, link=[Dot1Q(vlan=9), *route(2, 3, reserved=7)]))
    frame = Ether(switch.exchange(bytes(sent))[0][1])
    assert frame[SourceRoute].reserved == 7
    assert frame[Dot1Q].vlan == 9
    assert (frame[Hop].port, frame[Hop].last) == (3, 1)
    assert bytes(frame[IP].payload) == bytes(sent[IP].payload)


def test_the_route_goes_before_the_table(switch: AnySwitch) -> None:
    """10.2.0.1 is behind port 2, but the packet says 3."""
    assert switch.exchange(ipv4(2, link=route(3)))[0][0] == 3


def test_the_class_is_read_behind_the_route(switch: AnySwitch) -> None:
    switch.exchange(ipv4(77, queue=4, link=route(3)))
    assert switch.counts(3, 4)["arrived"] == 1


def test_a_ticket_counts_the_bytes_that_arrived(switch: AnySwitch) -> None:
    """Not those that are left when a hop is popped, so that in and out cancel exactly."""
    frame = ipv4(77, link=route(3, 2, 3, 2), size_bytes=200)
    assert len(switch.exchange(frame)[0][1]) == 198
    assert switch.waiting(3, 5) == 0
    assert switch.tickets(3, 5) == (200, 200)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        pytest.param(ipv4(77, link=route(2, version=0)), "malformed", id="version 0"),
        pytest.param(ipv4(77, link=route(2, version=2)), "malformed", id="version 2"),
        pytest.param(ipv4(77, link=route(*[2] * 9)), "malformed", id="9 hops"),
        pytest.param(ipv4(77, link=route(*[2] * 20)), "malformed", id="20 hops"),
        pytest.param(
            ipv4(77, link=[SourceRoute(), *[Hop(port=2, last=0)] * 3]), "malformed", id="no last hop"
        ),
        pytest.param(ipv4(77, link=route(2))[:19], "malformed", id="hop cut"),
        pytest.param(ipv4(77, link=route(2))[:16], "malformed", id="header cut"),
        pytest.param(ipv4(77, link=route(2, ether_type=0x0806)), "not_ip", id="ARP behind it"),
        pytest.param(ipv4(77, link=route(2, ether_type=0x88B5)), "not_ip", id="another route behind it"),
        pytest.param(ipv4(77, link=route(2), ttl=1), "expired", id="TTL 1"),
        pytest.param(ipv6(77, link=route(2), hop_limit=1), "expired", id="hop limit 1"),
        pytest.param(ipv4(77, link=route(8)), "no_queue", id="a port without anything"),
        pytest.param(ipv4(77, link=route(511)), "no_queue", id="BMv2's drop port"),
        pytest.param(ipv4(77, link=route(512 + 2)), "no_queue", id="a port beyond 9 bits"),
        pytest.param(ipv4(77, link=route(32767)), "no_queue", id="the highest port"),
        pytest.param(ipv4(77, link=route(6)), "no_queue", id="a neighbour, but no queue"),
    ],
)
def test_refusals(switch: AnySwitch, frame: bytes, reason: str) -> None:
    switch.control.write([f"table_add neighbours set_neighbour 6 => {own_address(6)} {neighbour(6)}"])
    assert switch.exchange(frame) == []
    assert switch.refused() == {reason: 1}


def test_only_trusted_ports_may_choose_the_path(switch: AnySwitch) -> None:
    frame = ipv4(77, link=route(2))
    assert switch.exchange(frame, UNTRUSTED_PORT) == []
    assert switch.refused() == {"untrusted": 1}
    assert [port for port, _ in switch.exchange(frame)] == [2]


def test_a_loop_ends_with_the_stack_or_the_ttl(switch: AnySwitch) -> None:
    """Two switches that send to each other: the stack has an end, and the TTL another."""
    for frame, rounds in (
        (ipv4(77, link=route(*[2] * 8), ttl=64), 8),
        (ipv4(77, link=route(*[2] * 8), ttl=4), 3),
    ):
        walked = 0
        came = switch.exchange(frame)
        while came:
            walked += 1
            came = switch.exchange(sent_on(came[0][1]))
        assert walked == rounds
