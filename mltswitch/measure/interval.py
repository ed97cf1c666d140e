"""How exact a measured loss is: packets of a burst, and of a busy period, share their fate."""

from math import sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

BLOCKS: Final = 20
"""Parts of a run; each must last long against a busy period for their losses to be independent."""
STUDENT_95: Final = 2.093
"""Student's t for 95 % and one degree of freedom less than there are blocks."""
NONE_LOST: Final = 3.0
"""The "rule of three": where none of n independent trials failed, up to 3/n may (95 %)."""


def by_block(time_seconds: npt.NDArray[np.float64], run_seconds: float) -> npt.NDArray[np.int64]:
    """How many of these packets fall into each block of the run."""
    block = np.minimum((time_seconds / run_seconds * BLOCKS).astype(np.int64), BLOCKS - 1)
    return np.bincount(block, minlength=BLOCKS)


def loss_half_width(
    sent: npt.NDArray[np.int64], lost: npt.NDArray[np.int64], burst_packets: int
) -> float | None:
    """Half width of the 95 % interval of lost/sent by batch means over blocks of time; None: nothing sent."""
    total = int(sent.sum())
    if not total:
        return None
    if not lost.sum():
        return min(1.0, NONE_LOST * burst_packets / total)
    residual = lost - lost.sum() / total * sent
    return STUDENT_95 * sqrt(float((residual**2).sum()) * BLOCKS / (BLOCKS - 1)) / total
