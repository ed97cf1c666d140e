"""Times of the day, which the kernel stamps packets with, as times of the monotonic clock."""

import time
from collections.abc import Callable
from typing import Final

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


class Clocks:
    """The difference between the two, read anew for each batch: the clock of the day is slewed and set."""

    def __init__(
        self,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        of_day_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._of_day_ns = of_day_ns
        self._difference_ns = self._read()[0]

    def on_ours(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Times of the day as monotonic ones, not in the future.

        Now, where that cannot be said: a time is 0, or the clock of the day was set since the last call.
        """
        difference_ns, now_ns = self._read()
        was_set = abs(difference_ns - self._difference_ns) > STEP_NS
        self._difference_ns = difference_ns
        if was_set:
            return np.full(len(times_ns), now_ns)
        ours_ns = times_ns - difference_ns
        ours_ns[(ours_ns > now_ns) | (ours_ns < now_ns - LONGEST_WAIT_NS)] = now_ns
        return ours_ns

    def _read(self) -> tuple[int, int]:
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
