"""A state as what our tables have to hold, whatever numbers its maps and groups get; and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.capabilities import BitRate, BytesLimit
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.bmv2.capabilities import (
    BACKGROUND_QUEUE,
    MAXIMUM_GROUPS,
    MAXIMUM_LIMIT_BYTES,
    MAXIMUM_ROUTES,
    QUEUE_COUNT,
)
from mltswitch.targets.bmv2.entries import Entry, Meter, Tables, place_of
from mltswitch.targets.bmv2.ports import numbered
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
from mltswitch.units import BITS_PER_BYTE
from mltswitch.wire.hardware_address import hardware_address
from mltswitch.wire.tos import DSCP_COUNT

MAXIMUM_MAPS: Final = 31
"""DSCP maps of a plan: twice as many stand side by side while ports go from one to the other."""

DscpMap = tuple[tuple[int, int], ...]
"""(code point, queue), ascending, without those that go to background."""


class Level(NamedTuple):
    """What one queue of one port takes."""

    threshold_bytes: int | None
    limit_bytes: int
    meter: Meter | None
    """None: no rate bounds it."""

    def or_more(self, other: "Level") -> "Level":
        """The least that takes whatever either of both takes."""
        threshold, meter = None, None
        if self.threshold_bytes is not None and other.threshold_bytes is not None:
            threshold = max(self.threshold_bytes, other.threshold_bytes)
        if self.meter is not None and other.meter is not None:
            meter = Meter(*map(max, self.meter, other.meter))
        return Level(threshold, max(self.limit_bytes, other.limit_bytes), meter)


class Hop(NamedTuple):
    """A port and the MAC address behind it."""

    port: int
    neighbour: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What a plan asks of the tables."""

    numbers: Mapping[str, int]
    """Port → number."""
    levels: Mapping[tuple[int, int], Level]
    """(port, queue) → what it takes."""
    maps: Mapping[int, DscpMap | None]
    """Port → its map; None: it is not trusted."""
    neighbours: Mapping[int, str]
    """Port → MAC address, for packets that name the port themselves."""
    routes: Mapping[IPv4Network, tuple[Hop, ...]]
    """Prefix → who shares its packets."""
    packet_spraying: bool


def level_in(tables: Tables, entry: Entry) -> Level:
    """What a queue takes; a policed queue whose meter has no rates is not bounded by it."""
    *threshold, limit, policed = map(int, entry.parameters)
    meter = tables.meters.get(place_of(*entry.numbers())) if policed else None
    return Level(threshold[0] if threshold else None, limit, meter)


def level_of(queue: QueueState) -> Level:
    """A queue's thresholds and rate; raises UnsupportedPlanError."""
    limit = queue.limit.size_bytes if isinstance(queue.limit, BytesLimit) else MAXIMUM_LIMIT_BYTES
    threshold = queue.ecn_threshold_bytes
    if threshold is not None and threshold > limit:
        raise UnsupportedPlanError(f"the ECN threshold {threshold} B lies above the limit {limit} B")
    if not isinstance(queue.maximum, BitRate):
        return Level(threshold, limit, None)
    rate = queue.maximum.bps // BITS_PER_BYTE
    # The burst that the queue itself could hold: one that finds the queue empty loses nothing by the meter.
    return Level(threshold, limit, Meter(rate, limit, rate, limit))


@remembering_last
def contents_of(state: SwitchState) -> Contents:
    """What the tables have to hold; raises UnsupportedPlanError for what they cannot say."""
    numbers = numbered(port.name for port in state.ports)
    levels: dict[tuple[int, int], Level] = {}
    maps: dict[int, DscpMap | None] = {}
    for (queues, trusted), ports in groupby(state.ports, _alike):
        names = [port.name for port in ports]
        try:
            alike = {queue.queue: level_of(queue) for queue in queues}
            dscp_map = _map_of(queues, trusted)
        except UnsupportedPlanError as error:
            error.where = f"port {names[0]}"
            raise
        for name in names:
            maps[numbers[name]] = dscp_map
            levels |= {(numbers[name], queue): level for queue, level in alike.items()}
    if len(set(maps.values())) > MAXIMUM_MAPS:
        raise UnsupportedPlanError(f"the ports have more than {MAXIMUM_MAPS} different DSCP maps")
    routes = _routes(state.routes, numbers)
    return Contents(numbers, levels, maps, _neighbours(routes), routes, state.packet_spraying)


