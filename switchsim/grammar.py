"""A command-line grammar: patterns of keywords and arguments, matched word by word.

Keywords may be shortened while they stay unambiguous, as on Onyx (`conf t`). Error texts: `% Unrecognized
command` and `% Invalid input` open as the switch's do; what follows the latter, `% Incomplete command` and
`% Ambiguous command` are ours, and end in `[emulator]`.
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
    """A refusal because of a value, marked as ours."""
    return RefusalError(f"% Invalid input: {reason} [emulator]")


@dataclass(frozen=True, slots=True)
class Argument:
    """A word with a value; `parse` raises ValueError with the reason. `repeated` takes one or more words."""

    name: str
    parse: Callable[[str], object]
    repeated: bool = False
    spell: Callable[[Any], str] = str
    """How a value is printed."""
    together: Callable[[Sequence[Any]], str] | None = None
    """How several values are printed as one word, where one word is parsed as a tuple of several."""

    @property
    def is_plural(self) -> bool:
        """Whether one line may have several values of this argument."""
        return self.repeated or self.together is not None


def whole(name: str, minimum: int, maximum: int, *, repeated: bool = False) -> Argument:
    """A decimal number with inclusive bounds."""

    def parse(word: str) -> int:
        if not (word.isascii() and word.isdigit() and len(word) <= 12 and minimum <= int(word) <= maximum):
            raise ValueError(f"{name} is a number from {minimum} to {maximum}")
        return int(word)

    return Argument(name, parse, repeated)


def choice(name: str, *words: str) -> Argument:
    """One of a few words, in full."""

    def parse(word: str) -> str:
        if word not in words:
            raise ValueError(f"{name} is one of {', '.join(words)}")
        return word

    return Argument(name, parse)


def arguments(text: str) -> dict[str, Argument]:
    """Numbers with inclusive bounds, and choices: `mtu 68-9216; trust L2|L3; dscps dscp 0-63+`.

    A word in braces is its argument's name, too, unless another one follows; `+` takes several words.
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
"""Names of DSCPs (RFC 2474, 2597 and 3246)."""


def form(
    name: str,
    expression: str,
    reason: str,
    convert: Callable[..., object] = str,
    spell: Callable[[Any], str] = str,
) -> Argument:
    """A word that a pattern fits, made of the pattern's groups; without groups, of the word."""
    known = re.compile(expression)

    def parse(word: str) -> object:
        found = known.fullmatch(word)
        if found is None:
            raise ValueError(reason)
        return convert(*(found.groups() or (word,)))

    return Argument(name, parse, spell=spell)


def with_length(word: str) -> str:
    """Only `address/length`: the standard library would also take a mask, or no length at all."""
    _, slash, length = word.partition("/")
    if not (slash and length.isascii() and length.isdigit() and len(length) <= 2):
        raise ValueError("write address/length")
    return word


PREFIX: Final = Argument("prefix", lambda word: IPv4Network(with_length(word)))
"""An IPv4 prefix, whose host bits are 0."""


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one line, by argument name."""

    raw: Mapping[str, Sequence[object]]

    def all(self, name: str, kind: type[_Value]) -> tuple[_Value, ...]:
        """Every value of a repeated argument, in order."""
        return tuple(value for value in self.raw.get(name, ()) if isinstance(value, kind))

    def one(self, name: str, kind: type[_Value]) -> _Value:
        """The value of an argument that stands once."""
        (value,) = self.all(name, kind)
        return value

    def maybe(self, name: str, kind: type[_Value]) -> _Value | None:
        """The value of an argument that may be missing."""
        return next(iter(self.all(name, kind)), None)


Element = str | Argument


@dataclass(frozen=True, slots=True)
class Command(Generic[_Action]):
    """One pattern and what it does."""

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
    """What the one command that fits does, and its values; raises RefusalError."""
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
