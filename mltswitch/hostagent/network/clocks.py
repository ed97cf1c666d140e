"""Times of the day, which the kernel stamps packets with, as times of the monotonic clock."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

NEAR_NS: Final = 20_000
"""Two readings so close together were not interrupted."""
TRIES: Final = 5
STEP_NS: Final = 1_000_000
"""A larger change of the difference between the clocks is a clock that was set, or a reading that was
interrupted each time."""
LONGEST_WAIT_NS: Final = 10 * 10**9
"""In a socket; what seems longer was stamped by another clock."""


class Reading(NamedTuple):
    """Of both clocks."""

    ahead_ns: int
    """The clock of the day before ours."""
    longest_wait_ns: int
    """What seems to have waited longer arrived now; 0: all did."""
    now_ns: int


class Clocks:
    """The difference between the two, read anew for each batch: the clock of the day is slewed and set."""

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        of_day_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._of_day_ns = of_day_ns
        self._ahead_ns = self._closest()[0]

    def read(self) -> Reading:
        """How to read times of the day; none can be read, if that clock was set since the last call."""
        ahead_ns, now_ns = self._closest()
        was_set = abs(ahead_ns - self._ahead_ns) > STEP_NS
        self._ahead_ns = ahead_ns
        return Reading(ahead_ns, 0 if was_set else LONGEST_WAIT_NS, now_ns)

    def on_ours(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Times of the day as monotonic ones, not in the future.

        Now, where that cannot be said: a time is 0, or the clock of the day was set since the last call.
        """
        ahead_ns, longest_wait_ns, now_ns = self.read()
        ours_ns = times_ns - ahead_ns
        ours_ns[(ours_ns > now_ns) | (ours_ns < now_ns - longest_wait_ns)] = now_ns
        return ours_ns

    def _closest(self) -> tuple[int, int]:
        """(clock of the day less ours, our time), of the closest of a few readings."""
        closest: tuple[int, int, int] | None = None
        for _ in range(TRIES):
            before_ns, of_day_ns, after_ns = self._monotonic_ns(), self._of_day_ns(), self._monotonic_ns()
            reading = after_ns - before_ns, of_day_ns - (before_ns + after_ns) // 2, after_ns
            closest = reading if closest is None else min(closest, reading)
            if closest[0] <= NEAR_NS:
                break
        assert closest is not None  # noqa: S101  (there is one try at least)
        return closest[1:]
