"""What SONiC's YANG models demand of a configuration database, for queues, buffers and paths.

Written after the modules sonic-dscp-tc-map, -tc-queue-map, -tc-priority-group-map, -port-qos-map, -scheduler,
-wred-profile, -queue, -buffer-pool, -buffer-profile, -buffer-queue, -buffer-pg, -port, -interface,
-static-route, -srv6 and -flex_counter of sonic-buildimage. As there, a table without a model is not checked,
and much that is wrong passes: queue 99, reversed or overlapping ranges, a minimum without a maximum. Texts:
the sentence `Value ... does not satisfy the constraint ...` is libyang's; the rest is ours, and ends in
`[emulator]`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network, ip_network
from typing import Final

FieldValue = str | list[str]
Entry = dict[str, FieldValue]
Table = dict[str, Entry]
Database = dict[str, Table]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value: what is accepted, and in words."""

    accepts: Callable[[str, Database], bool]
    expected: str


def _whole(minimum: int, maximum: int) -> Leaf:
    def accepts(value: str, _: Database) -> bool:
        return re.fullmatch(r"-?[0-9]{1,20}", value) is not None and minimum <= int(value) <= maximum

    return Leaf(accepts, f"{minimum}..{maximum}")


def _matches(pattern: str) -> Leaf:
    expression = re.compile(pattern)
    return Leaf(lambda value, _: expression.fullmatch(value) is not None, pattern)


def _choice(*words: str) -> Leaf:
    return Leaf(lambda value, _: value in words, "|".join(words))


def _reference(table: str, *also: str) -> Leaf:
    def accepts(value: str, database: Database) -> bool:
        return value in also or value in database.get(table, {})

    return Leaf(accepts, f"an entry of {table}")


def _is_prefix(value: str, _: Database) -> bool:
    try:
        ip_network(value, strict=False)
    except ValueError:
        return False
    return "/" in value


def _is_address6(value: str, _: Database) -> bool:
    try:
        IPv6Address(value)
    except ValueError:
        return False
    return True


def _is_prefix6(value: str, _: Database) -> bool:
    try:
        IPv6Network(value, strict=False)
    except ValueError:
        return False
    return "/" in value


_TEXT: Final = Leaf(lambda _value, _database: True, "text")
_BOOLEAN: Final = _choice("true", "false")
_UINT64: Final = _whole(0, (1 << 64) - 1)
_PREFIX: Final = Leaf(_is_prefix, "an IP prefix")
_ADDRESS6: Final = Leaf(_is_address6, "an IPv6 address")
_PREFIX6: Final = Leaf(_is_prefix6, "an IPv6 prefix")
_NAME: Final = _matches(r"[a-zA-Z0-9][-a-zA-Z0-9_]{0,31}")
_TRAFFIC_CLASS: Final = _whole(0, 15)
_PORT: Final = _reference("PORT")
_PRIORITIES: Final = _matches(r"([0-7](,[0-7])*)?")

Must = Callable[[Entry, str, Database], str | None]
"""(fields, key, database) → what is wrong, or None."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of entry: its key's parts, its fields, and conditions between them."""

    key: tuple[Leaf, ...]
    fields: Mapping[str, Leaf] = field(default_factory=dict)
    mandatory: tuple[str, ...] = ()
    musts: tuple[Must, ...] = ()
    mapping: tuple[Leaf, Leaf] | None = None
    """For the maps, whose field names are values, too."""


def _number(fields: Entry, name: str) -> int | None:
    value = fields.get(name)
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value) else None


def _at_least(greater: str, smaller: str) -> Must:
    """XPath's `current() >= ../smaller`: false, too, where the other leaf is absent."""

    def must(fields: Entry, _key: str, _database: Database) -> str | None:
        high, low = _number(fields, greater), _number(fields, smaller)
        if high is None or (low is not None and high >= low):
            return None
        return f"{greater} must be greater than or equal to {smaller}"

    return must


def _needs_positive(dependent: str, needed: str) -> Must:
    def must(fields: Entry, _key: str, _database: Database) -> str | None:
        if dependent in fields and not (_number(fields, needed) or 0) > 0:
            return f"{dependent} can't be configured without {needed}"
        return None

    return must


