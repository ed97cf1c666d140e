"""One port as tc holds it, a tree of qdiscs and its filters, and the same port as state."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from mltswitch.capabilities import BitRate, Limit, PortShare, Unlimited
from mltswitch.targets.linux.layout import SHARE, Hop, Layout, layout_of, paths
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import PortState, QueueState, RouteState, SegmentRouting, SwitchState
from mltswitch.wire.tos import DSCP_COUNT, Ecn, TrafficClassByte

PRIOMAP_LENGTH: Final = 16
NEIGHBOUR_DISCOVERY_TYPES: Final = (135, 136)
"""Neighbour solicitation and advertisement (RFC 4861, section 4)."""
DSCP_MASK: Final = 0xFC


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
class Trust:
    """Whose packets are not believed, however they are marked."""

    untrusted: frozenset[str] = frozenset()
    """Ports from which nothing is believed."""
    demoted: frozenset[tuple[str, int]] = frozenset()
    """(port, code point): what comes in there goes to the last queue, unlike at other ports."""

    def of_ports(self, names: Collection[str]) -> "Trust":
        """What of it concerns these ports."""
        return Trust(
            frozenset(name for name in self.untrusted if name in names),
            frozenset(entry for entry in self.demoted if entry[0] in names),
        )

    def __or__(self, other: "Trust") -> "Trust":
        return Trust(self.untrusted | other.untrusted, self.demoted | other.demoted)


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


_Places = tuple[int, ...]
"""DSCP → queue, counted from 0."""


def dscp_match(dscp: int) -> str:
    """One code point, as flower takes it for IPv4 and IPv6."""
    return f"ip_tos 0x{int(TrafficClassByte(dscp, Ecn.NOT_ECT)):02x}/0x{DSCP_MASK:02x}"


_MATCHES: Final = tuple(dscp_match(dscp) for dscp in range(DSCP_COUNT))
_DSCP_OF_MATCH: Final = {match: dscp for dscp, match in enumerate(_MATCHES)}
_FAMILIES: Final = ("ip", "ipv6")


@lru_cache(maxsize=64)
def filters_of(layout: Layout, places: _Places, trust: Trust) -> frozenset[Filter]:
    """All filters of a port, for each qdisc those that its own default does not make needless."""
    ways = paths(layout)
    found: list[Filter] = []
    named = [_named(layout, way) for way in ways]
    for parent, minor in ways[-1]:
        found += [Filter(parent, 1, "all", f"indev {port}", minor) for port in trust.untrusted]
        for port, dscp in trust.demoted:
            # Where no filter names this code point, the default is right already.
            if any(hop[0] == parent for hop in named[places[dscp]]):
                found += [
                    Filter(parent, 4 + step, family, f"indev {port} {_MATCHES[dscp]}", minor)
                    for step, family in enumerate(_FAMILIES)
                ]
    for parent, minor in named[0]:
        # ARP and neighbour discovery carry no DSCP of ours, and could starve in the last queue.
        found.append(Filter(parent, 2, "arp", "", minor))
        found += [
            Filter(parent, 3, "ipv6", f"ip_proto icmpv6 type {number}", minor)
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


@remembering_last
def trust_of(state: SwitchState) -> Trust:
    """Which ports are untrusted, and where a code point leads to background at some ports only."""
    maps = _maps_of(state)
    base = _strictest(maps.values())
    return Trust(
        frozenset(port.name for port in state.ports if not port.trusted),
        frozenset(
            (port.name, dscp)
            for port in state.ports
            if maps[id(port.queues)] != base
            for dscp, place in enumerate(maps[id(port.queues)])
            if place != base[dscp]
        ),
    )


def _maps_of(state: SwitchState) -> dict[int, _Places]:
    """By identity, since ports of one kind share their queues."""
    kinds = {id(port.queues): port.queues for port in state.ports}
    return {key: _places_of(queues) for key, queues in kinds.items()}


def _places_of(queues: tuple[QueueState, ...]) -> _Places:
    place_of = dict.fromkeys(range(DSCP_COUNT), len(queues) - 1)
    for place, queue in enumerate(queues):
        for dscp in queue.dscps:
            place_of[dscp] = place
    return tuple(place_of.values())


def _strictest(maps: Collection[_Places]) -> _Places:
    """Code point → the first queue to which any port sends it."""
    return tuple(min(places) for places in zip(*maps, strict=True))


def trees(state: SwitchState, absent: Trust = Trust()) -> dict[str, Tree]:
    """Port → what tc should hold; `absent` names ports that are not believed, but not in the state."""
    if not state.ports:
        return {}
    trust = trust_of(state) | absent
    base = _strictest(_maps_of(state).values())
    made: dict[tuple[object, ...], Tree] = {}
    found: dict[str, Tree] = {}
    for port in state.ports:
        key = (port.shaped_bps, id(port.queues), port.unexpected)
        if key not in made:
            made[key] = _tree(port, base, trust)
        found[port.name] = made[key]
    return found


def _tree(port: PortState, base: _Places, trust: Trust) -> Tree:
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
    filters = filters_of(layout, base, trust)
    return Tree(port.shaped_bps, bands, layout, shares_of(port.queues), filters, port.unexpected)


def shares_of(queues: Iterable[QueueState]) -> tuple[int, ...]:
    """Percents of the queues that are guaranteed some."""
    return tuple(queue.minimum.percent for queue in queues if isinstance(queue.minimum, PortShare))


def absent_trust(wanted: SwitchState, present: Collection[str]) -> Trust:
    """What the other ports have filters against, of ports that have no queues of ours."""
    absent = [port.name for port in wanted.ports if port.name not in present]
    return trust_of(wanted).of_ports(absent) if absent else Trust()


def switch_state(
    found: Mapping[str, Tree],
    routes: tuple[RouteState, ...],
    segments: SegmentRouting | None = None,
    absent: Trust = Trust(),
) -> SwitchState:
    """Inverse of `trees`; what the state cannot say stands in its ports' `unexpected`."""
    filters = {
        entry for tree in {id(tree): tree for tree in found.values()}.values() for entry in tree.filters
    }
    trust = _trust_in(filters, found) | absent
    made: dict[tuple[int, frozenset[int]], tuple[tuple[QueueState, ...], tuple[str, ...]]] = {}
    ports: list[PortState] = []
    demoted_at: dict[str, set[int]] = {}
    for name, dscp in trust.demoted:
        demoted_at.setdefault(name, set()).add(dscp)
    for name, tree in found.items():
        demoted = frozenset(demoted_at.get(name, ()))
        key = (id(tree), demoted)
        if key not in made:
            made[key] = _queues_of(tree, demoted, trust)
        queues, faults = made[key]
        ports.append(PortState(name, name not in trust.untrusted, tree.shaped_bps, queues, faults))
    return SwitchState(tuple(ports), routes, segments)


def _trust_in(filters: Iterable[Filter], ports: Collection[str]) -> Trust:
    untrusted: set[str] = set()
    demoted: set[tuple[str, int]] = set()
    for entry in filters:
        if entry.match.startswith("indev "):
            _, port, *rest = entry.match.split(" ")
            dscp = _DSCP_OF_MATCH.get(" ".join(rest))
            if not rest:
                untrusted.add(port)
            elif dscp is not None:
                demoted.add((port, dscp))
    return Trust(frozenset(untrusted), frozenset(demoted)).of_ports(ports)


def _queues_of(
    tree: Tree, demoted: Collection[int], trust: Trust
) -> tuple[tuple[QueueState, ...], tuple[str, ...]]:
    """(queues, what they do not say)."""
    base = _places_in(tree)
    last = len(tree.bands) - 1
    shares = (*(None for _ in tree.bands[: len(tree.bands) - len(tree.shares)]), *map(PortShare, tree.shares))
    places = [last if dscp in demoted else place for dscp, place in enumerate(base)]
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
    expected = filters_of(tree.layout, base, trust)
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
