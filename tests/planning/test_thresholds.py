"""Thresholds of a plan's ports: what memory leaves them, room for bursts, steps of the device."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from mltswitch.capabilities import (
    AlphaLimit,
    BytesLimit,
    Capabilities,
    Limit,
    LimitCapability,
    PortGroup,
    PortNumbering,
    ThresholdCapability,
    Unlimited,
)
from mltswitch.capabilities.hardware import packet_memory
from mltswitch.documents import dump_yaml
from mltswitch.errors import MltswitchError, UnsupportedPlanError, UserInputError
from mltswitch.plan import Plan, PortProfile
from mltswitch.plan.document import LATER_FIELDS
from mltswitch.plan.seal import sealed
from mltswitch.planning import build_plan, predict_edited
from mltswitch.planning.lint import lint
from mltswitch.planning.thresholds import ClassCurves, PortSolver, planned_scenarios
from mltswitch.profile import ModelProfile, bundled_profile, queue_curves
from mltswitch.profile.default import default_sensitivity
from mltswitch.profile.document import PROFILE_SCHEMA
from mltswitch.profile.layers import Layer, Tensor
from mltswitch.queueing import Optimum, ThresholdProblem, optimise
from mltswitch.targets import hardware_capabilities
from mltswitch.targets.registry import known_hardware
from tests.planning.test_build import capabilities, fabric, plan_for

POOL = 4_000_000
THREE: dict[str, Any] = {"classes__gradients__queues": 3}


def device(kind: str, step_bytes: int = 6144) -> Any:
    """A switch chip of 16 ports: thresholds in cells, limits by alpha, or none at all."""

    def lookup(platform: str, hardware: str | None) -> Capabilities:
        return replace(
            capabilities(platform, hardware),
            threshold=ThresholdCapability(
                step_bytes=step_bytes, minimum_bytes=step_bytes, maximum_bytes=2**31 - 1, source="test"
            ),
            limit=LimitCapability(
                kind=kind,  # type: ignore[arg-type]  # one of the three
                source="test",
                alpha_exponents=tuple(range(-7, 4)) if kind == "alpha" else (),
                pool_bytes=POOL,
            ),
            ports=(PortGroup(16, 100_000_000_000),),
            port_numbering=PortNumbering(pattern="eth{n}"),
        )

    return lookup


def plan_on(lookup: Any, model: str = "paper", **changes: Any) -> Plan:
    return build_plan(bundled_profile("vgg16"), fabric(**(THREE | changes)), lookup, model)


def test_a_static_buffer_is_what_the_other_classes_leave() -> None:
    plan = plan_for("vgg16", "paper", **THREE)
    port = plan.port_profiles[0]
    problem = PortSolver(plan, ClassCurves(bundled_profile("vgg16"), plan.classes), True).problem(port)
    assert problem.shared_limit_packets is None
    assert problem.buffer_packets == 384_000 // 1514 - (16 + 32 + 32)
    assert problem.hops == plan.hops == 3
    assert [given is None for given in problem.fixed] == [False, False, True, True, True, False]
    assert [given.limit_packets for given in problem.fixed if given] == [16, 32, 32]
    assert problem.is_ordered


@pytest.mark.parametrize("burst", [1, 8])
@pytest.mark.parametrize("kind", ["bytes", "alpha", "none"])
def test_room_for_bursts_below_and_above_every_threshold(kind: str, burst: int) -> None:
    """S holds a burst, L lies a burst above it, S is in order, the buffer is used."""
    lookup = capabilities if kind == "bytes" else device(kind)
    changes = {"ports__buffer": 384_000} if kind == "bytes" else {"ports__buffer": None}
    plan = plan_on(lookup, traffic__burst_packets=burst, traffic__load=0.7, **changes)
    for port in plan.port_profiles:
        gradients = [queue for queue in port.queues if queue.ecn_threshold_bytes is not None]
        thresholds = [queue.ecn_threshold_bytes or 0 for queue in gradients]
        lengths = [port.length_bytes(queue.limit) for queue in gradients]
        assert all(above <= below for above, below in pairwise(thresholds))
        assert min(thresholds) >= burst * port.packet_bytes
        assert all(
            limit - s >= burst * port.packet_bytes for s, limit in zip(thresholds, lengths, strict=True)
        )
        if kind == "bytes":
            held = [queue.limit.size_bytes for queue in port.queues if isinstance(queue.limit, BytesLimit)]
            assert sum(held) >= 0.98 * port.buffer_bytes
        else:
            assert all(s % 6144 == 0 for s in thresholds)
            wanted = AlphaLimit(3) if kind == "alpha" else Unlimited()
            assert {queue.limit for queue in port.queues} == {wanted}


SHARING = [entry for entry in known_hardware()[0] if entry.limit.kind != "bytes"]


def plan_of_rack(entry: Capabilities, **changes: Any) -> Plan:
    """A rack of 12 hosts a leaf, of one chip, its memory as the box has it, where a source says so."""
    stated = {"ports__buffer": "8MB"} if packet_memory(entry.hardware) is None else {"ports__buffer": None}
    tier = {"platform": entry.platform, "hardware": entry.hardware}
    shape = {
        "topology__leaf_spine__hosts_per_leaf": 12,
        "topology__leaf_spine__leaves": {"count": 2, **tier},
        "topology__leaf_spine__spines": {"count": 2, **tier},
        "addressing__alias": {"spine1": "10.1.0.0/16", "spine2": "10.2.0.0/16"},
    }
    given = {"ports__rate": "25Gbps", "ports__shaped": False, **shape, **stated, **changes}
    return build_plan(bundled_profile("vgg16"), fabric(**given), hardware_capabilities, "paper")


@pytest.mark.parametrize("entry", SHARING, ids=lambda entry: f"{entry.platform}-{entry.hardware}")
def test_marks_come_in_time_on_every_chip_that_shares_its_memory(entry: Capabilities) -> None:
    """S lies a burst below what a queue gets with all 14 ports busy, and within the delay bound."""
    if entry.ports and max(group.rate_bps for group in entry.ports) < 100 * 10**9:
        pytest.skip("no port of 25 Gbit/s")
    plan = plan_of_rack(entry, traffic__burst_packets=8)
    known = packet_memory(entry.hardware)
    alpha = known.alpha if known else 8.0
    for port in plan.port_profiles:
        burst = 8 * port.packet_bytes
        marking = [queue for queue in port.queues if queue.ecn_threshold_bytes is not None]
        thresholds = [queue.ecn_threshold_bytes or 0 for queue in marking]
        assert thresholds == sorted(thresholds)
        assert thresholds[0] >= burst
        for queue in marking:
            sent = (queue.delay_bound_seconds or 0) * port.rate_bps / 8
            assert (queue.ecn_threshold_bytes or 0) <= max(sent, burst)
        assert marking[-1].delay_bound_seconds == 0.0005
        pool = port.pool_bytes or (known.pool_bytes if known else None)
        if pool is None:
            assert any(f"{entry.platform} {entry.hardware}: nobody says how much" in n for n in plan.notes)
            return
        assert port.crowded_bytes == int(pool * alpha / (1 + 14 * alpha))
        assert thresholds[-1] + burst <= port.crowded_bytes
    assert not any("nothing is marked" in text for text in plan.warnings)
    ports = tuple(_with_threshold(port, port.crowded_bytes or 0) for port in plan.port_profiles)
    said = lint(plan.model_copy(update={"port_profiles": ports})).warnings
    assert any("can fill, while all ports of the switch are busy" in text for text in said)


def _with_threshold(port: PortProfile, size_bytes: int) -> PortProfile:
    queues = tuple(
        queue.model_copy(update={"ecn_threshold_bytes": queue.ecn_threshold_bytes and size_bytes})
        for queue in port.queues
    )
    return port.model_copy(update={"queues": queues})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "delay bounds hold S below what memory allows"),
        ({"traffic__burst_packets": 512}, "bound of 167 µs: the burst, as the bound is the default, won"),
        (
            {
                "traffic__burst_packets": 64,
                "traffic__load": 0.1,
                "ports__buffer": "1MB",
                "classes__gradients": {"dscp": [34], "delay_bound": 7e-5},
            },
            "the bound, as the fabric gives it, won",
        ),
    ],
)
def test_a_delay_bound_says_what_it_costs_and_what_came_before_it(changes: Any, told: str) -> None:
    """Three ports of 10 Gbit/s share 4 MB: 1 ms of queue each without a bound."""
    rack = {"ports__buffer": None, "ports__rate": "10Gbps", "ports__shaped": False} | changes
    is_divided = "ports__buffer" in changes
    three, lookup = ({}, capabilities) if is_divided else (THREE, device("none"))
    plan = build_plan(bundled_profile("vgg16"), fabric(**three, **rack), lookup, "paper")
    assert any(told in note for note in plan.notes), plan.notes


def test_a_loss_tolerance_stretches_a_default_bound_and_no_other() -> None:
    """Forty packets of a slow port are too few for bursts of 32 at a load of 0.9."""
    hard: Any = {"ports__buffer": "3MB", "traffic__burst_packets": 32, "traffic__load": 0.9}
    plan = build_plan(bundled_profile("vgg16"), fabric(**THREE, **hard), capabilities)
    assert not plan.unmet
    assert any("the loss tolerance at the planned load won over the default" in note for note in plan.notes)
    port = plan.port_profiles[0]
    last = next(queue for queue in port.queues if queue.traffic_class == "gradient-2")
    assert (last.ecn_threshold_bytes or 0) * 8 / port.rate_bps > (last.delay_bound_seconds or 0)


def test_a_plan_of_before_has_its_hash() -> None:
    plan = plan_on(device("none"), ports__buffer=None)
    assert all(name in dump_yaml(plan) for name in LATER_FIELDS)
    queues = {
        "queues": tuple(
            q.model_copy(update={"delay_bound_seconds": None}) for q in plan.port_profiles[0].queues
        )
    }
    ports = tuple(p.model_copy(update={"crowded_bytes": None} | queues) for p in plan.port_profiles)
    old = sealed(plan.model_copy(update={"port_profiles": ports, "scenarios": plan.scenarios[:-1]}))
    assert not any(name in dump_yaml(old) for name in LATER_FIELDS)
    with pytest.raises(UserInputError, match="plan again"):
        predict_edited(old, bundled_profile("vgg16"), device("none"))


def test_shared_memory_is_divided_among_the_congested_ports() -> None:
    """A quarter of the ports in use, each with one queue at rest: alpha (pool - n q) = q."""
    hosts = 7  # and a spine
    port = plan_on(
        device("alpha"), ports__buffer=None, topology__leaf_spine__hosts_per_leaf=hosts
    ).port_profiles[0]
    assert (port.pool_bytes, port.congested_queues) == (POOL, 2)
    assert port.buffer_bytes == int(POOL * 8 / (1 + 2 * 8))
    memory = {"default": {"total": "6MB", "reserved": "1MB", "headroom": "1MB", "alpha": 2, "busy_ports": 2}}
    port = plan_on(device("alpha"), ports__buffer=None, memory=memory).port_profiles[0]
    assert port.pool_bytes == 4_000_000
    assert port.buffer_bytes == int(4_000_000 * 2 / (1 + 2 * 2))
    assert limits_of(port) == ({AlphaLimit(1)}, {AlphaLimit(3)})


def test_a_chip_described_beside_a_pool_as_delivered_keeps_that_pool() -> None:
    plan = plan_on(device("alpha"), ports__buffer=None, memory={"default": {"total": "8MB"}})
    assert plan.port_profiles[0].pool_bytes == POOL
    assert any(
        "its pool as delivered, 4,000,000 B, not the 8,000,000 B of memory.default" in note
        for note in plan.notes
    )
    with pytest.raises(UnsupportedPlanError, match="leaves 3000000 B to share"):
        plan_on(device("alpha"), ports__buffer=None, memory={"default": {"total": "3MB"}})


JUMBO: dict[str, Any] = THREE | {
    "ports__mtu_bytes": 9000,
    "ports__buffer": "1.5MB",
    "ports__rate": "25Gbps",
    "traffic__burst_packets": 7,
    "traffic__load": 0.8,
}


def test_a_plan_holds_at_its_load_where_some_thresholds_do() -> None:
    """Over its scenarios alone, the cheapest thresholds of this rack lose too much where it is planned."""
    plan = build_plan(bundled_profile("bert-base"), fabric(**JUMBO), capabilities)
    assert not plan.unmet


def test_of_jumbo_frames_other_classes_hold_fewer_unless_the_file_says_how_many() -> None:
    def limits(**changes: Any) -> list[int]:
        plan = build_plan(bundled_profile("vgg16"), fabric(**JUMBO, **changes), capabilities, "paper")
        port = plan.port_profiles[0]
        others = [queue for queue in port.queues if queue.ecn_threshold_bytes is None]
        return [port.length_bytes(queue.limit) // port.packet_bytes for queue in others]

    assert limits() == [10, 10, 10]
    assert limits(classes__control={"dscp": [40], "limit_packets": 20}) == [10, 20, 10]


def limits_of(port: PortProfile) -> tuple[set[Limit], set[Limit]]:
    """Of queues with gradients, and of the others, which no plan gives less than the box's own alpha."""
    gradients = {queue.limit for queue in port.queues if queue.ecn_threshold_bytes is not None}
    return gradients, {queue.limit for queue in port.queues if queue.ecn_threshold_bytes is None}


