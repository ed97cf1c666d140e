"""Notes: said where they are true, and nowhere else."""

from typing import Any

import pytest

from mltswitch.planning.notes import plan_notes
from tests.planning.test_build import plan_for

QUIET: dict[str, Any] = {"traffic__burst_packets": 1, "classes__gradients__queues": 1}


def test_a_plan_without_surprises_has_none() -> None:
    plan = plan_for("vgg16", ports__buffer="180kB", **QUIET)
    assert [note for note in plan.notes if "S = L" not in note and "not used" not in note] == []


def test_traffic_that_the_model_ignores() -> None:
    notes = plan_for(traffic__burst_packets=64, traffic__source_rate_ratio=100).notes
    assert "the loss model 'paper' ignores burst_packets 64 and source_rate_ratio 100" in notes


def test_a_guarantee_that_no_model_knows() -> None:
    told = "the loss models serve background last"
    busy: dict[str, Any] = {"classes__background": {"dscp": [0], "load": 0.02}}
    assert any(note.startswith(told) for note in plan_for(**QUIET, **busy).notes)
    bare: dict[str, Any] = {"classes__background": {"dscp": [0], "load": 0.02, "guaranteed_share": 0}}
    for fields in ({}, bare):
        assert not any(note.startswith(told) for note in plan_for(**QUIET, **fields).notes)


def test_loads_above_the_cap() -> None:
    everywhere = plan_for(**QUIET, traffic__load=1.5).notes
    tail = "gradients are planned at load 1.5, above the cap 0.944"
    assert any(note.startswith(f"all ports: {tail}") for note in everywhere)
    below = plan_for(**QUIET, ports__overrides={"leaf-down": {"load": 1.5}}).notes
    assert any(note.startswith(f"leaf-down ports: {tail}") for note in below)
    assert not any("above the cap" in note for note in plan_for(**QUIET, traffic__load=0.9).notes)


@pytest.mark.parametrize(
    ("model", "burst", "is_said"),
    [("completion", 8, True), ("completion", 1, False), ("simulate", 8, False), ("paper", 8, False)],
)
def test_bursts_that_take_time_to_arrive(model: str, burst: int, is_said: bool) -> None:
    made = plan_for(**{**QUIET, "traffic__burst_packets": burst})
    provenance = made.provenance.model_copy(update={"queueing_model": model})
    notes = list(plan_notes(made.model_copy(update={"provenance": provenance})))
    text = "bursts that take time to arrive are an approximation"
    assert any(text in note for note in notes) is is_said


def test_incast_that_the_model_ignores() -> None:
    made = plan_for(**QUIET)
    traffic = made.fabric.traffic.model_copy(update={"arrivals": "incast", "senders": 9, "round_packets": 9})
    fabric = made.fabric.model_copy(update={"traffic": traffic})
    notes = list(plan_notes(made.model_copy(update={"fabric": fabric})))
    assert "the loss model 'paper' ignores arrivals incast" in notes


def test_code_points_without_a_class_are_named() -> None:
    plan = plan_for("vgg16", classes__gradients__queues=6)
    assert any("DSCP 10 12 of classes.gradients are not used" in note for note in plan.notes)
    assert not any("not used" in note for note in plan_for("vgg16").notes)
