"""Gradients of DistributedDataParallel by the host agent: one line in a training script.

    model.register_comm_hook(MltState(model, loss_bound=0.1), mlt_hook)

Each rank's process has its own agent. Gradients are copied out of DDP's buckets into one vector of the whole
model, layer after layer, so that what crosses the network has its layer's priority whatever bucket it was in,
and travels as float32 (float64 where the model has such parameters).
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import nan
from textwrap import shorten
from typing import Any, Final, NoReturn, Self

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import GradBucket
from torch.futures import Future

from mltswitch.errors import MOST_LISTED, UserInputError
from mltswitch.hostagent import Agent, AgentConfig, AgentError, Group, RanksMissingError
from mltswitch.training.agents import MEETING_SECONDS, AgentNode, share_job
from mltswitch.training.axes import Elements, Member, Stage, Synchronization, axes_of
from mltswitch.training.errors import NodeLateError, NodeLostError, TrainingError
from mltswitch.training.job import DEADLINE_SECONDS, PIECE_BYTES, Divisor, Job, make_job
from mltswitch.training.optimizer import check_rule
from mltswitch.training.pytorch.layout import Place, layers_of, places_of
from mltswitch.training.pytorch.replica import Replica
from mltswitch.training.pytorch.steps import Steps
from mltswitch.training.sums import Loss

CONFIG_VARIABLE: Final = "MLTSWITCH_AGENT_CONFIG"
REASON_LENGTH: Final = 150
GENERATIONS: Final = 2
"""Steps whose vectors exist at a time: the last packets of one may be on their way when the next begins."""


@dataclass(slots=True, eq=False)
class _Bucket:
    """A bucket of DDP's that waits for results."""

    future: Future[torch.Tensor]
    buffer: torch.Tensor
    gradients: list[tuple[torch.Tensor, Place]]
    missing: set[int] = field(default_factory=set)
    """Pieces without results."""


