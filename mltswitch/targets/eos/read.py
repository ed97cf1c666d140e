"""What an EOS switch answers, as settings and state.

All that is ours stands in `show running-config`; what is left out there is as delivered. A route keeps what
stands behind its next hop, such as a distance, in `RouteState.port`; Null0 is the next hop 0.0.0.0. States
of config sessions and the model are read from JSON.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Final

from mltswitch.capabilities import Bandwidth, BitRate, Capabilities, PortShare
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Identity, RunningState
from mltswitch.targets.common import (
    NO_NEXT_HOP,
    NOT_SAVED,
    NULL_INTERFACE,
    as_discarding,
    json_in,
    known_form,
    known_word,
    numbers_in,
)
from mltswitch.targets.eos.capabilities import BOX_CHIPS, R_SERIES, RATE_STEP_BPS, TRAFFIC_CLASSES, queue_word
from mltswitch.targets.eos.hazards import check_hazards
from mltswitch.targets.eos.policy import CLASSES, NAMED, POLICY_OF_HEAD, OwnPolicies, with_line
from mltswitch.targets.eos.settings import (
    TRUSTED,
    UNTRUSTED,
    Detection,
    Maps,
    PortSettings,
    QueueSettings,
    port_state,
)
from mltswitch.targets.eos.text import PlacedLine, placed_lines
from mltswitch.targets.foreign import touches_port, touches_switch
from mltswitch.targets.remap import dscp_set_by
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import RouteState, SwitchState
from mltswitch.wire.tos import DSCP_COUNT

RUNNING_CONFIG: Final = "show running-config"
SESSIONS: Final = "show configuration sessions detail | json"
VERSION: Final = "show version | json"
HOSTNAME: Final = "show hostname | json"
UNSAVED: Final = "show running-config diffs"
"""What runs and is not in the startup configuration; nothing where all is saved."""
OWN_SESSION: Final = re.compile(r"mltswitch-(?P<number>[0-9]{1,6})")
LOCK_SESSION: Final = re.compile(
    rf"{OWN_SESSION.pattern}-(?P<owner>[0-9a-f]{{8}})-(?P<since>[0-9]{{10}})-(?P<who>\S+)"
)
"""Keeps other operators away; see guard.py."""
_WAITING: Final = "pendingCommitTimer"
_STATES: Final = {state: state for state in ("pending", _WAITING, "committed", "completed", "aborted")}
"""Of config sessions. Up to 4.31 one whose timer runs is `pendingCommitTimer`; since 4.32 it is `committed`,
and the answer names it at its top (napalm, issue 2166 and its driver eos)."""
_TIMED: Final = "commitTimerSessionName"
_OF_TIMER: Final = re.compile(r"(?i)timer|pending|expire")
_KNOWN_OF_TIMER: Final = frozenset({_TIMED, "commitTimerExpireTime"})
_SAVES_AT_ONCE: Final = "saveToStartupConfigOnCommit"

_MAP: Final = re.compile(
    r"qos map (dscp|cos|traffic-class) ([0-9a-z][0-9a-z, -]*) to (traffic-class|tx-queue|uc-tx-queue) ([0-7])"
    r"(?: drop-precedence ([0-2]))?"
)
_MAP_OF_OTHERS: Final = re.compile(
    r"qos map (?:exp .*|(?:dscp|cos) to traffic-class name .*"
    r"|traffic-class .* to (?:cos|dscp|exp|mc-tx-queue|pause-group|priority-group) .*)"
)
"""Maps that lead none of our packets to a queue; a named one counts where a port takes it."""
_DETECTION: Final = re.compile(
    r"random-detect ecn minimum-threshold ([0-9]+) (\S+) maximum-threshold ([0-9]+) (\S+)"
    r"(?: max-mark-probability ([0-9]+))?(?: weight ([0-9]+))?"
)
_ROUTE: Final = re.compile(
    r"ip route (?:vrf (?P<vrf>\S+) )?(?P<address>[0-9.]+)(?:/(?P<length>[0-9]+)| (?P<mask>[0-9.]+))"
    r"(?: (?P<target>[A-Za-z]\S*))?(?: (?P<hop>[0-9.]{7,15}))?(?P<others>(?: .*)?)"
)
_BANDWIDTH: Final = re.compile(
    r"(bandwidth guaranteed|shape rate) (?:percent ([0-9]+)|([0-9]+) (kbps|percent))"
)
_DEFAULT: Final = frozenset({"priority strict", "no random-detect ecn"})
"""Lines of a queue that change nothing."""
_POLICY: Final = re.compile(r"service-policy type qos input (\S+)")
_KNOWN: Final = re.compile(
    r"mc-tx-queue [0-7]|priority-flow-control (?:(?:mode )?on|priority [0-7] (?:no-)?drop|pause watchdog.*)"
    r"|flowcontrol (?:receive|send) off|dcbx mode .*"
)
"""Of a port: queues for packets to several receivers, flow control that `hazards` reads, its watchdog (AVD's
tested qos.cfg), what DCBX tells."""
_KNOWN_GLOBAL: Final = re.compile(
    r"qos map .*|qos profile .*|qos rewrite cos|(?:policy|class)-map .*|traffic-policies|queue-monitor .*"
    r"|priority-flow-control (?:all off|pause watchdog .*)|interface .*|(?:ip|ipv6|mac) access-list .*"
    r"|(?!qos ).* qos dscp .*|hardware (?:counter|tcam|port-group|speed-group) .*"
    r"|platform trident mmu queue profile \S+"
)
"""Of the switch: maps, which are read; what only does something where it is bound; PFC; measuring; the tag's
priority; and the DSCP of the switch's own packets (EOS manual, Quality of Service; AVD's tested qos.cfg)."""


@dataclass(frozen=True, slots=True)
class RunningSettings:
    """What a switch runs, as far as it concerns the wanted ports."""

    maps: Maps
    policies: OwnPolicies
    ports: Mapping[str, PortSettings]
    """By name, the wanted ones."""
    policies_used_elsewhere: frozenset[str]
    """Those of ours that a port or a profile has that is not wanted."""
    foreign: tuple[str, ...]
    """Lines of the whole switch, and of VLANs that ports may be in, that nobody here knows."""


def identify(answers: Mapping[str, str]) -> Identity:
    """Who the switch says it is; raises DeviceError.

    The fields are those that napalm's driver reads for its facts. A vEOS has no serial number and answers an
    empty one: its system MAC address stands there.
    """
    with known_form(HOSTNAME):
        name = str(_json(answers[HOSTNAME])["hostname"])
    with known_form(VERSION):
        shown = _json(answers[VERSION])
        return Identity(
            name,
            str(shown.get("serialNumber") or shown.get("systemMacAddress", "")),
            str(shown["modelName"]),
            str(shown["version"]),
        )


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """The running configuration, what of it is not saved, the config sessions, and the model."""
    del wanted
    return (RUNNING_CONFIG, UNSAVED, SESSIONS, VERSION)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """State of the wanted ports and queues, and our routes.

    Raises DeviceError for what cannot be read, for a port that is not there or is a member of a port channel,
    and for settings of the whole switch or PFC that break what the plan promises.
    """
    notes = [*_hardware_notes(answers, capabilities.hardware), *_unsaved_notes(answers)]
    lines = tuple(placed_lines(answers[RUNNING_CONFIG]))
    if "end" not in map(str.rstrip, answers[RUNNING_CONFIG].splitlines()):
        shown = answers[RUNNING_CONFIG].strip().rpartition("\n")[2][:80]
        raise DeviceError(
            f"is cut short: {shown!r} is its last line", where=RUNNING_CONFIG, expected="a line `end`"
        )
    waiting = waiting_sessions(read_sessions(answers))
    settings = read_settings(answers, wanted, capabilities)
    lossless = tuple(check_hazards(lines, wanted, settings))
    return RunningState(
        state_with(answers, settings, wanted),
        answers,
        tuple(notes),
        tuple(map(_unconfirmed, waiting)),
        lossless,
    )


def state_with(answers: Mapping[str, str], settings: RunningSettings, wanted: SwitchState) -> SwitchState:
    """What these settings mean, with our routes."""
    ports = tuple(
        port_state(
            port.name,
            settings.ports[port.name],
            settings.maps,
            settings.policies,
            wanted.background_dscp,
            [queue.queue for queue in port.queues],
            [queue.queue for queue in port.queues if queue.is_lossless],
        )
        for port in wanted.ports
    )
    entrances = (settings.policies.entrance(port.policy) for port in settings.ports.values())
    routes = read_routes(answers, wanted)
    return SwitchState(
        ports, routes, background_dscp=dscp_set_by(entrances), unexpected=settings.foreign if ports else ()
    )


def _unconfirmed(session: str) -> str:
    return (
        f"config session {session} waits to be confirmed, and the switch undoes it when its timer runs out: "
        f"push again, or `configure session {session} commit` and `write memory`; "
        f"`configure session {session} abort` undoes it now"
    )


def _unsaved_notes(answers: Mapping[str, str]) -> Iterator[str]:
    if any(line.strip() for line in answers[UNSAVED].splitlines()):
        yield NOT_SAVED


def hardware_of(model: str) -> set[str]:
    """The chip of a box: behind its name stands how it is cooled and equipped, DCS-7050CX3-32S-F."""
    name = model.lower().removeprefix("dcs-")
    if name.startswith(R_SERIES) and "r" in name.partition("-")[0]:
        return {"jericho"}
    return {chip for box, chip in BOX_CHIPS.items() if name == box or name.startswith(f"{box}-")}


def _hardware_notes(answers: Mapping[str, str], wanted: str) -> Iterator[str]:
    with known_form(VERSION):
        model = str(_json(answers[VERSION])["modelName"])
    if not hardware_of(model):
        yield f"whether {model} has the chip {wanted}, for which the plan was made, is not known"


def read_settings(
    answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities
) -> RunningSettings:
    """The switch's maps, our policies, and the settings of the wanted ports."""
    maps, policies = Maps(), OwnPolicies()
    own: dict[str, list[PlacedLine]] = {f"interface {port.name}": [] for port in wanted.ports}
    present: set[str] = set()
    used_elsewhere: set[str] = set()
    foreign: list[str] = []
    for line in placed_lines(answers[RUNNING_CONFIG]):
        if not line.modes:
            present.add(line.text)
            if line.text.startswith("qos map "):
                maps = _mapped(maps, line.text)
            elif touches_switch(line.text) and not _KNOWN_GLOBAL.fullmatch(line.text):
                foreign.append(line.text)
        elif line.modes[0] in own:
            own[line.modes[0]].append(line)
        elif (own_port := own.get(line.modes[0].partition(".")[0])) is not None and touches_switch(line.text):
            own_port.append(replace(line, modes=line.modes[:1], text=f"{line.modes[0]}: {line.text}"))
        elif line.modes[0] in POLICY_OF_HEAD:
            policies = with_line(policies, line.modes, line.text)
        elif match := _POLICY.fullmatch(line.text):
            used_elsewhere.add(match[1])
        if line.modes and line.modes[0].startswith("interface Vlan") and touches_switch(line.text):
            foreign.append(f"{line.modes[0]}: {line.text}")
    bridged = any(all(line.text != "no switchport" for line in lines) for lines in own.values())
    foreign = [line for line in foreign if bridged or not line.startswith("interface Vlan")]
    for name in own:
        if name not in present:
            raise DeviceError(f"there is no {name}", where=RUNNING_CONFIG)
    word = queue_word(capabilities)
    return RunningSettings(
        maps,
        replace(policies, heads=frozenset(present.intersection(POLICY_OF_HEAD))),
        {name.removeprefix("interface "): _port(lines, word) for name, lines in own.items()},
        frozenset(used_elsewhere.intersection(CLASSES)),
        tuple(foreign),
    )


