"""What an Enterprise SONiC switch answers, as settings and state.

One answer has it all: `show running-configuration` prints every map, policy and binding that exists, and
there are no defaults that it would leave out. Lines in it that concern neither queues nor our routes are
somebody else's and stay. A route keeps what stands behind its next hop, such as a distance, in
`RouteState.port`; a route without the address of a next hop has the next hop 0.0.0.0.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, HazardError
from mltswitch.targets.base import RunningState
from mltswitch.targets.dell_sonic.capabilities import QUEUE_COUNT
from mltswitch.targets.dell_sonic.names import PREFIX
from mltswitch.targets.dell_sonic.sections import running_configuration
from mltswitch.targets.dell_sonic.settings import (
    GROUP_MAP_KIND,
    PAUSE_GROUP_MAP_KIND,
    PAUSE_QUEUE_MAP_KIND,
    Configuration,
    Interpreter,
    PortSettings,
    StaticRoute,
)
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import PortState, RouteState, SwitchState

QUERY: Final = "show running-configuration"


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
    """The one command whose answer `read_answers` needs."""
    del wanted
    return (QUERY,)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """State of the wanted ports and queues that exist, and our routes.

    Raises DeviceError for what cannot be read, for flow control on a queue of ours, and for a policy-map of
    somebody else where the plan needs its own.
    """
    del capabilities
    configuration = read_configuration(answers)
    interpreter = Interpreter(configuration, wanted.background_dscp)
    ports: list[PortState] = []
    for port in wanted.ports:
        if port.name in configuration.ports:
            queues = [queue.queue for queue in port.queues]
            managed = [queue.queue for queue in port.queues if not queue.is_lossless]
            _check_flow_control(configuration, port.name, managed)
            policy = configuration.ports[port.name].policy
            if port.rewritten and policy and not policy.startswith(PREFIX):
                raise HazardError(
                    f"it has the policy-map {policy} where the plan needs its own: a port takes one",
                    where=f"port {port.name}",
                    hint="take it off first: `no service-policy type qos in`",
                )
            ports.append(interpreter.port_state(port.name, queues))
    own = OwnPrefixes(wanted.routes)
    routes = (route_state(route) for route in configuration.routes if route.prefix in own)
    ours = in_order_of(wanted.routes, routes)
    background = wanted.background_dscp if any(port.rewritten for port in ports) else 0
    return RunningState(SwitchState(tuple(ports), ours, background_dscp=background), answers)


def route_state(route: StaticRoute) -> RouteState:
    """A route as state."""
    return RouteState(route.prefix, route.next_hop, route.port)


def _check_flow_control(configuration: Configuration, name: str, queues: Iterable[int]) -> None:
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
