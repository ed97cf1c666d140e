"""The settings of an emulated switch: a sheet of rows, each of them the lines that set one fact.

A configuration is a flat map of facts, `(where, what, *keys)` → value, which holds only what differs from the
switch as delivered. A row's text is both what the switch takes and what its running configuration prints of a
fact: `{word}` in it is a value, and what stands in brackets may be left out.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby, product
from typing import Any, Final, TypeVar

from switchsim.grammar import Argument, Command, Element, RefusalError, Values, invalid

Fact = tuple[Any, ...]
"""Where (a port, a block; empty: the whole switch), what, and the keys that tell facts of one row apart."""


class Facts(dict[Fact, Any]):
    """A configuration. An edit makes another one: nobody changes these facts where they are.

    A block is there while it has the fact `(place, "")`; its place is its head, below the place of the block
    around it, on a line of its own.
    """

    @property
    def blocks(self) -> dict[str, "Facts"]:
        """Place → the facts there."""
        found: dict[str, Facts] = {}
        for fact, value in self.items():
            found.setdefault(fact[0], Facts())[fact] = value
        return found

    def heads(self, kind: str, around: str = "") -> list[str]:
        """Heads of the blocks that begin with these words, as they were made, in the block around them."""
        places = (fact[0].rpartition("\n") for fact in self if fact[1:] == ("",))
        return [head for outer, _, head in places if outer == around and f"{head} ".startswith(kind)]

    def with_block(self, place: str) -> "Facts":
        """The same with a block, and with those around it."""
        if (place, "") in self:
            return self
        outer = self.with_block(around) if (around := place.rpartition("\n")[0]) else self
        return Facts({**outer, (place, ""): True})

    def without_block(self, place: str) -> "Facts":
        """The same without a block, and without those inside it."""
        return Facts({f: v for f, v in self.items() if f[0] != place and not f[0].startswith(f"{place}\n")})


NO_FACTS: Final = Facts()
Edit = Callable[[Facts, Values, Sequence[str]], Facts]
"""What a line does to the facts of the places that it concerns; raises RefusalError."""
_Action = TypeVar("_Action")

NO: Final = ("no",)
MAX_SPELLED: Final = 4096
"""Printed lines that a sheet remembers."""
HOLE: Final = re.compile(r"\{([^}]*)\}")
_OPTION: Final = re.compile(r" \[([^]]*)\]")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: the lines that set a fact, each in the place of the others, and what takes it back."""

    what: str
    """The name of the fact, then its keys as the lines write them: `switch-priority {dscp}`."""
    lines: str | Mapping[str, Any]
    """One line, or each line with the word that its values begin with, which tells them from the others'.

    A fact's value is what the line has in its braces, a tuple if that is more than one value. A line without
    any braces sets its word, or True. A fact without any line is set by other means, and not printed.
    """
    undone_by: tuple[str, ...] = ()
    """Lines that take the fact back; of keys that such a line does not name, all.

    `no` is short: for `no` and the lines up to their first value, or if they begin with it, for what follows.
    If a line of the row begins with X, `no X` takes back only what such a line has set.
    """
    default: Any = None
    """The value as delivered, or a function that finds it from the keys."""
    check: Callable[[Facts, str, Values], Values | None] | None = None
    """Raises RefusalError for a line that does not fit the facts; the word is the place.

    It may return what the switch makes of the line's values.
    """
    absent: str = ""
    """Refusal where there is nothing to take back; empty: that is none."""
    omitted: Any = None
    """The value that a line has where its brackets are left out; the brackets are not printed with it."""
    most: int | None = None
    """How many facts of the row there may be."""
    joined: bool = True
    """Whether a line that takes several keys is printed with all that have one value, or once for each."""
    as_entered: bool = False
    """Whether facts are printed in the order in which they were set, not in that of their keys."""
    as_rest: bool = False
    """Whether lines work as PATCH and DELETE do: options that a line leaves out stay as they are, what is
    taken back has exactly the keys that a line names, and is checked, too.
    """
    is_fixed: bool = False
    """Whether the fact is printed, but no line changes it."""
    forgets: tuple[str, ...] = ()
    """Facts of the same place, or of all if it is the whole switch, that are taken back with this one."""

    @property
    def name(self) -> str:
        """The name of the fact, without its keys."""
        return self.what.split(" ")[0]

    @property
    def keys(self) -> tuple[str, ...]:
        """The words in braces of which each value has a fact of its own."""
        return _holes_in(self.what)

    def undoing_lines(self) -> tuple[str, ...]:
        """`undone_by`, with what `no` is short for."""
        lines = dict.fromkeys(self._without_values(line) for line in self.words_of_lines())
        short = (line.removeprefix("no ") if line.startswith("no ") else f"no {line}" for line in lines)
        return tuple(short) if self.undone_by == NO else self.undone_by

    def _without_values(self, line: str) -> str:
        values = (found.start() for found in HOLE.finditer(line) if found[1] not in self.keys)
        return line[: next(values, len(line))].strip()

    def words_of_lines(self) -> Mapping[str, Any]:
        """Each line with its word; None where it has none."""
        return {self.lines: None} if isinstance(self.lines, str) else self.lines


