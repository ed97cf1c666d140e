"""What leads from what a host runs to a plan, and back: single lines where that does, else whole ports."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import unified_diff
from shlex import join, quote
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, Guard, RunningState, Step, Timer
from mltswitch.targets.common import shell_lock
from mltswitch.targets.engine.facts import Fact, PortFacts
from mltswitch.targets.linux.answers import (
    CLSACT,
    FORWARDING_QUERY,
    INGRESS,
    NO_HANDLE,
    QDISC_QUERY,
    ROUTE_QUERY,
    PortAnswers,
    Qdisc,
    answer,
    port_answers,
)
from mltswitch.targets.linux.capabilities import HARDWARE
from mltswitch.targets.linux.files import lines_of
from mltswitch.targets.linux.foreign import words_of
from mltswitch.targets.linux.lines import FORWARDING, INGRESS_LINES, LEVELS, NUMBER_LINES
from mltswitch.targets.linux.ports import planned_facts, port_of
from mltswitch.targets.linux.read import (
    NOT_FORWARDING,
    foreign_filters,
    forwarding_interfaces,
    forwards,
    marks_in,
    queues_in,
    read_answers,
)
from mltswitch.targets.linux.routes import REPLACE, Routes, former_routes, route_lines, routes_of
from mltswitch.targets.linux.save import IS_SYSTEMD, restoring_saves, save_steps
from mltswitch.targets.state import SwitchState, differences

_STRICT: Final = "{} -batch -"
_FROM_ANYWHERE: Final = "{} -force -batch - || true"
_FOR_GOOD: Final = ", which has no way back"


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """Queues first, then the routes that lead traffic to them; empty when nothing differs.

    A changed threshold replaces one queue. The kernel gives red a new inner queue whenever it is set, by
    `change` as by `replace`, so the packets that wait in it are lost (red_change in sch_red.c; measured
    on Linux 6.1). Anything else builds the port anew, whoever's queues stood there.

    Raises DeviceError for an ingress or clsact qdisc, which replacing the root leaves, and for saved files
    that are somebody else's.
    """
    del capabilities
    answers = port_answers(running.answers, wanted) if QDISC_QUERY in running.answers else {}
    found, present = {port.name: port for port in running.state.ports}, planned_facts(running.state)
    sent: list[str] = []
    shown: list[str] = []
    for name, then in planned_facts(wanted).items():
        port = answers.get(name)
        if port and any(entry.arrives for entry in port.qdiscs):
            others = [entry.kind for entry in port.qdiscs if entry.arrives and entry.kind != CLSACT]
            _check_ingress(name, [*foreign_filters(port), *others])
        if name in found:
            faults = [fault for fault in found[name].unexpected if fault != NOT_FORWARDING]
            notes = [f"found {fault}{_FOR_GOOD}" for fault in faults]
        else:
            standing = _standing(port) if port else []
            notes = [f"removes {entry}{'' if words_of(entry) else _FOR_GOOD}" for entry in standing]
        lines, text = _port_change(name, present.get(name), then, notes)
        sent += lines
        shown += text
    steps = [Step(_STRICT.format("tc"), _batch(sent))] if sent else []
    if _must_forward(running, wanted):
        steps.append(Step(FORWARDING))
        shown.append(f"+ {FORWARDING}")
    old, new = routes_of(running.state, wanted), routes_of(wanted, wanted)
    if lines := route_lines(old, new):
        steps.append(Step(_STRICT.format("ip"), _batch(lines)))
        replaced = (prefix for prefix in new if old.get(prefix, new[prefix]) != new[prefix])
        shown += ["# routes", *(f"- {REPLACE}{old[prefix]}" for prefix in replaced)]
        shown += [f"+ {line}" for line in lines]
    save = save_steps(running.answers, wanted)
    stays = differences(wanted, replace(wanted, unexpected=running.state.unexpected))
    return Change(tuple(steps), save, _batch(shown), stays=stays)


def _check_ingress(name: str, obstacles: Iterable[str]) -> None:
    """Refuse to change what arrives at a port past what somebody else made there; raises DeviceError."""
    for obstacle in obstacles:
        raise DeviceError(
            f"{name} has {obstacle}, which may drop, mark or redirect packets beside the plan's queues",
            where=QDISC_QUERY,
            hint=f"somebody else made it. It holds no filter: tc qdisc del dev {name} {INGRESS}"
            if obstacle == INGRESS
            else f"somebody else made it: ask whether it may go (`tc filter show dev {name} ingress`, or "
            "`egress`, shows it), or leave the port out of the fabric",
        )


def _must_forward(running: RunningState, wanted: SwitchState) -> bool:
    if wanted.segment_routing is None:
        return False
    if FORWARDING_QUERY in running.answers:
        return not forwards(running.answers[FORWARDING_QUERY])
    found = running.state
    return found.segment_routing is None or any(NOT_FORWARDING in port.unexpected for port in found.ports)


def _batch(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _port_change(
    name: str, now: PortFacts | None, then: PortFacts, notes: Iterable[str]
) -> tuple[list[str], list[str]]:
    """(lines to send, lines to show); `notes` are what goes where the port is built anew."""
    if now == then and not notes:
        return [], []
    old, new = lines_of(now or {}, name), lines_of(then, name)
    single = None if now is None or notes else _single_lines(now, then)
    if single is not None:
        pairs = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
        shown = [line for pair in pairs for line in (f"- {pair[0]}", f"+ {pair[1]}")]
        what = "packets that wait in the changed queues are dropped"
        return [line for _, line in pairs], [f"# {name}: {what}", *shown]
    what = "built anew; all packets that wait in its queues are dropped"
    if now is not None and not notes and _queue_part(now) == _queue_part(then):
        what = "what arrives there"
        old, new = (lines_of(_ingress_part(facts), name) for facts in (now, then))
    shown = [f"# {name}: {word}" for word in (what, *notes)]
    for line in unified_diff(old, new, n=len(old) + len(new), lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            shown.append(f"{line[0]} {line[1:]}")
    return new, shown


def _single_lines(now: PortFacts, then: PortFacts) -> list[Fact] | None:
    """The facts whose lines differ and do so by themselves; None: the port has to be built anew."""
    changed = [fact for fact in then if now.get(fact) != then[fact]]
    is_alike = [*now] == [*then] and all(fact[0] in NUMBER_LINES for fact in changed)
    return changed if is_alike else None


def _queue_part(facts: PortFacts) -> PortFacts:
    return {fact: value for fact, value in facts.items() if fact[0] not in INGRESS_LINES}


def _ingress_part(facts: PortFacts) -> PortFacts:
    return {fact: value for fact, value in facts.items() if fact[0] in INGRESS_LINES}


def restoring_change(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """Routes first, so that no traffic is led to queues that go; then forwarding, queues and what arrives.

    Where `running` has no answers, nobody has looked: `RunningState(wanted, {})` gives the way back before
    anything is sent. It builds every port anew, sets every route, and deletes what may not be there, so it
    leads back from any point of a push of `wanted`, also of one that goes on with an unfinished change. Its
    batches go on past errors and always succeed. Its `save` is empty: nothing was saved.

    Raises DeviceError for queues that no command brings back exactly, such as classes and filters of others.
    """
    was = port_answers(before, wanted)
    now = port_answers(running.answers, wanted) if running.answers else {}
    queues = [
        line
        for name, port in was.items()
        for line in (*_former_queues(port, now.get(name)), *_former_ingress(port, now.get(name)))
    ]
    former = former_routes(before)
    unseen: Routes = dict.fromkeys([*former, *routes_of(wanted, wanted)])
    present = former_routes(running.answers) if running.answers else unseen
    for prefix, text in former.items():
        if not text and present.get(prefix) != text:
            raise _no_way_back(f"route {prefix}", "a kind that no plan asks for", ROUTE_QUERY)
    routes = route_lines(present, former, is_way_back=True)
    forwarding = _former_forwarding(before, running, wanted)
    batch = _STRICT if running.answers else _FROM_ANYWHERE
    steps = [Step(batch.format("ip"), _batch(routes))] if routes else []
    steps += [Step(line) for line in forwarding]
    steps += [Step(batch.format("tc"), _batch(queues))] if queues else []
    save, note = restoring_saves(
        before, running.answers, replace(read_answers(before, wanted, capabilities).state, unexpected=())
    )
    return Change(tuple(steps), save, _batch([*routes, *forwarding, *queues]) + note)


def _former_ingress(was: PortAnswers, now: PortAnswers | None) -> list[str]:
    """What gives back what a port did with arriving packets."""
    facts = _ingress_facts(was)
    if now is not None and _ingress_facts(now) == facts:
        return []
    _check_ingress(was.name, foreign_filters(now or was))
    return lines_of(facts, was.name) or [f"qdisc del dev {was.name} {CLSACT}"]


def _ingress_facts(answers: PortAnswers) -> PortFacts:
    marks = marks_in(answers)
    has_clsact = any(entry.kind == CLSACT for entry in answers.qdiscs)
    return {("clsact",): None, ("unmark",): None, **marks} if has_clsact else {}


def _former_queues(was: PortAnswers, now: PortAnswers | None) -> Iterable[str]:
    """What gives back a port's queues, whoever made them; raises DeviceError where nothing can."""
    if now is not None and _said_of_queues(was) == _said_of_queues(now):
        return []
    goal = _own_queues(was)
    if goal is None:
        return _foreign_queues(was)
    then, fault = goal
    if fault:
        raise _no_way_back(was.name, fault, QDISC_QUERY)
    present = _own_queues(now) if now else None
    single = _single_lines(present[0], then) if present and not present[1] else None
    return lines_of(then if single is None else {fact: then[fact] for fact in single}, was.name)


