"""What a Cumulus switch answers, as state.

NVUE's applied configuration holds what somebody has set; what it leaves out has its default. What was written
into the files below NVUE by hand does not show here: `nv config apply` overwrites it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import HazardError
from mltswitch.targets.base import (
    CounterSource,
    EgressCounters,
    Identity,
    Lossless,
    QueueCounters,
    QueuePlace,
    RunningState,
)
from mltswitch.targets.common import (
    NOT_SAVED,
    POLL_SECONDS,
    SAVED_UNREAD,
    count_in,
    json_in,
    known_form,
    spectrum_hardware,
    unknown_box,
)
from mltswitch.targets.cumulus.ingress import INBOUND, changes_packets, foreign_acls
from mltswitch.targets.cumulus.interpret import Interpreter, lossless_priorities, routes_of, static_routes
from mltswitch.targets.cumulus.leaves import Tree, at, expanded, flatten
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import RouteState, SwitchState

CONFIG: Final = "nv config show -o json"
PENDING: Final = "nv config diff -o json"
_UNREAD: Final = "unread"
UNSAVED: Final = f"nv config diff startup applied -o json || echo {_UNREAD}"
"""NVUE reference, Config Commands; it fails where there is no startup configuration."""
SYSTEM: Final = "nv show system -o json"
PLATFORM: Final = "nv show platform -o json"
_PORT_OBJECTS: Final = re.compile(
    "acl|bridge|description|dot1x|evpn|ip|ipv4|ipv6|link|lldp|neighbor|ptp|router|sflow|synce|telemetry|type"
    "|vlan|vrf|qos (congestion-control|egress-scheduler|egress-shaper|link-pause|mapping|pfc|remark) profile"
    "|qos (counter|pfc-watchdog).*"
)
"""Of an interface: links, addresses, bridging, routing (NVUE reference, Interface), and what is read; the
watchdog acts on priorities with PFC alone (CL-D, PFC Watchdog)."""
_QOS: Final = re.compile(
    "congestion-control|egress-(queue-mapping|scheduler|shaper)|link-pause|mapping|pfc|pfc-watchdog|remark|roce"
)
_CLASS_WORDS: Final = frozenset({"traffic-class", "switch-priority"})


def running_config(answers: Mapping[str, str]) -> Tree:
    """The applied configuration, ranges expanded; raises DeviceError."""
    with known_form(CONFIG):
        shown = json_in(answers[CONFIG])
        parts = [shown] if isinstance(shown, dict) else shown
        sets = [part["set"] for part in parts if "set" in part]
        if len(sets) > 1:
            raise ValueError("more than one `set`")
        return expanded(sets[0] or {}) if sets else {}


def pending_changes(answers: Mapping[str, str], query: str = PENDING) -> tuple[Tree, Tree]:
    """(what is set, what is unset) by a revision, that which nobody has applied; raises DeviceError."""
    with known_form(query):
        text = answers[query].strip()
        shown = json_in(text) if text else []
        trees: dict[str, Tree] = {"set": {}, "unset": {}}
        for part in [shown] if isinstance(shown, dict) else shown:
            for verb, tree in part.items():
                if verb == "header":
                    continue
                if trees[verb]:
                    raise ValueError(f"more than one `{verb}`")
                trees[verb] = expanded(tree or {})
        return trees["set"], trees["unset"]


def identify(answers: Mapping[str, str]) -> Identity:
    """Who the switch says it is; raises DeviceError.

    NVIDIA's NVUE reference shows both commands. Before release 5.9 `nv show platform` lists the software
    instead, so serial number and model are not known there.
    """
    with known_form(SYSTEM):
        system = json_in(answers[SYSTEM])
        name, build = str(system["hostname"]), str(system.get("build", ""))
    with known_form(PLATFORM):
        platform = json_in(answers[PLATFORM])
        return Identity(
            name,
            str(platform.get("serial-number") or platform.get("system-mac", "")),
            str(platform.get("product-name", "")),
            build,
        )


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """The applied configuration, what is pending, and what is not saved."""
    del wanted
    return (CONFIG, PENDING, UNSAVED)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """State of the wanted ports and queues, and our routes.

    Raises DeviceError for what cannot be read, for PFC on a switch
    priority that the plan uses or that leads to a traffic class of the plan, and for another access list on
    a port that rewrites what arrives.
    """
    config = running_config(answers)
    with known_form(CONFIG):
        lossless = tuple(_check_flow_control(config, Interpreter(config, wanted.background_dscp), wanted))
        _check_acls(config, wanted)
        _check_members(config, wanted)
        state = state_with(config, wanted)
    notes: tuple[str, ...] = ()
    if answers[UNSAVED].strip().endswith(_UNREAD):
        notes = (SAVED_UNREAD,)
    elif any(pending_changes(answers, UNSAVED)):
        notes = (NOT_SAVED,)
    if wanted.ports and not spectrum_hardware(model := _model(answers)):
        notes = (*notes, unknown_box(model, capabilities.hardware))
    return RunningState(state, answers, notes, lossless=lossless)


def _model(answers: Mapping[str, str]) -> str:
    """As the head of the applied configuration names it; empty where it has none."""
    shown = json_in(answers[CONFIG])
    heads = (part.get("header") or {} for part in ([shown] if isinstance(shown, dict) else shown))
    return next((str(head["model"]) for head in heads if "model" in head), "")


def state_with(config: Tree, wanted: SwitchState) -> SwitchState:
    """What a configuration means for the wanted ports, with our routes."""
    interpreter = Interpreter(config, wanted.background_dscp)
    found = (
        interpreter.port_state(port.name, [queue.queue for queue in port.queues]) for port in wanted.ports
    )
    ports = tuple(
        replace(port, unexpected=(*port.unexpected, *_foreign_of_port(config, port.name))) for port in found
    )
    routes = in_order_of(wanted.routes, tuple(_read_routes(config, wanted)))
    background_dscp = wanted.background_dscp if any(port.rewritten for port in ports) else 0
    foreign = tuple(_foreign_of_switch(config, wanted)) if ports else ()
    return SwitchState(ports, routes, background_dscp=background_dscp, unexpected=foreign)


def _foreign_of_port(config: Tree, port: str) -> Iterator[str]:
    for path, value in flatten(at(config, "interface", port)).items():
        if not _PORT_OBJECTS.fullmatch(" ".join(path[:3]) if path[0] == "qos" else path[0]):
            yield f"interface {port} {' '.join(path)} {value}".rstrip()


def _foreign_of_switch(config: Tree, wanted: SwitchState) -> Iterator[str]:
    """Objects of `qos` that nobody here knows, but for those of classes that are not the plan's; and what
    access lists of VLANs, and of interfaces above a port (`swp1.7`), do to packets of the ports."""
    planned = {str(queue.queue) for port in wanted.ports for queue in port.queues}
    leaves = {
        path: value for path, value in flatten(at(config, "qos")).items() if not _QOS.fullmatch(path[0])
    }
    for path, value in leaves.items():
        pool = [leaf for leaf in leaves if leaf[:2] == path[:2]] if path[0] == "traffic-pool" else [path]
        named = {number for leaf in pool for word, number in pairwise(leaf) if word in _CLASS_WORDS}
        if not named or named & planned:
            yield f"qos {' '.join(path)} {value}".rstrip()
    beginnings = tuple(f"{port.name}." for port in wanted.ports)
    if any(at(config, "interface", port.name, "bridge") for port in wanted.ports):
        beginnings = ("vlan", *beginnings)
    for name in at(config, "interface"):
        for acl, way in foreign_acls(config, name) if name.startswith(beginnings) else ():
            if way == INBOUND and changes_packets(config, acl):
                yield f"interface {name} acl {acl} {way}"


def _read_routes(config: Tree, wanted: SwitchState) -> Iterator[RouteState]:
    own = OwnPrefixes(wanted.routes)
    for prefix, _, route in static_routes(config):
        if prefix in own:
            yield from routes_of(prefix, route)


def _check_flow_control(config: Tree, interpreter: Interpreter, wanted: SwitchState) -> Iterator[Lossless]:
    """Priorities with PFC that the plan leaves alone; raises HazardError for others."""
    for port in wanted.ports:
        queues = {queue.queue for queue in port.queues}
        for priority in sorted(lossless_priorities(config, port.name)):
            # The plan leads its own switch priorities to the classes of their numbers, and moves no other.
            traffic_class = interpreter.queue_of(str(priority))
            if priority in queues:
                use = "which the plan uses"
            elif traffic_class in queues:
                use = f"which leads to traffic class {traffic_class} of the plan"
            else:
                yield Lossless(port.name, priority, *interpreter.led_to(port.name, priority))
                continue
            raise HazardError(
                f"PFC is on for switch priority {priority}, {use}: RED on a lossless queue drops "
                "packets that are not ECN-capable",
                where=f"port {port.name}",
                hint="take the priority out of the port's PFC profile first, with nv unset qos pfc",
            )


def _check_members(config: Tree, wanted: SwitchState) -> None:
    for port in wanted.ports:
        for name, interface in at(config, "interface").items():
            if port.name in at(interface, "bond", "member"):
                raise HazardError(
                    f"is a member of {name}: nobody has told whose queues and maps count then",
                    where=f"port {port.name}",
                    hint=f"take it out first, with nv unset interface {name} bond member {port.name}",
                )


def _check_acls(config: Tree, wanted: SwitchState) -> None:
    """Somebody's deny rule behind our rule for every packet would no longer act."""
    for port in wanted.ports:
        for name, direction in foreign_acls(config, port.name):
            if port.rewritten and direction == INBOUND:
                raise HazardError(
                    f"has the access list {name} inbound, as the plan's own has to be: of the rules of both, "
                    "only the first acts that matches a packet",
                    where=f"port {port.name}",
                    hint=f"take it off the port first, with nv unset interface {port.name} acl {name}",
                )


