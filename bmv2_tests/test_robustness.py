"""Rubbish never stops the switch: it goes on, and the next packet is forwarded."""

from random import Random

import pytest
from scapy.layers.inet import IPOption_Router_Alert
from scapy.layers.l2 import Dot1Q

from bmv2_tests.packets import ipv4, ipv6, route
from bmv2_tests.random_packets import is_for_a_cable, random_frame
from bmv2_tests.switch import AnySwitch

RANDOM_FRAMES = 3000


def is_well(switch: AnySwitch) -> bool:
    """Alive, and forwarding."""
    frame = ipv4(3, queue=7)
    return switch.is_alive and [port for port, _ in switch.exchange(frame)] == [3]


@pytest.mark.parametrize("size_bytes", range(14))
def test_runts_below_an_ethernet_header(switch: AnySwitch, size_bytes: int) -> None:
    """No cable carries them; a controller may have them sent."""
    switch.packet_out(ipv4()[:size_bytes], 3)
    assert is_well(switch)
    assert switch.refused() == {}


@pytest.mark.parametrize(
    "frame",
    [
        ipv4(queue=7),
        ipv6(queue=7),
        ipv4(queue=7, link=route(2, 3)),
        ipv6(queue=7, link=[Dot1Q(vlan=3), *route(2)]),
        ipv4(queue=7, options=[IPOption_Router_Alert()]),
    ],
    ids=["IPv4", "IPv6", "IPv4 routed", "IPv6 tagged, routed", "IPv4 with options"],
)
def test_frames_cut_at_every_byte(switch: AnySwitch, frame: bytes) -> None:
    """What is cut within the headers is refused; behind them it is forwarded."""
    cut = [cut for size_bytes in range(14, len(frame)) if is_for_a_cable(cut := frame[:size_bytes])]
    came = switch.exchange_all(cut)
    refused = sum(switch.refused().values())
    assert len(came) + refused == len(cut)
    assert refused >= 20
    assert is_well(switch)


def test_random_bytes(switch: AnySwitch) -> None:
    rng = Random(5)  # noqa: S311  (no secret)
    for _ in range(RANDOM_FRAMES // 100):
        switch.exchange_all([rng.randbytes(rng.randint(18, 300)) for _ in range(100)])
    assert is_well(switch)


def test_random_frames_that_are_nearly_right(switch: AnySwitch) -> None:
    rng = Random(6)  # noqa: S311  (no secret)
    for _ in range(RANDOM_FRAMES // 100):
        frames = [random_frame(rng, tuple(range(64))) for _ in range(100)]
        switch.exchange_all([frame for frame in frames if is_for_a_cable(frame)])
    assert is_well(switch)


def test_a_frame_for_each_ether_type_and_protocol(switch: AnySwitch) -> None:
    addresses = ipv4()[:12]
    for first in range(0, 65536, 256 * 16):
        switch.exchange_all([addresses + (first + n * 16).to_bytes(2, "big") + bytes(50) for n in range(256)])
    switch.exchange_all([ipv4(3, queue=7, proto=protocol) for protocol in range(256)])
    assert is_well(switch)
