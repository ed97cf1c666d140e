"""Random or chosen: accuracy where a share of each rank's gradients never arrives (LTP, figure 5).

    python -m benchmarks.ltp_drops [--quick] [--json]

Needs torch and scikit-learn; nothing crosses a network. Four ranks in one process train the digits (the tasks
of `profile measure`); in every round each loses a share of its gradients, which read as 0, and nothing of it
is kept for a later round. Trainings are paired by seed with one that loses nothing.

What is lost, WAY:

    random      packets, drawn anew by each rank in each round: what a network does, and `ltp`
    smallest    packets whose mean magnitude is the least, of a rank's whole gradient: what `mlt` aims at
    random_k    elements at random, as the paper's Random-k leaves them out (not with --quick)
    top_k       elements of the least magnitude, as its Top-k does (not with --quick)

A sum is divided, DIVISOR, by the number of ranks (`ranks`: the paper, and the default here), or for each
element by the number of ranks whose element arrived (`arrived`).

    accuracy_lossless                   mean over the seeds of the final accuracy: the last five evaluations
    gap_WAY_DIVISOR_Npct                accuracy without loss less that with N % lost: below 0, loss helped
    ..._low, ..._high                   Student's 95 % interval of the mean of the pairs' differences
    largest_gap_random_ranks_to20pct    the largest of `random`, `ranks` up to 20 %
    seeds, rounds
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from benchmarks.figures import print_figures
from benchmarks.train_parity import interval
from mltswitch.errors import MltswitchError
from mltswitch.training.job import Divisor
from mltswitch.training.tolerance import TrainingTask, load_task
from mltswitch.training.tolerance.loss import PAYLOAD_BYTES, Flags, Gradient
from mltswitch.training.tolerance.trial import batches_of

if TYPE_CHECKING:
    from torch.nn import Parameter

TASK: Final = "digits"
RATIOS: Final = (0.05, 0.1, 0.2, 0.4, 0.6)
QUICK_RATIOS: Final = (0.2, 0.6)
TYPICAL: Final = 0.2
ROUNDS: Final = 300
QUICK_ROUNDS: Final = 150
SEEDS: Final = 8
QUICK_SEEDS: Final = 3
PER_PACKET: Final = PAYLOAD_BYTES // 4
"""float32 elements."""

Figures = dict[str, float]
Numbers = np.ndarray[Any, np.dtype[np.floating[Any]]]
Rank = Callable[[Numbers, np.random.Generator], Numbers]
"""A number for each unit, by its mean magnitude: those with the least are lost."""


def _at_random(units: Numbers, rng: np.random.Generator) -> Numbers:
    return rng.random(len(units))


def _by_magnitude(units: Numbers, _rng: np.random.Generator) -> Numbers:
    return units


WAYS: Final[Mapping[str, tuple[int, Rank]]] = {
    "random": (PER_PACKET, _at_random),
    "smallest": (PER_PACKET, _by_magnitude),
    "random_k": (1, _at_random),
    "top_k": (1, _by_magnitude),
}
"""Elements that are lost together, and which go first."""
QUICK_WAYS: Final = ("random", "smallest")


def arrived(gradient: Gradient, way: str, ratio: float, rng: np.random.Generator) -> Flags:
    """Which elements of a rank's gradient do; of n units floor(ratio · n) are lost, or one more."""
    size, rank = WAYS[way]
    firsts = np.arange(0, len(gradient), size)
    lengths = np.diff([*firsts, len(gradient)])
    means = np.add.reduceat(np.abs(gradient), firsts) / lengths
    flags = np.ones(len(firsts), np.bool_)
    count = int(ratio * len(firsts) + rng.random())
    flags[np.argpartition(rank(means, rng), count)[:count]] = False
    return np.repeat(flags, lengths)


def final_accuracy(
    task: TrainingTask, seed: int, rounds: int, way: str, ratio: float, divisor: Divisor
) -> float:
    """Of one training; raises UserInputError."""
    import torch  # noqa: PLC0415  (an extra)
    from torch.nn.utils import parameters_to_vector  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = task.model()
    parameters: list[Parameter] = [*model.parameters()]
    optimizer = task.optimizer(parameters)
    elements = sum(each.numel() for each in parameters)
    loaders = [batches_of(TASK, task, seed, rank) for rank in range(task.ranks)]
    rngs = [np.random.default_rng([seed, rank, 1]) for rank in range(task.ranks)]
    accuracies = []
    for number in range(rounds):
        total, counts = np.zeros(elements, np.float32), np.zeros(elements, np.float32)
        for loader, rng in zip(loaders, rngs, strict=True):
            model.zero_grad()
            loss: Any = task.loss(model, next(loader))
            loss.backward()
            gradient = parameters_to_vector([each.grad for each in parameters]).numpy()
            flags = arrived(gradient, way, ratio, rng)
            total += gradient * flags
            counts += flags
        mean = total / (np.maximum(counts, 1) if divisor is Divisor.ARRIVED else task.ranks)
        parts = torch.from_numpy(mean).split([each.numel() for each in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)
        optimizer.step()
        if number >= rounds - task.smoothed_over:
            with torch.no_grad():
                accuracies.append(task.metric(model.eval()))
            model.train()
    return fmean(accuracies)


def measure(*, quick: bool) -> Figures:
    """All trainings; raises MltswitchError."""
    task, rounds, seeds = load_task(TASK), QUICK_ROUNDS if quick else ROUNDS, QUICK_SEEDS if quick else SEEDS
    kinds = [
        (way, divisor, ratio)
        for way in (QUICK_WAYS if quick else WAYS)
        for divisor in Divisor
        for ratio in (QUICK_RATIOS if quick else RATIOS)
    ]
    lossless = [final_accuracy(task, seed, rounds, "random", 0.0, Divisor.RANKS) for seed in range(seeds)]
    gaps: defaultdict[str, list[float]] = defaultdict(list)
    for seed in range(seeds):
        for way, divisor, ratio in kinds:
            accuracy = final_accuracy(task, seed, rounds, way, ratio, divisor)
            gaps[f"gap_{way}_{divisor}_{ratio * 100:.0f}pct"].append(lossless[seed] - accuracy)
        click.echo(f"seed {seed} of {seeds}: without loss {lossless[seed]:.4f}", err=True)
    found: Figures = {"accuracy_lossless": fmean(lossless)}
    for name, differences in gaps.items():
        found |= interval(name, differences)
    typical = [
        fmean(gaps[f"gap_random_ranks_{ratio * 100:.0f}pct"])
        for way, divisor, ratio in kinds
        if way == "random" and divisor is Divisor.RANKS and ratio <= TYPICAL
    ]
    return {
        "largest_gap_random_ranks_to20pct": max(typical),
        **found,
        "seeds": float(seeds),
        "rounds": float(rounds),
    }


@click.command()
@click.option("--quick", is_flag=True, help="Packets alone, fewer ratios, seeds and rounds.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Accuracy where gradients are lost at random, or the smallest ones."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
