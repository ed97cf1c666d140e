"""Play a scenario: one run for each transport and seed."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mltswitch.errors import MachineError, UserInputError
from mltswitch.network.fabric import Network
from mltswitch.network.results import Run, run_of
from mltswitch.network.scenario import Play, Scenario
from mltswitch.network.switches import FromPlan, rules_of
from mltswitch.network.units import PICOSECONDS
from mltswitch.network.workloads import Flow, Stage
from mltswitch.plan import Plan, Topology

BYTES_PER_FLOW: Final = 1200
"""Of the tables and of Python's lists while they are made, rounded up."""
SLOWEST_PACKET_SECONDS: Final = 1.0

Progress = Callable[[int, int], None]
"""Hears how many flows have finished, and how many there are."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What all runs of a scenario have in common."""

    topology: Topology
    plan: Plan | None
    buffer_bytes: int | None

    @property
    def plan_layers(self) -> int | None:
        """Layers of the model that the plan is for."""
        layers = [entry.layers for entry in self.plan.classes] if self.plan else []
        return max((each.last + 1 for each in layers if each is not None), default=None)


def check(scenario: Scenario, ground: Ground) -> None:
    """Raise UserInputError for what cannot be played, before anything is."""
    for place, play in enumerate(scenario.plays):
        where = f"transports[{place}]"
        network, _ = staged(scenario, ground, play, where, scenario.seeds[0])
        slowest = min(port.rate_bps for port in network.ports)
        packet_seconds = play.transport.packet_bytes * 8 / slowest
        if play.transport.least_rto_seconds < packet_seconds:
            raise UserInputError(
                f"{play.transport.least_rto_seconds:g} s are less than the {packet_seconds:g} s that a link "
                "needs for a packet",
                where=f"{where}.rto_min",
            )
        if play.spraying and len(ground.topology.paths) < 2:
            raise UserInputError("there is no second path", where=f"{where}.spraying", expected="two spines")


def staged(
    scenario: Scenario, ground: Ground, play: Play, where: str, seed: int
) -> tuple[Network, list[Flow]]:
    """The network and the flows of one run; raises UserInputError naming the field that does not fit."""
    document = play.switch_document
    rules = rules_of(
        document,
        plan=ground.plan,
        buffer_bytes=ground.buffer_bytes,
        packet_bytes=play.transport.packet_bytes,
        where=f"{where}.switch",
    )
    network = Network(ground.topology, rules, scenario.link_loss)
    stage = Stage(
        network.hosts,
        rules.class_of,
        np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x776F,))),
        ground.plan_layers if isinstance(document, FromPlan) else None,
    )
    flows = scenario.workload.flows(stage)
    _check_memory(flows, play.transport.payload_bytes)
    return network, flows


def _check_memory(flows: list[Flow], payload_bytes: int) -> None:
    needed = len(flows) * BYTES_PER_FLOW + sum(flow.size_bytes for flow in flows) // payload_bytes // 4
    there_is = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > there_is:
        raise MachineError(
            f"{len(flows)} flows need about {needed >> 20} MiB, and {there_is >> 20} MiB are free",
            where="workload",
            hint="take a smaller workload",
        )


def play_one(
    scenario: Scenario,
    ground: Ground,
    place: int,
    seed: int,
    progress: Progress,
    *,
    events: int | None = None,
) -> Run:
    """One transport with one seed.

    Args:
        scenario: As it was checked.
        ground: Its fabric.
        place: Of the transport in the scenario.
        seed: Of this run.
        progress: Called every second or so.
        events: Between two calls of `progress`.

    Raises:
        MachineError: numba is missing.
        UserInputError: flows are open and nothing will happen any more.
    """
    try:
        from mltswitch.network.world import EVENTS_AT_ONCE, World
    except ImportError as error:
        raise MachineError(
            "the simulator needs numba", where="simulate", hint="`pip install 'mltswitch[sim]'`"
        ) from error
    play = scenario.plays[place]
    network, flows = staged(scenario, ground, play, f"transports[{place}]", seed)
    world = World(network, flows, play.transport.settings(), seed=seed, spraying=play.sprays)
    end = None if scenario.end_seconds is None else round(scenario.end_seconds * PICOSECONDS)
    limits: dict[str, Any] = {} if end is None else {"until_picoseconds": end}
    while world.advance(events=events or EVENTS_AT_ONCE, **limits):
        progress(world.count("finished"), len(flows))
        if end is not None and world.next_picoseconds > end:
            break
    progress(world.count("finished"), len(flows))
    if end is None and world.count("finished") < len(flows):
        raise UserInputError(_deadlock(world.flows, network, flows), where=scenario.titles[place])
    return run_of(scenario.titles[place], seed, world, flows)


def _deadlock(table: Any, network: Network, flows: list[Flow]) -> str:
    first = int(np.flatnonzero(table["finish"] < 0)[0])
    flow = flows[first]
    ends = f"{network.ports[flow.source].name} to {network.ports[flow.destination].name}"
    return (
        f"{int((table['finish'] < 0).sum())} flows are open, and nothing will happen any more: flow {first}, "
        f"{ends}, has {table['arrived'][first]} of {table['packets'][first]} packets"
    )
