"""The transport `mlt`: bounded loss over UDP, sprayed over all paths (MLT, sections 4 and 5).

The compiled data plane does the work in a thread of its own. This file opens its sockets, agrees with the
peer on what a flow needs, hands posts over, and turns its results and events into the agent's.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mltswitch.errors import MachineError
from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
    TooManyTransfersError,
    TransferMismatchError,
)
from mltswitch.hostagent.spraying.frames import frame_header
from mltswitch.hostagent.spraying.shares import Policy, path_weights
from mltswitch.hostagent.tagging.policies import Compiled
from mltswitch.hostagent.telemetry.events import PacketsRefused, PathChanged
from mltswitch.hostagent.transport.description import (
    AtDeadline,
    ConnectionSnapshot,
    Direction,
    Moment,
    Outcome,
    PathSnapshot,
    Progress,
    Receive,
    Send,
    StopRule,
    TransferStatistics,
    TransportHost,
)

if TYPE_CHECKING:
    from mltswitch.hostagent.dataplane import binding

ECT: Final = 2
"""ECT(0) in the DSCP/ECN byte: ECN-capable, which is what important means."""
LONGEST_WAIT_NS: Final = 200_000_000
"""In C, between two looks at whether the user has interrupted."""
WEIGH_SECONDS: Final = 0.1
"""Between two looks at the paths, while something is on its way."""
UDP_BYTES: Final = 8
MAC_BYTES: Final = 16
MOST_WINDOW_BYTES: Final = 1 << 30
KEY_BYTES: Final = 16
SALT_BYTES: Final = 4


class MltSettings(BaseModel):
    """The section `mlt` of an agent's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    silence_seconds: float = Field(default=10.0, gt=0, le=3600, allow_inf_nan=False)
    """A peer of whom nothing is heard so long, while something is open, is gone."""
    acknowledgement_packets: int = Field(default=16, ge=1, le=1024, strict=True)
    """Of one path, between acknowledgements; a fifth of a millisecond at most."""


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


class MltTransport:
    """The description."""

    name = "mlt"
    is_datagram = True
    settings = MltSettings

    def open(self, host: TransportHost) -> "MltEngine":
        """Raises MachineError where the data plane was not built, or an address is not this host's."""
        return MltEngine(host)


TRANSPORT: Final = MltTransport()


