"""Many priorities in two queues."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent.tagging import TwoQueues

HIGH, LOW = 34, 10


@given(
    events=st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=60),
    foremost=st.integers(1, 4),
)
def test_the_foremost_unfinished_layers_are_high(events: list[tuple[bool, int]], foremost: int) -> None:
    queues = TwoQueues(HIGH, LOW, foremost)
    running: Counter[int] = Counter()
    for starts, layer in events:
        if starts:
            queues.started(layer)
            running[layer] += 1
        elif running[layer]:
            queues.finished(layer)
            running[layer] -= 1
        else:
            with pytest.raises(ValueError, match=f"layer {layer} has ended"):
                queues.finished(layer)
        unfinished = sorted(entry for entry, count in running.items() if count)
        for asked in range(8):
            before = [entry for entry in unfinished if entry < asked]
            assert queues.dscp(asked) == (HIGH if len(before) < foremost else LOW)


def test_the_backward_pass() -> None:
    queues = TwoQueues(HIGH, LOW)
    sources = [queues.of_layer(layer) for layer in range(3)]
    queues.started(2)
    assert sources[2]() == HIGH
    queues.started(1)
    queues.started(0)
    assert [source() for source in sources] == [HIGH, LOW, LOW]
    queues.finished(0)
    assert [source() for source in sources][1:] == [HIGH, LOW]
    queues.finished(1)
    assert sources[2]() == HIGH


def test_threads() -> None:
    queues = TwoQueues(HIGH, LOW, 2)

    def send_often(layer: int) -> set[int]:
        seen = set()
        for _ in range(2000):
            queues.started(layer)
            seen.add(queues.dscp(layer))
            queues.finished(layer)
        return seen

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(send_often, range(4)))
    assert seen[0] == seen[1] == {HIGH}
    with pytest.raises(ValueError, match="has ended more often"):
        queues.finished(3)


def test_what_makes_no_sense() -> None:
    with pytest.raises(UserInputError, match=r"^foremost: 0 "):
        TwoQueues(HIGH, LOW, 0)
    with pytest.raises(UserInputError, match="both queues have DSCP 34"):
        TwoQueues(HIGH, HIGH)
    with pytest.raises(UserInputError, match="routing protocols"):
        TwoQueues(48, LOW)
    with pytest.raises(UserInputError, match="no DSCP 64"):
        TwoQueues(HIGH, 64)
    wrong: tuple[Any, ...] = ("x", True, None)
    for value in wrong:
        with pytest.raises(UserInputError, match=r"^dscp: there is no DSCP"):
            TwoQueues(value, LOW)
        with pytest.raises(UserInputError, match=r"^foremost: "):
            TwoQueues(HIGH, LOW, value)
