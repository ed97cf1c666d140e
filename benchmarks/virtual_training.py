"""Real models in virtual time: torch computes, and the nodes and hooks of production exchange gradients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import torch

from mltswitch.training.addition import Loss
from mltswitch.training.axes import Elements, Network, Sum, axes_of
from mltswitch.training.job import Job, make_job
from mltswitch.training.pytorch.layout import layers_of
from mltswitch.training.pytorch.replica import Replica
from mltswitch.training.pytorch.steps import Steps
from mltswitch.training.tolerance import TrainingTask
from mltswitch.training.virtual import VirtualJob
from mltswitch.training.virtual_network import Wires

NETWORK: Final = Network(1e9, 50e-6)
PIECE_BYTES: Final = 4096
EVALUATED_EVERY: Final = 5
"""Steps of rank 0."""


class _Driver:
    """A rank in virtual time, where nothing is waited for: it has come, or the order of steps is wrong."""

    def __init__(self, virtual: VirtualJob, rank: int) -> None:
        self.job, self.node = virtual.job, virtual.nodes[rank]
        self._virtual = virtual

    def call(self, call: Callable[[int], None]) -> None:
        """At once."""
        call(self._virtual.now_ns)

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        """It is true, or a fault."""
        if not is_true():
            raise AssertionError("a rank began a step before what it needs was there")

    def drain(self, step: int, zeros: Elements, result: Elements) -> None:  # noqa: ARG002
        """Virtual time drains by itself."""
        raise AssertionError("drain after the run")


@dataclass(slots=True)
class Trained:
    """What became of a training."""

    accuracies: list[tuple[int, float]] = field(default_factory=list)
    """Steps of rank 0, and the accuracy of its parameters then."""
    final_accuracy: float = 0.0
    """When all gradients are in the parameters."""
    parameters: list[Elements] = field(default_factory=list)
    """Of each rank, in the end."""
    losses: list[Loss] = field(default_factory=list)
    """What bounds left out of sums."""
    seconds: float = 0.0
    """Of virtual time."""


def train(
    task: TrainingTask,
    synchronization: str,
    *,
    seed: int,
    steps: int,
    settings: Mapping[str, Any],
    network: Wires = NETWORK,
    loss_ratio: float = 0.0,
    befall: Callable[[VirtualJob], object] = lambda _: None,
    in_turn: bool = False,
    **options: Any,
) -> Trained:
    """Train a task by all its ranks.

    Args:
        task: its `ranks` train.
        synchronization: a registered name.
        seed: of parameters, batches and computing times, of which each is 0.1 s on average.
        steps: of each rank.
        settings: of the synchronization.
        network: of all nodes.
        loss_ratio: of packets.
        befall: is called with the job before it begins, to change its network.
        in_turn: see VirtualJob.
        options: of `make_job` beside these.
    """
    ranks = task.ranks
    torch.manual_seed(seed)
    first = task.model()
    models = [first]
    for _ in range(1, ranks):
        models.append(task.model())
        models[-1].load_state_dict(first.state_dict())
    optimizers = [task.optimizer(model.parameters()) for model in models]
    layers, _ = layers_of(first)
    plain = make_job(
        layers,
        world=ranks,
        synchronization=synchronization,
        settings=settings,
        **{"piece_bytes": PIECE_BYTES, **options},
    )
    replicas = [
        Replica(plain, [*layers_of(model)[1].values()], optimizer)
        for model, optimizer in zip(models, optimizers, strict=True)
    ]
    job = replace(plain, optimizer=replicas[0].rule)
    virtual = VirtualJob(
        job,
        network,
        loss_ratio=loss_ratio,
        seed=seed,
        parameters=replicas[0].values(),
        backward_share=0,
        in_turn=in_turn,
    )
    befall(virtual)
    return _Training(task, job, virtual, models, optimizers, replicas, seed).run(steps)


class _Training:
    def __init__(
        self,
        task: TrainingTask,
        job: Job,
        virtual: VirtualJob,
        models: Sequence[torch.nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        replicas: Sequence[Replica],
        seed: int,
    ) -> None:
        self._task, self._job, self._virtual, self._seed = task, job, virtual, seed
        self._models, self._optimizers, self._replicas = models, optimizers, replicas
        self._parameters = [[*layers_of(model)[1].values()] for model in models]
        self._counts = [parameter.numel() for parameter in self._parameters[0]]
        self._own: dict[tuple[int, int], Elements] = {}
        self._losses: dict[tuple[int, int], float] = {}
        self._later: dict[int, frozenset[int]] = {}
        self._trained = Trained()
        is_bsp = axes_of(job)[0].name == "bsp"
        self._steps = [] if is_bsp else [self._steps_of(rank) for rank in range(job.world)]
        self._batches = [self._endless(rank) for rank in range(job.world)]

    def run(self, steps: int) -> Trained:
        world, random = self._job.world, np.random.default_rng(self._seed)
        times = 0.1 * np.maximum(0.1, 1 + 0.1 * random.standard_normal((world, steps)))
        self._virtual.arrived = self._arrived
        report = self._virtual.run(
            steps,
            self._compute,
            lambda rank, step: float(times[rank, step]),
            lambda rank, step: self._losses[rank, step],
        )
        if report.errors:
            raise AssertionError(f"a rank failed: {report.errors}")
        for rank in range(world):
            self._optimize(rank, steps - 1)
            if self._virtual.nodes[rank].counts_alone:
                self._replicas[rank].set(report.results[rank, steps])
            elif self._steps:
                self._steps[rank].drain()
        trained = self._trained
        trained.parameters = [replica.values() for replica in self._replicas]
        trained.final_accuracy = self._accuracy()
        trained.losses, trained.seconds = report.losses, report.seconds
        return trained

    def _compute(self, rank: int, step: int) -> Elements:
        if step:
            self._optimize(rank, step - 1)
        if rank == 0 and step and step % EVALUATED_EVERY == 0:
            self._trained.accuracies.append((step, self._accuracy()))
        self._optimizers[rank].zero_grad()
        with torch.enable_grad():
            loss: Any = self._task.loss(self._models[rank], next(self._batches[rank]))
        loss.backward()
        self._losses[rank, step] = float(loss.detach())
        if self._steps:
            self._later[rank] = self._steps[rank].begin(step)
        parts = [parameter.grad.reshape(-1) for parameter in self._parameters[rank]]
        own: Elements = torch.cat(parts).numpy()
        self._own[rank, step] = own
        self._own.pop((rank, step - 4), None)
        return own

    def _optimize(self, rank: int, step: int) -> None:
        """The rank's optimizer steps, as DDP would have it: with sums where these are there."""
        if not self._virtual.nodes[rank].counts_alone:
            sums = torch.from_numpy(self._virtual.report.results[rank, step])
            gradient = torch.from_numpy(self._own[rank, step].copy())
            for number, piece in enumerate(self._job.pieces):
                if number not in self._later.get(rank, frozenset()):
                    gradient[piece.elements] = sums[piece.elements]
            for parameter, part in zip(self._parameters[rank], gradient.split(self._counts), strict=True):
                parameter.grad = part.view_as(parameter)
        self._optimizers[rank].step()
        old = (rank, step - 4)
        if old in self._virtual.report.results:
            self._virtual.report.results[old] = np.zeros(1)  # or all of them stay in memory

    def _arrived(self, rank: int, step: int, total: Sum) -> None:
        if self._steps:
            self._steps[rank].arrived(step, total.piece, total.stage)

    def _steps_of(self, rank: int) -> Steps:
        def vectors(step: int) -> tuple[Elements, Elements]:
            return self._own[rank, step], self._virtual.report.results[rank, step]

        member = self._virtual.nodes[rank].member
        assert member is not None, "a server trains nothing"  # noqa: S101
        if not self._virtual.nodes[rank].counts_alone:
            self._replicas[rank].predict(member.prediction, member.lag)
        return Steps(_Driver(self._virtual, rank), self._replicas[rank], self._models[rank], vectors)

    def _endless(self, rank: int) -> Any:
        while True:
            yield from self._task.batches(self._seed, rank, self._job.world)

    def _accuracy(self) -> float:
        with torch.no_grad():
            return self._task.metric(self._models[0])
