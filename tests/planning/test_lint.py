"""Lint: each finding is said where it is true, with its reason, and nowhere else."""

from typing import Any

import pytest

from mltswitch.capabilities import AlphaLimit, BytesLimit, Limit
from mltswitch.plan import Plan
from mltswitch.planning.lint import lint, loss_bound
from mltswitch.profile import Curve
from mltswitch.queueing import blocking
from tests.planning.test_build import plan_for

PACKET = 1514


def _plan(threshold: int = 20, limit: Limit | None = None, **changes: Any) -> Plan:
    """One gradient class with this S in packets, on ports that are all alike."""
    made = plan_for(classes__gradients__queues=1, **{"ports__shaped": False, **changes})
    profiles = []
    for profile in made.port_profiles:
        queues = list(profile.queues)
        queues[2] = queues[2].model_copy(
            update={
                "ecn_threshold_bytes": threshold * PACKET,
                "limit": limit or BytesLimit(40 * PACKET),
                "prediction": None,
            }
        )
        profiles.append(profile.model_copy(update={"queues": tuple(queues), "pool_bytes": None}))
    return _bounded(made.model_copy(update={"port_profiles": tuple(profiles)}), None, None)


def _bounded(plan: Plan, unimportant: float | None, important: float | None) -> Plan:
    bounds = {"loss_bound_unimportant": unimportant, "loss_bound_important": important}
    classes = [entry.model_copy(update=bounds) if entry.layers else entry for entry in plan.classes]
    return plan.model_copy(update={"classes": tuple(classes)})


def test_nothing_to_say_of_a_sound_plan() -> None:
    findings = lint(_plan(traffic__burst_packets=8))
    assert findings.warnings == findings.notes == ()


@pytest.mark.parametrize(
    ("exponent", "threshold", "is_said"), [(0, 20, False), (-2, 20, False), (-2, 21, True), (-4, 20, True)]
)
def test_s_above_what_alpha_leaves(exponent: int, threshold: int, is_said: bool) -> None:
    """alpha 2^-2 of a pool of 101 packets rests at a fifth: 20.2 packets."""
    plan = _plan(threshold, AlphaLimit(exponent), traffic__burst_packets=1)
    profiles = tuple(p.model_copy(update={"pool_bytes": 101 * PACKET}) for p in plan.port_profiles)
    warnings = lint(plan.model_copy(update={"port_profiles": profiles})).warnings
    assert len(warnings) == is_said
    if is_said:
        assert warnings[0].startswith("all ports: S of gradient-0, ")
        assert "lies above what the queue can fill" in warnings[0]
        assert "nothing is marked" in warnings[0]


@pytest.mark.parametrize(("threshold", "is_said"), [(7, True), (8, False)])
def test_s_below_one_burst(threshold: int, is_said: bool) -> None:
    warnings = lint(_plan(threshold, traffic__burst_packets=8)).warnings
    assert [text for text in warnings if "7 packets, lies below one burst of 8" in text] == list(warnings)
    assert bool(warnings) is is_said


@pytest.mark.parametrize(
    ("threshold", "shaped", "is_said"), [(7, True, True), (8, True, False), (7, False, False)]
)
def test_an_unsegmented_burst_larger_than_s(threshold: int, shaped: bool, is_said: bool) -> None:
    warnings = lint(_plan(threshold, traffic__burst_packets=8, ports__shaped=shaped)).warnings
    said = [text for text in warnings if "segmentation-offload burst, 12,112 B, is larger than S" in text]
    assert bool(said) is is_said


def test_bounds_are_where_the_curves_leave_zero() -> None:
    assert loss_bound(Curve((0.0, 0.2, 1.0), (0.0, 0.0, 0.8))) == 0.2
    assert loss_bound(Curve((0.0, 1.0), (0.0, 0.0))) == 1.0
    assert loss_bound(Curve((0.0, 1.0), (0.0, 0.5))) is None


def test_a_loss_beyond_the_tolerance_is_told_with_both_figures_and_what_would_help() -> None:
    plan = _bounded(_plan(traffic__load=1.3, traffic__burst_packets=1), 0.9, 0.01)
    findings = lint(plan)
    assert findings.notes == findings.warnings == ()
    (broken,) = findings.unmet
    assert "gradient-0 loses" in broken
    assert "important packets from end to end (predicted), more than its tolerance of 1 %" in broken
    assert "it would hold with a gradient load of 0.81" in broken


def test_where_the_plan_stops_holding_is_where_the_formula_says() -> None:
    """One class under the paper: M/M/1/m, m = L - theta S = 30, over three hops."""
    plan = _bounded(_plan(traffic__load=0.8, traffic__burst_packets=1), None, 0.01)
    (note,) = lint(plan).notes
    assert lint(plan).warnings == ()
    load = float(note.split("gradient load ")[1].split(" ")[0])

    def loss(gradients: float) -> float:
        service = (1 - 0.001) * (1 - 0.005 / (1 - 0.001))
        return 1 - (1 - blocking(gradients / service, 30)) ** 3

    assert loss(load) > 0.01
    assert loss(load - 0.8 / 2**5 * 1.01) <= 0.01


def test_a_plan_that_holds_far_beyond_its_load() -> None:
    plan = _bounded(_plan(traffic__load=0.2, traffic__burst_packets=1), None, 0.01)
    assert lint(plan).notes == ("no class exceeds its tolerance up to 2 times the planned load (predicted)",)


def test_a_plan_that_nothing_saves() -> None:
    plan = _bounded(_plan(1, BytesLimit(PACKET), traffic__burst_packets=1), 0.0, None)
    assert any("no buffer, burst or load that was tried helps" in text for text in lint(plan).unmet)
