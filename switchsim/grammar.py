"""A command-line grammar: patterns of keywords and arguments, matched word by word.

Keywords may be shortened while they stay unambiguous, as on Onyx (`conf t`). Error texts: `% Unrecognized
command` and `% Invalid input` open as the switch's do; what follows the latter, `% Incomplete command` and
`% Ambiguous command` are the emulator's own, and end in `[emulator]`.
"""

import enum
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any, Final, Generic, TypeVar

_Action = TypeVar("_Action")
_Value = TypeVar("_Value")


class RefusalError(Exception):
    """A line that the switch refuses; carries the text that it prints."""


def invalid(reason: str) -> RefusalError:
    """The refusal of a line because of a value, with `[emulator]` behind its text: the wording is our own."""
    return RefusalError(f"% Invalid input: {reason} [emulator]")


@dataclass(frozen=True, slots=True)
class Argument:
    """A place in a command for a word with a value.

    `parse` raises ValueError with the reason; with `repeated`, one or more words may stand there.
    """

    name: str
    parse: Callable[[str], object]
    repeated: bool = False
    spell: Callable[[Any], str] = str
    """Turns a parsed value back into the word that the switch prints."""
    together: Callable[[Sequence[Any]], str] | None = None
    """Turns several values into one printed word; None where a word is not parsed as a tuple of several."""

    @property
    def is_plural(self) -> bool:
        """Whether one line may have several values of this argument."""
        return self.repeated or self.together is not None


def whole(name: str, minimum: int, maximum: int, *, repeated: bool = False) -> Argument:
    """An argument that takes a decimal number between two inclusive bounds."""

    def parse(word: str) -> int:
        if not (word.isascii() and word.isdigit() and len(word) <= 12 and minimum <= int(word) <= maximum):
            raise ValueError(f"{name} is a number from {minimum} to {maximum}")
        return int(word)

    return Argument(name, parse, repeated)


def choice(name: str, *words: str) -> Argument:
    """An argument that takes one of these words, not shortened."""

    def parse(word: str) -> str:
        if word not in words:
            raise ValueError(f"{name} is one of {', '.join(words)}")
        return word

    return Argument(name, parse)


def arguments(text: str) -> dict[str, Argument]:
    """Arguments by name, read from a text: numbers with inclusive bounds, and choices.

    For example `mtu 68-9216; trust L2|L3; dscps dscp 0-63+`. The first word is the name in braces in a
    command, and the argument's name unless another one follows; `+` takes several words.
    """
    found = {}
    for hole, *names, values in (entry.split() for entry in text.split(";")):
        name, (low, dash, high) = (*names, hole)[0], values.rstrip("+").partition("-")
        is_number = dash and low.isdigit()
        number = whole(name, int(low), int(high), repeated=values.endswith("+")) if is_number else None
        found[hole] = number or choice(name, *values.split("|"))
    return found


CODE_POINTS: Final[Mapping[str, int]] = {
    **{f"cs{n}": 8 * n for n in range(8)},
    **{f"af{n}{m}": 8 * n + 2 * m for n in range(1, 5) for m in range(1, 4)},
    "ef": 46,
}
"""Name → DSCP, of the code points that have a standard name (RFC 2474, 2597 and 3246)."""


def form(
    name: str,
    expression: str,
    reason: str,
    convert: Callable[..., object] = str,
    spell: Callable[[Any], str] = str,
) -> Argument:
    """An argument whose word must match a regular expression.

    `convert` makes its value from the groups of the match, or, without groups, from the whole word.
    """
    known = re.compile(expression)

    def parse(word: str) -> object:
        found = known.fullmatch(word)
        if found is None:
            raise ValueError(reason)
        return convert(*(found.groups() or (word,)))

    return Argument(name, parse, spell=spell)


def with_length(word: str) -> str:
    """Return a word that is `address/length`, which ipaddress does not demand; raises ValueError."""
    _, slash, length = word.partition("/")
    if not (slash and length.isascii() and length.isdigit() and len(length) <= 2):
        raise ValueError("write address/length")
    return word


