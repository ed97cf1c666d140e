"""What a bench trains: the tasks bundled with loss-tolerance measurement, and a wider model of one."""

import time
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from mltswitch.profile import import_torch
from mltswitch.training.tolerance import BUNDLED, TrainingTask, load_task

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

WIDE: Final = "digits-wide"
WIDTHS: Final = (64, 512, 512, 512, 10)
"""563,000 parameters, 2.25 MB of gradients: seconds of a slow link, and little to compute."""
PAUSE: Final = "pause"
"""Gradients of that size after a fixed pause, for which no processor computes; it learns nothing."""
PAUSE_SECONDS: Final = 0.02
SHAPE: Final = "shape:"
"""What the name of a task that has only the shape of a model begins with; see `shape_task`."""
TASKS: Final = ("digits", WIDE, "textures", *sorted({*BUNDLED} - {"digits", "textures"}), PAUSE)


def load_bench_task(name: str) -> TrainingTask:
    """One of `TASKS`, a shape, or what `load_task` takes; raises what that does."""
    if name == WIDE:
        return replace(load_task("digits"), model=_wide)
    if name.startswith(SHAPE):
        import_torch()
        from mltswitch.training.bench.shapes import shape_task

        return shape_task(name)
    if name == PAUSE:
        return replace(load_task("digits"), model=_pausing, loss=_pause, metric=lambda _: 0.0)
    return load_task(name)


def _wide() -> Any:
    from torch import nn

    layers = [layer for widths in pairwise(WIDTHS) for layer in (nn.Linear(*widths), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def _pausing() -> "Module":
    from torch import nn

    class Pausing(nn.Sequential):  # type: ignore[misc]  # its base is torch's
        def forward(self, _inputs: "Tensor") -> Any:
            time.sleep(PAUSE_SECONDS)
            return sum(parameter.square().sum() for parameter in self.parameters())

    return Pausing(*_wide())


def _pause(model: "Module", batch: "tuple[Tensor, Tensor]") -> "Tensor":
    found: Tensor = model(batch[0])
    return found
