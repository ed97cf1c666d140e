"""The table entries of mltswitch's P4 program as lines of BMv2's own command line, simple_switch_CLI.

An entry is a fact, (table, *key) → parameters of its action, or (action,) where it has none; a meter is one,
too. `table_add` and `meter_set_rates` are commands as that program has them (runtime_CLI.py of p4lang's
behavioral-model), so what is rendered can be pasted there. It changes entries by handles that it gives out
itself; `table_modify_match` and `table_delete_match` name them by their keys instead, as P4Runtime does.
"""

import re
from collections.abc import Iterator
from ipaddress import IPv6Network
from typing import Any, Final

from mltswitch.capabilities.meter_rate import rate_in, rate_text
from mltswitch.targets.addresses import ipv4_network, network_text
from mltswitch.targets.bmv2.capabilities import MAXIMUM_GROUPS, PORTS, QUEUE_COUNT, QUEUE_DEPTH_PACKETS
from mltswitch.targets.engine.facts import Fact
from mltswitch.targets.engine.line import Line, Word, Written
from mltswitch.targets.engine.parse import running_line
from mltswitch.targets.engine.sheet import Block, Sheet
from mltswitch.targets.p4runtime import SET_QUEUE_DEPTH
from mltswitch.wire.tos import DSCP_COUNT

Entries = dict[Fact, Any]
QUEUES: Final = "queues"
"""Table of queue bounds: ECN threshold S (may be missing), limit L, and the longest frame."""
CLASSES: Final = "classes"
"""Table: (port, its MAC address, arriving DSCP) → the queue, and perhaps the DSCP that replaces it."""
TRUST: Final = "ports"
"""Table: (port, its MAC address) → whether arriving DSCPs are believed; if not, their replacement."""
NEIGHBOURS: Final = "neighbours"
"""Table: port → its own MAC address and that of the neighbour behind it."""
OF_PORTS: Final = (QUEUES, CLASSES, TRUST, NEIGHBOURS)
"""The tables whose keys begin with a port."""
GROUPS: Final = "groups"
IPV4: Final = "ipv4_routes"
IPV6: Final = "ipv6_routes"
"""Table of IPv6 routes, which no plan uses."""
FORWARD: Final = "forward"
DISCARD: Final = ("discard",)
SHARING: Final = ("share_flows", "share_packets")
"""Actions of routes that lead to a group of next hops: spread flow by flow, or packet by packet."""
TRUSTED: Final = ("trust",)
METERS: Final = "meters"
"""(meters, port · 8 + queue) → two rates in bytes a second, each with its burst in bytes behind it; a packet
that exceeds either is dropped."""
DEPTH: Final = "depth"
DEPTH_MARK: Final = "mark of the depth"
"""The meter whose bursts record how deep BMv2's queues were made.

It belongs to the last port number, which stands for dropping, so no packet passes it.
"""
DEPTH_METER: Final = (0, QUEUE_DEPTH_PACKETS, 0, QUEUE_DEPTH_PACKETS)

_ENTRIES: Final = """\
classes set_queue {@port} {@mac} {@dscp} => {queue}
classes set_queue_and_dscp {@port} {@mac} {@dscp} => {queue} {new-dscp}
queues set_limit {@port} {@queue} => {limit} {policed} {frame}
queues set_threshold_and_limit {@port} {@queue} => {threshold} {limit} {policed} {frame}
ports trust {@port} {@mac} =>
ports distrust {@port} {@mac} => {dscp}
neighbours set_neighbour {@port} => {mac} {behind}
groups forward {@group} => {ports}
ipv4_routes {forward} {@prefix} => {port}
ipv4_routes {share} {@prefix} => {group}
ipv4_routes discard {@prefix} =>
ipv6_routes {forward} {@long-prefix} => {port}
ipv6_routes {share} {@long-prefix} => {group}
ipv6_routes discard {@long-prefix} =>
"""
"""Table, action, key and parameters of each kind of entry."""
_RATES: Final = "{committed}:{burst} {peak}:{peak-burst}"
_METERS: Final = (
    Line(DEPTH_MARK, f"meter_set_rates policers {(PORTS + 1) * QUEUE_COUNT - 1} {_RATES}", of_switch=True),
    Line(METERS, f"meter_set_rates policers {{@meter}} {_RATES}", of_switch=True),
)


