"""The revisions of an emulated NVUE: pending, applied, saved; each is a whole configuration.

The settings that this module knows are a part of those that `nv list-commands` prints, from the NVUE command
lists and the chapters Quality of Service and Access Control List Configuration of the Cumulus Linux user
guide, 5.5 to 5.14. `=` stands before a value; all else is a name in the object's path, or several between
`|`, of which one is entered. Any other setting is refused.
"""

import copy
import itertools
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Final

from switchsim.cumulus_tree import Tree, leaves, remove, set_leaf

COMMANDS: Final = """
acl <acl-id> type =ipv4|ipv6|mac
acl <acl-id> rule <rule-id> match ip dscp =0-63
acl <acl-id> rule <rule-id> match ip source-ip =<prefix>
acl <acl-id> rule <rule-id> action permit|deny
acl <acl-id> rule <rule-id> action set class =0-7
acl <acl-id> rule <rule-id> action set dscp =0-63
qos congestion-control <profile-id>
qos congestion-control <profile-id> traffic-class <qos-tc-id> min-threshold|max-threshold =<number>
qos congestion-control <profile-id> traffic-class <qos-tc-id> probability =0-100
qos congestion-control <profile-id> traffic-class <qos-tc-id> red|ecn =enable|disable
qos egress-queue-mapping default-global switch-priority <qos-sp-id> traffic-class =0-7
qos egress-scheduler <profile-id> traffic-class <qos-tc-id> mode =strict|dwrr
qos egress-scheduler <profile-id> traffic-class <qos-tc-id> bw-percent =1-100
qos egress-shaper <profile-id> traffic-class <qos-tc-id> min-rate|max-rate =0-2147483647
qos egress-shaper <profile-id> port-max-rate =0-2147483647
qos link-pause <profile-id> rx|tx =enable|disable
qos mapping <profile-id> trust =l2|l3|port|both
qos mapping <profile-id> port-default-sp =0-7
qos mapping <profile-id> pcp <qos-pcp-id> switch-priority =0-7
qos mapping <profile-id> dscp <qos-dscp-id> switch-priority =0-7
qos pfc <profile-id> switch-priority <qos-sp-id>
qos pfc <profile-id> rx|tx =enable|disable
qos pfc <profile-id> cable-length =1-100000
qos remark <profile-id> rewrite =l2|l3|both
qos remark <profile-id> switch-priority <qos-sp-id> dscp =0-63
qos roce
qos roce enable =on|off
qos roce mode =lossless|lossy
qos traffic-pool <pool-id> memory-percent =0-100
qos advance-buffer-config default-global egress-lossy-buffer traffic-class <qos-tc-id> shared-bytes =<number>
interface <interface-id> acl <acl-id> inbound|outbound
interface <interface-id> acl <acl-id> inbound control-plane
interface <interface-id> type =swp|eth|loopback|bond|svi|peerlink
interface <interface-id> description =<text>
interface <interface-id> ip address <prefix>
interface <interface-id> link mtu =552-9216
interface <interface-id> qos <bound-id> profile =<profile-id>
system hostname =<text>
vrf <vrf-id> router static <route-id> address-family =ipv4-unicast|ipv6-unicast
vrf <vrf-id> router static <route-id> tag =1-4294967295
vrf <vrf-id> router static <route-id> via <via-id>
vrf <vrf-id> router static <route-id> via <via-id> type =ipv4-address|ipv6-address|interface|blackhole
vrf <vrf-id> router static <route-id> distance <distance-id> via <via-id>
vrf <vrf-id> router static <route-id> distance <distance-id> via <via-id> type =ipv4-address|interface
"""

