"""One port as tc holds it, a tree of qdiscs and its filters, and the same port as state."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from mltswitch.capabilities import Limit, Unlimited
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
from mltswitch.wire.tos import DSCP_COUNT, Ecn, TrafficClassByte

PRIO_HANDLE: Final = "10:"
SHAPER_HANDLE: Final = "1:"
PRIOMAP_LENGTH: Final = 16
NEIGHBOUR_DISCOVERY_TYPES: Final = (135, 136)
"""Neighbour solicitation and advertisement (RFC 4861, section 4)."""
DSCP_MASK: Final = 0xFC


@dataclass(frozen=True, slots=True)
class Filter:
    """One flower filter: the kernel tries lower preferences first."""

    preference: int
    protocol: str
    match: str
    """Keys as tc takes them; empty: every packet of the protocol."""
    band: int


@dataclass(frozen=True, slots=True)
class Band:
    """What stands below one band of prio: red where there is a threshold, else bfifo."""

    number: int
    ecn_threshold_bytes: int | None
    limit: Limit


@dataclass(frozen=True, slots=True)
class Tree:
    """A port's qdiscs and filters."""

    shaped_bps: int | None
    bands: tuple[Band, ...]
    filters: frozenset[Filter]
    unexpected: tuple[str, ...] = ()
    """Settings of its qdiscs that no plan asks for."""


def untrusted_filter(port: str, last_band: int) -> Filter:
    """Whatever comes in by `port` goes to the last band: ahead of every other filter."""
    return Filter(1, "all", f"indev {port}", last_band)


def neighbour_filters() -> tuple[Filter, ...]:
    """ARP and neighbour discovery carry no DSCP of ours, and would starve in the last band."""
    discovery = (
        Filter(3, "ipv6", f"ip_proto icmpv6 type {number}", 1) for number in NEIGHBOUR_DISCOVERY_TYPES
    )
    return (Filter(2, "arp", "", 1), *discovery)


def dscp_filters(dscp: int, band: int) -> tuple[Filter, ...]:
    """One code point of IPv4 and of IPv6."""
    match = f"ip_tos 0x{int(TrafficClassByte(dscp, Ecn.NOT_ECT)):02x}/0x{DSCP_MASK:02x}"
    return Filter(4, "ip", match, band), Filter(5, "ipv6", match, band)


_DSCP_OF_FILTER: Final = {dscp_filters(dscp, 0)[0].match: dscp for dscp in range(DSCP_COUNT)}


def trees(state: SwitchState, absent_untrusted: Collection[str] = ()) -> dict[str, Tree]:
    """Port → what tc should hold; `absent_untrusted` names ports that are untrusted, but not in the state."""
    untrusted = [*(port.name for port in state.ports if not port.trusted), *absent_untrusted]
    return {port.name: _tree(port, untrusted) for port in state.ports}


def _tree(port: PortState, untrusted: Collection[str]) -> Tree:
    bands = tuple(Band(queue.queue, queue.ecn_threshold_bytes, queue.limit) for queue in port.queues)
    return Tree(port.shaped_bps, bands, _filters(port.queues, untrusted), port.unexpected)


def _filters(queues: tuple[QueueState, ...], untrusted: Collection[str]) -> frozenset[Filter]:
    last = queues[-1].queue
    filters = {*neighbour_filters(), *(untrusted_filter(name, last) for name in untrusted)}
    for queue in queues[:-1]:
        for dscp in queue.dscps:
            filters.update(dscp_filters(dscp, queue.queue))
    return frozenset(filters)


def absent_untrusted(wanted: SwitchState, present: Collection[str]) -> list[str]:
    """Untrusted ports that have no queues of ours; the other ports have filters against them all the same."""
    return [port.name for port in wanted.ports if not port.trusted and port.name not in present]


def switch_state(
    found: Mapping[str, Tree], routes: tuple[RouteState, ...], absent_untrusted: Collection[str] = ()
) -> SwitchState:
    """Inverse of `trees`; what the state cannot say stands in its ports' `unexpected`."""
    filters = {entry for tree in found.values() for entry in tree.filters}
    untrusted = {name for name in found if any(entry.match == f"indev {name}" for entry in filters)}
    expected = sorted(untrusted.union(absent_untrusted))
    return SwitchState(tuple(_port_state(name, tree, expected) for name, tree in found.items()), routes)


def _port_state(name: str, tree: Tree, untrusted: Collection[str]) -> PortState:
    band_of = dict.fromkeys(range(DSCP_COUNT), tree.bands[-1].number)
    for entry in tree.filters:
        if entry.protocol == "ip" and entry.match in _DSCP_OF_FILTER:
            band_of[_DSCP_OF_FILTER[entry.match]] = entry.band
    queues = tuple(
        QueueState(
            band.number,
            tuple(dscp for dscp, number in band_of.items() if number == band.number),
            band.ecn_threshold_bytes,
            band.limit,
        )
        for band in tree.bands
    )
    expected = _filters(queues, untrusted)
    unexpected = (
        *tree.unexpected,
        *(f"no filter {text}" for text in _texts(expected - tree.filters)),
        *(f"filter {text}" for text in _texts(tree.filters - expected)),
    )
    return PortState(name, name not in untrusted, tree.shaped_bps, queues, unexpected)


def _texts(filters: frozenset[Filter]) -> list[str]:
    ordered = sorted(filters, key=filter_order)
    return [f"{entry.protocol} {entry.match} to queue {entry.band}".replace("  ", " ") for entry in ordered]


def filter_order(entry: Filter) -> tuple[int, int, str]:
    """Sort key of the fixed order in which filters are written."""
    return entry.preference, entry.band, entry.match


NO_LIMIT: Final = Unlimited()
"""Limit of a band that has the kernel's own queue, counted in packets."""
