"""Reads a host's answers about its ports as facts: their queues, their filters, and what others added."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

from mltswitch.errors import DeviceError
from mltswitch.targets.common import json_in
from mltswitch.targets.engine.facts import Fact, PortFacts
from mltswitch.targets.linux.answers import (
    CLSACT,
    EGRESS,
    FILTERS,
    INGRESS,
    NO_HANDLE,
    PLACES,
    QDISC_QUERY,
    QDISCS,
    FilterAnswer,
    FilterOptions,
    Qdisc,
    answer,
    class_query,
    filter_query,
    load,
)
from mltswitch.targets.linux.lines import (
    INNER,
    LEVELS,
    MARKS,
    OUTER,
    QUANTUM_BYTES,
    SHAPER,
    SHARE,
    shaper_burst_bytes,
)
from mltswitch.targets.linux.ports import DSCP_MASK, LARGEST_SHARE, defaults, place, tos_match, ways_to
from mltswitch.targets.state import SwitchState
from mltswitch.units import BITS_PER_BYTE

_RED: Final = {
    "ecn": True,
    "harddrop": False,
    "adaptive": False,
    "nodrop": False,
    "ewma": 1,
    "probability": 1,
}
"""What tc shows of each red of ours, whose `max` is its `min`."""
_PRIOMAP_LENGTH: Final = 16
_FIRST_KEYS: Final = {"ip_proto": "ip_proto", "icmp_type": "type"}
"""Keys of flower in the order of our lines → words for them; others follow by the alphabet."""


@dataclass(frozen=True)
class PortAnswers:
    """A host's answers about one port."""

    name: str
    qdiscs: tuple[Qdisc, ...]
    sections: Mapping[str, str]
    """Place of filters, such as `parent 10:` or `ingress` → what tc printed of them."""
    classes: str

    @cached_property
    def queues(self) -> tuple[PortFacts, tuple[str, ...]] | None:
        """The facts of the queues, and faults in them; None where the root qdisc is not mltswitch's."""
        reader = _Reader(self)
        return (reader.facts, tuple(reader.faults)) if reader.read() else None

    @cached_property
    def marks(self) -> dict[Fact, None]:
        """The filters on arriving packets that rewrite code points just as mltswitch's do."""
        return dict.fromkeys(mark for entry in self.filters(INGRESS) if (mark := _mark(entry)))

    @property
    def ingress(self) -> PortFacts:
        """The facts about arriving packets that match mltswitch's; empty without clsact."""
        facts = {("clsact",): None, ("unmark",): None, **self.marks}
        return facts if any(entry.kind == CLSACT for entry in self.qdiscs) else {}

    @property
    def foreign_filters(self) -> list[str]:
        """Filters that others put into clsact, which may drop, mark or redirect packets."""
        found = [entry for entry in self.filters(INGRESS) if _mark(entry) is None]
        found += self.filters(EGRESS)
        return list(dict.fromkeys(map(str, found)))  # u32 prints its table beside what stands in it

    @property
    def standing(self) -> list[Qdisc]:
        """The qdiscs that somebody gave the port, mltswitch's included; the kernel's own have no handle."""
        return [entry for entry in self.qdiscs if entry.handle != NO_HANDLE and not entry.arrives]

    @property
    def said_of_queues(self) -> tuple[object, ...]:
        """All answers about packets that leave by the port, for comparison."""
        entries = sorted(repr(entry) for entry in self.qdiscs if not entry.arrives)
        return entries, [self.sections[f"parent {handle}"] for handle in LEVELS], self.classes

    def filters(self, place: str) -> list[FilterAnswer]:
        """The filters at one place, without the empty entry that precedes those of each preference.

        iproute2 before 5.17 prints u32 filters, and others their own kinds, as plain text in the middle of
        its JSON (`"options": {fh 800: ht divisor 1 }`). What such a text matches is not read, for no
        filter of mltswitch's is one; its kind, protocol, preference and class are. Raises DeviceError.
        """
        section = self.sections[place]
        with suppress(ValueError):
            return _filters(json_in(section, may_contradict=True))
        starts = [head.start() for head in _FILTER.finditer(section)]
        with suppress(ValueError):
            if starts:
                return _filters([_entry(section[i:j]) for i, j in pairwise([*starts, len(section)])])
        raise DeviceError(
            f"cannot read which filters stand at {self.name}, {place}: {section.strip()[:80]!r}",
            where=f"tc -j filter show dev {self.name} {place}",
            hint=f"`tc filter show dev {self.name} {place}` shows them without JSON",
        )


