"""State in the language of Enterprise SONiC, one file with an `exit` for each mode, and read back."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from mltswitch.capabilities import Bandwidth, BitRate, Capabilities
from mltswitch.errors import DeviceError, UnsupportedPlanError
from mltswitch.targets.addresses import address_text, network_text
from mltswitch.targets.base import LineError
from mltswitch.targets.common import check_lines
from mltswitch.targets.dell_sonic.capabilities import (
    BITS_OF_KBPS,
    KILOBYTE,
    LOSSLESS,
    QUEUE_COUNT,
)
from mltswitch.targets.dell_sonic.names import (
    QUEUE_MAP,
    dscp_map_name,
    scheduler_policy_name,
    wred_policy_name,
)
from mltswitch.targets.dell_sonic.rewriting import Rewriting
from mltswitch.targets.dell_sonic.sections import (
    BLACKHOLE,
    configuration_of,
    file_lines,
    number_list,
    with_modes,
)
from mltswitch.targets.dell_sonic.settings import (
    IDENTITY,
    Configuration,
    Interpreter,
    PortKey,
    classification_of,
    untrusted_entries,
)
from mltswitch.targets.expressible import queues_of
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import PortState, QueueState, RouteState, SwitchState
from mltswitch.targets.template import render_template
from mltswitch.wire.tos import DSCP_COUNT

FILE: Final = "mltswitch.txt"
PORT_NAME: Final = re.compile(r"Eth1/[1-9][0-9]{0,2}(?:/[1-9][0-9]?)?|Ethernet(?:0|[1-9][0-9]{0,3})")
"""`Eth1/1`, a part of a broken-out port `Eth1/1/1`, or with native names `Ethernet0`."""


@dataclass(frozen=True, slots=True)
class _WredPolicy:
    name: str
    threshold_kilobytes: int


@dataclass(frozen=True, slots=True)
class _Scheduler:
    number: int
    minimum_kbps: int | None
    maximum_kbps: int | None


@dataclass(frozen=True, slots=True)
class _SchedulerPolicy:
    name: str
    queues: tuple[_Scheduler, ...]


@dataclass(frozen=True, slots=True)
class _DscpEntry:
    dscps: str
    traffic_class: int


@dataclass(frozen=True, slots=True)
class _QueueEntry:
    traffic_class: int
    queue: int


@dataclass(frozen=True, slots=True)
class _Map:
    name: str
    entries: tuple[_DscpEntry, ...] | tuple[_QueueEntry, ...]


@dataclass(frozen=True, slots=True)
class _WredQueue:
    number: int
    policy: str


@dataclass(frozen=True, slots=True)
class _Port:
    name: str
    body: int
    """Index of the lines that it shares with equal ports."""


class _Route(NamedTuple):
    prefix: str
    next_hop: str
    port: str


_Kind = tuple[bool, Rewriting, tuple[QueueState, ...]]
"""Trusted, what is rewritten, and queues."""
_QUEUES: Final = _Map(QUEUE_MAP, tuple(_QueueEntry(*entry) for entry in IDENTITY.items()))


def write_files(state: SwitchState, capabilities: Capabilities) -> dict[str, str]:
    """`mltswitch.txt`."""
    del capabilities
    return {FILE: render_text(state)}


@remembering_last
def render_text(state: SwitchState) -> str:
    """All lines, in an order that is safe to enter: objects before the ports that refer to them, then routes.

    The last one is remembered, because what is rendered is parsed at once, and parsing renders to compare.
    """
    check_expressible(state)
    kinds, bodies = _kinds(state)
    thresholds = {queue.ecn_threshold_bytes for *_, queues in kinds for queue in queues} - {None}
    schedulers = {scheduler_policy_name(queues): queues for *_, queues in kinds}
    flows = sorted({line for _, rewriting, _ in kinds for line in rewriting.lines()})
    return render_template(
        "dell-sonic/mltswitch.txt.j2",
        wred_policies=[
            _WredPolicy(wred_policy_name(threshold), threshold // KILOBYTE)
            for threshold in sorted(threshold for threshold in thresholds if threshold)
        ],
        scheduler_policies=[
            _SchedulerPolicy(name, tuple(_scheduler(queue) for queue in queues if not queue.is_lossless))
            for name, queues in schedulers.items()
        ],
        dscp_maps=list(_dscp_maps(kinds)),
        queue_map=_QUEUES if state.ports else None,
        flows="".join(f"{' ' * len(path)}{words}\n" for path, words in with_modes(flows)),
        bodies=[_body(*kind) for kind in kinds],
        ports=[_Port(port.name, body) for port, body in zip(state.ports, bodies, strict=True)],
        routes=list(map(_route, state.routes)),
    )


def _kinds(state: SwitchState) -> tuple[list[_Kind], list[int]]:
    """Kinds of ports, each once, and for each port the index of its kind.

    Queues are hashed once for all ports in a row that have the same: that takes longer than all else here.
    """
    kinds: list[_Kind] = []
    bodies: list[int] = []
    known: dict[tuple[QueueState, ...], dict[tuple[bool, tuple[int, ...]], int]] = {}
    for queues, alike in groupby(state.ports, queues_of):
        bodies_of = known.setdefault(queues, {})
        for port in alike:
            key = port.trusted, port.rewritten
            if key not in bodies_of:
                bodies_of[key] = len(kinds)
                kinds.append((port.trusted, Rewriting(port.rewritten, state.background_dscp), queues))
            bodies.append(bodies_of[key])
    return kinds, bodies


def _route(route: RouteState) -> _Route:
    if route.discards:
        return _Route(network_text(route.prefix), BLACKHOLE, "")
    return _Route(network_text(route.prefix), address_text(route.next_hop), route.port)


def _body(trusted: bool, rewriting: Rewriting, queues: tuple[QueueState, ...]) -> str:
    return render_template(
        "dell-sonic/port.txt.j2",
        wred_queues=[
            _WredQueue(queue.queue, wred_policy_name(queue.ecn_threshold_bytes))
            for queue in queues
            if queue.ecn_threshold_bytes is not None
        ],
        scheduler_policy=scheduler_policy_name(queues),
        dscp_map=dscp_map_name(classification_of(queues), trusted=trusted),
        queue_map=QUEUE_MAP,
        policy_map=rewriting.name,
    )


def _dscp_maps(kinds: Iterable[_Kind]) -> Iterator[_Map]:
    """Each map once; beside an untrusted port's the one that it would have, so that the file says it."""
    seen: set[str] = set()
    for trusted, _, queues in kinds:
        classification = classification_of(queues)
        maps = [(dscp_map_name(classification), classification)]
        if not trusted:
            everything = tuple(untrusted_entries(queues[-1].queue))
            maps.append((dscp_map_name(classification, trusted=False), ((queues[-1].queue, everything),)))
        for name, entries in maps:
            if name not in seen:
                seen.add(name)
                yield _Map(
                    name,
                    tuple(_DscpEntry(number_list(dscps), queue) for queue, dscps in entries if dscps),
                )


