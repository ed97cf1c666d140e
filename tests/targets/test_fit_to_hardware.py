import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from mltswitch.capabilities import (
    AlphaLimit,
    BandwidthCapability,
    BitRate,
    BytesLimit,
    Capabilities,
    LimitCapability,
    PortNumbering,
    PortShare,
    ThresholdCapability,
    Unlimited,
)
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan import ClassKind, Plan, QueueSettings
from mltswitch.targets import FittedState, PortState, QueueState
from mltswitch.targets.fit_to_hardware import assign_queues, fit_to_hardware
from mltswitch.targets.state import every_dscp_but
from tests.targets.strategies import plans, switch_names

SLOW = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])

COARSE = Capabilities(
    platform="coarse",
    hardware="chip",
    description="a chip of cells",
    queues=(7, 6, 5, 4, 3, 2, 1, 0),
    threshold=ThresholdCapability(
        step_bytes=6144, minimum_bytes=6144, maximum_bytes=80 * 6144, source="test"
    ),
    limit=LimitCapability(kind="bytes", source="test", step_bytes=1024, maximum_bytes=2**20 + 5),
    averaging="none",
    marks_at="enqueue",
    port_numbering=PortNumbering(pattern="port{n}"),
)
POOL_BYTES = 12_000_000
SHARED = replace(
    COARSE,
    limit=LimitCapability(
        kind="alpha", source="test", alpha_exponents=(-3, -2, -1, 0, 1, 2, 3), pool_bytes=POOL_BYTES
    ),
)
SHARING = replace(
    COARSE,
    minimum_bandwidth=BandwidthCapability(kind="percent", source="test"),
    maximum_bandwidth=BandwidthCapability(kind="rate", source="test", step_bps=64_000),
    remaps_host_control=True,
    segment_routing="test",
    packet_spraying="test",
)
REWRITING = replace(SHARING, rewrites_code_points="test")
Placed = tuple[PortState, QueueState, QueueSettings]
UNBOUNDED = replace(COARSE, limit=LimitCapability(kind="none", source="test"))


def queues_of(plan: Plan, name: str, fitted: FittedState) -> Iterator[Placed]:
    """Each queue of each port with what the plan says of it."""
    switch = plan.topology.switch(name)
    for port, place in zip(fitted.state.ports, switch.ports, strict=True):
        planned = plan.port_profile(switch, place).queues
        yield from ((port, *pair) for pair in zip(port.queues, planned, strict=True))


@SLOW
@given(plans(COARSE), st.data())
def test_values_are_multiples_of_the_steps_and_near_the_plan(plan: Plan, data: st.DataObject) -> None:
    name = data.draw(switch_names(plan))
    for _, queue, wanted in queues_of(plan, name, fit_to_hardware(plan, name, COARSE)):
        threshold, planned = queue.ecn_threshold_bytes, wanted.ecn_threshold_bytes
        assert (threshold is None) == (planned is None)
        if threshold is not None and planned is not None:
            assert threshold % 6144 == 0
            assert 0 <= threshold - planned < 6144
        assert isinstance(queue.limit, BytesLimit)
        assert isinstance(wanted.limit, BytesLimit)
        assert queue.limit.size_bytes % 1024 == 0
        assert (threshold or 0) <= queue.limit.size_bytes <= max(wanted.limit.size_bytes, threshold or 0)
        assert queue.limit.size_bytes <= 2**20


@SLOW
@given(plans(COARSE), st.data())
def test_every_code_point_has_one_queue(plan: Plan, data: st.DataObject) -> None:
    for port in fit_to_hardware(plan, data.draw(switch_names(plan)), COARSE).state.ports:
        assert sorted(dscp for queue in port.queues for dscp in queue.dscps) == list(range(64))


@SLOW
@given(plans(COARSE), st.data())
def test_what_differs_from_the_plan_is_reported_and_nothing_else(plan: Plan, data: st.DataObject) -> None:
    name = data.draw(switch_names(plan))
    fitted = fit_to_hardware(plan, name, COARSE)
    reported = {(entry.port, entry.queue, entry.field) for entry in fitted.roundings}
    assert len(reported) == len(fitted.roundings)
    assert reported == {
        (port.name, queue.queue, field)
        for port, queue, wanted in queues_of(plan, name, fitted)
        for field in ("ecn_threshold_bytes", "limit")
        if getattr(queue, field) != getattr(wanted, field)
    }


