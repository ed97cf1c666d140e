"""Rendered lines back into state: nothing but the lines that this state needs, and all of them."""

from collections.abc import Mapping
from operator import itemgetter

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import LineError
from mltswitch.targets.common import check_lines
from mltswitch.targets.dell_sonic.render import FILE, render_text
from mltswitch.targets.dell_sonic.sections import configuration_of, file_lines
from mltswitch.targets.dell_sonic.settings import Configuration, Interpreter, PortKey
from mltswitch.targets.state import PortState, RouteState, SwitchState


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Inverse of `write_files`, in any order of lines.

    Every line has to be one that the state, written anew, has too: that is the whole grammar.
    """
    del capabilities
    text = files[FILE]
    lines = list(file_lines(text))
    try:
        state = _state(configuration_of(map(itemgetter(1), lines)))
    except DeviceError as error:
        raise LineError(0, "", str(error)) from None
    rendered = render_text(state)
    if rendered != text:
        check_lines(lines, file_lines(rendered))
    return state


def _state(configuration: Configuration) -> SwitchState:
    policies = {settings.policy for settings in configuration.ports.values()}
    background = max((configuration.rewriting(name)[0].background_dscp for name in policies), default=0)
    interpreter = Interpreter(configuration, background)
    known: dict[PortKey, PortState] = {}
    ports: list[PortState] = []
    for name, settings in configuration.ports.items():
        policy = configuration.schedulers.get(settings.scheduler)
        if policy is None or not policy.queues:
            raise LineError(0, "", f"interface {name} lacks a scheduler-policy with queues")
        if settings.key not in known:
            *first, last = policy.queues
            lossless = interpreter.lossless_queues(name, policy.queues)
            known[settings.key] = interpreter.port_state(name, [*first, *lossless, last])
        one = known[settings.key]
        if one.unexpected:
            raise LineError(0, "", f"interface {name}: {one.unexpected[0]}")
        ports.append(PortState(name, one.trusted, None, one.queues, rewritten=one.rewritten))
    routes = tuple(RouteState(route.prefix, route.next_hop, route.port) for route in configuration.routes)
    return SwitchState(tuple(ports), routes, background_dscp=background)
