"""The search for the longest packet, and the drift of clocks: figures alone."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.hostagent.doctor.conversation import RoundTrip
from mltswitch.hostagent.doctor.examination import SEARCH_SIZES, drift_between, narrowed, sizes_between

LONGEST = 16_356


@settings(max_examples=200)
@given(st.integers(64, LONGEST), st.integers(65, LONGEST))
def test_the_longest_is_found_in_few_steps(fits: int, high: int) -> None:
    low, high = 64, max(high, 66)
    bracket, steps = (low, high), 0
    while bracket[1] - bracket[0] > 1:
        sizes = sizes_between(*bracket)
        assert len(sizes) <= SEARCH_SIZES
        assert all(bracket[0] < size < bracket[1] for size in sizes)
        assert sizes[-1] == bracket[1] - 1
        bracket = narrowed(bracket, sizes, {size for size in sizes if size <= fits})
        steps += 1
    assert bracket[0] == max(low, min(fits, high - 1))
    assert steps <= 5


def test_a_path_that_takes_everything_needs_one_step() -> None:
    sizes = sizes_between(64, 1473)
    assert narrowed((64, 1473), sizes, set(sizes)) == (1472, 1473)


def test_a_short_one_that_was_lost_does_not_mislead() -> None:
    sizes = sizes_between(64, 1473)
    assert narrowed((64, 1473), sizes, set(sizes[3:])) == (1472, 1473)


@settings(max_examples=100)
@given(
    st.floats(-2000, 2000),
    st.integers(1_000, 1_000_000),
    st.integers(-(10**15), 10**15),
    st.floats(0, 1),
)
def test_drift_is_within_its_uncertainty(parts: float, trip_ns: int, offset_ns: int, forward: float) -> None:
    """Whatever share of a round trip the way there takes."""

    def peer(at_ns: float) -> int:
        return round(at_ns * (1 + parts / 1e6)) + offset_ns

    def trip(at_ns: int, share: float) -> RoundTrip:
        arrives = peer(at_ns + share * trip_ns)
        return RoundTrip(0, at_ns, arrives, arrives, at_ns + trip_ns)

    drift = drift_between([trip(0, forward)], [trip(10**10, 1 - forward)])
    assert drift is not None
    assert abs(drift.parts_per_million - parts) <= drift.uncertainty * 1.01 + 0.01


def test_no_answers_no_drift() -> None:
    assert drift_between([], [RoundTrip(0, 1, 2, 3, 4)]) is None
    assert drift_between([RoundTrip(0, 1, 2, 3, 4)], []) is None
