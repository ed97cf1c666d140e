"""The transport `mlt` where packets are lost and paths break, and what its packets say to switches."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mltswitch.hostagent import Agent, AgentConfig, ByFunction, ByPosition, DeadlineExceededError, Transfer
from mltswitch.hostagent.elements import TensorMemory, memory_of
from mltswitch.hostagent.telemetry.events import PacketsRefused, PathChanged
from mltswitch.wire.headers import AgentFlag, AgentKind
from tests.hostagent.background import eventually
from tests.hostagent.ends import (
    PATIENCE_SECONDS,
    RECEIVER,
    SENDER,
    SLOW,
    Make,
    Notes,
    connect,
    cutting_no_bursts,
    exchange,
    joined,
    losing,
    values,
)
from tests.hostagent.namespaces import INTERFACE, Host, TwoHosts, can_make_namespaces, two_hosts

CLASSES = {"control_dscp": 40, "gradient_dscp": [34, 10], "layers": 10}
HIGH, LOW = 34 << 2, 10 << 2
ECT, CE = 2, 3
UDP_AT, AGENT_AT = 14 + 20, 14 + 20 + 8


# Classes, over loopback


def test_two_queues_change_the_class_of_packets_on_their_way(make: Make) -> None:
    sender, receiver = joined(make, classes=CLASSES, two_queues=1, **SLOW)
    elsewhere = make("elsewhere", **SLOW)
    connect(sender, elsewhere)

    def came(tos: int) -> int:
        return receiver.snapshot().peers[SENDER]["default"].received_by_tos.get(tos, 0)

    def post(to: Agent, tensor: int, count: int, **options: Any) -> Transfer:
        to.post_receive(SENDER, np.zeros(count, np.float32), tensor=tensor)
        return sender.post_send(to.name, values(count), tensor=tensor, importance="all", **options)

    back = post(receiver, 1, 20_000_000, layer=5)
    eventually(lambda: came(HIGH | ECT) > 10)
    post(elsewhere, 2, 100_000, layer=1, dscp=20).wait(
        PATIENCE_SECONDS
    )  # of no layer's class: counts for nobody
    assert came(LOW | ECT) == 0
    front = post(elsewhere, 3, 20_000_000, layer=0)
    eventually(lambda: came(LOW | ECT) > 10)
    front.cancel()
    high = came(HIGH | ECT)
    eventually(lambda: came(HIGH | ECT) > high + 10)
    assert back.completion is None
    back.cancel()


def test_layers_and_classes_have_code_points(make: Make) -> None:
    classes: dict[str, Any] = CLASSES | {
        "first_layers": [0, 5],
        "names": {"conv1": 2, "fc": 7},
        "background_dscp": 8,
    }
    sender, receiver = joined(make, classes=classes)
    expected: dict[int, dict[str, Any]] = {
        34: {"layer": "conv1"},
        10: {"layer": "fc"},
        8: {"traffic_class": "background"},
        63: {"dscp": 63, "layer": 1},
    }
    for tensor, (dscp, options) in enumerate(expected.items()):
        exchange(sender, receiver, tensor=tensor, importance="none", **options)
        assert receiver.snapshot().peers[SENDER]["default"].received_by_tos[dscp << 2] > 0


@pytest.mark.parametrize("transport", ["mlt", "ltp"])
@pytest.mark.parametrize(
    ("sends", "receives", "is_droppable"),
    [
        ({}, {}, False),
        ({}, {"loss_bound": 0.001}, False),  # of 69 packets that is none
        ({}, {"loss_bound": 0.1}, True),
        ({}, {"at_deadline": "take"}, True),
        ({"importance": "edges"}, {}, True),
    ],
)
def test_what_must_arrive_is_important_unless_the_sender_says_otherwise(
    make: Make, transport: str, sends: Any, receives: Any, is_droppable: bool
) -> None:
    sender, receiver = joined(make, transport=transport, burst_packets=1, mtu_bytes=1500)
    for tensor in (1, 2):  # the second one is posted before the receiver is ready
        here = partial(sender.post_send, RECEIVER, values(24_000), tensor=tensor, **sends)
        there = partial(
            receiver.post_receive, SENDER, np.empty(24_000, np.float32), tensor=tensor, **receives
        )
        for transfer in [post() for post in ((there, here) if tensor == 1 else (here, there))]:
            transfer.wait(PATIENCE_SECONDS)
        came = receiver.snapshot().peers[SENDER]["default"].received_by_tos
        assert any(not tos & CE for tos in came) is is_droppable


# Losses, over loopback


@pytest.mark.parametrize(("paths", "has_tags"), [(1, False), (3, True)])
def test_without_a_bound_everything_arrives_through_losses(make: Make, paths: int, has_tags: bool) -> None:
    addresses = [f"127.0.0.{number + 1}" for number in range(paths)]
    sender, receiver = joined(
        make, burst_packets=1, mtu_bytes=1500, addresses=addresses, authenticate=has_tags
    )
    with losing(receiver, 0.1), losing(sender, 0.1):
        for number, count in enumerate([1, 1000, 50_000]):
            exchange(sender, receiver, data=values(count), round_number=number)
            exchange(receiver, sender, data=values(count), round_number=number)
        sent, _ = exchange(sender, receiver, data=values(700_001), tensor=2)
    assert sent.statistics.packets_resent > 0
    assert len(sent.statistics.packets_by_path) == paths  # on a busy machine one may seem dead for a while
    assert sum(sent.statistics.packets_by_path) == sent.statistics.packets_sent


@pytest.mark.parametrize("keep_missing", [False, True])
def test_bounds_hold_and_the_sender_learns_what_was_left_out(make: Make, keep_missing: bool) -> None:
    sender, receiver = joined(make, burst_packets=1, mtu_bytes=1500)
    shares = []
    with losing(receiver, 0.08):
        for number in range(5):
            original, buffer = values(300_000, number), np.full(300_000, 7, np.float32)
            there = receiver.post_receive(
                SENDER, buffer, tensor=1, round_number=number, loss_bound=0.1, important_loss_bound=0.02,
                keep_missing=keep_missing,
            )  # fmt: skip
            here = sender.post_send(RECEIVER, original, tensor=1, round_number=number)
            received, sent = there.wait(PATIENCE_SECONDS), here.wait(PATIENCE_SECONDS)
            missing = np.zeros(300_000, bool)
            for first, end in received.missing:
                missing[first:end] = True
            assert (buffer == np.where(missing, 7 if keep_missing else 0, original)).all()
            assert missing.mean() <= 0.1
            assert (sent.arrived == received.arrived).all()
            counts = received.statistics
            assert counts.important_packets
            assert counts.important_received is not None
            assert counts.important_received >= 0.98 * counts.important_packets
            shares.append(missing.mean())
    assert max(shares) > 0


def test_important_packets_come_through_where_others_may_be_lost(make: Make) -> None:
    sender, receiver = joined(make, burst_packets=1, mtu_bytes=1500)
    with losing(receiver, 0.2):
        there = receiver.post_receive(
            SENDER, np.zeros(300_000, np.float32), tensor=1, loss_bound=0.3, important_loss_bound=0.0
        )
        sender.post_send(RECEIVER, values(300_000), tensor=1, importance="position")
        received = there.wait(PATIENCE_SECONDS)
    counts = received.statistics
    assert counts.important_packets
    assert counts.important_packets == counts.important_received
    assert counts.important_packets >= counts.packets // 2
    assert received.arrived[-counts.important_packets :].all()


def test_a_path_that_breaks_is_left_and_used_again(make: Make) -> None:
    notes = Notes()
    addresses = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
    sender, receiver = joined(make, addresses=addresses, mtu_bytes=1500)
    sender.observe(notes)

    def changes() -> list[str]:
        return [event.state for event in notes.of(PathChanged) if event.path == 2]

    def exchange_until(state: str) -> None:
        for number in range(5000):
            exchange(sender, receiver, data=values(500_000), round_number=number)
            if state in changes():
                return

    with losing(receiver, 1.0, "127.0.0.3"):
        exchange_until("dead")
    exchange_until("used")  # and it may be gray by now: packets are late on a busy machine
    assert changes()[:1] == ["dead"]
    assert "used" in changes()


def test_bursts_that_fail_for_a_moment_are_joined_again(make: Make) -> None:
    sender, receiver = joined(make, mtu_bytes=1500, burst_packets=16)
    notes, tensors = Notes(), count()
    sender.observe(notes)

    def messages_per_packet() -> float:
        before = sender.snapshot().data_plane["send_messages"]
        sent, _ = exchange(sender, receiver, tensor=next(tensors), data=values(1_000_000))
        return (sender.snapshot().data_plane["send_messages"] - before) / sent.statistics.packets_sent

    def refusals() -> list[Any]:
        return notes.of(PacketsRefused)

    assert messages_per_packet() < 0.2
    with cutting_no_bursts(sender):
        assert messages_per_packet() > 0.8
        eventually(lambda: bool(refusals()))
        time.sleep(0.2)
        assert messages_per_packet() > 0.8  # tried again, and not for long
        eventually(lambda: len(refusals()) > 1)
    eventually(lambda: messages_per_packet() < 0.2)
    assert {(event.error, event.interface, event.mtu_bytes) for event in refusals()} == {
        ("EINVAL", "lo", 65536)
    }
    assert refusals()[0].packets > 1
    what = "the kernel cuts no bursts, whose packets are sent one by one for now: EINVAL; lo has MTU 65,536"
    assert [text for text in sender.warnings if "EINVAL" in text] == [f"path 0 to {RECEIVER}: {what}"]


def test_a_deadline_says_that_no_path_answers(make: Make) -> None:
    sender, receiver = joined(make, addresses=("127.0.0.1", "127.0.0.2"))
    with losing(receiver, 1.0), losing(sender, 1.0):
        there = receiver.post_receive(SENDER, np.zeros(9, np.float32), tensor=1, deadline_seconds=0.3)
        with pytest.raises(DeadlineExceededError, match="0 of 2 used paths answer"):
            there.wait(PATIENCE_SECONDS)


def test_a_deadline_says_that_the_peer_grants_nothing_more(make: Make) -> None:
    sender, receiver = joined(make)
    sender.default.set_rate(RECEIVER, cap_bps=40e6)
    there = receiver.post_receive(SENDER, np.zeros(4_000_000, np.float32), tensor=1)
    here = sender.post_send(RECEIVER, values(4_000_000), tensor=1, deadline_seconds=2.0)
    eventually(lambda: there.progress.packets_received > 0)
    with losing(sender, 1.0), pytest.raises(DeadlineExceededError, match="the peer grants nothing more; "):
        here.wait(PATIENCE_SECONDS)


# On a cable


@pytest.fixture(scope="module")
def cable() -> Iterator[TwoHosts]:
    if not can_make_namespaces():
        pytest.skip("needs root")
    with two_hosts() as found:
        yield found


@contextmanager
def agents(cable: TwoHosts, paths: int = 1, version: int = 4) -> Iterator[tuple[Agent, Agent]]:
    """One at each end, connected."""

    def opened(host: Host, name: str) -> Agent:
        config = AgentConfig(
            name=name,
            listen=f"{host.address}:0",
            addresses=(host.aliases if version == 4 else host.aliases6)[:paths],
            plaintext=True,
            line_rate="1Gbps",
            classes=CLASSES,
        )
        with host.entered():
            return Agent(config)

    with ExitStack() as stack:
        sender, receiver = (
            stack.enter_context(opened(host, name))
            for host, name in ((cable.one, SENDER), (cable.other, RECEIVER))
        )
        connect(sender, receiver)
        yield sender, receiver


class EveryThird:
    """A policy of the user's."""

    def important(self, memory: TensorMemory, elements_per_packet: int) -> NDArray[np.bool_]:
        marks: NDArray[np.bool_] = np.arange(-(-memory.element_count // elements_per_packet)) % 3 == 0
        return marks


@contextmanager
def capturing(host: Host) -> Iterator[socket.socket]:
    """A raw socket that sees every frame."""
    with host.entered():
        capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    with capture:
        capture.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        capture.bind((INTERFACE, 0))
        capture.settimeout(PATIENCE_SECONDS)
        yield capture


@pytest.mark.root
@pytest.mark.parametrize(
    "policy",
    [
        ByPosition(0.25, "front"),
        ByFunction(lambda rows: rows[:, 0] > 0.5),
        EveryThird(),
    ],
    ids=["position", "function", "object"],
)  # fmt: skip
def test_a_policy_marks_exactly_its_packets(cable: TwoHosts, policy: Any) -> None:
    data = values(40_000)
    with agents(cable) as (sender, receiver), capturing(cable.other) as capture:
        sent, received = exchange(sender, receiver, data=data, importance=policy, burst_packets=1, dscp=20)
        marks: dict[int, tuple[int, bool]] = {}
        while len(marks) < sent.statistics.packets:
            frame = capture.recv(2000)
            header = frame[AGENT_AT:]
            if frame[23] == socket.IPPROTO_UDP and len(header) > 40 and header[1] == AgentKind.DATA:
                sequence = int.from_bytes(header[24:28], "big")
                marks[sequence] = frame[15], bool(header[2] & AgentFlag.IMPORTANT)
    expected = policy.important(memory_of(data), sent.elements_per_packet).tolist()
    assert [marks[number] for number in range(len(expected))] == [
        (20 << 2 | (ECT if flag else 0), flag) for flag in expected
    ]
    assert sent.statistics.important_packets == received.statistics.important_received == sum(expected)


@pytest.mark.root
def test_a_deadline_says_what_the_kernel_refuses(cable: TwoHosts) -> None:
    with agents(cable) as (sender, receiver):
        exchange(sender, receiver)
        for host in (cable.one, cable.other):
            host.run("ip", "link", "set", INTERFACE, "mtu", "1300")
        try:
            receiver.post_receive(SENDER, np.zeros(100_000, np.float32), tensor=2)
            here = sender.post_send(RECEIVER, values(100_000), tensor=2, deadline_seconds=2.0)
            with pytest.raises(
                DeadlineExceededError,
                match=r"the kernel refused to send: E(MSGSIZE|INVAL) \(data0 has MTU 1,300\)",
            ):
                here.wait(PATIENCE_SECONDS)
        finally:
            for host in (cable.one, cable.other):
                host.run("ip", "link", "set", INTERFACE, "mtu", "1500")
        exchange(sender, receiver, tensor=3)


@pytest.mark.root
def test_an_agent_needs_no_loopback_interface(cable: TwoHosts) -> None:
    for host in (cable.one, cable.other):
        host.run("ip", "link", "set", "lo", "down")
    try:
        with agents(cable) as (sender, receiver):
            exchange(sender, receiver)
    finally:
        for host in (cable.one, cable.other):
            host.run("ip", "link", "set", "lo", "up")


@pytest.mark.root
def test_over_ipv6(cable: TwoHosts) -> None:
    with agents(cable, paths=4, version=6) as (sender, receiver):
        sent, _ = exchange(sender, receiver, data=values(300_000))
    assert len(sent.statistics.packets_by_path) == 4
    assert all(sent.statistics.packets_by_path)
