"""Jobs that go on without nodes that are gone, in virtual time, from seeds: trees and stars under `bsp`.

    python -m benchmarks.tree_faults [--jobs N] [--seed S] [--quick] [--json]

A seed chooses a job as `training_campaign` does, with `continues`, and faults: nodes die, fall silent, are
parted from the others, or compute slowly, often several at once or while the others still agree on how to go
on without the one before. The seed of a broken law is printed, and the exit status is 1.

    jobs
    counted_twice               elements of results that are no mean over one set of ranks with all that are
                                left in it
    lost_silently               steps of which a rank that is left has no result
    ranks_that_differ           steps after which ranks that are left hold other bytes
    hung                        jobs of which ranks wait for ever
    ended                       nodes that end although more than half are left after each fault
    two_parts                   jobs of which two parts go on that do not hear each other
    repairs                     faults that a job has gone on after
    repair_seconds_p99          from a fault to when all that are left have agreed
    repair_seconds_p50_killed   likewise, of nodes that die
    seconds
"""

import itertools
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import print_figures
from benchmarks.training_campaign import gradient, scenario
from mltswitch.training.axes import Network, axes_of
from mltswitch.training.job import Divisor, Job
from mltswitch.training.sums import NOTHING
from mltswitch.training.virtual import HungError, Report, VirtualJob

