"""A plan's port as the loss models take it, and what they say of it in seconds and bytes."""

from typing import Any

import pytest

from mltswitch.capabilities import AlphaLimit, Unlimited
from mltswitch.errors import UserInputError
from mltswitch.plan import ClassKind, Plan, PortProfile
from mltswitch.planning import predict_port
from mltswitch.planning.predict import port_problem
from mltswitch.queueing import Batch, Incast, Poisson, SimulationSettings, predict
from tests.planning.test_build import plan_for

SHORT = SimulationSettings(packets=20_000, replications=4)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_for(ports__buffer="256kB", classes__gradients__queues=3)


def _with_traffic(plan: Plan, **fields: Any) -> Plan:
    traffic = plan.fabric.traffic.model_copy(update=fields)
    return plan.model_copy(update={"fabric": plan.fabric.model_copy(update={"traffic": traffic})})


def _with_limit(profile: PortProfile, limit: Any, **fields: Any) -> PortProfile:
    queues = list(profile.queues)
    queues[4] = queues[4].model_copy(update={"limit": limit})
    return profile.model_copy(update={"queues": tuple(queues), **fields})


def test_only_gradients_come_in_bursts(plan: Plan) -> None:
    _, traffic, _ = port_problem(plan, plan.port_profiles[0])
    for entry, offered in zip(plan.classes, traffic, strict=True):
        if entry.kind is ClassKind.GRADIENT:
            assert offered.arrivals == Batch(8, "fixed", 1.0)
            assert offered.importance == "burst"
        else:
            assert (offered.arrivals, offered.importance) == (Poisson(), "packet")


def test_loads_are_the_ports_and_scale_with_gradients_alone(plan: Plan) -> None:
    profile = plan.port_profiles[0]
    _, planned, _ = port_problem(plan, profile)
    _, halved, _ = port_problem(plan, profile, load=profile.load / 2)
    for entry, before, after in zip(plan.classes, planned, halved, strict=True):
        factor = 0.5 if entry.kind is ClassKind.GRADIENT else 1.0
        assert after.load == pytest.approx(before.load * factor)
    gradients = [offered.load for offered in planned[2:-1]]
    assert sum(gradients) == pytest.approx(profile.load)


def test_single_packets_are_tagged_by_packet(plan: Plan) -> None:
    _, traffic, _ = port_problem(plan, plan.port_profiles[0], burst_packets=1)
    assert {(offered.arrivals, offered.importance) for offered in traffic} == {(Poisson(), "packet")}
    by_burst = _with_traffic(plan, importance="packet")
    _, traffic, _ = port_problem(by_burst, plan.port_profiles[0], burst_packets=4)
    assert (traffic[2].arrivals, traffic[2].importance) == (Batch(4, "fixed", 1.0), "packet")


def test_geometric_bursts(plan: Plan) -> None:
    given = _with_traffic(plan, arrivals="geometric")
    fast = plan.port_profiles[0].model_copy(update={"source_rate_ratio": 4.0})
    _, traffic, _ = port_problem(given, fast)
    assert traffic[2].arrivals == Batch(8, "geometric", 4.0)
    assert traffic[2].importance == "packet"
    assert predict_port(given, plan.port_profiles[0], model="completion")["gradient-0"].loss_unimportant >= 0


def test_bursts_of_random_size_that_share_one_importance(plan: Plan) -> None:
    given, profile = _with_traffic(plan, arrivals="geometric", importance="burst"), plan.port_profiles[0]
    with pytest.raises(UserInputError, match=r"^traffic\.importance: .*geometric"):
        predict_port(given, profile, model="completion")
    with pytest.raises(UserInputError, match=r"^traffic\.importance: "):
        plan_for(model="completion", traffic__arrivals="geometric", traffic__importance="burst")
    assert predict_port(given, profile, model="completion", burst_packets=1)
    _, traffic, _ = port_problem(given, profile, model="simulate")
    assert (traffic[2].arrivals, traffic[2].importance) == (Batch(8, "geometric", 1.0), "burst")
    assert predict_port(given, profile, model="simulate", simulation=SHORT)


def test_incast_counts_jitter_in_packet_times(plan: Plan) -> None:
    profile = plan.port_profiles[0]
    given = _with_traffic(plan, arrivals="incast", senders=16, round_packets=64, jitter_seconds=0.01)
    _, traffic, _ = port_problem(given, profile)
    arrivals = traffic[2].arrivals
    assert isinstance(arrivals, Incast)
    assert (arrivals.senders, arrivals.round_packets, arrivals.burst_packets) == (16, 64, 8)
    assert arrivals.jitter_packet_times == pytest.approx(0.01 * profile.rate_bps / (8 * profile.packet_bytes))


