"""Three switches in a row and in a ring: routes are popped hop by hop, marks last, loops end."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from bmv2_tests.interpreted import interpreted_switch
from bmv2_tests.layers import SourceRoute
from bmv2_tests.namespace import CableEnd, End, Namespace, wait_until
from bmv2_tests.packets import SWITCH_MAC, THRESHOLD_BYTES, base_lines, ipv4, ipv6, own_address, route
from bmv2_tests.switch import INTERPRETER_AND_BMV2, AnySwitch, Bmv2
from mltswitch.p4.program import Program
from mltswitch.wire import Ecn

SWITCHES = ("a", "b", "c")
FOLLOWING = dict(zip(SWITCHES, (*SWITCHES[1:], SWITCHES[0]), strict=True))
HOST_PORT, NEXT_PORT, PREVIOUS_PORT = 1, 2, 3


@dataclass(frozen=True)
class Ring:
    """Port 1 of each switch leads to a host, port 2 to the next switch, port 3 to the one before."""

    switches: Mapping[str, AnySwitch]
    hosts: Mapping[str, End]

    def refused(self) -> dict[str, dict[str, int]]:
        return {name: found for name, switch in self.switches.items() if (found := switch.refused())}


@pytest.fixture(scope="module", params=INTERPRETER_AND_BMV2)
def running_ring(request: pytest.FixtureRequest) -> Iterator[Ring]:
    with interpreted_ring() if request.param == "interpreter" else real_ring() as ring:
        yield ring


@contextmanager
def interpreted_ring() -> Iterator[Ring]:
    with ExitStack() as stack:
        switches = {name: stack.enter_context(interpreted_switch(3)) for name in SWITCHES}
        for name, following in FOLLOWING.items():
            one, other = switches[name], switches[following]
            one.cables[NEXT_PORT].deliver = partial(other.receive, PREVIOUS_PORT)
            other.cables[PREVIOUS_PORT].deliver = partial(one.receive, NEXT_PORT)
        yield Ring(switches, {name: switch.ends[HOST_PORT] for name, switch in switches.items()})


@contextmanager
def real_ring() -> Iterator[Ring]:
    with ExitStack() as stack:
        namespace = stack.enter_context(Namespace(f"bmv2-test-{os.getpid()}-ring"))
        hosts = {}
        for name, following in FOLLOWING.items():
            namespace.cable(f"{name}{HOST_PORT}", f"host-{name}")
            namespace.cable(f"{name}{NEXT_PORT}", f"{following}{PREVIOUS_PORT}")
            hosts[name] = CableEnd(namespace, f"host-{name}")
            stack.callback(hosts[name].close)
        switches = {}
        for number, name in enumerate(SWITCHES):
            interfaces = {port: f"{name}{port}" for port in (HOST_PORT, NEXT_PORT, PREVIOUS_PORT)}
            switches[name] = stack.enter_context(Bmv2(namespace, interfaces, {}, 9090 + number))
        yield Ring(switches, hosts)


@pytest.fixture
def ring(running_ring: Ring, program: Program) -> Ring:
    for switch in running_ring.switches.values():
        switch.load(program, base_lines())
        switch.control.write(
            [
                f"table_modify_match neighbours set_neighbour {port} => {own_address(port)} {SWITCH_MAC}"
                for port in (NEXT_PORT, PREVIOUS_PORT)
            ]
        )
    for host in running_ring.hosts.values():
        list(host.received())  # what a test that failed has left
    return running_ring


def delivered(ring: Ring, host: str) -> Ether:
    """The next frame that the host gets."""
    came: list[bytes] = []

    def has_come() -> bool:
        came.extend(ring.hosts[host].received())
        return bool(came)

    wait_until(has_come, "a frame is delivered")
    [frame] = came
    return Ether(frame)


@pytest.mark.parametrize(
    ("path", "host"),
    [
        ((HOST_PORT,), "a"),
        ((NEXT_PORT, HOST_PORT), "b"),
        ((PREVIOUS_PORT, HOST_PORT), "c"),
        ((NEXT_PORT, NEXT_PORT, HOST_PORT), "c"),
        ((PREVIOUS_PORT, PREVIOUS_PORT, HOST_PORT), "b"),
        ((NEXT_PORT, PREVIOUS_PORT, HOST_PORT), "a"),
        ((NEXT_PORT, NEXT_PORT, NEXT_PORT, HOST_PORT), "a"),
        ((*(NEXT_PORT,) * 7, HOST_PORT), "b"),
    ],
)
@pytest.mark.parametrize("packet", [ipv4, ipv6], ids=["IPv4", "IPv6"])
def test_every_way_round(ring: Ring, path: tuple[int, ...], host: str, packet: object) -> None:
    assert callable(packet)
    sent = packet(77, link=route(*path), size_bytes=150, number=99)
    ring.hosts["a"].send(sent)
    frame = delivered(ring, host)
    assert SourceRoute not in frame
    assert bytes(frame)[-8:] == (99).to_bytes(8, "big")
    assert len(frame) == 150 - 4 - 2 * len(path)
    lifetime = frame[IP].ttl if IP in frame else frame.payload.hlim
    assert lifetime == 9 - len(path)
    assert ring.refused() == {}


def test_a_mark_stays(ring: Ring) -> None:
    """Marked by the first switch, still marked behind the third, whose queues are empty."""
    ring.switches["a"].set_waiting(NEXT_PORT, 5, THRESHOLD_BYTES)
    ring.hosts["a"].send(ipv4(77, link=route(NEXT_PORT, NEXT_PORT, HOST_PORT), ecn=Ecn.ECT_0))
    assert delivered(ring, "c")[IP].tos & 3 == Ecn.CE
    assert ring.switches["a"].counts(NEXT_PORT, 5)["forwarded_marked"] == 1
    assert ring.switches["b"].counts(NEXT_PORT, 5)["forwarded_unmarked"] == 1


def test_a_routing_loop_ends_with_the_ttl(ring: Ring) -> None:
    """Every switch sends the prefix to the next one; the packet of TTL 9 is refused by the ninth."""
    for switch in ring.switches.values():
        switch.control.write([f"table_add ipv4_routes forward 10.99.0.0/16 => {NEXT_PORT}"])
    ring.hosts["a"].send(ipv4(dst="10.99.0.1", ttl=9))
    wait_until(lambda: bool(ring.refused()), "the packet is refused")
    assert ring.refused() == {"c": {"expired": 1}}
    passed = [switch.counts(NEXT_PORT, 5)["arrived"] for switch in ring.switches.values()]
    assert passed == [3, 3, 2]


def test_a_route_that_never_ends_is_refused_at_once(ring: Ring) -> None:
    ring.hosts["a"].send(ipv4(77, link=route(*(NEXT_PORT,) * 9)))
    wait_until(lambda: bool(ring.refused()), "the packet is refused")
    assert ring.refused() == {"a": {"malformed": 1}}
