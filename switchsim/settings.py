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
"""The key of a value: its place (port or block; empty: whole switch), the setting's name, then its keys."""


class Facts(dict[Fact, Any]):
    """A configuration: fact → value. It is never changed in place: an edit makes a new one.

    A block exists while there is the fact `(place, "")`; its place is the place of the block around it and,
    on a line of its own below, the head of the block.
    """

    @property
    def blocks(self) -> dict[str, "Facts"]:
        """Place → the facts at this place."""
        found: dict[str, Facts] = {}
        for fact, value in self.items():
            found.setdefault(fact[0], Facts())[fact] = value
        return found

    def heads(self, kind: str, around: str = "") -> list[str]:
        """Heads of the blocks directly inside the block `around` that begin with `kind`, oldest first."""
        places = (fact[0].rpartition("\n") for fact in self if fact[1:] == ("",))
        return [head for outer, _, head in places if outer == around and f"{head} ".startswith(kind)]

    def with_block(self, place: str) -> "Facts":
        """The configuration with this block, and with the blocks around it."""
        if (place, "") in self:
            return self
        outer = self.with_block(around) if (around := place.rpartition("\n")[0]) else self
        return Facts({**outer, (place, ""): True})

    def without_block(self, place: str) -> "Facts":
        """The configuration without this block, and without the blocks inside it."""
        return Facts({f: v for f, v in self.items() if f[0] != place and not f[0].startswith(f"{place}\n")})


NO_FACTS: Final = Facts()
Edit = Callable[[Facts, Values, Sequence[str]], Facts]
"""A change by a line: a function of the facts, the line's values and the places that it concerns, which
returns the changed facts or raises RefusalError."""
_Action = TypeVar("_Action")

NO: Final = ("no",)
MAX_SPELLED: Final = 4096
"""How many printed lines a sheet keeps in its cache."""
HOLE: Final = re.compile(r"\{([^}]*)\}")
_OPTION: Final = re.compile(r" \[([^]]*)\]")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a switch: the lines that set it, each replacing the others, and those that undo it."""

    what: str
    """The setting's name, then its keys' placeholders as the lines write them: `switch-priority {dscp}`."""
    lines: str | Mapping[str, Any]
    """The line that sets the fact, or several: line → the word, first in the value, that tells it apart.

    A fact's value is that of the line's placeholders, a tuple if there are several. A line without
    placeholders sets its word, or True. A fact without any line is set by other means, and not printed.
    """
    undone_by: tuple[str, ...] = ()
    """Lines that undo the setting; where such a line leaves out keys, for all values of these keys.

    `no` alone stands for `no` and the lines up to their first value, or for what follows if they begin with
    it. If a line of the setting begins with X, `no X` undoes only what such a line has set.
    """
    default: Any = None
    """The value as delivered, or a function that computes it from the keys."""
    check: Callable[[Facts, str, Values], Values | None] | None = None
    """A function that raises RefusalError where a line does not fit facts, place and values; None: no check.

    It may return what the switch makes of the line's values.
    """
    absent: str = ""
    """The refusal where there is nothing to undo; empty: that is not refused."""
    omitted: Any = None
    """The value that a line without its bracketed part sets; that part is not printed with this value."""
    most: int | None = None
    """How many facts of this setting there may be at most; None: no limit."""
    joined: bool = True
    """Whether keys with the same value are printed on one line, if the line takes several keys."""
    as_entered: bool = False
    """Whether facts are printed in the order in which they were set, instead of the order of their keys."""
    as_rest: bool = False
    """Whether lines work as REST's PATCH and DELETE do: options that a line leaves out stay as they are; what
    is undone has exactly the keys that a line names, and is checked, too."""
    is_fixed: bool = False
    """Whether the setting is printed, but cannot be changed by any line."""
    forgets: tuple[str, ...] = ()
    """Names of settings that are undone with this one, at the same place (whole switch: everywhere)."""

    @property
    def name(self) -> str:
        """The name of the setting, without its keys."""
        return self.what.split(" ")[0]

    @property
    def keys(self) -> tuple[str, ...]:
        """The placeholders whose values tell the facts of this setting apart."""
        return _holes_in(self.what)

    def undoing_lines(self) -> tuple[str, ...]:
        """The lines of `undone_by`, with `no` alone replaced by the lines for which it stands."""
        lines = dict.fromkeys(self._without_values(line) for line in self.words_of_lines())
        short = (line.removeprefix("no ") if line.startswith("no ") else f"no {line}" for line in lines)
        return tuple(short) if self.undone_by == NO else self.undone_by

    def _without_values(self, line: str) -> str:
        values = (found.start() for found in HOLE.finditer(line) if found[1] not in self.keys)
        return line[: next(values, len(line))].strip()

    def words_of_lines(self) -> Mapping[str, Any]:
        """Line that sets the fact → the word at the front of its value; None where there is none."""
        return {self.lines: None} if isinstance(self.lines, str) else self.lines


@cache
def _holes_in(text: str) -> tuple[str, ...]:
    return tuple(HOLE.findall(text))


def patterns(text: str, arguments: Mapping[str, Argument]) -> Iterator[tuple[Element, ...]]:
    """The command patterns of a line with placeholders in braces, one for each choice of its options."""
    before, bracket, rest = text.partition("[")
    if bracket:
        option, _, after = rest.partition("]")
        for chosen in ("", option):
            yield from patterns(before + chosen + after, arguments)
    else:
        yield tuple(arguments[word[1:-1]] if word[0] == "{" else word for word in text.split())


def commands(rows: Mapping[str, _Action], arguments: Mapping[str, Argument]) -> tuple[Command[_Action], ...]:
    """The commands for these lines, each with its action; `{…}` are placeholders, `[…]` options."""
    return tuple(
        Command(pattern, action) for text, action in rows.items() for pattern in patterns(text, arguments)
    )


def filled(text: str, arguments: Mapping[str, Argument], given: Mapping[str, Iterable[Any]]) -> str:
    """Fill in a text's placeholders with values by argument name; one without a value stays."""
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
    """The settings of one mode or a whole switch: which lines can be entered, how facts are printed."""

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
        """The value of a setting at a place of the configuration; if it is unset, the value as delivered."""
        found = facts.get((where, what, *keys))
        if found is not None:
            return found
        default = self._defaults.get(what)
        return default(*keys) if callable(default) else default

    def printed(self, facts: Facts, where: str, settings: Sequence[Setting] = ()) -> list[str]:
        """The lines that set the facts of a place, or only those of some settings, in the order of the sheet.

        The facts of a setting are printed in the order of their keys, and those of neighbouring ones whose
        lines are the same up to the key, key by key. Joined lines are printed in the order of their values.
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
