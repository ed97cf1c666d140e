"""One agent's data plane with the sockets and events of all its transports over datagrams."""

import fcntl
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, ip_address
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from mltswitch.errors import MachineError
from mltswitch.hostagent.config import LOOPBACK_RATE_BPS
from mltswitch.hostagent.dataplane.binding import (
    DataPlane,
    DataPlaneError,
    Fields,
    lib,
    path_fields,
    set_buffers,
)
from mltswitch.hostagent.errors import PeerRefusedError
from mltswitch.hostagent.port_share import TICK_SECONDS, Demand, PortShare
from mltswitch.hostagent.spraying import Spraying
from mltswitch.hostagent.transport.host import TransportHost
from mltswitch.units import format_bps
from mltswitch.wire import ETHERTYPE_IPV4, ETHERTYPE_SOURCE_ROUTE, SourceRoute

QUIET_TICKS: Final = 10
WEIGH_SECONDS: Final = 0.1
"""Time between two computations of the paths' weights while transfers are open."""
_SIOCGIFHWADDR: Final = 0x8927
_SIOCGIFMTU: Final = 0x8921
_NETLINK_ROUTE, _RTM_NEWROUTE, _RTM_GETROUTE, _RTA_DST, _RTA_OIF = 0, 24, 26, 1, 4
_planes: Final["WeakKeyDictionary[TransportHost, DatagramPlane]"] = WeakKeyDictionary()


def plane_of(host: TransportHost) -> "DatagramPlane":
    """The agent's data plane for one more transport, opened if necessary; raises MachineError."""
    plane = _planes.get(host)
    if plane is None:
        plane = _planes[host] = DatagramPlane(host)
    plane.users += 1
    return plane


class Flow(Protocol):
    """A connection as it receives the data plane's events."""

    def heard(self, event: Any) -> None:
        """Handle a `struct mlt_event` of this flow."""

    def weigh(self) -> bool:
        """Recompute the paths' shares; returns whether any transfer is open."""


