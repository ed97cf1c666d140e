"""A plan refined by simulation: within its constraints, and it says what changed."""

from typing import Any

import pytest

from mltswitch.capabilities import BytesLimit
from mltswitch.documents import validate
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan
from mltswitch.planning import refine_plan
from mltswitch.profile import bundled_profile
from mltswitch.queueing import SimulationSettings
from tests.planning.test_build import capabilities, plan_for

QUICK = SimulationSettings(packets=40_000, replications=8, seed=5)
CHANGES: dict[str, Any] = {
    "classes__gradients__queues": 2,
    "ports__buffer": "200kB",
    "traffic__load": 0.95,
    "ports__overrides": {"leaf-down": {"load": 1.05}},
}


@pytest.fixture(scope="module")
def planned() -> Plan:
    """With an S of one packet everywhere, which the simulator knows to better."""
    made = plan_for("vgg16", **CHANGES)
    profiles = [
        port.model_copy(
            update={
                "queues": tuple(
                    queue.model_copy(update={"ecn_threshold_bytes": port.packet_bytes})
                    if queue.ecn_threshold_bytes
                    else queue
                    for queue in port.queues
                )
            }
        )
        for port in made.port_profiles
    ]
    return made.model_copy(update={"port_profiles": tuple(profiles)})


@pytest.fixture(scope="module")
def refined(planned: Plan) -> Plan:
    return refine_plan(planned, bundled_profile("vgg16"), capabilities, QUICK)


def test_it_repeats(planned: Plan, refined: Plan) -> None:
    told: list[tuple[str, int, int]] = []
    again = refine_plan(
        planned,
        bundled_profile("vgg16"),
        capabilities,
        QUICK,
        progress=lambda *step: told.append(step),
    )
    assert again == refined
    assert {name for name, _, _ in told} == {"linux leaf-down", "linux leaf-up, linux spine-down"}
    assert all(0 < done <= most for _, done, most in told)


def test_constraints_hold_and_the_plan_survives_its_file(refined: Plan) -> None:
    assert validate(refined.model_dump(mode="json", by_alias=True), Plan, where="plan") == refined
    for port in refined.port_profiles:
        limits = [queue.limit.size_bytes for queue in port.queues if isinstance(queue.limit, BytesLimit)]
        assert sum(limits) <= port.buffer_bytes
        marking = [queue.ecn_threshold_bytes for queue in port.queues if queue.ecn_threshold_bytes]
        assert marking == sorted(marking)


def test_all_figures_are_simulated(refined: Plan) -> None:
    assert refined.provenance.queueing_model == "simulate"
    for port in refined.port_profiles:
        for queue in port.queues:
            assert queue.prediction is not None
            if queue.ecn_threshold_bytes is not None:
                assert queue.prediction.mean_delay_seconds is not None
                assert queue.prediction.loss_unimportant_error is not None


def test_what_changed_is_said(planned: Plan, refined: Plan) -> None:
    """S and L, old and new, of every class that changed."""
    notes = [note for note in refined.notes if "thresholds of the loss model 'paper'" in note]
    assert len(notes) == 2
    changed = [
        (old, new)
        for old, new in zip(planned.port_profiles, refined.port_profiles, strict=True)
        if [q.limit for q in old.queues] != [q.limit for q in new.queues]
        or [q.ecn_threshold_bytes for q in old.queues] != [q.ecn_threshold_bytes for q in new.queues]
    ]
    assert changed
    for old, new in changed:
        (note,) = [note for note in notes if f"{new.platform} {new.role}" in note]
        assert "refined by" in note
        assert "(simulated)" in note
        for before, after in zip(old.queues, new.queues, strict=True):
            if before.ecn_threshold_bytes != after.ecn_threshold_bytes:
                assert f"S {before.ecn_threshold_bytes:,} B → {after.ecn_threshold_bytes:,} B" in note
            if before.limit != after.limit:
                assert f"L {before.limit.size_bytes:,} B → {after.limit.size_bytes:,} B" in note  # type: ignore[union-attr]


def test_another_profile_is_refused(planned: Plan) -> None:
    with pytest.raises(UserInputError, match="profile: googlenet is not the profile"):
        refine_plan(planned, bundled_profile("googlenet"), capabilities, QUICK)
