"""The modes of an emulated Enterprise SONiC switch, with the lines of each.

Sources: the command tree of the management framework as Broadcom published it (sonic-mgmt-framework, branch
broadcom_sonic_3.x: CLI/clitree/cli-xml, and the ranges of sonic_types.xml) and what checks values after it
(sonic-mgmt-common, translib/transformer and the YANG models). Texts that end in `[emulator]` are ours.

Checked as wred.xml, qos_scheduler.xml, sonic-wred-profile.yang, sonic_wred.go, xfmr_qos_scheduler.go,
qos_map_*.xml, qos_interface.xml, interface.xml, macro/route_macro.xml and xfmr_qos_intf.go do;
flow_based_services.xml, sonic-flow-based-services.yang and fbs_app.go, which delete what refers to a deleted
object with it: here that object is in use and stays, which is stricter.
"""

import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Final, NamedTuple

from switchsim.grammar import Argument, Command, RefusalError, Values, choice, whole
from switchsim.settings import (
    Edit,
    Lines,
    Setting,
    commands,
)

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
"""Kind of map → (word of an entry, word of its target, number of entries)."""
DSCP_NAMES: Final = {
    **{8 * n: f"cs{n}" for n in range(1, 8)},
    **{8 * n + 2 * m: f"af{n}{m}" for n in range(1, 5) for m in range(1, 4)},
    0: "default",
    44: "voice-admit",
    46: "ef",
}
"""How a class-map shows a code point that has a name."""
_RESOURCE: Final = "%Error: Resource not found"


def refused(text: str) -> RefusalError:
    """A refusal by what checks values, as the command line prints it."""
    return RefusalError(f"%Error: {text}")


def _parse_name(word: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,31}", word):
        raise ValueError("a name has at most 32 characters of A-Z, a-z, 0-9, - and _")
    return word


def _parse_dscp(word: str) -> str:
    number = {name: dscp for dscp, name in DSCP_NAMES.items()}.get(word)
    dscp = whole("dscp", 0, DSCP_COUNT - 1).parse(word) if number is None else number
    return DSCP_NAMES.get(int(str(dscp)), word)


def _parse_port(word: str) -> str:
    """`Eth1/1` in one word; klish takes `e`, `et` and `eth`, too."""
    name = word.lower().lstrip("eth") if word[:1].isalpha() else ""
    if not name or not word.lower().startswith(("e", "et", "eth")):
        raise ValueError("interface is Eth1/1 and the like")
    return name


ARGUMENTS: Final[Mapping[str, Argument]] = {
    "name": Argument("name", _parse_name),
    "interface": Argument("interface", _parse_port),
    "eth": choice("kind", "Eth", "eth"),
    "number": Argument("interface", str),
    "length": whole("length", 0, 255),
    "queue": whole("queue", 0, QUEUES - 1),
    "any-queue": whole("queue", 0, 47),
    "minimum": whole("minimum", 1, 12_480),
    "maximum": whole("maximum", 1, 12_480),
    "probability": whole("probability", 0, 100),
    "ecn": choice("ecn", "none", "green", "all"),
    "type": choice("type", "strict", "dwrr", "wrr"),
    "weight": whole("weight", 1, 100),
    "meter-type": choice("meter-type", "bytes", "packets"),
    "cir": whole("cir", 0, 400_000_000),
    "pir": whole("pir", 0, 400_000_000),
    "cbs": whole("cbs", 250, 125_000_000),
    "pbs": whole("pbs", 250, 125_000_000),
    "priority": whole("priority", 0, 7),
    "flow-priority": whole("priority", 0, 4095),
    "way": choice("way", "receive", "send"),
    "address": Argument("address", IPv4Interface),
    "text": Argument("text", str),
    "speed": whole("speed", 1000, 800_000),
    "dscp": Argument("dscp", _parse_dscp),
    "plain-dscp": whole("value", 0, 63),
    "class": whole("value", 0, 7),
    "prefix": Argument("prefix", IPv4Network),
    "next-hop": Argument("next-hop", IPv4Address),
    "port": Argument("port", str),
    "blackhole": choice("blackhole", "blackhole"),
    "tag": whole("tag", 1, 2**32 - 1),
    "distance": whole("distance", 1, 255),
}

# --- modes -------------------------------------------------------------------------------------------------


class Mode(NamedTuple):
    """What may be entered below a head of one kind, and how the prompt shows it, with the names."""

    prompt: str
    commands: tuple[Command[Edit], ...] = ()
    inner_prompt: str = ""


def _check_green(_: Lines, values: Values) -> None:
    if values.one("maximum", int) < values.one("minimum", int):
        raise refused("Green max threshold must be greater than or equal to min threshold")


def _check_policy(lines: Lines, _: Values) -> None:
    for line in lines.values():
        if line.startswith("service-policy "):
            raise refused(f"{line.split(' ')[-1]} policy already applied")


