"""The laws of training jobs in virtual time, from seeds: every topology, every synchronization.

    python -m benchmarks.training_campaign [--jobs N] [--seed S] [--quick] [--json]

A seed chooses a job (axes, ranks, servers, model, loss bound, divisor, element type), a network that loses
packets, uneven computing times, and often a fault: a node is killed or cut off, a rank stops computing, is
slow, or comes with another job. Gradients are powers of 4, so that each element of a sum shows which ranks
are in it, and how often. The seed of a broken law is printed, and the exit status is 1.

    jobs
    pushes_counted_twice        elements of results that have a rank's gradient more than once, or of another
                                step or place
    pushes_lost_unreported      elements without a rank's gradient, where no loss is reported
    bounds_broken               pieces and ranks of which more is missing than the loss bound allows
    ranks_that_differed         steps after which a rank does not hold the bytes that rank 0 holds
    ran_ahead                   steps that began before what its synchronization has them wait for
    too_many_posts              jobs with more open posts at a node than two sums of each piece have
    hung                        jobs of which ranks wait for ever
    wrong_errors                nodes with an error that they should not have, that names another node than
                                the one to blame, or that comes too late
    runs_that_differed          of every tenth job, run twice
    seconds
"""

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
from mltswitch.errors import UserInputError
from mltswitch.training.addition import NOTHING
from mltswitch.training.axes import Action, Network, Stage, axes_of, synchronizations, topologies
from mltswitch.training.errors import JobMismatchError, NodeLateError, NodeLostError, TrainingError
from mltswitch.training.job import Divisor, Job, OptimizerRule, make_job
from mltswitch.training.node import Node
from mltswitch.training.virtual import CHECK_SECONDS, SILENCE_SECONDS, HungError, Report, VirtualJob

JOBS: Final = 12_000
QUICK_SHARE: Final = 0.02
MOST_RANKS: Final = 9
DEADLINE_SECONDS: Final = 6.0
MARGIN_SECONDS: Final = 2 * CHECK_SECONDS + 0.5
"""For looks at the clock, and for the slowest network to carry words."""
FIRST_WORDS_SECONDS: Final = 0.1
"""In which nodes meet; whoever is lost earlier has not been there."""
PART: Final = 50
"""Jobs that a process takes at a time."""
LAWS: Final = (
    "pushes_counted_twice",
    "pushes_lost_unreported",
    "bounds_broken",
    "ranks_that_differed",
    "ran_ahead",
    "too_many_posts",
    "hung",
    "wrong_errors",
    "runs_that_differed",
)

Numbers = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls a node."""

    kind: str
    """`kill`, `cut`, `never` (stops computing), `slow` (within the deadline), or `mismatch`."""
    node: int
    at_seconds: float = 0.0
    at_step: int = 0
    part: str = ""
    """Of the job, that a mismatch is in."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A job and what happens to it."""

    seed: int
    job: Job
    network: Network
    steps: int
    loss_ratio: float
    compute_seconds: NDArray[np.float64]
    """By rank and step."""
    fault: Fault | None


def scenario(
    seed: int, *, synchronization: str = "", topology: str = "", fault: str | None = None
) -> Scenario:
    """A seed's; of the axes and the kind of fault (empty: none) where these are given."""
    random = np.random.default_rng(seed)
    while True:
        job = _job(random, synchronization, topology)
        try:
            axes_of(job)
        except UserInputError:  # no such point: no servers, or no divisor of that kind
            continue
        break
    steps = int(random.integers(1, 5))
    network = Network(float(random.choice([1e7, 1e8, 1e9])), float(random.choice([1e-5, 1e-3, 2e-2])))
    uneven = random.choice([0.0, 0.5, 2.0])
    compute = 0.05 * np.exp(uneven * random.standard_normal((job.world, steps)).clip(-1.5, 1.5))
    kinds = ("", "", "", "kill", "cut", "never", "slow", "mismatch")
    kind = kinds[random.integers(len(kinds))] if fault is None else fault
    befalls = _fault(kind, job, network, compute, random) if kind and job.nodes > 1 else None
    if befalls is not None and befalls.kind == "never":
        compute[befalls.node, befalls.at_step :] = np.inf
    if befalls is not None and befalls.kind == "slow":
        compute[befalls.node, befalls.at_step] = 0.8 * DEADLINE_SECONDS
    return Scenario(seed, job, network, steps, float(random.choice([0.0, 0.01, 0.2])), compute, befalls)


