"""The wred and scheduler policies, class-maps and policy-maps of an emulated Enterprise SONiC switch.

Sources: the command tree of the management framework as Broadcom published it (sonic-mgmt-framework, branch
broadcom_sonic_3.x: CLI/clitree/cli-xml, and the ranges of sonic_types.xml) and what checks values after it
(sonic-mgmt-common, translib/transformer and the YANG models). Texts that end in `[emulator]` are ours.

Checked as wred.xml, qos_scheduler.xml, sonic-wred-profile.yang, sonic_wred.go and xfmr_qos_scheduler.go do;
flow_based_services.xml, sonic-flow-based-services.yang and fbs_app.go, which delete what refers to a deleted
object with it: here that object is in use and stays, which is stricter.
"""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from mltswitch.lab.emulators.dell_sonic_changes import (
    NAME,
    Change,
    refused,
    with_entry,
    without_entry,
)
from mltswitch.lab.emulators.dell_sonic_state import (
    DSCP_NAMES,
    PORT_SECTION,
    DellSonicConfiguration,
    Green,
    Port,
    Scheduler,
    WredPolicy,
)
from mltswitch.lab.emulators.grammar import Argument, Command, Values, choice, whole

_SMALLEST_KBPS: Final = 32
_BITS_OF_KBPS: Final = 1000
_RATES: Final = ("cir", "pir")
_GREEN: Final = ("minimum", "maximum", "probability")


def create_wred(old: DellSonicConfiguration, values: Values, _: tuple[str, ...]) -> DellSonicConfiguration:
    """A policy that says nothing, where there is none yet."""
    name = values.one("name", str)
    return replace(old, wred=with_entry(old.wred, name, old.wred.get(name, WredPolicy())))


def _change_wred(change: Callable[[WredPolicy, Values], WredPolicy]) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, place: tuple[str, ...]) -> DellSonicConfiguration:
        return replace(old, wred=with_entry(old.wred, place[0], change(old.wred[place[0]], values)))

    return apply


def _green(old: WredPolicy, values: Values) -> WredPolicy:
    green = Green(*(values.one(name, int) for name in _GREEN))
    if green.maximum < green.minimum:
        raise refused("Green max threshold must be greater than or equal to min threshold")
    return replace(old, green=green)


def _no_green(old: DellSonicConfiguration, _: Values, place: tuple[str, ...]) -> DellSonicConfiguration:
    name = place[0]
    if any(name in port.wred.values() for port in old.ports.values()):
        raise refused("Atleast one of the colors(GREEN/YELLOW/RED) must be present in WRED policy")
    return replace(old, wred=with_entry(old.wred, name, replace(old.wred[name], green=None)))


def _delete_wred(old: DellSonicConfiguration, values: Values, _: tuple[str, ...]) -> DellSonicConfiguration:
    name = values.one("name", str)
    if any(name in port.wred.values() for port in old.ports.values()):
        raise refused(f"wred-policy {name} is in use [emulator]")
    return replace(old, wred=without_entry(old.wred, name))


IN_WRED: Final[tuple[Command[Change], ...]] = (
    Command(
        (
            *("green", "minimum-threshold", whole("minimum", 1, 12_480)),
            *("maximum-threshold", whole("maximum", 1, 12_480)),
            *("drop-probability", whole("probability", 0, 100)),
        ),
        _change_wred(_green),
    ),
    Command(("no", "green"), _no_green),
    Command(
        ("ecn", choice("ecn", "none", "green", "all")),
        _change_wred(lambda old, values: replace(old, ecn=values.one("ecn", str))),
    ),
    Command(("no", "ecn"), _change_wred(lambda old, _: replace(old, ecn=""))),
)


def _create_scheduler(number: int | None) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, place: tuple[str, ...]) -> DellSonicConfiguration:
        queue = values.one("queue", int) if number is None else number
        queues = old.schedulers.get(place[0], {})
        with_queue = with_entry(queues, queue, queues.get(queue, Scheduler()))
        return replace(old, schedulers=with_entry(old.schedulers, place[0], with_queue))

    return apply


