"""The lines that tc and ip take: each is one string, from which it is both written and read.

A port's name stands as ANY_PORT in them: most ports of a switch have the same lines.
"""

import re
from contextlib import suppress
from functools import lru_cache
from math import ceil
from typing import Any, Final

from mltswitch.targets.common import UNKNOWN
from mltswitch.targets.engine.facts import Fact
from mltswitch.targets.engine.line import Line, Word
from mltswitch.targets.engine.parse import running_line
from mltswitch.targets.engine.sheet import REMEMBERED, Sheet
from mltswitch.units import BITS_PER_BYTE, ETHERNET_HEADER_BYTES

ANY_PORT: Final = " dev @ "
"""Stands in lines for the words that name a port; no line contains its sign otherwise."""
PORT: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}"
PORT_NAME: Final = re.compile(PORT)
ROUTE_PROTOCOL: Final = "173"
"""The protocol number that marks a route as mltswitch's; no entry of iproute2's rt_protos has it."""
FORWARDING: Final = "sysctl -q -w net.ipv6.conf.all.forwarding=1"
"""Command that turns on IPv6 forwarding, for SRv6; it stays on after a plan, as others may need it then."""
SHAPER, OUTER, SHARE, INNER = "1:", "10:", "20:", "30:"
LEVELS: Final = (OUTER, SHARE, INNER)
"""Handles of the qdiscs that have filters, in the order in which packets meet them."""
MARKS: Final = {"ip": "mark ip", "ipv6": "mark ipv6"}
"""IP version → name of the fact (a tc line) that rewrites an arriving DSCP to background's."""
INGRESS_LINES: Final = frozenset({"clsact", "unmark", *MARKS.values()})
"""Names of facts about arriving packets; all other facts of a port are about its queues."""
NUMBER_LINES: Final = frozenset({"cap", "red", "bfifo"})
"""Names of facts that are simply set again where only their numbers change.

Setting tbf again keeps what waits below it, and gives that queue the limit in tbf's own line (tbf_change in
sch_tbf.c): the same number.
"""
LARGEST_FRAME_BYTES: Final = 9216 + ETHERNET_HEADER_BYTES
"""The shortest burst of tbf in bytes: it drops every packet that is longer than its burst."""
SHAPER_SLACK_SECONDS: Final = 100e-6
"""How many seconds late a timer may wake tbf without loss of rate."""
QUANTUM_BYTES: Final = 300
"""Quantum of drr, in bytes, for each percent of share: 5 % is about one frame of 1,500 bytes a round."""


def shaper_burst_bytes(rate_bps: int) -> int:
    """Bytes that tbf may send at once: one frame, or what it must catch up after a late timer."""
    return max(LARGEST_FRAME_BYTES, ceil(rate_bps / BITS_PER_BYTE * SHAPER_SLACK_SECONDS))


def red_numbers(limit_bytes: int | None, threshold_bytes: int) -> tuple[int | None, ...]:
    """The arguments limit, min, max, avpkt and burst of red for a threshold, which a device may show as 0."""
    burst_packets = max(ceil(threshold_bytes / 1000), 1)
    average_bytes = ceil(threshold_bytes / burst_packets)
    return limit_bytes, threshold_bytes, threshold_bytes, average_bytes, burst_packets


def _behind(words: str) -> str:
    """Words that may be none, before others."""
    return f"{words} " if words else ""


