"""A state as what our tables have to hold, whatever numbers its groups get; and back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.capabilities import BitRate, BytesLimit
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.bmv2.capabilities import (
    BACKGROUND_QUEUE,
    ETHERNET_BYTES,
    MAXIMUM_CLASSES,
    MAXIMUM_GROUPS,
    MAXIMUM_LIMIT_BYTES,
    MAXIMUM_ROUTES,
    QUEUE_COUNT,
)
from mltswitch.targets.bmv2.entries import Entry, Meter, Tables, place_of
from mltswitch.targets.bmv2.ports import numbered
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState, every_dscp_but
from mltswitch.units import BITS_PER_BYTE
from mltswitch.wire.hardware_address import hardware_address
from mltswitch.wire.tos import DSCP_COUNT

NOWHERE: Final = IPv4Address(0)
"""The next hop of a route whose MAC address is not one by rule; its port says which it is."""


class Level(NamedTuple):
    """What one queue of one port takes."""

    threshold_bytes: int | None
    limit_bytes: int
    meter: Meter | None
    """None: no rate bounds it."""
    frame_bytes: int

    def or_more(self, other: "Level") -> "Level":
        """The least that takes whatever either of both takes."""
        threshold, meter = None, None
        if self.threshold_bytes is not None and other.threshold_bytes is not None:
            threshold = max(self.threshold_bytes, other.threshold_bytes)
        if self.meter is not None and other.meter is not None:
            meter = Meter(*map(max, self.meter, other.meter))
        limit = max(self.limit_bytes, other.limit_bytes)
        return Level(threshold, limit, meter, max(self.frame_bytes, other.frame_bytes))


class Neighbour(NamedTuple):
    """MAC addresses of a port, and of whoever is behind it."""

    address: str
    behind: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What a plan asks of the tables."""

    numbers: Mapping[str, int]
    """Port → number."""
    levels: Mapping[tuple[int, int], Level]
    """(port, queue) → what it takes."""
    trust: Mapping[int, Entry]
    """Port → its entry in `ports`."""
    classes: Mapping[int, tuple[Entry, ...]]
    """Port → its entries in `classes`."""
    neighbours: Mapping[int, Neighbour]
    """Port → addresses of what leaves there."""
    routes: Mapping[IPv4Network, tuple[int, ...]]
    """Prefix → the ports that share its packets; none: they are discarded."""
    packet_spraying: bool


def level_in(tables: Tables, entry: Entry) -> Level:
    """What a queue takes; a policed queue whose meter has no rates is not bounded by it."""
    *threshold, limit, policed, frame_bytes = map(int, entry.parameters)
    meter = tables.meters.get(place_of(*entry.numbers())) if policed else None
    return Level(threshold[0] if threshold else None, limit, meter, frame_bytes)


def _level_of(queue: QueueState, frame_bytes: int) -> Level:
    """A queue's thresholds and rate; raises UnsupportedPlanError."""
    limit = queue.limit.size_bytes if isinstance(queue.limit, BytesLimit) else MAXIMUM_LIMIT_BYTES
    threshold = queue.ecn_threshold_bytes
    if threshold is not None and threshold > limit:
        raise UnsupportedPlanError(f"the ECN threshold {threshold} B lies above the limit {limit} B")
    if not isinstance(queue.maximum, BitRate):
        return Level(threshold, limit, None, frame_bytes)
    rate = queue.maximum.bps // BITS_PER_BYTE
    # The burst that the queue itself could hold: one that finds the queue empty loses nothing by the meter.
    return Level(threshold, limit, Meter(rate, limit, rate, limit), frame_bytes)


@remembering_last
def contents_of(state: SwitchState) -> Contents:
    """What the tables have to hold; raises UnsupportedPlanError for what they cannot say."""
    numbers = numbered(port.name for port in state.ports)
    levels: dict[tuple[int, int], Level] = {}
    trust: dict[int, Entry] = {}
    classes: dict[int, tuple[Entry, ...]] = {}
    for port in state.ports:
        number = numbers[port.name]
        try:
            levels |= {(number, queue): level for queue, level in _levels(port).items()}
            trust[number], classes[number] = _trust(port, number, state.background_dscp)
        except UnsupportedPlanError as error:
            error.where = f"port {port.name}"
            raise
    if sum(map(len, classes.values())) > MAXIMUM_CLASSES:
        raise UnsupportedPlanError(
            "its ports have many code points", expected=f"at most {MAXIMUM_CLASSES} in all"
        )
    neighbours = _neighbours(state, numbers)
    routes = _routes(state.routes, numbers)
    return Contents(numbers, levels, trust, classes, neighbours, routes, state.packet_spraying)


def _levels(port: PortState) -> dict[int, Level]:
    if port.mtu_bytes is None or not port.hardware_address:
        raise UnsupportedPlanError("its MTU or MAC address is missing")
    _check_queues(port.queues)
    frame_bytes = port.mtu_bytes + ETHERNET_BYTES
    return {queue.queue: _level_of(queue, frame_bytes) for queue in port.queues}


