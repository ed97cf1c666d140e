"""State as the CONFIG_DB objects that we own, and nothing else.

Traffic class n is queue n. The map MLT spreads all 64 code points over the plan's queues; those which the
device led to its lossless queues 3 and 4 before (RDMA, by default DSCP 3 and 4) become background on the
plan's ports unless the fabric file names them, because a plan says where every code point goes. The
traffic classes 3 and 4 keep their priority groups and queues, and pfc_enable is not touched. An untrusted
port gets a map of its own that makes everything background: without any, the map of the switch
(PORT_QOS_MAP|global) would apply.

RED/ECN and buffer profiles are named after the queue and the first of the ports that share them, not
after their contents: the configuration updater takes a port down to change which profile its queues refer
to, but changes a profile in place.
"""

from typing import Final

from mltswitch.capabilities import AlphaLimit
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.sonic.capabilities import LARGEST_THRESHOLD_BYTES, LOSSLESS, POOL, TRAFFIC_CLASSES
from mltswitch.targets.sonic.database import Database, Entry, Table
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
from mltswitch.wire.tos import DSCP_COUNT

MAP: Final = "MLT"
UNTRUSTED_MAP: Final = "MLT_UNTRUSTED"
SCHEDULER: Final = "mlt_strict"
STRICT: Final[Entry] = {"type": "STRICT"}
TC_TO_QUEUE: Final[Entry] = {str(number): str(number) for number in range(TRAFFIC_CLASSES)}
TC_TO_PRIORITY_GROUP: Final[Entry] = {
    str(number): str(number if number in LOSSLESS else 0) for number in range(TRAFFIC_CLASSES)
}
VRF: Final = "default"


def document(state: SwitchState) -> Database:
    """Every object that the state needs, before those that refer to it; raises UnsupportedPlanError."""
    tables: Database = {}
    if state.ports:
        tables |= _maps(state.ports)
        tables |= _queues(state.ports)
    if state.routes:
        tables["STATIC_ROUTE"] = {f"{VRF}|{route.prefix}": route_fields(route) for route in state.routes}
    return tables


def dscp_map(queues: tuple[QueueState, ...]) -> Entry:
    """DSCP_TO_TC_MAP of a trusted port."""
    leads_to = {dscp: queue.queue for queue in queues for dscp in queue.dscps}
    return {str(dscp): str(leads_to[dscp]) for dscp in sorted(leads_to)}


def untrusted_map(background: int) -> Entry:
    """DSCP_TO_TC_MAP that believes nothing."""
    return {str(dscp): str(background) for dscp in range(DSCP_COUNT)}


def port_maps(*, trusted: bool) -> Entry:
    """Our fields of PORT_QOS_MAP; the port's other fields, PFC for instance, stay."""
    return {
        "dscp_to_tc_map": MAP if trusted else UNTRUSTED_MAP,
        "tc_to_queue_map": MAP,
        "tc_to_pg_map": MAP,
    }


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


def route_fields(route: RouteState) -> Entry:
    """STATIC_ROUTE with one next hop."""
    return {"nexthop": str(route.next_hop), "ifname": route.port}


def _maps(ports: tuple[PortState, ...]) -> Database:
    leading = ports[0]
    classification = dscp_map(leading.queues)
    for port in ports:
        if dscp_map(port.queues) != classification:
            raise UnsupportedPlanError(
                f"its code points lead elsewhere than those of {leading.name}: one map serves all ports",
                where=f"port {port.name}",
            )
    code_points: Table = {MAP: classification}
    if not all(port.trusted for port in ports):
        code_points[UNTRUSTED_MAP] = untrusted_map(leading.queues[-1].queue)
    return {
        "DSCP_TO_TC_MAP": code_points,
        "TC_TO_QUEUE_MAP": {MAP: dict(TC_TO_QUEUE)},
        "TC_TO_PRIORITY_GROUP_MAP": {MAP: dict(TC_TO_PRIORITY_GROUP)},
        "PORT_QOS_MAP": {port.name: port_maps(trusted=port.trusted) for port in ports},
    }


def _queues(ports: tuple[PortState, ...]) -> Database:
    tables: Database = {
        "SCHEDULER": {SCHEDULER: dict(STRICT)},
        "WRED_PROFILE": {},
        "BUFFER_PROFILE": {},
        "QUEUE": {},
        "BUFFER_QUEUE": {},
    }
    first_of: dict[tuple[tuple[object, ...], ...], str] = {}
    for port in ports:
        alike = tuple((queue.queue, queue.ecn_threshold_bytes, queue.limit) for queue in port.queues)
        group = first_of.setdefault(alike, port.name)
        for queue in port.queues:
            key, profile = f"{port.name}|{queue.queue}", f"MLT_Q{queue.queue}_{group}"
            tables["QUEUE"][key] = {"scheduler": SCHEDULER}
            if queue.ecn_threshold_bytes is not None:
                tables["WRED_PROFILE"][profile] = wred_fields(_checked_threshold(port, queue))
                tables["QUEUE"][key]["wred_profile"] = profile
            tables["BUFFER_PROFILE"][profile] = buffer_fields(_checked_limit(port, queue))
            tables["BUFFER_QUEUE"][key] = {"profile": profile}
    return {name: entries for name, entries in tables.items() if entries}


def _checked_threshold(port: PortState, queue: QueueState) -> int:
    threshold = queue.ecn_threshold_bytes or 0
    if not 0 < threshold <= LARGEST_THRESHOLD_BYTES:
        raise UnsupportedPlanError(
            f"ECN threshold {threshold} B",
            where=f"port {port.name}, queue {queue.queue}",
            expected=f"1 to {LARGEST_THRESHOLD_BYTES} B",
        )
    return threshold


def _checked_limit(port: PortState, queue: QueueState) -> AlphaLimit:
    if not isinstance(queue.limit, AlphaLimit):
        raise UnsupportedPlanError(
            f"limit {queue.limit} is no share of a pool", where=f"port {port.name}, queue {queue.queue}"
        )
    return queue.limit
