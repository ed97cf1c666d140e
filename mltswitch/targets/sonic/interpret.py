"""What a CONFIG_DB, ours or a device's, means as state; objects count by their contents, not their names."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from mltswitch.capabilities import AlphaLimit, BitRate, Capabilities, Limit, Unlimited
from mltswitch.errors import DeviceError, UserInputError
from mltswitch.targets.addresses import ipv4_address, ipv4_network
from mltswitch.targets.common import is_on
from mltswitch.targets.remap import lossless_queues
from mltswitch.targets.sonic.capabilities import BITS, LOSSLESS, TRAFFIC_CLASSES
from mltswitch.targets.sonic.database import QUEUE_TABLES, Database, Entry, Value, dump, keys_by_queue, load
from mltswitch.targets.sonic.document import (
    DISCARD,
    MAP,
    MAP_NAMES,
    NO_MINIMUM_BYTES,
    TC_TO_PRIORITY_GROUP,
    UNTRUSTED,
    VRF,
    buffer_fields,
    document,
    port_maps,
    scheduler_fields,
    untrusted_map,
    wred_fields,
)
from mltswitch.targets.sonic.rules import number, refusals
from mltswitch.targets.sonic.segments import LOCATORS, NO_NEXT_HOP, locator_of
from mltswitch.targets.state import (
    PortState,
    QueueState,
    RouteState,
    SegmentRouteState,
    SegmentRouting,
    SwitchState,
)
from mltswitch.wire.tos import DSCP_COUNT

_PORT_FIELDS: Final = frozenset(
    {*port_maps(MAP), *("pfc_to_queue_map", "pfc_to_pg_map", "pfc_enable", "pfcwd_sw_enable")}
)
"""Of PORT_QOS_MAP: ours, and those of PFC, which the other queues keep."""
_ROUTE_FIELDS: Final = frozenset({"nexthop", "ifname"})
"""Of STATIC_ROUTE: what a route of ours has."""
_NO_NEXT_HOP: Final = IPv4Address(0)

Prefix = IPv4Network | IPv6Network


def paused_queues(database: Database, port: str) -> set[int]:
    """Queues of a port in which PFC may hold packets back.

    Asymmetric PFC heeds pause frames of every priority, whatever `pfc_enable` says (sonic-swss,
    orchagent/portsorch.cpp, setPortPfcAsym: 0xff for what is received).
    """
    fields = database.get("PORT_QOS_MAP", {}).get(port, {})
    bound = fields.get("pfc_to_queue_map")
    leads_to = database.get("MAP_PFC_PRIORITY_TO_QUEUE", {}).get(bound, {}) if isinstance(bound, str) else {}
    words = _words(fields.get("pfc_enable", ""))
    if is_asymmetric(database, port):
        words = [str(priority) for priority in range(TRAFFIC_CLASSES)]
    priorities = {word: leads_to.get(word, word) for word in words}
    queues = {word: number(priorities, word) for word in priorities if word}
    if unread := [word for word, queue in queues.items() if queue is None]:
        raise DeviceError(
            f"cannot read of which queue priority {unread[0][:40]!r} is",
            where=f"PORT_QOS_MAP|{port} pfc_enable, MAP_PFC_PRIORITY_TO_QUEUE",
        )
    return {queue for queue in queues.values() if queue is not None}


def is_asymmetric(database: Database, port: str) -> bool:
    """Whether PFC of a port is asymmetric."""
    return is_on(database.get("PORT", {}).get(port, {}).get("pfc_asym", "off"), "pfc_asym", f"PORT|{port}")


def route_of(key: str) -> Prefix | None:
    """Prefix of a key of STATIC_ROUTE in the default VRF; None for other routes."""
    vrf, _, prefix = key.rpartition("|")
    if vrf not in {"", VRF}:
        return None
    try:
        return IPv6Network(prefix, strict=False) if ":" in prefix else ipv4_network(prefix, strict=False)
    except ValueError:
        return None


def routes_of(key: str, fields: Entry) -> Iterable[RouteState | SegmentRouteState]:
    """One route for each next hop; `port` holds whatever else the entry says, too."""
    prefix = route_of(key)
    if prefix is None:
        return
    if fields == DISCARD and isinstance(prefix, IPv4Network):
        yield RouteState(prefix, _NO_NEXT_HOP, "")
        return
    next_hops, ports = _words(fields.get("nexthop", "")), _words(fields.get("ifname", ""))
    others = ""
    if fields.keys() - _ROUTE_FIELDS:
        others = "".join(
            f" {name} {_text(value)}" for name, value in fields.items() if name not in _ROUTE_FIELDS
        )
    for index, next_hop in enumerate(next_hops):
        port = (ports[index] if index < len(ports) else "") + others
        address = _address(next_hop)
        if isinstance(prefix, IPv4Network):
            yield RouteState(prefix, address if isinstance(address, IPv4Address) else _NO_NEXT_HOP, port)
        else:
            next_hop6 = address if isinstance(address, IPv6Address) else NO_NEXT_HOP
            yield SegmentRouteState(prefix, next_hop6, port)


def _words(value: Value) -> list[str]:
    return _text(value).split(",")


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ",".join(value)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return IPv6Address(text) if ":" in text else ipv4_address(text)
    except ValueError:
        return None


class PortReader:
    """Reads the ports of one database; keys are sorted to ports once, ports that are alike read once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys = {name: keys_by_queue(database.get(name, {})) for name in QUEUE_TABLES}
        self._read: list[tuple[object, PortState]] = []
        """(what a port has, its state): few kinds, so that they are looked through."""

    def queues_of(self, port: str) -> list[int]:
        """Queues of a port that QUEUE names, in the order in which it does; lossless ones before the last."""
        named = [queue for queue in self._keys["QUEUE"].get(port, {}) if queue not in LOSSLESS]
        bound = _text(self._database.get("PORT_QOS_MAP", {}).get(port, {}).get("dscp_to_tc_map", ""))
        classes = self._object("DSCP_TO_TC_MAP", bound.removesuffix(UNTRUSTED)) or {}
        led = (queue for dscp in classes if (queue := number(classes, dscp)) is not None)
        return [*named[:-1], *lossless_queues(LOSSLESS, named, led), *named[-1:]]

    def port_state(self, port: str, queues: Sequence[int]) -> PortState:
        """State of some queues of one port; what no plan asks for is in `unexpected`, in SONiC's words."""
        maps = self._database.get("PORT_QOS_MAP", {}).get(port, {})
        settings, buffers = (self._by_queue(name, port, queues) for name in QUEUE_TABLES)
        overlaps = [text for name in QUEUE_TABLES for text in self._overlaps(name, port, queues)]
        found = (maps, queues, settings, buffers, overlaps)
        for known, like in self._read:
            if known == found:
                return PortState(port, like.trusted, None, like.queues, like.unexpected)
        unexpected: list[str] = []
        trusted, believed = self._trust(maps, queues, unexpected)
        leads_to = self._classification(believed, maps.get("tc_to_queue_map"), unexpected)
        self._check_maps(maps, unexpected)
        unexpected += overlaps
        states = tuple(
            self._queue_state(queue, leads_to.get(queue, ()), setting, buffer, unexpected)
            for queue, setting, buffer in zip(queues, settings, buffers, strict=True)
        )
        state = PortState(port, trusted, None, states, tuple(unexpected))
        self._read.append((found, state))
        return state

    def _object(self, table: str, name: Value | None) -> Entry | None:
        return self._database.get(table, {}).get(name) if isinstance(name, str) else None

    def _trust(self, maps: Entry, queues: Sequence[int], unexpected: list[str]) -> tuple[bool, Value | None]:
        """Whether the port is trusted, and the name of the map that applies where it is."""
        bound = maps.get("dscp_to_tc_map")
        if bound not in MAP_NAMES:
            unexpected.append(f"dscp_to_tc_map {_text(bound or 'none')}")
        if not isinstance(bound, str) or not bound.endswith(UNTRUSTED) or bound not in MAP_NAMES:
            return bound is not None, bound
        believes_nothing = [untrusted_map(queue) for queue in queues[-1:]]
        if self._object("DSCP_TO_TC_MAP", bound) not in believes_nothing:
            unexpected.append(f"DSCP_TO_TC_MAP|{bound} is not background alone")
        return False, bound.removesuffix(UNTRUSTED)

    def _classification(
        self, believed: Value | None, bound: Value | None, unexpected: list[str]
    ) -> dict[int, tuple[int, ...]]:
        """Queue → DSCPs, of packets that a trusted port classified."""
        queues = self._object("TC_TO_QUEUE_MAP", bound)
        if queues is None:
            unexpected.append(f"tc_to_queue_map {_text(bound or 'none')}")
            return {}
        code_points = self._object("DSCP_TO_TC_MAP", believed or MAP) or {}
        found: dict[int, list[int]] = {}
        for dscp in range(DSCP_COUNT):
            queue = number(queues, _text(code_points.get(str(dscp), "")))
            if queue is not None:
                found.setdefault(queue, []).append(dscp)
        return {queue: tuple(dscps) for queue, dscps in found.items()}

    def _check_maps(self, maps: Entry, unexpected: list[str]) -> None:
        """Priority groups; and such as a shaper of the whole port, or a map that rewrites."""
        bound = maps.get("tc_to_pg_map")
        if self._object("TC_TO_PRIORITY_GROUP_MAP", bound) != TC_TO_PRIORITY_GROUP:
            unexpected.append(f"tc_to_pg_map {_text(bound or 'none')}")
        unexpected += (f"{name} {_text(value)}" for name, value in maps.items() if name not in _PORT_FIELDS)

    def _by_queue(self, name: str, port: str, queues: Sequence[int]) -> list[Entry]:
        table, keys = self._database.get(name, {}), self._keys[name].get(port, {})
        return [table[keys[queue][0]] if queue in keys else {} for queue in queues]

    def _overlaps(self, name: str, port: str, queues: Sequence[int]) -> Iterator[str]:
        keys = self._keys[name].get(port, {})
        for queue in queues:
            if len(keys.get(queue, ())) > 1:
                yield f"{name} has {' and '.join(keys[queue])} for queue {queue}"

    def _queue_state(
        self,
        queue: int,
        dscps: tuple[int, ...],
        settings: Entry,
        buffers: Entry,
        unexpected: list[str],
    ) -> QueueState:
        if queue in LOSSLESS:
            return QueueState(queue, dscps, None, Unlimited(), is_lossless=True)
        minimum, maximum = self._rates(queue, settings.get("scheduler"), unexpected)
        threshold = self._threshold(queue, settings.get("wred_profile"), unexpected)
        limit = self._limit(queue, buffers.get("profile"), unexpected)
        return QueueState(queue, dscps, threshold, limit, minimum, maximum)

    def _rates(
        self, queue: int, name: Value | None, faults: list[str]
    ) -> tuple[BitRate | None, BitRate | None]:
        scheduler = self._object("SCHEDULER", name) or {}
        low, high = number(scheduler, "cir"), number(scheduler, "pir")
        maximum = None if high is None else BitRate(high * BITS)
        is_filler = high is not None and low == NO_MINIMUM_BYTES
        minimum = None if low is None or is_filler else BitRate(low * BITS)
        if scheduler == scheduler_fields(minimum, maximum):
            return minimum, maximum
        faults.append(f"queue {queue} scheduler {_text(name or 'none')}{_described(scheduler or None)}")
        return None, None

    def _threshold(self, queue: int, name: Value | None, faults: list[str]) -> int | None:
        if name is None:
            return None
        profile = self._object("WRED_PROFILE", name)
        threshold = number(profile or {}, "green_min_threshold")
        if threshold is not None and profile == wred_fields(threshold):
            return threshold
        faults.append(f"queue {queue} wred_profile {_text(name)}{_described(profile)}")
        return None

    def _limit(self, queue: int, name: Value | None, faults: list[str]) -> Limit:
        profile = self._object("BUFFER_PROFILE", name)
        for limit in _LIMITS:
            if profile == buffer_fields(limit):
                return limit
        faults.append(f"queue {queue} buffer profile {_text(name or 'none')}{_described(profile)}")
        return Unlimited()


