"""What others configured on a host: rules that touch packets of the plan, and qdiscs that a push replaced."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from mltswitch.errors import PreflightError
from mltswitch.targets.linux.answers import LINK_QUERY, LINKS, NO_HANDLE, QDISC_QUERY, QDISCS, Qdisc, load
from mltswitch.targets.state import SwitchState

_UNREAD: Final = "not read: "
RULES_QUERY: Final = (
    f"! command -v nft >/dev/null || nft list ruleset || echo {_UNREAD}nft; for ip in ip ip6; do "
    "names=/proc/net/${ip}_tables_names; test ! -e $names || { grep -qsx mangle $names; test $? = 1; } "
    f"|| ${{ip}}tables-save -t mangle || echo {_UNREAD}${{ip}}tables; done"
)
"""The query for packet filter rules of nftables and iptables; iptables-save alone would load unused tables.

Where the user may not read the names of the tables in use (grep ends with 2), iptables-save says so.
"""
_ON_TOP: Final = frozenset({"vlan", "macvlan", "ipvlan", "macsec"})
"""Kinds of links that send through another one, after their own qdiscs."""
_HOOK: Final = re.compile(r"\s*type \S+ hook (\S+) .*")
_OWN_HOOKS: Final = frozenset({"input", "output"})
"""Of packets that the host itself sends and receives."""
_CHANGES: Final = re.compile(
    r"\b(?:dscp|ecn|priority) set\b|@[a-z]+,[0-9]+,[0-9]+ set\b|\blimit rate\b.{0,300}\bdrop\b"
    r"|xt target \"(?:DSCP|TOS|ECN|CLASSIFY)\"|^-A (?!(?:IN|OUT)PUT )\S+ .*-j (?:DSCP|TOS|ECN|CLASSIFY)\b"
)
"""Rules that write the byte by which packets are classified, give them another queue, or limit their rate."""
_INTERFACES: Final = re.compile(
    r"\b[io]if(?:name)? (?:\"([\w.-]+)\"(?!\S))?| ! -[io] | -[io] (?:([\w.-]+)(?!\S))?"
)
"""Interfaces that a rule names; the groups are empty for what may be any: a set, a pattern, all but one."""


def elsewhere(answers: Mapping[str, str], wanted: SwitchState) -> Iterator[str]:
    """What else touches packets of the wanted ports beside their qdiscs; raises PreflightError for a bond."""
    ports = {port.name for port in wanted.ports}
    links = load(LINKS, answers, LINK_QUERY) if LINK_QUERY in answers else []
    for link in links:
        if link.ifname in ports and link.linkinfo.get("info_slave_kind") in {"bond", "team"}:
            raise PreflightError(
                f"is a member of {link.master}, which has the queues that packets meet first",
                where=f"port {link.ifname}",
                hint=f"take it out first: ip link set {link.ifname} nomaster",
            )
        if link.ifname in ports and link.xdp:
            yield f"{link.ifname} has an XDP program, which sees packets before any filter"
    above = {link.master: link.ifname for link in links if link.ifname in ports and link.master}
    above |= {
        link.ifname: link.lower
        for link in links
        if link.lower in ports and link.linkinfo.get("info_kind") in _ON_TOP
    }
    for qdisc in load(QDISCS, answers, QDISC_QUERY):
        if qdisc.dev in above and qdisc.handle != NO_HANDLE:
            yield f"{qdisc} on {qdisc.dev}, which stands above {above[qdisc.dev]}"
    hook = ""
    for line in answers.get(RULES_QUERY, "").splitlines() if ports else ():
        match = _HOOK.fullmatch(line)
        hook = match[1] if match else "" if line.rstrip().endswith("{") else hook
        named = {quoted or bare for quoted, bare in _INTERFACES.findall(line)}
        if hook not in _OWN_HOOKS and _CHANGES.search(line) and (not named or named & {"", *ports, *above}):
            yield f"rule {line.strip()!r}"


def unread_rules(answers: Mapping[str, str]) -> Iterator[str]:
    """Notes for the operator about packet filter rules that the user may not read."""
    for program in re.findall(f"^{_UNREAD}(.+)", answers.get(RULES_QUERY, ""), re.MULTILINE):
        yield (
            f"rules of {program} cannot be read, and one may rewrite DSCPs: log in as root, or set "
            "ansible_become"
        )


_COUNT: Final = ""
_CODEL_TIME: Final = "codel"
"""Microseconds, cut to whole units of 1,024 ns (codel.h, CODEL_SHIFT): one more gives the same unit again."""
_FIXED: Final = None
"""Printed, but no option."""
_CODEL: Final = {"limit": _COUNT, "target": _CODEL_TIME, "interval": _CODEL_TIME, "ce_threshold": _CODEL_TIME}
_OPTIONS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "noqueue": {},
    "mq": {},
    "pfifo_fast": {"bands": _FIXED, "priomap": _FIXED, "multiqueue": _FIXED},
    "pfifo": {"limit": _COUNT},
    "bfifo": {"limit": _COUNT},
    "pfifo_head_drop": {"limit": _COUNT},
    "codel": _CODEL,
    "fq_codel": _CODEL | dict.fromkeys(("flows", "quantum", "memory_limit", "drop_batch"), _COUNT),
    "fq": {
        **dict.fromkeys(("limit", "flow_limit", "buckets", "orphan_mask", "quantum"), _COUNT),
        **dict.fromkeys(("initial_quantum", "bands", "priomap", "weights"), _COUNT),
        **dict.fromkeys(("maxrate", "defrate", "low_rate_threshold"), "bps"),
        **dict.fromkeys(("refill_delay", "ce_threshold", "horizon", "offload_horizon"), "us"),
        "timer_slack": "ns",
    },
}
"""Kind → option → unit that tc expects behind the number; `bps` are bytes a second there (tc(8), RATES)."""
_FLAGS: Final[Mapping[str, tuple[bool | None, str]]] = {
    "ecn": (True, "ecn"),
    "pacing": (False, "nopacing"),
    "horizon_cap": (None, "horizon_cap"),
    "horizon_drop": (None, "horizon_drop"),
}
"""Option that is a word alone → its value where it is set, and the word."""
_WORDS: Final = re.compile(r"[0-9A-Za-z_.: ]+")


def words_of(entry: Qdisc) -> str | None:
    """Handle, kind and options, as `tc qdisc replace dev PORT PLACE` takes them; None: not all is known."""
    options = _OPTIONS.get(entry.kind)
    if options is None:
        return None
    words = [f"handle {entry.handle} {entry.kind}"]
    if "target" in options and "ecn" not in entry.options:
        words.append("noecn")
    for name, value in entry.options.items():
        if name in _FLAGS and _FLAGS[name][0] == value:
            words.append(_FLAGS[name][1])
        elif name not in options:
            return None
        elif (unit := options[name]) is not None:
            words += [name, *_values(value, unit)]
    text = " ".join(words)
    return text if _WORDS.fullmatch(text) else None


def _values(value: object, unit: str) -> Iterator[str]:
    """Numbers with their unit; some versions before 6 print text that has one already."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, int):
            yield f"{item + 1}us" if unit == _CODEL_TIME else f"{item}{unit}"
        else:
            yield str(item)
