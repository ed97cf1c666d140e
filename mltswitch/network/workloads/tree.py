"""Workers add up their gradients along trees, by training's own pieces and schedules."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import accumulate
from typing import Any, Literal

from pydantic import Field

from mltswitch.network.workloads.base import After, Flow, Stage, Work
from mltswitch.network.workloads.training import ByLayer, TrainingJob, layer_flow, result_flow
from mltswitch.profile import ModelProfile
from mltswitch.training.axes import Action, Step, axes_of
from mltswitch.training.job import make_job

Key = tuple[int, int]
"""A node of the job, and the place of one of its steps."""


class Tree(TrainingJob):
    """What training does over the topology `tree`: gradients go up and are added, results come down."""

    kind: Literal["tree"]
    workers: int | None = Field(default=None, ge=2, le=100_000)
    """By default all hosts that are no servers."""
    servers: int = Field(default=0, ge=0, le=100_000)
    """Roots that are no workers, on the hosts after them; 0: workers are roots in turn."""
    settings: Mapping[str, Any] = Field(default={}, max_length=100)
    """Of the topology: `in_degree`, `placement`, `racks` and others."""

    def parties(self, stage: Stage) -> int:
        """How many workers there are; raises UserInputError where the fabric has too few hosts."""
        workers = self.workers or max(2, stage.hosts - self.servers)
        stage.need(workers + self.servers, f"{workers} workers and {self.servers} servers")
        return workers

    def round_extent(self, profile: ModelProfile, stage: Stage) -> tuple[int, int, int]:
        """Flows of a round, their bytes, and those of the largest."""
        work = Work()
        self.exchange(work, stage, profile, [[()] * len(profile.layers)] * self.parties(stage))
        sizes = [flow.size_bytes for flow in work]
        return len(sizes), sum(sizes), max(sizes)

    def exchange(
        self, work: Work, stage: Stage, profile: ModelProfile, ready: list[ByLayer]
    ) -> list[ByLayer]:
        """A piece goes up when the gradients of its first layer, which come last, are ready."""
        job = make_job(
            [(layer.name, layer.parameters) for layer in profile.layers],
            world=len(ready),
            servers=self.servers,
            topology="tree",
            topology_settings=self.settings,
        )
        _, topology = axes_of(job)
        ends = [*accumulate(layer.parameters for layer in profile.layers)]
        element_bytes = profile.total_bytes / profile.total_parameters
        has: list[ByLayer] = [[()] * len(profile.layers) for _ in ready]
        for number, piece in enumerate(job.pieces):
            beyond = piece.first + piece.count
            size_bytes = max(1, round(beyond * element_bytes) - round(piece.first * element_bytes))
            gradients = layer_flow(stage, profile, piece.layer, (0, 0), size_bytes, ())
            schedules = [topology.schedule(job, number, node) for node in range(job.nodes)]
            given = [by_layer[piece.layer] for by_layer in ready]
            layers = range(piece.layer, bisect_left(ends, beyond) + 1)
            for node, result in enumerate(_played(work, schedules, given, gradients)):
                for layer in layers:
                    has[node][layer] += result
        return has


def _played(
    work: Work, schedules: Sequence[Sequence[Step]], given: Sequence[After], gradients: Flow
) -> list[After]:
    """Add the flows of one piece, after that of a rank's gradients; returns when each rank has the result."""
    sends = {
        (node, step.peer, step.is_result): (node, place)
        for node, steps in enumerate(schedules)
        for place, step in enumerate(steps)
        if step.action is Action.SEND
    }
    before: dict[Key, list[Key]] = {}
    for node, steps in enumerate(schedules):
        for place, step in enumerate(steps):
            before[node, place] = [(node, each) for each in step.after]
            if step.action is Action.RECEIVE and step.peer is not None:
                before[node, place].append(sends[step.peer, node, step.is_result])
    done: dict[Key, After] = {}
    results: list[After] = [()] * len(given)
    for node, place in TopologicalSorter(before).static_order():
        step = schedules[node][place]
        after = tuple(dict.fromkeys(each for key in before[node, place] for each in done[key]))
        if step.peer is None and step.action is Action.ADD:
            after += given[node]
        if step.action is Action.SEND and step.peer is not None:
            if step.is_result:
                flow = result_flow(gradients, node, step.peer, after)
            else:
                flow = replace(gradients, source=node, destination=step.peer, after=after or given[node])
            after = (work.send(flow),)
        elif step.action is Action.ADD:
            after = work.compute(node, 0, after)
        elif step.action is Action.RESULT and node < len(given):
            results[node] = after
        done[node, place] = after
    return results
