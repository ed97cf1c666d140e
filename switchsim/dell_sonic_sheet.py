"""The command modes of an emulated Enterprise SONiC switch, with their lines and the checks of their values.

Sources: the command tree of the management framework as Broadcom published it (sonic-mgmt-framework, branch
broadcom_sonic_3.x: CLI/clitree/cli-xml, and the ranges of sonic_types.xml) and the value checks behind it
(sonic-mgmt-common, translib/transformer and the YANG models). Texts that end in `[emulator]` are the
emulator's own.

Values are checked as wred.xml, qos_scheduler.xml, sonic-wred-profile.yang, sonic_wred.go,
xfmr_qos_scheduler.go, qos_map_*.xml, qos_interface.xml, interface.xml, macro/route_macro.xml and
xfmr_qos_intf.go do; flow_based_services.xml, sonic-flow-based-services.yang and fbs_app.go, which delete what
refers to a deleted object with it: here that object is in use and stays, which is stricter.
"""

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import groupby
from typing import Any, Final

from switchsim.grammar import CODE_POINTS, Argument, RefusalError, Values, arguments, form, whole
from switchsim.modes import Check, Mode
from switchsim.settings import NO, Facts, Setting

MAX_ROUTES: Final = 10_000
LOSSLESS_PRIORITIES: Final = 2
QUEUES: Final = 8
DSCP_COUNT: Final = 64
MAP_KINDS: Final = {
    "dscp-tc": ("dscp", "traffic-class", DSCP_COUNT),
    "dot1p-tc": ("dot1p", "traffic-class", QUEUES),
    "tc-queue": ("traffic-class", "queue", QUEUES),
    "tc-pg": ("traffic-class", "priority-group", QUEUES),
    "tc-dscp": ("traffic-class", "dscp", QUEUES),
    "pfc-priority-queue": ("pfc-priority", "queue", QUEUES),
}
"""Kind of QoS map → (keyword of an entry's key, keyword of its target, number of possible keys)."""
DSCP_NAMES: Final = {**{n: name for name, n in CODE_POINTS.items()}, 0: "default", 44: "voice-admit"}
"""DSCP → the name by which a class-map shows it, for the code points that have one."""
WRED: Final = "qos wred-policy"
SCHEDULER: Final = "qos scheduler-policy"
CLASS_MAP: Final = "class-map {name} match-type fields match-all"
RESOURCE: Final = "%Error: Resource not found"
_SMALLEST_KBPS: Final = 32
_KBPS_OF_MBPS: Final = 1000


def refused(text: str) -> RefusalError:
    """A refusal by the value checks behind the command line, worded as the switch does (`%Error: ...`)."""
    return RefusalError(f"%Error: {text}")


# --- words with values -------------------------------------------------------------------------------------


def _parse_dscp(word: str) -> str:
    number = {name: dscp for dscp, name in DSCP_NAMES.items()}.get(word)
    dscp = whole("dscp", 0, DSCP_COUNT - 1).parse(word) if number is None else number
    return DSCP_NAMES.get(int(str(dscp)), word)


def _parse_port(word: str) -> str:
    """`Eth1/1` in one word; klish takes `e`, `et` and `eth`, too."""
    name = word.lower().lstrip("eth") if word[:1].isalpha() else ""
    if not name or not word.lower().startswith(("e", "et", "eth")):
        raise ValueError("interface is Eth1/1 and the like")
    return f"Eth{name}"


def _number_list(count: int) -> Argument:
    def parse(word: str) -> tuple[int, ...]:
        found: list[int] = []
        for part in word.split(","):
            match = re.fullmatch(r"([0-9]{1,2})(?:-([0-9]{1,2}))?", part)
            if match is None:
                raise ValueError("write numbers and ranges, such as 0,2-16")
            first, last = int(match[1]), int(match[2] or match[1])
            if not first <= last < count:
                raise ValueError(f"numbers are 0 to {count - 1}")
            found += range(first, last + 1)
        return tuple(found)

    return Argument("entries", parse, together=_ranges)


def _ranges(numbers: Sequence[int]) -> str:
    runs = groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ends = ((run[0][1], run[-1][1]) for run in (list(group) for _, group in runs))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)


