"""An untrusted host floods with network control's code point; important gradients of others get through."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise

import pytest

from bmv2_tests.namespace import CableEnd, Namespace, wait_until
from bmv2_tests.packets import (
    PORTS,
    SWITCH_MAC,
    UNTRUSTED_PORT,
    base_lines,
    dscp_of,
    ipv4,
    number_of,
    own_address,
)
from bmv2_tests.switch import Bmv2
from mltswitch.lab.bmv2_node import shrink_send_buffers
from mltswitch.p4.program import Program
from mltswitch.wire import Ecn

pytestmark = pytest.mark.bmv2

VICTIM_PORT, NEXT_PORT, RECEIVER_PORT = 1, 2, 3
GRADIENT_QUEUE, NETWORK_CONTROL_QUEUE, NETWORK_CONTROL_DSCP = 5, 7, 48
SIZE_BYTES = 1000
RATE, FAST = "1mbit", "10gbit"
"""Of the last port: 125 packets a second."""
ROUNDS, ROUND_SECONDS = 50, 0.04
VICTIM_PACKETS, FLOOD_PACKETS = 2, 30
"""Of a round: 40 % of what the port can send, and six times what it can."""
LAST = 2**32
"""Number of the packet that ends a flood."""


@pytest.fixture(scope="module")
def running_row() -> Iterator[list[Bmv2]]:
    """Three switches, port 2 of each leads to port 1 of the next; a host in every other port."""
    with ExitStack() as stack:
        namespace = stack.enter_context(Namespace(f"bmv2-test-{os.getpid()}-row"))
        names = ("a", "b", "c")
        for one, other in pairwise(names):
            namespace.cable(f"{one}{NEXT_PORT}", f"{other}{VICTIM_PORT}")
        row = []
        for number, name in enumerate(names):
            ends = {}
            hosts = [RECEIVER_PORT, UNTRUSTED_PORT] + [VICTIM_PORT] * (name == "a")
            for port in hosts:
                namespace.cable(f"{name}{port}", f"host-{name}{port}")
                ends[port] = CableEnd(namespace, f"host-{name}{port}")
                stack.callback(ends[port].close)
            cabled = [*hosts, NEXT_PORT] if name != "c" else hosts
            cabled += [VICTIM_PORT] if name != "a" else []
            interfaces = {port: f"{name}{port}" for port in sorted(cabled)}
            row.append(stack.enter_context(Bmv2(namespace, interfaces, ends, 9090 + number)))
            # As in the lab: a full buffer would hold the port up until half of it, 70 packets, is out.
            shrink_send_buffers(row[-1].process.pid)
        yield row


def set_up(row: list[Bmv2], program: Program, hops: int, *, background: int) -> None:
    """The receiver is behind the last hop; the untrusted port writes this code point over all others."""
    for number, switch in enumerate(row[:hops], 1):
        switch.load(program, base_lines())
        port = RECEIVER_PORT if number == hops else NEXT_PORT
        next_hop = f"{NEXT_PORT} => {own_address(NEXT_PORT)} {SWITCH_MAC}"
        control = f"{SWITCH_MAC} {NETWORK_CONTROL_DSCP} => {NETWORK_CONTROL_QUEUE}"
        trusted = [port for port in PORTS if port != UNTRUSTED_PORT]
        switch.control.write(
            [
                f"table_modify_match ports distrust {UNTRUSTED_PORT} {SWITCH_MAC} => {background}",
                *(f"table_modify_match classes set_queue {port} {control}" for port in trusted),
                f"table_modify_match neighbours set_neighbour {next_hop}",
                f"table_add ipv4_routes forward 10.77.0.0/16 => {port}",
            ]
        )
        switch.drain()


def lost_in_a_flood(row: list[Bmv2], hops: int) -> int:
    """How many important packets of the victim do not arrive, of ROUNDS * VICTIM_PACKETS."""
    first, last = row[0], row[hops - 1]
    victim = iter(range(1, ROUNDS * VICTIM_PACKETS + 1))
    flooding = packet(NETWORK_CONTROL_DSCP, 0)
    arrived: set[int] = set()

    def has_arrived(number: int) -> bool:
        arrived.update(number_of(frame) for port, frame in last.drain() if port == RECEIVER_PORT)
        return number in arrived

    last.shape(RECEIVER_PORT, RATE)
    try:
        for turn in range(1, ROUNDS + 1):
            begun = time.monotonic()
            for _ in range(VICTIM_PACKETS):
                first.ends[VICTIM_PORT].send(packet(dscp_of(GRADIENT_QUEUE), next(victim)))
                for _ in range(FLOOD_PACKETS // VICTIM_PACKETS):
                    first.ends[UNTRUSTED_PORT].send(flooding)
            sent = turn * (VICTIM_PACKETS + FLOOD_PACKETS)
            wait_until(lambda sent=sent: decided(last) == sent, "all that was sent is queued or dropped")
            time.sleep(max(0.0, begun + ROUND_SECONDS - time.monotonic()))
        last.reshape(RECEIVER_PORT, FAST)
        # Behind all that waits, in the queue that is served last.
        first.ends[VICTIM_PORT].send(packet(0, LAST))
        wait_until(lambda: has_arrived(LAST), "what came last is out")
    finally:
        last.unshape(RECEIVER_PORT)
    return ROUNDS * VICTIM_PACKETS - len(arrived - {0, LAST})


def packet(dscp: int, number: int) -> bytes:
    """To the receiver."""
    return ipv4(dst="10.77.0.1", dscp=dscp, ecn=Ecn.ECT_0, size_bytes=SIZE_BYTES, number=number)


def decided(switch: Bmv2) -> int:
    """Packets to the receiver that were queued or dropped."""
    queues = (0, GRADIENT_QUEUE, NETWORK_CONTROL_QUEUE)
    return sum(switch.counts(RECEIVER_PORT, queue)["arrived"] for queue in queues)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_the_victim_loses_nothing(running_row: list[Bmv2], program: Program, hops: int) -> None:
    set_up(running_row, program, hops, background=0)
    assert lost_in_a_flood(running_row, hops) == 0


@pytest.mark.parametrize("hops", [2, 3])
def test_it_would_lose_nearly_all_if_code_points_stayed(
    running_row: list[Bmv2], program: Program, hops: int
) -> None:
    """The first switch serves the flood last all the same; the next one believes what it says."""
    set_up(running_row, program, hops, background=NETWORK_CONTROL_DSCP)
    assert lost_in_a_flood(running_row, hops) > ROUNDS * VICTIM_PACKETS // 2
