"""The star's switch does to packets what a plan says."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from benchmarks.agent_incast import incast_plan
from mltswitch.errors import MachineError
from mltswitch.lab import (
    LeafSpine,
    Queue,
    Star,
    one_queue,
    planned_queues,
    running_leaf_spine,
    running_star,
)
from mltswitch.plan import Plan

PORT = 20_700
PAYLOAD_BYTES = 1000
PACKET_BYTES = PAYLOAD_BYTES + 28 + 14
SLOW_BPS = 8_000
"""A packet takes a second: nothing leaves while a test sends."""
FAST_BPS = 100_000_000
NOT_ECT, ECT_0, CE = 0, 2, 3


def test_queues_of_a_plan() -> None:
    plan: Plan = incast_plan(100_000_000)
    queues = planned_queues(plan, plan.port_profiles[0])
    assert [queue.dscps for queue in queues] == [entry.dscp for entry in plan.classes]
    for queue, entry in zip(queues, plan.port_profiles[0].queues, strict=True):
        assert queue.threshold_bytes == (entry.ecn_threshold_bytes or queue.limit_bytes)


@pytest.fixture(scope="module")
def star() -> Iterator[Star]:
    with ExitStack() as stack:
        try:
            found = stack.enter_context(running_star(2, paths=2))
        except MachineError as error:
            pytest.skip(str(error))
        yield found


def receiver_of(star: Star) -> socket.socket:
    with star.hosts[1].entered():
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found.bind(("0.0.0.0", PORT))  # noqa: S104  (a namespace of the test's)
    found.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    found.settimeout(20.0)
    return found


def send(star: Star, tos: int, count: int, path: int = 0) -> None:
    with star.hosts[0].entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        for _ in range(count):
            sender.sendto(bytes(PAYLOAD_BYTES), (star.addresses(1)[path], PORT))


def marks(receiver: socket.socket, count: int) -> list[int]:
    """DSCP/ECN bytes of so many packets."""
    found = []
    for _ in range(count):
        _, ancillary, _, _ = receiver.recvmsg(2048, 64)
        found.append(ancillary[0][2][0])
    return found


def prepare(star: Star, queues: tuple[Queue, ...]) -> None:
    star.set_rate(FAST_BPS)
    star.set_loss(0.0)
    star.set_queues(queues)
    star.report()
    star.set_port_rate(SLOW_BPS)


@pytest.mark.root
def test_thresholds(star: Star) -> None:
    threshold, limit = 4 * PACKET_BYTES, 6 * PACKET_BYTES
    prepare(star, (Queue(threshold, limit, (34,)), Queue(limit, limit, ())))
    with receiver_of(star) as receiver:
        send(star, 34 << 2 | NOT_ECT, 8)
        send(star, 34 << 2 | ECT_0, 8)
        found = None
        while found is None or found["important"] < 8:
            found = star.report()["queues"][0] if found is None else add(found, star.report()["queues"][0])
        star.set_port_rate(FAST_BPS)
        arrived = marks(receiver, 1 + 4 + 2)
    # One is in transmission, four fill the queue up to S, and two important ones that up to L.
    assert found == {
        "unimportant": 8,
        "unimportant_dropped": 3,
        "important": 8,
        "important_dropped": 6,
        "marked": 2,
    }
    assert arrived == [34 << 2 | NOT_ECT] * 5 + [34 << 2 | CE] * 2


def add(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {key: one[key] + other[key] for key in one}


@pytest.mark.root
def test_the_first_queue_goes_first(star: Star) -> None:
    room = 100 * PACKET_BYTES
    prepare(star, (Queue(room, room, (34,)), Queue(room, room, ())))
    with receiver_of(star) as receiver:
        send(star, 0, 4)
        send(star, 34 << 2, 3)
        offered = 0
        while offered < 7:
            offered += sum(queue["unimportant"] for queue in star.report()["queues"])
        star.set_port_rate(FAST_BPS)
        assert marks(receiver, 7) == [0] + [34 << 2] * 3 + [0] * 3


@pytest.mark.root
def test_loss_on_one_path(star: Star) -> None:
    prepare(star, one_queue(100 * PACKET_BYTES))
    star.set_port_rate(FAST_BPS)
    star.set_loss(1.0, path=1)
    with receiver_of(star) as receiver:
        send(star, 0, 5, path=1)
        send(star, 0, 5, path=0)
        assert marks(receiver, 5) == [0] * 5
        receiver.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiver.recv(2048)
    report = star.report()
    assert report["random_lost"] == 5
    least = 5 * (PAYLOAD_BYTES + 28)
    assert report["path_bytes"][:3] == [least, least, 0]


@pytest.mark.root
def test_delay_both_ways(star: Star) -> None:
    prepare(star, one_queue(100 * PACKET_BYTES))
    star.set_port_rate(FAST_BPS)
    star.set_round_trip(0.05, 0.0)
    try:
        assert star.round_trip_seconds() >= 0.05
    finally:
        star.set_round_trip(0.0, 0.0)


@pytest.mark.root
def test_bad_settings_are_refused(star: Star) -> None:
    with pytest.raises(MachineError, match="9 queues"):
        star.set_queues(one_queue(1) * 9)


@pytest.fixture
def two_tiers() -> Iterator[LeafSpine]:
    """Hosts 0 and 2 on one leaf, 1 and 3 on the other; two spines, whose ports keep three packets."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(running_leaf_spine(4, 2, SLOW_BPS // 20, oversubscription=1.0))
        except MachineError as error:
            pytest.skip(str(error))
        found.set_rate(FAST_BPS)
        found.set_queues(one_queue(2 * PACKET_BYTES))
        yield found


def crossing(network: LeafSpine, host: int, *, flows: int, packets: int, hashed: bool) -> tuple[int, int]:
    """Packets that came to the ports of the spines, and that did not fit there."""
    with ExitStack() as stack:
        with network.hosts[0].entered():
            senders = [
                stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(flows)
            ]
        address = network.routed_address(host) if hashed else network.addresses(host)[0]
        for number, sender in enumerate(senders):
            sender.bind(("0.0.0.0", PORT + number))  # noqa: S104  (a namespace of the test's)
            for _ in range(packets):
                sender.sendto(bytes(PAYLOAD_BYTES), (address, PORT))
    offered = dropped = seen = 0
    while seen < flows * packets:
        report = network.report()
        seen += report["queues"][0]["unimportant"]
        offered, dropped = offered + report["core_offered"], dropped + report["core_dropped"]
    return offered, dropped


@pytest.mark.root
def test_a_leaf_keeps_what_is_for_its_own_hosts(two_tiers: LeafSpine) -> None:
    assert crossing(two_tiers, 2, flows=1, packets=2, hashed=True) == (0, 0)


@pytest.mark.root
@pytest.mark.parametrize(
    ("flows", "hashed", "kept"), [(1, False, 3), (16, False, 3), (1, True, 3), (16, True, 6)]
)
def test_spines_are_paths_and_others_are_hashed_to_one(
    two_tiers: LeafSpine, flows: int, hashed: bool, kept: int
) -> None:
    packets = 160 // flows
    assert crossing(two_tiers, 1, flows=flows, packets=packets, hashed=hashed) == (160, 160 - kept)
