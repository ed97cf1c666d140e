"""The command modes of an emulated switch, as a table of their lines, and the session that moves in it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from switchsim.device import Answer, EmulatedDevice
from switchsim.grammar import Argument, Command, RefusalError, Values, match
from switchsim.settings import Edit, Facts, Setting, Sheet, commands, filled

Action = Callable[[Any, Values], str | None]
"""What a line does: a function of the session and the line's values, which returns the text to print or None;
it raises RefusalError."""
Check = Callable[[Facts, str, Values], None]
"""A check of a line against the configuration, the place (block) that it concerns and its values;
it raises RefusalError where they do not fit."""


def no_check(facts: Facts, place: str, values: Values) -> None:
    """A `Check` that accepts every line."""
    del facts, place, values


@dataclass(frozen=True, slots=True)
class Mode:
    """One command mode: its prompt, how it is opened and left, and the lines that it takes."""

    prompt: str
    """The prompt as a format string, whose placeholders are the names in `Session.prompt_words`."""
    lines: Mapping[str, Action] = field(default_factory=dict)
    """Command line → its action, besides the settings and the lines that open inner modes."""
    around: str = ""
    """The outer mode, to which `exit` leads; empty: `exit` ends the session."""
    head: str = ""
    """The line of the outer mode that opens this one, and heads its block in the running configuration."""
    rows: Sequence[Setting] = ()
    rows_of_ports: Sequence[Setting] = ()
    """Settings of a port that can be entered here, too, and then concern all ports."""
    made_by: Literal["head", "lines", "nothing"] = "head"
    """What creates a missing block: opening it, or a line entered in it; "nothing": opening it is refused."""
    absent: str = ""
    """The refusal where a block is missing and `made_by` is "nothing"; `{}` stands for the block's name."""
    check: Check = no_check
    """The check that is made, with the block's place, before the mode is opened."""
    removed_by: str = ""
    """The line of the outer mode that removes the block; empty: no line does."""
    check_removal: Check = no_check
    """The check that is made before the block is removed."""
    takes: Callable[[Sequence[str]], bool] = bool
    """Whether the words of a line may belong to this mode; if not, the outer mode is tried."""


class Modes:
    """The command modes of a switch by name; a session begins in the first one.

    `place` is the placeholder that names ports in lines; empty: lines do not name ports.
    """

    def __init__(self, table: Mapping[str, Mode], arguments: Mapping[str, Argument], place: str = "") -> None:
        self.table = table
        self.arguments = arguments
        self._sheets = {name: Sheet(mode.rows, arguments, place) for name, mode in table.items()}
        self._commands = {name: tuple(self._commands_of(name)) for name in table}

    def depth(self, name: str) -> int:
        """How many blocks are open in the mode of this name, its own included."""
        mode = self.table[name]
        return bool(mode.head) + (self.depth(mode.around) if mode.around else 0)

    def name_at(self, place: str) -> str:
        """The mode whose lines stand in the block at this place; without a block, the one around blocks."""
        head, depth = f"{place.rpartition(chr(10))[2]} ", place.count("\n") + 1
        for name, mode in self.table.items():
            words = f"{mode.head} ".partition("{")[0]
            if mode.head and self.depth(name) == depth and head.startswith(words):
                return name
        return next((mode.around for mode in self.table.values() if mode.head), name)

    def fact(self, facts: Facts, place: str, what: str, *keys: Any) -> Any:
        """The value of a setting at a place of the configuration; if it is unset, the value as delivered."""
        return self._sheets[self.name_at(place)].fact(facts, place, what, *keys)

    def printed(self, facts: Facts, place: str = "", rows: Sequence[Setting] = ()) -> list[str]:
        """The configuration lines that set the facts of the block at `place`, or only the facts of `rows`."""
        return self._sheets[self.name_at(place)].printed(facts, place, rows)

    def find(self, name: str, words: Sequence[str]) -> tuple[Action, Values]:
        """Find the line of a mode that these words match: its action and values; raises RefusalError."""
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
    """An action that changes to a mode which opens no block."""
    return lambda session, _: session.go(name)


def leaves(session: "Session", _: Values) -> None:
    """The action of `exit`: go to the outer mode, or end the session."""
    if around := session.modes.table[session.mode].around:
        session.go(around)
    else:
        session.is_over = True


def ends(session: "Session", _: Values) -> None:
    """The action of `logout`: end the session."""
    session.is_over = True


def shows(show: Callable[[Any], str]) -> Action:
    """An action that prints something about the switch."""
    return lambda session, _: show(session.device)


def shows_port(show: Callable[[Any, str], str]) -> Action:
    """An action that prints something about the port that the line names."""

    def action(session: Session, values: Values) -> str:
        port = values.one("interface", str)
        session.block("interface", f"interface {port}")
        return show(session.device, port)

    return action


def saves(text: str) -> Action:
    """An action that saves the running configuration and prints this text."""

    def action(session: Session, _: Values) -> str:
        session.device.saved = session.device.configuration
        return text

    return action


def _is_unknown(refusal: RefusalError) -> bool:
    return str(refusal).startswith("% Unrecognized")


