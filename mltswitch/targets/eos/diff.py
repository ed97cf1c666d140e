"""The lines that take an EOS switch to the plan, in one config session.

The session takes effect as a whole when it is committed, with a timer: unless the change is read back and
confirmed in time, the switch restores what ran before. Still the lines stand in an order in which they could
be entered one by one: queues get the more lenient of both thresholds and strict service; then ports are no
longer trusted, where they were; then ports get the policy map that they need; then packets are led to the
queues; then policy maps leave ports that should have none; then ports are trusted, because until then they
may trust CoS, which leads to any queue; then thresholds and rates are tightened. A phase covers all ports
before the next begins, because packets that one port classifies leave through the others.

One of ours that waits for its confirmation is confirmed where the switch runs the plan; else nobody can know
which of both the operator wants.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, Claim, Guard, Lock, RunningState, Step, Timer
from mltswitch.targets.common import NO_NEXT_HOP, NULL_INTERFACE, PortSetting, QueueSetting
from mltswitch.targets.eos.capabilities import queue_word
from mltswitch.targets.eos.grammar import Line, MapClass, MapDscp, OwnSetting, PolicyText, parse_lines
from mltswitch.targets.eos.policy import (
    CLASSES,
    LIST_HEADS,
    POLICY_OF_HEAD,
    OwnPolicies,
    sequence_number,
)
from mltswitch.targets.eos.read import (
    LOCK_SESSION,
    RUNNING_CONFIG,
    SESSIONS,
    RunningSettings,
    next_number,
    read_sessions,
    read_settings,
    saves_at_commit,
    state_with,
    waiting_sessions,
)
from mltswitch.targets.eos.render import render_text
from mltswitch.targets.eos.settings import TRUSTED, Detection, PortSettings
from mltswitch.targets.eos.text import indented
from mltswitch.targets.remap import policy_of
from mltswitch.targets.state import RouteState, SwitchState, differences

CONFIRM_WITHIN: Final = "00:10:00"
"""After which the switch restores what ran before: longer than reading back takes."""
LEAVE: Final = "end"
_SAVE: Final = "write memory"
_COMMIT_SECONDS: Final = 120.0
"""A commit programs the chip before the prompt comes back."""

Placed = tuple[tuple[str, ...], str]


class Phase(IntEnum):
    """Where a line stands: a phase covers all ports before the next begins."""

    LOOSEN = 0
    SCHEDULE = 1
    DISTRUST = 2
    POLICY = 3
    ATTACH = 4
    QUEUE = 5
    MAP = 6
    DETACH = 7
    TRUST = 8
    TIGHTEN = 9
    FORGET = 10


Ranked = tuple[Phase, int, Placed]
"""Phase, rank within it, line with its modes."""


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """Lines of the rendered file that would change something, and removals of routes that are not planned."""
    sessions = read_sessions(running.answers)
    waiting = waiting_sessions(sessions)
    if others := waiting_sessions(sessions, own=False):
        raise DeviceError(
            f"config session {others[0]}, which is not ours, waits for its commit timer: it may take back "
            "what runs, and until then the switch takes no other commit",
            where=SESSIONS,
            hint=f"wait, or ask who committed it: `configure session {others[0]} commit` keeps it, "
            f"`configure session {others[0]} abort` undoes it",
        )
    planned = list(parse_lines(render_text(wanted, capabilities)))
    settings = read_settings(running.answers, wanted, capabilities)
    lines = [
        *_settings(planned, settings, wanted, queue_word(capabilities)),
        *(((), text) for text in route_lines(running.state.routes, wanted.routes)),
    ]
    after = state_with(running.answers, _after(planned, settings, wanted), wanted)
    stays = differences(wanted, replace(after, routes=wanted.routes))
    if not lines:
        return Change((), save_steps(waiting), stays=stays)
    if waiting:
        raise DeviceError(
            f"a push waits to be confirmed, in config session {waiting[0]}, and what runs is not the plan",
            hint=f"`configure session {waiting[0]} commit` keeps it, `configure session {waiting[0]} abort` "
            f"undoes it, and after at most {CONFIRM_WITHIN} the switch undoes it by itself",
        )
    if saves_at_commit(running.answers):
        raise DeviceError(
            "the switch saves each commit to its startup configuration, before a change was read back",
            where=SESSIONS,
            expected="saveToStartupConfigOnCommit false",
            hint="switch that off for config sessions: a push saves by itself, after it has read back",
        )
    return replace(session_change(lines, sessions), stays=stays)


def _after(lines: Iterable[Line], found: RunningSettings, wanted: SwitchState) -> RunningSettings:
    """The settings when all lines of a change have been entered."""
    maps, policies, ports = found.maps, OwnPolicies(), dict(found.ports)
    for port in wanted.ports:
        settings = ports[port.name]
        used = {queue.queue for queue in port.queues if not queue.is_lossless}
        queues = (
            replace(queue, minimum=None, maximum=None) if number in used else queue
            for number, queue in enumerate(settings.queues)
        )
        policy = "" if settings.policy in CLASSES else settings.policy
        ports[port.name] = replace(settings, queues=tuple(queues), policy=policy)
    for line in lines:
        match line.setting:
            case MapDscp() | MapClass():
                maps = line.setting.apply(maps)
            case PolicyText():
                policies = line.setting.apply(policies)
            case PortSetting() | QueueSetting():
                ports[line.port] = line.setting.apply(ports[line.port])
    return replace(found, maps=maps, policies=policies, ports=ports)


def session_change(lines: Iterable[Placed], sessions: Mapping[str, str], *, timed: bool = True) -> Change:
    """The lines in a config session of their own; a timed one is undone by the switch unless it is saved."""
    name = _next_name(sessions)
    commit = f"configure session {name} commit" + (f" timer {CONFIRM_WITHIN}" if timed else "")
    before = [LEAVE, f"configure session {name}"]
    commands = list(_with_modes(lines))
    steps = (
        *(Step(line, prepares=True) for line in (*before, *(text for _, text in commands), LEAVE)),
        Step(commit, seconds=_COMMIT_SECONDS),
    )
    shown = [*before[1:], *(indented(("", *modes), text) for modes, text in commands), commit]
    return Change(steps, save_steps([name] if timed else []), "\n".join(shown) + "\n")


def _timed(change: Change, before: Mapping[str, str], wanted: SwitchState, name: str, seconds: int) -> Change:
    """The same change, with another time than the one in which a push reads back."""
    del before, wanted, name
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    steps = (replace(step, command=step.command.replace(CONFIRM_WITHIN, time)) for step in change.steps)
    return replace(change, steps=tuple(steps), text=change.text.replace(CONFIRM_WITHIN, time))


TIMER: Final = Timer(_timed, lambda _: ())
"""Saving confirms the commit."""


def save_steps(waiting: Iterable[str]) -> tuple[Step, ...]:
    """What confirms the sessions that wait, and saves."""
    confirm = (Step(f"configure session {name} commit") for name in waiting)
    return (Step(LEAVE), *confirm, Step(_SAVE))


def _next_name(sessions: Iterable[str]) -> str:
    """A name that the switch does not know yet: the one that goes with the lock, where there is that."""
    sessions = list(sessions)
    locks = [int(match["number"]) for match in map(LOCK_SESSION.fullmatch, sessions) if match]
    return f"mltswitch-{max(locks, default=next_number(sessions))}"


def _settings(
    lines: Iterable[Line], found: RunningSettings, wanted: SwitchState, word: str
) -> Iterator[Placed]:
    yield from in_order([*_additions(lines, found), *_removals(lines, found, wanted, word)])


def in_order(ranked: Iterable[Ranked]) -> Iterator[Placed]:
    """Lines by phase and rank; the sort is stable, so within a phase the ports keep their order."""
    for _, _, placed in sorted(ranked, key=lambda entry: entry[:2]):
        yield placed


def _additions(lines: Iterable[Line], found: RunningSettings) -> Iterator[Ranked]:
    """Rendered lines that would change something."""
    for line in lines:
        placed = (line.modes, line.text)
        match line.setting:
            case MapDscp() | MapClass():
                if line.setting.apply(found.maps) != found.maps:
                    yield Phase.QUEUE if isinstance(line.setting, MapClass) else Phase.MAP, 0, placed
            case PolicyText():
                if line.setting.apply(found.policies) != found.policies:
                    yield _policy_phase(line, found.policies), 0, placed
            case RouteState():
                pass
            case _:
                port = found.ports[line.port]
                if line.setting.apply(port) != port:
                    yield *_place(line.setting, port), placed


def _policy_phase(line: Line, found: OwnPolicies) -> Phase:
    """Where a class leads is changed with the maps; all else in a policy only adds to what it moves."""
    names = CLASSES[POLICY_OF_HEAD[line.modes[0]]]
    leads = line.text.startswith("set traffic-class ") and any(
        (name, "traffic-class") in found.actions for name in names
    )
    return Phase.MAP if leads else Phase.POLICY


def _place(setting: OwnSetting, port: PortSettings) -> tuple[Phase, int]:
    match setting:
        case QueueSetting(queue, "detection", detection):
            spares = loosens(detection, port.queues[queue].detection)
            phase, rank = Phase.LOOSEN if spares else Phase.TIGHTEN, 0
        case QueueSetting(_, "maximum", _):
            phase, rank = Phase.TIGHTEN, 0
        case QueueSetting(queue, field, _):
            phase, rank = Phase.SCHEDULE, -queue if field == "strict" else 0
        case PortSetting("policy", _):
            phase, rank = Phase.ATTACH, 0
        case PortSetting("trust", mode):
            phase, rank = Phase.TRUST if mode == TRUSTED else Phase.DISTRUST, 1
        case PortSetting():
            phase, rank = Phase.DISTRUST, 0
    return phase, rank


def loosens(new: Detection | None, old: Detection | None) -> bool:
    """Whether the queue drops no packet that it keeps now."""
    if new is None:
        return True
    if old is None or old.unit != new.unit:
        return False
    return new.minimum >= old.maximum


def _removals(
    lines: Iterable[Line], found: RunningSettings, wanted: SwitchState, word: str
) -> Iterator[Ranked]:
    """What ports have and should not: guarantees, rates, our policies; and what these move too much."""
    for port in wanted.ports:
        settings = found.ports[port.name]
        interface = f"interface {port.name}"
        for queue in port.queues:
            if queue.is_lossless:
                continue
            modes = (interface, f"{word} {queue.queue}")
            if queue.maximum is None and settings.queues[queue.queue].maximum is not None:
                yield Phase.LOOSEN, 0, (modes, "no shape rate")
            if queue.minimum is None and settings.queues[queue.queue].minimum is not None:
                yield Phase.TIGHTEN, 0, (modes, "no bandwidth guaranteed")
        if settings.policy in CLASSES and settings.policy != policy_of(port):
            phase, rank = (Phase.ATTACH, -1) if policy_of(port) else (Phase.DETACH, 0)
            yield phase, rank, ((interface,), f"no service-policy type qos input {settings.policy}")
    policies = OwnPolicies()
    for line in lines:
        if isinstance(line.setting, PolicyText):
            policies = line.setting.apply(policies)
    attached = {policy_of(port) for port in wanted.ports}
    yield from _policy_removals(found.policies, policies, attached)
    for head, policy in POLICY_OF_HEAD.items():
        if head in found.policies.heads and policy not in attached | found.policies_used_elsewhere:
            yield Phase.FORGET, 0, ((), f"no {head}")


def _policy_removals(found: OwnPolicies, wanted: OwnPolicies, attached: set[str]) -> Iterator[Ranked]:
    surplus = found.permits - wanted.permits
    for head, name in LIST_HEADS.items():
        if POLICY_OF_HEAD[head] in attached:
            numbers = sorted(sequence_number(dscp) for its_list, dscp in surplus if its_list == name)
            yield from ((Phase.DETACH, 0, ((head,), f"no {number}")) for number in numbers)
    for modes, text in found.others:
        if POLICY_OF_HEAD[modes[0]] in attached and (modes[:-1], modes[-1]) not in found.others:
            yield Phase.POLICY, -1, (modes, f"no {name_of(text)}")


def name_of(text: str) -> str:
    """As much of a line as names it: an entry's number, an action without its value."""
    words = text.split()
    if words[0].isdecimal():
        return words[0]
    return " ".join(words[:2] if words[0] == "set" else words)


