"""The objects of CONFIG_DB that mltswitch manages: how each is written, and what it means where it is read.

Traffic class n is queue n. A map spreads all 64 code points over the plan's queues; those which the device
led to its lossless queues 3 and 4 before (RDMA, by default DSCP 3 and 4) become background on the plan's
ports unless the fabric file names them, because a plan says where every code point goes. The traffic
classes 3 and 4 keep their priority groups and queues, and pfc_enable is not touched.

Ports of the fabric have the map MLT, ports of hosts MLT_HOST, in which nothing leads to network control. A
port that is not trusted gets one that makes everything background, MLT_UNTRUSTED or MLT_HOST_UNTRUSTED:
without any, the map of the switch (PORT_QOS_MAP|global) would apply.

RED/ECN, buffer and bandwidth profiles are named after the queue and the first of the ports that share them,
not after their contents: the configuration updater takes a port down to change which profile its queues
refer to, but changes a profile in place. Read, an object counts by its contents, whatever its name.

SRv6: of the behaviours in SONiC's YANG model (sonic-srv6), uN is the plan's End: where nothing follows the
locator in the destination address, it does what End does (RFC 9800, section 4.1.1). A segment list must
therefore name the locator's address itself. Its design (SONiC, doc/srv6/srv6_static_config_hld.md) calls
decap_dscp_mode mandatory; `uniform` keeps the class in which the fabric has carried a packet.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from itertools import zip_longest
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from mltswitch.capabilities import AlphaLimit, BitRate, Capabilities, Unlimited
from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets.addresses import address_text, ipv4_address, ipv4_network, network_text
from mltswitch.targets.common import NO_NEXT_HOP, indices_of
from mltswitch.targets.engine.entry import EntryForm
from mltswitch.targets.engine.line import Word
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.remap import lossless_queues
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.sonic import database as db
from mltswitch.targets.sonic.capabilities import BITS, LOSSLESS, POOL, TRAFFIC_CLASSES
from mltswitch.targets.sonic.database import QUEUE_TABLES, Database, Entry, Value, number, text_of
from mltswitch.targets.state import (
    PortState,
    QueueState,
    RouteState,
    SegmentRouteState,
    SegmentRouting,
    SwitchState,
)
from mltswitch.wire.tos import DSCP_COUNT

FILE: Final = "mltswitch.json"
MAP: Final = "MLT"
UNTRUSTED: Final = "_UNTRUSTED"
"""Suffix of the name of a map that trusts no DSCP; before it stands the map that would apply if trusted."""
_HOST_MAP: Final = "MLT_HOST"
_MAPS: Final = (MAP, _HOST_MAP, MAP + UNTRUSTED, _HOST_MAP + UNTRUSTED)
LOCATORS: Final = "SRV6_MY_LOCATORS"
SEGMENTS: Final = "SRV6_MY_SIDS"
COUNTERS: Final = ("FLEX_COUNTER_TABLE", "WRED_ECN_QUEUE", "FLEX_COUNTER_STATUS", "enable")
"""Table, key, field and value by which marks and drops are counted: `counterpoll wredqueue enable`."""
_TC_TO_QUEUE: Final[Entry] = {str(queue): str(queue) for queue in range(TRAFFIC_CLASSES)}
_TC_TO_PRIORITY_GROUP: Final[Entry] = {
    str(queue): str(queue if queue in LOSSLESS else 0) for queue in range(TRAFFIC_CLASSES)
}
_PFC_FIELDS: Final = ("pfc_to_queue_map", "pfc_to_pg_map", "pfc_enable", "pfcwd_sw_enable")
"""Of PORT_QOS_MAP, which the other queues keep."""
_DISCARD: Final[Entry] = {"blackhole": "true"}
"""An entry of STATIC_ROUTE that discards (bgpcfgd's managers_static_rt.py)."""
_VRF: Final = "default"
_LOCATOR_BITS: Final = 48
_SEGMENT_BITS: Final[Entry] = {"block_len": "32", "node_len": "16", "func_len": "16", "arg_len": "0"}
"""The format f3216: the defaults of the model and what chips are made for."""
Prefix = IPv4Network | IPv6Network
_Address = TypeVar("_Address")

_BYTES: Final = Word("[1-9][0-9]{0,18}", int)
_RATE: Final = Word(
    "[2-9]|[1-9][0-9]{1,18}", lambda text: BitRate(int(text) * BITS), lambda rate: str(rate.bps // BITS)
)
"""In bytes a second; 1 is what a scheduler without a minimum has."""
_ALPHA: Final = Word("-[1-8]|[0-7]", lambda text: AlphaLimit(int(text)), lambda limit: str(limit.exponent))
"""What the YANG model takes for dynamic_th."""
_WORDS: Final = {"minimum": _RATE, "maximum": _RATE, "ecn_threshold_bytes": _BYTES, "limit": _ALPHA}
"""What the entries say, by the fields of a queue's state."""
_kind_of: Final = attrgetter("queue", *_WORDS)


class Setting(NamedTuple):
    """A reference of a queue to an object: where it stands, and the forms of mltswitch's objects for it."""

    table: str
    field: str
    words: str
    """What a report calls the reference."""
    objects: str
    """The table of the object to which the queue refers."""
    forms: tuple[EntryForm, ...]
    """Forms of the object: the first that can say all that the queue has is used; `{}` in its name stands for
    the queue and its port."""
    may_lack: bool = False
    """Whether a queue may do without an object."""


SETTINGS: Final = (
    # Of a strict queue: below cir it is served first, above pir not at all; the YANG model demands a cir
    # above 0 beside pir. Schedulers with other fields have other names: orchagent takes no field back of a
    # live one.
    Setting(
        *("QUEUE", "scheduler", "scheduler", "SCHEDULER"),
        (
            EntryForm("type STRICT meter_type bytes cir {minimum} pir {maximum}", _WORDS, "MLT_MAX_{}"),
            EntryForm("type STRICT meter_type bytes cir 1 pir {maximum}", _WORDS, "MLT_MAX_{}"),
            EntryForm("type STRICT meter_type bytes cir {minimum}", _WORDS, "MLT_MIN_{}"),
            EntryForm("type STRICT", _WORDS, "mlt_strict"),
        ),
    ),
    # Marks ECN-capable packets above the threshold and drops the others. Both switches are needed: ecn alone
    # does not drop, wred_green_enable alone does not mark. Only green, the colour of all packets that no
    # policer has coloured: SAI refuses ecn_green while yellow or red are on.
    Setting(
        *("QUEUE", "wred_profile", "wred_profile", "WRED_PROFILE"),
        (
            EntryForm(
                "wred_green_enable true ecn ecn_green green_min_threshold {ecn_threshold_bytes} "
                "green_max_threshold {ecn_threshold_bytes} green_drop_probability 100",
                _WORDS,
                "MLT_{}",
            ),
        ),
        may_lack=True,
    ),
    Setting(
        *("BUFFER_QUEUE", "profile", "buffer profile", "BUFFER_PROFILE"),
        (EntryForm(f"pool {POOL} size 0 dynamic_th {{limit}}", _WORDS, "MLT_{}"),),
    ),
)


def is_own_object(table: str, name: str) -> bool:
    """Whether mltswitch made an object for a plan, so that it is removed when nothing needs it any more."""
    names = [form.name for setting in SETTINGS if setting.objects == table for form in setting.forms]
    patterns = (each.format("Q[0-7]_Ethernet[0-9]+") for each in names if "{}" in each)
    is_map = table == "DSCP_TO_TC_MAP" and name in _MAPS
    return is_map or any(re.fullmatch(pattern, name) for pattern in patterns)


@remembering_last
def document(state: SwitchState) -> Database:
    """Every object that the state needs, before those that refer to it; raises UnsupportedPlanError.

    Callers must not change the entries: the next caller may get the same ones.
    """
    routing = state.segment_routing or SegmentRouting(None, ())
    tables = {**_maps(state.ports), **_queues(state.ports), **_segments(routing.locator)}
    tables["STATIC_ROUTE"] = {
        f"{_VRF}|{network_text(route.prefix)}": _DISCARD
        if route.discards
        else {"nexthop": address_text(route.next_hop), "ifname": route.port}
        for route in state.routes
    }
    tables["STATIC_ROUTE"] |= {
        f"{_VRF}|{route.prefix}": {"nexthop": str(route.next_hop), "ifname": route.port}
        for route in routing.routes
    }
    return {table: entries for table, entries in tables.items() if entries}


def _maps(ports: Sequence[PortState]) -> Database:
    leading: dict[str, PortState] = {}
    code_points: db.Table = {}
    bindings: db.Table = {}
    for port in ports:
        if not port.queues:
            raise UnsupportedPlanError("has no queues", where=f"port {port.name}")
        # Hosts have no business in network control, the first class: nothing leads there from their ports.
        name = MAP if port.queues[0].dscps else _HOST_MAP
        first = leading.setdefault(name, port)
        if first is port:
            queue_of = {dscp: queue.queue for queue in port.queues for dscp in queue.dscps}
            code_points[name] = {str(dscp): str(queue_of[dscp]) for dscp in sorted(queue_of)}
        elif _classification(port) != _classification(first):
            raise UnsupportedPlanError(
                f"its code points lead elsewhere than those of {first.name}: one map serves all ports that "
                "are alike",
                where=f"port {port.name}",
            )
        if not port.trusted:
            name += UNTRUSTED
            code_points[name] = _untrusted_map(first.queues[-1].queue)
        bindings[port.name] = port_maps(name)
    table, key, field, value = COUNTERS
    tables: Database = {
        table: {key: {field: value}},
        "DSCP_TO_TC_MAP": code_points,
        "TC_TO_QUEUE_MAP": {MAP: _TC_TO_QUEUE},
        "TC_TO_PRIORITY_GROUP_MAP": {MAP: _TC_TO_PRIORITY_GROUP},
        "PORT_QOS_MAP": bindings,
    }
    return tables if ports else {}


def _classification(port: PortState) -> list[tuple[int, tuple[int, ...]]]:
    return [(queue.queue, queue.dscps) for queue in port.queues]


def _untrusted_map(background: int) -> Entry:
    """DSCP_TO_TC_MAP that believes nothing."""
    return {str(dscp): str(background) for dscp in range(DSCP_COUNT)}


def port_maps(name: str) -> Entry:
    """The fields of a port's PORT_QOS_MAP entry that mltswitch sets; others, PFC for instance, stay."""
    return {"dscp_to_tc_map": name, "tc_to_queue_map": MAP, "tc_to_pg_map": MAP}


def _queues(ports: Sequence[PortState]) -> Database:
    tables: Database = {table: {} for table in (*(each.objects for each in SETTINGS), *QUEUE_TABLES)}
    kinds: dict[object, list[tuple[str, int, Entry]]] = {}
    for port in ports:
        own = [queue for queue in port.queues if not queue.is_lossless]
        kind = tuple(map(_kind_of, own))
        if kind not in kinds:
            kinds[kind] = [
                (table, queue.queue, _references(tables, table, queue, port.name))
                for queue in own
                for table in QUEUE_TABLES
            ]
        for table, queue_number, entry in kinds[kind]:
            tables[table][f"{port.name}|{queue_number}"] = entry
    return tables


def _references(tables: Database, table: str, queue: QueueState, port: str) -> Entry:
    """The entry of a queue in one of QUEUE_TABLES; the objects to which it refers go into `tables`."""
    share = queue.limit if isinstance(queue.limit, AlphaLimit) else None
    values = {name: getattr(queue, name) for name in _WORDS} | {"limit": share}
    entry: Entry = {}
    for setting in SETTINGS:
        written = [(form, fields) for form in setting.forms if (fields := form.write(values)) is not None]
        if setting.table == table and written:
            form, fields = written[0]
            name = entry[setting.field] = form.name.format(f"Q{queue.queue}_{port}")
            tables[setting.objects][name] = fields
    return entry


def _segments(locator: IPv6Network | None) -> Database:
    """A switch's locator and its one segment, or none where the switch ends no segment."""
    if locator is None:
        return {}
    if locator.prefixlen != _LOCATOR_BITS:
        raise UnsupportedPlanError(f"locator {locator} has not {_LOCATOR_BITS} bits", where="segment routing")
    return {
        LOCATORS: {MAP: {"prefix": str(locator.network_address), **_SEGMENT_BITS}},
        SEGMENTS: {f"{MAP}|{locator}": {"action": "uN", "decap_dscp_mode": "uniform"}},
    }


def _locator(database: Database) -> IPv6Network | None:
    """Our locator with its one segment; None where there is none, or it ends nothing that a plan means."""
    fields = database.get(LOCATORS, {}).get(MAP, {})
    own = {key: entry for key, entry in database.get(SEGMENTS, {}).items() if is_own_segment(key)}
    try:
        locator = IPv6Network((text_of(fields.get("prefix", "")), _LOCATOR_BITS))
    except ValueError:
        return None
    return locator if _segments(locator) == {LOCATORS: {MAP: fields}, SEGMENTS: own} else None


def is_own_segment(key: str) -> bool:
    """Whether a key of SRV6_MY_SIDS belongs to mltswitch's locator."""
    return key.startswith(f"{MAP}|")


def prefix_of(key: str) -> Prefix | None:
    """Prefix of a key of STATIC_ROUTE in the default VRF; None for other routes."""
    vrf, _, prefix = key.rpartition("|")
    if vrf not in {"", _VRF}:
        return None
    try:
        return IPv6Network(prefix, strict=False) if ":" in prefix else ipv4_network(prefix, strict=False)
    except ValueError:
        return None


def own_prefixes(state: SwitchState) -> OwnPrefixes:
    """The prefixes to which static routes are managed by mltswitch."""
    return OwnPrefixes((*state.routes, *(state.segment_routing.routes if state.segment_routing else ())))


def paths_in(
    database: Database, wanted: SwitchState | None = None
) -> tuple[tuple[RouteState, ...], SegmentRouting | None]:
    """The static routes and segments of a file; of a device, the plan's, in its order."""
    own = None if wanted is None else own_prefixes(wanted)
    found = [
        route
        for key, fields in database.get("STATIC_ROUTE", {}).items()
        if (prefix := prefix_of(key)) is not None and (own is None or prefix in own)
        for route in _routes(prefix, fields)
    ]
    routes = tuple(route for route in found if isinstance(route, RouteState))
    segment_routes = tuple(route for route in found if isinstance(route, SegmentRouteState))
    planned = wanted and wanted.segment_routing
    if wanted is not None:
        routes = in_order_of(wanted.routes, routes)
        segment_routes = in_order_of(planned.routes if planned else (), segment_routes)
    routing = SegmentRouting(_locator(database), segment_routes)
    return routes, routing if planned or routing != SegmentRouting(None, ()) else None


def _routes(prefix: Prefix, fields: Entry) -> Iterator[RouteState | SegmentRouteState]:
    """One route for each next hop; `port` holds whatever else the entry says, too."""
    if fields == _DISCARD and isinstance(prefix, IPv4Network):
        yield RouteState(prefix, NO_NEXT_HOP, "")
        return
    rest = dict(fields)
    hops, ports = (text_of(rest.pop(name, "")).split(",") for name in ("nexthop", "ifname"))
    others = "".join(f" {name} {text_of(value)}" for name, value in rest.items())
    for hop, port in zip_longest(hops, ports[: len(hops)], fillvalue=""):
        if isinstance(prefix, IPv4Network):
            yield RouteState(prefix, _address(ipv4_address, hop, NO_NEXT_HOP), port + others)
        else:
            yield SegmentRouteState(prefix, _address(IPv6Address, hop, IPv6Address(0)), port + others)


def _address(read: Callable[[str], _Address], text: str, unread: _Address) -> _Address:
    try:
        return read(text)
    except ValueError:
        return unread


class PortReader:
    """Reads the ports of one database; keys are sorted to ports once, ports that are alike read once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys = {table: db.keys_by_port(database.get(table, {})) for table in QUEUE_TABLES}
        self._read: list[tuple[object, PortState]] = []
        """(what a port has, its state): few kinds, so that they are looked through."""

    def planned_queues(self, port: str) -> list[int]:
        """The queues of a port in table QUEUE, in that order, with lossless ones put before the last."""
        keys = self._keys["QUEUE"].get(port, ())
        named = list(dict.fromkeys(queue for _, own in keys for queue in own if queue not in LOSSLESS))
        bound = text_of(self._database["PORT_QOS_MAP"][port].get("dscp_to_tc_map", ""))
        classes = self._object("DSCP_TO_TC_MAP", bound.removesuffix(UNTRUSTED)) or {}
        led = (queue for dscp in classes if (queue := number(classes, dscp)) is not None)
        return [*named[:-1], *lossless_queues(LOSSLESS, named, led), *named[-1:]]

    def port_state(self, port: str, queues: Sequence[int]) -> PortState:
        """State of some queues of one port; what no plan asks for is in `unexpected`, in SONiC's words."""
        maps = self._database.get("PORT_QOS_MAP", {}).get(port, {})
        entries: dict[str, list[Entry]] = {table: [] for table in QUEUE_TABLES}
        overlaps = []
        for table in QUEUE_TABLES:
            for queue in queues:
                keys = [key for key, own in self._keys[table].get(port, ()) if queue in own]
                entries[table].append(self._database[table][keys[0]] if keys else {})
                if len(keys) > 1:
                    overlaps.append(f"{table} has {' and '.join(keys)} for queue {queue}")
        found = (maps, queues, entries, overlaps)
        for known, like in self._read:
            if known == found:
                return replace(like, name=port)
        trusted, leads_to, unexpected = self._classification(maps, queues)
        unexpected += overlaps
        states = []
        for index, queue in enumerate(queues):
            state = QueueState(
                queue, indices_of(leads_to, queue), None, Unlimited(), is_lossless=queue in LOSSLESS
            )
            for setting in () if state.is_lossless else SETTINGS:
                name = entries[setting.table][index].get(setting.field)
                values, problem = self._values(setting, name)
                state = replace(state, **values)
                unexpected += [f"queue {queue} {setting.words} {problem}"] if problem else []
            states.append(state)
        self._read.append((found, PortState(port, trusted, None, tuple(states), tuple(unexpected))))
        return self._read[-1][1]

    def _object(self, table: str, name: Value | None) -> Entry | None:
        return self._database.get(table, {}).get(name) if isinstance(name, str) else None

    def _values(self, setting: Setting, name: Value | None) -> tuple[Mapping[str, Any], str]:
        """What an object says of a queue, or how it differs from all that plans have."""
        if name is None and setting.may_lack:
            return {}, ""
        fields = self._object(setting.objects, name) or {}
        for form in setting.forms:
            if (values := form.read(fields)) is not None:
                return values, ""
        shown = ", ".join(f"{field} {text_of(value)}" for field, value in fields.items())
        return {}, text_of(name or "none") + (f" ({shown})" if shown else "")

    def _classification(self, maps: Entry, queues: Sequence[int]) -> tuple[bool, list[int | None], list[str]]:
        """Whether the port is trusted, its queue for each DSCP where it is, and what no plan asks for."""
        bound, unexpected = maps.get("dscp_to_tc_map"), []
        believed, trusted = bound, bound is not None
        if bound not in _MAPS:
            unexpected.append(f"dscp_to_tc_map {text_of(bound or 'none')}")
        elif text_of(bound).endswith(UNTRUSTED):
            believed, trusted = text_of(bound).removesuffix(UNTRUSTED), False
            if self._object("DSCP_TO_TC_MAP", bound) not in [_untrusted_map(queue) for queue in queues[-1:]]:
                unexpected.append(f"DSCP_TO_TC_MAP|{bound} is not background alone")
        bindings = self._object("TC_TO_QUEUE_MAP", maps.get("tc_to_queue_map"))
        if bindings is None:
            unexpected.append(f"tc_to_queue_map {text_of(maps.get('tc_to_queue_map') or 'none')}")
        classes = self._object("DSCP_TO_TC_MAP", believed or MAP) or {}
        texts = (text_of(classes.get(str(dscp), "")) for dscp in range(DSCP_COUNT))
        leads_to = [number(bindings or {}, text) for text in texts]
        if self._object("TC_TO_PRIORITY_GROUP_MAP", maps.get("tc_to_pg_map")) != _TC_TO_PRIORITY_GROUP:
            unexpected.append(f"tc_to_pg_map {text_of(maps.get('tc_to_pg_map') or 'none')}")
        known = (*port_maps(MAP), *_PFC_FIELDS)
        unexpected += (f"{name} {text_of(value)}" for name, value in maps.items() if name not in known)
        return trusted, leads_to, unexpected


def write_files(state: SwitchState, _capabilities: Capabilities) -> dict[str, str]:
    """The one file `mltswitch.json`, a document for `config load`."""
    return {FILE: db.dump(document(state))}


def read_files(files: Mapping[str, str], _capabilities: Capabilities) -> SwitchState:
    """Read the file of `write_files` back; raises UserInputError naming an object that does not belong."""
    try:
        found = db.load(files[FILE])
    except (ValueError, RecursionError) as error:
        raise UserInputError(f"no configuration: {error}", where=FILE) from None
    reader = PortReader(found)
    # The document writes a port's queues in order of service.
    ports = tuple(
        reader.port_state(name, reader.planned_queues(name)) for name in found.get("PORT_QOS_MAP", {})
    )
    for port in ports:
        for problem in port.unexpected:
            raise UserInputError(problem, where=f"{FILE}: port {port.name}")
    state = SwitchState(ports, *paths_in(found))
    needed = document(state)
    for table in sorted(found.keys() | needed.keys()) if found != needed else ():
        entries, wanted = found.get(table, {}), needed.get(table, {})
        for key in sorted(entries.keys() | wanted.keys()):
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
    return state
