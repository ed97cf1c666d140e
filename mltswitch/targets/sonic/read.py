"""What a SONiC switch answers, as state."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, HazardError
from mltswitch.targets.base import (
    CounterSource,
    EgressCounters,
    Identity,
    Lossless,
    QueueCounters,
    QueuePlace,
    RunningState,
)
from mltswitch.targets.common import (
    NOT_SAVED,
    POLL_SECONDS,
    SAVED_UNREAD,
    count_in,
    indices_of,
    json_in,
    known_form,
    unknown_box,
)
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.sonic.capabilities import MODELS, POOL, model_of
from mltswitch.targets.sonic.database import Database, Entry, QueueKey, listing_keys, load, split
from mltswitch.targets.sonic.document import COUNTERS
from mltswitch.targets.sonic.interpret import (
    PortReader,
    is_asymmetric,
    paused_queues,
    route_of,
    routes_of,
)
from mltswitch.targets.sonic.releases import build_of, release_of
from mltswitch.targets.sonic.segments import OwnSegmentPrefixes, locator_of
from mltswitch.targets.sonic.segments import in_order_of as segments_in_order_of
from mltswitch.targets.state import PortState, RouteState, SegmentRouteState, SegmentRouting, SwitchState
from mltswitch.wire.tos import DSCP_COUNT

QUERY: Final = "show runningconfiguration all"
HOSTNAME: Final = "hostname"
SHOW_VERSION: Final = "show version"
VERSION: Final = "cat /etc/sonic/sonic_version.yml"
SAVED: Final = "sudo cat /etc/sonic/config_db.json || true"
"""With which it starts (`config save`)."""
_FIELD: Final = re.compile(r"^([A-Za-z][A-Za-z ]*+): *+(\S(?:.*\S)?)", re.MULTILINE)


def running_database(answers: Mapping[str, str]) -> Database:
    """CONFIG_DB from the answer, which may begin with warnings; raises DeviceError.

    Text among the tables is the routing daemon's configuration, `bgpraw` (sonic-utilities, show/main.py).
    """
    text = answers[QUERY]
    try:
        return load(text[max(text.find("{"), 0) :], skip_text=True)
    except (ValueError, RecursionError) as error:
        raise DeviceError(f"cannot read the configuration: {error}", where=QUERY) from None


def identify(answers: Mapping[str, str]) -> Identity:
    """Who the switch says it is; raises DeviceError.

    The fields of `show version` are those that the SONiC command reference prints; the serial number is N/A
    on a virtual switch, and missing in old releases.
    """
    shown = dict(_FIELD.findall(answers[SHOW_VERSION]))
    if "SONiC Software Version" not in shown:
        raise DeviceError(
            "is no answer of SONiC", where=SHOW_VERSION, expected="a line SONiC Software Version"
        )
    serial = shown.get("Serial Number", "")
    return Identity(
        answers[HOSTNAME].strip(),
        "" if serial == "N/A" else serial,
        shown.get("HwSKU", ""),
        shown["SONiC Software Version"].removeprefix("SONiC."),
    )


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """The commands whose answers `read_answers` and `change_between` need."""
    del wanted
    return (QUERY, VERSION, SAVED)


def running_build(answers: Mapping[str, str]) -> str:
    """The build that the device runs; raises DeviceError."""
    if build := build_of(answers[VERSION]):
        return build
    raise DeviceError("cannot read which release it runs", where=VERSION, expected="a line build_version")


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """State of the wanted ports and queues that exist, and our routes.

    Raises DeviceError for what cannot be read, and for what the plan cannot stand on: another buffer pool,
    another chip, PFC on a queue of ours.
    """
    database = _by_port(running_database(answers))
    notes: list[str] = []
    if wanted.ports:
        check_kind(database)
        notes += _check_hardware(database, capabilities.hardware)
    lossless = tuple(_check_flow_control(database, wanted))
    state = state_of(database, wanted)
    build = running_build(answers)
    if release_of(build) is None:
        notes.append(
            f"SONiC build {build} is none of the public releases that are known: what its updater lets "
            "change is taken to be what SONiC's master lets"
        )
    if not answers[SAVED].strip():
        notes.append(SAVED_UNREAD)
    elif _saved_state(answers[SAVED], wanted) != state:
        notes.append(NOT_SAVED)
    return RunningState(state, answers, tuple(notes), lossless=lossless)


def _saved_state(text: str, wanted: SwitchState) -> SwitchState | None:
    """What a start would bring of the wanted ports and routes; None for what no switch would start with."""
    try:
        return state_of(_by_port(load(text, skip_text=True)), wanted)
    except (ValueError, RecursionError, DeviceError):
        return None


def _by_port(database: Database) -> Database:
    """Maps with an entry for each port; of queues, the reader sees which keys overlap."""
    return split(database, [each for each in listing_keys(database) if each[0] == "PORT_QOS_MAP"])


def state_of(database: Database, wanted: SwitchState) -> SwitchState:
    """What a configuration means for the wanted ports, with our routes."""
    reader = PortReader(database)
    ports = tuple(
        reader.port_state(port.name, [queue.queue for queue in port.queues])
        for port in wanted.ports
        if port.name in database.get("PORT", {})
    )
    foreign = foreign_objects(database, [port.name for port in ports])
    ports = _with_counters(
        database,
        tuple(replace(port, unexpected=(*port.unexpected, *foreign[port.name])) for port in ports),
    )
    own, own_segments = OwnPrefixes(wanted.routes), OwnSegmentPrefixes(wanted.segment_routing)
    found = [
        route
        for key, fields in database.get("STATIC_ROUTE", {}).items()
        if (prefix := route_of(key)) in own or prefix in own_segments
        for route in routes_of(key, fields)
    ]
    routes = in_order_of(wanted.routes, (route for route in found if isinstance(route, RouteState)))
    segment_routes = [route for route in found if isinstance(route, SegmentRouteState)]
    routing = SegmentRouting(
        locator_of(database), segments_in_order_of(wanted.segment_routing, segment_routes)
    )
    is_used = wanted.segment_routing is not None or routing != SegmentRouting(None, ())
    others = tuple(foreign[""]) if ports else ()
    return SwitchState(ports, routes, routing if is_used else None, unexpected=others)


def _check_hardware(database: Database, hardware: str) -> Iterator[str]:
    """The predicted losses hold for one model and pool; the dynamic buffer model leaves the size out.

    Of a box that nobody knows, a note says so.
    """
    pool = database.get("BUFFER_POOL", {}).get(POOL, {})
    if pool.get("mode") != "dynamic":
        raise HazardError(
            f"buffer pool {POOL} is {pool.get('mode', 'missing')}",
            expected="dynamic",
            hint="load the vendor's buffers with `config qos reload`, before mltswitch",
        )
    metadata = database.get("DEVICE_METADATA", {}).get("localhost", {})
    model = model_of(*(str(metadata.get(name, "")) for name in ("platform", "hwsku")))
    planned = next(each for each in MODELS if each.capabilities.hardware == hardware)
    if model is None:
        name = metadata.get("platform", metadata.get("hwsku", "this box"))
        yield unknown_box(str(name), hardware)
    elif model is not planned:
        raise DeviceError(
            f"the device is a {model.capabilities.hardware}, and the plan is rounded to a {hardware}: "
            "its thresholds, limits and predicted losses do not hold",
            where=f"DEVICE_METADATA, {metadata.get('platform', metadata.get('hwsku'))}",
            hint=f"give the device hardware {model.capabilities.hardware} in the fabric file",
        )
    if "size" in pool and pool["size"] != str(planned.pool_size_bytes):
        raise HazardError(
            f"buffer pool {POOL} has {pool['size']} B, so the plan's limits and predicted losses do not hold",
            expected=f"{planned.pool_size_bytes} B",
            hint="load the buffers of a top-of-rack switch, before mltswitch",
        )


def _with_counters(database: Database, ports: tuple[PortState, ...]) -> tuple[PortState, ...]:
    """Where the counters of marks are off, the first port says so: they are the whole switch's."""
    groups = database.get("FLEX_COUNTER_TABLE", {})
    for name, fields in COUNTERS.items():
        found = groups.get(name, {})
        faults = tuple(
            f"FLEX_COUNTER_TABLE|{name} {field} {found.get(field, 'none')}"
            for field, value in fields.items()
            if found.get(field) != value
        )
        if faults and ports:
            first = replace(ports[0], unexpected=(*ports[0].unexpected, *faults))
            ports = (first, *ports[1:])
    return ports


