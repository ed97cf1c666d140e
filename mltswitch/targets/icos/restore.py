"""The lines that take a FASTPATH switch back to what it answered before a push, in the order of diff.py.

Policies get their contents before ports get them; policies and classes that were not there go last of all.
From the first class that differs a policy is made anew, because its classes have an order.
"""

from collections.abc import Iterator, Mapping

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, RunningState
from mltswitch.targets.common import NO_NEXT_HOP, NULL_INTERFACE
from mltswitch.targets.icos.capabilities import QUEUE_COUNT
from mltswitch.targets.icos.diff import (
    Goal,
    Phase,
    Placed,
    change_to,
    classify,
    route_start,
)
from mltswitch.targets.icos.grammar import Line, MapLine, Minimums, PortLine, RouteLine, line_of, parse_lines
from mltswitch.targets.icos.policy import LEAVE, OwnPolicies, policy_line
from mltswitch.targets.icos.read import read_dscp_map, read_own_policies, read_port, read_routes
from mltswitch.targets.icos.render import render_text
from mltswitch.targets.icos.settings import PortSettings
from mltswitch.targets.remap import POLICIES
from mltswitch.targets.state import RouteState, SwitchState


def restoring_change(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """Lines that give everything that a push of the wanted state may change the value that it had before.

    Raises DeviceError where packets went to the system's queue, which no line can name, also while they do.
    """
    ports = {port.name: read_port(before, port.name) for port in wanted.ports}
    rendered = [line for _, line in parse_lines(render_text(wanted, capabilities))]
    goal = Goal(
        [*_former_lines(before, rendered, ports), *map(_route_line, read_routes(before, wanted))],
        # A push levels strict service of queues beside the plan's, too, while code points move.
        {name: {n: queue.strict for n, queue in enumerate(port.queues)} for name, port in ports.items()},
        {name: [queue.minimum_percent for queue in port.queues] for name, port in ports.items()},
        {name: port.policy for name, port in ports.items()},
    )
    classification = classify(running, wanted, goal)
    policies = _policies(read_own_policies(before), classification.policies)
    return change_to(goal, running, wanted, classification, policies)


def _former_lines(
    before: Mapping[str, str], rendered: list[Line], ports: Mapping[str, PortSettings]
) -> Iterator[Line]:
    """The rendered lines of the map and of ports with the values of before."""
    dscp_map = read_dscp_map(before)
    for name, port in ports.items():
        _check_assignable(port.priorities[0], "802.1p priority 0", f"port {name}")
    for line in rendered:
        if isinstance(line, MapLine):
            queue = dscp_map[line.dscp]
            _check_assignable(queue, f"DSCP {line.dscp}", "")
            yield MapLine(f"classofservice ip-dscp-mapping {line.dscp} {queue}", line.dscp, queue)
        elif isinstance(line, PortLine) and not isinstance(line.setting, Minimums):
            for setting in line.setting.former(ports[line.port]):
                yield line_of(line.port, setting)


def _check_assignable(queue: int, what: str, where: str) -> None:
    if queue >= QUEUE_COUNT:
        raise DeviceError(
            f"{what} leads to queue {queue}, the system's, which no command assigns: no way back to it",
            where=where,
            hint=f"lead it to one of the queues 0 to {QUEUE_COUNT - 1} before the push",
        )


def _route_line(route: RouteState) -> RouteLine:
    words = [] if route.next_hop == NO_NEXT_HOP else [str(route.next_hop)]
    words += route.port.split()
    return RouteLine(f"{route_start(route)} {' '.join(words) or NULL_INTERFACE}", route)


def _policies(before: OwnPolicies, now: OwnPolicies) -> Iterator[Placed]:
    """What gives policies and classes their former contents, and what takes away new ones."""
    # A class cannot be changed: it leaves our policies, which are the only ones where a push may redefine it.
    spoilt = {name for name, lines in before.classes.items() if now.classes.get(name, lines) != lines}
    kept = {policy: _kept_classes(before, now, policy, spoilt) for policy in POLICIES}
    lines: list[str] = []
    for policy in POLICIES:
        gone = [name for name in now.instances(policy) if name not in kept[policy]]
        if gone and (policy in before.defined or spoilt.intersection(gone)):
            lines += (policy_line(policy), *(f"no class {name}" for name in gone), LEAVE)
    lines += (f"no class-map {name}" for name in now.classes if name in spoilt)
    for name, (family, *matches) in before.classes.items():
        if name in spoilt or name not in now.classes:
            lines += (f"class-map match-all {name} {family}", *matches, LEAVE)
    for policy, instances in before.defined.items():
        if kept[policy] != instances or policy not in now.defined:
            lines.append(policy_line(policy))
            for name, actions in instances.items():
                if kept[policy].get(name) != actions:
                    lines += (f"class {name}", *actions, LEAVE)
            lines.append(LEAVE)
    yield from (Placed(Phase.POLICY, line) for line in lines)
    for policy in now.defined:
        if policy not in before.defined:
            yield Placed(Phase.FORGET, f"no policy-map {policy}", rank=0)
    for name in now.classes:
        if name not in before.classes and name not in now.lent:
            yield Placed(Phase.FORGET, f"no class-map {name}", rank=1)


def _kept_classes(
    before: OwnPolicies, now: OwnPolicies, policy: str, spoilt: set[str]
) -> Mapping[str, tuple[str, ...]]:
    """Classes that are where they were in a policy, with what it does now: values can be set in place."""
    kept: dict[str, tuple[str, ...]] = {}
    former = before.instances(policy).items()
    for (old, former_actions), (name, actions) in zip(former, now.instances(policy).items(), strict=False):
        if old != name or name in spoilt or not _kinds(actions) <= _kinds(former_actions):
            break
        kept[name] = actions
    return kept


def _kinds(actions: tuple[str, ...]) -> set[str]:
    return {action.rpartition(" ")[0] for action in actions}
