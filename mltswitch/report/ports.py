"""Kinds of ports that share their settings, and what each loss model says of one at any load and burst."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from mltswitch.errors import MltswitchError
from mltswitch.plan import Plan, PortProfile, Prediction
from mltswitch.planning.evaluate import alike
from mltswitch.planning.predict import port_problem, predict_port
from mltswitch.queueing import SimulationSettings


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a model says of every queue of a port, highest priority first, or why it says nothing."""

    predictions: tuple[Prediction, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PortGroup:
    """Port profiles with the same rate, load, buffer and thresholds."""

    plan: Plan
    profiles: tuple[PortProfile, ...]
    simulation: SimulationSettings
    _known: dict[tuple[str, float, int], Outcome] = field(default_factory=dict, repr=False, compare=False)

    @property
    def profile(self) -> PortProfile:
        """One of them, for all."""
        return self.profiles[0]

    @property
    def title(self) -> str:
        """`linux leaf-down, leaf-up; onyx leaf-down`."""
        return "; ".join(
            f"{platform} {', '.join(profile.role for profile in members)}"
            for platform, members in groupby(self.profiles, key=lambda profile: profile.platform)
        )

    @property
    def burst_packets(self) -> int:
        """The burst size that the plan is made for."""
        return self.plan.fabric.traffic.burst_packets

    def outcome(self, model: str, *, load: float | None = None, burst_packets: int | None = None) -> Outcome:
        """What `model` says at this load and in bursts of this size; by default the planned ones."""
        key = (
            model,
            self.profile.load if load is None else load,
            self.burst_packets if burst_packets is None else burst_packets,
        )
        if key not in self._known:
            self._known[key] = self._predict(*key)
        return self._known[key]

    def _predict(self, model: str, load: float, burst_packets: int) -> Outcome:
        try:
            found = predict_port(
                self.plan,
                self.profile,
                load=load,
                # Classes may differ in burst size: the planned one leaves each its own.
                burst_packets=None if burst_packets == self.burst_packets else burst_packets,
                model=model,
                simulation=self.simulation,
            )
            return Outcome(tuple(found[queue.traffic_class] for queue in self.profile.queues))
        except MltswitchError as error:
            return Outcome(reason=str(error))


def port_groups(plan: Plan, simulation: SimulationSettings) -> tuple[PortGroup, ...]:
    """The plan's kinds of ports, those with equal settings together."""
    return tuple(PortGroup(plan, members, simulation) for members in alike(plan))


def queue_number(plan: Plan, traffic_class: str) -> int:
    """Place of a class in the order of service."""
    return [entry.name for entry in plan.classes].index(traffic_class)


def limits_packets(group: PortGroup) -> float:
    """Waiting packets that all limits of a port allow together: what a model's time grows with."""
    try:
        _, _, thresholds = port_problem(group.plan, group.profile)
    except MltswitchError:
        return 0.0
    return sum(entry.limit_packets for entry in thresholds)


def planned(points: Sequence[float], at: float) -> tuple[float, ...]:
    """Points of a sweep with the planned one among them, rising."""
    return tuple(sorted({*points, at}))
