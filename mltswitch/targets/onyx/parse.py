"""Onyx lines back into state: nothing but the lines that this state needs, and all of them."""

from collections.abc import Mapping

from mltswitch.errors import UserInputError
from mltswitch.targets.common import LineError
from mltswitch.targets.onyx.grammar import PortLine, RouteLine, parse_lines
from mltswitch.targets.onyx.render import FILE, render_text
from mltswitch.targets.onyx.settings import PortSettings, port_state
from mltswitch.targets.state import RouteState, SwitchState


def parse_files(files: Mapping[str, str]) -> SwitchState:
    """Inverse of `render`, in any order of lines; raises UserInputError naming file and line."""
    if set(files) != {FILE}:
        raise UserInputError(f"the files are {', '.join(sorted(files)) or 'none'}", expected=FILE)
    try:
        lines = list(parse_lines(files[FILE]))
        state = _state(lines)
        needed = {line.text for _, line in parse_lines(render_text(state))}
    except LineError as error:
        raise UserInputError(str(error), where=f"{FILE}:{error.number}") from None
    for number, line in lines:
        if line.text not in needed:
            raise UserInputError(
                f"does not fit the other lines: {line.text[:120]!r}", where=f"{FILE}:{number}"
            )
        needed.discard(line.text)
    if needed:
        raise UserInputError(f"lacks the line {min(needed)!r}", where=FILE)
    return state


def _state(lines: list[tuple[int, PortLine | RouteLine]]) -> SwitchState:
    ports: dict[str, PortSettings] = {}
    routes: list[RouteState] = []
    for _, line in lines:
        if isinstance(line, RouteLine):
            routes.append(line.route)
        else:
            ports[line.port] = line.setting.apply(ports.get(line.port, PortSettings()))
    return SwitchState(
        tuple(port_state(name, settings, settings.used_classes) for name, settings in ports.items()),
        tuple(routes),
    )