def _alike(port: PortState) -> tuple[tuple[QueueState, ...], bool]:
    return port.queues, port.trusted


def _map_of(queues: Sequence[QueueState], trusted: bool) -> DscpMap | None:
    served = [queue.queue for queue in queues]
    if served != sorted(set(served), reverse=True) or served[-1:] != [BACKGROUND_QUEUE]:
        raise UnsupportedPlanError(
            f"its queues are {', '.join(map(str, served)) or 'none'}",
            expected=f"some of {QUEUE_COUNT - 1} to 1, then {BACKGROUND_QUEUE}",
        )
    found = sorted((dscp, queue.queue) for queue in queues for dscp in queue.dscps)
    if [dscp for dscp, _ in found] != list(range(DSCP_COUNT)):
        raise UnsupportedPlanError(f"its queues do not share all {DSCP_COUNT} code points")
    led = tuple((dscp, queue) for dscp, queue in found if queue != BACKGROUND_QUEUE)
    if trusted:
        return led
    if led:
        raise UnsupportedPlanError("is not trusted, so all its packets are background")
    return None


def _routes(routes: Sequence[RouteState], numbers: Mapping[str, int]) -> dict[IPv4Network, tuple[Hop, ...]]:
    found: dict[IPv4Network, tuple[Hop, ...]] = {}
    for prefix, alike in groupby(routes, lambda route: route.prefix):
        hops: list[Hop] = []
        for route in alike:
            if route.port not in numbers:
                raise UnsupportedPlanError(
                    f"leads to {route.port[:40]!r}, which is no port of the plan", where=f"route {prefix}"
                )
            hops.append(Hop(numbers[route.port], hardware_address(route.next_hop)))
        if prefix in found or len(set(hops)) != len(hops):
            raise UnsupportedPlanError("stands twice", where=f"route {prefix}")
        found[prefix] = tuple(hops)
    members = [hops for hops in found.values() if len(hops) > 1]
    if len(found) > MAXIMUM_ROUTES or sum(map(len, members)) > MAXIMUM_ROUTES:
        raise UnsupportedPlanError(f"{len(found)} routes", expected=f"at most {MAXIMUM_ROUTES}")
    if len(members) > MAXIMUM_GROUPS:
        raise UnsupportedPlanError(
            f"{len(members)} prefixes with several next hops", expected=f"at most {MAXIMUM_GROUPS}"
        )
    return found


def _neighbours(routes: Mapping[IPv4Network, tuple[Hop, ...]]) -> dict[int, str]:
    """Behind each port, one; raises UnsupportedPlanError for a second one."""
    found: dict[int, str] = {}
    for prefix, hops in routes.items():
        for hop in hops:
            if found.setdefault(hop.port, hop.neighbour) != hop.neighbour:
                raise UnsupportedPlanError(
                    f"leads to a second neighbour behind port {hop.port}", where=f"route {prefix}"
                )
    return dict(sorted(found.items()))


def port_state(
    name: str,
    levels: Mapping[int, Level],
    dscp_map: Mapping[int, int],
    *,
    trusted: bool,
    unexpected: tuple[str, ...] = (),
) -> PortState:
    """A port from its queues and the map of the packets that arrive there."""
    dscps: dict[int, list[int]] = {queue: [] for queue in levels}
    for dscp in range(DSCP_COUNT):
        dscps.setdefault(dscp_map.get(dscp, BACKGROUND_QUEUE), []).append(dscp)
    queues = tuple(
        QueueState(
            queue,
            tuple(dscps[queue]),
            level.threshold_bytes,
            BytesLimit(level.limit_bytes),
            None,
            None if level.meter is None else BitRate(level.meter.committed * BITS_PER_BYTE),
        )
        for queue, level in sorted(levels.items(), reverse=True)
    )
    return PortState(name, trusted, None, queues, unexpected)


NOWHERE: Final = IPv4Address(0)
"""The next hop of a route whose MAC address is not one by rule; its port says which it is."""