@SLOW
@given(plans(SHARED), st.data())
def test_alpha_is_the_nearest_step_that_rests_above_the_threshold(plan: Plan, data: st.DataObject) -> None:
    name = data.draw(switch_names(plan))
    steps = [AlphaLimit(exponent).resting_bytes(POOL_BYTES) for exponent in SHARED.limit.alpha_exponents]
    for _, queue, planned in queues_of(plan, name, fit_to_hardware(plan, name, SHARED)):
        assert isinstance(queue.limit, AlphaLimit)
        assert isinstance(planned.limit, BytesLimit)
        target, threshold = planned.limit.size_bytes, queue.ecn_threshold_bytes or 0
        rests = queue.limit.resting_bytes(POOL_BYTES)
        assert rests > threshold
        assert abs(rests - target) == min(abs(step - target) for step in steps if step > threshold)


FIRST_FOUND = settings(
    phases=(Phase.generate,),
    derandomize=True,
    database=None,
    max_examples=2000,
    suppress_health_check=list(HealthCheck),
)
"""Any plan will do: to look for the smallest takes twenty seconds."""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return find(
        plans(COARSE, gradients=1, others=[]),
        lambda plan: bool(plan.topology.switch("leaf1").ports),
        settings=FIRST_FOUND,
    )


def test_background_takes_the_last_queue_of_a_chip(plan: Plan) -> None:
    queues = assign_queues(plan, "leaf1", COARSE)
    assert list(queues.items()) == [
        ("network-control", 7),
        ("control", 6),
        ("gradient-0", 5),
        ("background", 0),
    ]


def test_a_software_switch_makes_no_queue_too_many(plan: Plan) -> None:
    queues = assign_queues(plan, "leaf1", replace(COARSE, creates_queues=True))
    assert list(queues.values()) == [7, 6, 5, 4]


def test_too_few_queues_are_refused_with_a_way_out(plan: Plan) -> None:
    wide = plan.model_copy(update={"classes": (*plan.classes[:3], *plan.classes[2:])})
    few = replace(COARSE, queues=(3, 2, 1, 0), reserved_queues=((3, "lossless"),))
    with pytest.raises(UnsupportedPlanError) as caught:
        fit_to_hardware(wide, "leaf1", few)
    assert str(caught.value) == (
        "leaf1: classes: the plan has 5 classes, chip has 4 queues that a plan may use; queue 3: lossless. "
        "Set classes.gradients.queues to 1 or fewer"
    )


def test_a_chip_without_limits_is_reported(plan: Plan) -> None:
    fitted = fit_to_hardware(plan, "leaf1", UNBOUNDED)
    assert {queue.limit for port in fitted.state.ports for queue in port.queues} == {Unlimited()}
    assert {entry.given for entry in fitted.roundings if entry.field == "limit"} == {"none"}


LOW_ALPHAS = replace(SHARED.limit, alpha_exponents=(-3, -2), pool_bytes=10_000)
SMALL_RED = replace(COARSE.threshold, step_bytes=64, maximum_bytes=128)


@pytest.mark.parametrize(
    ("chip", "said"),
    [
        (replace(SHARED, limit=replace(SHARED.limit, pool_bytes=None)), "pool size of chip is unknown"),
        (replace(COARSE, threshold=SMALL_RED), "at most 128 B"),
        (replace(COARSE, limit=replace(COARSE.limit, maximum_bytes=2048)), "no limit above the threshold"),
        (replace(SHARED, limit=LOW_ALPHAS), "no alpha of chip rests above .*below 2000 B, where alpha 2^-2"),
    ],
)
def test_what_a_chip_cannot_hold_is_refused(plan: Plan, chip: Capabilities, said: str) -> None:
    with pytest.raises(UnsupportedPlanError) as caught:
        fit_to_hardware(plan, "leaf1", chip)
    assert re.search(said.replace("^", r"\^"), str(caught.value))


def test_a_chip_that_cannot_shape_is_not_asked_to(plan: Plan) -> None:
    profiles = tuple(entry.model_copy(update={"shaped": True}) for entry in plan.port_profiles)
    with pytest.raises(UnsupportedPlanError, match="cannot hold a port"):
        fit_to_hardware(plan.model_copy(update={"port_profiles": profiles}), "leaf1", COARSE)


def test_a_code_point_of_two_classes_is_refused(plan: Plan) -> None:
    classes = (plan.classes[0], plan.classes[1].model_copy(update={"dscp": (48,)}), *plan.classes[2:])
    with pytest.raises(UserInputError, match="DSCP 48 is given to network-control and to control"):
        fit_to_hardware(plan.model_copy(update={"classes": classes}), "leaf1", COARSE)


