"""One rank of a training job: its agent and node, and the vectors of the steps under way.

Each rank's process has its own agent. Gradients are copied into one vector of the whole model, layer after
layer, so that elements cross the network with their layer's priority, and are added in float32
(float64 where the model has such parameters).
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import nan
from textwrap import shorten
from typing import Any, ClassVar, Final, NoReturn, Self, Unpack

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from mltswitch.errors import UserInputError
from mltswitch.hostagent import Agent, AgentConfig
from mltswitch.hostagent.telemetry.events import GradientsLeftOut
from mltswitch.training.addition import Loss
from mltswitch.training.agents import AgentNode, share_job
from mltswitch.training.axes import Elements, Stage
from mltswitch.training.driver import MEETING_SECONDS
from mltswitch.training.errors import NodeLostError, TrainingError, ending_of
from mltswitch.training.job import Job, JobOptions, given_options
from mltswitch.training.pytorch.layout import Place, checksum, places_of
from mltswitch.training.pytorch.returning import bytes_of, come_back, held_of, keep_job, load_bytes
from mltswitch.training.pytorch.start import (
    Setup,
    agree,
    group_of,
    meeting_of,
    prepare,
    slowest_link,
    unwrapped,
)

CONFIG_VARIABLE: Final = "MLTSWITCH_AGENT_CONFIG"
REASON_LENGTH: Final = 150
CHECK_EVERY: Final = 100
GENERATIONS: Final = 2
"""Number of steps whose vectors exist at a time, since a step's last packets may be under way when the next
begins."""


class Rank:
    """A rank's part in a job: agent, node and vectors; made once on every rank.

    Args:
        model: the module, or its DistributedDataParallel.
        config: of this rank's agent, or its file; None: the file that MLTSWITCH_AGENT_CONFIG names, or one
            for loopback.
        rendezvous: as `Group` takes it, where there are servers that are no ranks, which run `serve`; None:
            the ranks meet by the process group.
        process_group: the ranks' group; None: the default one.
        timeout_seconds: how long to wait for all nodes.
        optimizer: that of all the model's parameters; all synchronizations but `bsp` need it.
        samples: this rank's in a step, where ranks differ; gradients are weighted by them.
        example: arguments for one forward pass, a tuple, a dict or a single one, which tells the order of the
            layers; without it they are in the order of registration.
        returns: the rank that this process is again: it was started again, and is in no process group with
            the others, which go on without it. `optimizer` is that of the model; the job is that of the
            others, and `first_step` is where it goes on. They meet by a file `rendezvous`, from the start.
        carries: more state that ranks share, by names, with `state_dict` and `load_state_dict`: a scaler, a
            schedule; a rank that returns gets it with model and optimizer.
        options: of the job, see `JobOptions` and `Job`. Without a `wire_type` it is bfloat16 where all
            parameters are, and `check_every` is CHECK_EVERY.

    Raises TypeError for an unknown option, UserInputError, MachineError, and TrainingError where the ranks
    do not agree, or do not come.
    """

    ANEW: ClassVar = "make a new one after what freezes, unfreezes or adds parameters"
    """Advice in errors about a model that has changed since this object was made."""

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        config: AgentConfig | str | os.PathLike[str] | None = None,
        rendezvous: str | Callable[[str], list[str]] | None = None,
        process_group: dist.ProcessGroup | None = None,
        timeout_seconds: float = MEETING_SECONDS,
        optimizer: torch.optim.Optimizer | None = None,
        samples: int | None = None,
        example: Any = None,
        returns: int | None = None,
        carries: Mapping[str, Any] | None = None,
        **options: Unpack[JobOptions],
    ) -> None:
        given = given_options(options)
        ddp = model if isinstance(model, DistributedDataParallel) else None
        if ddp is not None and process_group is None and ddp.process_group != dist.group.WORLD:
            process_group = ddp.process_group
        self._module: Final[torch.nn.Module] = unwrapped(model)
        broadcasts = ddp is not None and ddp.broadcast_buffers and any(True for _ in model.buffers())
        if given.get("continues") and broadcasts:
            problem = "DistributedDataParallel broadcasts buffers by itself, which needs all ranks"
            raise UserInputError(problem, where="continues", expected="broadcast_buffers=False")
        rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
        ranks = () if process_group is None else dist.get_process_group_ranks(process_group)
        if given.get("servers") and rendezvous is None:
            raise UserInputError("is missing: servers are in no process group", where="rendezvous")
        given = dict(world=world, ranks=ranks, **{"check_every": CHECK_EVERY, **given})
        config = config or os.environ.get(CONFIG_VARIABLE) or None
        self._held: Final = held_of(self._module, optimizer, carries)
        self._process_group: Final = process_group
        names = [f"rank {number}" for number in ranks or range(world)]
        call = partial(self._prepare, model, example=example, optimizer=optimizer, config=config)
        if returns is None:
            given["link_bps"] = slowest_link(process_group, world, config)
            own, said = agree(process_group, names, samples, partial(call, rank=rank, options=given))
            job = replace(own.job, samples=said)
        else:
            rank = returns
            own, job = come_back(rendezvous, given, partial(call, rank=rank), self._held)
        self.job: Final[Job] = job
        self._setup: Final = own
        self._weight: Final = self.job.weight(rank)
        self._generations: Final = GENERATIONS + own.lag
        self.error: TrainingError | None = None
        """What has ended the job; None while it goes on."""
        self._places: Final = places_of(own.named.values(), self.job)
        self._own = [self._vector() for _ in range(self._generations)]
        self._results = [self._vector() for _ in range(self._generations)]
        self._lock = threading.Lock()
        self._step = -1
        self._left: dict[int, int] = {}
        """Elements of each piece of this step that have not been given yet."""
        self._have_results: set[int] = set()
        is_back, meeting = returns is not None, rendezvous or meeting_of(process_group, world)
        self._group = group_of(self.job, rank, meeting, own.config, timeout_seconds, returns=is_back)
        try:
            if rank == 0 and not is_back:
                keep_job(self.job, rendezvous, own.named, self._held)
            self._open(rank, timeout_seconds, is_back=is_back)
            self._started(model)
        except BaseException:
            self._group.close()
            raise

    def _open(self, rank: int, timeout_seconds: float, *, is_back: bool) -> None:
        replica = self._setup.replica
        is_kept = replica is not None and self._setup.kind.needs.lone_pushes
        parameters = replica.values() if replica is not None and is_kept else None
        if rank == 0 and not is_back:
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
            absent=self._group.absent if is_back else None,
        )
        if is_back:
            load_bytes(self._node.take_state(), self._held)
            self._step = self.first_step - 1

    def take_losses(self) -> list[Loss]:
        """Elements that the loss bound left out of sums made or passed on by this rank, since the last
        call."""
        return self._node.take_losses()

    @property
    def gone(self) -> frozenset[int]:
        """Numbers of the nodes that are gone while the job goes on; servers are numbered after the ranks."""
        return frozenset(self._node.node.gone)

    @property
    def first_step(self) -> int:
        """The first step that this rank takes part in; the job's earlier steps were those of the other
        ranks."""
        return self._node.node.first_step or 0

    @property
    def left_out(self) -> GradientsLeftOut | None:
        """The latest report of what the bound left out at all ranks over `report_every` steps; None: there is
        none yet."""
        return self._node.report

    @property
    def agent(self) -> Agent:
        """This rank's host agent, for its metrics and observers."""
        return self._group.agent

    @property
    def nonfinite_pieces(self) -> int:
        """Number of pieces of this rank's gradients that held NaN or infinity; they are exchanged all the
        same."""
        return self._node.node.ballots.nonfinite_pieces

    def drain(self) -> None:
        """Bring all ranks' gradients into the parameters, also those that are still to come. Raises
        TrainingError."""

    def close(self, reason: str = "") -> None:
        """Leave the other nodes once they are done, too; with a reason they end with it as an error."""
        self._let_go()
        try:
            if not reason and self.error is None:
                self._drain_last()
        except BaseException as error:
            reason = ending_of(error)
            raise
        finally:
            self._node.close(reason)
            left = NodeLostError("has left the job", where=self.job.node_name(self._node.node.number))
            self._release(left)
            self._group.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.close("" if error is None else ending_of(error))

    # What hooks of one kind or another make of it

    def _prepare(
        self,
        model: torch.nn.Module,
        rank: int,
        optimizer: torch.optim.Optimizer | None,
        example: Any,
        config: AgentConfig | str | os.PathLike[str] | None,
        options: Mapping[str, Any],
    ) -> Setup:
        """What this rank can find by itself; what it raises, all ranks hear of."""
        return prepare(model, rank, optimizer, example, config, options)

    def _started(self, model: torch.nn.Module) -> None:
        """All ranks are there: put hooks on the model and its optimizer."""

    def _let_go(self) -> None:
        """Take hooks off the model and its optimizer."""

    def _drain_last(self) -> None:
        """The parameters get what is still to come, as far as this rank can do that by itself."""

    def _release(self, error: TrainingError) -> None:
        """Whoever waits for results hears that there will be none."""

    def _arrived(self, step: int, piece: int, stage: Stage) -> None:
        """In the node's thread: a result is there."""

    def _failed(self, error: TrainingError) -> None:
        """In the node's thread: the backward passes that wait hear of it."""
        self.error = error
        self._release(error)

    # A step

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
        newcomer = self._node.newcomer(self._step)
        if newcomer is not None:
            self._node.give_state(newcomer, lambda: bytes_of(self._held))

    def _give(self, place: Place, gradient: torch.Tensor | float) -> list[int]:
        """Copy an own gradient, or the same number everywhere, to this step's vector.

        Returns pieces that are whole by that.
        """
        own, _ = self._vectors(self._step)
        part = torch.from_numpy(own[place.first : place.end])
        if isinstance(gradient, float):
            part.fill_(gradient)
        else:
            part.copy_(gradient)
            if self._weight != 1:
                part *= self._weight
        ready = []
        for piece in place.pieces:
            first, end = place.within(self.job.pieces[piece])
            if first >= end:  # of a parameter without elements
                continue
            self._left[piece] -= end - first
            if not self._left[piece]:
                ready.append(piece)
        return ready

    def _tell_checksum(self, number: int) -> None:
        """All gradients of a step are there in which ranks compare their parameters: 0 says nothing."""
        self._node.node.ballots.checksum = number
        self._node.computed(self._step, nan, nan, *self._vectors(self._step))

    def _checksum(self) -> int:
        return checksum(self._places)

    def _check_whole(self) -> None:
        """Refuses a backward pass that has not given all."""
        missing = {number for number, count in self._left.items() if count}
        if missing:
            names = {self.job.layers[self.job.pieces[number].layer].name for number in missing}
            self._give_up(f"has no gradients of {shorten(', '.join(sorted(names)), 100, placeholder=' …')}")

    def _give_up(self, problem: str) -> NoReturn:
        hint = f"{self.ANEW}, or leaves a backward pass unfinished"
        self._refuse(UserInputError(f"step {self._step} {problem}", where="model", hint=hint))

    def _refuse(self, error: UserInputError) -> NoReturn:
        self._tell(error)
        raise error

    def _tell(self, error: UserInputError) -> None:
        """This job can never go on here: all ranks hear of it, and may go on without this one."""
        self._node.close(str(error)[:REASON_LENGTH])

    def _vectors(self, step: int) -> tuple[Elements, Elements]:
        return self._own[step % self._generations], self._results[step % self._generations]

    def _vector(self) -> "np.ndarray[Any, np.dtype[np.floating[Any]]]":
        if torch.cuda.is_available():
            kind = getattr(torch, self.job.element_type)
            pinned = torch.empty(self.job.elements, dtype=kind, device="cpu", pin_memory=True)
            return pinned.numpy()  # type: ignore[no-any-return]
        return np.empty(self.job.elements, self.job.element_type)