def _check_flow_control(database: Database, wanted: SwitchState) -> Iterator[Lossless]:
    """Queues with PFC that the plan leaves alone; raises HazardError for others."""
    maps = database.get("PORT_QOS_MAP", {})
    for port in wanted.ports:
        lossless = paused_queues(database, port.name)
        bound = {**maps.get("global", {}), **maps.get(port.name, {})}
        classes = database.get("DSCP_TO_TC_MAP", {}).get(str(bound.get("dscp_to_tc_map")), {})
        queues = database.get("TC_TO_QUEUE_MAP", {}).get(str(bound.get("tc_to_queue_map")), {})
        leads_to = [queues.get(str(classes.get(str(dscp)))) for dscp in range(DSCP_COUNT)]
        planned = {queue.queue for queue in port.queues if not queue.is_lossless}
        for number in sorted(lossless - planned):
            yield Lossless(port.name, number, indices_of(leads_to, str(number)))
        for queue in port.queues:
            if queue.is_lossless:
                continue
            if queue.queue in lossless and is_asymmetric(database, port.name):
                raise HazardError(
                    f"asymmetric PFC heeds pause frames of every priority, for queue {queue.queue}, too, "
                    "which the plan uses: whoever sends them stops it",
                    where=f"port {port.name}",
                    hint=f"switch it off first: `sudo pfc config asymmetric off {port.name}`",
                )
            if queue.queue in lossless:
                raise HazardError(
                    f"PFC is on for queue {queue.queue}, which the plan uses: WRED on a lossless queue drops "
                    "packets that are not ECN-capable",
                    where=f"port {port.name}",
                    hint=f"switch PFC off for it first: PORT_QOS_MAP|{port.name}, pfc_enable",
                )


