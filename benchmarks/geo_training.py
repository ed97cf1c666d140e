"""Training between sites in virtual time: what trees cost in accuracy, and how soon it is there (figure 13).

    python -m benchmarks.geo_training [--quick] [--json]

Nine ranks on the sites of `netstorm9` train a perceptron on scikit-learn's digits under `bsp`, from the same
parameters, batches and computing times a seed, by the nodes of production; the network is slower by as much
as AlexNet is larger. `static`: rates stay; `dynamic`: each direction is drawn anew every 180 s.

    accuracy_M                          mean over the seeds; M: star (a server at the first site), lite
                                        (`fapt` without measuring and paths), pro (with both)
    accuracy_interval_star              half of its 95 % interval (normal)
    accuracy_gap_M                      of star, less that of M
    seconds_to_accuracy_N_M             until TARGET is reached first, median; N: static, dynamic
    speedup_to_accuracy_N_M             over star
    ranks_apart                         trainings after which ranks held different bits
"""

from collections import defaultdict
from dataclasses import replace
from math import sqrt
from statistics import fmean, median, stdev
from typing import Any, Final

import click
import torch

from benchmarks.figures import print_figures
from benchmarks.geo_awareness import CHANGE_SECONDS, slower
from benchmarks.sync_convergence import OPTIMIZERS, Standard
from benchmarks.virtual_training import Trained, train
from mltswitch.overlay.document import Overlay, seated
from mltswitch.overlay.wan import known_wan
from mltswitch.training.fabric import FabricNetwork
from mltswitch.training.pytorch.layout import layers_of
from mltswitch.training.tolerance import TrainingTask, load_task
from mltswitch.training.virtual import VirtualJob

RANKS: Final = 9
ALEXNET_ELEMENTS: Final = 57_000_000
TARGET: Final = 0.94
STEPS: Final = 40
PIECES: Final = 20
SEEDS, QUICK_SEEDS = 5, 2
METHODS: Final[dict[str, dict[str, Any]]] = {
    "star": {},
    "lite": {"update_seconds": 0},
    "pro": {"auxiliary": "sooner"},
}


def perceptron() -> torch.nn.Module:
    """64-256-10."""
    nn = torch.nn
    return nn.Sequential(Standard(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def network(seed: int, scale: float, *, is_star: bool) -> Overlay:
    """A draw, as slow as the model is small."""
    overlay = slower(known_wan(f"netstorm9:{seed}").overlay(), scale)
    return seated(overlay, None, 1) if is_star else overlay


def trained(task: TrainingTask, method: str, seed: int, *, is_dynamic: bool) -> Trained:
    """One training."""
    elements = sum(count for _, count in layers_of(task.model())[0])
    scale, is_star = ALEXNET_ELEMENTS / elements, method == "star"
    piece_bytes = elements * 4 // PIECES
    first = network(100 * seed, scale, is_star=is_star)
    options: dict[str, Any] = {"servers": 1}
    if not is_star:
        plain = {"overlay": first.model_dump(mode="json", by_alias=True), "probe_bytes": piece_bytes}
        options = {"topology": "fapt", "topology_settings": plain | METHODS[method]}

    def befall(virtual: VirtualJob) -> None:
        for number in range(1, 60 if is_dynamic else 1):
            changed = FabricNetwork(network(100 * seed + number, scale, is_star=is_star))
            virtual.change(changed, number * CHANGE_SECONDS)

    return train(
        task,
        "bsp",
        seed=seed,
        steps=STEPS,
        settings={},
        network=FabricNetwork(first),
        befall=befall,
        in_turn=True,
        piece_bytes=piece_bytes,
        deadline_seconds=36_000.0,
        check_every=0,
        **options,
    )


def measure(seeds: int) -> dict[str, float]:
    """All figures."""
    torch.set_num_threads(1)  # several wait for each other on a busy machine
    task = replace(load_task("digits", ranks=RANKS), model=perceptron, optimizer=OPTIMIZERS["momentum"])
    accuracies, seconds = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    apart = 0
    for seed in range(seeds):
        for name, is_dynamic in (("static", False), ("dynamic", True)):
            for method in METHODS:
                found = trained(task, method, seed, is_dynamic=is_dynamic)
                apart += any(each.tobytes() != found.parameters[0].tobytes() for each in found.parameters)
                step = next((step for step, accuracy in found.accuracies if accuracy >= TARGET), STEPS)
                seconds[f"{name}_{method}"].append(found.seconds * step / STEPS)
                if not is_dynamic:
                    accuracies[method].append(found.final_accuracy)
    means = {method: fmean(found) for method, found in accuracies.items()}
    medians = {name: median(found) for name, found in seconds.items()}
    return {
        **{f"accuracy_{method}": mean for method, mean in means.items()},
        "accuracy_interval_star": 1.96 * stdev(accuracies["star"]) / sqrt(seeds),
        **{f"accuracy_gap_{method}": means["star"] - means[method] for method in ("lite", "pro")},
        **{f"seconds_to_accuracy_{name}": figure for name, figure in medians.items()},
        **{
            f"speedup_to_accuracy_{name}_{method}": medians[f"{name}_star"] / medians[f"{name}_{method}"]
            for name in ("static", "dynamic")
            for method in ("lite", "pro")
        },
        "ranks_apart": float(apart),
    }


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help=f"{QUICK_SEEDS} seeds.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """The benchmark."""
    print_figures(measure(QUICK_SEEDS if quick else SEEDS), as_json=as_json)


if __name__ == "__main__":
    main()
