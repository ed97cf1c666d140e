"""One port as tc holds it, a tree of qdiscs and its filters, and the same port as state."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from mltswitch.capabilities import BitRate, Limit, PortShare, Unlimited
from mltswitch.targets.linux.ingress import NO_REWRITING, Rewriting, dscp_match
from mltswitch.targets.linux.layout import SHARE, Hop, Layout, layout_of, paths
from mltswitch.targets.state import (
    PortState,
    QueueState,
    RouteState,
    SegmentRouting,
    SwitchState,
    every_dscp_but,
)
from mltswitch.wire.tos import DSCP_COUNT

PRIOMAP_LENGTH: Final = 16
NEIGHBOUR_DISCOVERY_TYPES: Final = (135, 136)
"""Neighbour solicitation and advertisement (RFC 4861, section 4)."""


class Filter(NamedTuple):
    """One flower filter of one qdisc: the kernel tries lower preferences first."""

    parent: str
    preference: int
    protocol: str
    match: str
    """Keys as tc takes them; empty: every packet of the protocol."""
    minor: int
    """Band or class of the same qdisc; 0: none of them."""


class Band(NamedTuple):
    """One queue: red where there is a threshold, else bfifo, below a tbf where there is a cap."""

    number: int
    ecn_threshold_bytes: int | None
    limit: Limit
    maximum_bps: int | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    """A port's qdiscs and filters."""

    shaped_bps: int | None
    bands: tuple[Band, ...]
    layout: Layout
    shares: tuple[int, ...]
    """Percents of the last queues, each against all that share with it."""
    filters: frozenset[Filter]
    unexpected: tuple[str, ...] = ()
    """Settings of its qdiscs that no plan asks for."""
    rewriting: Rewriting = NO_REWRITING


_Places = tuple[int, ...]
"""DSCP → queue, counted from 0."""


_MATCHES: Final = tuple(dscp_match(dscp) for dscp in range(DSCP_COUNT))
_DSCP_OF_MATCH: Final = {match: dscp for dscp, match in enumerate(_MATCHES)}
_FAMILIES: Final = ("ip", "ipv6")


@lru_cache(maxsize=64)
def filters_of(layout: Layout, places: _Places) -> frozenset[Filter]:
    """All filters of a port, for each qdisc those that its own default does not make needless."""
    ways = paths(layout)
    found: list[Filter] = []
    named = [_named(layout, way) for way in ways]
    for parent, minor in named[0]:
        # ARP and neighbour discovery carry no DSCP of ours, and could starve in the last queue. A hop limit
        # of 255 says that nobody forwarded the packet (RFC 4861, section 7.1).
        found.append(Filter(parent, 2, "arp", "", minor))
        found += [
            Filter(parent, 3, "ipv6", f"ip_proto icmpv6 type {number} ip_ttl 255", minor)
            for number in NEIGHBOUR_DISCOVERY_TYPES
        ]
    for dscp, place in enumerate(places):
        for parent, minor in named[place]:
            found += [
                Filter(parent, 6 + step, family, _MATCHES[dscp], minor)
                for step, family in enumerate(_FAMILIES)
            ]
    if layout.ahead is not None:  # drr has no default of its own: it would drop
        found.append(rest_of_share(layout))
    return frozenset(found)


def rest_of_share(layout: Layout) -> Filter:
    """What takes the packets that no other filter of drr names: without it they are dropped."""
    return Filter(SHARE, 8, "all", "", layout.default(SHARE))


def _named(layout: Layout, way: Iterable[Hop]) -> list[Hop]:
    """The hops that need a filter: not those where packets go by default."""
    return [(parent, minor) for parent, minor in way if minor != layout.default(parent)]


def places_of(queues: tuple[QueueState, ...]) -> _Places:
    """Which queue each code point leads to, counted from 0."""
    place_of = dict.fromkeys(range(DSCP_COUNT), len(queues) - 1)
    for place, queue in enumerate(queues):
        for dscp in queue.dscps:
            place_of[dscp] = place
    return tuple(place_of.values())


def trees(state: SwitchState) -> dict[str, Tree]:
    """Port → what tc should hold."""
    made: dict[tuple[object, ...], Tree] = {}
    found: dict[str, Tree] = {}
    for port in state.ports:
        key = (port.shaped_bps, id(port.queues), port.unexpected, port.rewritten)
        if key not in made:
            rewriting = Rewriting(port.rewritten, state.background_dscp if port.rewritten else 0)
            made[key] = _tree(port, rewriting)
        found[port.name] = made[key]
    return found


