"""The lines of a rendered file, read back by the same sheet by which they were written."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from mltswitch.targets.base import FileError, LineError
from mltswitch.targets.common import UNKNOWN, each_line
from mltswitch.targets.engine.facts import SWITCH, Facts, PortFacts
from mltswitch.targets.engine.line import Line, Use, Written, holes_of
from mltswitch.targets.engine.sheet import Sheet


class Parsed(NamedTuple):
    """A line of a rendered file, and what it says."""

    number: int
    text: str
    """The line as it stands in the file, with the words that name its port, without its indentation."""
    modes: tuple[str, ...]
    """What opened the modes in which it stands, that of its port among them."""
    port: str
    written: Written | None
    """None: it opens the mode of a port, and sets nothing."""


def parse(sheet: Sheet, text: str) -> list[Parsed]:
    """The lines of a rendered file that set something or open a port; raises FileError for all others."""
    return _Parser(sheet).parse(text)


def facts_of_lines(lines: Iterable[Parsed]) -> Facts:
    """The facts that lines set; ports with the same lines share them."""
    by_port: dict[str, list[Written]] = {}
    for line in lines:
        own = by_port.setdefault(line.port, [])
        if line.written is not None:
            own.append(line.written)
    known: dict[tuple[int, ...], PortFacts] = {}
    facts: dict[str, PortFacts] = {}
    for port, own in by_port.items():
        key = tuple(map(id, own))
        if key not in known:
            known[key] = {fact: value for line in own for fact, value in line.facts}
        facts[port] = known[key]
    return facts


class _Mode(NamedTuple):
    """Where a line stands: the texts and the patterns that opened its modes, but for that of its port."""

    of_switch: bool
    opened: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


class _Parser:
    """One pass over a file. Lines of one text in one mode mean the same on every port and are read once."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._known: dict[tuple[_Mode, str], Written] = {}
        self._inner: dict[tuple[_Mode, str], _Mode | None] = {}
        self._port = SWITCH
        self._mode = _Mode(of_switch=True)
        self._is_empty = False
        named = sheet.port_mode or sheet.of_port
        begin, end = map(re.escape, named.split("{port}"))
        self._of_port = re.compile(f"{begin}({sheet.words['port'].pattern}){end}(.*)")

    def parse(self, text: str) -> list[Parsed]:
        lines = [Parsed(number, *line) for number, line in each_line(text, self._line)]
        if self._sheet.leave and (modes := self._modes):
            last = text.split("\n")
            raise FileError([LineError(len(last), last[-1], f"{modes[-1]!r} is not left")])
        return lines

    @property
    def _modes(self) -> tuple[str, ...]:
        around = (self._sheet.port_mode.format(port=self._port),) if self._port else ()
        return (*around, *self._mode.opened)

    def _line(self, line: str) -> tuple[str, tuple[str, ...], str, Written | None] | None:
        sheet = self._sheet
        if line == sheet.preamble or sheet.comment.fullmatch(line):
            return None
        if not sheet.port_mode:
            match = self._of_port.fullmatch(line)
            port, text = match.groups() if match else (SWITCH, line)
            return line, (), port, self._written(_Mode(of_switch=not port), text)
        text = line.lstrip(" ") if sheet.indentation else line
        self._leave_modes(line, text)
        if sheet.leave and text == sheet.leave and self._modes:
            self._pop()
            if self._is_empty:
                raise ValueError("a mode without a line")
            return None
        return self._opened(text) or (text, self._modes, self._port, self._set(text))

    def _leave_modes(self, line: str, text: str) -> None:
        """Takes the mode from the indentation of a line; raises ValueError for one that no mode has."""
        sheet, depth = self._sheet, len(self._modes)
        if not sheet.leave and sheet.indentation:
            depth = (len(line) - len(text)) // len(sheet.indentation)
            while len(self._modes) > depth:
                self._pop()
        if depth != len(self._modes) or line != sheet.indentation * (depth - (text == sheet.leave)) + text:
            raise ValueError("not indented as its place asks")

    def _pop(self) -> None:
        if self._mode.opened:
            of_switch, opened, patterns = self._mode
            self._mode = _Mode(of_switch, opened[:-1], patterns[:-1])
        else:
            self._port, self._mode = SWITCH, _Mode(of_switch=True)

    def _opened(self, text: str) -> tuple[str, tuple[str, ...], str, Written | None] | None:
        """What a line says that opens a mode; None: it opens none."""
        if not self._modes and (match := self._of_port.fullmatch(text)):
            self._port, self._mode, self._is_empty = match[1], _Mode(of_switch=False), True
            return text, (), self._port, None
        key = self._mode, text
        if key not in self._inner:
            self._inner[key] = self._find_inner(*key)
        inner = self._inner[key]
        if inner is None:
            return None
        outer, modes = self._mode, self._modes
        self._mode, self._is_empty = inner, True
        if any(line.text == inner.patterns[-1] for line in self._lines_in(outer)):
            return text, modes, self._port, self._written(outer, text)
        return text, modes, self._port, None

    def _find_inner(self, mode: _Mode, text: str) -> _Mode | None:
        depth = len(mode.patterns)
        for line in self._sheet.lines:
            if (
                line.use is Use.PLANNED
                and line.of_switch == mode.of_switch
                and len(line.modes) > depth
                and line.modes[:depth] == mode.patterns
                and self._sheet.pattern(line.modes[depth]).fullmatch(text)
            ):
                return _Mode(mode.of_switch, (*mode.opened, text), line.modes[: depth + 1])
        return None

    def _lines_in(self, mode: _Mode) -> Iterator[Line]:
        for line in self._sheet.lines:
            if (line.use, line.of_switch, line.modes) == (Use.PLANNED, mode.of_switch, mode.patterns):
                yield line

    def _set(self, text: str) -> Written:
        self._is_empty = False
        return self._written(self._mode, text)

    def _written(self, mode: _Mode, text: str) -> Written:
        key = mode, text
        if key not in self._known:
            self._known[key] = self._read(mode, text)
        return self._known[key]

    def _read(self, mode: _Mode, text: str) -> Written:
        """What a planned line says; raises ValueError with the reason why it is none."""
        items: dict[str, Any] = {}
        for pattern, opened in zip(mode.patterns, mode.opened, strict=True):
            self._fill(items, pattern, opened)
        for line in self._lines_in(mode):
            if self._sheet.pattern(line.text).fullmatch(text):
                self._fill(items, line.text, text)
                return Written(text, line, tuple(line.facts(items)), mode.opened)
        raise ValueError(UNKNOWN)

    def _fill(self, items: dict[str, Any], pattern: str, text: str) -> None:
        match = self._sheet.pattern(pattern).fullmatch(text)
        if match is None:
            raise ValueError(UNKNOWN)
        for hole, words in zip(holes_of(pattern), match.groups(), strict=True):
            item = self._sheet.words[hole.same_as or hole.name].read(words)
            if hole.same_as and items[hole.same_as] != item:
                raise ValueError(f"{hole.same_as} and {hole.name} differ")
            items[hole.name] = item
