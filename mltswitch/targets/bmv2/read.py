"""Reads a switch's answers as state: entries and meters of mltswitch's program, and whatever else it has."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.plan import trailing_number
from mltswitch.targets.base import CounterSource, EgressCounters, QueueCounters, QueuePlace, RunningState
from mltswitch.targets.bmv2 import sheet
from mltswitch.targets.bmv2.capabilities import QUEUE_DEPTH_PACKETS
from mltswitch.targets.bmv2.mapping import background_in, by_port, facts_of, meter_of, port_state, routes_in
from mltswitch.targets.bmv2.sheet import Entries, of
from mltswitch.targets.common import json_in, known_form
from mltswitch.targets.p4runtime import COUNTERS, ENTRIES, METERS, NO_PROGRAM, OUR_PROGRAM, PIPELINE
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import SwitchState
from mltswitch.units import BITS_PER_BYTE

QUERIES: Final = (PIPELINE, ENTRIES, METERS)
_BY_ADDRESS: Final = (sheet.TRUST, sheet.CLASSES)
"""Tables whose keys name the MAC address to which packets are sent."""
_NOTHING_LASTS: Final = "nothing survives a restart of the switch: push again then"


def facts_in(answers: Mapping[str, str]) -> tuple[Entries, list[str]]:
    """The entries of mltswitch's program on a switch (of no other program), and lines not understood.

    If two lines set the same entry, which no switch should show, the last one counts.
    """
    facts: Entries = {}
    unknown: list[str] = []
    is_ours = answers[PIPELINE].strip() == OUR_PROGRAM
    for line in (*answers[ENTRIES].splitlines(), *answers[METERS].splitlines()) if is_ours else ():
        if found := sheet.read_line(line):
            facts |= found.facts
        elif line:
            unknown.append(line)
    return facts, unknown


def addresses_in(planned: Entries) -> dict[int, str]:
    """Port number → MAC address, for the ports of a plan."""
    return {port: address for port, address, _ in of(planned, sheet.TRUST)}


def read_answers(
    answers: Mapping[str, str], wanted: SwitchState, _capabilities: Capabilities
) -> RunningState:
    """The running state of the wanted ports, and the plan's routes; empty if another program runs."""
    facts, unknown = facts_in(answers)
    planned, own, entries = facts_of(wanted), OwnPrefixes(wanted.routes), by_port(facts)
    addresses = addresses_in(planned)
    ports = [
        port_state(
            port,
            facts,
            {fact: value for fact, value in mine.items() if fact[0] not in _BY_ADDRESS or fact[2] == address},
            _unexpected(facts, mine, planned, port, address),
        )
        for port, address in addresses.items()
        if any(of(mine := entries[port], sheet.QUEUES))
    ]
    actions = {leads_to[0] for prefix, leads_to in of(facts, sheet.IPV4) if (sheet.IPV4, prefix) in planned}
    is_shared = not actions.isdisjoint(sheet.SHARING)
    state = SwitchState(
        tuple(ports),
        in_order_of(wanted.routes, routes_in(facts, addresses, own)),
        packet_spraying=sheet.SHARING[True] in actions
        if is_shared
        else wanted.packet_spraying and bool(ports),
        background_dscp=background_in(facts, addresses),
    )
    foreign = [
        sheet.added(fact, value)
        for fact, value in facts.items()
        if (fact[0] in sheet.OF_PORTS and fact[1] not in addresses)
        or (fact[0] == sheet.IPV4 and fact[1] not in own)
        or fact[0] == sheet.IPV6
    ]
    return RunningState(state, answers, tuple(_notes(answers[PIPELINE].strip(), [*foreign, *unknown])))


def _unexpected(facts: Entries, own: Entries, planned: Entries, port: int, address: str) -> Iterator[str]:
    """What no plan asks for, in the entries of a port, `own`, and in the meters."""
    others = {entry[1] for entry in of(own, *_BY_ADDRESS)} - {address}
    yield from (f"packets to {other} are taken, too" for other in sorted(others))
    queues = [(queue, *value[-3:]) for _, queue, value in of(own, sheet.QUEUES)]
    shortest = min(frame_bytes for *_, frame_bytes in queues)
    for queue, *_, frame_bytes in queues:
        if frame_bytes != shortest:
            yield f"queue {queue} takes frames of {frame_bytes} B"
    for queue, limit, is_policed, _ in queues:
        if is_policed and meter_of(port, queue) not in facts:
            yield f"queue {queue} is policed by a meter without rates"
        elif is_policed:
            committed, burst, peak, peak_burst = facts[meter_of(port, queue)]
            if (burst, peak, peak_burst) != (limit, committed, limit):
                yield (
                    f"queue {queue} is policed at {committed * BITS_PER_BYTE} bit/s with bursts of {burst} B "
                    f"and at {peak * BITS_PER_BYTE} bit/s with bursts of {peak_burst} B"
                )
    fact = sheet.NEIGHBOURS, port
    if fact in facts and facts[fact] != planned.get(fact):
        yield f"sends from {facts[fact][0]} to {facts[fact][1]}"
    elif fact in planned and fact not in facts:
        yield "no neighbour"
    depth = facts.get((sheet.DEPTH_MARK,))
    if depth is None:
        yield f"nothing says that BMv2's queues hold {QUEUE_DEPTH_PACKETS} packets"
    elif depth != sheet.DEPTH_METER:
        yield f"BMv2's queues hold {depth[1]} packets"


def _notes(program: str, foreign: list[str]) -> Iterator[str]:
    if program == NO_PROGRAM:
        yield "it runs no program"
    elif program != OUR_PROGRAM:
        yield f"it runs another program ({program}), which a push replaces with all its tables"
    if foreign:
        yield (
            f"{len(foreign)} entries that no plan of these ports and prefixes asks for stay as they are, "
            f"such as {foreign[0][:120]!r}"
        )
    yield _NOTHING_LASTS


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
