"""How one OS writes its configuration: lines that set facts, and the sheet of all of them.

A line is one string with holes, from which it is both written and read:

    Line(THRESHOLD, "traffic-class {@traffic-class} congestion-control ecn minimum {low} maximum {high=low}")

`{@name}` is a part of the fact's place, `{name}` its value, `{@name*}` a list of places, which all get the
value, and `{name=other}` has to say the same as `{other}`. A line without a value sets its `value`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, Final, NamedTuple

from mltswitch.targets.common import UNKNOWN, each_line
from mltswitch.targets.engine.facts import SWITCH, Fact, Facts, PortFacts

_HOLE: Final = re.compile(r"\{(@?)([a-z-]+)(\*?)(?:=([a-z-]+))?\}")
_REMEMBERED_VALUES: Final = 4096
"""Values whose line is remembered: ports and devices of a fabric share most of them."""


@dataclass(frozen=True, slots=True)
class Word:
    """What may stand in a hole."""

    pattern: str
    read: Callable[[str], Any] = str
    """The value that the text says; raises ValueError with the reason why it says none."""
    write: Callable[[Any], str] = str
    holds: type = str
    """The type of such a value."""


class Phase(IntEnum):
    """When a line is entered; a phase covers all ports before the next begins."""

    LOOSEN = 0
    """Queues drop less than before, and settings change that lead no packet elsewhere."""
    SERVE_STRICT = 1
    """Queues become strict that may be so before code points move."""
    DISTRUST = 2
    """Ports no longer believe the DSCP of packets."""
    BIND = 3
    MAP = 4
    TIGHTEN = 5
    """Queues drop more than before."""
    TRUST = 6
    SERVE_LAST = 7
    """The other queues become strict, or weighted again."""
    ROUTE = 8
    FORGET = 9
    """What is not planned is taken back."""


class Use(Enum):
    """What a line is good for."""

    PLANNED = "stands in rendered files, and sets what plans ask for"
    FOREIGN = "sets what no plan asks for: reported where it runs, and entered to put it back"
    SHOWN = "is no command: words for what a device shows, and nobody here can set"


class _Hole(NamedTuple):
    """A hole by what stands in its braces; the marks are empty where it has none."""

    place_mark: str
    name: str
    list_mark: str
    same_as: str


@dataclass(frozen=True, eq=False)
class Line:
    """One line of a command line."""

    what: str
    text: str
    """The line without the words that name its port."""
    value: Any = None
    """The value that the line sets where its text has no hole for one."""
    use: Use = Use.PLANNED
    phase: Phase | Callable[[Any, Any], Phase] = Phase.LOOSEN
    """When the line is entered; where that depends on the values, a function of the old and the new one."""
    undo: str = ""
    """The line that takes the fact back, with holes for parts of its place; empty: none does."""
    of_switch: bool = False
    """Whether the line names no port."""

    @cached_property
    def holes(self) -> tuple[_Hole, ...]:
        """The holes from left to right."""
        return tuple(_Hole(*match.groups("")) for match in _HOLE.finditer(self.text))

    @cached_property
    def place_names(self) -> tuple[str, ...]:
        """Names of the parts of a fact's place."""
        return tuple(hole.name for hole in self.holes if hole.place_mark)

    @cached_property
    def value_names(self) -> tuple[str, ...]:
        """Names of the parts of the value: none, one, or the items of a tuple."""
        return tuple(hole.name for hole in self.holes if not hole.place_mark and not hole.same_as)

    @cached_property
    def list_index(self) -> int | None:
        """Which part of the place is a list; None: no part."""
        lists = [hole.name for hole in self.holes if hole.list_mark]
        return self.place_names.index(lists[0]) if lists else None

    def values(self, value: Any) -> tuple[Any, ...]:
        """The value as one item for each of `value_names`."""
        return (value,) if len(self.value_names) == 1 else tuple(value)


class Written(NamedTuple):
    """A line without the words that name its port, and the facts that it sets."""

    text: str
    line: Line
    facts: tuple[tuple[Fact, Any], ...]


