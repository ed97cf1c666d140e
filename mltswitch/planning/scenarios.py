"""The situations that a plan's thresholds are chosen for: loads around the planned one, and incasts."""

from typing import Final

from mltswitch.plan.document import PLANNED_LOAD, ScenarioPrediction
from mltswitch.plan.fabric import Fabric, ScenarioEntry

INCAST_SENDERS: Final = 4
"""Senders whose bursts meet in the default incast, where there are so many hosts."""
BELOW: Final = ScenarioEntry(load_factor=0.75, weight=0.15)
ABOVE: Final = ScenarioEntry(load_factor=1.15, weight=0.1)
INCAST_WEIGHT: Final = 0.15
BUSY_WEIGHT: Final = 0.15
"""Of the planned load while all ports of a switch are congested, beside any other scenarios."""


def planned_scenarios(
    fabric: Fabric, most_senders: int, *, shares_memory: bool
) -> tuple[ScenarioPrediction, ...]:
    """The planned load first, then the fabric's scenarios, or the default ones; weights sum to 1.

    Args:
        fabric: its `traffic`.
        most_senders: hosts that the placement lets send to one port at once.
        shares_memory: ports of a switch share packet memory: all of them busy is a scenario, too.
    """
    traffic = fabric.traffic
    most_senders = max(1, most_senders)
    entries = list(traffic.scenarios)
    if not entries:
        entries = [BELOW, ABOVE]
        if traffic.arrivals == "bursts" and most_senders > 1:
            senders = min(INCAST_SENDERS, most_senders)
            entries.append(ScenarioEntry(senders=senders, weight=INCAST_WEIGHT))
    entries = [entry.model_copy(update={"senders": min(entry.senders, most_senders)}) for entry in entries]
    planned = ScenarioEntry(weight=traffic.planned_weight)
    total = planned.weight + sum(entry.weight for entry in entries) + BUSY_WEIGHT * shares_memory
    busy = ScenarioPrediction(
        name="all ports busy", load_factor=1.0, all_ports_busy=True, weight=BUSY_WEIGHT / total
    )
    made = tuple(
        ScenarioPrediction(
            name=PLANNED_LOAD.name if entry is planned else _name(entry),
            load_factor=entry.load_factor,
            senders=entry.senders,
            burst_packets=entry.burst_packets,
            weight=entry.weight / total,
        )
        for entry in (planned, *entries)
    )
    return (*made, busy) if shares_memory else made


def _name(entry: ScenarioEntry) -> str:
    parts = [f"{entry.load_factor:g} times the load"] if entry.load_factor != 1 else []
    parts += [f"{entry.senders} senders at once"] if entry.senders > 1 else []
    parts += [f"bursts of {entry.burst_packets}"] if entry.burst_packets is not None else []
    return ", ".join(parts) or "the load again"
