"""Jobs whose routes change while nodes die and links break, in virtual time, from seeds.

    python -m benchmarks.geo_faults [--jobs N] [--seed S] [--quick] [--json]

A seed chooses a network of three to seven sites, a policy, how often ranks tell what they measure, changes of
all rates, and faults as in `tree_faults`: ranks that plan die, too, and pieces are late. The seed of a broken
law is printed, and the exit status is 1.

    jobs, versions                      routes that were bound, of all jobs
    auxiliary_pieces                    that have taken another path than their own link
    versions_mixed_in_a_step            steps whose sums are made by other routes at one rank than at another
    counted_twice, lost_silently, ranks_that_differ, hung, ended, two_parts
                                        see tree_faults
    refused                             rates and offers that no rank believes
    repair_seconds_p99
    real_kills, real_broken, real_returned, real_seconds_p50, real_seconds_p99
                                        real processes, as in tree_faults, whose pieces take paths
    seconds
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import click
import numpy as np

from benchmarks.figures import print_figures
from benchmarks.real_kills import job_between_sites, kill_real
from benchmarks.tree_faults import (
    DEADLINE_SECONDS,
    LAWS,
    MEETING_SECONDS,
    Case,
    faults_of,
    judged,
    run,
    virtual_of,
)
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.policies import route
from mltswitch.overlay.wan import Wan
from mltswitch.training.fabric import FabricNetwork
from mltswitch.training.job import make_job
from mltswitch.training.virtual import HungError

JOBS: Final = 50_000
KILLS: Final = 50
QUICK_SHARE: Final = 0.01
PART: Final = 25
LAWS_OF_ROUTES: Final = ("versions_mixed_in_a_step", *LAWS)
POLICIES: Final = ("fapt",) * 6 + ("mst", "packed")


@dataclass(frozen=True, slots=True)
class GeoCase(Case):
    """A job between sites, and how its network changes."""

    wan: Wan
    changes_seconds: Sequence[float]


def wan_of(random: np.random.Generator) -> Wan:
    """Three to seven sites: a ring, and other links by chance."""
    count = int(random.integers(3, 8))
    cables = {(at, (at + 1) % count) for at in range(count)}
    cables |= {
        (one, other)
        for one in range(count)
        for other in range(one)
        if random.random() < random.choice([0.1, 0.9])
    }
    pairs = {ends for one, other in cables for ends in ((one, other), (other, one))}
    links = [
        {"source": f"s{one}", "target": f"s{other}", "delay_seconds": 1e-3} for one, other in sorted(pairs)
    ]
    changes = {"least": "1Mbps", "most": "9Mbps", "step": "10kbps", "seed": int(random.integers(1 << 30))}
    nodes = [f"s{at}" for at in range(count)]
    return Wan.model_validate({"nodes": nodes, "links": links, "changes": changes})


def case_of(seed: int) -> GeoCase:
    """A seed's."""
    random = np.random.default_rng((seed, 2))
    wan = wan_of(random)
    overlay = wan.overlay()
    policy = str(random.choice(POLICIES))
    policy_settings = {"parts": 2} if policy == "packed" else {}
    routes = route(overlay, policy, policy_settings, Exchange(1e6))
    settings = {
        "overlay": overlay.model_dump(mode="json", by_alias=True),
        "policy": policy,
        "policy_settings": policy_settings,
        "routes": routes.topology_settings["routes"],
        "probe_bytes": 1_000,
        "probe_pieces": 1,
        "update_seconds": float(random.choice([0.1, 0.3, 1.0])),
        "update_threshold": 0.02,
        "auxiliary": str(random.choice(["none", "sooner", "paper", "paper"])),
        "primary_busy_bound": 1,
        "auxiliary_queue_length": int(random.choice([1, 3])),
    }
    elements = int(random.integers(800, 5_000))
    job = make_job(
        [(f"layer-{number}", elements // 4) for number in range(4)],
        world=len(overlay.ranks),
        topology="fapt",
        topology_settings=settings,
        piece_bytes=int(random.choice([1_600, 6_400])),
        deadline_seconds=DEADLINE_SECONDS,
        element_type="float64",
        continues=True,
        check_every=int(random.choice([0, 1, 3])),
    )
    steps = int(random.integers(6, 20))
    compute = 0.05 * np.exp(0.5 * random.standard_normal((job.world, steps)))
    span_seconds = float(compute.max(axis=0).sum())
    faults = faults_of(random, job, MEETING_SECONDS + random.random() * span_seconds)
    count = int(random.integers(1, 6))
    changes = sorted((span_seconds * random.random(count)).tolist())
    network = FabricNetwork(overlay)
    return GeoCase(
        seed, job, network, steps, 0.0, compute, tuple(faults), {}, wan=wan, changes_seconds=changes
    )


def broken(case: GeoCase) -> tuple[Counter[str], Mapping[int, float]]:
    """How often a job breaks each law, with what else is counted; and its repairs' seconds by fault."""
    virtual = virtual_of(case)
    for number, at_seconds in enumerate(case.changes_seconds, 1):
        virtual.change(FabricNetwork(case.wan.overlay(number)), at_seconds)
    bound: defaultdict[tuple[int, int], set[int]] = defaultdict(set)

    def arrived(rank: int, step: int, _total: Any) -> None:
        node = virtual.nodes[rank]
        epoch = 0 if node.view is None else node.view.epoch
        bound[step, epoch].add(node.version_of(step))

    virtual.arrived = arrived
    try:
        report = run(case, virtual)
    except HungError:
        return Counter(hung=1), {}
    found, repairs, _ = judged(case, report, virtual)
    found["versions_mixed_in_a_step"] = sum(len(versions) > 1 for versions in bound.values())
    alive = [virtual.nodes[rank].changes for rank in case.survivors if rank not in report.errors]
    found["versions"] = len({changes.version for changes in alive if changes is not None and changes.version})
    auxiliaries = [virtual.nodes[rank].auxiliary for rank in case.survivors]
    found["auxiliary_pieces"] = sum(paths.pieces for paths in auxiliaries if paths is not None)
    found["refused"] = sum(changes.refused for changes in alive if changes is not None)
    return +found, repairs


def campaign(seeds: range) -> tuple[Counter[str], list[str], list[float]]:
    """All of these, a line for each that breaks a law, and repairs' seconds."""
    found: Counter[str] = Counter(jobs=len(seeds))
    lines, seconds = list[str](), list[float]()
    for seed in seeds:
        laws, repairs = broken(case_of(seed))
        found += laws
        seconds += repairs.values()
        if {*laws} & {*LAWS_OF_ROUTES}:
            lines.append(f"seed {seed}: {dict(laws)}")
    return found, lines, seconds


def measure(seed: int, jobs: int, kills: int) -> tuple[dict[str, float], list[str]]:
    """Figures of a campaign over all processors, and a line for each seed that breaks a law."""
    started = time.monotonic()
    parts = [range(first, min(first + PART, seed + jobs)) for first in range(seed, seed + jobs, PART)]
    found: Counter[str] = Counter()
    lines: list[str] = []
    repairs: list[float] = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for counts, said, seconds in pool.map(campaign, parts):
            found += counts
            lines += said
            repairs += seconds
    figures = {
        name: float(found[name])
        for name in ("jobs", "versions", "auxiliary_pieces", *LAWS_OF_ROUTES, "refused")
    }
    figures["repair_seconds_p99"] = float(np.percentile(repairs, 99))
    real = [kill_real(number, job_between_sites) for number in range(seed, seed + kills)]
    lines += [f"real, seed {seed + at}: {each.problem}" for at, each in enumerate(real) if each.problem]
    figures["real_kills"] = float(kills)
    figures["real_broken"] = float(sum(bool(each.problem) for each in real))
    figures["real_returned"] = float(sum(len(each.back_seconds) for each in real))
    for percent in (50, 99) if real else ():
        held_up = [each.held_up_seconds for each in real]
        figures[f"real_seconds_p{percent}"] = float(np.percentile(held_up, percent))
    return figures | {"seconds": time.monotonic() - started}, lines


@click.command()
@click.option("--jobs", default=JOBS, show_default=True, help="How many.")
@click.option("--kills", default=KILLS, show_default=True, help="Jobs of real processes.")
@click.option("--seed", default=1, show_default=True, help="Of the first job.")
@click.option("--quick", is_flag=True, help=f"{QUICK_SHARE:.0%} of them.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(jobs: int, kills: int, seed: int, quick: bool, as_json: bool) -> None:
    """Play jobs between sites with faults in virtual time, and count broken laws."""
    share = QUICK_SHARE if quick else 1
    figures, lines = measure(seed, int(jobs * share), int(np.ceil(kills * share)))
    print_figures(figures, as_json=as_json)
    if lines:
        raise click.ClickException("\n".join(lines[:20]))


if __name__ == "__main__":
    main()