class DatagramPlane:
    """The sockets, paths and events of an agent's data plane."""

    def __init__(self, host: TransportHost) -> None:
        self.host: Final = host
        self.core: Final = DataPlane()
        self.users = 0
        """Transports that have not closed it."""
        self.callbacks: Final[dict[int, Callable[[], object]]] = {}
        """By transfer: called once it is done."""
        self.flows: Final[dict[int, Flow]] = {}
        """By token."""
        self._is_weighing = False
        self._seat = None if host.config.port_share is None else PortShare(host.config.port_share)
        self._demand = Demand()
        self._has_posted = False
        """Since the last look at the port's shares; any thread sets it."""
        self._quiet_ticks: int | None = None
        """Without an open receive, of those that look after the port's shares; None: nobody looks."""
        self._frames: int | None = None
        self.receive_bytes = host.config.buffer_bytes
        """Of buffer that each socket has got."""
        spraying, numbers = host.config.spraying, range(len(host.config.addresses))
        try:
            # Where source routes name paths, answers to all of them come to one socket.
            shared = [self._bound(0)] * len(numbers) if spraying.mode == "p4" else None
            self.sockets = shared or [self._bound(number) for number in numbers]
            """Of each path: number in the data plane, address and port."""
            if spraying.interface is not None:
                self._frames = self._frame_socket(spraying.interface)
            self.core.start()
        except BaseException:
            self.core.close()
            self._leave_port()
            raise
        host.loop.add_reader(self.core.event_descriptor, self._events)

    def _bound(self, number: int) -> tuple[int, str, int]:
        config, warn = self.host.config, self.host.warn
        address, port = config.path_socket(number)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as bound:
            try:
                header = config.segment_header(number)
                if header:
                    bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RTHDR, header)
                bound.bind((address, port))
            except OSError as error:
                raise MachineError(
                    f"cannot open the data's socket: {error.strerror}",
                    where=f"{address} port {port}",
                    expected="an address of this host and a UDP port that is free",
                ) from None
            place, features = self.core.add_socket(bound)
            if not features & lib.MLT_SEGMENTATION:
                warn("this kernel cuts no UDP bursts (UDP_SEGMENT): packets are sent one by one")
            self._set_buffers(bound)
            return place, address, bound.getsockname()[1]

    def _set_buffers(self, bound: socket.socket) -> None:
        receiving, sending = set_buffers(bound, self.host.config.buffer_bytes)
        self.receive_bytes = min(receiving.granted_bytes, self.receive_bytes)
        for buffer in (receiving, sending):
            if buffer.granted_bytes < buffer.wanted_bytes:
                self.host.warn(f"{buffer.setting}: {buffer.what}; {buffer.hint}")

    def _frame_socket(self, interface: str) -> int:
        try:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
                raw.bind((interface, 0))
                self._set_buffers(raw)
                return self.core.add_socket(raw)[0]
        except OSError as error:
            raise MachineError(
                f"cannot send frames with source routes: {error.strerror}",
                where=f"interface {interface}",
                expected="an interface of this host, and CAP_NET_RAW",
            ) from None

    def path(self, peer: str, number: int, remote: str, remote_port: int) -> Fields:
        """Fields of a `struct mlt_path` to a peer's address; raises PeerRefusedError without a route."""
        place, address, port = self.sockets[number]
        spraying = self.host.config.spraying
        if self._frames is None:
            if not spraying.has_socket_per_path:
                # One socket for all: the kernel takes their packets in one call, and in their order.
                place = self.sockets[0][0]
            return path_fields(remote, remote_port, socket=place)
        routes = spraying.routes.get(peer)
        if not routes:
            raise PeerRefusedError("no source route leads to it", peer=peer)
        route = routes[number % len(routes)]
        header = _frame_header(spraying, route, (address, port), (remote, remote_port))
        return path_fields(remote, remote_port, socket=self._frames, frame=header)

    # Events

    def _events(self) -> None:
        while (event := self.core.next_event()) is not None:
            if event.kind == lib.MLT_EVENT_DONE:
                self.done(event.transfer)
            elif event.kind == lib.MLT_EVENT_PORT:
                self._rate_found(event.value)
            elif event.flow in self.flows:
                self.flows[event.flow].heard(event)

    def _rate_found(self, found_bps: int) -> None:
        """Packets come at another rate than the port is said to have."""
        config = self.host.config
        told = config.line_rate_bps or 0
        if told == LOOPBACK_RATE_BPS and ip_address(config.addresses[0]).is_loopback:
            return  # no file says it, and memory has no rate
        slow = " (or those who send are slower)" if found_bps < told else ""
        what = f"packets come at {format_bps(found_bps)}{slow}, the file says {format_bps(told)}"
        self.host.warn(f"line_rate: {what}")

    def done(self, transfer: int) -> None:
        """Call the callback that was registered for the end of this transfer, if any."""
        callback = self.callbacks.pop(transfer, None)
        if callback is not None:
            callback()

    def posted(self) -> None:
        """Start the periodic update of path weights and port shares, which runs while transfers are open."""
        if self._seat is not None and not self._has_posted:
            self._has_posted = True
            self.host.loop.call_soon_threadsafe(self._look)
        has_choice = len(self.host.config.addresses) > 1 and self.host.config.spraying.policy.is_adaptive
        if has_choice and not self._is_weighing:
            self._is_weighing = True
            self.host.loop.call_soon_threadsafe(self._weigh)

    def _look(self) -> None:
        if self._quiet_ticks is None:
            self._share()

    def _share(self) -> None:
        """Tell other agents of this port what this one can use, and take its share of it."""
        if self._seat is None:
            return
        self._has_posted = False
        now_ns = time.monotonic_ns()
        wish = self._demand.wish(self.core.port(), now_ns)
        try:
            share = self._seat.share(wish, now_ns)
        except (OSError, MachineError) as error:
            self.host.warn(f"port_share: {error}; from now on this agent takes what it gets of the port")
            share = 1.0
            self._leave_port()
        if share != self._demand.share:
            self._demand.share = share
            self.core.set_share(share)
        # what has just been posted may not be in the port's count yet
        self._quiet_ticks = 0 if wish else (self._quiet_ticks or 0) + 1
        if self._quiet_ticks > QUIET_TICKS:
            self._quiet_ticks = None
        else:
            self.host.loop.call_later(TICK_SECONDS, self._share)

    def _leave_port(self) -> None:
        if self._seat is not None:
            self._seat.close()
            self._seat = None

    def _weigh(self) -> None:
        self._is_weighing = sum(flow.weigh() for flow in list(self.flows.values())) > 0
        if self._is_weighing:
            self.host.loop.call_later(WEIGH_SECONDS, self._weigh)

    def forget(self, token: int) -> None:
        """Close the flow with this token."""
        self.flows.pop(token, None)
        with suppress(DataPlaneError):  # it is over already
            self.core.close_flow(token)

    def counters(self) -> dict[str, int]:
        """The data plane's `struct mlt_counters`, by field name."""
        counters = self.core.counters()
        return {name: int(getattr(counters, name)) for name in dir(counters)}

    def close(self) -> None:
        """Release the data plane by one transport; the last ends its thread, but results stay readable."""
        self.users -= 1
        if self.users:
            return
        _planes.pop(self.host, None)
        self.host.loop.remove_reader(self.core.event_descriptor)
        self._leave_port()
        self.core.stop()
        self._events()
        for transfer in list(self.callbacks):  # whose event found no room
            self.done(transfer)


