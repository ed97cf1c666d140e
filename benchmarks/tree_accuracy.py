"""What trees cost in accuracy where packets are lost, and whose gradients they lose, in virtual time.

    python -m benchmarks.tree_accuracy [--quick] [--json]

Eight ranks and a server train a perceptron on scikit-learn's digits (64-2048-10) under `bsp`, from the same
parameters, batches and computing times a seed, by the nodes of production. A tenth of all packets is lost,
and a loss bound of a tenth lets sums be without: at once in a star, a share of it on each hop of a tree,
whose inner nodes lose what is below them, too. Pieces have 90 packets: of fewer than hops / bound none may be
missing.

    accuracy_T, accuracy_interval_T     mean over the seeds, and half of its 95 % interval (normal); T: star,
                                        tree2 and tree4 by in-degree, and lossless: the star without loss
    accuracy_gap_T                      of star, less that of T
    missing_share_T                     of all ranks' gradients, what sums were without
    missing_share_T_depthD              of the ranks so many hops from the root
    ranks_apart                         trainings after which ranks held different bits
    bound                               the loss bound
"""

from collections import Counter
from dataclasses import replace
from math import sqrt
from statistics import fmean, stdev
from typing import Any, Final

import click
import torch

from benchmarks.figures import print_figures
from benchmarks.sync_convergence import OPTIMIZERS, RANKS, Standard
from benchmarks.virtual_training import Trained, train
from mltswitch.overlay.trees import depths
from mltswitch.training.axes import axes_of
from mltswitch.training.job import Job, make_job
from mltswitch.training.tolerance import load_task

BOUND: Final = 0.1
LOSS: Final = 0.1
STEPS: Final = 100
PIECE_BYTES: Final = 128 << 10
WIDTH: Final = 2048
SEEDS, QUICK_SEEDS = 5, 2
TOPOLOGIES: Final[dict[str, dict[str, Any]]] = {
    "lossless": {"servers": 1},
    "star": {"servers": 1},
    "tree2": {"servers": 1, "topology": "tree", "topology_settings": {"in_degree": 2}},
    "tree4": {"servers": 1, "topology": "tree", "topology_settings": {"in_degree": 4}},
}


def depths_of(job: Job) -> dict[int, int]:
    """Of each rank, the hops to the server."""
    if job.topology == "star":
        return dict.fromkeys(range(job.world), 1)
    topology: Any = axes_of(job)[1]
    return depths(topology.branches[0].up)


def missing(trained: Trained, options: dict[str, Any]) -> dict[str, float]:
    """Shares by depth, and in all."""
    elements = len(trained.parameters[0])
    tree = depths_of(make_job([("a", elements)], world=RANKS, **options))
    lost: Counter[int] = Counter()
    for loss in trained.losses:
        for rank in loss.ranks:
            lost[tree[rank]] += loss.elements
    ranks = Counter(tree.values())
    found = {f"_depth{depth}": lost[depth] / (STEPS * elements * ranks[depth]) for depth in sorted(ranks)}
    return found | {"": sum(lost.values()) / (STEPS * elements * RANKS)}


def _perceptron() -> torch.nn.Module:
    nn = torch.nn
    return nn.Sequential(Standard(), nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))


def measure(seeds: int) -> dict[str, float]:
    """All figures."""
    task = replace(load_task("digits", ranks=RANKS), model=_perceptron, optimizer=OPTIMIZERS["momentum"])
    found: dict[str, float] = {"bound": BOUND, "ranks_apart": 0.0}
    for name, options in TOPOLOGIES.items():
        ratio = 0.0 if name == "lossless" else LOSS
        accuracies, shares = list[float](), list[dict[str, float]]()
        for seed in range(seeds):
            common: dict[str, Any] = {
                "seed": seed,
                "steps": STEPS,
                "settings": {},
                "piece_bytes": PIECE_BYTES,
            }
            trained = train(task, "bsp", loss_ratio=ratio, loss_bound=BOUND, **common, **options)
            accuracies.append(trained.final_accuracy)
            found["ranks_apart"] += len({each.tobytes() for each in trained.parameters}) > 1
            shares.append(missing(trained, options))
        found[f"accuracy_{name}"] = fmean(accuracies)
        found[f"accuracy_interval_{name}"] = 1.96 * stdev(accuracies) / sqrt(seeds)
        for key in shares[0]:
            found[f"missing_share_{name}{key}"] = fmean(share[key] for share in shares)
        click.echo(f"{name}: {found[f'accuracy_{name}']:.3f}", err=True)
    for name in ("tree2", "tree4", "lossless"):
        found[f"accuracy_gap_{name}"] = found["accuracy_star"] - found[f"accuracy_{name}"]
    return found


@click.command()
@click.option("--quick", is_flag=True, help="Fewer seeds.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Accuracy of trees beside a star, with losses."""
    print_figures(measure(QUICK_SEEDS if quick else SEEDS), as_json=as_json)


if __name__ == "__main__":
    main()
