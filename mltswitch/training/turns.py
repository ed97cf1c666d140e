"""Results of a piece that are taken in the order of their sums, however late those before them come."""

from mltswitch.training.axes import Sum


class Turns:
    """Of one node: which result of each piece is next, and whose turn has not come yet.

    Args:
        pieces: how many there are.
    """

    def __init__(self, pieces: int) -> None:
        self._next = [0] * pieces
        self._early: dict[Sum, int] = {}
        """Results that are here before their turn, and the step that takes each."""

    def begin(self, piece: int, number: int) -> None:
        """The next result of a piece is that of this sum; none waits any more."""
        self._next[piece] = number
        self._early = {total: step for total, step in self._early.items() if total.piece != piece}

    def has_come(self, total: Sum, step: int) -> bool:
        """Whether a result is taken now; else its step does so when `taken` says it."""
        if total.number <= self._next[total.piece]:
            return True
        self._early[total] = step
        return False

    def taken(self, total: Sum) -> tuple[Sum, int] | None:
        """A result has been taken: the one that waited for this, and its step."""
        self._next[total.piece] = total.number + 1
        step = self._early.pop(total.next, None)
        return None if step is None else (total.next, step)
