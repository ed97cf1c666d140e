"""Nodes and cables of a topology document, generated and listed alike, before they have addresses."""

from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

from mltswitch.errors import UserInputError
from mltswitch.plan.fabric import Fabric, SwitchGroup, SwitchRole

MAXIMUM_LINKS: Final = 2**18
"""Cables that are expanded: 2048 leaves with 64 spines and 64 hosts each."""
_TIERS: Final = (("host", SwitchRole.LEAF), (SwitchRole.LEAF, SwitchRole.SPINE))
_JOINED: Final = frozenset(_TIERS) | {(upper, lower) for lower, upper in _TIERS}
"""What a cable joins, either end first."""


@dataclass(frozen=True, slots=True)
class Node:
    """One switch."""

    name: str
    role: SwitchRole
    platform: str
    hardware: str | None


class Link(NamedTuple):
    """One cable: (node, port) at either end."""

    a: tuple[str, str]
    b: tuple[str, str]


def collect(fabric: Fabric) -> tuple[list[Node], list[str], list[Link]]:
    """(switches, hosts, cables): first what is generated, then what is listed.

    Raises:
        UserInputError: more than MAXIMUM_LINKS cables, told before one of them is made.
    """
    document = fabric.topology
    nodes: list[Node] = []
    hosts: list[str] = []
    links: list[Link] = []
    if document.leaf_spine is not None:
        shape = document.leaf_spine
        count = shape.leaves.count * (shape.hosts_per_leaf + shape.spines.count)
        if count > MAXIMUM_LINKS:
            raise UserInputError(
                f"{shape.leaves.count} leaves, each with {shape.hosts_per_leaf} hosts and "
                f"{shape.spines.count} spines, have {count} links",
                where="topology.leaf_spine",
                expected=f"at most {MAXIMUM_LINKS}",
            )
        spines = _group_nodes(shape.spines, SwitchRole.SPINE)
        leaves = _group_nodes(shape.leaves, SwitchRole.LEAF)
        nodes += spines + leaves
        for leaf_number, leaf in enumerate(leaves):
            for place in range(shape.hosts_per_leaf):
                host = f"host{leaf_number * shape.hosts_per_leaf + place + 1}"
                hosts.append(host)
                links.append(Link((leaf.name, _port_name(shape.leaves, place)), (host, "eth0")))
            for spine_number, spine in enumerate(spines):
                leaf_port = _port_name(shape.leaves, shape.hosts_per_leaf + spine_number)
                links.append(
                    Link((leaf.name, leaf_port), (spine.name, _port_name(shape.spines, leaf_number)))
                )
    nodes += [Node(entry.name, entry.role, entry.platform, entry.hardware) for entry in document.switches]
    hosts += [entry.name for entry in document.hosts]
    for link in document.links:
        a_node, _, a_port = link.a.partition(":")
        b_node, _, b_port = link.b.partition(":")
        links.append(Link((a_node, a_port), (b_node, b_port)))
    return nodes, hosts, links


def _group_nodes(group: SwitchGroup, role: SwitchRole) -> list[Node]:
    prefix = group.name or role.value
    return [Node(f"{prefix}{n + 1}", role, group.platform, group.hardware) for n in range(group.count)]


def _port_name(group: SwitchGroup, index: int) -> str:
    if group.port_names is None:
        raise UserInputError(
            f"port_names is missing for platform {group.platform}",
            where="topology.leaf_spine",
            hint="name the pattern",
        )
    return group.port_names.name(index)


def check_names(nodes: list[Node], hosts: list[str]) -> None:
    """Raise UserInputError for a name given twice."""
    for name, count in Counter([node.name for node in nodes] + hosts).items():
        if count > 1:
            raise UserInputError(f"the name {name!r} is given {count} times", where="topology")


def check_links(links: list[Link], roles: dict[str, SwitchRole], hosts: set[str]) -> None:
    """Raise UserInputError for a cable that does not join leaf and spine, or host and leaf, once."""
    used: set[tuple[str, str]] = set()
    pairs: set[frozenset[str]] = set()
    tiers = roles | dict.fromkeys(hosts, "host")
    for link in links:
        for end in link:
            if end[0] not in tiers:
                raise UserInputError(
                    f"unknown switch or host {end[0]!r}",
                    where=_place(link),
                    hint="list it under topology.switches or topology.hosts",
                )
            if end in used:
                raise UserInputError(f"port {':'.join(end)} has two cables", where=_place(link))
            used.add(end)
        (one, _), (other, _) = link
        if (tiers[one], tiers[other]) not in _JOINED:
            lower, upper = sorted((tiers[one], tiers[other]))
            raise UserInputError(
                f"the link joins {lower} and {upper}",
                where=_place(link),
                expected="host to leaf, or leaf to spine",
            )
        pair = frozenset((one, other))
        if pair in pairs:
            raise UserInputError(
                "a second link between the same two",
                where=_place(link),
                expected="one link per pair: a path is named by its spine",
            )
        pairs.add(pair)


def _place(link: Link) -> str:
    return f"topology.links: {':'.join(link.a)} - {':'.join(link.b)}"


def check_complete(nodes: list[Node], links: list[Link]) -> None:
    """Raise UserInputError where a path would not exist: each leaf needs a link to each spine."""
    spines = [node.name for node in nodes if node.role is SwitchRole.SPINE]
    leaves = [node.name for node in nodes if node.role is SwitchRole.LEAF]
    if not leaves:
        raise UserInputError("the fabric has no leaf", where="topology")
    joined = {pair for link in links for pair in ((link.a[0], link.b[0]), (link.b[0], link.a[0]))}
    for leaf in leaves:
        for spine in spines:
            if (leaf, spine) not in joined:
                raise UserInputError(
                    f"leaf {leaf} has no link to {spine}",
                    where="topology.links",
                    hint="each spine is a path to every host, so each leaf needs a link to each spine",
                )


def tier_indices(nodes: list[Node]) -> dict[str, int]:
    """Place of each switch among those of its role, from 0."""
    seen: Counter[SwitchRole] = Counter()
    indices: dict[str, int] = {}
    for node in nodes:
        indices[node.name] = seen[node.role]
        seen[node.role] += 1
    return indices
