"""An emulated FASTPATH (ICOS) switch: modes, prompts and what each line does.

Stateful and strict: a line that the grammar lacks, or whose values are out of range, changes nothing and is
answered with the switch's own `% Invalid input` or `Command not found`, or with a text that ends in
`[emulator]`. Each line takes effect at once; `write memory` asks before it saves, `write memory confirm` does
not. There is no paging, and no remote command (`ssh host command`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, ClassVar, Final, TypeVar

from switchsim import icos_show
from switchsim.device import Answer
from switchsim.grammar import Argument, Command, RefusalError, Values, invalid, match
from switchsim.icos_diffserv import (
    FAMILY,
    IN_CLASS,
    IN_POLICY,
    IN_POLICY_CLASS,
    NAME,
    ActionChange,
    ClassChange,
    DiffServ,
    define_class,
)
from switchsim.icos_sheet import BRIDGING, EVERYWHERE, OF_PORT, PORT, ROUTED, SWITCH, commands
from switchsim.settings import Edit, SheetDevice, patterns

MAX_PORTS: Final = 128
INVALID: Final = "                ^\n% Invalid input detected at '^' marker.\n"
INCOMPLETE: Final = "Command not found / Incomplete command. Use ? to list commands.\n"
NO_INTERFACE: Final = "An invalid interface has been used for this function"
"""As PowerConnect and N-series switches say it; no percent sign marks it."""
QUESTION: Final = (
    "This operation may take a few minutes.\n"
    "Management interfaces will not be available during this time.\n\n"
    "Are you sure you want to save? (y/n) "
)
SAVED: Final = "\nConfig file 'startup-config' created successfully .\n\nConfiguration Saved!\n"


class Mode(IntEnum):
    """A session's mode."""

    USER = 0
    EXEC = 1
    CONFIG = 2
    INTERFACE = 3
    BRIDGING = 4
    CLASS = 5
    POLICY = 6
    POLICY_CLASS = 7


_AROUND: Final = {
    Mode.CONFIG: Mode.EXEC,
    Mode.INTERFACE: Mode.CONFIG,
    Mode.BRIDGING: Mode.INTERFACE,
    Mode.CLASS: Mode.CONFIG,
    Mode.POLICY: Mode.CONFIG,
    Mode.POLICY_CLASS: Mode.POLICY,
}
"""Where `exit` leads."""


class IcosSession:
    """One command line, with its mode."""

    def __init__(self, device: "IcosDevice") -> None:
        self.device = device
        self.mode = Mode.USER
        self.interface = ""
        self.class_name = self.policy_name = ""
        """Of DiffServ, as far as its modes are open."""
        self.asking = False
        """Whether the next line answers `Are you sure you want to save?`."""

    @property
    def prompt(self) -> str:
        """`(icos1) (Interface 0/1)#` and the like."""
        if self.asking:
            return ""
        inner = {
            Mode.USER: ">",
            Mode.EXEC: "#",
            Mode.CONFIG: "(Config)#",
            Mode.INTERFACE: f"(Interface {self.interface})#",
            Mode.BRIDGING: "(config-if-dcb)#",
            Mode.CLASS: "(Config-classmap)#",
            Mode.POLICY: "(Config-policy-map)#",
            Mode.POLICY_CLASS: "(Config-policy-classmap)#",
        }[self.mode]
        return f"({self.device.name}) {inner}"

    def enter(self, line: str) -> Answer:
        """Execute one line."""
        if self.asking:
            return self._answer(line)
        words = line.split()
        if not words or words[0].startswith("!"):
            return Answer()
        try:
            found = match(_BY_MODE[self.mode], words)
            with self.device.exclusively():
                return found.action(self, Values(found.values))
        except RefusalError as refusal:
            return Answer(_refused(str(refusal)))

    def _answer(self, line: str) -> Answer:
        self.asking = False
        if line.strip().lower() != "y":
            return Answer("\nConfiguration Not Saved!\n")
        return _save(self, Values({}))


