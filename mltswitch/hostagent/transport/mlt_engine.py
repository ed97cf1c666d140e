"""The data plane of one agent: its sockets, what flows need to agree on, and its events.

It works in a thread of its own; posts and results are in mlt_flow.py.
"""

import errno
import fcntl
import secrets
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, ip_address
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mltswitch.errors import MachineError
from mltswitch.hostagent.dataplane.binding import (
    DataPlane,
    DataPlaneError,
    Feature,
    Fields,
    RateOptions,
    lib,
    path_fields,
)
from mltswitch.hostagent.errors import (
    AgentError,
    PeerBusyError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
)
from mltswitch.hostagent.fields import Spraying
from mltswitch.hostagent.protocol.frames import first_problem, text
from mltswitch.hostagent.session import guarded
from mltswitch.hostagent.spraying.shares import Policy
from mltswitch.hostagent.telemetry.events import PacketsRefused, PathChanged
from mltswitch.hostagent.transport.description import TransportHost
from mltswitch.hostagent.transport.mlt import NAME, MltSettings
from mltswitch.hostagent.transport.mlt_flow import CONTROL_LAWS, ECT, MltConnection, path_state
from mltswitch.wire import (
    AGENT_HEADER_BYTES,
    AUTHENTICATION_TAG_BYTES,
    ETHERTYPE_IPV4,
    ETHERTYPE_SOURCE_ROUTE,
    SourceRoute,
)

WEIGH_SECONDS: Final = 0.1
"""Between two looks at the paths, while something is on its way."""
MOST_WINDOW_BYTES: Final = 1 << 30
KEY_BYTES: Final = 16
SALT_BYTES: Final = 4
_SIOCGIFHWADDR: Final = 0x8927
_ENDS: Final[dict[int, tuple[type[AgentError], str]]] = {
    lib.MLT_EVENT_SILENT: (PeerUnreachableError, "has been silent for too long"),
    lib.MLT_EVENT_PROTOCOL: (ProtocolViolationError, "breaks the protocol of the data plane"),
}
"""Events that end a connection."""


class _PathOffer(BaseModel):
    address: str
    port: Annotated[int, Field(gt=0, lt=1 << 16)]


class _Offer(BaseModel):
    """What the peer needs in order to send to us."""

    model_config = ConfigDict(extra="ignore")

    token: Annotated[int, Field(ge=0, lt=1 << 64)]
    paths: Annotated[list[_PathOffer], Field(min_length=1, max_length=64)]
    datagram_bytes: Annotated[int, Field(ge=256, le=65_000)]
    window_bytes: Annotated[int, Field(ge=4096, le=1 << 31)]
    authenticate: bool
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$", repr=False)]
    """With which the peer tags what it sends to us."""
    salt: Annotated[str, Field(pattern=r"^[0-9a-f]{8}$", repr=False)]


