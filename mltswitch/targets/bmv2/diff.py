"""What takes a switch from what it runs to the plan, one entry at a time, so that no packet is worse off.

An entry changes at once, S and L of a queue together. In between, a packet's queue is the present or the
planned one, and takes no less than the one of both that takes less:

1. queues are widened to what both plans ask of them, where packets change queues; new ones are made;
2. a new DSCP map is written beside the present one, and each port goes over to it by one entry;
3. queues get what the plan says, and those that no packet takes any more go;
4. neighbours, members of groups, routes; what no port and no prefix of the plan needs goes last;
5. maps and members that nothing refers to any more go.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.addresses import ipv4_network, network_text
from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.bmv2.capabilities import MAXIMUM_GROUPS, QUEUE_DEPTH_PACKETS
from mltswitch.targets.bmv2.contents import Contents, DscpMap, Hop, Level, contents_of, level_in
from mltswitch.targets.bmv2.entries import Entry, Tables, meter_line, place_of, queue_entry
from mltswitch.targets.bmv2.read import tables_in
from mltswitch.targets.p4runtime import LOAD_PROGRAM, OUR_PROGRAM, PIPELINE, SET_QUEUE_DEPTH
from mltswitch.targets.routes import OwnPrefixes
from mltswitch.targets.state import SwitchState

_SPRAYING: Final = Entry("spraying", "spray_packets", ("0",), ())


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """The program where ours does not run, the depth of BMv2's queues where none of ours is, then entries.

    Nothing can be saved. Raises DeviceError where foreign entries leave no number for a map or a group.
    """
    del capabilities
    program = running.answers[PIPELINE].strip()
    tables, contents = tables_in(running.answers), contents_of(wanted)
    lines: list[str] = []
    shown: list[str] = []
    if program != OUR_PROGRAM:
        lines.append(LOAD_PROGRAM)
        shown.append(f"# replaces the program that runs: {program}")
        shown.append(LOAD_PROGRAM)
    if program != OUR_PROGRAM or _lacks_every_queue(tables, contents):
        # Nobody can ask a switch for it; before we set up the first queue we cannot have set it.
        lines.append(f"{SET_QUEUE_DEPTH} {QUEUE_DEPTH_PACKETS}")
        shown.append(lines[-1])
    writer = _Writer(tables)
    _write(writer, contents, OwnPrefixes(wanted.routes))
    return Change(
        steps=tuple(map(Step, lines + writer.lines)),
        text="".join(f"{line}\n" for line in shown + writer.shown),
    )


def _lacks_every_queue(tables: Tables, contents: Contents) -> bool:
    """Whether the plan has ports, and none of them a queue yet; queues of other ports are not ours."""
    present = {entry.numbers()[0] for entry in tables.of("queues")}
    return bool(contents.maps) and present.isdisjoint(contents.maps)


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
        self._send(entry.added if present is None else entry.modified)
        self.tables.entries[place] = entry

    def remove(self, entry: Entry) -> None:
        """Make the table hold no entry with this key."""
        if self.tables.entries.pop((entry.table, entry.key), None) is not None:
            self.shown.append(f"# removes: {entry.added}")
            self._send(entry.deleted)

    def level(self, port: int, queue: int, level: Level) -> None:
        """Make a queue take this; a rate is there before it is asked for."""
        place, meter = place_of(port, queue), level.meter
        if meter is not None and self.tables.meters.get(place) != meter:
            present = self.tables.meters.get(place)
            if present is not None:
                self.shown.append(f"# instead of: {meter_line(place, present)}")
            self._send(meter_line(place, meter))
            self.tables.meters[place] = meter
        self.put(queue_entry(port, queue, level.threshold_bytes, level.limit_bytes, meter is not None))

    def _send(self, line: str) -> None:
        self.lines.append(line)
        self.shown.append(line)


def _write(writer: _Writer, wanted: Contents, own: OwnPrefixes) -> None:
    moves = _changed_maps(writer.tables, wanted)
    _widen(writer, wanted, packets_move=bool(moves))
    _lead(writer, wanted, moves)
    for (port, queue), level in wanted.levels.items():
        writer.level(port, queue, level)
    for entry in list(writer.tables.of("queues")):
        port, queue = entry.numbers()
        if port in wanted.maps and (port, queue) not in wanted.levels:
            writer.remove(entry)
    for port, neighbour in wanted.neighbours.items():
        writer.put(Entry("neighbours", "set_neighbour", (str(port),), (neighbour,)))
    _route(writer, wanted, own)
    for entry in list(writer.tables.of("neighbours")):
        [port] = entry.numbers()
        if port in wanted.maps and port not in wanted.neighbours:
            writer.remove(entry)
    if wanted.packet_spraying:
        writer.put(_SPRAYING)
    else:
        for entry in list(writer.tables.of("spraying")):
            writer.remove(entry)
    _collect(writer)


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


def _changed_maps(tables: Tables, wanted: Contents) -> dict[int, DscpMap | None]:
    """Ports whose packets are led elsewhere than the plan says → the plan's map."""
    return {
        port: dscp_map
        for port, dscp_map in wanted.maps.items()
        if tables.dscp_map(tables.map_of_port(port)) != dict(dscp_map or ())
        or (tables.map_of_port(port) != 0) != (dscp_map is not None)
    }


