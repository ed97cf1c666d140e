"""Sizes of flows in data centres, as cumulative distributions that are linear between their points."""

from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.documents import read_text
from mltswitch.errors import UserInputError

SEGMENT_BYTES: Final = 1460
"""The authors' tables count segments of this size."""
SEGMENTS: Final = {
    "web-search": (
        (1, 0.0), (6, 0.15), (13, 0.2), (19, 0.3), (33, 0.4), (53, 0.53), (133, 0.6), (667, 0.7), (1333, 0.8),
        (3333, 0.9), (6667, 0.97), (20_000, 1.0),
    ),
    "data-mining": (
        (1, 0.5), (2, 0.6), (3, 0.7), (7, 0.8), (267, 0.9), (2107, 0.95), (66_667, 0.99), (666_667, 1.0),
    ),
}  # fmt: skip
"""(size, share of flows that are no larger): a search cluster's, Alizadeh et al., SIGCOMM 2010 (DCTCP), and a
data-mining cluster's, Greenberg et al., SIGCOMM 2009 (VL2); both as tables of the simulations of pFabric
(Alizadeh et al., SIGCOMM 2013, figure 4)."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Sizes, and for each the probability that a flow is no larger."""

    sizes_bytes: NDArray[np.float64]
    probabilities: NDArray[np.float64]

    @property
    def mean_bytes(self) -> float:
        """Of a flow."""
        between = (self.sizes_bytes[1:] + self.sizes_bytes[:-1]) / 2
        return float(self.sizes_bytes[0] * self.probabilities[0] + between @ np.diff(self.probabilities))

    @property
    def largest_bytes(self) -> int:
        """No flow is larger."""
        return int(self.sizes_bytes[-1])

    def draw(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Sizes of so many flows."""
        sizes = np.interp(random.random(count), self.probabilities, self.sizes_bytes)
        return np.maximum(1, np.rint(sizes)).astype(np.int64)


def resolve_distribution(name: str) -> Distribution:
    """A distribution by its name, or from a file of rows with bytes and a probability; # begins a comment.

    Raises UserInputError for one that falls, or does not end at 1.
    """
    if name in SEGMENTS:
        rows = [(size * SEGMENT_BYTES, share) for size, share in SEGMENTS[name]]
        return Distribution(*np.array(rows, float).T)
    path = Path(name)
    if not path.is_file():
        expected = f"{', '.join(SEGMENTS)}, or a file"
        raise UserInputError(
            f"there is no distribution {name!r:.60}", where="workload.sizes", expected=expected
        )
    read = [(0.0, 0.0)]
    for number, line in enumerate(read_text(path).splitlines(), 1):
        fields = line.partition("#")[0].replace(",", " ").split()
        if not fields:
            continue
        try:
            size, share = map(float, fields)
        except ValueError:
            size = share = nan
        if not (max(1, read[-1][0]) <= size < 2**50 and read[-1][1] <= share <= 1):
            raise UserInputError(
                f"{line.strip()!r:.60}",
                where=f"{path}:{number}",
                expected="bytes, from 1, and a probability up to 1, neither of which falls",
            )
        read.append((size, share))
    if read[-1][1] != 1:
        raise UserInputError(f"ends at a probability of {read[-1][1]:g}", where=str(path), expected="1")
    return Distribution(*np.array(read[1:], float).T)
