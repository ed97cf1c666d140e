"""From profile and fabric to plan: constraints, determinism, refusals."""

import copy
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.capabilities import (
    BytesLimit,
    Capabilities,
    LimitCapability,
    PortGroup,
    PortNumbering,
    ThresholdCapability,
)
from mltswitch.documents import dump_yaml, parse_yaml, validate
from mltswitch.errors import MltswitchError, UnsupportedPlanError, UserInputError
from mltswitch.plan import ClassKind, Fabric, Plan
from mltswitch.planning import build_plan, predict_port
from mltswitch.profile import bundled_names, bundled_profile
from mltswitch.queueing import Batch, Port, QueueThresholds, QueueTraffic, predict
from tests.plan.examples import LISTED, SMALL

QUEUES_OF = {"linux": 16, "eight": 8, "three": 3}


def capabilities(platform: str, hardware: str | None) -> Capabilities:
    return Capabilities(
        platform=platform,
        hardware=hardware or "default",
        description="for tests",
        queues=tuple(range(QUEUES_OF[platform])),
        threshold=ThresholdCapability(step_bytes=1, minimum_bytes=1, maximum_bytes=2**31, source="test"),
        limit=LimitCapability(kind="bytes", source="test"),
        averaging="none",
        marks_at="enqueue",
        port_numbering=PortNumbering(pattern="port{n}", first=0),
        can_shape=platform == "linux",
    )


def fabric(**changes: Any) -> Fabric:
    """The small fabric with values changed: `ports__buffer=…`."""
    data = copy.deepcopy(SMALL)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = data
        for key in parents:
            place = place[key]
        place[last] = value
    return validate(data, Fabric, where="fabric.yaml")


def plan_for(profile: str = "resnet50", model: str = "paper", **changes: Any) -> Plan:
    return build_plan(bundled_profile(profile), fabric(**changes), capabilities, model)


@pytest.mark.parametrize("name", bundled_names())
def test_every_bundled_profile_has_a_plan_that_keeps_its_constraints(name: str) -> None:
    plan = plan_for(name)
    for port in plan.port_profiles:
        gradients = [queue for queue in port.queues if queue.ecn_threshold_bytes is not None]
        assert len(gradients) == len(plan.gradient_classes) == 8
        limits = [queue.limit for queue in port.queues]
        assert all(isinstance(limit, BytesLimit) for limit in limits)
        sizes = {q.traffic_class: q.limit.size_bytes for q in port.queues if isinstance(q.limit, BytesLimit)}
        assert sum(sizes.values()) <= port.buffer_bytes
        thresholds = [queue.ecn_threshold_bytes or 0 for queue in gradients]
        assert thresholds[0] >= port.packet_bytes
        assert all(low <= high for low, high in pairwise(thresholds))
        assert all(sizes[q.traffic_class] >= (q.ecn_threshold_bytes or 0) for q in gradients)


def test_progress_tells_every_kind_of_work_and_ends_where_it_said() -> None:
    """Also of what is found out about thresholds, which takes longer than to choose them."""
    steps: list[tuple[str, int, int]] = []
    build_plan(
        bundled_profile("vgg16"),
        fabric(classes__gradients__queues=1),
        capabilities,
        "paper",
        progress=lambda *step: steps.append(step),
    )
    assert list(dict.fromkeys(what for what, _, _ in steps)) == [
        "thresholds",
        "predictions",
        "how far it holds",
    ]
    assert all(done <= most for _, done, most in steps)
    assert len([what for what, _, _ in steps if what == "how far it holds"]) > 1


def test_same_input_same_bytes() -> None:
    assert dump_yaml(plan_for()) == dump_yaml(plan_for())


def test_a_plan_survives_its_file() -> None:
    plan = plan_for()
    assert validate(parse_yaml(dump_yaml(plan), where="plan.yaml"), Plan, where="plan.yaml") == plan


def test_comments_in_the_fabric_do_not_change_the_plan() -> None:
    assert plan_for().provenance.fabric_sha256 == plan_for(ports__buffer=384_000).provenance.fabric_sha256
    assert plan_for().provenance.fabric_sha256 != plan_for(ports__buffer=400_000).provenance.fabric_sha256


