"""How long flows take that share a network max-min fairly, and that wait for each other.

    flows = Flows()
    push = flows.add(source, target, bits)
    pull = flows.add(target, source, bits, after=[push])
    times = simulate(graph, flows)

A flow takes one shortest way (ECMP). Within a class flows are max-min fair, as TCP's are on long flows; a
lower class goes first, everywhere. A flow ends when its last bit has passed all links and their delays.
Nothing is said of queues, losses or how a flow finds its rate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.overlay.graph import Graph, compiled_engine

TOLERANCE: Final = 2e-3
"""Flows that end within this share of the time so far end together: what keeps 300,000 flows quick."""


class Change(NamedTuple):
    """A link gets another rate; 0: it is down."""

    seconds: float
    link: int
    rate_bps: float


@dataclass(slots=True)
class Flows:
    """What is to be carried: nodes and flows by number."""

    sources: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    bits: list[float] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)
    starts_seconds: list[float] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    """For how many flows each one waits."""
    befores: list[int] = field(default_factory=list)
    afters: list[int] = field(default_factory=list)
    """Pairs: a flow, and one that begins when it has ended."""
    arrives: list[bool] = field(default_factory=list)
    """Whether a flow ends when its last bit has arrived, or when it has left."""

    def join(self, node: int, after: Iterable[int]) -> int:
        """A flow of nothing that ends with the last of some: followers then wait for one, not for all."""
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
        """One more flow; returns its number."""
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
    """When flows have ended, and what they have brought over each link."""

    ends_seconds: Any
    """When each flow has ended, counted from the beginning of all."""
    link_bits: Any
    """What each link of the graph has carried."""

    @property
    def seconds(self) -> float:
        """Until the last flow has ended."""
        return float(self.ends_seconds.max(initial=0.0))


def simulate(
    graph: Graph,
    flows: Flows,
    *,
    changes: Sequence[Change] = (),
    seed: int = 0,
    tolerance: float = TOLERANCE,
) -> Times:
    """Until all flows have ended.

    Args:
        graph: the network.
        flows: none that wait for each other in a circle.
        changes: of links, in any order.
        seed: of the ways that flows take.
        tolerance: see `TOLERANCE`; 0: exact.

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
