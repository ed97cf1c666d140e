"""Workers add up their gradients around a ring."""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from mltswitch.network.units import SizeBytes
from mltswitch.network.workloads.base import After, Flow, Stage, Work
from mltswitch.network.workloads.collectives import ring_pass, shares
from mltswitch.network.workloads.training import ByLayer, TrainingJob, layer_flow
from mltswitch.profile import ModelProfile


class Ring(TrainingJob):
    """All-reduce around a ring of workers in the order of their hosts, 2 (n - 1) steps for each bucket."""

    kind: Literal["ring"]
    workers: int | None = Field(default=None, ge=2, le=100_000)
    """By default all hosts."""
    bucket_bytes: SizeBytes = Field(default=25 * 2**20, alias="bucket")
    """Layers are put together, the last ones first, while they have no more bytes than this; 25 MiB, as
    PyTorch's DistributedDataParallel does. A larger layer is a bucket of its own."""

    def parties(self, stage: Stage) -> int:
        """How many workers there are; raises UserInputError where the fabric has too few hosts."""
        workers = self.workers or stage.hosts
        stage.need(max(workers, 2), f"{workers} workers in a ring")
        return workers

    def round_extent(self, profile: ModelProfile, stage: Stage) -> tuple[int, int, int]:
        """Flows of a round, their bytes, and those of the largest."""
        workers = self.parties(stage)
        parts = [shares(size_bytes, workers) for _, _, size_bytes in self._buckets(profile)]
        passes = 2 * (workers - 1)
        flows = passes * sum(size > 0 for sizes in parts for size in sizes)
        return flows, passes * sum(map(sum, parts)), max(map(max, parts))

    def exchange(
        self, work: Work, stage: Stage, profile: ModelProfile, ready: list[ByLayer]
    ) -> list[ByLayer]:
        """A bucket starts at a worker when the gradients of its first layer, which come last, are ready."""
        workers = len(ready)
        has: list[ByLayer] = [[()] * len(profile.layers) for _ in range(workers)]
        for first, beyond, size_bytes in self._buckets(profile):

            def make(
                source: int, destination: int, part: int, after: After, is_result: bool, layer: int = first
            ) -> Flow:
                flow = layer_flow(stage, profile, layer, (source, destination), part, after)
                return replace(flow, lossless=is_result)

            after, parts = [by_layer[first] for by_layer in ready], shares(size_bytes, workers)
            done = ring_pass(work, range(workers), parts, after, make, reduces=True, gathers=True)
            for by_layer, each in zip(has, done, strict=True):
                by_layer[first:beyond] = [each] * (beyond - first)
        return has

    def _buckets(self, profile: ModelProfile) -> list[tuple[int, int, int]]:
        """(first layer, one beyond the last, bytes) of each bucket, the last ones first."""
        buckets: list[tuple[int, int, int]] = []
        for place in reversed(range(len(profile.layers))):
            size_bytes = profile.layers[place].size_bytes
            if buckets and buckets[-1][2] + size_bytes <= self.bucket_bytes:
                _, beyond, before = buckets[-1]
                buckets[-1] = place, beyond, before + size_bytes
            else:
                buckets.append((place, place + 1, size_bytes))
        return buckets