def _mapped(maps: Maps, text: str) -> Maps:
    if _MAP_OF_OTHERS.fullmatch(text):
        return maps
    match = _MAP.fullmatch(text)
    if match is None or (match[1] == "traffic-class") == (match[3] == "traffic-class"):
        raise DeviceError(f"cannot read {text!r}", where=RUNNING_CONFIG)
    kind = match[1]
    try:
        numbers, value = _numbers(match[2], NAMED if kind == "dscp" else {}), int(match[4])
        if kind == "cos":
            return replace(maps, cos=_set(maps.cos, numbers, value))
        if kind == "traffic-class":
            return replace(maps, queue=_set(maps.queue, numbers, value))
        precedence = _set(maps.precedence, numbers, int(match[5] or 0))
        return replace(maps, dscp=_set(maps.dscp, numbers, value), precedence=precedence)
    except (ValueError, IndexError):
        raise DeviceError(f"cannot read {text!r}", where=RUNNING_CONFIG) from None


def _numbers(text: str, named: Mapping[str, int]) -> set[int]:
    """`8 9 10`, `8,9,10`, `8-10`, and names of code points."""
    numbers: set[int] = set()
    for word in text.replace(",", " ").split():
        numbers.update((named[word],) if word in named else numbers_in(word, DSCP_COUNT))
    if not numbers:
        raise ValueError(text)
    return numbers


