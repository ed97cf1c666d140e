"""Settings outside the plan under which its queues would not do what the plan says."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from mltswitch.errors import PreflightError
from mltswitch.targets.base import Lossless
from mltswitch.targets.common import Key, indices_of
from mltswitch.targets.engine.facts import SWITCH, TRUST, Facts
from mltswitch.targets.eos.capabilities import TRAFFIC_CLASSES
from mltswitch.targets.eos.mapping import classes_of_dscps, in_force, policy_on
from mltswitch.targets.eos.sheet import CLASSES, COS, COS_MAP, DSCP, TRUSTED, UNTRUSTED
from mltswitch.targets.remap import policy_of, rewriting_map
from mltswitch.targets.state import SwitchState

_GLOBAL: Final = (
    (
        re.compile(r"qos random-detect ecn allow non-ect.*"),
        "packets that are not ECN-capable are not dropped at a threshold",
    ),
    (
        re.compile(r"qos random-detect ecn global-buffer .*"),
        "packets are also marked by the fill of the whole buffer",
    ),
    (re.compile(r"qos rewrite dscp"), "the switch overwrites the DSCP, which says the class of a packet"),
)
_ALL_OFF: Final = "priority-flow-control all off"
_PAUSING: Final = ("priority-flow-control ", "service-profile ")
_NO_DROP: Final = re.compile(r"priority-flow-control priority ([0-7]) no-drop")


def _by_head(lines: Iterable[Key]) -> dict[str, list[str]]:
    """What opens a mode → the lines that stand in it, and in no mode within it."""
    found: dict[str, list[str]] = {}
    for modes, text in lines:
        if len(modes) == 1:
            found.setdefault(modes[0], []).append(text)
    return found


def check_preflight(lines: Sequence[Key], wanted: SwitchState, facts: Facts) -> Iterator[Lossless]:
    """The priorities with PFC that the plan leaves alone; raises PreflightError for the first other one."""
    of_switch = [text for modes, text in lines if not modes]
    for line in of_switch:
        for pattern, meaning in _GLOBAL:
            if pattern.fullmatch(line):
                raise PreflightError(
                    f"the whole switch has {line!r}: {meaning}",
                    hint=f"switch it off first, where nothing else needs it: `no {line}`",
                )
    own_lines = _by_head(lines)
    _check_members(own_lines, wanted)
    for port in wanted.ports:
        policy = policy_on(facts[port.name])
        if policy_of(port) and policy not in {"", *CLASSES}:
            raise PreflightError(
                f"it has the policy map {policy} where the plan needs its own: a port takes one",
                where=f"port {port.name}",
                hint=f"take it off first: `no service-policy type qos input {policy}`",
            )
    if _ALL_OFF in of_switch:
        return
    classes = classes_of_dscps(facts[SWITCH])
    of_cos = [facts[SWITCH][COS_MAP, cos] for cos in range(TRAFFIC_CLASSES)]
    for port in wanted.ports:
        used = {queue.queue for queue in port.queues if not queue.is_lossless}
        for priority in _lossless(_lines_of(own_lines, f"interface {port.name}")):
            if priority in used:
                raise PreflightError(
                    f"PFC is on for priority {priority}, which the plan uses: RED on a lossless queue drops "
                    "packets that are not ECN-capable",
                    where=f"port {port.name}",
                    hint="switch PFC off for it first: "
                    f"`no priority-flow-control priority {priority} no-drop`, on the port or its profile",
                )
            own = in_force(facts[port.name])
            trust, cos, dscp = own[TRUST,], own[COS,], own[DSCP,]
            if trust == TRUSTED:
                yield Lossless(port.name, priority, indices_of(classes, priority))
            elif priority in ((of_cos[cos], classes[dscp]) if trust == UNTRUSTED else of_cos):
                yield Lossless(port.name, priority, (), f"qos trust {trust}, qos cos {cos}")
    yield from _elsewhere(own_lines, wanted, classes)


def _elsewhere(
    lines: Mapping[str, list[str]], wanted: SwitchState, dscp_map: Sequence[int]
) -> Iterator[Lossless]:
    """Priorities with PFC on other ports, from which the plan's map, the switch's, moves code points."""
    planned = {f"interface {port.name}" for port in wanted.ports}
    paused = {head for head, own in lines.items() if any(text.startswith(_PAUSING) for text in own)}
    ports = {head for head in paused - planned if head.startswith("interface ")}
    switch_map = rewriting_map(wanted, "EOS")
    for head in sorted(ports) if planned else ():
        own = _lines_of(lines, head)
        trusts = [line for line in own if line.startswith(("qos trust ", "no qos trust"))] or own
        # Of a LAG's member nothing here tells what the LAG trusts.
        if any(line.startswith(("qos trust dscp", "no switchport", "channel-group ")) for line in trusts):
            for priority in _lossless(own):
                moved = switch_map.moved(dscp_map, priority)
                yield Lossless(head.removeprefix("interface "), priority, moved)


def _check_members(lines: Mapping[str, list[str]], wanted: SwitchState) -> None:
    for port in wanted.ports:
        for text in lines.get(f"interface {port.name}", ()):
            if text.startswith("channel-group "):
                raise PreflightError(
                    f"it is a member of a port channel ({text}), and the port channel's QoS settings "
                    "count, not its own",
                    where=f"port {port.name}",
                    hint="take it out first: `no channel-group`; a fabric file names single ports",
                )


def _lines_of(lines: Mapping[str, list[str]], interface: str) -> list[str]:
    """Lines of a port and of its QoS profile."""
    own = lines.get(interface, [])
    profiles = {
        f"qos profile {text.removeprefix('service-profile ')}"
        for text in own
        if text.startswith("service-profile ")
    }
    return own + [text for profile in profiles for text in lines.get(profile, ())]


def _lossless(own: list[str]) -> list[int]:
    """Priorities without drops on a port where PFC is on, by the lines that count there."""
    if not {"priority-flow-control on", "priority-flow-control mode on"} & set(own):
        return []
    return sorted({int(match[1]) for match in map(_NO_DROP.fullmatch, own) if match})
