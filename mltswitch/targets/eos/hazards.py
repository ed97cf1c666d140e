"""Settings that are not ours, and under which no queue of ours does what the plan says."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from mltswitch.errors import HazardError
from mltswitch.targets.base import Lossless
from mltswitch.targets.common import indices_of
from mltswitch.targets.eos.policy import CLASSES
from mltswitch.targets.eos.settings import TRUSTED, UNTRUSTED
from mltswitch.targets.eos.text import PlacedLine
from mltswitch.targets.remap import policy_of, rewriting_map
from mltswitch.targets.state import SwitchState

if TYPE_CHECKING:
    from mltswitch.targets.eos.read import RunningSettings

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


def check_hazards(
    lines: Sequence[PlacedLine], wanted: SwitchState, settings: "RunningSettings"
) -> Iterator[Lossless]:
    """Priorities with PFC that the plan leaves alone; raises HazardError for the first one that it cannot."""
    for line in lines:
        if line.modes:
            continue
        for pattern, meaning in _GLOBAL:
            if pattern.fullmatch(line.text):
                raise HazardError(
                    f"the whole switch has {line.text!r}: {meaning}",
                    hint=f"switch it off first, where nothing else needs it: `no {line.text}`",
                )
    _check_members(lines, wanted)
    for port in wanted.ports:
        policy = settings.ports[port.name].policy
        if policy_of(port) and policy not in {"", *CLASSES}:
            raise HazardError(
                f"it has the policy map {policy} where the plan needs its own: a port takes one",
                where=f"port {port.name}",
                hint=f"take it off first: `no service-policy type qos input {policy}`",
            )
    if any(line.text == _ALL_OFF and not line.modes for line in lines):
        return
    for port in wanted.ports:
        used = {queue.queue for queue in port.queues if not queue.is_lossless}
        for priority in _lossless(_lines_of(lines, f"interface {port.name}")):
            if priority in used:
                raise HazardError(
                    f"PFC is on for priority {priority}, which the plan uses: RED on a lossless queue drops "
                    "packets that are not ECN-capable",
                    where=f"port {port.name}",
                    hint="switch PFC off for it first: "
                    f"`no priority-flow-control priority {priority} no-drop`, on the port or its profile",
                )
            found, maps = settings.ports[port.name], settings.maps
            own = (maps.cos[found.cos], maps.dscp[found.dscp])
            if found.trust == TRUSTED:
                yield Lossless(port.name, priority, indices_of(maps.dscp, priority))
            elif priority in (own if found.trust == UNTRUSTED else maps.cos):
                yield Lossless(port.name, priority, (), f"qos trust {found.trust}, qos cos {found.cos}")
    yield from _elsewhere(lines, wanted, settings.maps.dscp)


def _elsewhere(
    lines: Sequence[PlacedLine], wanted: SwitchState, dscp_map: Sequence[int]
) -> Iterator[Lossless]:
    """Priorities with PFC on other ports, from which the plan's map, the switch's, moves code points."""
    planned = {f"interface {port.name}" for port in wanted.ports}
    paused = {line.modes[0] for line in lines if line.modes and line.text.startswith(_PAUSING)}
    ports = {head for head in paused - planned if head.startswith("interface ")}
    for head in sorted(ports) if planned else ():
        own = _lines_of(lines, head)
        trusts = [line for line in own if line.startswith(("qos trust ", "no qos trust"))] or own
        # Of a LAG's member nothing here tells what the LAG trusts.
        if any(line.startswith(("qos trust dscp", "no switchport", "channel-group ")) for line in trusts):
            for priority in _lossless(own):
                moved = rewriting_map(wanted, "EOS").moved(dscp_map, priority)
                yield Lossless(head.removeprefix("interface "), priority, moved)


def _check_members(lines: Sequence[PlacedLine], wanted: SwitchState) -> None:
    for port in wanted.ports:
        for line in lines:
            if line.modes == (f"interface {port.name}",) and line.text.startswith("channel-group "):
                raise HazardError(
                    f"it is a member of a port channel ({line.text}), and the port channel's QoS settings "
                    "count, not its own",
                    where=f"port {port.name}",
                    hint="take it out first: `no channel-group`; a fabric file names single ports",
                )


def _lines_of(lines: Sequence[PlacedLine], interface: str) -> list[str]:
    """Lines of a port and of its QoS profile."""
    own = [line.text for line in lines if line.modes == (interface,)]
    profiles = {
        f"qos profile {text.removeprefix('service-profile ')}"
        for text in own
        if text.startswith("service-profile ")
    }
    return own + [line.text for line in lines if len(line.modes) == 1 and line.modes[0] in profiles]


def _lossless(own: list[str]) -> list[int]:
    """Priorities without drops on a port where PFC is on, by the lines that count there."""
    if not {"priority-flow-control on", "priority-flow-control mode on"} & set(own):
        return []
    return sorted({int(match[1]) for match in map(_NO_DROP.fullmatch, own) if match})
