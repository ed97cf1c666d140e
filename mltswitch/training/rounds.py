"""How sums are numbered on the network, and in which order a node sends them."""

from typing import Final

from mltswitch.training.axes import Needs, Post, Stage, axes_of
from mltswitch.training.job import Job

CHANNEL: Final = "training"
"""Of an agent, for all transfers of sums."""
EPOCHS: Final = 256
"""Factor from sums' numbers to round numbers of transfers, so that a sum can begin again after a fault."""
MOST_STEPS: Final = (1 << 32) // EPOCHS
LAYERS: Final = 1 << 16
AGES: Final = 1 << 14
"""Number of sums after which their age in the priority begins again at 0, which disturbs the order of one
step."""
LAST_PRIORITY: Final = (1 << 31) - 1


def sums_have_ages(job: Job) -> bool:
    """Whether a lower number always means an older sum: no rank runs ahead, and all end rounds together."""
    kind = axes_of(job)[0]
    return kind.needs == Needs() and not kind.votes


def priority_of(post: Post, *, has_age: bool) -> int:
    """Priority by which a node orders its sends to another: older sums, then front layers, and last late
    exchanges.

    Otherwise the next gradients of a rank that is ahead would delay results that others wait for, and the
    rank would stay ahead.
    """
    if post.stage is Stage.LATER:
        return LAST_PRIORITY
    age = post.round_number // EPOCHS % AGES if has_age else 0
    return age * LAYERS + min(post.layer, LAYERS - 1)