def route_lines(running: Sequence[RouteState], wanted: Sequence[RouteState]) -> Iterator[str]:
    """A route of ours with another distance, say, goes before it is added again; other routes go last."""
    planned = {(route.prefix, route.next_hop) for route in wanted}
    kept, present = set(wanted), set(running)
    removed = [route for route in running if route not in kept]
    for route in removed:
        if (route.prefix, route.next_hop) in planned:
            yield f"no {_spelled(route)}"
    yield from (_spelled(route) for route in wanted if route not in present)
    for route in removed:
        if (route.prefix, route.next_hop) not in planned:
            yield f"no {_spelled(route)}"


def _spelled(route: RouteState) -> str:
    """The line by which a running route stands in the configuration."""
    target, _, others = route.port.partition(" ")
    if target and not target[0].isalpha():
        target, others = "", route.port
    if route.discards:
        target = NULL_INTERFACE
    hop = "" if route.next_hop == NO_NEXT_HOP else str(route.next_hop)
    return " ".join(filter(None, ("ip route", str(route.prefix), target, hop, others)))


def _with_modes(lines: Iterable[Placed]) -> Iterator[Placed]:
    """The lines, and before each the ones that open its modes where they are not open."""
    current: tuple[str, ...] = ()
    for modes, text in lines:
        if modes != current:
            for depth in range(_first_new_mode(current, modes), len(modes)):
                yield modes[:depth], modes[depth]
        yield modes, text
        current = modes


