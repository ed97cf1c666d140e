"""EOS lines back into state: nothing but the lines that this state needs, and all of them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets.common import LineError
from mltswitch.targets.eos.capabilities import LOSSLESS, UNICAST_QUEUE
from mltswitch.targets.eos.grammar import (
    REMEMBERED_BODIES,
    Attach,
    Entry,
    Line,
    MapClass,
    MapDscp,
    PolicyText,
    PortCos,
    PortDscp,
    Trust,
    lines_of,
    parse_entries,
    parse_lines,
)
from mltswitch.targets.eos.policy import HostPolicy, Moved
from mltswitch.targets.eos.render import FILE, render_text
from mltswitch.targets.eos.settings import Maps, PortSettings, port_state
from mltswitch.targets.eos.state import switch_state
from mltswitch.targets.remap import lossless_queues
from mltswitch.targets.state import PortState, RouteState, SwitchState

REMEMBERED_POLICIES: Final = 64
"""All switches of a fabric have the same."""


def parse_files(files: Mapping[str, str]) -> SwitchState:
    """Inverse of `render`, in any order of lines; raises UserInputError naming file and line."""
    if set(files) != {FILE}:
        raise UserInputError(f"the files are {', '.join(sorted(files)) or 'none'}", expected=FILE)
    text = files[FILE]
    try:
        state = _state(text)
        rendered = render_text(state)
        if rendered == text:
            return state
        lines = list(parse_lines(text))
        needed = Counter(map(_identity, parse_lines(rendered)))
    except LineError as error:
        raise UserInputError(str(error), where=f"{FILE}:{error.number}") from None
    except UnsupportedPlanError as error:
        raise UserInputError(str(error), where=FILE) from None
    for line in lines:
        if not needed[_identity(line)]:
            raise UserInputError(
                f"does not fit the other lines: {line.text[:120]!r}", where=f"{FILE}:{line.number}"
            )
        needed[_identity(line)] -= 1
    if missing := sorted(+needed):
        modes, missed = missing[0]
        raise UserInputError(f"lacks the line {' / '.join((*modes, missed))!r}", where=FILE)
    return state


def _identity(line: Line) -> tuple[tuple[str, ...], str]:
    return line.modes, line.text


@dataclass(frozen=True, slots=True)
class _Port:
    """What the lines of one port say, whatever its name."""

    settings: PortSettings
    queues: tuple[int, ...]
    """In the order of their lines."""
    queue_word: str


def _state(text: str) -> SwitchState:
    maps = Maps()
    policy: list[tuple[str, str]] = []
    bodies: dict[str, tuple[str, ...]] = {}
    routes: list[RouteState] = []
    for entry in parse_entries(text):
        match entry.setting:
            case RouteState():
                routes.append(entry.setting)
            case MapDscp() | MapClass():
                maps = entry.setting.apply(maps)
            case None if entry.port:
                lines_of(entry)
                bodies[entry.port] = (*bodies.get(entry.port, ()), entry.body)
            case None:
                lines_of(entry)
                policy.append((entry.text, entry.body))
    states: dict[tuple[str, ...], PortState] = {}
    word, moved = UNICAST_QUEUE, _moved(tuple(policy))
    for body in dict.fromkeys(bodies.values()):
        port = _port(body)
        word = port.queue_word or word
        if not port.queues:
            raise UserInputError("a port has no queues", where=FILE)
        lossless = lossless_queues(LOSSLESS, port.queues, maps.queue_of_dscps())
        queues = (*port.queues[:-1], *lossless, port.queues[-1])
        states[body] = port_state("", port.settings, maps, moved, queues, lossless)
    return switch_state(word, (replace(states[body], name=name) for name, body in bodies.items()), routes)


@lru_cache(maxsize=REMEMBERED_POLICIES)
def _moved(heads_and_bodies: tuple[tuple[str, str], ...]) -> Moved | None:
    """What the policy does, whose lines stand under these heads."""
    policy = HostPolicy()
    for head, body in heads_and_bodies:
        for line in lines_of(Entry(0, head, None, body)):
            if isinstance(line.setting, PolicyText):
                policy = line.setting.apply(policy)
    return policy.moved


@lru_cache(maxsize=REMEMBERED_BODIES)
def _port(bodies: tuple[str, ...]) -> _Port:
    """A port from what stands under each `interface` line of it."""
    settings = PortSettings()
    queues: dict[int, None] = {}
    word = ""
    for body in bodies:
        for line in lines_of(Entry(0, "interface Ethernet1", None, body)):
            if isinstance(line.setting, PolicyText):
                continue
            settings = line.setting.apply(settings)
            if not isinstance(line.setting, Trust | PortCos | PortDscp | Attach):
                queues[line.setting.queue] = None
                word = line.inner[0].partition(" ")[0]
    return _Port(settings, tuple(queues), word)
