"""Several next hops for one prefix: packet by packet and flow by flow."""

from collections import Counter
from collections.abc import Sequence

import pytest

from bmv2_tests.model import ReferenceSwitch, Verdict
from bmv2_tests.packets import base_lines, ipv4, ipv6, number_of
from bmv2_tests.switch import AnySwitch

GROUPS = ("table_add groups forward 1 => 2 3 4", "table_add groups forward 255 => 2 3")
FLOWS = (
    *GROUPS,
    "table_add ipv4_routes share_flows 10.50.0.0/16 => 1",
    "table_add ipv6_routes share_flows fd00:50::/32 => 1",
    "table_add ipv4_routes share_flows 10.51.0.0/16 => 255",
)
PACKETS = tuple(line.replace("share_flows", "share_packets") for line in FLOWS)
SHARING = (2, 3, 4)
"""Packets come by port 1, and do not go back."""


def ports_of(came: Sequence[tuple[int, bytes]]) -> Counter[int]:
    return Counter(port for port, _ in came)


@pytest.mark.parametrize("packets", [1, 7, 100, 401])
def test_packet_by_packet_the_shares_are_even(switch: AnySwitch, packets: int) -> None:
    switch.control.write(PACKETS)
    came = switch.exchange_all([ipv4(50, queue=7, number=number) for number in range(packets)])
    shares = [ports_of(came)[port] for port in SHARING]
    assert sum(shares) == packets
    assert max(shares) - min(shares) <= 1


def test_packet_by_packet_one_after_the_other(switch: AnySwitch) -> None:
    switch.control.write(PACKETS)
    came = switch.exchange_all([ipv4(50, queue=7, number=number) for number in range(80)])
    order = [port for _, port in sorted((number_of(frame), port) for port, frame in came)]
    assert order == ([3, 4, 2] * 27)[:80]


def test_groups_and_address_families_share_or_not(switch: AnySwitch) -> None:
    """The same group goes on from IPv4 to IPv6; another group has its own turn."""
    switch.control.write(PACKETS)
    frames = (ipv4(50), ipv6(50), ipv4(51), ipv4(50), ipv4(51), ipv6(50))
    assert [switch.exchange(frame)[0][0] for frame in frames] == [3, 4, 3, 2, 2, 3]


def test_flow_by_flow_a_flow_stays_and_flows_spread(switch: AnySwitch) -> None:
    """Each of 200 flows on the path that the model's CRC-32 says, twice."""
    switch.control.write(FLOWS)
    model = ReferenceSwitch([*base_lines(), *FLOWS])
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
    assert all(shares[port] >= 30 for port in SHARING)


def test_addresses_and_protocol_are_part_of_the_flow(switch: AnySwitch) -> None:
    switch.control.write(FLOWS)
    by_source = {switch.exchange(ipv4(50, src=f"10.200.0.{host}"))[0][0] for host in range(1, 100)}
    by_destination = {switch.exchange(ipv4(dst=f"10.50.0.{host}"))[0][0] for host in range(1, 100)}
    assert by_source == by_destination == set(SHARING)


def test_later_fragments_share_by_addresses_alone(switch: AnySwitch) -> None:
    switch.control.write(FLOWS)
    ports = {switch.exchange(ipv4(50, frag=5, source_port=port))[0][0] for port in range(20)}
    assert len(ports) == 1


def test_a_group_that_is_missing_leads_nowhere(switch: AnySwitch) -> None:
    switch.control.write(["table_add ipv4_routes share_flows 10.50.0.0/16 => 7"])
    assert switch.exchange(ipv4(50)) == []
    assert switch.refused() == {"no_queue": 1}


def test_a_port_of_a_group_by_which_a_packet_came_does_not_get_it_back(switch: AnySwitch) -> None:
    switch.control.write(
        ["table_add groups forward 9 => 1", "table_add ipv4_routes share_flows 10.50.0.0/16 => 9"]
    )
    assert switch.exchange(ipv4(50)) == []
    assert switch.refused() == {"returned": 1}


def test_members_change_at_run_time(switch: AnySwitch) -> None:
    switch.control.write([*PACKETS, "table_modify_match groups forward 1 => 2 4"])
    frames = [ipv4(50, queue=7, number=number) for number in range(20)]
    assert ports_of(switch.exchange_all(frames)) == {2: 10, 4: 10}


def test_spraying_is_turned_on_and_off_at_run_time(switch: AnySwitch) -> None:
    switch.control.write(PACKETS)
    frames = [ipv4(50, queue=7, number=number) for number in range(20)]
    assert len(ports_of(switch.exchange_all(frames))) == 3
    switch.control.write(["table_modify_match ipv4_routes share_flows 10.50.0.0/16 => 1"])
    assert len(ports_of(switch.exchange_all(frames))) == 1
