"""What takes a switch from what it runs to the plan: single queues where that is enough, else whole ports."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import unified_diff
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, Guard, RunningState, Step
from mltswitch.targets.common import shell_lock
from mltswitch.targets.linux.answers import (
    FORWARDING_QUERY,
    INGRESS,
    INGRESS_PARENT,
    QDISC_QUERY,
    Qdisc,
)
from mltswitch.targets.linux.qdiscs import words_of
from mltswitch.targets.linux.read import NOT_FORWARDING, forwards, obstacles, standing_qdiscs
from mltswitch.targets.linux.render import (
    CLSACT_LINES,
    FORWARDING,
    ROUTE_PROTOCOL,
    port_text,
    route_lines,
    segment_text,
)
from mltswitch.targets.linux.save import save_steps
from mltswitch.targets.linux.tree import Band, Tree, trees
from mltswitch.targets.state import RouteState, SegmentRouteState, SegmentRouting, SwitchState, differences

_FOR_GOOD: Final = ", which has no way back"


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """Queues first, then the routes that lead traffic to them; empty when nothing differs.

    A changed threshold replaces one queue. The kernel gives red a new inner queue whenever it is set, by
    `change` as by `replace`, so the packets that wait in it are lost (red_change in sch_red.c; measured
    on Linux 6.1). Anything else builds the port anew, whoever's queues stood there.

    Raises DeviceError for an ingress or clsact qdisc, which replacing the root leaves, and for saved files
    that are somebody else's.
    """
    del capabilities
    old = trees(running.state)
    new = trees(wanted)
    sent: list[str] = []
    shown: list[str] = []
    for name, tree in new.items():
        check_ingress(name, obstacles(running.answers, wanted, name))
        lines, text = _port_change(name, old.get(name), tree, standing_qdiscs(running.answers, name))
        sent += lines
        shown += text
    steps = [Step("tc -batch -", _batch(sent))] if sent else []
    if _must_forward(running, wanted):
        steps.append(Step(FORWARDING))
        shown.append(f"+ {FORWARDING}")
    routes, text = _route_change(running.state, wanted)
    if routes:
        steps.append(Step("ip -batch -", _batch(routes)))
    save = save_steps(running.answers, wanted)
    stays = differences(wanted, replace(wanted, unexpected=running.state.unexpected))
    return Change(tuple(steps), save, "".join(f"{line}\n" for line in shown + text), stays=stays)


def check_ingress(name: str, found: Sequence[str]) -> None:
    """Refuse to change what arrives at a port past what somebody else made there; raises DeviceError."""
    for obstacle in found:
        raise DeviceError(
            f"{name} has {obstacle}, which may drop, mark or redirect packets beside the plan's queues",
            where=QDISC_QUERY,
            hint=f"somebody else made it. It holds no filter: tc qdisc del dev {name} {INGRESS}"
            if obstacle == INGRESS
            else f"somebody else made it: ask whether it may go (`tc filter show dev {name} ingress`, or "
            "`egress`, shows it), or leave the port out of the fabric",
        )


def _must_forward(running: RunningState, wanted: SwitchState) -> bool:
    if wanted.segment_routing is None:
        return False
    if FORWARDING_QUERY in running.answers:
        return not forwards(running.answers[FORWARDING_QUERY])
    found = running.state
    return found.segment_routing is None or any(NOT_FORWARDING in port.unexpected for port in found.ports)


def _batch(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _port_change(
    name: str, old: Tree | None, new: Tree, standing: list[Qdisc]
) -> tuple[list[str], list[str]]:
    """(lines to send, lines to show)."""
    if old is not None and NOT_FORWARDING in old.unexpected:
        rest = tuple(fault for fault in old.unexpected if fault != NOT_FORWARDING)
        old = replace(old, unexpected=rest)
    if old == new:
        return [], []
    wanted = port_text(name, new).splitlines()
    present = [] if old is None else port_text(name, old).splitlines()
    if old is not None and replace(old, rewriting=new.rewriting) == new:
        present, wanted = present[: _ingress_lines(old)], wanted[: _ingress_lines(new)]
        return wanted, [f"# {name}: what arrives there", *_marked(present, wanted)]
    if old is not None and same_but_numbers(old, new):
        pairs = [pair for pair in zip(present, wanted, strict=True) if pair[0] != pair[1]]
        shown = [f"# {name}: packets that wait in the changed queues are dropped"]
        for before, after in pairs:
            shown += [f"- {before}", f"+ {after}"]
        return [after for _, after in pairs], shown
    shown = [f"# {name}: built anew; all packets that wait in its queues are dropped"]
    if old is None:
        removed = [qdisc for qdisc in standing if qdisc.parent != INGRESS_PARENT]
        shown += [f"# {name}: removes {qdisc}{'' if words_of(qdisc) else _FOR_GOOD}" for qdisc in removed]
    else:
        shown += [f"# {name}: found {fault}{_FOR_GOOD}" for fault in old.unexpected]
    return wanted, [*shown, *_marked(present, wanted)]


def _ingress_lines(tree: Tree) -> int:
    """How many lines of a port stand before its queues."""
    return CLSACT_LINES + len(tree.rewriting.marks)


def same_but_numbers(old: Tree, new: Tree) -> bool:
    """Whether the trees differ in nothing but thresholds, limits and caps of queues of the same kind.

    Setting tbf again keeps what waits below it, and gives that queue the limit in tbf's own line (tbf_change
    in sch_tbf.c): the same number.
    """
    if old.unexpected or replace(old, bands=new.bands) != new:
        return False
    return [_kind(band) for band in old.bands] == [_kind(band) for band in new.bands]


def _kind(band: Band) -> tuple[object, ...]:
    return band.number, band.ecn_threshold_bytes is None, band.maximum_bps is None, band.limit.kind


def _marked(present: list[str], wanted: list[str]) -> Iterator[str]:
    context = len(present) + len(wanted)
    for line in unified_diff(present, wanted, n=context, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield f"{line[0]} {line[1:]}"


def _route_change(found: SwitchState, wanted: SwitchState) -> tuple[list[str], list[str]]:
    """(lines to send, lines to show); what is to go goes last, so that no prefix is without a route."""
    added, gone, before = _routes(found.routes, wanted.routes)
    segments = _segment_change(found.segment_routing, wanted.segment_routing)
    lines = [*added, *segments[0], *gone, *segments[1]]
    shown = ["# routes"] if lines else []
    shown += [f"- {line}" for line in [*before, *segments[2]]]
    return lines, shown + [f"+ {line}" for line in lines]


def _routes(
    found: Sequence[RouteState | SegmentRouteState], wanted: Sequence[RouteState | SegmentRouteState]
) -> tuple[list[str], list[str], list[str]]:
    """(to add, to remove, replaced); a new prefix is added, never put in place of somebody else's route."""
    present = {route.prefix: route for route in found}
    kept = {route.prefix for route in wanted}
    fresh = [route for route in wanted if route.prefix not in present]
    moved = [route for route in wanted if present.get(route.prefix, route) != route]
    gone = [route for route in found if route.prefix not in kept]
    return (
        [*route_lines("replace", moved), *route_lines("add", fresh)],
        route_lines("del", gone),
        route_lines("replace", [present[route.prefix] for route in moved]),
    )


