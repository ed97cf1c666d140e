"""The price of a scarce thing at which the best choices just use it up: the top of the Lagrangian dual."""

from collections.abc import Callable
from dataclasses import dataclass

LARGEST_PRICE = 1e15
"""Beyond this nothing gets cheaper by taking less."""
SMALLEST_PRICE = 1e-12
FACTOR = 8.0


@dataclass(frozen=True, slots=True)
class Chain:
    """The best choice of each queue at one price: its rows, what they cost together, how much they take."""

    rows: tuple[int, ...]
    cost: float
    taken: float


def best_price(
    best: Callable[[float], Chain | None], budget: float, guess: float
) -> tuple[float, Chain, Chain] | None:
    """The price with the highest bound, the chain that keeps the budget there, and the one that does not.

    Both are the same where the best chain at price 0 keeps it. None: no chain does.
    """
    free = best(0.0)
    if free is None:
        return None
    if free.taken <= budget:
        return 0.0, free, free
    above, price = free, max(guess, SMALLEST_PRICE)
    below = best(price)
    while below is not None and below.taken > budget:
        above, price = below, price * FACTOR
        if price > LARGEST_PRICE:
            return None
        below = best(price)
    if below is None:
        return None
    while True:
        # Where the lines of both chains cross, no other price does better unless a third chain lies below.
        price = max(0.0, (below.cost - above.cost) / (above.taken - below.taken))
        chain = best(price)
        crossing = below.cost + price * below.taken
        if chain is None or chain.rows in (above.rows, below.rows):
            return price, below, above
        if chain.cost + price * chain.taken >= crossing - 1e-12 * abs(crossing):
            return price, below, above
        above, below = (chain, below) if chain.taken > budget else (above, chain)