@cache
def _holes_in(text: str) -> tuple[str, ...]:
    return tuple(HOLE.findall(text))


def patterns(text: str, arguments: Mapping[str, Argument]) -> Iterator[tuple[Element, ...]]:
    """Every pattern for which a line stands that has values in braces, and optional parts in brackets."""
    before, bracket, rest = text.partition("[")
    if bracket:
        option, _, after = rest.partition("]")
        for chosen in ("", option):
            yield from patterns(before + chosen + after, arguments)
    else:
        yield tuple(arguments[word[1:-1]] if word[0] == "{" else word for word in text.split())


def commands(rows: Mapping[str, _Action], arguments: Mapping[str, Argument]) -> tuple[Command[_Action], ...]:
    """Lines with what they do, as commands."""
    return tuple(
        Command(pattern, action) for text, action in rows.items() for pattern in patterns(text, arguments)
    )


def filled(text: str, arguments: Mapping[str, Argument], given: Mapping[str, Iterable[Any]]) -> str:
    """The text with its values, by argument name; a word in braces that has none, a place, stays."""
    left = {name: list(values) for name, values in given.items()}

    def fill(found: re.Match[str]) -> str:
        argument = arguments[found[1]]
        if argument.name not in left:
            return found[0]
        values = left[argument.name]
        if argument.together is not None:
            return argument.together(values)
        return " ".join(argument.spell(values.pop(0)) for _ in range(len(values) if argument.repeated else 1))

    return HOLE.sub(fill, text)


