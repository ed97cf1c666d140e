"""Simulates how long flows take that share a network max-min fairly and wait for each other.

    flows = Flows()
    push = flows.add(source, target, bits)
    pull = flows.add(target, source, bits, after=[push])
    times = simulate(graph, flows)

A flow takes one shortest way (ECMP). Within a class flows are max-min fair, as TCP's are on long flows; a
lower class goes first, everywhere. A flow ends when its last bit has passed all links and their delays.
Queues, losses and the way a flow finds its rate are not modelled.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.overlay.graph import Graph, compiled_engine

TOLERANCE: Final = 2e-3
"""Flows that end within this share of the time so far end together, so that 300,000 flows stay quick."""


class Change(NamedTuple):
    """The change of a link's rate at a time of the simulation; rate 0 takes the link down."""

    seconds: float
    link: int
    rate_bps: float


@dataclass(slots=True)
class Flows:
    """The flows of a simulation; each has a number, and runs between two nodes given by number."""

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    bits: list[float] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    starts_seconds: list[float] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    """For each flow, how many flows must end before it begins."""
    befores: list[int] = field(default_factory=list)
    afters: list[int] = field(default_factory=list)
    """The flows that begin when the flow at the same index of `befores` has ended."""
    arrives: list[bool] = field(default_factory=list)
    """For each flow, whether it ends when its last bit has arrived rather than when it has left."""

    def join(self, node: int, after: Iterable[int]) -> int:
        """Add an empty flow that ends with the last of `after`, for others to await; returns its number."""
        return self.add(node, node, 0.0, after=after)

    def add(
        self,
        source: int,
        target: int,
        bits: float,
        *,
        after: Iterable[int] = (),
        start_seconds: float = 0.0,
        traffic_class: int = 0,
        arrives: bool = True,
    ) -> int:
        """Add a flow, which waits for the flows in `after`, and return its number."""
        number = len(self.sources)
        self.sources.append(source)
        self.targets.append(target)
        self.bits.append(bits)
        self.classes.append(traffic_class)
        self.starts_seconds.append(start_seconds)
        self.arrives.append(arrives)
        before = len(self.befores)
        self.befores.extend(after)
        self.afters.extend([number] * (len(self.befores) - before))
        self.waits.append(len(self.befores) - before)
        return number


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """Result of a simulation: when flows ended, and what each link carried."""

    ends_seconds: Any
    """Array of the end of each flow, in seconds from the start of the simulation."""
    link_bits: Any
    """Array of the bits that each link of the graph has carried."""

    @property
    def seconds(self) -> float:
        """The time until the last flow has ended."""
        return float(self.ends_seconds.max(initial=0.0))


def simulate(
    graph: Graph,
    flows: Flows,
    *,
    changes: Sequence[Change] = (),
    seed: int = 0,
    tolerance: float = TOLERANCE,
) -> Times:
    """Simulate until all flows have ended.

    Args:
        graph: the network.
        flows: the flows, none of which may wait for each other in a circle.
        changes: changes of links' rates, in any order.
        seed: seed of the choice among equally short ways.
        tolerance: flows that end within this share of the time so far end together; 0: exact.

    Raises:
        UserInputError: flows never end, for they wait for each other, or for a link that stays down.
        MachineError: numba is missing.
    """
    engine = compiled_engine()
    firsts, links = graph.ways(np.array(flows.sources, np.int64), np.array(flows.targets, np.int64), seed)
    befores, afters = np.array(flows.befores, np.int64), np.array(flows.afters, np.int64)
    follower_counts = np.bincount(befores, minlength=len(flows.bits))
    follower_firsts = np.concatenate(([0], np.cumsum(follower_counts))).astype(np.int64)
    in_order = sorted(changes)
    ends_seconds, link_bits = np.full(len(flows.bits), np.nan), np.zeros(len(graph.links))
    left = engine.run(
        firsts,
        links,
        np.array(flows.bits, np.float64),
        np.array(flows.classes, np.int64),
        np.array(flows.starts_seconds, np.float64),
        np.array(flows.waits, np.int64),
        np.add.reduceat(np.append(graph.delays_seconds[links], 0.0), firsts[:-1])
        * ((np.diff(firsts) > 0) & flows.arrives),
        follower_firsts,
        afters[np.argsort(befores, kind="stable")],
        graph.rates_bps.copy(),
        np.array([change.seconds for change in in_order], np.float64),
        np.array([change.link for change in in_order], np.int64),
        np.array([change.rate_bps for change in in_order], np.float64),
        tolerance,
        ends_seconds,
        link_bits,
    )
    if left:
        problem = f"{left} of {len(flows.bits)} flows never end"
        raise UserInputError(problem, where="flows", expected="no circles, and links that come back")
    return Times(ends_seconds, link_bits)
