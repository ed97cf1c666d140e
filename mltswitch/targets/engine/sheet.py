"""The sheet of an OS: its configuration lines, their layout in a file, and the text of facts in it."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, Final

from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.common import Key
from mltswitch.targets.engine.facts import Fact, Facts, PortFacts
from mltswitch.targets.engine.line import Line, Use, Word, Written, filled, holes_of, spans_of

REMEMBERED: Final = 4096
"""How many values and lines are cached: ports and devices of a fabric share most of them."""


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph of a rendered file, written once for each port, or for the switch."""

    whats: frozenset[str]
    """Names of the facts whose lines stand in the paragraph."""
    heading: str | None = None
    """The comment above the paragraph, which may name `{port}`; it begins with a line feed for an empty line
    before it. None: no comment."""
    between: str = ""
    """A comment between two inner modes of the same mode; empty: none."""
    is_always_there: bool = False
    """Whether the heading is written even if the paragraph has no lines."""
    places: frozenset[Any] = frozenset()
    """First parts of the places of facts in the paragraph; empty: any place."""

    def has(self, fact: Fact) -> bool:
        """Whether the line of this fact stands in the paragraph."""
        return fact[0] in self.whats and (not self.places or fact[1] in self.places)


@dataclass(frozen=True, eq=False)
class Sheet:
    """All configuration lines of an OS, and their order and layout in a file."""

    words: Mapping[str, Word]
    """Name of a hole (placeholder) → the words that may stand in it."""
    lines: tuple[Line, ...]
    """The lines; of several for one fact, the first whose words can express the value is written."""
    blocks: tuple[Block, ...]
    comment: re.Pattern[str]
    """Pattern of comments and other lines that set nothing."""
    of_port: str = ""
    """Text before a line that names its `{port}`, where a port has no mode of its own."""
    port_mode: str = ""
    """The line that opens the mode of a `{port}`; empty where there is none."""
    leave: str = ""
    """The line that leaves a mode; empty: the next line of an outer mode does."""
    indentation: str = ""
    """Indentation of a file's line for each mode around it."""
    end_of_mode: str = ""
    """A comment behind each outermost mode of a file; empty: none."""
    preamble: str = ""
    """The first line of a file; empty: none."""

    @cached_property
    def _lines_of(self) -> dict[str, list[Line]]:
        found: dict[str, list[Line]] = {}
        for line in self.lines:
            found.setdefault(line.what, []).append(line)
        return found

    @cached_property
    def _undone(self) -> frozenset[str]:
        return frozenset(line.what for line in self.lines if line.undo)

    @cached_property
    def lines_in(self) -> Mapping[tuple[bool, tuple[str, ...]], list[Line]]:
        """(whether of the whole switch, lines that open the modes) → the lines that stand there."""
        found: dict[tuple[bool, tuple[str, ...]], list[Line]] = {}
        for line in self.lines:
            found.setdefault((line.of_switch, line.modes), []).append(line)
        return found

    @cached_property
    def planned_modes_in(self) -> Mapping[tuple[bool, tuple[str, ...]], dict[str, None]]:
        """(whether of the whole switch, lines that open the modes) → plans' lines that open a mode there."""
        found: dict[tuple[bool, tuple[str, ...]], dict[str, None]] = {}
        for (of_switch, modes), lines in self.lines_in.items():
            if any(line.use is Use.PLANNED for line in lines):
                for depth, mode in enumerate(modes):
                    found.setdefault((of_switch, modes[:depth]), {})[mode] = None
        return found

    @cached_property
    def _openers(self) -> frozenset[Line]:
        modes = {
            (of_switch, modes[:depth])
            for of_switch, modes in self.lines_in
            for depth in range(1, len(modes) + 1)
        }
        return frozenset(line for line in self.lines if (line.of_switch, (*line.modes, line.text)) in modes)

    def opens_mode(self, line: Line) -> bool:
        """Whether other lines stand in a mode that this line opens."""
        return line in self._openers

    @cached_property
    def pattern(self) -> Callable[[str], re.Pattern[str]]:
        """Text of a line with holes → the pattern that matches such lines, with a group for each hole."""
        return lru_cache(None)(self._pattern)

    def _pattern(self, text: str) -> re.Pattern[str]:
        parts, at = "", 0
        for hole, (begin, end) in zip(holes_of(text), spans_of(text), strict=True):
            word = self.words[hole.same_as or hole.name].pattern
            parts += f"{re.escape(text[at:begin])}({word})"
            at = end
        return re.compile(parts + re.escape(text[at:]))

    def line_for(self, what: str, value: Any) -> Line:
        """The line that sets or describes this value of a fact; raises UnsupportedPlanError if none can."""
        return self._line_for(what, value)

    @cached_property
    def _line_for(self) -> Callable[[str, Any], Line]:
        return lru_cache(REMEMBERED)(self._find_line)

    def _find_line(self, what: str, value: Any) -> Line:
        for line in self._lines_of[what]:
            if self._says(line, value):
                return line
        raise UnsupportedPlanError(f"no line has words for {what} {value!r}")

    def _says(self, line: Line, value: Any) -> bool:
        if not line.value_names:
            return bool(line.value == value)
        words = [self.words[name] for name in line.value_names]
        if len(words) > 1 and not (isinstance(value, tuple) and len(value) == len(words)):
            return False
        return all(
            isinstance(item, word.holds) and re.fullmatch(word.pattern, word.write(item))
            for word, item in zip(words, line.values(value), strict=True)
        )

    def report(self, fact: Fact, value: Any) -> str:
        """The text that reports a fact no plan asks for, without its port; empty if plans can ask for it."""
        line = self.line_for(fact[0], value)
        return "" if line.use is Use.PLANNED else filled(line.text, self._texts(line, fact, value))

    def undo(self, fact: Fact, value: Any) -> Written | None:
        """The line that undoes the fact; None: no line can, so the fact stays."""
        if fact[0] not in self._undone:
            return None
        line = self.line_for(fact[0], value)
        return self._fill(line.undo, line, fact, value) if line.undo else None

    def write(self, line: Line, facts: tuple[tuple[Fact, Any], ...]) -> Written:
        """One written line for facts that differ only in the parts of the place that the line lists."""
        return self._write(line, facts)

    @cached_property
    def _write(self) -> Callable[[Line, tuple[tuple[Fact, Any], ...]], Written]:
        return lru_cache(REMEMBERED)(self._new_line)

    def _new_line(self, line: Line, facts: tuple[tuple[Fact, Any], ...]) -> Written:
        what, *place = facts[0][0]
        if line.list_index is not None:
            place[line.list_index] = tuple(fact[line.list_index + 1] for fact, _ in facts)
        return self._fill(line.text, line, (what, *place), facts[0][1], facts)

    def _fill(
        self, text: str, line: Line, fact: Fact, value: Any, facts: tuple[tuple[Fact, Any], ...] = ()
    ) -> Written:
        texts = self._texts(line, fact, value)
        modes = tuple(filled(mode, texts) for mode in line.modes)
        return Written(filled(text, texts), line, facts, modes)

    def _texts(self, line: Line, fact: Fact, value: Any) -> dict[str, str]:
        items = dict(zip(line.place_names, fact[1:], strict=True))
        items |= zip(line.value_names, line.values(value) if line.value_names else (), strict=True)
        return {name: self.words[name].write(item) for name, item in items.items()}

    def entered(self, port: str, written: Written) -> Key:
        """A written line as it is entered, with its modes; of one that opens a mode, only the modes."""
        modes, text = _place_of(written, opens=bool(written.facts) and self.opens_mode(written.line))
        if port and self.port_mode:
            return (self.port_mode.format(port=port), *modes), text
        return modes, self.of_port.format(port=port) + text if port else text

    def written(self, facts: Facts) -> Iterator[tuple[str, Written]]:
        """The port and the written line, for all lines that set the facts, in the order of a file."""
        for _, port, lines in self._paragraphs(facts):
            for line in lines:
                yield port, line

    def text(self, facts: Facts) -> str:
        """The rendered file of these facts: the preamble, and a paragraph for each block."""
        parts = [self.preamble] if self.preamble else []
        known: dict[tuple[int, Block], list[str]] = {}
        for block, port, lines in self._paragraphs(facts):
            if block.heading is not None:
                parts.append(block.heading.format(port=port))
            key = id(lines), block
            if key not in known:
                known[key] = list(self._laid_out(block, port, lines))
            shown = known[key]
            if port and self.port_mode:
                parts.append(self.port_mode.format(port=port))
                parts += shown[1:]
            else:
                begin = self.of_port.format(port=port) if port else ""
                parts += (begin + text for text in shown)
        return "\n".join(parts) + "\n"

    def _laid_out(self, block: Block, port: str, lines: Iterable[Written]) -> Iterator[str]:
        """The lines of one paragraph with all that opens and leaves modes, without `of_port`."""
        around = (port,) if port and self.port_mode else ()
        placed = (
            ((*around, *modes), text)
            for line in lines
            for modes, text in (_place_of(line, opens=self.opens_mode(line.line)),)
        )
        previous: tuple[str, ...] = ()
        for modes, text in self.with_modes(placed):
            if self.end_of_mode and previous and not modes:
                yield self.end_of_mode
            elif block.between and len(previous) > len(modes) > 0:
                yield self.indentation * len(modes) + block.between
            yield self.indentation * len(modes) + text
            previous = modes
        if self.end_of_mode and previous:
            yield self.end_of_mode

    def with_modes(self, placed: Iterable[Key]) -> Iterator[Key]:
        """Lines, with those that open and leave modes put between; an empty line only asks for its modes."""
        current: tuple[str, ...] = ()
        for modes, text in placed:
            if modes == current and text:
                yield modes, text
                continue
            shared = 0
            while shared < min(len(current), len(modes)) and current[shared] == modes[shared]:
                shared += 1
            if self.leave:
                for depth in reversed(range(shared, len(current))):
                    yield current[:depth], self.leave
            elif modes and shared == len(modes) < len(current):
                shared -= 1  # Nothing leaves the inner mode, so the outer one is opened again.
            for depth in range(shared, len(modes)):
                yield modes[:depth], modes[depth]
            if text:
                yield modes, text
            current = modes
        for depth in reversed(range(len(current) if self.leave else 0)):
            yield current[:depth], self.leave

    def _paragraphs(self, facts: Facts) -> Iterator[tuple[Block, str, list[Written]]]:
        """(block, port, lines); ports that share their facts share the lists of their lines."""
        known: dict[int, list[list[Written]]] = {}
        for own in facts.values():
            if id(own) not in known:
                known[id(own)] = [list(self._written(entries)) for entries in self._entries(own)]
        for number, block in enumerate(self.blocks):
            for port, own in facts.items():
                if (lines := known[id(own)][number]) or (block.is_always_there and not port):
                    yield block, port, lines

    def _entries(self, facts: PortFacts) -> list[list[tuple[Fact, Any]]]:
        """The facts of each block."""
        found: list[list[tuple[Fact, Any]]] = [[] for _ in self.blocks]
        for entry in facts.items():
            for number in self._blocks_of.get(entry[0][0], ()):
                if self.blocks[number].has(entry[0]):
                    found[number].append(entry)
        return found

    @cached_property
    def _blocks_of(self) -> Mapping[str, list[int]]:
        """Kind of fact → numbers of the blocks in which its lines may stand."""
        found: dict[str, list[int]] = {}
        for number, block in enumerate(self.blocks):
            for what in block.whats:
                found.setdefault(what, []).append(number)
        return found

    def _written(self, entries: Iterable[tuple[Fact, Any]]) -> Iterator[Written]:
        for what, run in groupby(entries, lambda entry: entry[0][0]):
            together: dict[Any, tuple[Line, list[tuple[Fact, Any]]]] = {}
            for fact, value in run:
                line = self._line_for(what, value)
                at = line.list_index
                key = fact if at is None else (line, value, *fact[: at + 1], *fact[at + 2 :])
                together.setdefault(key, (line, []))[1].append((fact, value))
            for line, alike in together.values():
                yield self._write(line, tuple(alike))


def _place_of(written: Written, *, opens: bool) -> Key:
    """The modes and the text of a line without its port; one that opens a mode is that mode and no text."""
    return ((*written.modes, written.text), "") if opens else (written.modes, written.text)
