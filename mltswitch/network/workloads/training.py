"""What all training jobs have in common: passes of the model, rounds, and workers that are slower."""

from abc import abstractmethod
from dataclasses import replace
from math import ceil
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from mltswitch.documents import SparseDocument
from mltswitch.errors import UserInputError
from mltswitch.network.units import Seconds
from mltswitch.network.workloads.base import After, Extent, Flow, Stage, Work
from mltswitch.profile import ModelProfile, resolve_profile

ByLayer = list[After]
"""For each layer, in forward order, what waits for it must wait for."""


class Stragglers(SparseDocument):
    """Workers that compute more slowly than the others, in every round."""

    share: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    """Of the workers, at least one; the seed chooses them."""
    hosts: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(), max_length=100_000)
    """Numbers of the workers that are slow, in the place of a share drawn by the seed."""
    factor: float = Field(ge=1, le=1000, allow_inf_nan=False)
    """How many times as long as the others they compute."""

    @model_validator(mode="after")
    def _says_who(self) -> Self:
        if (self.share is None) == (not self.hosts):
            raise ValueError("stragglers: either a share of the workers or hosts")
        return self


class TrainingJob(SparseDocument):
    """Rounds of training: forward and backward passes layer by layer, and an exchange of gradients."""

    profile: str
    """A bundled profile's name, or a profile file."""
    compression: float = Field(default=1.0, ge=1, le=1_000_000, allow_inf_nan=False)
    """Each tensor has so many times fewer elements, rounded up, as in MLT's sections 2.2 and 6.3."""
    workers: int | None = Field(default=None, ge=1, le=100_000)
    rounds: int = Field(default=1, ge=1, le=10_000)
    forward_seconds: Seconds = Field(default=0.0, alias="forward")
    """Computing time of a forward pass, in equal parts by layer. A layer waits for its own parameters alone,
    so front layers begin the next round while others are still on their way."""
    backward_seconds: Seconds = Field(default=0.0, alias="backward")
    """Computing time of a backward pass, last layers first, in equal parts by layer; the gradients of a layer
    are ready when it has been computed. 0: all at once."""
    noise: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False)
    """Standard deviation of the logarithm of a worker's computing time, drawn for each worker and round; the
    mean stays as it is."""
    stragglers: Stragglers | None = None

    @model_validator(mode="after")
    def _computes(self) -> Self:
        if (self.noise or self.stragglers) and not self.forward_seconds + self.backward_seconds:
            raise ValueError("noise and stragglers are of computing times: give `forward` or `backward`")
        return self

    @abstractmethod
    def parties(self, stage: Stage) -> int:
        """How many workers there are; raises UserInputError where the fabric has too few hosts."""

    @abstractmethod
    def exchange(
        self, work: Work, stage: Stage, profile: ModelProfile, ready: list[ByLayer]
    ) -> list[ByLayer]:
        """Add the flows of one round.

        Args:
            work: Where they are added.
            stage: The hosts.
            profile: The model.
            ready: For each worker, when its gradients of each layer are ready.

        Returns:
            For each worker, when it has the updated parameters of each layer.
        """

    @abstractmethod
    def round_extent(self, profile: ModelProfile, stage: Stage) -> tuple[int, int, int]:
        """Flows of a round, their bytes, and those of the largest."""

    def model(self, stage: Stage) -> ModelProfile:
        """The model; raises UserInputError where the switches' plan is for another one."""
        profile = _compressed(resolve_profile(self.profile), self.compression)
        if stage.plan_layers is not None and stage.plan_layers != len(profile.layers):
            raise UserInputError(
                f"the plan is for a model of {stage.plan_layers} layers, "
                f"{profile.name} has {len(profile.layers)}",
                where="workload.profile",
                hint="name the profile that the plan was made for",
            )
        return profile

    def extent(self, stage: Stage) -> Extent:
        """How much there is to send; raises UserInputError where fabric or plan does not fit."""
        profile = self.model(stage)
        workers, slow = self.parties(stage), self.stragglers
        if slow is not None and max(slow.hosts, default=0) >= workers:
            raise UserInputError(
                f"there is no worker {max(slow.hosts)}",
                where="workload.stragglers.hosts",
                expected=f"0 to {workers - 1}",
            )
        flows, size_bytes, largest_bytes = self.round_extent(profile, stage)
        seconds = (self.forward_seconds + self.backward_seconds) * (slow.factor if slow else 1)
        steps = self.rounds * (workers * (2 * len(profile.layers) + 1) + flows // workers)
        rounds = self.rounds
        return Extent(rounds * flows, rounds * size_bytes, largest_bytes, rounds * seconds, steps)

    def flows(self, stage: Stage) -> Work:
        """All rounds."""
        work, profile = Work(), self.model(stage)
        workers, layers = self.parties(stage), len(profile.layers)
        times = self._factors(stage, workers) / layers
        has: list[ByLayer] = [[()] * layers] * workers
        for turn in range(self.rounds):
            ready: list[ByLayer] = []
            for worker in range(workers):
                after: After = ()
                forward, backward = (
                    float(times[turn, worker]) * seconds
                    for seconds in (self.forward_seconds, self.backward_seconds)
                )
                for parameters in has[worker]:
                    after = work.compute(worker, forward, (*after, *parameters))
                computed = [after := work.compute(worker, backward, after) for _ in range(layers)]
                ready.append(computed[::-1])
            has = self.exchange(work, stage, profile, ready)
            for worker, by_layer in enumerate(has):
                everything = tuple(dict.fromkeys(each for after in by_layer for each in after))
                work.end_round("", worker, turn, everything)
        return work

    def _factors(self, stage: Stage, workers: int) -> NDArray[np.float64]:
        """For each round and worker, how many times as long as given it computes."""
        factors = np.ones((self.rounds, workers))
        if self.noise:
            draws = stage.random.standard_normal(factors.shape)
            factors *= np.exp(self.noise * draws - self.noise**2 / 2)
        if self.stragglers is not None:
            slow = [*self.stragglers.hosts]
            if self.stragglers.share is not None:
                count = max(1, round(self.stragglers.share * workers))
                slow = stage.random.choice(workers, count, replace=False).tolist()
            factors[:, slow] *= self.stragglers.factor
        return factors


def layer_flow(
    stage: Stage, profile: ModelProfile, layer: int, ends: tuple[int, int], size_bytes: int, after: After
) -> Flow:
    """A flow with gradients of a layer, in its class."""
    traffic_class, name = stage.class_of(layer, len(profile.layers)), profile.layers[layer].name
    return Flow(*ends, size_bytes, traffic_class, label=name, after=after)


def result_flow(gradients: Flow, source: int, destination: int, after: After) -> Flow:
    """A flow with the sums or parameters that gradients have become, from end to end of it without loss."""
    label = f"{gradients.label} (result)"
    ends = {"source": source, "destination": destination}
    return replace(gradients, **ends, label=label, after=after, lossless=True)


def _compressed(profile: ModelProfile, ratio: float) -> ModelProfile:
    if ratio == 1:
        return profile
    layers = [
        layer.model_copy(
            update={
                "tensors": tuple(
                    tensor.model_copy(update={"shape": (ceil(tensor.elements / ratio),)})
                    for tensor in layer.tensors
                )
            }
        )
        for layer in profile.layers
    ]
    return profile.model_copy(update={"layers": tuple(layers)})