class Parsed(NamedTuple):
    """A line of a rendered file, and what it says."""

    number: int
    text: str
    """The line as it stands in the file, with the words that name its port."""
    port: str
    written: Written


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph of a file: one for each port, and one for the switch."""

    heading: str
    """A comment, which may name `{port}`."""
    whats: frozenset[str]
    """The facts whose lines stand in it."""


@dataclass(frozen=True)
class Sheet:
    """All lines of an OS, and the order in which a file has them."""

    words: Mapping[str, Word]
    """What may stand in the holes, by name."""
    lines: tuple[Line, ...]
    """Of several lines for a fact the first one whose words can say the value is written."""
    blocks: tuple[Block, ...]
    of_port: str
    """What stands before the text of a line and names its `{port}`."""
    comment: re.Pattern[str]
    """What a line that says nothing looks like."""
    preamble: str
    """The first line of a file and of each change."""

    @cached_property
    def _lines_of(self) -> dict[str, list[Line]]:
        found: dict[str, list[Line]] = {}
        for line in self.lines:
            found.setdefault(line.what, []).append(line)
        return found

    @cached_property
    def _undone(self) -> frozenset[str]:
        return frozenset(line.what for line in self.lines if line.undo)

    def line_for(self, what: str, value: Any) -> Line:
        """The line that sets such a fact to this value, or has the words for it; raises LookupError."""
        return self._line_for(what, value)

    @cached_property
    def _line_for(self) -> Callable[[str, Any], Line]:
        return lru_cache(_REMEMBERED_VALUES)(self._find_line)

    def _find_line(self, what: str, value: Any) -> Line:
        for line in self._lines_of[what]:
            if self._says(line, value):
                return line
        raise LookupError(f"no line has words for {what} {value!r}")

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
        """The words for a fact that no plan asks for, without its port; empty where plans ask for it."""
        line = self.line_for(fact[0], value)
        return "" if line.use is Use.PLANNED else self._fill(line.text, line, fact, value)

    def undo(self, fact: Fact, value: Any) -> str:
        """The line that takes the fact back; empty: there is none, so the fact stays."""
        if fact[0] not in self._undone:
            return ""
        line = self.line_for(fact[0], value)
        return self._fill(line.undo, line, fact, value)

    def write(self, line: Line, facts: tuple[tuple[Fact, Any], ...]) -> Written:
        """One line for facts that differ in the list of places alone."""
        (what, *place), value = facts[0]
        if line.list_index is not None:
            place[line.list_index] = tuple(fact[line.list_index + 1] for fact, _ in facts)
        return Written(self._fill(line.text, line, (what, *place), value), line, facts)

    def _fill(self, text: str, line: Line, fact: Fact, value: Any) -> str:
        items = dict(zip(line.place_names, fact[1:], strict=True))
        items |= zip(line.value_names, line.values(value) if line.value_names else (), strict=True)
        texts = {name: self.words[name].write(item) for name, item in items.items()}
        return _HOLE.sub(lambda hole: texts[hole[4] or hole[2]], text)

    def entered(self, port: str, text: str) -> str:
        """The whole line that is entered for a text without its port."""
        return self.of_port.format(port=port) + text if port else text

    def written(self, facts: Facts) -> Iterator[tuple[str, Written]]:
        """The lines that set the facts, in the order of a file, with their ports."""
        for port, _, lines in self._paragraphs(facts):
            for line in lines:
                yield port, line

    def text(self, facts: Facts) -> str:
        """The rendered file of these facts: the preamble, and a paragraph for each block."""
        parts = [self.preamble]
        for port, heading, lines in self._paragraphs(facts):
            begin = self.entered(port, "")
            parts += ("", heading, *(begin + line.text for line in lines))
        return "\n".join(parts) + "\n"

    def _paragraphs(self, facts: Facts) -> Iterator[tuple[str, str, list[Written]]]:
        """(port, heading, lines); ports that share their facts are written once."""
        known: dict[int, list[list[Written]]] = {}
        for own in facts.values():
            if id(own) not in known:
                known[id(own)] = [list(self._written(own, block)) for block in self.blocks]
        for number, block in enumerate(self.blocks):
            for port, own in facts.items():
                if lines := known[id(own)][number]:
                    yield port, block.heading.format(port=port), lines

    def _written(self, facts: PortFacts, block: Block) -> Iterator[Written]:
        entries = (entry for entry in facts.items() if entry[0][0] in block.whats)
        for _, run in groupby(entries, lambda entry: entry[0][0]):
            together: dict[Any, list[tuple[Fact, Any]]] = {}
            for fact, value in run:
                line = self.line_for(fact[0], value)
                at = line.list_index
                fixed = fact if at is None else (*fact[: at + 1], *fact[at + 2 :])
                together.setdefault((line, fixed, value), []).append((fact, value))
            for (line, _, _), alike in together.items():
                yield self.write(line, tuple(alike))

    def parse(self, text: str) -> list[Parsed]:
        """The lines of a rendered file; raises FileError for all that are none."""
        known: dict[tuple[bool, str], Written] = {}
        begin, end = map(re.escape, self.of_port.split("{port}"))
        of_port = re.compile(f"{begin}({self.words['port'].pattern}){end}(.*)")

        def parse_line(text: str) -> tuple[str, str, Written] | None:
            match = of_port.fullmatch(text)
            if not match and (text == self.preamble or self.comment.fullmatch(text)):
                return None
            port, rest = match.groups() if match else (SWITCH, text)
            key = (port == SWITCH, rest)
            if key not in known:
                known[key] = self._parse(rest, of_switch=port == SWITCH)
            return text, port, known[key]

        return [Parsed(number, *line) for number, line in each_line(text, parse_line)]

    def _parse(self, text: str, *, of_switch: bool) -> Written:
        """What a planned line says; raises ValueError with the reason why it is none."""
        for line, pattern in self._planned:
            if line.of_switch == of_switch and (match := pattern.fullmatch(text)):
                return Written(text, line, tuple(self._facts(line, match)))
        raise ValueError(UNKNOWN)

    @cached_property
    def _planned(self) -> list[tuple[Line, re.Pattern[str]]]:
        return [(line, self._pattern(line)) for line in self.lines if line.use is Use.PLANNED]

    def _pattern(self, line: Line) -> re.Pattern[str]:
        parts, at = "", 0
        for match, hole in zip(_HOLE.finditer(line.text), line.holes, strict=True):
            word = self.words[hole.same_as or hole.name].pattern
            parts += f"{re.escape(line.text[at : match.start()])}({word})"
            at = match.end()
        return re.compile(parts + re.escape(line.text[at:]))

    def _facts(self, line: Line, match: re.Match[str]) -> Iterator[tuple[Fact, Any]]:
        items: dict[str, Any] = {}
        for hole, text in zip(line.holes, match.groups(), strict=True):
            item = self.words[hole.same_as or hole.name].read(text)
            if hole.same_as and items[hole.same_as] != item:
                raise ValueError(f"{hole.same_as} and {hole.name} differ")
            items[hole.name] = item
        values = tuple(items[name] for name in line.value_names)
        value = line.value if not values else values[0] if len(values) == 1 else values
        place = tuple(items[name] for name in line.place_names)
        if line.list_index is None:
            yield (line.what, *place), value
            return
        for item in place[line.list_index]:
            yield (line.what, *place[: line.list_index], item, *place[line.list_index + 1 :]), value
