"""Deadlines of open transfers; memory for no more than twice as many as are open."""

from hypothesis import given
from hypothesis import strategies as st

from mltswitch.hostagent.transport.deadlines import LEAST_KEPT, Deadlines
from mltswitch.hostagent.transport.interfaces import Direction, TransferKey

Entry = tuple[int, TransferKey, Direction]


def entry(number: int, deadline_ns: int) -> Entry:
    return deadline_ns, TransferKey(number, 1), Direction.SEND if number % 2 else Direction.RECEIVE


def test_transfers_that_ended_early_are_forgotten() -> None:
    open_ones: set[tuple[Direction, TransferKey]] = set()
    deadlines = Deadlines(lambda direction, key: (direction, key) in open_ones)
    kept = entry(0, 10**15)
    open_ones.add((kept[2], kept[1]))
    deadlines.add(*kept)
    for number in range(1, 20_000):
        _, key, direction = entry(number, 0)
        open_ones.add((direction, key))
        deadlines.add(10**12 + number, key, direction)
        open_ones.remove((direction, key))
        assert len(deadlines) <= LEAST_KEPT + 1
    assert (kept[1], kept[2]) in list(deadlines.take_passed(10**16))


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.booleans()), max_size=600),
    st.lists(st.integers(0, 1000), max_size=5),
)
def test_open_ones_pass_in_their_order_and_none_is_lost(
    posts: list[tuple[int, bool]], instants: list[int]
) -> None:
    open_ones: set[tuple[Direction, TransferKey]] = set()
    deadlines = Deadlines(lambda direction, key: (direction, key) in open_ones)
    expected: list[Entry] = []
    for number, (deadline_ns, stays) in enumerate(posts):
        _, key, direction = entry(number, deadline_ns)
        open_ones.add((direction, key))
        deadlines.add(deadline_ns, key, direction)
        if stays:
            expected.append((deadline_ns, key, direction))
        else:
            open_ones.remove((direction, key))
    for now_ns in [*sorted(instants), 1001]:
        passed = [place for place in deadlines.take_passed(now_ns) if (place[1], place[0]) in open_ones]
        due = [one for one in expected if one[0] <= now_ns]
        assert sorted(passed, key=repr) == sorted([(key, direction) for _, key, direction in due], key=repr)
        expected = [one for one in expected if one[0] > now_ns]
        following = deadlines.next_ns()
        assert following is None or following > now_ns
    assert deadlines.next_ns() is None
