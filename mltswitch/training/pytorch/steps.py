"""What a synchronization does around the steps of an optimizer: correct and predict, or take parameters."""

import time
from collections.abc import Callable, Mapping
from math import nan
from typing import Any, Final, Protocol

import numpy as np
import torch

from mltswitch.errors import UserInputError
from mltswitch.training.axes import Elements, Stage
from mltswitch.training.job import Job
from mltswitch.training.node import Node
from mltswitch.training.pytorch.replica import Replica

Vectors = Callable[[int], tuple[Elements, Elements]]
"""Own gradients and results of a step, as vectors of all elements."""


class Driver(Protocol):
    """What drives a node: `AgentNode`, or virtual time."""

    @property
    def job(self) -> Job:
        """Of the node."""

    @property
    def node(self) -> Node:
        """A rank."""

    def call(self, call: Callable[[int], None]) -> None:
        """Do something, at a time in ns, before what is asked for later. Raises what has ended the job."""

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Until something has come. Raises what has ended the job."""

    def drain(self, step: int, zeros: Elements, result: Elements) -> None:
        """As `Node.drain`, until it is over. Raises what has ended the job."""


class Steps:
    """Hooks of an optimizer and its model.

    Args:
        node: what drives this rank's.
        replica: its parameters.
        module: that the parameters belong to.
        vectors: of the exchange.
    """

    def __init__(self, node: Driver, replica: Replica, module: torch.nn.Module, vectors: Vectors) -> None:
        assert node.node.member is not None, "a server has no optimizer"  # noqa: S101
        self._node, self._member, self._replica, self._vectors = node, node.node.member, replica, vectors
        replica.prediction = self._member.prediction
        replica.keeps_own = self._member.prediction == "local" or self._member.lag > 0
        job, rank = node.job, node.node.number
        self._weight: Final = job.weight(rank)
        self._own_share: Final = frozenset(range(rank, len(job.pieces), job.world))
        """Pieces whose importance this rank tells."""
        self._counts_alone: Final = node.node.counts_alone
        self._groups = replica.rule.groups
        self._begun = self._stepped = -1
        """The last exchange, and the last one after which the optimizer has stepped."""
        self._later: dict[int, frozenset[int]] = {}
        self._missing: dict[int, set[int]] = {}
        """Sums that are to come later, by step; changed in the node's thread, as is the next."""
        self._come: dict[int, list[int]] = {}
        """Sums that have come and have not corrected anything."""
        self._ended_seconds: float | None = None
        """When the optimizer's last step was over."""
        optimizer = replica.optimizer
        self._handles: list[Any] = [
            optimizer.register_step_pre_hook(lambda *_: self._before()),
            optimizer.register_step_post_hook(lambda *_: self._after()),
        ]
        if not self._counts_alone:
            self._handles += [
                optimizer.register_state_dict_pre_hook(lambda *_: self.drain()),
                module.register_state_dict_pre_hook(lambda *_: self.drain()),
                module.register_forward_pre_hook(lambda module, _: None if module.training else self.drain()),
            ]

    def begin(self, step: int) -> frozenset[int]:
        """The first gradients of a step are there: pieces of it whose sums come later."""
        self._begun = step
        later = self._member.later(step)
        if later:
            self._later[step], self._missing[step] = later, {*later}
        return later

    def arrived(self, step: int, piece: int, stage: Stage) -> None:
        """In the node's thread: a sum has come."""
        if stage is Stage.LATER and step in self._missing:
            self._missing[step].discard(piece)
            self._come.setdefault(step, []).append(piece)

    def seconds(self) -> float:
        """That computing has taken since the optimizer's last step; NaN where there was none."""
        return nan if self._ended_seconds is None else time.perf_counter() - self._ended_seconds

    def drain(self) -> None:
        """All ranks' gradients come to the parameters.

        Where pushes count by themselves all ranks must drain, and have the same parameters then; else each
        may by itself. The time from then to the next step counts as no computing. Raises what has ended the
        job.
        """
        self._ended_seconds = None
        if self._counts_alone:
            zeros, result = np.zeros((2, self._node.job.elements), self._node.job.element_type)
            self._node.drain(self._begun + 1, zeros, result)
            self._replica.set(result)
        else:
            self._correct(self._stepped)

    def close(self) -> None:
        """The optimizer is its owner's again."""
        for handle in self._handles:
            handle.remove()

    def _before(self) -> None:
        step = self._begun
        if step == self._stepped:
            if step in self._later or self._counts_alone:
                problem = f"steps twice after the gradients of step {step}"
                raise UserInputError(problem, where="optimizer", hint="step once after each backward pass")
            return
        own, result = self._vectors(step)
        if self._counts_alone:
            self._replica.check_untouched(own, self._weight)
            self._replica.drop_gradients()
            self._replica.set(result)
            groups = self._replica.rule.groups
            if groups != self._groups:
                self._groups = groups
                self._node.call(lambda _: self._node.node.tell_options(groups))
        else:
            self._correct(step - 1 - self._member.lag)
            self._replica.before_step(step, self._later.get(step, ()), own, self._weight)
        self._stepped = step

    def _after(self) -> None:
        step = self._stepped
        if step >= 0 and not self._counts_alone:
            later = self._later.get(step, frozenset())
            self._replica.after_step(later)
            self._weigh(step, self._own_share - later)
        self._ended_seconds = time.perf_counter()

    def _correct(self, last: int) -> None:
        """By what has come; all up to the step `last` must have."""
        self._node.wait_until(
            lambda: not any(self._missing.get(step) for step in range(self._oldest, last + 1))
        )
        for step in sorted(self._come):
            if step > self._stepped and step == self._begun:
                continue  # nothing was predicted yet
            pieces = self._come.pop(step)
            self._replica.correct(step, pieces, self._vectors(step)[1])
            self._weigh(step, self._own_share.intersection(pieces))
            if not self._missing[step]:
                del self._missing[step], self._later[step]

    @property
    def _oldest(self) -> int:
        return min(self._missing, default=self._begun)

    def _weigh(self, step: int, pieces: frozenset[int]) -> None:
        if pieces and self._node.node.votes:
            importance: Mapping[int, float] = self._replica.importance(pieces, self._vectors(step)[1])
            self._node.call(lambda _: self._member.weighed(importance))
