"""Reads the lines of a rendered file back, by the same sheet by which they were written."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from mltswitch.targets.base import FileError, LineError
from mltswitch.targets.common import UNKNOWN, each_line
from mltswitch.targets.engine.facts import SWITCH, Facts, PortFacts
from mltswitch.targets.engine.line import Line, Use, Written, holes_of
from mltswitch.targets.engine.sheet import REMEMBERED, Sheet


class Parsed(NamedTuple):
    """A line of a rendered file, and its meaning."""

    number: int
    text: str
    """The line as it stands in the file, with the words that name its port, without its indentation."""
    modes: tuple[str, ...]
    """Lines that opened the modes around it, that of its port among them."""
    port: str
    written: Written | None
    """The written line and its facts; None for a line that only opens the mode of a port."""


def parse(sheet: Sheet, text: str) -> list[Parsed]:
    """The lines of a rendered file that set something or open a port; raises FileError for all others."""
    return _Parser(sheet).parse(text)


def facts_of_lines(lines: Iterable[Parsed]) -> Facts:
    """The facts that lines set; ports with the same lines share one mapping."""
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


class _Step(NamedTuple):
    """What a line does that sets something, or opens a mode."""

    within: _Mode
    """The mode in which it stands; another than that of the line before where that was left."""
    after: _Mode
    """The mode of the next line, another one where it opens that."""
    text: str
    written: Written | None


class _Parser:
    """One pass over a rendered file: the mode in which it stands, and what lines of it have said before."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet
        self._steps: dict[tuple[_Mode, str], _Step] = {}
        """What lines do, as most ports have them again, by the mode of the line before."""
        self._port = SWITCH
        self._around: tuple[str, ...] = ()
        self._mode = _Mode(of_switch=True)
        self._is_empty = False
        named = sheet.port_mode or sheet.of_port
        begin, end = map(re.escape, named.split("{port}"))
        rest = "" if sheet.port_mode else "(.*)"
        self._of_port = re.compile(f"{begin}({sheet.words['port'].pattern}){end}{rest}")

    def parse(self, text: str) -> list[Parsed]:
        lines = [Parsed(number, *line) for number, line in each_line(text, self._line)]
        if self._sheet.leave and (modes := self._modes):
            last = text.split("\n")
            raise FileError([LineError(len(last), last[-1], f"{modes[-1]!r} is not left")])
        return lines

    @property
    def _modes(self) -> tuple[str, ...]:
        return (*self._around, *self._mode.opened)

    def _line(self, line: str) -> tuple[str, tuple[str, ...], str, Written | None] | None:
        sheet, key = self._sheet, (self._mode, line)
        step = self._steps.get(key)
        if step is None:
            if line == sheet.preamble or sheet.comment.fullmatch(line):
                return None
            if not sheet.port_mode:
                match = self._of_port.fullmatch(line)
                port, text = match.groups() if match else (SWITCH, line)
                return line, (), port, _read(self._sheet, _Mode(of_switch=not port), text)
            text = line.lstrip(" ") if sheet.indentation else line
            self._leave_modes(line, text)
            if sheet.leave and text == sheet.leave and self._modes:
                self._pop()
                if self._is_empty:
                    raise ValueError("a mode without a line")
                return None
            if not self._modes and (match := self._of_port.fullmatch(text)):
                self._port, self._around = match[1], (text,)
                self._mode, self._is_empty = _Mode(of_switch=False), True
                return text, (), self._port, None
            step = self._steps[key] = self._step(text)
        within, self._mode, text, written = step
        if within.of_switch:
            self._port, self._around = SWITCH, ()
        self._is_empty = self._mode is not within
        return text, (*self._around, *within.opened), self._port, written

    def _leave_modes(self, line: str, text: str) -> None:
        """Takes the mode from the indentation of a line; raises ValueError for one that no mode has."""
        sheet, depth = self._sheet, 0
        if sheet.leave:
            return  # A line leaves each mode, so indentation says nothing.
        if sheet.indentation:
            depth = (len(line) - len(text)) // len(sheet.indentation)
        while len(self._modes) > depth:
            self._pop()
        if depth != len(self._modes) or line != sheet.indentation * depth + text:
            raise ValueError("not indented as its place asks")

    def _pop(self) -> None:
        if self._mode.opened:
            of_switch, opened, patterns = self._mode
            self._mode = _Mode(of_switch, opened[:-1], patterns[:-1])
        else:
            self._port, self._around, self._mode = SWITCH, (), _Mode(of_switch=True)

    def _step(self, text: str) -> _Step:
        """What a line says in the present mode; raises ValueError with the reason why it says nothing."""
        sheet, mode = self._sheet, self._mode
        for pattern in sheet.planned_modes_in.get((mode.of_switch, mode.patterns), ()):
            if sheet.pattern(pattern).fullmatch(text):
                says_object = any(line.text == pattern for line in _lines_in(sheet, mode))
                inner = _Mode(mode.of_switch, (*mode.opened, text), (*mode.patterns, pattern))
                return _Step(mode, inner, text, _read(sheet, mode, text) if says_object else None)
        return _Step(mode, mode, text, _read(sheet, mode, text))


def _lines_in(sheet: Sheet, mode: _Mode) -> Iterator[Line]:
    for line in sheet.lines_in.get((mode.of_switch, mode.patterns), ()):
        if line.use is Use.PLANNED:
            yield line


@lru_cache(REMEMBERED)
def _read(sheet: Sheet, mode: _Mode, text: str) -> Written:
    """What a planned line says; raises ValueError with the reason why it is none."""
    for line in _lines_in(sheet, mode):
        if sheet.pattern(line.text).fullmatch(text):
            return _read_line(sheet, line, mode.opened, text)
    raise ValueError(UNKNOWN)


@lru_cache(REMEMBERED)
def running_line(sheet: Sheet, modes: tuple[str, ...], text: str, *, of_switch: bool) -> Written | None:
    """What a running configuration's line means, in modes within its port's; None: no known line is like it.

    Raises ValueError where it looks like a known line but has a word that cannot be read.
    """
    problem: ValueError | None = None
    for (is_of_switch, patterns), lines in sheet.lines_in.items():
        if is_of_switch == of_switch and len(patterns) == len(modes):
            for line in lines:
                texts = zip((*patterns, line.text), (*modes, text), strict=True)
                if all(sheet.pattern(one).fullmatch(other) for one, other in texts):
                    try:
                        return _read_line(sheet, line, modes, text)
                    except ValueError as error:
                        problem = error
    if problem is not None:
        raise problem
    return None


def _read_line(sheet: Sheet, line: Line, modes: tuple[str, ...], text: str) -> Written:
    """What a line says that looks like this one; raises ValueError with the reason why it says nothing."""
    items: dict[str, Any] = {}
    for pattern, words in zip((*line.modes, line.text), (*modes, text), strict=True):
        match = sheet.pattern(pattern).fullmatch(words)
        if match is None:
            raise ValueError(UNKNOWN)
        for hole, word in zip(holes_of(pattern), match.groups(), strict=True):
            item = sheet.words[hole.same_as or hole.name].read(word)
            if hole.same_as and items[hole.same_as] != item:
                raise ValueError(f"{hole.same_as} and {hole.name} differ")
            items[hole.name] = item
    return Written(text, line, tuple(line.facts(items)), modes)