def _set(values: tuple[int, ...], indices: Iterable[int], value: int) -> tuple[int, ...]:
    changed = list(values)
    for index in indices:
        changed[index] = value
    return tuple(changed)


def _port(lines: list[PlacedLine], word: str) -> PortSettings:
    """Settings of one port; lines that have nothing to do with queues and classification are left alone."""
    routed = any(line.text == "no switchport" for line in lines)
    port = PortSettings(trust=TRUSTED if routed else "cos")
    queues: dict[int, QueueSettings] = {}
    others: list[str] = []
    for line in lines:
        words = line.text.split()
        if len(line.modes) == 1:
            match words:
                case ["qos", "trust", "dscp" | "cos"]:
                    port = replace(port, trust=words[2])
                case ["no", "qos", "trust"]:
                    port = replace(port, trust=UNTRUSTED)
                case ["qos", "cos", number] if number.isdecimal() and int(number) < TRAFFIC_CLASSES:
                    port = replace(port, cos=int(number))
                case ["qos", "dscp", number] if number.isdecimal() and int(number) < DSCP_COUNT:
                    port = replace(port, dscp=int(number))
                case [found, number] if (
                    found == word and number.isdecimal() and int(number) < TRAFFIC_CLASSES
                ):
                    queues.setdefault(int(number), QueueSettings())
                case _ if match := _POLICY.fullmatch(line.text):
                    port = replace(port, policy=match[1])
                case _ if touches_port(line.text) and not _KNOWN.fullmatch(line.text):
                    others.append(line.text)
        else:
            mode, _, number = line.modes[1].partition(" ")
            if mode == word and number.isdecimal() and int(number) in queues:
                queues[int(number)] = _queue(queues[int(number)], line.text)
    return replace(
        port,
        queues=tuple(queues.get(number, QueueSettings()) for number in range(TRAFFIC_CLASSES)),
        others=tuple(others),
    )


