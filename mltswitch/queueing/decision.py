"""The drop-or-mark decision, stated once: what a switch does with a packet that arrives at a queue."""

from enum import Enum


class Decision(Enum):
    """The fate of one packet that arrives at a queue."""

    FORWARD = "forward"
    MARK = "mark"
    DROP_UNIMPORTANT = "drop-unimportant"
    DROP_LIMIT = "drop-limit"

    @property
    def is_admitted(self) -> bool:
        """Whether the packet joins the queue."""
        return self in (Decision.FORWARD, Decision.MARK)


def decide(waiting: float, *, is_capable: bool, ecn_threshold: float | None, limit: float) -> Decision:
    """MLT section 5.2: above the ECN threshold S mark what is ECN-capable and drop what is not; at the
    limit L drop everything.

    Args:
        waiting: length of the queue before the packet joins, without the one in transmission; same unit as
            the thresholds (packets or bytes).
        is_capable: ECT(0), ECT(1) or CE: an important packet.
        ecn_threshold: S; None for classes that neither mark nor drop early.
        limit: L, the length from which on every packet is dropped.
    """
    if waiting >= limit:
        return Decision.DROP_LIMIT
    if ecn_threshold is None or waiting < ecn_threshold:
        return Decision.FORWARD
    return Decision.MARK if is_capable else Decision.DROP_UNIMPORTANT