QUEUES: Final = "show queue counters --json"
MARKS: Final = "show queue wredcounters --json || true"
"""Releases before 202505 have no such command, and many chips answer N/A."""
TYPES: Final = ("UC", "ALL")
"""Of a unicast queue, and of one for everything, where the chip has no others (queuestat, QUEUE_TYPE_ALL)."""


def _read_counters(answers: Mapping[str, str], places: Iterable[QueuePlace]) -> QueueCounters:
    """The counters of queues; how much waits in them, no command tells. Raises DeviceError."""
    counters: dict[QueuePlace, EgressCounters] = {}
    with known_form(QUEUES):
        ports = json_in(answers[QUEUES])
        marks = json_in(answers[MARKS]) if "{" in answers[MARKS] else {}
        for port, queue in places:
            found, wred = _of(ports[port], queue), _of(marks.get(port, {}), queue)
            counters[port, queue] = EgressCounters(
                sent_bytes=count_in(found.get("totalbytes")),
                sent_packets=count_in(found.get("totalpacket")),
                dropped_packets=count_in(found.get("droppacket")),
                ce_marked_packets=count_in(wred.get("ecnmarkedpacket")),
                dropped_at_threshold_packets=count_in(wred.get("wreddroppacket")),
            )
    return counters


COUNTER_SOURCE: Final = CounterSource(lambda _: (QUEUES, MARKS), _read_counters, POLL_SECONDS)


def _of(port: Mapping[str, Mapping[str, str]], queue: int) -> Mapping[str, str]:
    return next((port[name] for kind in TYPES if (name := f"{kind}{queue}") in port), {})


# Objects on a port of the plan that nobody here knows may hold back or drop packets. The tables are those of
# SONiC's YANG models (sonic-buildimage, src/sonic-yang-models). Queues and buffers of a LAG are those of its
# members (files/build_templates/qos_config.j2), so being one changes nothing.
_OTHER_TABLES: Final = re.compile(
    r"BGP_NEIGHBOR(_AF)?|BREAKOUT_CFG|CABLE_LENGTH|DEVICE_NEIGHBOR|DHCP_RELAY|DHCP_SERVER_IPV4(_PORT)?|DHCPV4_RELAY"
    r"|EVPN_ETHERNET_SEGMENT|FG_NHG_MEMBER|(VLAN_|PORTCHANNEL_)?INTERFACE|LLDP(_PORT)?"
    r"|MCLAG_(INTERFACE|DOMAIN|UNIQUE_IP)|MIRROR_SESSION|MUX_CABLE|NEIGH|NTP|PBH_TABLE|PFC_WD|PIM_INTERFACE"
    r"|PORT_QOS_MAP|PORTCHANNEL(_MEMBER)?|RADIUS(_SERVER)?|ROUTE_MAP|SFLOW(_SESSION)?|STATIC_ROUTE"
    r"|STP_((VLAN_|MST_)?PORT|VLAN)|SUPPRESS_VLAN_NEIGH|TACPLUS|VLAN(_MEMBER|_SUB_INTERFACE)?|VXLAN_TUNNEL_MAP"
    r"|XCVRD_LOG"
)
"""About addresses, bridging, routing, cables, logins and monitoring; PFC_WD acts on priorities with PFC alone
(sonic-swss, pfcwdorch.cpp), and PORT_QOS_MAP is read field by field."""
_PORT_FIELDS: Final = re.compile(
    r"admin_status|adv_(interface_types|speeds)|alias|asic_port_name|autoneg|description|dhcp_rate_limit"
    r"|dom_polling|fast_linkup|fec|index|interface_type|lanes|laser_freq|link_training|macsec|mode|mtu|mux_cable"
    r"|pfc_asym|role|speed|subport|tpid|tx_power"
)
"""Of PORT, sonic-port.yang; its others belong to switches with virtual output queues."""
_DEFAULT_PROFILES: Final = frozenset(
    f"{way}_{kind}_profile" for way in ("ingress", "egress") for kind in ("lossy", "lossless")
)
_LOSSY: Final = "ingress_lossy_profile"
"""Of the vendors' buffer defaults (device/, buffers_defaults_t0.j2)."""
_ACL_TYPES: Final = frozenset(
    {"L3", "L3V6", "L3V4V6", "MIRROR", "MIRRORV6", "MIRROR_DSCP", "CTRLPLANE", "MCLAG"}
)
"""Kinds of ACLs that drop, redirect or copy packets (sonic-swss, aclorch.cpp); others may set a DSCP."""
_SWITCH_TYPES: Final = (None, "", "npu")


