"""The tasks that a benchmark trains: those bundled with loss-tolerance measurement, and models of a given
size."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from mltswitch.errors import UserInputError
from mltswitch.profile import import_torch, resolve_profile
from mltswitch.training.tolerance import BUNDLED, TrainingTask, load_task

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

WIDE: Final = "digits-wide"
WIDTHS: Final = (64, 512, 512, 512, 10)
"""Layer widths of a model with 563,000 parameters (2.25 MB of gradients) and little to compute."""
PAUSE: Final = "pause"
"""Name of the task whose gradients of that size come after a fixed pause without computing; it learns
nothing."""
PAUSE_SECONDS: Final = 0.02
SHAPE: Final = "shape:"
"""Prefix of the name of a task that has only the shape of a model."""
FORM: Final = "shape:PROFILE/DIVISOR@SECONDS, shape:vgg16/64@0.5 say"
_NAME: Final = re.compile(SHAPE + r"(.+?)(?:/(\d{1,9}))?(?:@(\d{1,6}(?:\.\d{1,9})?))?")
TASKS: Final = ("digits", WIDE, "textures", *sorted({*BUNDLED} - {"digits", "textures"}), PAUSE)


def load_bench_task(name: str) -> TrainingTask:
    """The task of this name: one of `TASKS`, a shape, or what `load_task` takes; raises what that raises."""
    if name == WIDE:
        return replace(load_task("digits"), model=_wide)
    if name == PAUSE:
        return replace(load_task("digits"), model=_pausing, loss=_pause, metric=lambda _: 0.0)
    return _shape_task(name) if name.startswith(SHAPE) else load_task(name)


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


def _shape_task(name: str) -> TrainingTask:
    """A task that learns nothing, and exchanges what the profile's model would, over the divisor.

    Without a divisor it is 1, and without seconds the layers do not pause. Raises UserInputError where the
    name has another form, or there is no such profile.
    """
    torch = import_torch()
    found = _NAME.fullmatch(name)
    divisor = int(found[2] or 1) if found else 0
    if found is None or not divisor:
        raise UserInputError(f"{name!r:.80}", where="the bench's task", expected=FORM)
    from mltswitch.training.bench.shapes import shape_model

    def batches(seed: int, rank: int, _ranks: int) -> "Iterator[Tensor]":
        generator = torch.Generator().manual_seed(seed + rank)
        while True:
            yield torch.randn(1, generator=generator)

    return TrainingTask(
        model=partial(shape_model, resolve_profile(found[1]), divisor, float(found[3] or 0)),
        batches=batches,
        loss=lambda model, batch: model(batch).square().sum(),
        metric=lambda _model: 0.0,
        target=1.0,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e-6),
    )
