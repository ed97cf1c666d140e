"""One port's qdiscs, filters and classes as a tree; what somebody else put there is seen, not touched."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mltswitch.capabilities import BytesLimit, Limit
from mltswitch.targets.linux.answers import (
    CLSACT,
    EGRESS,
    INGRESS,
    FilterAnswer,
    FilterOptions,
    Qdisc,
    filters_of,
    hexadecimal,
)
from mltswitch.targets.linux.ingress import DSCP_MASK, Rewriting, mark_of, rewriting_of
from mltswitch.targets.linux.layout import (
    GRADIENT_CLASS,
    INNER,
    OUTER,
    SHAPER,
    SHARE,
    Layout,
    paths,
    place,
)
from mltswitch.targets.linux.render import QUANTUM_BYTES, shaper_burst_bytes
from mltswitch.targets.linux.tree import NO_LIMIT, PRIOMAP_LENGTH, Band, Filter, Tree
from mltswitch.units import BITS_PER_BYTE


def filters_in(sections: Mapping[str, str], port: str, handle: str) -> frozenset[Filter]:
    """The filters of one qdisc."""
    entries = filters_of(sections.get(f"{port} {handle}", "[]"), port, f"parent {handle}")
    return frozenset(_filter(handle, entry, entry.options) for entry in entries if entry.options is not None)


FoundRewriting = tuple[Rewriting, tuple[str, ...]]
"""What a port rewrites, and what of its filters no plan asks for."""


def rewriting_in(sections: Mapping[str, str], port: str) -> FoundRewriting:
    """What stands in a port's clsact."""
    return rewriting_of(marks_in(sections, port))


def marks_in(sections: Mapping[str, str], port: str) -> tuple[str, ...]:
    """A port's filters that rewrite code points as ours do, as lines."""
    marks = (mark_of(entry) for entry in _ingress_filters(sections, port, INGRESS))
    return tuple(mark for mark in marks if mark is not None)


def foreign_filters(sections: Mapping[str, str], port: str) -> tuple[str, ...]:
    """What somebody else hung into a port's clsact, which may drop, mark or redirect packets."""
    found = [
        *(entry for entry in _ingress_filters(sections, port, INGRESS) if mark_of(entry) is None),
        *_ingress_filters(sections, port, EGRESS),
    ]
    return tuple(dict.fromkeys(map(str, found)))  # u32 prints its table beside what stands in it


def _ingress_filters(sections: Mapping[str, str], port: str, side: str) -> list[FilterAnswer]:
    return filters_of(sections.get(f"{port} {side}", "[]"), port, side)


@dataclass(slots=True)
class _Found:
    """The qdiscs of one port, by handle, and what no plan asks for."""

    qdiscs: Sequence[Qdisc]
    by_handle: dict[str, Qdisc]
    by_parent: dict[str, Qdisc]
    ours: list[Qdisc]
    faults: list[str]

    def take(self, handle: str, kind: str, parent: str) -> Qdisc | None:
        """A qdisc of ours, if it stands there; `parent` empty: it is the root."""
        entry = self.by_handle.get(handle)
        if entry is None or (entry.kind, entry.parent) != (kind, parent) or entry.root is bool(parent):
            return None
        self.ours.append(entry)
        return entry


_NO_SHARES: Final[tuple[int, ...]] = ()


def tree_of(
    qdiscs: Sequence[Qdisc],
    filters: Mapping[str, frozenset[Filter]],
    classes: str,
    rewriting: FoundRewriting,
) -> Tree | None:
    """The port's tree; None where it is not ours from the top."""
    found = _Found(
        qdiscs,
        {entry.handle: entry for entry in qdiscs},
        {entry.parent: entry for entry in qdiscs if entry.parent},
        [],
        [],
    )
    shaped_bps: int | None = None
    top = ""
    shaper = found.take(SHAPER, "tbf", "")
    if shaper is not None:
        shaped_bps = _rate(shaper) * BITS_PER_BYTE
        found.faults += _tbf_faults("shaper", shaper.options, is_empty=True)
        top = f"{SHAPER}1"
    outer = _bands_of(found, OUTER, top)
    share = found.take(SHARE, "drr", f"{OUTER}{outer:x}" if outer else top)
    inner = _bands_of(found, INNER, f"{SHARE}{GRADIENT_CLASS}") if share else 0
    if share is None and not outer:
        return None
    layout, shares = Layout(outer, None), _NO_SHARES
    if share is not None:
        shares = _shares(classes, found)
        ahead = max(outer - 1, 0)
        layout = Layout(ahead + max(inner, 1) + len(shares), ahead, len(shares))
    bands = tuple(_band(number, place(way[-1]), found) for number, way in enumerate(paths(layout), start=1))
    found.faults += [str(entry) for entry in qdiscs if entry not in found.ours and entry.kind != CLSACT]
    rewritten, faults = rewriting
    found.faults += faults
    levels = {handle for way in paths(layout) for handle, _ in way}
    kept = frozenset(entry for handle in levels for entry in filters[handle])
    return Tree(shaped_bps, bands, layout, shares, kept, tuple(found.faults), rewritten)


def _rate(entry: Qdisc) -> int:
    """Bytes a second; 0 where tc says none."""
    rate = entry.options.get("rate")
    return rate if isinstance(rate, int) else 0


def _bands_of(found: _Found, handle: str, parent: str) -> int:
    """Bands of a prio of ours; 0: there is none."""
    prio = found.take(handle, "prio", parent)
    if prio is None:
        return 0
    count = int(prio.options.get("bands", 0))
    if prio.options.get("priomap") != [count - 1] * PRIOMAP_LENGTH:
        found.faults.append(f"{handle} priomap {prio.options.get('priomap')}")
    return count


