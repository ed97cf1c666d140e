"""Workers push the gradients of a model to parameter servers."""

from typing import Final, Literal

from pydantic import Field

from mltswitch.documents import SparseDocument
from mltswitch.errors import UserInputError
from mltswitch.network.units import PICOSECONDS, Seconds
from mltswitch.network.workloads.base import Extent, Flow, Stage
from mltswitch.profile import ModelProfile, resolve_profile

PARTITION_BYTES: Final = 4_096_000
"""BytePS cuts tensors into partitions of this size by default (docs/env.md of BytePS)."""


class ParameterServer(SparseDocument):
    """One push of every worker's gradients; workers come first among the hosts, servers after them."""

    kind: Literal["parameter-server"]
    profile: str
    """A bundled profile's name, or a profile file."""
    workers: int | None = Field(default=None, ge=1, le=100_000)
    """By default three quarters of the hosts, 3 : 1 as in MLT's section 6.2, or all that are no servers."""
    servers: int | None = Field(default=None, ge=1, le=100_000)
    """By default all other hosts."""
    mapping: Literal["whole", "sliced"] = "whole"
    """`whole`: partitions of at most 4,096,000 B go to the servers in turn, in the order of the profile's
    tensors; `sliced`: each layer is cut evenly over all servers."""
    backward_seconds: Seconds = Field(default=0.0, alias="backward")
    """Gradients become ready in this time, last layers first, in equal steps by layer; 0: all at once."""

    def extent(self, stage: Stage) -> Extent:
        """How much there is to send; raises UserInputError where fabric or plan does not fit."""
        profile, workers, servers = self._parties(stage)
        if self.mapping == "whole":
            sizes = [tensor.size_bytes for layer in profile.layers for tensor in layer.tensors]
            pieces = sum(-(-size // PARTITION_BYTES) for size in sizes)
            largest = min(max(sizes), PARTITION_BYTES)
        else:
            sizes = [layer.size_bytes for layer in profile.layers]
            pieces = sum(min(size, servers) for size in sizes)
            largest = -(-max(sizes) // servers)
        return Extent(workers * pieces, workers * sum(sizes), largest, self.backward_seconds)

    def flows(self, stage: Stage) -> list[Flow]:
        """A flow for each worker and partition or slice."""
        profile, workers, servers = self._parties(stage)
        pieces = _whole(profile, servers) if self.mapping == "whole" else _sliced(profile, servers)
        layers = len(profile.layers)
        return [
            Flow(
                worker,
                workers + server,
                size_bytes,
                stage.class_of(layer, layers),
                round((layers - 1 - layer) / layers * self.backward_seconds * PICOSECONDS),
                profile.layers[layer].name,
            )
            for layer, server, size_bytes in pieces
            for worker in range(workers)
        ]

    def _parties(self, stage: Stage) -> tuple[ModelProfile, int, int]:
        """The model, and how many workers and servers there are."""
        profile = resolve_profile(self.profile)
        if stage.plan_layers is not None and stage.plan_layers != len(profile.layers):
            raise UserInputError(
                f"the plan is for a model of {stage.plan_layers} layers, "
                f"{profile.name} has {len(profile.layers)}",
                where="workload.profile",
                hint="name the profile that the plan was made for",
            )
        left = stage.hosts - self.servers if self.servers else stage.hosts * 3 // 4
        workers = self.workers or max(1, left)
        servers = self.servers or max(1, stage.hosts - workers)
        stage.need(workers + servers, f"{workers} workers and {servers} servers")
        return profile, workers, servers


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
    pieces = []
    for place, layer in enumerate(profile.layers):
        bounds = [layer.size_bytes * server // servers for server in range(servers + 1)]
        pieces += [
            (place, server, bounds[server + 1] - bounds[server])
            for server in range(servers)
            if bounds[server + 1] > bounds[server]
        ]
    return pieces
