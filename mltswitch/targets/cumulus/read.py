"""What a Cumulus switch answers, as state.

NVUE's applied configuration holds what somebody has set; what it leaves out has its default. What was written
into the files below NVUE by hand does not show here: `nv config apply` overwrites it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import HazardError
from mltswitch.targets.base import Identity, RunningState
from mltswitch.targets.common import NOT_SAVED, known_form
from mltswitch.targets.cumulus.ingress import INBOUND, foreign_acls
from mltswitch.targets.cumulus.interpret import Interpreter, lossless_priorities, routes_of, static_routes
from mltswitch.targets.cumulus.leaves import Tree, expanded
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import RouteState, SwitchState

CONFIG: Final = "nv config show -o json"
PENDING: Final = "nv config diff -o json"
UNSAVED: Final = "nv config diff startup applied -o json || true"
"""NVUE reference, Config Commands; where there is no startup configuration, nothing tells."""
SYSTEM: Final = "nv show system -o json"
PLATFORM: Final = "nv show platform -o json"


def running_config(answers: Mapping[str, str]) -> Tree:
    """The applied configuration, ranges expanded; raises DeviceError."""
    with known_form(CONFIG):
        shown = json.loads(answers[CONFIG])
        parts = [shown] if isinstance(shown, dict) else shown
        sets = [part["set"] for part in parts if "set" in part]
        if len(sets) > 1:
            raise ValueError("more than one `set`")
        return expanded(sets[0] or {}) if sets else {}


def pending_changes(answers: Mapping[str, str], query: str = PENDING) -> tuple[Tree, Tree]:
    """(what is set, what is unset) by a revision, that which nobody has applied; raises DeviceError."""
    with known_form(query):
        text = answers[query].strip()
        shown = json.loads(text) if text else []
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
        system = json.loads(answers[SYSTEM])
        name, build = str(system["hostname"]), str(system.get("build", ""))
    with known_form(PLATFORM):
        platform = json.loads(answers[PLATFORM])
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
    del capabilities
    config = running_config(answers)
    with known_form(CONFIG):
        interpreter = Interpreter(config, wanted.background_dscp)
        _check_flow_control(config, interpreter, wanted)
        _check_acls(config, wanted)
        ports = tuple(
            interpreter.port_state(port.name, [queue.queue for queue in port.queues]) for port in wanted.ports
        )
        routes = tuple(_read_routes(config, wanted))
    background_dscp = wanted.background_dscp if any(port.rewritten for port in ports) else 0
    state = SwitchState(ports, in_order_of(wanted.routes, routes), background_dscp=background_dscp)
    notes = (NOT_SAVED,) if any(pending_changes(answers, UNSAVED)) else ()
    return RunningState(state, answers, notes)


def _read_routes(config: Tree, wanted: SwitchState) -> Iterator[RouteState]:
    own = OwnPrefixes(wanted.routes)
    for prefix, _, route in static_routes(config):
        if prefix in own:
            yield from routes_of(prefix, route)


def _check_flow_control(config: Tree, interpreter: Interpreter, wanted: SwitchState) -> None:
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
                continue
            raise HazardError(
                f"PFC is on for switch priority {priority}, {use}: RED on a lossless queue drops "
                "packets that are not ECN-capable",
                where=f"port {port.name}",
                hint="take the priority out of the port's PFC profile first, with nv unset qos pfc",
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