_CLASS: Final = re.compile(r"class drr (?P<place>20:[0-9a-f]+) .*?quantum (?P<quantum>[0-9]+[KM]?b)\s*")


def _shares(classes: str, found: _Found) -> tuple[int, ...]:
    """Parts of the last queues in the quanta, which add up to the same in every tree of ours.

    A class behind the first in which no queue stands is nobody's share.
    """
    quanta = {match["place"]: match["quantum"] for match in _CLASS.finditer(classes)}
    rest = quanta.pop(f"{SHARE}{GRADIENT_CLASS}", "0b")
    shares: list[int] = []
    while (name := f"{SHARE}{GRADIENT_CLASS + len(shares) + 1:x}") in quanta:
        if shares and name not in found.by_parent:
            break
        printed = quanta.pop(name)
        shares.append(next((n for n in range(1, 100) if _is_size(printed, n * QUANTUM_BYTES)), 1))
        if not _is_size(printed, shares[-1] * QUANTUM_BYTES):
            found.faults.append(f"{SHARE} quantum {printed}")
    if not shares or not _is_size(rest, (100 - sum(shares)) * QUANTUM_BYTES):
        found.faults.append(f"{SHARE} quanta {rest} and {' + '.join(map(str, shares)) or 0} %")
    found.faults += [f"class {name}" for name in sorted(quanta)]
    return tuple(shares) or (1,)


_SIZE: Final = re.compile(r"(?P<number>[0-9]{1,18})(?P<unit>b|Kb|Mb|)(/[0-9]+)?")
_UNITS: Final = {"": (1, 0), "b": (1, 0), "Kb": (2**10, 16), "Mb": (2**20, 2**10)}
"""Unit → its bytes, and how far from a multiple of them tc still uses it (iproute2, sprint_size)."""
_TICK_SECONDS: Final = 1e-6
"""tc counts burst and latency in whole microseconds of the rate, and cuts to whole bytes (iproute2)."""


def _tbf_faults(name: str, options: Mapping[str, Any], *, is_empty: bool) -> list[str]:
    """Latency is the limit beyond the burst; where tc finds none, it prints the limit itself.

    `is_empty`: its own queue holds a burst and no more. Below a cap stands a queue with a limit of its own.
    """
    rate = options.get("rate")
    rate_bytes_per_second = rate if isinstance(rate, int) else 0
    burst_bytes = shaper_burst_bytes(rate_bytes_per_second * BITS_PER_BYTE)
    right = {
        "burst": _is_size(options.get("burst"), burst_bytes, rate_bytes_per_second * _TICK_SECONDS + 1),
        "lat": not is_empty or options.get("lat", 0) in (0, 1),
        "limit": not is_empty or options.get("limit", burst_bytes) == burst_bytes,
        "mpu": _is_size(options.get("mpu", 0), 0),
        "linklayer": options.get("linklayer", "ethernet") == "ethernet",
    } | {key: key not in options for key in ("overhead", "peakrate", "minburst", "mtu")}
    return [f"{name} {key} {options.get(key)}" for key, is_right in right.items() if not is_right]


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


def _band(number: int, parent: str, found: _Found) -> Band:
    """What stands in one queue's place: a queue, or a cap and the queue below it."""
    child = found.by_parent.get(parent)
    cap: Qdisc | None = None
    if child is not None and child.kind == "tbf":
        cap, child = child, found.by_parent.get(f"{child.handle}1")
        found.ours.append(cap)
        found.faults += _tbf_faults(f"queue {number}: tbf", cap.options, is_empty=False)
    maximum_bps = None if cap is None else _rate(cap) * BITS_PER_BYTE
    if child is None:
        return Band(number, None, NO_LIMIT, maximum_bps)
    found.ours.append(child)
    size_bytes = child.options.get("limit")
    if child.kind not in ("red", "bfifo") or not isinstance(size_bytes, int):
        found.faults.append(f"queue {number}: {child.kind}")
        return Band(number, None, NO_LIMIT, maximum_bps)
    limit: Limit = BytesLimit(size_bytes)
    if child.kind == "bfifo":
        return Band(number, None, limit, maximum_bps)
    threshold = child.options.get("min")
    for name, value in (_RED_SETTINGS | {"max": threshold}).items():
        if child.options.get(name) != value:
            found.faults.append(f"queue {number}: red {name} {child.options.get(name)}, not {value}")
    return Band(number, threshold, limit, maximum_bps)


def _filter(parent: str, entry: FilterAnswer, options: FilterOptions) -> Filter:
    minor = options.classid.removeprefix(parent)
    number = int(minor, 16) if minor and minor != options.classid else 0
    if entry.kind != "flower" or options.actions:
        return Filter(parent, entry.preference, entry.protocol, f"({entry.kind})", number)
    keys = {name: value for name, value in options.keys.items() if name != "eth_type"}
    if options.indev:
        keys["indev"] = options.indev
    words: list[str] = []
    if "ip_tos" in keys:
        mask = hexadecimal(keys.pop("ip_tos_mask", DSCP_MASK), 16)
        words.append(f"ip_tos 0x{hexadecimal(keys.pop('ip_tos'), 0):02x}/0x{mask:02x}")
    if "ip_proto" in keys:
        words.append(f"ip_proto {keys.pop('ip_proto')}")
    if "icmp_type" in keys:
        words.append(f"type {keys.pop('icmp_type')}")
    if keys.get("ip_ttl_mask") in (None, "ff", "0xff"):
        keys.pop("ip_ttl_mask", None)
    words += [f"{name} {value}" for name, value in sorted(keys.items())]
    return Filter(parent, entry.preference, entry.protocol, " ".join(words), number)