def _scheduler(queue: QueueState) -> _Scheduler:
    return _Scheduler(queue.queue, _kbps(queue.minimum), _kbps(queue.maximum))


def _kbps(rate: Bandwidth | None) -> int | None:
    return rate.bps // BITS_OF_KBPS if isinstance(rate, BitRate) else None


@remembering_last
def check_expressible(state: SwitchState) -> None:
    """Refuse what this system cannot express at all; raises UnsupportedPlanError."""
    for queues, ports in groupby(state.ports, queues_of):
        where = f"port {next(ports).name}"
        numbers = [queue.queue for queue in queues if not queue.is_lossless]
        usable = [number for number in reversed(range(QUEUE_COUNT)) if number not in LOSSLESS]
        if not numbers or [number for number in usable if number in numbers] != numbers:
            raise UnsupportedPlanError(
                f"its queues are {', '.join(map(str, numbers)) or 'none'}",
                where=where,
                expected=f"some of {', '.join(map(str, usable))}, the higher served first",
            )
        if sorted(dscp for queue in queues for dscp in queue.dscps) != list(range(DSCP_COUNT)):
            raise UnsupportedPlanError("not every code point leads to one queue", where=where)


def read_files(files: Mapping[str, str], capabilities: Capabilities) -> SwitchState:
    """Inverse of `write_files`, in any order of lines.

    Every line has to be one that the state, written anew, has too: that is the whole grammar.
    """
    del capabilities
    text = files[FILE]
    lines = list(file_lines(text))
    try:
        state = _state(configuration_of(map(itemgetter(1), lines)))
    except DeviceError as error:
        raise LineError(0, "", str(error)) from None
    rendered = render_text(state)
    if rendered != text:
        check_lines(lines, file_lines(rendered))
    return state


def _state(configuration: Configuration) -> SwitchState:
    policies = {settings.policy for settings in configuration.ports.values()}
    background = max((configuration.rewriting(name)[0].background_dscp for name in policies), default=0)
    interpreter = Interpreter(configuration, background)
    known: dict[PortKey, PortState] = {}
    ports: list[PortState] = []
    for name, settings in configuration.ports.items():
        policy = configuration.schedulers.get(settings.scheduler)
        if policy is None or not policy.queues:
            raise LineError(0, "", f"interface {name} lacks a scheduler-policy with queues")
        if settings.key not in known:
            *first, last = policy.queues
            lossless = interpreter.lossless_queues(name, policy.queues)
            known[settings.key] = interpreter.port_state(name, [*first, *lossless, last])
        one = known[settings.key]
        if one.unexpected:
            raise LineError(0, "", f"interface {name}: {one.unexpected[0]}")
        ports.append(PortState(name, one.trusted, None, one.queues, rewritten=one.rewritten))
    routes = tuple(RouteState(route.prefix, route.next_hop, route.port) for route in configuration.routes)
    return SwitchState(tuple(ports), routes, background_dscp=background)
