"""An emulated Arista EOS switch: modes, prompts and what each line does.

Stateful and strict: a line that the grammar lacks, or whose values are out of range, changes nothing and is
answered with a line that starts with `%`. A line that its mode lacks is tried in the modes around it, and
leaves the inner ones, as when a configuration is pasted. Outside a config session it takes effect at once.
"""

import json
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from switchsim import eos_show
from switchsim.device import Answer, NamedDevice
from switchsim.eos_sessions import ConfigSessions
from switchsim.eos_settings import (
    ARGUMENTS,
    GLOBAL,
    MAX_PORTS,
    MODES,
    NAMED_HEADS,
    WHOLE_SWITCH,
    EosConfiguration,
    default_configuration,
)
from switchsim.grammar import Command, RefusalError, Values, invalid, match
from switchsim.settings import HERE, NO_FACTS, Block, Edit, patterns

QUEUE_WORDS: Final = ("uc-tx-queue", "tx-queue")
_PROMPT_CHARACTERS: Final = 6
"""Of a config session's name."""


class EosDevice(NamedDevice):
    """One switch with ports Ethernet1/1 to Ethernet`ports`/1; `configuration` runs, `startup` is saved.

    `queue_word` opens a queue's mode: `uc-tx-queue` as on chips with queues for unicast, or `tx-queue`.
    `model` and `release` are what `show version` names; config sessions are shown as that release does.
    """

    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "trident2": {"model": "DCS-7050QX-32-F", "queue_word": "tx-queue"},
        "trident3": {"model": "DCS-7050CX3-32S-R"},
        "tomahawk": {"model": "DCS-7060CX-32S-F"},
        "tomahawk2": {"model": "DCS-7260CX3-64-F"},
        "tomahawk3": {"model": "DCS-7060DX4-32-F"},
    }
    has_releases: ClassVar[bool] = True

    def __init__(
        self,
        name: str = "eos1",
        ports: int = 32,
        *,
        queue_word: str = QUEUE_WORDS[0],
        model: str = "DCS-7050CX3-32S-F",
        release: str = eos_show.RELEASE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name, ports, MAX_PORTS)
        if queue_word not in QUEUE_WORDS:
            raise ValueError(f"{queue_word!r}, expected one of {', '.join(QUEUE_WORDS)}")
        self.queue_word = queue_word
        self.model = model
        self.release = release
        self.startup = default_configuration(ports)
        self._clock = clock
        self.sessions = self._no_sessions()

    def _no_sessions(self) -> ConfigSessions:
        forgets = eos_show.names_timer_at_top(self.release)
        return ConfigSessions(self.startup, self._clock, forgets=forgets)

    @property
    def configuration(self) -> EosConfiguration:
        """What runs now."""
        with self._lock:
            return self.sessions.running

    @configuration.setter
    def configuration(self, configuration: EosConfiguration) -> None:
        with self._lock:
            self.sessions.running = configuration

    def reboot(self) -> None:
        """Start anew, with what was saved."""
        with self._lock:
            self.sessions = self._no_sessions()

    def open_session(self, username: str) -> "EosSession":
        """A session in user mode, whoever it is."""
        del username
        return EosSession(self)


class _Place(NamedTuple):
    """Where in a configuration lines are entered."""

    head: str = ""
    """The line that opened the mode; empty at the margin."""
    inner: str = ""
    """The line that opened a queue's mode in it, or that of a class."""


Action = Callable[["EosSession", Values], Answer]


