"""Where an agent's data comes in and goes out: its UDP sockets, and per peer what sends on which path.

Every spray mode ends here: how sockets are opened, what a path's packets carry beside IP and UDP, and how
much payload that leaves in the links' MTU.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.errors import PeerRefusedError, PeerUnreachableError
from mltswitch.hostagent.network.departures import Departures, enable_departures
from mltswitch.hostagent.network.features import Egress, egress, interface_mtu_bytes, kernel_features
from mltswitch.hostagent.network.flow_limit import FLOW_PACKETS, FlowLimit
from mltswitch.hostagent.network.netlink import interface_with
from mltswitch.hostagent.network.outgoing import Output
from mltswitch.hostagent.network.raw import RoutedPath, SourceRouteSender, open_packet_socket
from mltswitch.hostagent.network.sender import BurstSender
from mltswitch.hostagent.network.sockets import (
    DataSocket,
    PathSocket,
    open_path_sockets,
    open_socket,
    set_segments,
)
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.spraying.modes import ByAddress, BySegments, BySourceRoute
from mltswitch.hostagent.transport.hello import LEAST_PAYLOAD_BYTES, LocalEnd, PathAddress, PeerHello
from mltswitch.hostagent.transport.pacing import Pacer
from mltswitch.hostagent.transport.settings import Transport
from mltswitch.units import ETHERNET_HEADER_BYTES
from mltswitch.wire.internet import ip_udp_bytes

KERNEL_SLACK_NS: Final = 2_000_000
"""How much may be handed to a kernel that spaces it: an engine that wakes up every millisecond keeps the
rate."""


@dataclass(frozen=True, slots=True)
class PeerPaths:
    """The way to one peer."""

    output: Output
    path_credit_bytes: int | None
    """Where the kernel spaces packets: what it may hold of a path on average; None: they leave at once, in
    timed bursts."""

    def pacer(self, now_ns: int) -> Pacer | None:
        """For `Connection.pace`; None: the usual one."""
        if self.path_credit_bytes is None:
            return None
        return Pacer(now_ns, slack_ns=KERNEL_SLACK_NS, path_credit_bytes=self.path_credit_bytes)


class DataPaths:
    """Of one agent."""

    def __init__(self, settings: AgentSettings) -> None:
        """Opens the sockets; raises UserInputError or MachineError."""
        self._settings = settings
        self._segmentation = kernel_features().segmentation
        self._frames: socket.socket | None = None
        self.sockets = _opened(settings)
        try:
            if isinstance(settings.spray, BySourceRoute):
                self._frames = open_packet_socket(settings.spray.interface)
            self.payload_bytes, warnings = _payload_bytes(settings)
        except BaseException:
            self.close()
            raise
        found = [text for entry in self.sockets for text in entry.warnings]
        self.warnings: Final = tuple(dict.fromkeys(found + warnings))
        """What the user should know: buffers that are too small, links with a smaller MTU."""

    @property
    def addresses(self) -> tuple[PathAddress, ...]:
        """Where peers send to, one a path."""
        ports = [entry.port for entry in self.sockets]
        if len(ports) == 1:
            ports *= len(self._settings.addresses)
        both = zip(self._settings.addresses, ports, strict=True)
        return tuple(PathAddress(path, address, port) for path, (address, port) in enumerate(both))

    @property
    def wire_header_bytes(self) -> int:
        """What a packet is longer than its UDP payload, as a queue counts it."""
        ip_bytes = ip_udp_bytes(self._settings.addresses[0])
        return ETHERNET_HEADER_BYTES + ip_bytes + self._settings.spray.header_bytes

    def local_end(self, room_packets: int) -> LocalEnd:
        """What every peer is told; all that are expected share room for so many packets."""
        settings, payload_bytes = self._settings, self.payload_bytes
        return LocalEnd(
            name=settings.name,
            data_addresses=self.addresses,
            window_bytes=max(1, room_packets // settings.expected_peers) * payload_bytes,
            payload_bytes=payload_bytes,
            authenticate=settings.authenticate,
            control_dscp=settings.control_dscp,
            wire_header_bytes=self.wire_header_bytes,
        )

    def to_peer(self, hello: PeerHello, rate_bps: Callable[[], float]) -> PeerPaths:
        """What sends to a peer, at a rate that is asked for again and again where the kernel spaces packets.

        Raises PeerRefusedError for addresses that cannot be used, PeerUnreachableError where no way leads to
        them, or none that carries the packets agreed on.
        """
        addresses = sorted(hello.data_addresses, key=lambda entry: entry.path)
        if [entry.path for entry in addresses] != list(range(len(addresses))):
            raise PeerRefusedError("numbers its paths with gaps", peer=hello.name)
        version = ip_address(self._settings.addresses[0]).version
        if any(ip_address(entry.address).version != version for entry in addresses):
            raise PeerRefusedError(
                f"has data addresses that are not IPv{version}, as ours are", peer=hello.name
            )
        spray = self._settings.spray
        if isinstance(spray, BySourceRoute):
            return PeerPaths(self._routed(spray, hello, addresses), None)
        ways = [_way(address) for address in {entry.address for entry in addresses}]
        self._check_ways(hello, [way for way in ways if way is not None])
        sockets = [entry.socket for entry in self.sockets]
        paths = {
            entry.path: PathSocket(sockets[entry.path % len(sockets)], entry.address, entry.port)
            for entry in addresses
        }
        is_spaced = all(way is not None and way.kernel_paces for way in ways)
        if not is_spaced or not all(enable_departures(entry) for entry in sockets):
            return PeerPaths(BurstSender(paths, segmentation=self._segmentation), None)
        departures = Departures(rate_bps, self.wire_header_bytes)
        sender = BurstSender(paths, segmentation=self._segmentation, departures=departures)
        payload_bytes = min(self.payload_bytes, hello.payload_bytes)
        limited = FlowLimit(sender, departures, len(paths), sender.is_segmenting)
        return PeerPaths(limited, FLOW_PACKETS * payload_bytes)

    def close(self) -> None:
        """Close all sockets."""
        for entry in self.sockets:
            entry.socket.close()
        if self._frames is not None:
            self._frames.close()

    def _routed(
        self, spray: BySourceRoute, hello: PeerHello, addresses: list[PathAddress]
    ) -> SourceRouteSender:
        routes = spray.routes.get(hello.name)
        if routes is None:
            raise PeerRefusedError("no source routes lead to it", peer=hello.name)
        if len(routes) == 1:
            routes *= len(addresses)
        if len(routes) != len(addresses):
            raise PeerRefusedError(
                f"has {len(addresses)} paths, and {len(routes)} source routes lead to it", peer=hello.name
            )
        paths = {
            entry.path: RoutedPath(ports, spray.gateway, entry.address, entry.port)
            for entry, ports in zip(addresses, routes, strict=True)
        }
        assert self._frames is not None  # noqa: S101  (opened with this mode)
        return SourceRouteSender(self._frames, self._settings.addresses[0], self.sockets[0].port, paths)

    def _check_ways(self, hello: PeerHello, ways: list[Egress]) -> None:
        if not ways:
            raise PeerUnreachableError("no route leads to any of its data addresses", peer=hello.name)
        agreed_bytes = min(self.payload_bytes, hello.payload_bytes)
        spray = self._settings.spray
        # What a route inserts, the kernel has taken from its MTU already.
        header_bytes = 0 if isinstance(spray, ByAddress) else spray.header_bytes
        for way in ways:
            fitting_bytes = way.payload_bytes(route_bytes=header_bytes)
            if fitting_bytes < agreed_bytes:
                raise PeerUnreachableError(
                    f"packets with {agreed_bytes} bytes of UDP payload were agreed on, and"
                    f" {fitting_bytes} fit on the way to {way.destination} (MTU {way.mtu_bytes}):"
                    " set payload_bytes at either end",
                    peer=hello.name,
                )


def _opened(settings: AgentSettings) -> tuple[DataSocket, ...]:
    if settings.transport is Transport.TCP:
        return ()
    if not settings.per_path_sockets:
        return (
            open_socket(
                tuple(dict.fromkeys(settings.addresses)),
                settings.data_port,
                receive_buffer_bytes=settings.buffer_bytes,
                send_buffer_bytes=settings.buffer_bytes,
            ),
        )
    first = settings.data_port
    sockets = open_path_sockets(
        settings.addresses,
        [first + path if first else 0 for path in range(len(settings.addresses))],
        receive_buffer_bytes=settings.buffer_bytes,
        send_buffer_bytes=settings.buffer_bytes,
    )
    if isinstance(settings.spray, BySegments):
        try:
            for entry, segments in zip(sockets, settings.spray.segments, strict=True):
                set_segments(entry.socket, segments)
        except BaseException:
            for entry in sockets:
                entry.socket.close()
            raise
    return sockets


def _payload_bytes(settings: AgentSettings) -> tuple[int, list[str]]:
    """What packets carry, by the MTU of the interfaces that have our addresses; and warnings.

    Raises UserInputError where nothing would be left.
    """
    if settings.transport is Transport.TCP:
        return settings.payload_bytes, []
    spray = settings.spray
    names = {interface_with(address) for address in settings.addresses}
    if isinstance(spray, BySourceRoute):
        names = {spray.interface}
    mtus = {name: interface_mtu_bytes(name) for name in names if name is not None}
    if not mtus:
        return settings.payload_bytes, []
    name = min(mtus, key=lambda each: mtus[each])
    fitting_bytes = mtus[name] - ip_udp_bytes(settings.addresses[0]) - spray.header_bytes
    if fitting_bytes < LEAST_PAYLOAD_BYTES:
        raise UserInputError(
            f"an MTU of {mtus[name]} bytes leaves {fitting_bytes} for UDP payload",
            where=f"interface {name}",
            expected=f"{LEAST_PAYLOAD_BYTES} or more",
        )
    if settings.payload_bytes <= fitting_bytes + spray.header_bytes:
        return min(settings.payload_bytes, fitting_bytes), []
    return fitting_bytes, [
        f"the MTU of interface {name} is {mtus[name]}: packets carry {fitting_bytes} bytes of UDP payload"
        f" instead of {settings.payload_bytes}"
    ]


def _way(address: str) -> Egress | None:
    """None: no route, and the path is dead until there is one."""
    try:
        return egress(address)
    except MachineError:
        return None
