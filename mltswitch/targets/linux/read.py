"""The answers of `tc -j` and `ip -j` as state; foreign queues and filters are seen, not touched."""

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mltswitch.capabilities import BytesLimit, Limit
from mltswitch.errors import DeviceError
from mltswitch.targets.base import RunningState
from mltswitch.targets.linux.render import ROUTE_PROTOCOL, shaper_burst_bytes
from mltswitch.targets.linux.tree import (
    DSCP_MASK,
    NO_LIMIT,
    PRIO_HANDLE,
    PRIOMAP_LENGTH,
    SHAPER_HANDLE,
    Band,
    Filter,
    Tree,
    absent_untrusted,
    switch_state,
)
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import RouteState, SwitchState
from mltswitch.units import BITS_PER_BYTE

QDISC_QUERY: Final = "tc -j -d qdisc show"
ROUTE_QUERY: Final = "ip -j -d -N route show"
INGRESS_PARENT: Final = "ffff:fff1"
"""Where ingress and clsact stand, and stay when the root is replaced (linux pkt_sched.h, TC_H_INGRESS)."""


class _Answer(BaseModel):
    # Versions of iproute2 add fields; what we need is named, the rest is theirs.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Qdisc(_Answer):
    """One entry of `tc qdisc show`."""

    kind: str
    handle: str
    dev: str
    parent: str = ""
    root: bool = False
    options: dict[str, Any] = {}

    def __str__(self) -> str:
        name = f"{self.kind} {self.handle}"
        return f"root {name}" if self.root else f"{name} below {self.parent}"


class _FilterOptions(_Answer):
    classid: str = ""
    indev: str = ""
    keys: dict[str, Any] = {}
    actions: list[Any] = []


class _Filter(_Answer):
    protocol: str
    preference: int = Field(alias="pref")
    kind: str
    options: _FilterOptions | None = None


class _Route(_Answer):
    prefix: str = Field(alias="dst")
    protocol: str
    gateway: IPv4Address = IPv4Address(0)
    port: str = Field(alias="dev", default="")
    metric: int = 0
    nexthops: list[Any] = []


_QDISCS: Final = TypeAdapter(list[Qdisc])
_FILTERS: Final = TypeAdapter(list[_Filter])
_ROUTES: Final = TypeAdapter(list[_Route])
_Entries = TypeVar("_Entries")


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """One command for all qdiscs, one for each port's filters, one for the routes."""
    return (QDISC_QUERY, *(_filter_query(port.name) for port in wanted.ports), ROUTE_QUERY)


def _filter_query(port: str) -> str:
    return f"tc -j filter show dev {port} parent {PRIO_HANDLE}"


def read_answers(answers: Mapping[str, str], wanted: SwitchState) -> RunningState:
    """State of `wanted`'s ports, without those that lack our tree; raises DeviceError if unreadable."""
    qdiscs = _load(_QDISCS, answers, QDISC_QUERY)
    found: dict[str, Tree] = {}
    for port in wanted.ports:
        filters = _load(_FILTERS, answers, _filter_query(port.name))
        tree = _tree([entry for entry in qdiscs if entry.dev == port.name], filters)
        if tree is not None:
            found[port.name] = tree
    entries = _load(_ROUTES, answers, ROUTE_QUERY)
    routes = _routes(entries, OwnPrefixes(wanted.routes))
    absent = absent_untrusted(wanted, found)
    return RunningState(switch_state(found, in_order_of(wanted.routes, routes), absent), dict(answers))


def standing_qdiscs(answers: Mapping[str, str], port: str) -> list[Qdisc]:
    """What somebody gave the port, ours included; the kernel's own default queues have no handle."""
    if QDISC_QUERY not in answers:
        return []
    entries = _load(_QDISCS, answers, QDISC_QUERY)
    return [entry for entry in entries if entry.dev == port and entry.handle != "0:"]


def _load(kind: TypeAdapter[_Entries], answers: Mapping[str, str], query: str) -> _Entries:
    if query not in answers:
        raise DeviceError("was not answered", where=query)
    try:
        # Where there is nothing to list, some versions of tc and ip print nothing at all.
        return kind.validate_json(answers[query].strip() or "[]")
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise DeviceError(
            f"the answer cannot be read: {place} {problem['msg']}",
            where=query,
        ) from None


def _tree(qdiscs: Sequence[Qdisc], filters: Sequence[_Filter]) -> Tree | None:
    root = next((entry for entry in qdiscs if entry.root), None)
    prio = next((entry for entry in qdiscs if entry.kind == "prio" and entry.handle == PRIO_HANDLE), None)
    if root is None or prio is None:
        return None
    shaped_bps: int | None = None
    unexpected: list[str] = []
    if root is not prio:
        rate = root.options.get("rate")
        if root.kind != "tbf" or root.handle != SHAPER_HANDLE or not isinstance(rate, int):
            return None
        shaped_bps = rate * BITS_PER_BYTE
        unexpected += _shaper_faults(root.options, rate)
    count = int(prio.options.get("bands", 0))
    if prio.options.get("priomap") != [count - 1] * PRIOMAP_LENGTH:
        unexpected.append(f"priomap {prio.options.get('priomap')}")
    children = {f"{PRIO_HANDLE}{n:x}": n for n in range(1, count + 1)}
    queues = {children[entry.parent]: entry for entry in qdiscs if entry.parent in children}
    bands = tuple(_band(number, queues.get(number), unexpected) for number in children.values())
    ours = (root, prio, *queues.values())
    unexpected += [str(entry) for entry in qdiscs if entry not in ours]
    entries = frozenset(_filter(entry, entry.options) for entry in filters if entry.options is not None)
    return Tree(shaped_bps, bands, entries, tuple(unexpected)) if bands else None


