"""Commands of simple_switch_CLI back into state: all lines that this state needs, and no others."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any, Final

from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.targets.addresses import ipv4_network
from mltswitch.targets.bmv2.contents import Level, port_state
from mltswitch.targets.bmv2.entries import Tables, is_depth, place_of
from mltswitch.targets.bmv2.ports import PORT_NAME
from mltswitch.targets.bmv2.render import FILE, render_text
from mltswitch.targets.common import LineError
from mltswitch.targets.state import PortState, RouteState, SwitchState
from mltswitch.targets.template import using_templates
from mltswitch.wire.hardware_address import address_of

_NAME: Final = re.compile(rf"# port (0|[1-9][0-9]{{0,8}}) is ({PORT_NAME.pattern})")


def parse_files(files: Mapping[str, str]) -> SwitchState:
    """Inverse of `render`, in any order of lines; raises UserInputError naming file and line."""
    if set(files) != {FILE}:
        raise UserInputError(f"the files are {', '.join(sorted(files)) or 'none'}", expected=FILE)
    try:
        lines = _lines(files[FILE])
        state = _state(lines, _tables(lines))
        with using_templates(None):
            needed = set(filter(_counts, render_text(state).splitlines()))
        _refuse_others(lines, needed)
    except LineError as error:
        raise UserInputError(str(error), where=f"{FILE}:{error.number}") from None
    except UnsupportedPlanError as error:
        what = f"{error.where}: {error.what}" if error.where else error.what
        raise UserInputError(what, where=FILE) from None
    missing = min(needed - lines.keys(), default=None)
    if missing is not None:
        raise UserInputError(f"lacks the line {missing!r}", where=FILE)
    return state


def _lines(text: str) -> dict[str, int]:
    """Line → its number, of those that say something; raises LineError."""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.isprintable():
            raise LineError(number, line, "has a control character")
        if not line or not _counts(line):
            continue
        if lines.setdefault(line, number) != number:
            raise LineError(number, line, "stands twice")
    return lines


def _tables(lines: Mapping[str, int]) -> Tables:
    """What the lines add; raises LineError for what is no line of ours."""
    tables = Tables.of_lines(line for line in lines if line[0] != "#" and not is_depth(line))
    for line in tables.foreign:
        raise LineError(lines[line], line, "is no line of ours")
    return tables


def _refuse_others(lines: Mapping[str, int], needed: Collection[str]) -> None:
    for line, number in lines.items():
        if line not in needed:
            raise LineError(number, line, "does not fit the other lines")


def _counts(line: str) -> bool:
    """Whether it is a command, or the comment that names a port."""
    return not line.startswith("#") or _NAME.fullmatch(line) is not None


def _state(lines: Mapping[str, int], tables: Tables) -> SwitchState:
    """What the lines say, where they are lines that we would render."""
    names: dict[int, str] = {}
    for line, number in lines.items():
        named = _NAME.fullmatch(line)
        if named is not None and names.setdefault(int(named[1]), named[2]) != named[2]:
            raise LineError(number, line, f"the port is {names[int(named[1])]}")
    levels: dict[int, dict[int, Level]] = {port: {} for port in names}
    for entry in tables.of("queues"):
        port, queue = entry.numbers()
        *threshold, limit, policed = map(int, entry.parameters)
        meter = tables.meters.get(place_of(port, queue)) if policed else None
        levels.setdefault(port, {})[queue] = Level(threshold[0] if threshold else None, limit, meter)
    maps = tables.dscp_maps()
    ports: list[PortState] = []
    alike: dict[tuple[Any, ...], PortState] = {}
    for port, name in names.items():
        number = tables.map_of_port(port)
        known = tuple(sorted(levels[port].items())), number
        if known not in alike:
            alike[known] = port_state(name, levels[port], maps.get(number, {}), trusted=number != 0)
        ports.append(replace(alike[known], name=name))
    spraying = any(True for _ in tables.of("spraying"))
    return SwitchState(tuple(ports), tuple(_routes(tables, names)), packet_spraying=spraying)


def _routes(tables: Tables, names: Mapping[int, str]) -> list[RouteState]:
    """Hops that make no route of ours are left out, so that their lines do not fit."""
    found: list[RouteState] = []
    for entry in tables.of("ipv4_routes"):
        prefix = ipv4_network(entry.key[0])
        hops = (entry.parameters,) if entry.action == "forward" else tables.members(*entry.parameters)
        for hop in hops:
            route = None if hop is None else _route(prefix, hop, names)
            if route is not None:
                found.append(route)
    return found


def _route(prefix: IPv4Network, hop: tuple[str, ...], names: Mapping[int, str]) -> RouteState | None:
    port, neighbour = hop
    address, name = address_of(neighbour), names.get(int(port))
    return None if address is None or name is None else RouteState(prefix, address, name)