def _first_new_mode(current: tuple[str, ...], modes: tuple[str, ...]) -> int:
    """Index of the first mode to open; after a line of a queue, one of the port needs the port's again."""
    if len(current) > len(modes) and current[: len(modes)] == modes:
        return max(0, len(modes) - 1)
    return next((i for i, mode in enumerate(modes) if i >= len(current) or current[i] != mode), len(modes))


_NO_WORD: Final = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_NAME: Final = 64


# What keeps two operators apart: a config session that nobody commits.
#
#     mltswitch-NUMBER-OWNER-SINCE-WHO    the lock: pending, empty, aborted at the end
#     mltswitch-NUMBER                    the change of whoever has the lock with this number
#
# Sessions have names, and everybody sees them, but whoever enters one that is there gets it. So each operator
# makes one of a name that only he has, and looks then: where another one is there, too, both step back. The
# switch itself drops a pending session after 24 hours and at a reboot (EOS User Manual, Configure Session).
# A pending session whose commit was sent, and not answered, is aborted: after that it cannot be committed.


def _locks(answer: str) -> dict[str, re.Match[str]]:
    """Name of each lock → its parts."""
    sessions = read_sessions({SESSIONS: answer})
    found = {name: LOCK_SESSION.fullmatch(name) for name, state in sessions.items() if state == "pending"}
    return {name: match for name, match in found.items() if match}