class MltState:
    """What `mltswitch.training.pytorch.mlt_hook` needs, made once on every rank and registered with it.

    Args:
        model: the module, or its DistributedDataParallel.
        loss_bound: share of the gradients that a sum may be without.
        synchronization: a registered name; `bsp`, `osp`, `asp`, `ssp`, `r2sp`.
        topology: a registered name; `star` (each rank serves a part), `ring`.
        transport: a registered name; `mlt`, `ltp`, `tcp`.
        config: of this rank's agent, or its file; None: the file that MLTSWITCH_AGENT_CONFIG names, or one
            for loopback.
        servers: parameter servers that are no ranks; they run `serve`. The nodes then meet by `rendezvous`.
        rendezvous: as `Group` takes it; None: the ranks meet by the process group.
        process_group: of the ranks; None: the default one.
        divisor: `ranks`, or `arrived` (see `Divisor`).
        deadline_seconds: for one exchange.
        timeout_seconds: until all nodes have come.
        piece_bytes: the most that one tensor on the network has.
        optimizer: of all the model's parameters; all but `bsp` need it.
        settings: of the synchronization.
        samples: of this rank in a step, where ranks differ; gradients are weighted by it.
        colocated: the one rank that adds up all pieces, where there are no servers.
        continues: whether the others go on without a rank that is gone (`asp`, `ssp`, `r2sp`, with servers).
        example: arguments for one forward pass, a tuple, a dict or a single one, which tells the order of the
            layers; without it they are in the order of registration.

    Raises UserInputError, MachineError, and TrainingError where the ranks do not agree, or do not come.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        loss_bound: float = 0.0,
        synchronization: str = "bsp",
        topology: str = "star",
        transport: str = "mlt",
        config: AgentConfig | str | os.PathLike[str] | None = None,
        servers: int = 0,
        rendezvous: str | Callable[[str], list[str]] | None = None,
        process_group: dist.ProcessGroup | None = None,
        divisor: str = Divisor.RANKS,
        deadline_seconds: float = DEADLINE_SECONDS,
        timeout_seconds: float = MEETING_SECONDS,
        piece_bytes: int = PIECE_BYTES,
        optimizer: torch.optim.Optimizer | None = None,
        settings: Mapping[str, Any] | None = None,
        samples: int | None = None,
        colocated: int | None = None,
        continues: bool = False,
        example: Any = None,
    ) -> None:
        module = getattr(model, "module", model)
        rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
        layers, order = layers_of(module, example)
        job = make_job(
            layers,
            world=world,
            servers=servers,
            element_type="float64" if any(each.dtype == torch.float64 for each in order) else "float32",
            loss_bound=loss_bound,
            synchronization=synchronization,
            topology=topology,
            transport=transport,
            divisor=divisor,
            deadline_seconds=deadline_seconds,
            piece_bytes=piece_bytes,
            ranks=() if process_group is None else dist.get_process_group_ranks(process_group),
            settings=settings,
            samples=_all_samples(samples, process_group, world),
            colocated=colocated,
            continues=continues,
        )
        replica = None
        if optimizer is not None and synchronization != "bsp":
            replica = Replica(job, order, optimizer)
            job = replace(job, optimizer=replica.rule)
        self.job: Final[Job] = job
        kind = _synchronization_of(job, model)
        member = kind.member(job, rank)
        if replica is not None and kind.votes:
            replica.predict(member.prediction, member.lag)
        self._weight: Final = job.weight(rank)
        self._generations: Final = GENERATIONS + member.lag
        if servers and rendezvous is None:
            raise UserInputError("is missing: servers are in no process group", where="rendezvous")
        config = config or os.environ.get(CONFIG_VARIABLE) or None
        if config is not None and not isinstance(config, AgentConfig):
            config = AgentConfig.load(os.fspath(config))
        self.error: TrainingError | None = None
        """Why the job has ended."""
        self._places: Final = places_of(order, self.job)
        self._own = [self._vector() for _ in range(self._generations)]
        self._results = [self._vector() for _ in range(self._generations)]
        self._lock = threading.Lock()
        self._loss = nan
        self._later: frozenset[int] = frozenset()
        """Pieces of this step whose sums come later."""
        self._step = -1
        self._left: dict[int, int] = {}
        """Elements of each piece of this step that no bucket has brought yet."""
        self._have_results: set[int] = set()
        self._buckets: list[_Bucket] = []
        meeting = rendezvous or _meeting(process_group, world)
        self._group = _group_of(self.job, rank, meeting, config, timeout_seconds)
        try:
            parameters = replica.values() if replica is not None and kind.needs.lone_pushes else None
            if rank == 0:
                share_job(self.job, self._group, parameters)
            self._node = AgentNode(
                self.job,
                rank,
                self._group.agent,
                self._group.names,
                arrived=self._arrived,
                failed=self._failed,
                parameters=parameters,
                timeout_seconds=timeout_seconds,
            )
        except BaseException:
            self._group.close()
            raise
        self._steps: Steps | None = None
        if replica is not None and _is_around(kind):
            self._steps = Steps(self._node, replica, module, self._vectors)

    def observe_loss(self, loss: float | torch.Tensor) -> None:
        """Of this step's batch, before its backward pass: as it falls, `osp` synchronizes more later."""
        self._loss = float(loss)

    def drain(self) -> None:
        """The parameters get all ranks' gradients, those that come later, too.

        Under `osp` that happens by itself before `state_dict` and evaluation. Under `asp`, `ssp` and `r2sp`
        all ranks must call it, and hold the same parameters then. Raises TrainingError.
        """
        if self._steps is not None:
            self._steps.drain()

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint beside those of model and optimizer; drains.

        A rank goes on bit by bit from its own; from that of another rank it goes on as well.
        """
        self.drain()
        found: list[dict[str, Any]] = []
        self._node.call(lambda _: found.append(self._member.state()))  # behind what it has been told
        self._node.wait_until(lambda: bool(found))
        return found[0]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint, before the first step, alike on all ranks. Raises UserInputError."""
        self._member.restore(state)

    def exchange(self, bucket: GradBucket) -> Future[torch.Tensor]:
        """What the hook does with one bucket."""
        if bucket.buffer().layout is not torch.strided:
            hint = "make embeddings with sparse=False"
            raise UserInputError("has sparse gradients", where="model", expected="dense ones", hint=hint)
        if self.error is not None:
            raise type(self.error)(self.error.what, where=self.error.where)
        if bucket.index() == 0:
            self._begin_step()
        pairs = [
            (gradient, self._place(parameter))
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
        ]
        future: Future[torch.Tensor] = Future(devices=_devices(bucket.buffer()))
        ready = self._fill(pairs)
        needed = {piece for _, place in pairs for piece in place.pieces} - self._later
        if bucket.is_last() and self._node.node.votes:
            needed.add(len(self.job.pieces))
        with self._lock:
            waiting = _Bucket(future, bucket.buffer(), pairs, needed - self._have_results)
            is_waiting = bool(waiting.missing)
            if is_waiting:
                self._buckets.append(waiting)
        if bucket.is_last() and any(self._left.values()):
            missing = {number for number, count in self._left.items() if count}
            names = {self.job.layers[self.job.pieces[number].layer].name for number in missing}
            self._give_up(f"has no gradients of {shorten(', '.join(sorted(names)), 100, placeholder=' …')}")
        vectors = self._vectors(self._step)
        if ready:
            self._node.ready(self._step, ready, *vectors)
        if bucket.is_last() and self._steps is not None:
            self._node.computed(self._step, self._loss, self._steps.seconds(), *vectors)
            self._loss = nan
        if not is_waiting:
            self._finish([waiting], self._step)
        return future.then(_value_or_error)

    def _fill(self, gradients: Iterable[tuple[torch.Tensor, Place]]) -> list[int]:
        """Copy own gradients to this step's vector: pieces that are whole by that."""
        own, _ = self._vectors(self._step)
        ready = []
        for gradient, place in gradients:
            part = torch.from_numpy(own[place.first : place.end]).copy_(gradient.detach().reshape(-1))
            if self._weight != 1:
                part *= self._weight
            for piece in place.pieces:
                first, end = place.within(self.job.pieces[piece])
                self._left[piece] -= end - first
                if not self._left[piece]:
                    ready.append(piece)
        return ready

    def take_losses(self) -> list[Loss]:
        """What the bound has left out of sums that this rank has made or passed on, since the last call."""
        return self._node.take_losses()

    @property
    def later_share(self) -> float:
        """Of the model's elements, those whose sums come after the last step."""
        return sum(self.job.pieces[piece].count for piece in self._later) / self.job.elements

    @property
    def agent(self) -> Agent:
        """This rank's, for its metrics and observers."""
        return self._group.agent

    @property
    def nonfinite_pieces(self) -> int:
        """Pieces of this rank's gradients that held NaN or infinity; they are passed on."""
        return self._node.node.nonfinite_pieces

    def close(self, reason: str = "") -> None:
        """Say goodbye to the other nodes, once they are done, too; with a reason they end with this error."""
        if self._steps is not None:
            self._steps.close()
            if not reason and self.error is None and not self._node.node.counts_alone:
                self._steps.drain()
        self._node.close(reason)
        self._end_buckets(NodeLostError("has left the job", where=self.job.node_name(self._node.node.number)))
        self._group.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close("" if error is None else f"{type(error).__name__}: {error}"[:REASON_LENGTH])

    def _begin_step(self) -> None:
        """Waits for the step before: what is left of it is on its way to others."""
        if any(self._left.values()):
            self._give_up("was begun anew before all gradients of the one before had come")
        if self._step >= 0:
            self._node.wait(self._step)
        with self._lock:
            self._step += 1
            self._left = {number: piece.count for number, piece in enumerate(self.job.pieces)}
            self._have_results = set()
            self._later = frozenset() if self._steps is None else self._steps.begin(self._step)

    def _give_up(self, problem: str) -> NoReturn:
        """This step can never end, here or elsewhere: all ranks hear of it."""
        error = UserInputError(
            f"step {self._step} {problem}",
            where="model",
            hint="make a new state after what freezes parameters, or leaves a backward pass unfinished",
        )
        self._node.close(str(error)[:REASON_LENGTH])
        raise error

    def _place(self, parameter: torch.Tensor) -> Place:
        place = self._places.get(parameter)
        if place is None:
            shape = tuple(parameter.shape)
            raise UserInputError(
                f"a parameter of shape {shape} was no part of it when the state was made", where="model"
            )
        return place

    def _arrived(self, step: int, piece: int, stage: Stage) -> None:
        """In the node's thread."""
        if self._steps is not None:
            self._steps.arrived(step, piece, stage)
        if stage is Stage.LATER:
            return
        with self._lock:
            self._have_results.add(piece)
            for bucket in self._buckets:
                bucket.missing.discard(piece)
            done = [bucket for bucket in self._buckets if not bucket.missing]
            self._buckets = [bucket for bucket in self._buckets if bucket.missing]
        self._finish(done, step)

    def _finish(self, done: list[_Bucket], step: int) -> None:
        """All sums that these buckets wait for are there; what comes later keeps own gradients."""
        _, result = self._vectors(step)
        is_poisoned = self._node.node.poisoned_step == step
        while done:
            try:
                for gradient, place in () if self._node.node.counts_alone else done[-1].gradients:
                    flat = gradient.view(-1)
                    for first, end in self._summed(place):
                        source = torch.from_numpy(result[first:end])
                        flat[first - place.first : end - place.first].copy_(source)
                    if is_poisoned:  # perhaps by one rank alone: all must skip this step, or none
                        flat[:1].fill_(nan)
            except BaseException:
                with self._lock:
                    self._buckets += done  # whoever waits for them hears why
                raise
            bucket = done.pop()
            bucket.future.set_result(bucket.buffer)

    def _summed(self, place: Place) -> Iterable[tuple[int, int]]:
        """Elements of a parameter whose sums are there now."""
        if not self._later.intersection(place.pieces):
            return [(place.first, place.end)]
        return [place.within(self.job.pieces[number]) for number in place.pieces if number not in self._later]

    def _vectors(self, step: int) -> tuple[Elements, Elements]:
        return self._own[step % self._generations], self._results[step % self._generations]

    @property
    def _member(self) -> Member:
        assert self._node.node.member is not None, "a server has no hook"  # noqa: S101
        return self._node.node.member

    def _failed(self, error: TrainingError) -> None:
        """In the node's thread: the backward passes that wait hear of it."""
        self.error = error
        self._end_buckets(error)

    def _end_buckets(self, error: TrainingError) -> None:
        with self._lock:
            buckets, self._buckets = self._buckets, []
        for bucket in buckets:
            bucket.future.set_result(error)

    def _vector(self) -> "np.ndarray[Any, np.dtype[np.floating[Any]]]":
        if torch.cuda.is_available():
            kind = getattr(torch, self.job.element_type)
            pinned = torch.empty(self.job.elements, dtype=kind, device="cpu", pin_memory=True)
            return pinned.numpy()  # type: ignore[no-any-return]
        return np.empty(self.job.elements, self.job.element_type)


