"""What an Enterprise SONiC switch answers, as settings and state.

One answer has it all: `show running-configuration` prints every map, policy and binding that exists, and
there are no defaults that it would leave out. Lines in it that concern neither queues nor our routes are
somebody else's and stay. A route keeps what stands behind its next hop, such as a distance, in
`RouteState.port`; a route without the address of a next hop has the next hop 0.0.0.0.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, HazardError
from mltswitch.targets.base import Lossless, RunningState
from mltswitch.targets.common import unknown_box
from mltswitch.targets.dell_sonic.capabilities import BOX_CHIPS, QUEUE_COUNT
from mltswitch.targets.dell_sonic.names import PREFIX
from mltswitch.targets.dell_sonic.sections import running_configuration
from mltswitch.targets.dell_sonic.settings import (
    DSCP_MAP_KIND,
    GROUP_MAP_KIND,
    PAUSE_GROUP_MAP_KIND,
    PAUSE_QUEUE_MAP_KIND,
    QUEUE_MAP_KIND,
    Configuration,
    Interpreter,
    PortSettings,
    StaticRoute,
)
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import PortState, RouteState, SwitchState

_MEMBER: Final = re.compile(r"channel-group \d+\b.*")
QUERY: Final = "show running-configuration"
VERSION: Final = "show version"
_BOX_LINE: Final = re.compile(r"^[ \t]*(?:Platform|HwSKU)[ \t]*: *(\S+)", re.IGNORECASE | re.MULTILINE)
"""As in Dell's user guides, `Platform : x86_64-dellemc_s5232f_c3538-r0`, `HwSKU : DellEMC-S5232f-C32`."""


def read_configuration(answers: Mapping[str, str]) -> Configuration:
    """The configuration in the answer; raises DeviceError for one that is empty or cannot be read."""
    try:
        configuration = running_configuration(answers[QUERY])
    except DeviceError as error:
        error.where = QUERY
        raise
    if not configuration.ports:
        raise DeviceError("the answer has no interface", where=QUERY, expected="lines `interface Eth1/1`")
    return configuration


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """The commands whose answers `read_answers` needs: the configuration, and which box it is."""
    del wanted
    return (QUERY, VERSION)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """State of the wanted ports and queues that exist, and our routes.

    Raises DeviceError for what cannot be read, for flow control on a queue of ours, and for a policy-map of
    somebody else where the plan needs its own.
    """
    configuration = read_configuration(answers)
    notes = tuple(_check_box(answers[VERSION], capabilities.hardware)) if wanted.ports else ()
    lossless: list[Lossless] = []
    for port in wanted.ports:
        if port.name in configuration.ports:
            managed = [queue.queue for queue in port.queues if not queue.is_lossless]
            lossless += _check_flow_control(configuration, port.name, managed)
            policy = configuration.ports[port.name].policy
            if port.rewritten and policy and not policy.startswith(PREFIX):
                raise HazardError(
                    f"it has the policy-map {policy} where the plan needs its own: a port takes one",
                    where=f"port {port.name}",
                    hint="take it off first: `no service-policy type qos in`",
                )
            if member := next(filter(_MEMBER.fullmatch, configuration.ports[port.name].lines), ""):
                raise HazardError(
                    f"is a member of a LAG ({member}): queues and maps are those of the PortChannel, which "
                    "the plan cannot name",
                    where=f"port {port.name}",
                    hint="take it out first: `no channel-group`",
                )
    return RunningState(state_with(configuration, wanted), answers, notes, lossless=tuple(lossless))


def _check_box(answer: str, hardware: str) -> Iterator[str]:
    """A note about a box that nobody knows; raises DeviceError for one that is known to have another chip."""
    named = _BOX_LINE.search(answer)
    name = named[1] if named else ""
    chip = next((chip for box, chip in BOX_CHIPS.items() if box in name.lower()), "")
    if chip and chip != hardware:
        raise DeviceError(
            f"is a {name}, hardware {chip}; nothing was sent",
            where=VERSION,
            expected=f"{hardware}, for which the plan was made",
            hint="correct ansible_host if another box answers there; else `hardware` in the fabric file",
        )
    if not chip:
        yield unknown_box(name, hardware)


