"""Curves: never falling, exact sums, the default's figures."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mltswitch.profile import Curve, ModelProfile, bundled_profile, default_sensitivity, queue_curves
from mltswitch.profile.curves import weighted_sum
from tests.profile import strategies

LOSSES = np.linspace(0, 1, 201)
ROUNDING = 1e-9


def curve(points: strategies.Points) -> Curve:
    ratios, rounds = zip(*points, strict=True)
    return Curve(ratios, rounds)


def test_values_between_and_beyond_the_points() -> None:
    measured = curve(((0.0, 0.0), (0.1, 0.0), (0.3, 0.4)))
    assert measured([0.0, 0.05, 0.1, 0.2, 0.3]) == pytest.approx([0, 0, 0, 0.2, 0.4])
    assert measured(0.8) == pytest.approx(0.4 + 0.5 * 2)
    assert measured(np.zeros((2, 3))).shape == (2, 3)


@given(strategies.points())
def test_never_falls_and_starts_at_zero(points: strategies.Points) -> None:
    values = curve(points)(LOSSES)
    assert values[0] == 0
    assert np.all(np.diff(values) >= -ROUNDING)


@given(st.lists(st.tuples(st.floats(0, 1), strategies.points()), max_size=8))
def test_a_sum_is_exact_at_the_points_of_all_parts(
    parts: list[tuple[float, strategies.Points]],
) -> None:
    pairs = [(weight, curve(points)) for weight, points in parts]
    whole = weighted_sum(pairs)
    assert set(whole.loss_ratios) == {0.0, 1.0}.union(*(part.loss_ratios for _, part in pairs))
    for losses in (LOSSES, np.array(whole.loss_ratios)):
        expected = sum((weight * part(losses) for weight, part in pairs), np.zeros(len(losses)))
        assert whole(losses) == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING)


def test_a_steep_part_that_ends_leaves_nothing_behind() -> None:
    steep = curve(((0.0, 0.0), (1e-9, 1e9), (0.5, 1e9)))
    flat = curve(((0.0, 0.0), (0.5, 0.0), (1.0, 1e-9)))
    whole = weighted_sum([(1.0, steep), (1.0, flat)])
    assert whole.extra_rounds[1] == whole.extra_rounds[2] == pytest.approx(1e9)


def test_a_sum_of_many_parts() -> None:
    tolerances = np.linspace(0.001, 0.5, 30_000)
    parts = [(1.0, curve(((0.0, 0.0), (float(t), 0.0), (1.0, 1.0)))) for t in tolerances]
    whole = weighted_sum(parts)
    assert float(whole(1.0)) == pytest.approx(len(parts))


@given(strategies.profiles(), st.data())
def test_a_queue_is_the_sum_of_its_parts(profile: ModelProfile, data: st.DataObject) -> None:
    last = data.draw(st.integers(0, len(profile.layers) - 1))
    first = data.draw(st.integers(0, last))
    whole = queue_curves(profile, first, last)
    parts = [queue_curves(profile, layer, layer) for layer in range(first, last + 1)]
    for kind in (0, 1):
        expected = sum(part[kind](LOSSES) for part in parts)
        assert whole[kind](LOSSES) == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING)
        assert np.all(np.diff(whole[kind](LOSSES)) >= -ROUNDING)


@given(strategies.profiles())
def test_all_layers_cost_what_was_measured(profile: ModelProfile) -> None:
    unimportant, important = queue_curves(profile, 0, len(profile.layers) - 1)
    measured = profile.sensitivity.curves
    for total, kind in ((unimportant, False), (important, True)):
        expected = sum(entry.curve(important=kind)(LOSSES) for entry in measured)
        assert total(LOSSES) == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING)


def test_a_part_answers_for_its_share_of_the_bytes() -> None:
    profile = ModelProfile.model_validate(strategies.document())
    front, back = (queue_curves(profile, layer, layer)[1] for layer in (0, 1))
    assert float(front(0.1)) == pytest.approx(0.25)
    assert float(back(0.1)) == pytest.approx(0.75)


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (1, 0), (0, 2)])
def test_layers_that_do_not_exist(first: int, last: int) -> None:
    profile = ModelProfile.model_validate(strategies.document())
    with pytest.raises(ValueError, match="not within 0-1"):
        queue_curves(profile, first, last)


def tolerances(profile: ModelProfile, layer: int) -> tuple[float, float]:
    """The largest loss without extra rounds, as the curves' points say."""
    kinds = queue_curves(profile, layer, layer)
    return tuple(
        max(ratio for ratio, rounds in zip(kind.loss_ratios, kind.extra_rounds, strict=True) if rounds == 0)
        for kind in kinds
    )  # type: ignore[return-value]  # two kinds


def test_default_of_resnet50_is_the_papers() -> None:
    profile = bundled_profile("resnet50")
    front = [layer / len(profile.layers) < 0.2 for layer in range(len(profile.layers))]
    last = len(profile.layers) - 1
    assert tolerances(profile, 0) == pytest.approx((0.05 * 0.20 / 0.024, 0.05 * 0.004 / 0.024), rel=1e-5)
    assert tolerances(profile, last) == pytest.approx((0.003 * 0.20 / 0.024, 0.003 * 0.004 / 0.024), rel=1e-5)
    assert tolerances(profile, sum(front) - 2) == tolerances(profile, 0)
    assert tolerances(profile, last // 2) < tolerances(profile, 0)
    assert tolerances(profile, last // 2) > tolerances(profile, last)


def test_a_tolerance_above_one_costs_nothing() -> None:
    unimportant, important = queue_curves(bundled_profile("vgg16"), 0, 0)  # 5 % · 20 % / 0.8 % = 1.25
    assert float(unimportant(1.0)) == 0
    assert float(important(1.0)) > 0


@pytest.mark.parametrize("name", ["resnet50", "t5-3b"])
def test_default_says_that_it_is_one(name: str) -> None:
    sensitivity = bundled_profile(name).sensitivity
    assert sensitivity.is_default
    assert sensitivity.extra_rounds_per_loss == 1
    assert sensitivity.unimportant_share == 0.5
    assert sensitivity.provenance.startswith("Default, not a measurement of this model")
    assert "extra_rounds_per_loss = 1, is an assumption" in sensitivity.provenance
    listed = "2.4% for the whole model (table 1)" in sensitivity.provenance
    assert listed == (name == "resnet50")
    assert ("table 1 does not list it" in sensitivity.provenance) == (name == "t5-3b")


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.floats(0.0005, 0.05))
def test_default_costs_the_stated_slope_whatever_the_layers(sizes: list[int], tolerance: float) -> None:
    """Two losses that lie beyond every tolerance differ in cost as they differ in size."""
    curves = default_sensitivity(sizes, tolerance).curves
    assert [curves[0].first_layer, curves[-1].last_layer] == [0, len(sizes) - 1]
    important = [entry.curve(important=True) for entry in curves]
    least = max(entry.important[-2][0] for entry in curves)
    assume(least < 0.9)
    cost = [sum(float(part(loss)) for part in important) for loss in (least, 1.0)]
    assert cost[1] - cost[0] == pytest.approx(0.5 * (1.0 - least), rel=1e-4)