def test_a_buffer_named_for_the_port_bounds_its_alpha() -> None:
    port = plan_on(device("alpha"), ports__buffer="500kB").port_profiles[0]
    assert limits_of(port) == ({AlphaLimit(-3)}, {AlphaLimit(3)})
    assert AlphaLimit(-3).resting_bytes(POOL) <= 500_000 < AlphaLimit(-2).resting_bytes(POOL)


@pytest.mark.parametrize(
    ("kind", "changes", "told"),
    [
        ("bytes", {"ports__buffer": (80 + 5) * 1514}, f"expected at least {(80 + 6) * 1514} B"),
        ("alpha", {"ports__buffer": "5MB"}, "more than the whole pool"),
        ("alpha", {"ports__buffer": 10_000}, "the least alpha"),
        (
            "alpha",
            {"ports__buffer": None, "memory": {"default": {"total": "4MB", "alpha": 64}}},
            "no alpha of 64",
        ),
        (
            "none",
            {"ports__buffer": None, "memory": {"default": {"total": "4MB", "reserved": "4MB"}}},
            "leave nothing",
        ),
        (
            "none",
            {"ports__buffer": None, "memory": {"default": {"total": "4MB", "alpha": 3}}},
            "no power of two",
        ),
    ],
)
def test_memory_that_does_not_add_up_is_refused(kind: str, changes: dict[str, Any], told: str) -> None:
    lookup = capabilities if kind == "bytes" else device(kind)
    with pytest.raises(MltswitchError, match=told):
        plan_on(lookup, **changes)


