"""The drop-or-mark decision, compiled: every simulator of packets calls it."""

from typing import Final

from mltswitch.queueing.jit import jit

FORWARD, MARK, DROP_UNIMPORTANT, DROP_LIMIT = range(4)
"""The verdicts, in the order of `decision.Decision`."""
NO_THRESHOLD: Final = float("inf")


@jit
def verdict(length: float, average: float, is_important: bool, threshold: float, limit: float) -> int:
    """`decision.decide`, the threshold S seen by the average."""
    if length >= limit:
        return DROP_LIMIT
    if average < threshold:
        return FORWARD
    return MARK if is_important else DROP_UNIMPORTANT


@jit
def has_room(length: float, size: float, alpha: float, used: float, memory: float, is_busy: bool) -> bool:
    """Whether shared memory takes one more packet, before thresholds are asked.

    Args:
        length: of the packet's queue.
        size: of the packet, in the same unit.
        alpha: of a dynamic limit, times the free memory; infinite where there is none.
        used: of the memory, by all its queues.
        memory: that there is.
        is_busy: the line transmits, so that the packet has to wait.
    """
    if is_busy and used + size > memory:
        return False
    return not length >= alpha * (memory - used)
