"""An emulated Arista EOS switch: what its command line does and shows.

Stateful and strict: a line that the grammar lacks, or whose values are out of range, changes nothing and is
answered with a line that starts with `%`. A line that its mode lacks is tried in the outer modes, and
leaves the inner ones, as when a configuration is pasted. Outside a config session it takes effect at once.

The running configuration follows the order and the indentation of the configurations that aristanetworks/avd
tests against switches; what is as delivered is left out. The JSON of the config sessions is the part of which
napalm's driver reads the states (both forms as napalm's issue 2166 quotes them), those of version and host
name the part of which it reads its facts. Our own choice: several code points of one traffic class stand on
one line, and the differences to what is saved are a unified diff.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from typing import Any, ClassVar, Final

from switchsim.device import mac_address, serial_number
from switchsim.eos_sessions import ConfigSessions, SessionState
from switchsim.eos_sheet import ARGUMENTS, GLOBAL, QUEUE_WORDS, ROUTES, ROUTING, modes
from switchsim.grammar import RefusalError, Values, invalid
from switchsim.modes import Action, Mode, Modes, Session, SheetDevice, goes_to, leaves, saves, shows
from switchsim.settings import Facts

MAX_PORTS: Final = 64
RELEASE: Final = "4.31.5M-emulator"
"""The EOS release that an emulated switch claims to run where `--release` names no other."""
_LEVEL: Final = "   "
_PROMPT_CHARACTERS: Final = 6
"""Of a config session's name."""


class EosSession(Session):
    """One command-line session.

    Lines change the config session that `config_session` names; where it is empty, they take effect at once.
    """

    tries_around = "unknown"
    refusals: ClassVar[Mapping[str, str]] = {
        "% Unrecognized command": "% Invalid input",
        **{f"% {word} command": f"% {word} command" for word in ("Ambiguous", "Incomplete")},
    }
    abbreviations: ClassVar[Mapping[str, str]] = {"Ethernet": "Et", "tx-queue": "txq"}
    config_session = ""

    def words(self, line: str) -> list[str]:
        """Split a line into words; a `|` and what follows it are words of the command, not of a filter."""
        command, pipe, rest = line.partition("|")
        words = super().words(command)
        if pipe and not words:
            raise RefusalError("% Invalid input")
        return [*words, *pipe, *rest.split()]

    def prompt_words(self) -> dict[str, str]:
        """The values of the prompt's placeholders, to which EOS adds the name of the open config session."""
        name = self.config_session[:_PROMPT_CHARACTERS]
        return super().prompt_words() | {"session": f"-s-{name}" if name else ""}

    @property
    def facts(self) -> Facts:
        """The configuration that lines change: that of the open config session, or the running one."""
        sessions: ConfigSessions = self.device.sessions
        if not self.config_session:
            return sessions.running
        if self.config_session not in sessions.by_name:
            raise invalid("this config session is gone")
        return sessions.open(self.config_session).configuration

    @facts.setter
    def facts(self, facts: Facts) -> None:
        if self.config_session:
            self.device.sessions.open(self.config_session).configuration = facts
        else:
            self.device.sessions.running = facts

    def go(self, name: str, head: str = "") -> None:
        """Change to another mode; outside configuration mode the config session is left, but kept pending."""
        super().go(name, head)
        if name in {"user", "exec"}:
            self.config_session = ""


