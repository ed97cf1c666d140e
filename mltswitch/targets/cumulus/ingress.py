"""What a port makes of code points as packets arrive: inbound access lists that rewrite them to background's.

A port has two, for IPv4 and IPv6. `mlt-untrusted-…` rewrites every packet, `mlt-host-…` has a rule for each
code point that hosts may not use. The port's mapping profile leads both what a packet had and what it gets to
background, so that it does not matter whether the chip classifies before or after.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mltswitch.errors import UnsupportedPlanError
from mltswitch.targets.cumulus.leaves import Path, Tree, at, flatten
from mltswitch.targets.state import PortState, SwitchState, every_dscp_but

INBOUND: Final = "inbound"
EVERY_PACKET: Final = "mlt-untrusted"
SOME_PACKETS: Final = "mlt-host"
"""Beginnings of names; the family follows."""
_FAMILIES: Final = ("ipv4", "ipv6")
_CHANGING: Final = frozenset({"set", "police"})
"""Actions of rules that change or drop packets of the plan."""


def acl_names(kind: str) -> list[str]:
    """The two access lists of a kind."""
    return [f"{kind}-{family}" for family in _FAMILIES]


OWN_ACLS: Final = frozenset((*acl_names(EVERY_PACKET), *acl_names(SOME_PACKETS)))


def ports_by_acl(state: SwitchState) -> dict[str, list[PortState]]:
    """Kind of access list → ports that have it; raises UnsupportedPlanError where theirs are not alike."""
    kinds: dict[str, list[PortState]] = {}
    for port in state.ports:
        if port.rewritten:
            is_all = port.rewritten == every_dscp_but(state.background_dscp)
            kinds.setdefault(EVERY_PACKET if is_all else SOME_PACKETS, []).append(port)
    for first, *others in kinds.values():
        for port in others:
            if port.rewritten != first.rewritten:
                raise UnsupportedPlanError(
                    f"rewrites other code points than {first.name}: one access list serves both",
                    where=f"port {port.name}",
                )
    return kinds


def acl_leaves(kind: str, dscps: Sequence[int], background_dscp: int) -> Iterator[tuple[Path, str]]:
    """The two access lists of a kind."""
    for name, family in zip(acl_names(kind), _FAMILIES, strict=True):
        yield ("acl", name, "type"), family
        for number, dscp in enumerate(dscps if kind == SOME_PACKETS else [None], start=1):
            rule = ("acl", name, "rule", f"{number}0")
            if dscp is not None:
                yield (*rule, "match", "ip", "dscp"), str(dscp)
            yield (*rule, "action", "set", "dscp"), str(background_dscp)


def rewriting_of(config: Tree, port: str, background_dscp: int) -> tuple[tuple[int, ...], list[str]]:
    """Code points that our access lists rewrite at a port, and what of the lists is not as it should be."""
    bound = at(config, "interface", port, "acl")
    own = OWN_ACLS & bound.keys()
    if not own:
        return (), []
    kind = EVERY_PACKET if own & {*acl_names(EVERY_PACKET)} else SOME_PACKETS
    found = flatten({"acl": {name: at(config, "acl", name) for name in acl_names(kind)}})
    matches = (value for path, value in found.items() if path[4:] == ("match", "ip", "dscp"))
    matched = {int(value) for value in matches if value.isdecimal()}
    rewritten = every_dscp_but(background_dscp) if kind == EVERY_PACKET else tuple(sorted(matched))
    found |= flatten({"acl": {name: bound[name] for name in sorted(own)}})
    needed = dict(acl_leaves(kind, rewritten, background_dscp))
    needed |= {("acl", name, INBOUND): "" for name in acl_names(kind)}
    faults = [f"no {' '.join(path)}" for path in needed if path not in found]
    faults += [f"{' '.join(path)} {value}" for path, value in found.items() if needed.get(path) != value]
    return rewritten, [fault.rstrip() for fault in faults]


def foreign_acls(config: Tree, port: str) -> Iterator[tuple[str, str]]:
    """(name, direction) of other access lists of a port, but for those of the control plane."""
    for name, directions in at(config, "interface", port, "acl").items():
        if name not in OWN_ACLS and isinstance(directions, Mapping):
            yield from ((name, way) for way in directions if "control-plane" not in at(directions, way))


def changes_packets(config: Tree, name: str) -> bool:
    """Whether an access list rewrites, reclassifies or polices."""
    rules = at(config, "acl", name, "rule")
    return any(_CHANGING & at(rules, number, "action").keys() for number in rules)
