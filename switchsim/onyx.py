"""An emulated NVIDIA/Mellanox Onyx switch: modes, prompts and what each line does.

Stateful and strict: a line that the grammar lacks, or whose values are out of range, changes nothing and is
answered with a line that starts with `%`. Prefix modes are on by default, as on the switch: then `interface
ethernet 1/1` alone opens a sub-mode in which every line but `exit` and `show` is prefixed. Each line takes
effect at once; `configuration write` saves. There is no paging, and no remote command (`ssh host command`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import ClassVar, Final

from switchsim import onyx_show
from switchsim.device import Answer
from switchsim.grammar import Command, RefusalError, Values, invalid, match
from switchsim.onyx_sheet import ARGUMENTS, MAX_PORTS, SHEET
from switchsim.settings import Edit, Sheet, SheetDevice, patterns

MAX_FILES: Final = 16


class Mode(IntEnum):
    """A session's mode; each allows what the lower ones show."""

    USER = 0
    ENABLE = 1
    CONFIG = 2


class OnyxSession:
    """One command line, with its mode."""

    def __init__(self, device: "OnyxDevice") -> None:
        self.device = device
        self.mode = Mode.USER
        self.prefix: tuple[str, ...] = ()
        """Words that a sub-mode puts before each line."""

    @property
    def prompt(self) -> str:
        """`onyx1 [standalone: master] (config) # ` and the like."""
        stem = f"{self.device.name} [standalone: master] "
        if self.mode is Mode.CONFIG:
            return f"{stem}({' '.join(('config', *self.prefix))}) # "
        return f"{stem}# " if self.mode is Mode.ENABLE else f"{stem}> "

    def enter(self, line: str) -> Answer:
        """Execute one line."""
        command, pipe, filter_text = line.partition("|")
        words = command.split()
        if not words:
            return Answer() if not pipe else Answer('% Unrecognized command "|".\nType "?" for help.\n')
        if self.prefix and words[0] not in {"exit", "show"}:
            words = [*self.prefix, *words]
        try:
            found = match(_BY_MODE[self.mode], _positive(words))
            if pipe and (wrong := " ".join(filter_text.split())) != "json-print":
                return Answer(f'% Unrecognized command "{wrong}".\nType "?" for help.\n')
            with self.device.exclusively():
                return found.action(self, Values(found.values), bool(pipe))
        except RefusalError as refusal:
            return Answer(f"{refusal}\n")

    def ports(self, values: Values) -> tuple[str, ...]:
        """The ports that a line names; raises RefusalError where one of them is not there."""
        named = values.maybe("ports", tuple) or values.all("port", str)
        for name in named:
            if name not in self.device.ports:
                raise invalid(f"there is no interface ethernet {name}")
        return named


class OnyxDevice(SheetDevice):
    """One switch with ports 1/1 to 1/`ports`."""

    usual_ports: ClassVar[int] = 16
    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "sn2100": {"model": "MSN2100-CB2F"},
        "sn2700": {"model": "MSN2700-CS2F"},
    }
    sheet: ClassVar[Sheet] = SHEET
    active_file: ClassVar[str] = "initial"
    session_class: ClassVar[type[OnyxSession]] = OnyxSession

    def __init__(self, name: str = "onyx1", ports: int = 16, model: str = "MSN2100-CB2F") -> None:
        names = [f"1/{number}" for number in range(1, ports + 1)]
        super().__init__(name, names, MAX_PORTS, model, onyx_show.RELEASE)


Action = Callable[[OnyxSession, Values, bool], Answer]
"""What a line does; the last says whether `| json-print` stands behind it."""


def _positive(words: Sequence[str]) -> Sequence[str]:
    """`no interface ethernet 1/1 X` is another way to write `interface ethernet 1/1 no X`."""
    if len(words) > 4 and words[0] == "no" and words[1] and "interface".startswith(words[1]):
        return (*words[1:4], "no", *words[4:])
    return words


def _does(act: Callable[[OnyxSession, Values], Answer | None]) -> Action:
    """A line that shows nothing."""

    def action(session: OnyxSession, values: Values, is_json: bool) -> Answer:
        if is_json:
            raise invalid("only a show command takes `| json-print`")
        return act(session, values) or Answer()

    return action


def _shows(show: Callable[[OnyxSession, Values], onyx_show.JsonValue]) -> Action:
    """A show command, which has a JSON form if it is no plain text."""

    def action(session: OnyxSession, values: Values, is_json: bool) -> Answer:
        shown = show(session, values)
        if is_json and isinstance(shown, str):
            raise invalid("this command has no JSON form")
        text = json.dumps(shown, indent=4) + "\n" if is_json else _plain(shown)
        return Answer(shown if isinstance(shown, str) else text)

    return action