def test_layers_are_spread_evenly_and_completely() -> None:
    plan = plan_for("googlenet")
    layers = len(bundled_profile("googlenet").layers)
    for layer in range(layers):
        expected = layer * 8 // layers
        (entry,) = [c for c in plan.gradient_classes if c.layers and c.layers.first <= layer <= c.layers.last]
        assert entry.name == f"gradient-{expected}"
    assert sum(c.layers.size_bytes for c in plan.gradient_classes if c.layers) == 26_499_616


@pytest.mark.parametrize("model", ["paper", "completion"])
def test_predictions_are_the_models(model: str) -> None:
    """Recompute one port from the printed plan alone."""
    burst = 8 if model == "completion" else 1
    plan = plan_for("vgg16", model, classes__gradients__queues=3, traffic__burst_packets=burst)
    port = plan.port_profiles[0]
    gradient = {"arrivals": Batch(burst, source_rate_ratio=1.0), "importance": "burst"} if burst > 1 else {}
    losses = predict(
        Port(),
        [
            QueueTraffic(
                entry.load,
                plan.unimportant_share,
                **(gradient if entry.kind is ClassKind.GRADIENT else {}),  # type: ignore[arg-type]
            )
            for entry in plan.classes
        ],
        [
            QueueThresholds(
                queue.ecn_threshold_bytes / 1514 if queue.ecn_threshold_bytes else None,
                queue.limit.size_bytes / 1514,
            )
            for queue in port.queues
            if isinstance(queue.limit, BytesLimit)
        ],
        model=model,
    )
    for queue, loss in zip(port.queues, losses, strict=True):
        assert queue.prediction is not None
        assert queue.prediction.loss_unimportant == pytest.approx(loss.loss_unimportant, rel=1e-5, abs=1e-300)
        assert queue.prediction.loss_important == pytest.approx(loss.loss_important, rel=1e-5, abs=1e-300)


def test_end_to_end_loss_is_over_all_hops() -> None:
    plan = plan_for(ports__buffer="256kB", classes__gradients__queues=3)
    assert plan.hops == 3
    for path in plan.end_to_end:
        hops = [
            q.prediction.loss_unimportant
            for port in plan.port_profiles
            for q in port.queues
            if q.traffic_class == path.traffic_class and q.prediction
        ]
        assert path.loss_unimportant == pytest.approx(1 - prod(1 - loss for loss in hops), rel=1e-4)


def test_a_role_may_differ() -> None:
    plan = plan_for(ports__overrides={"leaf-down": {"rate": "25Mbps", "load": 1.1, "buffer": "600kB"}})
    by_role = {port.role.value: port for port in plan.port_profiles}
    assert by_role["leaf-down"].rate_bps == 25_000_000
    assert by_role["leaf-down"].load == 1.1
    assert by_role["leaf-up"].rate_bps == 50_000_000
    at_other_load = predict_port(plan, by_role["leaf-down"], load=0.5)
    last = plan.gradient_classes[-1].name
    planned = next(q.prediction for q in by_role["leaf-down"].queues if q.traffic_class == last)
    assert planned is not None
    assert at_other_load[last].loss_important < planned.loss_important


def test_nine_priorities_on_an_eight_queue_switch() -> None:
    dscps = [8, 10, 12, 14, 16, 18, 20, 22, 24]
    spines = {"count": 2, "platform": "eight"}
    with pytest.raises(UnsupportedPlanError) as refusal:
        plan_for(
            topology__leaf_spine__spines=spines,
            classes__gradients={"dscp": dscps, "queues": 9},
        )
    assert str(refusal.value) == (
        "spine1: classes.gradients.queues: 9 gradient queues and 3 other classes do not fit the 8 queues "
        "that a plan may use on default (expected at most 5)"
    )


def test_the_least_device_decides_how_many_queues() -> None:
    plan = plan_for(topology__leaf_spine__leaves={"count": 2, "platform": "eight"})
    assert len(plan.gradient_classes) == 5


def test_a_device_without_a_queue_for_gradients() -> None:
    with pytest.raises(UnsupportedPlanError, match="leaf1: default has 3 usable queues"):
        plan_for(topology__leaf_spine__leaves={"count": 2, "platform": "three"})