def check_kind(database: Database) -> None:
    """Raise HazardError for a switch whose queues have other keys than a single chip's."""
    metadata = database.get("DEVICE_METADATA", {}).get("localhost", {})
    for field, known in (("switch_type", _SWITCH_TYPES), ("sub_role", (None, "")), ("asic_name", (None, ""))):
        if metadata.get(field) not in known:
            raise HazardError(
                f"{field} is {metadata[field]}: its ports have other queues than those that a plan can name",
                where="DEVICE_METADATA|localhost",
                expected="a switch with one chip and queues of its own ports",
            )


def foreign_objects(database: Database, ports: Collection[str]) -> dict[str, list[str]]:
    """Port → objects on it, its LAG or its VLANs that nobody here knows, in SONiC's words; the empty one: the
    whole switch."""
    found: dict[str, list[str]] = {port: [] for port in ("", *ports)}
    carried = {port: [port] for port in ports}
    for members in ("PORTCHANNEL_MEMBER", "VLAN_MEMBER"):  # in this order: a LAG may be a VLAN's member
        for key in database.get(members, {}):
            group, _, member = key.partition("|")
            carried.setdefault(group, []).extend(carried.get(member, ()))
    for name, value in database.get("PORT_QOS_MAP", {}).get("global", {}).items():
        if name != "dscp_to_tc_map":  # the port's own map comes first
            found[""].append(f"PORT_QOS_MAP|global {name} {value}")
    for table, entries in database.items():
        if _OTHER_TABLES.fullmatch(table):
            continue
        for key, fields in entries.items():
            touched = {port for name in _names(key, fields) for port in carried.get(name, ())}
            for text in _touches(database, table, key, fields) if touched else ():
                for port in touched:
                    found[port].append(f"{table}|{key}{text}")
    return found


def _names(key: str, fields: Entry) -> Iterator[str]:
    yield from filter(None, re.split(r"[|,]", key))
    for value in fields.values():
        yield from filter(None, value.split(",") if isinstance(value, str) else value)


def _touches(database: Database, table: str, key: str, fields: Entry) -> Iterator[str]:
    """What of an object counts: its fields, or an empty text for all of it."""
    match table:
        case "PORT":
            yield from (
                f" {name} {value}" for name, value in fields.items() if not _PORT_FIELDS.fullmatch(name)
            )
        case "QUEUE" | "BUFFER_QUEUE" | "BUFFER_PG" if (parsed := QueueKey.parse(key)) is not None:
            # The plan's packets are in priority group 0 (document.TC_TO_PRIORITY_GROUP).
            if table == "BUFFER_PG" and 0 in parsed.queues and fields.get("profile") != _LOSSY:
                yield f" profile {fields.get('profile')}"
        case "BUFFER_PORT_INGRESS_PROFILE_LIST" | "BUFFER_PORT_EGRESS_PROFILE_LIST":
            if not _DEFAULT_PROFILES.issuperset(_names("", fields)):
                yield f" {fields}"
        case "ACL_TABLE":
            rules = (name for name in database.get("ACL_RULE", {}) if name.startswith(f"{key}|"))
            acts = {field for name in rules for field in database["ACL_RULE"][name]}
            if fields.get("type") not in _ACL_TYPES or any(
                "SET" in each or "POLICER" in each for each in acts
            ):
                yield f" type {fields.get('type')}"
        case _:
            yield ""
