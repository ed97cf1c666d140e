"""What a host answers, as state: ports, routes, its disk, and counters of its queues."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import Field, TypeAdapter

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, HazardError
from mltswitch.targets.base import (
    CounterSource,
    EgressCounters,
    Identity,
    QueueCounters,
    QueuePlace,
    RunningState,
)
from mltswitch.targets.linux.answers import (
    CLSACT,
    FORWARDING_QUERY,
    IDENTITY_QUERY,
    INGRESS_PARENT,
    LINKS,
    QDISC_QUERY,
    QDISCS,
    ROUTE_QUERY,
    ROUTES,
    SEGMENT_QUERY,
    Qdisc,
    answer,
    class_query,
    class_sections,
    filter_query,
    filter_sections,
    load,
)
from mltswitch.targets.linux.layout import LEVELS
from mltswitch.targets.linux.read_port import (
    FoundRewriting,
    filters_in,
    foreign_filters,
    rewriting_in,
    tree_of,
)
from mltswitch.targets.linux.read_routes import alias_routes, segment_routing
from mltswitch.targets.linux.save import SAVED_QUERY, read_saved, save_notes
from mltswitch.targets.linux.tree import Tree, switch_state
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import SwitchState

OS_RELEASE: Final = "/etc/os-release"
_PRETTY_NAME: Final = "PRETTY_NAME="
NOT_FORWARDING: Final = "IPv6 is not forwarded"


def identify(answers: Mapping[str, str]) -> Identity:
    """Who the host says it is; raises DeviceError.

    The machine-id (machine-id(5)) stands for its serial number: that of the board (DMI) is often a filler
    such as `To be filled by O.E.M.`, and virtual machines have none.
    """
    lines = [line.partition(":")[::2] for line in answers[IDENTITY_QUERY].splitlines()]
    files = dict(lines)
    name = files.get("/proc/sys/kernel/hostname", "").strip()
    if not name:
        raise DeviceError("does not tell its host name", where=IDENTITY_QUERY)
    release = next((text for file, text in lines if file == OS_RELEASE and text.startswith(_PRETTY_NAME)), "")
    return Identity(
        name,
        files.get("/etc/machine-id", "").strip(),
        files.get("/sys/class/dmi/id/product_name", "").strip(),
        release.removeprefix(_PRETTY_NAME).strip("\"' "),
    )


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """One command each for qdiscs, filters, classes and routes of all ports, and for what is saved."""
    queries = [QDISC_QUERY, ROUTE_QUERY, SEGMENT_QUERY, SAVED_QUERY]
    if wanted.ports:
        queries += [filter_query(wanted), class_query(wanted), LINK_QUERY, RULES_QUERY]
    if wanted.segment_routing is not None:
        queries.append(FORWARDING_QUERY)
    return tuple(queries)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """State of `wanted`'s ports, without those that lack our tree; raises DeviceError if unreadable."""
    del capabilities
    on_ports = port_answers(answers, wanted)
    found: dict[str, Tree] = {}
    for port in wanted.ports:
        tree = on_ports.tree(port.name, rewriting_in(on_ports.filters, port.name))
        if tree is not None:
            found[port.name] = tree
    entries = load(ROUTES, answers, ROUTE_QUERY)
    routes = alias_routes(entries, OwnPrefixes(wanted.routes))
    six = load(ROUTES, answers, SEGMENT_QUERY)
    segments = segment_routing(six, wanted.segment_routing)
    state = switch_state(found, in_order_of(wanted.routes, routes), segments)
    if wanted.segment_routing is not None and not forwards(answer(answers, FORWARDING_QUERY)):
        state = _not_forwarding(state)
    foreign = tuple(elsewhere(answers, wanted, on_ports.qdiscs))
    state = replace(state, unexpected=foreign)
    notes = save_notes(read_saved(answer(answers, SAVED_QUERY)), wanted)
    unread = re.findall(f"^{_UNREAD}(.+)", answers.get(RULES_QUERY, ""), re.MULTILINE)
    return RunningState(state, dict(answers), (*notes, *map(_RULES_UNREAD.format, unread)))


@dataclass(frozen=True, slots=True)
class PortAnswers:
    """What a host answers of its ports."""

    qdiscs: Sequence[Qdisc]
    filters: Mapping[str, str]
    """Port and handle, or port and side of clsact → what tc printed."""
    classes: Mapping[str, str]

    def of(self, port: str) -> list[Qdisc]:
        """What `tc qdisc show` lists for one port."""
        return [entry for entry in self.qdiscs if entry.dev == port]

    def tree(self, port: str, rewriting: FoundRewriting) -> Tree | None:
        """A port's tree; None where it is not ours from the top."""
        return tree_of(
            self.of(port),
            {handle: filters_in(self.filters, port, handle) for handle in LEVELS},
            self.classes.get(port, ""),
            rewriting,
        )


def port_answers(answers: Mapping[str, str], wanted: SwitchState) -> PortAnswers:
    """The answers of `wanted`'s ports; raises DeviceError if unreadable."""
    qdiscs = load(QDISCS, answers, QDISC_QUERY)
    if not wanted.ports:
        return PortAnswers(qdiscs, {}, {})
    return PortAnswers(qdiscs, filter_sections(answers, wanted), class_sections(answers, wanted))


def forwarding_interfaces(answered: str) -> list[str]:
    """Whose IPv6 packets are forwarded by the answer to `FORWARDING_QUERY`: `all`, `default` and ports."""
    return re.findall(r"^/proc/sys/net/ipv6/conf/(.+)/forwarding:1$", answered, re.MULTILINE)


