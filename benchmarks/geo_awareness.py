"""Routes that follow the rates of links between sites, in virtual time: what a new plan brings.

    python -m benchmarks.geo_awareness [--draws N] [--quick] [--json]

`netstorm9` (see geo_simulation): each direction is drawn anew every 180 s, ten times. Nine ranks train with
topology `fapt`, a second of computing a step, once with the routes of the first draw for ever and once with
`update_seconds` 5. A step's routes are bound before it begins, so what counts is how many steps there are
between two changes: of MobileNet (17 MB) some forty, of AlexNet (228 MB) two or three. Medians over draws.

    draws
    awareness_gain_mobilenet        seconds of a step without measuring over those with (paper 1.32)
    awareness_gain_alexnet          likewise; its plans are two steps old when they count
    rate_error_median               of the rates that ranks have told, over the true ones at that time
    rate_error_p90                  near a change a figure is of both rates
    change_noticed_seconds_p50, p90 from a change to a link's first figure within a tenth of its new rate
    versions                        that were bound, of a run of MobileNet
    versions_mixed_in_a_step        steps of which two ranks have bound different versions; any is a fault
    refused                         rates or routes that no rank of the job tells
    seconds
"""

import time
from collections import defaultdict
from statistics import median
from typing import Any, Final

import click
import numpy as np

from benchmarks.figures import print_figures
from benchmarks.geo_simulation import netstorm9
from mltswitch.overlay.document import Overlay
from mltswitch.training.fabric import FabricNetwork
from mltswitch.training.job import Job, make_job
from mltswitch.training.virtual import VirtualJob

DRAWS, QUICK_DRAWS = 5, 1
CHANGES: Final = 10
CHANGE_SECONDS: Final = 180.0
ELEMENTS: Final = 57_000
"""That cross in the place of the model's, in a network as much slower."""
SCALE: Final = {"mobilenet": 4_230_000 / ELEMENTS, "alexnet": 57_000_000 / ELEMENTS}
STEPS: Final = {"mobilenet": 250, "alexnet": 22}
PIECE_BYTES: Final = 4_000
LAYERS: Final = 8
UPDATE_SECONDS: Final = 5.0
NEAR: Final = 0.1


def job_of(overlay: Overlay, **settings: Any) -> Job:
    """Over all sites."""
    plain = {"overlay": overlay.model_dump(mode="json", by_alias=True), "probe_bytes": PIECE_BYTES}
    return make_job(
        [(f"layer-{number}", ELEMENTS // LAYERS) for number in range(LAYERS)],
        world=len(overlay.ranks),
        topology="fapt",
        topology_settings=plain | settings,
        piece_bytes=PIECE_BYTES,
        deadline_seconds=3_600.0,
        check_every=0,
    )


def slower(overlay: Overlay, scale: float) -> Overlay:
    """For a job whose elements are as few."""
    links = (link.model_copy(update={"rate_bps": round(link.rate_bps / scale)}) for link in overlay.links)
    return overlay.model_copy(update={"links": tuple(links)})


class Run:
    """A job over links that change."""

    def __init__(self, seed: int, model: str, update_seconds: float, **settings: Any) -> None:
        networks = [netstorm9(100 * seed + number) for number in range(CHANGES + 1)]
        self._networks = [FabricNetwork(each).scaled(1 / SCALE[model]) for each in networks]
        first = slower(networks[0], SCALE[model])
        chosen = {"auxiliary": "none", "update_seconds": update_seconds, **settings}
        self.virtual = VirtualJob(job_of(first, **chosen), self._networks[0], in_turn=True)
        for number in range(1, CHANGES + 1):
            self.virtual.change(self._networks[number], number * CHANGE_SECONDS)
        self.told: defaultdict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        """Of each link, when a rate was told and which, over the true one."""
        self.versions: defaultdict[int, set[int]] = defaultdict(set)
        """Of each step, those that ranks have bound when its results come."""
        self.virtual.arrived = self._arrived
        self._seen: dict[tuple[int, int], int] = {}
        vector = np.ones(self.virtual.job.elements, np.float32)
        report = self.virtual.run(STEPS[model], lambda _rank, _step: vector, lambda _rank, _step: 1.0)
        assert not report.errors  # noqa: S101
        self.step_seconds = self.virtual.now_seconds / STEPS[model]

    def _arrived(self, rank: int, step: int, total: Any) -> None:
        changes = self.virtual.nodes[rank].changes
        if changes is None:
            return
        if total.piece < len(self.virtual.job.pieces):
            self.versions[step].add(self.virtual.nodes[rank].version_of(step))
        for ends, (bps, at_ns) in changes.measured.items() if rank == 0 else ():
            if self._seen.get(ends) != at_ns:
                self._seen[ends] = at_ns
                network = self._networks[min(CHANGES, int(at_ns / 1e9 / CHANGE_SECONDS))]
                self.told[ends].append((at_ns / 1e9, bps / network.rate_bps(network.way(*ends)[0])))


def noticed_seconds(run: Run) -> list[float]:
    """Of each change and each link that is measured after it, until a figure is near the new rate."""
    found = []
    for ratios in run.told.values():
        for number in range(1, CHANGES + 1):
            begin, end = number * CHANGE_SECONDS, (number + 1) * CHANGE_SECONDS
            after = [(at - begin, ratio) for at, ratio in ratios if begin <= at < end]
            near = [at for at, ratio in after if abs(ratio - 1) <= NEAR]
            if near:
                found.append(near[0])
    return found


def measure(draws: int) -> dict[str, float]:
    """All figures."""
    started = time.monotonic()
    gains: dict[str, list[float]] = {model: [] for model in SCALE}
    errors, noticed, versions, mixed, refused = [], list[float](), list[int](), 0, 0
    for seed in range(draws):
        for model in SCALE:
            without, aware = Run(seed, model, 0.0), Run(seed, model, UPDATE_SECONDS)
            gains[model].append(without.step_seconds / aware.step_seconds)
            mixed += sum(len(found) > 1 for found in aware.versions.values())
            refused += sum(node.changes.refused for node in aware.virtual.nodes if node.changes is not None)
            if model == "mobilenet":
                errors += [abs(ratio - 1) for ratios in aware.told.values() for _, ratio in ratios]
                noticed += noticed_seconds(aware)
                versions.append(len({number for found in aware.versions.values() for number in found}))
    return {
        "draws": draws,
        **{f"awareness_gain_{model}": median(found) for model, found in gains.items()},
        "rate_error_median": median(errors),
        "rate_error_p90": float(np.percentile(errors, 90)),
        "change_noticed_seconds_p50": median(noticed),
        "change_noticed_seconds_p90": float(np.percentile(noticed, 90)),
        "versions": median(versions),
        "versions_mixed_in_a_step": float(mixed),
        "refused": float(refused),
        "seconds": time.monotonic() - started,
    }


@click.command(help=__doc__)
@click.option("--draws", type=click.IntRange(1), default=DRAWS, show_default=True)
@click.option("--quick", is_flag=True, help=f"{QUICK_DRAWS} draws.")
@click.option("--json", "as_json", is_flag=True)
def main(draws: int, quick: bool, as_json: bool) -> None:
    """The benchmark."""
    print_figures(measure(QUICK_DRAWS if quick else draws), as_json=as_json)


if __name__ == "__main__":
    main()
