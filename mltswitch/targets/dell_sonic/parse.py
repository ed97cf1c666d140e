"""Rendered lines back into state: nothing but the lines that this state needs, and all of them."""

from collections import Counter
from collections.abc import Mapping
from operator import itemgetter

from mltswitch.errors import DeviceError, UnsupportedPlanError, UserInputError
from mltswitch.targets.common import LineError
from mltswitch.targets.dell_sonic.render import FILE, render_text
from mltswitch.targets.dell_sonic.sections import Placed, configuration_of, file_lines
from mltswitch.targets.dell_sonic.settings import Configuration, Interpreter, PortKey
from mltswitch.targets.state import PortState, RouteState, SwitchState


def parse_files(files: Mapping[str, str]) -> SwitchState:
    """Inverse of `render`, in any order of lines; raises UserInputError naming file and line.

    Every line has to be one that the state, written anew, has too: that is the whole grammar.
    """
    if set(files) != {FILE}:
        raise UserInputError(f"the files are {', '.join(sorted(files)) or 'none'}", expected=FILE)
    text = files[FILE]
    try:
        lines = list(file_lines(text))
        state = _state(configuration_of(map(itemgetter(1), lines)))
        rendered = render_text(state)
    except LineError as error:
        raise UserInputError(str(error), where=f"{FILE}:{error.number}") from None
    except (UnsupportedPlanError, DeviceError) as error:
        raise UserInputError(str(error), where=FILE) from None
    if rendered != text:
        _check_lines(lines, Counter(line for _, line in file_lines(rendered)))
    return state


def _check_lines(lines: list[tuple[int, Placed]], needed: Counter[Placed]) -> None:
    for number, line in lines:
        if not needed[line]:
            raise UserInputError(
                f"not a line that mltswitch writes for what the others say: {line[1][:120]!r}",
                where=f"{FILE}:{number}",
            )
        needed[line] -= 1
    if missing := sorted(+needed):
        path, words = missing[0]
        raise UserInputError(f"lacks the line {' / '.join((*path, words))!r}", where=FILE)


def _state(configuration: Configuration) -> SwitchState:
    interpreter = Interpreter(configuration)
    known: dict[PortKey, PortState] = {}
    ports: list[PortState] = []
    for name, settings in configuration.ports.items():
        policy = configuration.schedulers.get(settings.scheduler)
        if policy is None or not policy.queues:
            raise UserInputError(f"interface {name} lacks a scheduler-policy with queues", where=FILE)
        if settings.key not in known:
            *first, last = policy.queues
            lossless = interpreter.lossless_queues(name, policy.queues)
            known[settings.key] = interpreter.port_state(name, [*first, *lossless, last])
        one = known[settings.key]
        if one.unexpected:
            raise UserInputError(f"interface {name}: {one.unexpected[0]}", where=FILE)
        ports.append(PortState(name, one.trusted, None, one.queues))
    routes = tuple(RouteState(route.prefix, route.next_hop, route.port) for route in configuration.routes)
    return SwitchState(tuple(ports), routes)