def mlt_hook(state: MltState, bucket: GradBucket) -> Future[torch.Tensor]:
    """For `DistributedDataParallel.register_comm_hook`: the average of all ranks' gradients."""
    return state.exchange(bucket)


def _value_or_error(done: Future[torch.Tensor]) -> torch.Tensor:
    """A future of C++ takes no exception as its result: it is raised in what follows it."""
    value: Any = done.value()
    if isinstance(value, Exception):
        raise value
    return value


def _devices(tensor: torch.Tensor) -> list[int | str | torch.device] | None:
    return [tensor.device] if tensor.is_cuda else None


def _is_around(kind: Synchronization) -> bool:
    """Whether a synchronization does something around the steps of the optimizer."""
    return kind.votes or kind.needs.lone_pushes


def _synchronization_of(job: Job, model: torch.nn.Module) -> Synchronization:
    kind, _ = axes_of(job)
    if _is_around(kind):
        if job.optimizer is None:
            raise UserInputError(f"is missing: {kind.name} works around it", where="optimizer")
        if kind.needs.lone_pushes:
            check_rule(job.optimizer)  # before all meet, so that each rank says it of itself
        if any("FullyShardedDataParallel" in type(each).__name__ for each in model.modules()):
            raise UserInputError(f"is sharded, which does not go with {kind.name}", where="model")
        if kind.needs.lone_pushes and getattr(model, "broadcast_buffers", False) and [*model.buffers()]:
            problem = "waits for all ranks in each forward pass, to have equal buffers"
            hint = "make it with DistributedDataParallel(…, broadcast_buffers=False)"
            raise UserInputError(problem, where="model", hint=hint)
    return kind


