"""Several next hops for one prefix: packet by packet and flow by flow."""

from collections import Counter
from collections.abc import Sequence

import pytest

from bmv2_tests.packets import PORTS, base_lines, ipv4, ipv6, neighbour, number_of
from bmv2_tests.switch import Bmv2
from mltswitch.p4.model import ReferenceSwitch, Verdict

SPRAYING = "table_add spraying spray_packets 0 =>"
GROUPS = (
    "table_add ipv4_routes share 10.50.0.0/16 => 1 4",
    "table_add ipv6_routes share fd00:50::/32 => 1 4",
    *(f"table_add members_of forward 1 {port - 1} => {port} {neighbour(port)}" for port in PORTS),
    "table_add ipv4_routes share 10.51.0.0/16 => 255 3",
    *(f"table_add members_of forward 255 {port - 1} => {port} {neighbour(port)}" for port in (1, 2, 3)),
)


def ports_of(came: Sequence[tuple[int, bytes]]) -> Counter[int]:
    return Counter(port for port, _ in came)


@pytest.mark.parametrize("packets", [1, 7, 100, 401])
def test_packet_by_packet_the_shares_are_even(switch: Bmv2, packets: int) -> None:
    switch.control.write([*GROUPS, SPRAYING])
    came = switch.exchange_all([ipv4(50, queue=7, number=number) for number in range(packets)])
    shares = [ports_of(came)[port] for port in PORTS]
    assert sum(shares) == packets
    assert max(shares) - min(shares) <= 1


def test_packet_by_packet_one_after_the_other(switch: Bmv2) -> None:
    switch.control.write([*GROUPS, SPRAYING])
    came = switch.exchange_all([ipv4(50, queue=7, number=number) for number in range(80)])
    order = [port for _, port in sorted((number_of(frame), port) for port, frame in came)]
    assert order == ([2, 3, 4, 1] * 20)


def test_groups_and_address_families_share_or_not(switch: Bmv2) -> None:
    """The same group goes on from IPv4 to IPv6; another group has its own turn."""
    switch.control.write([*GROUPS, SPRAYING])
    frames = (ipv4(50), ipv6(50), ipv4(51), ipv4(50), ipv4(51), ipv6(50))
    assert [switch.exchange(frame)[0][0] for frame in frames] == [2, 3, 2, 4, 3, 1]


def test_flow_by_flow_a_flow_stays_and_flows_spread(switch: Bmv2) -> None:
    """Each of 200 flows on the path that the model's CRC-32 says, twice."""
    switch.control.write(GROUPS)
    model = ReferenceSwitch([*base_lines(), *GROUPS])
    frames = [ipv4(50, queue=7, source_port=port, number=port) for port in range(100)]
    frames += [ipv6(50, queue=7, source_port=port, number=port) for port in range(100)]
    expected: Counter[tuple[int, bytes]] = Counter()
    for frame in frames:
        verdict = model.receive(1, frame)
        assert isinstance(verdict, Verdict)
        model.serve(verdict.port, verdict.queue)
        assert verdict.data is not None
        expected[verdict.port, verdict.data] += 1
    for _ in range(2):
        came = Counter(switch.exchange_all(frames))
        assert came == expected
    shares = ports_of(list(expected))
    assert all(shares[port] >= 30 for port in PORTS)


def test_addresses_and_protocol_are_part_of_the_flow(switch: Bmv2) -> None:
    switch.control.write(GROUPS)
    by_source = {switch.exchange(ipv4(50, src=f"10.200.0.{host}"))[0][0] for host in range(1, 100)}
    by_destination = {switch.exchange(ipv4(dst=f"10.50.0.{host}"))[0][0] for host in range(1, 100)}
    assert by_source == by_destination == set(PORTS)


def test_later_fragments_share_by_addresses_alone(switch: Bmv2) -> None:
    switch.control.write(GROUPS)
    ports = {switch.exchange(ipv4(50, frag=5, source_port=port))[0][0] for port in range(20)}
    assert len(ports) == 1


def test_a_missing_member_is_no_route(switch: Bmv2) -> None:
    switch.control.write([*GROUPS, SPRAYING, "table_delete_match members_of 1 2"])
    came = switch.exchange_all([ipv4(50, queue=7, number=number) for number in range(40)])
    assert ports_of(came) == {1: 10, 2: 10, 4: 10}
    assert switch.refused() == {"no_route": 10}


def test_spraying_is_turned_on_and_off_at_run_time(switch: Bmv2) -> None:
    switch.control.write([*GROUPS, SPRAYING])
    frames = [ipv4(50, queue=7, number=number) for number in range(20)]
    assert len(ports_of(switch.exchange_all(frames))) == 4
    switch.control.write(["table_delete_match spraying 0"])
    assert len(ports_of(switch.exchange_all(frames))) == 1
