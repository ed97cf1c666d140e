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
from datetime import timedelta
from functools import partial
from math import fsum, isfinite, nan, sqrt
from textwrap import shorten
from typing import Any, Final, NoReturn, Self

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import GradBucket
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from mltswitch.errors import MOST_LISTED, UserInputError
from mltswitch.hostagent import Agent, AgentConfig
from mltswitch.hostagent.telemetry.events import GradientsLeftOut
from mltswitch.training.agents import MEETING_SECONDS, AgentNode, share_job
from mltswitch.training.axes import Elements, Member, Stage
from mltswitch.training.errors import NodeLostError, TrainingError, ending_of
from mltswitch.training.job import DEADLINE_SECONDS, PIECE_BYTES, REPORT_EVERY, Divisor, Job
from mltswitch.training.pytorch.layout import Place, checksum, flat, places_of
from mltswitch.training.pytorch.start import (
    agree,
    group_of,
    meeting_of,
    prepare,
    uneven,
    unsupported_features,
    unsupported_parameters,
    unwrapped,
)
from mltswitch.training.pytorch.steps import ModuleHook, Steps
from mltswitch.training.sums import Loss

CONFIG_VARIABLE: Final = "MLTSWITCH_AGENT_CONFIG"
REASON_LENGTH: Final = 150
CHECK_EVERY: Final = 100
ANEW: Final = "make DistributedDataParallel and a new state after what freezes, unfreezes or adds parameters"
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
        report_every: steps after which a line tells what the bound has left out; 0: never.
        example: arguments for one forward pass, a tuple, a dict or a single one, which tells the order of the
            layers; without it they are in the order of registration.
        check_every: steps after which ranks compare checksums of their parameters, where all must hold the
            same; the job ends where they differ. 0: never.

    Raises UserInputError, MachineError, and TrainingError where the ranks do not agree, or do not come.
    """

    def __init__(  # noqa: PLR0915  (a field a line)
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
        report_every: int = REPORT_EVERY,
        example: Any = None,
        check_every: int = CHECK_EVERY,
    ) -> None:
        self._ddp = model if isinstance(model, DistributedDataParallel) else None
        if self._ddp is not None and process_group is None and self._ddp.process_group != dist.group.WORLD:
            process_group = self._ddp.process_group
        self._module: Final[torch.nn.Module] = unwrapped(model)
        rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
        ranks = () if process_group is None else dist.get_process_group_ranks(process_group)
        if servers and rendezvous is None:
            raise UserInputError("is missing: servers are in no process group", where="rendezvous")
        options = {
            "world": world,
            "servers": servers,
            "loss_bound": loss_bound,
            "synchronization": synchronization,
            "topology": topology,
            "transport": transport,
            "divisor": divisor,
            "deadline_seconds": deadline_seconds,
            "piece_bytes": piece_bytes,
            "ranks": ranks,
            "settings": settings,
            "colocated": colocated,
            "continues": continues,
            "report_every": report_every,
            "check_every": check_every,
        }
        config = config or os.environ.get(CONFIG_VARIABLE) or None
        names = [f"rank {number}" for number in ranks or range(world)]
        call = partial(prepare, model, rank, optimizer, example, config, options)
        own, said = agree(process_group, names, samples, call)
        replica, kind = own.replica, own.kind
        self._kind: Final = kind
        self.job: Final[Job] = replace(own.job, samples=said)
        self._weight: Final = self.job.weight(rank)
        self._generations: Final = GENERATIONS + own.lag
        self.error: TrainingError | None = None
        """Why the job has ended."""
        self._places: Final = places_of(own.named.values(), self.job)
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
        meeting = rendezvous or meeting_of(process_group, world)
        self._group = group_of(self.job, rank, meeting, own.config, timeout_seconds)
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
        self._made = checksum(self._places) if kind.needs.lone_pushes else None
        """Of the parameters of which the roots have copies."""
        self._patience: _Patience | None = None
        if self._ddp is not None and self._ddp.broadcast_buffers and [*self._module.buffers()]:
            group = process_group or dist.group.WORLD
            if dist.get_backend(group) == "gloo":
                self._patience = _Patience(self._ddp, group, deadline_seconds)
        self._steps: Steps | None = None
        if replica is not None and (kind.votes or kind.needs.lone_pushes):
            self._steps = Steps(self._node, replica, self._module, self._vectors, self._push, self._tell)
        self._computes = False
        """Whether this rank has made a forward pass since its last step: under DDP's `join` it may not."""
        self._handle = self._module.register_forward_pre_hook(ModuleHook(lambda *_: self._look()))

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
            self._refuse(UserInputError("has sparse gradients", where="model", expected="dense ones"))
        if self.error is not None:
            raise type(self.error)(self.error.what, where=self.error.where)
        if bucket.index() == 0:
            for problem in uneven(self._ddp, self._kind):  # of a rank that joins before its first pass, too
                self._refuse(problem)
            self._begin_step()
        pairs = [
            (gradient.detach().view(-1), self._place(parameter))  # as the parameter is in memory, for torch
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
        ]
        future: Future[torch.Tensor] = Future(devices=_devices(bucket.buffer()))
        ready = self._fill(pairs)
        is_held = self._steps is not None and self._steps.holds
        needed = {piece for _, place in pairs for piece in place.pieces if not is_held} - self._later
        node = self._node.node
        if bucket.is_last() and (node.votes or node.checks(self._step)):
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
        if ready and not is_held:
            self._node.ready(self._step, ready, *vectors)
        if bucket.is_last():
            self._end_step(vectors)
        if not is_waiting:
            self._finish([waiting], self._step)
        return future.then(_value_or_error)

    def _end_step(self, vectors: tuple[Elements, Elements]) -> None:
        node = self._node.node
        if self._steps is not None:
            # behind DDP's own callback, which is queued after this one and copies from buckets
            queue: Any = torch.autograd.Variable._execution_engine.queue_callback
            queue(lambda steps=self._steps: queue(steps.settled))
            self._node.computed(self._step, self._loss, self._steps.seconds(), *vectors)
            self._loss = nan
        elif node.checks(self._step):
            # one that has joined gets the others' parameters once all have
            has_joined = self._ddp is not None and self._ddp._join_config.enable and not self._computes
            node.checksum = 0 if has_joined else checksum(self._places)
            self._node.computed(self._step, nan, nan, *vectors)
        self._computes = False

    def _push(self) -> None:
        """What has been held goes as it is now; returns when the answers are there."""
        vectors, count = self._vectors(self._step), len(self.job.pieces)
        for each, place in self._places.items():
            gradient = torch.zeros_like(each) if each.grad is None else each.grad
            part = torch.from_numpy(vectors[0][place.first : place.end])
            part.copy_(flat(gradient, each)).mul_(self._weight)
        self._node.ready(self._step, range(count), *vectors)
        self._node.wait_until(lambda: len(self._have_results) == count)

    def _look(self) -> None:
        """Before a forward pass: what its DistributedDataParallel does, and whether the model has grown."""
        if self._patience is not None:
            self._patience.restore()
        ddp = DistributedDataParallel._active_ddp_module
        if ddp is None or not torch.is_grad_enabled():
            return
        if ddp is not self._ddp:
            if not any(each is self._module for each in ddp.modules()):
                return
            self._ddp = ddp
            parameters = unsupported_parameters(self._module, ddp, self._kind, None)
            for found in (*parameters, *unsupported_features(ddp, self._kind, is_hooked=True)):
                self._refuse(found)
        self._computes = True
        for found in uneven(ddp, self._kind):
            self._refuse(found)
        if any(each.requires_grad and not self._is_known(each) for each in self._module.parameters()):
            every = self._module.named_parameters()
            new = [name for name, each in every if each.requires_grad and not self._is_known(each)]
            what = "trains, and did not when the state was made, or lay otherwise in memory"
            self._refuse(UserInputError(what, where=", ".join(new[:MOST_LISTED]), hint=ANEW))

    def _is_known(self, parameter: torch.Tensor) -> bool:
        place = self._places.get(parameter)
        return place is not None and place.stride == parameter.stride()

    def _refuse(self, error: UserInputError) -> NoReturn:
        self._tell(error)
        raise error

    def _tell(self, error: UserInputError) -> None:
        """This job can never go on, here or elsewhere: all ranks hear of it."""
        self._node.close(str(error)[:REASON_LENGTH])

    def clip_grad_norm(self, max_norm: float) -> torch.Tensor:
        """Scale gradients down to a norm of at most `max_norm`, on all ranks alike; returns the norm before.

        It stands where `torch.nn.utils.clip_grad_norm_` would, behind `scaler.unscale_`. For what `osp` sums
        later the mean of the ranks' own squares counts, by the step's ballot: that of the sum is not above
        it. Where each push counts by itself, each is clipped by its own norm. Raises UserInputError.
        """
        scaled = 1.0 if self._steps is None else self._steps.scaled()
        every = [(each, each.grad, place) for each, place in self._places.items() if each.grad is not None]
        squares = [(scaled * norm) ** 2 / self.job.world for norm in self._node.node.norms if self._later]
        for parameter, gradient, place in every:
            parts = [gradient]
            if self._later.intersection(place.pieces):
                whole, summed = flat(gradient, parameter), self._summed(place)
                parts = [whole[first - place.first : end - place.first] for first, end in summed]
            squares += [float(torch.linalg.vector_norm(part, dtype=torch.float64)) ** 2 for part in parts]
        norm = torch.tensor(sqrt(fsum(squares)), dtype=torch.float32)  # last bits may differ between machines
        ratio = min(1.0, max_norm / (float(norm) + 1e-6)) if isfinite(norm) else 1.0
        with torch.no_grad():
            for _, gradient, _ in every if ratio < 1 else ():
                gradient.mul_(ratio)
        if self._steps is not None:
            self._steps.clipped(scaled, ratio)
        return norm

    def _fill(self, gradients: Iterable[tuple[torch.Tensor, Place]]) -> list[int]:
        """Copy own gradients to this step's vector: pieces that are whole by that."""
        own, _ = self._vectors(self._step)
        ready = []
        for gradient, place in gradients:
            part = torch.from_numpy(own[place.first : place.end]).copy_(gradient)
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
    def left_out(self) -> GradientsLeftOut | None:
        """What the bound has left out over all ranks, of the last `report_every` steps that are told."""
        return self._node.report

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
        self._handle.remove()
        if self._patience is not None:
            self._patience.close()
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
        self.close("" if error is None else ending_of(error))

    def _begin_step(self) -> None:
        """Waits for the step before: what is left of it is on its way to others."""
        if any(self._left.values()):
            self._give_up("was begun anew before all gradients of the one before had come")
        if self._steps is not None:
            self._steps.check_stepped()
        if self._step >= 0:
            self._node.wait(self._step)
        with self._lock:
            self._step += 1
            self._left = {number: piece.count for number, piece in enumerate(self.job.pieces)}
            self._have_results = set()
            self._later = frozenset() if self._steps is None else self._steps.begin(self._step)
        if self._step == 0 and (self._made is not None or self._node.node.checks(0)):
            now = self._node.node.checksum = checksum(self._places)
            if self._made not in {None, now}:
                what = "has other parameters than when the state was made, of which the job has copies"
                hint = "make the state behind DistributedDataParallel and load_state_dict"
                self._refuse(UserInputError(what, where="model", hint=hint))

    def _give_up(self, problem: str) -> NoReturn:
        hint = f"{ANEW}, or leaves a backward pass unfinished"
        self._refuse(UserInputError(f"step {self._step} {problem}", where="model", hint=hint))

    def _place(self, parameter: torch.Tensor) -> Place:
        place = self._places.get(parameter)
        if place is None:
            what = f"a parameter of shape {tuple(parameter.shape)} was no part of it when the state was made"
            raise UserInputError(what, where="model", hint="give the state what DistributedDataParallel has")
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
                    for first, end in self._summed(place):
                        source = torch.from_numpy(result[first:end])
                        gradient[first - place.first : end - place.first].copy_(source)
                    if is_poisoned:  # perhaps by one rank alone: all must skip this step, or none
                        gradient[:1].fill_(nan)
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


class _Patience:
    """A forward pass waits for the buffers of its DistributedDataParallel no longer than the job does.

    gloo itself waits for half an hour. What else the process group does has its own patience: ranks may wait
    for one that evaluates.
    """

    def __init__(self, ddp: DistributedDataParallel, group: Any, seconds: float) -> None:
        self._group: Final = group
        self._own: Final = group._get_backend(torch.device("cpu")).options._timeout
        self._short: Final = min(self._own, timedelta(seconds=seconds))
        self._handle = ddp.register_forward_pre_hook(ModuleHook(lambda *_: self._set(self._short)))

    def restore(self) -> None:
        """Give the process group its own timeout again, once the buffers have come."""
        self._set(self._own)

    def close(self) -> None:
        """Forward passes wait as they did before."""
        self._handle.remove()
        self.restore()

    def _set(self, timeout: timedelta) -> None:
        if self._short < self._own:
            _set_pg_timeout(timeout, self._group)


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
