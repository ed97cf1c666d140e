"""The probe before a port in virtual time, and intervals that cover the truth as often as they say."""

from typing import cast

import numpy as np
import pytest

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import MachineError
from mltswitch.measure import Bottleneck, Offer, TestHost
from mltswitch.measure.hosts import Hosts
from mltswitch.measure.probe import BLOCKS, Probe, by_block, loss_half_width
from mltswitch.plan import ClassKind, Plan
from tests.measure.simulated_port import ONE_CLOCK, PACKET, PATH_SECONDS, RATE, SimulatedPort, SimulatedQueue

LOSS = 0.1
BURST = 8
NEAR, FAR = TestHost("near", ()), TestHost("far", ())
THRESHOLDS = ((14, 28), (18, 36), (32, 64))
"""S and L of the gradient classes, in packets."""


@pytest.fixture
def plan(lab_plan: Plan) -> Plan:
    """The lab's plan with thresholds that delays can tell."""
    sizes = dict(zip((entry.name for entry in lab_plan.gradient_classes), THRESHOLDS, strict=True))
    profile = lab_plan.port_profiles[0]
    queues = tuple(
        queue.model_copy(
            update={
                "ecn_threshold_bytes": sizes[queue.traffic_class][0] * PACKET,
                "limit": BytesLimit(sizes[queue.traffic_class][1] * PACKET),
            }
        )
        if queue.traffic_class in sizes
        else queue
        for queue in profile.queues
    )
    profile = profile.model_copy(update={"rate_bps": RATE, "packet_bytes": PACKET, "queues": queues})
    return lab_plan.model_copy(update={"port_profiles": (profile, *lab_plan.port_profiles[1:])})


def probed(plan: Plan, thresholds: tuple[tuple[int, int], ...] = THRESHOLDS) -> Probe:
    gradients = [n for n, entry in enumerate(plan.classes) if entry.kind is ClassKind.GRADIENT]
    queues = {n: SimulatedQueue(*each) for n, each in zip(gradients, thresholds, strict=True)}
    order = {1: SimulatedQueue(32, 32)} | queues | {len(plan.classes) - 1: SimulatedQueue(32, 32)}
    place = Bottleneck("leaf2:eth2", plan.port_profiles[0], TestHost("behind", ()), (FAR, NEAR), NEAR)
    return Probe(plan, place, cast("Hosts", SimulatedPort(order, clocks=ONE_CLOCK)), seed=1)


def test_the_idle_path_and_thresholds_as_they_are(plan: Plan) -> None:
    probe = probed(plan)
    sending = PACKET * 8 / RATE
    assert probe.idle_seconds == pytest.approx(2 * PATH_SECONDS + sending + 0.001, abs=1e-4)
    assert probe.behind_seconds == 0
    for entry, (threshold, limit) in zip(plan.gradient_classes, THRESHOLDS, strict=True):
        found = probe.thresholds(plan.classes.index(entry))
        assert (found.traffic_class, found.survivors_when_full) == (entry.name, 0.0)
        assert (found.ecn_threshold_bytes, found.limit_bytes) == (threshold * PACKET, limit * PACKET)
        for seen, planned in (
            (found.drop_seen_bytes, threshold),
            (found.mark_seen_bytes, threshold),
            (found.full_seen_bytes, limit),
        ):
            assert seen == pytest.approx(planned * PACKET, abs=2 * PACKET)
        assert found.wrong_marks is not None
        assert found.wrong_marks < 0.01


def test_thresholds_that_are_others_than_planned_are_seen(plan: Plan) -> None:
    found = probed(plan, ((28, 56), (18, 36), (32, 64))).thresholds(
        plan.classes.index(plan.gradient_classes[0])
    )
    assert found.drop_seen_bytes == pytest.approx(28 * PACKET, abs=2 * PACKET)
    assert found.full_seen_bytes == pytest.approx(56 * PACKET, abs=2 * PACKET)


def test_a_load_is_counted_class_by_class(plan: Plan) -> None:
    found = probed(plan).load(Offer(1.3, 4), model="completion", seconds=20.0, seed=3)
    assert (found.load, found.burst_packets, found.model, found.duration_seconds) == (
        1.3,
        4,
        "completion",
        20.0,
    )
    assert [entry.traffic_class for entry in found.classes if entry.is_important] == [
        entry.name for entry in plan.gradient_classes
    ]
    kinds = {(entry.traffic_class, entry.is_important): entry for entry in found.classes}
    control = kinds["control", False]
    assert (control.lost, control.loss) == (0, 0.0)
    assert control.sent == pytest.approx(1000, abs=150)
    last = plan.gradient_classes[-1].name
    dropped, kept = kinds[last, False], kinds[last, True]
    assert dropped.loss is not None
    assert dropped.loss_half_width is not None
    assert dropped.loss > (kept.loss or 0)
    assert abs(dropped.loss - dropped.predicted_loss) < dropped.loss_half_width + 0.1
    assert kept.ce_marked > 0 == dropped.ce_marked
    for entry in found.classes:
        assert entry.sent == entry.received + entry.lost
    gradients = [kinds[entry.name, True].wait_p50_seconds or 0 for entry in plan.gradient_classes]
    assert gradients == sorted(gradients)


def test_nothing_through_the_port(plan: Plan) -> None:
    with pytest.raises(MachineError, match="nothing arrived") as caught:
        probed(plan, ((0, 0), (18, 36), (32, 64)))
    assert caught.value.where == "leaf2:eth2"


def test_every_packet_falls_into_one_block() -> None:
    counts = by_block(np.linspace(0.0, 5.0, 1001), 5.0)
    assert counts.sum() == 1001
    assert len(counts) == BLOCKS
    assert counts.min() >= 49


def test_bursts_that_share_their_fate_are_covered() -> None:
    """Whole bursts are lost or not: binomial intervals of packets would be sqrt(8) times too narrow."""
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        sent = generator.poisson(50, BLOCKS) * BURST
        lost = generator.binomial(sent // BURST, LOSS) * BURST
        width = loss_half_width(sent, lost, BURST)
        assert width is not None
        covered += abs(lost.sum() / sent.sum() - LOSS) <= width
    assert 0.91 <= covered / 400 <= 0.985


def test_none_lost_is_not_none_possible() -> None:
    sent = np.full(BLOCKS, 40)
    width = loss_half_width(sent, np.zeros(BLOCKS, dtype=np.int64), BURST)
    assert width == pytest.approx(3 * BURST / 800)


def test_nothing_sent_says_nothing() -> None:
    nothing = np.zeros(BLOCKS, dtype=np.int64)
    assert loss_half_width(nothing, nothing, 1) is None
