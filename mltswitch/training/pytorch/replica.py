"""A rank's parameters and optimizer, stepped with own gradients in place of late sums, which correct them.

    replica.before_step(…)  # remembers what is stepped with own gradients
    optimizer.step()
    replica.after_step(…)
    replica.accept(…)       # sums that have come
    replica.correct()

Corrections begin from what was before the step, so that ranks hold the same bits once all sums are there;
equation 7 of OSP adds differences, which drift. They are made at the optimizer's step only: a weight that
changes between forward and backward gives wrong gradients.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import frexp
from typing import Any, Final, NoReturn

import torch
from torch import Tensor

from mltswitch.errors import UserInputError
from mltswitch.training.axes import Elements
from mltswitch.training.job import Job, OptimizerRule
from mltswitch.training.pytorch.layout import flat, places_of

MOST_EXACT_BYTES: Final = 4
"""Element size below which parts of parameters are not rounded as the whole would be."""
ELEMENTWISE: Final = {
    "SGD",
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adamax",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "ASGD",
}
"""Torch's optimizers that treat each element separately, so that a part of a parameter can be stepped."""

Options = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Consecutive elements of one parameter that lie in one piece."""

    parameter: torch.nn.Parameter
    group: int
    """Number of the optimizer's group of this parameter."""
    first: int
    """The first element within the parameter; `end` is one beyond the last."""
    end: int
    place: slice
    """Where these elements of the parameter lie in the flat vector of all of the model's parameters."""

    def of(self, tensor: Tensor) -> Tensor:
        """The run's elements of a tensor shaped like the parameter; a view where it has the same memory
        order."""
        return flat(tensor, self.parameter)[self.first : self.end]


@dataclass(slots=True, eq=False)
class _Ahead:
    """A piece of which sums are to come: what it was before the first, and all steps since."""

    values: list[Tensor]
    """The parameters of each run of the piece."""
    states: list[dict[str, Any]]
    """The optimizer's state, by run."""
    steps: dict[int, "_Step"] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Step:
    """One step of the optimizer."""

    options: Options
    gradients: list[Tensor | None]
    """Own ones by run, or sums; None: the parameter has none, and the optimizer leaves it alone."""
    factor: float
    """What made the gradients of the exchange the optimizer's: a scaler's."""
    clipped: float
    """And what they were then multiplied with on all ranks, so that their norm is small enough."""
    is_sum: bool


