"""State in the language of Onyx: one file of one-line commands; and all of them read back."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from mltswitch.capabilities import Capabilities
from mltswitch.targets.addresses import address_text, network_text
from mltswitch.targets.common import Key, QueueSetting, check_lines
from mltswitch.targets.expressible import queues_of
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.onyx.capabilities import LOSSLESS
from mltswitch.targets.onyx.grammar import DISCARD, Bind, PortLine, RouteLine, parse_lines, parse_setting
from mltswitch.targets.onyx.settings import PortSettings, port_state
from mltswitch.targets.remap import lossless_queues
from mltswitch.targets.state import PortState, QueueState, SwitchState
from mltswitch.targets.template import render_template
from mltswitch.units import KIBIBYTE

FILE: Final = "mltswitch.txt"


class _Queue(NamedTuple):
    number: int
    dscps: str
    threshold_kb: int | None
    is_lossless: bool


class _Port(NamedTuple):
    name: str
    trusted: bool
    queues: tuple[_Queue, ...]


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """`mltswitch.txt`."""
    del capabilities
    return {FILE: render_text(state)}


@remembering_last
def render_text(state: SwitchState) -> str:
    """All lines, in an order that is safe to enter: queues, then what leads to them, trust, routes."""
    ports = [
        _Port(port.name, port.trusted, alike)
        for queues, ports in groupby(state.ports, queues_of)
        for alike in [tuple(map(_queue, queues))]
        for port in ports
    ]
    routes = [
        (network_text(route.prefix), DISCARD if route.discards else address_text(route.next_hop))
        for route in state.routes
    ]
    return render_template("onyx/mltswitch.txt.j2", ports=ports, routes=routes)


def _queue(queue: QueueState) -> _Queue:
    threshold = queue.ecn_threshold_bytes
    return _Queue(
        queue.queue,
        " ".join(map(str, queue.dscps)),
        None if threshold is None else threshold // KIBIBYTE,
        queue.is_lossless,
    )


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