def _job(random: np.random.Generator, synchronization: str, topology: str) -> Job:
    world = int(random.integers(1, MOST_RANKS + 1))
    name = synchronization or str(random.choice([*synchronizations()]))
    is_lone = synchronizations()[name].needs.lone_pushes
    sizes = random.choice([1, 3, 700, 3000], random.integers(1, 5))
    servers = int(random.integers(0, 4))
    rule = OptimizerRule("SGD", ({"lr": -float(world)},), ((int(sizes.sum()), 0),))
    colocated = int(random.integers(world)) if not servers and random.integers(4) == 0 else None
    name_of_topology = topology or str(random.choice(list(topologies())))
    return make_job(
        [(f"layer-{number}", int(size)) for number, size in enumerate(sizes)],
        world=world,
        servers=servers,
        piece_bytes=int(random.choice([1_000, 4_000, 16_000])),
        element_type="float64" if is_lone else str(random.choice(["float32", "float64"])),
        loss_bound=float(random.choice([0.0, 0.1, 0.5, 0.9])),
        divisor=Divisor.RANKS if is_lone else str(random.choice(list(Divisor))),
        synchronization=name,
        settings=_settings(name, random),
        optimizer=rule if is_lone else None,
        colocated=colocated,
        continues=is_lone and servers > 0 and bool(random.integers(2)),
        topology=name_of_topology,
        topology_settings=_tree(world, name, random) if name_of_topology == "tree" else {},
        deadline_seconds=DEADLINE_SECONDS,
    )


def _tree(world: int, synchronization: str, random: np.random.Generator) -> dict[str, Any]:
    racks = [f"rack-{number}" for number in random.integers(0, 3, world)] if random.integers(2) else []
    degrees = [1, 2, 3, "auto"] + (["rack"] if racks else [])
    return {
        "in_degree": degrees[random.integers(len(degrees))],
        "placement": str(random.choice(["spread", "fixed"])),
        "locality": str(random.choice(["rack", "none"])),
        "racks": racks,
        "window_pieces": (None, 1, 2, 8)[random.integers(4)] if synchronization == "bsp" else None,
    }


def _settings(name: str, random: np.random.Generator) -> dict[str, Any]:
    if name == "ssp":
        return {"staleness": int(random.integers(1, 4))}
    if name == "r2sp":
        return {"turn_seconds": float(random.choice([0.2, 60.0]))}
    if name != "osp":
        return {}
    slice_bytes = (None, 1, 2_000)[random.integers(3)]
    share, late = float(random.choice([0.0, 0.3, 0.8, 1.0])), str(random.choice(["wait", "carry"]))
    return {"share": share, "slice_bytes": slice_bytes, "late": late}


def _fault(
    kind: str, job: Job, network: Network, compute: NDArray[np.float64], random: np.random.Generator
) -> Fault | None:
    _, topology = axes_of(job)
    steps = compute.shape[1]
    seconds = compute.max(axis=0).sum() + steps * topology.seconds(job, network)
    node = int(random.integers(job.nodes if kind in {"kill", "cut", "mismatch"} else job.world))
    part = str(random.choice([*_changes(job)])) if kind == "mismatch" else ""
    if kind == "never" and job.world == 1:
        return None  # nobody waits for it
    return Fault(kind, node, random.random() * seconds, int(random.integers(steps)), part)


def gradient(job: Job, rank: int, step: int) -> Numbers:
    """Powers of 4 for ranks, times powers of 2 for step and place: sums of them are exact.

    Where pushes count alone: a power of 2 for each rank and step.
    """
    if job.optimizer is not None:
        return np.full(job.elements, np.ldexp(1.0, job.world * step + rank))
    places = np.arange(job.elements) % 5 + step % 3
    return np.ldexp(4.0**rank, places).astype(job.element_type)


