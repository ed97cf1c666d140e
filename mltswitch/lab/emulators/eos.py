"""An emulated Arista EOS switch: modes, prompts and what each line does.

Stateful and strict: a line that the grammar lacks, or whose values are out of range, changes nothing and is
answered with a line that starts with `%`. A line that its mode lacks is tried in the modes around it, and
leaves the inner ones, as when a configuration is pasted. Outside a config session it takes effect at once.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from mltswitch.lab.emulators import eos_arguments as argument
from mltswitch.lab.emulators import eos_show
from mltswitch.lab.emulators.device import Answer, NamedDevice
from mltswitch.lab.emulators.eos_commands import (
    GLOBAL_COMMANDS,
    PORT_COMMANDS,
    QOS_COMMANDS,
    QUEUE_COMMANDS,
    QosChange,
    QueueChange,
    on_qos,
    with_port,
    with_profile,
)
from mltswitch.lab.emulators.eos_policies import (
    ACTION_COMMANDS,
    CLASS_MAP_COMMANDS,
    LIST_COMMANDS,
    AccessList,
    ClassMap,
    Family,
    Policies,
    PolicyMap,
    is_of_list,
)
from mltswitch.lab.emulators.eos_sessions import ConfigSessions
from mltswitch.lab.emulators.eos_state import (
    EosConfiguration,
    Port,
    Qos,
    Queue,
    default_configuration,
)
from mltswitch.lab.emulators.grammar import Command, RefusalError, Values, invalid, match

QUEUE_WORDS: Final = ("uc-tx-queue", "tx-queue")
_PROMPT_CHARACTERS: Final = 6
"""Of a config session's name."""


