"""The WAN document: sites, the links between them, and how the links' rates change.

`netstorm9` is the network of NetStorm's authors (section 6: 13 cables between nine sites, whole Mbit/s in
20 to 155 that are drawn anew every three minutes); `mesh5` to `mesh16` have links between all sites.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mltswitch.documents import SparseDocument, load_document
from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Name, Overlay, OverlayLink, OverlayNode, RateBps
from mltswitch.units import parse_bytes

WAN_SCHEMA: Final = "mltswitch/wan/v1"
MOST_SITES: Final = 32
SHIPPED: Final = re.compile(r"(netstorm9|mesh(\d{1,2}))(?::(\d{1,9}))?")
"""Pattern of a shipped network's name, with an optional number of the draw of its rates: `netstorm9:7`."""
CABLES: Final = "1-2 1-3 2-3 2-5 3-4 4-5 4-6 5-7 6-7 6-8 6-9 7-8 8-9"
LEAST_MESH, MOST_MESH = 5, 16
QUEUE_BYTES: Final = 4_000_000
"""Default queue of a link in bytes: three times what is in flight at 155 Mbit/s and a round trip of 60 ms."""
LEAST_QUEUE_BYTES: Final = 30_000
"""Smallest queue of a scaled-down link in bytes: packets are not scaled down with the network."""
LEAST_BPS: Final = 1_000
LEAST_EVERY_SECONDS: Final = 0.1

Bytes = Annotated[int, Field(gt=0), BeforeValidator(parse_bytes, json_schema_input_type=int | str)]


class WanLink(SparseDocument):
    """One direction of a cable between two sites."""

    source: Name
    target: Name
    rate_bps: RateBps | None = Field(default=None, alias="rate")
    """The rate of the link; None: it is drawn at random, and drawn anew with each change."""
    delay_seconds: float = Field(default=0.0, ge=0, le=60, allow_inf_nan=False)
    loss: float = Field(default=0.0, ge=0, lt=1, allow_inf_nan=False)
    """Share of packets that are lost on the link at random."""
    queue_bytes: Bytes = Field(default=QUEUE_BYTES, alias="queue")
    """What waits in front of the link, at most; more is dropped."""

    def scaled(self, scale: float) -> Self:
        """The same link in a network that is slower by this factor."""
        return self.model_copy(
            update={
                "rate_bps": None if self.rate_bps is None else _slower(self.rate_bps, scale),
                "delay_seconds": self.delay_seconds / scale,
                "queue_bytes": max(LEAST_QUEUE_BYTES, round(self.queue_bytes / scale**2)),
            }
        )


