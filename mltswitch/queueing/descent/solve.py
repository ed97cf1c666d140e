"""The best thresholds of a port under any loss model."""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from math import inf
from typing import Final

from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.queueing.arrivals import mean_burst_packets
from mltswitch.queueing.descent.bound import least_rounds as completion_bound
from mltswitch.queueing.descent.choice import Choice, Constraints
from mltswitch.queueing.descent.evaluation import Evaluation, Evaluator, Predictor
from mltswitch.queueing.descent.search import descend, polish, recombine
from mltswitch.queueing.models import predict, predict_losses
from mltswitch.queueing.objective import Optimum, ThresholdProblem
from mltswitch.queueing.optimiser import SEPARABLE, optimise_separable
from mltswitch.units import format_ratio

EVALUATIONS: Final = 96
"""Evaluations of a whole port whose queues hold up to TYPICAL_PACKETS on average; fewer for longer ones."""
FEWEST_EVALUATIONS: Final = 48
"""For the longest queues, and in all once a choice costs no extra round and ties alone are left."""
TYPICAL_PACKETS: Final = 128
USELESS: Final = 1.0
"""Relative distance beyond which a bound says nothing of a choice."""
THRESHOLD_SHARES: Final = (0.5, 0.9)
"""S over L of the starting points that no other model proposes."""


def optimise(problem: ThresholdProblem, model: str = "completion") -> Optimum:
    """S and L of the gradient queues of a port; the same problem gives the same answer.

    Where queues do not influence each other the optimum is global, with a certificate. Else a class feels
    what the classes above it dropped: a descent from several starting points, and under `completion` a bound
    that no thresholds undercut, which may lie far below.

    Raises:
        UserInputError: the buffer is too small, no choice was found that keeps the delay bounds, or the model
            cannot express the problem.
    """
    if model in SEPARABLE:
        return optimise_separable(problem, model)
    is_bounded = any(objective.delay_bound_packet_times is not None for objective in problem.objectives)
    price = predict if is_bounded else predict_losses
    return optimise_by_descent(
        problem,
        lambda thresholds: price(problem.port, problem.traffic, thresholds, model),
        starts=_separable_starts(problem),
        least_rounds=completion_bound if model == "completion" else None,
    )


def optimise_by_descent(
    problem: ThresholdProblem,
    predictor: Predictor,
    *,
    starts: Iterable[Choice] = (),
    evaluations: int | None = None,
    least_rounds: Callable[[ThresholdProblem], float] | None = None,
) -> Optimum:
    """The same under any predictor, from `starts` and starting points of its own.

    `least_rounds` is asked for a bound where the search itself gives none.

    Raises:
        UserInputError: the buffer is too small, or no choice was found that keeps the delay bounds.
    """
    constraints = Constraints(problem)
    budget = evaluation_budget(problem) if evaluations is None else evaluations
    is_complete = constraints.count_up_to(budget) <= budget
    if is_complete:
        evaluator = Evaluator(constraints, predictor, budget)
        best = _best(evaluator, _every_choice(constraints))
        method = f"every choice compared ({evaluator.evaluations})"
    else:
        evaluator = Evaluator(constraints, predictor, max(1, budget), flat_budget=FEWEST_EVALUATIONS)
        starting = (*starts, *_own_starts(constraints))
        best, count = _search(evaluator, [constraints.nearest(start) for start in starting])
        method = f"descent from {count} starting points, {evaluator.evaluations} evaluations"
    if best.delay_excess_packet_times > 0:
        raise UserInputError(
            f"no thresholds were found that keep the delay bounds; the best exceeds them by "
            f"{best.delay_excess_packet_times:.3g} packet times",
            where="delay_bound",
            expected="larger bounds, or a lower load of the classes above",
        )
    if is_complete:
        return as_optimum(constraints, best, method, lower_bound_rounds=best.rounds)
    bound = 0.0 if best.rounds == 0 or least_rounds is None else least_rounds(problem)
    return as_optimum(constraints, best, f"{method}: {_known(best.rounds, bound)}", lower_bound_rounds=bound)


def _known(rounds: float, bound: float) -> str:
    """How far a local optimum may lie from the global one."""
    if rounds == 0:
        return "no extra round, which nothing undercuts"
    above = (rounds - bound) / bound if bound > 0 else inf
    if above > USELESS:
        return "local, no useful bound"
    return f"local, at most {format_ratio(above)} above the bound"