def _check_queues(queues: Sequence[QueueState]) -> None:
    served = [queue.queue for queue in queues]
    if served != sorted(set(served), reverse=True) or served[-1:] != [BACKGROUND_QUEUE]:
        raise UnsupportedPlanError(
            f"its queues are {', '.join(map(str, served)) or 'none'}",
            expected=f"some of {QUEUE_COUNT - 1} to 1, then {BACKGROUND_QUEUE}",
        )
    if sorted(dscp for queue in queues for dscp in queue.dscps) != list(range(DSCP_COUNT)):
        raise UnsupportedPlanError(f"its queues do not share all {DSCP_COUNT} code points")


def _trust(port: PortState, number: int, background: int) -> tuple[Entry, tuple[Entry, ...]]:
    """Entries of `ports` and `classes` for what arrives at a port."""
    key = (str(number), port.hardware_address)
    led = {
        dscp: queue.queue for queue in port.queues for dscp in queue.dscps if queue.queue != BACKGROUND_QUEUE
    }
    if not port.trusted:
        if led or port.rewritten != every_dscp_but(background):
            raise UnsupportedPlanError("is not trusted, so all its packets are background")
        return Entry("ports", "distrust", key, (str(background),)), ()
    rewritten = dict.fromkeys(port.rewritten, BACKGROUND_QUEUE)
    if led.keys() & rewritten.keys():
        raise UnsupportedPlanError("leads code points to queues that it rewrites to background's")
    entries = tuple(
        Entry("classes", "set_queue_and_dscp", (*key, str(dscp)), (str(queue), str(background)))
        if dscp in rewritten
        else Entry("classes", "set_queue", (*key, str(dscp)), (str(queue),))
        for dscp, queue in sorted((led | rewritten).items())
    )
    return Entry("ports", "trust", key, ()), entries


def _routes(routes: Sequence[RouteState], numbers: Mapping[str, int]) -> dict[IPv4Network, tuple[int, ...]]:
    found: dict[IPv4Network, tuple[int, ...]] = {}
    for prefix, alike in groupby(routes, lambda route: route.prefix):
        hops: list[int] = []
        for route in alike:
            if not route.discards and route.port not in numbers:
                raise UnsupportedPlanError(
                    f"leads to {route.port[:40]!r}, which is no port of the plan", where=f"route {prefix}"
                )
            if not route.discards:
                hops.append(numbers[route.port])
        if prefix in found or len(set(hops)) != len(hops):
            raise UnsupportedPlanError("stands twice", where=f"route {prefix}")
        found[prefix] = tuple(hops)
    if len(found) > MAXIMUM_ROUTES:
        raise UnsupportedPlanError(f"{len(found)} routes", expected=f"at most {MAXIMUM_ROUTES}")
    groups = sum(len(hops) > 1 for hops in found.values())
    if groups > MAXIMUM_GROUPS:
        raise UnsupportedPlanError(
            f"{groups} prefixes with several next hops", expected=f"at most {MAXIMUM_GROUPS}"
        )
    return found


def _neighbours(state: SwitchState, numbers: Mapping[str, int]) -> dict[int, Neighbour]:
    """Behind each port, one; raises UnsupportedPlanError for a second one."""
    own = {port.name: port.hardware_address for port in state.ports}
    found: dict[int, Neighbour] = {}
    for route in state.routes:
        if route.port not in numbers:
            continue
        neighbour = Neighbour(own[route.port], hardware_address(route.next_hop))
        if found.setdefault(numbers[route.port], neighbour) != neighbour:
            raise UnsupportedPlanError(
                f"leads to a second neighbour behind port {route.port}", where=f"route {route.prefix}"
            )
    return dict(sorted(found.items()))


def port_state(
    name: str,
    levels: Mapping[int, Level],
    trust: Entry | None,
    classes: Iterable[Entry],
    *,
    unexpected: tuple[str, ...] = (),
) -> PortState:
    """A port from its queues and the entries for what arrives there."""
    dscps: dict[int, list[int]] = {queue: [] for queue in levels}
    queue_of = {entry.numbers_at(2): int(entry.parameters[0]) for entry in classes}
    for dscp in range(DSCP_COUNT):
        dscps.setdefault(queue_of.get(dscp, BACKGROUND_QUEUE), []).append(dscp)
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
    rewritten = tuple(sorted(entry.numbers_at(2) for entry in classes if len(entry.parameters) > 1))
    if trust is not None and trust.action == "distrust":
        rewritten = every_dscp_but(int(trust.parameters[0]))
    return PortState(
        name,
        trust is not None and trust.action == "trust",
        None,
        queues,
        unexpected,
        rewritten,
        "" if trust is None else trust.key[1],
        min((level.frame_bytes for level in levels.values()), default=ETHERNET_BYTES) - ETHERNET_BYTES,
    )


def background_in(tables: Tables, ports: Iterable[int]) -> int:
    """The code point that these ports rewrite others to; of several, the highest; 0 where there is none."""
    mine = frozenset(ports)
    rewriting = [
        entry
        for table in ("ports", "classes")
        for entry in tables.of(table)
        if entry.action in ("distrust", "set_queue_and_dscp") and entry.numbers_at(0) in mine
    ]
    return max((int(entry.parameters[-1]) for entry in rewriting), default=0)