def _delete_scheduler(number: int | None) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, place: tuple[str, ...]) -> DellSonicConfiguration:
        queue = values.one("queue", int) if number is None else number
        queues = old.schedulers.get(place[0], {})
        if queue not in queues:
            raise refused("Instance Not found")
        if len(queues) == 1 and _users(old, place[0]):
            raise refused("Last scheduler used by interface cannot be deleted")
        left = without_entry(queues, queue)
        if not left:
            return replace(old, schedulers=without_entry(old.schedulers, place[0]))
        return replace(old, schedulers=with_entry(old.schedulers, place[0], left))

    return apply


def _delete_policy(old: DellSonicConfiguration, values: Values, _: tuple[str, ...]) -> DellSonicConfiguration:
    name = values.one("name", str)
    if name not in old.schedulers:
        raise refused("Instance Not found")
    if _users(old, name):
        raise refused("Disallow to delete an active scheduler policy")
    return replace(old, schedulers=without_entry(old.schedulers, name))


def _users(old: DellSonicConfiguration, policy: str) -> list[Port]:
    return [port for port in old.ports.values() if port.scheduler == policy]


def _change_scheduler(change: Callable[[Scheduler, Values], Scheduler]) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, place: tuple[str, ...]) -> DellSonicConfiguration:
        policy, queue = place[0], int(place[1])
        queues = old.schedulers[policy]
        changed = change(queues[queue], values)
        _check_scheduler(changed)
        for port in _users(old, policy):
            check_speed(changed, port)
        return replace(
            old, schedulers=with_entry(old.schedulers, policy, MappingProxyType({**queues, queue: changed}))
        )

    return apply


def _check_scheduler(scheduler: Scheduler) -> None:
    if scheduler.type == "strict" and scheduler.weight is not None:
        raise refused("Strict priority scheduling can not be configured with weight")
    for word in _RATES:
        if word in scheduler.rates and scheduler.rates[word] < _SMALLEST_KBPS:
            raise refused(f"{word.upper()} must be greater than 32Kbp/4KBps/4000Bps")
    if scheduler.rates.get("cir", 0) > scheduler.rates.get("pir", scheduler.rates.get("cir", 0)):
        raise refused("PIR must be greater than or equal to CIR")


def check_speed(scheduler: Scheduler, port: Port) -> None:
    """Refuse rates above a port's."""
    if any(scheduler.rates.get(word, 0) > port.speed_mbps * _BITS_OF_KBPS for word in _RATES):
        raise refused("PIR/CIR must be less than or equal to port speed")


def _set_rate(word: str) -> Change:
    return _change_scheduler(
        lambda old, values: replace(old, rates=with_entry(old.rates, word, values.one(word, int)))
    )


def _no_rate(word: str) -> Change:
    return _change_scheduler(lambda old, _: replace(old, rates=without_entry(old.rates, word)))


