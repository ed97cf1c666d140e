"""The optimisation problem of a port: buffer, steps, alphas and curves as fabric and device give them."""

from dataclasses import replace
from typing import Any

import pytest

from mltswitch.capabilities import AlphaLimit, BytesLimit, Capabilities, LimitCapability, ThresholdCapability
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan
from mltswitch.planning import build_plan
from mltswitch.planning.thresholds import ClassCurves, PortSolver, granularity_packets, usable_alphas
from mltswitch.profile import ModelProfile, bundled_profile, queue_curves
from mltswitch.profile.default import default_sensitivity
from mltswitch.profile.document import PROFILE_SCHEMA
from mltswitch.profile.layers import Layer, Tensor
from mltswitch.queueing.descent import optimise
from mltswitch.queueing.objective import Optimum, ThresholdProblem
from tests.planning.test_build import capabilities, fabric, plan_for

POOL = 2_000_000


def stepped(platform: str, hardware: str | None) -> Capabilities:
    """A switch chip: thresholds in cells, limits by alpha."""
    return replace(
        capabilities(platform, hardware),
        threshold=ThresholdCapability(
            step_bytes=6144, minimum_bytes=6144, maximum_bytes=2**31 - 1, source="test"
        ),
        limit=LimitCapability(
            kind="alpha", source="test", alpha_exponents=tuple(range(-7, 4)), pool_bytes=POOL
        ),
    )


def stepped_plan(model: str = "mm1k", **changes: Any) -> Plan:
    return build_plan(bundled_profile("vgg16"), fabric(**changes), stepped, model)


def test_a_static_buffer_is_what_the_other_classes_leave() -> None:
    plan = plan_for("vgg16", "mm1k", classes__gradients__queues=3)
    port = plan.port_profiles[0]
    device = capabilities(port.platform, port.hardware)
    problem = PortSolver(plan, ClassCurves(bundled_profile("vgg16"), plan.classes)).problem(port, device)
    assert problem.buffer == "static"
    assert problem.buffer_packets == 384_000 // 1514 - (16 + 32 + 32)
    assert problem.hops == plan.hops == 3
    assert [given is None for given in problem.fixed] == [False, False, True, True, True, False]
    assert [given.limit_packets for given in problem.fixed if given] == [16, 32, 32]
    assert sum(objective.byte_share for objective in problem.objectives) == pytest.approx(1)
    assert problem.granularity_packets == 1
    assert not problem.is_ordered