def _entry(text: str) -> Line:
    table, action, *key = text.partition(" =>")[0].split(" ")
    undo = " ".join(("table_delete_match", table, *key))
    return Line(table, f"table_add {text}", (action,), undo=undo, of_switch=True)


def _below(bound: int) -> Word:
    """Decimal numbers from 0, without leading zeros."""

    def read(text: str) -> int:
        if int(text) >= bound:
            raise ValueError(f"is not below {bound}")
        return int(text)

    return Word("0|[1-9][0-9]{0,18}", read, holds=int)


def _long_prefix(text: str) -> str:
    if str(IPv6Network(text)) != text:
        raise ValueError("is not the usual text of this prefix")
    return text


_PORT: Final = _below(PORTS + 1)
_WORDS: Final = {
    "port": _PORT,
    "ports": Word(
        f"(?:{_PORT.pattern})(?: (?:{_PORT.pattern}))*",
        lambda text: tuple(map(_PORT.read, text.split(" "))),
        lambda ports: " ".join(map(str, ports)),
        tuple,
    ),
    "queue": _below(QUEUE_COUNT),
    "policed": _below(2),
    "group": _below(MAXIMUM_GROUPS + 1),
    "meter": _below((PORTS + 1) * QUEUE_COUNT),
    "prefix": Word("[0-9.]{7,15}/(?:[12]?[0-9]|3[0-2])", ipv4_network, network_text),
    "long-prefix": Word(r"\S+", _long_prefix),
    "forward": Word(f"{FORWARD}|forward_back"),
    "share": Word("|".join(SHARING)),
    **dict.fromkeys(("dscp", "new-dscp"), _below(DSCP_COUNT)),
    **dict.fromkeys(("threshold", "limit", "frame", "packets"), _below(1 << 32)),
    **dict.fromkeys(("mac", "behind"), Word("[0-9a-f]{2}(?::[0-9a-f]{2}){5}")),
    **dict.fromkeys(
        ("committed", "peak"), Word(r"(?:0|[1-9][0-9]{0,12})(?:\.[0-9]{1,6})?", rate_in, rate_text, int)
    ),
    **dict.fromkeys(("burst", "peak-burst"), _below(10**19)),
}
_HEADINGS: Final = {
    (DEPTH, DEPTH_MARK): "how deep BMv2's own queues are: no queue below reaches it; "
    "and a meter that no packet meets, to tell that it was said",
    (QUEUES,): "queues: port and queue => S, L in bytes, whether a meter polices it, and the longest frame",
    (METERS,): "meters: port * 8 + queue, then bytes a microsecond : burst in bytes, twice",
    (CLASSES,): "classification: port, its MAC address and DSCP => queue, and the DSCP from here on; "
    "the rest goes to queue 0",
    (TRUST,): "ports and their MAC addresses: whether their DSCP is believed, and if not, what it becomes",
    (NEIGHBOURS,): "neighbours: port => its MAC address, and that of whoever is behind it",
    (GROUPS, IPV4): "routes: prefix => port, or the group of ports that share it; "
    "a group is set by P4Runtime, not by simple_switch_CLI",
}
SHEET: Final = Sheet(
    words=_WORDS,
    lines=(
        *map(_entry, _ENTRIES.splitlines()),
        *_METERS,
        Line(DEPTH, f"{SET_QUEUE_DEPTH} {{packets}}", of_switch=True),
    ),
    blocks=tuple(
        Block(frozenset(tables), f"# {heading}", is_always_there=True)
        for tables, heading in _HEADINGS.items()
    ),
    comment=re.compile("#.*|"),
    preamble="# Commands of simple_switch_CLI. No line is empty: there it would repeat the one before it.",
)


def added(fact: Fact, value: Any) -> str:
    """The line that adds an entry, or sets a meter."""
    return SHEET.write(SHEET.line_for(fact[0], value), ((fact, value),)).text


def of(facts: Entries, *tables: str) -> Iterator[tuple[Any, ...]]:
    """The entries of these tables: (*key, parameters)."""
    return ((*fact[1:], value) for fact, value in facts.items() if fact[0] in tables)


def read_line(line: str) -> Written | None:
    """The entry that a line sets; None for a line that mltswitch would not write exactly so."""
    try:
        return running_line(SHEET, (), line, of_switch=True)
    except ValueError:
        return None
