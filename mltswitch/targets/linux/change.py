"""Commands that lead from what a host runs to a plan and back: by single lines if possible, else by ports."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import unified_diff
from shlex import join, quote
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Change, Guard, RunningState, Step, Timer
from mltswitch.targets.common import shell_lock
from mltswitch.targets.engine.facts import PortFacts
from mltswitch.targets.linux.answers import (
    CLSACT,
    FORWARDING_QUERY,
    INGRESS,
    QDISC_QUERY,
    ROUTE_QUERY,
    answer,
)
from mltswitch.targets.linux.capabilities import HARDWARE
from mltswitch.targets.linux.files import batch, lines_of
from mltswitch.targets.linux.foreign import words_of
from mltswitch.targets.linux.lines import FORWARDING, INGRESS_LINES, NUMBER_LINES
from mltswitch.targets.linux.ports import planned_facts, port_of
from mltswitch.targets.linux.read import NOT_FORWARDING, forwarding_interfaces, forwards, read_answers
from mltswitch.targets.linux.routes import REPLACE, Routes, former_routes, route_lines, routes_of
from mltswitch.targets.linux.save import IS_SYSTEMD, restoring_saves, save_steps
from mltswitch.targets.linux.tree import PortAnswers, port_answers
from mltswitch.targets.state import SwitchState, differences

_FOR_GOOD: Final = ", which has no way back"


def change_between(running: RunningState, wanted: SwitchState, capabilities: Capabilities) -> Change:
    """The change to the wanted state: queues first, then the routes to them; empty if nothing differs.

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
        notes: list[str] = []
        if port := answers.get(name):
            arriving = [entry.kind for entry in port.qdiscs if entry.arrives]
            if arriving:
                _check_ingress(name, [*port.foreign_filters, *(kind for kind in arriving if kind != CLSACT)])
            if name not in found:
                notes = [f"removes {entry}{'' if words_of(entry) else _FOR_GOOD}" for entry in port.standing]
        if name in found:
            faults = found[name].unexpected
            notes = [f"found {fault}{_FOR_GOOD}" for fault in faults if fault != NOT_FORWARDING]
        lines, text = _port_change(name, present.get(name), then, notes)
        sent += lines
        shown += text
    forwarding = [FORWARDING] if _must_forward(running, wanted) else []
    old, new = routes_of(running.state, wanted), routes_of(wanted, wanted)
    routes = route_lines(old, new)
    shown += [f"+ {line}" for line in forwarding]
    if routes:
        replaced = (prefix for prefix in new if old.get(prefix, new[prefix]) != new[prefix])
        shown += ["# routes", *(f"- {REPLACE}{old[prefix]}" for prefix in replaced)]
        shown += [f"+ {line}" for line in routes]
    steps = (*_batches("tc", sent), *map(Step, forwarding), *_batches("ip", routes))
    save = save_steps(running.answers, wanted)
    stays = differences(wanted, replace(wanted, unexpected=running.state.unexpected))
    return Change(steps, save, batch(shown), stays=stays)


