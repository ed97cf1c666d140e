"""Exchanges the gradients of DistributedDataParallel by the host agent: one line in a training script.

model.register_comm_hook(MltState(model, loss_bound=0.1), mlt_hook)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from math import fsum, isfinite, nan, sqrt
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import GradBucket
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from mltswitch.errors import MOST_LISTED, UserInputError
from mltswitch.training.axes import Elements, Member, Stage
from mltswitch.training.errors import TrainingError, anew
from mltswitch.training.pytorch.layout import Place, flat
from mltswitch.training.pytorch.rank import Rank
from mltswitch.training.pytorch.start import uneven, unsupported_features, unsupported_parameters
from mltswitch.training.pytorch.steps import ModuleHook, Steps


@dataclass(slots=True, eq=False)
class _Bucket:
    """A bucket of DDP's that waits for results."""

    future: Future[torch.Tensor]
    buffer: torch.Tensor
    gradients: list[tuple[torch.Tensor, Place]]
    missing: set[int] = field(default_factory=set)
    """Pieces without results."""


class MltState(Rank):
    """The state of `mltswitch.training.pytorch.mlt_hook`, made once on every rank and registered with it.

    Arguments and errors are those of `Rank`.
    """

    ANEW = "make DistributedDataParallel and a new state after what freezes, unfreezes or adds parameters"

    def _started(self, model: torch.nn.Module) -> None:
        self._ddp = model if isinstance(model, DistributedDataParallel) else None
        self._loss = nan
        self._later: frozenset[int] = frozenset()
        """Pieces of this step whose sums come later."""
        self._buckets: list[_Bucket] = []
        replica, kind = self._setup.replica, self._setup.kind
        self._kind = kind
        self._made = self._checksum() if kind.needs.lone_pushes else None
        """A checksum of the parameters of which the roots have copies."""
        self._patience: _Patience | None = None
        if self._ddp is not None and self._ddp.broadcast_buffers and [*self._module.buffers()]:
            group = self._process_group or dist.group.WORLD
            if dist.get_backend(group) == "gloo":
                self._patience = _Patience(self._ddp, group, self.job.deadline_seconds)
        self._steps: Steps | None = None
        if replica is not None and (kind.votes or kind.needs.lone_pushes):
            self._steps = Steps(self._node, replica, self._module, self._vectors, self._push, self._tell)
        self._computes = False
        """Whether this rank has made a forward pass since its last step: under DDP's `join` it may not."""
        self._handle = self._module.register_forward_pre_hook(ModuleHook(lambda *_: self._look()))

    def observe_loss(self, loss: float | torch.Tensor) -> None:
        """Tell the loss of a step's batch before its backward pass; as the loss falls, `osp` exchanges more
        late."""
        self._loss = float(loss.detach() if isinstance(loss, torch.Tensor) else loss)

    def drain(self) -> None:
        """Bring all ranks' gradients into the parameters, also those that come later.

        Under `osp` that happens by itself before `state_dict` and evaluation. Under `asp`, `ssp` and `r2sp`
        all ranks must call it, after which they hold the same parameters. Raises TrainingError.
        """
        if self._steps is not None:
            self._steps.drain()

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint beside those of model and optimizer; it calls `drain`.

        A rank continues bit by bit from its own state, and it can continue from that of another rank.
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
        """Exchange one bucket of gradients, as the hook; the future holds their average."""
        if bucket.buffer().layout is not torch.strided:
            self._refuse(UserInputError("has sparse gradients", where="model", expected="dense ones"))
        if self.error is not None:
            raise anew(self.error)
        if bucket.index() == 0:
            for problem in uneven(self._ddp, self._kind):  # of a rank that joins before its first pass, too
                self._refuse(problem)
            self._begin_step()
        pairs = [
            (gradient.detach().view(-1), self._place(parameter))  # as the parameter is in memory, for torch
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True)
        ]
        future: Future[torch.Tensor] = Future(devices=_devices(bucket.buffer()))
        ready = [piece for gradient, place in pairs for piece in self._give(place, gradient)]
        is_held = self._steps is not None and self._steps.holds
        needed = {piece for _, place in pairs for piece in place.pieces if not is_held} - self._later
        node = self._node.node
        if bucket.is_last() and (node.votes or node.ballots.checks(self._step)):
            needed.add(len(self.job.pieces))
        with self._lock:
            waiting = _Bucket(future, bucket.buffer(), pairs, needed - self._have_results)
            is_waiting = bool(waiting.missing)
            if is_waiting:
                self._buckets.append(waiting)
        if bucket.is_last():
            self._check_whole()
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
        elif node.ballots.checks(self._step):
            # one that has joined gets the others' parameters once all have
            has_joined = self._ddp is not None and self._ddp._join_config.enable and not self._computes
            self._tell_checksum(0 if has_joined else self._checksum())
        elif node.ballots.are_held(self._step):
            self._tell_checksum(0)
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
            parameters = unsupported_parameters(self._module, ddp)
            for found in (*parameters, *unsupported_features(ddp, self._kind, is_hooked=True)):
                self._refuse(found)
        self._computes = True
        for found in uneven(ddp, self._kind):
            self._refuse(found)
        if any(each.requires_grad and not self._is_known(each) for each in self._module.parameters()):
            every = self._module.named_parameters()
            new = [name for name, each in every if each.requires_grad and not self._is_known(each)]
            what = "trains, and did not when the state was made, or lay otherwise in memory"
            self._refuse(UserInputError(what, where=", ".join(new[:MOST_LISTED]), hint=self.ANEW))

    def _is_known(self, parameter: torch.Tensor) -> bool:
        place = self._places.get(parameter)
        return place is not None and place.stride == parameter.stride()

    def clip_grad_norm(self, max_norm: float) -> torch.Tensor:
        """Scale gradients down to a norm of at most `max_norm`, on all ranks alike; returns the norm before.

        It stands where `torch.nn.utils.clip_grad_norm_` would, behind `scaler.unscale_`. For what `osp` sums
        later the mean of the ranks' own squares counts, by the step's ballot: that of the sum is not above
        it. Where each push counts by itself, each is clipped by its own norm. Raises UserInputError.
        """
        scaled = 1.0 if self._steps is None else self._steps.scaled()
        every = [(each, each.grad, place) for each, place in self._places.items() if each.grad is not None]
        norms = self._node.node.ballots.norms if self._later else ()
        squares = [(scaled * norm) ** 2 / self.job.world for norm in norms]
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

    @property
    def later_share(self) -> float:
        """Share (0 to 1) of the model's elements whose sums the latest step has not waited for."""
        return sum(self.job.pieces[piece].count for piece in self._later) / self.job.elements

    def _let_go(self) -> None:
        self._handle.remove()
        if self._patience is not None:
            self._patience.close()
        if self._steps is not None:
            self._steps.close()

    def _drain_last(self) -> None:
        if self._steps is not None and not self._node.node.counts_alone:
            self._steps.drain()

    def _begin_step(self) -> None:
        if self._steps is not None:
            self._steps.check_stepped()
        super()._begin_step()
        if self._steps is not None:
            self._later = self._steps.begin(self._step)
        if self._step == 0 and (self._made is not None or self._node.node.ballots.checks(0)):
            now = self._node.node.ballots.checksum = self._checksum()
            if self._made not in {None, now}:
                what = "has other parameters than when the state was made, of which the job has copies"
                hint = "make the state behind DistributedDataParallel and load_state_dict"
                self._refuse(UserInputError(what, where="model", hint=hint))

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
        is_poisoned = self._node.node.ballots.poisoned_step == step
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

    @property
    def _member(self) -> Member:
        assert self._node.node.member is not None, "a server has no hook"  # noqa: S101
        return self._node.node.member

    def _release(self, error: TrainingError) -> None:
        if self._step < 0:
            return  # nothing has begun
        with self._lock:
            buckets, self._buckets = self._buckets, []
        for bucket in buckets:
            bucket.future.set_result(error)


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
    """The hook for `DistributedDataParallel.register_comm_hook`: it averages the gradients of all ranks."""
    return state.exchange(bucket)


def _value_or_error(done: Future[torch.Tensor]) -> torch.Tensor:
    """A future of C++ takes no exception as its result: it is raised in what follows it."""
    value: Any = done.value()
    if isinstance(value, Exception):
        raise value
    return value


def _devices(tensor: torch.Tensor) -> list[int | str | torch.device] | None:
    return [tensor.device] if tensor.is_cuda else None