def test_memory_that_nobody_knows_is_asked_for() -> None:
    unknown = replace(device("none")("linux", None), limit=LimitCapability(kind="none", source="test"))
    with pytest.raises(UserInputError, match="nobody says how much packet memory"):
        plan_on(lambda _platform, _hardware: unknown, ports__buffer=None)


def test_steps_larger_than_the_queue_are_refused() -> None:
    with pytest.raises(UnsupportedPlanError, match="the least ECN threshold"):
        plan_on(device("none", step_bytes=600_000), ports__buffer="300kB")


def test_scenarios_are_the_fabrics_or_the_default_ones() -> None:
    default = planned_scenarios(fabric(), 3, shares_memory=False)
    assert [entry.load_factor for entry in default] == [1.0, 0.75, 1.15, 1.0]
    assert [entry.senders for entry in default] == [1, 1, 1, 3]
    assert sum(entry.weight for entry in default) == pytest.approx(1)
    own = fabric(traffic__scenarios=[{"load_factor": 1.4, "weight": 0.6}])
    assert [
        (entry.load_factor, entry.weight) for entry in planned_scenarios(own, 4, shares_memory=False)
    ] == [
        (1.0, 0.5),
        (1.4, 0.5),
    ]
    assert len(planned_scenarios(fabric(), 0, shares_memory=False)) == 3
    *_, busy = planned_scenarios(own, 4, shares_memory=True)
    assert busy.all_ports_busy


