"""Jobs that go on without nodes that are gone, in virtual time, from seeds: trees and stars under `bsp`.

    python -m benchmarks.tree_faults [--jobs N] [--seed S] [--quick] [--json]

A seed chooses a job as `training_campaign` does, with `continues`, and faults: nodes die, fall silent, are
parted from the others, or compute slowly, often several at once or while the others still agree on how to go
on without the one before; pieces arrive late, and overtake each other. No transfer has the key of one before,
so that what is repeated of that counts for none. The seed of a broken law is printed, and the exit status
is 1.

    jobs
    counted_twice               pieces of results that are no mean over the ranks of one view
    lost_silently               steps of which a rank that is left has no result
    ranks_that_differ           steps after which ranks that are left hold other bytes
    hung                        jobs of which ranks wait for ever
    ended                       nodes that end although more than half are left after each fault
    two_parts                   jobs of which two parts go on that do not hear each other
    returns, returned           killed ranks that are started again; that are taken in before the job ends
    repairs                     faults that a job has gone on after
    repair_seconds_p99          from a fault, or another one meanwhile, to when all that are left have agreed
    repair_seconds_p50_killed   likewise, of nodes that die
    real_kills                  real processes that got SIGKILL while they trained, by agents over loopback
    real_broken                 of these jobs, those that break a law: a rank ends or hangs, results differ or
                                are no mean over ranks with all that are left
    real_seconds_p50, …_p99     from SIGKILL to the end of the last step that it has held up, at the last rank
    real_returned               killed processes that were started again, and are taken in
    real_back_seconds_p50, …_max from their start to when they have what the others hold
    seconds
"""

import os
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import print_figures
from benchmarks.real_kills import kill_real
from benchmarks.training_campaign import gradient, scenario
from mltswitch.training.addition import NOTHING
from mltswitch.training.axes import axes_of
from mltswitch.training.job import Divisor, Job
from mltswitch.training.virtual import HungError, Report, VirtualJob
from mltswitch.training.virtual_network import Wires

JOBS: Final = 50_000
QUICK_SHARE: Final = 0.02
MEETING_SECONDS: Final = 0.2
"""In which nodes meet; who is lost earlier ends the job."""
DEADLINE_SECONDS: Final = 30.0
"""Longer than the silence after which a node counts as lost."""
PART: Final = 50
SLOW_SECONDS: Final = 12.0
LAWS: Final = ("counted_twice", "lost_silently", "ranks_that_differ", "hung", "ended", "two_parts")
REAL_KILLS: Final = 50
LATE: Final = ((0.2, 1e-3), (0.05, 0.05), (0.01, 1.0), (0.002, 5.0))
"""Share of pieces that are late, and by how much at most: half of all jobs have one of these."""
AWAY_SECONDS: Final = 0.1
"""From a death, which all have heard of by then, to when the rank is there again."""
Composition = tuple[int, frozenset[int], tuple[int, int] | None]
"""Of a view: epoch, gone, entering."""
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
    network: Wires
    steps: int
    loss_ratio: float
    compute_seconds: NDArray[np.float64]
    faults: tuple[Fault, ...]
    returns: Mapping[int, float]
    """When ranks are started again that were killed."""

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
    check_every = (0, 0, 1, 3)[seed % 4]
    job = replace(
        found.job,
        continues=True,
        divisor=divisor,
        deadline_seconds=DEADLINE_SECONDS,
        check_every=check_every,
    )
    axes_of(job)
    steps = int(random.integers(2, 6)) + 6 * (seed % 2) + 20 * (seed % 10 == 9)
    compute = 0.05 * np.exp(random.choice([0.0, 1.0]) * random.standard_normal((job.world, steps)))
    seconds = compute.max(axis=0).sum() + steps * axes_of(job)[1].seconds(job, found.network)
    if random.random() < 0.2:  # a slow child
        compute[random.integers(job.world), random.integers(steps)] = SLOW_SECONDS
    at_seconds = MEETING_SECONDS + random.random() * seconds / (1 + 3 * (seed % 2))
    faults = faults_of(random, job, at_seconds)
    killed = [(node, fault.at_seconds) for fault in faults if fault.kind == "kill" for node in fault.nodes]
    returns = {
        node: at_seconds + AWAY_SECONDS + float(random.choice([0.0, 0.2, 10.0])) * random.random()
        for node, at_seconds in killed
        if node < job.world and seed % 2 and random.random() < 0.7
    }
    return Case(seed, job, found.network, steps, found.loss_ratio, compute, tuple(faults), returns)