def _check_lossless(lines: Lines, values: Values) -> None:
    words = "priority-flow-control priority "
    lossless = {line for line in lines.values() if line.startswith(words)}
    if len(lossless | {f"{words}{values.one('priority', int)}"}) > LOSSLESS_PRIORITIES:
        raise refused(f"at most {LOSSLESS_PRIORITIES} priorities have flow control [emulator]")


def _number_list(count: int) -> Callable[[str], tuple[int, ...]]:
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

    return parse


def _set_entries(lines: Lines, values: Values) -> Lines:
    target = str(values.one("target", int))
    return MappingProxyType({**lines, **{(number,): target for number in values.one("entries", tuple)}})


def _drop_entries(lines: Lines, values: Values) -> Lines:
    dropped = {(number,) for number in values.one("entries", tuple)}
    if not dropped <= lines.keys():
        raise RefusalError(_RESOURCE)
    return MappingProxyType({slot: target for slot, target in lines.items() if slot not in dropped})


def _map_mode(kind: str) -> Mode:
    word, target, count = MAP_KINDS[kind]
    entries = Argument("entries", _number_list(count))
    last = DSCP_COUNT - 1 if target == "dscp" else QUEUES - 1
    set_entries: Command[Edit] = Command((word, entries, target, whole("target", 0, last)), _set_entries)
    return Mode(f"(conf-{kind}-map-{{0}})", (set_entries, Command(("no", word, entries), _drop_entries)))


_RATES: Final = tuple(
    Setting((f"{word} {{{word}}}",), (f"no {word}",), absent=_RESOURCE)
    for word in ("pir", "cir", "cbs", "pbs")
)
QUEUE: Final = commands(
    (
        Setting(("type {type}",), ("no type",)),
        Setting(("weight {weight}",), ("no weight",)),
        Setting(("meter-type {meter-type}",), ("no meter-type",)),
        *_RATES,
    ),
    ARGUMENTS,
)
PORT: Final = commands((_RATES[0], _RATES[3]), ARGUMENTS)
FLOW: Final = commands(
    (Setting(("set dscp {plain-dscp}",)), Setting(("set traffic-class {class}",))), ARGUMENTS
)
_INTERFACE: Final = (
    Setting(("description {text}",)),
    Setting(("speed {speed}",)),
    Setting(("shutdown", "no shutdown")),
    Setting(("ip address {address}",)),
    Setting(("service-policy type qos in {name}",), ("no service-policy type qos in",), _check_policy),
    Setting(("queue {queue} wred-policy {name}",), ("no queue {queue} wred-policy",), absent=_RESOURCE),
    Setting(("scheduler-policy {name}",), ("no scheduler-policy",)),
    *(
        Setting((f"qos-map {kind} {{name}}",), (f"no qos-map {kind}",), absent=_RESOURCE)
        for kind in MAP_KINDS
    ),
    Setting(
        ("priority-flow-control priority {priority}",),
        ("no priority-flow-control priority {priority}",),
        _check_lossless,
    ),
    Setting(("priority-flow-control asymmetric",), ("no priority-flow-control asymmetric",)),
    Setting(("flowcontrol {way} on",), ("flowcontrol {way} off",)),
)
AS_DELIVERED: Final[Lines] = MappingProxyType(
    {
        (0.5,): "mtu 9100",
        (1,): "speed 100000",
        (1.3,): "fec none",
        (1.6,): "unreliable-los auto",
        (2,): "no shutdown",
    }
)
"""Lines of every port, by rows of `_INTERFACE`; those between two rows cannot be changed here."""
_GREEN: Final = "green minimum-threshold {minimum} maximum-threshold {maximum} drop-probability {probability}"
MODES: Final[Mapping[str, Mode]] = {
    "qos wred-policy": Mode(
        "(conf-wred-{0})",
        commands(
            (Setting((_GREEN,), ("no green",), _check_green), Setting(("ecn {ecn}",), ("no ecn",))), ARGUMENTS
        ),
    ),
    "qos scheduler-policy": Mode("(conf-sched-policy-{0})", (), "(conf-scheduler-{0}-{1})"),
    **{f"qos map {kind}": _map_mode(kind) for kind in MAP_KINDS},
    "interface": Mode("(conf-if-{0})", commands(_INTERFACE, ARGUMENTS)),
    "class-map": Mode(
        "(config-class-map)",
        commands((Setting(("description {text}",)), Setting(("match dscp {dscp}",))), ARGUMENTS),
    ),
    "policy-map": Mode("(config-policy-map)", (), "(config-policy-map-flow)"),
}
"""What a head begins with, before a name → its mode, in the order of a running configuration."""
SCHEDULER: Final = "qos scheduler-policy"


def kind_of(head: str) -> str:
    """The key of a head in MODES."""
    return next(kind for kind in MODES if head.startswith(f"{kind} "))


def name_in(head: str) -> str:
    """The name that stands in a head."""
    return head.removeprefix(f"{kind_of(head)} ").split(" ")[0]