_SIZE: Final = re.compile(r"(?P<number>[0-9]{1,18})(?P<unit>b|Kb|Mb|)(/[0-9]+)?")
_UNITS: Final = {"": (1, 0), "b": (1, 0), "Kb": (2**10, 16), "Mb": (2**20, 2**10)}
"""Unit → its bytes, and how far from a multiple of them tc still uses it (iproute2, sprint_size)."""
_TICK_SECONDS: Final = 1e-6
"""tc counts burst and latency in whole microseconds of the rate, and cuts to whole bytes (iproute2)."""


def _shaper_faults(options: Mapping[str, Any], rate_bytes_per_second: int) -> list[str]:
    """Latency is the limit beyond the burst; where tc finds none, it prints the limit itself."""
    burst_bytes = shaper_burst_bytes(rate_bytes_per_second * BITS_PER_BYTE)
    right = {
        "burst": _is_size(options.get("burst"), burst_bytes, rate_bytes_per_second * _TICK_SECONDS + 1),
        "lat": options.get("lat", 0) in (0, 1),
        "limit": options.get("limit", burst_bytes) == burst_bytes,
        "mpu": _is_size(options.get("mpu", 0), 0),
        "linklayer": options.get("linklayer", "ethernet") == "ethernet",
    } | {name: name not in options for name in ("overhead", "peakrate", "minburst", "mtu")}
    return [f"shaper {name} {options.get(name)}" for name, is_right in right.items() if not is_right]


def _is_size(printed: object, wanted_bytes: int, slack_bytes: float = 0) -> bool:
    match = _SIZE.fullmatch(str(printed))
    if match is None:
        return False
    unit_bytes, rounding_bytes = _UNITS[match["unit"]]
    return abs(int(match["number"]) * unit_bytes - wanted_bytes) <= rounding_bytes + slack_bytes


_RED_SETTINGS: Final = {
    "ecn": True,
    "harddrop": False,
    "adaptive": False,
    "nodrop": False,
    "ewma": 1,
    "probability": 1,
}


def _band(number: int, child: Qdisc | None, unexpected: list[str]) -> Band:
    if child is None:
        return Band(number, None, NO_LIMIT)
    size_bytes = child.options.get("limit")
    if child.kind not in ("red", "bfifo") or not isinstance(size_bytes, int):
        unexpected.append(f"queue {number}: {child.kind}")
        return Band(number, None, NO_LIMIT)
    limit: Limit = BytesLimit(size_bytes)
    if child.kind == "bfifo":
        return Band(number, None, limit)
    threshold = child.options.get("min")
    for name, value in (_RED_SETTINGS | {"max": threshold}).items():
        if child.options.get(name) != value:
            unexpected.append(f"queue {number}: red {name} {child.options.get(name)}, not {value}")
    return Band(number, threshold, limit)


def _filter(entry: _Filter, options: _FilterOptions) -> Filter:
    band = options.classid.removeprefix(PRIO_HANDLE)
    number = int(band, 16) if band and band != options.classid else 0
    if entry.kind != "flower" or options.actions:
        return Filter(entry.preference, entry.protocol, f"({entry.kind})", number)
    keys = {name: value for name, value in options.keys.items() if name != "eth_type"}
    words: list[str] = [f"indev {options.indev}"] if options.indev else []
    if "ip_tos" in keys:
        mask = _hexadecimal(keys.pop("ip_tos_mask", DSCP_MASK), 16)
        words.append(f"ip_tos 0x{_hexadecimal(keys.pop('ip_tos'), 0):02x}/0x{mask:02x}")
    if "ip_proto" in keys:
        words.append(f"ip_proto {keys.pop('ip_proto')}")
    if "icmp_type" in keys:
        words.append(f"type {keys.pop('icmp_type')}")
    words += [f"{name} {value}" for name, value in sorted(keys.items())]
    return Filter(entry.preference, entry.protocol, " ".join(words), number)


def _hexadecimal(value: object, base: int) -> int:
    """tc prints such numbers as a JSON number or as text, by version and key."""
    try:
        return value if isinstance(value, int) else int(str(value), base)
    except ValueError:
        raise DeviceError(f"{value!r} is no number", where="tc -j filter show") from None


def _routes(entries: Sequence[_Route], own: OwnPrefixes) -> list[RouteState]:
    """Those with our protocol number; anybody else's in an alias prefix takes packets off the plan's path."""
    routes: list[RouteState] = []
    for entry in entries:
        prefix = _prefix(entry)
        if entry.protocol == str(ROUTE_PROTOCOL):
            if entry.nexthops or entry.metric:
                raise _refuse(
                    entry, "has the protocol number of mltswitch, but a metric or several next hops"
                )
            routes.append(RouteState(prefix, entry.gateway, entry.port))
        elif prefix in own:
            raise _refuse(entry, "lies within an alias prefix of the plan")
    return routes


def _refuse(entry: _Route, problem: str) -> DeviceError:
    return DeviceError(
        f"route {entry.prefix} {problem}",
        where=ROUTE_QUERY,
        hint=f"somebody else made it; remove it: ip route del {entry.prefix} proto {entry.protocol}",
    )


def _prefix(entry: _Route) -> IPv4Network:
    try:
        return IPv4Network("0.0.0.0/0" if entry.prefix == "default" else entry.prefix)
    except ValueError:
        raise DeviceError(f"{entry.prefix!r} is no IPv4 prefix", where=ROUTE_QUERY) from None
