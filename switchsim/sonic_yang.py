"""The rules of SONiC's YANG models for a configuration database, as far as queues, buffers and routes go.

Written after the modules sonic-dscp-tc-map, -tc-queue-map, -tc-priority-group-map, -port-qos-map, -scheduler,
-wred-profile, -queue, -buffer-pool, -buffer-profile, -buffer-queue, -buffer-pg, -port, -interface,
-static-route, -srv6 and -flex_counter of sonic-buildimage. As on a switch, a table without a model is not
checked, and much that is wrong passes: queue 99, reversed or overlapping ranges, a minimum without a maximum.
Texts: the sentence `Value ... does not satisfy the constraint ...` is libyang's; the rest is the emulator's
own, and ends in `[emulator]`.
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

MODELS: Final = r"""
DSCP_TO_TC_MAP name
    * 6[0-3]|[1-5][0-9]?|[0-9]? 0..15
TC_TO_QUEUE_MAP name
    * 0..15 [0-9]?
TC_TO_PRIORITY_GROUP_MAP name
    * 0..15 [0-7]?
PORT_QOS_MAP ->PORT,global
    dscp_to_tc_map ->DSCP_TO_TC_MAP; tc_to_queue_map ->TC_TO_QUEUE_MAP
    tc_to_pg_map ->TC_TO_PRIORITY_GROUP_MAP; pfc_to_queue_map ->MAP_PFC_PRIORITY_TO_QUEUE
    pfc_to_pg_map ->PFC_PRIORITY_TO_PRIORITY_GROUP_MAP; dot1p_to_tc_map ->DOT1P_TO_TC_MAP
    tc_to_dscp_map ->TC_TO_DSCP_MAP; scheduler ->SCHEDULER; pfc_enable,pfcwd_sw_enable ([0-7](,[0-7])*)?
SCHEDULER text
    type DWRR|WRR|STRICT; weight 1..100; priority 0..9; meter_type packets|bytes; cir,pir uint64
    cbs,pbs 0..4294967295
WRED_PROFILE name
    ecn ecn_none|ecn_green|ecn_yellow|ecn_red|ecn_green_yellow|ecn_green_red|ecn_yellow_red|ecn_all
    wred_green_enable,wred_yellow_enable,wred_red_enable true|false
    green_min_threshold,yellow_min_threshold,red_min_threshold uint64
    green_max_threshold,yellow_max_threshold,red_max_threshold uint64
    green_drop_probability,yellow_drop_probability,red_drop_probability 0..100
QUEUE ->PORT,CPU text
    scheduler ->SCHEDULER; wred_profile ->WRED_PROFILE
BUFFER_POOL text
    type! ingress|egress|both; mode! static|dynamic; size,xoff uint64; percentage 0..255
BUFFER_PROFILE text
    pool! ->BUFFER_POOL; size! uint64; static_th,xon,xoff,xon_offset uint64; dynamic_th -8..7
    headroom_type static|dynamic; packet_discard_action drop|trim
BUFFER_QUEUE ->PORT (1[0-5]|[0-9])((-)(1[0-5]|[0-9]))?
    profile ->BUFFER_PROFILE
BUFFER_PG ->PORT [0-7]((-)[0-7])?
    profile ->BUFFER_PROFILE,NULL
PORT .{1,16}
    alias .{1,128}; lanes! .{1,128}; speed! 1..1600000; description text; admin_status up|down; mtu 68..9216
    index 0..65535; fec rs|fc|none|auto; autoneg,pfc_asym on|off
INTERFACE ->PORT
    vrf_name ->VRF; nat_zone 0..3
INTERFACE ->PORT prefix
    scope global|local; family IPv4|IPv6
STATIC_ROUTE prefix
    nexthop,ifname text; advertise,bfd truths
STATIC_ROUTE default|mgmt|Vrf[a-zA-Z0-9_-]+ prefix
    nexthop,ifname text; advertise,blackhole truths; distance (octet,)*octet
    nexthop-vrf (((Vrf[a-zA-Z0-9_-]+|default|mgmt),)*(Vrf[a-zA-Z0-9_-]+|default|mgmt))?