_RATE_COMMANDS: Final[tuple[Command[Change], ...]] = tuple(
    command
    for word, least, most in (
        ("cir", 0, 400_000_000),
        ("pir", 0, 400_000_000),
        ("cbs", 250, 125_000_000),
        ("pbs", 250, 125_000_000),
    )
    for command in (
        Command((word, whole(word, least, most)), _set_rate(word)),
        Command(("no", word), _no_rate(word)),
    )
)
IN_SCHEDULER: Final[tuple[Command[Change], ...]] = (
    Command(("no", "queue", whole("queue", 0, 47)), _delete_scheduler(None)),
    Command(("no", "port"), _delete_scheduler(PORT_SECTION)),
)
IN_SCHEDULER_QUEUE: Final[tuple[Command[Change], ...]] = (
    Command(
        ("type", choice("type", "strict", "dwrr", "wrr")),
        _change_scheduler(lambda old, values: replace(old, type=values.one("type", str))),
    ),
    Command(("no", "type"), _change_scheduler(lambda old, _: replace(old, type=""))),
    Command(
        ("weight", whole("weight", 1, 100)),
        _change_scheduler(lambda old, values: replace(old, weight=values.one("weight", int))),
    ),
    Command(("no", "weight"), _change_scheduler(lambda old, _: replace(old, weight=None))),
    Command(
        ("meter-type", choice("meter-type", "bytes", "packets")),
        _change_scheduler(lambda old, values: replace(old, meter_type=values.one("meter-type", str))),
    ),
    Command(("no", "meter-type"), _change_scheduler(lambda old, _: replace(old, meter_type=""))),
    *_RATE_COMMANDS,
)
IN_SCHEDULER_PORT: Final = tuple(
    command for command in _RATE_COMMANDS if {"pir", "pbs"} & {str(word) for word in command.pattern}
)
CREATE_QUEUE: Final = _create_scheduler(None)
CREATE_PORT: Final = _create_scheduler(PORT_SECTION)


def create_flows(
    old: DellSonicConfiguration, values: Values, place: tuple[str, ...]
) -> DellSonicConfiguration:
    """A class-map, a policy-map or a flow in it, where there is none yet."""
    priority, present = values.maybe("priority", int), old.flows.get(place)
    if place[2:] and ("class-map", place[2]) not in old.flows:
        raise refused(f"No instance found for '{place[2]}'")
    if place[2:] and present is None and priority is None:
        raise refused("a new flow needs a priority [emulator]")
    if present and priority is not None and present["priority"] != str(priority):
        raise refused("Field update not allowed")
    made = {} if priority is None else {"priority": str(priority)}
    return replace(old, flows=with_entry(old.flows, place, present or MappingProxyType(made)))


def _in_flows(word: str) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, place: tuple[str, ...]) -> DellSonicConfiguration:
        (value,) = values.raw["value"]
        return replace(
            old, flows=with_entry(old.flows, place, with_entry(old.flows[place], word, str(value)))
        )

    return apply


def _delete_flows(kind: str) -> Change:
    def apply(old: DellSonicConfiguration, values: Values, _: tuple[str, ...]) -> DellSonicConfiguration:
        name = values.one("name", str)
        bound = [port.service_policy for port in old.ports.values()]
        if name in (bound if kind == "policy-map" else (place[2] for place in old.flows if place[2:])):
            raise refused(f"{kind} {name} is in use [emulator]")
        without_entry(old.flows, (kind, name))
        left = {place: flow for place, flow in old.flows.items() if place[:2] != (kind, name)}
        return replace(old, flows=MappingProxyType(left))

    return apply


def _parse_dscp(word: str) -> str:
    number = {name: dscp for dscp, name in DSCP_NAMES.items()}.get(word)
    dscp = whole("dscp", 0, 63).parse(word) if number is None else number
    return DSCP_NAMES.get(int(str(dscp)), word)


IN_CLASS_MAP: Final[tuple[Command[Change], ...]] = (
    Command(("description", Argument("value", str)), _in_flows("description")),
    Command(("match", "dscp", Argument("value", _parse_dscp)), _in_flows("match dscp")),
)
IN_FLOW: Final[tuple[Command[Change], ...]] = (
    Command(("set", "dscp", whole("value", 0, 63)), _in_flows("set dscp")),
    Command(("set", "traffic-class", whole("value", 0, 7)), _in_flows("set traffic-class")),
)
GLOBAL_POLICIES: Final[tuple[Command[Change], ...]] = (
    *(Command(("no", kind, NAME), _delete_flows(kind)) for kind in ("class-map", "policy-map")),
    Command(("no", "qos", "wred-policy", NAME), _delete_wred),
    Command(("no", "qos", "scheduler-policy", NAME), _delete_policy),
)
"""Commands of the global mode that concern policies."""
