"""A network as arrays: nodes and directed links by number, and shortest ways between nodes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from mltswitch.errors import MachineError


class Link(NamedTuple):
    """One direction of a cable."""

    source: str
    target: str
    rate_bps: float
    delay_seconds: float = 0.0


class Side(NamedTuple):
    """Each node's links in one direction: where those of each node begin, and all of them in a row."""

    firsts: Any
    links: Any


@dataclass(frozen=True, eq=False)
class Graph:
    """A network as a directed graph: named nodes, and links between them."""

    names: tuple[str, ...]
    links: tuple[Link, ...]

    @cached_property
    def number(self) -> Mapping[str, int]:
        """The number of each node by its name."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def sources(self) -> Any:
        """The node that each link comes from."""
        return np.array([self.number[link.source] for link in self.links], np.int64)

    @cached_property
    def targets(self) -> Any:
        """The node into which each link goes."""
        return np.array([self.number[link.target] for link in self.links], np.int64)

    @cached_property
    def rates_bps(self) -> Any:
        """The rate of each link."""
        return np.array([link.rate_bps for link in self.links], np.float64)

    @cached_property
    def delays_seconds(self) -> Any:
        """The delay of each link."""
        return np.array([link.delay_seconds for link in self.links], np.float64)

    @cached_property
    def outward(self) -> Side:
        """The links from each node."""
        return self._side(self.sources)

    @cached_property
    def inward(self) -> Side:
        """The links into each node."""
        return self._side(self.targets)

    def _side(self, ends: Any) -> Side:
        order = np.argsort(ends, kind="stable")
        counts = np.bincount(ends, minlength=len(self.names))
        return Side(np.concatenate(([0], np.cumsum(counts))), order)

    def ways(self, sources: Any, targets: Any, seed: int = 0) -> tuple[Any, Any]:
        """Choose a shortest way for each pair of nodes, at random among equal ones, as ECMP does.

        Args:
            sources: array of the first nodes' numbers.
            targets: array of the second nodes' numbers, of equal length; every target must be reachable.
            seed: seed of the random choice.

        Returns:
            Where each pair's links begin, with one more entry for the end, and all pairs' links in a row.
        """
        engine = compiled_engine()
        ends, rows = np.unique(targets, return_inverse=True)
        inward, outward = self.inward, self.outward
        distances = np.array([engine.hops(*inward, self.sources, end) for end in ends]).reshape(len(ends), -1)
        lengths = distances[rows, sources]
        firsts, found = np.empty(len(sources) + 1, np.int64), np.empty(int(lengths.sum()), np.int64)
        choices = np.random.default_rng(seed).integers(1 << 62, size=len(sources))
        pairs = np.column_stack((sources, rows))
        engine.walk(*outward, self.targets, distances, pairs, choices, firsts, found)
        return firsts, found


def fat_tree(ports: int, rate_bps: float, oversubscription: float = 1.0) -> Graph:
    """A fat tree: three tiers of switches with `ports` ports each, ports³ / 4 hosts (Al-Fares, SIGCOMM 2008).

    Hosts are `h0`, `h1`, …, half of the ports on each leaf; the links between leaves and the switches above
    are slower by the oversubscription, both ways.
    """
    half = ports // 2
    names = [f"h{number}" for number in range(ports * half * half)]
    leaves = [f"leaf{number}" for number in range(ports * half)]
    middles = [f"middle{number}" for number in range(ports * half)]
    cores = [f"core{number}" for number in range(half * half)]
    cables: list[tuple[str, str, float]] = []
    for number, leaf in enumerate(leaves):
        cables += [(host, leaf, rate_bps) for host in names[number * half : (number + 1) * half]]
        pod = number // half
        cables += [
            (leaf, middle, rate_bps / oversubscription) for middle in middles[pod * half : (pod + 1) * half]
        ]
    for number, middle in enumerate(middles):
        place = number % half
        cables += [(middle, core, rate_bps) for core in cores[place * half : (place + 1) * half]]
    links = [Link(*ends, rate) for one, other, rate in cables for ends in ((one, other), (other, one))]
    return Graph((*names, *leaves, *middles, *cores), tuple(links))


def compiled_engine() -> Any:
    """The compiled module `mltswitch.overlay.engine`; raises MachineError where numba is missing."""
    try:
        from mltswitch.overlay import engine
    except ImportError as error:
        raise MachineError(
            "the flow simulator needs numba", where="overlay", hint="`pip install 'mltswitch[sim]'`"
        ) from error
    return engine
