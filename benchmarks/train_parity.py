"""Whether training with a loss bound ends where lossless training ends.

    python -m benchmarks.train_parity [--quick] [--json]

Needs torch and scikit-learn; the part `network` needs root and gcc, too. Trainings are paired by seed: the
same model, batches and ranks, with loss and without. Intervals are 95 % ones of the mean of the pairs'
differences (Student). Two parts:

    virtual    four ranks in one process (`profile measure`'s trainings), digits and textures, 10 % of all
               packets lost in every round: `mlt`, unimportant ones alone, as the plan's queues do;
               `uniform`, any
    network    two workers behind one switch with a plan's classes, 3 % of their packets lost at random,
               loss bound 10 %; lossless is gloo over TCP in the same network

    accuracy_gap_WAY_TASK               final accuracy without loss less that with loss; below 0: loss helped
    rounds_ratio_WAY_TASK               rounds to the task's target, with loss over without
    accuracy_gap_network                as above
    missing_share_network               of the elements that crossed the network
    ..._low, ..._high                   the interval's ends
    final_accuracy_gap                  the largest gap of `mlt` and `network`
    mlt_beats_uniform_TASK              share of the seeds in which `mlt` took no more rounds
    pairs_virtual, pairs_network        seeds
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from statistics import fmean, stdev
from typing import Final

import click
from scipy import stats  # type: ignore[import-untyped]  # it has no types

from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.lab import running_star
from mltswitch.profile import profile_of_module
from mltswitch.training.bench import Case, Settings, running_team
from mltswitch.training.tolerance import load_task
from mltswitch.training.tolerance.loss import Importance, Loss
from mltswitch.training.tolerance.trial import train

RATIO: Final = 0.1
"""Of all packets."""
UNIMPORTANT_SHARE: Final = 0.5
"""Packets below the median of packet means."""
ROUNDS: Final = {"digits": 300, "textures": 300}
"""Of the trainings whose accuracy is compared; beyond both targets."""
QUICK_ROUNDS: Final = {"digits": 200}
UNREACHABLE: Final = 2.0
SEEDS: Final = 8
QUICK_SEEDS: Final = 3
NETWORK_SEEDS: Final = 5
STEPS: Final = 200
NETWORK_LOSS: Final = 0.03
"""Beyond this TCP, which has to bring all, takes minutes."""
NETWORK: Final = Case("network", 50_000_000, 0.2e-3, NETWORK_LOSS, 128_000)
CONFIDENCE: Final = 0.95
Figures = dict[str, float]


def interval(name: str, differences: Sequence[float]) -> Figures:
    """Mean and its interval."""
    mean, count = fmean(differences), len(differences)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * stdev(differences) / sqrt(count)
    return {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}


def virtual(name: str, rounds: int, seeds: int) -> Figures:
    """One task: lossless, and the two ways to lose the same share."""
    task = load_task(name)
    profile = profile_of_module(name, task.model())
    layers = [[tensor.name for tensor in layer.tensors] for layer in profile.layers]
    last = len(layers) - 1
    ways = {
        "lossless": [],
        "mlt": [Loss(0, last, Importance.UNIMPORTANT, RATIO / UNIMPORTANT_SHARE)],
        "uniform": [Loss(0, last, Importance.ANY, RATIO)],
    }
    needed: dict[str, list[int]] = {way: [] for way in ways}
    accuracies: dict[str, list[float]] = {way: [] for way in ways}
    for seed in range(seeds):
        for way, losses in ways.items():
            needed[way].append(train(name, task, layers, losses, seed, task.most_rounds).rounds)
            whole = train(name, replace(task, target=UNREACHABLE), layers, losses, seed, rounds)
            accuracies[way].append(whole.metric or 0.0)
        last_ones = {way: (needed[way][-1], accuracies[way][-1]) for way in ways}
        click.echo(f"{name}, seed {seed}, rounds and accuracy: {last_ones}", err=True)
    found: Figures = {}
    for way in ("mlt", "uniform"):
        pairs = zip(accuracies["lossless"], accuracies[way], strict=True)
        found |= interval(f"accuracy_gap_{way}_{name}", [before - after for before, after in pairs])
        ratios = [after / before for before, after in zip(needed["lossless"], needed[way], strict=True)]
        found |= interval(f"rounds_ratio_{way}_{name}", ratios)
    better = [ours <= theirs for ours, theirs in zip(needed["mlt"], needed["uniform"], strict=True)]
    return found | {f"mlt_beats_uniform_{name}": fmean(better)}


def network(seeds: int, steps: int) -> Figures:
    """Real packets; raises MachineError."""
    gaps, missing = [], []
    with running_star(2) as star:
        for seed in range(seeds):
            star.set_rate(NETWORK.rate_bps)
            with running_team(star, Settings(workers=2, task="digits", seed=seed, loss_bound=RATIO)) as team:
                result = team.run(NETWORK, steps, lambda *_: None)
            ours, lossless = result.methods["mlt"], result.methods["gloo"]
            gaps.append(lossless.final_accuracy - ours.final_accuracy)
            missing.append(fmean(ours.missing_share))
            click.echo(f"network, seed {seed}: gap {gaps[-1]:.4f}, missing {missing[-1]:.4f}", err=True)
    return interval("accuracy_gap_network", gaps) | {"missing_share_network": fmean(missing)}


def measure(*, quick: bool) -> Figures:
    """Both parts; raises MltswitchError."""
    rounds, seeds = (QUICK_ROUNDS, QUICK_SEEDS) if quick else (ROUNDS, SEEDS)
    found: Figures = {}
    for name, most in rounds.items():
        found |= virtual(name, most, seeds)
    count = 2 if quick else NETWORK_SEEDS
    found |= network(count, STEPS // 2 if quick else STEPS)
    ours = ["network", *(f"mlt_{name}" for name in rounds)]
    largest = max(found[f"accuracy_gap_{way}"] for way in ours)
    pairs = {"pairs_virtual": float(seeds), "pairs_network": float(count)}
    return {"final_accuracy_gap": largest} | found | pairs


@click.command()
@click.option("--quick", is_flag=True, help="One task, fewer seeds and rounds.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Accuracy and rounds with a loss bound, paired with lossless training."""
    try:
        found = measure(quick=quick)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