def as_optimum(
    constraints: Constraints, best: Evaluation, method: str, *, lower_bound_rounds: float = 0.0
) -> Optimum:
    """An evaluated choice as an answer."""
    full = constraints.full(best.choice)
    return Optimum(
        thresholds=tuple(
            limits for limits, given in zip(full, constraints.problem.fixed, strict=True) if given is None
        ),
        extra_rounds=best.rounds,
        byte_weighted_loss=best.byte_weighted_loss,
        lower_bound_rounds=min(best.rounds, lower_bound_rounds),
        method=method,
    )


def as_choice(constraints: Constraints, optimum: Optimum) -> Choice:
    """An answer as a feasible choice: rounded where this problem's steps differ."""
    limits = tuple(int(entry.limit_packets) for entry in optimum.thresholds)
    marking = tuple(int(entry.ecn_threshold_packets or 0) for entry in optimum.thresholds)
    return constraints.nearest(Choice(marking, limits))


def evaluation_budget(problem: ThresholdProblem) -> int:
    """Evaluations that a search may make: a model takes longer for longer queues."""
    packets = problem.buffer_packets
    if problem.buffer == "static":
        packets //= max(1, len(problem.objectives))
    return max(FEWEST_EVALUATIONS, min(EVALUATIONS, EVALUATIONS * TYPICAL_PACKETS // max(1, packets)))


def _separable_starts(problem: ThresholdProblem) -> list[Choice]:
    constraints = Constraints(problem)
    starts: list[Choice] = []
    for model in SEPARABLE[::-1]:
        try:
            starts.append(as_choice(constraints, optimise_separable(problem, model)))
        except MltswitchError:
            # A model that cannot express the problem proposes nothing; the other starting points remain.
            continue
    return starts


def _own_starts(constraints: Constraints) -> list[Choice]:
    """Buffer in proportion to load, to burst size, to what piles up behind the classes above, or equal."""
    problem = constraints.problem
    chosen = [
        (position, offered)
        for position, (given, offered) in enumerate(zip(problem.fixed, problem.traffic, strict=True))
        if given is None
    ]
    loads = [offered.load for _, offered in chosen]
    above = [sum(offered.load for offered in problem.traffic[:position]) for position, _ in chosen]
    bursts = [mean_burst_packets(offered.arrivals) for _, offered in chosen]
    waiting = [
        burst * (1 + load / max(0.05, 1 - higher - load))
        for burst, load, higher in zip(bursts, loads, above, strict=True)
    ]
    weights: tuple[Sequence[float], ...] = (loads, waiting, [1.0] * constraints.count)
    return [constraints.proportional(*entry) for entry in product(weights, THRESHOLD_SHARES)]


def _search(evaluator: Evaluator, starts: Sequence[Choice]) -> tuple[Evaluation, int]:
    """Descent from the best starting point, then from the next ones while evaluations are left.

    Returns the best end, and how many starting points there were.
    """
    distinct = list(dict.fromkeys(starts))
    known = [evaluator.evaluate(start) for start in distinct[: evaluator.left]]
    step = evaluator.constraints.largest_step
    ends: list[Evaluation] = []
    for start in sorted(known, key=lambda entry: entry.score):
        mixed = recombine(evaluator, start)
        ends.append(polish(evaluator, descend(evaluator, mixed, largest_step=step)))
        if evaluator.left <= 0:
            break
    return min(ends, key=lambda entry: entry.score), len(known)


def _best(evaluator: Evaluator, choices: Iterable[Choice]) -> Evaluation:
    return min((evaluator.evaluate(choice) for choice in choices), key=lambda entry: entry.score)


def _every_choice(constraints: Constraints) -> Iterable[Choice]:
    steps = range(constraints.step, constraints.limits[-1] + 1, constraints.step)
    pairs = [(s, limit) for limit in constraints.limits for s in steps if s <= limit]
    for chosen in product(pairs, repeat=constraints.count):
        choice = Choice(tuple(s for s, _ in chosen), tuple(limit for _, limit in chosen))
        if constraints.is_feasible(choice):
            yield choice
