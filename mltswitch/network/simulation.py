"""Play a scenario: one run for each transport and seed."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from mltswitch.errors import MachineError, UserInputError
from mltswitch.network.fabric import HOST_MEMORY_BYTES, Network
from mltswitch.network.faults import check_faults
from mltswitch.network.results import Run, run_of
from mltswitch.network.scenario import Play, Scenario
from mltswitch.network.switches import FromPlan, rules_of
from mltswitch.network.transports.parameters import MltAgent, Transport
from mltswitch.network.units import LONGEST_PICOSECONDS, PICOSECONDS
from mltswitch.network.workloads import Extent, Stage, Work
from mltswitch.plan import Plan, Topology

SNAPSHOT_SECONDS: Final = 10.0
"""Between two snapshots of a run."""
PACKET_TABLE_BYTES: Final = 144
"""Of a packet that is alive: its record, in a table that has doubled, and the old one at that moment."""
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


def check(scenario: Scenario, ground: Ground, *, at_once: int = 1) -> None:
    """Raise UserInputError for what cannot be played, before anything is.

    Args:
        scenario: As it was read.
        ground: Its fabric.
        at_once: How many runs this machine plays at the same time.
    """
    check_faults(scenario.faults, ground.topology)
    for place, play in enumerate(scenario.plays):
        where = f"transports[{place}]"
        network, _ = _prepared(scenario, ground, play, where, scenario.seeds[0], at_once)
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


def staged(scenario: Scenario, ground: Ground, play: Play, where: str, seed: int) -> tuple[Network, Work]:
    """The network and the flows of one run; raises UserInputError naming the field that does not fit."""
    network, stage = _prepared(scenario, ground, play, where, seed)
    return network, scenario.workload.flows(stage)


def _prepared(
    scenario: Scenario, ground: Ground, play: Play, where: str, seed: int, at_once: int = 1
) -> tuple[Network, Stage]:
    """The network, and for whom flows are made, once it is known that they can be."""
    document = play.switch_document
    rules = rules_of(
        document,
        topology=ground.topology,
        plan=ground.plan,
        buffer_bytes=ground.buffer_bytes,
        packet_bytes=play.transport.packet_bytes,
        where=f"{where}.switch",
    )
    network = Network(ground.topology, rules, scenario.link_loss, scenario.hosts == "in-turn")
    stage = Stage(
        network.hosts,
        rules.class_of,
        np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x776F,))),
        ground.plan_layers if isinstance(document, FromPlan) else None,
        tuple(port.rate_bps for port in network.ports[: network.hosts]),
        rules.background,
    )
    extent = scenario.workload.extent(stage)
    _check_extent(extent, play.transport.payload_bytes)
    _check_memory(extent, play.transport, network, at_once)
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


def _check_memory(extent: Extent, transport: Transport, network: Network, at_once: int) -> None:
    """Raise MachineError where flows, and the packets that switches and lines can hold, are too many."""
    held = sum(size for size in network.pools_bytes if size != HOST_MEMORY_BYTES)
    held += sum(port.rate_bps * port.delay_picoseconds // (8 * PICOSECONDS) for port in network.ports)
    packet_bytes = transport.packet_bytes
    packets = extent.size_bytes // packet_bytes + extent.flows
    needed = (extent.flows + extent.steps) * BYTES_PER_FLOW
    needed += packets // 8 * int(transport.settings()["bitmaps"])
    if isinstance(transport, MltAgent):
        needed += extent.largest_bytes
    needed += min(2 * packets, held // packet_bytes) * PACKET_TABLE_BYTES
    there_is = _available_bytes()
    if needed * at_once > there_is:
        runs = "" if at_once == 1 else f" in each of {at_once} runs at once"
        raise MachineError(
            f"{extent.flows} flows need about {needed >> 20} MiB{runs}, and {there_is >> 20} MiB are free",
            where="workload",
            hint="take a smaller workload" if at_once == 1 else "take fewer --processes",
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
    snapshot: tuple[Path, str] | None = None,
    has_depths: bool = False,
) -> Run:
    """One transport with one seed.

    Args:
        scenario: As it was checked.
        ground: Its fabric.
        place: Of the transport in the scenario.
        seed: Of this run.
        progress: Called every second or so.
        events: Between two calls of `progress`.
        snapshot: A file that the run goes on from where there is one, and writes every now and then; and the
            digest of all that the run is made of.
        has_depths: Queues are sampled over time.

    Raises:
        MachineError: numba is missing.
        UserInputError: flows are open and nothing will happen any more, or not within LONGEST_PICOSECONDS;
            or the snapshot is of another run.
    """
    with needing_numba():
        from mltswitch.network.snapshot import load_world, save_world
        from mltswitch.network.world import EVENTS_AT_ONCE, World
    play = scenario.plays[place]
    network, flows = staged(scenario, ground, play, f"transports[{place}]", seed)
    made: Any = World
    if isinstance(play.transport, MltAgent):
        from mltswitch.network.cosimulation import CosimulatedWorld

        made = partial(CosimulatedWorld, transport=play.transport)
        snapshot = None  # of the state that the agents' libraries have, nobody can take one
    world = made(
        network,
        flows,
        play.transport.settings(),
        seed=seed,
        spraying=play.sprays,
        faults=scenario.faults,
        has_depths=has_depths,
    )
    if snapshot is not None:
        load_world(*snapshot, world)
    saved, begun = time.monotonic(), world.count("events")
    end = None if scenario.end_seconds is None else round(scenario.end_seconds * PICOSECONDS)
    limits: dict[str, Any] = {} if end is None else {"until_picoseconds": end}
    broken_off = None
    while world.advance(events=events or EVENTS_AT_ONCE, **limits):
        if snapshot is not None and time.monotonic() - saved >= SNAPSHOT_SECONDS:
            save_world(*snapshot, world)
            saved = time.monotonic()
        progress(world.count("finished"), len(flows))
        if end is not None and world.next_picoseconds > end:
            broken_off = end
            break
    progress(world.count("finished"), len(flows))
    if end is None and world.count("finished") < len(flows):
        raise UserInputError(_deadlock(world, network, flows), where=scenario.titles[place])
    if snapshot is not None and world.count("events") > begun:
        save_world(*snapshot, world)
    return run_of(scenario.titles[place], seed, world, flows, broken_off)


@contextmanager
def needing_numba() -> Iterator[None]:
    """Raise MachineError where what is imported inside finds no numba."""
    try:
        yield
    except ImportError as error:
        raise MachineError(
            "the simulator needs numba", where="simulate", hint="`pip install 'mltswitch[sim]'`"
        ) from error


def is_engine_compiled() -> bool:
    """Whether the engine can start at once, or is compiled first; raises MachineError without numba."""
    with needing_numba():
        from mltswitch.network.engine import run
        from mltswitch.queueing.jit import is_compiled
    return is_compiled(run)


def _deadlock(world: Any, network: Network, flows: Work) -> str:
    """Who waits for whom: the first flow that has begun and not ended, and those that wait for others."""
    table, waits = world.flows, world.tables["tasks"]["waits"][: len(flows)]
    is_open = table["finish"] < 0
    waiting = np.flatnonzero(is_open & (waits > 0))
    first = int([*np.flatnonzero(is_open & (waits <= 0)), *waiting][0])
    flow = flows[first]
    ends = f"{network.ports[flow.source].name} to {network.ports[flow.destination].name}"
    why = "nothing will happen any more"
    if world.next_picoseconds > LONGEST_PICOSECONDS:
        why = f"the run takes longer than the {LONGEST_PICOSECONDS // PICOSECONDS} s that can be simulated"
    return (
        f"{int((table['finish'] < 0).sum())} flows are open, and {why}: flow {first}, "
        f"{ends}, has {table['arrived'][first]} of {table['packets'][first]} packets"
        + (f"; {len(waiting)} flows wait for it or others, flow {waiting[0]} first" if len(waiting) else "")
    )
