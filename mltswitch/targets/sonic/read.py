"""Reads a SONiC switch's answers as state."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, PreflightError
from mltswitch.targets import base, common
from mltswitch.targets.sonic.capabilities import MODELS, POOL, TRAFFIC_CLASSES, model_of
from mltswitch.targets.sonic.database import Database, Entry, load, number, queues_in, split, text_of
from mltswitch.targets.sonic.objects import COUNTERS, PortReader, document, paths_in
from mltswitch.targets.sonic.releases import build_of, release_of
from mltswitch.targets.state import SwitchState
from mltswitch.wire.tos import DSCP_COUNT

QUERY: Final = "show runningconfiguration all"
HOSTNAME: Final = "hostname"
SHOW_VERSION: Final = "show version"
_VERSION: Final = "cat /etc/sonic/sonic_version.yml"
_SAVED: Final = "sudo cat /etc/sonic/config_db.json || true"
"""With which it starts (`config save`)."""
QUERIES: Final = (QUERY, _VERSION, _SAVED)
_FIELD: Final = re.compile(r"^([A-Za-z][A-Za-z ]*+): *+(\S(?:.*\S)?)", re.MULTILINE)


def running_database(answers: Mapping[str, str]) -> Database:
    """The CONFIG_DB in an answer, which may begin with warnings; raises DeviceError.

    Text among the tables is the routing daemon's configuration, `bgpraw` (sonic-utilities, show/main.py).
    """
    text = answers[QUERY]
    try:
        return load(text[max(text.find("{"), 0) :], skip_text=True)
    except (ValueError, RecursionError) as error:
        raise DeviceError(f"cannot read the configuration: {error}", where=QUERY) from None


def identify(answers: Mapping[str, str]) -> base.Identity:
    """The identity that the switch reports; raises DeviceError.

    The fields of `show version` are those that the SONiC command reference prints; the serial number is N/A
    on a virtual switch, and missing in old releases.
    """
    shown = dict(_FIELD.findall(answers[SHOW_VERSION]))
    if (version := shown.get("SONiC Software Version")) is None:
        raise DeviceError(
            "is no answer of SONiC", where=SHOW_VERSION, expected="a line SONiC Software Version"
        )
    serial = shown.get("Serial Number", "").removeprefix("N/A")
    hostname, model = answers[HOSTNAME].strip(), shown.get("HwSKU", "")
    return base.Identity(hostname, serial, model, version.removeprefix("SONiC."))


def running_build(answers: Mapping[str, str]) -> str:
    """The name of the build that the device runs; raises DeviceError."""
    if build := build_of(answers[_VERSION]):
        return build
    raise DeviceError("cannot read which release it runs", where=_VERSION, expected="a line build_version")


def read_answers(
    answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities
) -> base.RunningState:
    """The running state of the wanted ports and queues that exist, and the routes within the plan.

    Raises DeviceError for what cannot be read, and for what makes the plan impossible: another buffer pool,
    another chip, PFC on a queue of the plan.
    """
    database = split(running_database(answers), _needed(wanted))
    notes = [*_check_hardware(database, capabilities.hardware)] if wanted.ports else []
    lossless = tuple(_check_flow_control(database, wanted))
    state = state_of(database, wanted)
    build = running_build(answers)
    if release_of(build) is None:
        notes.append(
            f"SONiC build {build} is none of the public releases that are known: what its updater lets "
            "change is taken to be what SONiC's master lets"
        )
    if not answers[_SAVED].strip():
        notes.append(common.SAVED_UNREAD)
    elif _saved_state(answers[_SAVED], wanted) != state:
        notes.append(common.NOT_SAVED)
    return base.RunningState(state, answers, tuple(notes), lossless=lossless)


def _needed(wanted: SwitchState) -> Database:
    """What a push sets anew; nothing where ports are read of which no queue is wanted."""
    return document(wanted) if all(port.queues for port in wanted.ports) else {}


def _saved_state(text: str, wanted: SwitchState) -> SwitchState | None:
    """What a start would bring of the wanted ports and routes; None for what no switch would start with."""
    try:
        return state_of(split(load(text, skip_text=True), _needed(wanted)), wanted)
    except (ValueError, RecursionError, DeviceError):
        return None


def state_of(database: Database, wanted: SwitchState) -> SwitchState:
    """The state that a configuration, with one key a port, gives the wanted ports, with the plan's routes."""
    reader = PortReader(database)
    known = [port for port in wanted.ports if port.name in database.get("PORT", {})]
    foreign = foreign_objects(database, [port.name for port in known])
    table, key, field, value = COUNTERS
    shown = database.get(table, {}).get(key, {}).get(field, "none")
    if shown != value and known:  # they are the whole switch's: the first port says so
        foreign[known[0].name].append(f"{table}|{key} {field} {shown}")
    ports = []
    for wanted_port in known:
        port = reader.port_state(wanted_port.name, [queue.queue for queue in wanted_port.queues])
        ports.append(replace(port, unexpected=(*port.unexpected, *foreign[port.name])))
    unexpected = tuple(foreign[""]) if ports else ()
    return SwitchState(tuple(ports), *paths_in(database, wanted), unexpected=unexpected)


