"""What a target does for a plan, from the sheet of its OS and its mapping of facts."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.common import Key, check_lines
from mltswitch.targets.engine.facts import Facts, PortFacts
from mltswitch.targets.engine.line import Parsed, Phase, Sheet, Use, Written
from mltswitch.targets.engine.order import Moment, ServiceOrder
from mltswitch.targets.state import SwitchState, differences

Answers = Mapping[str, str]
_FORGET: Final = Moment(Phase.FORGET)


@dataclass(frozen=True, kw_only=True)
class LineTarget:
    """A switch OS whose configuration is lines that take effect one by one."""

    sheet: Sheet
    file: str
    """The name of the one file that is rendered."""
    facts_of: Callable[[SwitchState], Facts]
    """The facts that a plan's state asks for, in the order of a file."""
    planned_state: Callable[[Facts], SwitchState]
    """The inverse of `facts_of`, for facts in any order."""
    running_facts: Callable[[Answers, SwitchState], Facts]
    """Every fact of the wanted ports and all routes within the plan's prefixes, from a device's answers."""
    running_state: Callable[[Facts, SwitchState], SwitchState]
    """What running facts mean for the wanted ports and queues; what no plan asks for is in `unexpected`."""
    trusting: Collection[str]
    """The values of TRUST with which a port believes the DSCP of packets."""
    save: tuple[Step, ...]
    """What makes a change survive a reboot."""

    def write(self, state: SwitchState, _capabilities: Capabilities) -> dict[str, str]:
        """The rendered file by its name."""
        return {self.file: self.sheet.text(self.facts_of(state))}

    def read_files(self, files: Mapping[str, str], _capabilities: Capabilities) -> SwitchState:
        """Inverse of `write`, in any order of lines; raises FileError."""
        lines = self.sheet.parse(files[self.file])
        state = self.planned_state(_facts_of_lines(lines))
        rendered = self.sheet.text(self.facts_of(state))
        if rendered != files[self.file]:
            check_lines(_keys(lines), _keys(self.sheet.parse(rendered)))
        return state

    def diff(self, running: RunningState, wanted: SwitchState, _capabilities: Capabilities) -> Change:
        """The lines of the rendered file that change something, and removals of what is not planned."""
        now, then = self.running_facts(running.answers, wanted), self.facts_of(wanted)
        after = {port: self._after(own, then.get(port, {})) for port, own in now.items()}
        return replace(self._change(now, then), stays=differences(wanted, self.running_state(after, wanted)))

    def _after(self, now: PortFacts, then: PortFacts) -> PortFacts:
        """What a port runs after a change: what no line of it takes back stays."""
        return {**{fact: now[fact] for fact in now if not self.sheet.undo(fact, now[fact])}, **then}

    def restore(
        self, before: Answers, running: RunningState, wanted: SwitchState, _capabilities: Capabilities
    ) -> Change:
        """The same lines with the values of `before`: what gives back all that a push of `wanted` sets.

        Raises DeviceError for a value that no line sets, also where it is still in force.
        """
        planned, former = self.facts_of(wanted), self.running_facts(before, wanted)
        then = {port: self._former(port, own, planned.get(port, {})) for port, own in former.items()}
        return self._change(self.running_facts(running.answers, wanted), then)

    def _former(self, port: str, former: PortFacts, planned: PortFacts) -> PortFacts:
        """The facts of one port before a push, as far as that push sets them or takes them back."""
        then = {fact: former[fact] for fact in planned if fact in former}
        for (what, *place), value in then.items():
            line = self.sheet.line_for(what, value)
            if line.use is Use.SHOWN:
                named = zip(line.place_names, place, strict=True)
                words = " ".join(str(word) for each in (*named, (what, value)) for word in each)
                raise DeviceError(
                    f"it has {words}, for which no command is known: no way back to it",
                    where=f"port {port}",
                    hint="change it by hand before the push, if it need not come back",
                )
        return then | {fact: value for fact, value in former.items() if self.sheet.undo(fact, value)}

    def _change(self, now: Facts, then: Facts) -> Change:
        # Sorting is stable: lines of one moment keep the order of the file.
        lines = [text for _, text in sorted(self._lines(now, then), key=lambda entry: entry[0])]
        if not lines:
            return Change((), self.save)
        lines.insert(0, self.sheet.preamble)
        return Change(tuple(map(Step, lines)), self.save, "\n".join(lines) + "\n")

    def _lines(self, now: Facts, then: Facts) -> Iterator[tuple[Moment, str]]:
        """Lines that change something, each with the moment at which it is entered.

        A line that takes a fact back may take others with it, such as a route with another distance. Those
        that are wanted are set again by the next line, for no source says whether a device keeps both.
        """
        sheet, order = self.sheet, ServiceOrder.between(now, then, self.trusting)
        undos = {
            (port, undo): None
            for port, facts in now.items()
            for fact, value in facts.items()
            if fact not in then.get(port, {}) and (undo := sheet.undo(fact, value))
        }
        pending = dict(undos)
        for port, written in sheet.written(then):
            own, taken_back = now[port], (port, sheet.undo(*written.facts[0]))
            is_set = all(fact in own and own[fact] == value for fact, value in written.facts)
            if is_set and taken_back not in undos:
                continue
            for moment, text in order.place(port, written, own, sheet):
                if taken_back in pending:
                    del pending[taken_back]
                    yield moment, sheet.entered(*taken_back)
                yield moment, sheet.entered(port, text)
        yield from ((_FORGET, sheet.entered(*undo)) for undo in pending)


def _facts_of_lines(lines: Iterable[Parsed]) -> Facts:
    """The facts that lines set; ports with the same lines share them."""
    by_port: dict[str, list[Written]] = {}
    for line in lines:
        by_port.setdefault(line.port, []).append(line.written)
    known: dict[tuple[str, ...], PortFacts] = {}
    facts: dict[str, PortFacts] = {}
    for port, own in by_port.items():
        key = tuple(line.text for line in own)
        if key not in known:
            known[key] = {fact: value for line in own for fact, value in line.facts}
        facts[port] = known[key]
    return facts


def _keys(lines: Iterable[Parsed]) -> Iterator[tuple[int, Key]]:
    return ((line.number, ((), line.text)) for line in lines)