_FILTER: Final = re.compile(
    r'"protocol":"(?P<protocol>[^"]+)","pref":(?P<pref>[0-9]+),"kind":"(?P<kind>[^"]+)"'
    r"|^filter (?:parent \S+ )?protocol (?P<protocol2>\S+) pref (?P<pref2>[0-9]+) (?P<kind2>\S+)",
    re.MULTILINE,
)
_LEADS_TO: Final = re.compile(r'(?:flowid|classid)"?[ :]"?([0-9a-f]+:[0-9a-f]+)')


def _filters(entries: list[Any]) -> list[FilterAnswer]:
    full = [entry for entry in entries if not isinstance(entry, dict) or entry.get("options") is not None]
    return FILTERS.validate_python(full)


def _entry(text: str) -> dict[str, object]:
    """One filter by itself; of one in plain text, what every kind says."""
    try:
        return dict(json.JSONDecoder().raw_decode("{" + text)[0])
    except (ValueError, RecursionError):
        head, leads_to = _FILTER.match(text), _LEADS_TO.search(text)
        named = {name.rstrip("2"): value for name, value in head.groupdict().items() if value} if head else {}
        return {**named, "options": {"classid": leads_to[1] if leads_to else ""}}


def port_answers(answers: Mapping[str, str], wanted: SwitchState) -> dict[str, PortAnswers]:
    """Port name → the answers about it, for the wanted ports; raises DeviceError if they are unreadable."""
    qdiscs = load(QDISCS, answers, QDISC_QUERY)
    if not wanted.ports:
        return {}
    query, count = filter_query(wanted), len(wanted.ports) * len(PLACES)
    # A filter that tc prints as text, in the middle of its JSON, may have lines of its own.
    _, *sections = re.split(r"^(?=\[)", "\n" + answer(answers, query), flags=re.MULTILINE)
    if len(sections) != count:
        raise DeviceError(
            f"answered {len(sections)} lines, not {count}",
            where=query,
            hint="`tc filter show dev PORT ingress` shows them; iproute2 before 4.18 has no JSON for them",
        )
    _, *parts = re.split(r"^# (.*)$", answer(answers, class_query(wanted)), flags=re.MULTILINE)
    classes = dict(zip(parts[::2], parts[1::2], strict=True))
    return {
        port.name: PortAnswers(
            port.name,
            tuple(entry for entry in qdiscs if entry.dev == port.name),
            dict(zip(PLACES, sections[number * len(PLACES) :], strict=False)),
            classes.get(port.name, ""),
        )
        for number, port in enumerate(wanted.ports)
    }


