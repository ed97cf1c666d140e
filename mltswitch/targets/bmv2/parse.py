"""Commands of simple_switch_CLI back into state: all lines that this state needs, and no others."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

from mltswitch.capabilities import Capabilities
from mltswitch.targets.addresses import ipv4_network
from mltswitch.targets.bmv2.contents import Level, level_in, port_state
from mltswitch.targets.bmv2.entries import Tables, is_depth
from mltswitch.targets.bmv2.ports import port_name
from mltswitch.targets.bmv2.render import FILE, render_text
from mltswitch.targets.common import UNKNOWN, Key, check_lines, each_line
from mltswitch.targets.state import PortState, RouteState, SwitchState
from mltswitch.wire.hardware_address import address_of


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Inverse of `write_files`, in any order of lines."""
    del capabilities
    text = files[FILE]
    tables = Tables()
    lines = list(_lines(text, tables))
    state = _state(tables)
    rendered = render_text(state)
    if rendered != text:
        check_lines(lines, _lines(rendered, Tables()))
    return state


def _lines(text: str, tables: Tables) -> Iterator[tuple[int, Key]]:
    """Commands with their numbers, each taken into the tables; raises FileError."""

    def command(line: str) -> Key | None:
        if not line.isprintable():
            raise ValueError("has a control character")
        if not line or line.startswith("#"):
            return None
        if not tables.add(line) and not is_depth(line):
            raise ValueError(UNKNOWN)
        return (), line

    return each_line(text, command)


def _state(tables: Tables) -> SwitchState:
    """What the lines say, where they are lines that we would render."""
    levels: dict[int, dict[int, Level]] = {}
    for entry in tables.of("queues"):
        port, queue = entry.numbers()
        levels.setdefault(port, {})[queue] = level_in(tables, entry)
    maps = tables.dscp_maps()
    ports: list[PortState] = []
    alike: dict[tuple[Any, ...], PortState] = {}
    for port, queues in levels.items():
        number = tables.map_of_port(port)
        known = tuple(sorted(queues.items())), number
        if known not in alike:
            alike[known] = port_state("", queues, maps.get(number, {}), trusted=number != 0)
        ports.append(replace(alike[known], name=port_name(port)))
    spraying = any(True for _ in tables.of("spraying"))
    return SwitchState(tuple(ports), tuple(_routes(tables, levels)), packet_spraying=spraying)


def _routes(tables: Tables, ports: Container[int]) -> list[RouteState]:
    """Hops that make no route of ours are left out, so that their lines do not fit."""
    found: list[RouteState] = []
    for entry in tables.of("ipv4_routes"):
        prefix = ipv4_network(entry.key[0])
        hops = (entry.parameters,) if entry.action == "forward" else tables.members(*entry.parameters)
        for hop in hops:
            route = None if hop is None else _route(prefix, hop, ports)
            if route is not None:
                found.append(route)
    return found


def _route(prefix: IPv4Network, hop: tuple[str, ...], ports: Container[int]) -> RouteState | None:
    port, neighbour = hop
    address = address_of(neighbour)
    if address is None or int(port) not in ports:
        return None
    return RouteState(prefix, address, port_name(int(port)))
