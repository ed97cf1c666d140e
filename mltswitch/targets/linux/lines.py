"""The lines that tc and ip take: each is one string, from which it is both written and read.

A port's name stands as ANY_PORT in them: most ports of a switch have the same lines.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from math import ceil
from typing import Any, Final

from mltswitch.targets.common import UNKNOWN
from mltswitch.targets.engine.facts import Fact
from mltswitch.targets.engine.line import Line, Word
from mltswitch.targets.engine.sheet import Sheet
from mltswitch.units import BITS_PER_BYTE, ETHERNET_HEADER_BYTES

ANY_PORT: Final = " dev @ "
"""Stands for the words that name a port; no name of ours has such a sign."""
PORT: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}"
PORT_NAME: Final = re.compile(PORT)
ROUTE_PROTOCOL: Final = "173"
"""Marks a route as ours; no entry of iproute2's rt_protos has it."""
FORWARDING: Final = "sysctl -q -w net.ipv6.conf.all.forwarding=1"
"""For SRv6. It stays on when a plan no longer needs it: others may, by then."""
SHAPER, OUTER, SHARE, INNER = "1:", "10:", "20:", "30:"
LEVELS: Final = (OUTER, SHARE, INNER)
"""Handles of the qdiscs that have filters, as packets meet them."""
MARKS: Final = {"ip": "mark ip", "ipv6": "mark ipv6"}
"""Family → the line that makes background's of code points as packets arrive."""
INGRESS_LINES: Final = frozenset({"clsact", "unmark", *MARKS.values()})
"""What a port does with packets that arrive; all its other lines make its queues."""
NUMBER_LINES: Final = frozenset({"cap", "red", "bfifo"})
"""What is set anew by itself where nothing but its numbers change.

Setting tbf again keeps what waits below it, and gives that queue the limit in tbf's own line (tbf_change in
sch_tbf.c): the same number.
"""
LARGEST_FRAME_BYTES: Final = 9216 + ETHERNET_HEADER_BYTES
"""tbf drops every packet above its burst, so that no burst may be smaller."""
SHAPER_SLACK_SECONDS: Final = 100e-6
"""How late a timer may wake tbf without loss of rate."""
QUANTUM_BYTES: Final = 300
"""Of drr for each percent: 5 % is about one frame of 1,500 bytes a round."""


def shaper_burst_bytes(rate_bps: int) -> int:
    """Bytes that tbf may send at once: one frame, or what a late timer has to make up for."""
    return max(LARGEST_FRAME_BYTES, ceil(rate_bps / BITS_PER_BYTE * SHAPER_SLACK_SECONDS))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall("[0-9]+", text)]


def _behind(words: str) -> str:
    """Words that may be none, before others."""
    return f"{words} " if words else ""


def _shaper(rate_bps: int) -> str:
    burst_bytes = shaper_burst_bytes(rate_bps)
    return f"{rate_bps}bit burst {burst_bytes} limit {burst_bytes}"


def _red(value: tuple[int, int]) -> str:
    limit_bytes, threshold_bytes = value
    burst_packets = max(ceil(threshold_bytes / 1000), 1)  # a device may show a threshold of 0
    average_bytes = ceil(threshold_bytes / burst_packets)
    return (
        f"{limit_bytes} min {threshold_bytes} max {threshold_bytes} avpkt {average_bytes} "
        f"burst {burst_packets}"
    )


