"""An emulated Enterprise SONiC switch: a Linux shell, `sonic-cli` in it, modes, prompts, what a line does.

Stateful and strict: a line that the command tree lacks, or whose values are out of range, changes nothing
and is answered with klish's own `% Error: ...` or the `%Error: ...` of what checks values, or with a text
that ends in `[emulator]`. Each line takes effect at once; in each configuration mode the commands of the
global one and of the EXEC mode are known, too, as klish has it. There is no paging, and no remote command
(`ssh host command`).
"""

from collections.abc import Callable, Iterator
from typing import Final

from switchsim import dell_sonic_show
from switchsim.dell_sonic_modes import (
    ARGUMENTS,
    INNER,
    MAP_KINDS,
    MODES,
    SCHEDULER,
    kind_of,
    name_in,
)
from switchsim.dell_sonic_settings import (
    DELETE_QUEUE,
    GLOBAL,
    Change,
    DellSonicConfiguration,
    check_block,
    default_configuration,
    open_flow,
    open_queue,
)
from switchsim.device import Answer, NamedDevice
from switchsim.grammar import Command, RefusalError, Values, match
from switchsim.settings import HERE, Block, Edit, patterns

MAX_PORTS: Final = 256
PORT_PATTERN: Final = "Eth1/{n}"
INVALID: Final = '% Error: Invalid input detected at "^" marker.\n'
INCOMPLETE: Final = "% Error: The command is not completed.\n"
AMBIGUOUS: Final = "% Error: Ambiguous command.\n"


class DellSonicDevice(NamedDevice):
    """One switch; `configuration` is what runs, `saved` what it would start with.

    Its ports are Eth1/1 to Eth1/`ports`, as `interface-naming standard` names them.
    """

    def __init__(self, name: str = "sonic", ports: int = 32) -> None:
        super().__init__(name, ports, MAX_PORTS)
        names = tuple(PORT_PATTERN.replace("{n}", str(number)) for number in range(1, ports + 1))
        self.configuration = default_configuration(names)
        self.box = dell_sonic_show.BOX
        self.saved = self.configuration

    def reboot(self) -> None:
        """Start anew, with what was saved."""
        with self._lock:
            self.configuration = self.saved

    def open_session(self, username: str) -> "DellSonicSession":
        """A session in the Linux shell."""
        return DellSonicSession(self, username)

    def configure(self, *lines: str) -> str:
        """Enter lines in configuration mode, without SSH; returns what they print."""
        session = DellSonicSession(self, "admin")
        answers = [session.enter(line).text for line in ("sonic-cli", "configure terminal", *lines)]
        return "".join(answers)


Action = Callable[["DellSonicSession", Values], Answer]


class DellSonicSession:
    """One command line, with its mode and what the mode configures."""

    def __init__(self, device: DellSonicDevice, username: str) -> None:
        self.device = device
        self.username = username
        self.is_shell, self.configuring = True, False
        self.head = self.inner = ""
        """Of the open modes of the configuration."""

    @property
    def prompt(self) -> str:
        """`sonic(conf-if-Eth1/1)# ` and the like."""
        name = self.device.name
        if self.is_shell:
            return f"{self.username}@{name}:~$ "
        if not self.head:
            return f"{name}(config)# " if self.configuring else f"{name}# "
        mode = MODES[kind_of(self.head)]
        prompt = mode.inner_prompt if self.inner else mode.prompt
        return f"{name}{prompt.format(name_in(self.head), self.inner.replace(' ', '-'))}# "

    def enter(self, line: str) -> Answer:
        """Execute one line."""
        words = line.split()
        if not words:
            return Answer()
        if self.is_shell:
            return self._enter_shell(words)
        if words[0].startswith("!"):
            return Answer()
        try:
            with self.device.exclusively():
                return self._execute(words)
        except RefusalError as refusal:
            return Answer(_refused(str(refusal)))

    def _enter_shell(self, words: list[str]) -> Answer:
        if words == ["sonic-cli"]:
            self.is_shell = False
            return Answer()
        if words in (["exit"], ["logout"]):
            return Answer(closes=True)
        return Answer(f"-bash: {words[0]}: command not found\n")

    def _execute(self, words: list[str]) -> Answer:
        """The mode's own commands first, then those that it inherits."""
        refusals: list[RefusalError] = []
        for commands in self._tables():
            try:
                found = match(commands, words)
            except RefusalError as refusal:
                refusals.append(refusal)
                continue
            return found.action(self, Values(found.values))
        raise max(refusals, key=lambda refusal: not str(refusal).startswith("% Unrecognized"))

    def _tables(self) -> Iterator[tuple[Command[Action], ...]]:
        if self.inner:
            yield _INNER["class" if self.inner.startswith("class ") else self.inner.split(" ")[0]]
        elif self.head:
            yield _OUTER[kind_of(self.head)]
        if self.configuring:
            yield _CONFIG
        yield _EXEC

    def enter_mode(self, *, configuring: bool, head: str = "", inner: str = "") -> Answer:
        """Another mode from now on."""
        self.configuring, self.head, self.inner = configuring, head, inner
        return Answer()

    def leave(self) -> Answer:
        """One mode outwards."""
        if not self.configuring:
            self.is_shell = True
        outer = self.head if self.inner else ""
        return self.enter_mode(configuring=bool(self.head), head=outer)


def _refused(text: str) -> str:
    """The shared grammar's texts in klish's words; those of what checks values stand as they are."""
    if text.startswith("% Unrecognized"):
        return INVALID
    if text.startswith("% Incomplete"):
        return INCOMPLETE
    if text.startswith("% Ambiguous"):
        return AMBIGUOUS
    if text.startswith("% Invalid input: "):
        return f"% Error: {text.removeprefix('% Invalid input: ')}\n"
    return f"{text}\n"


