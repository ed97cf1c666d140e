"""What is sent and what is predicted are the same traffic."""

from dataclasses import replace
from ipaddress import IPv4Address

import numpy as np
import pytest

from mltswitch.measure import Bottleneck, Offer, TestHost, offered_problem, offered_run, predict_offer
from mltswitch.plan import ClassKind, Plan
from mltswitch.queueing import Batch, Poisson, predict

HOSTS = tuple(TestHost(name, (), (IPv4Address("127.0.0.1"),)) for name in ("one", "two", "three"))


def bottleneck(plan: Plan) -> Bottleneck:
    return Bottleneck("leaf2:eth2", plan.port_profiles[0], HOSTS[0], HOSTS[1:], HOSTS[1])


def test_the_problem_is_what_the_senders_send(lab_plan: Plan) -> None:
    place = bottleneck(lab_plan)
    offer, seconds = Offer(1.2, 8), 60.0
    _, traffic, _ = offered_problem(lab_plan, place.profile, offer)
    schedules = offered_run(lab_plan, place, offer, seconds, seed=4)
    assert len(schedules) == len(place.senders)
    assert not np.array_equal(schedules[0].time_seconds, schedules[1].time_seconds)
    line = seconds / place.profile.packet_seconds
    for position, (entry, queue) in enumerate(zip(lab_plan.classes, traffic, strict=True)):
        mine = [schedule.class_index == position for schedule in schedules]
        sent = sum(map(np.sum, mine))
        spread = 4 * np.sqrt(8 * queue.load / line) + 1e-9
        assert sent / line == pytest.approx(queue.load, abs=spread)
        if entry.kind is ClassKind.GRADIENT:
            assert queue.arrivals == Batch(8)
            assert queue.importance == "burst"
            for schedule, here in zip(schedules, mine, strict=True):
                bursts = schedule.is_important[here].reshape(-1, 8)
                assert (bursts == bursts[:, :1]).all()
    gradients = sum(
        queue.load
        for entry, queue in zip(lab_plan.classes, traffic, strict=True)
        if entry.kind is ClassKind.GRADIENT
    )
    assert gradients == pytest.approx(1.2)


def test_single_packets_draw_their_own_importance(lab_plan: Plan) -> None:
    _, traffic, _ = offered_problem(lab_plan, lab_plan.port_profiles[0], Offer(0.9, 1))
    assert all(queue.arrivals == Poisson() and queue.importance == "packet" for queue in traffic)


def test_the_plan_decides_the_importance(lab_plan: Plan) -> None:
    traffic = lab_plan.fabric.traffic.model_copy(update={"importance": "packet"})
    plan = lab_plan.model_copy(update={"fabric": lab_plan.fabric.model_copy(update={"traffic": traffic})})
    _, offered, _ = offered_problem(plan, plan.port_profiles[0], Offer(0.9, 8))
    assert {queue.importance for queue in offered} == {"packet"}


@pytest.mark.parametrize("model", ["completion", "paper"])
def test_predictions_are_the_models(lab_plan: Plan, model: str) -> None:
    profile, offer = lab_plan.port_profiles[0], Offer(1.1, 8)
    port, traffic, thresholds = offered_problem(lab_plan, profile, offer)
    expected = predict(replace(port, buffer_packets=None), traffic, thresholds, model)
    found = predict_offer(lab_plan, profile, offer, model)
    assert tuple(found.values()) == expected
    assert tuple(found) == tuple(entry.name for entry in lab_plan.classes)


def test_bursts_of_the_probe_count_and_not_the_plans(lab_plan: Plan) -> None:
    profile = lab_plan.port_profiles[0]
    single, burst = (predict_offer(lab_plan, profile, Offer(0.8, size), "completion") for size in (1, 16))
    worst = lab_plan.gradient_classes[-1].name
    assert burst[worst].loss_unimportant > 2 * single[worst].loss_unimportant