_NUMBER: Final = r"[1-9][0-9]{0,18}"
_MINOR: Final = "(?:[1-9a-f]|10)"
_TBF: Final = "tbf rate {rate}bit burst {burst} limit {limit}"
_OURS: Final = f"proto {ROUTE_PROTOCOL}"
LINES: Final = (
    Line("filter", f"filter add{ANY_PORT}parent {{@level}} protocol {{@protocol}} prio {{@preference}} "
         "flower {@match}classid {again=level}{@minor}"),
    Line("clsact", f"qdisc replace{ANY_PORT}clsact"),
    Line("unmark", f"filter del{ANY_PORT}ingress"),
    Line("mark ip", f"filter add{ANY_PORT}ingress protocol ip prio {{@order}} flower {{@tos}}action pedit "
         "ex munge ip dsfield set 0x{@octet} retain 0xfc pipe action csum ip4h"),
    Line("mark ipv6", f"filter add{ANY_PORT}ingress protocol ipv6 prio {{@order}} flower {{@tos}}action "
         "pedit ex munge ip6 traffic_class set 0x{@octet} retain 0xfc"),
    Line("reset", f"qdisc replace{ANY_PORT}root handle ffef: pfifo"),
    Line("shaper", f"qdisc replace{ANY_PORT}root handle 1: {_TBF}"),
    Line("prio", f"qdisc replace{ANY_PORT}{{@parent}} handle {{@prio}} prio bands {{bands}}"),
    Line("share", f"qdisc replace{ANY_PORT}{{@above}} handle 20: drr"),
    Line("class", f"class replace{ANY_PORT}parent 20: classid 20:{{@minor}} drr quantum {{quantum}}"),
    Line("cap", f"qdisc replace{ANY_PORT}parent {{@place}} handle {{@handle}} {_TBF}"),
    Line("red", f"qdisc replace{ANY_PORT}parent {{@place}} handle {{@handle}} red limit {{limit}} "
         "min {min} max {max} avpkt {average} burst {burst} bandwidth 10gbit probability 1 ecn"),
    Line("bfifo", f"qdisc replace{ANY_PORT}parent {{@place}} handle {{@handle}} bfifo limit {{limit}}"),
    # Behind the words `route replace`:
    Line("route", f"{{prefix}} via {{address}} dev {{port}} {_OURS}", of_switch=True),
    Line("discard", f"blackhole {{network}} {_OURS}", of_switch=True),
    Line("segment", f"{{segment}}/128 encap seg6local action End dev {{port}} {_OURS}", of_switch=True),
)  # fmt: skip
SHEET: Final = Sheet(
    words=dict.fromkeys(
        ("rate", "burst", "limit", "min", "max", "average", "quantum"), Word(_NUMBER, int, str)
    )
    | {
        "port": Word(PORT),
        "order": Word("[12]", int, str),
        "tos": Word("(?:ip_tos 0x[0-9a-f]{2}/0xfc )?", str.rstrip, _behind),
        "octet": Word("[0-9a-f]{2}", lambda text: int(text, 16), "{:02x}".format),
        "above": Word(f"root|parent (?:1:1|10:{_MINOR})"),
        "parent": Word("root|parent (?:1:1|20:1)"),
        "prio": Word("10:|30:"),
        "bands": Word(
            f"{_NUMBER} priomap(?: [0-9]+){{16}}",
            lambda text: int(text.split()[0]),
            lambda count: f"{count} priomap{f' {count - 1}' * 16}",
        ),
        "minor": Word(_MINOR, lambda text: int(text, 16), "{:x}".format),
        "place": Word(f"(?:[123]0:{_MINOR}|1[0-9a-f]{{2}}:1)"),
        "handle": Word("[12][0-9a-f]{2}:"),
        "level": Word("[123]0:"),
        "protocol": Word("all|arp|ip|ipv6"),
        "preference": Word("[1-8]", int, str),
        "match": Word("(?:[A-Za-z0-9_./-]+ )*", str.rstrip, _behind),
        "prefix": Word("[0-9a-f.:/]+"),
        "network": Word("[0-9./]+"),
        "address": Word("[0-9a-f.:]+"),
        "segment": Word("[0-9a-f:]+"),
    },
    lines=LINES,
    blocks=(),
    comment=re.compile(r"#[\t -~]*|"),
)
_LINES: Final = {line.what: line for line in LINES}


@lru_cache(REMEMBERED)
def text_of(fact: Fact, value: Any) -> str:
    """The tc line that sets a fact."""
    return SHEET.write(_LINES[fact[0]], ((fact, value),)).text


def route_text(what: str, **words: object) -> str:
    """The words of a route behind `ip route`; they are not formed as a Line because routes are many."""
    return _LINES[what].text.format(**words)


def read_line(text: str, *, is_route: bool = False) -> tuple[Fact, Any]:
    """The fact that a line sets; raises ValueError for a line that mltswitch does not write."""
    with suppress(ValueError):
        if written := running_line(SHEET, (), text, of_switch=is_route):
            return written.facts[0]
    raise ValueError(UNKNOWN)