def play(case: Scenario) -> tuple[Report, int]:
    """Run it; also how many steps began early. Raises HungError."""
    zeros = np.zeros(case.job.elements, case.job.element_type)
    virtual = VirtualJob(case.job, case.network, loss_ratio=case.loss_ratio, seed=case.seed, parameters=zeros)
    fault, early = case.fault, list[tuple[int, int]]()
    if fault is not None and fault.kind == "kill":
        virtual.kill(fault.node, fault.at_seconds)
    if fault is not None and fault.kind == "cut":
        virtual.cut([fault.node], fault.at_seconds)
    if fault is not None and fault.kind == "mismatch":
        changes: dict[str, Any] = {fault.part: _changes(case.job)[fault.part]}
        virtual.nodes[fault.node] = Node(replace(case.job, **changes), fault.node, zeros)
    begun = [-1] * case.job.world

    def gradients(rank: int, step: int) -> Numbers:
        begun[rank] = step
        if _is_early(case.job, report, rank, step, min(begun)):
            early.append((rank, step))
        member, pieces = virtual.nodes[rank].member, range(len(case.job.pieces))
        assert member is not None, "a server computes nothing"  # noqa: S101
        member.weighed(
            {piece: 1.0 + (7 * piece + step) % 5 for piece in pieces if piece % case.job.world == rank}
        )
        return gradient(case.job, rank, step)

    report = virtual.report
    virtual.run(case.steps, gradients, lambda rank, step: float(case.compute_seconds[rank, step]))
    return report, len(early)


def _is_early(job: Job, report: Report, rank: int, step: int, slowest: int) -> bool:
    """Whether a step begins before what must be there, or too far ahead of the slowest rank."""
    if job.synchronization == "ssp" and not job.continues:
        return bool(step - slowest > job.settings["staleness"] + 1)
    if not step or job.synchronization == "window":
        return False
    open_pieces = {
        number
        for number, piece in enumerate(job.pieces)
        if np.isnan(report.results[rank, step - 1][piece.elements]).any()
    }
    if job.synchronization != "osp":
        return bool(open_pieces)
    lag = 2 if job.settings["late"] == "carry" else 0
    before = report.results.get((rank, step - 2 - lag))
    is_whole = before is None or not np.isnan(before).any()
    return not is_whole or (bool(open_pieces) and not job.settings["share"])


def _changes(job: Job) -> dict[str, object]:
    """Another value of each part of a job, by name, with which a node begins all the same."""
    changes = {
        "layers": (replace(job.layers[0], name="another"), *job.layers[1:]),
        "loss_bound": job.loss_bound / 2 + 0.01,
        "deadline_seconds": job.deadline_seconds + 1,
        "transport": "another",
        "world": job.world + 1,
        "samples": (1,) * job.world,
    }
    if job.topology_settings.get("racks"):
        del changes["world"]
    return changes


def broken(case: Scenario) -> Counter[str]:
    """How often a job breaks each law."""
    found: Counter[str] = Counter()
    try:
        report, early = play(case)
    except HungError:
        return Counter(hung=1)
    found["ran_ahead"] = early
    found["wrong_errors"] = wrong_errors(case, report)
    if case.job.optimizer is not None:
        _judge_parameters(case, report, found)
    else:
        for step in range(case.steps):
            _judge(case, report, step, found)
    found["too_many_posts"] = int(report.most_open_posts > _posts(case.job))
    if case.seed % 10 == 0:
        again, _ = play(case)
        found["runs_that_differed"] = int(_digest(report) != _digest(again))
    return +found


def _posts(job: Job) -> int:
    """Of two sums of each piece, at the busiest node; of each rank, stage and late step, if they differ."""
    synchronization, topology = axes_of(job)
    crossing = {Action.SEND, Action.RECEIVE}
    origins = range(job.world) if synchronization.needs.lone_pushes else (None,)
    lag = synchronization.member(job, 0).lag
    stages = 2 if synchronization.votes or synchronization.needs.lone_pushes else 1
    return (
        (2 + lag)
        * stages
        * max(
            sum(
                step.action in crossing
                for piece in range(len(job.pieces) + synchronization.votes)
                for origin in origins
                for step in topology.schedule(job, piece, node, origin)
            )
            for node in range(job.nodes)
        )
    )