def _query(port: str) -> str:
    return f"nv show interface {port} counters qos -o json"


def _counter_queries(ports: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(_query, ports))


def _read_counters(answers: Mapping[str, str], places: Iterable[QueuePlace]) -> QueueCounters:
    """The counters of queues; releases and chips that count no marks by class tell none.

    NVUE's object `interface counters qos egress-queue-stats` (Cumulus Linux user guide, Quality of Service).
    Its table prints `tx-uc-buffer-discards` with a unit of bytes, but they are frames. Raises DeviceError.
    """
    counters: dict[QueuePlace, EgressCounters] = {}
    for port, queue in places:
        with known_form(_query(port)):
            found = json_in(answers[_query(port)])["egress-queue-stats"][str(queue)]
            dropped = [count_in(found.get(name)) for name in ("tx-uc-buffer-discards", "wred-discards")]
            counters[port, queue] = EgressCounters(
                sent_bytes=count_in(found.get("tx-bytes")),
                sent_packets=count_in(found["tx-frames"]),
                dropped_packets=None if None in dropped else sum(filter(None, dropped)),
                ce_marked_packets=count_in(found.get("ecn-marked-frames")),
                dropped_at_threshold_packets=dropped[1],
            )
    return counters


COUNTER_SOURCE: Final = CounterSource(_counter_queries, _read_counters, POLL_SECONDS)