def _lead(writer: _Writer, wanted: Contents, moves: Mapping[int, DscpMap | None]) -> None:
    """Ports that are to be trusted first, then map 0 is emptied, then the others go over to it."""
    _mend(writer, moves)
    moves = _changed_maps(writer.tables, wanted)
    numbers = _map_numbers(writer, [dscp_map for dscp_map in moves.values() if dscp_map is not None])
    for port, dscp_map in moves.items():
        if dscp_map is not None:
            writer.put(Entry("trusted_ports", "trust", (str(port),), (str(numbers[dscp_map]),)))
    untrusted = any(dscp_map is None for dscp_map in wanted.maps.values())
    if untrusted:
        # From the lowest queue on: who is served first now is served no later than others on the way.
        stray = [entry for entry in writer.tables.of("dscp_queues") if entry.key[0] == "0"]
        for entry in sorted(stray, key=lambda entry: (int(entry.parameters[0]), entry.numbers())):
            writer.remove(entry)
    for port, dscp_map in moves.items():
        trust = writer.tables.at("trusted_ports", port)
        if dscp_map is None and trust is not None:
            writer.remove(trust)


def _mend(writer: _Writer, moves: Mapping[int, DscpMap | None]) -> None:
    """Change a map in place, where one entry of it is all that differs, for all ports that it leads."""
    users: dict[int, list[int]] = {}
    for entry in writer.tables.of("trusted_ports"):
        users.setdefault(int(entry.parameters[0]), []).append(entry.numbers()[0])
    for number, ports in users.items():
        goals = {moves.get(port) for port in ports}
        goal = next(iter(goals))
        if number == 0 or len(goals) != 1 or goal is None:
            continue
        present, planned = writer.tables.dscp_map(number), dict(goal)
        changed = [dscp for dscp in present | planned if present.get(dscp) != planned.get(dscp)]
        if len(changed) != 1:
            continue
        [dscp] = changed
        entry = Entry("dscp_queues", "set_queue", (str(number), str(dscp)), (str(planned.get(dscp, 0)),))
        if dscp in planned:
            writer.put(entry)
        else:
            writer.remove(writer.tables.entries[entry.table, entry.key])


def _map_numbers(writer: _Writer, wanted: list[DscpMap]) -> dict[DscpMap, int]:
    """A map for each, present or written anew under a number that nobody refers to."""
    used = {int(entry.key[0]) for entry in writer.tables.of("dscp_queues")}
    used |= {int(entry.parameters[0]) for entry in writer.tables.of("trusted_ports")}
    known = {tuple(sorted(writer.tables.dscp_map(number).items())): number for number in sorted(used - {0})}
    free = (number for number in count(1) if number not in used)
    numbers: dict[DscpMap, int] = {}
    for dscp_map in wanted:
        if dscp_map in numbers:
            continue
        if dscp_map in known:
            numbers[dscp_map] = known[dscp_map]
            continue
        number = numbers[dscp_map] = _free(free, "DSCP map")
        for dscp, queue in dscp_map:
            writer.put(Entry("dscp_queues", "set_queue", (str(number), str(dscp)), (str(queue),)))
    return numbers


