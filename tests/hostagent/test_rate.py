"""The rate of a peer, changed while it is connected, and congestion control by the user's own object."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from mltswitch.hostagent import RateSample, UserInputError
from tests.hostagent.background import eventually
from tests.hostagent.ends import RECEIVER, SENDER, Make, connect, exchange, joined, losing, values

PATIENCE_SECONDS = 30.0
COUNT = 500_000
SIZE_BITS = 32 * COUNT


@dataclass
class Constant:
    """Always the same rate, and what was heard."""

    rate: float
    heard: list[RateSample] = field(default_factory=list)

    def rate_bps(self, sample: RateSample) -> float:
        self.heard.append(sample)
        return self.rate


def test_a_cap_holds_from_then_on(make: Make) -> None:
    sender, receiver = joined(make)
    sender.default.set_rate(receiver.name, cap_bps=40e6)
    slow = exchange(sender, receiver, data=values(COUNT))[0].statistics
    assert SIZE_BITS / slow.seconds < 1.3 * 40e6  # a bucket's depth comes on top
    snapshot = sender.snapshot().peers[receiver.name]["default"]
    assert snapshot.rate_bps is not None
    assert snapshot.rate_bps <= 40e6


def test_a_controller_of_the_users_hears_the_network_and_decides(make: Make) -> None:
    sender, receiver = joined(make)
    controller = Constant(80e6)
    sender.default.set_rate(receiver.name, cap_bps=80e6, controller=controller)
    statistics = exchange(sender, receiver, data=values(COUNT))[0].statistics
    assert SIZE_BITS / statistics.seconds < 1.3 * 80e6
    assert sum(sample.delivered_packets for sample in controller.heard) > 0
    assert any(sample.least_round_trip_seconds for sample in controller.heard)
    assert all(sample.interval_seconds >= 0 for sample in controller.heard)
    assert all(sample.window_bytes > 0 for sample in controller.heard)


def test_over_tcp_there_is_no_rate_of_ours(make: Make) -> None:
    sender, receiver = joined(make, transport="tcp")
    with pytest.raises(UserInputError, match="over tcp the kernel decides"):
        sender.default.set_rate(receiver.name, cap_bps=1e6)
    with pytest.raises(UserInputError, match="is no rate"):
        sender.default.set_rate(receiver.name, cap_bps=0)


@pytest.mark.parametrize("size", [1000, 300_000])
def test_who_closes_at_once_has_told_how_its_receive_ended(make: Make, size: int) -> None:
    for number in range(8):
        sender, receiver = make(f"sender{number}"), make(f"receiver{number}")
        sender.connect(receiver.name, receiver.listening_at)
        memory = np.empty(size, np.float32)
        receiver.wait_for_peers([sender.name], PATIENCE_SECONDS)
        there = receiver.post_receive(sender.name, memory, tensor=1)
        here = sender.post_send(receiver.name, values(size), tensor=1)
        there.wait(PATIENCE_SECONDS)
        receiver.close()
        assert here.wait(PATIENCE_SECONDS).error is None
        sender.close()


def test_bbr_goes_on_at_losses_that_no_queue_makes(make: Make) -> None:
    options = {"mtu_bytes": 1500, "burst_packets": 8, "mlt": {"rate_control": "bbr"}}
    sender, receiver = joined(make, **options)
    with losing(receiver, 0.05):
        for number in range(3):
            sent, _ = exchange(sender, receiver, data=values(COUNT), round_number=number)
            statistics = sent.statistics
    assert statistics.packets_resent > 0
    snapshot = sender.snapshot().peers[receiver.name]["default"]
    assert snapshot.rate_bps is not None
    assert snapshot.rate_bps > 20e6


def test_a_peer_without_credit_gets_bbr_and_is_named_once(make: Make) -> None:
    sender, receiver = make(SENDER), make(RECEIVER, mlt={"rate_control": "timely"})
    connect(sender, receiver)
    exchange(sender, receiver, data=values(COUNT))
    snapshot = sender.snapshot().peers[receiver.name]["default"]
    assert snapshot.bottleneck_bps is not None
    said = f"{RECEIVER}, channel default: it grants no credit; rate control is bbr"
    assert [text for text in sender.warnings if "credit" in text] == [said]
    assert not [text for text in receiver.warnings if "credit" in text]


@pytest.mark.parametrize(("line_rate", "is_said"), [("1Gbps", True), (None, False)])
def test_slow_senders_are_said_where_a_file_told_a_rate(
    make: Make, line_rate: str | None, is_said: bool
) -> None:
    """Loopback's own rate, which nobody told, is none that could be wrong."""
    sender, receiver = make(SENDER), make(RECEIVER, line_rate=line_rate)
    connect(sender, receiver)
    sender.default.set_rate(receiver.name, cap_bps=20e6)
    for number in range(5):
        exchange(sender, receiver, data=values(COUNT), round_number=number)
    said = [text for text in receiver.warnings if "(or those who send are slower)" in text]
    assert len(said) == is_said


@pytest.mark.parametrize(("line_rate", "is_wrong"), [("10Mbps", True), (None, False)])
def test_a_line_rate_that_is_far_off_is_said_once(make: Make, line_rate: str | None, is_wrong: bool) -> None:
    sender, receiver = make(SENDER), make(RECEIVER, line_rate=line_rate)
    connect(sender, receiver)
    for number in range(3):
        exchange(sender, receiver, data=values(4 * COUNT), round_number=number)
    if is_wrong:
        eventually(lambda: any("line_rate" in text for text in receiver.warnings))
    [*said] = [text for text in receiver.warnings if "line_rate" in text]
    assert len(said) == is_wrong
    assert all(text.endswith("bit/s, the file says 10 Mbit/s") for text in said)
