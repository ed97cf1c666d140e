"""The one thread of an agent: sockets, channels and timers around the connections' state machines.

Everything that happens to a connection happens here; other threads leave a function to be called and wake
it.
"""

import logging
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from itertools import pairwise
from typing import Final

import numpy as np

from mltswitch.errors import MltswitchError
from mltswitch.hostagent.control.channel import ChannelSettings, ControlChannel
from mltswitch.hostagent.control.listener import ControlListener
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.errors import AgentError, CancelledError, PeerRefusedError, PeerUnreachableError
from mltswitch.hostagent.links import Link, new_secrets
from mltswitch.hostagent.network.features import kernel_features
from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.network.sender import BurstSender
from mltswitch.hostagent.network.sockets import (
    DataSocket,
    PathSocket,
    open_path_sockets,
    open_socket,
    set_segments,
)
from mltswitch.hostagent.settings import TRUE_SIZE_FACTOR, AgentSettings
from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.hostagent.transport.hello import LocalEnd, PathAddress, PeerHello
from mltswitch.hostagent.transport.interfaces import ConnectionLost, Event, PeerReady, TransferDone
from mltswitch.hostagent.transport.rate import Timely

NANOSECONDS: Final = 10**9
LONGEST_WAIT_SECONDS: Final = 1.0
RECEIVE_CALLS: Final = 4
"""Of one socket in a row; acknowledgements leave after each."""
RECEIVE_MESSAGES: Final = 64
NAP_PACKETS: Final = 64
"""Fewer at once are no stream that a rest would help."""
CLOSING_SECONDS: Final = 1.0
"""For our last words."""

_log = logging.getLogger(__name__)


