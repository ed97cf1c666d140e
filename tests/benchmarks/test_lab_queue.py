"""The comparison with the lab's queue: its plan, and the figures it draws from measured rows."""

from dataclasses import replace

import pytest

from benchmarks.lab_port import LOAD_SHARES, THRESHOLDS_PACKETS, with_own_thresholds
from benchmarks.lab_queue import MODELS, Row, carried_over_replayed, figures, points
from mltswitch.plan import Plan
from mltswitch.planning.predict import port_problem

ROW = Row(
    load=1.1,
    burst_packets=8,
    traffic_class="gradient-0",
    importance="unimportant",
    sent=1000,
    measured=0.1,
    half_width=0.02,
    completion=0.11,
    simulate=0.1,
    averaging=0.1,
    paper=0.001,
    replay_plain=0.1,
    replay_averaging=0.1,
    replay=0.1,
    wait_p50_seconds=None,
    completion_wait_p50_seconds=None,
    replay_wait_p50_seconds=0.0,
)


def test_the_plan_has_these_loads_and_thresholds(lab_plan: Plan) -> None:
    plan = with_own_thresholds(lab_plan)
    loads = [entry.load / plan.fabric.traffic.load for entry in plan.gradient_classes]
    assert loads == pytest.approx(LOAD_SHARES)
    profile = plan.port_profiles[0]
    _, _, thresholds = port_problem(plan, profile)
    found = [(one.ecn_threshold_packets, one.limit_packets) for one in thresholds]
    marking = [pair for pair in found if pair[0] is not None]
    assert marking == list(THRESHOLDS_PACKETS)


def test_errors_are_of_losses_large_enough_to_compare() -> None:
    found = figures([ROW, replace(ROW, importance="important", measured=0.001, completion=0.5)])
    assert (found["comparisons"], found["judged"]) == (2, 1)
    assert found["completion_relative_error_median"] == pytest.approx(0.1)
    assert found["completion_within_interval"] == 1
    assert found["paper_within_interval"] == 0
    assert {f"{name}_relative_error_max" for name in MODELS} <= set(found)


def test_a_machine_that_is_late_shows() -> None:
    late = replace(ROW, load=1.5, measured=0.28)
    assert [len(point) for point in points([ROW, ROW, late])] == [2, 1]
    assert carried_over_replayed([ROW]) == 1
    assert carried_over_replayed([late]) == pytest.approx(0.8)
    assert figures([ROW, late])["carried_over_replayed_min"] == pytest.approx(0.8)