class EosDevice(SheetDevice):
    """One emulated switch with ports Ethernet1/1 to Ethernet`ports`/1.

    `configuration` is what runs, `saved` what the switch starts with. `queue_word` opens a queue's mode:
    `uc-tx-queue` as on chips with queues for unicast, or `tx-queue`. `model` and `release` are what `show
    version` names; config sessions are shown as that release does.
    """

    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "trident2": {"model": "DCS-7050QX-32-F", "queue_word": "tx-queue"},
        "trident3": {"model": "DCS-7050CX3-32S-R"},
        "tomahawk": {"model": "DCS-7060CX-32S-F"},
        "tomahawk2": {"model": "DCS-7260CX3-64-F"},
        "tomahawk3": {"model": "DCS-7060DX4-32-F"},
    }
    has_releases: ClassVar[bool] = True
    session_class = EosSession

    def __init__(
        self,
        name: str = "eos1",
        ports: int = 32,
        *,
        queue_word: str = QUEUE_WORDS[0],
        model: str = "DCS-7050CX3-32S-F",
        release: str = RELEASE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if queue_word not in QUEUE_WORDS:
            raise ValueError(f"{queue_word!r}, expected one of {', '.join(QUEUE_WORDS)}")
        if (found := re.match(r"([0-9]+)\.([0-9]+)\.", release)) is None:
            raise ValueError(f"{release!r} is no release of EOS, such as 4.35.0F")
        self.queue_word, self.modes = queue_word, MODES[queue_word]
        self.names_timer_at_top = (int(found[1]), int(found[2])) >= (4, 32)
        """Whether `show configuration sessions` has the commit timer at its top, as since 4.32."""
        self._clock = clock
        super().__init__(name, [f"Ethernet{n}/1" for n in range(1, ports + 1)], MAX_PORTS, model, release)

    @property
    def configuration(self) -> Facts:
        """The running configuration of the switch."""
        with self._lock:
            return self.sessions.running

    @configuration.setter
    def configuration(self, facts: Facts) -> None:
        with self._lock:
            self.sessions.running = facts

    def reboot(self) -> None:
        """Restart the emulated switch with its saved configuration and without config sessions."""
        with self._lock:
            self.sessions = ConfigSessions(self.saved, self._clock, forgets=self.names_timer_at_top)


# --- what lines do -----------------------------------------------------------------------------------------


def _enable(session: EosSession, _: Values) -> None:
    if session.mode == "user":
        session.go("exec")


def _configure(session: EosSession, values: Values) -> None:
    name = values.maybe("name", str) or ""
    if name:
        session.device.sessions.open(name)
    session.go("config")
    session.config_session = name


def _end_session(*, commits: bool) -> Action:
    def action(session: EosSession, values: Values) -> None:
        name, sessions = values.maybe("name", str) or session.config_session, session.device.sessions
        if not name:
            raise RefusalError("% Unrecognized command")
        if commits:
            sessions.commit(name, values.maybe("timer", int))
        else:
            sessions.abort(name)
        session.go("exec")

    return action


def _terminal(text: str) -> Action:
    return lambda _, values: text.format(*values.all("width", int)) + "\n"


# --- what is shown -----------------------------------------------------------------------------------------


def _running_config(device: EosDevice, facts: Facts) -> str:
    rows = device.modes.printed
    text = f"! Command: show running-config\n! device: {device.name} (emulator, EOS-{device.release})\n!\n"
    text += f"hostname {device.name}\n!\n"
    if lines := rows(facts, "", GLOBAL):
        text += "".join(f"{line}\n" for line in lines) + "!\n"
    blocks = facts.blocks
    for kind in _KINDS:
        for head in facts.heads(kind):
            text += "".join(f"{line}\n" for line in (head, *_block(device.modes, blocks, facts, head), "!"))
    is_routing, routes = (rows(facts, "", (row,)) for row in ROUTES)
    text += f"{'' if is_routing else 'no '}{ROUTING}\n!\n"
    if routes:
        text += "".join(f"{route}\n" for route in routes) + "!\n"
    return text + "end\n"


def _block(modes: Modes, blocks: Mapping[str, Facts], facts: Facts, head: str) -> Iterator[str]:
    """Lines below a head; a queue without any is not shown, a policy map always has a class-default."""
    yield from (f"{_LEVEL}{line}" for line in modes.printed(blocks[head], head))
    inner = {
        each: modes.printed(blocks[f"{head}\n{each}"], f"{head}\n{each}") for each in facts.heads("", head)
    }
    if head.startswith("policy-map"):
        for each, lines in inner.items():
            yield from (f"{_LEVEL}{each}", *(f"{_LEVEL * 2}{line}" for line in lines), f"{_LEVEL}!")
        if "class class-default" not in inner:
            yield f"{_LEVEL}class class-default"
    else:
        for queue in sorted(filter(inner.get, inner)):
            yield from (f"{_LEVEL}!", f"{_LEVEL}{queue}", *(f"{_LEVEL * 2}{line}" for line in inner[queue]))


def _unsaved(device: EosDevice) -> str:
    """`show running-config diffs`: nothing where all is saved."""
    saved, running = (
        _running_config(device, each).splitlines() for each in (device.saved, device.configuration)
    )
    names = ("flash:/startup-config", "system:/running-config")
    return "".join(f"{line}\n" for line in unified_diff(saved, running, *names, lineterm=""))


def _version(device: EosDevice) -> dict[str, Any]:
    return {
        "mfgName": "Arista",
        "modelName": device.model,
        "serialNumber": serial_number(device.name),
        "systemMacAddress": mac_address(device.name),
        "version": device.release,
    }


def _hostname(device: EosDevice) -> dict[str, Any]:
    """The emulator has no domain."""
    return {"hostname": device.name, "fqdn": device.name}


def _neighbours(device: EosDevice) -> dict[str, Any]:
    entries = [
        {"port": port, "neighborDevice": system, "neighborPort": name, "ttl": 120}
        for port, (system, name) in device.neighbours.items()
    ]
    return {"tablesInserts": len(entries), "lldpNeighbors": entries}


def _sessions(device: EosDevice) -> dict[str, Any]:
    _ = device.configuration  # takes back what nobody has confirmed in time
    shown: dict[str, dict[str, object]] = {}
    top: dict[str, object] = {
        "maxSavedSessions": 1,
        "maxOpenSessions": 5,
        "mergeOnCommit": False,
        "saveToStartupConfigOnCommit": False,
    }
    for name, session in device.sessions.by_name.items():
        entry = shown[name] = {"state": str(session.state), "description": "", "instances": {}}
        is_waiting = session.state is SessionState.WAITING
        if is_waiting and not device.names_timer_at_top:
            entry["commitBy"] = session.deadline_seconds
        elif is_waiting:
            top |= {"commitTimerSessionName": name, "commitTimerExpireTime": session.deadline_seconds}
        if device.names_timer_at_top and (is_waiting or session.state is SessionState.COMPLETED):
            entry["state"] = "committed"
    return {"sessions": shown, **top}


def _json(show: Callable[[EosDevice], dict[str, Any]]) -> Action:
    return shows(lambda device: json.dumps(show(device), indent=4) + "\n")


_SAVES: Final = saves("Copy completed successfully.\n")
_USER: Final[Mapping[str, Action]] = {
    "enable": _enable,
    "exit": leaves,
    "terminal length {width}": _terminal("Pagination disabled."),
    "terminal width {width}": _terminal("Width set to {} columns."),
}
_EXEC: Final[Mapping[str, Action]] = {
    **_USER,
    "disable": goes_to("user"),
    "configure [terminal]": _configure,
    "configure session {name}": _configure,
    "configure session {name} commit [timer {timer}]": _end_session(commits=True),
    "configure session {name} abort": _end_session(commits=False),
    "end": goes_to("exec"),
    "write memory": _SAVES,
    "copy running-config startup-config": _SAVES,
    "show running-config": shows(lambda device: _running_config(device, device.configuration)),
    "show running-config diffs": shows(_unsaved),
    "show version | json": _json(_version),
    "show hostname | json": _json(_hostname),
    "show lldp neighbors | json": _json(_neighbours),
    "show configuration sessions detail | json": _json(_sessions),
}
_CONFIG: Final[Mapping[str, Action]] = {
    "commit [timer {timer}]": _end_session(commits=True),
    "abort": _end_session(commits=False),
    "exit": leaves,
    "end": goes_to("exec"),
}
MODES: Final = {
    word: Modes(
        {
            "user": Mode("{device}>", _USER),
            "exec": Mode("{device}#", _EXEC),
            "config": Mode("{device}(config{session})#", _CONFIG, "exec", rows=(*GLOBAL, *ROUTES)),
            **modes(word),
        },
        ARGUMENTS,
    )
    for word in QUEUE_WORDS
}
"""Keyword that opens a queue's mode on a chip (`uc-tx-queue` or `tx-queue`) → the command modes there."""
_KINDS: Final = tuple(
    mode.head.partition("{")[0]
    for mode in MODES[QUEUE_WORDS[0]].table.values()
    if mode.around == "config" and mode.head
)
"""What heads begin with, in the order of a running configuration."""
