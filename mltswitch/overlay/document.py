"""The overlay document: the hosts of a job, what lies between them, and each direction of each link."""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from mltswitch.documents import SparseDocument, sha256
from mltswitch.overlay.graph import Graph, Link
from mltswitch.units import parse_bps

OVERLAY_SCHEMA: Final = "mltswitch/overlay/v1"
MOST_NODES: Final = 100_000
MOST_LINKS: Final = 1_000_000

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
RateBps = Annotated[int, BeforeValidator(parse_bps), Field(gt=0)]


class OverlayNode(SparseDocument):
    """A host, which has a rank or may be a server, or a switch."""

    name: Name
    rank: Annotated[int, Field(ge=0, strict=True)] | None = None
    """Of the job; None: a server, or a switch."""
    rack: Name | None = None
    """Hosts of one rack reach each other without the links that racks share."""


class OverlayLink(SparseDocument):
    """One direction of a cable, or of what hosts see of a network between them."""

    source: Name
    target: Name
    rate_bps: RateBps = Field(alias="rate")
    delay_seconds: float = Field(default=0.0, ge=0, le=60, allow_inf_nan=False)
    loss: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    """Share of packets."""


class Overlay(SparseDocument):
    """A network with the ranks of a job in it."""

    schema_version: Literal["mltswitch/overlay/v1"] = Field(default=OVERLAY_SCHEMA, alias="schema")
    nodes: tuple[OverlayNode, ...] = Field(min_length=1, max_length=MOST_NODES)
    links: tuple[OverlayLink, ...] = Field(default=(), max_length=MOST_LINKS)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _refuse_twice("node", (node.name for node in self.nodes))
        ranks = sorted(node.rank for node in self.nodes if node.rank is not None)
        if ranks != [*range(len(ranks))]:
            raise ValueError(f"ranks are not 0 to {len(ranks) - 1}, each once")
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
        hosts = [node.name for node in self.nodes if node.rank is not None]
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

    @property
    def ranks(self) -> tuple[OverlayNode, ...]:
        """Hosts with a rank, in their order."""
        hosts = [node for node in self.nodes if node.rank is not None]
        return tuple(sorted(hosts, key=lambda node: node.rank or 0))

    def graph(self) -> Graph:
        """As arrays."""
        links = (
            Link(link.source, link.target, link.rate_bps, link.delay_seconds, link.loss)
            for link in self.links
        )
        return Graph(tuple(node.name for node in self.nodes), tuple(links))

    def sha256(self) -> str:
        """Of the content, however a file is formatted."""
        return sha256(self)


def _refuse_twice(kind: str, names: Iterable[Any]) -> None:
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{kind} {name!r} stands twice")
        seen.add(name)