class _Reader:
    """One pass over the qdiscs of a port, from its root to its queues."""

    def __init__(self, answers: PortAnswers) -> None:
        self._answers = answers
        self._by_handle = {entry.handle: entry for entry in answers.qdiscs}
        self._by_parent = {entry.parent: entry for entry in answers.qdiscs}
        self._others = {id(entry): entry for entry in answers.qdiscs if entry.kind != CLSACT}
        self.facts: dict[Fact, Any] = {}
        self.faults: list[str] = []
        """What no plan asks for on the port, a sentence each."""

    def read(self) -> bool:
        """Whether the queues are ours from the top; then facts and faults say what they are."""
        above, filters = "root", {handle: self._answers.filters(f"parent {handle}") for handle in LEVELS}
        if shaper := self._take(self._by_handle.get(SHAPER), "tbf", above):
            self.facts["shaper",] = (_rate_bps(shaper),)
            self._check_tbf("shaper", shaper, is_empty=True)
            above = f"parent {SHAPER}1"
        outer = self._bands(OUTER, above)
        above = f"parent {place(OUTER, outer)}" if outer else above
        share = self._take(self._by_handle.get(SHARE), "drr", above)
        inner = self._bands(INNER, f"parent {SHARE}1") if share else 0
        if share is None and not outer:
            return False
        shares = self._shares() if share else ()
        ahead = max(outer - 1, 0)
        count = ahead + max(inner, 1) + len(shares) if share else outer
        ways = ways_to(count, ahead if share else None, len(shares))
        last = defaults(ways)
        self.facts |= {("prio", "", handle): last[handle] for handle in last if handle != SHARE}
        self.facts |= {("class", minor): share * QUANTUM_BYTES for minor, share in enumerate(shares, 2)}
        for number, way in enumerate(ways, start=1):
            self._queue(number, place(*way[-1]))
        self.faults += map(str, self._others.values())
        for handle in last:
            self.facts |= dict.fromkeys(_filter(handle, entry) for entry in filters[handle])
        return True

    def _take(self, entry: Qdisc | None, kind: str = "", above: str = "") -> Qdisc | None:
        """The entry as one of ours; None where its kind or its place is not the one that is asked for."""
        if entry is None or (kind and (entry.kind, entry.above) != (kind, above)):
            return None
        self._others.pop(id(entry), None)
        return entry

    def _bands(self, handle: str, above: str) -> int:
        """Bands of a prio of ours; 0: there is none."""
        prio = self._take(self._by_handle.get(handle), "prio", above)
        if prio is None or not re.fullmatch("[1-9]|1[0-6]", str(prio.options.get("bands"))):
            return 0  # the kernel has at most 16 (TCQ_PRIO_BANDS)
        count = int(prio.options["bands"])
        if prio.options.get("priomap") != [count - 1] * _PRIOMAP_LENGTH:
            self.faults.append(f"{handle} priomap {prio.options.get('priomap')}")
        return count

    def _shares(self) -> tuple[int, ...]:
        """Parts of the last queues in the quanta, which add up to the same in every tree of ours.

        A class behind the first in which no queue stands is nobody's share.
        """
        quanta = {match["minor"]: match["quantum"] for match in _CLASS.finditer(self._answers.classes)}
        rest = quanta.pop("1", "0b")
        shares: list[int] = []
        while len(shares) < LARGEST_SHARE and (minor := f"{len(shares) + 2:x}") in quanta:
            if shares and f"{SHARE}{minor}" not in self._by_parent:
                break
            quantum = quanta.pop(minor)
            shares.append(next((n for n in range(1, 100) if _is_size(quantum, n * QUANTUM_BYTES)), 1))
            if not _is_size(quantum, shares[-1] * QUANTUM_BYTES):
                self.faults.append(f"{SHARE} quantum {quantum}")
        if not shares or not _is_size(rest, (100 - sum(shares)) * QUANTUM_BYTES):
            self.faults.append(f"{SHARE} quanta {rest} and {' + '.join(map(str, shares)) or 0} %")
        self.faults += [f"class {SHARE}{minor}" for minor in sorted(quanta)]
        return tuple(shares) or (1,)

    def _queue(self, number: int, parent: str) -> None:
        """What stands in one queue's place: a queue, or a cap and the queue below it."""
        name, entry, cap = f"queue {number}", self._take(self._by_parent.get(parent)), None
        if entry is not None and entry.kind == "tbf":
            self._check_tbf(f"{name}: tbf", entry, is_empty=False)
            cap, entry = entry, self._take(self._by_parent.get(f"{entry.handle}1"))
        kind, shown = ("empty", {}) if entry is None else (entry.kind, entry.options)
        limit_bytes, threshold_bytes = shown.get("limit"), shown.get("min")
        if entry is not None and (kind not in {"red", "bfifo"} or not isinstance(limit_bytes, int)):
            self.faults.append(f"{name}: {kind}")
            kind = "empty"
        if cap is not None:
            if entry is None:
                self.faults.append(f"{name}: no queue below its tbf")
            self.facts["cap", number] = (_rate_bps(cap),)
        if kind == "red":
            for option, value in (_RED | {"max": threshold_bytes}).items():
                if shown.get(option) != value:
                    self.faults.append(f"{name}: red {option} {shown.get(option)}, not {value}")
            is_known = isinstance(threshold_bytes, int) and threshold_bytes < 2**32
            self.facts["red", number] = limit_bytes, threshold_bytes if is_known else None
        else:
            self.facts[kind, number] = limit_bytes if kind == "bfifo" else None

    def _check_tbf(self, name: str, tbf: Qdisc, *, is_empty: bool) -> None:
        """Latency is the limit beyond the burst; where tc finds none, it prints the limit itself.

        `is_empty`: its own queue holds a burst and no more. Below a cap stands a queue with its own limit.
        """
        options, rate_bps = tbf.options, _rate_bps(tbf)
        burst_bytes = shaper_burst_bytes(rate_bps)
        slack_bytes = rate_bps / BITS_PER_BYTE * _TICK_SECONDS + 1
        right = {
            "burst": _is_size(options.get("burst"), burst_bytes, slack_bytes),
            "lat": not is_empty or options.get("lat", 0) in (0, 1),
            "limit": not is_empty or options.get("limit", burst_bytes) == burst_bytes,
            "mpu": _is_size(options.get("mpu", 0), 0),
            "linklayer": options.get("linklayer", "ethernet") == "ethernet",
        } | {option: option not in options for option in ("overhead", "peakrate", "minburst", "mtu")}
        self.faults += [f"{name} {option} {options.get(option)}" for option in right if not right[option]]


