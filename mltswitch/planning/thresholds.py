"""Thresholds of a plan's ports: the optimisation problem of each, solved once for all ports that share it."""

from dataclasses import replace
from functools import cached_property
from itertools import count
from typing import Final

from mltswitch.capabilities import AlphaLimit, BytesLimit, Capabilities, Unlimited
from mltswitch.errors import UserInputError
from mltswitch.plan.class_document import Classes
from mltswitch.plan.document import ClassKind, Plan, PortProfile, QueueSettings, TrafficClass
from mltswitch.planning.predict import port_problem, rounded
from mltswitch.profile import Curve, ModelProfile, queue_curves
from mltswitch.queueing import Optimum, QueueObjective, ThresholdProblem, least_buffer_packets, optimise
from mltswitch.queueing.refine import refine
from mltswitch.queueing.settings import SimulationSettings
from mltswitch.units import bytes_to_packets, packets_to_bytes

GLOBAL_GAP: Final = 0.005
"""Relative gap up to which an optimum counts as global."""
START_MODEL: Final = "completion"
"""Finds the thresholds that the simulator then refines, for the model `simulate`."""

Curves = tuple[Curve, Curve]


def fixed_limits_packets(classes: Classes) -> dict[str, int]:
    """Limits of the classes that are no gradients, by name; a lossless class has the operator's."""
    return {
        "network-control": classes.network_control.limit_packets,
        "control": classes.control.limit_packets,
        "background": classes.background.limit_packets,
        **{entry.name: entry.limit_packets for entry in classes.others if not entry.lossless},
    }