class MltEngine:
    """The data plane of one agent."""

    def __init__(self, host: TransportHost) -> None:
        self.host: Final = host
        self.plane: Final = DataPlane()
        settings = host.config.section(NAME)
        assert isinstance(settings, MltSettings)  # noqa: S101  (it is our own section)
        self.settings: Final = settings
        self.callbacks: Final[dict[int, Callable[[], object]]] = {}
        """By transfer: called once it is done."""
        self._by_token: dict[int, MltConnection] = {}
        self._is_weighing = False
        self._frames: int | None = None
        self._receive_bytes = 1 << 30
        """Of the least of the sockets' buffers, as the kernel counts them: half of it is data."""
        spraying, numbers = host.config.spraying, range(len(host.config.addresses))
        try:
            # Where source routes name paths, answers to all of them come to one socket.
            shared = [self._bound(0)] * len(numbers) if spraying.mode == "p4" else None
            self._sockets = shared or [self._bound(number) for number in numbers]
            """Of each path: number in the data plane, address and port."""
            if spraying.interface is not None:
                self._frames = self._frame_socket(spraying.interface)
            self.plane.start()
        except BaseException:
            self.plane.close()
            raise
        host.loop.add_reader(self.plane.event_descriptor, self._events)

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
            place, features = self.plane.add_socket(bound)
            if not features & Feature.SEGMENTATION:
                warn("this kernel cuts no UDP bursts (UDP_SEGMENT): packets are sent one by one")
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                bound.setsockopt(socket.SOL_SOCKET, option, config.buffer_bytes)
                granted = bound.getsockopt(socket.SOL_SOCKET, option)
                if granted < config.buffer_bytes:
                    warn(
                        f"the kernel grants data sockets less than {config.buffer_bytes} bytes of buffer:"
                        " raise net.core.rmem_max and net.core.wmem_max"
                    )
            self._receive_bytes = min(granted, self._receive_bytes)
            return place, address, bound.getsockname()[1]

    def _frame_socket(self, interface: str) -> int:
        try:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as raw:
                raw.bind((interface, 0))
                return self.plane.add_socket(raw)[0]
        except OSError as error:
            raise MachineError(
                f"cannot send frames with source routes: {error.strerror}",
                where=f"interface {interface}",
                expected="an interface of this host, and CAP_NET_RAW",
            ) from None

    # The other end

    def offer(self, peer: str, channel: str) -> dict[str, Any]:  # noqa: ARG002  (every flow is new)
        """A token of its own, and where data may come."""
        config = self.host.config
        try:
            token = self.plane.reserve()
        except DataPlaneError:
            raise PeerBusyError("no flow is free for one more channel", peer=peer) from None
        return _Offer(
            token=token,
            paths=[_PathOffer(address=address, port=port) for _, address, port in self._sockets],
            datagram_bytes=config.datagram_bytes,
            window_bytes=max(65_536, self._receive_bytes // 4),
            authenticate=bool(config.authenticate),
            key=secrets.token_hex(KEY_BYTES),
            salt=secrets.token_hex(SALT_BYTES),
        ).model_dump()

    def withdraw(self, ours: dict[str, Any]) -> None:
        """Its token is free again."""
        self.forget(ours["token"])

    def accept(self, peer: str, channel: str, ours: dict[str, Any], theirs: dict[str, Any]) -> MltConnection:
        """Open the flow."""
        mine = _Offer.model_validate(ours)
        try:
            offer = _Offer.model_validate(theirs)
            versions = {ip_address(path.address).version for path in offer.paths}
        except ValueError as error:  # ValidationError is one, too
            raise PeerRefusedError(_malformed(channel, error), peer=peer) from None
        if versions != {ip_address(mine.paths[0].address).version}:
            raise PeerRefusedError("its data has addresses of another version of IP", peer=peer)
        config = self.host.config
        datagram_bytes = min(mine.datagram_bytes, offer.datagram_bytes)
        window_bytes = min(offer.window_bytes, MOST_WINDOW_BYTES)
        options: Fields = {
            "peer_token": offer.token,
            "send_datagram_bytes": datagram_bytes,
            "receive_datagram_bytes": datagram_bytes,
            "silence_ns": round(self.settings.silence_seconds * 1e9),
            "ack_packets": self.settings.acknowledgement_packets,
            "ack_delay_ns": config.acknowledgement_delay_ns,
            "control_tos": config.control_dscp << 2 | ECT,
            "spray_random": config.spraying.policy is Policy.RANDOM,
            "rate": self.rate_options(window_bytes),
        }
        body_bytes = datagram_bytes - AGENT_HEADER_BYTES
        if mine.authenticate or offer.authenticate:
            body_bytes -= AUTHENTICATION_TAG_BYTES
            for way, end in (("send", offer), ("receive", mine)):
                options[f"{way}_key"] = bytes.fromhex(end.key)
                options[f"{way}_salt"] = bytes.fromhex(end.salt)
        # As many paths as ours, or as its source routes are; answers go by these, too.
        most = max(len(offer.paths), len(config.spraying.routes.get(peer, ())))
        ends = [offer.paths[number % len(offer.paths)] for number in range(min(len(self._sockets), most))]
        paths = [self._path(peer, number, there) for number, there in enumerate(ends)]
        try:
            self.plane.open(mine.token, options, paths)
        except (OSError, DataPlaneError) as error:
            raise PeerRefusedError(_malformed(channel, error), peer=peer) from None
        remotes = [there.address for there in ends]
        connection = MltConnection(self, peer, channel, mine.token, remotes, body_bytes, window_bytes)
        self._by_token[mine.token] = connection
        return connection

    def rate_options(self, window_bytes: int) -> RateOptions:
        """Of flows of whose bytes so many may be on the way."""
        return {
            **self.host.config.rate_options(window_bytes),
            "kind": CONTROL_LAWS[self.settings.rate_control],
        }

    def _path(self, peer: str, number: int, there: _PathOffer) -> Fields:
        place, address, port = self._sockets[number]
        spraying = self.host.config.spraying
        if self._frames is None:
            if not spraying.has_socket_per_path:
                # One socket for all: the kernel takes their packets in one call, and in their order.
                place = self._sockets[0][0]
            return path_fields(there.address, there.port, socket=place)
        routes = spraying.routes.get(peer)
        if not routes:
            raise PeerRefusedError("no source route leads to it", peer=peer)
        route = routes[number % len(routes)]
        header = _frame_header(spraying, route, (address, port), (there.address, there.port))
        return path_fields(there.address, there.port, socket=self._frames, frame=header)

    # Events

    def _events(self) -> None:
        while (event := self.plane.next_event()) is not None:
            connection = self._by_token.get(event.flow)
            if event.kind == lib.MLT_EVENT_DONE:
                self.done(event.transfer)
            elif connection is not None:
                self._event(event, connection)

    def _event(self, event: Any, connection: MltConnection) -> None:
        host, peer, channel = self.host, connection.peer, connection.channel
        if event.kind == lib.MLT_EVENT_PATH:
            state = path_state(event.value)
            host.tell(PathChanged(peer=peer, channel=channel, path=event.path, state=state))
        elif event.kind == lib.MLT_EVENT_USER:
            host.message_arrived(peer, channel)
        elif event.kind == lib.MLT_EVENT_SEND_ERROR:
            error = errno.errorcode.get(event.value, str(event.value))
            host.tell(PacketsRefused(peer=peer, channel=channel, path=event.path, error=error))
            connection.refused[event.path] = error
        elif event.kind == lib.MLT_EVENT_SAMPLE:
            guarded(partial(connection.sampled, event.sample), "a rate controller")
        elif event.kind in _ENDS:
            kind, what = _ENDS[event.kind]
            host.connection_failed(peer, kind(what, peer=peer))

    def done(self, transfer: int) -> None:
        """Whoever asked to be told of it, is."""
        callback = self.callbacks.pop(transfer, None)
        if callback is not None:
            callback()

    def posted(self) -> None:
        """Weigh paths while something is on its way."""
        if self.host.config.spraying.policy.is_adaptive and not self._is_weighing:
            self._is_weighing = True
            self.host.loop.call_soon_threadsafe(self._weigh)

    def _weigh(self) -> None:
        is_busy = False
        for connection in list(self._by_token.values()):
            is_busy |= connection.weigh()
        self._is_weighing = is_busy
        if is_busy:
            self.host.loop.call_later(WEIGH_SECONDS, self._weigh)

    def forget(self, token: int) -> None:
        """A connection is closed."""
        self._by_token.pop(token, None)
        with suppress(DataPlaneError):  # it is over already
            self.plane.close_flow(token)

    def counters(self) -> dict[str, int]:
        """See TransportEngine: `struct mlt_counters`."""
        counters = self.plane.counters()
        return {name: int(getattr(counters, name)) for name in dir(counters)}

    def close(self) -> None:
        """The data plane's thread ends; transfers that somebody still holds can be asked how they ended."""
        self.host.loop.remove_reader(self.plane.event_descriptor)
        self.plane.stop()
        self._events()
        for transfer in list(self.callbacks):  # whose event found no room
            self.done(transfer)


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


def _malformed(channel: str, error: Exception) -> str:
    """Of a peer's offer: what is wrong, but not what it says, which may be a key."""
    problem = first_problem(error) if isinstance(error, ValidationError) else str(error)
    return text(f"its offer of channel {channel} is malformed: {problem}")
