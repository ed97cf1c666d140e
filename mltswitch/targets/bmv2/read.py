"""What a switch answers, as state: entries and meters of our program, and what else stands in its tables."""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.plan import NO_ADDRESS, trailing_number
from mltswitch.targets.addresses import ipv4_network
from mltswitch.targets.base import CounterSource, EgressCounters, QueueCounters, QueuePlace, RunningState
from mltswitch.targets.bmv2.capabilities import QUEUE_DEPTH_PACKETS
from mltswitch.targets.bmv2.contents import (
    NOWHERE,
    Contents,
    Neighbour,
    background_in,
    contents_of,
    level_in,
    port_state,
)
from mltswitch.targets.bmv2.entries import (
    DEPTH_METER,
    DEPTH_PLACE,
    SHARING,
    Entry,
    Meter,
    Tables,
    hops_of,
    place_of,
)
from mltswitch.targets.common import json_in, known_form
from mltswitch.targets.p4runtime import COUNTERS, ENTRIES, METERS, NO_PROGRAM, OUR_PROGRAM, PIPELINE
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import PortState, RouteState, SwitchState
from mltswitch.units import BITS_PER_BYTE
from mltswitch.wire.hardware_address import address_of

NOTHING_LASTS: Final = "nothing survives a restart of the switch: push again then"


def tables_in(answers: Mapping[str, str]) -> Tables:
    """What the switch holds for our program; nothing where another one runs."""
    if answers[PIPELINE].strip() != OUR_PROGRAM:
        return Tables()
    return Tables.of_lines([*answers[ENTRIES].splitlines(), *answers[METERS].splitlines()])


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """Program, entries and meters."""
    del wanted
    return (PIPELINE, ENTRIES, METERS)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """State of the wanted ports, and our routes; without our program there are none."""
    del capabilities
    tables, contents = tables_in(answers), contents_of(wanted)
    ports = tuple(filter(None, (_port(name, tables, contents) for name in contents.numbers)))
    routes = in_order_of(wanted.routes, _routes(tables, wanted, contents.numbers))
    shared = {
        entry.action
        for entry in tables.of("ipv4_routes")
        if entry.action in SHARING and ipv4_network(entry.key[0]) in contents.routes
    }
    spraying = SHARING[True] in shared if shared else wanted.packet_spraying and bool(ports)
    background = background_in(tables, contents.numbers.values())
    state = SwitchState(ports, routes, packet_spraying=spraying, background_dscp=background)
    return RunningState(state, answers, tuple(_notes(answers[PIPELINE].strip(), tables, wanted, contents)))


def is_of_plan(entry: Entry, ports: frozenset[int], own: OwnPrefixes) -> bool:
    """Whether it stands where only mltswitch writes: on a port of the plan, or within its prefixes.

    Groups belong to the routes that refer to them, so they are the plan's.
    """
    if entry.table == "ipv6_routes":
        return False
    if entry.table == "ipv4_routes":
        return ipv4_network(entry.key[0]) in own
    return entry.table == "groups" or entry.numbers_at(0) in ports


def _port(name: str, tables: Tables, contents: Contents) -> PortState | None:
    """None: it has no queue."""
    number = contents.numbers[name]
    queues = {entry.numbers()[1]: entry for entry in tables.of("queues") if entry.numbers_at(0) == number}
    if not queues:
        return None
    address = contents.trust[number].key[1]
    trust = {entry.key[1]: entry for entry in tables.of("ports") if entry.numbers_at(0) == number}
    classes = [entry for entry in tables.of("classes") if entry.numbers_at(0) == number]
    others = {entry.key[1] for entry in (*trust.values(), *classes)} - {address}
    return port_state(
        name,
        {queue: level_in(tables, entry) for queue, entry in queues.items()},
        trust.get(address),
        [entry for entry in classes if entry.key[1] == address],
        unexpected=(
            *(f"packets to {other} are taken, too" for other in sorted(others)),
            *_odd_frames(queues, tables),
            *_odd_meters(queues, tables, number),
            *_odd_neighbour(tables, number, contents.neighbours.get(number)),
            *_odd_depth(tables),
        ),
    )


def _odd_frames(queues: Mapping[int, Entry], tables: Tables) -> Iterator[str]:
    lengths = {queue: level_in(tables, entry).frame_bytes for queue, entry in queues.items()}
    for queue, frame_bytes in lengths.items():
        if frame_bytes != min(lengths.values()):
            yield f"queue {queue} takes frames of {frame_bytes} B"


