"""A host's end of a plan's spray mode, as an agent's settings want it."""

from dataclasses import dataclass

from mltswitch.hostagent.spraying.modes import ByAddress, BySegments, BySourcePort, BySourceRoute, Spray
from mltswitch.hostagent.spraying.paths import (
    DEFAULT_SETTINGS,
    Path,
    PathSettings,
    SegmentList,
    SourcePort,
    host_of,
    paths_between,
)
from mltswitch.plan import Host, Plan
from mltswitch.wire import SourceRoute
from mltswitch.wire.hardware_address import hardware_address


@dataclass(frozen=True, slots=True)
class PlannedSpray:
    """Of one host, to all its peers."""

    addresses: tuple[str, ...]
    """Local ones of the data, one a path."""
    first_port: int | None
    """Of the data, where the mode names ports; None: any."""
    spray: Spray


def planned_spray(plan: Plan, name: str, settings: PathSettings = DEFAULT_SETTINGS) -> PlannedSpray:
    """Paths to the peers that are farthest; nearer ones are reached by way of the same addresses.

    Raises:
        UserInputError: no such host.
        UnsupportedPlanError: as `paths_between` does.
    """
    host = host_of(plan, name)
    peers = [entry for entry in plan.topology.hosts if entry.name != name]
    pods = plan.topology.pods
    peers.sort(key=lambda entry: (entry.leaf == host.leaf, pods[entry.leaf] == pods[host.leaf]))
    paths_to = {peer.name: paths_between(plan, name, peer.name, settings) for peer in peers}
    most = next(iter(paths_to.values()), ())
    addresses = tuple(str(path.source) for path in most) or (str(host.address),)
    ways = [path.way for path in most]
    if isinstance(next(iter(ways), None), SourceRoute):
        return PlannedSpray(addresses, None, _by_source_route(host, paths_to))
    ports = [way.port for way in ways if isinstance(way, SourcePort)]
    if ports:
        return PlannedSpray(addresses, ports[0], BySourcePort())
    segments = [way.segments[:-1] for way in ways if isinstance(way, SegmentList)]
    if segments and settings.is_sticky:
        texts = tuple(tuple(map(str, each)) for each in segments)
        return PlannedSpray(addresses, None, BySegments(texts))
    return PlannedSpray(addresses, None, ByAddress(max(map(len, segments), default=0)))


def _by_source_route(host: Host, paths_to: dict[str, tuple[Path, ...]]) -> BySourceRoute:
    routes = {
        peer: tuple(path.way.ports for path in paths if isinstance(path.way, SourceRoute))
        for peer, paths in paths_to.items()
    }
    return BySourceRoute(host.interface, hardware_address(host.gateway), routes)
