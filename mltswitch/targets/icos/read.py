"""What a FASTPATH switch answers, as settings and state.

Queues and maps are read from show commands: they tell what is in force, where `show running-config` leaves
out whatever equals a default that differs between vendors. From the running configuration come static routes,
and of our ports what no show command tells: default priority, PFC, a DSCP map of the port alone. All other
lines in it are somebody else's and stay. A route keeps what stands behind its next hop, such as a preference,
in `RouteState.port`; a route without the address of a next hop has the next hop 0.0.0.0.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError, HazardError
from mltswitch.targets.base import Identity, Lossless, RunningState
from mltswitch.targets.common import indices_of, is_on, known_form, numbers_in, static_route
from mltswitch.targets.foreign import touches_port, touches_switch
from mltswitch.targets.icos.capabilities import QUEUE_COUNT, USER_PRIORITIES, model_of
from mltswitch.targets.icos.policy import OwnPolicies, attach_line, read_policies
from mltswitch.targets.icos.settings import TRUSTED, DropCurve, PortSettings, QueueSettings, port_state
from mltswitch.targets.remap import POLICIES, dscp_set_by, policy_of, rewriting_map
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import RouteState, SwitchState
from mltswitch.wire.tos import DSCP_COUNT

RUNNING_CONFIG: Final = "show running-config"
HOSTS: Final = "show hosts"
VERSION: Final = "show version"
_MODEL_FIELDS: Final = ("system model id", "machine model")
"""Of Dell's N-series, and of other FASTPATHs."""
_DSCP_MAP: Final = "show classofservice ip-dscp-mapping"
_TRUST: Final = "show classofservice trust {}"
_PRIORITIES: Final = "show classofservice dot1p-mapping {}"
_QUEUES: Final = "show interfaces cos-queue {}"
_CURVES: Final = "show interfaces random-detect {}"
_PORT_SHOWS: Final = (_TRUST, _PRIORITIES, _QUEUES, _CURVES)

_TRUST_MODES: Final = {
    "dot1p": "dot1p",
    "ip dscp": "ip-dscp",
    "ip precedence": "ip-precedence",
    "untrusted": "untrusted",
}
# What repeats is possessive, and lines are stripped before: a line of many blanks is read once.
_MAP_ROW: Final = re.compile(r"([0-9]++)(?:\s*+\([a-z0-9/]+\))?\s++([0-9]++)")
_FIELD: Final = re.compile(r"([A-Za-z][A-Za-z ]*+)\s*+(?:\.{2,}|:)\s*+(\S.*)")
_QUEUE_ROW: Final = re.compile(r"([0-9]+)\s+([0-9]+)\s+(?:([0-9]+)\s+)?(strict|weighted)\s+(\S.*)")
_PERCENTS: Final = r"((?:[0-9]+\s*/\s*){3}[0-9]+)"
_CURVE_ROW: Final = re.compile(
    rf"\s*([0-9]+)\s+{_PERCENTS}\s+{_PERCENTS}\s+{_PERCENTS}(?:\s+(yes|no|enabled|disabled))?\s*"
)
_ROUTE: Final = re.compile(r"ip route (?:vrf \S+ )?([0-9.]+)(?:/([0-9]+)| ([0-9.]+)) (\S.*)")
_POLICY: Final = re.compile(r"service-policy in (\S+)")
_PRIORITY: Final = re.compile(r"classofservice dot1p-mapping ([0-7]) ([0-7])")
_FLOW_CONTROL: Final = re.compile(r"(?:storm-control )?flowcontrol(?: (?:symmetric|asymmetric|auto|on))?")
_INNER_MODES: Final = frozenset({"datacenter-bridging"})
_POLICY_MODE: Final = "policy"
_MEMBER: Final = re.compile(r"(?:channel-group|addport) \S+.*")
_KNOWN: Final = re.compile(
    r"(?:no )?(?:classofservice|cos-queue|random-detect|traffic-shape|vlan priority|service-policy in"
    r"|priority-flow-control mode|datacenter-bridging|diffserv)\b.*"
    r"|priority-flow-control priority .* (?:no-)?drop"
)
"""What show commands tell of each port, and what is read of it from the configuration."""
_MANAGEMENTS: Final = {
    "wred": True,
    "random": True,
    "random detect": True,
    "tail drop": False,
    "taildrop": False,
}


