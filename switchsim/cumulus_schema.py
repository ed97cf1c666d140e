"""What NVUE lets one set: a part of what `nv list-commands` prints, and the check of a path against it.

From the NVUE command lists and the chapters Quality of Service and Access Control List Configuration of the
Cumulus Linux user guide, 5.5 to 5.14.
`=` stands before a value; all else is a name in the object's path. What is not here is refused.
"""

import re
from collections.abc import Callable, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

COMMANDS: Final = """
acl <acl-id> type =ipv4|ipv6|mac
acl <acl-id> rule <rule-id> match ip dscp =0-63
acl <acl-id> rule <rule-id> match ip source-ip =<prefix>
acl <acl-id> rule <rule-id> action permit
acl <acl-id> rule <rule-id> action deny
acl <acl-id> rule <rule-id> action set class =0-7
acl <acl-id> rule <rule-id> action set dscp =0-63
qos congestion-control <profile-id>
qos congestion-control <profile-id> traffic-class <qos-tc-id> min-threshold =<number>
qos congestion-control <profile-id> traffic-class <qos-tc-id> max-threshold =<number>
qos congestion-control <profile-id> traffic-class <qos-tc-id> probability =0-100
qos congestion-control <profile-id> traffic-class <qos-tc-id> red =enable|disable
qos congestion-control <profile-id> traffic-class <qos-tc-id> ecn =enable|disable
qos egress-queue-mapping default-global switch-priority <qos-sp-id> traffic-class =0-7
qos egress-scheduler <profile-id> traffic-class <qos-tc-id> mode =strict|dwrr
qos egress-scheduler <profile-id> traffic-class <qos-tc-id> bw-percent =1-100
qos egress-shaper <profile-id> traffic-class <qos-tc-id> min-rate =0-2147483647
qos egress-shaper <profile-id> traffic-class <qos-tc-id> max-rate =0-2147483647
qos egress-shaper <profile-id> port-max-rate =0-2147483647
qos link-pause <profile-id> rx =enable|disable
qos link-pause <profile-id> tx =enable|disable
qos mapping <profile-id> trust =l2|l3|port|both
qos mapping <profile-id> port-default-sp =0-7
qos mapping <profile-id> pcp <qos-pcp-id> switch-priority =0-7
qos mapping <profile-id> dscp <qos-dscp-id> switch-priority =0-7
qos pfc <profile-id> switch-priority <qos-sp-id>
qos pfc <profile-id> rx =enable|disable
qos pfc <profile-id> tx =enable|disable
qos pfc <profile-id> cable-length =1-100000
qos remark <profile-id> rewrite =l2|l3|both
qos remark <profile-id> switch-priority <qos-sp-id> dscp =0-63
qos roce
qos roce enable =on|off
qos roce mode =lossless|lossy
qos traffic-pool <pool-id> memory-percent =0-100
qos advance-buffer-config default-global egress-lossy-buffer traffic-class <qos-tc-id> shared-bytes =<number>
interface <interface-id> acl <acl-id> inbound
interface <interface-id> acl <acl-id> inbound control-plane
interface <interface-id> acl <acl-id> outbound
interface <interface-id> type =swp|eth|loopback|bond|svi|peerlink
interface <interface-id> description =<text>
interface <interface-id> ip address <prefix>
interface <interface-id> link mtu =552-9216
interface <interface-id> qos congestion-control profile =<profile-id>
interface <interface-id> qos egress-scheduler profile =<profile-id>
interface <interface-id> qos egress-shaper profile =<profile-id>
interface <interface-id> qos link-pause profile =<profile-id>
interface <interface-id> qos mapping profile =<profile-id>
interface <interface-id> qos pfc profile =<profile-id>
interface <interface-id> qos remark profile =<profile-id>
system hostname =<text>
vrf <vrf-id> router static <route-id> address-family =ipv4-unicast|ipv6-unicast
vrf <vrf-id> router static <route-id> tag =1-4294967295
vrf <vrf-id> router static <route-id> via <via-id>
vrf <vrf-id> router static <route-id> via <via-id> type =ipv4-address|ipv6-address|interface|blackhole
vrf <vrf-id> router static <route-id> distance <distance-id> via <via-id>
vrf <vrf-id> router static <route-id> distance <distance-id> via <via-id> type =ipv4-address|interface
"""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}")
_RANGE: Final = re.compile(r"([0-9]+)-([0-9]+)")
_PORT_RANGE: Final = re.compile(r"(swp(?:[0-9]{1,2}s)?)?([0-9]{1,2})(?:-(?:\1)?([0-9]{1,2}))?")