def test_bursts_of_each_class() -> None:
    gradients = {"dscp": [10, 12, 14], "burst_packets": [1, 4, 16]}
    each = plan_for(ports__buffer="256kB", classes__gradients=gradients)
    _, traffic, _ = port_problem(each, each.port_profiles[0])
    assert [offered.arrivals for offered in traffic[2:5]] == [
        Poisson(),
        Batch(4, "fixed", 1.0),
        Batch(16, "fixed", 1.0),
    ]
    assert [offered.importance for offered in traffic[2:5]] == ["packet", "burst", "burst"]


def test_predictions_are_the_models_in_seconds_and_bytes(plan: Plan) -> None:
    profile = plan.port_profiles[0]
    seconds = profile.packet_bytes * 8 / profile.rate_bps
    said = predict_port(plan, profile, model="completion", burst_packets=1)
    figures = predict(*port_problem(plan, profile, burst_packets=1), model="completion")
    assert list(said) == [entry.name for entry in plan.classes]
    for entry, figure in zip(said.values(), figures, strict=True):
        assert entry.loss_unimportant == pytest.approx(figure.loss_unimportant, rel=1e-5)
        if figure.mean_delay_packet_times is None:
            assert (entry.mean_delay_seconds, entry.p99_delay_seconds) == (None, None)
            continue
        assert figure.p99_delay_packet_times is not None
        assert figure.mean_queue_packets is not None
        assert entry.mean_delay_seconds == pytest.approx(figure.mean_delay_packet_times * seconds, rel=1e-5)
        assert entry.p99_delay_seconds == pytest.approx(figure.p99_delay_packet_times * seconds, rel=1e-5)
        assert entry.mean_queue_bytes == pytest.approx(
            figure.mean_queue_packets * profile.packet_bytes, rel=1e-5
        )
        assert entry.loss_important_error is None
    assert {name for name, entry in said.items() if entry.mean_delay_seconds is None} == {"background"}


def test_what_a_model_does_not_say_is_none(plan: Plan) -> None:
    said = predict_port(plan, plan.port_profiles[0], model="paper")["gradient-0"]
    assert said.mean_delay_seconds is said.p50_delay_seconds is said.mark_share is None


def test_simulated_figures_have_an_error(plan: Plan) -> None:
    profile = plan.port_profiles[0]
    said = predict_port(plan, profile, load=1.3, model="simulate", simulation=SHORT)["gradient-2"]
    assert said.loss_important > 0
    assert said.loss_important_error is not None
    assert said.loss_important_error > 0
    again = predict_port(plan, profile, load=1.3, model="simulate", simulation=SHORT)["gradient-2"]
    assert said == again


def test_an_alpha_has_the_length_at_which_its_queue_rests(plan: Plan) -> None:
    profile = _with_limit(plan.port_profiles[0], AlphaLimit(1), pool_bytes=600_000)
    _, _, thresholds = port_problem(plan, profile)
    assert thresholds[4].limit_packets == pytest.approx(400_000 / profile.packet_bytes)
    as_bytes = predict_port(plan, profile, model="paper")["gradient-2"]
    larger = _with_limit(plan.port_profiles[0], AlphaLimit(1), pool_bytes=900_000)
    assert predict_port(plan, larger, model="paper")["gradient-2"].loss_important <= as_bytes.loss_important


def test_an_alpha_of_an_unknown_pool(plan: Plan) -> None:
    with pytest.raises(UserInputError, match="has no length: the pool's size is not known"):
        port_problem(plan, _with_limit(plan.port_profiles[0], AlphaLimit(1)))


def test_without_a_limit_the_buffer_bounds_a_queue(plan: Plan) -> None:
    profile = _with_limit(plan.port_profiles[0], Unlimited())
    _, _, thresholds = port_problem(plan, profile)
    assert thresholds[4].limit_packets == profile.buffer_bytes / profile.packet_bytes


def test_an_impossible_load_names_its_queue(plan: Plan) -> None:
    with pytest.raises(UserInputError, match=r"^queues\[2\]\.load: "):
        predict_port(plan, plan.port_profiles[0], load=float("nan"))
    with pytest.raises(UserInputError, match="unknown loss model 'tarot'"):
        predict_port(plan, plan.port_profiles[0], model="tarot")
