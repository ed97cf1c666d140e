"""Onyx lines back into state: nothing but the lines that this state needs, and all of them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.targets.common import Key, QueueSetting, check_lines
from mltswitch.targets.onyx.capabilities import LOSSLESS
from mltswitch.targets.onyx.grammar import Bind, PortLine, RouteLine, parse_lines, parse_setting
from mltswitch.targets.onyx.render import FILE, render_text
from mltswitch.targets.onyx.settings import PortSettings, port_state
from mltswitch.targets.remap import lossless_queues
from mltswitch.targets.state import PortState, SwitchState

_MEMORY: Final = 256
"""Ports remembered by their lines: most of a switch are alike."""


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Inverse of `write_files`, in any order of lines."""
    del capabilities
    text = files[FILE]
    lines = list(parse_lines(text))
    words: dict[str, list[str]] = {}
    for _, line in lines:
        if isinstance(line, PortLine):
            words.setdefault(line.port, []).append(line.words)
    state = SwitchState(
        tuple(replace(_port(tuple(given)), name=name) for name, given in words.items()),
        tuple({line.text: line.route for _, line in lines if isinstance(line, RouteLine)}.values()),
    )
    rendered = render_text(state)
    if rendered != text:
        check_lines(_keys(lines), _keys(parse_lines(rendered)))
    return state


def _keys(lines: Iterable[tuple[int, PortLine | RouteLine]]) -> Iterator[tuple[int, Key]]:
    return ((number, ((), line.text)) for number, line in lines)


@lru_cache(maxsize=_MEMORY)
def _port(lines: tuple[str, ...]) -> PortState:
    """State of a port, whatever its name, by the words of its lines."""
    settings = PortSettings()
    led: set[int] = set()
    configured: set[int] = set()
    for setting in map(parse_setting, lines):
        settings = setting.apply(settings)
        if isinstance(setting, Bind):
            led.add(setting.queue)
        elif isinstance(setting, QueueSetting):
            configured.add(setting.queue)
    lossless = lossless_queues(LOSSLESS, configured, led)
    queues = sorted((led | configured).difference(lossless), reverse=True)
    return port_state("", settings, [*queues[:-1], *lossless, *queues[-1:]], lossless)
