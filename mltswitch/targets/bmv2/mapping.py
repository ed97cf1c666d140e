"""A switch state as entries of the P4 program's tables, and back, whether from a file or a switch."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from itertools import groupby
from typing import Any, Final

from mltswitch.capabilities import BitRate, BytesLimit, Capabilities
from mltswitch.errors import UnsupportedPlanError
from mltswitch.plan import NO_ADDRESS
from mltswitch.targets.bmv2 import sheet
from mltswitch.targets.bmv2.capabilities import (
    BACKGROUND_QUEUE,
    ETHERNET_BYTES,
    MAXIMUM_CLASSES,
    MAXIMUM_GROUPS,
    MAXIMUM_LIMIT_BYTES,
    MAXIMUM_ROUTES,
    QUEUE_COUNT,
    QUEUE_DEPTH_PACKETS,
)
from mltswitch.targets.bmv2.ports import numbered, port_name
from mltswitch.targets.bmv2.sheet import Entries, of
from mltswitch.targets.common import UNKNOWN, Key, check_lines, each_line
from mltswitch.targets.engine.facts import SWITCH, Fact
from mltswitch.targets.engine.line import Written
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState, every_dscp_but
from mltswitch.units import BITS_PER_BYTE
from mltswitch.wire.hardware_address import address_of, hardware_address
from mltswitch.wire.tos import DSCP_COUNT

FILE: Final = "mltswitch.txt"
_NOWHERE: Final = IPv4Address(0)
"""The next hop of a route whose MAC address is not one by rule; its port says which it is."""
Level = tuple[Any, ...]
"""What a queue takes: ECN threshold S and limit L in bytes, the longest frame in bytes, then the rates and
bursts of its meter; None: no bound."""


def level_in(facts: Entries, port: int, queue: int) -> Level:
    """The bounds of a queue; those of its meter are None unless it is policed and the meter has rates."""
    *threshold, limit, is_policed, frame_bytes = facts[sheet.QUEUES, port, queue]
    rates = facts.get(meter_of(port, queue)) if is_policed else None
    return threshold[0] if threshold else None, limit, frame_bytes, *(rates or (None,) * 4)


def level_facts(level: Level, port: int, queue: int) -> Entries:
    """The entries that give a queue these bounds: that of its meter, if any, and its own behind it."""
    threshold, limit, frame_bytes, *rates = level
    meter: Entries = {meter_of(port, queue): tuple(rates)} if rates[0] is not None else {}
    begin = () if threshold is None else (threshold,)
    return meter | {(sheet.QUEUES, port, queue): (*begin, limit, len(meter), frame_bytes)}


def or_more(one: Level, other: Level) -> Level:
    """The strictest bounds that let in whatever at least one of the two lets in."""
    pairs = zip(one, other, strict=True)
    return tuple(None if left is None or right is None else max(left, right) for left, right in pairs)


def meter_of(port: int, queue: int) -> Fact:
    """The fact of the meter to which the entry of a queue refers."""
    return sheet.METERS, port * QUEUE_COUNT + queue


@remembering_last
def facts_of(state: SwitchState) -> Entries:
    """The table entries of a state, with groups numbered from 1 in the order in which routes need them.

    Raises UnsupportedPlanError for what the tables cannot say.
    """
    numbers = numbered(port.name for port in state.ports)
    facts: Entries = {(sheet.DEPTH,): QUEUE_DEPTH_PACKETS, (sheet.DEPTH_MARK,): sheet.DEPTH_METER}
    for port in state.ports:
        try:
            facts |= _port_facts(port, numbers[port.name], state.background_dscp)
        except UnsupportedPlanError as error:
            error.where = f"port {port.name}"
            raise
    if len(list(of(facts, sheet.CLASSES))) > MAXIMUM_CLASSES:
        raise UnsupportedPlanError(
            "its ports have many code points", expected=f"at most {MAXIMUM_CLASSES} in all"
        )
    return facts | _neighbours(state, numbers) | _routes(state, numbers)


def _port_facts(port: PortState, number: int, background: int) -> Entries:
    """What the queues of a port take, and the queue of each code point that arrives there."""
    if port.mtu_bytes is None or not port.hardware_address:
        raise UnsupportedPlanError("its MTU or MAC address is missing")
    _check_queues(port.queues)
    facts: Entries = {}
    for queue in port.queues:
        facts |= level_facts(_level_of(queue, port.mtu_bytes + ETHERNET_BYTES), number, queue.queue)
    place = number, port.hardware_address
    led = {
        dscp: queue.queue for queue in port.queues for dscp in queue.dscps if queue.queue != BACKGROUND_QUEUE
    }
    if not port.trusted:
        if led or port.rewritten != every_dscp_but(background):
            raise UnsupportedPlanError("is not trusted, so all its packets are background")
        return facts | {(sheet.TRUST, *place): background}
    if led.keys() & {*port.rewritten}:
        raise UnsupportedPlanError("leads code points to queues that it rewrites to background's")
    classes = {**led, **dict.fromkeys(port.rewritten, (BACKGROUND_QUEUE, background))}
    facts |= {(sheet.CLASSES, *place, dscp): classes[dscp] for dscp in sorted(classes)}
    return facts | {(sheet.TRUST, *place): sheet.TRUSTED}


def _check_queues(queues: Sequence[QueueState]) -> None:
    served = [queue.queue for queue in queues]
    if served != sorted(set(served), reverse=True) or served[-1:] != [BACKGROUND_QUEUE]:
        raise UnsupportedPlanError(
            f"its queues are {', '.join(map(str, served)) or 'none'}",
            expected=f"some of {QUEUE_COUNT - 1} to 1, then {BACKGROUND_QUEUE}",
        )
    if sorted(dscp for queue in queues for dscp in queue.dscps) != list(range(DSCP_COUNT)):
        raise UnsupportedPlanError(f"its queues do not share all {DSCP_COUNT} code points")


def _level_of(queue: QueueState, frame_bytes: int) -> Level:
    limit = queue.limit.size_bytes if isinstance(queue.limit, BytesLimit) else MAXIMUM_LIMIT_BYTES
    threshold = queue.ecn_threshold_bytes
    if threshold is not None and threshold > limit:
        raise UnsupportedPlanError(f"the ECN threshold {threshold} B lies above the limit {limit} B")
    if not isinstance(queue.maximum, BitRate):
        return threshold, limit, frame_bytes, *(None,) * 4
    # The burst that the queue itself could hold: one that finds the queue empty loses nothing by the meter.
    return threshold, limit, frame_bytes, *(queue.maximum.bps // BITS_PER_BYTE, limit) * 2


def _neighbours(state: SwitchState, numbers: Mapping[str, int]) -> Entries:
    """Behind each port, one; raises UnsupportedPlanError for a second one."""
    own = {port.name: port.hardware_address for port in state.ports}
    found: Entries = {}
    for route in state.routes:
        if route.port in numbers:
            neighbour = own[route.port], hardware_address(route.next_hop)
            if found.setdefault((sheet.NEIGHBOURS, numbers[route.port]), neighbour) != neighbour:
                raise UnsupportedPlanError(
                    f"leads to a second neighbour behind port {route.port}", where=f"route {route.prefix}"
                )
    return dict(sorted(found.items()))


def _routes(state: SwitchState, numbers: Mapping[str, int]) -> Entries:
    facts: Entries = {}
    groups = 0
    for prefix, alike in groupby(state.routes, lambda route: route.prefix):
        hops: list[int] = []
        for route in alike:
            if not route.discards and route.port not in numbers:
                raise UnsupportedPlanError(
                    f"leads to {route.port[:40]!r}, which is no port of the plan", where=f"route {prefix}"
                )
            if not route.discards:
                hops.append(numbers[route.port])
        if (sheet.IPV4, prefix) in facts or len(set(hops)) != len(hops):
            raise UnsupportedPlanError("stands twice", where=f"route {prefix}")
        if len(hops) > 1:
            groups += 1
            facts[sheet.GROUPS, groups] = tuple(hops)
            facts[sheet.IPV4, prefix] = sheet.SHARING[state.packet_spraying], groups
        else:
            facts[sheet.IPV4, prefix] = (sheet.FORWARD, *hops) if hops else sheet.DISCARD
    for size, what, maximum in (
        (len(facts) - groups, "routes", MAXIMUM_ROUTES),
        (groups, "prefixes with several next hops", MAXIMUM_GROUPS),
    ):
        if size > maximum:
            raise UnsupportedPlanError(f"{size} {what}", expected=f"at most {maximum}")
    return facts


def queue_of(leads_to: Any) -> int:
    """The queue that the value of a `classes` entry names."""
    return int(leads_to[0] if isinstance(leads_to, tuple) else leads_to)


def by_port(facts: Entries) -> dict[int, Entries]:
    """Port number → its entries in the tables whose keys begin with a port."""
    found: dict[int, Entries] = defaultdict(dict)
    for fact, value in facts.items():
        if fact[0] in sheet.OF_PORTS:
            found[fact[1]][fact] = value
    return found


def port_state(port: int, facts: Entries, own: Entries, unexpected: Iterable[str] = ()) -> PortState:
    """The state of a port from its own entries (`own`); its meters are looked up among all `facts`."""
    levels = {queue: level_in(facts, port, queue) for _, queue, _ in of(own, sheet.QUEUES)}
    classes = {dscp: leads_to for *_, dscp, leads_to in of(own, sheet.CLASSES)}
    *_, (address, trust) = ("", None), *(found[1:] for found in of(own, sheet.TRUST))
    dscps: dict[int, list[int]] = {queue: [] for queue in levels}
    for dscp in range(DSCP_COUNT):
        dscps.setdefault(queue_of(classes.get(dscp, BACKGROUND_QUEUE)), []).append(dscp)
    queues = tuple(
        QueueState(
            *(queue, tuple(dscps[queue]), threshold, BytesLimit(limit), None),
            None if rates[0] is None else BitRate(rates[0] * BITS_PER_BYTE),
        )
        for queue, (threshold, limit, _, *rates) in sorted(levels.items(), reverse=True)
    )
    rewritten = sorted(dscp for *_, dscp, leads_to in of(own, sheet.CLASSES) if isinstance(leads_to, tuple))
    return PortState(
        *(port_name(port), trust == sheet.TRUSTED, None, queues, tuple(unexpected)),
        rewritten=every_dscp_but(trust) if isinstance(trust, int) else tuple(rewritten),
        hardware_address=address,
        mtu_bytes=min(level[2] for level in levels.values()) - ETHERNET_BYTES,
    )


def background_in(facts: Entries, ports: Container[int]) -> int:
    """The DSCP to which these ports rewrite others; of several the highest, 0 where there is none."""
    distrusted = [dscp for port, _, dscp in of(facts, sheet.TRUST) if port in ports and dscp != sheet.TRUSTED]
    leads_to = [value for port, *_, value in of(facts, sheet.CLASSES) if port in ports]
    return max([*distrusted, *(value[1] for value in leads_to if isinstance(value, tuple))], default=0)


def routes_in(
    facts: Entries, ports: Container[int], own: Container[Any] | None = None
) -> Iterator[RouteState]:
    """The IPv4 routes, one for each next hop, to the prefixes in `own`; None: all of them."""
    for prefix, leads_to in of(facts, sheet.IPV4):
        if own is not None and prefix not in own:
            continue
        if leads_to == sheet.DISCARD:
            yield RouteState(prefix, NO_ADDRESS, "")
            continue
        action, number = leads_to
        hops = facts.get((sheet.GROUPS, number), ()) if action in sheet.SHARING else (number,)
        if not hops:
            yield RouteState(prefix, _NOWHERE, f"(group {number} is missing)")
        for port in hops:
            name = port_name(port) if port in ports else f"port {port}"
            _, behind = facts.get((sheet.NEIGHBOURS, port), ("", ""))
            address = address_of(behind)
            yield RouteState(prefix, address or _NOWHERE, name if address else f"{name} {behind}".rstrip())


def write_files(state: SwitchState, _capabilities: Capabilities) -> dict[str, str]:
    """`mltswitch.txt`: queues, then what leads to them, routes last, so that it is safe to enter."""
    return {FILE: _text(state)}


@remembering_last
def _text(state: SwitchState) -> str:
    return sheet.SHEET.text({SWITCH: facts_of(state)})


def read_files(files: Mapping[str, str], _capabilities: Capabilities) -> SwitchState:
    """Read the files of `write_files` back, with lines in any order; raises FileError."""
    text = files[FILE]
    state = _planned_state({fact: value for _, line in each_line(text, _read) for fact, value in line.facts})
    if (rendered := _text(state)) != text:
        check_lines(_keys(text), _keys(rendered))
    return state


def _read(line: str) -> Written | None:
    if not line.isprintable():
        raise ValueError("has a control character")
    if sheet.SHEET.comment.fullmatch(line):
        return None
    if (found := sheet.read_line(line)) is None:
        raise ValueError(UNKNOWN)
    return found


def _keys(text: str) -> Iterator[tuple[int, Key]]:
    return ((number, ((), line.text)) for number, line in each_line(text, _read))


def _planned_state(facts: Entries) -> SwitchState:
    """What the lines of a file say, where they are lines that we would render.

    Hops that make no route of ours are left out, so that their lines do not fit.
    """
    ports = dict.fromkeys(port for port, *_ in of(facts, sheet.QUEUES))
    neighbours = {port: behind for port, (_, behind) in of(facts, sheet.NEIGHBOURS)}
    reached = {port for port in ports if address_of(neighbours.get(port, "")) is not None}
    names = {*map(port_name, reached)}
    own = by_port(facts)
    return SwitchState(
        tuple(port_state(port, facts, own[port]) for port in ports),
        tuple(route for route in routes_in(facts, reached) if route.discards or route.port in names),
        packet_spraying=any(leads_to[0] == sheet.SHARING[True] for _, leads_to in of(facts, sheet.IPV4)),
        background_dscp=background_in(facts, ports),
    )