def identify(answers: Mapping[str, str]) -> Identity:
    """Who the switch says it is; raises DeviceError.

    Manuals of NETGEAR and Dell name the field `Host name` of `show hosts`, public captures have the fields
    of `show version`. Dell's N-series prints its release in a table by unit, which is not read.
    """
    name = _fields(answers[HOSTS]).get("host name", "")
    shown = _fields(answers[VERSION])
    if not shown:
        raise DeviceError(
            "has no line that is known", where=VERSION, expected="lines `System Model ID... N4032F`"
        )
    return Identity(
        name,
        shown.get("serial number") or shown.get("burned in mac address", ""),
        _model(shown),
        shown.get("software version", ""),
    )


def _model(fields: Mapping[str, str]) -> str:
    return next((fields[field] for field in _MODEL_FIELDS if field in fields), "")


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """Four shows for each port, the DSCP map, the running configuration, and the model."""
    return (
        *(show.format(port.name) for port in wanted.ports for show in _PORT_SHOWS),
        _DSCP_MAP,
        RUNNING_CONFIG,
        VERSION,
    )


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """State of the wanted ports and queues, and our routes.

    Raises DeviceError for what cannot be read, for PFC on a priority that leads to a queue of ours, and for
    what stands where a DiffServ policy of ours has to.
    """
    notes = tuple(_model_notes(answers, capabilities))
    dscp_map, policies = read_dscp_map(answers), read_own_policies(answers)
    if any(map(policy_of, wanted.ports)) and "no diffserv" in map(
        str.strip, answers[RUNNING_CONFIG].splitlines()
    ):
        raise HazardError(
            "DiffServ is off for the whole switch, so no policy holds",
            hint="switch it on first: `diffserv`; policies of others then hold, too",
        )
    settings = {port.name: read_port(answers, port.name) for port in wanted.ports}
    lossless: list[Lossless] = []
    for port in wanted.ports:
        found, queues = settings[port.name], [queue.queue for queue in port.queues]
        if member := next(filter(_MEMBER.fullmatch, _block(answers, port.name)), ""):
            raise HazardError(
                f"is a member of a LAG ({member}): queues and maps are those of the port channel, which the "
                "plan cannot name",
                where=f"port {port.name}",
                hint="take it out of the LAG, or out of the fabric",
            )
        lossless += _check_flow_control(answers, port.name, found, queues, dscp_map)
        if policy_of(port) and found.policy not in {"", *POLICIES}:
            raise HazardError(
                f"it has the policy {found.policy} where the plan needs its own: a port takes one",
                where=f"port {port.name}",
                hint=f"take it off first: `no service-policy in {found.policy}`",
            )
    lossless += _moved_elsewhere(answers, wanted, dscp_map)
    state = state_with(answers, settings, dscp_map, policies, wanted, capabilities)
    return RunningState(state, answers, notes, lossless=tuple(lossless))


def state_with(
    answers: Mapping[str, str],
    settings: Mapping[str, PortSettings],
    dscp_map: Sequence[int],
    policies: OwnPolicies,
    wanted: SwitchState,
    capabilities: Capabilities,
) -> SwitchState:
    """What these settings mean, with our routes and what else was answered."""
    ports = []
    for port in wanted.ports:
        queues = [queue.queue for queue in port.queues]
        step_bytes, background = capabilities.threshold.step_bytes, wanted.background_dscp
        state = port_state(port.name, settings[port.name], dscp_map, policies, background, queues, step_bytes)
        foreign = _foreign_of_port(answers, port.name)
        ports.append(replace(state, unexpected=(*state.unexpected, *foreign)))
    background_dscp = dscp_set_by(policies.entrance(port.policy) for port in settings.values())
    unexpected = tuple(_foreign_of_switch(answers)) if ports else ()
    routes = read_routes(answers, wanted)
    return SwitchState(tuple(ports), routes, background_dscp=background_dscp, unexpected=unexpected)


def hardware_of(name: str) -> tuple[str, ...]:
    """The model whose scale a document names."""
    model = model_of(name)
    return () if model is None else (model,)


def _model_notes(answers: Mapping[str, str], wanted: Capabilities) -> Iterator[str]:
    """A sentence where nothing tells the scale."""
    name = _model(_fields(answers[VERSION]))
    if model_of(name) is None:
        yield (
            f"whether {name or 'this switch'} is the model {wanted.hardware}, for which the plan was made, "
            "is not known: a percent of a threshold may be another number of bytes"
        )