def _group_of(
    job: Job,
    rank: int,
    rendezvous: str | Callable[[str], list[str]],
    config: AgentConfig | None,
    timeout_seconds: float,
) -> Group:
    try:
        return Group(rank, job.nodes, rendezvous, config=config, timeout_seconds=timeout_seconds)
    except RanksMissingError as error:
        missing = ", ".join(map(job.node_name, error.ranks[:MOST_LISTED]))
        raise NodeLateError("did not come to the start", where=missing) from None
    except AgentError as error:
        raise NodeLostError(str(error)) from None


def _all_samples(samples: int | None, process_group: dist.ProcessGroup | None, world: int) -> tuple[int, ...]:
    """Of all ranks; none where no rank says how many it has."""
    found: list[int | None] = [None] * world
    if world > 1:
        dist.all_gather_object(found, samples, group=process_group)
    else:
        found = [samples]
    said = [each for each in found if each is not None]
    if said and len(said) < world:
        raise UserInputError(f"told by {len(said)} of {world} ranks", where="samples", expected="all or none")
    return tuple(said)


def _meeting(process_group: dist.ProcessGroup | None, world: int) -> Callable[[str], list[str]]:
    def meet(own: str) -> list[str]:
        texts: list[str] = [""] * world
        dist.all_gather_object(texts, own, group=process_group)
        return texts

    return meet
