"""Lines of BMv2's own command line, simple_switch_CLI: what our tables and meters hold.

`table_add` and `meter_set_rates` are commands as that program has them (runtime_CLI.py of p4lang's
behavioral-model), so what is rendered can be pasted there. It changes entries by handles that it gives out
itself; `table_modify_match` and `table_delete_match` name them by their keys instead, as P4Runtime does.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from ipaddress import IPv6Network
from typing import Final, NamedTuple

from mltswitch.capabilities.meter_rate import BYTES_PER_MICROSECOND
from mltswitch.targets.addresses import ipv4_network, network_text
from mltswitch.targets.bmv2.capabilities import MAXIMUM_GROUPS, PORTS, QUEUE_COUNT, QUEUE_DEPTH_PACKETS
from mltswitch.targets.p4runtime import SET_QUEUE_DEPTH
from mltswitch.wire.hardware_address import REMEMBERED
from mltswitch.wire.tos import DSCP_COUNT

SMALL_NUMBERS: Final = 1024
_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_MAC: Final = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}")
_RATE: Final = re.compile(r"((?:0|[1-9][0-9]{0,12})(?:\.[0-9]{1,6})?):((?:0|[1-9][0-9]{0,18}))")
_Check = Callable[[str], bool]


def _below(bound: int) -> _Check:
    """Decimal numbers from 0, without leading zeros; the small ones, which most are, are looked up."""
    small = frozenset(map(str, range(min(bound, SMALL_NUMBERS))))
    return lambda text: text in small or (_WHOLE.fullmatch(text) is not None and int(text) < bound)


@lru_cache(maxsize=REMEMBERED)
def _is_mac(text: str) -> bool:
    return _MAC.fullmatch(text) is not None


def _is_prefix(text: str) -> bool:
    try:
        return network_text(ipv4_network(text)) == text
    except ValueError:
        return False


def _is_ipv6_prefix(text: str) -> bool:
    try:
        return str(IPv6Network(text)) == text
    except ValueError:
        return False


class Table(NamedTuple):
    """What a table's entries look like."""

    key: tuple[_Check, ...]
    actions: Mapping[str, tuple[_Check, ...]]
    is_shared: bool = False
    """Its one action may have its parameter several times."""


_PORT, _QUEUE, _BIT, _BYTES = _below(PORTS + 1), _below(QUEUE_COUNT), _below(2), _below(1 << 32)
_DSCP = _below(DSCP_COUNT)
_GROUP = _below(MAXIMUM_GROUPS + 1)
_ROUTE: Final[Mapping[str, tuple[_Check, ...]]] = {
    "forward": (_PORT,),
    "forward_back": (_PORT,),
    "share_flows": (_GROUP,),
    "share_packets": (_GROUP,),
    "discard": (),
}
TABLES: Final[Mapping[str, Table]] = {
    "queues": Table(
        (_PORT, _QUEUE),
        {"set_limit": (_BYTES, _BIT, _BYTES), "set_threshold_and_limit": (_BYTES, _BYTES, _BIT, _BYTES)},
    ),
    "classes": Table(
        (_PORT, _is_mac, _DSCP), {"set_queue": (_QUEUE,), "set_queue_and_dscp": (_QUEUE, _DSCP)}
    ),
    "ports": Table((_PORT, _is_mac), {"trust": (), "distrust": (_DSCP,)}),
    "neighbours": Table((_PORT,), {"set_neighbour": (_is_mac, _is_mac)}),
    "groups": Table((_GROUP,), {"forward": (_PORT,)}, is_shared=True),
    "ipv4_routes": Table((_is_prefix,), _ROUTE),
    "ipv6_routes": Table((_is_ipv6_prefix,), _ROUTE),
}
"""Every table of mltswitch/p4; a plan says nothing of `ipv6_routes`."""


SHARING: Final = ("share_flows", "share_packets")
"""Actions of routes that lead to a group: flow by flow, and packet by packet."""


class Entry(NamedTuple):
    """One entry of a table, as text that the table allows."""

    table: str
    action: str
    key: tuple[str, ...]
    parameters: tuple[str, ...]

    @property
    def added(self) -> str:
        """The line that adds it."""
        return self._line("table_add")

    @property
    def modified(self) -> str:
        """The line that puts it in the place of another one."""
        return self._line("table_modify_match")

    @property
    def deleted(self) -> str:
        """The line that removes it."""
        return " ".join(("table_delete_match", self.table, *self.key))

    def numbers(self) -> tuple[int, ...]:
        """The key, of a table whose keys are numbers."""
        return tuple(map(int, self.key))

    def numbers_at(self, place: int) -> int:
        """One field of the key, which is a number."""
        return int(self.key[place])

    def _line(self, command: str) -> str:
        return " ".join((command, self.table, self.action, *self.key, "=>", *self.parameters))


Place = tuple[str, tuple[str, ...]]
"""Table and key: there is one entry at most."""