def test_thresholds_are_whole_steps_of_the_device() -> None:
    plan = stepped_plan(classes__gradients__queues=3)
    for port in plan.port_profiles:
        for queue in port.queues:
            if queue.ecn_threshold_bytes is not None:
                packets = queue.ecn_threshold_bytes // port.packet_bytes
                assert packets * port.packet_bytes == queue.ecn_threshold_bytes
                assert packets % 4 == 0
                # The device rounds up, and takes no more steps than were planned.
                assert -(-queue.ecn_threshold_bytes // 6144) <= packets // 4


def test_a_step_smaller_than_a_packet_does_not_bind() -> None:
    device = stepped("linux", None)
    assert granularity_packets(device, 9230) == 1
    assert granularity_packets(device, 1514) == 4
    assert granularity_packets(capabilities("linux", None), 1514) == 1


def test_limits_by_alpha_are_where_the_queue_rests() -> None:
    plan = stepped_plan(classes__gradients__queues=3)
    device = stepped("linux", None)
    resting = [AlphaLimit(exponent).resting_bytes(POOL) for exponent in device.limit.alpha_exponents]
    for port in plan.port_profiles:
        assert port.buffer == "shared"
        assert port.pool_bytes == POOL
        for queue in port.queues:
            if queue.ecn_threshold_bytes is None:
                continue
            assert isinstance(queue.limit, BytesLimit)
            planned = queue.limit.size_bytes
            nearest = min(resting, key=lambda length: abs(length - planned))
            assert 0 <= nearest - planned < 2 * port.packet_bytes
            assert nearest <= port.buffer_bytes


def test_alphas_stay_within_the_ports_part_of_the_pool() -> None:
    device = stepped("linux", None)
    assert usable_alphas(device, 15_000) == ()
    assert usable_alphas(device, 16_000) == (2.0**-7,)
    assert usable_alphas(device, POOL // 2) == tuple(2.0**n for n in range(-7, 1))
    unknown = replace(device, limit=replace(device.limit, pool_bytes=None))
    assert usable_alphas(unknown, 10**9) == ()
    assert usable_alphas(capabilities("linux", None), 10**9) == ()


def test_alphas_too_coarse_for_the_port_leave_bytes() -> None:
    def coarse(platform: str, hardware: str | None) -> Capabilities:
        device = stepped(platform, hardware)
        return replace(device, limit=replace(device.limit, alpha_exponents=(0, 1)))

    plan = build_plan(bundled_profile("vgg16"), fabric(classes__gradients__queues=2), coarse, "mm1k")
    assert {port.buffer for port in plan.port_profiles} == {"static"}
    total = sum(q.limit.size_bytes for q in plan.port_profiles[0].queues if isinstance(q.limit, BytesLimit))
    assert total <= plan.port_profiles[0].buffer_bytes


def test_too_small_a_buffer_for_the_devices_steps() -> None:
    def bytes_limited(platform: str, hardware: str | None) -> Capabilities:
        return replace(stepped(platform, hardware), limit=capabilities(platform, hardware).limit)

    small = fabric(ports__buffer=(80 + 11) * 1514, classes__gradients__queues=3)
    with pytest.raises(UserInputError, match=f"expected at least {(80 + 12) * 1514} B"):
        build_plan(bundled_profile("vgg16"), small, bytes_limited, "mm1k")
    enough = fabric(ports__buffer=(80 + 12) * 1514, classes__gradients__queues=3)
    assert build_plan(bundled_profile("vgg16"), enough, bytes_limited, "mm1k").port_profiles


def test_ports_that_share_a_problem_are_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ThresholdProblem] = []

    def counted(problem: ThresholdProblem, model: str) -> Optimum:
        asked.append(problem)
        return optimise(problem, model)

    monkeypatch.setattr("mltswitch.planning.thresholds.optimise", counted)
    same = plan_for("vgg16", classes__gradients__queues=2)
    assert len(same.port_profiles) == 3
    assert len(asked) == 1
    plan_for("vgg16", classes__gradients__queues=2, ports__overrides={"leaf-down": {"load": 1.1}})
    assert len(asked) == 3


def test_an_optimum_says_how_good_it_is() -> None:
    for port in plan_for("vgg16", "paper", classes__gradients__queues=2).port_profiles:
        assert port.method
        if port.gap is not None and port.gap <= 0.005:
            assert port.optimum == "global"


def thousand_layers() -> ModelProfile:
    layers = tuple(
        Layer(
            name=f"layer{number}",
            tensors=(Tensor(name=f"layer{number}.weight", shape=(64 + number % 7, 64)),),
        )
        for number in range(1000)
    )
    return ModelProfile(
        schema=PROFILE_SCHEMA,
        name="thousand",
        layers=layers,
        sensitivity=default_sensitivity([layer.size_bytes for layer in layers]),
    )


def test_a_thousand_layers_are_summed_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each port: curves are made per class, whatever the number of ports."""
    made: list[tuple[int, int]] = []

    def counted(profile: ModelProfile, first: int, last: int) -> Any:
        made.append((first, last))
        return queue_curves(profile, first, last)

    monkeypatch.setattr("mltswitch.planning.thresholds.queue_curves", counted)
    plan = build_plan(thousand_layers(), fabric(), capabilities, "paper")
    assert len(plan.gradient_classes) == 8
    assert made == [(125 * number, 125 * number + 124) for number in range(8)]