def way_out(remote: str, interface: str | None) -> tuple[str, int]:
    """Interface, unless it is given, by which packets to an address leave, and its MTU (rtnetlink(7)).

    Without a route the name is empty and the MTU 0.
    """
    family = socket.AF_INET6 if ":" in remote else socket.AF_INET
    address = socket.inet_pton(family, remote)
    with suppress(OSError):
        if interface is None:
            route = struct.pack("=BBBBBBBBI", family, 8 * len(address), 0, 0, 0, 0, 0, 0, 0)
            route += struct.pack("=HH", 4 + len(address), _RTA_DST) + address
            with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE) as asking:
                asking.settimeout(1)
                asking.send(struct.pack("=IHHII", 16 + len(route), _RTM_GETROUTE, 1, 1, 0) + route)
                answer = asking.recv(1 << 16)
            is_route = struct.unpack_from("=H", answer, 4)[0] == _RTM_NEWROUTE
            at = 16 + 12  # behind struct nlmsghdr and struct rtmsg
            while is_route and at + 8 <= len(answer) and interface is None:
                size, kind, index = struct.unpack_from("=HHI", answer, at)
                if kind == _RTA_OIF:
                    interface = socket.if_indextoname(index)
                at += max(4, (size + 3) & ~3)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            found = fcntl.ioctl(asking, _SIOCGIFMTU, struct.pack("16s16x", (interface or "").encode()))
        return interface or "", struct.unpack_from("=16sI", found)[1]
    return interface or "", 0


def _frame_header(
    spraying: Spraying, ports: Sequence[int], source: tuple[str, int], destination: tuple[str, int]
) -> bytes:
    """All of a frame before its UDP payload, for packets that carry their route (docs/wire-format.md).

    `ports` are the switches' egress ports in order; source and destination are IPv4 address and UDP port. The
    data plane fills in what differs from packet to packet: lengths, DSCP/ECN and the checksum of IPv4.
    Raises MachineError where the interface has no address.
    """
    interface, gateway = spraying.interface or "", spraying.gateway or ""
    try:
        # In sysfs a thread may see the interfaces of another network namespace.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            answer = fcntl.ioctl(asking, _SIOCGIFHWADDR, struct.pack("256s", interface.encode()))
    except OSError:
        raise MachineError("has no MAC address", where=f"interface {interface}") from None
    # Version and length, DSCP/ECN, total length, identification, don't fragment, time to live, UDP, checksum.
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 0, 0, 0x4000, 64, socket.IPPROTO_UDP, 0)
    addresses = IPv4Address(source[0]).packed + IPv4Address(destination[0]).packed
    udp = struct.pack(">HHHH", source[1], destination[1], 0, 0)
    ethernet = bytes.fromhex(gateway.replace(":", "")) + answer[18:24]
    route = ETHERTYPE_SOURCE_ROUTE.to_bytes(2, "big") + SourceRoute(tuple(ports), ETHERTYPE_IPV4).encode()
    return ethernet + route + ip + addresses + udp
