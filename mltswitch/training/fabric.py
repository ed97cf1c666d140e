"""A fabric as the network between a job's nodes, for virtual time and for the topologies' estimates."""

from collections.abc import Hashable
from functools import cached_property
from typing import Any, Self

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.training.job import Job


class FabricNetwork:
    """Replaces `Network`: flows pass the links of an overlay, with one shortest way for each pair (ECMP)."""

    def __init__(self, overlay: Overlay, share: float = 1.0, *, latency_seconds: float = 0.0) -> None:
        """All rates are that share of the overlay's; the latency of a way comes beside its links' delays."""
        self.overlay, self._share, self._latency_seconds = overlay, share, latency_seconds

    def check(self, job: Job) -> None:
        """Raises UserInputError where the overlay's ranks and servers are not the job's."""
        found, wanted = (len(self.overlay.ranks), len(self.overlay.servers)), (job.world, job.servers)
        if found != wanted:
            problem = f"has {found[0]} ranks and {found[1]} servers, the job {wanted[0]} and {wanted[1]}"
            raise UserInputError(
                problem, where="network", hint="say workers and servers as the network has them"
            )

    @cached_property
    def _ways(self) -> tuple[Any, Any]:
        graph = self.overlay.graph
        places = np.array([graph.number[node.name] for node in self.overlay.members], np.int64)
        return graph.ways(np.repeat(places, len(places)), np.tile(places, len(places)))

    def way(self, source: int, target: int) -> tuple[Hashable, ...]:
        """Numbers of the links from one node to another; raises MachineError without numba."""
        firsts, links = self._ways
        pair = source * len(self.overlay.members) + target
        return tuple(links[firsts[pair] : firsts[pair + 1]].tolist())

    def rate_bps(self, link: Any) -> float:
        """Rate of a link by its number, times the job's share of the model's elements."""
        return float(self.overlay.graph.rates_bps[link]) * self._share

    def delay_seconds(self, source: int, target: int) -> float:
        """The delays of all links from one node to another, and the latency of every way."""
        way = [*self.way(source, target)]
        return self._latency_seconds + float(self.overlay.graph.delays_seconds[way].sum())

    def scaled(self, share: float) -> Self:
        """The network for a model with only this share of the elements: all rates are lower by that
        factor."""
        return type(self)(self.overlay, self._share * share, latency_seconds=self._latency_seconds)

    @property
    def link_bps(self) -> float:
        """The rate of the slowest line of a rank or a server."""
        graph = self.overlay.graph
        places = [graph.number[node.name] for node in self.overlay.members]
        return float(graph.rates_bps[np.isin(graph.sources, places)].min()) * self._share

    @property
    def latency_seconds(self) -> float:
        """The longest one-way delay between any two nodes of the job."""
        nodes = range(len(self.overlay.members))
        return max(self.delay_seconds(one, other) for one in nodes for other in nodes)