def test_a_switch_that_the_plan_lacks_is_refused(plan: Plan) -> None:
    with pytest.raises(UserInputError, match="no switch 'leaf99'"):
        fit_to_hardware(plan, "leaf99", COARSE)


@SLOW
@given(plans(REWRITING), st.data())
def test_background_is_guaranteed_and_control_held_to_its_share(plan: Plan, data: st.DataObject) -> None:
    name = data.draw(switch_names(plan))
    result = fit_to_hardware(plan, name, REWRITING)
    for port, place in zip(result.state.ports, plan.topology.switch(name).ports, strict=True):
        rate_bps = plan.port_profile(plan.topology.switch(name), place).rate_bps
        for queue, entry in zip(port.queues, plan.classes, strict=True):
            if entry.kind is ClassKind.CONTROL:
                assert isinstance(queue.maximum, BitRate)
                assert entry.rate_cap_share is not None
                wanted_bps = entry.rate_cap_share * rate_bps
                assert wanted_bps - 64_000 < queue.maximum.bps < wanted_bps + 1 or queue.maximum.bps == 64_000
            else:
                assert queue.maximum is None
            if entry.guaranteed_share is not None:
                assert isinstance(queue.minimum, PortShare)
                assert -1e-6 < queue.minimum.percent - 100 * entry.guaranteed_share < 1
            else:
                assert queue.minimum is None
    assert not result.unsupported


@SLOW
@given(plans(SHARING), st.data())
def test_hosts_have_no_business_in_network_control(plan: Plan, data: st.DataObject) -> None:
    name = data.draw(switch_names(plan))
    state = fit_to_hardware(plan, name, SHARING).state
    taken = set(plan.classes[0].dscp)
    for port, place in zip(state.ports, plan.topology.switch(name).ports, strict=True):
        assert sorted(dscp for queue in port.queues for dscp in queue.dscps) == list(range(64))
        first, last = set(port.queues[0].dscps), set(port.queues[-1].dscps)
        assert taken <= (last if place.peer_is_host else first)


@SLOW
@given(plans(REWRITING), st.data())
def test_ports_that_are_not_trusted_rewrite_everything_and_have_the_switchs_map(
    plan: Plan, data: st.DataObject
) -> None:
    name = data.draw(switch_names(plan))
    state = fit_to_hardware(plan, name, REWRITING).state
    control, background = plan.classes[0].dscp, min(plan.classes[-1].dscp)
    for port, place in zip(state.ports, plan.topology.switch(name).ports, strict=True):
        remaps = place.peer_is_host and port.trusted
        assert set(control) <= set(port.queues[-1 if remaps else 0].dscps)
        assert port.rewritten == ((control if remaps else ()) if port.trusted else every_dscp_but(background))
    assert state.background_dscp == (background if any(port.rewritten for port in state.ports) else 0)


@SLOW
@given(plans(COARSE), st.data())
def test_what_a_device_cannot_do_is_said(plan: Plan, data: st.DataObject) -> None:
    name = data.draw(switch_names(plan))
    result = fit_to_hardware(plan, name, COARSE)
    told = " ".join(result.unsupported)
    assert "control is not held to" in told
    assert ("background is not guaranteed" in told) == (plan.classes[-1].guaranteed_share is not None)
    hosts = any(port.peer_is_host for port in plan.topology.switch(name).ports)
    assert ("CS6 and CS7 from hosts are believed" in told) == hosts


@pytest.mark.parametrize("mode", ["srv6", "packet"])
def test_a_spray_mode_that_a_device_does_not_have_is_refused(mode: str) -> None:
    plan = find(plans(SHARING), lambda plan: plan.paths.mode == mode, settings=FIRST_FOUND)
    with pytest.raises(UnsupportedPlanError, match=f"no configuration for the mode '{mode}'") as caught:
        fit_to_hardware(plan, "spine1", COARSE)
    assert "spine1: spraying.mode" in caught.value.where
    state = fit_to_hardware(plan, "spine1", SHARING).state
    assert state.packet_spraying == (mode == "packet")
    assert (state.segment_routing is not None) == (mode == "srv6")


def test_bandwidth_that_the_device_has_no_step_for_is_reported() -> None:
    plan = find(
        plans(SHARING),
        lambda plan: (plan.classes[-1].guaranteed_share or 0) * 1000 % 10 == 5,
        settings=FIRST_FOUND,
    )
    (rounding, *_) = [
        each for each in fit_to_hardware(plan, "spine1", SHARING).roundings if each.field == "minimum"
    ]
    assert rounding.given.endswith(" %")
    assert rounding.wanted.endswith("of the port")
