"""How sums are numbered on the network, and in whose order a node sends them."""

from typing import Final

from mltswitch.training.axes import Needs, Post, Stage, axes_of
from mltswitch.training.job import Job

CHANNEL: Final = "training"
"""Of an agent, for all transfers of sums."""
EPOCHS: Final = 256
"""Round numbers of transfers are those of sums times this: room to begin a sum anew after a fault."""
MOST_STEPS: Final = (1 << 32) // EPOCHS
LAYERS: Final = 1 << 16
AGES: Final = 1 << 14
"""Numbers of sums begin anew, which at most one step in so many notices."""
LAST_PRIORITY: Final = (1 << 31) - 1


def sums_have_ages(job: Job) -> bool:
    """Whether a lower number is an older sum: ranks do not go on by themselves, and end rounds together."""
    kind = axes_of(job)[0]
    return kind.needs == Needs() and not kind.votes


def priority_of(post: Post, *, has_age: bool) -> int:
    """In whose order a node sends to another one: older sums, then front layers, and last what comes later.

    Else the next gradients of a rank that is ahead would hold back results that others wait for, and it would
    stay ahead.
    """
    if post.stage is Stage.LATER:
        return LAST_PRIORITY
    age = post.round_number // EPOCHS % AGES if has_age else 0
    return age * LAYERS + min(post.layer, LAYERS - 1)
