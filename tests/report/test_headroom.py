"""Where a bound breaks along a sweep."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.plan import Plan, Prediction
from mltswitch.profile import ModelProfile
from mltswitch.report.headroom import Bound, Headroom, bounds, headrooms, sees
from mltswitch.report.margins import break_text
from mltswitch.report.ports import Outcome
from mltswitch.report.sweep import Sweep

LOADS = (0.4, 0.6, 0.8, 1.0, 1.2)


def sweep_of(losses: tuple[float, ...], simulated: tuple[float, ...] = ()) -> Sweep:
    """The same losses for both kinds of packets of the first gradient class, planned at load 0.8."""

    def points(values: tuple[float, ...]) -> tuple[tuple[float, Outcome], ...]:
        return tuple(
            (load, Outcome({"gradient-0": Prediction(loss_unimportant=loss, loss_important=loss)}))
            for load, loss in zip(LOADS, values, strict=False)
        )

    return Sweep("load", 0.8, {"paper": points(losses), "simulate": points(simulated)})


@pytest.fixture(scope="module")
def bound(small_plan: Plan, resnet50: ModelProfile) -> Bound:
    return bounds(small_plan, resnet50)[0]


def found(bound: Bound, losses: tuple[float, ...], at: float, *more: float) -> Headroom:
    sweep = sweep_of(losses, more)
    (entry,) = headrooms(sweep, "paper", (replace(bound, port_loss=at),))
    return entry


def test_bounds_are_where_extra_rounds_begin(small_plan: Plan, resnet50: ModelProfile) -> None:
    limits = bounds(small_plan, resnet50)
    assert [(entry.traffic_class, entry.is_important) for entry in limits] == [
        (entry.name, flag) for entry in small_plan.gradient_classes for flag in (False, True)
    ]
    for entry in limits:
        assert 0 < entry.tolerance < 1
        assert float(entry.curve(entry.tolerance)) == 0
        assert float(entry.curve(entry.tolerance * 1.01)) > 0
        assert 1 - (1 - entry.port_loss) ** small_plan.hops == pytest.approx(entry.tolerance)


def test_breaks_between_the_points_around_the_bound(bound: Bound) -> None:
    losses = (1e-6, 1e-5, 1e-4, 1e-2, 1e-1)
    entry = found(bound, losses, 1e-3)
    assert entry.breaks_at == pytest.approx((0.8 * 1.0) ** 0.5)  # half way between the logarithms
    assert entry.holds
    broken = found(bound, losses, 1e-5)
    assert broken.breaks_at == pytest.approx(0.6)
    assert not broken.holds


def test_never_and_always(bound: Bound) -> None:
    losses = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    never = found(bound, losses, 0.5)
    assert never.breaks_at is None
    assert never.holds
    assert "holds up to 1.2" in break_text(never)
    always = found(bound, losses, 1e-8)
    assert always.breaks_at == 0.4
    assert "broken at 0.4 already" in break_text(always)
    nothing = found(replace(bound, tolerance=0.0), (0.0, 0.0, 0.1, 0.2, 0.3), 0.0)
    assert nothing.breaks_at == 0.6
    assert "no loss is tolerated" in break_text(nothing)


def test_the_first_simulated_point_above(bound: Bound) -> None:
    entry = found(bound, (0.0,) * 5, 1e-3, 0.0, 1e-4, 2e-3, 1e-2)
    assert (entry.breaks_at, entry.simulated_break) == (None, 0.8)
    assert found(bound, (0.0,) * 5, 1e-3).simulated_break is None


@given(
    losses=st.lists(st.floats(0, 1), min_size=5, max_size=5).map(lambda values: tuple(sorted(values))),
    at=st.floats(1e-9, 1),
    factor=st.floats(1, 100),
)
def test_a_wider_bound_breaks_no_earlier(
    bound: Bound, losses: tuple[float, ...], at: float, factor: float
) -> None:
    tight = found(bound, losses, at).breaks_at
    wide = found(bound, losses, min(1.0, at * factor)).breaks_at
    if tight is None:
        assert wide is None
    else:
        assert LOADS[0] <= tight <= LOADS[-1]
        assert wide is None or wide >= tight - 1e-12


def test_a_model_that_says_nothing_has_no_headroom(bound: Bound) -> None:
    sweep = Sweep("load", 0.8, {"paper": ((0.8, Outcome(reason="cannot")),)})
    assert headrooms(sweep, "paper", (bound,)) == ()
    assert sweep.reasons() == {"paper": "cannot"}


def test_a_model_that_does_not_see_what_is_swept() -> None:
    assert not sees(sweep_of((0.1,) * 5), "paper")
    assert sees(sweep_of((0.1, 0.1, 0.1, 0.1, 0.2)), "paper")