def _edit(edit: Edit) -> Action:
    """A line of the open mode."""

    def action(session: DellSonicSession, values: Values) -> Answer:
        old, head, inner = session.device.configuration, session.head, session.inner
        block = old.blocks.get(head)
        if block is None or (inner and inner not in block.inner):  # somebody else has removed it
            raise RefusalError("%Error: Resource not found [emulator]")
        if inner:
            changed = block.with_inner(inner, edit(block.inner[inner], values, HERE))
        else:
            changed = Block(edit(block.facts, values, HERE), block.inner)
        check_block(old, head, inner, changed)
        session.device.configuration = old.with_block(head, changed)
        return Answer()

    return action


def _apply(change: Change) -> Action:
    def action(session: DellSonicSession, values: Values) -> Answer:
        device = session.device
        device.configuration = change(device.configuration, values, session.head)
        return Answer()

    return action


def _open(kind: str, tail: str = "", *, creates: bool = True) -> Action:
    """Open the mode of a named object, which comes to exist."""

    def action(session: DellSonicSession, values: Values) -> Answer:
        head, device = f"{kind} {values.one('name', str)}{tail}", session.device
        if creates and head not in device.configuration.blocks:
            device.configuration = device.configuration.with_block(head, Block())
        return session.enter_mode(configuring=True, head=head)

    return action


def _open_queue(session: DellSonicSession, values: Values) -> Answer:
    queue, device = values.maybe("queue", int), session.device
    inner = "port" if queue is None else f"queue {queue}"
    device.configuration = open_queue(device.configuration, inner, session.head)
    return session.enter_mode(configuring=True, head=session.head, inner=inner)


def _open_flow(session: DellSonicSession, values: Values) -> Answer:
    device = session.device
    if session.head not in device.configuration.blocks:
        raise RefusalError("%Error: Resource not found [emulator]")
    device.configuration, inner = open_flow(device.configuration, values, session.head)
    return session.enter_mode(configuring=True, head=session.head, inner=inner)


def _interface(session: DellSonicSession, values: Values) -> str:
    head = f"interface Eth{values.one('interface', str)}"
    if head not in session.device.configuration.blocks:
        raise RefusalError("%Error: Interface not found [emulator]")
    return head


def _save(session: DellSonicSession, _values: Values) -> Answer:
    session.device.saved = session.device.configuration
    return Answer()


def _show(show: Callable[[DellSonicConfiguration], str]) -> Action:
    return lambda session, _: Answer(show(session.device.configuration))


def _show_interface(show: Callable[[DellSonicConfiguration, str], str]) -> Action:
    return lambda session, values: Answer(show(session.device.configuration, _interface(session, values)))


def _commands(*rows: tuple[str, Action]) -> tuple[Command[Action], ...]:
    """A port is `Eth1/1` in one word or in two."""
    both = (
        (each, action)
        for text, action in rows
        for each in dict.fromkeys((text, text.replace("{interface}", "{eth} {number}")))
    )
    return tuple(Command(pattern, action) for text, action in both for pattern in patterns(text, ARGUMENTS))


def _edits(commands: tuple[Command[Edit], ...]) -> tuple[Command[Action], ...]:
    return tuple(Command(command.pattern, _edit(command.action)) for command in commands)


def _changes(commands: tuple[Command[Change], ...]) -> tuple[Command[Action], ...]:
    return tuple(Command(command.pattern, _apply(command.action)) for command in commands)


_EXEC: Final = _commands(
    ("exit", lambda session, _: session.leave()),
    ("configure terminal", lambda session, _: session.enter_mode(configuring=True)),
    ("terminal length {length}", lambda _, __: Answer()),
    ("write memory", _save),
    ("show version", lambda session, _: Answer(dell_sonic_show.version(session.device.box))),
    ("show running-configuration", _show(dell_sonic_show.running_configuration)),
    ("show running-configuration interface {interface}", _show_interface(dell_sonic_show.interface)),
    ("show qos wred-policy", _show(dell_sonic_show.wred_policies)),
    ("show qos scheduler-policy", _show(dell_sonic_show.scheduler_policies)),
    ("show qos map dscp-tc", _show(lambda shown: dell_sonic_show.qos_map(shown, "dscp-tc"))),
    ("show qos map tc-queue", _show(lambda shown: dell_sonic_show.qos_map(shown, "tc-queue"))),
    ("show qos interface {interface}", _show_interface(dell_sonic_show.qos_interface)),
)
_CONFIG: Final = (
    *_changes(GLOBAL),
    *_commands(
        ("end", lambda session, _: session.enter_mode(configuring=False)),
        ("qos wred-policy {name}", _open("qos wred-policy")),
        ("qos scheduler-policy {name}", _open(SCHEDULER, creates=False)),
        *((f"qos map {kind} {{name}}", _open(f"qos map {kind}")) for kind in MAP_KINDS),
        (
            "interface {interface}",
            lambda session, values: session.enter_mode(configuring=True, head=_interface(session, values)),
        ),
        (
            "class-map {name} match-type fields match-all",
            _open("class-map", " match-type fields match-all"),
        ),
        ("policy-map {name} type qos", _open("policy-map", " type qos")),
    ),
)
_OUTER: Final = {kind: _edits(mode.commands) for kind, mode in MODES.items()} | {
    SCHEDULER: (
        *_changes(DELETE_QUEUE),
        *_commands(("queue {any-queue}", _open_queue), ("port", _open_queue)),
    ),
    "policy-map": _commands(("class {name} priority {flow-priority}", _open_flow)),
}
_INNER: Final = {kind: _edits(sheet.commands) for kind, sheet in INNER.items()}
