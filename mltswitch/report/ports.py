"""Groups of ports with equal settings, and the predictions of each loss model for a group at any load and
burst."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby

from mltswitch.errors import MltswitchError
from mltswitch.plan import Plan, PortProfile, Prediction
from mltswitch.planning.evaluate import alike
from mltswitch.planning.predict import predict_port
from mltswitch.queueing import SimulationSettings
from mltswitch.units import format_bps


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a loss model predicts for the queue of every class at a port, or why it predicts nothing."""

    predictions: Mapping[str, Prediction] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PortGroup:
    """Port profiles with the same rate, load, buffer and thresholds."""

    plan: Plan
    profiles: tuple[PortProfile, ...]
    simulation: SimulationSettings

    @property
    def profile(self) -> PortProfile:
        """One of the group's profiles, which stands for all of them."""
        return self.profiles[0]

    @property
    def title(self) -> str:
        """Title of the group, such as `linux leaf-down, leaf-up; onyx leaf-down`."""
        return "; ".join(
            f"{platform} {', '.join(profile.role for profile in members)}"
            for platform, members in groupby(self.profiles, key=lambda profile: profile.platform)
        )

    @property
    def heading(self) -> str:
        """The group's title and the settings that all of its ports have in common."""
        rate, load, size = format_bps(self.profile.rate_bps), self.profile.load, self.profile.buffer_bytes
        return f"{self.title}: {rate}, gradient load {load:g}, buffer {size:,} B"

    @property
    def burst_packets(self) -> int:
        """The burst size that the plan is made for."""
        return self.plan.fabric.traffic.burst_packets

    def outcome(self, model: str, *, load: float | None = None, burst_packets: int | None = None) -> Outcome:
        """Predictions of `model` at this load and burst size; by default the planned ones."""
        try:
            found = predict_port(
                self.plan,
                self.profile,
                load=self.profile.load if load is None else load,
                # Classes may differ in burst size: the planned one leaves each its own.
                burst_packets=None if burst_packets == self.burst_packets else burst_packets,
                model=model,
                simulation=self.simulation,
            )
        except MltswitchError as error:
            return Outcome(reason=str(error))
        return Outcome(found)


def port_groups(plan: Plan, simulation: SimulationSettings) -> tuple[PortGroup, ...]:
    """The plan's ports, grouped by equal settings."""
    return tuple(PortGroup(plan, members, simulation) for members in alike(plan))