def _said_of_queues(answers: PortAnswers) -> tuple[object, ...]:
    entries = sorted(repr(entry) for entry in answers.qdiscs if not entry.arrives)
    return entries, [answers.sections[f"parent {handle}"] for handle in LEVELS], answers.classes


def _own_queues(answers: PortAnswers) -> tuple[PortFacts, str] | None:
    """(facts of a port's queues, something that no plan asks for); None where they are not ours."""
    found = queues_in(answers)
    if found is None:
        return None
    port = port_of(*found).state
    facts = planned_facts(SwitchState((port,), ()))[port.name]
    return _queue_part(facts), next(iter(port.unexpected), "")


def _foreign_queues(was: PortAnswers) -> Iterator[str]:
    """Queues of others, or the kernel's own default, which has no handle."""
    # Something of ours first, so that there always is something to delete.
    yield from lines_of({("reset",): None}, was.name)
    yield f"qdisc del dev {was.name} root"
    for entry in _standing(was):
        words = words_of(entry)
        if words is None:
            raise _no_way_back(was.name, str(entry), QDISC_QUERY)
        yield f"qdisc replace dev {was.name} {entry.above} {words}"


def _standing(answers: PortAnswers) -> list[Qdisc]:
    """The queues that somebody gave a port, ours included; the kernel's own default ones have no handle."""
    return [entry for entry in answers.qdiscs if entry.handle != NO_HANDLE and not entry.arrives]


