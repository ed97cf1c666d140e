"""The entries that take a switch from what it runs to the plan, in an order in which no packet is worse off.

An entry changes at once, a queue's ECN threshold S and its limit L together. In between, a packet's queue is
the present or the planned one, and takes no less than the one of both that takes less:

1. queues are widened to what both plans ask of them, where packets change queues; new ones are made;
2. each code point of each port goes over to its planned queue by one entry, in the order of service_order.py;
3. queues get the plan's values, and those that no packet takes any more are removed;
4. neighbours, groups and routes are set; what no port and no prefix of the plan needs is removed last, and so
   are unused groups.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, PreflightError
from mltswitch.targets.base import Change, RunningState, Step, Trial
from mltswitch.targets.bmv2 import sheet
from mltswitch.targets.bmv2.capabilities import (
    BACKGROUND_QUEUE,
    ETHERNET_BYTES,
    MAXIMUM_GROUPS,
    QUEUE_COUNT,
    QUEUE_DEPTH_PACKETS,
)
from mltswitch.targets.bmv2.mapping import facts_of, level_facts, level_in, or_more, queue_of
from mltswitch.targets.bmv2.ports import port_name
from mltswitch.targets.bmv2.read import addresses_in, facts_in
from mltswitch.targets.bmv2.sheet import Entries, of
from mltswitch.targets.engine.facts import Fact
from mltswitch.targets.engine.tree import put_back
from mltswitch.targets.p4runtime import (
    LOAD_PROGRAM,
    NO_PROGRAM,
    OUR_PROGRAM,
    PIPELINE,
    PRIORITY_QUEUES,
    UNKNOWN_MTUS,
)
from mltswitch.targets.routes import OwnPrefixes
from mltswitch.targets.service_order import Moment, moment_of
from mltswitch.targets.state import SwitchState

_TABLES: Final = (sheet.QUEUES, sheet.NEIGHBOURS, sheet.GROUPS, sheet.CLASSES, sheet.TRUST, sheet.IPV4)
"""Tables, those first whose entries others refer to; a way back goes through them there and back."""


def diff(running: RunningState, wanted: SwitchState, _capabilities: Capabilities) -> Change:
    """The change that sets the depth of BMv2's queues, the program and the entries that differ from the plan.

    Where the depth cannot be set nothing else is sent, and no program loaded. Every other push sends it last,
    since nothing reads it back: a meter of ours records what was set (DEPTH_MARK). Nothing can be saved.
    Raises DeviceError where foreign entries leave no number for a group.
    """
    program = running.answers[PIPELINE].strip()
    planned, now = facts_of(wanted), facts_in(running.answers)[0]
    writer = _Writer(now)
    is_shallow = bool(wanted.ports) and now.get((sheet.DEPTH_MARK,)) != sheet.DEPTH_METER
    depth = sheet.added((sheet.DEPTH,), QUEUE_DEPTH_PACKETS)
    if is_shallow:
        writer.send(depth)
    if program != OUR_PROGRAM:
        writer.shown.append(f"# replaces the program that runs: {program}")
        writer.send(LOAD_PROGRAM)
    if is_shallow:
        writer.send(sheet.added((sheet.DEPTH_MARK,), sheet.DEPTH_METER))
    then = _after_push(now, wanted)
    moves = _moves(now, then, addresses_in(planned))
    _widen(writer, planned, packets_move=bool(moves))
    writer.lead(then, moves)
    writer.put(then, sheet.TRUST)
    writer.remove(then, sheet.CLASSES)
    writer.remove(then, sheet.TRUST)
    writer.put(then, sheet.METERS, sheet.QUEUES)
    writer.remove(then, sheet.QUEUES)
    writer.put(then, sheet.NEIGHBOURS)
    # A group before the route that needs it, and what is to go last, so that no prefix is without a route.
    writer.put(then, sheet.GROUPS, sheet.IPV4)
    for table in (sheet.IPV4, sheet.NEIGHBOURS, sheet.GROUPS):
        writer.remove(then, table)
    save = (Step(depth),) if wanted.ports and not is_shallow else ()
    return writer.change(save, _trial(planned) if wanted.ports else None)


def _trial(planned: Entries) -> Trial:
    """Whether BMv2 has the plan's queues: what is for one that it lacks, it drops and counts nowhere.

    simple_switch.cpp, SimpleSwitch::enqueue; our program has counted the packet as let in by then.
    """
    frames = {port: value[-1] for port, _, value in of(planned, sheet.QUEUES)}
    needed = 1 + max(queue for _, queue, _ in of(planned, sheet.QUEUES))

    def judge(answer: str) -> tuple[str, ...]:
        queues, *mtus = answer.splitlines() or [""]
        if not queues.isdecimal():
            return (
                f"nobody can tell whether the switch has the plan's {needed} priority queues, and it drops "
                f"unseen what is for one that it lacks: {answer}",
            )
        if int(queues) < needed:
            raise PreflightError(
                f"has {queues} priority queue{'' if queues == '1' else 's'} a port, and drops unseen what is "
                f"for another one: the plan uses {needed}",
                hint=f"start it again with `-- --priority-queues {QUEUE_COUNT}` behind its own options",
            )
        if mtus and mtus[0].startswith(UNKNOWN_MTUS):
            return (f"nobody can tell the MTUs of its ports: {mtus[0].removeprefix(UNKNOWN_MTUS)}",)
        known = {int(port): int(mtu) for port, mtu in map(str.split, mtus)}
        return tuple(
            f"{port_name(port)} has an MTU of {known[port]}, below the plan's {mtu}: the kernel drops longer "
            "packets, which the switch counts as forwarded"
            for port, frame_bytes in frames.items()
            if (mtu := frame_bytes - ETHERNET_BYTES) > known.get(port, mtu)
        )

    return Trial(PRIORITY_QUEUES, judge)


def restore(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, _capabilities: Capabilities
) -> Change:
    """The change that restores the entries which a push of the wanted state changed.

    A moved code point may find a queue that is shorter than at both ends until the last entry is back. The
    program, the depth of BMv2's queues and the rates of meters that had none stay: P4Runtime removes none of
    them, and without entries they do nothing. Raises DeviceError where another program ran, or runs now.
    """
    ran, runs = before[PIPELINE].strip(), running.answers[PIPELINE].strip()
    if ran not in {OUR_PROGRAM, NO_PROGRAM} or runs != OUR_PROGRAM:
        if runs == ran:
            return Change(())
        raise DeviceError(
            f"program {ran} ran before, and {runs} runs now",
            expected=f"{OUR_PROGRAM}, whose entries can go back",
            hint="load the program that shall run, and push again",
        )
    former, now = facts_in(before)[0], facts_in(running.answers)[0]
    then = put_back(now, former, _after_push(former, wanted))
    writer = _Writer(now)
    for fact, rates in then.items():
        if fact[0] == sheet.METERS and now.get(fact) != rates:
            writer.send(sheet.added(fact, rates))
    for table in _TABLES:
        writer.put(then, table)
    for table in reversed(_TABLES):
        writer.remove(then, table)
    return writer.change()


class _Writer:
    """Lines to send, and the entries as they are after them."""

    def __init__(self, now: Entries) -> None:
        self.facts = dict(now)
        self.lines: list[str] = []
        self.shown: list[str] = []

    def send(self, line: str) -> None:
        """Show the line, and send it."""
        self.lines.append(line)
        self.shown.append(line)

    def lead(self, then: Entries, facts: Iterable[Fact]) -> None:
        """Make the tables hold these facts as `then` says them; what it does not say goes."""
        for fact in facts:
            present = self.facts.get(fact)
            if fact in then and then[fact] != present:
                line = sheet.added(fact, then[fact])
                if present is not None:
                    self.shown.append(f"# instead of: {sheet.added(fact, present)}")
                    line = line.replace("table_add", "table_modify_match", 1)
                self.send(line)
                self.facts[fact] = then[fact]
            elif fact not in then and (removal := sheet.SHEET.undo(fact, present)):
                self.shown.append(f"# removes: {sheet.added(fact, present)}")
                self.send(removal.text)
                del self.facts[fact]

    def put(self, then: Entries, *tables: str) -> None:
        """Add and change what these tables hold in `then`, in its order."""
        self.lead(then, [fact for fact in then if fact[0] in tables])

    def remove(self, then: Entries, table: str) -> None:
        """Remove what the table does not hold in `then`."""
        self.lead(then, [fact for fact in self.facts if fact[0] == table and fact not in then])

    def change(self, save: tuple[Step, ...] = (), trial: Trial | None = None) -> Change:
        """The change that these lines are, in the order in which they were sent."""
        text = "".join(f"{line}\n" for line in self.shown)
        return Change(tuple(map(Step, self.lines)), save, text, trial=trial)


def _after_push(now: Entries, wanted: SwitchState) -> Entries:
    """The entries that a push of the wanted state leads to, in the order of the plan; what is foreign stays.

    A prefix keeps its group where no other has it; raises DeviceError where no number is left for a new one.
    """
    planned, own = facts_of(wanted), OwnPrefixes(wanted.routes)
    addresses, users = addresses_in(planned), _users(now)
    used = {*users, *(group for group, _ in of(now, sheet.GROUPS))}
    free = (number for number in range(1, MAXIMUM_GROUPS + 1) if number not in used)
    then: Entries = {}
    for fact, value in planned.items():
        if fact[0] == sheet.IPV4 and value[0] in sheet.SHARING:
            present = now.get(fact, sheet.DISCARD)
            has_own = present[0] in sheet.SHARING and users[present[1]] == 1
            group = present[1] if has_own else next(free, None)
            if group is None:
                raise DeviceError(
                    "has no number left for a group of ports",
                    hint="remove what other controllers left in its tables",
                )
            then[sheet.GROUPS, group] = planned[sheet.GROUPS, value[1]]
            then[fact] = value[0], group
        elif fact[0] != sheet.GROUPS:
            then[fact] = value
    for fact, value in now.items():
        goes = fact[0] in sheet.OF_PORTS and fact[1] in addresses
        if not goes and not (fact[0] == sheet.IPV4 and fact[1] in own):
            then.setdefault(fact, value)
    kept = _users(then)
    return {fact: value for fact, value in then.items() if fact[0] != sheet.GROUPS or fact[1] in kept}


def _users(facts: Entries) -> Counter[int]:
    """Group → how many routes lead to it."""
    routes = of(facts, sheet.IPV4, sheet.IPV6)
    return Counter(leads_to[1] for _, leads_to in routes if leads_to[0] in sheet.SHARING)


def _moves(now: Entries, then: Entries, addresses: Mapping[int, str]) -> list[Fact]:
    """The code points of ports that change queues, in an order that serves nobody late (service_order.py)."""
    order = {port: place for place, port in enumerate(addresses)}
    moved = {
        fact
        for fact in (*now, *then)
        if fact[0] == sheet.CLASSES and addresses.get(fact[1]) == fact[2] and now.get(fact) != then.get(fact)
    }

    def moment(fact: Fact) -> tuple[Moment, int, str]:
        old, new = (queue_of(facts.get(fact, BACKGROUND_QUEUE)) for facts in (now, then))
        return moment_of(old, new), order[fact[1]], str(fact[3])

    return sorted(moved, key=moment)


def _widen(writer: _Writer, planned: Entries, *, packets_move: bool) -> None:
    """New queues as they are planned; present ones, where packets change queues, so that they take enough."""
    for fact in planned:
        if fact[0] == sheet.QUEUES and (packets_move or fact not in writer.facts):
            level, present = level_in(planned, *fact[1:]), None
            if fact in writer.facts:
                present = level_in(writer.facts, *fact[1:])
                level = or_more(present, level)
            if level != present:
                facts = level_facts(level, *fact[1:])
                writer.lead(facts, facts)
