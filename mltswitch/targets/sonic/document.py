"""State as the CONFIG_DB objects that we own, and nothing else.

Traffic class n is queue n. A map spreads all 64 code points over the plan's queues; those which the device
led to its lossless queues 3 and 4 before (RDMA, by default DSCP 3 and 4) become background on the plan's
ports unless the fabric file names them, because a plan says where every code point goes. The traffic
classes 3 and 4 keep their priority groups and queues, and pfc_enable is not touched.

Ports of the fabric have the map MLT, ports of hosts MLT_HOST, in which nothing leads to network control. A
port that is not trusted gets one that makes everything background, MLT_UNTRUSTED or MLT_HOST_UNTRUSTED:
without any, the map of the switch (PORT_QOS_MAP|global) would apply.

RED/ECN, buffer and bandwidth profiles are named after the queue and the first of the ports that share them,
not after their contents: the configuration updater takes a port down to change which profile its queues
refer to, but changes a profile in place.
"""

from functools import partial
from typing import Final

from mltswitch.capabilities import AlphaLimit, BitRate
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import address_text, network_text
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.sonic.capabilities import (
    BITS,
    LOSSLESS,
    POOL,
    TRAFFIC_CLASSES,
)
from mltswitch.targets.sonic.database import Database, Entry, Table
from mltswitch.targets.sonic.segments import segment_tables
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState, same_ports
from mltswitch.wire.tos import DSCP_COUNT

MAP: Final = "MLT"
HOST_MAP: Final = "MLT_HOST"
UNTRUSTED: Final = "_UNTRUSTED"
"""Ends the name of a map that believes nothing; before it stands the map that would apply."""
MAP_NAMES: Final = (MAP, HOST_MAP, MAP + UNTRUSTED, HOST_MAP + UNTRUSTED)
SCHEDULER: Final = "mlt_strict"
STRICT: Final[Entry] = {"type": "STRICT"}
NO_MINIMUM_BYTES: Final = 1
"""`cir` of a scheduler that has `pir` alone: the YANG model demands one above 0."""
TC_TO_QUEUE: Final[Entry] = {str(number): str(number) for number in range(TRAFFIC_CLASSES)}
TC_TO_PRIORITY_GROUP: Final[Entry] = {
    str(number): str(number if number in LOSSLESS else 0) for number in range(TRAFFIC_CLASSES)
}
DISCARD: Final = {"blackhole": "true"}
"""An entry of STATIC_ROUTE that discards (bgpcfgd's managers_static_rt.py)."""
COUNTERS: Final[Table] = {"WRED_ECN_QUEUE": {"FLEX_COUNTER_STATUS": "enable"}}
"""FLEX_COUNTER_TABLE: what `counterpoll wredqueue enable` sets; marks and drops by queue."""
VRF: Final = "default"


def document(state: SwitchState) -> Database:
    """Every object that the state needs, before those that refer to it; raises UnsupportedPlanError.

    Entries are not to be changed: another document of the same ports or routes has them, too.
    """
    tables = dict(_port_tables(state.ports))
    routes = dict(_route_table(state.routes))
    if state.segment_routing is not None:
        tables |= segment_tables(state.segment_routing)
        routes |= {
            f"{VRF}|{route.prefix}": {"nexthop": str(route.next_hop), "ifname": route.port}
            for route in state.segment_routing.routes
        }
    if routes:
        tables["STATIC_ROUTE"] = routes
    return tables


@remembering_last
def _route_table(routes: tuple[RouteState, ...]) -> Table:
    return {
        f"{VRF}|{network_text(route.prefix)}": dict(DISCARD)
        if route.discards
        else {"nexthop": address_text(route.next_hop), "ifname": route.port}
        for route in routes
    }


@partial(remembering_last, same=same_ports)
def _port_tables(ports: tuple[PortState, ...]) -> Database:
    if not ports:
        return {}
    return {
        "FLEX_COUNTER_TABLE": {name: dict(fields) for name, fields in COUNTERS.items()},
        **_maps(ports),
        **_queues(ports),
    }


def dscp_map(queues: tuple[QueueState, ...]) -> Entry:
    """DSCP_TO_TC_MAP of a trusted port."""
    leads_to = {dscp: queue.queue for queue in queues for dscp in queue.dscps}
    return {str(dscp): str(leads_to[dscp]) for dscp in sorted(leads_to)}


def untrusted_map(background: int) -> Entry:
    """DSCP_TO_TC_MAP that believes nothing."""
    return {str(dscp): str(background) for dscp in range(DSCP_COUNT)}


def believed_map(port: PortState) -> str:
    """Name of the map that applies to a port when it is trusted.

    Hosts have no business in network control, the first class: nothing leads there from their ports.
    """
    return MAP if port.queues[0].dscps else HOST_MAP


def port_maps(name: str) -> Entry:
    """Our fields of PORT_QOS_MAP; the port's other fields, PFC for instance, stay."""
    return {"dscp_to_tc_map": name, "tc_to_queue_map": MAP, "tc_to_pg_map": MAP}