def _tree(port: PortState, rewriting: Rewriting) -> Tree:
    bands = tuple(
        Band(
            queue.queue,
            queue.ecn_threshold_bytes,
            queue.limit,
            queue.maximum.bps if isinstance(queue.maximum, BitRate) else None,
        )
        for queue in port.queues
    )
    layout = layout_of(port.queues)
    filters = filters_of(layout, places_of(port.queues))
    return Tree(port.shaped_bps, bands, layout, shares_of(port.queues), filters, port.unexpected, rewriting)


def shares_of(queues: Iterable[QueueState]) -> tuple[int, ...]:
    """Percents of the queues that are guaranteed some."""
    return tuple(queue.minimum.percent for queue in queues if isinstance(queue.minimum, PortShare))


def switch_state(
    found: Mapping[str, Tree],
    routes: tuple[RouteState, ...],
    segments: SegmentRouting | None = None,
) -> SwitchState:
    """Inverse of `trees`; what the state cannot say stands in its ports' `unexpected`."""
    rewritings = [tree.rewriting for tree in found.values() if tree.rewriting.dscps]
    background = rewritings[0].background_dscp if rewritings else 0
    made: dict[int, tuple[tuple[QueueState, ...], tuple[str, ...]]] = {}
    ports: list[PortState] = []
    for name, tree in found.items():
        if id(tree) not in made:
            queues, faults = _queues_of(tree)
            if tree.rewriting.dscps and tree.rewriting.background_dscp != background:
                faults += (f"rewrites to DSCP {tree.rewriting.background_dscp}, others to {background}",)
            made[id(tree)] = queues, faults
        queues, faults = made[id(tree)]
        rewritten = tree.rewriting.dscps
        trusted = rewritten != every_dscp_but(tree.rewriting.background_dscp)
        ports.append(PortState(name, trusted, tree.shaped_bps, queues, faults, rewritten))
    return SwitchState(tuple(ports), routes, segments, background_dscp=background)


def _queues_of(tree: Tree) -> tuple[tuple[QueueState, ...], tuple[str, ...]]:
    """(queues, what they do not say)."""
    places = _places_in(tree)
    shares = (*(None for _ in tree.bands[: len(tree.bands) - len(tree.shares)]), *map(PortShare, tree.shares))
    dscps_at: dict[int, list[int]] = {}
    for dscp, place in enumerate(places):
        dscps_at.setdefault(place, []).append(dscp)
    queues = tuple(
        QueueState(
            band.number,
            tuple(dscps_at.get(place, ())),
            band.ecn_threshold_bytes,
            band.limit,
            shares[place],
            None if band.maximum_bps is None else BitRate(band.maximum_bps),
        )
        for place, band in enumerate(tree.bands)
    )
    expected = filters_of(tree.layout, places)
    faults = [
        *tree.unexpected,
        *(f"no filter {text}" for text in _texts(expected - tree.filters)),
        *(f"filter {text}" for text in _texts(tree.filters - expected)),
    ]
    ahead = layout_of(queues).ahead
    if tree.layout.ahead != ahead and tree.shares and not tree.unexpected:
        faults.append(f"a share after {tree.layout.ahead} queues, not after {ahead}")
    return queues, tuple(faults)


def _places_in(tree: Tree) -> _Places:
    """DSCP → queue, by the IPv4 filters of one qdisc after the other."""
    place_of = {way: place for place, way in enumerate(paths(tree.layout))}
    parents = tuple(dict.fromkeys(hop[0] for way in place_of for hop in way))
    minors = {
        (entry.parent, _DSCP_OF_MATCH[entry.match]): entry.minor
        for entry in tree.filters
        if entry.protocol == "ip" and entry.match in _DSCP_OF_MATCH
    }

    def place(dscp: int) -> int:
        way: tuple[Hop, ...] = ()
        for parent in parents:
            way = (*way, (parent, minors.get((parent, dscp), tree.layout.default(parent))))
            if way in place_of:
                return place_of[way]
        return len(tree.bands) - 1  # a filter that leads nowhere, and is reported as such

    return tuple(place(dscp) for dscp in range(DSCP_COUNT))


def _texts(filters: frozenset[Filter]) -> list[str]:
    ordered = sorted(filters, key=filter_order)
    return [
        f"{entry.protocol} {entry.match} to {entry.parent}{entry.minor:x}".replace("  ", " ")
        for entry in ordered
    ]


def filter_order(entry: Filter) -> tuple[str, int, int, str]:
    """Sort key of the fixed order in which filters are written."""
    return entry.parent, entry.preference, entry.minor, entry.match


NO_LIMIT: Final = Unlimited()
"""Limit of a band that has the kernel's own queue, counted in packets."""
