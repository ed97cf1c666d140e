"""Which queue a packet joins."""

import pytest

from bmv2_tests.packets import BACKGROUND_QUEUE, UNTRUSTED_PORT, dscp_of, ipv4, ipv6
from bmv2_tests.switch import Bmv2


def arrivals(switch: Bmv2, port: int, exchanges: int = 1) -> dict[int, int]:
    """Packets by queue, for queues that got any, without the barriers of one or more exchanges."""
    packets = {queue: switch.counts(port, queue)["arrived"] for queue in range(8)}
    packets[BACKGROUND_QUEUE] -= exchanges
    return {queue: number for queue, number in packets.items() if number}


@pytest.mark.parametrize("queue", range(8))
@pytest.mark.parametrize("packet", [ipv4, ipv6])
def test_the_code_point_says_the_queue(switch: Bmv2, queue: int, packet: object) -> None:
    assert callable(packet)
    assert len(switch.exchange(packet(3, queue=queue))) == 1
    assert arrivals(switch, 3) == {queue: 1}


def test_all_code_points(switch: Bmv2) -> None:
    came = switch.exchange_all([ipv4(3, dscp=dscp, ecn=dscp % 4, size_bytes=80) for dscp in range(63)])
    assert len(came) == 63
    assert arrivals(switch, 3) == {0: 63 - 7, **dict.fromkeys(range(1, 8), 1)}


def test_untrusted_ports_go_last(switch: Bmv2) -> None:
    switch.exchange_all([ipv4(3, queue=queue) for queue in range(8)], UNTRUSTED_PORT)
    assert arrivals(switch, 3) == {BACKGROUND_QUEUE: 8}


def test_ports_have_maps_of_their_own_and_change_them_at_run_time(switch: Bmv2) -> None:
    switch.control.write(
        [
            f"table_add dscp_queues set_queue 2 {dscp_of(7)} => 2",
            "table_modify_match trusted_ports trust 2 => 2",
        ]
    )
    switch.exchange(ipv4(3, queue=7), 2)
    assert arrivals(switch, 3) == {2: 1}
    switch.control.write(["table_delete_match trusted_ports 2"])
    switch.exchange(ipv4(4, queue=7), 2)
    assert arrivals(switch, 4, exchanges=2) == {BACKGROUND_QUEUE: 1}