class MltEngine:
    """The data plane of one agent."""

    def __init__(self, host: TransportHost) -> None:
        from mltswitch.hostagent.dataplane import binding

        self.host: Final = host
        self.plane: Final = binding.DataPlane()
        self.binding: Final = binding
        settings = host.config.section(TRANSPORT.name)
        assert isinstance(settings, MltSettings)  # noqa: S101  (it is our own section)
        self.settings: Final = settings
        self.callbacks: Final[dict[int, Callable[[], object]]] = {}
        """By transfer: called once it is done."""
        self._by_token: dict[int, MltConnection] = {}
        self._is_weighing = False
        self._frames: int | None = None
        self._receive_bytes = 1 << 30
        """Of the least of the sockets' buffers, as the kernel counts them: half of it is data."""
        config = host.config
        try:
            self._sockets = self._open_sockets()
            if config.spraying.interface is not None:
                self._frames = self._frame_socket(config.spraying.interface)
            self.plane.start()
        except BaseException:
            self.plane.close()
            raise
        host.loop.add_reader(self.plane.event_descriptor, self._events)

    def _open_sockets(self) -> list[tuple[int, str, int]]:
        """Of each path. Where source routes name paths, answers to all of them come to one."""
        numbers = range(self.host.config.path_count)
        if self.host.config.spraying.mode == "p4":
            return [self._bound(0)] * len(numbers)
        return [self._bound(number) for number in numbers]

    def _bound(self, number: int) -> tuple[int, str, int]:
        """Number in the data plane, address and port of a path's socket."""
        config = self.host.config
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
            self._set_buffers(bound)
            granted = bound.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
            self._receive_bytes = min(granted, self._receive_bytes)
            if not features & self.binding.Feature.SEGMENTATION:
                self.host.warn("this kernel cuts no UDP bursts (UDP_SEGMENT): packets are sent one by one")
            return place, address, bound.getsockname()[1]

    def _set_buffers(self, bound: socket.socket) -> None:
        wanted = self.host.config.buffer_bytes
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            bound.setsockopt(socket.SOL_SOCKET, option, wanted)
            if bound.getsockopt(socket.SOL_SOCKET, option) < wanted:
                self.host.warn(
                    f"the kernel grants data sockets less than {wanted} bytes of buffer: raise"
                    " net.core.rmem_max and net.core.wmem_max"
                )

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
        return _Offer(
            token=self.plane.reserve(),
            paths=[_PathOffer(address=address, port=port) for _, address, port in self._sockets],
            datagram_bytes=config.datagram_bytes,
            window_bytes=max(65_536, self._receive_bytes // 4),
            authenticate=config.is_authenticated,
            key=secrets.token_hex(KEY_BYTES),
            salt=secrets.token_hex(SALT_BYTES),
        ).model_dump()

    def withdraw(self, ours: dict[str, Any]) -> None:
        """Its token is free again."""
        with suppress(self.binding.DataPlaneError):  # it is over already
            self.plane.close_flow(ours["token"])

    def accept(
        self, peer: str, channel: str, ours: dict[str, Any], theirs: dict[str, Any]
    ) -> "MltConnection":
        """Open the flow."""
        mine = _Offer.model_validate(ours)
        try:
            offer = _Offer.model_validate(theirs)
            versions = {ip_address(path.address).version for path in offer.paths}
        except (ValidationError, ValueError) as error:
            first = str(error).splitlines()[0]
            raise PeerRefusedError(
                f"its offer of channel {channel} is malformed: {first}", peer=peer
            ) from None
        if versions != {ip_address(mine.paths[0].address).version}:
            raise PeerRefusedError("its data has addresses of another version of IP", peer=peer)
        config, binding = self.host.config, self.binding
        keys: dict[str, bytes] = {}
        if mine.authenticate or offer.authenticate:
            keys = {
                "send_key": bytes.fromhex(offer.key),
                "send_salt": bytes.fromhex(offer.salt),
                "receive_key": bytes.fromhex(mine.key),
                "receive_salt": bytes.fromhex(mine.salt),
            }
        datagram_bytes = min(mine.datagram_bytes, offer.datagram_bytes)
        options = binding.FlowOptions(
            peer_token=offer.token,
            send_datagram_bytes=datagram_bytes,
            receive_datagram_bytes=datagram_bytes,
            silence_ns=round(self.settings.silence_seconds * 1e9),
            ack_packets=self.settings.acknowledgement_packets,
            control_tos=config.control_dscp << 2 | ECT,
            spray_random=config.spraying.policy is Policy.RANDOM,
            rate=config.rate_options(min(offer.window_bytes, MOST_WINDOW_BYTES)),
            **keys,
        )
        paths = [self._path(peer, number, offer.paths) for number in range(self._count(peer, offer))]
        self.plane.open(mine.token, options, paths)
        body_bytes = datagram_bytes - binding.HEADER_BYTES - (MAC_BYTES if keys else 0)
        connection = MltConnection(self, peer, channel, mine.token, len(paths), body_bytes)
        self._by_token[mine.token] = connection
        return connection

    def _count(self, peer: str, offer: _Offer) -> int:
        """Paths to this peer: ours, or as many as its source routes are; answers go by these, too."""
        routes = self.host.config.spraying.routes.get(peer, ())
        return min(len(self._sockets), max(len(offer.paths), len(routes)))

    def _path(self, peer: str, number: int, theirs: list[_PathOffer]) -> "binding.PathOptions":
        there = theirs[number % len(theirs)]
        place, address, port = self._sockets[number]
        spraying = self.host.config.spraying
        if self._frames is None:
            return self.binding.PathOptions(address=there.address, port=there.port, socket=place)
        routes = spraying.routes.get(peer)
        if not routes:
            raise PeerRefusedError("no source route leads to it", peer=peer)
        header = frame_header(
            spraying.interface or "",
            spraying.gateway or "",
            routes[number % len(routes)],
            source=(address, port),
            destination=(there.address, there.port),
        )
        return self.binding.PathOptions(
            address=there.address, port=there.port, socket=self._frames, frame=header
        )

    # Events

    def _events(self) -> None:
        kinds = self.binding.EventKind
        while (event := self.plane.next_event()) is not None:
            if event.kind == kinds.DONE:
                self.done(event.transfer)
                continue
            connection = self._by_token.get(event.flow)
            if connection is None:
                continue
            peer, channel = connection.peer, connection.channel
            if event.kind == kinds.PATH:
                state = self.binding.PathState(event.value).name.lower()
                self.host.tell(PathChanged(peer=peer, channel=channel, path=event.path, state=state))
            elif event.kind == kinds.USER:
                self.host.message_arrived(peer, channel)
            elif event.kind == kinds.SEND_ERROR:
                error = _errno_name(event.value)
                self.host.tell(PacketsRefused(peer=peer, channel=channel, path=event.path, error=error))
                connection.refused[event.path] = error
            elif event.kind == kinds.SILENT:
                self.host.connection_failed(
                    peer, PeerUnreachableError("has been silent for too long", peer=peer)
                )
            elif event.kind == kinds.PROTOCOL:
                self.host.connection_failed(
                    peer, ProtocolViolationError("breaks the protocol of the data plane", peer=peer)
                )

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
        with suppress(self.binding.DataPlaneError):
            self.plane.close_flow(token)

    def counters(self) -> dict[str, int]:
        """See TransportEngine: `struct mlt_counters`."""
        counters = self.plane.counters()
        return {name: int(getattr(counters, name)) for name in dir(counters)}

    def close(self) -> None:
        """The data plane's thread ends; transfers that somebody still holds can be asked how they ended."""
        self.host.loop.remove_reader(self.plane.event_descriptor)
        self._events()
        self.plane.stop()


class MltConnection:
    """One flow."""

    def __init__(
        self, engine: MltEngine, peer: str, channel: str, token: int, paths: int, body_bytes: int
    ) -> None:
        self.engine: Final = engine
        self.peer: Final = peer
        self.channel: Final = channel
        self.paths: Final = paths
        self.refused: Final[dict[int, str]] = {}
        """By path: why the kernel would not send."""
        self.closed_by: AgentError | None = None
        self._weighed: tuple[PathSnapshot, ...] = ()
        self._token = token
        self._body_bytes = body_bytes
        """Of a datagram, elements alone."""

    def post_sends(self, requests: Sequence[Send]) -> list["MltTicket"]:
        """See Connection."""
        binding = self.engine.binding
        return self._posted(
            self.engine.plane.post_sends, requests, [self._send(binding, r) for r in requests]
        )

    def post_receives(self, requests: Sequence[Receive]) -> list["MltTicket"]:
        """See Connection."""
        binding = self.engine.binding
        return self._posted(
            self.engine.plane.post_receives,
            requests,
            [self._receive(binding, request) for request in requests],
        )

    def _send(self, binding: Any, request: Send) -> Any:
        memory, policy, important = request.memory, request.importance, None
        if isinstance(policy, Compiled):
            kind = _COMPILED[policy.name]
        else:
            kind = binding.Importance.BITMAP
            flags = policy.important(memory, self._body_bytes // memory.element_type.size_bytes)
            important = np.packbits(flags, bitorder="little").tobytes()
        return binding.Send(
            flow=self._token,
            elements=memory.data,
            element_count=memory.element_count,
            element_type=int(memory.element_type),
            tensor=request.tensor,
            round=request.round_number,
            layer=request.layer,
            priority=request.layer,
            burst_packets=request.burst_packets,
            importance=kind,
            important=important,
            tos_important=request.dscp << 2 | ECT,
            tos_unimportant=request.dscp << 2,
            deadline_ns=request.deadline_ns,
            moment=_MOMENTS[request.deadline_from],
        )

    def _receive(self, binding: Any, request: Receive) -> Any:
        memory = request.memory
        return binding.Receive(
            flow=self._token,
            elements=memory.data,
            element_count=memory.element_count,
            element_type=int(memory.element_type),
            tensor=request.tensor,
            round=request.round_number,
            policy=binding.Policy(
                loss_bound=request.loss_bound,
                important_bound=request.important_loss_bound,
                soft_ns=request.soft_ns,
                hard_ns=request.deadline_ns,
                moment=_MOMENTS[request.deadline_from],
                stop_rule=_STOPS[request.stop],
                at_hard_time=_AT_DEADLINE[request.at_deadline],
                keep_missing=request.keep_missing,
            ),
        )

    def _posted(
        self, post: Callable[[Any], list[int]], requests: Sequence[Send | Receive], entries: list[Any]
    ) -> list["MltTicket"]:
        statuses = self.engine.binding.Status
        try:
            numbers = post(entries)
        except self.engine.binding.DataPlaneError as error:
            first = requests[0]
            kind: type[AgentError] = CancelledError
            what = "cannot be posted: " + error.what
            if error.status is statuses.BUSY:
                what = "this tensor is on its way in this round already, or the peer has not yet ended it"
            elif error.status is statuses.FULL:
                kind, what = TooManyTransfersError, "more transfers are open than there may be"
            elif error.status in {statuses.UNKNOWN, statuses.DEAD}:
                closed = self.closed_by
                kind = PeerUnreachableError if closed is None else type(closed)
                what = "is not connected" if closed is None else closed.what
            raise kind(what, peer=self.peer, tensor=first.tensor, round_number=first.round_number) from None
        self.engine.posted()
        return [MltTicket(self, request, number) for request, number in zip(requests, numbers, strict=True)]

    def send_message(self, message: bytes) -> bool:
        """See Connection."""
        try:
            return self.engine.plane.send_message(self._token, message)
        except self.engine.binding.DataPlaneError:
            raise self.closed_by or PeerUnreachableError("is not connected", peer=self.peer) from None

    def take_message(self) -> bytes | None:
        """See Connection."""
        try:
            return self.engine.plane.take_message(self._token)
        except self.engine.binding.DataPlaneError:
            raise self.closed_by or PeerUnreachableError("is not connected", peer=self.peer) from None

    def set_rate(self, options: "binding.RateOptions") -> None:
        """Another cap, other thresholds, or a controller outside; raises AgentError."""
        self.engine.plane.set_rate(self._token, options)

    def set_weights(self, weights: Sequence[int]) -> None:
        """Shares of the paths; 0: not used."""
        self.engine.plane.set_weights(self._token, weights)

    def frame_received(self, body: dict[str, Any]) -> None:  # noqa: ARG002  (whatever it says)
        """The data plane has a control stream of its own: here nothing is ever said."""
        raise ProtocolViolationError("speaks of mlt on the control channel", peer=self.peer)

    def close(self, error: AgentError) -> None:
        """See Connection."""
        self.closed_by = error
        self.engine.forget(self._token)

    def weigh(self) -> bool:
        """Set the paths' shares; whether something is on its way."""
        snapshot = self.snapshot()
        shares = path_weights(self.engine.host.config.spraying.policy, snapshot.paths, self._weighed)
        self._weighed = snapshot.paths
        with suppress(self.engine.binding.DataPlaneError):  # closed meanwhile: it has no paths
            self.engine.plane.set_weights(self._token, shares)
        return snapshot.open_transfers > 0

    def snapshot(self) -> ConnectionSnapshot:
        """See Connection."""
        try:
            counts = self.engine.plane.flow_statistics(self._token)
        except self.engine.binding.DataPlaneError:
            return ConnectionSnapshot(transport=TRANSPORT.name)
        return ConnectionSnapshot(
            transport=TRANSPORT.name,
            rate_bps=counts.rate_bps,
            window_bytes=int(counts.window_bytes),
            in_flight_bytes=counts.in_flight_bytes,
            round_trip_seconds=_seconds(counts.rtt_ns),
            open_transfers=counts.open_transfers,
            forged_datagrams=counts.forged,
            stale_datagrams=counts.stale,
            refused_datagrams=counts.refused,
            paths=tuple(self._path_snapshot(number, counts.path[number]) for number in range(counts.paths)),
            received_by_tos={tos: count for tos, count in enumerate(counts.received_by_tos) if count},
        )

    def _path_snapshot(self, number: int, counts: Any) -> PathSnapshot:
        return PathSnapshot(
            path=number,
            state=self.engine.binding.PathState(counts.state).name.lower(),
            weight=counts.weight,
            sent_packets=counts.sent_packets,
            sent_bytes=counts.sent_bytes,
            acknowledged_packets=counts.acknowledged_packets,
            lost_packets=counts.lost_packets,
            marked_packets=counts.marked_packets,
            received_packets=counts.received_packets,
            received_marked=counts.received_marked,
            round_trip_seconds=_seconds(counts.rtt_ns),
            least_round_trip_seconds=_seconds(counts.least_rtt_ns),
        )


class MltTicket:
    """One transfer of the data plane."""

    __slots__ = ("_connection", "_number", "request")

    def __init__(self, connection: MltConnection, request: Send | Receive, number: int) -> None:
        self.request = request
        self._connection = connection
        self._number = number

    @property
    def _plane(self) -> "binding.DataPlane":
        return self._connection.engine.plane

    def wait(self, timeout_seconds: float | None) -> bool:
        """See Ticket: in C, and in slices, so that the user can interrupt."""
        until = None if timeout_seconds is None else time.monotonic_ns() + round(timeout_seconds * 1e9)
        while True:
            left = LONGEST_WAIT_NS if until is None else max(0, until - time.monotonic_ns())
            if self._plane.is_done(self._number, min(left, LONGEST_WAIT_NS)):
                return True
            if not left:
                return False

    def notify(self, callback: Callable[[], object]) -> None:
        """See Ticket."""
        engine = self._connection.engine
        engine.callbacks[self._number] = callback
        if self._plane.notify(self._number):
            with suppress(RuntimeError):  # the agent is closed
                engine.host.loop.call_soon_threadsafe(engine.done, self._number)

    def outcome(self) -> Outcome | None:
        """See Ticket."""
        binding = self._connection.engine.binding
        result = self._plane.result(self._number)
        if result.status == binding.Status.PENDING:
            return None
        bits = np.frombuffer(self._plane.arrived(result), np.uint8)
        arrived: NDArray[np.bool_] = np.unpackbits(bits, count=result.packets, bitorder="little").astype(bool)
        outcome = Outcome(
            error=self._error(binding.Status(result.status), result),
            statistics=self._statistics(result),
            arrived=arrived,
            elements_per_packet=result.elements_per_packet,
        )
        self._plane.release(self._number)
        return outcome

    def progress(self) -> Progress:
        """See Ticket."""
        result = self._plane.result(self._number)
        return Progress(
            packets=result.packets,
            arrived_packets=result.arrived_packets,
            important_packets=result.important_packets,
            arrived_important=result.arrived_important,
        )

    def finish(self) -> None:
        """See Ticket."""
        self._unless_over(lambda: self._plane.finish(self._number))

    def cancel(self, reason: str) -> None:
        """See Ticket."""
        self._unless_over(lambda: self._plane.cancel(self._number, reason))

    def retag(self, dscp: int) -> None:
        """See Ticket."""
        self._unless_over(lambda: self._plane.set_tos(self._number, dscp << 2 | ECT, dscp << 2))

    def _unless_over(self, call: Callable[[], object]) -> None:
        binding = self._connection.engine.binding
        try:
            call()
        except binding.DataPlaneError as error:
            if error.status not in {binding.Status.UNKNOWN, binding.Status.DEAD, binding.Status.BUSY}:
                raise

    def _statistics(self, result: Any) -> TransferStatistics:
        is_receive = isinstance(self.request, Receive)
        return TransferStatistics(
            size_bytes=len(self.request.memory.data),
            packets=result.packets,
            packets_sent=result.sent_packets,
            packets_resent=result.resent_packets,
            bytes_sent=result.sent_bytes,
            packets_received=result.arrived_packets,
            bytes_received=result.received_bytes,
            packets_duplicate=result.duplicate_packets if is_receive else None,
            packets_marked=result.marked_packets if is_receive else None,
            important_packets=result.important_packets,
            important_received=result.arrived_important,
            passes=result.passes,
            packets_by_path=tuple(result.by_path[0 : self._connection.paths]),
            posted_ns=result.posted_ns,
            ready_ns=result.ready_ns,
            first_ns=result.first_ns,
            last_ns=result.last_ns,
            ended_ns=result.ended_ns,
        )

    def _error(self, status: Any, result: Any) -> AgentError | None:
        statuses = self._connection.engine.binding.Status
        text = self._plane.text(result)
        kinds: dict[Any, tuple[type[AgentError], str]] = {
            statuses.DEADLINE: (DeadlineExceededError, self._what_was_there(result)),
            statuses.CANCELLED: (CancelledError, text or "cancelled"),
            statuses.PEER_CANCELLED: (CancelledError, f"the peer gave it up: {text or 'without a reason'}"),
            statuses.PEER_DEADLINE: (DeadlineExceededError, "the peer's time for it was up"),
            statuses.PEER_SILENT: (PeerUnreachableError, "has been silent for too long"),
            statuses.MISMATCH: (TransferMismatchError, text or "the ends name different types or sizes"),
            statuses.PROTOCOL: (ProtocolViolationError, text or "breaks the protocol of the data plane"),
        }
        if status == statuses.OK:
            return None
        closed = self._connection.closed_by
        kind, what = kinds.get(status, (CancelledError, text or "the connection was closed"))
        if status not in kinds and closed is not None:
            kind, what = type(closed), closed.what
        return kind(
            what,
            peer=self._connection.peer,
            tensor=self.request.tensor,
            round_number=self.request.round_number,
        )

    def _what_was_there(self, result: Any) -> str:
        """Of a deadline: how much had arrived, and whether any path answers."""
        direction = Direction.SEND if isinstance(self.request, Send) else Direction.RECEIVE
        if not result.ready_ns and not result.first_ns:
            state = "the peer has not posted its " + ("memory" if direction is Direction.SEND else "tensor")
        else:
            state = f"{result.arrived_packets} of {result.packets} packets had arrived"
        paths = self._connection.snapshot().paths
        used = sum(path.state == "used" for path in paths)
        answering = sum(path.round_trip_seconds is not None and path.state == "used" for path in paths)
        refused = self._connection.refused
        told = f"; the kernel refused to send: {', '.join(sorted(set(refused.values())))}" if refused else ""
        return f"not complete in time: {state}; {answering} of {used} used paths answer{told}"


_COMPILED: Final = {"all": 0, "none": 1, "magnitude": 2}
_MOMENTS: Final = {Moment.POST: 0, Moment.PEER_READY: 1, Moment.FIRST_BYTE: 2}
_STOPS: Final = {StopRule.PATIENT: 0, StopRule.PAPER: 1}
_AT_DEADLINE: Final = {AtDeadline.FAIL: 0, AtDeadline.TAKE: 1}


def _seconds(nanoseconds: int) -> float | None:
    return nanoseconds / 1e9 if nanoseconds else None


def _errno_name(number: int) -> str:
    import errno

    return errno.errorcode.get(number, os.strerror(number))
