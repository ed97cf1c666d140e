"""What takes a host back to the queues, routes and files that it had before a push, at once or in time."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from shlex import join, quote
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.addresses import network_text
from mltswitch.targets.base import Change, RunningState, Step, Timer
from mltswitch.targets.linux.answers import (
    CLSACT,
    FORWARDING_QUERY,
    INGRESS_PARENT,
    QDISC_QUERY,
    ROUTE_QUERY,
    ROUTES,
    SEGMENT_QUERY,
    Qdisc,
    answer,
    load,
)
from mltswitch.targets.linux.capabilities import HARDWARE
from mltswitch.targets.linux.diff import check_ingress, same_but_numbers
from mltswitch.targets.linux.ingress import NO_REWRITING
from mltswitch.targets.linux.layout import LEVELS
from mltswitch.targets.linux.qdiscs import words_of
from mltswitch.targets.linux.read import (
    PortAnswers,
    forwarding_interfaces,
    forwards,
    port_answers,
    read_answers,
)
from mltswitch.targets.linux.read_port import foreign_filters, marks_in
from mltswitch.targets.linux.read_routes import alias_routes, segment_routing
from mltswitch.targets.linux.render import (
    CLSACT_LINES,
    ROUTE_PROTOCOL,
    port_text,
    route_text,
    segment_text,
)
from mltswitch.targets.linux.save import IS_SYSTEMD, restoring_saves
from mltswitch.targets.linux.tree import Tree, switch_state
from mltswitch.targets.routes import OwnPrefixes
from mltswitch.targets.state import SegmentRouting, SwitchState

_STRICT: Final = "{} -batch -"
_FROM_ANYWHERE: Final = "{} -force -batch - || true"


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
    now = port_answers(running.answers, wanted) if running.answers else None
    queues = [
        line
        for name in (port.name for port in wanted.ports)
        for line in (*_queue_lines(name, was, now), *_arrival_lines(name, was, now))
    ]
    former = _routes(before)
    present = _routes(running.answers) if now else dict.fromkeys([*former, *_prefixes(wanted)])
    routes = _route_lines(former, present)
    forwarding = _forwarding(before, running, wanted)
    batch = _STRICT if now else _FROM_ANYWHERE
    steps = [Step(batch.format("ip"), _lines(routes))] if routes else []
    steps += [Step(line) for line in forwarding]
    steps += [Step(batch.format("tc"), _lines(queues))] if queues else []
    save, note = restoring_saves(
        before, running.answers, replace(read_answers(before, wanted, capabilities).state, unexpected=())
    )
    return Change(tuple(steps), save, _lines([*routes, *forwarding, *queues]) + note)


def _lines(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _arrival_lines(name: str, was: PortAnswers, now: PortAnswers | None) -> list[str]:
    has_clsact, marks = _arrivals(name, was)
    if now is not None:
        present, found = _arrivals(name, now)
        if (present, {*found}) == (has_clsact, {*marks}):
            return []
    check_ingress(name, foreign_filters((now or was).filters, name))
    if not has_clsact:
        return [f"qdisc del dev {name} {CLSACT}"]
    return [
        f"qdisc replace dev {name} {CLSACT}",
        f"filter del dev {name} ingress",
        *(f"filter add dev {name} ingress {mark}" for mark in marks),
    ]


def _arrivals(name: str, answers: PortAnswers) -> tuple[bool, tuple[str, ...]]:
    """Whether the port has a clsact, and which code points it rewrites there."""
    return any(entry.kind == CLSACT for entry in answers.of(name)), marks_in(answers.filters, name)


def _queue_lines(name: str, was: PortAnswers, now: PortAnswers | None) -> list[str]:
    if now is not None and _said_of_queues(name, was) == _said_of_queues(name, now):
        return []
    goal = _tree(name, was)
    if goal is None:
        return list(_foreign_lines(name, was))
    [port] = switch_state({name: goal}, ()).ports
    if port.unexpected:
        raise _no_way_back(name, port.unexpected[0], QDISC_QUERY)
    lines = port_text(name, goal).splitlines()[CLSACT_LINES:]
    present = None if now is None else _tree(name, now)
    if present is None or not same_but_numbers(present, goal):
        return lines
    found = port_text(name, present).splitlines()[CLSACT_LINES:]
    return [line for line, old in zip(lines, found, strict=True) if line != old]


def _said_of_queues(name: str, answers: PortAnswers) -> tuple[object, ...]:
    entries = sorted(map(repr, _queues(name, answers)))
    filters = [answers.filters.get(f"{name} {handle}") for handle in LEVELS]
    return entries, filters, answers.classes.get(name)


def _queues(name: str, answers: PortAnswers) -> list[Qdisc]:
    return [entry for entry in answers.of(name) if entry.parent != INGRESS_PARENT]


def _tree(name: str, answers: PortAnswers) -> Tree | None:
    """The port's own tree, whatever it does with packets that arrive."""
    return answers.tree(name, (NO_REWRITING, ()))