def _free(numbers: Iterator[int], what: str) -> int:
    number = next(numbers)
    if number > MAXIMUM_GROUPS:
        raise DeviceError(
            f"has no number left for a {what}", hint="remove what other controllers left in its tables"
        )
    return number


def _route(writer: _Writer, wanted: Contents, own: OwnPrefixes) -> None:
    """Members before the route that needs them; what is to go goes last, so that no prefix is without one."""
    tables = writer.tables
    sharing = Counter(entry.parameters[0] for entry in _shared(tables))
    used = {int(group) for group in sharing} | {entry.numbers()[0] for entry in tables.of("members_of")}
    free = (number for number in count(1) if number not in used)
    prefixes = {network_text(prefix): hops for prefix, hops in wanted.routes.items()}
    for prefix, hops in prefixes.items():
        entry = tables.at("ipv4_routes", prefix)
        if len(hops) == 1:
            writer.put(_forward("ipv4_routes", (prefix,), hops[0]))
        elif entry is not None and entry.action == "share" and sharing[entry.parameters[0]] == 1:
            _regroup(writer, entry, hops)
        else:
            group = str(_free(free, "group of next hops"))
            for member, hop in enumerate(hops):
                writer.put(_forward("members_of", (group, str(member)), hop))
            writer.put(Entry("ipv4_routes", "share", (prefix,), (group, str(len(hops)))))
    for entry in list(tables.of("ipv4_routes")):
        if entry.key[0] not in prefixes and ipv4_network(entry.key[0]) in own:
            writer.remove(entry)


def _regroup(writer: _Writer, route: Entry, hops: tuple[Hop, ...]) -> None:
    """Members in place: those that stay keep theirs; the count grows after the first of the new ones."""
    group, present_count = route.parameters
    present = writer.tables.members(group, present_count)
    wanted = [(str(hop.port), hop.neighbour) for hop in hops]
    kept: dict[int, Hop] = {}
    for member, hop in enumerate(present[: len(hops)]):
        if hop in wanted and hops[wanted.index(hop)] not in kept.values():
            kept[member] = hops[wanted.index(hop)]
    missing = (hop for hop in hops if hop not in kept.values())
    members = [kept[member] if member in kept else next(missing) for member in range(len(hops))]
    entries = [_forward("members_of", (group, str(member)), hop) for member, hop in enumerate(members)]
    for entry in entries[len(present) :]:
        writer.put(entry)
    resized = route._replace(parameters=(group, str(len(hops))))
    if len(hops) > len(present):
        writer.put(resized)
    for entry in entries[: len(present)]:
        writer.put(entry)
    writer.put(resized)


def _forward(table: str, key: tuple[str, ...], hop: Hop) -> Entry:
    return Entry(table, "forward", key, (str(hop.port), hop.neighbour))


def _shared(tables: Tables) -> list[Entry]:
    routes = [*tables.of("ipv4_routes"), *tables.of("ipv6_routes")]
    return [entry for entry in routes if entry.action == "share"]


def _collect(writer: _Writer) -> None:
    """Remove maps that no port, and members that no route refers to: a push that ended midway leaves some."""
    tables = writer.tables
    maps = {"0", *(entry.parameters[0] for entry in tables.of("trusted_ports"))}
    sizes: dict[str, int] = {}
    for entry in _shared(tables):
        group, size = entry.parameters
        sizes[group] = max(sizes.get(group, 0), int(size))
    unused = [entry for entry in tables.of("dscp_queues") if entry.key[0] not in maps]
    unused += [entry for entry in tables.of("members_of") if int(entry.key[1]) >= sizes.get(entry.key[0], 0)]
    for entry in unused:
        writer.remove(entry)