def _no_way_back(place: str, what: str, query: str) -> DeviceError:
    return DeviceError(f"{place} had {what}, which no command brings back exactly", where=query)


def _former_forwarding(before: Mapping[str, str], running: RunningState, wanted: SwitchState) -> list[str]:
    """`all` sets every interface; those that forwarded without it are set again."""
    if wanted.segment_routing is None or forwards(answer(before, FORWARDING_QUERY)):
        return []
    if running.answers and not forwards(answer(running.answers, FORWARDING_QUERY)):
        return []
    others = forwarding_interfaces(before[FORWARDING_QUERY])
    settings = [f"net/ipv6/conf/{name}/forwarding=1" for name in others]
    return [f"sysctl -e -q -w {join(['net/ipv6/conf/all/forwarding=0', *settings])}"]


_WORDS: Final = (
    "^(tc|ip) (-force )?-batch -",
    "^sysctl .*-w net/",
    "^sh /run/[m]ltswitch/",  # the way back of a push with a timer
    "^[^ ]*sh -c .* /etc/[m]ltswitch",  # saving
)
"""Beginnings of command lines; the brackets keep the query from finding itself."""
_BUSY: Final = (
    "for each in /proc/[0-9]*; do test $each/ns/net -ef /proc/self/ns/net && "
    "tr '\\0' ' ' < $each/cmdline && echo; done 2> /dev/null | "
    f"grep -E '{'|'.join(_WORDS)}' || test $? -eq 1"
)
_OWN_LINK: Final = "/run/mltswitch-$(readlink /proc/self/ns/net | tr -dc 0-9).lock"

GUARD: Final = Guard(shell_lock(_OWN_LINK), busy=_BUSY)
"""Of a network namespace: the switches of a lab are namespaces of one machine. A command whose connection is
lost runs on, and holds its place in /proc until it has ended."""


_FOLDER: Final = "/run/mltswitch"
_END: Final = "END-OF-THE-WAY-BACK"


def _armed(change: Change, before: Mapping[str, str], wanted: SwitchState, name: str, seconds: int) -> Change:
    """The same change behind a job that undoes it; raises DeviceError for what cannot return."""
    back = restoring_change(before, RunningState(wanted, {}), wanted, next(iter(HARDWARE.values())))
    path = quote(f"{_FOLDER}/{name}")
    # A job whose script was taken away, and written anew since, is not the one that waits for this push.
    run = f"mv {path}.sh {path} && {{ sh {path}; rm -f {path}; }}"
    wait = f"sleep {seconds}; test /proc/self/fd/0 -ef {path}.sh && {run}"
    command = (
        f"scope=; if {IS_SYSTEMD}; then scope='systemd-run --scope -q' && $scope true; fi && "
        "command -v setsid > /dev/null && command -v nohup > /dev/null && "  # a job's failure is not seen
        f"mkdir -p -m 700 {_FOLDER} && cat > {path}.sh && "
        f"exec 3< {path}.sh && {{ setsid nohup $scope sh -c {quote(wait)} > /dev/null 2>&1 <&3 & }}"
    )
    return replace(change, steps=(Step(command, _script(back.steps)), *change.steps))


def _script(steps: Iterable[Step]) -> str:
    return "".join(f"{{ {step.command}; }} <<'{_END}'\n{step.stdin}{_END}\n" for step in steps)


def _kept(name: str) -> tuple[Step, ...]:
    path = quote(f"{_FOLDER}/{name}")
    return (Step(f"rm -f {path}.sh && test ! -e {path}"),)


TIMER: Final = Timer(_armed, _kept, f"test ! -d {_FOLDER} || ls {_FOLDER}")
"""A job on the host itself that takes a push back, unless somebody takes the job away in time.

    /run/mltswitch/NAME.sh      the way back; it is removed to keep the push
    /run/mltswitch/NAME         the same, while it runs

It counts from before the first line of the push. A reboot ends it, and the push with it, which is not saved.
Where systemd is the host's init, the job is a scope of its own (`systemctl list-units 'run-*.scope'`), for
logind may end what a session leaves in that of the session (logind.conf(5), KillUserProcesses).
"""