def _digest(report: Report) -> tuple[object, ...]:
    results = tuple((key, result.tobytes()) for key, result in sorted(report.results.items()))
    errors = tuple((node, str(error)) for node, error in sorted(report.errors.items()))
    return results, errors, tuple(report.losses), report.seconds


def _judge(case: Scenario, report: Report, step: int, found: Counter[str]) -> None:
    """The results of a step, element by element, where a rank has them."""
    job = case.job
    is_in = np.ones((job.world, job.elements), bool)
    for loss in report.losses:
        if report.steps.get(loss.total) == step:
            base = job.pieces[loss.total.piece].first
            for first, end in loss.missing:
                is_in[np.ix_(loss.ranks, range(base + first, base + end))] = False
    for piece in job.pieces:
        missing = (~is_in[:, piece.elements]).sum(axis=1)
        found["bounds_broken"] += int((missing > job.loss_bound * piece.count).sum())
    unit = gradient(job, 0, step).astype(float)
    arrived = is_in.sum(axis=0)
    by = np.maximum(arrived, 1) if job.divisor is Divisor.ARRIVED else np.full(job.elements, job.world)
    total = sum(gradient(job, rank, step) * is_in[rank] for rank in range(job.world))
    expected = (total / by.astype(job.element_type)).astype(job.element_type)
    expected[arrived == 0] = NOTHING
    first_result = None
    for rank in range(job.world):
        result = report.results.get((rank, step))
        if result is None or (case.fault is not None and np.isnan(result).any()):
            continue
        if first_result is None:
            first_result = result
        found["ranks_that_differed"] += int(result.tobytes() != first_result.tobytes())
        if result.tobytes() != expected.tobytes():
            digits = np.rint(np.nan_to_num(result.astype(float)) * by / unit).astype(int)
            digits = (digits[None, :] >> (2 * np.arange(job.world)[:, None])) & 3
            found["pushes_lost_unreported"] += int((digits < is_in).sum())
            found["pushes_counted_twice"] += max(int((digits > is_in).sum()), int((digits >= is_in).all()))


def _judge_parameters(case: Scenario, report: Report, found: Counter[str]) -> None:
    """What ranks hold after draining, where each push is a bit of it."""
    job, pushes = case.job, case.job.world * case.steps
    lost = np.zeros((pushes, job.elements), int)
    for loss in report.losses:
        assert loss.total.origin is not None, "pushes count alone here"  # noqa: S101
        if loss.total.stage is Stage.LATER:
            continue  # of zeros, with which a rank asks for parameters
        push = job.world * loss.total.number + loss.total.origin
        base = job.pieces[loss.total.piece].first
        for first, end in loss.missing:
            lost[push, base + first : base + end] += 1
    sizes = [piece.count for piece in job.pieces]
    for push in range(pushes):
        missing = np.add.reduceat(lost[push], [piece.first for piece in job.pieces])
        found["bounds_broken"] += int((missing > job.loss_bound * np.array(sizes)).sum())
    first_result = None
    is_gone = np.array(
        [case.fault is not None and push % job.world == case.fault.node for push in range(pushes)]
    )
    for rank in range(job.world):
        result = report.results.get((rank, case.steps))
        if result is None or np.isnan(result).any():
            continue
        first_result = result if first_result is None else first_result
        found["ranks_that_differed"] += int(result.tobytes() != first_result.tobytes())
        bits = result.astype(np.int64)[None, :] >> np.arange(pushes)[:, None] & 1
        is_exact = (result == result.astype(np.int64)).all() and (result < np.ldexp(1.0, pushes)).all()
        found["pushes_counted_twice"] += int((bits > 1 - lost).sum()) + int(not is_exact)
        found["pushes_lost_unreported"] += int((bits < 1 - lost)[~is_gone].sum())