class SchemaError(Exception):
    """A path or a value that NVUE does not know."""


def matched(words: Sequence[str], *, is_prefix: bool = False) -> tuple[list[list[str]], bool]:
    """(names at each place, lists expanded; whether the last is a value).

    Raises SchemaError. `is_prefix` takes the beginning of a command, as `nv unset` does.
    """
    for template, has_value in _TEMPLATES:
        if len(words) != len(template) and not (is_prefix and 2 <= len(words) < len(template)):
            continue
        try:
            names = [check(word) for check, word in zip(template, words, strict=False)]
        except (ValueError, SchemaError):
            continue
        return names, has_value and len(words) == len(template)
    raise SchemaError(" ".join(words))


def _number(low: int, high: int) -> Callable[[str], list[str]]:
    def check(word: str) -> list[str]:
        if not (word.isascii() and word.isdigit() and low <= int(word) <= high):
            raise SchemaError(word)
        return [str(int(word))]

    return check


def _numbers(high: int) -> Callable[[str], list[str]]:
    """One, a list or a range of them."""
    single = _number(0, high)

    def check(word: str) -> list[str]:
        names: list[str] = []
        for part in word.split(","):
            span = _RANGE.fullmatch(part)
            if span is None:
                names += single(part)
            else:
                names += [single(str(number))[0] for number in range(int(span[1]), int(span[2]) + 1)]
        return names

    return check


def _name(word: str) -> list[str]:
    if not _NAME.fullmatch(word):
        raise SchemaError(word)
    return [word]


def _interfaces(word: str) -> list[str]:
    """One, a list or a range: `swp1-4,swp6`."""
    names: list[str] = []
    for part in word.split(","):
        span = _PORT_RANGE.fullmatch(part)
        if span is None or (span[1] is None and not names):
            names += _name(part)
            continue
        stem = span[1] or "swp"
        names += [f"{stem}{number}" for number in range(int(span[2]), int(span[3] or span[2]) + 1)]
    return names


def _prefix(word: str) -> list[str]:
    ip_network(word, strict=False)
    if "/" not in word:
        raise SchemaError(word)
    return [word]


def _via(word: str) -> list[str]:
    if word == "blackhole" or word.startswith("swp"):
        return [word]
    return [str(ip_address(word))]


def _choice(words: frozenset[str]) -> Callable[[str], list[str]]:
    def check(word: str) -> list[str]:
        if word not in words:
            raise SchemaError(word)
        return [word]

    return check


_KINDS: Final[dict[str, Callable[[str], list[str]]]] = {
    "<acl-id>": _name,
    "<rule-id>": _number(1, 65535),
    "<profile-id>": _name,
    "<pool-id>": _name,
    "<vrf-id>": _name,
    "<qos-tc-id>": _numbers(7),
    "<qos-sp-id>": _numbers(7),
    "<qos-pcp-id>": _numbers(7),
    "<qos-dscp-id>": _numbers(63),
    "<interface-id>": _interfaces,
    "<prefix>": _prefix,
    "<route-id>": _prefix,
    "<via-id>": _via,
    "<distance-id>": _number(1, 255),
    "<number>": _number(0, 4_294_967_295),
    "<text>": lambda word: [word],
}


def _check_of(kind: str) -> Callable[[str], list[str]]:
    span = _RANGE.fullmatch(kind)
    if span is not None:
        return _number(int(span[1]), int(span[2]))
    return _KINDS.get(kind) or _choice(frozenset(kind.split("|")))


_TEMPLATES: Final = tuple(
    (tuple(_check_of(token.removeprefix("=")) for token in line.split()), "=" in line)
    for line in COMMANDS.strip().splitlines()
)
