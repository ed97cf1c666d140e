"""Leaves as `nv set` and `nv unset` commands, and back."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from mltswitch.targets.common import UNKNOWN, each_line
from mltswitch.targets.cumulus.document import DISCARD, STATIC
from mltswitch.targets.cumulus.ingress import INBOUND
from mltswitch.targets.cumulus.leaves import Path
from mltswitch.wire.tos import DSCP_COUNT

PORT_NAME: Final = re.compile(r"swp[1-9][0-9]{0,2}(?:s[0-7])?")

_SHALLOWEST: Final = {"acl": 2, "interface": 2, "qos": 3, "vrf": 5}
"""Depth of the objects that `nv unset` may remove whole, by the first word of their path."""


def set_commands(leaves: Mapping[Path, str]) -> list[str]:
    """Commands that set the leaves; those that differ in one listed name are one."""
    listed: dict[Path, list[str]] = {}
    for path, value in leaves.items():
        words = (*path, value) if value else path
        place = _listed_word(path)
        # A name cannot hold a space, so no two commands share such a key by chance.
        key = (*words[:place], " ", *words[place + 1 :]) if place else words
        listed.setdefault(key, []).append(words[place])
    return [
        _command("set", (",".join(names) if word == " " else word for word in key))
        for key, names in listed.items()
    ]


def route_commands(routes: Iterable[tuple[str, str]]) -> list[str]:
    """The same for (prefix, next hop) of routes, whose words are numbers: nothing to list or to quote."""
    beginning = " ".join(("nv set", *STATIC))
    return [f"{beginning} {prefix} via {next_hop}" for prefix, next_hop in routes]


def unset_commands(removed: Iterable[Path], kept: Iterable[Path]) -> list[str]:
    """Commands that remove leaves: whole objects where nothing of them is kept."""
    in_use = {path[:depth] for path in kept for depth in range(len(path) + 1)}
    commands: dict[str, None] = {}
    for path in removed:
        depth = min(_SHALLOWEST.get(path[0], 1), len(path))
        while depth < len(path) and path[:depth] in in_use:
            depth += 1
        commands[_command("unset", path[:depth])] = None
    return list(commands)


def _command(verb: str, words: Iterable[str]) -> str:
    """Quoted: an `nv unset` may name what the device says."""
    return " ".join(map(_quoted, ("nv", verb, *words)))


_quoted: Final = lru_cache(maxsize=1024)(shlex.quote)


def _listed_word(path: Path) -> int:
    """Index of the word that may be a list; 0: none."""
    match path:
        case ("interface", *_):
            return 1
        case ("qos", "mapping", _, "dscp", *_):
            return 4
        case ("qos", "egress-scheduler" | "congestion-control" | "egress-shaper", _, "traffic-class", *_):
            return 4
        case _:
            return 0


_NUMBERS: Final = r"((?:0|[1-9][0-9]?)(?:,(?:0|[1-9][0-9]?))*)"
_BYTES: Final = r"([1-9][0-9]{0,9})"
_PORTS: Final = rf"({PORT_NAME.pattern}(?:,{PORT_NAME.pattern})*)"
_PROFILE: Final = rf"(mlt-{PORT_NAME.pattern})"
_DSCP: Final = "(?:[1-5]?[0-9]|6[0-3])"
_ACL: Final = "mlt-(?:host|untrusted)-ipv[46]"
_GRAMMAR: Final = tuple(
    re.compile(f"nv set {pattern}")
    for pattern in (
        rf"qos egress-scheduler mlt traffic-class {_NUMBERS} mode (strict)",
        rf"qos congestion-control {_PROFILE} traffic-class {_NUMBERS} (?:ecn|red) (enable|disable)",
        rf"qos congestion-control {_PROFILE} traffic-class {_NUMBERS} (?:min|max)-threshold {_BYTES}",
        rf"qos congestion-control {_PROFILE} traffic-class {_NUMBERS} probability (100)",
        rf"qos egress-shaper {_PROFILE} traffic-class {_NUMBERS} (?:min|max)-rate {_BYTES}",
        r"qos egress-queue-mapping default-global switch-priority ([0-7]) traffic-class ([0-7])",
        r"qos mapping mlt(?:-host)? trust (l3)",
        r"qos mapping mlt(?:-host)?-untrusted trust (port)",
        r"qos mapping mlt(?:-host)?(?:-untrusted)? port-default-sp ([0-7])",
        rf"qos mapping mlt(?:-host)? dscp {_NUMBERS} switch-priority ([0-7])",
        rf"acl {_ACL} type ipv[46]",
        rf"acl {_ACL} rule [1-9][0-9]?0 (?:match ip|action set) dscp {_DSCP}",
        rf"interface {_PORTS} acl {_ACL} {INBOUND}",
        rf"interface {_PORTS} qos egress-scheduler profile mlt",
        rf"interface {_PORTS} qos mapping profile mlt(?:-host)?(?:-untrusted)?",
        rf"interface {_PORTS} qos (?:congestion-control|egress-shaper) profile {_PROFILE}",
    )
)
_ADDRESS: Final = "[0-9.]{7,15}"
_LENGTH: Final = "(?:[12]?[0-9]|3[0-2])"
_ROUTE: Final = re.compile(rf"nv set {' '.join(STATIC)} ({_ADDRESS}/{_LENGTH}) via ({_ADDRESS}|{DISCARD})")
_COMMENT: Final = re.compile(r"#[ -~]*|")


def parse_commands(text: str) -> Iterator[tuple[int, list[tuple[Path, str]]]]:
    """Number and leaves, (path, value) each, of every command; raises FileError."""
    return each_line(text, _parse_command)


def _parse_command(line: str) -> list[tuple[Path, str]] | None:
    if match := _ROUTE.fullmatch(line):
        return [((*STATIC, match[1], "via", match[2]), "")]
    if _COMMENT.fullmatch(line):
        return None
    if not any(pattern.fullmatch(line) for pattern in _GRAMMAR):
        raise ValueError(UNKNOWN)
    leaves = list(_leaves(line.split(" ")[2:]))
    if not all(_is_possible(path) for path, _ in leaves):
        raise ValueError("no such number")
    return leaves


def _leaves(words: list[str]) -> Iterator[tuple[Path, str]]:
    *path, value = (*words, "") if words[-1] == INBOUND else words
    place = _listed_word(tuple(path))
    for name in words[place].split(",") if place else (words[0],):
        yield (*path[:place], name, *path[place + 1 :]), value


def _is_possible(path: Path) -> bool:
    match path:
        case ("qos", "mapping", _, "dscp", dscp, *_):
            return int(dscp) < DSCP_COUNT
        case (
            "qos",
            "egress-scheduler" | "congestion-control" | "egress-shaper",
            _,
            "traffic-class",
            number,
            *_,
        ):
            return int(number) in range(8)
        case _:
            return True
