"""An emulated NVIDIA/Mellanox Onyx switch: modes, prompts and what each line does.

Stateful and strict: a line that the grammar lacks, or whose values are out of range, changes nothing and is
answered with a line that starts with `%`. Prefix modes are on by default, as on the switch: then `interface
ethernet 1/1` alone opens a sub-mode in which every line but `exit` and `show` is prefixed. Each line takes
effect at once; `configuration write` saves. There is no paging, and no remote command (`ssh host command`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import IntEnum
from types import MappingProxyType
from typing import ClassVar, Final

from switchsim import onyx_show
from switchsim.device import Answer, NamedDevice
from switchsim.grammar import Command, RefusalError, Values, invalid, match
from switchsim.onyx_arguments import ARGUMENTS, MAX_PORTS
from switchsim.onyx_commands import COMMANDS, Change, positive
from switchsim.onyx_state import OnyxConfiguration, Port, default_configuration
from switchsim.settings import patterns

ACTIVE_FILE: Final = "initial"
MAX_FILES: Final = 16


class OnyxDevice(NamedDevice):
    """One switch with ports 1/1 to 1/`ports`; `configuration` is what runs, `files` what is saved."""

    usual_ports: ClassVar[int] = 16
    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "sn2100": {"model": "MSN2100-CB2F"},
        "sn2700": {"model": "MSN2700-CS2F"},
    }

    def __init__(self, name: str = "onyx1", ports: int = 16, model: str = "MSN2100-CB2F") -> None:
        super().__init__(name, ports, MAX_PORTS)
        self.model, self.release = model, onyx_show.RELEASE
        self.configuration = default_configuration(ports)
        self.files: dict[str, OnyxConfiguration] = {ACTIVE_FILE: self.configuration}

    @property
    def ports(self) -> MappingProxyType[str, Port]:
        """`1/1` → port, as it runs."""
        return MappingProxyType(dict(self.configuration.ports))

    def reboot(self) -> None:
        """Start anew, with what was saved."""
        with self._lock:
            self.configuration = self.files[ACTIVE_FILE]

    def open_session(self, username: str) -> "OnyxSession":
        """A session in user mode, whoever it is."""
        del username
        return OnyxSession(self)

    def configure(self, *lines: str) -> str:
        """Enter lines in configuration mode, without SSH; returns what they print."""
        session = OnyxSession(self)
        answers = [session.enter(line).text for line in ("enable", "configure terminal", *lines)]
        return "".join(answers)


class Mode(IntEnum):
    """A session's mode; each allows what the lower ones show."""

    USER = 0
    ENABLE = 1
    CONFIG = 2


Action = Callable[["OnyxSession", Values], Answer]


class OnyxSession:
    """One command line, with its mode."""

    def __init__(self, device: OnyxDevice) -> None:
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
            found = match(_BY_MODE[self.mode], positive(words))
            with self.device.exclusively():
                answer = found.action(self, Values({**found.values, **_filter(pipe, filter_text)}))
        except RefusalError as refusal:
            return Answer(f"{refusal}\n")
        return answer


def _filter(pipe: str, text: str) -> dict[str, list[object]]:
    words = text.split()
    if not pipe:
        return {}
    if words != ["json-print"]:
        raise RefusalError(f'% Unrecognized command "{" ".join(words)}".\nType "?" for help.')
    return {"json-print": [True]}


def _switch_mode(mode: Mode) -> Action:
    def action(session: OnyxSession, values: Values) -> Answer:
        _no_filter(values)
        session.mode = mode
        return Answer()

    return action


def _exit(session: OnyxSession, values: Values) -> Answer:
    _no_filter(values)
    if session.prefix:
        session.prefix = ()
        return Answer()
    if session.mode is Mode.CONFIG:
        session.mode = Mode.ENABLE
        return Answer()
    return Answer(closes=True)


def _ignore(_session: OnyxSession, values: Values) -> Answer:
    _no_filter(values)
    return Answer()


def _no_filter(values: Values) -> None:
    if values.raw.get("json-print"):
        raise invalid("only a show command takes `| json-print`")


def _configure(change: Change) -> Action:
    def action(session: OnyxSession, values: Values) -> Answer:
        _no_filter(values)
        session.device.configuration = change(session.device.configuration, values)
        return Answer()

    return action


def _open_interface(session: OnyxSession, values: Values) -> Answer:
    _no_filter(values)
    ports = values.one("ports", tuple)
    if not session.device.configuration.prefix_modes:
        raise RefusalError("% Incomplete command: prefix modes are off [emulator]")
    for name in ports:
        _port(session, name)
    spelled = ports[0] if len(ports) == 1 else f"{ports[0]}-{ports[-1]}"
    session.prefix = ("interface", "ethernet", spelled)
    return Answer()


def _open_access_list(session: OnyxSession, values: Values) -> Answer:
    """Makes it where there is none, and opens its mode (user manual, ACL Commands)."""
    _no_filter(values)
    name, device = values.one("name", str), session.device
    lists = dict.fromkeys((*device.configuration.access_lists, name))
    device.configuration = replace(device.configuration, access_lists=tuple(lists))
    session.prefix = ("ipv4", "access-list", name)
    return Answer()