class Session:
    """One command-line session, with its mode and the heads of the open blocks."""

    modes: Modes
    tries_around: ClassVar[Literal["never", "unknown", "refused"]] = "never"
    """Which lines are also tried in the outer modes.

    "never": none. "unknown": those that a mode does not know; the outer mode that takes one becomes the mode
    of the session. "refused": all that a mode refuses, but only in those outer modes that open no block.
    """
    refusals: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Beginning of a refusal → the text that the switch prints instead of it."""
    abbreviations: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Word in the head of a block → its abbreviation in the prompt."""
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
        """The prompt of the session, such as `eos1(config-if-Et1/1-uc-txq-6)#`."""
        return self.modes.table[self.mode].prompt.format(**self.prompt_words())

    def prompt_words(self) -> dict[str, str]:
        """The values of the placeholders in prompts, by name."""
        outer, inner = (*self.path, "", "")[:2]
        for long, short in self.abbreviations.items():
            outer, inner = outer.replace(long, short), inner.replace(long, short)
        found = {"device": self.device.name, "user": self.username}
        return found | {"head": outer.rpartition(" ")[2], "inner": inner.replace(" ", "-")}

    def enter(self, line: str) -> Answer:
        """Execute one line and return its output, a refusal included."""
        try:
            words = self.words(line)
            if not words:
                return Answer()
            with self.device.exclusively():
                return Answer(self.execute(words) or "", self.is_over)
        except RefusalError as refusal:
            return Answer(f"{self.refused(str(refusal))}\n")

    def words(self, line: str) -> list[str]:
        """Split a line into its words; a comment has none."""
        return [] if line.lstrip().startswith("!") else line.split()

    def refused(self, text: str) -> str:
        """The text of a refusal, worded as this switch words it."""
        return next((words for start, words in self.refusals.items() if text.startswith(start)), text)

    def execute(self, words: Sequence[str]) -> str | None:
        """Execute a line's words in the innermost mode that takes them; returns what the switch prints."""
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
        """The configuration that the session's lines change."""
        found: Facts = self.device.configuration
        return found

    @facts.setter
    def facts(self, facts: Facts) -> None:
        self.device.configuration = facts

    def place(self, name: str) -> str:
        """The place of the open block whose lines the mode of this name takes."""
        return "\n".join(self.path[: self.modes.depth(name)])

    def places(self, name: str, values: Values) -> Sequence[str]:
        """The places that a line of this mode concerns; without a mode (empty name), those of all ports."""
        del values
        return (
            (self.place(name),)
            if name
            else [self.device.port_head.format(port) for port in self.device.ports]
        )

    def go(self, name: str, head: str = "") -> None:
        """Change to a mode; `head` is the line that opens its block, empty if it has none."""
        mode = self.modes.table[name]
        self.path = self.path[: self.modes.depth(mode.around if head else name)]
        self.path += (head,) if head else ()
        self.mode = name

    def worked_in(self, name: str) -> None:
        """Called when a line has been executed in the mode of this name, which may be an outer one."""
        if self.tries_around == "unknown":
            self.go(name)

    def block(self, name: str, head: str) -> str:
        """The place of a block in the outer mode; raises RefusalError where it does not exist but must."""
        mode = self.modes.table[name]
        place = f"{self.place(mode.around)}\n{head}".lstrip("\n")
        if mode.made_by == "nothing" and (place, "") not in self.facts:
            raise RefusalError(mode.absent.format(head.rpartition(" ")[2]))
        return place

    def open(self, name: str, head: str, values: Values) -> None:
        """Open the block with this head: check it, create it if the mode does, and change to its mode."""
        mode = self.modes.table[name]
        place = self.block(name, head)
        mode.check(self.facts, place, values)
        if mode.made_by == "head":
            self.facts = self.facts.with_block(place)
        self.go(name, head)

    def edit(self, name: str, edit: Edit, values: Values) -> None:
        """Change the configuration by a line of this mode; without a mode (empty name), that of all ports."""
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
    """An emulated switch whose configuration is facts: `configuration` runs, `saved` is loaded at start."""

    modes: Modes
    configuration: Facts
    session_class: ClassVar[type[Session]]
    port_head: ClassVar[str] = "interface {}"
    """The format string of the place that holds a port's facts."""

    def __init__(self, name: str, ports: Sequence[str], most_ports: int, model: str, release: str) -> None:
        super().__init__(name, len(ports), most_ports)
        self.ports, self.model, self.release = tuple(ports), model, release
        self.saved = self.as_delivered()
        self.reboot()

    def as_delivered(self) -> Facts:
        """The configuration of a new switch."""
        return Facts({(self.port_head.format(port), ""): True for port in self.ports})

    def fact(self, where: str, what: str, *keys: Any) -> Any:
        """A running setting of a port or switch: `fact("1/1", "trust")`, `fact("", "queue-of-dscp", 48)`."""
        place = self.port_head.format(where) if where else ""
        return self.modes.fact(self.configuration, place, what, *keys)

    def reboot(self) -> None:
        """Restart the emulated switch with its saved configuration."""
        with self._lock:
            self.configuration = self.saved