ARGUMENTS: Final[Mapping[str, Argument]] = {
    **arguments(
        "eth kind Eth|eth; length 0-255; queue 0-7; any-queue queue 0-47; minimum 1-12480; maximum 1-12480;"
        "probability 0-100; ecn none|green|all; type strict|dwrr|wrr; weight 1-100; meter-type bytes|packets;"
        "cir 0-400000000; pir 0-400000000; cbs 250-125000000; pbs 250-125000000; priority 0-7;"
        "flow-priority priority 0-4095; way receive|send; speed 1000-800000; plain-dscp value 0-63;"
        "class value 0-7; blackhole blackhole; tag 1-4294967295; distance 1-255;"
        "target-of-64 target 0-63; target-of-8 target 0-7"
    ),
    "name": form(
        *("name", "[a-zA-Z0-9][a-zA-Z0-9_-]{0,31}"),
        "a name has at most 32 characters of A-Z, a-z, 0-9, - and _",
    ),
    "interface": Argument("interface", _parse_port),
    "number": Argument("interface", "Eth{}".format),
    "address": Argument("address", IPv4Interface),
    "text": Argument("text", str),
    "dscp": Argument("dscp", _parse_dscp),
    "prefix": Argument("prefix", IPv4Network),
    "next-hop": Argument("next-hop", IPv4Address),
    "port": Argument("port", str),
    "entries-of-64": _number_list(DSCP_COUNT),
    "entries-of-8": _number_list(QUEUES),
}

# --- what does not fit -------------------------------------------------------------------------------------


def users(facts: Facts, what: str, name: str) -> list[str]:
    """Configuration blocks of the ports that use the object of this name, as their setting `what` says."""
    return [fact[0] for fact, value in facts.items() if fact[1] == what and value == name]


def _there(facts: Facts, head: str, name: str) -> None:
    if (head, "") not in facts:
        raise refused(f"No instance found for {name}")


def _check_green(_: Facts, __: str, values: Values) -> None:
    if values.one("maximum", int) < values.one("minimum", int):
        raise refused("Green max threshold must be greater than or equal to min threshold")


def _check_policy(facts: Facts, port: str, values: Values) -> None:
    name = values.one("name", str)
    if (there := facts.get((port, "service-policy"))) is not None:
        raise refused(f"{there} policy already applied")
    _there(facts, f"policy-map {name} type qos", f"'{name}'")


def _check_map(kind: str) -> Check:
    def check(facts: Facts, _: str, values: Values) -> None:
        name = values.one("name", str)
        _there(facts, f"qos map {kind} {name}", f"'{name}'")

    return check


def _check_wred(facts: Facts, _: str, values: Values) -> None:
    name = values.one("name", str)
    _there(facts, f"{WRED} {name}", f"'{name}'")
    check_colour(facts, f"{WRED} {name}")


def check_colour(facts: Facts, policy: str) -> None:
    """Raise RefusalError for a WRED policy without thresholds for green packets, which no port can use."""
    if (policy, "green") not in facts:
        raise refused("Atleast one of the colors(GREEN/YELLOW/RED) must be present in WRED policy")


def _check_scheduler(facts: Facts, port: str, values: Values) -> None:
    name = values.one("name", str)
    if facts.get((port, "scheduler-policy")) == name:
        return
    _there(facts, f"{SCHEDULER} {name}", name)
    for inner in facts.heads("", f"{SCHEDULER} {name}"):
        place = f"{SCHEDULER} {name}\n{inner}"
        if facts.get((place, "meter-type")) == "packets":
            raise refused("Invalid scheduler policy meter type for the interface")
        check_speed(facts, place, port)


def check_speed(facts: Facts, queue: str, port: str) -> None:
    """Raise RefusalError where a scheduler queue's CIR or PIR is above the speed of a port that uses it."""
    speed_kbps = facts[port, "speed"] * _KBPS_OF_MBPS
    if any(facts.get((queue, rate), 0) > speed_kbps for rate in ("cir", "pir")):
        raise refused("PIR/CIR must be less than or equal to port speed")


