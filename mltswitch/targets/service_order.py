"""When each code point changes its queue, and which queues of a port are weighted meanwhile.

Where each line takes effect at once, code points change one after the other, so between two plans packets are
led by a bit of both. Of two code points that arrive at one port, one of which is served before the other at
one end and not after it at the other, it is not to be served after it in between.

Where the queues that packets take are strict, but for the lowest, any two code points can keep that: first
those that move down, the lowest new queue first; then those that move up, the highest new queue first. Of
those with the same new queue, first comes from the lowest old one who moves down, and from the highest who
moves up. For let a code point A be ahead of B. That A, moved first, falls behind B is only possible where
both move down, and then B moves first; that B, moved first, gets ahead of A only where both move up, and then
A does.

Weighted queues are served after all strict ones, however high. So a port that has packets in several of them,
or in one above a strict one, has a boundary: queues up to it are weighted while code points move, those above
are strict, and whoever is ahead in either of the ends' orders is not behind in this one. The highest weighted
queue with packets is the least boundary, because strict service would lift its packets over others. It has to
be higher where packets of a strict queue below it and of a weighted queue end up together: on this port the
former are ahead, on others, which are strict, the latter, and no order of their moves suits both.
"""

from collections.abc import Collection, Set
from typing import Final

Moment = tuple[int, int, int]
"""The sort key of a move: lower ones come first."""
Move = tuple[int, int]
"""The old and the new queue of a code point; equal where it stays."""
NO_BOUNDARY: Final = -1


def moment_of(old: int, new: int) -> Moment:
    """The sort key of a code point's move from one queue to another."""
    return moment_down(old, new) if new < old else moment_up(old, new)


def moment_down(old: int, new: int) -> Moment:
    """The sort key of a move among those to a lower queue, or to the same."""
    return 0, new, old


def moment_up(old: int, new: int) -> Moment:
    """The sort key of a move among those to a higher queue, or to the same."""
    return 1, -new, -old


def boundary(strict: Set[int], occupied: Set[int], planned: Set[int], moves: Collection[Move]) -> int:
    """The highest queue of a port that is weighted while code points move; NO_BOUNDARY: none has to be.

    `strict` are the port's present strict queues, `occupied` those that packets take at present, `planned`
    those of the plan.
    """
    weighted = occupied - strict
    if weighted <= {min(occupied | planned)}:
        return NO_BOUNDARY
    highest = max(weighted)
    if not occupied & strict:
        # Nobody is ahead of anybody, so nobody loses by waiting for strict service until all have moved.
        highest = max(highest, *(planned - strict), NO_BOUNDARY)
    while joined := _joined_above(highest, strict, moves):
        highest = max(joined)
    return highest


def _joined_above(highest: int, strict: Set[int], moves: Collection[Move]) -> set[int]:
    """Queues above the boundary where packets of a strict queue and of a higher, weighted one will meet."""
    below = [move for move in moves if move[0] <= highest < move[1]]
    return {
        new
        for old, new in below
        if old in strict and any(other > old and other not in strict and goes == new for other, goes in below)
    }
