"""What NVUE lets one set: a part of what `nv list-commands` prints, and the check of a path against it.

From the NVUE command lists and the chapters Quality of Service and Access Control List Configuration of the
Cumulus Linux user guide, 5.5 to 5.14.
`=` stands before a value; all else is a name in the object's path, or several between `|`, of which one is
entered. What is not here is refused.
"""

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

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
    """A path or a value that NVUE does not know."""


def matched(words: Sequence[str], *, is_prefix: bool = False) -> tuple[list[list[str]], bool]:
    """(names at each place, lists expanded; whether the last is a value).

    Raises SchemaError. `is_prefix` takes the beginning of a command, as `nv unset` does.
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