def _read(answer: str) -> tuple[int, tuple[Claim, ...]]:
    matches = _locks(answer).values()
    claims = (Claim(match["owner"], match["who"], int(match["since"])) for match in matches)
    return int(time.time()), tuple(claims)


def _take(claim: Claim, answer: str) -> tuple[Step, ...]:
    number = next_number(read_sessions({SESSIONS: answer}))
    name = f"mltswitch-{number}-{claim.owner}-{claim.since}-{_NO_WORD.sub('-', claim.who)}"
    return tuple(map(Step, (LEAVE, f"configure session {name[:_LONGEST_NAME]}", LEAVE)))


def _release(answer: str, owner: str) -> tuple[Step, ...]:
    """A commit that waits stays: it is confirmed, or taken back, by name. The lock goes last: until then
    nobody else begins."""
    sessions = read_sessions({SESSIONS: answer})
    gone: list[str] = []
    for name, match in _locks(answer).items():
        if match["owner"] == owner:
            change = f"mltswitch-{match['number']}"
            gone += [change] if sessions.get(change) == "pending" else []
            gone.append(name)
    return (Step(LEAVE), *(Step(f"configure session {name} abort") for name in gone)) if gone else ()


GUARD: Final = Guard(Lock(SESSIONS, _read, _take, _release), compares=True, whole=RUNNING_CONFIG)
"""A commit makes all of the session run, with what everything was when that was opened."""