def test_too_small_a_buffer_names_the_least_one() -> None:
    with pytest.raises(UserInputError) as refusal:
        plan_for(ports__buffer="140kB")
    assert str(refusal.value).startswith("ports.buffer: 140000 B on leaf-")
    assert f"expected at least {(80 + 2 * 8) * 1514} B" in str(refusal.value)
    assert plan_for(ports__buffer=(80 + 2 * 8) * 1514).port_profiles


def test_unknown_model() -> None:
    for model in ("tarot", "simulate"):
        with pytest.raises(UserInputError, match=f"the loss model '{model}' chooses no thresholds"):
            plan_for("vgg16", model)


def test_the_default_model_is_completion() -> None:
    plan = build_plan(bundled_profile("vgg16"), fabric(classes__gradients__queues=2), capabilities)
    assert plan.provenance.queueing_model == "completion"


def test_a_delay_bound_reaches_the_thresholds() -> None:
    packet_seconds = 1514 * 8 / 50e6
    gradients = SMALL["classes"]["gradients"] | {"queues": 2, "delay_bound": 10 * packet_seconds}
    plan = plan_for("vgg16", "completion", classes__gradients=gradients, traffic__load=0.7)
    for port in plan.port_profiles:
        for queue in port.queues:
            if queue.ecn_threshold_bytes and queue.prediction:
                assert (queue.prediction.p99_delay_seconds or 0) <= 10 * packet_seconds * (1 + 1e-9)
    free = plan_for("vgg16", "completion", classes__gradients__queues=2, traffic__load=0.7)
    assert any(
        (queue.prediction.p99_delay_seconds or 0) > 10 * packet_seconds
        for queue in free.port_profiles[0].queues
        if queue.prediction and queue.ecn_threshold_bytes
    )


def test_background_share_is_kept_from_the_gradients() -> None:
    (cap,) = {entry.rate_cap_share for entry in plan_for().gradient_classes}
    assert cap == pytest.approx(1 - 0.05 - 0.001 - 0.005)
    with pytest.raises(UserInputError, match="leave nothing for gradients"):
        plan_for(classes__background={"guaranteed_share": 0.995})


def test_listed_topology() -> None:
    data = copy.deepcopy(LISTED)
    plan = build_plan(
        bundled_profile("vgg16"), validate(data, Fabric, where="fabric.yaml"), capabilities, "paper"
    )
    assert {entry.hardware for entry in plan.fabric.topology.switches} == {"default"}


@settings(max_examples=20, deadline=None)
@given(
    load=st.floats(0.05, 3),
    buffer_packets=st.integers(90, 2000),
    queues=st.integers(1, 8),
    name=st.sampled_from(bundled_names()),
)
def test_any_fabric_gives_a_valid_plan_or_one_line(
    load: float, buffer_packets: int, queues: int, name: str
) -> None:
    try:
        plan = plan_for(
            name, traffic__load=load, ports__buffer=buffer_packets * 1514, classes__gradients__queues=queues
        )
    except MltswitchError as error:
        assert "\n" not in str(error)
        return
    assert validate(plan.model_dump(mode="json", by_alias=True), Plan, where="plan") == plan


def limited(platform: str, hardware: str | None) -> Capabilities:
    """A device with three ports and a pool of a megabyte."""
    limit = LimitCapability(kind="alpha", source="test", alpha_exponents=(0,), pool_bytes=10**6)
    return replace(capabilities(platform, hardware), ports=(PortGroup(3, 10**9),), limit=limit)


BY_BOX: dict[str, Any] = {
    f"topology__leaf_spine__{tier}": {"count": 2, "platform": "linux"} for tier in ("spines", "leaves")
}
"""Ports named as the box names them."""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "leaf1: port port3: default has 3 ports"),
        (
            {"topology__leaf_spine__hosts_per_leaf": 1, "ports__buffer": "2MB"},
            "2000000 B for one port is more than the whole pool",
        ),
    ],
)
def test_more_than_the_switch_has(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UnsupportedPlanError, match=told):
        build_plan(bundled_profile("vgg16"), fabric(**BY_BOX, **changes), limited, "paper")