def state_with(configuration: Configuration, wanted: SwitchState) -> SwitchState:
    """What a configuration means for the wanted ports that exist, with our routes."""
    interpreter = Interpreter(configuration, wanted.background_dscp)
    ports: list[PortState] = [
        interpreter.port_state(port.name, [queue.queue for queue in port.queues])
        for port in wanted.ports
        if port.name in configuration.ports
    ]
    own = OwnPrefixes(wanted.routes)
    routes = (route_state(route) for route in configuration.routes if route.prefix in own)
    ours = in_order_of(wanted.routes, routes)
    background = wanted.background_dscp if any(port.rewritten for port in ports) else 0
    foreign = [*configuration.foreign]
    beginnings = tuple(f"{port.name}." for port in ports)  # of sub-interfaces
    if any("switchport" in line for port in ports for line in configuration.ports[port.name].lines):
        beginnings = ("Vlan", *beginnings)
    for name, settings in configuration.ports.items():
        if name.startswith(beginnings):
            bound = [f"service-policy type qos in {settings.policy}"] if settings.policy else []
            foreign += (f"interface {name}: {line}" for line in (*bound, *settings.others))
    unexpected = tuple(foreign) if ports else ()
    return SwitchState(tuple(ports), ours, background_dscp=background, unexpected=unexpected)


def route_state(route: StaticRoute) -> RouteState:
    """A route as state."""
    return RouteState(route.prefix, route.next_hop, route.port)


def _check_flow_control(configuration: Configuration, name: str, queues: Iterable[int]) -> Iterator[Lossless]:
    """Priorities with flow control that the plan leaves alone; raises HazardError for others."""
    used = set(queues)
    settings = configuration.ports[name]
    if settings.is_asymmetric:
        for priority in range(QUEUE_COUNT):
            queue = _mapped(configuration, settings, PAUSE_QUEUE_MAP_KIND, priority)
            if queue in used:
                raise HazardError(
                    f"asymmetric flow control heeds pause frames of every priority, and that of priority "
                    f"{priority} pauses queue {queue} of the plan",
                    where=f"port {name}",
                    hint="switch it off first: `no priority-flow-control asymmetric`",
                )
    for priority in settings.paused:
        for what, numbers in _paused_by(configuration, settings, priority):
            if shared := used & numbers:
                raise HazardError(
                    f"flow control is on for priority {priority}, which pauses {what} "
                    f"{min(shared)} of the plan: a wred-policy drops packets of a lossless queue",
                    where=f"port {name}",
                    hint=f"switch it off for it first: `no priority-flow-control priority {priority}`",
                )
        bound = [settings.maps.get(kind, "") for kind in (DSCP_MAP_KIND, QUEUE_MAP_KIND)]
        leads_to = Interpreter(configuration, 0).dscps_of(bound[0], bound[1])
        queue = _mapped(configuration, settings, PAUSE_QUEUE_MAP_KIND, priority)
        yield Lossless(name, priority, leads_to.get(queue, ()))


def _paused_by(
    configuration: Configuration, settings: PortSettings, priority: int
) -> Iterator[tuple[str, set[int]]]:
    """Queues that a pause frame holds back, and traffic classes whose senders are paused."""
    yield "queue", {_mapped(configuration, settings, PAUSE_QUEUE_MAP_KIND, priority)}
    group = _mapped(configuration, settings, PAUSE_GROUP_MAP_KIND, priority)
    groups = configuration.map_entries(GROUP_MAP_KIND, settings.maps.get(GROUP_MAP_KIND, ""))
    yield "traffic class", {traffic_class for traffic_class in groups if groups[traffic_class] == group}


def _mapped(configuration: Configuration, settings: PortSettings, kind: str, priority: int) -> int:
    return configuration.map_entries(kind, settings.maps.get(kind, "")).get(priority, priority)