def check_queue(facts: Facts, queue: str) -> None:
    """Raise RefusalError where a scheduler queue's type, weight, CIR and PIR contradict each other."""
    cir, pir = facts.get((queue, "cir")), facts.get((queue, "pir"))
    if facts.get((queue, "type")) == "strict" and (queue, "weight") in facts:
        raise refused("Strict priority scheduling can not be configured with weight")
    for word, rate in (("CIR", cir), ("PIR", pir)):
        if rate is not None and rate < _SMALLEST_KBPS:
            raise refused(f"{word} must be greater than 32Kbp/4KBps/4000Bps")
    if cir is not None and pir is not None and cir > pir:
        raise refused("PIR must be greater than or equal to CIR")


def _check_lossless(facts: Facts, port: str, values: Values) -> None:
    lossless = {fact[2] for fact in facts if fact[:2] == (port, "lossless")}
    if len(lossless | {values.one("priority", int)}) > LOSSLESS_PRIORITIES:
        raise refused(f"at most {LOSSLESS_PRIORITIES} priorities have flow control [emulator]")


def _check_route(facts: Facts, _: str, values: Values) -> None:
    if port := values.maybe("port", str):
        _there(facts, f"interface {port}", f"'{port}'")


def _check_flow(facts: Facts, flow: str, values: Values) -> None:
    name, policy = values.one("name", str), flow.partition("\n")[0]
    if (policy, "") not in facts:
        raise RefusalError(f"{RESOURCE} [emulator]")
    _there(facts, CLASS_MAP.format(name=name), f"'{name}'")
    if any(f"{policy}\n{head}" != flow for head in facts.heads(f"class {name} ", policy)):
        raise refused("Field update not allowed")


def _removal(what: str, in_use: str, absent: str = RESOURCE) -> Check:
    """Whether an object is there, and no port has it as a fact of this name."""

    def check(facts: Facts, place: str, values: Values) -> None:
        name = values.one("name", str)
        if (place, "") not in facts:
            raise RefusalError(absent)
        flows = (head for policy in facts.heads("policy-map ") for head in facts.heads("class ", policy))
        if users(facts, what, name) or (what == "class" and any(name == head.split()[1] for head in flows)):
            raise refused(in_use.format(name))

    return check


def _check_queue_removal(facts: Facts, queue: str, _: Values) -> None:
    policy = queue.partition("\n")[0]
    if (queue, "") not in facts:
        raise refused("Instance Not found")
    if len(facts.heads("", policy)) == 1 and users(facts, "scheduler-policy", policy.rpartition(" ")[2]):
        raise refused("Last scheduler used by interface cannot be deleted")


# --- the rows ----------------------------------------------------------------------------------------------

_RATES: Final = tuple(
    Setting(word, f"{word} {{{word}}}", NO, absent=RESOURCE) for word in ("pir", "cir", "cbs", "pbs")
)
_QUEUE: Final = (
    *(Setting(word, f"{word} {{{word}}}", NO) for word in ("type", "weight", "meter-type")),
    *_RATES,
)
_FLOW: Final = (
    Setting("dscp", "set dscp {plain-dscp}"),
    Setting("traffic-class", "set traffic-class {class}"),
)
_INTERFACE: Final = (
    Setting("description", "description {text}"),
    Setting("mtu", "mtu {text}", is_fixed=True),
    Setting("speed", "speed {speed}"),
    Setting("fec", "fec {text}", is_fixed=True),
    Setting("unreliable-los", "unreliable-los {text}", is_fixed=True),
    Setting("shutdown", {"shutdown": True, "no shutdown": False}),
    Setting("address", "ip address {address}"),
    Setting("service-policy", "service-policy type qos in {name}", NO, check=_check_policy),
    Setting(
        "wred-policy {queue}", "queue {queue} wred-policy {name}", NO, absent=RESOURCE, check=_check_wred
    ),
    Setting("scheduler-policy", "scheduler-policy {name}", NO, check=_check_scheduler),
    *(
        Setting(kind, f"qos-map {kind} {{name}}", NO, absent=RESOURCE, check=_check_map(kind))
        for kind in MAP_KINDS
    ),
    Setting("lossless {priority}", "priority-flow-control priority {priority}", NO, check=_check_lossless),
    Setting("asymmetric", "priority-flow-control asymmetric", NO),
    Setting("flowcontrol {way}", "flowcontrol {way} on", ("flowcontrol {way} off",)),
)
AS_DELIVERED: Final[Mapping[str, Any]] = {
    "mtu": 9100,
    "speed": 100_000,
    "fec": "none",
    "unreliable-los": "auto",
    "shutdown": False,
}
"""The settings that every port of a new switch shows: name of the setting → value."""
_GREEN: Final = "green minimum-threshold {minimum} maximum-threshold {maximum} drop-probability {probability}"
_VIA: Final = ("{next-hop}", "interface {port}", "{next-hop} interface {port}", "{blackhole}")
ROUTES: Final = (
    Setting(
        "route {prefix} {next-hop} {port} {blackhole}",
        {f"ip route {{prefix}} {via} [tag {{tag}}] [{{distance}}]": None for via in _VIA},
        tuple(f"no ip route {{prefix}} {via}" for via in _VIA),
        check=_check_route,
        absent=RESOURCE,
        omitted=0,
        most=MAX_ROUTES,
        as_entered=True,
        as_rest=True,
    ),
)


