"""Results are taken in the order of their sums."""

from hypothesis import given
from hypothesis import strategies as st

from mltswitch.training.axes import Sum
from mltswitch.training.results import Turns


@given(st.integers(0, 5), st.permutations(range(6)))
def test_each_is_taken_once_after_those_before_it(first: int, order: list[int]) -> None:
    turns, taken = Turns(2), list[int]()
    turns.begin(1, first)
    for number in order:
        total = Sum(1, first + number)
        if not turns.has_come(total, 7):
            continue
        taken.append(total.number)
        while (following := turns.taken(total)) is not None:
            total, step = following
            assert step == 7
            assert turns.has_come(total, step)
            taken.append(total.number)
    assert taken == [*range(first, first + 6)]


def test_pieces_have_turns_of_their_own_and_begin_anew() -> None:
    turns = Turns(2)
    assert not turns.has_come(Sum(0, 1), 3)
    assert turns.has_come(Sum(1, 0), 3)
    turns.begin(0, 0)
    assert turns.taken(Sum(0, 0)) is None, "nobody waits any more"
    assert turns.has_come(Sum(0, 1), 3)
