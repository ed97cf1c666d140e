"""Real processes that train over loopback: some get SIGKILL, and may be started again; of tree_faults and
geo_faults.
"""

import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.training_campaign import gradient
from mltswitch.hostagent import Group
from mltswitch.hostagent.group import was_there
from mltswitch.overlay.wan import known_wan
from mltswitch.training.agents import AgentNode
from mltswitch.training.job import Job, make_job

RANKS: Final = 5
STEPS: Final = 40
LONG_STEPS: Final = 150
"""Where ranks are started again: they find the others still at work."""
STEP_SECONDS: Final = 0.02
DEADLINE_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 120.0
"""Long enough for a machine that does much else; a job that hangs is told by it, not a slow one."""
Told = tuple[int, float, NDArray[Any]]
"""A step, when it has ended, and its result; of a rank that is started again, first the sum of all before."""


@dataclass(slots=True)
class Found:
    """What has become of one job."""

    problem: str = ""
    """What is wrong; empty: nothing."""
    held_up_seconds: float = 0.0
    """From a death to the end of the step that it has held up longest."""
    back_seconds: list[float] = field(default_factory=list)
    """From the start of ranks that were started again to when they had what the others hold."""


def job_of(seed: int) -> Job:
    """A seed's."""
    topology, settings = (("tree", {"in_degree": 2}), ("tree", {"in_degree": 1}), ("star", {}))[seed % 3]
    return make_job(
        [(f"layer-{number}", 20_000) for number in range(4)],
        world=RANKS,
        continues=True,
        topology=topology,
        topology_settings=settings,
        transport=("mlt", "tcp")[seed // 3 % 2],
        deadline_seconds=DEADLINE_SECONDS,
    )


def job_between_sites(seed: int) -> Job:
    """One whose pieces take paths over other ranks; routes change where none is started again."""
    overlay = known_wan(f"mesh5:{seed}").overlay().model_dump(mode="json", by_alias=True)
    settings = {
        "overlay": overlay,
        "update_seconds": 0.2 * (seed % 2),
        "probe_bytes": 1,
        "probe_pieces": 1,
        "update_threshold": 0.0,
        "auxiliary": "paper",
        "primary_busy_bound": 1,
    }
    return make_job(
        [(f"layer-{number}", 20_000) for number in range(4)],
        world=RANKS,
        continues=True,
        topology="fapt",
        topology_settings=settings,
        transport=("mlt", "tcp")[seed // 2 % 2],
        piece_bytes=16_000,
        deadline_seconds=DEADLINE_SECONDS,
    )


def train(job: Job, number: int, place: str, told: Connection, steps: int) -> None:
    """A rank in a process of its own; tells of each step when it has ended, and its result."""
    is_back = was_there(place, number)
    with Group(number, job.world, place, returns=is_back) as group:
        absent = group.absent if is_back else None
        node = AgentNode(job, number, group.agent, group.names, absent=absent)
        total, first = np.zeros(job.elements, np.float32), node.node.first_step or 0
        if is_back:
            total[:] = node.take_state().view(np.float32)
            told.send((first - 1, time.monotonic(), total))
        vectors = np.zeros((2, 2, job.elements), np.float32)
        for step in range(first, steps):
            newcomer = node.newcomer(step)
            if newcomer is not None:
                node.give_state(newcomer, total.copy().view(np.uint8).copy)
            own, result = vectors[step % 2]
            own[:] = gradient(job, number, step)
            node.ready(step, range(len(job.pieces)), own, result)
            node.computed(step, 0.0, 0.0, own, result)
            node.wait(step)
            total += result
            told.send((step, time.monotonic(), result.copy()))
            time.sleep(STEP_SECONDS)
        node.close()


class _Run:
    """The processes of a job, and what they tell."""

    def __init__(self, job: Job, folder: str, steps: int) -> None:
        self._job, self._place, self._steps = job, f"file://{folder}/meeting", steps
        self._ranks: dict[Connection, int] = {}
        self.started: dict[int, float] = {}
        """When a rank was started last."""
        self.processes: dict[int, BaseProcess] = {}
        self.told: dict[int, list[Told]] = {}
        """By each rank since it was started last."""
        for number in range(job.world):
            self.start(number)

    def start(self, number: int) -> None:
        """Also again."""
        context = multiprocessing.get_context("fork")
        end, told = context.Pipe(duplex=False)
        arguments = self._job, number, self._place, told, self._steps
        self.processes[number] = context.Process(target=train, args=arguments, daemon=True)
        self.started[number], self.told[number] = time.monotonic(), []
        self.processes[number].start()
        told.close()
        self._ranks[end] = number

    def listen(self, seconds: float) -> bool:
        """For a while at most; whether anybody may still tell something."""
        for end in wait([*self._ranks], seconds):
            assert isinstance(end, Connection)  # noqa: S101
            try:
                self.told[self._ranks[end]].append(end.recv())
            except (EOFError, OSError):  # in the middle of a message, where it was killed
                del self._ranks[end]
        return bool(self._ranks)

    def close(self) -> None:
        for process in self.processes.values():
            process.join(1.0)
            process.kill()


def kill_real(seed: int, make: Callable[[int], Job] = job_of) -> Found:
    """Kill some processes that train, and start them again where the seed is even."""
    random, job = np.random.default_rng(seed), make(seed)
    victims = [int(rank) for rank in random.permutation(job.world)[: random.integers(1, 3)]]
    kills = {victim: random.random() * STEPS * STEP_SECONDS / 2 for victim in victims}
    starts = {victim: kills[victim] + random.random() for victim in victims if not seed % 2}
    steps, back, killed = LONG_STEPS if starts else STEPS, [*starts], list[float]()
    with tempfile.TemporaryDirectory() as folder:
        run = _Run(job, folder, steps)
        until, began = time.monotonic() + PATIENCE_SECONDS, 0.0
        while run.listen(1e-3) and time.monotonic() < until:
            began = began or (time.monotonic() if any(run.told.values()) else 0.0)
            due = time.monotonic() - began if began else 0.0
            for victim in [victim for victim, wait_seconds in kills.items() if due > wait_seconds]:
                run.processes[victim].kill()
                killed.append(time.monotonic())
                del kills[victim]
            for victim in [victim for victim, wait_seconds in starts.items() if due > wait_seconds]:
                run.processes[victim].join()
                run.start(victim)
                del starts[victim]
        run.close()
    left = [number for number in range(job.world) if number not in victims]
    found = Found(_problem(job, run, steps, left, back))
    held_up = [
        after[1] - moment
        for number in left
        for before, after in pairwise(run.told[number])
        for moment in killed
        if before[1] <= moment + STEP_SECONDS < after[1]
    ]
    found.held_up_seconds = max(held_up, default=0.0)
    found.back_seconds = [run.told[rank][0][1] - run.started[rank] for rank in back if run.told[rank]]
    return found


def _problem(job: Job, run: _Run, steps: int, left: list[int], back: list[int]) -> str:
    for number in (*left, *back):
        if not run.told[number] or run.told[number][-1][0] < steps - 1 or run.processes[number].exitcode:
            code = run.processes[number].exitcode
            return f"rank {number} ended after {len(run.told[number])} steps by {code}"
    results = {step: result for step, _, result in run.told[left[0]]}
    total = np.cumsum([results[step] for step in range(steps)], axis=0, dtype=np.float32)
    for number in (*left, *back):
        for step, _, result in run.told[number][number in back :]:
            if result.tobytes() != results[step].tobytes():
                return f"results of step {step} differ"
        first, _, state = run.told[number][0]
        if number in back and state.tobytes() != total[first].tobytes():
            return f"rank {number} has not got the sum of the steps before {first + 1}"
    for step, result in results.items():
        gradients = np.stack([gradient(job, rank, step) for rank in range(job.world)])
        if not all(_is_mean(result[each.elements], gradients[:, each.elements], left) for each in job.pieces):
            return f"a result of step {step} is no mean"
    return ""


def _is_mean(result: NDArray[Any], gradients: NDArray[Any], left: list[int]) -> bool:
    """Over all ranks, or over all but some of those that were killed."""
    gone = [rank for rank in range(len(gradients)) if rank not in left]
    for count in range(len(gone) + 1):
        for others in itertools.combinations(gone, count):
            total = gradients[sorted([*left, *others])].sum(axis=0, dtype=np.float32)
            if result.tobytes() == (total / np.float32(len(left) + count)).tobytes():
                return True
    return False