JOBS: Final = 50_000
QUICK_SHARE: Final = 0.02
MEETING_SECONDS: Final = 0.2
"""In which nodes meet; who is lost earlier ends the job."""
DEADLINE_SECONDS: Final = 30.0
"""Longer than the silence after which a node counts as lost."""
PART: Final = 50
SLOW_SECONDS: Final = 12.0
LAWS: Final = ("counted_twice", "lost_silently", "ranks_that_differ", "hung", "ended", "two_parts")
KINDS: Final = ("kill", "kill", "cut", "part")


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls nodes, at the same time."""

    kind: str
    """`kill`, `cut`: each by itself; `part`: all together from the others."""
    nodes: tuple[int, ...]
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Case:
    """A job and its faults."""

    seed: int
    job: Job
    network: Network
    steps: int
    loss_ratio: float
    compute_seconds: NDArray[np.float64]
    faults: tuple[Fault, ...]

    @property
    def survivors(self) -> list[int]:
        """Nodes that no fault befalls."""
        gone = {node for fault in self.faults for node in fault.nodes}
        return [node for node in range(self.job.nodes) if node not in gone]

    @property
    def must_go_on(self) -> bool:
        """Whether more than half are left, and a rank, even if all faults were one."""
        left = self.survivors
        return 2 * len(left) > self.job.nodes and min(left) < self.job.world


def case_of(seed: int, topology: str = "") -> Case:
    """A seed's."""
    random = np.random.default_rng(seed)
    name = topology or str(random.choice(["tree", "tree", "star"]))
    number = 1_000_000 + seed
    while (found := scenario(number, synchronization="bsp", topology=name, fault="")).job.nodes < 2:
        number += 50_000_000
    divisor = found.job.divisor if name == "star" else Divisor.RANKS
    job = replace(found.job, continues=True, divisor=divisor, deadline_seconds=DEADLINE_SECONDS)
    axes_of(job)
    steps = int(random.integers(2, 6))
    compute = 0.05 * np.exp(random.choice([0.0, 1.0]) * random.standard_normal((job.world, steps)))
    seconds = compute.max(axis=0).sum() + steps * axes_of(job)[1].seconds(job, found.network)
    if random.random() < 0.2:  # a slow child
        compute[random.integers(job.world), random.integers(steps)] = SLOW_SECONDS
    faults, at_seconds = list[Fault](), MEETING_SECONDS + random.random() * seconds
    nodes = [int(node) for node in random.permutation(job.nodes)]
    while nodes and len(faults) < 4:
        count = min(int(random.integers(1, 4)), max(1, job.nodes // 3))
        faults.append(Fault(KINDS[random.integers(len(KINDS))], tuple(nodes[:count]), at_seconds))
        nodes = nodes[count:]
        at_seconds += float(random.choice([0.0, 1e-4, 5e-3, 0.1, 9.0, 11.0])) * random.random()
        if random.random() < 0.6:
            break
    return Case(seed, job, found.network, steps, found.loss_ratio, compute, tuple(faults))


def play(case: Case) -> tuple[Report, VirtualJob]:
    """Run it. Raises HungError."""
    virtual = VirtualJob(case.job, case.network, loss_ratio=case.loss_ratio, seed=case.seed)
    for fault in case.faults:
        if fault.kind == "part":
            virtual.cut(fault.nodes, fault.at_seconds)
            continue
        for node in fault.nodes:
            if fault.kind == "kill":
                virtual.kill(node, fault.at_seconds)
            else:
                virtual.cut([node], fault.at_seconds)
    compute = case.compute_seconds
    report = virtual.run(
        case.steps,
        lambda rank, step: gradient(case.job, rank, step),
        lambda rank, step: float(compute[rank, step]),
    )
    return report, virtual


def broken(case: Case) -> tuple[Counter[str], dict[int, float]]:
    """How often a job breaks each law, and how long its repairs have taken, by the fault's number."""
    found: Counter[str] = Counter()
    try:
        report, virtual = play(case)
    except HungError:
        return Counter(hung=1), {}
    left = [rank for rank in case.survivors if rank < case.job.world]
    if case.must_go_on:
        found["ended"] = len([node for node in case.survivors if node in report.errors])
    done = [
        rank
        for rank in range(case.job.world)
        if rank not in report.errors and (rank, case.steps) in report.results
    ]
    for step in range(case.steps):
        _judge(case, report, step, done, found)
    if not found["ended"] and case.must_go_on:
        found["lost_silently"] += sum(
            bool(np.isnan(report.results.get((rank, step), np.full(1, np.nan))).any())
            for rank in left
            for step in range(case.steps)
        )
    gone = {node: virtual.nodes[node].agreed for node in range(case.job.nodes) if node not in report.errors}
    found["two_parts"] = sum(one in gone[other] and other in gone[one] for one in gone for other in gone)
    return +found, _repairs(case, virtual)


def _repairs(case: Case, virtual: VirtualJob) -> dict[int, float]:
    if not case.must_go_on:
        return {}
    gone: set[int] = set()
    found = {}
    for number, fault in enumerate(case.faults):
        gone |= {*fault.nodes}
        agreed = [
            min((when for when, lost in virtual.report.views[node] if lost >= gone), default=float("nan"))
            for node in case.survivors
        ]
        if not np.isnan(agreed).any():
            found[number] = max(agreed) - fault.at_seconds
    return found


def _judge(case: Case, report: Report, step: int, done: list[int], found: Counter[str]) -> None:
    """Each piece's results are one mean over a set of ranks that has all those that are left."""
    job = case.job
    faulted = sorted({node for fault in case.faults for node in fault.nodes})
    for number, piece in enumerate(job.pieces):
        results = {
            rank: result[piece.elements]
            for rank in done
            if (result := report.results.get((rank, step))) is not None
            and not np.isnan(result[piece.elements]).any()
        }
        if not results:
            continue
        first = next(iter(results.values()))
        found["ranks_that_differ"] += sum(each.tobytes() != first.tobytes() for each in results.values())
        gone_sets = (
            frozenset(gone)
            for count in range(len(faulted) + 1)
            for gone in itertools.combinations(faulted, count)
        )
        if not any(first.tobytes() == _mean(job, report, step, number, gone).tobytes() for gone in gone_sets):
            found["counted_twice"] += 1


def _mean(job: Job, report: Report, step: int, number: int, gone: frozenset[int]) -> NDArray[Any]:
    piece = job.pieces[number]
    ranks = [rank for rank in range(job.world) if rank not in gone]
    is_in = np.zeros((job.world, piece.count), bool)
    is_in[ranks] = True
    for loss in report.losses:
        if loss.total.piece == number and loss.total.number == step and loss.epoch == len(gone):
            for first, end in loss.missing:
                is_in[np.ix_(loss.ranks, range(first, end))] = False
    gradients = np.stack([gradient(job, rank, step)[piece.elements] for rank in range(job.world)])
    total = (gradients * is_in).sum(axis=0, dtype=job.element_type)
    by = np.full(piece.count, len(ranks) or 1)
    if job.divisor is Divisor.ARRIVED:
        by = np.maximum(is_in.sum(axis=0), 1)
    mean: NDArray[Any] = (total / by.astype(job.element_type)).astype(job.element_type)
    mean[~is_in.any(axis=0)] = NOTHING
    return mean


def campaign(seeds: range) -> tuple[Counter[str], list[str], list[tuple[str, float]]]:
    """All of these, a line for each that breaks a law, and kinds of faults with their repairs' seconds."""
    found: Counter[str] = Counter(jobs=len(seeds))
    lines, seconds = [], []
    for seed in seeds:
        case = case_of(seed)
        laws, repairs = broken(case)
        found += laws
        lines += [f"seed {seed}: {dict(laws)}"] if laws else []
        seconds += [(case.faults[number].kind, value) for number, value in repairs.items()]
    return found, lines, seconds


def measure(seed: int, jobs: int) -> tuple[dict[str, float], list[str]]:
    """Figures of a campaign over all processors, and a line for each seed that breaks a law."""
    started = time.monotonic()
    parts = [range(first, min(first + PART, seed + jobs)) for first in range(seed, seed + jobs, PART)]
    found: Counter[str] = Counter()
    lines: list[str] = []
    repairs: list[tuple[str, float]] = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for counts, said, seconds in pool.map(campaign, parts):
            found += counts
            lines += said
            repairs += seconds
    figures = {name: float(found[name]) for name in ("jobs", *LAWS)}
    figures["repairs"] = float(len(repairs))
    figures["repair_seconds_p99"] = float(np.percentile([value for _, value in repairs], 99))
    killed = [value for kind, value in repairs if kind == "kill"]
    figures["repair_seconds_p50_killed"] = float(np.median(killed))
    return figures | {"seconds": time.monotonic() - started}, lines


@click.command()
@click.option("--jobs", default=JOBS, show_default=True, help="How many.")
@click.option("--seed", default=1, show_default=True, help="Of the first job.")
@click.option("--quick", is_flag=True, help=f"{QUICK_SHARE:.0%} of them.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(jobs: int, seed: int, quick: bool, as_json: bool) -> None:
    """Play jobs with faults in virtual time, and count broken laws."""
    figures, lines = measure(seed, int(jobs * (QUICK_SHARE if quick else 1.0)))
    print_figures(figures, as_json=as_json)
    if lines:
        raise click.ClickException("\n".join(lines[:20]))


if __name__ == "__main__":
    main()