def _burst_sizes(fields: Entry, _key: str, _database: Database) -> str | None:
    excess, committed = _number(fields, "pbs"), _number(fields, "cbs")
    if excess is not None and committed is not None and excess < committed:
        return "pbs must be greater than or equal to cbs"
    return None


def _pool_percentage(fields: Entry, _key: str, database: Database) -> str | None:
    if "percentage" not in fields:
        return None
    if "size" in fields:
        return "Percentage should not be configured along with size"
    model = database.get("DEVICE_METADATA", {}).get("localhost", {}).get("buffer_model")
    return None if model == "dynamic" else "Percentage must be configured in dynamic buffer model"


def _segment_fits(fields: Entry, _key: str, _database: Database) -> str | None:
    bits = sum(
        default if (given := _number(fields, name)) is None else given
        for name, default in _SEGMENT_BITS.items()
    )
    return None if bits <= _ADDRESS_BITS else "block_len + node_len + func_len + arg_len must be 128 or less"


def _adjacency(fields: Entry, _key: str, _database: Database) -> str | None:
    if fields.get("action") == "uA":
        return None if "interface" in fields else "interface is mandatory when action is 'uA'"
    return "adj is only applicable when action is 'uA'" if "adj" in fields else None


def _bulk_counters(fields: Entry, key: str, _database: Database) -> str | None:
    """Which groups are read in bulk; the others have no such leaf."""
    bulk = fields.keys() & {"BULK_CHUNK_SIZE", "BULK_CHUNK_SIZE_PER_PREFIX"}
    return f"Unknown field {min(bulk)}" if bulk and key.startswith("WRED_ECN_") else None


def _interface_exists(_fields: Entry, key: str, database: Database) -> str | None:
    name = key.partition("|")[0]
    return None if name in database.get("INTERFACE", {}) else f"INTERFACE|{name} must exist, too"


def _wred_fields() -> dict[str, Leaf]:
    colours = ("ecn_green", "ecn_yellow", "ecn_red", "ecn_green_yellow", "ecn_green_red", "ecn_yellow_red")
    fields = {"ecn": _choice("ecn_none", *colours, "ecn_all")}
    for colour in ("green", "yellow", "red"):
        fields[f"wred_{colour}_enable"] = _BOOLEAN
        fields[f"{colour}_min_threshold"] = fields[f"{colour}_max_threshold"] = _UINT64
        fields[f"{colour}_drop_probability"] = _whole(0, 100)
    return fields


def _map(name: Leaf, value: Leaf) -> tuple[Shape, ...]:
    return (Shape((_NAME,), mapping=(name, value)),)


_ADDRESS_BITS: Final = 128
_SEGMENT_BITS: Final = {"block_len": 32, "node_len": 16, "func_len": 16, "arg_len": 0}
"""Field → default."""
_COUNTER_GROUPS: Final = (
    *("BUFFER_POOL_WATERMARK", "DEBUG_COUNTER", "PFCWD", "PG_DROP", "PG_WATERMARK", "PORT", "PORT_RATES"),
    *("PORT_BUFFER_DROP", "QUEUE", "QUEUE_WATERMARK", "RIF", "RIF_RATES", "ACL", "TUNNEL"),
    *("WRED_ECN_QUEUE", "WRED_ECN_PORT"),
)
_TRUTH_LIST: Final = _matches(r"((true|false),)*(true|false)")
_ROUTE: Final = {"nexthop": _TEXT, "ifname": _TEXT, "advertise": _TRUTH_LIST}
_LEAKING: Final = r"(Vrf[a-zA-Z0-9_-]+|default|mgmt)"
_OCTET: Final = r"(25[0-5]|2[0-4][0-9]|[0-1]?[0-9][0-9]?)"

