"""Nodes and cables of a topology document, generated and listed alike, before they have addresses."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from mltswitch.capabilities import PortNumbering
from mltswitch.errors import UserInputError
from mltswitch.plan.topology_document import (
    HostEntry,
    LeafSpine,
    SwitchEntry,
    SwitchGroup,
    SwitchModel,
    SwitchRole,
    TierLinks,
    TopologyDocument,
)

MAXIMUM_LINKS: Final = 2**18
"""The most cables that a topology may have: 2048 leaves with 64 spines and 64 hosts each."""
FIELDS: Final = {SwitchRole.LEAF: "leaves", SwitchRole.SPINE: "spines", SwitchRole.CORE: "cores"}
"""The field of a generated fabric that describes the switches of each role."""
TIERS: Final = ("host", SwitchRole.LEAF, SwitchRole.SPINE, SwitchRole.CORE)
"""The tiers of a fabric from the hosts up; a cable joins two neighbouring tiers."""


class End(NamedTuple):
    """Where a cable is plugged in."""

    node: str
    port: str
    breakout: int = 1
    """Ports into which the device's port is broken out; 1: it is whole."""
    lag: str = ""
    """The link aggregation group that the port belongs to; "": none."""

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"

    @property
    def interface(self) -> tuple[str, str]:
        """The node, and what has the addresses there: the port, or its link aggregation group."""
        return self.node, self.lag or self.port


class Link(NamedTuple):
    """One cable between two ports."""

    a: End
    b: End
    rate_bps: int | None = None
    """The rate of the link in bit/s; None: what `ports` says for the ports' role."""

    @property
    def place(self) -> str:
        """The cable as error messages name it."""
        return f"topology.links: {self.a} - {self.b}"


class Cabling(NamedTuple):
    """The nodes and cables of a topology document, in the document's order."""

    nodes: list[SwitchEntry]
    hosts: list[str]
    links: list[Link]
    entries: dict[str, HostEntry]
    """The entries of listed hosts by name, and of those generated hosts whose addresses the document
    gives."""


def collect(document: TopologyDocument) -> Cabling:
    """The nodes and cables of a topology document: first those that are generated, then those that are
    listed.

    Raises:
        UserInputError: more than MAXIMUM_LINKS cables, told before one of them is made; or a generated switch
            has no model, or ports without names.
    """
    cabling = Cabling([], [], [], {entry.name: entry for entry in document.hosts})
    if document.leaf_spine is not None:
        _generate(document.leaf_spine, cabling)
    generated = set(cabling.hosts)
    cabling.nodes.extend(document.switches)
    cabling.hosts.extend(entry.name for entry in document.hosts if entry.name not in generated)
    for link in document.links:
        a = _end(link.a, link.breakout_a, link.lag_a)
        cabling.links.append(Link(a, _end(link.b, link.breakout_b, link.lag_b), link.rate_bps))
    return cabling


def _end(reference: str, breakout: int, lag: str | None) -> End:
    node, _, port = reference.partition(":")
    return End(node, port, breakout, lag or "")


def _generate(shape: LeafSpine, cabling: Cabling) -> None:
    leaf_count, spine_count = shape.leaves.count * shape.pods, shape.spines.count * shape.pods
    uplinks = shape.spines.count * shape.uplinks.parallel
    core_count = 0 if shape.cores is None else shape.cores.count
    core_uplinks = core_count // shape.spines.count * shape.core_links.parallel
    count = leaf_count * (shape.hosts_per_leaf + uplinks) + spine_count * core_uplinks
    if count > MAXIMUM_LINKS:
        raise UserInputError(
            f"{leaf_count} leaves, each with {shape.hosts_per_leaf} hosts and {uplinks} links to spines, "
            f"have {count} links",
            where="topology.leaf_spine",
            expected=f"at most {MAXIMUM_LINKS}",
        )
    spines = _group(shape.spines, SwitchRole.SPINE, spine_count, cabling)
    leaves = _group(shape.leaves, SwitchRole.LEAF, leaf_count, cabling)
    cores = [] if shape.cores is None else _group(shape.cores, SwitchRole.CORE, core_count, cabling)
    hosts, rate_bps = shape.hosts_per_leaf, shape.host_ports.rate_bps
    down = [leaf.take(hosts, shape.host_ports.breakout) for leaf in leaves]
    for number, leaf in enumerate(leaves):
        pod, rail = number // shape.leaves.count, number % shape.rails
        for place, (port, parts) in enumerate(down[number]):
            host = f"host{number // shape.rails * hosts + place + 1}"
            if rail == 0:
                cabling.hosts.append(host)
            cabling.links.append(Link(End(leaf.name, port, parts), End(host, f"eth{rail}"), rate_bps))
        uppers = spines[pod * shape.spines.count : (pod + 1) * shape.spines.count]
        cabling.links.extend(_joined(leaf, uppers, shape.uplinks, number % shape.leaves.count))
    planes = len(cores) // shape.spines.count
    for number, spine in enumerate(spines):
        pod, place = divmod(number, shape.spines.count)
        uppers = cores[place * planes : (place + 1) * planes]
        cabling.links.extend(_joined(spine, uppers, shape.core_links, pod))


