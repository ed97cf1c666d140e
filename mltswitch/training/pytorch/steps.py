"""What a synchronization does around an optimizer's steps: it corrects and predicts, or takes parameters from
roots."""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from math import nan
from typing import Any, Final, Protocol

import numpy as np
import torch

from mltswitch.errors import UserInputError
from mltswitch.training.axes import Elements, Stage
from mltswitch.training.job import Job
from mltswitch.training.node import Node
from mltswitch.training.pytorch.layout import checksum, versions_of
from mltswitch.training.pytorch.replica import Replica

Vectors = Callable[[int], tuple[Elements, Elements]]
"""Gives the own gradients and the results of a step, as vectors of all elements."""
ONCE: Final = "step once after each backward pass, and accumulate with `no_sync`"


class Driver(Protocol):
    """The interface of what drives a node: `AgentNode`, or virtual time."""

    @property
    def job(self) -> Job:
        """The job that the node takes part in."""

    @property
    def node(self) -> Node:
        """The node, a rank."""

    def call(self, call: Callable[[int], None]) -> None:
        """Run a function with the time in ns, in the order of calls. Raises the error that ended the job."""

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until a condition holds. Raises the error that ended the job."""

    def drain(self, step: int, zeros: Elements, result: Elements) -> None:
        """Exchange what is outstanding as `Node.drain`, and wait for it. Raises the error that ended the
        job."""


class ModuleHook:
    """A hook of a module for the duration of a job; copies of the module, in memory or in files, have a void
    one."""

    def __init__(self, call: Callable[..., object] = lambda *_: None) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        """Do what the hook is for, with torch's arguments of that kind of hook."""
        return self._call(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return ModuleHook, ()


class Steps:
    """Hooks of an optimizer and its model that apply the synchronization around each step.

    Args:
        node: what drives this rank's node.
        replica: the rank's parameters and optimizer.
        module: the module that the parameters belong to.
        vectors: those of the exchange; a step's are valid until `begin` of the next step that uses them.
        push: exchanges the gradients of a step that `holds`, as they are, and waits for the answers.
        refused: called with the error of a refused optimizer step, before that is raised.
    """

    def __init__(
        self,
        node: Driver,
        replica: Replica,
        module: torch.nn.Module,
        vectors: Vectors,
        push: Callable[[], None] = lambda: None,
        refused: Callable[[UserInputError], object] = lambda _: None,
    ) -> None:
        assert node.node.member is not None, "a server has no optimizer"  # noqa: S101
        self._node, self._member, self._replica, self._vectors = node, node.node.member, replica, vectors
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
        """Sums that are to come later, by step."""
        self._come: deque[tuple[int, int]] = deque()
        """Steps and pieces of those that have come; the node's thread adds, and this one takes."""
        self._here: defaultdict[int, list[int]] = defaultdict(list)
        """Those of them, by step, that the replica does not have."""
        self._is_ahead = False
        """Whether the optimizer's last step was with own gradients."""
        self._ended_seconds: float | None = None
        """When the optimizer's last step was over."""
        self._push, self._refused = push, refused
        self.holds = self._counts_alone
        """Whether lone pushes wait for the optimizer's step: in the first one, and where that was clipped."""
        self._gradients: list[tuple[int, int]] = []
        """Where the backward pass has left them, as `versions_of` has it."""
        self._clipped: tuple[float, float] | None = None
        """In this step: what a scaler has multiplied gradients with, and clipping after that."""
        optimizer = replica.optimizer
        self._handles: list[Any] = [
            optimizer.register_step_pre_hook(
                lambda _, args, options: self._step([*args[1:], *options.values()])
            ),
            optimizer.register_step_post_hook(lambda *_: self._after()),
        ]
        if not self._counts_alone:
            drain = ModuleHook(lambda *_: self.drain())
            evaluated = ModuleHook(lambda module, _: None if module.training else self.drain())
            self._handles += [
                optimizer.register_state_dict_pre_hook(drain),
                optimizer.register_load_state_dict_pre_hook(drain),
                module.register_state_dict_pre_hook(drain),
                module.register_load_state_dict_pre_hook(drain),
                module.register_forward_pre_hook(evaluated),
            ]
        else:
            loaded = ModuleHook(lambda *_: self._check_unbegun())
            self._handles.append(module.register_load_state_dict_pre_hook(loaded))

    def _check_unbegun(self) -> None:
        """Raises UserInputError where a model is loaded over which the roots' copies would come."""
        if self._begun >= 0:
            problem = "comes too late: the parameters that count are those that the ranks have exchanged"
            raise UserInputError(
                problem, where="load_state_dict", hint="close the state, load, make a new one"
            )

    def check_stepped(self) -> None:
        """Raises UserInputError if the optimizer has skipped a step whose gradients count."""
        if self._counts_alone and self._stepped < self._begun:
            problem = f"has not stepped with the gradients of step {self._begun}, which count already"
            raise UserInputError(problem, where="optimizer", hint=ONCE)

    def begin(self, step: int) -> frozenset[int]:
        """Begin a step when its first gradients are ready; returns its pieces whose sums come later."""
        self._begun, self._clipped = step, None
        self._gradients.clear()
        self._accept()  # else this step's vectors would take their place
        later = self._member.later(step)
        if later:
            self._later[step], self._missing[step] = later, {*later}
        return later

    def settled(self) -> None:
        """Note that the backward pass is over, so that later changes of the gradients are detected."""
        self._gradients = versions_of(self._replica.parameters)

    def scaled(self) -> float:
        """The factor by which a scaler multiplied the gradients; raises UserInputError where they cannot be
        clipped."""
        step = self._begun
        if step == self._stepped or (self._counts_alone and not self.holds):
            problem = "comes too late, where a step's gradients have counted"
            hint = "call it in every step from the first one on, between backward() and the optimizer's step"
            raise UserInputError(problem, where="clip_grad_norm", hint=hint)
        self._check_gradients()
        if self._clipped is not None:
            return self._clipped[0]
        if self._counts_alone or self._node.node.ballots.poisoned_step == step:
            return 1.0
        own, result = self._vectors(step)
        return self._replica.factor(self._later.get(step, frozenset()), (own, self._weight), result)

    def clipped(self, scaled: float, ratio: float) -> None:
        """Note that the gradients were multiplied by a ratio, on all ranks alike."""
        self._clipped = scaled, ratio * (1.0 if self._clipped is None else self._clipped[1])
        self.settled()

    def arrived(self, step: int, piece: int, stage: Stage) -> None:
        """Note a sum that has come; called in the node's thread."""
        if stage is Stage.LATER and not self._counts_alone:
            self._come.append((step, piece))

    def seconds(self) -> float:
        """Seconds of computing since the optimizer's last step; NaN without one, or after a drain."""
        return nan if self._ended_seconds is None else time.perf_counter() - self._ended_seconds

    def drain(self) -> None:
        """Bring all ranks' gradients into the parameters.

        Where pushes count by themselves all ranks must drain, and have the same parameters then; else each
        may by itself. Raises what has ended the job.
        """
        if self._counts_alone:
            zeros, result = np.zeros((2, self._node.job.elements), self._node.job.element_type)
            self._node.drain(self._begun + 1, zeros, result)
            self._replica.set(result)
        else:
            self._correct(self._stepped)
        self._ended_seconds = None  # an evaluation, say, is no computing

    def close(self) -> None:
        """Remove all hooks from the optimizer and the module."""
        for handle in self._handles:
            handle.remove()

    def _step(self, arguments: Iterable[Any]) -> None:
        try:
            self._before(arguments)
        except UserInputError as error:  # the other ranks, which may have no reason, must not go on
            self._refused(error)
            raise

    def _check_gradients(self) -> None:
        """Raises UserInputError where torch's clipping, say, was at them, also by a factor of 1."""
        if self._gradients and self._gradients != versions_of(self._replica.parameters):
            self._replica.refuse("gradients have changed between backward and the optimizer's step")

    def _before(self, arguments: Iterable[Any]) -> None:
        step = self._begun
        if any(argument is not None for argument in arguments):
            problem = "steps with a closure, whose backward pass comes too late"
            raise UserInputError(problem, where="optimizer", hint=ONCE)
        if step == self._stepped:
            if self._is_ahead:
                problem = f"steps twice after the gradients of step {step}"
                raise UserInputError(problem, where="optimizer", hint=ONCE)
            return
        if self._node.node.ballots.poisoned_step == step:
            hint = "skip such steps on all ranks, as a GradScaler does"
            raise UserInputError(
                f"gradients of a rank in step {step} are not finite", where="model", hint=hint
            )
        self._check_gradients()
        own, result = self._vectors(step)
        if self._counts_alone:
            if self._clipped is None:
                self._replica.check_untouched(own, self._weight)
            if self.holds:
                self._push()
                self.holds = self._clipped is not None
            self._replica.drop_gradients()
            self._replica.set(result)
            self._tell_options()
        else:
            checks = self._node.node.ballots.checks(step + 1)
            self._correct(step - 1 if checks else step - 1 - self._member.lag)
            if checks:
                self._node.node.ballots.checksum = checksum(self._replica.parameters)
            later = self._later.get(step, frozenset())
            self._replica.before_step(step, later, (own, self._weight), result, self._clipped)
        self._is_ahead = self._counts_alone or step in self._later
        self._stepped = step

    def _after(self) -> None:
        step = self._stepped
        if step >= 0 and not self._counts_alone:
            later = self._later.get(step, frozenset())
            self._replica.after_step(later)
            self._weigh(step, self._own_share - later)
        self._ended_seconds = time.perf_counter()

    def _tell_options(self) -> None:
        """A schedule may have changed them."""
        groups = self._replica.rule.groups
        if groups != self._groups:
            self._groups = groups
            self._node.call(lambda _: self._node.node.tell_options(groups))

    def _correct(self, last: int) -> None:
        """By what has come; all up to the step `last` must have."""
        self._node.wait_until(lambda: not any(left and step <= last for step, left in self._left()))
        self._accept()
        self._replica.correct()
        for step in [step for step, left in self._missing.items() if not left and step not in self._here]:
            del self._missing[step], self._later[step]

    def _left(self) -> Iterable[tuple[int, set[int]]]:
        """The sums of each step that have not come."""
        while self._come:
            step, piece = self._come.popleft()
            self._missing[step].discard(piece)
            self._here[step].append(piece)
        return self._missing.items()

    def _accept(self) -> None:
        """Give the replica what has come, but for a step that the optimizer has not made."""
        self._left()
        for step in [step for step in self._here if step <= self._stepped or step < self._begun]:
            pieces = self._here.pop(step)
            self._replica.accept(step, pieces, self._vectors(step)[1])
            self._weigh(step, self._own_share.intersection(pieces))

    def _weigh(self, step: int, pieces: frozenset[int]) -> None:
        if pieces and self._node.node.votes:
            importance: Mapping[int, float] = self._replica.importance(pieces, self._vectors(step)[1])
            self._node.call(lambda _: self._member.weighed(importance))
