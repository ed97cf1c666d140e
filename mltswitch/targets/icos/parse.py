"""FASTPATH lines back into state: nothing but the lines that this state needs, and all of them."""

from collections import Counter
from collections.abc import Iterable, Mapping

from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets.common import LineError, with_item
from mltswitch.targets.icos.capabilities import DEFAULT_SCALE
from mltswitch.targets.icos.grammar import (
    Line,
    MapLine,
    PortLine,
    RouteLine,
    ScaleLine,
    Strict,
    parse_lines,
)
from mltswitch.targets.icos.render import FILE, render_text
from mltswitch.targets.icos.settings import DEFAULT_DSCP_MAP, PortSettings, port_state
from mltswitch.targets.state import RouteState, SwitchState


def parse_files(files: Mapping[str, str]) -> SwitchState:
    """Inverse of `render`, in any order of lines; raises UserInputError naming file and line."""
    if set(files) != {FILE}:
        raise UserInputError(f"the files are {', '.join(sorted(files)) or 'none'}", expected=FILE)
    try:
        lines = list(parse_lines(files[FILE]))
        state = _state([line for _, line in lines])
        if render_text(state) == files[FILE]:
            return state
        needed = Counter(_key(line) for _, line in parse_lines(render_text(state)))
    except LineError as error:
        raise UserInputError(str(error), where=f"{FILE}:{error.number}") from None
    except UnsupportedPlanError as error:
        raise UserInputError(str(error), where=FILE) from None
    for number, line in lines:
        if not needed[_key(line)]:
            raise UserInputError(f"does not fit the other lines: {_name(line)}", where=f"{FILE}:{number}")
        needed[_key(line)] -= 1
    if missing := sorted(+needed):
        port, text = missing[0]
        raise UserInputError(f"lacks the line {text!r}{f' of interface {port}' if port else ''}", where=FILE)
    return state


def _key(line: Line) -> tuple[str, str]:
    return (line.port if isinstance(line, PortLine) else "", line.text)


def _name(line: Line) -> str:
    return repr(line.text[:120])


def _state(lines: Iterable[Line]) -> SwitchState:
    ports: dict[str, PortSettings] = {}
    queues: dict[str, set[int]] = {}
    dscp_map = DEFAULT_DSCP_MAP
    scale = DEFAULT_SCALE
    routes: list[RouteState] = []
    for line in lines:
        match line:
            case ScaleLine():
                scale = line.full_scale_bytes
            case RouteLine():
                routes.append(line.route)
            case MapLine():
                dscp_map = with_item(dscp_map, line.dscp, line.queue)
            case PortLine():
                ports[line.port] = line.setting.apply(ports.get(line.port, PortSettings()))
                if isinstance(line.setting, Strict):
                    queues.setdefault(line.port, set()).add(line.setting.queue)
    if without := [name for name in ports if name not in queues]:
        raise UserInputError(f"lacks the line 'cos-queue strict' of interface {without[0]}", where=FILE)
    return SwitchState(
        tuple(
            port_state(name, settings, dscp_map, sorted(queues[name], reverse=True), scale)
            for name, settings in ports.items()
        ),
        tuple(routes),
    )