def _save(session: OnyxSession, values: Values) -> Answer:
    _no_filter(values)
    files = session.device.files
    name = next(iter(values.all("name", str)), ACTIVE_FILE)
    if name not in files and len(files) >= MAX_FILES:
        raise invalid(f"there are {MAX_FILES} configuration files already")
    files[name] = session.device.configuration
    return Answer()


def _port(session: OnyxSession, name: str) -> Port:
    port = session.device.configuration.ports.get(name)
    if port is None:
        raise invalid(f"there is no interface ethernet {name}")
    return port


def _show_port(show: Callable[[str, Port], list[onyx_show.JsonValue]]) -> Action:
    def action(session: OnyxSession, values: Values) -> Answer:
        name = values.one("port", str)
        return _print(show(name, _port(session, name)), values)

    return action


def _show_flow_control(session: OnyxSession, values: Values) -> Answer:
    return _print(onyx_show.priority_flow_control(session.device.configuration), values)


def _show_version(session: OnyxSession, values: Values) -> Answer:
    return _print(onyx_show.version(session.device.release), values)


def _show_neighbours(session: OnyxSession, values: Values) -> Answer:
    return _print(onyx_show.neighbours(session.device.neighbours), values)


def _show_hostname(session: OnyxSession, values: Values) -> Answer:
    _no_json(values)
    return Answer(f"Hostname: {session.device.name}\n")


def _show_inventory(session: OnyxSession, values: Values) -> Answer:
    _no_json(values)
    return Answer(onyx_show.inventory(session.device.model, session.device.name))


def _print(shown: onyx_show.JsonValue, values: Values) -> Answer:
    if values.raw.get("json-print"):
        return Answer(json.dumps(shown, indent=4) + "\n")
    return Answer(_plain(shown))


def _plain(shown: onyx_show.JsonValue, indentation: str = "") -> str:
    """The same facts as `name: value` lines; this text form is ours, the JSON form is the switch's."""
    if isinstance(shown, str):
        return f"{indentation}{shown}\n"
    if isinstance(shown, list):
        return "".join(_plain(entry, indentation) for entry in shown)
    text = ""
    for name, value in shown.items():
        if isinstance(value, str):
            text += f"{indentation}{name}: {value}\n"
        else:
            text += f"{indentation}{name}:\n{_plain(value, indentation + '  ')}"
    return text


def _show_running_config(session: OnyxSession, values: Values) -> Answer:
    _no_json(values)
    return Answer(onyx_show.running_config(session.device.name, session.device.configuration))


def _show_ip_route(session: OnyxSession, values: Values) -> Answer:
    _no_json(values)
    return Answer(onyx_show.ip_route(session.device.configuration))


def _show_files(session: OnyxSession, values: Values) -> Answer:
    _no_json(values)
    device = session.device
    names = "".join(f"{name}{' (active)' if name == ACTIVE_FILE else ''}\n" for name in device.files)
    unsaved = "no" if device.files[ACTIVE_FILE] == device.configuration else "yes"
    return Answer(f"{names}\nActive configuration: {ACTIVE_FILE}\nUnsaved changes : {unsaved}\n")


def _no_json(values: Values) -> None:
    if values.raw.get("json-print"):
        raise invalid("this command has no JSON form")


def _commands(*rows: tuple[str, Action]) -> tuple[Command[Action], ...]:
    return tuple(Command(pattern, action) for text, action in rows for pattern in patterns(text, ARGUMENTS))


_USER: Final = _commands(
    ("enable", _switch_mode(Mode.ENABLE)),
    ("exit", _exit),
    ("no cli session paging enable", _ignore),
    ("cli session paging enable", _ignore),
    ("show version", _show_version),
    ("show hosts", _show_hostname),
    ("show lldp interfaces ethernet remote", _show_neighbours),
    ("show inventory", _show_inventory),
    ("show interfaces ethernet {port} congestion-control", _show_port(onyx_show.congestion_control)),
    ("show dcb ets interface ethernet {port}", _show_port(onyx_show.ets)),
    ("show qos interface ethernet {port}", _show_port(onyx_show.qos)),
    ("show dcb priority-flow-control", _show_flow_control),
    ("show ip route", _show_ip_route),
)
_ENABLE: Final = _USER + _commands(
    ("disable", _switch_mode(Mode.USER)),
    ("configure terminal", _switch_mode(Mode.CONFIG)),
    ("show running-config", _show_running_config),
    ("show configuration files", _show_files),
)
_CONFIG: Final = (
    *(command for command in _ENABLE if command.pattern[0] not in {"enable", "disable", "configure"}),
    *(Command(command.pattern, _configure(command.action)) for command in COMMANDS),
    *_commands(
        ("interface ethernet {ports}", _open_interface),
        ("ipv4 access-list {access-list}", _open_access_list),
        ("configuration write [to {name} no-switch]", _save),
        ("write memory", _save),
    ),
)
_BY_MODE: Final = {Mode.USER: _USER, Mode.ENABLE: _ENABLE, Mode.CONFIG: _CONFIG}