_KINDS: Final = {
    "<bound-id>": "congestion-control|egress-scheduler|egress-shaper|link-pause|mapping|pfc|remark",
    "<rule-id>": "1-65535",
    "<distance-id>": "1-255",
    "<number>": "0-4294967295",
    **dict.fromkeys(("<qos-tc-id>", "<qos-sp-id>", "<qos-pcp-id>"), "0-7,"),
    "<qos-dscp-id>": "0-63,",
}
"""Kind → words, or bounds; before a comma, also of a list or of ranges of such numbers."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}")
_RANGE: Final = re.compile(r"([0-9]+)-([0-9]+)")
_PORT_RANGE: Final = re.compile(r"(swp(?:[0-9]{1,2}s)?)?([0-9]{1,2})(?:-(?:\1)?([0-9]{1,2}))?")
_TEMPLATES: Final = tuple(
    ([_KINDS.get(kind, kind) for kind in line.replace("=", "").split()], "=" in line)
    for line in COMMANDS.strip().splitlines()
)


class SchemaError(Exception):
    """The emulated NVUE refuses a path or a value that its schema does not know."""


def matched(words: Sequence[str], *, is_prefix: bool = False) -> tuple[list[list[str]], bool]:
    """Match an `nv set` path: (the names at each place, lists expanded; whether the last one is a value).

    Raises SchemaError. With `is_prefix` a command may be cut short, as `nv unset` allows.
    """
    for kinds, has_value in _TEMPLATES:
        if len(words) == len(kinds) or (is_prefix and 2 <= len(words) < len(kinds)):
            try:
                names = [list(_names(kind, word)) for kind, word in zip(kinds, words, strict=False)]
            except ValueError:
                continue
            return names, has_value and len(words) == len(kinds)
    raise SchemaError(" ".join(words))


def _names(kind: str, word: str) -> Iterator[str]:
    """What a word names at a place of this kind; raises ValueError."""
    match kind:
        case "<acl-id>" | "<profile-id>" | "<pool-id>" | "<vrf-id>":
            yield _name(word)
        case "<interface-id>":
            yield from _interfaces(word)
        case "<prefix>" | "<route-id>":
            ip_network(word, strict=False)
            if "/" not in word:
                raise ValueError(word)
            yield word
        case "<via-id>":
            yield word if word == "blackhole" or word.startswith("swp") else str(ip_address(word))
        case _ if (bounds := _RANGE.match(kind)) is not None:
            for part in word.split(",") if kind.endswith(",") else [word]:
                span = _RANGE.fullmatch(part) if kind.endswith(",") else None
                numbers = [part] if span is None else range(int(span[1]), int(span[2]) + 1)
                yield from (_number(str(number), int(bounds[1]), int(bounds[2])) for number in numbers)
        case _:
            if word not in kind.split("|") and kind != "<text>":
                raise ValueError(word)
            yield word


def _number(word: str, low: int, high: int) -> str:
    if not (word.isascii() and word.isdigit() and low <= int(word) <= high):
        raise ValueError(word)
    return str(int(word))


def _name(word: str) -> str:
    if not _NAME.fullmatch(word):
        raise ValueError(word)
    return word


def _interfaces(word: str) -> Iterator[str]:
    """One, a list or a range: `swp1-4,swp6`."""
    for position, part in enumerate(word.split(",")):
        span = _PORT_RANGE.fullmatch(part)
        if span is None or (span[1] is None and position == 0):
            yield _name(part)
        else:
            for number in range(int(span[2]), int(span[3] or span[2]) + 1):
                yield f"{span[1] or 'swp'}{number}"


_TYPES: Final = {"swp": "swp", "eth": "eth", "lo": "loopback", "bond": "bond", "vlan": "svi"}
_LARGEST_RATE_KBPS: Final = 2**31 - 1


class RefusedConfigError(Exception):
    """`nv config apply` refuses a revision; the text of this exception says where and why."""


@dataclass
class Revisions:
    """The configurations of one emulated NVUE: the applied, saved and pending ones, and the history."""

    ports: tuple[str, ...]
    applied: Tree
    saved: Tree
    history: list[Tree] = field(default_factory=list)
    """Every configuration that was ever applied, oldest first; the first is revision 1."""
    pending: Tree | None = None
    trial: threading.Timer | None = None
    """The running timer of `nv config apply --confirm`, which restores the previous revision; else None."""

    def candidate(self) -> Tree:
        """The pending revision, made as a copy of the applied one where there is none yet."""
        if self.pending is None:
            self.pending = copy.deepcopy(self.applied)
        return self.pending

    def set(self, words: Sequence[str]) -> None:
        """Execute `nv set` with these words; raises SchemaError."""
        names, has_value = matched(words)
        candidate, value = self.candidate(), names.pop()[0] if has_value else None
        is_number = value is not None and value.isascii() and value.isdigit()
        for path in itertools.product(*names):
            set_leaf(candidate, path, int(value) if value is not None and is_number else value)
            _add_types(candidate, path)

    def unset(self, words: Sequence[str]) -> None:
        """Execute `nv unset` with these words; raises SchemaError."""
        names, _ = matched(words, is_prefix=True)
        candidate = self.candidate()
        for path in itertools.product(*names):
            remove(candidate, path)

    def patch(self, operations: Any) -> None:
        """Execute `nv config patch` with the parsed contents of a file; raises SchemaError."""
        if not isinstance(operations, list) or not all(isinstance(part, dict) for part in operations):
            raise SchemaError("must contain a list of operation objects")
        for verb, tree in (each for part in operations for each in part.items()):
            if verb not in {"set", "unset", "header"}:
                raise SchemaError(f"unknown operation {verb!r}")
            for path, value in leaves(tree or {}):
                if verb == "set":
                    self.set([*path, *([] if value is None else [str(value)])])
                elif verb == "unset":
                    self.unset(path)

    def apply(self, config: Tree, seconds: int | None = None) -> int:
        """Make a configuration run; returns its revision number, raises RefusedConfigError.

        After `seconds` the previous one is restored unless `end_trial` keeps this one; None: it stays.
        """
        for problem in _problems(config, self.ports):
            raise RefusedConfigError(problem)
        if seconds is not None:
            self.trial = threading.Timer(seconds, self.end_trial, kwargs={"keep": False})
            self.trial.daemon = True
            self.trial.start()
        self.applied = copy.deepcopy(config)
        self.history.append(self.applied)
        self.pending = None
        return len(self.history)

    def end_trial(self, *, keep: bool) -> bool:
        """End a commit that waits to be confirmed: keep it or restore what ran before; False: none waits."""
        trial, self.trial = self.trial, None
        if trial is None:
            return False
        trial.cancel()
        if not keep:
            self.apply(self.history[-2])
        return True


def _add_types(tree: Tree, path: tuple[str, ...]) -> None:
    """What the command line adds to an object without being asked."""
    match path:
        case ("interface", name, *_):
            kind = next((kind for start, kind in _TYPES.items() if name.startswith(start)), None)
            if kind is not None:
                tree["interface"][name].setdefault("type", kind)
        case ("vrf", vrf, "router", "static", route, *rest) if "via" in rest:
            node = tree["vrf"][vrf]["router"]["static"][route]
            node.setdefault("address-family", "ipv6-unicast" if ":" in route else "ipv4-unicast")
            hop = rest[rest.index("via") + 1]
            for name in rest[: rest.index("via") + 2]:
                node = node[name]
            kind = "blackhole" if hop == "blackhole" else "interface" if hop[0].isalpha() else "ipv4-address"
            node.setdefault("type", kind)


def _problems(config: Tree, ports: Sequence[str]) -> Iterator[str]:
    """What NVUE refuses when it applies: where, and why."""
    qos = config.get("qos", {})
    for name, interface in config.get("interface", {}).items():
        if name.startswith("swp") and name not in ports:
            yield f"interface.{name}: no such port"
        for acl in interface.get("acl", {}):
            if "type" not in config.get("acl", {}).get(acl, {}):
                yield f"interface.{name}.acl.{acl}: no access list with a type"
        for kind, binding in interface.get("qos", {}).items():
            profile = binding["profile"]
            if profile not in qos.get(kind, {}) and profile != "default-global":
                yield f"interface.{name}.qos.{kind}.profile: no profile {profile!r}"
    yield from _queueing_problems(qos)


def _queueing_problems(qos: Tree) -> Iterator[str]:
    for where, _, entry in _classes(qos, "congestion-control"):
        low, high = entry.get("min-threshold", 150_000), entry.get("max-threshold", 1_500_000)
        if low > high or low == 0:
            yield f"{where}: min-threshold {low}, max-threshold {high}"
    for where, _, entry in _classes(qos, "egress-scheduler"):
        if entry.get("mode") == "strict" and "bw-percent" in entry:
            yield f"{where}: bw-percent does not fit mode strict"
        if entry.get("mode") != "strict" and "bw-percent" not in entry:
            yield f"{where}: mode dwrr needs bw-percent"
    for name, profile in qos.get("egress-scheduler", {}).items():
        total = sum(entry.get("bw-percent", 0) for entry in profile.get("traffic-class", {}).values())
        if total > 100:
            yield f"qos.egress-scheduler.{name}: bw-percent {total} in all"
    # A class must not exceed the port (user guide, Shaping); that its rates are in order is ours.
    for where, profile, entry in _classes(qos, "egress-shaper"):
        low, high = entry.get("min-rate", 0), entry.get("max-rate", _LARGEST_RATE_KBPS)
        port = profile.get("port-max-rate", _LARGEST_RATE_KBPS)
        if not low <= high or ("max-rate" in entry and high > port):
            yield f"{where}: min-rate {low}, max-rate {high}, port-max-rate {port}"


def _classes(qos: Tree, kind: str) -> Iterator[tuple[str, Tree, Tree]]:
    """Each traffic class of each profile of a kind: its place, the profile, its settings."""
    for name, profile in qos.get(kind, {}).items():
        for number, entry in profile.get("traffic-class", {}).items():
            yield f"qos.{kind}.{name}.traffic-class.{number}", profile, entry
