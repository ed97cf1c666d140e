"""The paths between two hosts of a plan in its spray mode, and the one-time set-up for them as root.

Hosts below one leaf have one path, by that leaf alone. Between leaves there is one for each spine, between
pods one for each core, in the order of `addressing.alias`. The mode `entropy` has one for each UDP source
port, and the switches' hash decides where it leads; `packet` has one, because the switches choose.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from textwrap import shorten
from typing import Final

from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.hostagent.spraying import LEAST_SOURCE_PORTS, MOST_PATHS, Spraying
from mltswitch.plan import Host, PathName, Plan, Segments, Switch, trailing_number
from mltswitch.wire import ETHERTYPE_IPV4, SourceRoute

SOURCE_PORTS_PER_SPINE: Final = 4
"""Default source ports per spine: with 16 in all, 4 spines are all hit in 96 % of cases: 1 - 4 · (3/4)¹⁶."""
DEFAULT_OPTIONS: Final = Spraying()
NOTHING: Final = ("# nothing: the host's own address does",)
RAW_FRAMES: Final = (
    "# nothing once; an agent that writes source routes sends whole Ethernet frames, and needs for that",
    "# the capability CAP_NET_RAW and no other, which root gives it as it starts, for example:",
    "# setpriv --reuid USER --init-groups --inh-caps +net_raw --ambient-caps +net_raw -- COMMAND",
)


@dataclass(frozen=True, slots=True)
class SegmentList:
    """A path named by an IPv6 segment routing header (RFC 8754)."""

    segments: tuple[IPv6Address, ...]
    """Segments in the order of travel: the spine's, then the receiver's address."""
    is_sticky: bool
    """Whether the socket inserts the header (IPV6_RTHDR) rather than a route of the host."""


@dataclass(frozen=True, slots=True)
class SourcePort:
    """A path named by a UDP source port, by which the switches' hash tells its packets from others."""

    port: int


@dataclass(frozen=True, slots=True)
class Path:
    """One path from a host to another, as the sender names it."""

    number: int
    """Index in the list of paths, from 0, as in the field `path` of the agent header."""
    name: str
    """Name of the spine, of the leaf of both hosts, or the source port where the switches' hash decides."""
    source: IPv4Address | IPv6Address
    """Local address: what the peer sends to it comes back on the same path, if the mode allows that."""
    destination: IPv4Address | IPv6Address
    way: SegmentList | SourceRoute | SourcePort | None
    """What names the path in packets beside the addresses; None: nothing."""


def host_of(plan: Plan, name: str) -> Host:
    """The plan's host of this name; raises UserInputError."""
    known = {host.name: host for host in plan.topology.hosts}
    if name not in known:
        names = shorten(", ".join(known), 80, placeholder=" …")
        raise UserInputError(f"no host {name!r} in fabric {plan.fabric.name}", expected=f"one of {names}")
    return known[name]


def segments_of(plan: Plan) -> Segments:
    """The plan's rules for SRv6 addresses; raises UserInputError if it has none."""
    block = plan.fabric.addressing.segments
    if block is None:
        raise UserInputError("the plan has no SRv6 addresses", where="fabric.addressing.segments")
    return Segments(block, plan.fabric.addressing)


def paths_between(
    plan: Plan, source_name: str, destination_name: str, options: Spraying = DEFAULT_OPTIONS
) -> tuple[Path, ...]:
    """All paths from one host to another; of the options only those count that the plan's mode leaves open.

    Raises:
        UserInputError: no such host, both are one, or the fabric file says no address of one.
        UnsupportedPlanError: more paths than an agent keeps, or ports without the numbers that `p4` needs.
    """
    source, destination = host_of(plan, source_name), host_of(plan, destination_name)
    if source is destination:
        raise UserInputError(f"{source.name} needs no path to itself", expected="two different hosts")
    for host in (source, destination):
        if host.address.is_unspecified:
            raise UserInputError(
                f"host {host.name} has no address in fabric {plan.fabric.name}",
                hint="give addressing.hosts, or list the host under topology.hosts with its address",
            )
    mode, first = plan.paths.mode, options.first_source_port
    if source.leaf == destination.leaf:
        return (_below_one_leaf(plan, source, destination),)
    if mode == "packet":
        return (Path(0, "any spine", source.address, destination.address, None),)
    names = plan.topology.paths_between(source, destination)
    if mode == "entropy":
        usual = min(max(LEAST_SOURCE_PORTS, SOURCE_PORTS_PER_SPINE * len(names)), MOST_PATHS)
        return tuple(
            Path(number, f"port {port}", source.address, destination.address, SourcePort(port))
            for number, port in enumerate(range(first, first + (options.source_ports or usual)))
        )
    if len(names) > MOST_PATHS:
        problem = f"{len(names)} spines make {len(names)} paths"
        raise UnsupportedPlanError(problem, where="spraying", expected=f"{MOST_PATHS} or fewer")
    return tuple(
        _by_name(plan, source, destination, number, name, options) for number, name in enumerate(names)
    )


