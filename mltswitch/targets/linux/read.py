"""The answers of `tc -j` and `ip -j` as state; foreign queues and filters are seen, not touched."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mltswitch.capabilities import BytesLimit, Limit
from mltswitch.errors import DeviceError
from mltswitch.targets.base import RunningState
from mltswitch.targets.linux.render import ROUTE_PROTOCOL
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
from mltswitch.targets.routes import in_order_of
from mltswitch.targets.state import RouteState, SwitchState
from mltswitch.units import BITS_PER_BYTE

QDISC_QUERY: Final = "tc -j -d qdisc show"
ROUTE_QUERY: Final = f"ip -j route show proto {ROUTE_PROTOCOL}"


class _Answer(BaseModel):
    # Versions of iproute2 add fields; what we need is named, the rest is theirs.
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Qdisc(_Answer):
    kind: str
    handle: str
    dev: str
    parent: str = ""
    root: bool = False
    options: dict[str, Any] = {}


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
    gateway: IPv4Address = IPv4Address(0)
    port: str = Field(alias="dev", default="")
    metric: int = 0
    nexthops: list[Any] = []


_QDISCS: Final = TypeAdapter(list[_Qdisc])
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
    routes = [_route(entry) for entry in _load(_ROUTES, answers, ROUTE_QUERY)]
    absent = absent_untrusted(wanted, found)
    return RunningState(switch_state(found, in_order_of(wanted.routes, routes), absent), dict(answers))


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


def _tree(qdiscs: Sequence[_Qdisc], filters: Sequence[_Filter]) -> Tree | None:
    root = next((entry for entry in qdiscs if entry.root), None)
    prio = next((entry for entry in qdiscs if entry.kind == "prio" and entry.handle == PRIO_HANDLE), None)
    if root is None or prio is None:
        return None
    shaped_bps: int | None = None
    if root is not prio:
        rate = root.options.get("rate")
        if root.kind != "tbf" or root.handle != SHAPER_HANDLE or not isinstance(rate, int):
            return None
        shaped_bps = rate * BITS_PER_BYTE
    count = int(prio.options.get("bands", 0))
    unexpected: list[str] = []
    if prio.options.get("priomap") != [count - 1] * PRIOMAP_LENGTH:
        unexpected.append(f"priomap {prio.options.get('priomap')}")
    children = {entry.parent: entry for entry in qdiscs}
    bands = tuple(_band(n, children.get(f"{PRIO_HANDLE}{n:x}"), unexpected) for n in range(1, count + 1))
    entries = frozenset(_filter(entry, entry.options) for entry in filters if entry.options is not None)
    return Tree(shaped_bps, bands, entries, tuple(unexpected)) if bands else None


_RED_SETTINGS: Final = {
    "ecn": True,
    "harddrop": False,
    "adaptive": False,
    "nodrop": False,
    "ewma": 1,
    "probability": 1,
}


def _band(number: int, child: _Qdisc | None, unexpected: list[str]) -> Band:
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


def _route(entry: _Route) -> RouteState:
    if entry.nexthops or entry.metric:
        raise DeviceError(
            f"route {entry.prefix} has the protocol number of mltswitch, but a metric or several next hops",
            where=ROUTE_QUERY,
            hint=f"somebody else made it; remove it: ip route del {entry.prefix} proto {ROUTE_PROTOCOL}",
        )
    try:
        prefix = IPv4Network("0.0.0.0/0" if entry.prefix == "default" else entry.prefix)
    except ValueError:
        raise DeviceError(f"{entry.prefix!r} is no IPv4 prefix", where=ROUTE_QUERY) from None
    return RouteState(prefix, entry.gateway, entry.port)