def _sections(answers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(interface, line) of the running configuration; empty: the whole switch. Policies are left out."""
    section, depth = "", 0
    for line in (" ".join(line.split()) for line in answers[RUNNING_CONFIG].splitlines()):
        if line.startswith("interface "):
            section, depth = line.removeprefix("interface ").replace(" ", "").lower(), 1
        elif line.startswith(("policy-map ", "class-map ")):
            section, depth = _POLICY_MODE, 1
        elif section and line == "exit":
            depth -= 1
            section = section if depth else ""
        else:
            depth += line in _INNER_MODES or (section == _POLICY_MODE and line.startswith("class "))
            if section != _POLICY_MODE and line and not line.startswith("!"):
                yield section, line


def _foreign_of_port(answers: Mapping[str, str], name: str) -> Iterator[str]:
    """Lines of a port that nobody here knows, and those by which pause frames stop all queues of it."""
    for section, line in _sections(answers):
        is_paused = section in {"", name} and _FLOW_CONTROL.fullmatch(line)
        if is_paused or (section == name and touches_port(line) and not _KNOWN.fullmatch(line)):
            yield line


def _foreign_of_switch(answers: Mapping[str, str]) -> Iterator[str]:
    """Lines of the whole switch or of a VLAN that nobody here knows, and policies that are bound there."""
    for section, line in _sections(answers):
        is_known = _FLOW_CONTROL.fullmatch(line) or _KNOWN.fullmatch(line)
        is_bound = line.startswith("service-policy ")
        if (not section or section.startswith("vlan")) and (
            is_bound or (touches_switch(line) and not is_known)
        ):
            yield f"interface {section}: {line}" if section else line


def read_dscp_map(answers: Mapping[str, str]) -> tuple[int, ...]:
    """Queue of every code point; raises DeviceError for an answer of another form."""
    with known_form(_DSCP_MAP):
        rows = dict(_rows(answers[_DSCP_MAP]))
        return tuple(rows[dscp] for dscp in range(DSCP_COUNT))


def read_own_policies(answers: Mapping[str, str]) -> OwnPolicies:
    """Our DiffServ policies and their classes."""
    return read_policies(answers[RUNNING_CONFIG].splitlines())


def ports_with_policy(answers: Mapping[str, str], policy: str) -> set[str]:
    """Interfaces that have a policy, in lower case and without spaces; an empty one: all of the switch."""
    return {section for section, line in _sections(answers) if line == attach_line(policy)}


def read_port(answers: Mapping[str, str], name: str) -> PortSettings:
    """Settings of one port; raises DeviceError for an answer of another form."""
    trust, priorities, queues, curves = (show.format(name) for show in _PORT_SHOWS)
    with known_form(trust):
        mode = _TRUST_MODES[_fields(answers[trust])["class of service trust mode"].lower()]
    with known_form(priorities):
        rows = dict(_rows(answers[priorities]))
        mapped = tuple(rows[priority] for priority in range(USER_PRIORITIES))
    with known_form(queues):
        fields = _fields(answers[queues])
        shown = dict(_queue_rows(answers[queues]))
        settings = [shown[number] for number in range(QUEUE_COUNT)]
        shaping, exponent = fields["interface shaping rate"], int(fields["wred decay exponent"])
    with known_form(curves):
        shown_curves = dict(_curve_rows(answers[curves]))
        settings = [replace(entry, curve=shown_curves[number]) for number, entry in enumerate(settings)]
    block = _block(answers, name)
    return PortSettings(
        trust=mode,
        priorities=mapped,
        default_priority=_default_priority(block),
        shaping="" if shaping.split()[0] == "0" else shaping,
        weighting_exponent=exponent,
        queues=tuple(settings),
        policy=next((match[1] for match in map(_POLICY.fullmatch, block) if match), ""),
        own_map=tuple(line for line in block if line.startswith("classofservice ip-dscp-mapping ")),
    )


def _fields(answer: str) -> dict[str, str]:
    """`Name....... value` and `Name: value` lines."""
    matches = filter(None, map(_FIELD.fullmatch, map(str.strip, answer.splitlines())))
    return {match[1].rstrip().lower(): match[2] for match in matches}


def _rows(answer: str) -> Iterator[tuple[int, int]]:
    """Rows of a table from a code point or priority, perhaps with its name, to a traffic class."""
    for match in filter(None, map(_MAP_ROW.fullmatch, map(str.strip, answer.splitlines()))):
        yield int(match[1]), int(match[2])


def _queue_rows(answer: str) -> Iterator[tuple[int, QueueSettings]]:
    for match in filter(None, map(_QUEUE_ROW.fullmatch, map(str.strip, answer.lower().splitlines()))):
        yield (
            int(match[1]),
            QueueSettings(match[4] == "strict", int(match[2]), int(match[3] or 0), _MANAGEMENTS[match[5]]),
        )


def _curve_rows(answer: str) -> Iterator[tuple[int, DropCurve]]:
    for match in filter(None, map(_CURVE_ROW.fullmatch, map(str.lower, answer.splitlines()))):
        rows = [tuple(map(int, match[group].split("/"))) for group in (2, 3, 4)]
        yield int(match[1]), DropCurve(rows[0], rows[1], rows[2], match[5] in {"yes", "enabled"})


def _block(answers: Mapping[str, str], name: str) -> list[str]:
    """Lines of one port in the running configuration, those of modes inside it, too."""
    return [line for section, line in _sections(answers) if section == name]


def _default_priority(block: Iterable[str]) -> int:
    for line in block:
        if match := re.fullmatch(r"vlan priority ([0-7])", line):
            return int(match[1])
    return 0


@dataclass(frozen=True, slots=True)
class _FlowControl:
    is_on: bool
    lossless: tuple[int, ...]


def _flow_control(block: Iterable[str]) -> _FlowControl:
    flow = False
    lossless: set[int] = set()
    for line in block:
        words = line.split()
        if words[:2] == ["priority-flow-control", "mode"]:
            flow = is_on(" ".join(words[2:]), line, RUNNING_CONFIG, {"auto": True})
        elif words[:2] == ["priority-flow-control", "priority"] and words[-1] == "no-drop":
            try:
                for word in re.split(r"[, ]+", " ".join(words[2:-1])):
                    lossless.update(numbers_in(word, USER_PRIORITIES))
            except ValueError:
                raise DeviceError(f"cannot read {line!r}", where=RUNNING_CONFIG) from None
    return _FlowControl(flow, tuple(sorted(lossless)))


def _check_flow_control(
    answers: Mapping[str, str],
    name: str,
    settings: PortSettings,
    queues: Iterable[int],
    dscp_map: Sequence[int],
) -> Iterator[Lossless]:
    """Priorities with PFC that lead to no queue of the plan; raises HazardError for others."""
    control = _flow_control(_block(answers, name))
    for priority in control.lossless if control.is_on else ():
        if settings.priorities[priority] in queues:
            raise HazardError(
                f"PFC is on for 802.1p priority {priority}, which leads to queue "
                f"{settings.priorities[priority]} of the plan: RED on a lossless queue drops packets that "
                "are not ECN-capable",
                where=f"port {name}",
                hint=f"switch PFC off for it first: `priority-flow-control priority {priority} drop` under "
                "`datacenter-bridging`",
            )
        queue, default = settings.priorities[priority], settings.priorities[settings.default_priority]
        if settings.trust == TRUSTED:
            yield Lossless(name, priority, indices_of(dscp_map, queue))
        elif queue == default or settings.trust in {"dot1p", "ip-precedence"}:
            yield Lossless(name, priority, (), f"classofservice trust {settings.trust}")


def _moved_elsewhere(
    answers: Mapping[str, str], wanted: SwitchState, dscp_map: Sequence[int]
) -> Iterator[Lossless]:
    """Priorities with PFC on other ports, from which the plan's map, the switch's, moves code points.

    Where no line tells what such a port trusts, it is taken to be the DSCP.
    """
    paused = {section for section, line in _sections(answers) if line.startswith("priority-flow-control ")}
    for name in sorted(paused - {"", *(port.name for port in wanted.ports)}) if wanted.ports else ():
        control, lines = _flow_control(_block(answers, name)), [*_block(answers, ""), *_block(answers, name)]
        queues = dict(enumerate(PortSettings().priorities))
        queues |= {int(match[1]): int(match[2]) for match in map(_PRIORITY.fullmatch, lines) if match}
        trust = [line for line in lines if line.startswith("classofservice trust ")]
        if control.is_on and trust[-1:] in ([], [f"classofservice trust {TRUSTED}"]):
            own = rewriting_map(wanted, "FASTPATH")
            for priority in control.lossless:
                yield Lossless(name, priority, own.moved(dscp_map, queues.get(priority, -1)))


def read_routes(answers: Mapping[str, str], wanted: SwitchState) -> tuple[RouteState, ...]:
    """Our static routes."""
    own = OwnPrefixes(wanted.routes)
    found: list[RouteState] = []
    for line in map(str.strip, answers[RUNNING_CONFIG].splitlines()):
        if not line.startswith("ip route ") or line.startswith(("ip route default ", "ip route vrf ")):
            continue
        match = _ROUTE.fullmatch(line)
        if match is None:
            if line.startswith(("ip route distance ", "ip route static ")):
                continue
            raise DeviceError(f"cannot read {line!r}", where=RUNNING_CONFIG)
        target, _, others = match[4].partition(" ")
        route = static_route(line, RUNNING_CONFIG, f"{match[1]}/{match[2] or match[3]}", target, others)
        if route.prefix in own:
            found.append(route)
    return in_order_of(wanted.routes, found)
