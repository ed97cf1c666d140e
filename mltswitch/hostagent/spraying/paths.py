"""The paths between two hosts of a plan, in its spray mode: one type, whatever names the path on the wire.

Hosts below one leaf have one path, by that leaf alone. Between leaves there is one for each spine, between
pods one for each core, in the order of `addressing.alias`. The mode `entropy` has one for each UDP source
port, and the switches' hash decides where it leads; `packet` has one, because the switches choose.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.plan import Host, PathName, Plan, Segments, Switch, trailing_number
from mltswitch.wire import ETHERTYPE_IPV4, SourceRoute

MAXIMUM_PATHS: Final = 64
"""Between two hosts: each has its counters, its probes and, in some modes, its socket."""
FIRST_SOURCE_PORT: Final = 61_000
"""Of the mode `entropy`: Linux hands out 32768 to 60999 by itself (ip_local_port_range)."""
LAST_PORT: Final = 65_535
LEAST_SOURCE_PORTS: Final = 16
SOURCE_PORTS_PER_SPINE: Final = 4
"""A fair hash of 16 ports over 4 spines leaves one of these without any in 4 % of all cases: 4 · (3/4)¹⁶."""


ROUTING_TYPE: Final = 4
"""Segment routing among IPv6 routing headers."""


@dataclass(frozen=True, slots=True)
class SegmentList:
    """A segment routing header (RFC 8754): the spine's segment, then the receiver's address."""

    segments: tuple[IPv6Address, ...]
    """In the order of travel; the last is the destination."""
    is_sticky: bool
    """The socket carries the header (IPV6_RTHDR); else a route of the host's inserts it."""

    @property
    def header(self) -> bytes:
        """The extension header as IPV6_RTHDR of a socket takes it (RFC 8754, section 2)."""
        count = len(self.segments)
        fixed = bytes((0, 2 * count, ROUTING_TYPE, count - 1, count - 1, 0, 0, 0))
        return fixed + b"".join(segment.packed for segment in reversed(self.segments))


@dataclass(frozen=True, slots=True)
class SourcePort:
    """UDP source port that the switches' hash takes for another flow."""

    port: int


@dataclass(frozen=True, slots=True)
class Path:
    """One path from a host to another, as the sender names it."""

    number: int
    """Place in the list of paths, from 0; `path` of the agent header."""
    name: str
    """The spine, the leaf of both hosts, or the source port where the switches' hash decides."""
    source: IPv4Address | IPv6Address
    """Of ours: what the peer sends there comes back on the same path where the mode can say so."""
    destination: IPv4Address | IPv6Address
    way: SegmentList | SourceRoute | SourcePort | None
    """What names the path beside the addresses; None: nothing does."""


@dataclass(frozen=True, slots=True)
class PathSettings:
    """What a plan leaves open."""

    source_ports: int | None = None
    """Mode `entropy`: how many; None: 16, or 4 for each spine where that is more."""
    first_source_port: int = FIRST_SOURCE_PORT
    is_sticky: bool = False
    """Mode `srv6`: a header for each socket instead of a route for each address."""

    def __post_init__(self) -> None:
        """Raises UserInputError."""
        count = 1 if self.source_ports is None else self.source_ports
        if not 1 <= count <= MAXIMUM_PATHS:
            raise UserInputError(f"{count} source ports", expected=f"1 to {MAXIMUM_PATHS}")
        if not 1 <= self.first_source_port <= LAST_PORT + 1 - MAXIMUM_PATHS:
            raise UserInputError(
                f"first source port {self.first_source_port}",
                expected=f"1 to {LAST_PORT + 1 - MAXIMUM_PATHS}",
            )


DEFAULT_SETTINGS: Final = PathSettings()


def host_of(plan: Plan, name: str) -> Host:
    """The plan's host of this name; raises UserInputError."""
    for host in plan.topology.hosts:
        if host.name == name:
            return host
    known = [host.name for host in plan.topology.hosts]
    named = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
    raise UserInputError(
        f"no host {name!r} in fabric {plan.fabric.name}", expected=f"one of {named or 'none'}"
    )


