"""What takes a switch from what it runs to the plan, one entry at a time, so that no packet is worse off.

An entry changes at once, S and L of a queue together. In between, a packet's queue is the present or the
planned one, and takes no less than the one of both that takes less:

1. queues are widened to what both plans ask of them, where packets change queues; new ones are made;
2. each code point of each port goes over to its planned queue by one entry, in the order of service_order.py;
3. queues get what the plan says, and those that no packet takes any more go;
4. neighbours, groups, routes; what no port and no prefix of the plan needs goes last, and groups of nobody.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count
from operator import itemgetter
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, HazardError
from mltswitch.targets.addresses import ipv4_network, network_text
from mltswitch.targets.base import Change, RunningState, Step, Trial
from mltswitch.targets.bmv2.capabilities import (
    BACKGROUND_QUEUE,
    ETHERNET_BYTES,
    MAXIMUM_GROUPS,
    QUEUE_COUNT,
    QUEUE_DEPTH_PACKETS,
)
from mltswitch.targets.bmv2.contents import Contents, Level, contents_of, level_in
from mltswitch.targets.bmv2.entries import (
    DEPTH_METER,
    DEPTH_PLACE,
    SHARING,
    Entry,
    Tables,
    meter_line,
    place_of,
    queue_entry,
)
from mltswitch.targets.bmv2.read import tables_in
from mltswitch.targets.p4runtime import (
    LOAD_PROGRAM,
    NO_PROGRAM,
    OUR_PROGRAM,
    PIPELINE,
    PRIORITY_QUEUES,
    SET_QUEUE_DEPTH,
    UNKNOWN_MTUS,
)
from mltswitch.targets.routes import OwnPrefixes
from mltswitch.targets.service_order import Moment, moment_of
from mltswitch.targets.state import SwitchState


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """The depth of BMv2's queues, the program, entries: each where it is not the plan's.

    Where the depth cannot be set nothing else is sent, and no program loaded. Every other push sends it last,
    since nothing reads it: our mark tells what was set once. Nothing can be saved. Raises DeviceError where
    foreign entries leave no number for a group.
    """
    del capabilities
    program = running.answers[PIPELINE].strip()
    tables, contents = tables_in(running.answers), contents_of(wanted)
    writer = _Writer(tables)
    is_shallow = bool(contents.trust) and tables.meters.get(DEPTH_PLACE) != DEPTH_METER
    depth = f"{SET_QUEUE_DEPTH} {QUEUE_DEPTH_PACKETS}"
    if is_shallow:
        writer.send(depth)
    if program != OUR_PROGRAM:
        writer.shown.append(f"# replaces the program that runs: {program}")
        writer.send(LOAD_PROGRAM)
    if is_shallow:
        writer.send(meter_line(DEPTH_PLACE, DEPTH_METER))
    _write(writer, contents, OwnPrefixes(wanted.routes))
    return Change(
        steps=tuple(map(Step, writer.lines)),
        save=(Step(depth),) if contents.trust and not is_shallow else (),
        text="".join(f"{line}\n" for line in writer.shown),
        trial=_trial(contents) if contents.levels else None,
    )


def _trial(contents: Contents) -> Trial:
    """Whether BMv2 has the plan's queues: what is for one that it lacks, it drops and counts nowhere.

    simple_switch.cpp, SimpleSwitch::enqueue; our program has counted the packet as let in by then.
    """
    needed = 1 + max(queue for _, queue in contents.levels)
    frames = {port: level.frame_bytes for (port, _), level in contents.levels.items()}

    def judge(answer: str) -> tuple[str, ...]:
        queues, *mtus = answer.splitlines() or [""]
        if not queues.isdecimal():
            return (
                f"nobody can tell whether the switch has the plan's {needed} priority queues, and it drops "
                f"unseen what is for one that it lacks: {answer}",
            )
        if int(queues) < needed:
            raise HazardError(
                f"has {queues} priority queue{'' if queues == '1' else 's'} a port, and drops unseen what is "
                f"for another one: the plan uses {needed}",
                hint=f"start it again with `-- --priority-queues {QUEUE_COUNT}` behind its own options",
            )
        if mtus and mtus[0].startswith(UNKNOWN_MTUS):
            return (f"nobody can tell the MTUs of its ports: {mtus[0].removeprefix(UNKNOWN_MTUS)}",)
        known = {int(port): int(mtu) for port, mtu in map(str.split, mtus)}
        return tuple(
            f"{name} has an MTU of {known[port]}, below the plan's {planned}: the kernel drops longer "
            "packets, which the switch counts as forwarded"
            for name, port in contents.numbers.items()
            if (planned := frames[port] - ETHERNET_BYTES) > known.get(port, planned)
        )

    return Trial(PRIORITY_QUEUES, judge)


def restoring_change(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """The entries that a push of the wanted state changes in what ran before, as they were.

    A moved code point may find a queue that is shorter than at both ends until the last entry is back. The
    program, the depth of BMv2's queues and the rates of meters that had none stay: P4Runtime removes none of
    them, and without entries they do nothing. Raises DeviceError where another program ran, or runs now.
    """
    del capabilities
    ran, runs = before[PIPELINE].strip(), running.answers[PIPELINE].strip()
    if ran not in {OUR_PROGRAM, NO_PROGRAM} or runs != OUR_PROGRAM:
        if runs == ran:
            return Change(())
        raise DeviceError(
            f"program {ran} ran before, and {runs} runs now",
            expected=f"{OUR_PROGRAM}, whose entries can go back",
            hint="load the program that shall run, and push again",
        )
    was, pushed, writer = tables_in(before), _Writer(tables_in(before)), _Writer(tables_in(running.answers))
    _write(pushed, contents_of(wanted), OwnPrefixes(wanted.routes))
    entries = pushed.tables.entries
    changed = {place for place in {**was.entries, **entries} if was.entries.get(place) != entries.get(place)}
    for place, meter in was.meters.items():
        if pushed.tables.meters.get(place) != meter and writer.tables.meters.get(place) != meter:
            writer.send(meter_line(place, meter))
    for table in _REFERRED_FIRST:
        for entry in was.of(table):
            if (table, entry.key) in changed:
                writer.put(entry)
    for table in reversed(_REFERRED_FIRST):
        for entry in list(writer.tables.of(table)):
            if (table, entry.key) in changed and (table, entry.key) not in was.entries:
                writer.remove(entry)
    return Change(tuple(map(Step, writer.lines)), text="".join(f"{line}\n" for line in writer.shown))


_REFERRED_FIRST: Final = ("queues", "neighbours", "groups", "classes", "ports", "ipv4_routes")
"""Tables, those that others name first."""


class _Writer:
    """Lines to send, and the tables as they are after them."""

    def __init__(self, tables: Tables) -> None:
        self.tables = Tables(dict(tables.entries), dict(tables.meters))
        self.lines: list[str] = []
        self.shown: list[str] = []

    def put(self, entry: Entry) -> None:
        """Make the table hold this entry."""
        place = entry.table, entry.key
        present = self.tables.entries.get(place)
        if present == entry:
            return
        if present is not None:
            self.shown.append(f"# instead of: {present.added}")
        self.send(entry.added if present is None else entry.modified)
        self.tables.entries[place] = entry

    def remove(self, entry: Entry) -> None:
        """Make the table hold no entry with this key."""
        if self.tables.entries.pop((entry.table, entry.key), None) is not None:
            self.shown.append(f"# removes: {entry.added}")
            self.send(entry.deleted)

    def level(self, port: int, queue: int, level: Level) -> None:
        """Make a queue take this; a rate is there before it is asked for."""
        place, meter = place_of(port, queue), level.meter
        if meter is not None and self.tables.meters.get(place) != meter:
            present = self.tables.meters.get(place)
            if present is not None:
                self.shown.append(f"# instead of: {meter_line(place, present)}")
            self.send(meter_line(place, meter))
            self.tables.meters[place] = meter
        threshold, limit, policed = level.threshold_bytes, level.limit_bytes, meter is not None
        self.put(queue_entry(port, queue, threshold, limit, policed, level.frame_bytes))

    def send(self, line: str) -> None:
        """Show the line, and send it."""
        self.lines.append(line)
        self.shown.append(line)


def _write(writer: _Writer, wanted: Contents, own: OwnPrefixes) -> None:
    moves = _moves(writer.tables, wanted)
    _widen(writer, wanted, packets_move=bool(moves))
    for old, new in moves:
        if new is not None:
            writer.put(new)
        elif old is not None:
            writer.remove(old)
    for entry in wanted.trust.values():
        writer.put(entry)
    _remove_others(writer, "classes", wanted, chain.from_iterable(wanted.classes.values()))
    _remove_others(writer, "ports", wanted, wanted.trust.values())
    for (port, queue), level in wanted.levels.items():
        writer.level(port, queue, level)
    for entry in list(writer.tables.of("queues")):
        if entry.numbers_at(0) in wanted.trust and entry.numbers() not in wanted.levels:
            writer.remove(entry)
    neighbours = [
        Entry("neighbours", "set_neighbour", (str(port),), neighbour)
        for port, neighbour in wanted.neighbours.items()
    ]
    for entry in neighbours:
        writer.put(entry)
    _route(writer, wanted, own)
    _remove_others(writer, "neighbours", wanted, neighbours)
    used = {entry.parameters[0] for entry in _shared(writer.tables)}
    for entry in list(writer.tables.of("groups")):
        if entry.key[0] not in used:
            writer.remove(entry)


def _moves(tables: Tables, wanted: Contents) -> list[tuple[Entry | None, Entry | None]]:
    """Entries of `classes` to change, old and new, in an order that serves nobody late (service_order.py)."""
    present = {entry.key: entry for entry in tables.of("classes")}
    moves: list[tuple[Moment, Entry | None, Entry | None]] = []
    for port, entries in wanted.classes.items():
        planned = {entry.key: entry for entry in entries}
        mine = [key for key in present if key[:2] == wanted.trust[port].key]
        for key in sorted({*planned, *mine}):
            old, new = present.get(key), planned.get(key)
            if old != new:
                moves.append((moment_of(_queue_of(old), _queue_of(new)), old, new))
    return [move[1:] for move in sorted(moves, key=itemgetter(0))]


def _queue_of(entry: Entry | None) -> int:
    return BACKGROUND_QUEUE if entry is None else int(entry.parameters[0])


def _remove_others(writer: _Writer, table: str, wanted: Contents, entries: Iterable[Entry]) -> None:
    """Remove what else stands in a table for the ports of the plan."""
    keys = {entry.key for entry in entries}
    for entry in list(writer.tables.of(table)):
        if entry.numbers_at(0) in wanted.trust and entry.key not in keys:
            writer.remove(entry)


def _widen(writer: _Writer, wanted: Contents, *, packets_move: bool) -> None:
    """New queues as they are planned; present ones, where packets change queues, so that they take enough."""
    for (port, queue), level in wanted.levels.items():
        entry = writer.tables.at("queues", port, queue)
        if entry is None:
            writer.level(port, queue, level)
        elif packets_move:
            present = level_in(writer.tables, entry)
            more = present.or_more(level)
            if more != present:
                writer.level(port, queue, more)


def _route(writer: _Writer, wanted: Contents, own: OwnPrefixes) -> None:
    """A group before the route that needs it; what is to go goes last: no prefix is without a route."""
    tables = writer.tables
    users = Counter(entry.parameters[0] for entry in _shared(tables))
    used = {int(group) for group in users} | {entry.numbers_at(0) for entry in tables.of("groups")}
    free = (number for number in count(1) if number not in used)
    share = SHARING[wanted.packet_spraying]
    prefixes = {network_text(prefix): hops for prefix, hops in wanted.routes.items()}
    for prefix, hops in prefixes.items():
        entry = tables.at("ipv4_routes", prefix)
        ports = tuple(map(str, hops))
        if not hops:
            writer.put(Entry("ipv4_routes", "discard", (prefix,), ()))
        elif len(hops) == 1:
            writer.put(Entry("ipv4_routes", "forward", (prefix,), ports))
        else:
            own_group = entry is not None and entry.action in SHARING and users[entry.parameters[0]] == 1
            group = entry.parameters[0] if entry is not None and own_group else str(_free(free))
            writer.put(Entry("groups", "forward", (group,), ports))
            writer.put(Entry("ipv4_routes", share, (prefix,), (group,)))
    for entry in list(tables.of("ipv4_routes")):
        if entry.key[0] not in prefixes and ipv4_network(entry.key[0]) in own:
            writer.remove(entry)


def _free(numbers: Iterator[int]) -> int:
    number = next(numbers)
    if number > MAXIMUM_GROUPS:
        raise DeviceError(
            "has no number left for a group of ports",
            hint="remove what other controllers left in its tables",
        )
    return number


def _shared(tables: Tables) -> list[Entry]:
    routes = [*tables.of("ipv4_routes"), *tables.of("ipv6_routes")]
    return [entry for entry in routes if entry.action in SHARING]