def _map(kind: str) -> Mode:
    word, target, count = MAP_KINDS[kind]
    line = (
        f"{word} {{entries-of-{count}}} {target} {{target-of-{DSCP_COUNT if target == 'dscp' else QUEUES}}}"
    )
    undone_by = (f"no {word} {{entries-of-{count}}}",)
    entry = Setting(f"entry {{entries-of-{count}}}", line, undone_by, absent=RESOURCE)
    in_use = _removal(kind, f"map {kind} {{}} is in use [emulator]")
    return _mode(f"conf-{kind}-map-{{head}}", f"qos map {kind} {{name}}", (entry,), in_use)


def _mode(prompt: str, head: str, rows: Sequence[Setting], check_removal: Check, **more: Any) -> Mode:
    """A mode below the global one, whose block can be removed."""
    removed_by = f"no {head.partition('{name}')[0]}{{name}}"
    more |= {"removed_by": removed_by, "check_removal": check_removal}
    return Mode(f"{{device}}({prompt})# ", {}, "config", head, rows, **more)


def _inner(prompt: str, around: str, head: str, rows: Sequence[Setting], **more: Any) -> Mode:
    return Mode(f"{{device}}({prompt})# ", {}, around, head, rows, **more)


def _queue(head: str, rows: Sequence[Setting]) -> Mode:
    return _inner(
        *("conf-scheduler-{head}-{inner}", SCHEDULER, head, rows),
        removed_by=f"no {head}",
        check_removal=_check_queue_removal,
    )


MODES: Final[Mapping[str, Mode]] = {
    WRED: _mode(
        *("conf-wred-{head}", f"{WRED} {{name}}"),
        (Setting("green", _GREEN, ("no green",), check=_check_green), Setting("ecn", "ecn {ecn}", NO)),
        _removal("wred-policy", "wred-policy {} is in use [emulator]"),
    ),
    SCHEDULER: _mode(
        *("conf-sched-policy-{head}", f"{SCHEDULER} {{name}}", ()),
        _removal(
            *("scheduler-policy", "Disallow to delete an active scheduler policy"),
            "%Error: Instance Not found",
        ),
        made_by="lines",
    ),
    **{f"qos map {kind}": _map(kind) for kind in MAP_KINDS},
    "interface": _inner(
        *("conf-if-{head}", "config", "interface {interface}", _INTERFACE),
        made_by="nothing",
        absent="%Error: Interface not found [emulator]",
    ),
    "class-map": _mode(
        *("config-class-map", CLASS_MAP),
        (Setting("description", "description {text}"), Setting("match", "match dscp {dscp}")),
        _removal("class", "class-map {} is in use [emulator]"),
    ),
    "policy-map": _mode(
        *("config-policy-map", "policy-map {name} type qos", ()),
        _removal("service-policy", "policy-map {} is in use [emulator]"),
    ),
    "class": _inner(
        *("config-policy-map-flow", "policy-map", "class {name} priority {flow-priority}", _FLOW),
        check=_check_flow,
    ),
    "queue": _queue("queue {any-queue}", _QUEUE),
    "port": _queue("port", (_RATES[0], _RATES[3])),
}
"""The command modes of configuration blocks, by name, in the order of a running configuration."""