def _queue(queue: QueueSettings, text: str) -> QueueSettings:
    if text in _DEFAULT:
        return queue
    if text == "no priority":
        return replace(queue, strict=False)
    if text == "random-detect ecn count":
        return replace(queue, counts=True)
    if match := _BANDWIDTH.fullmatch(text):
        bandwidth = _bandwidth(match)
        return (
            replace(queue, minimum=bandwidth)
            if match[1] == "bandwidth guaranteed"
            else replace(queue, maximum=bandwidth)
        )
    match = _DETECTION.fullmatch(text)
    if match is not None and match[2] == match[4]:
        probability, weight = int(match[5] or 100), int(match[6] or 0)
        detection = Detection(int(match[1]), int(match[3]), match[2], probability, weight)
        return replace(queue, detection=detection)
    return replace(queue, others=(*queue.others, text))


def _bandwidth(match: re.Match[str]) -> Bandwidth:
    if match[4] == "kbps":
        return BitRate(int(match[3]) * RATE_STEP_BPS)
    return PortShare(int(match[2] or match[3]))


def read_routes(answers: Mapping[str, str], wanted: SwitchState) -> tuple[RouteState, ...]:
    """Our static routes of the default VRF."""
    own = OwnPrefixes(wanted.routes)
    found: list[RouteState] = []
    for line in placed_lines(answers[RUNNING_CONFIG]):
        if line.modes or not line.text.startswith("ip route "):
            continue
        match = _ROUTE.fullmatch(line.text)
        if match is None:
            raise DeviceError(f"cannot read {line.text!r}", where=RUNNING_CONFIG)
        try:
            prefix = IPv4Network(f"{match['address']}/{match['length'] or match['mask']}", strict=False)
            next_hop = NO_NEXT_HOP if match["hop"] is None else IPv4Address(match["hop"])
        except ValueError as error:
            raise DeviceError(f"cannot read {line.text!r}: {error}", where=RUNNING_CONFIG) from None
        if prefix in own and match["vrf"] in {None, "default"}:
            port = " ".join(filter(None, (match["target"], match["others"].strip())))
            found.append(as_discarding(RouteState(prefix, next_hop, port), NULL_INTERFACE))
    return in_order_of(wanted.routes, found)


