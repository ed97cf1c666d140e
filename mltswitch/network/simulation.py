"""Play a scenario: one run for each transport and seed."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from mltswitch.errors import MachineError, UserInputError
from mltswitch.network.fabric import Network
from mltswitch.network.results import Run, run_of
from mltswitch.network.scenario import Play, Scenario
from mltswitch.network.switches import FromPlan, rules_of
from mltswitch.network.transports.parameters import MltAgent
from mltswitch.network.units import LONGEST_PICOSECONDS, PICOSECONDS
from mltswitch.network.workloads import Extent, Flow, Stage
from mltswitch.plan import Plan, Topology

BYTES_PER_FLOW: Final = 1200
"""Of the tables and of Python's lists while they are made, rounded up."""
MOST_PACKETS: Final = 2**31 - 2
"""Of one flow: packets are numbered in 32 bits, and the number after the last one is needed, too."""
MEMORY_FILE: Final = Path("/proc/meminfo")

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
        network, _ = _prepared(scenario, ground, play, where, scenario.seeds[0])
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
        if isinstance(play.transport, MltAgent):
            from mltswitch.network.cosimulation import check_hosts

            check_hosts(staged(scenario, ground, play, where, scenario.seeds[0])[1], where)


def staged(
    scenario: Scenario, ground: Ground, play: Play, where: str, seed: int
) -> tuple[Network, list[Flow]]:
    """The network and the flows of one run; raises UserInputError naming the field that does not fit."""
    network, stage = _prepared(scenario, ground, play, where, seed)
    return network, scenario.workload.flows(stage)


def _prepared(scenario: Scenario, ground: Ground, play: Play, where: str, seed: int) -> tuple[Network, Stage]:
    """The network, and for whom flows are made, once it is known that they can be."""
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
    _check_extent(scenario.workload.extent(stage), play.transport.payload_bytes)
    return network, stage


def _check_extent(extent: Extent, payload_bytes: int) -> None:
    packets = -(-extent.largest_bytes // payload_bytes)
    if packets > MOST_PACKETS:
        raise UserInputError(
            f"a flow of {extent.largest_bytes} B has {packets} packets",
            where="workload",
            expected=f"at most {MOST_PACKETS} packets, {MOST_PACKETS * payload_bytes} B, in a flow",
        )
    if extent.last_start_seconds * PICOSECONDS >= LONGEST_PICOSECONDS:
        raise UserInputError(
            f"the last flow starts after {extent.last_start_seconds:g} s",
            where="workload",
            expected=f"less than {LONGEST_PICOSECONDS // PICOSECONDS} s of simulated time",
        )
    needed = extent.flows * BYTES_PER_FLOW + extent.size_bytes // payload_bytes // 4
    there_is = _available_bytes()
    if needed > there_is:
        raise MachineError(
            f"{extent.flows} flows need about {needed >> 20} MiB, and {there_is >> 20} MiB are free",
            where="workload",
            hint="take a smaller workload",
        )


def _available_bytes() -> int:
    """Memory to be had without swapping, the page cache's included; all there is where no kernel tells."""
    if MEMORY_FILE.exists():
        for line in MEMORY_FILE.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) << 10
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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
        UserInputError: flows are open and nothing will happen any more, or not within LONGEST_PICOSECONDS.
    """
    try:
        from mltswitch.network.world import EVENTS_AT_ONCE, World
    except ImportError as error:
        raise MachineError(
            "the simulator needs numba", where="simulate", hint="`pip install 'mltswitch[sim]'`"
        ) from error
    play = scenario.plays[place]
    network, flows = staged(scenario, ground, play, f"transports[{place}]", seed)
    made: Any = World
    if isinstance(play.transport, MltAgent):
        from mltswitch.network.cosimulation import CosimulatedWorld

        made = partial(CosimulatedWorld, transport=play.transport)
    world = made(network, flows, play.transport.settings(), seed=seed, spraying=play.sprays)
    end = None if scenario.end_seconds is None else round(scenario.end_seconds * PICOSECONDS)
    limits: dict[str, Any] = {} if end is None else {"until_picoseconds": end}
    broken_off = None
    while world.advance(events=events or EVENTS_AT_ONCE, **limits):
        progress(world.count("finished"), len(flows))
        if end is not None and world.next_picoseconds > end:
            broken_off = end
            break
    progress(world.count("finished"), len(flows))
    if end is None and world.count("finished") < len(flows):
        raise UserInputError(_deadlock(world, network, flows), where=scenario.titles[place])
    return run_of(scenario.titles[place], seed, world, flows, broken_off)


def _deadlock(world: Any, network: Network, flows: list[Flow]) -> str:
    table = world.flows
    first = int(np.flatnonzero(table["finish"] < 0)[0])
    flow = flows[first]
    ends = f"{network.ports[flow.source].name} to {network.ports[flow.destination].name}"
    why = "nothing will happen any more"
    if world.next_picoseconds > LONGEST_PICOSECONDS:
        why = f"the run takes longer than the {LONGEST_PICOSECONDS // PICOSECONDS} s that can be simulated"
    return (
        f"{int((table['finish'] < 0).sum())} flows are open, and {why}: flow {first}, "
        f"{ends}, has {table['arrived'][first]} of {table['packets'][first]} packets"
    )