def _segment_change(
    found: SegmentRouting | None, wanted: SegmentRouting | None
) -> tuple[list[str], list[str], list[str]]:
    """The same for SRv6; a segment of ours elsewhere than on its port was read as none, so it is replaced."""
    old, new = found or SegmentRouting(None, ()), wanted or SegmentRouting(None, ())
    added, gone, before = _routes(old.routes, new.routes)
    if new.segment is not None and new.segment != old.segment:
        added.append(f"route replace {segment_text(new.segment, new.routes[0].port)}")
    if old.segment is not None and new.segment != old.segment:
        gone.append(f"route del {old.segment}/128 proto {ROUTE_PROTOCOL}")
    return added, gone, before


_WORDS: Final = (
    "^(tc|ip) (-force )?-batch -",
    "^sysctl .*-w net/",
    "^sh /run/[m]ltswitch/",  # the way back of a push with a timer
    "^[^ ]*sh -c .* /etc/[m]ltswitch",  # saving
)
"""Beginnings of command lines; the brackets keep the query from finding itself."""
_BUSY: Final = (
    "for each in /proc/[0-9]*; do test $each/ns/net -ef /proc/self/ns/net && "
    "tr '\\0' ' ' < $each/cmdline && echo; done 2> /dev/null | "
    f"grep -E '{'|'.join(_WORDS)}' || test $? -eq 1"
)
_OWN_LINK: Final = "/run/mltswitch-$(readlink /proc/self/ns/net | tr -dc 0-9).lock"

GUARD: Final = Guard(shell_lock(_OWN_LINK), busy=_BUSY)
"""Of a network namespace: the switches of a lab are namespaces of one machine. A command whose connection is
lost runs on, and holds its place in /proc until it has ended."""