def granularity_packets(device: Capabilities, packet_bytes: int) -> int:
    """Whole packets that the device's threshold step holds.

    Rounded down: the device rounds a threshold up to its step, and so takes no more steps than were planned.
    """
    return max(1, device.threshold.step_bytes // packet_bytes)


def usable_alphas(device: Capabilities, gradient_bytes: int) -> tuple[float, ...]:
    """Alphas at which a queue alone comes to rest within the port's part of the pool, rising.

    Empty where the device has no alphas, the pool is unknown, or even the least alpha takes more: then bytes
    are planned, and the device's nearest alpha is a rounding that is reported.
    """
    can = device.limit
    if can.kind != "alpha" or can.pool_bytes is None:
        return ()
    return tuple(
        2.0**exponent
        for exponent in sorted(can.alpha_exponents)
        if AlphaLimit(exponent).resting_bytes(can.pool_bytes) <= gradient_bytes
    )


class ClassCurves:
    """Extra rounds over the loss of each gradient class, summed over its layers once."""

    def __init__(self, profile: ModelProfile, classes: tuple[TrafficClass, ...]) -> None:
        self._curves: dict[str, Curves] = {
            entry.name: queue_curves(profile, entry.layers.first, entry.layers.last)
            for entry in classes
            if entry.layers is not None
        }

    def __getitem__(self, traffic_class: str) -> Curves:
        """(unimportant, important)."""
        return self._curves[traffic_class]


class PortSolver:
    """Thresholds of the port profiles of one plan."""

    def __init__(self, plan: Plan, curves: ClassCurves, simulation: SimulationSettings | None = None) -> None:
        self._plan = plan
        self._simulation = simulation
        self._curves = curves
        self._solved: dict[ThresholdProblem, Optimum] = {}

    def problem(self, profile: PortProfile, device: Capabilities) -> ThresholdProblem:
        """What is to be chosen on these ports, and within which bounds.

        Raises:
            UserInputError: the buffer is too small for the gradient classes.
        """
        plan = self._plan
        port, traffic, thresholds = port_problem(plan, profile)
        alphas, buffer_packets = self._buffer(profile, device)
        fixed = tuple(
            None if entry.kind is ClassKind.GRADIENT else limits
            for entry, limits in zip(plan.classes, thresholds, strict=True)
        )
        return ThresholdProblem(
            # The limits alone bound the queues: a pool is far larger than what one port may fill of it.
            port=replace(port, buffer_packets=None),
            traffic=traffic,
            fixed=fixed,
            objectives=self._objectives(profile),
            buffer_packets=buffer_packets,
            hops=plan.hops,
            buffer="shared" if alphas else "static",
            alphas=alphas,
            granularity_packets=granularity_packets(device, profile.packet_bytes),
            is_ordered=self._is_ordered,
        )

    def solve(self, profile: PortProfile, device: Capabilities) -> PortProfile:
        """The profile with its best thresholds; raises as `problem` does."""
        problem = self.problem(profile, device)
        if problem not in self._solved:
            self._solved[problem] = self._optimum(problem)
        return with_optimum(profile, self._solved[problem], problem)

    def _optimum(self, problem: ThresholdProblem) -> Optimum:
        model = self._plan.provenance.queueing_model
        if model != "simulate":
            return optimise(problem, model)
        return refine(problem, optimise(problem, START_MODEL), self._simulation).optimum

    @cached_property
    def _is_ordered(self) -> bool:
        plan = self._plan
        return plan.fabric.classes.gradients.is_ordered(plan.provenance.queueing_model)

    def _objectives(self, profile: PortProfile) -> tuple[QueueObjective, ...]:
        entries = self._plan.gradient_classes
        bounds = self._plan.fabric.delay_bounds_seconds(len(entries))
        sizes = [entry.layers.size_bytes for entry in entries if entry.layers is not None]
        return tuple(
            QueueObjective(
                byte_share=size / max(1, sum(sizes)),
                rounds_unimportant=self._curves[entry.name][0],
                rounds_important=self._curves[entry.name][1],
                delay_bound_packet_times=None if bound is None else bound / profile.packet_seconds,
            )
            for entry, size, bound in zip(entries, sizes, bounds, strict=True)
        )

    def _buffer(self, profile: PortProfile, device: Capabilities) -> tuple[tuple[float, ...], int]:
        """(alphas, packets): the pool, where queues share it by alpha, else what the port has left."""
        queues = len(self._plan.gradient_classes)
        fixed = sum(fixed_limits_packets(self._plan.fabric.classes).values())
        free = max(0, bytes_to_packets(profile.buffer_bytes, profile.packet_bytes) - fixed)
        alphas = usable_alphas(device, packets_to_bytes(free, profile.packet_bytes))
        step = granularity_packets(device, profile.packet_bytes)
        if alphas and device.limit.pool_bytes is not None:
            pool = bytes_to_packets(device.limit.pool_bytes, profile.packet_bytes)
            needed = least_buffer_packets(queues, step, is_ordered=self._is_ordered, is_shared=True)
            if int(pool * alphas[-1] / (1 + alphas[-1])) >= needed:
                return alphas, pool
        least = least_buffer_packets(queues, step, is_ordered=self._is_ordered)
        if free < least:
            raise UserInputError(
                f"{profile.buffer_bytes} B on {profile.role} ports leave {free} packets of "
                f"{profile.packet_bytes} B for {queues} gradient queues after {fixed} packets for the other "
                "classes",
                where="ports.buffer",
                expected=f"at least {packets_to_bytes(least + fixed, profile.packet_bytes)} B",
            )
        return (), free


def provisional_queues(
    classes: tuple[TrafficClass, ...], given: Classes, packet_bytes: int
) -> tuple[QueueSettings, ...]:
    """Settings of all classes before thresholds are chosen: those of gradients rise packet by packet."""
    fixed = fixed_limits_packets(given)
    least = count(1)
    settings: list[QueueSettings] = []
    for entry in classes:
        if entry.kind is ClassKind.GRADIENT:
            length = next(least)
            settings.append(_settings(entry.name, length, length, packet_bytes))
        elif entry.kind is ClassKind.LOSSLESS:
            settings.append(QueueSettings(traffic_class=entry.name, limit=Unlimited()))
        else:
            settings.append(_settings(entry.name, None, fixed[entry.name], packet_bytes))
    return tuple(settings)


def with_optimum(profile: PortProfile, optimum: Optimum, problem: ThresholdProblem) -> PortProfile:
    """The profile with these thresholds, in bytes, and what is known of them.

    A plan says what a queue may hold; where the device has alphas, the target finds the one that rests there.
    """
    chosen = iter(optimum.thresholds)
    queues: list[QueueSettings] = []
    for queue in profile.queues:
        if queue.ecn_threshold_bytes is None:
            queues.append(queue)
            continue
        limits = next(chosen)
        threshold = int(limits.ecn_threshold_packets or 0)
        queues.append(
            _settings(queue.traffic_class, threshold, int(limits.limit_packets), profile.packet_bytes)
        )
    is_bounded = optimum.lower_bound_rounds > 0 or optimum.gap == 0
    found = {
        "queues": tuple(queues),
        "buffer": problem.buffer,
        "extra_rounds": rounded(optimum.extra_rounds),
        "optimum": "global" if optimum.gap <= GLOBAL_GAP else "refined",
        "lower_bound_rounds": rounded(optimum.lower_bound_rounds) if is_bounded else None,
        "gap": rounded(optimum.gap) if is_bounded else None,
        "method": optimum.method,
    }
    return PortProfile(**dict(profile) | found)


def _settings(
    name: str, threshold_packets: int | None, limit_packets: int, packet_bytes: int
) -> QueueSettings:
    threshold = None if threshold_packets is None else packets_to_bytes(threshold_packets, packet_bytes)
    return QueueSettings(
        traffic_class=name,
        ecn_threshold_bytes=threshold,
        limit=BytesLimit(packets_to_bytes(limit_packets, packet_bytes)),
    )
