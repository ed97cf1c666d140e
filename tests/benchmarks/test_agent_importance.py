"""What the importance benchmark makes of the switch's counts."""

import pytest

from benchmarks.agent_importance import Turn, figures, overload_queues
from benchmarks.agent_incast import RATE_BPS


def turn(important: int, dropped: int, unimportant_dropped: int, marked: int = 0) -> Turn:
    counts = {
        "important": important,
        "important_dropped": dropped,
        "unimportant": 1000,
        "unimportant_dropped": unimportant_dropped,
        "marked": marked,
    }
    return Turn(2.0, counts)


def test_the_last_gradient_class_marks_at_half_of_its_limit() -> None:
    queues, place = overload_queues()
    assert place == len(queues) - 2
    assert queues[place].threshold_bytes == queues[place].limit_bytes // 2


def test_figures() -> None:
    queues, place = overload_queues()
    found = figures([turn(1000, 10, 600, 500)], [turn(1000, 330, 330)], queues[place])
    assert found["plan_important_lost"] == 0.01
    assert found["plan_unimportant_lost"] == 0.6
    assert found["off_important_lost"] == found["off_unimportant_lost"] == 0.33
    assert found["important_saved"] == pytest.approx(0.32)
    assert found["plan_marked"] == 0.5
    assert found["important_share"] == 0.5
    assert found["offered_load"] == pytest.approx(2000 * 1514 * 8 / 2.0 / RATE_BPS)
    assert found["limit_bytes"] == queues[place].limit_bytes


def test_nothing_came() -> None:
    queues, place = overload_queues()
    nothing = Turn(1.0, dict.fromkeys(turn(0, 0, 0).counts, 0))
    assert figures([nothing], [nothing], queues[place])["plan_important_lost"] == 0.0