class IcosDevice(SheetDevice):
    """One switch, whose ports 1 to `ports` are named by a pattern: `0/{n}`, `1/0/{n}` or `te1/0/{n}`.

    `fact(port, what)` is a setting of a port; `fact("", "diffserv")` holds the classes and policies.
    """

    usual_ports: ClassVar[int] = 48
    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "n4000": {"model": "N4032F"},
        "n3000": {"model": "N3048"},
    }
    session_class: ClassVar[type[IcosSession]] = IcosSession
    opening: ClassVar[Sequence[str]] = ("enable", "configure")

    def __init__(
        self, name: str = "icos1", ports: int = 16, pattern: str = "te1/0/{n}", model: str = "N4032F"
    ) -> None:
        names = [pattern.replace("{n}", str(number)) for number in range(1, ports + 1)]
        super().__init__(name, names, MAX_PORTS, model, icos_show.RELEASE)

    def fact(self, where: str, what: str, *keys: Any) -> Any:
        """What runs: `fact("te1/0/1", "trust")`, `fact("", "queue-of-dscp", 48)`."""
        return (PORT if where else SWITCH).fact(self.configuration, where, what, *keys)


Action = Callable[[IcosSession, Values], Answer]
_Kind = TypeVar("_Kind")


def _refused(text: str) -> str:
    """The shared grammar's texts in FASTPATH's words; those about values are ours."""
    if text.startswith("% Unrecognized"):
        return INVALID
    return INCOMPLETE if text.startswith("% Incomplete") else f"{text}\n"


def _to(mode: Mode) -> Action:
    def action(session: IcosSession, _values: Values) -> Answer:
        session.mode = mode
        return Answer()

    return action


def _exit(session: IcosSession, _values: Values) -> Answer:
    if session.mode <= Mode.EXEC:
        return Answer(closes=True)
    session.mode = _AROUND[session.mode]
    return Answer()


def _open_interface(session: IcosSession, values: Values) -> Answer:
    session.interface = _port_name(session, values)
    session.mode = Mode.INTERFACE
    return Answer()


def _port_name(session: IcosSession, values: Values) -> str:
    name = values.one("interface", str)
    if name not in session.device.ports:
        raise RefusalError(NO_INTERFACE)
    return name


def _configure(edit: Edit) -> Action:
    """A line of ports: of the one whose mode is open, or of all."""

    def action(session: IcosSession, values: Values) -> Answer:
        device = session.device
        ports = device.ports if session.mode is Mode.CONFIG else (session.interface,)
        device.configuration = edit(device.configuration, values, ports)
        return Answer()

    return action


def _configure_switch(edit: Edit) -> Action:
    def action(session: IcosSession, values: Values) -> Answer:
        session.device.configuration = edit(session.device.configuration, values, ("",))
        return Answer()

    return action


def _diffserv(session: IcosSession) -> DiffServ:
    found: DiffServ = session.device.fact("", "diffserv")
    return found


def _store(session: IcosSession, diffserv: DiffServ) -> Answer:
    device = session.device
    device.configuration = SWITCH.with_fact(device.configuration, ("", "diffserv"), diffserv)
    return Answer()


def _delete_policy(session: IcosSession, values: Values) -> Answer:
    policy = values.one("name", str)
    if any(fact[1:] == ("policy", policy) for fact in session.device.configuration):
        raise invalid(f"policy {policy} is in use")
    return _store(session, _diffserv(session).without_policy(policy))


def _open_class(session: IcosSession, values: Values) -> Answer:
    _store(session, define_class(_diffserv(session), values))
    session.class_name, session.mode = values.one("name", str), Mode.CLASS
    return Answer()


def _open_policy(session: IcosSession, values: Values) -> Answer:
    old, name = _diffserv(session), values.one("name", str)
    if name not in old.policies:
        _store(session, old.with_policy(name, {}))
    session.policy_name, session.mode = name, Mode.POLICY
    return Answer()


def _in_class(change: ClassChange) -> Action:
    def action(session: IcosSession, values: Values) -> Answer:
        old, name = _diffserv(session), session.class_name
        _store(session, old.with_class(name, change(old.classes[name], values)))
        return Answer()

    return action


def _in_policy(*, opens: bool) -> Action:
    def action(session: IcosSession, values: Values) -> Answer:
        old, name = _diffserv(session), values.one("name", str)
        instances = dict(old.policies[session.policy_name])
        if not opens:
            if name not in instances:
                raise invalid(f"class {name} is not in this policy")
            del instances[name]
        elif name not in old.classes:
            raise invalid(f"there is no class {name}")
        else:
            instances.setdefault(name, {})
            session.class_name, session.mode = name, Mode.POLICY_CLASS
        _store(session, old.with_policy(session.policy_name, instances))
        return Answer()

    return action


