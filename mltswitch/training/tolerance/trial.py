"""One training of several virtual ranks in one process, with loss, which counts the rounds to the target."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mltswitch.errors import UserInputError, printable
from mltswitch.profile import import_torch, user_code
from mltswitch.sweep import Cell, Rows
from mltswitch.training.tolerance.loss import PAYLOAD_BYTES, Gradient, Importance, Loss, Tally, lose
from mltswitch.training.tolerance.task import TrainingTask, load_task

if TYPE_CHECKING:
    from torch.nn import Parameter

_ONE_AT_A_TIME: Final = Lock()
"""Torch's seed and number of threads belong to the process; a Dask worker may have several threads."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one training."""

    rounds: int
    """Number of rounds until the target was reached, or until the training was given up."""
    is_reached: bool
    is_finite: bool
    """Whether all gradients were finite; the training ends at the first that is not."""
    metric: float | None
    """The last value of the smoothed metric; None: there was no evaluation."""
    packets: int
    eligible: int
    lost: int
    """Number of packets lost; `packets` and `eligible` are those of `Tally`."""


@dataclass(frozen=True)
class Trainings:
    """Runs trainings given as cells: (first layer, last layer, importance, ratio, seed, most rounds)."""

    task: str
    target: float | None
    ranks: int | None
    layers: tuple[tuple[str, ...], ...]
    """Names of the parameters of each layer, layers in forward order."""

    def __call__(self, cell: Cell) -> Rows:
        """Train once; one row, the fields of `Outcome`."""
        first, last, importance, ratio, seed, most_rounds = cell
        losses = []
        if ratio:
            losses = [Loss(int(first or 0), int(last or 0), Importance(str(importance)), float(ratio))]
        task = load_task(self.task, self.target, self.ranks)
        outcome = train(self.task, task, self.layers, losses, int(seed or 0), int(most_rounds or 0))
        return [asdict(outcome)]


def train(
    name: str,
    task: TrainingTask,
    layers: Sequence[Sequence[str]],
    losses: Sequence[Loss],
    seed: int,
    most_rounds: int,
) -> Outcome:
    """Train synchronously from a seed until the smoothed metric reaches the target.

    Each round every virtual rank computes the gradients of a batch of its own, loses packets of them, and the
    sum, in rank order and in float32, is divided by the number of ranks, as in the agent's collectives.
    The same arguments give the same outcome on the same kind of machine; one thread computes.

    Args:
        name: The task's name, for errors.
        layers: Names of the parameters of each layer, in forward order.
        losses: The losses to apply; empty for lossless training.
        seed: The seed of model, batches and losses; batches and model do not depend on the losses.
        most_rounds: The training is given up after them.

    Raises:
        UserInputError: the task's own code raised.
    """
    with _alone(seed) as torch:
        with user_code(f"{name}: model"):
            model = task.model()
            parameters = {printable(each): parameter for each, parameter in model.named_parameters()}
            optimizer = task.optimizer(parameters.values())
        owned = [[parameters[each] for each in layer] for layer in layers]
        per_packet = [max(PAYLOAD_BYTES // layer[0].element_size(), 1) for layer in owned]
        loaders = [batches_of(name, task, seed, rank) for rank in range(task.ranks)]
        rngs = [np.random.default_rng([seed, rank, 1]) for rank in range(task.ranks)]
        recent: deque[float] = deque(maxlen=task.smoothed_over)
        tally, number, is_reached, is_finite = Tally(), 0, False, True
        while number < most_rounds and is_finite and not is_reached:
            number += 1
            total = [np.zeros(sum(each.numel() for each in layer), np.float32) for layer in owned]
            for loader, rng in zip(loaders, rngs, strict=True):
                with user_code(f"{name}: batches"):
                    batch = next(loader)
                with user_code(f"{name}: loss"):
                    model.zero_grad()
                    loss: Any = task.loss(model, batch)
                    loss.backward()
                gradients = [_flat(torch, layer) for layer in owned]
                lose(gradients, per_packet, losses, rng, tally)
                for layer_sum, gradient in zip(total, gradients, strict=True):
                    np.add(layer_sum, gradient, out=layer_sum)
            is_finite = all(np.isfinite(layer_sum).all() for layer_sum in total)
            if not is_finite:
                continue
            for layer, layer_sum in zip(owned, total, strict=True):
                _set_gradients(torch, layer, np.divide(layer_sum, task.ranks, dtype=np.float32))
            with user_code(f"{name}: optimizer"):
                optimizer.step()
            if number % task.evaluate_every == 0:
                with user_code(f"{name}: metric"), torch.no_grad():
                    model.eval()
                    recent.append(float(task.metric(model)))
                    model.train()
                is_whole = len(recent) == task.smoothed_over
                is_reached = is_whole and math.fsum(recent) / len(recent) >= task.target
        metric = math.fsum(recent) / len(recent) if recent else math.nan
        smoothed = metric if math.isfinite(metric) else None
        return Outcome(number, is_reached, is_finite, smoothed, **asdict(tally))


@contextmanager
def _alone(seed: int) -> Iterator[Any]:
    """Torch, with its seed and one thread, which belong to the process: nobody else trains meanwhile."""
    torch = import_torch()
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        try:
            yield torch
        finally:
            torch.set_num_threads(threads)


def batches_of(name: str, task: TrainingTask, seed: int, rank: int) -> Iterator[Any]:
    """A rank's batches for ever; a DistributedSampler is told the epoch, so that it shuffles anew."""
    loader = task.batches(seed, rank, task.ranks)
    epoch = 0
    while True:
        set_epoch = getattr(getattr(loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise UserInputError(
                f"gave no batch in pass {epoch + 1} over the data",
                where=f"{name}: batches",
                hint="return what can be passed over again, such as a DataLoader",
            )
        epoch += 1


def _flat(torch: Any, layer: "list[Parameter]") -> Gradient:
    """A layer's gradients as one float32 array of its own; 0 where a parameter was not used."""
    parts = [torch.zeros_like(each) if each.grad is None else each.grad for each in layer]
    flat: Gradient = torch.cat([part.detach().reshape(-1).float().cpu() for part in parts]).numpy()
    return flat


def _set_gradients(torch: Any, layer: "list[Parameter]", mean: Gradient) -> None:
    first = 0
    for parameter in layer:
        part = torch.from_numpy(mean[first : first + parameter.numel()])
        parameter.grad = part.view_as(parameter).to(parameter)
        first += parameter.numel()