class EosDevice(NamedDevice):
    """One switch with ports Ethernet1/1 to Ethernet`ports`/1; `configuration` runs, `startup` is saved.

    `queue_word` opens a queue's mode: `uc-tx-queue` as on chips with queues for unicast, or `tx-queue`.
    `model` is what `show version` names.
    """

    def __init__(
        self,
        name: str = "eos1",
        ports: int = 32,
        *,
        queue_word: str = QUEUE_WORDS[0],
        model: str = "DCS-7050CX3-32S-F",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name, ports, argument.MAX_PORTS)
        if queue_word not in QUEUE_WORDS:
            raise ValueError(f"{queue_word!r}, expected one of {', '.join(QUEUE_WORDS)}")
        self.queue_word = queue_word
        self.model = model
        self.release = eos_show.RELEASE
        self.startup = default_configuration(ports)
        self._clock = clock
        self.sessions = ConfigSessions(self.startup, clock)

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
            self.sessions = ConfigSessions(self.startup, self._clock)

    def open_session(self, username: str) -> "EosSession":
        """A session in user mode, whoever it is."""
        del username
        return EosSession(self)

    def configure(self, *lines: str) -> str:
        """Enter lines in configuration mode, without SSH; returns what they print."""
        session = EosSession(self)
        return "".join(session.enter(line).text for line in ("enable", "configure terminal", *lines))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in a configuration lines are entered; `kind` is empty at the margin."""

    kind: str = ""
    """`port` or `profile`; `ip`, `ipv6` (access lists), `class-map`, `policy-map`."""
    name: str = ""
    queue: int | None = None
    class_name: str = ""
    """Of a policy map."""


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
        if self.place.kind == "port":
            words += ["if", self.place.name.replace("Ethernet", "Et")]
        elif self.place.kind == "profile":
            words += ["qos-profile", self.place.name]
        elif self.place.kind:
            kind = {"class-map": "cmap", "policy-map": "pmap"}.get(self.place.kind, "acl")
            words += [f"{kind}-c" if self.place.class_name else kind, self.place.name]
        if self.place.queue is not None:
            words += [self.device.queue_word.replace("tx-queue", "txq"), str(self.place.queue)]
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
        places = [self.place]
        if self.place.queue is not None or self.place.class_name:
            places.append(replace(self.place, queue=None, class_name=""))
        return places if not self.place.kind else [*places, _Place()]

    def _configure(self, place: _Place, words: list[str]) -> Answer:
        if place.queue is not None:
            found_queue = match(QUEUE_COMMANDS, words)
            self._change_queue(place, found_queue.action, Values(found_queue.values))
        elif place.kind in {"port", "profile"}:
            return self._configure_block(place, words)
        elif place.kind:
            self._configure_policies(place, words)
            return Answer()
        else:
            found = match(_CONFIG, words)
            return found.action(self, Values(found.values))
        self.place = place
        return Answer()

    def _configure_block(self, place: _Place, words: list[str]) -> Answer:
        """A line of a port or of a QoS profile."""
        opens = Command((self.device.queue_word, argument.ANY_QUEUE), None)
        if words and self.device.queue_word.startswith(words[0]):
            number = Values(match((opens,), words).values).one("queue", int)
            self.place = replace(place, queue=number)
            return Answer()
        if place.kind == "port":
            change = match((*PORT_COMMANDS, *_PORT_QOS), words)
            port = self._target().ports[place.name]
            self._store(with_port(self._target(), place.name, change.action(port, Values(change.values))))
        else:
            found = match(QOS_COMMANDS, words)
            self._change_qos(place, lambda old, _: found.action(old, Values(found.values)))
        self.place = place
        return Answer()

    def _configure_policies(self, place: _Place, words: list[str]) -> None:
        """A line of an access list, a class map, a policy map or a class of it."""
        policies, name = self._target().policies, place.name
        if place.kind == "class-map":
            of_class_map = match(CLASS_MAP_COMMANDS, words)
            class_map = of_class_map.action(
                policies.class_maps.get(name, ClassMap()), Values(of_class_map.values)
            )
            self._store_policies(policies.with_class_map(name, class_map))
        elif place.class_name:
            of_class = match(ACTION_COMMANDS, words)
            policy = policies.policy_maps.get(name, PolicyMap())
            actions = of_class.action(policy.classes.get(place.class_name, {}), Values(of_class.values))
            self._store_policies(policies.with_policy_map(name, policy.with_class(place.class_name, actions)))
        elif place.kind == "policy-map":
            place = self._open_class(policies, place, words)
        elif not is_of_list(words):
            raise RefusalError("% Unrecognized command")
        else:
            of_list = match(LIST_COMMANDS, words)
            access_list = of_list.action(policies.lists[_family(place), name], Values(of_list.values))
            self._store_policies(policies.with_list(name, access_list))
        self.place = place

    def _open_class(self, policies: Policies, place: _Place, words: list[str]) -> _Place:
        found = match(_IN_POLICY_MAP, words)
        class_name = Values(found.values).one("name", str)
        policy = policies.policy_maps.get(place.name, PolicyMap())
        if not found.action:
            self._store_policies(policies.with_policy_map(place.name, policy.without_class(class_name)))
            return place
        # Every policy map has a class-default; it is opened, but is none of its own.
        if class_name != "class-default" and class_name not in policy.classes:
            self._store_policies(policies.with_policy_map(place.name, policy.with_class(class_name, {})))
        return replace(place, class_name=class_name)

    def _store_policies(self, policies: Policies) -> None:
        self._store(replace(self._target(), policies=policies))

    def _change_queue(self, place: _Place, change: QueueChange, values: Values) -> None:
        number = place.queue
        if number is None:
            raise invalid("this is no queue")

        def change_qos(old: Qos, _: Values) -> Qos:
            return old.with_queue(number, change(old.queues.get(number, Queue()), values))

        self._change_qos(place, change_qos)

    def _change_qos(self, place: _Place, change: QosChange) -> None:
        target, nothing = self._target(), Values({})
        if place.kind == "port":
            port: Port = target.ports[place.name]
            self._store(with_port(target, place.name, on_qos(change)(port, nothing)))
        else:
            qos = change(target.profiles.get(place.name, Qos()), nothing)
            self._store(with_profile(target, place.name, qos))

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

    def apply_global(
        self, change: Callable[[EosConfiguration, Values], EosConfiguration], values: Values
    ) -> None:
        """A line of the whole switch."""
        self._store(change(self._target(), values))
        self.place = _Place()

    def open_place(self, kind: str, name: str) -> None:
        """Enter the mode of a port or a QoS profile."""
        if kind == "port" and name not in self._target().ports:
            raise invalid(f"there is no {name}")
        if kind == "profile" and name not in self._target().profiles:
            self._store(with_profile(self._target(), name, Qos()))
        self._define(kind, name)
        self.place = _Place(kind, name)

    def _define(self, kind: str, name: str) -> None:
        """What is named for the first time is there from now on."""
        policies = self._target().policies
        if kind == "class-map" and name not in policies.class_maps:
            self._store_policies(policies.with_class_map(name, ClassMap()))
        elif kind == "policy-map" and name not in policies.policy_maps:
            self._store_policies(policies.with_policy_map(name, PolicyMap()))
        elif kind in _FAMILY and (_FAMILY[kind], name) not in policies.lists:
            self._store_policies(policies.with_list(name, AccessList(_FAMILY[kind])))

    def forget(self, kind: str, name: str) -> None:
        """Take out an access list, a class map or a policy map."""
        self._store_policies(self._target().policies.without(kind, name))
        self.place = _Place()

    def start(self, session_name: str = "") -> None:
        """Enter configuration mode."""
        if session_name:
            self.device.sessions.open(session_name)
        self.configuring, self.session_name, self.place = True, session_name, _Place()

    def leave(self) -> None:
        """Back to privileged mode; a config session stays as it is."""
        self.configuring, self.session_name, self.place = False, "", _Place()


def _family(place: _Place) -> Family:
    return _FAMILY[place.kind]


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
    if session.place.queue is not None or session.place.class_name:
        session.place = replace(session.place, queue=None, class_name="")
    elif session.place.kind:
        session.place = _Place()
    else:
        session.leave()
    return Answer()


def _commit(session: EosSession, values: Values) -> Answer:
    name = values.maybe("name", str) or session.session_name
    if not name:
        raise RefusalError("% Unrecognized command")
    session.device.sessions.commit(name, values.maybe("timer", int))
    session.leave()
    return Answer()


def _abort(session: EosSession, values: Values) -> Answer:
    name = values.maybe("name", str) or session.session_name
    if not name:
        raise RefusalError("% Unrecognized command")
    session.device.sessions.abort(name)
    session.leave()
    return Answer()


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
    return eos_show.running_config(device.name, device.release, device.queue_word, configuration)


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
    states = {name: str(each.state) for name, each in sessions.by_name.items()}
    return _json(eos_show.sessions(states))


def _json(shown: dict[str, object]) -> Answer:
    return Answer(json.dumps(shown, indent=4) + "\n")


def _terminal(text: str) -> Action:
    return lambda _, values: Answer(text.format(*values.all("width", int)) + "\n")


def _global(change: Callable[[EosConfiguration, Values], EosConfiguration]) -> Action:
    def action(session: EosSession, values: Values) -> Answer:
        session.apply_global(change, values)
        return Answer()

    return action


def _open(kind: str, name: str) -> Action:
    def action(session: EosSession, values: Values) -> Answer:
        session.open_place(kind, values.one(name, str))
        return Answer()

    return action


def _forget(kind: str) -> Action:
    def action(session: EosSession, values: Values) -> Answer:
        session.forget(kind, values.one("name", str))
        return Answer()

    return action


_FAMILY: Final[dict[str, Family]] = {"ip": "ip", "ipv6": "ipv6"}
_IN_POLICY_MAP: Final[tuple[Command[bool], ...]] = (
    Command(("class", argument.NAME), True),
    Command(("no", "class", argument.NAME), False),
)
_POLICY_HEADS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("ip", ("ip", "access-list")),
    ("ipv6", ("ipv6", "access-list")),
    ("class-map", ("class-map", "type", "qos", "match-any")),
    ("policy-map", ("policy-map", "type", "quality-of-service")),
)
_PORT_QOS: Final = tuple(Command(command.pattern, on_qos(command.action)) for command in QOS_COMMANDS)
_USER: Final[tuple[Command[Action], ...]] = (
    Command(("enable",), _enable),
    Command(("exit",), _exit),
    Command(("terminal", "length", argument.WIDTH), _terminal("Pagination disabled.")),
    Command(("terminal", "width", argument.WIDTH), _terminal("Width set to {} columns.")),
)
_SESSION: Final = ("configure", "session", argument.NAME)
_EXEC: Final[tuple[Command[Action], ...]] = (
    *_USER,
    Command(("disable",), _disable),
    Command(("configure",), _start),
    Command(("configure", "terminal"), _start),
    Command(_SESSION, _start),
    Command((*_SESSION, "commit"), _commit),
    Command((*_SESSION, "commit", "timer", argument.TIMER), _commit),
    Command((*_SESSION, "abort"), _abort),
    Command(("end",), _end),
    Command(("write", "memory"), _save),
    Command(("copy", "running-config", "startup-config"), _save),
    Command(("show", "running-config"), _show_running_config),
    Command(("show", "running-config", "diffs"), _show_unsaved),
    Command(("show", "version", "|", "json"), _show_version),
    Command(("show", "hostname", "|", "json"), _show_hostname),
    Command(("show", "lldp", "neighbors", "|", "json"), _show_neighbours),
    Command(("show", "configuration", "sessions", "detail", "|", "json"), _show_sessions),
)
_CONFIG: Final[tuple[Command[Action], ...]] = (
    *(Command(command.pattern, _global(command.action)) for command in GLOBAL_COMMANDS),
    Command(("interface", argument.INTERFACE), _open("port", "interface")),
    Command(("qos", "profile", argument.NAME), _open("profile", "name")),
    *(Command((*words, argument.NAME), _open(kind, "name")) for kind, words in _POLICY_HEADS),
    *(Command(("no", *words, argument.NAME), _forget(kind)) for kind, words in _POLICY_HEADS),
    Command(("commit",), _commit),
    Command(("commit", "timer", argument.TIMER), _commit),
    Command(("abort",), _abort),
    Command(("exit",), _exit),
    Command(("end",), _end),
)
