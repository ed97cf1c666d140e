"""The settings of a mode of an emulated switch: a table whose rows are lines, and what takes them back.

A mode keeps its lines as they are printed, each in a slot: a row of the table, and the values that tell
several lines of one row apart. A line takes the place of the one in its slot, and the order of the table is
the one in which a running configuration prints them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeVar

from switchsim.grammar import Argument, Command, Element, RefusalError, Values

Lines = Mapping[tuple[Any, ...], str]
"""Lines of one mode, by the row of the table and the values that say which line another one replaces."""
NO_LINES: Final[Lines] = MappingProxyType({})
Edit = Callable[[Lines, Values], Lines]
"""What a line does to the mode in which it is entered; raises RefusalError."""


@dataclass(frozen=True, slots=True)
class Block:
    """What stands below one head: its lines, and those of the modes inside it."""

    lines: Lines = field(default_factory=lambda: NO_LINES)
    inner: Mapping[str, Lines] = field(default_factory=lambda: MappingProxyType({}))
    """Head of an inner mode → its lines."""

    def with_inner(self, head: str, lines: Lines) -> "Block":
        """The same with the lines of one inner mode replaced."""
        return Block(self.lines, MappingProxyType({**self.inner, head: lines}))


@dataclass(frozen=True, slots=True)
class Setting:
    """Lines that take each other's place, and what takes them back.

    In a line `{word}` is a value, and what stands in brackets may be missing. `no X` takes a line back that
    begins with X; any other way back takes whichever is there.
    """

    lines: tuple[str, ...]
    undone_by: tuple[str, ...] = ()
    check: Callable[[Lines, Values], None] | None = None
    """Raises RefusalError for a line that does not fit the others."""
    absent: str = ""
    """Refusal where there is nothing to take back; empty: that is none."""


def commands(settings: Sequence[Setting], arguments: Mapping[str, Argument]) -> tuple[Command[Edit], ...]:
    """What may be entered in a mode with these settings."""
    made: list[Command[Edit]] = []
    for row, setting in enumerate(settings):
        undoing = [pattern for text in setting.undone_by for pattern in patterns(text, arguments)]
        values = [each.name for line in undoing for each in line if isinstance(each, Argument)]
        keys = tuple(dict.fromkeys(values))
        lines = [pattern for text in setting.lines for pattern in patterns(text, arguments)]
        made += [Command(pattern, _sets(row, keys, pattern, setting.check)) for pattern in lines]
        made += [Command(pattern, _takes_back(row, keys, pattern, setting.absent)) for pattern in undoing]
    return tuple(made)


def patterns(text: str, arguments: Mapping[str, Argument]) -> Iterator[tuple[Element, ...]]:
    """Every pattern for which a line stands that has values in braces, and optional parts in brackets."""
    before, bracket, rest = text.partition("[")
    if bracket:
        option, _, after = rest.partition("]")
        for chosen in ("", option):
            yield from patterns(before + chosen + after, arguments)
    else:
        yield tuple(arguments[word[1:-1]] if word[0] == "{" else word for word in text.split())


def ordered(lines: Lines) -> list[str]:
    """The lines as they are printed."""
    return [lines[slot] for slot in sorted(lines)]


def without(lines: Lines, *beginnings: str) -> Lines:
    """The lines that begin otherwise."""
    return MappingProxyType({slot: line for slot, line in lines.items() if not line.startswith(beginnings)})


def _sets(
    row: int, keys: tuple[str, ...], pattern: Sequence[Element], check: Callable[[Lines, Values], None] | None
) -> Edit:
    def edit(lines: Lines, values: Values) -> Lines:
        if check is not None:
            check(lines, values)
        slot = (row, *(values.raw[key][0] for key in keys))
        return MappingProxyType({**lines, slot: _spelled(pattern, values)})

    return edit


def _takes_back(row: int, keys: tuple[str, ...], pattern: Sequence[Element], absent: str) -> Edit:
    def edit(lines: Lines, values: Values) -> Lines:
        taken = (row, *(values.raw[key][0] for key in keys))
        beginning = _spelled(pattern[1:], values) if pattern[0] == "no" else ""
        if absent and (taken not in lines or not lines[taken].startswith(beginning)):
            raise RefusalError(absent)
        return MappingProxyType(
            {slot: line for slot, line in lines.items() if slot != taken or not line.startswith(beginning)}
        )

    return edit


def _spelled(pattern: Sequence[Element], values: Values) -> str:
    given = {name: iter(found) for name, found in values.raw.items()}
    return " ".join(each if isinstance(each, str) else str(next(given[each.name])) for each in pattern)


_Value = TypeVar("_Value")


def with_items(sequence: tuple[_Value, ...], indices: Iterable[int], value: _Value) -> tuple[_Value, ...]:
    """The tuple with one value at several places."""
    chosen = set(indices)
    return tuple(value if index in chosen else old for index, old in enumerate(sequence))