SRV6_MY_LOCATORS text
    prefix! address6; block_len,node_len 1..128; func_len,arg_len 0..128; vrf ->VRF,default
SRV6_MY_SIDS ->SRV6_MY_LOCATORS prefix6
    action uN|uA|uDT46; decap_vrf ->VRF,default; decap_dscp_mode uniform|pipe; interface ->PORT
    adj address6
FLEX_COUNTER_TABLE counters
    FLEX_COUNTER_STATUS enable|disable; FLEX_COUNTER_DELAY_STATUS false|true|False|True
    POLL_INTERVAL 100..4294967295; BULK_CHUNK_SIZE 1..4294967295; BULK_CHUNK_SIZE_PER_PREFIX text
"""
"""The checked kinds of entries: a line with the table and its key's types, then its fields and types.

`!` marks a mandatory field; `*` a map, whose field names are values, too. A type is a range, `->` and the
table to which it refers (and words that it takes besides), a word of `_TYPES` or `_ADDRESSES`, or a pattern.
"""

_OCTET: Final = r"(25[0-5]|2[0-4][0-9]|[0-1]?[0-9][0-9]?)"
_TYPES: Final = {
    "name": r"[a-zA-Z0-9][-a-zA-Z0-9_]{0,31}",
    "uint64": "0..18446744073709551615",
    "truths": r"((true|false),)*(true|false)",
    "(octet,)*octet": rf"({_OCTET},)*{_OCTET}",
    "counters": "BUFFER_POOL_WATERMARK|DEBUG_COUNTER|PFCWD|PG_DROP|PG_WATERMARK|PORT|PORT_RATES"
    "|PORT_BUFFER_DROP|QUEUE|QUEUE_WATERMARK|RIF|RIF_RATES|ACL|TUNNEL|WRED_ECN_QUEUE|WRED_ECN_PORT",
}
_ADDRESSES: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "prefix": ("an IP prefix", lambda value: ip_network(value, strict=False)),
    "prefix6": ("an IPv6 prefix", lambda value: IPv6Network(value, strict=False)),
    "address6": ("an IPv6 address", IPv6Address),
}
_SEGMENT_BITS: Final = {"block_len": 32, "node_len": 16, "func_len": 16, "arg_len": 0}
"""Field → default."""
COLOURS: Final = ("green", "yellow", "red")


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value) else None


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of entry of a table: its key's parts and its fields."""

    key: list[str]
    fields: dict[str, list[str]] = field(default_factory=dict)
    """Field name → type of its value; in a map, `*` → types of the field's name and value."""
    mandatory: list[str] = field(default_factory=list)


def _shapes() -> Mapping[str, tuple[Shape, ...]]:
    shapes: dict[str, tuple[Shape, ...]] = {}
    for block in re.split(r"\n(?! )", MODELS.strip()):
        (table, *key), *fields = (part.split() for part in re.split(r"\n +|; ", block))
        shape = Shape(key)
        for names, *kinds in fields:
            for name in names.removesuffix("!").split(","):
                shape.fields[name] = kinds
                shape.mandatory.extend([name] if names.endswith("!") else [])
        shapes[table] = (*shapes.get(table, ()), shape)
    return shapes


SHAPES: Final = _shapes()
"""Table name → the kinds of its entries."""


def problems(database: Database) -> Iterator[str]:
    """The texts with which the YANG models refuse a database, in order; empty where it is valid."""
    for table in SHAPES:
        for key, fields in database.get(table, {}).items():
            for problem in _entry_problems(table, key, fields, database):
                yield f"{problem} {table}|{key} [emulator]"


def _entry_problems(table: str, key: str, fields: Entry, database: Database) -> Iterator[str]:
    parts = key.split("|")
    shape = next((shape for shape in SHAPES[table] if len(shape.key) == len(parts)), None)
    if shape is None:
        yield "The key has a wrong number of parts."
        return
    yield from _value_problems(shape.key, parts, database)
    for name, value in fields.items():
        kinds = shape.fields.get("*") or shape.fields.get(name)
        if kinds is None:
            yield f'Unknown field "{name}".'
        elif not isinstance(value, str):
            yield f'Field "{name}" is no list.'
        else:
            yield from _value_problems(kinds, [name, value][-len(kinds) :], database)
    yield from (f'Missing required element "{name}".' for name in shape.mandatory if name not in fields)
    yield from (f"{problem}." for problem in _broken_musts(table, key, fields, database))