def faults_of(random: np.random.Generator, job: Job, at_seconds: float) -> list[Fault]:
    """Up to four, the first one at that time."""
    faults = list[Fault]()
    nodes = [int(node) for node in random.permutation(job.nodes)]
    while nodes and len(faults) < 4:
        count = min(int(random.integers(1, 4)), max(1, job.nodes // 3))
        faults.append(Fault(KINDS[random.integers(len(KINDS))], tuple(nodes[:count]), at_seconds))
        nodes = nodes[count:]
        at_seconds += float(random.choice([0.0, 1e-4, 5e-3, 0.1, 9.0, 11.0])) * random.random()
        if random.random() < 0.6:
            break
    return faults


def play(case: Case) -> tuple[Report, VirtualJob]:
    """Run it. Raises HungError."""
    virtual = virtual_of(case)
    return run(case, virtual), virtual


def virtual_of(case: Case) -> VirtualJob:
    """With its network, and pieces that are late."""
    random = np.random.default_rng((case.seed, 1))
    share, most = LATE[random.integers(len(LATE))] if random.random() < 0.5 else (0.0, 0.0)
    return VirtualJob(
        case.job,
        case.network,
        loss_ratio=case.loss_ratio,
        seed=case.seed,
        late=lambda: most * random.random() if random.random() < share else 0.0,
        in_turn=bool(case.seed % 2),
    )


def run(case: Case, virtual: VirtualJob) -> Report:
    """With its faults. Raises HungError."""
    for fault in case.faults:
        if fault.kind == "part":
            virtual.cut(fault.nodes, fault.at_seconds)
            continue
        for node in fault.nodes:
            if fault.kind == "kill":
                virtual.kill(node, fault.at_seconds)
            else:
                virtual.cut([node], fault.at_seconds)
    for rank, at_seconds in case.returns.items():
        virtual.restart(rank, at_seconds)
    compute = case.compute_seconds
    return virtual.run(
        case.steps,
        lambda rank, step: gradient(case.job, rank, step),
        lambda rank, step: float(compute[rank, step]),
    )


def broken(case: Case) -> tuple[Counter[str], dict[int, float], int]:
    """How often a job breaks each law, how long its repairs have taken, by the fault's number, and how many
    ranks are taken in again."""
    try:
        report, virtual = play(case)
    except HungError:
        return Counter(hung=1), {}, 0
    return judged(case, report, virtual)


def judged(case: Case, report: Report, virtual: VirtualJob) -> tuple[Counter[str], dict[int, float], int]:
    """Likewise, of one that has been played."""
    found: Counter[str] = Counter()
    left = [rank for rank in case.survivors if rank < case.job.world]
    if case.must_go_on:
        found["ended"] = len([node for node in (*case.survivors, *case.returns) if node in report.errors])
    killed = {node for fault in case.faults if fault.kind == "kill" for node in fault.nodes}
    first_steps = {rank: virtual.nodes[rank].first_step for rank in range(case.job.world)}
    first_of = {
        rank: first
        for rank, first in first_steps.items()
        if first is not None
        and rank not in report.errors
        and (rank not in killed or rank in case.returns)
        and (rank, case.steps) in report.results
    }
    for step in range(case.steps):
        _judge(case, report, step, [rank for rank, first in first_of.items() if first <= step], found)
    if not found["ended"] and case.must_go_on:
        found["lost_silently"] += sum(
            bool(np.isnan(report.results.get((rank, step), np.full(1, np.nan))).any())
            for rank in (*left, *(rank for rank in case.returns if rank in first_of))
            for step in range(first_of.get(rank, 0), case.steps)
        )
    alive = {*range(case.job.nodes)} - report.errors.keys() - virtual.dead
    gone = {node: view.gone for node in alive if (view := virtual.nodes[node].view) is not None}
    found["two_parts"] = sum(one in gone[other] and other in gone[one] for one in gone for other in gone)
    returned = sum(bool(first_of.get(rank)) for rank in case.returns)
    return +found, _repairs(case, virtual), returned


def _repairs(case: Case, virtual: VirtualJob) -> dict[int, float]:
    if not case.must_go_on:
        return {}
    found = {}
    for number, fault in enumerate(case.faults):
        agreed = [
            min(
                (when for when, view in virtual.report.views[node] if view.gone >= {*fault.nodes}),
                default=np.nan,
            )
            for node in case.survivors
        ]
        if not np.isnan(agreed).any():
            # who falls silent while the others agree is waited for, too
            began = [each.at_seconds for each in case.faults if each.at_seconds < max(agreed)]
            found[number] = float(max(agreed) - max(began))
    return found


def _judge(case: Case, report: Report, step: int, done: list[int], found: Counter[str]) -> None:
    """Each piece's results are the mean over the ranks of one view, which is the same at all."""
    job = case.job
    views = {(view.epoch, view.gone, view.entering) for found in report.views.values() for _, view in found}
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
        if not any(first.tobytes() == _mean(job, report, step, number, view).tobytes() for view in views):
            found["counted_twice"] += 1


def _mean(job: Job, report: Report, step: int, number: int, view: Composition) -> NDArray[Any]:
    piece, (epoch, gone, entering) = job.pieces[number], view
    absent = entering[0] if entering is not None and step < entering[1] else -1
    ranks = [rank for rank in range(job.world) if rank not in gone and rank != absent]
    is_in = np.zeros((job.world, piece.count), bool)
    is_in[ranks] = True
    for loss in report.losses:
        if loss.total.piece == number and loss.total.number == step and loss.epoch == epoch:
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
        laws, repairs, returned = broken(case)
        found += laws
        found["returned"] += returned
        found["returns"] += len(case.returns)
        lines += [f"seed {seed}: {dict(laws)}"] if laws else []
        seconds += [(case.faults[number].kind, value) for number, value in repairs.items()]
    return found, lines, seconds


def measure(seed: int, jobs: int, kills: int) -> tuple[dict[str, float], list[str]]:
    """Figures of a campaign over all processors, and a line for each seed that breaks a law."""
    started = time.monotonic()
    parts = [range(first, min(first + PART, seed + jobs)) for first in range(seed, seed + jobs, PART)]
    found: Counter[str] = Counter()
    lines: list[str] = []
    repairs: list[tuple[str, float]] = []
    real = [kill_real(number) for number in range(seed, seed + kills)]
    lines += [f"real, seed {seed + at}: {each.problem}" for at, each in enumerate(real) if each.problem]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for counts, said, seconds in pool.map(campaign, parts):
            found += counts
            lines += said
            repairs += seconds
    figures = {name: float(found[name]) for name in ("jobs", *LAWS, "returns", "returned")}
    figures["repairs"] = float(len(repairs))
    figures["repair_seconds_p99"] = float(np.percentile([value for _, value in repairs], 99))
    killed = [value for kind, value in repairs if kind == "kill"]
    figures["repair_seconds_p50_killed"] = float(np.median(killed))
    figures["real_kills"] = float(len(real))
    figures["real_broken"] = float(sum(bool(each.problem) for each in real))
    for percent in (50, 99):
        figures[f"real_seconds_p{percent}"] = float(
            np.percentile([each.held_up_seconds for each in real], percent)
        )
    back = [took for each in real for took in each.back_seconds]
    figures["real_returned"] = float(len(back))
    figures["real_back_seconds_p50"] = float(np.median(back))
    figures["real_back_seconds_max"] = max(back)
    return figures | {"seconds": time.monotonic() - started}, lines


@click.command()
@click.option("--jobs", default=JOBS, show_default=True, help="How many.")
@click.option("--seed", default=1, show_default=True, help="Of the first job.")
@click.option("--quick", is_flag=True, help=f"{QUICK_SHARE:.0%} of them.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(jobs: int, seed: int, quick: bool, as_json: bool) -> None:
    """Play jobs with faults in virtual time, and count broken laws."""
    share = QUICK_SHARE if quick else 1.0
    figures, lines = measure(seed, int(jobs * share), 6 if quick else REAL_KILLS)
    print_figures(figures, as_json=as_json)
    if lines:
        raise click.ClickException("\n".join(lines[:20]))


if __name__ == "__main__":
    main()