_CLASS: Final = re.compile(
    r"^class drr 20:(?P<minor>[0-9a-f]+) .*?quantum (?P<quantum>[0-9]+[KM]?b)\s*", re.MULTILINE
)
_SIZE: Final = re.compile(r"([0-9]{1,18})(b|Kb|Mb|)(?:/[0-9]+)?")
_UNITS: Final = {"": (1, 0), "b": (1, 0), "Kb": (2**10, 16), "Mb": (2**20, 2**10)}
"""Unit → its bytes, and how far from a multiple of them tc still uses it (iproute2, sprint_size)."""
_TICK_SECONDS: Final = 1e-6
"""tc counts burst and latency in whole microseconds of the rate, and cuts to whole bytes (iproute2)."""


def _rate_bps(tbf: Qdisc) -> int:
    """The rate to which a tbf caps its queue; 0 where tc tells none that is possible."""
    rate = tbf.options.get("rate")
    return rate * BITS_PER_BYTE if isinstance(rate, int) and 0 < rate < 2**64 else 0


def _is_size(printed: object, wanted_bytes: int, slack_bytes: float = 0) -> bool:
    match = _SIZE.fullmatch(str(printed))
    if match is None:
        return False
    unit_bytes, rounding_bytes = _UNITS[match[2]]
    return abs(int(match[1]) * unit_bytes - wanted_bytes) <= rounding_bytes + slack_bytes


def _filter(parent: str, entry: FilterAnswer) -> Fact:
    """A filter of ours, or one that says in parentheses of which other kind it is."""
    minor = entry.options.classid.removeprefix(parent)
    number = _hexadecimal(minor, 16) if minor and minor != entry.options.classid else 0
    is_ours = entry.kind == "flower" and not entry.options.actions
    match = _match(entry.options) if is_ours else f"({entry.kind})"
    return ("filter", parent, entry.protocol, entry.preference, match, number)


def _match(options: FilterOptions) -> str:
    """What flower matches, in the words of our lines."""
    keys = {name: value for name, value in options.keys.items() if name != "eth_type"}
    if options.indev:
        keys["indev"] = options.indev
    words: list[str] = []
    if "ip_tos" in keys:
        mask = _hexadecimal(keys.pop("ip_tos_mask", DSCP_MASK), 16)
        words.append(tos_match(_hexadecimal(keys.pop("ip_tos"), 0), mask))
    words += [f"{word} {keys.pop(key)}" for key, word in _FIRST_KEYS.items() if key in keys]
    if keys.get("ip_ttl_mask") in (None, "ff", "0xff"):
        keys.pop("ip_ttl_mask", None)
    return " ".join([*words, *(f"{name} {value}" for name, value in sorted(keys.items()))])


def _hexadecimal(value: object, base: int) -> int:
    """tc prints such numbers as a JSON number or as text, by version and key; raises DeviceError."""
    try:
        number = value if isinstance(value, int) else int(str(value), base)
    except ValueError:
        number = -1
    if not 0 <= number <= 0xFFFF:
        raise DeviceError(f"{str(value)[:60]!r} is no number", where="tc -j filter show")
    return number


_TOS: Final = re.compile(f"(?:ip_tos 0x[0-9a-f]{{2}}/{DSCP_MASK:#x})?")


def _mark(entry: FilterAnswer) -> Fact | None:
    """A filter that rewrites code points; None where it is nothing of ours.

    pedit writes the header's first word, but for the bits of the mask.
    """
    actions, keys = entry.options.actions, entry.options.keys
    shift, htype, mask = {"ip": (16, "ipv4", "ff03ffff")}.get(entry.protocol, (20, "ipv6", "f03fffff"))
    try:
        octet = int(actions[0]["keys"][0]["val"], 16) >> shift
    except (LookupError, TypeError, ValueError):
        return None
    key = {"htype": htype, "offset": 0, "cmd": "set", "val": f"{octet << shift:x}", "mask": mask}
    written = {
        "ip": [("pedit", "pipe", None, [key]), ("csum", "pass", "iph", [])],
        "ipv6": [("pedit", "pass", None, [key])],
    }
    is_written = entry.kind == "flower" and [*map(_shown, actions)] == written.get(entry.protocol)
    if not is_written or octet & ~DSCP_MASK or ("ip_tos" in keys) > ("ip_tos_mask" in keys):
        return None
    match = _match(entry.options)
    return (MARKS[entry.protocol], entry.preference, match, octet) if _TOS.fullmatch(match) else None


def _shown(action: Mapping[str, Any]) -> tuple[Any, ...]:
    """What `tc -j` says of an action, but for its counters."""
    control = action.get("control_action")
    control = control.get("type") if isinstance(control, Mapping) else None
    return action.get("kind"), control, action.get("csum"), action.get("keys", [])
