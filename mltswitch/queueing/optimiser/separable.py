"""Entry to the global optimum for the models `paper` and `mm1k`."""

from dataclasses import replace
from math import inf, isfinite
from typing import Final

from mltswitch.errors import UserInputError
from mltswitch.queueing.objective import Optimum, ThresholdProblem, admissible_limits, least_buffer_packets
from mltswitch.queueing.optimiser import complete, dual, shared
from mltswitch.queueing.optimiser.cost import QueueCost, queue_costs
from mltswitch.queueing.optimiser.solution import Solution
from mltswitch.queueing.problem import QueueThresholds

SEPARABLE: Final = ("paper", "mm1k")
"""Models in which a queue's losses depend on its own thresholds only."""


def optimise_separable(problem: ThresholdProblem, model: str) -> Optimum:
    """Thresholds that cost the fewest extra training rounds, with a lower bound that no thresholds undercut.

    Ties go to the least byte-weighted loss, then to the least buffer.

    Raises:
        UserInputError: the model is not separable, a number is impossible, or nothing keeps all constraints.
    """
    if model not in SEPARABLE:
        raise UserInputError(
            f"the model {model!r} has no global optimum here", where="model", expected=" or ".join(SEPARABLE)
        )
    check(problem)
    limits = admissible_limits(problem)
    found = None
    if limits:
        # The lengths at which queues of a shared buffer rest are no multiples of the device's steps.
        unit = 1 if problem.buffer == "shared" else problem.granularity_packets
        costs = queue_costs(replace(problem, granularity_packets=unit), model, limits[-1] // unit)
        found = _search(problem, costs, limits)
    if found is None:
        raise UserInputError(
            f"no thresholds keep all constraints in {problem.buffer_packets} packets",
            where="buffer_packets",
            expected="a larger buffer, larger alphas or wider delay bounds",
        )
    return _optimum(costs, found, unit)


def check(problem: ThresholdProblem) -> None:
    """Refuse what has no meaning.

    Raises:
        UserInputError: names the field.
    """
    queues = sum(fixed is None for fixed in problem.fixed)
    if len(problem.fixed) != len(problem.traffic):
        raise UserInputError(
            f"{len(problem.traffic)} queues have traffic, {len(problem.fixed)} say whether they are fixed",
            where="fixed",
        )
    if queues == 0 or len(problem.objectives) != queues:
        raise UserInputError(
            f"{len(problem.objectives)} objectives for {queues} queues to be chosen",
            where="objectives",
            expected="one for each, and at least one",
        )
    for index, offered in enumerate(problem.traffic):
        _check_number(f"queues[{index}].load", offered.load, 0, inf)
        _check_number(f"queues[{index}].unimportant_share", offered.unimportant_share, 0, 1)
    for index, objective in enumerate(problem.objectives):
        _check_number(f"objectives[{index}].byte_share", objective.byte_share, 0, 1)
        bound = objective.delay_bound_packet_times
        if bound is not None and not bound > 0:
            raise UserInputError(
                f"{bound:g} is out of range",
                where=f"objectives[{index}].delay_bound_packet_times",
                expected="a number above 0",
            )
    for name in ("hops", "granularity_packets"):
        if getattr(problem, name) < 1:
            raise UserInputError(
                f"{getattr(problem, name)} is out of range", where=name, expected="at least 1"
            )
    if problem.buffer == "shared":
        if not problem.alphas or not all(isfinite(alpha) and alpha > 0 for alpha in problem.alphas):
            raise UserInputError(
                "a shared buffer needs values of alpha",
                where="alphas",
                expected="numbers above 0, at least one",
            )
        return
    least = least_buffer_packets(queues, problem.granularity_packets, is_ordered=problem.is_ordered)
    if problem.buffer_packets < least:
        raise UserInputError(
            f"{queues} queues do not fit into {problem.buffer_packets} packets",
            where="buffer_packets",
            expected=f"at least {least}",
        )


def _check_number(where: str, value: float, least: float, most: float) -> None:
    if not (isfinite(value) and least <= value <= most):
        bounds = f"at least {least:g}" + (f" and at most {most:g}" if isfinite(most) else "")
        raise UserInputError(f"{value:g} is out of range", where=where, expected=f"a number {bounds}")


def _search(problem: ThresholdProblem, costs: list[QueueCost], limits: tuple[int, ...]) -> Solution | None:
    if problem.buffer == "shared":
        return shared.search_shared(costs, limits, problem.granularity_packets, is_ordered=problem.is_ordered)
    units = len(limits)
    search = complete.search_static if units <= complete.MAXIMUM_UNITS else dual.search_static
    return search(costs, units, is_ordered=problem.is_ordered)


def _optimum(costs: list[QueueCost], found: Solution, unit_packets: int) -> Optimum:
    rounds, loss = found.figures(costs)
    return Optimum(
        tuple(
            QueueThresholds(float(threshold * unit_packets), float(limit * unit_packets))
            for threshold, limit in zip(found.thresholds, found.limits, strict=True)
        ),
        extra_rounds=rounds,
        byte_weighted_loss=loss,
        lower_bound_rounds=min(rounds, found.lower_bound_rounds),
        method=found.method,
    )
