"""An emulated Enterprise SONiC switch: a Linux shell, `sonic-cli` in it, modes, prompts, what a line does.

Stateful and strict: a line that the command tree lacks, or whose values are out of range, changes nothing
and is answered with klish's own `% Error: ...` or the `%Error: ...` of what checks values, or with a text
that ends in `[emulator]`. Each line takes effect at once; in each configuration mode the commands of the
global one and of the EXEC mode are known, too, as klish has it. There is no paging, and no remote command
(`ssh host command`).
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from mltswitch.lab.emulators import dell_sonic_show
from mltswitch.lab.emulators.dell_sonic_changes import NAME, Change
from mltswitch.lab.emulators.dell_sonic_commands import CREATE_MAP, GLOBAL, IN_INTERFACE, IN_MAP
from mltswitch.lab.emulators.dell_sonic_policies import (
    CREATE_PORT,
    CREATE_QUEUE,
    IN_CLASS_MAP,
    IN_FLOW,
    IN_SCHEDULER,
    IN_SCHEDULER_PORT,
    IN_SCHEDULER_QUEUE,
    IN_WRED,
    create_flows,
    create_wred,
)
from mltswitch.lab.emulators.dell_sonic_state import (
    MAP_KINDS,
    PORT_SECTION,
    DellSonicConfiguration,
    Port,
    default_configuration,
)
from mltswitch.lab.emulators.device import Answer, NamedDevice
from mltswitch.lab.emulators.grammar import Argument, Command, RefusalError, Values, choice, match, whole

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
        self.saved = self.configuration

    @property
    def ports(self) -> MappingProxyType[str, Port]:
        """Name → port, as it runs."""
        return MappingProxyType(dict(self.configuration.ports))

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


class Mode(StrEnum):
    """A session's mode."""

    SHELL = "shell"
    EXEC = "exec"
    CONFIG = "config"
    WRED = "wred"
    SCHEDULER = "scheduler"
    SCHEDULER_QUEUE = "scheduler queue"
    SCHEDULER_PORT = "scheduler port"
    MAP = "map"
    INTERFACE = "interface"
    CLASS_MAP = "class-map"
    POLICY_MAP = "policy-map"
    FLOW = "flow"


_OUTER: Final = {
    Mode.EXEC: Mode.SHELL,
    Mode.CONFIG: Mode.EXEC,
    Mode.WRED: Mode.CONFIG,
    Mode.SCHEDULER: Mode.CONFIG,
    Mode.SCHEDULER_QUEUE: Mode.SCHEDULER,
    Mode.SCHEDULER_PORT: Mode.SCHEDULER,
    Mode.MAP: Mode.CONFIG,
    Mode.INTERFACE: Mode.CONFIG,
    Mode.CLASS_MAP: Mode.CONFIG,
    Mode.POLICY_MAP: Mode.CONFIG,
    Mode.FLOW: Mode.POLICY_MAP,
}
Action = Callable[["DellSonicSession", Values], Answer]


