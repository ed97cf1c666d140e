"""Notes: said where they are true, and nowhere else."""

from typing import Any

from mltswitch.capabilities import BytesLimit
from tests.plan.test_build import plan_for

QUIET: dict[str, Any] = {"traffic__burst_packets": 1, "classes__gradients__queues": 1}


def test_a_plan_without_surprises_has_none() -> None:
    plan = plan_for("vgg16", ports__buffer="180kB", **QUIET)
    assert [note for note in plan.notes if "S = L" not in note and "not used" not in note] == []
    assert {profile.optimum for profile in plan.port_profiles} == {"global"}


def test_traffic_that_the_model_ignores() -> None:
    notes = plan_for(traffic__burst_packets=64, traffic__source_rate_ratio=100).notes
    assert "the loss model 'paper' ignores burst_packets 64 and source_rate_ratio 100" in notes


def test_loads_above_the_cap() -> None:
    everywhere = plan_for(**QUIET, traffic__load=1.5).notes
    tail = "gradients are planned at load 1.5, above the cap 0.944"
    assert any(note.startswith(f"all ports: {tail}") for note in everywhere)
    below = plan_for(**QUIET, ports__overrides={"leaf-down": {"load": 1.5}}).notes
    assert any(note.startswith(f"leaf-down ports: {tail}") for note in below)
    assert not any("above the cap" in note for note in plan_for(**QUIET, traffic__load=0.9).notes)


def test_classes_that_never_mark_are_named() -> None:
    plan = plan_for("resnet50", ports__buffer="256kB", classes__gradients__queues=3)
    unmarked = [
        queue.traffic_class
        for queue in plan.port_profiles[0].queues
        if queue.limit == BytesLimit(queue.ecn_threshold_bytes or 0)
    ]
    assert 0 < len(unmarked) < 3
    assert [note for note in plan.notes if "S = L" in note] == [
        f"all ports: {name} has S = L, nothing is marked" for name in unmarked
    ]


def test_a_refined_optimum_is_said() -> None:
    plan = plan_for(**QUIET, ports__buffer="600kB")
    assert {profile.optimum for profile in plan.port_profiles} == {"refined"}
    assert any("best of a grid, refined" in note for note in plan.notes)


def test_code_points_without_a_class_are_named() -> None:
    plan = plan_for("vgg16", classes__gradients__queues=6)
    assert any("DSCP 10 12 of classes.gradients are not used" in note for note in plan.notes)
    assert not any("not used" in note for note in plan_for("vgg16").notes)
