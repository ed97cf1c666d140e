"""Jobs that go on without nodes that are gone, in virtual time, from seeds: trees and stars under `bsp`.

    python -m benchmarks.tree_faults [--jobs N] [--seed S] [--quick] [--json]

A seed chooses a job as `training_campaign` does, with `continues`, and faults: nodes die, fall silent, are
parted from the others, or compute slowly, often several at once or while the others still agree on how to go
on without the one before. The seed of a broken law is printed, and the exit status is 1.

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
    real_broken                 of these, how often a law was broken: a rank ends or hangs, results differ or
                                are no mean over ranks with all that are left
    real_seconds_p50, …_p99     from SIGKILL to the end of the last step that it has held up, at the last rank
    seconds
"""

import itertools
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import print_figures
from benchmarks.training_campaign import gradient, scenario
from mltswitch.hostagent import Group
from mltswitch.training.agents import AgentNode
from mltswitch.training.axes import Network, axes_of
from mltswitch.training.job import Divisor, Job, make_job
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
REAL_KILLS: Final = 50
REAL_RANKS: Final = 5
REAL_STEPS: Final = 40
STEP_SECONDS: Final = 0.02
PATIENCE_SECONDS: Final = 40.0
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
    network: Network
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
    job = replace(found.job, continues=True, divisor=divisor, deadline_seconds=DEADLINE_SECONDS)
    axes_of(job)
    steps = int(random.integers(2, 6)) + 6 * (seed % 2)
    compute = 0.05 * np.exp(random.choice([0.0, 1.0]) * random.standard_normal((job.world, steps)))
    seconds = compute.max(axis=0).sum() + steps * axes_of(job)[1].seconds(job, found.network)
    if random.random() < 0.2:  # a slow child
        compute[random.integers(job.world), random.integers(steps)] = SLOW_SECONDS
    faults, at_seconds = list[Fault](), MEETING_SECONDS + random.random() * seconds / (1 + 3 * (seed % 2))
    nodes = [int(node) for node in random.permutation(job.nodes)]
    while nodes and len(faults) < 4:
        count = min(int(random.integers(1, 4)), max(1, job.nodes // 3))
        faults.append(Fault(KINDS[random.integers(len(KINDS))], tuple(nodes[:count]), at_seconds))
        nodes = nodes[count:]
        at_seconds += float(random.choice([0.0, 1e-4, 5e-3, 0.1, 9.0, 11.0])) * random.random()
        if random.random() < 0.6:
            break
    killed = [(node, fault.at_seconds) for fault in faults if fault.kind == "kill" for node in fault.nodes]
    returns = {
        node: at_seconds + AWAY_SECONDS + float(random.choice([0.0, 0.2, 10.0])) * random.random()
        for node, at_seconds in killed
        if node < job.world and seed % 2 and random.random() < 0.7
    }
    return Case(seed, job, found.network, steps, found.loss_ratio, compute, tuple(faults), returns)


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
    for rank, at_seconds in case.returns.items():
        virtual.restart(rank, at_seconds)
    compute = case.compute_seconds
    report = virtual.run(
        case.steps,
        lambda rank, step: gradient(case.job, rank, step),
        lambda rank, step: float(compute[rank, step]),
    )
    return report, virtual


def broken(case: Case) -> tuple[Counter[str], dict[int, float], int]:
    """How often a job breaks each law, how long its repairs have taken, by the fault's number, and how many
    ranks are taken in again."""
    found: Counter[str] = Counter()
    try:
        report, virtual = play(case)
    except HungError:
        return Counter(hung=1), {}, 0
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
    lines += [f"real, seed {seed + at}: {what}" for at, (what, _) in enumerate(real) if what]
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
    figures["real_broken"] = float(sum(bool(what) for what, _ in real))
    for percent in (50, 99):
        figures[f"real_seconds_p{percent}"] = float(np.percentile([took for _, took in real], percent))
    return figures | {"seconds": time.monotonic() - started}, lines


def real_job(seed: int) -> Job:
    """Of real processes."""
    topology, settings = (("tree", {"in_degree": 2}), ("tree", {"in_degree": 1}), ("star", {}))[seed % 3]
    return make_job(
        [(f"layer-{number}", 20_000) for number in range(4)],
        world=REAL_RANKS,
        continues=True,
        topology=topology,
        topology_settings=settings,
        transport=("mlt", "tcp")[seed // 3 % 2],
        deadline_seconds=DEADLINE_SECONDS,
    )


def train(job: Job, number: int, place: str, told: Connection) -> None:
    """A rank in a process of its own; tells of each step when it has ended, and its result."""
    with Group(number, job.world, place) as group:
        node = AgentNode(job, number, group.agent, group.names)
        vectors = np.zeros((2, 2, job.elements), np.float32)
        for step in range(REAL_STEPS):
            own, result = vectors[step % 2]
            own[:] = gradient(job, number, step)
            node.ready(step, range(len(job.pieces)), own, result)
            node.computed(step, 0.0, 0.0, own, result)
            node.wait(step)
            told.send((step, time.monotonic(), result.copy()))
            time.sleep(STEP_SECONDS)
        node.close()


Told = tuple[int, float, NDArray[Any]]
"""A step, when it has ended, and its result."""


def kill_real(seed: int) -> tuple[str, float]:
    """Kill some processes that train: what is wrong then (empty: nothing), and the seconds it took."""
    random, job = np.random.default_rng(seed), real_job(seed)
    context = multiprocessing.get_context("fork")
    victims = [int(rank) for rank in random.permutation(job.world)[: random.integers(1, 3)]]
    waits = {victim: random.random() * REAL_STEPS * STEP_SECONDS / 2 for victim in victims}
    with tempfile.TemporaryDirectory() as folder:
        place = f"file://{folder}/meeting"
        ends = [context.Pipe(duplex=False) for _ in range(job.world)]
        ranks = []
        for number, (_, told) in enumerate(ends):
            ranks.append(context.Process(target=train, args=(job, number, place, told), daemon=True))
            ranks[-1].start()
            told.close()
        steps, killed = _collected([end for end, _ in ends], ranks, waits)
        for rank in ranks:
            rank.join(1.0)
            rank.kill()
    left = [number for number in range(job.world) if number not in victims]
    for number in left:
        if len(steps[number]) < REAL_STEPS or ranks[number].exitcode:
            return f"rank {number} ended after {len(steps[number])} steps by {ranks[number].exitcode}", 0.0
    held_up = [
        after[1] - moment
        for number in left
        for before, after in pairwise(steps[number])
        for moment in killed
        if before[1] <= moment + STEP_SECONDS < after[1]
    ]
    for step in range(REAL_STEPS):
        result = steps[left[0]][step][2]
        if any(steps[number][step][2].tobytes() != result.tobytes() for number in left):
            return f"results of step {step} differ", 0.0
        if not all(_is_mean(job, result, step, piece, left) for piece in range(len(job.pieces))):
            return f"a result of step {step} is no mean", 0.0
    return "", max(held_up, default=0.0)


def _collected(
    ends: list[Connection], ranks: Sequence[BaseProcess], waits: dict[int, float]
) -> tuple[list[list[Told]], list[float]]:
    """What ranks tell until they end, and when some were killed: so long after the first word."""
    steps: list[list[Told]] = [[] for _ in ends]
    killed: list[float] = []
    until, began = time.monotonic() + PATIENCE_SECONDS, 0.0
    open_ends = set(range(len(ends)))
    while open_ends and time.monotonic() < until:
        for number in [number for number in open_ends if ends[number].poll()]:
            try:
                steps[number].append(ends[number].recv())
            except (EOFError, OSError):  # in the middle of a message, where it was killed
                open_ends.remove(number)
        began = began or (time.monotonic() if any(steps) else 0.0)
        for victim, wait in [*waits.items()]:
            if began and time.monotonic() > began + wait:
                ranks[victim].kill()
                killed.append(time.monotonic())
                del waits[victim]
        time.sleep(1e-3)
    return steps, killed


def _is_mean(job: Job, result: NDArray[Any], step: int, number: int, left: list[int]) -> bool:
    """Over all ranks, or over all but some of those that are gone."""
    place, gone = job.pieces[number].elements, [rank for rank in range(job.world) if rank not in left]
    for count in range(len(gone) + 1):
        for others in itertools.combinations(gone, count):
            ranks = [rank for rank in range(job.world) if rank in left or rank in others]
            total = np.sum([gradient(job, rank, step)[place] for rank in ranks], axis=0, dtype=np.float32)
            if result[place].tobytes() == (total / np.float32(len(ranks))).tobytes():
                return True
    return False


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