SHAPES: Final[Mapping[str, tuple[Shape, ...]]] = {
    "DSCP_TO_TC_MAP": _map(_matches(r"6[0-3]|[1-5][0-9]?|[0-9]?"), _TRAFFIC_CLASS),
    "TC_TO_QUEUE_MAP": _map(_TRAFFIC_CLASS, _matches(r"[0-9]?")),
    "TC_TO_PRIORITY_GROUP_MAP": _map(_TRAFFIC_CLASS, _matches(r"[0-7]?")),
    "PORT_QOS_MAP": (
        Shape(
            (_reference("PORT", "global"),),
            {
                "dscp_to_tc_map": _reference("DSCP_TO_TC_MAP"),
                "tc_to_queue_map": _reference("TC_TO_QUEUE_MAP"),
                "tc_to_pg_map": _reference("TC_TO_PRIORITY_GROUP_MAP"),
                "pfc_to_queue_map": _reference("MAP_PFC_PRIORITY_TO_QUEUE"),
                "pfc_to_pg_map": _reference("PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"),
                "dot1p_to_tc_map": _reference("DOT1P_TO_TC_MAP"),
                "tc_to_dscp_map": _reference("TC_TO_DSCP_MAP"),
                "scheduler": _reference("SCHEDULER"),
                "pfc_enable": _PRIORITIES,
                "pfcwd_sw_enable": _PRIORITIES,
            },
        ),
    ),
    "SCHEDULER": (
        Shape(
            (_TEXT,),
            {
                "type": _choice("DWRR", "WRR", "STRICT"),
                "weight": _whole(1, 100),
                "priority": _whole(0, 9),
                "meter_type": _choice("packets", "bytes"),
                "cir": _UINT64,
                "pir": _UINT64,
                "cbs": _whole(0, (1 << 32) - 1),
                "pbs": _whole(0, (1 << 32) - 1),
            },
            musts=(
                _needs_positive("pir", "cir"),
                _at_least("pir", "cir"),
                _needs_positive("cbs", "cir"),
                _needs_positive("pbs", "pir"),
                _burst_sizes,
            ),
        ),
    ),
    "WRED_PROFILE": (
        Shape(
            (_NAME,),
            _wred_fields(),
            musts=tuple(
                _at_least(f"{colour}_max_threshold", f"{colour}_min_threshold")
                for colour in ("green", "yellow", "red")
            ),
        ),
    ),
    "QUEUE": (
        Shape(
            (_reference("PORT", "CPU"), _TEXT),
            {"scheduler": _reference("SCHEDULER"), "wred_profile": _reference("WRED_PROFILE")},
        ),
    ),
    "BUFFER_POOL": (
        Shape(
            (_TEXT,),
            {
                "type": _choice("ingress", "egress", "both"),
                "mode": _choice("static", "dynamic"),
                "size": _UINT64,
                "xoff": _UINT64,
                "percentage": _whole(0, 255),
            },
            ("type", "mode"),
            (_pool_percentage,),
        ),
    ),
    "BUFFER_PROFILE": (
        Shape(
            (_TEXT,),
            {
                "pool": _reference("BUFFER_POOL"),
                "size": _UINT64,
                "static_th": _UINT64,
                "dynamic_th": _whole(-8, 7),
                "xon": _UINT64,
                "xoff": _UINT64,
                "xon_offset": _UINT64,
                "headroom_type": _choice("static", "dynamic"),
                "packet_discard_action": _choice("drop", "trim"),
            },
            ("pool", "size"),
        ),
    ),
    "BUFFER_QUEUE": (
        Shape(
            (_PORT, _matches(r"(1[0-5]|[0-9])((-)(1[0-5]|[0-9]))?")),
            {"profile": _reference("BUFFER_PROFILE")},
        ),
    ),
    "BUFFER_PG": (
        Shape((_PORT, _matches(r"[0-7]((-)[0-7])?")), {"profile": _reference("BUFFER_PROFILE", "NULL")}),
    ),
    "PORT": (
        Shape(
            (_matches(r".{1,16}"),),
            {
                "alias": _matches(r".{1,128}"),
                "lanes": _matches(r".{1,128}"),
                "speed": _whole(1, 1_600_000),
                "description": _TEXT,
                "admin_status": _choice("up", "down"),
                "mtu": _whole(68, 9216),
                "index": _whole(0, 65_535),
                "fec": _choice("rs", "fc", "none", "auto"),
                "autoneg": _choice("on", "off"),
                "pfc_asym": _choice("on", "off"),
            },
            ("lanes", "speed"),
        ),
    ),
    "INTERFACE": (
        Shape((_PORT,), {"vrf_name": _reference("VRF"), "nat_zone": _whole(0, 3)}),
        Shape(
            (_PORT, _PREFIX),
            {"scope": _choice("global", "local"), "family": _choice("IPv4", "IPv6")},
            musts=(_interface_exists,),
        ),
    ),
    "STATIC_ROUTE": (
        Shape((_PREFIX,), {**_ROUTE, "bfd": _TRUTH_LIST}),
        Shape(
            (_matches(r"default|mgmt|Vrf[a-zA-Z0-9_-]+"), _PREFIX),
            {
                **_ROUTE,
                "distance": _matches(rf"({_OCTET},)*{_OCTET}"),
                "nexthop-vrf": _matches(rf"(({_LEAKING},)*{_LEAKING})?"),
                "blackhole": _TRUTH_LIST,
            },
        ),
    ),
    "SRV6_MY_LOCATORS": (
        Shape(
            (_TEXT,),
            {
                "prefix": _ADDRESS6,
                "block_len": _whole(1, _ADDRESS_BITS),
                "node_len": _whole(1, _ADDRESS_BITS),
                "func_len": _whole(0, _ADDRESS_BITS),
                "arg_len": _whole(0, _ADDRESS_BITS),
                "vrf": _reference("VRF", "default"),
            },
            ("prefix",),
            (_segment_fits,),
        ),
    ),
    "SRV6_MY_SIDS": (
        Shape(
            (_reference("SRV6_MY_LOCATORS"), _PREFIX6),
            {
                "action": _choice("uN", "uA", "uDT46"),
                "decap_vrf": _reference("VRF", "default"),
                "decap_dscp_mode": _choice("uniform", "pipe"),
                "interface": _PORT,
                "adj": _ADDRESS6,
            },
            musts=(_adjacency,),
        ),
    ),
    "FLEX_COUNTER_TABLE": (
        Shape(
            (_choice(*_COUNTER_GROUPS),),
            {
                "FLEX_COUNTER_STATUS": _choice("enable", "disable"),
                "FLEX_COUNTER_DELAY_STATUS": _matches("false|true|False|True"),
                "POLL_INTERVAL": _whole(100, (1 << 32) - 1),
                "BULK_CHUNK_SIZE": _whole(1, (1 << 32) - 1),
                "BULK_CHUNK_SIZE_PER_PREFIX": _TEXT,
            },
            musts=(_bulk_counters,),
        ),
    ),
}