class Engine:
    """Owns every socket; `happened` is told of events, in its thread, with the peer's name."""

    def __init__(self, settings: AgentSettings, happened: Callable[[str, Event], None]) -> None:
        """Opens the sockets; raises UserInputError or MachineError."""
        self._settings = settings
        self._happened = happened
        self._segmentation = kernel_features().segmentation
        self._sockets = _open_data_sockets(settings)
        self._receivers = [DatagramReceiver(entry.socket, RECEIVE_MESSAGES) for entry in self._sockets]
        self._channel_settings = ChannelSettings(dscp=settings.control_dscp)
        self._listener: ControlListener | None = None
        self._links: list[Link] = []
        self._by_name: dict[str, Link] = {}
        self._by_token: dict[int, Link] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._watched: dict[int, int] = {}
        self._is_busy = False
        """Whether more had arrived than one call took."""
        self._has_more = False
        """Whether a connection may send at once what it could not in its turn."""
        self._should_stop = False
        self._failure: AgentError | None = None
        if settings.listen is not None:
            self._listener = ControlListener(settings.listen, settings.security, self._channel_settings)
        self.unknown_datagrams = 0
        """With a token that is none of ours; they are not answered."""
        self._thread = threading.Thread(target=self._run, name=f"agent {settings.name}", daemon=True)
        self._thread.start()

    @property
    def warnings(self) -> tuple[str, ...]:
        """About buffers that are too small."""
        return tuple(dict.fromkeys(text for entry in self._sockets for text in entry.warnings))

    @property
    def listening_at(self) -> Endpoint | None:
        """Of the control channel."""
        return self._listener.local if self._listener else None

    def call(self, action: Callable[[], None]) -> None:
        """Have it called in the engine's thread, soon; raises AgentError where the engine has ended."""
        if self._failure is not None or self._should_stop:
            raise self._failure or CancelledError("the agent is closed")
        self._calls.append(action)
        self._wake_up()

    def connect(self, peer: str, remote: Endpoint) -> None:
        """Begin to connect; in the engine's thread. Raises UserInputError or PeerUnreachableError."""
        if peer in self._by_name:
            raise PeerRefusedError("is connected already", peer=peer)
        now_ns = time.monotonic_ns()
        same_family = [
            address
            for address in self._settings.addresses
            if ip_address(address).version == remote.ip.version
        ]
        channel = ControlChannel.connect(
            remote,
            peer,
            self._settings.security,
            self._channel_settings,
            now_ns,
            source=same_family[0] if same_family else None,
        )
        link = Link(channel, peer)
        self._links.append(link)
        self._start(link, now_ns)

    def connection(self, peer: str) -> Connection:
        """Of a peer that has said hello; raises PeerUnreachableError."""
        link = self._by_name.get(peer)
        if link is None or link.connection is None:
            raise PeerUnreachableError("is not connected", peer=peer)
        return link.connection

    def close(self, reason: str) -> None:
        """Say goodbye to all peers, end the thread, close the sockets; may be called again."""
        if self._thread.is_alive():
            self._calls.append(lambda: self._stop(reason))
            self._wake_up()
            self._thread.join()
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1

    # The loop

    def _run(self) -> None:
        try:
            while not self._should_stop:
                self._turn()
        except Exception:  # noqa: BLE001  (whatever it is, callers must not wait: they are told, and the log)
            _log.exception("the agent's engine has failed")
            self._failure = CancelledError("the agent's engine has failed; its log says how")
        finally:
            self._shut_down()

    def _turn(self) -> None:
        wait_seconds = self._wait_seconds(time.monotonic_ns())
        self._has_more = False
        self._watch()
        ready = self._selector.select(wait_seconds)
        if any(key.fd == self._wake for key, _ in ready):
            os.eventfd_read(self._wake)
        received = self._receive()
        while self._calls:
            self._calls.popleft()()
        now_ns = time.monotonic_ns()
        self._serve_channels({key.fd for key, _ in ready}, now_ns)
        for link in list(self._links):
            self._serve(link)
        if received > NAP_PACKETS and self._settings.nap_seconds and not self._has_more and not self._is_busy:
            time.sleep(self._settings.nap_seconds)

    def _wait_seconds(self, now_ns: int) -> float:
        if self._has_more or self._calls:
            return 0.0
        times = [link.connection.next_timer_ns() for link in self._links if link.connection is not None]
        times += [link.channel.next_timer_ns() for link in self._links]
        if self._listener is not None:
            times.append(self._listener.next_timer_ns())
        soonest = min((time_ns for time_ns in times if time_ns is not None), default=None)
        if soonest is None:
            return LONGEST_WAIT_SECONDS
        return min(max(0.0, (soonest - now_ns) / NANOSECONDS), LONGEST_WAIT_SECONDS)

    def _receive(self) -> int:
        """Read what the data sockets hold; returns how many datagrams."""
        total = 0
        self._is_busy = False
        for receiver in self._receivers:
            for _ in range(RECEIVE_CALLS):
                grids = receiver.receive()
                now_ns = time.monotonic_ns()
                for grid in grids:
                    total += grid.datagram_count
                    self._dispatch(grid, now_ns)
                if not receiver.was_full:
                    break
                self._is_busy = True
                for link in self._links:
                    link.send_small(now_ns)
        return total

    def _dispatch(self, grid: DatagramGrid, now_ns: int) -> None:
        tokens = grid.headers()["flow_token"][:, 0]
        edges = [0, *(np.flatnonzero(tokens[1:] != tokens[:-1]) + 1).tolist(), grid.messages]
        for first, last in pairwise(edges):
            link = self._by_token.get(int(tokens[first]))
            part = grid if last - first == grid.messages else grid.part(first, last)
            if link is None or link.connection is None:
                self.unknown_datagrams += part.datagram_count
            else:
                link.connection.datagrams_received(part, now_ns)

    def _serve_channels(self, ready: Iterable[int], now_ns: int) -> None:
        ready = set(ready)
        if self._listener is not None:
            self._listener.timer(now_ns)
            if self._listener.fileno() in ready:
                self._links += [Link(channel, None) for channel in self._listener.accept(now_ns)]
        for link in list(self._links):
            if link.channel.fileno() not in ready and link.channel.next_timer_ns() is None:
                continue
            try:
                if link.channel.fileno() in ready:
                    data = link.channel.step(now_ns)
                    if link.connection is None and link.channel.is_open:
                        self._start(link, now_ns)
                    if data and link.connection is not None:
                        link.connection.control_received(data, now_ns)
                link.channel.timer(now_ns)
            except AgentError as error:
                self._drop(link, error, now_ns)

    def _serve(self, link: Link) -> None:
        connection = link.connection
        if connection is None:
            return
        now_ns = time.monotonic_ns()
        try:
            connection.timer(now_ns)
            self._report(link)
            link.send_small(now_ns)
            self._has_more |= link.send_data(time.monotonic_ns)
            self._report(link)
            link.flush_control()
        except AgentError as error:
            self._drop(link, error, now_ns)
        if connection.is_over and link in self._links:
            link.flush_control()
            self._drop(link, CancelledError("closed"), now_ns)

    def _watch(self) -> None:
        """Tell the selector what to wait for; asks the kernel only where something has changed."""
        wanted: dict[int, int] = {entry.socket.fileno(): selectors.EVENT_READ for entry in self._sockets}
        if self._listener is not None and self._listener.wants_read:
            wanted[self._listener.fileno()] = selectors.EVENT_READ
        for link in self._links:
            descriptor = link.channel.fileno()
            if descriptor >= 0:
                wanted[descriptor] = (selectors.EVENT_READ if link.channel.wants_read else 0) | (
                    selectors.EVENT_WRITE if link.channel.wants_write else 0
                )
            if link.is_blocked and link.sender is not None:
                blocked = link.sender.blocked_socket
                if blocked is not None:
                    wanted[blocked.fileno()] = selectors.EVENT_READ | selectors.EVENT_WRITE
        for descriptor in [entry for entry in self._watched if not wanted.get(entry)]:
            self._selector.unregister(descriptor)
            del self._watched[descriptor]
        for descriptor, mask in wanted.items():
            if mask and descriptor not in self._watched:
                self._selector.register(descriptor, mask)
            elif mask and self._watched[descriptor] != mask:
                self._selector.modify(descriptor, mask)
            if mask:
                self._watched[descriptor] = mask

    # Peers

    def _start(self, link: Link, now_ns: int) -> None:
        settings = self._settings
        granted = min(entry.receive_buffer.granted_bytes for entry in self._sockets)
        window = granted // TRUE_SIZE_FACTOR // max(1, settings.expected_peers)
        local = LocalEnd(
            name=settings.name,
            data_addresses=tuple(self._data_addresses()),
            window_bytes=max(window, settings.payload_bytes),
            payload_bytes=settings.payload_bytes,
            authenticate=settings.authenticate,
            control_dscp=settings.control_dscp,
        )
        secrets = new_secrets()
        link.connection = Connection(
            settings.connection, local, secrets, self._sprayer, Timely(settings.rate), now_ns
        )
        self._by_token[secrets.token] = link

    def _data_addresses(self) -> list[PathAddress]:
        settings = self._settings
        ports = [entry.port for entry in self._sockets]
        if not settings.per_path_sockets:
            ports = ports * len(settings.addresses)
        return [
            PathAddress(path, address, port)
            for path, (address, port) in enumerate(zip(settings.addresses, ports, strict=True))
        ]

    def _sprayer(self, hello: PeerHello) -> PathSprayer:
        return PathSprayer(len(hello.data_addresses), self._settings.spraying)

    def _report(self, link: Link) -> None:
        connection = link.connection
        if connection is None:
            return
        for event in connection.events():
            name = link.name
            if isinstance(event, PeerReady):
                self._greet(link, connection)
            elif isinstance(event, ConnectionLost) and self._by_name.get(name) is link:
                del self._by_name[name]
            elif isinstance(event, TransferDone):
                link.forget(event.key)
            self._happened(name, event)

    def _greet(self, link: Link, connection: Connection) -> None:
        hello = connection.peer
        if hello is None:
            return
        link.check_peer(hello)
        if hello.name in self._by_name:
            raise PeerRefusedError("is connected already", peer=hello.name)
        addresses = sorted(hello.data_addresses, key=lambda entry: entry.path)
        if [entry.path for entry in addresses] != list(range(len(addresses))):
            raise PeerRefusedError("numbers its paths with gaps", peer=hello.name)
        sockets = [entry.socket for entry in self._sockets]
        paths = {
            entry.path: PathSocket(sockets[entry.path % len(sockets)], entry.address, entry.port)
            for entry in addresses
        }
        link.sender = BurstSender(paths, segmentation=self._segmentation)
        self._by_name[hello.name] = link

    def _drop(self, link: Link, error: AgentError, now_ns: int) -> None:
        if link not in self._links:
            return
        self._links.remove(link)
        connection = link.connection
        link.rest = None
        if connection is not None:
            connection.control_ended(error, now_ns)
            self._report_end(link, connection)
            self._by_token.pop(connection.receive_token, None)
        elif link.expected is not None:
            self._happened(link.expected, ConnectionLost(error))
        descriptor = link.channel.fileno()
        if descriptor in self._watched:
            self._selector.unregister(descriptor)
            del self._watched[descriptor]
        link.channel.close()

    def _report_end(self, link: Link, connection: Connection) -> None:
        name = link.name
        if self._by_name.get(name) is link:
            del self._by_name[name]
        for event in connection.events():
            if not isinstance(event, PeerReady):
                self._happened(name, event)

    # The end

    def _stop(self, reason: str) -> None:
        now_ns = time.monotonic_ns()
        for link in list(self._links):
            if link.connection is not None:
                link.connection.close(reason, now_ns)
                try:
                    link.flush_control()
                except AgentError as error:
                    _log.debug("no goodbye: %s", error)
        until = time.monotonic() + CLOSING_SECONDS
        while time.monotonic() < until and any(link.channel.waiting_bytes for link in self._links):
            for link in self._links:
                link.channel.flush()
            time.sleep(0.001)
        self._should_stop = True

    def _shut_down(self) -> None:
        self._should_stop = True
        now_ns = time.monotonic_ns()
        error = self._failure or CancelledError("the agent was closed")
        for link in list(self._links):
            self._drop(link, error, now_ns)
        while self._calls:  # what was posted too late must not wait for ever
            try:
                self._calls.popleft()()
            except MltswitchError as refused:
                _log.debug("not done any more: %s", refused)
        if self._listener is not None:
            self._listener.close()
        for entry in self._sockets:
            entry.socket.close()
        self._selector.close()

    def _wake_up(self) -> None:
        try:
            os.eventfd_write(self._wake, 1)
        except OSError as error:
            raise CancelledError("the agent is closed") from error


def _open_data_sockets(settings: AgentSettings) -> tuple[DataSocket, ...]:
    if not settings.per_path_sockets:
        return (
            open_socket(
                settings.addresses,
                settings.data_port,
                receive_buffer_bytes=settings.buffer_bytes,
                send_buffer_bytes=settings.buffer_bytes,
            ),
        )
    first = settings.data_port
    ports = [first + path if first else 0 for path in range(len(settings.addresses))]
    sockets = open_path_sockets(
        settings.addresses[0],
        ports,
        receive_buffer_bytes=settings.buffer_bytes,
        send_buffer_bytes=settings.buffer_bytes,
    )
    if settings.segments:
        for entry, segments in zip(sockets, settings.segments, strict=True):
            set_segments(entry.socket, segments)
    return sockets
