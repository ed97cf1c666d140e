"""Workers push the gradients of a model to parameter servers, and pull the updated parameters."""

from dataclasses import replace
from typing import Final, Literal, Self

from pydantic import Field, model_validator

from mltswitch.errors import UserInputError
from mltswitch.network.workloads.base import Stage, Work
from mltswitch.network.workloads.collectives import shares
from mltswitch.network.workloads.training import ByLayer, TrainingJob, layer_flow, result_flow
from mltswitch.profile import ModelProfile

PARTITION_BYTES: Final = 4_096_000
"""BytePS cuts tensors into partitions of this size by default (docs/env.md of BytePS)."""


class ParameterServer(TrainingJob):
    """Pushes of every worker's gradients; workers come first among the hosts, servers after them."""

    kind: Literal["parameter-server"]
    workers: int | None = Field(default=None, ge=1, le=100_000)
    """By default three quarters of the hosts, 3 : 1 as in MLT's section 6.2, or all that are no servers."""
    servers: int | None = Field(default=None, ge=1, le=100_000)
    """By default all other hosts."""
    colocated: bool = False
    """Servers run on workers' hosts, by default one on each; what stays on a host crosses no link."""
    mapping: Literal["whole", "sliced"] = "whole"
    """`whole`: partitions of at most 4,096,000 B go to the servers in turn, in the order of the profile's
    tensors; `sliced`: each layer is cut evenly over all servers."""
    pull: bool = False
    """A server sends a partition's or slice's parameters back to each worker when all gradients of it have
    come. Without, every worker has the parameters of a layer then."""
    lossy_pull: bool = False
    """Also parameters may miss the share of the transport's loss bound, as in MLT's paper."""

    @model_validator(mode="after")
    def _is_pulled(self) -> Self:
        if self.lossy_pull and not self.pull:
            raise ValueError("lossy_pull: nothing is pulled; give `pull: true`")
        return self

    def parties(self, stage: Stage) -> int:
        """How many workers there are; raises UserInputError where the fabric has too few hosts."""
        return self._parties(stage)[0]

    def round_extent(self, profile: ModelProfile, stage: Stage) -> tuple[int, int, int]:
        """Flows of a round, their bytes, and those of the largest."""
        workers, servers = self._parties(stage)
        if self.mapping == "whole":
            sizes = [tensor.size_bytes for layer in profile.layers for tensor in layer.tensors]
            pieces = sum(-(-size // PARTITION_BYTES) for size in sizes)
            largest = min(max(sizes), PARTITION_BYTES)
        else:
            sizes = [layer.size_bytes for layer in profile.layers]
            pieces = sum(min(size, len(servers)) for size in sizes)
            largest = -(-max(sizes) // len(servers))
        copies = (workers - self.colocated) * (1 + self.pull)
        return copies * pieces, copies * sum(sizes), largest

    def exchange(
        self, work: Work, stage: Stage, profile: ModelProfile, ready: list[ByLayer]
    ) -> list[ByLayer]:
        """A flow for each worker and partition or slice, and one back where it is pulled."""
        workers, servers = self._parties(stage)
        pieces = (_whole if self.mapping == "whole" else _sliced)(profile, len(servers))
        has: list[ByLayer] = [[()] * len(profile.layers) for _ in range(workers)]
        pushed: list[list[int]] = [[] for _ in profile.layers]
        for layer, server, size_bytes in pieces:
            host, at_server = servers[server], list[int]()
            for worker in range(workers):
                after = ready[worker][layer]
                if worker != host:
                    flow = layer_flow(stage, profile, layer, (worker, host), size_bytes, after)
                    after = (work.send(flow),)
                at_server += after
            pushed[layer] += at_server
            if not self.pull:
                continue
            total = work.compute(host, 0, tuple(at_server))
            push = layer_flow(stage, profile, layer, (host, host), size_bytes, ())
            for worker in range(workers):
                after = total
                if worker != host:
                    pull = result_flow(push, host, worker, total)
                    after = (work.send(replace(pull, lossless=not self.lossy_pull)),)
                has[worker][layer] += after
        if not self.pull:
            return [[work.compute(servers[0], 0, tuple(each)) for each in pushed]] * workers
        return has

    def _parties(self, stage: Stage) -> tuple[int, list[int]]:
        """How many workers there are, and the servers' hosts."""
        if self.colocated:
            workers = self.workers or stage.hosts
            servers = self.servers or workers
            stage.need(max(workers, servers), f"{workers} workers with {servers} servers on their hosts")
            if servers > workers:
                raise UserInputError(
                    f"{servers} servers on the hosts of {workers} workers",
                    where="workload.servers",
                    expected=f"at most {workers}",
                )
            return workers, [server * workers // servers for server in range(servers)]
        left = stage.hosts - self.servers if self.servers else stage.hosts * 3 // 4
        workers = self.workers or max(1, left)
        servers = self.servers or max(1, stage.hosts - workers)
        stage.need(workers + servers, f"{workers} workers and {servers} servers")
        return workers, [workers + server for server in range(servers)]


def _whole(profile: ModelProfile, servers: int) -> list[tuple[int, int, int]]:
    """(layer, server, bytes) of each partition."""
    pieces: list[tuple[int, int, int]] = []
    for place, layer in enumerate(profile.layers):
        for tensor in layer.tensors:
            left = tensor.size_bytes
            while left > 0:
                part = min(left, PARTITION_BYTES)
                pieces.append((place, len(pieces) % servers, part))
                left -= part
    return pieces


def _sliced(profile: ModelProfile, servers: int) -> list[tuple[int, int, int]]:
    """(layer, server, bytes) of each slice; a layer of fewer bytes than servers leaves some without."""
    return [
        (place, server, size_bytes)
        for place, layer in enumerate(profile.layers)
        for server, size_bytes in enumerate(shares(layer.size_bytes, servers))
        if size_bytes
    ]
