"""The modes of a simulated command line: a table of what each one takes, and the session that walks in it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from switchsim.device import Answer, EmulatedDevice
from switchsim.grammar import Argument, Command, RefusalError, Values, match
from switchsim.settings import Edit, Facts, Setting, Sheet, commands, filled

Action = Callable[[Any, Values], str | None]
"""What a line does in a session, and what it prints; raises RefusalError."""
Check = Callable[[Facts, str, Values], None]
"""Raises RefusalError where a line does not fit the facts; the word is the place that it concerns."""


def no_check(facts: Facts, place: str, values: Values) -> None:
    """A `Check` that accepts every line."""
    del facts, place, values


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode: how its prompt looks, how it is opened and left, what may be entered in it."""

    prompt: str
    """Words in braces are those of `Session.prompt_words`."""
    lines: Mapping[str, Action] = field(default_factory=dict)
    """What may be entered besides the rows and the heads of inner modes."""
    around: str = ""
    """The mode to which `exit` leads; empty: it ends the session."""
    head: str = ""
    """The line that opens it in the mode around, under which the running configuration prints its rows."""
    rows: Sequence[Setting] = ()
    rows_of_ports: Sequence[Setting] = ()
    """Rows of ports whose lines concern all ports here."""
    made_by: Literal["head", "lines", "nothing"] = "head"
    """What makes a block that is not there: opening it, or only what is entered in it; or it is refused."""
    absent: str = ""
    """The refusal where nothing makes a block; `{}` is its name."""
    check: Check = no_check
    """Asked before the mode is opened, about the block's place."""
    removed_by: str = ""
    """The line of the mode around that removes the block; empty: there is none."""
    check_removal: Check = no_check
    """Asked before the block is removed."""
    takes: Callable[[Sequence[str]], bool] = bool
    """Whether words may be a line of this mode at all; others are tried in the mode around."""


class Modes:
    """A table of modes by name; the first is that in which a session begins.

    `place` is the word in braces that names ports, if lines do.
    """

    def __init__(self, table: Mapping[str, Mode], arguments: Mapping[str, Argument], place: str = "") -> None:
        self.table = table
        self.arguments = arguments
        self._sheets = {name: Sheet(mode.rows, arguments, place) for name, mode in table.items()}
        self._commands = {name: tuple(self._commands_of(name)) for name in table}

    def depth(self, name: str) -> int:
        """How many heads have been entered in a mode, and those around it."""
        mode = self.table[name]
        return bool(mode.head) + (self.depth(mode.around) if mode.around else 0)

    def name_at(self, place: str) -> str:
        """The mode whose lines stand in a block; of the whole switch, the one around blocks."""
        head, depth = f"{place.rpartition(chr(10))[2]} ", place.count("\n") + 1
        for name, mode in self.table.items():
            words = f"{mode.head} ".partition("{")[0]
            if mode.head and self.depth(name) == depth and head.startswith(words):
                return name
        return next((mode.around for mode in self.table.values() if mode.head), name)

    def fact(self, facts: Facts, place: str, what: str, *keys: Any) -> Any:
        """A value, which is that of a switch as delivered if nothing else is set."""
        return self._sheets[self.name_at(place)].fact(facts, place, what, *keys)

    def printed(self, facts: Facts, place: str = "", rows: Sequence[Setting] = ()) -> list[str]:
        """The lines of a block that set its facts, or only those of some rows."""
        return self._sheets[self.name_at(place)].printed(facts, place, rows)

    def find(self, name: str, words: Sequence[str]) -> tuple[Action, Values]:
        """What a line of a mode does; raises RefusalError."""
        if not self.table[name].takes(words):
            raise RefusalError("% Unrecognized command")
        return match(self._commands[name], words)

    def _commands_of(self, name: str) -> Iterator[Command[Action]]:
        lines: dict[str, Action] = {}
        for inner, mode in self.table.items():
            if mode.around == name and mode.head:
                lines[mode.head] = self._opens(inner, mode)
            if mode.around == name and mode.removed_by:
                lines[mode.removed_by] = self._removes(name, mode)
        lines |= self.table[name].lines
        yield from commands(lines, self.arguments)
        of_ports = Sheet(self.table[name].rows_of_ports, self.arguments)
        yield from (Command(each.pattern, _edits(name, each.action)) for each in self._sheets[name].commands)
        yield from (Command(each.pattern, _edits("", each.action)) for each in of_ports.commands)

    def _opens(self, name: str, mode: Mode) -> Action:
        def action(session: Session, values: Values) -> None:
            session.open(name, filled(mode.head, self.arguments, values.raw), values)

        return action

    def _removes(self, name: str, mode: Mode) -> Action:
        def action(session: Session, values: Values) -> None:
            around = session.place(name)
            place = f"{around}\n{filled(mode.head, self.arguments, values.raw)}".lstrip("\n")
            facts = session.facts
            mode.check_removal(facts, place, values)
            left = facts.without_block(place)
            if around and self.table[name].made_by == "lines" and not left.heads("", around):
                left = left.without_block(around)
            session.facts = left
            session.worked_in(name)

        return action


