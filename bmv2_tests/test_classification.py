"""Which queue a packet joins."""

import pytest
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from bmv2_tests.packets import BACKGROUND_QUEUE, SWITCH_MAC, UNTRUSTED_PORT, dscp_of, ipv4, ipv6
from bmv2_tests.switch import AnySwitch


def arrivals(switch: AnySwitch, port: int, exchanges: int = 1) -> dict[int, int]:
    """Packets by queue, for queues that got any, without the barriers of one or more exchanges."""
    packets = {queue: switch.counts(port, queue)["arrived"] for queue in range(8)}
    packets[BACKGROUND_QUEUE] -= exchanges
    return {queue: number for queue, number in packets.items() if number}


@pytest.mark.parametrize("queue", range(8))
@pytest.mark.parametrize("packet", [ipv4, ipv6])
def test_the_code_point_says_the_queue(switch: AnySwitch, queue: int, packet: object) -> None:
    assert callable(packet)
    assert len(switch.exchange(packet(3, queue=queue))) == 1
    assert arrivals(switch, 3) == {queue: 1}


def test_all_code_points(switch: AnySwitch) -> None:
    came = switch.exchange_all([ipv4(3, dscp=dscp, ecn=dscp % 4, size_bytes=80) for dscp in range(63)])
    assert len(came) == 63
    assert arrivals(switch, 3) == {0: 63 - 7, **dict.fromkeys(range(1, 8), 1)}


def test_untrusted_ports_go_last_here_and_on_every_other_switch(switch: AnySwitch) -> None:
    """Whatever they said: their code point is background's from here on."""
    frames = [packet(3, queue=queue, ecn=queue % 4) for queue in range(8) for packet in (ipv4, ipv6)]
    came = [Ether(frame) for _, frame in switch.exchange_all(frames, UNTRUSTED_PORT)]
    assert arrivals(switch, 3) == {BACKGROUND_QUEUE: 16}
    classes = [frame[IP].tos if IP in frame else frame[IPv6].tc for frame in came]
    assert sorted(classes) == sorted(queue % 4 for queue in range(8) for _ in range(2))
    for frame in came:
        if IP in frame:
            checksum = frame[IP].chksum
            del frame[IP].chksum
            assert Ether(bytes(frame))[IP].chksum == checksum


def test_a_code_point_that_a_port_may_not_use_is_rewritten(switch: AnySwitch) -> None:
    switch.control.write(
        [f"table_modify_match classes set_queue_and_dscp 1 {SWITCH_MAC} {dscp_of(6)} => 0 0"]
    )
    [(_, frame)] = switch.exchange(ipv4(3, queue=6, ecn=1))
    assert Ether(frame)[IP].tos == 1
    [(_, frame)] = switch.exchange(ipv4(3, queue=5, ecn=1))
    assert Ether(frame)[IP].tos == dscp_of(5) << 2 | 1
    assert arrivals(switch, 3, exchanges=2) == {BACKGROUND_QUEUE: 1, 5: 1}


def test_classes_and_trust_change_at_run_time(switch: AnySwitch) -> None:
    switch.control.write([f"table_modify_match classes set_queue 2 {SWITCH_MAC} {dscp_of(7)} => 2"])
    switch.exchange(ipv4(3, queue=7), 2)
    assert arrivals(switch, 3) == {2: 1}
    switch.control.write([f"table_delete_match classes 2 {SWITCH_MAC} {dscp_of(7)}"])
    switch.exchange(ipv4(4, queue=7), 2)
    assert arrivals(switch, 4, exchanges=2) == {BACKGROUND_QUEUE: 1}
    switch.control.write([f"table_delete_match ports 2 {SWITCH_MAC}"])
    switch.ends[2].send(ipv4(4, queue=7))
    switch.pass_barriers()
    assert switch.refused() == {"not_ours": 1}