def _value_problems(kinds: list[str], values: list[str], database: Database) -> Iterator[str]:
    for kind, value in zip(kinds, values, strict=True):
        expected = _TYPES.get(kind, kind)
        if expected.startswith("->"):
            table, *others = expected[2:].split(",")
            expected, is_right = f"an entry of {table}", value in others or value in database.get(table, {})
        elif kind in _ADDRESSES:
            expected, parse = _ADDRESSES[kind]
            is_right = _is_address(parse, value, has_length="prefix" in kind)
        elif (span := re.fullmatch(r"(-?\d+)\.\.(\d+)", expected)) is not None:
            number = _number(value)
            is_right = number is not None and int(span[1]) <= number <= int(span[2])
        else:
            is_right = kind == "text" or re.fullmatch(expected, value) is not None
        if not is_right:
            constraint = f'the constraint "{expected}" (range, length, or pattern)'
            yield f'Value "{value}" does not satisfy {constraint}.'


def _is_address(parse: Callable[[str], object], value: str, *, has_length: bool) -> bool:
    try:
        parse(value)
    except ValueError:
        return False
    return "/" in value or not has_length


def _broken_musts(table: str, key: str, fields: Entry, database: Database) -> Iterator[str]:
    """The models' `must` statements that an entry does not fulfil."""
    match table:
        case "SCHEDULER":
            yield from _broken_rates(fields)
        case "WRED_PROFILE":
            for colour in COLOURS:
                yield from _below(fields, f"{colour}_max_threshold", f"{colour}_min_threshold")
        case "BUFFER_POOL" if "percentage" in fields:
            model = database.get("DEVICE_METADATA", {}).get("localhost", {}).get("buffer_model")
            if "size" in fields:
                yield "Percentage should not be configured along with size"
            elif model != "dynamic":
                yield "Percentage must be configured in dynamic buffer model"
        case "INTERFACE" if "|" in key and (name := key.partition("|")[0]) not in database[table]:
            yield f"INTERFACE|{name} must exist, too"
        case "SRV6_MY_LOCATORS" | "SRV6_MY_SIDS":
            yield from _broken_segments(fields)
        case "FLEX_COUNTER_TABLE" if key.startswith("WRED_ECN_"):  # groups that are not read in bulk
            for name in sorted(fields.keys() & {"BULK_CHUNK_SIZE", "BULK_CHUNK_SIZE_PER_PREFIX"})[:1]:
                yield f"Unknown field {name}"


def _broken_segments(fields: Entry) -> Iterator[str]:
    """Of a locator, or of a segment identifier; neither has a field of the other."""
    given = {name: _number(fields.get(name)) for name in _SEGMENT_BITS}
    if sum(_SEGMENT_BITS[name] if number is None else number for name, number in given.items()) > 128:
        yield "block_len + node_len + func_len + arg_len must be 128 or less"
    if fields.get("action") == "uA" and "interface" not in fields:
        yield "interface is mandatory when action is 'uA'"
    if fields.get("action") != "uA" and "adj" in fields:
        yield "adj is only applicable when action is 'uA'"


def _broken_rates(fields: Entry) -> Iterator[str]:
    if "pir" in fields and not (_number(fields.get("cir")) or 0) > 0:
        yield "pir can't be configured without cir"
    yield from _below(fields, "pir", "cir")
    for burst, rate in (("cbs", "cir"), ("pbs", "pir")):
        if burst in fields and not (_number(fields.get(rate)) or 0) > 0:
            yield f"{burst} can't be configured without {rate}"
    if "cbs" in fields:
        yield from _below(fields, "pbs", "cbs")


def _below(fields: Entry, greater: str, smaller: str) -> Iterator[str]:
    """XPath's `current() >= ../smaller`: false, too, where the other leaf is absent."""
    high, low = _number(fields.get(greater)), _number(fields.get(smaller))
    if high is not None and (low is None or high < low):
        yield f"{greater} must be greater than or equal to {smaller}"