def test_for_one_load_alone_there_is_no_other_scenario() -> None:
    fabric_of_plan = fabric(**THREE)
    profile = bundled_profile("vgg16")
    at = build_plan(profile, fabric_of_plan, capabilities, "paper", at_load=0.95)
    assert [entry.load_factor for entry in at.scenarios] == [1.0]
    assert at.fabric.traffic.load == at.port_profiles[0].load == 0.95
    robust = build_plan(profile, fabric(**THREE, traffic__load=0.95), capabilities, "paper")
    assert at.scenarios[0].extra_rounds is not None
    assert robust.scenarios[0].extra_rounds is not None
    assert at.scenarios[0].extra_rounds <= robust.scenarios[0].extra_rounds + 1e-6


def test_the_order_may_be_left_free() -> None:
    plan = build_plan(bundled_profile("vgg16"), fabric(**THREE), capabilities, "paper", is_order_free=True)
    assert not plan.fabric.classes.gradients.ordered_thresholds


def test_ports_that_share_a_problem_are_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ThresholdProblem] = []

    def counted(problem: ThresholdProblem, model: str, **options: Any) -> Optimum:
        asked.append(problem)
        return optimise(problem, model, **options)

    monkeypatch.setattr("mltswitch.planning.thresholds.optimise", counted)
    same = plan_for("vgg16", classes__gradients__queues=2)
    assert len(same.port_profiles) == 3
    assert len(asked) == 1
    plan_for("vgg16", classes__gradients__queues=2, ports__overrides={"leaf-down": {"load": 1.1}})
    assert len(asked) == 3


def test_a_class_beyond_its_tolerance_says_what_it_needs() -> None:
    plan = plan_for("vgg16", "completion", classes__gradients__queues=2, ports__buffer=140_000)
    assert plan.unmet
    assert all("more than its tolerance" in text and "it would hold with" in text for text in plan.unmet)
    assert not plan_for("vgg16", "completion", classes__gradients__queues=2, traffic__load=0.5).unmet


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
