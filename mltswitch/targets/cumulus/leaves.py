"""The leaves of NVUE's configuration tree that a state needs, each a setting of a Cumulus switch.

Switch priority n is traffic class n is queue n. NVUE knows the map from priority to traffic class for the
whole switch only; it is the identity as delivered, and the plan needs no more than that for its own queues.

The profile `mlt` spreads all 64 code points over the plan's queues, `mlt-host` does so on ports of hosts,
where CS6 and CS7 are background; ports that the fabric does not trust get `mlt-untrusted` or
`mlt-host-untrusted`, which believe nothing. All eight traffic classes are strict, the one of the switch's own
packets too: it lies between the plan's upper and lower queues, and weighted it would come after all of them.

Thresholds and bandwidths differ by port, so ports with equal ones share a congestion profile, and a shaper
profile where they have any; both are named after the first of them.

Code points of arriving packets are rewritten by two inbound access lists, for IPv4 and IPv6.
`mlt-untrusted-…` rewrites every packet, `mlt-host-…` has a rule for each code point that hosts may not use.
The port's mapping profile leads both what a packet had and what it gets to background, so that it does not
matter whether the chip classifies before or after.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from mltswitch.capabilities import BitRate
from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.addresses import address_text, network_text
from mltswitch.targets.common import UNKNOWN
from mltswitch.targets.cumulus.capabilities import KILOBIT, TRAFFIC_CLASSES
from mltswitch.targets.engine.tree import Leaves, Path
from mltswitch.targets.memory import remembering_last
from mltswitch.targets.state import PortState, QueueState, SwitchState, every_dscp_but
from mltswitch.wire.tos import DSCP_COUNT

PORT_NAME: Final = re.compile(r"swp[1-9][0-9]{0,2}(?:s[0-7])?")
PROFILE: Final = "mlt"
_MAPS: Final = ("mlt", "mlt-untrusted", "mlt-host", "mlt-host-untrusted")
MAP_OF: Final = {name: name.removesuffix("-untrusted") for name in _MAPS}
"""Mapping profile → the profile with its DSCP map: those that trust no DSCP have no map themselves."""
EVERY_PACKET: Final = "mlt-untrusted"
"""Beginning of the names of access lists that rewrite every packet."""
INBOUND: Final = "inbound"
QUEUE_MAP: Final = ("qos", "egress-queue-mapping", "default-global", "switch-priority")
STATIC: Final = ("vrf", "default", "router", "static")
DISCARD: Final = "blackhole"
"""Stands in the place of a route's next hop, and is its type, where the route drops packets."""

_KINDS: Final = ("egress-scheduler", "congestion-control", "egress-shaper", "mapping")

_PORTS: Final = rf"{PORT_NAME.pattern}(?:,{PORT_NAME.pattern})*"
_OF_PORT: Final = f"mlt-{PORT_NAME.pattern}"
_MAP: Final = "mlt(?:-host)?"
_ACL: Final = "mlt-(?:host|untrusted)-ipv[46]"
_CLASSES: Final = "traffic-class [0-7](?:,[0-7])*"
_DSCP: Final = "(?:[1-5]?[0-9]|6[0-3])"
_NUMBER: Final = "[1-9][0-9]{0,9}"
_ADDRESS: Final = "[0-9.]{7,15}"
_FORMS: Final = {
    "queues": (
        f"qos egress-scheduler mlt {_CLASSES} mode strict",
        f"qos congestion-control {_OF_PORT} {_CLASSES} (?:ecn|red) (?:enable|disable)",
        f"qos congestion-control {_OF_PORT} {_CLASSES} (?:min|max)-threshold {_NUMBER}",
        f"qos congestion-control {_OF_PORT} {_CLASSES} probability 100",
        f"qos egress-shaper {_OF_PORT} {_CLASSES} (?:min|max)-rate {_NUMBER}",
    ),
    "classification": (
        f"{' '.join(QUEUE_MAP)} [0-7] traffic-class [0-7]",
        f"qos mapping (?:{_MAP} trust l3|{_MAP}-untrusted trust port)",
        f"qos mapping {_MAP}(?:-untrusted)? port-default-sp [0-7]",
        f"qos mapping {_MAP} dscp {_DSCP}(?:,{_DSCP})* switch-priority [0-7]",
    ),
    "rewriting": (
        f"acl {_ACL} type ipv[46]",
        f"acl {_ACL} rule [1-9][0-9]?0 (?:match ip|action set) dscp {_DSCP}",
    ),
    "ports": (
        f"interface {_PORTS} acl {_ACL} {INBOUND}",
        f"interface {_PORTS} qos egress-scheduler profile mlt",
        f"interface {_PORTS} qos mapping profile {_MAP}(?:-untrusted)?",
        f"interface {_PORTS} qos (?:congestion-control|egress-shaper) profile {_OF_PORT}",
    ),
    "routes": (rf"{' '.join(STATIC)} {_ADDRESS}/(?:[12]?[0-9]|3[0-2]) via (?:{_ADDRESS}|{DISCARD})",),
}
_COMMAND: Final = re.compile(
    f"nv set (?:{'|'.join(f'(?P<{title}>' + '|'.join(forms) + ')' for title, forms in _FORMS.items())})"
)
"""All that we ever set, by the heading below which it stands in a file of commands."""
_quoted: Final = lru_cache(maxsize=1024)(shlex.quote)
_OWN: Final = re.compile(
    f"acl {_ACL}|qos (?:egress-scheduler mlt|mapping {_MAP}(?:-untrusted)?"
    f"|(?:congestion-control|egress-shaper) {_OF_PORT})"
)


