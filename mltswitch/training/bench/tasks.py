"""What a bench trains: the tasks bundled with loss-tolerance measurement, and a wider model of one."""

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from mltswitch.training.tolerance import BUNDLED, TrainingTask, load_task

if TYPE_CHECKING:
    from torch.nn import Module

WIDE: Final = "digits-wide"
WIDTHS: Final = (64, 512, 512, 512, 10)
"""563,000 parameters, 2.25 MB of gradients: seconds of a slow link, and little to compute."""
TASKS: Final = ("digits", WIDE, "textures", *sorted({*BUNDLED} - {"digits", "textures"}))


def load_bench_task(name: str) -> TrainingTask:
    """One of `TASKS`, or what `load_task` takes; raises what that does."""
    if name == WIDE:
        return replace(load_task("digits"), model=_wide)
    return load_task(name)


def _wide() -> "Module":
    from torch import nn

    layers = [layer for widths in pairwise(WIDTHS) for layer in (nn.Linear(*widths), nn.ReLU())]
    return nn.Sequential(*layers[:-1])
