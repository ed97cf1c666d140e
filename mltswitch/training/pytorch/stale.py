"""Plain SGD under bounded staleness: a model's parameters as a `SharedModel`.

with StaleTraining(model, optimizer, staleness=3, rendezvous="env://") as training:
    for batch in batches:
        optimizer.zero_grad()
        loss(model, batch).backward()
        training.step()
    training.flush()
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch

from mltswitch.errors import UserInputError
from mltswitch.training.errors import ending_of
from mltswitch.training.stale import SharedModel, check_staleness


class StaleTraining:
    """A worker's model and optimizer under bounded staleness. Buffers, such as BatchNorm's, stay each
    worker's own.

    Args:
        model: with the same parameters at all workers, of one type, float32 or float64, on the processor.
        optimizer: `torch.optim.SGD` without momentum, of all parameters that it trains.
        staleness: clocks that the updates of others may be behind; 0: as many steps as this worker's.
        options: those of `SharedModel`.

    Raises UserInputError for another optimizer, whose state updates of others would not reach, and what
    `SharedModel` raises.
    """

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, staleness: int = 0, **options: Any
    ) -> None:
        check_plain(optimizer)
        check_staleness(staleness)
        self._parameters: Sequence[torch.Tensor] = [each for each in model.parameters() if each.requires_grad]
        kinds = {(each.dtype, each.device.type) for each in self._parameters}
        if len(kinds) != 1 or not kinds <= {(torch.float32, "cpu"), (torch.float64, "cpu")}:
            problem = ", ".join(f"{dtype} on {device}" for dtype, device in sorted(kinds, key=str)) or "none"
            expected = "float32 or float64 on the processor"
            raise UserInputError(problem, where="model", expected=expected)
        self._optimizer, self._staleness = optimizer, staleness
        self._values = self._flat()
        self._shared = SharedModel(self._values, **options)

    def step(self) -> None:
        """Step the optimizer, push the change as this worker's update, then take the parameters with the
        others' updates.

        Raises UserInputError where something else has changed the parameters, such as the optimizer's own
        `step`.
        """
        self._refuse_changes()
        self._optimizer.step()
        self._shared.push((self._flat() - self._values) / self._shared.job.world)
        self._shared.clock()
        self._set(self._shared.pull(self._staleness))

    def flush(self) -> None:
        """Bring the updates of all workers up to this one's clock into the parameters."""
        self._refuse_changes()
        self._set(self._shared.flush())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._shared.close("" if error is None else ending_of(error))

    def _refuse_changes(self) -> None:
        if not np.array_equal(self._flat(), self._values, equal_nan=True):
            problem, hint = "have been changed since the last step", "call step() in place of the optimizer's"
            raise UserInputError(problem, where="parameters", hint=hint)

    def _flat(self) -> Any:
        with torch.no_grad():
            return torch.cat([each.reshape(-1) for each in self._parameters]).numpy()

    def _set(self, values: Any) -> None:
        np.copyto(self._values, values)
        parts = torch.from_numpy(self._values).split([each.numel() for each in self._parameters])
        with torch.no_grad():
            for parameter, part in zip(self._parameters, parts, strict=True):
                parameter.copy_(part.view_as(parameter))


def check_plain(optimizer: torch.optim.Optimizer) -> None:
    """Raises UserInputError for an optimizer whose step depends on more than gradients and parameters."""
    name, expected = type(optimizer).__name__, "SGD without momentum"
    if type(optimizer) is not torch.optim.SGD:
        problem = f"{name}: its state knows the updates of this worker alone"
        raise UserInputError(problem, where="optimizer", expected=expected)
    if any(group["momentum"] for group in optimizer.param_groups):
        problem = f"{name} with momentum: its state knows the updates of this worker alone"
        raise UserInputError(problem, where="optimizer", expected=expected)