class _Box:
    """A generated switch that hands out its ports in their order."""

    def __init__(self, name: str, model: SwitchModel) -> None:
        if model.port_names is None:
            raise UserInputError(
                f"port_names is missing for platform {model.platform}",
                where="topology.leaf_spine",
                hint="name the pattern",
            )
        self.name = name
        self.numbering: PortNumbering = model.port_names
        self.groups = 0
        """Link aggregation groups so far."""
        self._next = 0
        self._down: list[tuple[str, int]] = []

    def take(self, count: int, breakout: int) -> list[tuple[str, int]]:
        """The next ports, broken out where the box's can be; what is left of the last one stays unused."""
        names = self.numbering
        parts = breakout if names.lanes else 1
        if parts > 1 and names.lanes % parts:
            raise UserInputError(
                f"no source names the ports of {self.name} that are broken out in {parts}",
                where="topology.leaf_spine",
                expected=", ".join(str(each) for each in (1, 2, 4, 8) if names.lanes % each == 0),
            )
        width = names.width(parts) if parts > 1 else 1
        first = -(-self._next // width) * width
        self._next = first + -(-count // parts) * width
        return [
            (names.name(first + number // parts * width, number % parts, parts), parts)
            for number in range(count)
        ]

    def towards(self, place: int, shape: TierLinks) -> list[tuple[str, int]]:
        """Of an upper switch: ports to the lower switch of this place; places come in their order."""
        wanted = (place + 1) * shape.parallel
        while len(self._down) < wanted:
            self._down += self.take(shape.breakout_above, shape.breakout_above)
        return self._down[wanted - shape.parallel : wanted]

    def lag(self) -> str:
        """Name of the next link aggregation group."""
        if self.numbering.lag_pattern is None:
            raise UserInputError(
                f"no source names link aggregation groups of {self.name} as routes need them",
                where="topology.leaf_spine",
                hint="list its links, or take parallel ones without lag",
            )
        self.groups += 1
        return self.numbering.lag_pattern.replace("{n}", str(self.groups))


def _joined(lower: _Box, uppers: Sequence[_Box], shape: TierLinks, place: int) -> Iterator[Link]:
    ports = lower.take(len(uppers) * shape.parallel, shape.breakout)
    for number, upper in enumerate(uppers):
        lags = (lower.lag(), upper.lag()) if shape.lag and shape.parallel > 1 else ("", "")
        near = ports[number * shape.parallel : (number + 1) * shape.parallel]
        for (one, parts), (other, others) in zip(near, upper.towards(place, shape), strict=True):
            ends = End(lower.name, one, parts, lags[0]), End(upper.name, other, others, lags[1])
            yield Link(*ends, shape.rate_bps)


def _group(group: SwitchGroup, role: SwitchRole, count: int, cabling: Cabling) -> list[_Box]:
    prefix, named, default = group.name or role.value, group.models_by_name(), group.default_model
    boxes: list[_Box] = []
    names = [f"{prefix}{number}" for number in range(1, count + 1)]
    unknown = next((name for name in named if name not in names), None)
    if unknown is not None:
        raise UserInputError(
            f"a pattern names {unknown}, which is none of the {count} switches",
            where=f"topology.leaf_spine.{FIELDS[role]}.models",
            expected=f"patterns of {prefix}1 to {prefix}{count}",
        )
    for name in names:
        model = named.get(name, default)
        if model is None:
            raise UserInputError(
                f"no pattern names {name}",
                where="topology.leaf_spine",
                expected=f"models for {prefix}1 to {prefix}{count}",
            )
        cabling.nodes.append(
            SwitchEntry(name=name, role=role, platform=model.platform, hardware=model.hardware)
        )
        boxes.append(_Box(name, model))
    return boxes


def check_names(names: Iterable[str]) -> None:
    """Raise UserInputError for a name given twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise UserInputError(f"the name {name!r} is given {count} times", where="topology")


def upward_links(links: list[Link], tiers: dict[str, str]) -> list[Link]:
    """The cables, each with its lower end first; raises UserInputError for one between tiers that are not
    neighbours."""
    upward: list[Link] = []
    used: set[tuple[str, str]] = set()
    groups: dict[tuple[str, str], tuple[str, str]] = {}
    kinds: dict[frozenset[tuple[str, str]], tuple[int | None, int, int]] = {}
    for link in links:
        for end in (link.a, link.b):
            if end.node not in tiers:
                raise UserInputError(
                    f"unknown switch or host {end.node!r}",
                    where=link.place,
                    hint="list it under topology.switches or topology.hosts",
                )
            if end[:2] in used:
                raise UserInputError(f"port {end} has two cables", where=link.place)
            used.add(end[:2])
        heights = [TIERS.index(tiers[end.node]) for end in (link.a, link.b)]
        if abs(heights[1] - heights[0]) != 1:
            raise UserInputError(
                f"the link joins {' and '.join(TIERS[height] for height in sorted(heights))}",
                where=link.place,
                expected="host to leaf, leaf to spine, or spine to core",
            )
        low, high = (link.a, link.b) if heights[0] < heights[1] else (link.b, link.a)
        if low.lag:
            if not min(heights):
                raise UserInputError("a host has no link aggregation group", where=link.place)
            near, far = low.interface, high.interface
            if groups.setdefault(near, far) != far or groups.setdefault(far, near) != near:
                raise UserInputError("a link aggregation group has one other end", where=link.place)
            alike = (link.rate_bps, low.breakout, high.breakout)
            if kinds.setdefault(frozenset((near, far)), alike) != alike:
                raise UserInputError("the links of a group have one rate and one breakout", where=link.place)
        upward.append(Link(low, high, link.rate_bps))
    for group in groups:
        if group in used:
            raise UserInputError(f"{':'.join(group)} is a port, not a group of links", where="topology.links")
    return upward


def find_pods(nodes: list[SwitchEntry], links: list[Link]) -> dict[str, int]:
    """The pod number of each leaf and spine by name; switches joined without the cores are one pod."""
    role_of = {node.name: node.role for node in nodes}
    below = [node.name for node in nodes if node.role is not SwitchRole.CORE]
    if len(below) == len(nodes):
        return dict.fromkeys(below, 0)
    neighbours: defaultdict[str, set[str]] = defaultdict(set)
    for low, high, _ in links:
        if (role_of.get(low.node), role_of.get(high.node)) == (SwitchRole.LEAF, SwitchRole.SPINE):
            neighbours[low.node].add(high.node)
            neighbours[high.node].add(low.node)
    pods: dict[str, int] = {}
    count = 0
    for name in below:
        waiting = [] if name in pods else [name]
        count += len(waiting)
        while waiting:
            place = waiting.pop()
            if place not in pods:
                pods[place] = count - 1
                waiting += neighbours[place] - pods.keys()
    return {name: pods[name] for name in below}  # in the file's order, not in that of a set


def check_complete(
    nodes: list[SwitchEntry], joined: Container[tuple[str, str]], pods: dict[str, int]
) -> None:
    """Raise UserInputError where a path would not exist: `joined` has (lower, upper) of every link.

    Each leaf needs a link to each spine of its pod, and each core one to a spine of each pod.
    """
    of_role = {role: [node.name for node in nodes if node.role is role] for role in SwitchRole}
    leaves, spines = of_role[SwitchRole.LEAF], of_role[SwitchRole.SPINE]
    if not leaves:
        raise UserInputError("the fabric has no leaf", where="topology")
    if not spines and len(leaves) > 1:
        raise UserInputError(f"no spine joins {len(leaves)} leaves", where="topology")
    spines_of: defaultdict[int, list[str]] = defaultdict(list)
    for spine in spines:
        spines_of[pods[spine]].append(spine)
    for leaf in leaves:
        for spine in spines_of[pods[leaf]]:
            if (leaf, spine) not in joined:
                raise UserInputError(
                    f"leaf {leaf} has no link to {spine}",
                    where="topology.links",
                    hint="each spine is a path to every host, so each leaf needs a link to each spine",
                )
    for core in of_role[SwitchRole.CORE]:
        for pod in sorted(set(pods.values())):
            if not any((spine, core) in joined for spine in spines_of[pod]):
                first = next(name for name in pods if pods[name] == pod)
                raise UserInputError(
                    f"core {core} has no link to a spine of {first}'s pod",
                    where="topology.links",
                    hint="each core is a path to every host of another pod",
                )