class Sheet:
    """The rows of one mode, or of a whole switch: what may be entered, what it sets, how it is printed."""

    def __init__(
        self, settings: Sequence[Setting], arguments: Mapping[str, Argument], place: str = ""
    ) -> None:
        """Make the commands of some rows; `place` is the word in braces that names places, if lines do."""
        self._arguments = arguments
        self._place = place
        self._settings = {setting.name: setting for setting in settings}
        self._text = lru_cache(maxsize=MAX_SPELLED)(self._spelled)
        self._defaults = {setting.name: self._default(setting) for setting in settings}
        self.commands = tuple(command for setting in settings for command in self._commands(setting))

    def fact(self, facts: Facts, where: str, what: str, *keys: Any) -> Any:
        """A value, which is that of a switch as delivered if nothing else is set."""
        found = facts.get((where, what, *keys))
        if found is not None:
            return found
        default = self._defaults.get(what)
        return default(*keys) if callable(default) else default

    def printed(self, facts: Facts, where: str, settings: Sequence[Setting] = ()) -> list[str]:
        """The lines that set the facts of a place, or only those of some rows, in the order of the sheet.

        The facts of a row are printed in the order of their keys, and those of neighbouring rows whose lines
        are the same up to the key, key by key. Joined lines are printed in the order of their values.
        """
        here: dict[str, dict[Fact, Any]] = {}
        for (place, what, *keys), value in facts.items():
            if place == where:
                here.setdefault(what, {})[tuple(keys)] = value
        lines: list[str] = []
        set_here = [row for row in settings or self._settings.values() if row.name in here and row.lines]
        for _, rows in groupby(set_here, key=_beginning):
            neighbours = list(rows)
            found = [entry for row in neighbours for entry in self._printed_row(row, here[row.name])]
            if not neighbours[0].as_entered:
                found.sort(key=lambda entry: entry[0])
            lines += [line for _, line in found]
        return lines

    def _printed_row(
        self, setting: Setting, values: Mapping[Fact, Any]
    ) -> Iterator[tuple[tuple[Any, ...], str]]:
        """Each line with what tells its place among those of its neighbours."""
        if setting.joined and len(setting.keys) == 1 and self._arguments[setting.keys[0]].is_plural:
            joined: dict[Any, list[Any]] = {}
            for (key,), value in sorted(values.items()):
                joined.setdefault(value, []).append(key)
            for value, found in joined.items():
                yield _parts(value), self._text(setting.name, value, tuple(found))
            return
        for keys, value in values.items():
            yield keys, self._text(setting.name, value, *((key,) for key in keys))

    def _spelled(self, name: str, value: Any, *keys: tuple[Any, ...]) -> str:
        """The line that sets a value for keys, each of them several where they are joined."""
        setting = self._settings[name]
        given: dict[str, list[Any]] = {}
        for hole, words in zip(setting.keys, keys, strict=True):
            given.setdefault(self._arguments[hole].name, []).extend(words)
        named = {word for word, values in given.items() if values != [None]}
        line = next(
            line
            for line in setting.words_of_lines()
            if _has_set(setting, line, value) and self._names(line, named, given.keys())
        )
        parts = list(_parts(value))[setting.words_of_lines()[line] is not None :]
        for argument in (self._arguments[hole] for hole in self._holes(setting, line)):
            count = len(parts) if argument.is_plural else 1
            given.setdefault(argument.name, []).extend(parts[:count])
            del parts[:count]

        def option(found: re.Match[str]) -> str:
            values = [given[self._arguments[hole].name] for hole in HOLE.findall(found[1])]
            return "" if [None] in values or [setting.omitted] in values else f" {found[1]}"

        return filled(_OPTION.sub(option, line), self._arguments, given)

    def _names(self, line: str, named: set[str], names: Iterable[str]) -> bool:
        """Whether a line has all keys that are named, and needs no other."""
        needed, had = (
            {self._arguments[hole].name for hole in _holes_in(text)} for text in (_OPTION.sub("", line), line)
        )
        return needed.intersection(names) <= named <= had

    def _default(self, setting: Setting) -> Any:
        is_flag = any(
            word is None and not self._holes(setting, line) for line, word in setting.words_of_lines().items()
        )
        return False if is_flag else setting.default

    def _holes(self, setting: Setting, line: str) -> list[str]:
        """The words in braces that make the value."""
        return [hole for hole in _holes_in(line) if hole not in (*setting.keys, self._place)]

    def _keys(self, setting: Setting, values: Values) -> list[list[Any]]:
        """What a line names of each key."""
        given = (values.raw.get(self._arguments[key].name, ()) for key in setting.keys)
        return [[part for word in words for part in _parts(word)] for words in given]

    def _value(self, setting: Setting, line: str, values: Values) -> Any:
        word = setting.words_of_lines()[line]
        left = {name: list(given) for name, given in values.raw.items()}
        parts = [] if word is None else [word]
        for argument in (self._arguments[hole] for hole in self._holes(setting, line)):
            given = left.get(argument.name, [])
            count = len(given) if argument.repeated else 1
            parts += given[:count] or [setting.omitted]
            del given[:count]
        return (tuple(parts) if len(parts) > 1 else parts[0]) if parts else True

    def _commands(self, setting: Setting) -> Iterator[Command[Edit]]:
        if setting.is_fixed:
            return
        lines = tuple(setting.words_of_lines())
        yield from commands({line: self._sets(setting, line) for line in lines}, self._arguments)
        for undoing in setting.undoing_lines():
            meant = tuple(line for line in lines if line.startswith(undoing.removeprefix("no ")))
            yield from commands(
                {undoing: self._takes_back(setting, undoing, meant or lines)}, self._arguments
            )

    def _sets(self, setting: Setting, line: str) -> Edit:
        def edit(facts: Facts, values: Values, places: Sequence[str]) -> Facts:
            changed = Facts(facts)
            for where in places:
                taken = (setting.check and setting.check(facts, where, values)) or values
                for keys in product(*(named or [None] for named in self._keys(setting, taken))):
                    fact, value = (where, setting.name, *keys), self._value(setting, line, taken)
                    if fact not in facts:
                        _check_count(facts, setting)
                    before = changed.get(fact)
                    if setting.as_rest and before is not None:
                        pairs = zip(before, value, strict=True)
                        value = tuple(old if new == setting.omitted else new for old, new in pairs)
                    if setting.as_entered and before != value:
                        changed.pop(fact, None)
                    changed[fact] = value
                    if value == self.fact(NO_FACTS, *fact):
                        del changed[fact]
            return changed

        return edit

    def _takes_back(self, setting: Setting, undoing: str, lines: tuple[str, ...]) -> Edit:
        holes = [self._arguments[hole].name for hole in self._holes(setting, undoing)]

        def edit(facts: Facts, values: Values, places: Sequence[str]) -> Facts:
            named = self._keys(setting, values)
            if setting.as_rest and setting.check is not None:
                for where in places:
                    setting.check(facts, where, values)
            said = [value for hole in holes for value in values.raw.get(hole, ())]

            def is_meant(where: str, what: str, *keys: Any) -> bool:
                return (
                    (where, what) in meant
                    and all(
                        key in given or not (given or (setting.as_rest and key is not None))
                        for given, key in zip(named, keys, strict=True)
                    )
                    and any(_has_set(setting, line, facts[where, what, *keys]) for line in lines)
                    and set(said) <= set(_parts(facts[where, what, *keys]))
                )

            meant = {(where, setting.name) for where in places}
            gone = {fact for fact in facts if is_meant(*fact)}
            if setting.absent and not _are_there(named, gone):
                raise RefusalError(filled(setting.absent, self._arguments, values.raw))
            gone |= {
                fact for fact in facts if fact[1] in setting.forgets and not {fact[0], ""}.isdisjoint(places)
            }
            return Facts({fact: value for fact, value in facts.items() if fact not in gone})

        return edit


def _are_there(named: Sequence[Sequence[Any]], facts: Iterable[Fact]) -> bool:
    """Whether there is a fact for all keys that a line names; of a key that it does not name, any."""
    keys = {tuple(key for key, names in zip(fact[2:], named, strict=True) if names) for fact in facts}
    return bool(keys) and keys >= set(product(*filter(None, named)))


def _check_count(facts: Facts, setting: Setting) -> None:
    if setting.most is not None and sum(fact[1] == setting.name for fact in facts) >= setting.most:
        raise invalid(f"there are {setting.most} {setting.name}s already")


def _beginning(setting: Setting) -> str:
    """The first line of a row up to its first key."""
    line = next(iter(setting.words_of_lines()))
    ends = (found.end() for found in HOLE.finditer(line) if found[1] in setting.keys)
    return line[: next(ends, len(line))]


def _parts(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _has_set(setting: Setting, line: str, value: Any) -> bool:
    """Whether a line of the row is the one that sets a value."""
    word = setting.words_of_lines()[line]
    return word is None or _parts(value)[0] == word