def wrong_errors(case: Scenario, report: Report) -> int:
    """Nodes whose error is not what the fault asks for."""
    fault, job = case.fault, case.job
    if fault is None or fault.kind == "slow":
        return len(report.errors)
    if fault.kind == "mismatch":
        return sum(not _is_mismatch(report, node, job, fault) for node in range(job.world))
    wrong, goes_on = 0, job.continues and fault.node < job.world and fault.kind in {"kill", "cut"}
    for node in range(job.world):
        error = report.errors.get(node)
        if goes_on and node != fault.node:
            is_late = isinstance(error, NodeLateError) and _is_right(error, report.failed_seconds[node], case)
            wrong += error is not None and not is_late and fault.at_seconds > FIRST_WORDS_SECONDS
            continue
        if error is None:
            is_done = not np.isnan(report.results.get((node, case.steps - 1), np.full(1, np.nan))).any()
            wrong += not (is_done or (node == fault.node and fault.kind == "kill"))
        elif node != fault.node or fault.kind == "never":
            wrong += not _is_right(error, report.failed_seconds[node], case)
    return wrong


def _is_mismatch(report: Report, node: int, job: Job, fault: Fault) -> bool:
    error = report.errors.get(node)
    return (
        isinstance(error, JobMismatchError)
        and fault.part in error.what
        and report.failed_seconds[node] < 1
        and (node == fault.node or error.where == job.node_name(fault.node))
    )


def _is_right(error: TrainingError, failed_seconds: float, case: Scenario) -> bool:
    assert case.fault is not None  # noqa: S101
    fault, job = case.fault, case.job
    if error.where != job.node_name(fault.node):
        return False
    longest_step = float(case.compute_seconds[np.isfinite(case.compute_seconds)].max(initial=0.0)) + 1
    if fault.kind == "kill":
        return isinstance(error, NodeLostError) and failed_seconds <= fault.at_seconds + MARGIN_SECONDS
    if fault.kind == "cut":
        patience = max(SILENCE_SECONDS, DEADLINE_SECONDS + longest_step)
        return failed_seconds <= fault.at_seconds + patience + MARGIN_SECONDS
    turns = CHECK_SECONDS * job.world if job.synchronization == "r2sp" else 0.0
    looks = 1 if job.optimizer is None else 2  # who drains looks whether others train on
    patience = looks * (DEADLINE_SECONDS + CHECK_SECONDS) + longest_step * case.steps + turns
    return isinstance(error, NodeLateError) and failed_seconds <= patience + MARGIN_SECONDS


def campaign(seeds: range) -> tuple[Counter[str], list[str]]:
    """All of these, and a line for each that breaks a law."""
    found: Counter[str] = Counter(jobs=len(seeds))
    lines = []
    for seed in seeds:
        laws = broken(scenario(seed))
        found += laws
        lines += [f"seed {seed}: {dict(laws)}"] if laws else []
    return found, lines


def measure(seed: int, jobs: int) -> tuple[dict[str, float], list[str]]:
    """Figures of a campaign over all processors, and a line for each seed that breaks a law."""
    started = time.monotonic()
    parts = [range(first, min(first + PART, seed + jobs)) for first in range(seed, seed + jobs, PART)]
    found: Counter[str] = Counter()
    lines: list[str] = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for counts, said in pool.map(campaign, parts):
            found += counts
            lines += said
    figures = {name: float(found[name]) for name in ("jobs", *LAWS)}
    return figures | {"seconds": time.monotonic() - started}, lines


@click.command()
@click.option("--jobs", default=JOBS, show_default=True, help="How many.")
@click.option("--seed", default=1, show_default=True, help="Of the first job.")
@click.option("--quick", is_flag=True, help=f"{QUICK_SHARE:.0%} of them.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(jobs: int, seed: int, quick: bool, as_json: bool) -> None:
    """Play jobs in virtual time, and count broken laws."""
    figures, lines = measure(seed, int(jobs * (QUICK_SHARE if quick else 1.0)))
    print_figures(figures, as_json=as_json)
    if lines:
        raise click.ClickException("\n".join(lines[:20]))


if __name__ == "__main__":
    main()