_LIMITS: Final = tuple(AlphaLimit(exponent) for exponent in range(-8, 8))
"""What the YANG model takes for dynamic_th."""


def _described(profile: Entry | None) -> str:
    if profile is None:
        return ""
    return " (" + ", ".join(f"{name} {_text(value)}" for name, value in profile.items()) + ")"


FILE: Final = "mltswitch.json"


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """`mltswitch.json`, a document for `config load`."""
    del capabilities
    return {FILE: dump(document(state))}


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Inverse of `write_files`; raises UserInputError naming the object that does not belong."""
    del capabilities
    try:
        database = load(files[FILE])
    except (ValueError, RecursionError) as error:
        raise UserInputError(f"no configuration: {error}", where=FILE) from None
    for refusal in refusals(database):
        raise UserInputError(refusal.problem, where=f"{FILE}: {refusal.where}")
    state = _state(database)
    for port in state.ports:
        if port.unexpected:
            raise UserInputError(f"{port.unexpected[0]}", where=f"{FILE}: port {port.name}")
    _compare(database, document(state))
    return state


def _state(database: Database) -> SwitchState:
    reader = PortReader(database)
    # The document writes a port's queues in order of service.
    ports = tuple(
        reader.port_state(name, reader.queues_of(name)) for name in database.get("PORT_QOS_MAP", {})
    )
    found = [
        route for key, fields in database.get("STATIC_ROUTE", {}).items() for route in routes_of(key, fields)
    ]
    routes = tuple(route for route in found if isinstance(route, RouteState))
    segment_routes = tuple(route for route in found if isinstance(route, SegmentRouteState))
    routing = None
    if segment_routes or LOCATORS in database:
        routing = SegmentRouting(locator_of(database), segment_routes)
    return SwitchState(ports, routes, routing)


def _compare(found: Database, needed: Database) -> None:
    if found == needed:
        return
    for table in sorted({*found, *needed}):
        entries, wanted = found.get(table, {}), needed.get(table, {})
        for key in sorted({*entries, *wanted}):
            if key not in wanted:
                raise UserInputError("is nothing that mltswitch writes", where=f"{FILE}: {table}|{key}")
            if entries.get(key) != wanted[key]:
                raise UserInputError(
                    f"is {entries.get(key, 'missing')}",
                    where=f"{FILE}: {table}|{key}",
                    expected=str(wanted[key]),
                )
        if table not in needed:
            raise UserInputError("is nothing that mltswitch writes", where=f"{FILE}: {table}")
