"""What stands in the pictures: the plan's numbers, predicted and simulated, where they belong."""

from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest

from mltswitch.capabilities import AlphaLimit
from mltswitch.plan import Plan, Prediction
from mltswitch.planning.predict import predict_port
from mltswitch.profile import ModelProfile
from mltswitch.report.figure import LOSS_FLOOR, Figure, drawn_loss, power_of_ten
from mltswitch.report.headroom import bounds, headrooms
from mltswitch.report.losses import loss_figures
from mltswitch.report.margins import headroom_figure, sensitivity_figures
from mltswitch.report.ports import Outcome, PortGroup, port_groups
from mltswitch.report.sweep import ANALYTIC_MODELS, AXES, SIMULATE, Sweep, sweep, sweep_length, sweep_points
from mltswitch.report.tables import loss_table, threshold_table
from mltswitch.report.thresholds import kilobytes, limit_bytes, threshold_figures
from tests.report.conftest import QUICK


@pytest.fixture(scope="module")
def group(small_plan: Plan) -> PortGroup:
    (only,) = port_groups(small_plan, QUICK)
    return only


@pytest.fixture(scope="module")
def load_sweep(group: PortGroup) -> Sweep:
    return sweep(group, "load", (*ANALYTIC_MODELS, SIMULATE), lambda _what: None)


def trace(figure: Figure, name: str) -> dict[str, Any]:
    (found,) = [entry for entry in figure.traces if entry.get("name") == name]
    return found


def test_ports_with_equal_settings_share_pictures(burst_plan: Plan, small_plan: Plan) -> None:
    groups = port_groups(burst_plan, QUICK)
    assert sum(len(group.profiles) for group in groups) == len(burst_plan.port_profiles)
    assert len(groups) == 2
    assert "leaf-up" in groups[0].title + groups[1].title
    assert len(port_groups(small_plan, QUICK)) == 1


def test_plotly_knows_every_setting(
    small_plan: Plan, resnet50: ModelProfile, group: PortGroup, load_sweep: Sweep
) -> None:
    limits = bounds(small_plan, resnet50)
    figures = (
        *threshold_figures(group, "a"),
        *loss_figures(small_plan, load_sweep, limits, "b"),
        *sensitivity_figures(small_plan, limits),
        headroom_figure(headrooms(load_sweep, "paper", limits), "load", "paper", "c"),
    )
    for figure in figures:
        document = _in_colours(figure.document())
        assert go.Figure(document).data  # raises for a name or a value that plotly does not know
        assert figure.label
        assert figure.title


def _in_colours(part: Any) -> Any:
    if isinstance(part, str) and part.startswith("@"):
        return "#000000"
    if isinstance(part, list):
        return [_in_colours(entry) for entry in part]
    if isinstance(part, dict):
        return {name: _in_colours(entry) for name, entry in part.items()}
    return part


def test_bars_end_at_the_thresholds(group: PortGroup) -> None:
    queues, split = threshold_figures(group, "a")
    below, above, plain, _texts = queues.traces
    for number, queue in enumerate(group.profile.queues):
        end = below["x"][number] + above["x"][number] + plain["x"][number]
        assert end == pytest.approx(kilobytes(limit_bytes(queue)))
        assert below["x"][number] == pytest.approx(kilobytes(queue.ecn_threshold_bytes or 0))
    total = sum(entry["x"][0] for entry in split.traces)
    assert total == pytest.approx(kilobytes(group.profile.buffer_bytes), rel=0.01)


def test_bars_of_shared_memory_end_where_a_queue_fills(small_plan: Plan, group: PortGroup) -> None:
    """Limits that are no bytes: the axis follows what queues can hold, of those that do not mark, too."""
    queues = tuple(
        queue.model_copy(update={"limit": AlphaLimit(3 if queue.ecn_threshold_bytes is None else -4)})
        for queue in group.profile.queues
    )
    shared = {"pool_bytes": 16_000_000, "congested_queues": 4, "crowded_bytes": 300_000, "queues": queues}
    profile = group.profile.model_copy(update=shared)
    (picture,) = threshold_figures(replace(group, profiles=(profile,)), "a")
    below, above, plain, _texts = picture.traces
    end = picture.axes["xaxis"]["range"][1]
    for number, queue in enumerate(queues):
        drawn = below["x"][number] + above["x"][number] + plain["x"][number]
        assert drawn == pytest.approx(min(end, kilobytes(profile.length_bytes(queue.limit))))
    assert end == pytest.approx(1.45 * 800)
    assert "with all ports busy a queue gets 300 kB" in picture.label


