"""The clock of the day is slewed, set, and read by processes that are interrupted."""

import numpy as np
import pytest

from mltswitch.hostagent.network.clocks import LONGEST_WAIT_NS, Clocks

DAY_NS = 1_700_000_000 * 10**9


class Time:
    """Both clocks; each reading takes a microsecond."""

    def __init__(self) -> None:
        self.now_ns = 10**9
        self.ahead_ns = DAY_NS
        self.pauses: list[int] = []

    def monotonic_ns(self) -> int:
        self.now_ns += 1000
        return self.now_ns

    def of_day_ns(self) -> int:
        self.now_ns += self.pauses.pop(0) if self.pauses else 1000
        return self.now_ns + self.ahead_ns


def arrived_ns(clocks: Clocks, *times_ns: int) -> list[int]:
    found: list[int] = clocks.on_ours(np.array(times_ns, np.int64)).tolist()
    return found


def test_times_of_the_day_become_ours() -> None:
    time = Time()
    clocks = Clocks(time.monotonic_ns, time.of_day_ns)
    time.now_ns = 2 * 10**9
    (found,) = arrived_ns(clocks, DAY_NS + 1_500_000_000)
    assert abs(found - 1_500_000_000) <= 1000


def test_an_interrupted_reading_is_taken_again() -> None:
    time = Time()
    clocks = Clocks(time.monotonic_ns, time.of_day_ns)
    time.pauses = [8_000_000, 3_000_000]
    (found,) = arrived_ns(clocks, DAY_NS + 10**9)
    assert abs(found - 10**9) <= 1000


@pytest.mark.parametrize("step_ns", [5 * 10**9, -5 * 10**9, -20_000_000])
def test_when_the_clock_was_set_everything_arrives_now(step_ns: int) -> None:
    time = Time()
    clocks = Clocks(time.monotonic_ns, time.of_day_ns)
    stamp_ns = DAY_NS + time.now_ns
    time.ahead_ns += step_ns
    assert arrived_ns(clocks, stamp_ns) == [time.now_ns]
    (again,) = arrived_ns(clocks, time.ahead_ns + 10**9)
    assert abs(again - 10**9) <= 1000


def test_what_cannot_be_arrives_now() -> None:
    time = Time()
    clocks = Clocks(time.monotonic_ns, time.of_day_ns)
    future, long_ago, none = DAY_NS + 10**12, DAY_NS + time.now_ns - LONGEST_WAIT_NS - 10**6, 0
    assert arrived_ns(clocks, future, long_ago, none) == [time.now_ns] * 3