_PROBLEMS: Final = {
    "mapping": "its code points lead elsewhere than those of {}: one map serves both",
    "acl": "rewrites other code points than {}: one access list serves both",
}


def object_of(path: Path) -> Path:
    """The profile or access list to which a leaf belongs."""
    return path[: 2 if path[:1] == ("acl",) else 3]


def is_ours(path: Path) -> bool:
    """Whether a leaf belongs to a profile or access list with a name of mltswitch's, whatever it says."""
    return _OWN.fullmatch(" ".join(object_of(path))) is not None


def bound_object(path: Path, value: str) -> Path:
    """The profile or access list that a leaf binds to a port; of any other leaf, the empty path."""
    match path:
        case ("interface", _, "qos", kind, "profile"):
            return ("qos", kind, value)
        case ("interface", _, "acl", name, *_):
            return ("acl", name)
        case _:
            return ()


@remembering_last
def leaves_of(state: SwitchState) -> Leaves:
    """Every leaf that the state needs, objects before their references; raises UnsupportedPlanError."""
    objects: dict[Path, tuple[str, Leaves]] = {}
    names: dict[tuple[str, Any], str] = {}
    bindings: dict[Path, dict[Path, str]] = {("qos", kind): {} for kind in _KINDS}

    def add(path: Path, port: str, settings: Leaves) -> None:
        first, known = objects.setdefault(path, (port, settings))
        if known != settings:
            problem = _PROBLEMS[path[0] if path[0] == "acl" else path[1]].format(first)
            raise UnsupportedPlanError(problem, where=f"port {port}")

    profiles: dict[tuple[int, bool], list[tuple[str, str, Leaves]]] = {}
    for port in state.ports:
        # Most ports of a switch share their queues.
        alike = id(port.queues), port.trusted
        if alike not in profiles:
            profiles[alike] = [*_profiles(port)]
        for kind, own_name, settings in profiles[alike]:
            name = own_name or names.setdefault((kind, tuple(settings.items())), f"mlt-{port.name}")
            if settings:
                add(("qos", kind, name), port.name, settings)
                bindings["qos", kind]["interface", port.name, "qos", kind, "profile"] = name
        if port.rewritten:
            for acl, rules in access_lists(port.rewritten, state.background_dscp).items():
                add(acl, port.name, rules)
                bindings.setdefault(acl, {})["interface", port.name, *acl, INBOUND] = ""

    leaves: dict[Path, str] = {}
    for kind in (*_KINDS, "acl"):
        if kind == "mapping":
            queues = {str(queue.queue) for port in state.ports for queue in port.queues}
            leaves |= {(*QUEUE_MAP, queue, "traffic-class"): queue for queue in sorted(queues, reverse=True)}
        paths = [path for path in objects if kind in path[:2]]
        # A profile that believes nothing stands behind the one that has its map.
        for path in sorted(paths, key=lambda path: paths.index((*path[:-1], MAP_OF.get(path[-1], path[-1])))):
            leaves |= below(path, objects[path][1])
    for each in bindings.values():
        leaves |= each
    for route in state.routes:
        next_hop = DISCARD if route.discards else address_text(route.next_hop)
        leaves[*STATIC, network_text(route.prefix), "via", next_hop] = ""
    return leaves


def below(path: Path, settings: Leaves) -> dict[Path, str]:
    """The settings of an object as leaves below its path."""
    return {(*path, *name): value for name, value in settings.items()}