def _check_hardware(database: Database, hardware: str) -> Iterator[str]:
    """Raise PreflightError for a switch whose queues have other keys than a single chip's, or that has
    another pool than the one for which the predicted losses hold. The dynamic buffer model leaves the
    pool's size out.

    Of a box that nobody knows, a note says so.
    """
    metadata = {
        name: text_of(value)
        for name, value in database.get("DEVICE_METADATA", {}).get("localhost", {}).items()
    }
    for field, known in (("switch_type", ("", "npu")), ("sub_role", ("",)), ("asic_name", ("",))):
        if metadata.get(field, "") not in known:
            raise PreflightError(
                f"{field} is {metadata[field]}: its ports have other queues than those that a plan can name",
                where="DEVICE_METADATA|localhost",
                expected="a switch with one chip and queues of its own ports",
            )
    pool = database.get("BUFFER_POOL", {}).get(POOL, {})
    if pool.get("mode") != "dynamic":
        raise PreflightError(
            f"buffer pool {POOL} is {pool.get('mode', 'missing')}",
            expected="dynamic",
            hint="load the vendor's buffers with `config qos reload`, before mltswitch",
        )
    platform, hwsku = metadata.get("platform"), metadata.get("hwsku")
    model = model_of(platform or "", hwsku or "")
    planned = next(each for each in MODELS if each.hardware == hardware)
    if model is None:
        yield common.unknown_box(platform or hwsku or "this box", hardware)
    elif model is not planned:
        raise DeviceError(
            f"the device is a {model.hardware}, and the plan is rounded to a {hardware}: "
            "its thresholds, limits and predicted losses do not hold",
            where=f"DEVICE_METADATA, {platform or hwsku}",
            hint=f"give the device hardware {model.hardware} in the fabric file",
        )
    if "size" in pool and pool["size"] != str(planned.pool_size_bytes):
        raise PreflightError(
            f"buffer pool {POOL} has {pool['size']} B, so the plan's limits and predicted losses do not hold",
            expected=f"{planned.pool_size_bytes} B",
            hint="load the buffers of a top-of-rack switch, before mltswitch",
        )


def _check_flow_control(database: Database, wanted: SwitchState) -> Iterator[base.Lossless]:
    """Queues with PFC that the plan leaves alone; raises PreflightError for others."""
    maps = database.get("PORT_QOS_MAP", {})
    for port in wanted.ports:
        asymmetry = database.get("PORT", {}).get(port.name, {}).get("pfc_asym", "off")
        is_asymmetric = common.is_on(asymmetry, "pfc_asym", f"PORT|{port.name}")
        lossless = _paused_queues(database, port.name, is_asymmetric=is_asymmetric)
        bound = {**maps.get("global", {}), **maps.get(port.name, {})}
        classes = database.get("DSCP_TO_TC_MAP", {}).get(str(bound.get("dscp_to_tc_map")), {})
        queues = database.get("TC_TO_QUEUE_MAP", {}).get(str(bound.get("tc_to_queue_map")), {})
        leads_to = [queues.get(str(classes.get(str(dscp)))) for dscp in range(DSCP_COUNT)]
        planned = [queue.queue for queue in port.queues if not queue.is_lossless]
        for queue in sorted(lossless.difference(planned)):
            yield base.Lossless(port.name, queue, common.indices_of(leads_to, str(queue)))
        for queue in filter(lossless.__contains__, planned):
            if is_asymmetric:
                raise PreflightError(
                    f"asymmetric PFC heeds pause frames of every priority, for queue {queue}, too, "
                    "which the plan uses: whoever sends them stops it",
                    where=f"port {port.name}",
                    hint=f"switch it off first: `sudo pfc config asymmetric off {port.name}`",
                )
            raise PreflightError(
                f"PFC is on for queue {queue}, which the plan uses: WRED on a lossless queue drops packets "
                "that are not ECN-capable",
                where=f"port {port.name}",
                hint=f"switch PFC off for it first: PORT_QOS_MAP|{port.name}, pfc_enable",
            )