class DellSonicSession:
    """One command line, with its mode and what the mode configures."""

    def __init__(self, device: DellSonicDevice, username: str) -> None:
        self.device = device
        self.username = username
        self.mode = Mode.SHELL
        self.place: tuple[str, ...] = ()
        """Names of the objects of the open modes."""
        self.map_kind = ""

    @property
    def prompt(self) -> str:
        """`sonic(conf-if-Eth1/1)# ` and the like."""
        name = self.device.name
        if self.mode is Mode.SHELL:
            return f"{self.username}@{name}:~$ "
        inner = {
            Mode.EXEC: "",
            Mode.CONFIG: "(config)",
            Mode.WRED: "(conf-wred-{0})",
            Mode.SCHEDULER: "(conf-sched-policy-{0})",
            Mode.SCHEDULER_QUEUE: "(conf-scheduler-{0}-queue-{1})",
            Mode.SCHEDULER_PORT: "(conf-scheduler-{0}-port)",
            Mode.MAP: f"(conf-{self.map_kind}-map-{{0}})",
            Mode.INTERFACE: "(conf-if-{0})",
            Mode.CLASS_MAP: "(config-class-map)",
            Mode.POLICY_MAP: "(config-policy-map)",
            Mode.FLOW: "(config-policy-map-flow)",
        }[self.mode]
        return f"{name}{inner.format(*self.place)}# "

    def enter(self, line: str) -> Answer:
        """Execute one line."""
        words = line.split()
        if not words:
            return Answer()
        if self.mode is Mode.SHELL:
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
            self.mode = Mode.EXEC
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
        if self.mode is Mode.MAP:
            yield _MAPS[self.map_kind]
        elif self.mode in _INNER:
            yield _INNER[self.mode]
        if self.mode is not Mode.EXEC:
            yield _CONFIG
        yield _EXEC

    def leave(self) -> None:
        """One mode outwards."""
        if self.mode in {Mode.SCHEDULER_QUEUE, Mode.SCHEDULER_PORT}:
            self.place = self.place[:1]
        elif self.mode is Mode.FLOW:
            self.place = self.place[:2]
        elif self.mode is not Mode.CONFIG:
            self.place = ()
        self.mode = _OUTER[self.mode]


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


def _exit(session: DellSonicSession, _values: Values) -> Answer:
    session.leave()
    return Answer()


def _end(session: DellSonicSession, _values: Values) -> Answer:
    session.mode, session.place = Mode.EXEC, ()
    return Answer()


def _configure_terminal(session: DellSonicSession, _values: Values) -> Answer:
    session.mode, session.place = Mode.CONFIG, ()
    return Answer()


def _apply(change: Change) -> Action:
    def action(session: DellSonicSession, values: Values) -> Answer:
        device = session.device
        device.configuration = change(device.configuration, values, session.place)
        return Answer()

    return action


def _open_object(mode: Mode, change: Change | None = None, kind: str = "") -> Action:
    """Open a mode of the configuration for a named object, which comes to exist."""

    def action(session: DellSonicSession, values: Values) -> Answer:
        device = session.device
        if change is not None:
            device.configuration = change(device.configuration, values, ())
        session.mode, session.place, session.map_kind = mode, (values.one("name", str),), kind
        return Answer()

    return action


def _open_queue(session: DellSonicSession, values: Values) -> Answer:
    _apply(CREATE_QUEUE)(session, values)
    session.place = (*session.place, str(values.one("queue", int)))
    session.mode = Mode.SCHEDULER_QUEUE
    return Answer()


def _open_port(session: DellSonicSession, values: Values) -> Answer:
    _apply(CREATE_PORT)(session, values)
    session.place = (*session.place, str(PORT_SECTION))
    session.mode = Mode.SCHEDULER_PORT
    return Answer()


def _open_flows(mode: Mode) -> Action:
    def action(session: DellSonicSession, values: Values) -> Answer:
        outer = session.place if mode is Mode.FLOW else (mode.value,)
        place = (*outer, values.one("name", str))
        device = session.device
        device.configuration = create_flows(device.configuration, values, place)
        session.mode, session.place = mode, place
        return Answer()

    return action


def _interface_name(session: DellSonicSession, values: Values) -> str:
    name = "Eth" + values.one("interface", str)
    if name not in session.device.configuration.ports:
        raise RefusalError("%Error: Interface not found [emulator]")
    return name


def _open_interface(session: DellSonicSession, values: Values) -> Answer:
    session.place = (_interface_name(session, values),)
    session.mode = Mode.INTERFACE
    return Answer()


def _save(session: DellSonicSession, _values: Values) -> Answer:
    session.device.saved = session.device.configuration
    return Answer()


def _show(show: Callable[[DellSonicConfiguration], str]) -> Action:
    return lambda session, _: Answer(show(session.device.configuration))


def _show_running_interface(session: DellSonicSession, values: Values) -> Answer:
    name = _interface_name(session, values)
    return Answer(dell_sonic_show.interface(name, session.device.configuration.ports[name]))


