"""All data connections of one agent: where they listen, whose they are, and what is done when one breaks."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.control.security import check_plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.control.tls import TlsIdentity
from mltswitch.hostagent.errors import AgentError, PeerUnreachableError, ProtocolViolationError
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.tcp.connection import TcpConnection
from mltswitch.hostagent.tcp.flows import IncomingFlow, OutgoingFlow, probe_congestion_control
from mltswitch.hostagent.tcp.settings import MAXIMUM_STREAMS
from mltswitch.hostagent.tcp.strangers import DataListeners, Stranger
from mltswitch.hostagent.transport.hello import LocalEnd, PathAddress, Secrets
from mltswitch.hostagent.transport.settings import Transport

LAST_WORDS_NS: Final = 500_000_000
"""A data connection may end before the control channel says why."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Peer:
    connection: TcpConnection
    flows: list[OutgoingFlow | IncomingFlow] = field(default_factory=list)
    error: AgentError | None = None
    """Of a flow that has ended; the connection follows at `error_due_ns`."""
    error_due_ns: int = 0


class TcpPort:
    """Driven by the engine: `wanted` before the selector waits, `step` afterwards."""

    def __init__(self, settings: AgentSettings, released: Callable[[int], None]) -> None:
        """Listens; `released` is told of each descriptor before it is closed.

        Raises UserInputError or MachineError.
        """
        self._settings = settings
        self._released = released
        self._peers: list[_Peer] = []
        probe_congestion_control(settings.tcp.congestion_control)
        self._listeners = DataListeners(
            settings.addresses, settings.data_port, settings.security, settings.control_dscp
        )

    @property
    def addresses(self) -> tuple[PathAddress, ...]:
        """Where peers send tensors to, one a path."""
        return tuple(
            PathAddress(path, address, self._listeners.port(address))
            for path, address in enumerate(self._settings.addresses)
        )

    def connection(self, secrets: Secrets, now_ns: int) -> TcpConnection:
        """A new one; data connections that name it are taken in as soon as its peer has said hello."""
        settings = self._settings
        local = LocalEnd(
            name=settings.name,
            data_addresses=self.addresses,
            window_bytes=settings.tcp.chunk_bytes,
            payload_bytes=settings.payload_bytes,
            authenticate=settings.authenticate,
            control_dscp=settings.control_dscp,
            transport=Transport.TCP,
            chunk_bytes=settings.tcp.chunk_bytes,
        )
        found = TcpConnection(settings.connection, local, secrets, now_ns)
        self._peers.append(_Peer(found))
        return found

    def greeted(self, connection: TcpConnection, now_ns: int) -> None:
        """The peer has said where to connect to; raises AgentError where that cannot be."""
        hello = connection.peer
        entry = self._of(connection)
        if hello is None or entry is None:
            return
        places = sorted(hello.data_addresses, key=lambda place: place.path)
        until_ns = now_ns + self._settings.connection.handshake_ns
        for number in range(self._settings.tcp.streams):
            place = places[number % len(places)]
            remote = Endpoint(place.address, place.port)
            try:
                check_plaintext(self._settings.security, remote)
                flow = OutgoingFlow(
                    connection,
                    remote,
                    self._source(place),
                    self._settings.security,
                    self._settings.tcp,
                    until_ns,
                )
            except (UserInputError, MachineError) as error:  # what the peer named, or this machine
                raise PeerUnreachableError(str(error), peer=hello.name) from None
            entry.flows.append(flow)

    def forget(self, connection: TcpConnection) -> None:
        """It has ended: so do its data connections."""
        entry = self._of(connection)
        if entry is None:
            return
        self._peers.remove(entry)
        for flow in entry.flows:
            self._close(flow)

    def wanted(self, now_ns: int) -> dict[int, int]:
        """Descriptor → events that the selector should wait for."""
        found = self._listeners.wanted(now_ns)
        for entry in self._peers:
            for flow in entry.flows:
                found[flow.fileno()] = flow.wanted
        return found

    def next_timer_ns(self, now_ns: int) -> int | None:
        """When to call `step` although nothing is ready; None: never."""
        times = [self._listeners.next_timer_ns(now_ns)]
        for entry in self._peers:
            times += [flow.due_ns for flow in entry.flows if isinstance(flow, OutgoingFlow)]
            if entry.error is not None:
                times.append(entry.error_due_ns)
        return min((time for time in times if time is not None), default=None)

    def step(self, ready: set[int], now: Callable[[], int]) -> bool:
        """Everything that can be done now; whether more can be done at once."""
        self._listeners.step(ready, self._released, now())
        for stranger in list(self._listeners.strangers):
            self._receive(stranger)
        has_more = False
        for entry in self._peers:
            for flow in list(entry.flows):
                has_more |= self._step(entry, flow, ready, now)
            if entry.error is not None and now() >= entry.error_due_ns:
                entry.connection.broken(entry.error, entry.error.what, now())
        return has_more

    def close(self) -> None:
        """All of it."""
        for entry in list(self._peers):
            self.forget(entry.connection)
        self._listeners.close()

    def _step(
        self, entry: _Peer, flow: OutgoingFlow | IncomingFlow, ready: set[int], now: Callable[[], int]
    ) -> bool:
        try:
            return flow.step(is_ready=flow.fileno() in ready, now=now)
        except AgentError as error:
            entry.flows.remove(flow)
            self._close(flow)
            if entry.error is None:
                entry.error = error
                error.__traceback__ = error.__context__ = None  # their frames hold memory of users
                is_certain = isinstance(error, ProtocolViolationError)
                entry.error_due_ns = now() + (0 if is_certain else LAST_WORDS_NS)
            return False

    def _receive(self, stranger: Stranger) -> None:
        """Whose is it? One whose peer has not said hello yet waits."""
        opening, pipe = stranger.opening, stranger.pipe
        if opening is None or pipe is None:
            return
        if stranger.named is None:
            named = [entry.connection for entry in self._peers if entry.connection.is_for_us(opening)]
            stranger.named = named[0] if named else None
        connection = stranger.named
        if connection is not None and connection.peer is None and not connection.is_over:
            return
        entry = None if connection is None else self._of(connection)
        if entry is None or not self._may_send(entry, opening, pipe.certified_peer):
            _log.debug("a data connection from %s is nobody's", stranger.remote)
            self._listeners.turn_out(stranger, self._released)
            return
        self._listeners.strangers.remove(stranger)
        entry.flows.append(IncomingFlow(entry.connection, pipe))

    def _may_send(self, entry: _Peer, opening: bytes, certified: str | None) -> bool:
        connection = entry.connection
        is_tls = isinstance(self._settings.security, TlsIdentity)
        if connection.is_over or not connection.is_genuine(opening):
            return False
        if sum(isinstance(flow, IncomingFlow) for flow in entry.flows) >= MAXIMUM_STREAMS:
            return False
        if certified is not None:
            return certified == connection.peer_name
        return not (connection.authenticates and is_tls)

    def _source(self, place: PathAddress) -> str | None:
        """Our own address on that path, so that answers come back on it."""
        addresses = self._settings.addresses
        source = addresses[place.path % len(addresses)]
        is_same_family = ip_address(source).version == ip_address(place.address).version
        return source if is_same_family else None

    def _of(self, connection: TcpConnection) -> _Peer | None:
        return next((entry for entry in self._peers if entry.connection is connection), None)

    def _close(self, flow: OutgoingFlow | IncomingFlow) -> None:
        self._released(flow.fileno())
        flow.close()