def _below_one_leaf(plan: Plan, source: Host, destination: Host) -> Path:
    leaf = plan.topology.switch(source.leaf)
    if plan.paths.mode == "srv6":
        rules = segments_of(plan)
        return Path(0, leaf.name, rules.host_address(source), rules.host_address(destination), None)
    way = _source_route([(leaf, destination.leaf_port)]) if plan.paths.mode == "p4" else None
    return Path(0, leaf.name, source.address, destination.address, way)


def _by_name(
    plan: Plan, source: Host, destination: Host, number: int, path: PathName, options: Spraying
) -> Path:
    if plan.paths.mode == "p4":
        hops = plan.topology.walk(source, destination, path)
        way = _source_route([(plan.topology.switch(switch), port.name) for switch, port in hops])
        return Path(number, path.name, source.address, destination.address, way)
    if plan.paths.mode == "srv6":
        rules, spine = segments_of(plan), plan.topology.switch(path.top)
        ours, theirs = (rules.path_address(host, spine.index) for host in (source, destination))
        segments = (rules.locator(spine.index).network_address, theirs)
        return Path(number, spine.name, ours, theirs, SegmentList(segments, options.sticky))
    first, last = (dict(host.aliases)[path.name] for host in (source, destination))
    return Path(number, path.name, first, last, None)


def _source_route(hops: list[tuple[Switch, str]]) -> SourceRoute:
    numbers = []
    for switch, port in hops:
        number = trailing_number(port)
        if number is None:
            raise UnsupportedPlanError(
                "does not end with a number, which a source route needs",
                where=f"{switch.name}: port {port}",
                expected="a name such as eth3",
            )
        numbers.append(number)
    return SourceRoute(tuple(numbers), ETHERTYPE_IPV4)


def setup_commands(plan: Plan, name: str, peer: str, options: Spraying = DEFAULT_OPTIONS) -> tuple[str, ...]:
    """Shell commands for root on a host that exchanges tensors with this peer; lines with # explain.

    The kernel forgets the settings at a reboot. Each command may be given again: what exists already stays as
    it is. Raises what `paths_between` raises.
    """
    host, paths = host_of(plan, name), paths_between(plan, name, peer, options)
    match plan.paths.mode:
        case "alias":
            return tuple(_aliases(host))
        case "srv6":
            return tuple(_segments(plan, host, paths))
        case "p4":
            return RAW_FRAMES
    return NOTHING


def _aliases(host: Host) -> Iterator[str]:
    """Addresses, and routes that leave by the fabric's interface with the source address of the same spine.

    The routes matter on hosts that have another interface: without them the alias of a peer goes by the
    default route, and strict reverse-path filtering (rp_filter 1) drops what comes from one.
    """
    for _, alias in host.aliases:
        yield f"ip addr replace {alias}/32 dev {host.interface}"
    for (_, prefix), (_, alias) in zip(host.alias_prefixes, host.aliases, strict=True):
        yield f"ip route replace {prefix} via {host.gateway} dev {host.interface} src {alias}"


def _segments(plan: Plan, host: Host, paths: tuple[Path, ...]) -> Iterator[str]:
    rules, name = segments_of(plan), host.interface
    # Of a host, the kernel takes a packet with a segment routing header only where both say so.
    yield "sysctl -w net.ipv6.conf.all.seg6_enabled=1"
    yield f"sysctl -w net.ipv6.conf.{name.replace('.', '/')}.seg6_enabled=1"
    for path in plan.topology.paths:
        address = rules.path_address(host, plan.topology.switch(path.top).index)
        yield f"ip -6 addr replace {address}/64 dev {name} nodad"
    port = plan.topology.switch(host.leaf).port(host.leaf_port)
    yield f"ip -6 route replace {rules.block} via {rules.port_addresses(port)[0]} dev {name}"
    for way, source in ((path.way, path.source) for path in paths):
        if isinstance(way, SegmentList) and not way.is_sticky:
            spine, destination = way.segments
            # Inline, the kernel itself puts the packet's destination behind the segments that are listed.
            inline = f"encap seg6 mode inline segs {spine} dev {name} src {source}"
            yield f"ip -6 route replace {destination}/128 {inline}"