def _foreign_lines(name: str, was: PortAnswers) -> Iterator[str]:
    """Queues of others, or the kernel's own default, which has no handle."""
    # Something of ours first, so that there always is something to delete.
    yield f"qdisc replace dev {name} root handle ffef: pfifo"
    yield f"qdisc del dev {name} root"
    for entry in _queues(name, was):
        if entry.handle != "0:":
            words = words_of(entry)
            if words is None:
                raise _no_way_back(name, str(entry), QDISC_QUERY)
            yield f"qdisc replace dev {name} {'root' if entry.root else f'parent {entry.parent}'} {words}"


def _no_way_back(place: str, what: str, query: str) -> DeviceError:
    return DeviceError(f"{place} had {what}, which no command brings back exactly", where=query)


def _route_lines(was: Mapping[str, str], now: Mapping[str, str] | Mapping[str, None]) -> list[str]:
    """What goes goes last, so that no prefix is without a route; None: nobody has looked at it."""
    changed = {prefix: text for prefix, text in was.items() if now.get(prefix) != text}
    for prefix, text in changed.items():
        if not text:
            raise _no_way_back(f"route {prefix}", "a kind that no plan asks for", ROUTE_QUERY)
    return [
        *(f"route {'replace' if prefix in now else 'add'} {text}" for prefix, text in changed.items()),
        *(f"route del {prefix} proto {ROUTE_PROTOCOL}" for prefix in now if prefix not in was),
    ]


def _routes(answers: Mapping[str, str]) -> dict[str, str]:
    """Prefix → our route to it as `ip route` takes it, of whichever plan; empty: none has such a route."""
    found: dict[str, str] = {}
    for entry in load(ROUTES, answers, ROUTE_QUERY):
        for route in alias_routes([entry], OwnPrefixes(())):
            is_ours = not route.port.startswith("(")
            found[network_text(route.prefix)] = route_text(route) if is_ours else ""
    for entry in load(ROUTES, answers, SEGMENT_QUERY):
        if entry.protocol == str(ROUTE_PROTOCOL):
            segments = segment_routing([entry], None)
            found |= {entry.prefix: ""} if segments is None else _segment_routes(segments, entry.port)
    return found


def _prefixes(state: SwitchState) -> Iterator[str]:
    yield from (network_text(route.prefix) for route in state.routes)
    if state.segment_routing is not None:
        yield from _segment_routes(state.segment_routing, "")


def _segment_routes(segments: SegmentRouting, port: str) -> dict[str, str]:
    found = {str(route.prefix): route_text(route) for route in segments.routes}
    if segments.segment is not None:
        found[f"{segments.segment}/128"] = segment_text(segments.segment, port)
    return found


def _forwarding(before: Mapping[str, str], running: RunningState, wanted: SwitchState) -> list[str]:
    """`all` sets every interface; those that forwarded without it are set again."""
    if wanted.segment_routing is None or forwards(answer(before, FORWARDING_QUERY)):
        return []
    if running.answers and not forwards(answer(running.answers, FORWARDING_QUERY)):
        return []
    others = forwarding_interfaces(before[FORWARDING_QUERY])
    settings = [f"net/ipv6/conf/{name}/forwarding=1" for name in others]
    return [f"sysctl -e -q -w {join(['net/ipv6/conf/all/forwarding=0', *settings])}"]


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