_NUMBER: Final = r"[1-9][0-9]{0,18}"
_MINOR: Final = "(?:[1-9a-f]|10)"
_RATE: Final = f"{_NUMBER}bit burst {_NUMBER} limit {_NUMBER}"
PORT_LINES: Final = (
    Line("filter", f"filter add{ANY_PORT}parent {{@level}} protocol {{@protocol}} prio {{@preference}} "
         "flower {@match}classid {again=level}{@minor}"),
    Line("clsact", f"qdisc replace{ANY_PORT}clsact"),
    Line("unmark", f"filter del{ANY_PORT}ingress"),
    Line("mark ip", f"filter add{ANY_PORT}ingress protocol ip prio {{@order}} flower {{@tos}}action pedit "
         "ex munge ip dsfield set 0x{@octet} retain 0xfc pipe action csum ip4h"),
    Line("mark ipv6", f"filter add{ANY_PORT}ingress protocol ipv6 prio {{@order}} flower {{@tos}}action "
         "pedit ex munge ip6 traffic_class set 0x{@octet} retain 0xfc"),
    Line("reset", f"qdisc replace{ANY_PORT}root handle ffef: pfifo"),
    Line("shaper", f"qdisc replace{ANY_PORT}root handle 1: tbf rate {{shaper}}"),
    Line("prio", f"qdisc replace{ANY_PORT}{{@parent}} handle {{@prio}} prio bands {{bands}}"),
    Line("share", f"qdisc replace{ANY_PORT}{{@above}} handle 20: drr"),
    Line("class", f"class replace{ANY_PORT}parent 20: classid 20:{{@minor}} drr quantum {{percent}}"),
    Line("cap", f"qdisc replace{ANY_PORT}parent {{@place}} handle {{@handle}} tbf rate {{cap}}"),
    Line("red", f"qdisc replace{ANY_PORT}parent {{@place}} handle {{@handle}} red limit {{red}} "
         "bandwidth 10gbit probability 1 ecn"),
    Line("bfifo", f"qdisc replace{ANY_PORT}parent {{@place}} handle {{@handle}} bfifo limit {{bytes}}"),
)  # fmt: skip
ROUTE_LINES: Final = (
    Line("route", f"{{prefix}} via {{address}} dev {{port}} proto {ROUTE_PROTOCOL}"),
    Line("discard", f"blackhole {{network}} proto {ROUTE_PROTOCOL}"),
    Line("segment", f"{{segment}}/128 encap seg6local action End dev {{port}} proto {ROUTE_PROTOCOL}"),
)
"""Behind the words `route replace`."""
_ON_LINK: Final = Line("on link", f"{{prefix}} dev {{port}} proto {ROUTE_PROTOCOL}")
"""A route that no plan has."""
SHEET: Final = Sheet(
    words={
        "port": Word(PORT),
        "order": Word("[12]", int, str),
        "tos": Word("(?:ip_tos 0x[0-9a-f]{2}/0xfc )?", str.rstrip, _behind),
        "octet": Word("[0-9a-f]{2}", lambda text: int(text, 16), "{:02x}".format),
        "shaper": Word(_RATE, lambda text: _numbers(text)[0], _shaper),
        "above": Word(f"root|parent (?:1:1|10:{_MINOR})"),
        "parent": Word("root|parent (?:1:1|20:1)"),
        "prio": Word("10:|30:"),
        "bands": Word(
            f"{_NUMBER} priomap(?: [0-9]+){{16}}",
            lambda text: _numbers(text)[0],
            lambda count: f"{count} priomap{f' {count - 1}' * 16}",
        ),
        "minor": Word(_MINOR, lambda text: int(text, 16), "{:x}".format),
        "percent": Word(
            _NUMBER, lambda text: int(text) // QUANTUM_BYTES, lambda share: str(share * QUANTUM_BYTES)
        ),
        "place": Word(f"(?:[123]0:{_MINOR}|1[0-9a-f]{{2}}:1)"),
        "handle": Word("[12][0-9a-f]{2}:"),
        "cap": Word(
            _RATE,
            lambda text: (_numbers(text)[0], _numbers(text)[2]),
            lambda value: f"{value[0]}bit burst {shaper_burst_bytes(value[0])} limit {value[1]}",
        ),
        "red": Word(
            f"{_NUMBER} min {_NUMBER} max {_NUMBER} avpkt {_NUMBER} burst {_NUMBER}",
            lambda text: (_numbers(text)[0], _numbers(text)[1]),
            _red,
        ),
        "bytes": Word(_NUMBER, int, str),
        "level": Word("[123]0:"),
        "protocol": Word("all|arp|ip|ipv6"),
        "preference": Word("[1-8]", int, str),
        "match": Word("(?:[A-Za-z0-9_./-]+ )*", str.rstrip, _behind),
        "prefix": Word("[0-9a-f.:/]+"),
        "network": Word("[0-9./]+"),
        "address": Word("[0-9a-f.:]+"),
        "segment": Word("[0-9a-f:]+"),
    },
    lines=(*PORT_LINES, *ROUTE_LINES, _ON_LINK),
    blocks=(),
    comment=re.compile(r"#[\t -~]*|"),
)
_REMEMBERED_LINES: Final = 4096
"""Texts of facts that are kept: ports and devices of a fabric share most of them."""
_LINES: Final = {line.what: line for line in SHEET.lines}
_READ: Final = {
    line: [(hole.name, SHEET.words[hole.same_as or hole.name].read) for hole in line.holes]
    for line in SHEET.lines
}
"""The holes of a line from left to right, and what reads the word in each."""
_SAME: Final = {
    line: [(hole.name, hole.same_as) for hole in line.holes if hole.same_as] for line in SHEET.lines
}
"""Holes that have to say the same as others."""


@lru_cache(maxsize=_REMEMBERED_LINES)
def text_of(fact: Fact, value: Any) -> str:
    """The line that sets a fact."""
    return SHEET.write(_LINES[fact[0]], ((fact, value),)).text


def route_text(what: str, **words: object) -> str:
    """The words of a route; routes are many, and such a line has no hole for a place."""
    return _LINES[what].text.format(**words)


def read_line(text: str, lines: Iterable[Line] = PORT_LINES) -> tuple[Fact, Any]:
    """The fact that one of these lines sets; raises ValueError for a text that is none of them."""
    for line in lines:
        if match := SHEET.pattern(line.text).fullmatch(text):
            items = {name: read(word) for (name, read), word in zip(_READ[line], match.groups(), strict=True)}
            if all(items[name] == items[other] for name, other in _SAME[line]):
                return next(line.facts(items))
    raise ValueError(UNKNOWN)