def _shows_port(show: Callable[[OnyxDevice, str], onyx_show.JsonValue]) -> Action:
    return _shows(lambda session, values: show(session.device, *session.ports(values)))


def _plain(shown: onyx_show.JsonValue, indentation: str = "") -> str:
    """The same facts as `name: value` lines; this text form is ours, the JSON form is the switch's."""
    if isinstance(shown, str):
        return f"{indentation}{shown}\n"
    if isinstance(shown, list):
        return "".join(_plain(entry, indentation) for entry in shown)
    text = ""
    for name, value in shown.items():
        inner = f" {value}\n" if isinstance(value, str) else f"\n{_plain(value, indentation + '  ')}"
        text += f"{indentation}{name}:{inner}"
    return text


def _switches_to(mode: Mode) -> Action:
    return _does(lambda session, _: setattr(session, "mode", mode))


def _exit(session: OnyxSession, _: Values) -> Answer | None:
    if session.mode is not Mode.CONFIG:
        return Answer(closes=True)
    if not session.prefix:
        session.mode = Mode.ENABLE
    session.prefix = ()
    return None


def _configures(edit: Edit) -> Action:
    def act(session: OnyxSession, values: Values) -> None:
        device = session.device
        device.configuration = edit(device.configuration, values, session.ports(values) or ("",))

    return _does(act)


def _open_interface(session: OnyxSession, values: Values) -> None:
    if not session.device.fact("", "prefix-modes"):
        raise RefusalError("% Incomplete command: prefix modes are off [emulator]")
    ports = session.ports(values)
    session.prefix = ("interface", "ethernet", "-".join(dict.fromkeys((ports[0], ports[-1]))))


def _open_access_list(session: OnyxSession, values: Values) -> None:
    """Makes it where there is none, and opens its mode (user manual, ACL Commands)."""
    name, device = values.one("name", str), session.device
    device.configuration = MappingProxyType({**device.configuration, ("", "access-list", name): True})
    session.prefix = ("ipv4", "access-list", name)


def _save(session: OnyxSession, values: Values) -> None:
    files = session.device.files
    name = values.maybe("name", str) or session.device.active_file
    if name not in files and len(files) >= MAX_FILES:
        raise invalid(f"there are {MAX_FILES} configuration files already")
    files[name] = session.device.configuration


def _commands(rows: Mapping[str, Action]) -> tuple[Command[Action], ...]:
    return tuple(
        Command(pattern, action) for text, action in rows.items() for pattern in patterns(text, ARGUMENTS)
    )


_EVERYWHERE: Final[Mapping[str, Action]] = {
    "exit": _does(_exit),
    "no cli session paging enable": _does(lambda *_: None),
    "cli session paging enable": _does(lambda *_: None),
    "show version": _shows(lambda session, _: onyx_show.version(session.device)),
    "show hosts": _shows(lambda session, _: f"Hostname: {session.device.name}\n"),
    "show lldp interfaces ethernet remote": _shows(lambda session, _: onyx_show.neighbours(session.device)),
    "show inventory": _shows(lambda session, _: onyx_show.inventory(session.device)),
    "show interfaces ethernet {port} congestion-control": _shows_port(onyx_show.congestion_control),
    "show dcb ets interface ethernet {port}": _shows_port(onyx_show.ets),
    "show qos interface ethernet {port}": _shows_port(onyx_show.qos),
    "show dcb priority-flow-control": _shows(
        lambda session, _: onyx_show.priority_flow_control(session.device)
    ),
    "show ip route": _shows(lambda session, _: onyx_show.ip_route(session.device)),
}
_PRIVILEGED: Final[Mapping[str, Action]] = {
    **_EVERYWHERE,
    "show running-config": _shows(lambda session, _: onyx_show.running_config(session.device)),
    "show configuration files": _shows(lambda session, _: onyx_show.files(session.device)),
}
_BY_MODE: Final = {
    Mode.USER: _commands({**_EVERYWHERE, "enable": _switches_to(Mode.ENABLE)}),
    Mode.ENABLE: _commands(
        {
            **_PRIVILEGED,
            "enable": _switches_to(Mode.ENABLE),
            "disable": _switches_to(Mode.USER),
            "configure terminal": _switches_to(Mode.CONFIG),
        }
    ),
    Mode.CONFIG: _commands(
        {
            **_PRIVILEGED,
            "interface ethernet {ports}": _does(_open_interface),
            "ipv4 access-list {access-list}": _does(_open_access_list),
            "configuration write [to {name} no-switch]": _does(_save),
            "write memory": _does(_save),
        }
    )
    + tuple(Command(command.pattern, _configures(command.action)) for command in SHEET.commands),
}
