"""EOS lines back into state: nothing but the lines that this state needs, and all of them."""

from collections.abc import Mapping

from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets.common import LineError
from mltswitch.targets.eos.capabilities import UNICAST_QUEUE
from mltswitch.targets.eos.grammar import (
    Detect,
    Line,
    MapLine,
    PortLine,
    RouteLine,
    Strict,
    parse_lines,
)
from mltswitch.targets.eos.render import FILE, render_text
from mltswitch.targets.eos.settings import Maps, PortSettings, port_state
from mltswitch.targets.eos.state import switch_state
from mltswitch.targets.state import RouteState, SwitchState


def parse_files(files: Mapping[str, str]) -> SwitchState:
    """Inverse of `render`, in any order of lines; raises UserInputError naming file and line."""
    if set(files) != {FILE}:
        raise UserInputError(f"the files are {', '.join(sorted(files)) or 'none'}", expected=FILE)
    try:
        lines = list(parse_lines(files[FILE]))
        state = _state(lines)
        needed = {_identity(line) for line in parse_lines(render_text(state))}
    except LineError as error:
        raise UserInputError(str(error), where=f"{FILE}:{error.number}") from None
    except UnsupportedPlanError as error:
        raise UserInputError(str(error), where=FILE) from None
    for line in lines:
        if _identity(line) not in needed:
            raise UserInputError(
                f"does not fit the other lines: {line.placed.text[:120]!r}",
                where=f"{FILE}:{line.placed.number}",
            )
        needed.discard(_identity(line))
    if needed:
        modes, text = min(needed)
        raise UserInputError(f"lacks the line {' / '.join((*modes, text))!r}", where=FILE)
    return state


def _identity(line: Line) -> tuple[tuple[str, ...], str]:
    return line.placed.modes, line.placed.text


def _state(lines: list[Line]) -> SwitchState:
    maps = Maps()
    ports: dict[str, PortSettings] = {}
    queues: dict[str, list[int]] = {}
    routes: list[RouteState] = []
    word = UNICAST_QUEUE
    for line in lines:
        match line:
            case RouteLine(route=route):
                routes.append(route)
            case MapLine(setting=setting):
                maps = setting.apply(maps)
            case PortLine(port=name, queue_word=found, setting=setting):
                ports[name] = setting.apply(ports.get(name, PortSettings()))
                numbers = queues.setdefault(name, [])
                if isinstance(setting, Strict | Detect) and setting.queue not in numbers:
                    numbers.append(setting.queue)
                word = found or word
    if any(not numbers for numbers in queues.values()):
        raise UserInputError("a port has no queues", where=FILE)
    return switch_state(
        word, (port_state(name, port, maps, queues[name]) for name, port in ports.items()), routes
    )
