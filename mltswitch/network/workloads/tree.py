"""Workers add up their gradients along trees, in training's own pieces."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any, Literal

from pydantic import Field

from mltswitch.network.workloads.base import After, Flow, Stage, Work
from mltswitch.network.workloads.training import ByLayer, TrainingJob, layer_flow, result_flow
from mltswitch.overlay.trees import depths
from mltswitch.profile import ModelProfile
from mltswitch.training.job import make_job
from mltswitch.training.topology.tree import TOPOLOGY, Branches


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
        layers = [(layer.name, layer.parameters) for layer in profile.layers]
        options: Any = {"topology": "tree", "topology_settings": self.settings, "servers": self.servers}
        job = make_job(layers, world=len(ready), **options)
        trees = TOPOLOGY.of(job)
        ends, element_bytes = [*accumulate(count for _, count in layers)], profile.total_bytes / job.elements
        has: list[ByLayer] = [[()] * len(layers) for _ in ready]
        for number, piece in enumerate(job.pieces):
            beyond = piece.first + piece.count
            size_bytes = max(1, round(beyond * element_bytes) - round(piece.first * element_bytes))
            gradients = layer_flow(stage, profile, piece.layer, (0, 0), size_bytes, ())
            given = defaultdict(tuple, enumerate(by_layer[piece.layer] for by_layer in ready))
            results = _up_and_down(work, trees.branches[trees.branch_of[number]], given, gradients)
            for node, by_layer in enumerate(has):
                for layer in range(piece.layer, bisect_left(ends, beyond) + 1):
                    by_layer[layer] += results[node]
        return has


def _up_and_down(work: Work, tree: Branches, given: Mapping[int, After], gradients: Flow) -> dict[int, After]:
    """Add the flows of one piece, after that of a rank's gradients; returns when each node has the result."""
    root, up, down = tree
    summed = defaultdict(tuple, given)
    for node in sorted(up, key=depths(up).__getitem__, reverse=True):
        flow = replace(gradients, source=node, destination=up[node], after=summed[node])
        summed[up[node]] += (work.send(flow),)
    results = {root: work.compute(root, 0, summed[root])}
    for node in sorted(down, key=depths(down).__getitem__):
        flow = result_flow(gradients, down[node], node, results[down[node]])
        results[node] = (work.send(flow),)
    return results