class Meter(NamedTuple):
    """Two rates in bytes a second and two bursts in bytes; a packet that exceeds either is dropped."""

    committed: int
    committed_burst: int
    peak: int
    peak_burst: int


def meter_line(place: int, meter: Meter) -> str:
    """The line that sets a meter; `place` is port · 8 + queue."""
    committed, peak = _rate_text(meter.committed), _rate_text(meter.peak)
    return f"meter_set_rates policers {place} {committed}:{meter.committed_burst} {peak}:{meter.peak_burst}"


def place_of(port: int, queue: int) -> int:
    """The index of a queue's meter."""
    return port * QUEUE_COUNT + queue


DEPTH_PLACE: Final = place_of(PORTS, QUEUE_COUNT - 1)
"""Of the meter whose bursts tell how deep BMv2's queues were made. The last port stands for dropping, and no
packet goes there."""
DEPTH_METER: Final = Meter(0, QUEUE_DEPTH_PACKETS, 0, QUEUE_DEPTH_PACKETS)


def queue_entry(
    port: int, queue: int, threshold: int | None, limit: int, policed: bool, frame_bytes: int
) -> Entry:
    """S and L of one queue, and the longest frame; S None: neither marks nor drops before L."""
    key, end = (str(port), str(queue)), (str(limit), str(int(policed)), str(frame_bytes))
    if threshold is None:
        return Entry("queues", "set_limit", key, end)
    return Entry("queues", "set_threshold_and_limit", key, (str(threshold), *end))


def _rate_text(rate: int) -> str:
    whole, rest = divmod(rate, BYTES_PER_MICROSECOND)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".")


def parse_entry(line: str) -> Entry | None:
    """The entry that a `table_add` line adds; None for any other line."""
    words = line.split(" ")
    if len(words) < 3 or words[0] != "table_add" or "=>" not in words:
        return None
    arrow = words.index("=>")
    name, action, key, parameters = words[1], words[2], words[3:arrow], words[arrow + 1 :]
    table = TABLES.get(name)
    if table is None or action not in table.actions:
        return None
    checks = table.actions[action] * (len(parameters) if table.is_shared else 1)
    if not (_fit(key, table.key) and _fit(parameters, checks)) or (table.is_shared and not parameters):
        return None
    return Entry(name, action, tuple(key), tuple(parameters))


def _fit(words: Sequence[str], checks: Sequence[_Check]) -> bool:
    if len(words) != len(checks):
        return False
    for word, check in zip(words, checks, strict=True):  # noqa: SIM110  (all() with a generator takes twice as long)
        if not check(word):
            return False
    return True


def parse_meter(line: str) -> tuple[int, Meter] | None:
    """(place, meter) of a `meter_set_rates` line; None for any other line."""
    words = line.split(" ")
    if len(words) != 5 or words[:2] != ["meter_set_rates", "policers"]:
        return None
    rates = [_RATE.fullmatch(word) for word in words[3:]]
    if not _below((PORTS + 1) * QUEUE_COUNT)(words[2]) or None in rates:
        return None
    numbers = [
        number
        for rate in rates
        if rate is not None
        for number in (int(Decimal(rate[1]) * BYTES_PER_MICROSECOND), int(rate[2]))
    ]
    return int(words[2]), Meter(*numbers)


def is_depth(line: str) -> bool:
    """Whether it is the line that sets the depth of BMv2's own queues."""
    words = line.split(" ")
    return len(words) == 2 and words[0] == SET_QUEUE_DEPTH and _BYTES(words[1])


@dataclass(slots=True)
class Tables:
    """What a switch holds; `foreign` are lines that our program has no words for."""

    entries: dict[Place, Entry] = field(default_factory=dict)
    meters: dict[int, Meter] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)

    @classmethod
    def of_lines(cls, lines: Iterable[str]) -> "Tables":
        """What a device answers; of two lines for one place, which none holds, the last."""
        tables = cls()
        tables.foreign = [line for line in lines if not tables.add(line) and line]
        return tables

    def add(self, line: str) -> bool:
        """Take what a line sets; whether it is one of our tables or meters."""
        entry = parse_entry(line)
        if entry is not None:
            self.entries[entry.table, entry.key] = entry
        elif (meter := parse_meter(line)) is not None:
            self.meters[meter[0]] = meter[1]
        else:
            return False
        return True

    def of(self, table: str) -> Iterator[Entry]:
        """The entries of one table, in order."""
        return (entry for (name, _), entry in self.entries.items() if name == table)

    def at(self, table: str, *key: object) -> Entry | None:
        """The entry with this key."""
        return self.entries.get((table, tuple(map(str, key))))

    def members(self, group: str) -> tuple[str, ...]:
        """The ports of a group; none where it is missing."""
        entry = self.at("groups", group)
        return () if entry is None else entry.parameters


def hops_of(tables: Tables, route: Entry) -> tuple[str, ...]:
    """The ports that a route leads to; none where it discards, or its group is missing."""
    return tables.members(route.parameters[0]) if route.action in SHARING else route.parameters
