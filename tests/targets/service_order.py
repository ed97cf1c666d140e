"""The law of the order of service: what no step of a change may do to packets that arrive at one port.

A way through a switch, from a port in to a port out, has for each code point the level at which it is served:
a greater one before a lesser one, equal ones by weight or in turn.
"""

from collections.abc import Iterable, Sequence

Levels = Sequence[int]
Ways = Sequence[Levels]


def is_inverted(first: Levels, last: Levels, between: Levels) -> bool:
    """Whether code points are served after others that both ends serve after them, or no end before them."""
    found = set(zip(first, last, between, strict=True))
    return any(a[0] >= b[0] and a[1] >= b[1] and a[:2] != b[:2] and a[2] < b[2] for a in found for b in found)


def is_blurred(first: Levels, last: Levels, between: Levels) -> bool:
    """Whether code points have to share with others that both ends serve after them."""
    found = set(zip(first, last, between, strict=True))
    return any(a[0] > b[0] and a[1] > b[1] and a[2] <= b[2] for a in found for b in found)


def is_promoted(first: Levels, last: Levels, between: Levels) -> bool:
    """Whether code points are served before others that no end serves after them."""
    found = set(zip(first, last, between, strict=True))
    return any(a[2] > b[2] and a[0] <= b[0] and a[1] <= b[1] for a in found for b in found)


def promotions(steps: Sequence[Ways]) -> int:
    """Ways, summed over the steps between the first and the last, in which some are served too soon."""
    return sum(is_promoted(*way) for way in _ways(steps))


def inversions(steps: Sequence[Ways]) -> int:
    """Ways, summed over the steps between the first and the last, in which code points are served late."""
    return sum(is_inverted(*way) for way in _ways(steps))


def blurs(steps: Sequence[Ways]) -> int:
    """Ways, summed likewise, in which code points lose what they have at both ends."""
    return sum(is_blurred(*way) for way in _ways(steps))


def _ways(steps: Sequence[Ways]) -> Iterable[tuple[Levels, Levels, Levels]]:
    for between in steps[1:-1]:
        # Ports are alike for the most part, so their ways are, too.
        ways = zip(steps[0], steps[-1], between, strict=True)
        yield from {(tuple(first), tuple(last), tuple(now)) for first, last, now in ways}