class Replica:
    """A model's parameters and their optimizer, of which parts can be stepped again when sums come late.

    Args:
        parameters: in the order of the model's vector, each dense in memory.
    """

    def __init__(
        self, job: Job, parameters: Sequence[torch.nn.Parameter], optimizer: torch.optim.Optimizer
    ) -> None:
        self.optimizer: Final = optimizer
        self._job = job
        self._prediction = "optimizer"
        self._keeps_own = False
        """Whether own gradients must be kept beside what was before them."""
        groups = {
            each: number for number, group in enumerate(optimizer.param_groups) for each in group["params"]
        }
        self.parameters: Final = parameters
        self._runs: list[list[Run]] = [[] for _ in job.pieces]
        """The runs of each piece, in order."""
        self._ranges: list[tuple[int, int]] = []
        for parameter, place in places_of(parameters, job).items():
            group, base = groups[parameter], place.first
            self._ranges.append((place.end, group))
            for piece in place.pieces:
                first, end = place.within(job.pieces[piece])
                self._runs[piece].append(Run(parameter, group, first - base, end - base, slice(first, end)))
        self._ahead: dict[int, _Ahead] = {}
        """Pieces of which sums are to come, or have come and corrected nothing yet."""
        self._accepted: set[int] = set()
        """Pieces of which sums have come that have not corrected anything."""

    @property
    def rule(self) -> OptimizerRule:
        """The optimizer, with its present options, as servers run it."""
        options = tuple(
            {name: _plain(value) for name, value in group.items()} for group in options_of(self.optimizer)
        )
        return OptimizerRule(type(self.optimizer).__name__, options, tuple(self._ranges))

    def predict(self, prediction: str, lag: int) -> None:
        """Set how parameters are predicted until late sums come (`Member.prediction`), and how many more
        steps these may take (`Member.lag`). Raises UserInputError for an optimizer that cannot step in
        parts."""
        kind = type(self.optimizer).__name__
        if kind not in ELEMENTWISE or not type(self.optimizer).__module__.startswith("torch.optim"):
            expected = ", ".join(sorted(ELEMENTWISE))
            raise UserInputError(f"{kind} may look at whole tensors", where="optimizer", expected=expected)
        is_short = any(run.parameter.itemsize < MOST_EXACT_BYTES for runs in self._runs for run in runs)
        if lag and (is_short or any(group.get("fused") for group in self.optimizer.param_groups)):
            problem = "rounds a part of a parameter otherwise than the whole"
            expected = "float32 parameters and fused=False, or late: wait"
            raise UserInputError(problem, where="optimizer", expected=expected)
        self._prediction, self._keeps_own = prediction, prediction == "local" or lag > 0

    def before_step(
        self,
        step: int,
        later: Iterable[int],
        pushed: tuple[Elements, float],
        sums: Elements,
        clipped: tuple[float, float] | None = None,
    ) -> None:
        """Prepare for an optimizer step that uses own gradients of some pieces in place of sums.

        Args:
            step: the exchange's step.
            later: the pieces with own gradients.
            pushed: this rank's gradients, a vector of all elements, and what they were multiplied with.
            sums: a vector of all elements, of which those of other pieces have come.
            clipped: where all ranks have clipped: `factor` before that, and what they multiplied with.

        Raises UserInputError where the gradients have become others than a power of two times these: other
        ranks cannot know how.
        """
        if getattr(self.optimizer, "grad_scale", None) is not None:
            problem = "is fused, and a scaler's factor unseen"
            raise UserInputError(problem, where="optimizer", expected="fused=False")
        pieces, options = [*later], options_of(self.optimizer)
        known = {*pieces}
        factor, ratio = clipped or (self.factor(known, pushed, sums), 1.0)
        for piece in [*pieces, *(piece for piece in self._ahead if piece not in known)]:
            runs = self._runs[piece]
            ahead = self._ahead.get(piece)
            if ahead is None:
                states = [self._state_of(run) for run in runs]
                ahead = self._ahead[piece] = _Ahead([run.of(run.parameter).clone() for run in runs], states)
            is_sum = piece not in known
            gradients = [self._gradient(run) for run in runs]
            if is_sum or self._keeps_own:
                gradients = [None if each is None else each.clone() for each in gradients]
            ahead.steps[step] = _Step(options, gradients, factor, ratio, is_sum)

    def factor(self, later: Set[int], pushed: tuple[Elements, float], sums: Elements) -> float:
        """The factor by which a scaler multiplied the gradients of the exchange; arguments as in
        `before_step`."""
        others = (piece for piece in range(len(self._runs)) if piece not in later)
        return self._factor(later, *pushed) or (bool(later) and self._factor(others, sums, 1.0)) or 1.0

    def accept(self, step: int, pieces: Iterable[int], sums: Elements) -> None:
        """Copy the sums of a step that have come, for `correct`.

        Args:
            step: the step in which they were predicted; if the optimizer skipped it, nothing happens.
            sums: a vector of all elements.
        """
        for piece in pieces:
            ahead = self._ahead.get(piece)
            if ahead is not None and step in ahead.steps:
                entry = ahead.steps[step]
                entry.gradients = [
                    None if own is None else self._on_device(sums, run) * entry.factor * entry.clipped
                    for run, own in zip(self._runs[piece], entry.gradients, strict=True)
                ]
                entry.is_sum = True
                self._accepted.add(piece)

    def correct(self) -> None:
        """Replace own gradients by the sums that have come, and repeat the steps since then."""
        while folding := [piece for piece in self._accepted if self._is_next_a_sum(piece)]:
            by_step: defaultdict[int, list[int]] = defaultdict(list)
            for piece in folding:
                by_step[next(iter(self._ahead[piece].steps))].append(piece)
            for number, ready in by_step.items():
                rows = []
                for piece in ready:
                    ahead = self._ahead[piece]
                    step = ahead.steps.pop(number)
                    parts = zip(self._runs[piece], ahead.values, ahead.states, step.gradients, strict=True)
                    rows += [(*part, step.options) for part in parts]
                self._apply(rows)
        for piece in self._accepted:
            self._show(piece)
        self._accepted.clear()

    def after_step(self, later: Iterable[int]) -> None:
        """After the optimizer's step, apply predictions other than the optimizer's own."""
        if self._prediction == "optimizer":
            return
        for piece in later:
            self._show(piece)

    def importance(self, pieces: Iterable[int], sums: Elements) -> dict[int, float]:
        """Importance of each piece (equation 4): the sum of |gradient · parameter|, from a vector of summed
        gradients."""
        return {
            piece: sum(
                float(
                    torch.dot(self._on_device(sums, run).abs().float(), run.of(run.parameter).abs().float())
                )
                for run in self._runs[piece]
            )
            for piece in pieces
        }

    def set(self, values: Elements) -> None:
        """Set the parameters to values from the roots that keep them."""
        for runs in self._runs:
            for run in runs:
                run.of(run.parameter).copy_(self._on_device(values, run))

    def values(self) -> Elements:
        """All parameters, as one vector."""
        parts = [run.of(run.parameter).cpu() for runs in self._runs for run in runs]
        kind = getattr(torch, self._job.element_type)
        return torch.cat(parts).to(kind).numpy()  # type: ignore[no-any-return]  # torch has no types here

    def drop_gradients(self) -> None:
        """Remove all gradients, so that the optimizer does nothing, since roots have stepped."""
        for runs in self._runs:
            for run in runs:
                run.parameter.grad = None

    def check_untouched(self, own: Elements, weight: float) -> None:
        """Raises UserInputError where gradients have changed since they were pushed."""
        pieces = range(len(self._job.pieces))
        if self._factor(pieces, own, weight) not in {0.0, 1.0}:
            self.refuse("a scaler's factor is in the gradients that servers got")

    # Inside

    def _is_next_a_sum(self, piece: int) -> bool:
        ahead = self._ahead[piece]
        return bool(ahead.steps) and next(iter(ahead.steps.values())).is_sum

    def _show(self, piece: int) -> None:
        """Let the parameters and the optimizer have what a piece is, and own gradients' steps since."""
        ahead, runs = self._ahead[piece], self._runs[piece]
        values, states = ahead.values, ahead.states
        if ahead.steps:
            values = [value.clone() for value in values]
            states = [{name: _copy(value) for name, value in state.items()} for state in states]
        for step in ahead.steps.values():
            if self._prediction == "optimizer" or step.is_sum:
                rows = zip(runs, values, states, step.gradients, strict=True)
                self._apply([(*row, step.options) for row in rows])
            elif self._prediction == "local":
                for run, value, gradient in zip(runs, values, step.gradients, strict=True):
                    if gradient is not None:
                        options = step.options[run.group]
                        sign = -1.0 if options.get("maximize") else 1.0
                        value.sub_(gradient, alpha=sign * float(options["lr"]))
        for run, value, state in zip(runs, values, states, strict=True):
            run.of(run.parameter).copy_(value)
            held = self.optimizer.state[run.parameter]
            for name, part in state.items():
                if isinstance(part, Tensor) and part.shape == value.shape and _is_like(held.get(name), run):
                    run.of(held[name]).copy_(part)
        if not ahead.steps:
            del self._ahead[piece]

    def _apply(self, every: Iterable[tuple[Run, Tensor, dict[str, Any], Tensor | None, Options]]) -> None:
        """One step of an optimizer of the same kind with these values, states and gradients, in place."""
        groups: defaultdict[int, list[torch.nn.Parameter]] = defaultdict(list)
        stepped: list[tuple[torch.nn.Parameter, dict[str, Any]]] = []
        options: Options = []
        for run, value, state, gradient, options in every:  # noqa: B007  (all rows have the same)
            if gradient is not None:
                stand_in = torch.nn.Parameter(value)
                stand_in.grad = gradient.to(value.dtype)
                groups[run.group].append(stand_in)
                stepped.append((stand_in, state))
        if not stepped:
            return
        kind: Any = type(self.optimizer)
        shadow = kind([{"params": members, **options[group]} for group, members in groups.items()])
        shadow.state.update({stand_in: state for stand_in, state in stepped if state})
        shadow.step()
        for stand_in, state in stepped:
            state.update(shadow.state[stand_in])

    def _state_of(self, run: Run) -> dict[str, Any]:
        """A copy of the optimizer's for a run."""
        held: Mapping[str, Any] = self.optimizer.state.get(run.parameter, {})
        return {
            name: run.of(value).clone() if _is_like(value, run) else _copy(value)
            for name, value in held.items()
            if value is not None
        }

    def _gradient(self, run: Run) -> Tensor | None:
        """None: no rank has one of this parameter."""
        gradient = run.parameter.grad
        if gradient is None:
            return None
        return run.of(gradient)

    def _factor(self, pieces: Iterable[int], own: Elements, weight: float) -> float:
        """What gradients, as they were, are multiplied with in the parameters' `grad`; 0: all are 0."""
        factor = 0.0
        for piece in pieces:
            for run in self._runs[piece]:
                pushed, gradient = self._on_device(own, run), self._gradient(run)
                if gradient is None:
                    continue
                gradient = gradient.to(pushed.dtype)
                if weight != 1:
                    gradient = gradient * weight
                if not factor:
                    finite = pushed.nan_to_num(0.0, 0.0, 0.0)
                    at = int(finite.abs().argmax())
                    factor = float(gradient[at] / finite[at]) if finite[at] else 0.0
                is_power_of_two = frexp(factor)[0] == 0.5
                scaled = pushed if factor in {0.0, 1.0} else pushed * factor
                same = torch.equal(scaled, gradient) or torch.allclose(scaled, gradient, 0, 0, equal_nan=True)
                if not same or (factor and not is_power_of_two):
                    self.refuse("gradients have changed between backward and the optimizer's step")
        return factor

    def refuse(self, problem: str) -> NoReturn:
        """Raises UserInputError for a change that other ranks cannot know."""
        hint = "clip with state.clip_grad_norm(max_norm), which all ranks do alike"
        raise UserInputError(f"{problem}, and other ranks cannot know how", where="optimizer", hint=hint)

    def _on_device(self, vector: Elements, run: Run) -> Tensor:
        part = torch.from_numpy(vector[run.place])
        return part.to(run.parameter.device) if run.parameter.is_cuda else part


def options_of(optimizer: torch.optim.Optimizer) -> Options:
    """The present options of each parameter group, without what schedules store beside them."""
    names = optimizer.defaults
    return [{name: _copy(group[name]) for name in names} for group in optimizer.param_groups]


def _is_like(value: Any, run: Run) -> bool:
    like = run.parameter
    return isinstance(value, Tensor) and value.shape == like.shape and value.stride() == like.stride()


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, Tensor):
        return float(value)
    return [*map(_plain, value)] if isinstance(value, tuple | list) else value