def _profiles(port: PortState) -> Iterator[tuple[str, str, Leaves]]:
    """Kind, name and settings of the profiles that a port needs; it has the last one of each kind.

    Those without a name are shared by the ports with equal settings.
    """
    if sorted(dscp for queue in port.queues for dscp in queue.dscps) != list(range(DSCP_COUNT)):
        raise UnsupportedPlanError("not every code point leads to a queue", where=f"port {port.name}")
    strict = {str(number): {"mode": "strict"} for number in range(TRAFFIC_CLASSES)}
    yield "egress-scheduler", PROFILE, _classes(strict)
    yield "congestion-control", "", _classes({str(each.queue): _congestion(each) for each in port.queues})
    yield "egress-shaper", "", _classes({str(each.queue): _rates(each) for each in port.queues})
    # A port of a host has no network control, which is served first.
    name = PROFILE if port.queues[0].dscps else "mlt-host"
    default: dict[Path, str] = {("port-default-sp",): str(port.queues[-1].queue)}
    spread: dict[Path, str] = {
        ("dscp", str(dscp), "switch-priority"): str(queue.queue)
        for queue in port.queues
        for dscp in queue.dscps
    }
    yield "mapping", name, {("trust",): "l3", **default, **spread}
    if not port.trusted:
        yield "mapping", f"{name}-untrusted", {("trust",): "port", **default}


def _classes(classes: dict[str, dict[str, str]]) -> Leaves:
    return {
        ("traffic-class", number, field): value
        for number, fields in classes.items()
        for field, value in fields.items()
    }


def _congestion(queue: QueueState) -> dict[str, str]:
    """A traffic class of a congestion profile.

    Both switches are needed: ecn alone lets packets wait that are not ECN-capable, red alone does not mark.
    NVUE takes ecn for enabled where a class says nothing, so that `none` must be said, too.
    """
    if queue.ecn_threshold_bytes is None:
        return {"ecn": "disable", "red": "disable"}
    threshold = dict.fromkeys(("min-threshold", "max-threshold"), str(queue.ecn_threshold_bytes))
    return {"ecn": "enable", "red": "enable", **threshold, "probability": "100"}


def _rates(queue: QueueState) -> dict[str, str]:
    rates = {"min-rate": queue.minimum, "max-rate": queue.maximum}
    return {name: str(rate.bps // KILOBIT) for name, rate in rates.items() if isinstance(rate, BitRate)}


def access_lists(rewritten: tuple[int, ...], background_dscp: int) -> dict[Path, Leaves]:
    """The IPv4 and the IPv6 access list of a port that rewrites these code points to background's."""
    is_every_packet = rewritten == every_dscp_but(background_dscp)
    rules: dict[Path, str] = {}
    for number, dscp in enumerate([None] if is_every_packet else rewritten, start=1):
        if dscp is not None:
            rules["rule", f"{number}0", "match", "ip", "dscp"] = str(dscp)
        rules["rule", f"{number}0", "action", "set", "dscp"] = str(background_dscp)
    kind = EVERY_PACKET if is_every_packet else "mlt-host"
    return {("acl", f"{kind}-{family}"): {("type",): family, **rules} for family in ("ipv4", "ipv6")}


def set_commands(leaves: Leaves) -> list[str]:
    """Commands that set the leaves; one command with a list sets those that differ only in one name."""
    listed: dict[Path, list[str]] = {}
    for path, value in leaves.items():
        words = (*path, value) if value else path
        place = _listed_word(path)
        # A name cannot hold a space, so no two commands share such a key by chance.
        key = (*words[:place], " ", *words[place + 1 :]) if place else words
        listed.setdefault(key, []).append(words[place])
    return [
        command("set", (",".join(names) if word == " " else word for word in key))
        for key, names in listed.items()
    ]


def command(verb: str, words: Iterable[str]) -> str:
    """An `nv` command with its words quoted, because an `nv unset` may name what the device says."""
    return " ".join(map(_quoted, ("nv", verb, *words)))


def section(line: str) -> str:
    """The heading above a command in a rendered file; empty for one that mltswitch never sends."""
    match = _COMMAND.fullmatch(line)
    return str(match.lastgroup) if match else ""


def leaves_in(line: str) -> list[tuple[Path, str]] | None:
    """The leaves that a line of a command file sets, None for a comment; raises ValueError."""
    if not line or (line.startswith("#") and line.isascii() and line.isprintable()):
        return None
    if not section(line):
        raise ValueError(UNKNOWN)
    words = tuple(line.split(" ")[2:])
    if words[0] == "vrf":
        return [(words, "")]
    path, value = (words, "") if words[-1] == INBOUND else (words[:-1], words[-1])
    place = _listed_word(path)
    names = path[place].split(",") if place else [path[0]]
    return [((*path[:place], name, *path[place + 1 :]), value) for name in names]


def _listed_word(path: Path) -> int:
    """Index of the word that may be a list: a port, a code point or a traffic class; 0: none."""
    if path[0] == "interface":
        return 1
    return 4 if path[0] == "qos" and path[3:4] in {("dscp",), ("traffic-class",)} and len(path) > 4 else 0