PREFIX: Final = Argument("prefix", lambda word: IPv4Network(with_length(word)))
"""The argument `prefix`: an IPv4 prefix, whose host bits must be 0."""


@dataclass(frozen=True, slots=True)
class Values:
    """The parsed values of one line, by argument name."""

    raw: Mapping[str, Sequence[object]]

    def all(self, name: str, kind: type[_Value]) -> tuple[_Value, ...]:
        """All values of an argument in a line, in order."""
        return tuple(value for value in self.raw.get(name, ()) if isinstance(value, kind))

    def one(self, name: str, kind: type[_Value]) -> _Value:
        """The value of an argument that stands in a line exactly once."""
        (value,) = self.all(name, kind)
        return value

    def maybe(self, name: str, kind: type[_Value]) -> _Value | None:
        """The value of an optional argument; None where the line does not have it."""
        return next(iter(self.all(name, kind)), None)


Element = str | Argument


@dataclass(frozen=True, slots=True)
class Command(Generic[_Action]):
    """One pattern of a command, and the action of a line that matches it."""

    pattern: tuple[Element, ...]
    action: _Action


class _Rank(enum.IntEnum):
    EXACT = 0
    ARGUMENT = 1
    SHORTENED = 2


@dataclass(frozen=True, slots=True)
class _Thread(Generic[_Action]):
    """One command that still fits: `position` is the next element, or the repeated one being collected."""

    command: Command[_Action]
    position: int = 0
    values: tuple[tuple[str, object], ...] = ()

    @property
    def is_complete(self) -> bool:
        return any(position == len(self.command.pattern) for position in self._positions())

    def _positions(self) -> tuple[int, ...]:
        """Where the next word may belong: a repeated argument that has a value may also be left."""
        pattern = self.command.pattern
        if self.position < len(pattern):
            element = pattern[self.position]
            if isinstance(element, Argument) and element.repeated and self._has(element.name):
                return self.position, self.position + 1
        return (self.position,)

    def _has(self, name: str) -> bool:
        return any(key == name for key, _ in self.values)

    def advance(self, word: str, reasons: list[str]) -> Iterator[tuple[_Rank, str, "_Thread[_Action]"]]:
        """Ways to take one word: how well it fits, the keyword meant, what follows."""
        for position in self._positions():
            if position == len(self.command.pattern):
                continue
            element = self.command.pattern[position]
            if isinstance(element, str):
                if element == word:
                    yield _Rank.EXACT, element, _Thread(self.command, position + 1, self.values)
                elif element.startswith(word):
                    yield _Rank.SHORTENED, element, _Thread(self.command, position + 1, self.values)
                continue
            try:
                value = element.parse(word)
            except ValueError as error:
                reasons.append(str(error))
                continue
            values = (*self.values, (element.name, value))
            yield _Rank.ARGUMENT, "", _Thread(self.command, position + (not element.repeated), values)


def match(commands: Sequence[Command[_Action]], words: Sequence[str]) -> tuple[_Action, Values]:
    """Find the one command that a line matches: its action and the line's values; raises RefusalError."""
    line = " ".join(words)
    threads = [_Thread(command) for command in commands]
    for word in words:
        reasons: list[str] = []
        taken = [step for thread in threads for step in thread.advance(word, reasons)]
        if not taken:
            if reasons:
                raise invalid(f"{word!r}: {reasons[0]}")
            raise RefusalError(f'% Unrecognized command "{line}".\nType "?" for help.')
        best = min(rank for rank, _, _ in taken)
        meant = {keyword for rank, keyword, _ in taken if rank is best}
        if len(meant) > 1:
            raise RefusalError(f'% Ambiguous command "{line}": {", ".join(sorted(meant))} [emulator]')
        threads = [thread for rank, _, thread in taken if rank is best]
    for thread in threads:
        if thread.is_complete:
            values: dict[str, list[object]] = {}
            for name, value in thread.values:
                values.setdefault(name, []).append(value)
            return thread.command.action, Values(values)
    raise RefusalError(f'% Incomplete command "{line}" [emulator]')