def wred_fields(threshold_bytes: int) -> Entry:
    """WRED_PROFILE that marks ECN-capable packets above the threshold and drops the others.

    Both switches are needed: ecn alone does not drop, wred_green_enable alone does not mark. Only green, the
    colour of all packets that no policer has coloured: SAI refuses ecn_green while yellow or red are on.
    """
    return {
        "wred_green_enable": "true",
        "ecn": "ecn_green",
        "green_min_threshold": str(threshold_bytes),
        "green_max_threshold": str(threshold_bytes),
        "green_drop_probability": "100",
    }


def buffer_fields(limit: AlphaLimit) -> Entry:
    """BUFFER_PROFILE without a reserved part."""
    return {"pool": POOL, "size": "0", "dynamic_th": str(limit.exponent)}


def scheduler_fields(minimum: BitRate | None, maximum: BitRate | None) -> Entry:
    """SCHEDULER of a strict queue in bytes a second: below cir it is served first, above pir not at all."""
    if minimum is None and maximum is None:
        return dict(STRICT)
    fields: Entry = {**STRICT, "meter_type": "bytes"}
    fields["cir"] = str(minimum.bps // BITS if minimum is not None else NO_MINIMUM_BYTES)
    if maximum is not None:
        fields["pir"] = str(maximum.bps // BITS)
    return fields


def _maps(ports: tuple[PortState, ...]) -> Database:
    leading: dict[str, PortState] = {}
    code_points: Table = {}
    bindings: Table = {}
    for port in ports:
        if not port.queues:
            raise UnsupportedPlanError("has no queues", where=f"port {port.name}")
        name = believed_map(port)
        first = leading.setdefault(name, port)
        if first is port:
            code_points[name] = dscp_map(port.queues)
        elif _classification(port) != _classification(first):
            raise UnsupportedPlanError(
                f"its code points lead elsewhere than those of {first.name}: one map serves all ports that "
                "are alike",
                where=f"port {port.name}",
            )
        if not port.trusted:
            name += UNTRUSTED
            code_points[name] = untrusted_map(first.queues[-1].queue)
        bindings[port.name] = port_maps(name)
    return {
        "DSCP_TO_TC_MAP": code_points,
        "TC_TO_QUEUE_MAP": {MAP: dict(TC_TO_QUEUE)},
        "TC_TO_PRIORITY_GROUP_MAP": {MAP: dict(TC_TO_PRIORITY_GROUP)},
        "PORT_QOS_MAP": bindings,
    }


def _classification(port: PortState) -> list[tuple[int, tuple[int, ...]]]:
    return [(queue.queue, queue.dscps) for queue in port.queues]


def _queues(ports: tuple[PortState, ...]) -> Database:
    tables: Database = {
        "SCHEDULER": {},
        "WRED_PROFILE": {},
        "BUFFER_PROFILE": {},
        "QUEUE": {},
        "BUFFER_QUEUE": {},
    }
    first_of: dict[tuple[object, ...], list[tuple[int, Entry, Entry]]] = {}
    for port in ports:
        own = [queue for queue in port.queues if not queue.is_lossless]
        alike = tuple((q.queue, q.ecn_threshold_bytes, q.limit, q.minimum, q.maximum) for q in own)
        if alike not in first_of:
            first_of[alike] = [_profiles(tables, port, queue) for queue in own]
        for queue, settings, buffers in first_of[alike]:
            key = f"{port.name}|{queue}"
            tables["QUEUE"][key], tables["BUFFER_QUEUE"][key] = settings, buffers
    return {name: entries for name, entries in tables.items() if entries}


def _profiles(tables: Database, port: PortState, queue: QueueState) -> tuple[int, Entry, Entry]:
    """The queue's number, its entry in QUEUE and in BUFFER_QUEUE; what they refer to goes into `tables`."""
    suffix = f"Q{queue.queue}_{port.name}"
    minimum, maximum = (
        rate if isinstance(rate, BitRate) else None for rate in (queue.minimum, queue.maximum)
    )
    scheduler = scheduler_name(suffix, minimum, maximum)
    tables["SCHEDULER"][scheduler] = scheduler_fields(minimum, maximum)
    settings: Entry = {"scheduler": scheduler}
    profile = f"MLT_{suffix}"
    if queue.ecn_threshold_bytes is not None:
        tables["WRED_PROFILE"][profile] = wred_fields(queue.ecn_threshold_bytes)
        settings["wred_profile"] = profile
    if isinstance(queue.limit, AlphaLimit):
        tables["BUFFER_PROFILE"][profile] = buffer_fields(queue.limit)
    return queue.queue, settings, {"profile": profile}


def scheduler_name(suffix: str, minimum: BitRate | None, maximum: BitRate | None) -> str:
    """Schedulers with other fields have other names: orchagent never takes back a field of a live one."""
    if maximum is not None:
        return f"MLT_MAX_{suffix}"
    return SCHEDULER if minimum is None else f"MLT_MIN_{suffix}"
