"""A plan's ports under other models, loads and buffers."""

import pickle

import pytest

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan, PortRole
from mltswitch.planning import predict_port
from mltswitch.planning.evaluate import PlanCells, alike, class_rows, predict_ports, with_buffer
from mltswitch.queueing import SimulationSettings
from tests.planning.test_build import plan_for

OVERRIDES = {"leaf-down": {"load": 1.1}}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_for(ports__buffer="256kB", classes__gradients__queues=3, ports__overrides=OVERRIDES)


def test_equal_ports_are_one_group(plan: Plan) -> None:
    roles = [{profile.role for profile in group} for group in alike(plan)]
    assert sorted(roles, key=len) == [{PortRole.LEAF_DOWN}, {PortRole.LEAF_UP, PortRole.SPINE_DOWN}]


def test_predictions_are_those_of_each_port(plan: Plan) -> None:
    made = predict_ports(plan, model="paper")
    assert {entry.load for entry in made} == {0.9, 1.1}
    for entry in made:
        for profile in entry.profiles:
            assert entry.classes == predict_port(plan, profile, model="paper")


def test_one_role_at_one_load(plan: Plan) -> None:
    (entry,) = predict_ports(plan, role=PortRole.LEAF_UP, load=0.5, burst_packets=4, model="paper")
    assert (entry.load, entry.burst_packets) == (0.5, (4, 4, 4))
    rows = class_rows(plan, entry)
    assert sum(row["class_load"] for row in rows[2:-1]) == pytest.approx(0.5, rel=1e-5)
    assert [row["class_burst_packets"] for row in rows] == [1, 1, 4, 4, 4, 1]


def test_a_role_that_the_plan_lacks(plan: Plan) -> None:
    profiles = tuple(p for p in plan.port_profiles if p.role is not PortRole.LEAF_UP)
    with pytest.raises(UserInputError, match=r"no leaf-up port \(expected one of leaf-down, spine-down\)"):
        predict_ports(plan.model_copy(update={"port_profiles": profiles}), role=PortRole.LEAF_UP)


def test_thresholds_follow_the_buffer(plan: Plan) -> None:
    halved = with_buffer(plan, 128_000)
    for before, after in zip(plan.port_profiles, halved.port_profiles, strict=True):
        assert after.buffer_bytes == 128_000
        for old, new in zip(before.queues, after.queues, strict=True):
            assert isinstance(old.limit, BytesLimit)
            assert new.limit == BytesLimit(old.limit.size_bytes // 2)
            assert new.ecn_threshold_bytes == (old.ecn_threshold_bytes and old.ecn_threshold_bytes // 2)
            assert new.prediction is None
    with pytest.raises(UserInputError, match=r"^buffer: 1 B leave leaf-down ports thresholds below one byte"):
        with_buffer(plan, 1)


def test_a_cell_has_a_row_for_each_port_and_class_and_can_be_sent_to_a_process(plan: Plan) -> None:
    plans = {None: plan, 128_000: with_buffer(plan, 128_000)}
    cells = pickle.loads(pickle.dumps(PlanCells(plans, None, SimulationSettings())))  # noqa: S301  (our own)
    rows = cells((0.8, 2, 128_000, "paper"))
    assert len(rows) == len(plan.port_profiles) * len(plan.classes)
    assert {(row["load"], row["burst_packets"], row["buffer_bytes"]) for row in rows} == {(0.8, 2, 128_000)}
    assert {row["kind"] for row in rows} == {"predicted"}