def _check_ingress(name: str, obstacles: list[str]) -> None:
    """Refuse to change what arrives at a port past what somebody else made there; raises DeviceError."""
    if not obstacles:
        return
    raise DeviceError(
        f"{name} has {obstacles[0]}, which may drop, mark or redirect packets beside the plan's queues",
        where=QDISC_QUERY,
        hint=f"somebody else made it. It holds no filter: tc qdisc del dev {name} {INGRESS}"
        if obstacles[0] == INGRESS
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


def _batches(program: str, lines: Iterable[str], form: str = "{} -batch -") -> list[Step]:
    """The step that sends lines to tc or ip; none where there are no lines."""
    text = batch(lines)
    return [Step(form.format(program), text)] if text else []


def _port_change(
    name: str, now: PortFacts | None, then: PortFacts, notes: list[str]
) -> tuple[list[str], list[str]]:
    """(lines to send, lines to show); `notes` are what goes where the port is built anew."""
    if now == then and not notes:
        return [], []
    single = None if now is None or notes else _single_lines(now, then)
    if now is not None and single is not None:
        old, new = (lines_of({fact: facts[fact] for fact in single}, name) for facts in (now, then))
        pairs = [f"- {before}\n+ {after}" for before, after in zip(old, new, strict=True)]
        return new, [f"# {name}: packets that wait in the changed queues are dropped", *pairs]
    what = "built anew; all packets that wait in its queues are dropped"
    if now is not None and not notes and _part(now, arrives=False) == _part(then, arrives=False):
        what = "what arrives there"
        now, then = _part(now, arrives=True), _part(then, arrives=True)
    old, new = lines_of(now or {}, name), lines_of(then, name)
    difference = unified_diff(old, new, n=len(old) + len(new), lineterm="")
    marked = [f"{line[0]} {line[1:]}" for line in difference if not line.startswith(("---", "+++", "@@"))]
    return new, [*(f"# {name}: {word}" for word in (what, *notes)), *marked]


def _single_lines(now: PortFacts, then: PortFacts) -> PortFacts | None:
    """The facts whose lines differ and do so by themselves; None: the port has to be built anew."""
    changed = {fact: value for fact, value in then.items() if now.get(fact) != value}
    return changed if [*now] == [*then] and all(fact[0] in NUMBER_LINES for fact in changed) else None


def _part(facts: PortFacts, *, arrives: bool) -> PortFacts:
    """What concerns packets that arrive, or the queues."""
    return {fact: value for fact, value in facts.items() if (fact[0] in INGRESS_LINES) is arrives}


def restoring_change(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    """The change that undoes a push: first routes, so that none leads to removed queues, then the queues.

    If `running` has no answers, the host was not read: `RunningState(wanted, {})` gives the rollback before
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
            raise _no_rollback(f"route {prefix}", "a kind that no plan asks for", ROUTE_QUERY)
    routes = route_lines(present, former, is_rollback=True)
    forwarding = _former_forwarding(before, running, wanted)
    form = "{} -batch -" if running.answers else "{} -force -batch - || true"
    steps = (*_batches("ip", routes, form), *map(Step, forwarding), *_batches("tc", queues, form))
    save, note = restoring_saves(
        before, running.answers, replace(read_answers(before, wanted, capabilities).state, unexpected=())
    )
    return Change(steps, save, batch([*routes, *forwarding, *queues]) + note)


def _former_ingress(was: PortAnswers, now: PortAnswers | None) -> list[str]:
    """What gives back what a port did with arriving packets."""
    facts = was.ingress
    if now is not None and now.ingress == facts:
        return []
    _check_ingress(was.name, (now or was).foreign_filters)
    return lines_of(facts, was.name) or [f"qdisc del dev {was.name} {CLSACT}"]


def _former_queues(was: PortAnswers, now: PortAnswers | None) -> Iterable[str]:
    """What gives back a port's queues, whoever made them; raises DeviceError where nothing can."""
    if now is not None and was.said_of_queues == now.said_of_queues:
        return []
    goal = _own_queues(was)
    if goal is None:
        return _foreign_queues(was)
    then, fault = goal
    if fault:
        raise _no_rollback(was.name, fault, QDISC_QUERY)
    present = _own_queues(now) if now else None
    single = _single_lines(present[0], then) if present and not present[1] else None
    return lines_of(then if single is None else single, was.name)


def _own_queues(answers: PortAnswers) -> tuple[PortFacts, str] | None:
    """(facts of a port's queues, something that no plan asks for); None where they are not ours."""
    if answers.queues is None:
        return None
    port = port_of(*answers.queues).state
    facts = planned_facts(SwitchState((port,), ()))[port.name]
    return _part(facts, arrives=False), next(iter(port.unexpected), "")


def _foreign_queues(was: PortAnswers) -> Iterator[str]:
    """Queues of others, or the kernel's own default, which has no handle."""
    # Something of ours first, so that there always is something to delete.
    yield from lines_of({("reset",): None}, was.name)
    yield f"qdisc del dev {was.name} root"
    for entry in was.standing:
        words = words_of(entry)
        if words is None:
            raise _no_rollback(was.name, str(entry), QDISC_QUERY)
        yield f"qdisc replace dev {was.name} {entry.above} {words}"


def _no_rollback(place: str, what: str, query: str) -> DeviceError:
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
"""How operators are kept apart, and running commands are found, in one network namespace.

The switches of a lab are namespaces of one machine. A command whose connection is lost runs on, and stays in
/proc until it has ended.
"""


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
    script = "".join(f"{{ {step.command}; }} <<'{_END}'\n{step.stdin}{_END}\n" for step in back.steps)
    return replace(change, steps=(Step(command, script), *change.steps))


def _kept(name: str) -> tuple[Step, ...]:
    path = quote(f"{_FOLDER}/{name}")
    return (Step(f"rm -f {path}.sh && test ! -e {path}"),)


TIMER: Final = Timer(_armed, _kept, f"test ! -d {_FOLDER} || ls {_FOLDER}")
"""How a host undoes a push by itself: a job on the host, unless somebody removes the job in time.

    /run/mltswitch/NAME.sh      the way back; it is removed to keep the push
    /run/mltswitch/NAME         the same, while it runs

It counts from before the first line of the push. A reboot ends it, and the push with it, which is not saved.
Where systemd is the host's init, the job is a scope of its own (`systemctl list-units 'run-*.scope'`), for
logind may end what a session leaves in that of the session (logind.conf(5), KillUserProcesses).
"""