class EosSession:
    """One command line, with its mode."""

    def __init__(self, device: EosDevice) -> None:
        self.device = device
        self.privileged = False
        self.configuring = False
        self.session_name = ""
        """Of the config session that is open; empty: lines take effect at once."""
        self.place = _Place()

    @property
    def prompt(self) -> str:
        """`eos1(config-if-Et1/1-uc-txq-6)#` and the like."""
        if not self.configuring:
            return f"{self.device.name}{'#' if self.privileged else '>'}"
        words = ["config"]
        if self.session_name:
            words += ["s", self.session_name[:_PROMPT_CHARACTERS]]
        if self.place.head:
            kind, *_, name = self.place.head.split(" ")
            of_class = "-c" if self.place.inner.startswith("class ") else ""
            words += [MODES[kind].prompt + of_class, name.replace("Ethernet", "Et")]
        if self.place.inner and not of_class:
            words += self.place.inner.replace("tx-queue", "txq").split(" ")
        return f"{self.device.name}({'-'.join(words)})#"

    def enter(self, line: str) -> Answer:
        """Execute one line."""
        command, pipe, filter_text = line.partition("|")
        words = command.split()
        if not words or words[0].startswith("!"):
            return Answer() if not pipe else Answer("% Invalid input\n")
        if pipe:
            words += ["|", *filter_text.split()]
        try:
            with self.device.exclusively():
                return self._execute(words)
        except RefusalError as refusal:
            return Answer(f"{_as_eos_says(str(refusal))}\n")

    def _execute(self, words: list[str]) -> Answer:
        if self.configuring:
            for place in self._places():
                try:
                    return self._configure(place, words)
                except RefusalError as refusal:
                    if not str(refusal).startswith("% Unrecognized"):
                        raise
        found = match(_EXEC if self.privileged else _USER, words)
        return found.action(self, Values(found.values))

    def _places(self) -> list[_Place]:
        """The mode and those around it, innermost first."""
        return list(dict.fromkeys((self.place, _Place(self.place.head), _Place())))

    def _configure(self, place: _Place, words: list[str]) -> Answer:
        if not place.head:
            found = match(_CONFIG, words)
            return found.action(self, Values(found.values))
        block = self._target().blocks[place.head]
        mode = MODES[place.head.split(" ")[0]]
        if place.inner:
            edit = match(mode.inner.commands, words)
            facts = edit.action(block.inner.get(place.inner, NO_FACTS), Values(edit.values), HERE)
            self._store(self._target().with_block(place.head, block.with_inner(place.inner, facts)))
        elif mode.prompt == "acl" and not _is_of_list(words):
            raise RefusalError("% Unrecognized command")
        elif words[0] and self.device.queue_word.startswith(words[0]) and mode.has_queues:
            queue = match((Command((self.device.queue_word, ARGUMENTS["any-queue"]), None),), words).values
            place = _Place(place.head, f"{self.device.queue_word} {Values(queue).one('queue', int)}")
        elif mode.inner.commands and not mode.has_queues:
            place = self._open_class(place, block, words)
        else:
            edit = match((*mode.commands, *mode.sheet.commands), words)
            facts = edit.action(block.facts, Values(edit.values), HERE)
            self._store(self._target().with_block(place.head, Block(facts, block.inner)))
        self.place = place
        return Answer()

    def _open_class(self, place: _Place, block: Block, words: list[str]) -> _Place:
        """A class of a policy map, or what takes it out; class-default is in each, and none of its own."""
        found = match(_IN_POLICY_MAP, words)
        name = f"class {Values(found.values).one('name', str)}"
        if not found.action:
            kept = {other: lines for other, lines in block.inner.items() if other != name}
            self._store(self._target().with_block(place.head, Block(block.facts, MappingProxyType(kept))))
            return place
        if name != "class class-default" and name not in block.inner:
            self._store(self._target().with_block(place.head, block.with_inner(name, NO_FACTS)))
        return _Place(place.head, name)

    def _target(self) -> EosConfiguration:
        """What the lines change: the config session that is open, or what runs."""
        sessions = self.device.sessions
        if not self.session_name:
            return sessions.running
        if self.session_name not in sessions.by_name:
            raise invalid("this config session is gone")
        return sessions.open(self.session_name).configuration

    def _store(self, configuration: EosConfiguration) -> None:
        if self.session_name:
            self.device.sessions.open(self.session_name).configuration = configuration
        else:
            self.device.sessions.running = configuration

    def change(self, change: Callable[[EosConfiguration], EosConfiguration]) -> Answer:
        """A line of the whole switch."""
        self._store(change(self._target()))
        self.place = _Place()
        return Answer()

    def open_block(self, head: str) -> Answer:
        """Enter the mode of what a head names, which is there from now on; of ports, only those there are."""
        if head not in self._target().blocks:
            if head.startswith("interface "):
                raise invalid(f"there is no {head.removeprefix('interface ')}")
            self._store(self._target().with_block(head, Block()))
        self.place = _Place(head)
        return Answer()

    def start(self, session_name: str = "") -> None:
        """Enter configuration mode."""
        if session_name:
            self.device.sessions.open(session_name)
        self.configuring, self.session_name, self.place = True, session_name, _Place()

    def leave(self) -> None:
        """Back to privileged mode; a config session stays as it is."""
        self.configuring, self.session_name, self.place = False, "", _Place()


def _is_of_list(words: list[str]) -> bool:
    """Whether a line begins as those of an access list do; the others are tried in the mode around it."""
    first = words[1] if words[:1] == ["no"] and len(words) > 1 else words[0]
    return first.isdecimal() or first in {"permit", "deny"}


def _as_eos_says(refusal: str) -> str:
    """The grammar speaks Onyx."""
    if refusal.startswith("% Unrecognized command"):
        return "% Invalid input"
    for word in ("Ambiguous", "Incomplete"):
        if refusal.startswith(f"% {word} command"):
            return f"% {word} command"
    return refusal


def _enable(session: EosSession, _: Values) -> Answer:
    session.privileged = True
    return Answer()


def _disable(session: EosSession, _: Values) -> Answer:
    session.privileged = False
    return Answer()


def _start(session: EosSession, values: Values) -> Answer:
    session.start(values.maybe("name", str) or "")
    return Answer()


