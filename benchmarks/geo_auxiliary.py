"""Auxiliary paths between sites, in virtual time: what they bring, and what their settings do.

    python -m benchmarks.geo_auxiliary [--draws N] [--quick] [--json]

AlexNet's gradients over nine sites, topology `fapt`, a second of computing a step; a node sends to another
piece after piece, as agents do. `netstorm9` and `mesh9` (see geo_simulation), rates that stay; medians.

    draws
    auxiliary_gain, …_mesh              seconds of an exchange without paths over those with `sooner`
    auxiliary_gain_paper, …_paper_mesh  likewise by the paper's rule, a link busy with two pieces (paper 1.3
                                        to 1.65 in a network that changes)
    auxiliary_gain_busyB_queueQ         the paper's rule on netstorm9 (figure 17): B pieces make a link busy,
                                        Q of a sender may be on a path
    auxiliary_gain_sooner_busyB         `sooner` likewise

Rates that are drawn anew every 180 s, ten times (see geo_awareness); figures 18 and 20:

    lite_speedup_over_star              `fapt` over a server at the first site, both without measuring
    std_speedup_over_lite               with measuring
    pro_speedup_over_std                and with paths
    mobilenet_pro_speedup_over_std      of MobileNet, whose routes follow the rates
    update_T_ratio_to_5                 seconds of a step by looks every T seconds over those by 5; MobileNet
    probe_pieces_N_ratio_to_4           likewise, where a figure needs N pieces
    probe_bytes_K_ratio_to_1            likewise, where it needs the bytes of K pieces
    seconds
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import Any, Final

import click
import numpy as np

from benchmarks.figures import print_figures
from benchmarks.geo_awareness import CHANGES, PIECE_BYTES, SCALE, Run, job_of, slower
from benchmarks.geo_simulation import seconds_of
from mltswitch.overlay.document import Overlay, seated
from mltswitch.overlay.wan import known_wan
from mltswitch.training.fabric import FabricNetwork
from mltswitch.training.virtual import VirtualJob

DRAWS, QUICK_DRAWS = 20, 2
STATIC_STEPS: Final = 3
PAPER: Final = {"auxiliary": "paper", "primary_busy_bound": 2}
UPDATES: Final = (1.0, 5.0, 30.0, 120.0)
PROBES: Final = (1, 4, 32, 128)


def exchange_seconds(overlay: Overlay, **settings: Any) -> float:
    """Of AlexNet's gradients, where rates stay."""
    slow = slower(overlay, SCALE["alexnet"])
    virtual = VirtualJob(job_of(slow, update_seconds=0, **settings), FabricNetwork(slow), in_turn=True)
    vector = np.ones(virtual.job.elements, np.float32)
    report = virtual.run(STATIC_STEPS, lambda _rank, _step: vector, lambda _rank, _step: 1.0)
    assert not report.errors  # noqa: S101
    return virtual.now_seconds / STATIC_STEPS - 1


def static_gains(seed: int) -> dict[str, float]:
    """All figures of one draw."""
    found = {}
    for name, word in (("", "netstorm9"), ("_mesh", "mesh9")):
        overlay = known_wan(f"{word}:{seed}").overlay()
        without = exchange_seconds(overlay, auxiliary="none")
        found[f"auxiliary_gain{name}"] = without / exchange_seconds(overlay, auxiliary="sooner")
        found[f"auxiliary_gain_paper{name}"] = without / exchange_seconds(overlay, **PAPER)
    return found


def grid(seed: int) -> dict[str, float]:
    """Gains by settings (figure 17)."""
    overlay, found = known_wan(f"netstorm9:{seed}").overlay(), {}
    without = exchange_seconds(overlay, auxiliary="none")
    for busy in (1, 2, 4, 8):
        found[f"auxiliary_gain_sooner_busy{busy}"] = without / exchange_seconds(
            overlay, auxiliary="sooner", primary_busy_bound=busy
        )
        for queue in (1, 5):
            chosen = {"auxiliary": "paper", "primary_busy_bound": busy, "auxiliary_queue_length": queue}
            found[f"auxiliary_gain_busy{busy}_queue{queue}"] = without / exchange_seconds(overlay, **chosen)
    return found


def ladder(seed: int) -> dict[str, float]:
    """Of a network that changes (figure 18)."""
    seconds = {}
    for model in SCALE:
        for name, update, rule in (("lite", 0.0, "none"), ("std", 5.0, "none"), ("pro", 5.0, "sooner")):
            seconds[name, model] = Run(seed, model, update, auxiliary=rule).step_seconds
    draws = [known_wan(f"netstorm9:{100 * seed + number}").overlay() for number in range(CHANGES)]
    star = 1 + median(seconds_of(seated(overlay, None, 1), "star", {}) for overlay in draws)
    return {
        "lite_speedup_over_star": star / seconds["lite", "alexnet"],
        "std_speedup_over_lite": seconds["lite", "alexnet"] / seconds["std", "alexnet"],
        "pro_speedup_over_std": seconds["std", "alexnet"] / seconds["pro", "alexnet"],
        "mobilenet_pro_speedup_over_std": seconds["std", "mobilenet"] / seconds["pro", "mobilenet"],
    }


def settings_of_probes(seed: int) -> dict[str, float]:
    """Of MobileNet in a network that changes (figure 20)."""
    usual = Run(seed, "mobilenet", 5.0, auxiliary="sooner").step_seconds
    found = {}
    for update in UPDATES:
        run = Run(seed, "mobilenet", update, auxiliary="sooner")
        found[f"update_{update:g}_ratio_to_5"] = run.step_seconds / usual
    for count in PROBES:
        pieces = Run(seed, "mobilenet", 5.0, auxiliary="sooner", probe_pieces=count)
        size = Run(seed, "mobilenet", 5.0, auxiliary="sooner", probe_bytes=count * PIECE_BYTES)
        found[f"probe_pieces_{count}_ratio_to_4"] = pieces.step_seconds / usual
        found[f"probe_bytes_{count}_ratio_to_1"] = size.step_seconds / usual
    return found


SHARES: Final[Mapping[Callable[[int], dict[str, float]], float]] = {
    settings_of_probes: 0.1,
    ladder: 0.2,
    static_gains: 1.0,
    grid: 0.3,
}
"""Of the draws, by how long each takes."""


def measure(draws: int) -> dict[str, float]:
    """Medians."""
    began = time.monotonic()
    found: defaultdict[str, list[float]] = defaultdict(list)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        parts = [
            pool.submit(part, seed)
            for part, share in SHARES.items()
            for seed in range(max(1, round(draws * share)))
        ]
        for future in parts:
            for name, figure in future.result().items():
                found[name].append(figure)
    medians = {name: median(figures) for name, figures in found.items()}
    return {"draws": float(draws), **medians, "seconds": time.monotonic() - began}


@click.command(help=__doc__)
@click.option("--draws", type=click.IntRange(1), default=DRAWS, show_default=True)
@click.option("--quick", is_flag=True, help=f"{QUICK_DRAWS} draws.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(draws: int, quick: bool, as_json: bool) -> None:
    """The benchmark."""
    print_figures(measure(QUICK_DRAWS if quick else draws), as_json=as_json)


if __name__ == "__main__":
    main()
