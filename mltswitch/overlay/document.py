"""The overlay document: a job's hosts, the switches between them, and each direction of each link."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mltswitch.documents import SparseDocument, sha256
from mltswitch.errors import UserInputError
from mltswitch.overlay.graph import Graph, Link
from mltswitch.units import parse_bps

OVERLAY_SCHEMA: Final = "mltswitch/overlay/v1"
MOST_NODES: Final = 100_000
MOST_LINKS: Final = 1_000_000

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
RateBps = Annotated[int, Field(gt=0), BeforeValidator(parse_bps, json_schema_input_type=int | str)]


class OverlayNode(SparseDocument):
    """A node of the network: a host with a rank, a parameter server or both; otherwise a switch."""

    name: Name
    rank: Annotated[int, Field(ge=0, strict=True)] | None = None
    """Number of the job's rank that runs on this node; None if there is none."""
    server: Annotated[int, Field(ge=0, strict=True)] | None = None
    """Number of the parameter server on this node, beside a rank or alone; None if there is none."""
    rack: Name | None = None
    """The node's rack, None if unknown; hosts of one rack reach each other without shared links."""


class OverlayLink(SparseDocument):
    """One direction of a cable, or of the connection that hosts see across a network between them."""

    source: Name
    target: Name
    rate_bps: RateBps = Field(alias="rate")
    delay_seconds: float = Field(default=0.0, ge=0, le=60, allow_inf_nan=False)
    loss: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    """Share of packets that the link loses, from 0 to below 1."""


class Overlay(BaseModel):
    """A network with the ranks of a job in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["mltswitch/overlay/v1"] = Field(default=OVERLAY_SCHEMA, alias="schema")
    nodes: tuple[OverlayNode, ...] = Field(min_length=1, max_length=MOST_NODES)
    links: tuple[OverlayLink, ...] = Field(default=(), max_length=MOST_LINKS)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _refuse_twice("node", (node.name for node in self.nodes))
        for kind in ("rank", "server"):
            numbers = sorted(each for node in self.nodes if (each := getattr(node, kind)) is not None)
            if numbers != [*range(len(numbers))] or (kind == "rank" and not numbers):
                raise ValueError(f"{kind}s are not 0 to {max(len(numbers) - 1, 0)}, each once")
        names = {node.name for node in self.nodes}
        for link in self.links:
            for end in (link.source, link.target):
                if end not in names:
                    raise ValueError(f"a link has the end {end!r}, which is no node")
            if link.source == link.target:
                raise ValueError(f"a link goes from {link.source!r} to itself")
        _refuse_twice("link", (f"{link.source} to {link.target}" for link in self.links))
        racks = {node.name: node.rack for node in self.nodes if node.rank is not None}
        without = [name for name, rack in racks.items() if rack is None]
        if without and len(without) < len(racks):
            raise ValueError(f"racks do not cover the ranks: {without[0]!r} has none")
        self._refuse_islands()
        return self

    def _refuse_islands(self) -> None:
        """Every host must reach every other one."""
        hosts = [node.name for node in self.nodes if node.rank is not None or node.server is not None]
        for is_inward in (False, True):
            missing = set(hosts) - self._reached(hosts[:1], is_inward=is_inward)
            if missing:
                one, other = hosts[0], min(missing)
                ends = (
                    f"{other!r} does not reach {one!r}" if is_inward else f"{one!r} does not reach {other!r}"
                )
                raise ValueError(f"is not connected: {ends}")

    def _reached(self, begins: Iterable[str], *, is_inward: bool) -> set[str]:
        next_of: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for link in self.links:
            one, other = (link.target, link.source) if is_inward else (link.source, link.target)
            next_of[one].append(other)
        found = {*begins}
        queue = [*found]
        for name in queue:
            fresh = [other for other in next_of[name] if other not in found]
            found.update(fresh)
            queue += fresh
        return found

    @cached_property
    def ranks(self) -> tuple[OverlayNode, ...]:
        """The hosts that have a rank, in the order of the ranks."""
        hosts = [node for node in self.nodes if node.rank is not None]
        return tuple(sorted(hosts, key=lambda node: node.rank or 0))

    @cached_property
    def servers(self) -> tuple[OverlayNode, ...]:
        """The hosts that have a parameter server, in the order of the servers' numbers."""
        hosts = [node for node in self.nodes if node.server is not None]
        return tuple(sorted(hosts, key=lambda node: node.server or 0))

    @cached_property
    def members(self) -> tuple[OverlayNode, ...]:
        """The hosts of the job's ranks, then of its servers: a node's number in the job is its place here."""
        return (*self.ranks, *self.servers)

    @cached_property
    def roots(self) -> range:
        """Numbers of the nodes that each sum a share of the model: the servers, or all ranks if none."""
        ranks = len(self.ranks)
        return range(ranks, ranks + len(self.servers)) if self.servers else range(ranks)

    @cached_property
    def racks(self) -> tuple[str, ...]:
        """The rack of each rank; empty where the document names none."""
        return tuple(node.rack for node in self.ranks if node.rack is not None)

    @cached_property
    def graph(self) -> Graph:
        """The network as arrays for the simulation."""
        links = (Link(link.source, link.target, link.rate_bps, link.delay_seconds) for link in self.links)
        return Graph(tuple(node.name for node in self.nodes), tuple(links))

    def sha256(self) -> str:
        """SHA-256 of the document's content, independent of the formatting of its file."""
        return sha256(self)


def overlay_of_graph(graph: Graph, racks: Mapping[str, str]) -> Overlay:
    """The overlay document of a graph; the nodes named in `racks` are hosts, ranked in that order."""
    ranks = {name: rank for rank, name in enumerate(racks)}
    nodes = tuple(OverlayNode(name=name, rank=ranks.get(name), rack=racks.get(name)) for name in graph.names)
    links = tuple(
        OverlayLink(source=one, target=other, rate=round(rate_bps), delay_seconds=delay_seconds)
        for one, other, rate_bps, delay_seconds in graph.links
    )
    return Overlay(nodes=nodes, links=links)


def seated(overlay: Overlay, ranks: int | None, servers: int, seed: int | None = None) -> Overlay:
    """A job of another size on the same hosts, at most one rank and one parameter server on each.

    Args:
        overlay: the network, whose hosts are the nodes that have ranks.
        ranks: how many ranks the new job has; None: as many as before.
        servers: how many servers the new job has, first on hosts without a rank, then on those with one.
        seed: seed for a random choice of hosts; None: hosts in the order of their former ranks.

    Raises UserInputError for more ranks, or servers, than hosts.
    """
    hosts = [node.name for node in overlay.ranks]
    count = len(hosts) if ranks is None else ranks
    for what, wanted in (("ranks", count), ("servers", servers)):
        if wanted > len(hosts):
            raise UserInputError(f"{wanted}", where=what, expected=f"at most {len(hosts)}, one a host")
    if seed is not None:
        hosts = [hosts[place] for place in np.random.default_rng(seed).permutation(len(hosts))]
    ranked = {name: rank for rank, name in enumerate(hosts[:count])}
    serving = {name: number for number, name in enumerate([*hosts[count:], *hosts[:count]][:servers])}
    nodes = tuple(
        node.model_copy(update={"rank": ranked.get(node.name), "server": serving.get(node.name)})
        for node in overlay.nodes
    )
    return Overlay(nodes=nodes, links=overlay.links)


def _refuse_twice(kind: str, names: Iterable[Any]) -> None:
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{kind} {name!r} stands twice")
        seen.add(name)