def _edits(name: str, edit: Edit) -> Action:
    """A line of the sheet of a mode; without one, of all ports."""
    return lambda session, values: session.edit(name, edit, values)


def goes_to(name: str) -> Action:
    """A line that leads to a mode without a head."""
    return lambda session, _: session.go(name)


def leaves(session: "Session", _: Values) -> None:
    """`exit`: to the mode around."""
    if around := session.modes.table[session.mode].around:
        session.go(around)
    else:
        session.is_over = True


def ends(session: "Session", _: Values) -> None:
    """`logout`."""
    session.is_over = True


def shows(show: Callable[[Any], str]) -> Action:
    """A line that prints something about the switch."""
    return lambda session, _: show(session.device)


def shows_port(show: Callable[[Any, str], str]) -> Action:
    """A line that prints something about the port that it names."""

    def action(session: Session, values: Values) -> str:
        port = values.one("interface", str)
        session.block("interface", f"interface {port}")
        return show(session.device, port)

    return action


def saves(text: str) -> Action:
    """A line that saves what runs."""

    def action(session: Session, _: Values) -> str:
        session.device.saved = session.device.configuration
        return text

    return action


def _is_unknown(refusal: RefusalError) -> bool:
    return str(refusal).startswith("% Unrecognized")


class Session:
    """One command line, with its mode and the heads of the blocks that are open."""

    modes: Modes
    tries_around: ClassVar[Literal["never", "unknown", "refused"]] = "never"
    """Which lines are tried in the modes around: none; those that a mode does not know, and one that is then
    understood leaves the inner modes; or all that it refuses, in the modes around that have no head.
    """
    refusals: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Beginning of a refusal → what the switch says instead of the whole text."""
    abbreviations: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Words in heads → what prompts have in their places."""
    gone: ClassVar[str] = "% Invalid input: what this mode configures has been removed [emulator]"

    def __init__(self, device: "SheetDevice", username: str = "") -> None:
        self.device: Any = device
        self.username = username
        self.modes = device.modes
        self.mode = next(iter(self.modes.table))
        self.path: tuple[str, ...] = ()
        """Heads of the open blocks, the outer one first."""
        self.is_over = False

    @property
    def prompt(self) -> str:
        """`eos1(config-if-Et1/1-uc-txq-6)#` and the like."""
        return self.modes.table[self.mode].prompt.format(**self.prompt_words())

    def prompt_words(self) -> dict[str, str]:
        """What stands in prompts for the words in braces."""
        outer, inner = (*self.path, "", "")[:2]
        for long, short in self.abbreviations.items():
            outer, inner = outer.replace(long, short), inner.replace(long, short)
        found = {"device": self.device.name, "user": self.username}
        return found | {"head": outer.rpartition(" ")[2], "inner": inner.replace(" ", "-")}

    def enter(self, line: str) -> Answer:
        """Execute one line."""
        try:
            words = self.words(line)
            if not words:
                return Answer()
            with self.device.exclusively():
                return Answer(self.execute(words) or "", self.is_over)
        except RefusalError as refusal:
            return Answer(f"{self.refused(str(refusal))}\n")

    def words(self, line: str) -> list[str]:
        """The words of a line, none of a comment."""
        return [] if line.lstrip().startswith("!") else line.split()

    def refused(self, text: str) -> str:
        """A refusal as this switch words it."""
        return next((words for start, words in self.refusals.items() if text.startswith(start)), text)

    def execute(self, words: Sequence[str]) -> str | None:
        """Do what a line says, in the innermost mode that takes it; returns what it prints."""
        refusals: list[RefusalError] = []
        for name in self._tried():
            try:
                action, values = self.modes.find(name, words)
            except RefusalError as refusal:
                refusals.append(refusal)
                if self.tries_around == "unknown" and not _is_unknown(refusal):
                    break
            else:
                return action(self, values)
        raise min(refusals, key=_is_unknown)

    def _tried(self) -> Iterator[str]:
        """The modes in which a line is tried."""
        yield self.mode
        name = self.modes.table[self.mode].around
        while name and self.tries_around != "never":
            if self.tries_around == "unknown" or not self.modes.table[name].head:
                yield name
            name = self.modes.table[name].around

    @property
    def facts(self) -> Facts:
        """What lines change."""
        found: Facts = self.device.configuration
        return found

    @facts.setter
    def facts(self, facts: Facts) -> None:
        self.device.configuration = facts

    def place(self, name: str) -> str:
        """The block that the lines of a mode concern, which is the open one or one around it."""
        return "\n".join(self.path[: self.modes.depth(name)])

    def places(self, name: str, values: Values) -> Sequence[str]:
        """What a line of a mode concerns; without a mode, all ports."""
        del values
        return (
            (self.place(name),)
            if name
            else [self.device.port_head.format(port) for port in self.device.ports]
        )

    def go(self, name: str, head: str = "") -> None:
        """Change to a mode; a head opens a block in those of the mode around."""
        mode = self.modes.table[name]
        self.path = self.path[: self.modes.depth(mode.around if head else name)]
        self.path += (head,) if head else ()
        self.mode = name

    def worked_in(self, name: str) -> None:
        """A line of a mode, which may be one around that which is open, has been executed."""
        if self.tries_around == "unknown":
            self.go(name)

    def block(self, name: str, head: str) -> str:
        """The place of a block in the mode around; raises RefusalError where it would have to be there."""
        mode = self.modes.table[name]
        place = f"{self.place(mode.around)}\n{head}".lstrip("\n")
        if mode.made_by == "nothing" and (place, "") not in self.facts:
            raise RefusalError(mode.absent.format(head.rpartition(" ")[2]))
        return place

    def open(self, name: str, head: str, values: Values) -> None:
        """Change to the mode of a block."""
        mode = self.modes.table[name]
        place = self.block(name, head)
        mode.check(self.facts, place, values)
        if mode.made_by == "head":
            self.facts = self.facts.with_block(place)
        self.go(name, head)

    def edit(self, name: str, edit: Edit, values: Values) -> None:
        """Execute a line of the sheet of a mode; without one, of all ports."""
        facts, places = self.facts, self.places(name, values)
        if name and self.modes.depth(name):
            (place,) = places
            is_made_here = self.modes.table[name].made_by == "lines"
            needed = {place.partition("\n")[0], *({place} if not is_made_here else ())}
            if any((each, "") not in facts for each in needed):
                raise RefusalError(self.gone)
            facts = facts.with_block(place)
        changed = edit(facts, values, places)
        self.check_edit(changed, places)
        self.facts = changed
        self.worked_in(name or self.mode)

    def check_edit(self, facts: Facts, places: Sequence[str]) -> None:
        """Raise RefusalError where changed blocks do not fit the rest of the configuration."""


class SheetDevice(EmulatedDevice):
    """A switch whose configuration is facts: `configuration` runs, `saved` is what it would start with."""

    modes: Modes
    configuration: Facts
    session_class: ClassVar[type[Session]]
    port_head: ClassVar[str] = "interface {}"
    """The place of the facts of a port."""

    def __init__(self, name: str, ports: Sequence[str], most_ports: int, model: str, release: str) -> None:
        super().__init__(name, len(ports), most_ports)
        self.ports, self.model, self.release = tuple(ports), model, release
        self.saved = self.as_delivered()
        self.reboot()

    def as_delivered(self) -> Facts:
        """What runs before anybody has configured anything."""
        return Facts({(self.port_head.format(port), ""): True for port in self.ports})

    def fact(self, where: str, what: str, *keys: Any) -> Any:
        """What runs, of a port or of the switch: `fact("1/1", "trust")`, `fact("", "queue-of-dscp", 48)`."""
        place = self.port_head.format(where) if where else ""
        return self.modes.fact(self.configuration, place, what, *keys)

    def reboot(self) -> None:
        """Start anew, with what was saved."""
        with self._lock:
            self.configuration = self.saved
