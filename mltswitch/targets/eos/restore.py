"""The lines that take an EOS switch back to what it ran before a push.

A commit of the push that still waits to be confirmed is aborted, and nothing else: the switch itself keeps
what ran before. If an earlier push has to be undone too, the answers after the abort show that. All else goes
back in one config session, line by line as the switch printed it, in the phases of diff.py. It is committed
without a timer: who takes a change back does not want the switch to return to it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.targets.base import Change, RunningState, Step
from mltswitch.targets.eos.capabilities import queue_word
from mltswitch.targets.eos.diff import (
    LEAVE,
    Phase,
    Placed,
    Ranked,
    in_order,
    loosens,
    name_of,
    route_lines,
    save_steps,
    session_change,
)
from mltswitch.targets.eos.policy import POLICY_OF_HEAD
from mltswitch.targets.eos.read import (
    RUNNING_CONFIG,
    RunningSettings,
    read_routes,
    read_sessions,
    read_settings,
    waiting_sessions,
)
from mltswitch.targets.eos.settings import Maps
from mltswitch.targets.eos.text import placed_lines
from mltswitch.targets.state import SwitchState

_NO_POLICY: Final = "no service-policy type qos input"
_NO_DETECTION: Final = "no random-detect ecn"
_SETTINGS: Final = (
    (re.compile(r"(?:no )?qos trust.*"), "default qos trust", Phase.DISTRUST),
    (re.compile(r"qos cos .*"), "no qos cos", Phase.DISTRUST),
    (re.compile(r"qos dscp .*"), "no qos dscp", Phase.DISTRUST),
    (re.compile(r"service-policy type qos input .*"), _NO_POLICY, Phase.ATTACH),
    (re.compile(r"(?:no priority|priority strict)"), "priority strict", Phase.SCHEDULE),
    (re.compile(r"bandwidth guaranteed .*"), "no bandwidth guaranteed", Phase.SCHEDULE),
    (re.compile(r"bandwidth percent .*"), "no bandwidth percent", Phase.SCHEDULE),
    (re.compile(r"shape rate .*"), "no shape rate", Phase.TIGHTEN),
    (re.compile(r"random-detect ecn count"), "no random-detect ecn count", Phase.SCHEDULE),
    (re.compile(r"(?:no random-detect ecn|random-detect ecn minimum.*)"), _NO_DETECTION, Phase.TIGHTEN),
)
"""Lines of a port or a queue that set one thing, the line for that as delivered, and when it is entered."""
_EVERY_POLICY_HAS: Final = "class class-default"


def restore_to(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """What undoes a push of the wanted state, as far as `before` differs from what runs."""
    sessions = read_sessions(running.answers)
    waited = waiting_sessions(read_sessions(before))
    if waiting := [name for name in waiting_sessions(sessions) if name not in waited]:
        aborts = [f"configure session {name} abort" for name in waiting]
        return Change(tuple(map(Step, (LEAVE, *aborts))), save_steps([]), "\n".join(aborts) + "\n")
    now, then = (read_settings(answers, wanted, capabilities) for answers in (running.answers, before))
    ranked = [
        *_map_lines(now.maps, then.maps),
        *_policy_lines(_policies(running.answers), _policies(before)),
        *_port_lines(running.answers, before, now, then, _places(wanted, queue_word(capabilities))),
    ]
    routes = route_lines(read_routes(running.answers, wanted), read_routes(before, wanted))
    lines: list[Placed] = [*in_order(ranked), *(((), text) for text in routes)]
    return session_change(lines, sessions, timed=False) if lines else Change((), save_steps([]))


def _places(wanted: SwitchState, word: str) -> dict[tuple[str, ...], tuple[str, int | None]]:
    """Modes of ports and of queues that a push configures → port, queue."""
    places: dict[tuple[str, ...], tuple[str, int | None]] = {}
    for port in wanted.ports:
        places[(f"interface {port.name}",)] = port.name, None
        for queue in port.queues:
            if not queue.is_lossless:
                places[f"interface {port.name}", f"{word} {queue.queue}"] = port.name, queue.queue
    return places


def _map_lines(now: Maps, then: Maps) -> Iterator[Ranked]:
    groups: dict[tuple[int, int], list[str]] = {}
    present = tuple(zip(now.dscp, now.precedence, strict=True))
    for dscp, target in enumerate(zip(then.dscp, then.precedence, strict=True)):
        if target != present[dscp]:
            groups.setdefault(target, []).append(str(dscp))
    for (traffic_class, precedence), dscps in groups.items():
        words = f"qos map dscp {' '.join(dscps)} to traffic-class {traffic_class}"
        yield Phase.MAP, 0, ((), words + (f" drop-precedence {precedence}" if precedence else ""))
    for traffic_class, queue in enumerate(then.queue):
        if queue != now.queue[traffic_class]:
            yield Phase.QUEUE, 0, ((), f"qos map traffic-class {traffic_class} to tx-queue {queue}")


def _policies(answers: Mapping[str, str]) -> list[Placed]:
    """Lines of our access lists, class maps and policy maps, and those that open them."""
    lines = ((line.modes, line.text) for line in placed_lines(answers[RUNNING_CONFIG]))
    return [
        (modes, text)
        for modes, text in lines
        if (*modes, text)[0] in POLICY_OF_HEAD and text != _EVERY_POLICY_HAS
    ]


def _policy_lines(now: list[Placed], then: list[Placed]) -> Iterator[Ranked]:
    """What is removed goes with all that stands in it; policy maps before what they name."""
    order = list(POLICY_OF_HEAD)
    removed = {line for line in now if line not in then}
    for modes, text in now:
        outer = {(modes[:depth], modes[depth]) for depth in range(len(modes))}
        if (modes, text) in removed and not outer & removed:
            phase, rank = (Phase.POLICY, -1) if modes else (Phase.FORGET, order.index(text))
            yield phase, rank, (modes, f"no {name_of(text)}")
    yield from ((Phase.POLICY, 0, line) for line in then if line not in now)


def _port_lines(
    running: Mapping[str, str],
    before: Mapping[str, str],
    now: RunningSettings,
    then: RunningSettings,
    places: Mapping[tuple[str, ...], tuple[str, int | None]],
) -> Iterator[Ranked]:
    present, former = _set_in(places, running), _set_in(places, before)
    phases = {delivered: phase for _, delivered, phase in _SETTINGS}
    for modes, delivered in {**former, **present}:
        new, old = (each.get((modes, delivered), delivered) for each in (former, present))
        if new == old:
            continue
        phase, rank = phases[delivered], int(new != delivered)
        name, queue = places[modes]
        if queue is not None and phase is Phase.TIGHTEN:
            detections = (each.ports[name].queues[queue].detection for each in (then, now))
            if new == delivered or (delivered == _NO_DETECTION and loosens(*detections)):
                phase = Phase.LOOSEN
        elif new == "qos trust dscp":
            phase = Phase.TRUST
        elif delivered == _NO_POLICY:
            if old != delivered:
                yield phase if new != delivered else Phase.DETACH, -1, (modes, f"no {old}")
            if new == delivered:
                continue
        yield phase, rank, (modes, new)


def _set_in(
    places: Mapping[tuple[str, ...], object], answers: Mapping[str, str]
) -> dict[tuple[tuple[str, ...], str], str]:
    """(modes, the setting's line as delivered) → the line that is there."""
    return {
        (line.modes, delivered): line.text
        for line in placed_lines(answers[RUNNING_CONFIG])
        if line.modes in places
        for pattern, delivered, _ in _SETTINGS
        if pattern.fullmatch(line.text)
    }
