"""The functions of a target whose OS has a command line, from its sheet and its mapping of facts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.common import Key, check_lines
from mltswitch.targets.engine.facts import Fact, Facts, PortFacts
from mltswitch.targets.engine.line import Use
from mltswitch.targets.engine.order import Order, ordered_lines
from mltswitch.targets.engine.parse import Parsed, facts_of_lines, parse
from mltswitch.targets.engine.sheet import Sheet
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import Difference, SwitchState, differences

Answers = Mapping[str, str]


def _as_planned(_now: Facts, then: Facts) -> Facts:
    return then


def _facts_after(sheet: Sheet, now: Facts, then: Facts) -> Facts:
    return {
        port: {**{fact: own[fact] for fact in own if not sheet.undo(fact, own[fact])}, **then.get(port, {})}
        for port, own in now.items()
    }


@dataclass(frozen=True, kw_only=True)
class LineTarget:
    """A switch OS whose configuration is lines."""

    file: str
    """The name of the one file that is rendered."""
    sheet: Callable[[Capabilities], Sheet]
    """Capabilities → the sheet of lines that hardware of this kind takes."""
    facts_of: Callable[[SwitchState, Capabilities], Facts]
    """(state, capabilities) → the facts that the state asks for, in the order of a file."""
    planned_state: Callable[[Facts, Capabilities], SwitchState]
    """The inverse of `facts_of`, for facts in any order; raises LineError where some are missing."""
    running_facts: Callable[[Answers, SwitchState, Capabilities], Facts]
    """Every fact of the wanted ports and all routes within the plan's prefixes, from a device's answers."""
    running_state: Callable[[Facts, SwitchState, Capabilities], SwitchState]
    """The state that running facts give the wanted ports; what no plan asks for is in `unexpected`."""
    goal: Callable[[Facts, Facts], Facts] = _as_planned
    """(running facts, facts of the plan) → the facts to which a push leads.

    They are the plan's, without those in force although no line says so, and with those that a push leaves
    although a line could undo them.
    """
    after: Callable[[Sheet, Facts, Facts], Facts] = _facts_after
    """(sheet, running, wanted facts) → what runs after a change: the wanted, and what no line undoes."""
    order: Callable[[Sheet, Facts, Facts], Order] = Order
    """The order of the lines that lead from running facts to others."""
    levelled: frozenset[str] = frozenset()
    """Names of facts that a change may set for a while beside those of the plan, and then sets back."""
    first: tuple[str, ...] = ()
    """Lines with which each change begins."""
    save: tuple[Step, ...] = ()
    """Steps that make a change survive a reboot."""

    def write(self, state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
        """The rendered text by the name of its file."""
        return {self.file: self._text(state, capabilities)}

    @cached_property
    def _text(self) -> Callable[[SwitchState, Capabilities], str]:
        return remembering_last(
            lambda state, capabilities: self.sheet(capabilities).text(self.facts_of(state, capabilities))
        )

    def read_files(self, files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
        """Read the file of `write` back, with lines in any order; raises LineError or FileError."""
        sheet = self.sheet(capabilities)
        lines = parse(sheet, files[self.file])
        state = self.planned_state(facts_of_lines(lines), capabilities)
        rendered = self._text(state, capabilities)
        if rendered != files[self.file]:
            check_lines(_keys(lines), _keys(parse(sheet, rendered)))
        return state

    def diff(self, running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
        """The change to the wanted state: lines of the rendered file that change something, and removals."""
        lines, stays = self.lines_to(running.answers, wanted, capabilities)
        return replace(self._change(lines, capabilities), stays=stays)

    def restore(
        self, before: Answers, running: RunningState, wanted: SwitchState, capabilities: Capabilities
    ) -> Change:
        """The change that undoes a push of `wanted`: the same lines with the values of `before`.

        Raises DeviceError for a value that no line sets, also where it is still in force.
        """
        lines = self.lines_back(before, running.answers, wanted, capabilities)
        return self._change(lines, capabilities)

    def lines_to(
        self, answers: Answers, wanted: SwitchState, capabilities: Capabilities
    ) -> tuple[list[Key], tuple[Difference, ...]]:
        """The lines that lead to a plan, in order, with their modes; and what will still differ from it."""
        sheet, now = self.sheet(capabilities), self.running_facts(answers, wanted, capabilities)
        then = self.goal(now, self.facts_of(wanted, capabilities))
        after = self.running_state(self.after(sheet, now, then), wanted, capabilities)
        return ordered_lines(self.order(sheet, now, then)), differences(wanted, after)

    def lines_back(
        self, before: Answers, answers: Answers, wanted: SwitchState, capabilities: Capabilities
    ) -> list[Key]:
        """The lines, as in `lines_to`, that lead back to what a device answered before a push of `wanted`."""
        sheet, planned = self.sheet(capabilities), self.facts_of(wanted, capabilities)
        former = self.running_facts(before, wanted, capabilities)
        then = {
            port: _former(sheet, port, own, planned.get(port, {}), self.levelled)
            for port, own in former.items()
        }
        now = self.running_facts(answers, wanted, capabilities)
        return ordered_lines(self.order(sheet, now, then))

    def _change(self, lines: list[Key], capabilities: Capabilities) -> Change:
        if not lines:
            return Change((), self.save)
        sheet = self.sheet(capabilities)
        entered = [*(((), text) for text in self.first), *sheet.with_modes(lines)]
        text = "".join(f"{sheet.indentation * len(modes)}{line}\n" for modes, line in entered)
        return Change(tuple(Step(line) for _, line in entered), self.save, text)


def _former(
    sheet: Sheet, port: str, former: PortFacts, planned: PortFacts, levelled: frozenset[str]
) -> PortFacts:
    """The facts of one port before a push, as far as that push sets them or takes them back."""
    for fact in planned:
        if fact in former:
            _check_settable(sheet, port, fact, former[fact])
    return {
        fact: value
        for fact, value in former.items()
        if fact in planned or fact[0] in levelled or sheet.undo(fact, value)
    }


def _check_settable(sheet: Sheet, port: str, fact: Fact, value: object) -> None:
    what, *place = fact
    line = sheet.line_for(what, value)
    if line.use is Use.SHOWN:
        named = zip(line.place_names, place, strict=True)
        words = " ".join(str(word) for each in (*named, (what, value)) for word in each)
        raise DeviceError(
            f"it has {words}, for which no command is known: no way back to it",
            where=f"port {port}" if port else "",
            hint="change it by hand before the push, if it need not come back",
        )


def _keys(lines: Iterable[Parsed]) -> Iterator[tuple[int, Key]]:
    return ((line.number, (line.modes, line.text)) for line in lines if line.written is not None)