def forwards(answered: str) -> bool:
    """Whether the answer to `FORWARDING_QUERY` says that IPv6 is forwarded."""
    return "all" in forwarding_interfaces(answered)


def _not_forwarding(state: SwitchState) -> SwitchState:
    """Said of the first port, since nothing else of the state can say it."""
    if not state.ports:
        return state
    first = state.ports[0]
    return replace(
        state, ports=(replace(first, unexpected=(*first.unexpected, NOT_FORWARDING)), *state.ports[1:])
    )


def obstacles(answers: Mapping[str, str], wanted: SwitchState, port: str) -> tuple[str, ...]:
    """What somebody else made that sees packets beside the plan's queues, and stays when these change."""
    found = [entry for entry in standing_qdiscs(answers, port) if entry.parent == INGRESS_PARENT]
    filters = filter_sections(answers, wanted) if found and filter_query(wanted) in answers else {}
    return (
        *foreign_filters(filters, port),
        *(entry.kind for entry in found if entry.kind != CLSACT),
    )


def standing_qdiscs(answers: Mapping[str, str], port: str) -> list[Qdisc]:
    """What somebody gave the port, ours included; the kernel's own default queues have no handle."""
    if QDISC_QUERY not in answers:
        return []
    entries = load(QDISCS, answers, QDISC_QUERY)
    return [entry for entry in entries if entry.dev == port and entry.handle != "0:"]


LINK_QUERY: Final = "ip -j -d link show"
_UNREAD: Final = "not read: "
RULES_QUERY: Final = (
    f"! command -v nft >/dev/null || nft list ruleset || echo {_UNREAD}nft; for ip in ip ip6; do "
    "names=/proc/net/${ip}_tables_names; test ! -e $names || { grep -qsx mangle $names; test $? = 1; } "
    f"|| ${{ip}}tables-save -t mangle || echo {_UNREAD}${{ip}}tables; done"
)
"""Also the rules of iptables on nftables; iptables-save alone would load tables that are not in use.

Where the user may not read the names of the tables in use (grep ends with 2), iptables-save says so.
"""
_RULES_UNREAD: Final = (
    "rules of {} cannot be read, and one may rewrite DSCPs: log in as root, or set ansible_become"
)
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


def elsewhere(answers: Mapping[str, str], wanted: SwitchState, qdiscs: Sequence[Qdisc]) -> Iterator[str]:
    """What touches packets of the wanted ports beside their own qdiscs; raises HazardError for a bond."""
    ports = {port.name for port in wanted.ports}
    links = load(LINKS, answers, LINK_QUERY) if LINK_QUERY in answers else []
    for link in links:
        if link.ifname in ports and link.linkinfo.get("info_slave_kind") in {"bond", "team"}:
            raise HazardError(
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
    for qdisc in qdiscs:
        if qdisc.dev in above and qdisc.handle != "0:":
            yield f"{qdisc} on {qdisc.dev}, which stands above {above[qdisc.dev]}"
    hook = ""
    for line in answers.get(RULES_QUERY, "").splitlines() if ports else ():
        match = _HOOK.fullmatch(line)
        hook = match[1] if match else "" if line.rstrip().endswith("{") else hook
        named = {quoted or bare for quoted, bare in _INTERFACES.findall(line)}
        if hook not in _OWN_HOOKS and _CHANGES.search(line) and (not named or named & {"", *ports, *above}):
            yield f"rule {line.strip()!r}"


COUNTER_QUERY: Final = "tc -s -j -d qdisc show"
RED: Final = "red"


class _Counted(Qdisc):
    """Statistics of a qdisc: gnet_stats of every kind, and tc_red_xstats of red (linux uapi pkt_sched.h).

    red counts a packet as marked when it sets CE at the threshold, also where the limit drops it then;
    `drops` are those at the threshold (`early`) and at the limit (`pdrop`) together. A packet is sent when it
    leaves the queue.
    """

    sent_bytes: int | None = Field(None, alias="bytes")
    sent_packets: int | None = Field(None, alias="packets")
    drops: int | None = None
    backlog: int | None = None
    marked: int | None = None
    early: int | None = None
    pdrop: int | None = None

    @property
    def counters(self) -> EgressCounters:
        # Other kinds than red mark nothing in a tree of ours.
        marked = self.marked if self.kind == RED else 0
        return EgressCounters(
            depth_bytes=self.backlog,
            sent_bytes=self.sent_bytes,
            sent_packets=self.sent_packets,
            dropped_packets=self.drops,
            ce_marked_packets=marked,
            dropped_at_threshold_packets=self.early,
            dropped_at_limit_packets=self.pdrop,
        )


_COUNTED: Final = TypeAdapter(list[_Counted])


def _read_counters(answers: Mapping[str, str], places: Iterable[QueuePlace]) -> QueueCounters:
    """The counters of all queues that stand in their place; raises DeviceError if unreadable."""
    found = {(entry.dev, entry.handle): entry for entry in load(_COUNTED, answers, COUNTER_QUERY)}
    counters: dict[QueuePlace, EgressCounters] = {}
    for port, queue in places:
        # A queue's qdisc is 1NN:, NN its number; where a tbf caps it, that is the tbf, and 2NN: below it.
        entry = found.get((port, f"2{queue:02x}:"), found.get((port, f"1{queue:02x}:")))
        if entry is not None:
            counters[port, queue] = entry.counters
    return counters


COUNTER_SOURCE: Final = CounterSource(lambda _: (COUNTER_QUERY,), _read_counters)