def read_sessions(answers: Mapping[str, str]) -> dict[str, str]:
    """Config session → its state, by the words of 4.31: one whose commit timer runs is `pendingCommitTimer`.

    Raises DeviceError for an answer of another form, and for a state that no release is known to have.
    """
    with known_form(SESSIONS):
        shown = _json(answers[SESSIONS])
        states = {
            str(name): known_word(entry["state"], _STATES, f"the state of config session {name}", SESSIONS)
            for name, entry in shown["sessions"].items()
        }
        if unknown := [key for key in shown if _OF_TIMER.search(key) and key not in _KNOWN_OF_TIMER]:
            raise ValueError(f"{unknown[0]}: {shown[unknown[0]]!r}")
        if timed := shown.get(_TIMED):
            states[str(timed)] = _WAITING
        elif shown.get("commitTimerExpireTime", 0) > 0:
            raise ValueError(f"a commit timer runs, and {_TIMED} does not say of which session")
    return states


def next_number(sessions: Iterable[str]) -> int:
    """A number that no session of ours has, nor a lock."""
    matches = (OWN_SESSION.match(name) for name in sessions)
    return max((int(match["number"]) for match in matches if match), default=0) + 1


def waiting_sessions(sessions: Mapping[str, str], *, own: bool = True) -> list[str]:
    """Sessions, ours or those of others, that are committed and not yet confirmed."""
    return [
        name
        for name, state in sessions.items()
        if state == _WAITING and (OWN_SESSION.fullmatch(name) is not None) is own
    ]


def saves_at_commit(answers: Mapping[str, str]) -> bool:
    """Whether a commit is saved at once, so that a reboot brings back what was undone."""
    with known_form(SESSIONS):
        return bool(_json(answers[SESSIONS]).get(_SAVES_AT_ONCE))


def _json(text: str) -> dict[str, Any]:
    return dict(json_in(text))
