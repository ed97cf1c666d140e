"""The clocks that agents read: how fine, how fast, and whether somebody sets them meanwhile."""

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_READINGS: Final = 2_000
_TRIES: Final = 5
STEP_NS: Final = 1_000_000
"""Beyond what the kernel slews: somebody has set the clock."""
SLEW: Final = 600e-6
"""adjtime and NTP slew by 500 parts in a million at most (ntp_adjtime(3)); a little more for readings."""


@dataclass(frozen=True, slots=True)
class ClockQuality:
    """Of the monotonic clock, with which agents stamp datagrams."""

    resolution_ns: int
    """Smallest step seen."""
    reading_ns: float
    """What reading it takes, Python included."""


@dataclass(frozen=True, slots=True)
class ClockChange:
    """Of the time of day against the monotonic clock, over an examination."""

    elapsed_ns: int
    change_ns: int

    @property
    def is_step(self) -> bool:
        """Larger than any slewing explains."""
        return abs(self.change_ns) > STEP_NS + SLEW * self.elapsed_ns


class ClockWatch:
    """Compares the time of day with the monotonic clock, from its making on."""

    def __init__(self) -> None:
        self._began_ns, self._offset_ns = _offset()

    def change(self) -> ClockChange:
        """Since it was made."""
        now_ns, offset_ns = _offset()
        return ClockChange(now_ns - self._began_ns, offset_ns - self._offset_ns)


def clock_quality() -> ClockQuality:
    """Read the clock some thousand times."""
    began_ns = time.monotonic_ns()
    readings = [time.monotonic_ns() for _ in range(_READINGS)]
    elapsed_ns = time.monotonic_ns() - began_ns
    steps = [later - earlier for earlier, later in pairwise(readings)]
    return ClockQuality(min((step for step in steps if step), default=elapsed_ns), elapsed_ns / _READINGS)


def _offset() -> tuple[int, int]:
    """(monotonic, time of day less monotonic), of the try that was interrupted least."""
    tries = []
    for _ in range(_TRIES):
        before_ns = time.monotonic_ns()
        day_ns = time.time_ns()
        after_ns = time.monotonic_ns()
        middle_ns = (before_ns + after_ns) // 2
        tries.append((after_ns - before_ns, middle_ns, day_ns - middle_ns))
    _, middle_ns, offset_ns = min(tries)
    return middle_ns, offset_ns
