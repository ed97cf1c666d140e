"""Onyx lines back into state: nothing but the lines that this state needs, and all of them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets.common import LineError
from mltswitch.targets.onyx.capabilities import LOSSLESS
from mltswitch.targets.onyx.grammar import (
    ClassSetting,
    Congestion,
    PortLine,
    Setting,
    Strict,
    parse_lines,
    parse_setting,
)
from mltswitch.targets.onyx.render import FILE, render_text
from mltswitch.targets.onyx.settings import PortSettings, port_state
from mltswitch.targets.remap import lossless_queues
from mltswitch.targets.state import PortState, RouteState, SwitchState
from mltswitch.targets.template import using_templates

_SOME_PORT: Final = "1/1"
_MEMORY: Final = 256
"""Ports remembered by their lines: most of a switch are alike."""


class _MisfitError(Exception):
    """Line number `index` of a port does not fit the others, or `missing` is needed."""

    def __init__(self, index: int = -1, missing: str = "") -> None:
        super().__init__()
        self.index = index
        self.missing = missing


def parse_files(files: Mapping[str, str]) -> SwitchState:
    """Inverse of `render`, in any order of lines; raises UserInputError naming file and line."""
    if set(files) != {FILE}:
        raise UserInputError(f"the files are {', '.join(sorted(files)) or 'none'}", expected=FILE)
    ports: dict[str, list[tuple[int, PortLine]]] = {}
    routes: dict[str, RouteState] = {}
    try:
        for number, line in parse_lines(files[FILE]):
            if isinstance(line, PortLine):
                ports.setdefault(line.port, []).append((number, line))
            elif line.text in routes:
                raise _misfit(number, line.text)
            else:
                routes[line.text] = line.route
    except LineError as error:
        raise UserInputError(str(error), where=f"{FILE}:{error.number}") from None
    return SwitchState(tuple(_port(name, lines) for name, lines in ports.items()), tuple(routes.values()))


def _misfit(number: int, text: str) -> UserInputError:
    return UserInputError(f"does not fit the other lines: {text[:120]!r}", where=f"{FILE}:{number}")


def _port(name: str, lines: list[tuple[int, PortLine]]) -> PortState:
    try:
        return replace(_state(tuple(line.words for _, line in lines)), name=name)
    except _MisfitError as error:
        if error.missing:
            raise UserInputError(
                f"lacks the line {f'interface ethernet {name} {error.missing}'!r}", where=FILE
            ) from None
        number, line = lines[error.index]
        raise _misfit(number, line.text) from None
    except UnsupportedPlanError as error:
        raise UserInputError(error.what, where=f"{FILE}: port {name}") from None


@lru_cache(maxsize=_MEMORY)
def _state(lines: tuple[str, ...]) -> PortState:
    """State of a port, whatever its name, by the words of its lines; raises _MisfitError."""
    given = [parse_setting(words) for words in lines]
    settings = PortSettings()
    for setting in given:
        settings = setting.apply(settings)
    queues = {setting.traffic_class for setting in given if isinstance(setting, ClassSetting)}
    configured = {setting.traffic_class for setting in given if isinstance(setting, Congestion | Strict)}
    lossless = lossless_queues(LOSSLESS, configured, queues)
    *first, last = sorted(queues.difference(lossless), reverse=True) or [0]
    state = port_state(_SOME_PORT, settings, [*first, *lossless, last], lossless)
    needed = _needed(state)
    for index, setting in enumerate(given):
        if needed.pop(setting, None) is None:
            raise _MisfitError(index)
    if needed:
        raise _MisfitError(missing=min(needed.values()))
    return state


def _needed(port: PortState) -> dict[Setting, str]:
    """Setting → words; raises UnsupportedPlanError."""
    with using_templates(None):
        text = render_text(SwitchState((port,), ()))
    return {line.setting: line.words for _, line in parse_lines(text) if isinstance(line, PortLine)}
