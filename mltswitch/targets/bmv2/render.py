"""State as commands of simple_switch_CLI, one file, and all of its lines read back."""

from collections.abc import Container, Iterator, Mapping
from ipaddress import IPv4Address
from itertools import count
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.plan import NO_ADDRESS
from mltswitch.targets.addresses import ipv4_network, network_text
from mltswitch.targets.bmv2.capabilities import QUEUE_DEPTH_PACKETS
from mltswitch.targets.bmv2.contents import Level, background_in, contents_of, level_in, port_state
from mltswitch.targets.bmv2.entries import (
    DEPTH_METER,
    DEPTH_PLACE,
    SHARING,
    Entry,
    Tables,
    hops_of,
    is_depth,
    meter_line,
    place_of,
)
from mltswitch.targets.bmv2.ports import port_name
from mltswitch.targets.common import UNKNOWN, Key, check_lines, each_line
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import RouteState, SwitchState
from mltswitch.targets.template import render_template
from mltswitch.wire.hardware_address import address_of

FILE: Final = "mltswitch.txt"


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """`mltswitch.txt`."""
    del capabilities
    return {FILE: render_text(state)}


@remembering_last
def render_text(state: SwitchState) -> str:
    """All lines, in an order that is safe to enter: queues, then what leads to them, routes last.

    Groups have numbers from 1, in the order in which routes need them. Raises UnsupportedPlanError for what
    the tables cannot say.
    """
    contents = contents_of(state)
    groups = count(1)
    return render_template(
        "bmv2/mltswitch.txt.j2",
        depth=QUEUE_DEPTH_PACKETS,
        depth_mark=meter_line(DEPTH_PLACE, DEPTH_METER),
        queues=[
            (
                *(port, queue, level.threshold_bytes, level.limit_bytes),
                *(int(level.meter is not None), level.frame_bytes),
            )
            for (port, queue), level in contents.levels.items()
        ],
        meters=[
            meter_line(place_of(port, queue), level.meter)
            for (port, queue), level in contents.levels.items()
            if level.meter is not None
        ],
        classes=[entry.added for entries in contents.classes.values() for entry in entries],
        trust=[entry.added for entry in contents.trust.values()],
        neighbours=[(port, *neighbour) for port, neighbour in contents.neighbours.items()],
        routes=[
            (network_text(prefix), next(groups) if len(ports) > 1 else None, ports)
            for prefix, ports in contents.routes.items()
        ],
        share=SHARING[contents.packet_spraying],
    )


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
    trust = {entry.numbers_at(0): entry for entry in tables.of("ports")}
    classes: dict[int, list[Entry]] = {}
    for entry in tables.of("classes"):
        classes.setdefault(entry.numbers_at(0), []).append(entry)
    ports = tuple(
        port_state(port_name(port), queues, trust.get(port), classes.get(port, []))
        for port, queues in levels.items()
    )
    behind = {entry.numbers()[0]: address_of(entry.parameters[1]) for entry in tables.of("neighbours")}
    routes = tuple(_routes(tables, levels, behind))
    spraying = any(entry.action == SHARING[True] for entry in tables.of("ipv4_routes"))
    return SwitchState(ports, routes, packet_spraying=spraying, background_dscp=background_in(tables, levels))


def _routes(
    tables: Tables, ports: Container[int], behind: Mapping[int, IPv4Address | None]
) -> Iterator[RouteState]:
    """Hops that make no route of ours are left out, so that their lines do not fit."""
    for entry in tables.of("ipv4_routes"):
        prefix = ipv4_network(entry.key[0])
        if not entry.parameters:
            yield RouteState(prefix, NO_ADDRESS, "")
            continue
        for port in map(int, hops_of(tables, entry)):
            address = behind.get(port)
            if address is not None and port in ports:
                yield RouteState(prefix, address, port_name(port))
