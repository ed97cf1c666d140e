"""A training task to measure: a model, its data, a metric and a target, as a user's factory gives them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from mltswitch.errors import UserInputError
from mltswitch.profile import import_torch, made_by
from mltswitch.training.tolerance import bundled

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Parameter
    from torch.optim import Optimizer

BUNDLED: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "digits": bundled.digits,
    "digits-finetune": bundled.digits_finetune,
    "textures": bundled.textures,
}
"""The bundled tasks by name, each a function that makes the fields of a `TrainingTask`."""


@dataclass(frozen=True)
class TrainingTask:
    """One training whose rounds to a quality target are counted.

    Everything random must follow from torch's seed, which is set before `model` is called, or from the seed
    that `batches` gets: lossless and lossy trainings of a seed are compared in pairs.
    """

    model: "Callable[[], Module]"
    """Makes a new model; for fine-tuning, with the pre-trained parameters in it."""
    batches: "Callable[[int, int, int], Iterable[Any]]"
    """From (seed, rank, ranks), the rank's batches, such as a DataLoader; started anew when they end."""
    loss: "Callable[[Module, Any], Tensor]"
    """From (model, batch), the scalar loss to minimise."""
    metric: "Callable[[Module], float]"
    """The model's quality on separate data, higher is better; called without gradients, in eval mode."""
    target: float
    """Value of the metric, as the mean of `smoothed_over` evaluations, at which training ends."""
    optimizer: "Callable[[Iterable[Parameter]], Optimizer]"
    ranks: int = 4
    """Number of virtual ranks, each with its own batches and losses; summed gradients are divided by it."""
    evaluate_every: int = 1
    """Rounds between evaluations."""
    smoothed_over: int = 5
    """Number of evaluations whose mean must reach the target, since one alone crosses it by luck."""
    most_rounds: int = 2000
    """The most rounds of a lossless training; one that takes more is an error."""


def load_task(name: str, target: float | None = None, ranks: int | None = None) -> TrainingTask:
    """The bundled task of this name, or what `package.module:factory`, importable from the current folder,
    returns.

    Args:
        name: The task's; each task is made once in a process, so that data are loaded only once.
        target: The metric to reach; None: the task's own.
        ranks: Number of virtual ranks; None: the task's own.

    Raises:
        UserInputError: no such task, or the factory fails or returns something else.
        MachineError: torch, or scikit-learn for the digits, is not installed.
    """
    task = _made(name)
    return replace(
        task, target=task.target if target is None else target, ranks=task.ranks if ranks is None else ranks
    )


@cache
def _made(name: str) -> TrainingTask:
    import_torch()
    if name in BUNDLED:
        return TrainingTask(**BUNDLED[name]())
    if ":" not in name:
        raise UserInputError(
            f"unknown task {name!r}", expected=f"one of {', '.join(BUNDLED)}, or package.module:factory"
        )
    made = made_by(name)
    if not isinstance(made, TrainingTask):
        raise UserInputError(
            f"returned a {type(made).__name__}",
            where=name,
            expected="a mltswitch.training.tolerance.TrainingTask",
        )
    for field in ("ranks", "evaluate_every", "smoothed_over", "most_rounds"):
        value = getattr(made, field)
        if not isinstance(value, int) or value < 1:
            raise UserInputError(f"{field} is {value!r:.60}", where=name, expected="a whole number from 1")
    return made