def _show_qos_interface(session: DellSonicSession, values: Values) -> Answer:
    name = _interface_name(session, values)
    return Answer(dell_sonic_show.qos_interface(session.device.configuration.ports[name]))


def _parse_port(word: str) -> str:
    """`Eth1/1` in one word; klish takes `e`, `et` and `eth`, too."""
    name = word.lower().lstrip("eth") if word[:1].isalpha() else ""
    if not name or not word.lower().startswith(("e", "et", "eth")):
        raise ValueError("interface is Eth1/1 and the like")
    return name


_PORT: Final = Argument("interface", _parse_port)
_PORT_IN_TWO_WORDS: Final = (choice("kind", "Eth", "eth"), Argument("interface", str))


def _with_port(*words: str, action: Action) -> tuple[Command[Action], ...]:
    return Command((*words, _PORT), action), Command((*words, *_PORT_IN_TWO_WORDS), action)


_EXEC: Final[tuple[Command[Action], ...]] = (
    Command(("exit",), _exit),
    Command(("configure", "terminal"), _configure_terminal),
    Command(("terminal", "length", whole("length", 0, 255)), lambda _, __: Answer()),
    Command(("write", "memory"), _save),
    Command(("show", "running-configuration"), _show(dell_sonic_show.running_configuration)),
    *_with_port("show", "running-configuration", "interface", action=_show_running_interface),
    Command(("show", "qos", "wred-policy"), _show(dell_sonic_show.wred_policies)),
    Command(("show", "qos", "scheduler-policy"), _show(dell_sonic_show.scheduler_policies)),
    Command(
        ("show", "qos", "map", "dscp-tc"),
        _show(lambda configuration: dell_sonic_show.qos_map(configuration, "dscp-tc")),
    ),
    Command(
        ("show", "qos", "map", "tc-queue"),
        _show(lambda configuration: dell_sonic_show.qos_map(configuration, "tc-queue")),
    ),
    *_with_port("show", "qos", "interface", action=_show_qos_interface),
)
_CONFIG: Final[tuple[Command[Action], ...]] = (
    Command(("end",), _end),
    *(Command(command.pattern, _apply(command.action)) for command in GLOBAL),
    Command(("qos", "wred-policy", NAME), _open_object(Mode.WRED, create_wred)),
    Command(("qos", "scheduler-policy", NAME), _open_object(Mode.SCHEDULER)),
    *(
        Command(("qos", "map", kind, NAME), _open_object(Mode.MAP, CREATE_MAP[kind], kind))
        for kind in MAP_KINDS
    ),
    *_with_port("interface", action=_open_interface),
    Command(("class-map", NAME, "match-type", "fields", "match-all"), _open_flows(Mode.CLASS_MAP)),
    Command(("policy-map", NAME, "type", "qos"), _open_flows(Mode.POLICY_MAP)),
)


def _all(commands: tuple[Command[Change], ...]) -> tuple[Command[Action], ...]:
    return tuple(Command(command.pattern, _apply(command.action)) for command in commands)


_INNER: Final[dict[Mode, tuple[Command[Action], ...]]] = {
    Mode.WRED: _all(IN_WRED),
    Mode.SCHEDULER: (
        *_all(IN_SCHEDULER),
        Command(("queue", whole("queue", 0, 47)), _open_queue),
        Command(("port",), _open_port),
    ),
    Mode.SCHEDULER_QUEUE: _all(IN_SCHEDULER_QUEUE),
    Mode.SCHEDULER_PORT: _all(IN_SCHEDULER_PORT),
    Mode.INTERFACE: _all(IN_INTERFACE),
    Mode.CLASS_MAP: _all(IN_CLASS_MAP),
    Mode.POLICY_MAP: (
        Command(("class", NAME, "priority", whole("priority", 0, 4095)), _open_flows(Mode.FLOW)),
    ),
    Mode.FLOW: _all(IN_FLOW),
}
_MAPS: Final = {kind: _all(commands) for kind, commands in IN_MAP.items()}
