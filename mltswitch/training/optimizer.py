"""Optimizers of roots that keep parameters, where each push is a step: torch's formulas without torch."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.training.axes import Elements
from mltswitch.training.job import Job, OptimizerRule

OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "SGD": {
        "lr": 1e-3,
        "momentum": 0.0,
        "dampening": 0.0,
        "weight_decay": 0.0,
        "nesterov": False,
        "maximize": False,
    },
    "Adam": {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0.0,
        "decoupled_weight_decay": False,
        "maximize": False,
    },
    "AdamW": {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0.01,
        "decoupled_weight_decay": True,
        "maximize": False,
    },
}
"""Supported options of each optimizer, with torch's defaults; any other option of a group must be off."""
WITHOUT_EFFECT: Final = {"foreach", "fused", "capturable", "differentiable"}
"""Options of torch that change how an optimizer computes, but not its result."""


def check_rule(rule: OptimizerRule) -> None:
    """Raises UserInputError for an optimizer or option that a root cannot compute."""
    if rule.kind not in OPTIONS:
        expected = ", ".join(OPTIONS)
        raise UserInputError(f"{rule.kind:.60} is unknown to servers", where="optimizer", expected=expected)
    for number, group in enumerate(rule.groups):
        for name, value in group.items():
            if name not in OPTIONS[rule.kind] and name not in WITHOUT_EFFECT and value:
                raise UserInputError(
                    f"{value!r:.60}",
                    where=f"optimizer.groups.{number}.{name}",
                    expected="servers have no such option",
                )
        lr = group.get("lr", 0.0)
        if not (isinstance(lr, (int, float)) and np.isfinite(lr)):
            raise UserInputError(f"{lr!r:.60}", where=f"optimizer.groups.{number}.lr", expected="a number")


class Parameters:
    """The parameters of the pieces that a node is root of.

    Args:
        values: a vector of all the model's elements; each piece is copied when it is first stepped.
    """

    def __init__(self, job: Job, values: Elements) -> None:
        assert job.optimizer is not None, "lone pushes need an optimizer"  # noqa: S101
        self.rule = job.optimizer
        """With the options of now: a schedule changes them."""
        self._job, self._initial = job, values
        self._values: dict[int, Elements] = {}
        self._state: dict[int, tuple[Elements, Elements | None]] = {}
        """The momentum of each piece, or both its moments."""
        self._steps: dict[int, int] = {}

    def of(self, piece: int) -> Elements:
        """The present parameters of a piece."""
        if piece not in self._values:
            self._values[piece] = self._initial[self._job.pieces[piece].elements].copy()
        return self._values[piece]

    def step(self, piece: int, gradient: Elements) -> None:
        """Make one optimizer step with a rank's push, which counts 1/N; the memory of the push is
        overwritten."""
        values, place = self.of(piece), self._job.pieces[piece]
        self._steps[piece] = self._steps.get(piece, 0) + 1
        if piece not in self._state:
            second = None if self.rule.kind == "SGD" else np.zeros_like(values)
            self._state[piece] = np.zeros_like(values), second
        with np.errstate(all="ignore"):
            gradient /= self._job.world
            first = 0
            for end, group in self.rule.ranges:
                part = slice(
                    max(first, place.first) - place.first, min(end, place.first + place.count) - place.first
                )
                first = end
                if part.start < part.stop:
                    state = tuple(None if each is None else each[part] for each in self._state[piece])
                    self._move(values[part], gradient[part], state, group, self._steps[piece])

    def _move(
        self, values: Elements, gradient: Elements, state: tuple[Any, ...], group: int, steps: int
    ) -> None:
        options = {**OPTIONS[self.rule.kind], **self.rule.groups[group]}
        lr, decay = float(options["lr"]), float(options["weight_decay"])
        if options["maximize"]:
            np.negative(gradient, out=gradient)
        if decay and options.get("decoupled_weight_decay"):
            values *= 1 - lr * decay
        elif decay:
            gradient += decay * values
        if self.rule.kind == "SGD":
            momentum, velocity = float(options["momentum"]), state[0]
            if momentum:
                velocity *= momentum
                velocity += gradient if steps == 1 else (1 - float(options["dampening"])) * gradient
                gradient = gradient + momentum * velocity if options["nesterov"] else velocity
            values -= lr * gradient
            return
        (beta1, beta2), (mean, square) = options["betas"], state
        mean += (1 - beta1) * (gradient - mean)
        square *= beta2
        square += (1 - beta2) * gradient * gradient
        size = np.sqrt(square) / np.sqrt(1 - beta2**steps) + options["eps"]
        values -= lr / (1 - beta1**steps) * mean / size
