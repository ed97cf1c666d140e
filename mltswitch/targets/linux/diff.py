"""What takes a switch from what it runs to the plan: single queues where that is enough, else whole ports."""

from collections.abc import Iterator
from difflib import unified_diff

from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.linux.read import INGRESS_PARENT, QDISC_QUERY, Qdisc, standing_qdiscs
from mltswitch.targets.linux.render import port_text, route_lines
from mltswitch.targets.linux.tree import Band, Tree, absent_untrusted, trees
from mltswitch.targets.state import RouteState, SwitchState


def change_between(running: RunningState, wanted: SwitchState) -> Change:
    """Queues first, then the routes that lead traffic to them; empty when nothing differs.

    A changed threshold replaces one queue. The kernel gives red a new inner queue whenever it is set, by
    `change` as by `replace`, so the packets that wait in it are lost (red_change in sch_red.c; measured
    on Linux 6.1). Anything else builds the port anew, whoever's queues stood there.

    Raises DeviceError for an ingress or clsact qdisc: replacing the root leaves it, and it is not ours.
    """
    present = [port.name for port in running.state.ports]
    old = trees(running.state, absent_untrusted(wanted, present))
    new = trees(wanted)
    sent: list[str] = []
    shown: list[str] = []
    for name, tree in new.items():
        standing = standing_qdiscs(running.answers, name)
        _check_ingress(name, standing)
        lines, text = _port_change(name, old.get(name), tree, standing)
        sent += lines
        shown += text
    routes, text = _route_change(running.state.routes, wanted.routes)
    steps = [Step("tc -batch -", _batch(sent))] if sent else []
    if routes:
        steps.append(Step("ip -batch -", _batch(routes)))
    return Change(steps=tuple(steps), text="".join(f"{line}\n" for line in shown + text))


def _check_ingress(name: str, standing: list[Qdisc]) -> None:
    for qdisc in standing:
        if qdisc.parent == INGRESS_PARENT:
            raise DeviceError(
                f"{name} has {qdisc.kind}, which may drop, mark or redirect packets beside the plan's queues",
                where=QDISC_QUERY,
                hint=f"somebody else made it; remove it: tc qdisc del dev {name} {qdisc.kind}",
            )


def _batch(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _port_change(
    name: str, old: Tree | None, new: Tree, standing: list[Qdisc]
) -> tuple[list[str], list[str]]:
    """(lines to send, lines to show)."""
    if old == new:
        return [], []
    wanted = port_text(name, new).splitlines()
    present = [] if old is None else port_text(name, old).splitlines()
    if old is not None and _same_but_numbers(old, new):
        pairs = [pair for pair in zip(present, wanted, strict=True) if pair[0] != pair[1]]
        shown = [f"# {name}: packets that wait in the changed queues are dropped"]
        for before, after in pairs:
            shown += [f"- {before}", f"+ {after}"]
        return [after for _, after in pairs], shown
    shown = [f"# {name}: built anew; all packets that wait in its queues are dropped"]
    if old is None:
        shown += [f"# {name}: removes {qdisc}" for qdisc in standing]
    else:
        shown += [f"# {name}: found {fault}" for fault in old.unexpected]
    return wanted, [*shown, *_marked(present, wanted)]


def _same_but_numbers(old: Tree, new: Tree) -> bool:
    """Whether the trees differ in nothing but thresholds and limits of queues of the same kind."""
    if old.unexpected or (old.shaped_bps, old.filters) != (new.shaped_bps, new.filters):
        return False
    return [_kind(band) for band in old.bands] == [_kind(band) for band in new.bands]


def _kind(band: Band) -> tuple[int, bool, str]:
    return band.number, band.ecn_threshold_bytes is None, band.limit.kind


def _marked(present: list[str], wanted: list[str]) -> Iterator[str]:
    context = len(present) + len(wanted)
    for line in unified_diff(present, wanted, n=context, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield f"{line[0]} {line[1:]}"


def _route_change(
    found: tuple[RouteState, ...], wanted: tuple[RouteState, ...]
) -> tuple[list[str], list[str]]:
    """(lines to send, lines to show); a new prefix is added, never put in place of somebody else's route."""
    present = {route.prefix: route for route in found}
    kept = {route.prefix for route in wanted}
    fresh = [route for route in wanted if route.prefix not in present]
    moved = [route for route in wanted if present.get(route.prefix, route) != route]
    gone = [route for route in found if route.prefix not in kept]
    lines = [*route_lines("replace", moved), *route_lines("add", fresh), *route_lines("del", gone)]
    shown = ["# routes"] if lines else []
    shown += [f"- {line}" for line in route_lines("replace", [present[route.prefix] for route in moved])]
    return lines, shown + [f"+ {line}" for line in lines]