def _odd_meters(queues: Mapping[int, Entry], tables: Tables, number: int) -> Iterator[str]:
    for queue, entry in queues.items():
        limit, policed, _ = map(int, entry.parameters[-3:])
        meter = tables.meters.get(place_of(number, queue))
        if not policed:
            continue
        if meter is None:
            yield f"queue {queue} is policed by a meter without rates"
        elif meter != Meter(meter.committed, limit, meter.committed, limit):
            yield (
                f"queue {queue} is policed at {meter.committed * BITS_PER_BYTE} bit/s with bursts of "
                f"{meter.committed_burst} B and at {meter.peak * BITS_PER_BYTE} bit/s with bursts of "
                f"{meter.peak_burst} B"
            )


def _odd_neighbour(tables: Tables, number: int, wanted: Neighbour | None) -> Iterator[str]:
    entry = tables.at("neighbours", number)
    if entry is None:
        if wanted is not None:
            yield "no neighbour"
    elif entry.parameters != wanted:
        yield f"sends from {entry.parameters[0]} to {entry.parameters[1]}"


def _odd_depth(tables: Tables) -> Iterator[str]:
    meter = tables.meters.get(DEPTH_PLACE)
    if meter is None:
        yield f"nothing says that BMv2's queues hold {QUEUE_DEPTH_PACKETS} packets"
    elif meter != DEPTH_METER:
        yield f"BMv2's queues hold {meter.committed_burst} packets"


def _routes(tables: Tables, wanted: SwitchState, numbers: Mapping[str, int]) -> Iterator[RouteState]:
    own = OwnPrefixes(wanted.routes)
    names = {str(number): name for name, number in numbers.items()}
    for entry in tables.of("ipv4_routes"):
        prefix = ipv4_network(entry.key[0])
        if prefix not in own:
            continue
        if not entry.parameters:
            yield RouteState(prefix, NO_ADDRESS, "")
            continue
        hops = hops_of(tables, entry)
        if not hops:
            yield RouteState(prefix, NOWHERE, f"(group {entry.parameters[0]} is missing)")
        for port in hops:
            yield _route(prefix, port, names, tables)


def _route(prefix: IPv4Network, port: str, names: Mapping[str, str], tables: Tables) -> RouteState:
    name, neighbour = names.get(port, f"port {port}"), tables.at("neighbours", port)
    if neighbour is None:
        return RouteState(prefix, NOWHERE, name)
    address = address_of(neighbour.parameters[1])
    if address is None:
        return RouteState(prefix, NOWHERE, f"{name} {neighbour.parameters[1]}")
    return RouteState(prefix, address, name)


def _notes(program: str, tables: Tables, wanted: SwitchState, contents: Contents) -> Iterator[str]:
    if program == NO_PROGRAM:
        yield "it runs no program"
    elif program != OUR_PROGRAM:
        yield f"it runs another program ({program}), which a push replaces with all its tables"
    ports, own = frozenset(contents.numbers.values()), OwnPrefixes(wanted.routes)
    foreign = [entry.added for entry in tables.entries.values() if not is_of_plan(entry, ports, own)]
    foreign += tables.foreign
    if foreign:
        yield (
            f"{len(foreign)} entries that no plan of these ports and prefixes asks for stay as they are, "
            f"such as {foreign[0][:120]!r}"
        )
    yield NOTHING_LASTS


def _read_counters(answers: Mapping[str, str], places: Iterable[QueuePlace]) -> QueueCounters:
    """Packets let into a queue, or not: nothing counts those that leave it. Raises DeviceError."""
    with known_form(COUNTERS):
        cells = json_in(answers[COUNTERS]) if answers[COUNTERS] else {}
        return {
            (port, queue): EgressCounters(
                admitted_packets=found["forwarded_unmarked"] + found["forwarded_marked"],
                dropped_packets=found["dropped_unimportant"] + found["dropped_limit"],
                ce_marked_packets=found["forwarded_marked"],
                dropped_at_threshold_packets=found["dropped_unimportant"],
                dropped_at_limit_packets=found["dropped_limit"],
            )
            for port, queue in places
            if (found := cells.get(f"{trailing_number(port)} {queue}")) is not None
        }


COUNTER_SOURCE: Final = CounterSource(lambda _: (COUNTERS,), _read_counters)
