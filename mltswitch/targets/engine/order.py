"""The order in which the lines of a change are entered.

A line has a phase, which covers all ports before the next begins, because packets that one port classifies
leave through the others. An OS whose lines take effect one by one and need more than that has an order of its
own, which may also enter lines that neither end has.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from mltswitch.targets.common import Key
from mltswitch.targets.engine.facts import Fact, Facts, PortFacts
from mltswitch.targets.engine.line import Moment, Written
from mltswitch.targets.engine.sheet import Sheet

Placed = tuple[Moment, Written]


@dataclass(frozen=True)
class Order:
    """An order of a change's lines by their phase alone; within a phase they keep the order of the file."""

    sheet: Sheet
    now: Facts
    then: Facts

    def place(self, port: str, written: Written) -> Iterator[Placed]:
        """When a line that sets something new on a port is entered; it may become several lines."""
        fact, new = written.facts[0]
        phase = written.line.phase
        yield (phase(self.present(port).get(fact), new) if callable(phase) else phase,), written

    def place_undo(self, port: str, fact: Fact, undo: Written) -> Iterator[Placed]:
        """When a line that undoes a fact is entered; nothing if it is not needed or the fact must stay."""
        del port, fact
        yield (undo.line.undo_phase,), undo

    def between(self) -> Iterator[tuple[Moment, Key]]:
        """Interim lines, with their modes, that neither the old nor the new configuration has."""
        yield from ()

    def present(self, port: str) -> PortFacts:
        """The facts of a port that need not be set again; without those that `between` undoes."""
        return self.now.get(port, {})


def ordered_lines(order: Order) -> list[Key]:
    """The lines that lead from the running to the wanted configuration, in order, with their modes."""
    # Sorting is stable: lines of one moment keep the order of the file.
    return [key for _, key in sorted(_lines(order), key=lambda entry: entry[0])]


def _lines(order: Order) -> Iterator[tuple[Moment, Key]]:
    """Lines that change something, each with the moment at which it is entered.

    A line that takes a fact back may take others with it, such as a route with another distance. Those that
    are wanted are set again by the next line, for no source says whether a device keeps both.
    """
    sheet, undos = order.sheet, _undos(order)
    pending = dict(undos)
    yield from order.between()
    for port, written in sheet.written(order.then):
        own, taken_back = order.present(port), None
        if undo := sheet.undo(*written.facts[0]):
            taken_back = sheet.entered(port, undo)
        is_set = all(fact in own and own[fact] == value for fact, value in written.facts)
        if is_set and taken_back not in undos:
            continue
        for moment, line in order.place(port, written):
            if taken_back in pending:
                del pending[taken_back]
                yield moment, taken_back
            yield moment, sheet.entered(port, line)
    yield from ((moment, undo) for undo, moment in pending.items())


def _undos(order: Order) -> dict[Key, Moment]:
    """The lines that take back what shall not be there any more; objects go with all that stands in them."""
    sheet = order.sheet
    found: dict[Key, Moment] = {}
    gone: set[tuple[str, ...]] = set()
    for port, facts in order.now.items():
        kept = order.then.get(port, {})
        for fact, value in facts.items():
            if fact not in kept and (undo := sheet.undo(fact, value)):
                for moment, line in order.place_undo(port, fact, undo):
                    found.setdefault(sheet.entered(port, line), moment)
                if sheet.opens_mode(undo.line):
                    mode, _ = sheet.entered(port, sheet.write(undo.line, ((fact, value),)))
                    gone.add(mode)
    return {
        (modes, text): moment
        for (modes, text), moment in found.items()
        if not any(modes[:depth] in gone for depth in range(1, len(modes) + 1))
    }