def problems(database: Database) -> Iterator[str]:
    """What the models refuse, in order; empty where the database is valid."""
    for table, shapes in SHAPES.items():
        for key, fields in database.get(table, {}).items():
            for problem in _entry_problems(shapes, key, fields, database):
                yield f"{problem} {table}|{key} [emulator]"


def _entry_problems(shapes: tuple[Shape, ...], key: str, fields: Entry, database: Database) -> Iterator[str]:
    parts = key.split("|")
    shape = next((shape for shape in shapes if len(shape.key) == len(parts)), None)
    if shape is None:
        yield "The key has a wrong number of parts."
        return
    for leaf, part in zip(shape.key, parts, strict=True):
        yield from _leaf_problems(leaf, part, database)
    for name, value in fields.items():
        name_leaf, value_leaf = shape.mapping or (_TEXT, shape.fields.get(name))
        if value_leaf is None:
            yield f'Unknown field "{name}".'
        elif not isinstance(value, str):
            yield f'Field "{name}" is no list.'
        else:
            yield from _leaf_problems(name_leaf, name, database)
            yield from _leaf_problems(value_leaf, value, database)
    for name in shape.mandatory:
        if name not in fields:
            yield f'Missing required element "{name}".'
    for must in shape.musts:
        if (problem := must(fields, key, database)) is not None:
            yield f"{problem}."


def _leaf_problems(leaf: Leaf, value: str, database: Database) -> Iterator[str]:
    if not leaf.accepts(value, database):
        constraint = f'the constraint "{leaf.expected}" (range, length, or pattern)'
        yield f'Value "{value}" does not satisfy {constraint}.'
