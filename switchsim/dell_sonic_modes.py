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
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from types import MappingProxyType
from typing import Final, NamedTuple

from switchsim.grammar import Argument, Command, RefusalError, Values, choice, whole
from switchsim.settings import HERE, NO, Edit, Facts, Setting, Sheet

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
    sheet: Sheet = Sheet((), {})
    commands: tuple[Command[Edit], ...] = ()
    inner_prompt: str = ""


def _check_green(_: Facts, __: str, values: Values) -> None:
    if values.one("maximum", int) < values.one("minimum", int):
        raise refused("Green max threshold must be greater than or equal to min threshold")


def _check_policy(facts: Facts, _: str, __: Values) -> None:
    if (there := facts.get(("", "service-policy"))) is not None:
        raise refused(f"{there} policy already applied")


def _check_lossless(facts: Facts, _: str, values: Values) -> None:
    lossless = {fact for fact in facts if fact[1] == "lossless"}
    if len(lossless | {("", "lossless", values.one("priority", int))}) > LOSSLESS_PRIORITIES:
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


def _set_entries(facts: Facts, values: Values, _: Sequence[str]) -> Facts:
    target = values.one("target", int)
    return MappingProxyType(
        {**facts, **{("", "entry", number): target for number in values.one("entries", tuple)}}
    )


def _drop_entries(facts: Facts, values: Values, _: Sequence[str]) -> Facts:
    dropped = {("", "entry", number) for number in values.one("entries", tuple)}
    if not dropped <= facts.keys():
        raise RefusalError(_RESOURCE)
    return MappingProxyType({fact: target for fact, target in facts.items() if fact not in dropped})


def _map_mode(kind: str) -> Mode:
    word, target, count = MAP_KINDS[kind]
    entries = Argument("entries", _number_list(count))
    last = DSCP_COUNT - 1 if target == "dscp" else QUEUES - 1
    set_entries: Command[Edit] = Command((word, entries, target, whole("target", 0, last)), _set_entries)
    dropping: Command[Edit] = Command(("no", word, entries), _drop_entries)
    return Mode(f"(conf-{kind}-map-{{0}})", commands=(set_entries, dropping))


def _mode(prompt: str, *settings: Setting) -> Mode:
    sheet = Sheet(settings, ARGUMENTS)
    return Mode(prompt, sheet, sheet.commands)


_RATES: Final = tuple(
    Setting(word, f"{word} {{{word}}}", NO, absent=_RESOURCE) for word in ("pir", "cir", "cbs", "pbs")
)
INNER: Final[Mapping[str, Sheet]] = {
    "queue": Sheet(
        (*(Setting(word, f"{word} {{{word}}}", NO) for word in ("type", "weight", "meter-type")), *_RATES),
        ARGUMENTS,
    ),
    "port": Sheet((_RATES[0], _RATES[3]), ARGUMENTS),
    "class": Sheet(
        (Setting("dscp", "set dscp {plain-dscp}"), Setting("traffic-class", "set traffic-class {class}")),
        ARGUMENTS,
    ),
}
"""First word of the head of a mode that lies in another one → its rows."""
_FIXED: Final = ("mtu", "fec", "unreliable-los")
"""What a port has that cannot be changed here."""
_INTERFACE: Final = (
    Setting("description", "description {text}"),
    Setting("mtu", "mtu {text}"),
    Setting("speed", "speed {speed}"),
    Setting("fec", "fec {text}"),
    Setting("unreliable-los", "unreliable-los {text}"),
    Setting("shutdown", {"shutdown": True, "no shutdown": False}),
    Setting("address", "ip address {address}"),
    Setting("service-policy", "service-policy type qos in {name}", NO, check=_check_policy),
    Setting("wred-policy {queue}", "queue {queue} wred-policy {name}", NO, absent=_RESOURCE),
    Setting("scheduler-policy", "scheduler-policy {name}", NO),
    *(Setting(kind, f"qos-map {kind} {{name}}", NO, absent=_RESOURCE) for kind in MAP_KINDS),
    Setting("lossless {priority}", "priority-flow-control priority {priority}", NO, check=_check_lossless),
    Setting("asymmetric", "priority-flow-control asymmetric", NO),
    Setting("flowcontrol {way}", "flowcontrol {way} on", ("flowcontrol {way} off",)),
)
AS_DELIVERED: Final[Facts] = MappingProxyType(
    {
        ("", "mtu"): 9100,
        ("", "speed"): 100_000,
        ("", "fec"): "none",
        ("", "unreliable-los"): "auto",
        ("", "shutdown"): False,
    }
)
"""Facts of every port, which are shown."""
_GREEN: Final = "green minimum-threshold {minimum} maximum-threshold {maximum} drop-probability {probability}"
MODES: Final[Mapping[str, Mode]] = {
    "qos wred-policy": _mode(
        "(conf-wred-{0})",
        Setting("green", _GREEN, ("no green",), check=_check_green),
        Setting("ecn", "ecn {ecn}", NO),
    ),
    "qos scheduler-policy": Mode("(conf-sched-policy-{0})", inner_prompt="(conf-scheduler-{0}-{1})"),
    **{f"qos map {kind}": _map_mode(kind) for kind in MAP_KINDS},
    "interface": Mode(
        "(conf-if-{0})",
        Sheet(_INTERFACE, ARGUMENTS),
        Sheet([each for each in _INTERFACE if each.name not in _FIXED], ARGUMENTS).commands,
    ),
    "class-map": _mode(
        "(config-class-map)",
        Setting("description", "description {text}"),
        Setting("match", "match dscp {dscp}"),
    ),
    "policy-map": Mode("(config-policy-map)", inner_prompt="(config-policy-map-flow)"),
}
"""What a head begins with, before a name → its mode, in the order of a running configuration."""
SCHEDULER: Final = "qos scheduler-policy"


def kind_of(head: str) -> str:
    """The key of a head in MODES."""
    return next(kind for kind in MODES if head.startswith(f"{kind} "))


def name_in(head: str) -> str:
    """The name that stands in a head."""
    return head.removeprefix(f"{kind_of(head)} ").split(" ")[0]


def printed(head: str, facts: Facts, inner: str = "") -> list[str]:
    """The lines of a block, or of a mode in it, that set these facts."""
    sheet = INNER[inner.split(" ", maxsplit=1)[0]] if inner else MODES[kind_of(head)].sheet
    return sheet.printed(facts, *HERE)