def _end(session: EosSession, _: Values) -> Answer:
    session.leave()
    return Answer()


def _exit(session: EosSession, _: Values) -> Answer:
    if not session.configuring:
        return Answer(closes=True)
    if session.place.inner:
        session.place = _Place(session.place.head)
    elif session.place.head:
        session.place = _Place()
    else:
        session.leave()
    return Answer()


def _end_session(*, commits: bool) -> Action:
    def action(session: EosSession, values: Values) -> Answer:
        name = values.maybe("name", str) or session.session_name
        if not name:
            raise RefusalError("% Unrecognized command")
        if commits:
            session.device.sessions.commit(name, values.maybe("timer", int))
        else:
            session.device.sessions.abort(name)
        session.leave()
        return Answer()

    return action


def _save(session: EosSession, _: Values) -> Answer:
    session.device.startup = session.device.configuration
    return Answer("Copy completed successfully.\n")


def _show_running_config(session: EosSession, _: Values) -> Answer:
    device = session.device
    return Answer(_running_config(device, device.configuration))


def _show_unsaved(session: EosSession, _: Values) -> Answer:
    device = session.device
    saved, running = (_running_config(device, each) for each in (device.startup, device.configuration))
    return Answer(eos_show.unsaved(saved, running))


def _running_config(device: EosDevice, configuration: EosConfiguration) -> str:
    return eos_show.running_config(device.name, device.release, configuration)


def _show_version(session: EosSession, _: Values) -> Answer:
    device = session.device
    return _json(eos_show.version(device.model, device.release, device.name))


def _show_hostname(session: EosSession, _: Values) -> Answer:
    return _json(eos_show.hostname(session.device.name))


def _show_neighbours(session: EosSession, _: Values) -> Answer:
    return _json(eos_show.neighbours(session.device.neighbours))


def _show_sessions(session: EosSession, _: Values) -> Answer:
    sessions = session.device.sessions
    sessions.expire()
    return _json(eos_show.sessions(sessions.by_name, session.device.release))


def _json(shown: dict[str, object]) -> Answer:
    return Answer(json.dumps(shown, indent=4) + "\n")


def _terminal(text: str) -> Action:
    return lambda _, values: Answer(text.format(*values.all("width", int)) + "\n")


def _change(change: Callable[[EosConfiguration, Values], EosConfiguration]) -> Action:
    return lambda session, values: session.change(lambda old: change(old, values))


def _margin(edit: Edit) -> Action:
    def change(old: EosConfiguration, values: Values) -> EosConfiguration:
        return old.with_block("", Block(edit(old.blocks.get("", Block()).facts, values, HERE)))

    return _change(change)


def _open(head: str, name: str = "name") -> Action:
    return lambda session, values: session.open_block(f"{head} {values.one(name, str)}")


def _forget(head: str) -> Action:
    return _change(lambda old, values: old.without_block(f"{head} {values.one('name', str)}"))


def _commands(*lines: tuple[str, Action]) -> tuple[Command[Action], ...]:
    return tuple(Command(pattern, action) for text, action in lines for pattern in patterns(text, ARGUMENTS))


_IN_POLICY_MAP: Final[tuple[Command[bool], ...]] = (
    Command(("class", ARGUMENTS["name"]), True),
    Command(("no", "class", ARGUMENTS["name"]), False),
)
_USER: Final = _commands(
    ("enable", _enable),
    ("exit", _exit),
    ("terminal length {width}", _terminal("Pagination disabled.")),
    ("terminal width {width}", _terminal("Width set to {} columns.")),
)
_EXEC: Final = _USER + _commands(
    ("disable", _disable),
    ("configure [terminal]", _start),
    ("configure session {name}", _start),
    ("configure session {name} commit [timer {timer}]", _end_session(commits=True)),
    ("configure session {name} abort", _end_session(commits=False)),
    ("end", _end),
    ("write memory", _save),
    ("copy running-config startup-config", _save),
    ("show running-config", _show_running_config),
    ("show running-config diffs", _show_unsaved),
    ("show version | json", _show_version),
    ("show hostname | json", _show_hostname),
    ("show lldp neighbors | json", _show_neighbours),
    ("show configuration sessions detail | json", _show_sessions),
)
_CONFIG: Final = (
    *(Command(command.pattern, _change(command.action)) for command in WHOLE_SWITCH),
    *(Command(command.pattern, _margin(command.action)) for command in GLOBAL.commands),
    *_commands(
        ("interface {interface}", _open("interface", "interface")),
        ("qos profile {name}", _open("qos profile")),
        *((f"{head} {{name}}", _open(head)) for head in NAMED_HEADS),
        *((f"no {head} {{name}}", _forget(head)) for head in NAMED_HEADS),
        ("commit [timer {timer}]", _end_session(commits=True)),
        ("abort", _end_session(commits=False)),
        ("exit", _exit),
        ("end", _end),
    ),
)