class WanChanges(SparseDocument):
    """How links' rates are drawn: uniformly at random, each direction by itself."""

    least_bps: RateBps = Field(alias="least")
    most_bps: RateBps = Field(alias="most")
    step_bps: RateBps = Field(default=1_000_000, alias="step")
    """The step between possible rates: a rate is `least` and a whole number of steps."""
    every_seconds: float = Field(default=180.0, ge=LEAST_EVERY_SECONDS, le=1e6, allow_inf_nan=False)
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    """Seed of the first draw; each further draw uses the next number."""
    scale: float = Field(default=1.0, ge=1, le=1e6, allow_inf_nan=False)
    """The divisor of every drawn rate."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.most_bps < self.least_bps:
            raise ValueError(f"most, {self.most_bps} bit/s, is below least, {self.least_bps} bit/s")
        return self

    def scaled(self, scale: float) -> Self:
        """The same changes in a network slower by this factor, with as many draws during an exchange."""
        _slower(self.least_bps, self.scale * scale)  # raises where nothing is left
        every_seconds = max(LEAST_EVERY_SECONDS, self.every_seconds / scale)
        update = {"scale": self.scale * scale, "every_seconds": every_seconds}
        return self.model_copy(update=update)

    def drawn_bps(self, random: np.random.Generator) -> int:
        """The next rate of one direction, in bit/s."""
        steps = int(random.integers((self.most_bps - self.least_bps) // self.step_bps + 1))
        return round((self.least_bps + self.step_bps * steps) / self.scale)


class Wan(BaseModel):
    """Sites, the links between them, and how often and between what their rates change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["mltswitch/wan/v1"] = Field(default=WAN_SCHEMA, alias="schema")
    nodes: tuple[Name, ...] = Field(min_length=2, max_length=MOST_SITES)
    """Names of the sites; each has the rank of its index."""
    links: tuple[WanLink, ...] = Field(min_length=1)
    changes: WanChanges | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.changes is None:
            for link in self.links:
                if link.rate_bps is None:
                    raise ValueError(
                        f"the link {link.source} to {link.target} has no rate, and no changes say one"
                    )
        self.overlay()  # which has the laws of all networks
        return self

    def most_bps(self, source: str | None = None) -> int:
        """The highest rate that any link of a site ever has; None: of any site."""
        drawn_bps = 0 if self.changes is None else round(self.changes.most_bps / self.changes.scale)
        rates_bps = [
            drawn_bps if link.rate_bps is None else link.rate_bps
            for link in self.links
            if source in {None, link.source}
        ]
        return max(rates_bps, default=0)

    def overlay(self, draw: int = 0) -> Overlay:
        """The network with the rates of this draw, counted from 0."""
        seed = 0 if self.changes is None else self.changes.seed
        rates_bps = _rates(self.links, self.changes, np.random.default_rng(seed + draw))
        links = [
            OverlayLink(
                source=link.source,
                target=link.target,
                rate=rate_bps,
                delay_seconds=link.delay_seconds,
                loss=link.loss,
            )
            for link, rate_bps in zip(self.links, rates_bps, strict=True)
        ]
        nodes = [OverlayNode(name=name, rank=rank) for rank, name in enumerate(self.nodes)]
        return Overlay(nodes=tuple(nodes), links=tuple(links))

    def scaled(self, scale: float) -> "Wan":
        """The same network, slower: rates and delays are divided by `scale`, queues by its square.

        A model smaller by the square then takes 1/`scale` of the time, of which delays are the same share.
        Raises UserInputError for a scale below 1, or one that leaves links without a rate.
        """
        if not 1 <= scale <= 1e6:  # also NaN
            raise UserInputError(f"{scale}", where="scale", expected="1 to 1,000,000")
        update: dict[str, Any] = {"links": tuple(link.scaled(scale) for link in self.links)}
        if self.changes is not None:
            update["changes"] = self.changes.scaled(scale)
        return self.model_copy(update=update)


def known_wan(network: str) -> Wan:
    """Read a WAN document, or make a shipped network from its name: `netstorm9`, `netstorm9:7`, `mesh5`.

    Raises UserInputError.
    """
    said = SHIPPED.fullmatch(network)
    if said is None:
        return load_document(Path(network), Wan)
    name, sites, seed = said[1], said[2], int(said[3] or 0)
    if sites is None:
        cables = [cable.split("-") for cable in CABLES.split()]
        return _shipped(9, [ends for one, other in cables for ends in ((one, other), (other, one))], seed)
    count = int(sites)
    if not LEAST_MESH <= count <= MOST_MESH:
        expected = f"mesh{LEAST_MESH} to mesh{MOST_MESH}"
        raise UserInputError(f"{name!r}", where="NETWORK", expected=expected)
    return _shipped(count, permutations(map(str, range(1, count + 1)), 2), seed)


def _shipped(sites: int, ends: Iterable[Iterable[str]], seed: int) -> Wan:
    links = [
        WanLink(source=f"site{source}", target=f"site{target}", delay_seconds=0.03, loss=0.0002)
        for source, target in ends
    ]
    nodes = tuple(f"site{number}" for number in range(1, sites + 1))
    changes = WanChanges(least=20_000_000, most=155_000_000, seed=seed)
    return Wan(nodes=nodes, links=tuple(links), changes=changes)


def _rates(
    links: Iterable[WanLink], changes: WanChanges | None, random: np.random.Generator
) -> Iterator[int]:
    for link in links:
        if link.rate_bps is not None:
            yield link.rate_bps
        elif changes is not None:
            yield changes.drawn_bps(random)


def _slower(rate_bps: int, scale: float) -> int:
    if rate_bps / scale < LEAST_BPS:
        problem = f"leaves {rate_bps / scale:.3g} bit/s of {rate_bps}"
        raise UserInputError(problem, where="scale", expected=f"links of {LEAST_BPS} bit/s or more")
    return round(rate_bps / scale)