def paths_between(
    plan: Plan, source_name: str, destination_name: str, settings: PathSettings = DEFAULT_SETTINGS
) -> tuple[Path, ...]:
    """All paths, as the source names them.

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
    mode = plan.paths.mode
    if source.leaf == destination.leaf:
        return (_below_one_leaf(plan, source, destination),)
    if mode == "packet":
        return (Path(0, "any spine", source.address, destination.address, None),)
    names = plan.topology.paths_between(source, destination)
    if mode == "entropy":
        return _by_source_port(source, destination, len(names), settings)
    _check_count(len(names))
    if mode == "p4":
        return tuple(
            Path(
                number,
                path.name,
                source.address,
                destination.address,
                _route(plan, source, path, destination),
            )
            for number, path in enumerate(names)
        )
    if mode == "srv6":
        return tuple(
            _by_segments(
                plan,
                source,
                destination,
                number,
                plan.topology.switch(path.top),
                is_sticky=settings.is_sticky,
            )
            for number, path in enumerate(names)
        )
    own, theirs = dict(source.aliases), dict(destination.aliases)
    return tuple(
        Path(number, path.name, own[path.name], theirs[path.name], None) for number, path in enumerate(names)
    )


def segments_of(plan: Plan) -> Segments:
    """The rules of the plan's SRv6 addresses; raises UserInputError where it has none."""
    block = plan.fabric.addressing.segments
    if block is None:
        raise UserInputError("the plan has no SRv6 addresses", where="fabric.addressing.segments")
    return Segments(block, plan.fabric.addressing)


def _below_one_leaf(plan: Plan, source: Host, destination: Host) -> Path:
    mode = plan.paths.mode
    if mode == "srv6":
        rules = segments_of(plan)
        return Path(0, source.leaf, rules.host_address(source), rules.host_address(destination), None)
    way = None
    if mode == "p4":
        leaf = plan.topology.switch(source.leaf)
        way = SourceRoute((_number(leaf, destination.leaf_port),), ETHERTYPE_IPV4)
    return Path(0, source.leaf, source.address, destination.address, way)


def _by_source_port(source: Host, destination: Host, paths: int, settings: PathSettings) -> tuple[Path, ...]:
    count = settings.source_ports or min(
        max(LEAST_SOURCE_PORTS, SOURCE_PORTS_PER_SPINE * paths), MAXIMUM_PATHS
    )
    ports = range(settings.first_source_port, settings.first_source_port + count)
    return tuple(
        Path(number, f"port {port}", source.address, destination.address, SourcePort(port))
        for number, port in enumerate(ports)
    )


def _by_segments(
    plan: Plan, source: Host, destination: Host, number: int, spine: Switch, *, is_sticky: bool
) -> Path:
    rules = segments_of(plan)
    own = rules.path_address(source, spine.index)
    theirs = rules.path_address(destination, spine.index)
    segment = rules.locator(spine.index).network_address
    return Path(number, spine.name, own, theirs, SegmentList((segment, theirs), is_sticky))


def _route(plan: Plan, source: Host, path: PathName, destination: Host) -> SourceRoute:
    hops = plan.topology.walk(source, destination, path)
    return SourceRoute(
        tuple(_number(plan.topology.switch(switch), port.name) for switch, port in hops), ETHERTYPE_IPV4
    )


def _number(switch: Switch, port: str) -> int:
    number = trailing_number(port)
    if number is None:
        raise UnsupportedPlanError(
            "does not end with a number, which a source route needs",
            where=f"{switch.name}: port {port}",
            expected="a name such as eth3",
        )
    return number


def _check_count(spines: int) -> None:
    if spines > MAXIMUM_PATHS:
        raise UnsupportedPlanError(
            f"{spines} spines make {spines} paths", where="spraying", expected=f"{MAXIMUM_PATHS} or fewer"
        )