def _paused_queues(database: Database, port: str, *, is_asymmetric: bool) -> set[int]:
    """Queues of a port in which PFC may hold packets back.

    Asymmetric PFC heeds pause frames of every priority, whatever `pfc_enable` says (sonic-swss,
    orchagent/portsorch.cpp, setPortPfcAsym: 0xff for what is received).
    """
    fields = database.get("PORT_QOS_MAP", {}).get(port, {})
    leads_to = database.get("MAP_PFC_PRIORITY_TO_QUEUE", {}).get(
        text_of(fields.get("pfc_to_queue_map", "")), {}
    )
    words = (
        map(str, range(TRAFFIC_CLASSES))
        if is_asymmetric
        else text_of(fields.get("pfc_enable", "")).split(",")
    )
    queues = set()
    for word in filter(None, words):
        queue = number({word: leads_to.get(word, word)}, word)
        if queue is None:
            raise DeviceError(
                f"cannot read of which queue priority {word[:40]!r} is",
                where=f"PORT_QOS_MAP|{port} pfc_enable, MAP_PFC_PRIORITY_TO_QUEUE",
            )
        queues.add(queue)
    return queues


_QUEUES: Final = "show queue counters --json"
_MARKS: Final = "show queue wredcounters --json || true"
"""Releases before 202505 have no such command, and many chips answer N/A."""
_TYPES: Final = ("UC", "ALL")
"""Of a unicast queue, and of one for everything, where the chip has no others (queuestat, QUEUE_TYPE_ALL)."""
_COUNTS: Final = {
    "sent_bytes": "totalbytes",
    "sent_packets": "totalpacket",
    "dropped_packets": "droppacket",
    "ce_marked_packets": "ecnmarkedpacket",
    "dropped_at_threshold_packets": "wreddroppacket",
}
"""What the two answers call the fields of EgressCounters."""


def _read_counters(answers: Mapping[str, str], places: Iterable[base.QueuePlace]) -> base.QueueCounters:
    """The counters of queues; how much waits in them, no command tells. Raises DeviceError."""
    found: dict[base.QueuePlace, base.EgressCounters] = {}
    with common.known_form(_QUEUES):
        ports = common.json_in(answers[_QUEUES])
        marks = common.json_in(answers[_MARKS]) if "{" in answers[_MARKS] else {}
        for port, queue in places:
            names = [f"{kind}{queue}" for kind in _TYPES]
            row: dict[str, str] = {}
            for rows in (ports[port], marks.get(port, {})):
                row |= next((rows[name] for name in names if name in rows), {})
            counts = {field: common.count_in(row.get(name)) for field, name in _COUNTS.items()}
            found[port, queue] = base.EgressCounters(**counts)
    return found


COUNTER_SOURCE: Final = base.CounterSource(lambda _: (_QUEUES, _MARKS), _read_counters, common.POLL_SECONDS)

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
_DEFAULT_PROFILES: Final = re.compile("(ingress|egress)_(lossy|lossless)_profile")
_LOSSY: Final = "ingress_lossy_profile"
"""Of the vendors' buffer defaults (device/, buffers_defaults_t0.j2)."""
_ACL_TYPES: Final = ("L3", "L3V6", "L3V4V6", "MIRROR", "MIRRORV6", "MIRROR_DSCP", "CTRLPLANE", "MCLAG")
"""Kinds of ACLs that drop, redirect or copy packets (sonic-swss, aclorch.cpp); others may set a DSCP."""


def foreign_objects(database: Database, ports: Collection[str]) -> dict[str, list[str]]:
    """Port → objects on it, its LAG or its VLANs that mltswitch does not know, in SONiC's words; the empty
    port stands for the whole switch."""
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
            names = (*re.split(r"[|,]", key), *_names(fields))
            touched = {port for name in names for port in carried.get(name, ())}
            for text in _touches(database, table, key, fields) if touched else ():
                for port in touched:
                    found[port].append(f"{table}|{key}{text}")
    return found


def _names(fields: Entry) -> Iterator[str]:
    return (name for value in fields.values() for name in text_of(value).split(",") if name)


def _touches(database: Database, table: str, key: str, fields: Entry) -> Iterator[str]:
    """What of an object counts: its fields, or an empty text for all of it."""
    match table:
        case "PORT":
            yield from (
                f" {name} {value}" for name, value in fields.items() if not _PORT_FIELDS.fullmatch(name)
            )
        case "QUEUE" | "BUFFER_QUEUE" | "BUFFER_PG" if queues_in(key)[0]:
            # The plan's packets are in priority group 0 (objects.py, TC_TO_PRIORITY_GROUP_MAP).
            if table == "BUFFER_PG" and 0 in queues_in(key)[1] and fields.get("profile") != _LOSSY:
                yield f" profile {fields.get('profile')}"
        case "BUFFER_PORT_INGRESS_PROFILE_LIST" | "BUFFER_PORT_EGRESS_PROFILE_LIST":
            if not all(map(_DEFAULT_PROFILES.fullmatch, _names(fields))):
                yield f" {fields}"
        case "ACL_TABLE":
            rules = (
                entry for name, entry in database.get("ACL_RULE", {}).items() if name.startswith(f"{key}|")
            )
            acts = any(word in field for rule in rules for field in rule for word in ("SET", "POLICER"))
            if acts or fields.get("type") not in _ACL_TYPES:
                yield f" type {fields.get('type')}"
        case _:
            yield ""
