"""The table of a path's states: every edge, and everything that is no edge."""

from itertools import pairwise, product

import pytest

from mltswitch.hostagent.spraying import standing as module
from mltswitch.hostagent.spraying.settings import MILLISECOND, SECOND, SprayingSettings
from mltswitch.hostagent.spraying.standing import TRANSITIONS, Reason, Standing, State

SETTINGS = SprayingSettings()
ROADS = {State.ACTIVE: (), State.LEFT: (Reason.DEAD,), State.PROBATION: (Reason.DEAD, Reason.ANSWERS)}


@pytest.mark.parametrize(("state", "reason"), list(product(State, Reason)))
def test_every_edge_and_no_other(state: State, reason: Reason) -> None:
    standing = Standing(SETTINGS)
    for step in ROADS[state]:
        standing.change(step, 0)
    assert standing.state is state
    if (state, reason) in TRANSITIONS:
        assert standing.change(reason, 1) is TRANSITIONS[state, reason]
        assert standing.is_in_use == (standing.state is not State.LEFT)
    else:
        with pytest.raises(KeyError):
            standing.change(reason, 1)


def test_the_picture_shows_the_table() -> None:
    lines = [line.split("|") for line in (module.__doc__ or "").splitlines() if line.count("|") == 2]
    shown = [(first.strip(), last.strip()) for first, _, last in lines[1:]]
    edges = {(before.value, after.value) for (before, _), after in TRANSITIONS.items()}
    assert set(shown) == edges
    assert len(shown) == len(
        {(a, r in {Reason.DEAD, Reason.GREY} or r, b) for (a, r), b in TRANSITIONS.items()}
    )


def probed(standing: Standing, now_ns: int, *, is_answered: bool) -> tuple[int, bool]:
    """The next probe leaves when it is due; (when, whether the path may be used again)."""
    now_ns = max(now_ns, standing.next_probe_ns)
    standing.probe(now_ns, 10 * MILLISECOND)
    return now_ns, is_answered and standing.answered(now_ns, now_ns + MILLISECOND)


def test_a_dead_path_returns_after_three_answers_in_a_row() -> None:
    standing = Standing(SETTINGS)
    standing.change(Reason.DEAD, 0)
    now_ns, results = 0, []
    for is_answered in (False, True, True, False, True, True, True):
        now_ns, result = probed(standing, now_ns, is_answered=is_answered)
        results.append(result)
    assert results == [False] * 6 + [True]


def test_probes_of_a_dead_path_become_rare_but_do_not_end() -> None:
    standing = Standing(SETTINGS)
    standing.change(Reason.DEAD, 0)
    times = [0]
    for _ in range(12):
        times.append(probed(standing, times[-1], is_answered=False)[0])
    gaps = [after - before for before, after in pairwise(times[1:])]
    assert gaps[:5] == [50 * MILLISECOND << step for step in range(5)]
    assert gaps[-1] == SETTINGS.probe_maximum_ns


def test_an_answer_to_an_earlier_probe_is_none_to_the_last() -> None:
    standing = Standing(SETTINGS)
    standing.change(Reason.DEAD, 0)
    first, _ = probed(standing, 0, is_answered=False)
    probed(standing, first, is_answered=False)
    assert not standing.answered(first, first + SECOND)
    assert standing.answers_needed == SETTINGS.return_probes


def test_a_path_that_comes_and_goes_has_to_do_more_each_time() -> None:
    standing = Standing(SETTINGS)
    needed, pauses, now_ns = [], [], 0
    for _ in range(8):
        standing.change(Reason.GREY, now_ns)
        needed.append(standing.answers_needed)
        pauses.append((standing.next_probe_ns - now_ns) // MILLISECOND)
        is_back = False
        while not is_back:
            now_ns, is_back = probed(standing, now_ns, is_answered=True)
        standing.change(Reason.ANSWERS, now_ns)
        now_ns += SECOND
    assert needed == [20, 40, 80, 160, 320, 640, 640, 640]
    assert pauses == [200, 400, 800, 1600, 3200, 5000, 5000, 5000]
    assert (standing.times_left, standing.times_returned) == (8, 8)


def test_a_minute_of_use_is_forgiveness() -> None:
    standing = Standing(SETTINGS)
    for leave_ns in (0, SECOND):
        standing.change(Reason.DEAD, leave_ns)
        standing.change(Reason.NEEDED, leave_ns + 1)
    standing.change(Reason.DEAD, SECOND + 1 + SETTINGS.forget_ns)
    assert standing.answers_needed == SETTINGS.return_probes