def test_curves_are_the_models(small_plan: Plan, load_sweep: Sweep, group: PortGroup) -> None:
    figure = loss_figures(small_plan, load_sweep, (), "b")[1]
    for model in ANALYTIC_MODELS:
        curve = trace(figure, f"{model}, unimportant")
        at = curve["x"].index(group.profile.load)
        expected = group.outcome(model).predictions["gradient-1"].loss_unimportant
        assert curve["y"][at] == pytest.approx(max(expected, LOSS_FLOOR), rel=1e-4)
        assert curve["line"]["dash"] == "dash"
        assert trace(figure, f"{model}, important")["line"]["dash"] == "solid"


def test_simulated_points_carry_their_intervals(small_plan: Plan, load_sweep: Sweep) -> None:
    figure = loss_figures(small_plan, load_sweep, (), "b")[1]
    points = trace(figure, "simulated, unimportant")
    last = load_sweep.outcomes[SIMULATE][-1][1].predictions["gradient-1"]
    assert last.loss_unimportant > 0.01  # overload: there is something to see
    assert points["y"][-1] == pytest.approx(last.loss_unimportant, rel=1e-4)
    assert points["error_y"]["array"][-1] == pytest.approx(last.loss_unimportant_error, rel=1e-4)
    assert points["marker"]["symbol"][-1] == "diamond-open"


def test_no_loss_seen_is_an_upper_bound(small_plan: Plan) -> None:
    nothing = Prediction(loss_unimportant=0.0, loss_important=0.0, loss_important_error=2e-4)
    outcome = Outcome({entry.name: nothing for entry in small_plan.classes})
    only = Sweep("burst_packets", 8.0, {SIMULATE: ((16.0, outcome),)})
    points = trace(loss_figures(small_plan, only, (), "b")[0], "simulated, important")
    assert points["y"] == [2e-4]
    assert points["error_y"]["array"] == [0.0]
    assert points["marker"]["symbol"] == ["triangle-down"]
    assert points["text"] == ["none lost; at most 0.0002 (95 %)"]
    assert "0 (≤ 0.0002)" in loss_table(small_plan, only).rows[0][-1]


def test_the_operating_point_stands_on_its_curve(small_plan: Plan, resnet50: ModelProfile) -> None:
    limits = bounds(small_plan, resnet50)
    for figure, entry in zip(sensitivity_figures(small_plan, limits), small_plan.end_to_end, strict=True):
        points = [trace(figure, f"operating point, {kind}") for kind in ("unimportant", "important")]
        assert points[0]["x"][0] == pytest.approx(max(entry.loss_unimportant, 1e-6), rel=1e-3)
        assert sum(point["y"][0] for point in points) == pytest.approx(100 * entry.extra_rounds, rel=1e-3)


def test_the_planned_point_is_always_asked(group: PortGroup) -> None:
    for model in (*ANALYTIC_MODELS, SIMULATE):
        assert group.profile.load in sweep_points(group, "load", model)
        assert group.burst_packets in sweep_points(group, "burst_packets", model)
    steps: list[str] = []
    models = ("paper",)
    for axis in AXES:
        sweep(group, axis, models, steps.append)
    assert len(steps) == sweep_length(group, models)


def test_the_planned_figures_are_those_of_the_plan(group: PortGroup) -> None:
    predictions = group.outcome("paper").predictions
    assert predictions.keys() == {queue.traffic_class for queue in group.profile.queues}
    for queue in group.profile.queues:
        found = predictions[queue.traffic_class]
        assert queue.prediction is not None
        assert found.loss_important == pytest.approx(queue.prediction.loss_important, rel=1e-4, abs=1e-30)


def test_tables_hold_every_number(small_plan: Plan, group: PortGroup, load_sweep: Sweep) -> None:
    rows = threshold_table(group).rows
    assert [row[0] for row in rows] == [entry.name for entry in small_plan.classes]
    losses = loss_table(small_plan, load_sweep)
    assert len(losses.columns) == 2 + len(ANALYTIC_MODELS) + 1
    assert all(len(row) == len(losses.columns) for row in losses.rows)
    assert any("±" in row[-1] for row in losses.rows)


def test_a_model_that_refuses_says_why(small_plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    from mltswitch.errors import UserInputError
    from mltswitch.report import ports

    def refuse(*given: Any, model: str, **more: Any) -> Any:
        if model == "paper":
            raise UserInputError("bursts are beyond it", where="queues[2].arrivals")
        return predict_port(*given, model=model, **more)

    monkeypatch.setattr(ports, "predict_port", refuse)
    (group,) = port_groups(small_plan, QUICK)
    assert group.outcome("paper").reason == "queues[2].arrivals: bursts are beyond it"
    assert group.outcome("completion").predictions


def test_axis_labels() -> None:
    assert [power_of_ten(power) for power in (-12, -1, 0)] == ["10⁻¹²", "10⁻¹", "1"]
    assert drawn_loss(0.0) == LOSS_FLOOR
    assert drawn_loss(0.123456789) == 0.12346