def _in_policy_class(change: ActionChange) -> Action:
    def action(session: IcosSession, values: Values) -> Answer:
        old = _diffserv(session)
        instances = old.policies[session.policy_name]
        changed = change(instances[session.class_name], values)
        _store(session, old.with_policy(session.policy_name, {**instances, session.class_name: changed}))
        return Answer()

    return action


def _ask(session: IcosSession, _values: Values) -> Answer:
    session.asking = True
    return Answer(QUESTION)


def _save(session: IcosSession, _values: Values) -> Answer:
    device = session.device
    with device.exclusively():
        device.files[device.active_file] = device.configuration
    return Answer(SAVED)


def _show(show: Callable[[IcosDevice], str]) -> Action:
    return lambda session, _values: Answer(show(session.device))


def _show_port(show: Callable[[IcosDevice, str], str]) -> Action:
    return lambda session, values: Answer(show(session.device, _port_name(session, values)))


_ARGUMENTS: Final = {
    "interface": Argument("interface", str.lower),
    "length": Argument("length", int),
    "name": NAME,
    "family": FAMILY,
}


def _commands(*rows: tuple[str, Action]) -> tuple[Command[Action], ...]:
    return tuple(Command(pattern, action) for text, action in rows for pattern in patterns(text, _ARGUMENTS))


def _inside(
    commands: tuple[Command[_Kind], ...], kind: Callable[[_Kind], Action]
) -> tuple[Command[Action], ...]:
    """The commands of a mode of the configuration, and those that leave it."""
    leave = _commands(("exit", _exit), ("end", _to(Mode.EXEC)))
    return (*leave, *(Command(command.pattern, kind(command.action)) for command in commands))


_USER: Final = _commands(
    ("enable", _to(Mode.EXEC)),
    ("exit", _exit),
    ("logout", lambda _session, _values: Answer(closes=True)),
    ("terminal length {length}", lambda _session, _values: Answer()),
)
_BY_MODE: Final = {
    Mode.USER: _USER,
    Mode.EXEC: _USER
    + _commands(
        ("configure", _to(Mode.CONFIG)),
        ("write memory", _ask),
        ("write memory confirm", _save),
        ("show version", _show(icos_show.version)),
        ("show hosts", _show(icos_show.hosts)),
        ("show lldp remote-device all", _show(icos_show.neighbours)),
        ("show running-config", _show(icos_show.running_config)),
        ("show classofservice ip-dscp-mapping", _show(icos_show.dscp_map)),
        ("show classofservice trust {interface}", _show_port(icos_show.trust)),
        (
            "show classofservice dot1p-mapping {interface}",
            _show_port(icos_show.priority_map),
        ),
        ("show interfaces cos-queue {interface}", _show_port(icos_show.queues)),
        ("show interfaces random-detect {interface}", _show_port(icos_show.curves)),
    ),
    Mode.CONFIG: _inside(commands(*EVERYWHERE), _configure)
    + tuple(Command(command.pattern, _configure_switch(command.action)) for command in SWITCH.commands)
    + _commands(
        ("diffserv", lambda session, _: _store(session, replace(_diffserv(session), is_on=True))),
        ("no diffserv", lambda session, _: _store(session, replace(_diffserv(session), is_on=False))),
        (
            "no class-map {name}",
            lambda session, values: _store(
                session, _diffserv(session).without_class(values.one("name", str))
            ),
        ),
        ("no policy-map {name}", _delete_policy),
        ("interface {interface}", _open_interface),
        ("class-map match-all {name} [{family}]", _open_class),
        ("policy-map {name} in", _open_policy),
    ),
    Mode.INTERFACE: _inside(commands(*OF_PORT, *EVERYWHERE, *ROUTED), _configure)
    + _commands(("datacenter-bridging", _to(Mode.BRIDGING))),
    Mode.BRIDGING: _inside(commands(*BRIDGING), _configure),
    Mode.CLASS: _inside(IN_CLASS, _in_class),
    Mode.POLICY: _inside(IN_POLICY, lambda opens: _in_policy(opens=opens)),
    Mode.POLICY_CLASS: _inside(IN_POLICY_CLASS, _in_policy_class),
}
