"""The form of an OS's configuration lines, each of which sets facts.

A line is one string with holes (placeholders), from which it is both written and read:

    Line(THRESHOLD, "traffic-class {@traffic-class} congestion-control ecn minimum {low} maximum {high=low}")

`{@name}` is a part of the fact's place, `{name}` its value, `{@name*}` a list of places, which all get the
value, and `{name=other}` has to say the same as `{other}`. A line without a value sets its `value`. Where
command lines have modes, a line says what opens those in which it stands, with holes of the same kind.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any, Final, NamedTuple

from mltswitch.targets.engine.facts import Fact

_HOLE: Final = re.compile(r"\{(@?)([a-z-]+)(\*?)(?:=([a-z-]+))?\}")
Moment = tuple[int, ...]
"""When a line is entered: its phase, then whatever else an OS sorts by; lower tuples come first."""


@dataclass(frozen=True, slots=True)
class Word:
    """The words that may stand in a hole (placeholder) of a line."""

    pattern: str
    read: Callable[[str], Any] = str
    """Turns a word into its value; raises ValueError with the reason where it cannot."""
    write: Callable[[Any], str] = str
    holds: type = str
    """The type of the values that `read` returns."""


class Use(Enum):
    """The part that a line plays: in rendered files, in rollbacks, or only in reports."""

    PLANNED = "stands in rendered files, and sets what plans ask for"
    FOREIGN = "sets what no plan asks for: reported where it runs, and entered to put it back"
    SHOWN = "is no command: words for what a device shows, and nobody here can set"


class Hole(NamedTuple):
    """A hole (placeholder) of a line: its name and marks, each empty where the braces have none."""

    place_mark: str
    name: str
    list_mark: str
    same_as: str


@cache
def holes_of(text: str) -> tuple[Hole, ...]:
    """The holes of a text from left to right."""
    return tuple(Hole(*match.groups("")) for match in _HOLE.finditer(text))


def spans_of(text: str) -> tuple[tuple[int, int], ...]:
    """Start and end index of each hole in a text, from left to right."""
    return tuple(match.span() for match in _HOLE.finditer(text))


@cache
def _template(text: str) -> str:
    """The text with a field of `str.format_map` for each hole."""
    return _HOLE.sub(lambda hole: f"{{{hole[4] or hole[2]}}}", text)


def filled(text: str, words: dict[str, str]) -> str:
    """The text with its holes filled: name of a hole → word."""
    return _template(text).format_map(words)


@dataclass(frozen=True, eq=False)
class Line:
    """One configuration line of an OS: its text, the fact that it sets, and when it is entered."""

    what: str
    text: str
    """The line without the words that name its port, and without the modes around it."""
    value: Any = None
    """The value that the line sets where its text has no hole for one."""
    use: Use = Use.PLANNED
    phase: int | Callable[[Any, Any], int] = 0
    """The phase in which the line is entered: all ports finish one phase before the next begins.

    Where it depends on the values, it is a function of the old and the new one.
    """
    undo: str = ""
    """The line that undoes the fact in the same modes, with holes for place and value; empty: none does."""
    undo_phase: int = 0
    """The phase in which the undoing line is entered."""
    of_switch: bool = False
    """Whether the line concerns the whole switch instead of a port."""
    modes: tuple[str, ...] = ()
    """Lines that open the modes around this one, outermost first, without the mode of its port.

    A line whose text is itself such an opening line says that an object exists: undoing it removes all that
    is in the object.
    """

    def __post_init__(self) -> None:
        names = (*self.place_names, *self.value_names)
        if len(set(names)) < len(names):
            raise ValueError(f"two holes of {self.text!r} have one name")

    @cached_property
    def holes(self) -> tuple[Hole, ...]:
        """The holes of the text from left to right."""
        return holes_of(self.text)

    @cached_property
    def place_names(self) -> tuple[str, ...]:
        """Names of the parts of a fact's place, those in the modes first."""
        texts = (*self.modes, self.text)
        return tuple(hole.name for text in texts for hole in holes_of(text) if hole.place_mark)

    @cached_property
    def value_names(self) -> tuple[str, ...]:
        """Names of the parts of the value: none, one, or the items of a tuple."""
        return tuple(hole.name for hole in self.holes if not hole.place_mark and not hole.same_as)

    @cached_property
    def list_index(self) -> int | None:
        """Index of the part of the place that is a list; None: no part is."""
        lists = [hole.name for hole in self.holes if hole.list_mark]
        return self.place_names.index(lists[0]) if lists else None

    def values(self, value: Any) -> tuple[Any, ...]:
        """The fact's value split into one item for each of `value_names`."""
        return (value,) if len(self.value_names) == 1 else tuple(value)

    def facts(self, items: dict[str, Any]) -> Iterator[tuple[Fact, Any]]:
        """The facts that the line sets with these items in its holes and in those of its modes."""
        values = tuple(items[name] for name in self.value_names)
        value = self.value if not values else values[0] if len(values) == 1 else values
        place = tuple(items[name] for name in self.place_names)
        if self.list_index is None:
            yield (self.what, *place), value
            return
        for item in place[self.list_index]:
            yield (self.what, *place[: self.list_index], item, *place[self.list_index + 1 :]), value


class Written(NamedTuple):
    """A written line, without the words that name its port, and the facts that it sets."""

    text: str
    line: Line
    facts: tuple[tuple[Fact, Any], ...]
    modes: tuple[str, ...] = ()
    """Lines that open the modes around it, without the mode of its port."""
