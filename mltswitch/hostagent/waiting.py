"""Waiting that a signal can end.

Python looks for signals between its instructions, and a wait in the kernel ends by one. A signal that falls
between the last look and the beginning of the wait does neither: the handler runs when the wait is over.
So no thread that signals are for waits long at a time.
"""

import time
from collections.abc import Callable
from typing import Final

LONGEST_SECONDS: Final = 0.2
"""Longest wait between two looks for signals, which is how late a signal is handled at worst."""


def wait_in_slices(wait: Callable[[float], object], timeout_seconds: float | None) -> bool:
    """Call `wait`, with at most LONGEST_SECONDS each time, until it returns true; False after the timeout.

    It is called at least once, with 0 if no time is left. A timeout of None means no limit.
    """
    until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    while True:
        left = LONGEST_SECONDS if until is None else max(0.0, until - time.monotonic())
        if wait(min(left, LONGEST_SECONDS)):
            return True
        if not left:
            return False
