"""The one thread of an agent: sockets, channels and timers around the connections' state machines.

Everything that happens to a connection happens here; other threads leave a function to be called and wake
it.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Final

from mltswitch.hostagent import native
from mltswitch.hostagent.arrivals import NAP_PACKETS, Arrivals, nap_seconds
from mltswitch.hostagent.calls import Calls
from mltswitch.hostagent.control.channel import ChannelSettings, ControlChannel
from mltswitch.hostagent.control.listener import ControlListener
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.datapaths import DataPaths
from mltswitch.hostagent.errors import AgentError, CancelledError, PeerRefusedError, PeerUnreachableError
from mltswitch.hostagent.links import Link, new_secrets
from mltswitch.hostagent.network.waiting import READABLE, Waiter
from mltswitch.hostagent.roster import Roster
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.spraying.sprayer import PathSprayer
from mltswitch.hostagent.tcp.connection import TcpConnection
from mltswitch.hostagent.tcp.port import TcpPort
from mltswitch.hostagent.telemetry.events import AgentEvent, Observer
from mltswitch.hostagent.telemetry.snapshot import AgentSnapshot, Ledger, socket_snapshots
from mltswitch.hostagent.telemetry.watch import Watch, greeting
from mltswitch.hostagent.threads import enter_engine
from mltswitch.hostagent.transport.compiled import Registry, Taken
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.hostagent.transport.hello import PeerHello, Secrets
from mltswitch.hostagent.transport.interfaces import (
    ConnectionLost,
    Direction,
    Event,
    PeerReady,
    TransferDone,
    TransferProgress,
)
from mltswitch.hostagent.transport.rate import Timely
from mltswitch.hostagent.transport.settings import Transport
from mltswitch.hostagent.transport.sharing import SharedRate

LONGEST_WAIT_NS: Final = 10**9
CLOSING_SECONDS: Final = 1.0
"""For our last words."""

_log = logging.getLogger(__name__)


class Engine:
    """Owns every socket. In its thread `happened` is told of each peer's events, `ended` why no more come."""

    def __init__(
        self,
        settings: AgentSettings,
        happened: Callable[[str, Event], None],
        ended: Callable[[AgentError], None],
    ) -> None:
        """Opens the sockets; raises UserInputError or MachineError."""
        self._settings = settings
        self._happened, self._ended = happened, ended
        with ExitStack() as opened:
            self._open(settings, opened)
            opened.pop_all()
        self._shared_rate = (
            SharedRate(settings.total_rate_bps, time.monotonic_ns()) if settings.total_rate_bps else None
        )
        self._roster = Roster(settings.name, settings.maximum_peers, settings.admit)
        self._calls = Calls(self._waiter.wake)
        self._has_more = False
        """Whether a connection may send at once what it could not in its turn."""
        self._is_streaming = False
        """Whether so much had just arrived that more will have come after a rest."""
        self._should_stop = False
        self._failure: AgentError | None = None
        self.unknown_datagrams = 0
        """With a token that is none of ours; they are not answered."""
        self.watch = Watch(self._greeting)
        self._ledger = Ledger()
        for observer in settings.observers:
            self.watch.add(observer)
        self._thread = threading.Thread(target=self._run, name=f"agent {settings.name}", daemon=True)
        self._thread.start()

    def _open(self, settings: AgentSettings, opened: ExitStack) -> None:
        self._paths = DataPaths(settings)
        opened.callback(self._paths.close)
        self._sockets = self._paths.sockets
        self._registry = None if native.LIBRARY is None else Registry(native.LIBRARY)
        self._arrivals = Arrivals(self._sockets, self._registry)
        rooms = (entry.receive_buffer.datagrams(self._paths.payload_bytes) for entry in self._sockets)
        self._room_packets = min(rooms, default=0)
        self._read_ns = time.monotonic_ns()
        self._descriptors = {entry.socket.fileno() for entry in self._sockets}
        self._waiter = Waiter()
        opened.callback(self._waiter.close)
        self._tcp: TcpPort | None = None
        if settings.transport is Transport.TCP:
            self._tcp = TcpPort(settings, self._waiter.leave)
            opened.callback(self._tcp.close)
        self._channel_settings = ChannelSettings(dscp=settings.control_dscp)
        self._listener: ControlListener | None = None
        if settings.listen is not None:
            self._listener = ControlListener(settings.listen, settings.security, self._channel_settings)
            opened.callback(self._listener.close)
        self.listening_at = self._listener.local if self._listener else None
        """Where peers reach the control channel; known after it is closed, too."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """About buffers that are too small."""
        return self._paths.warnings

    def call(self, action: Callable[[], object]) -> None:
        """Have it called in the engine's thread, soon; raises AgentError where that has ended."""
        self._calls.add(action)

    def connect(self, peer: str, remote: Endpoint) -> Link:
        """Begin to connect, unless the peer has; in the engine's thread.

        Raises UserInputError, PeerUnreachableError, PeerRefusedError or CancelledError.
        """
        if self._should_stop:
            raise CancelledError("the agent is closed", peer=peer)
        known = self._roster.by_name.get(peer)
        if known is not None and known.expected is None:
            return known
        if known is not None or self._roster.dialled(peer) is not None:
            raise PeerRefusedError("is connected already, or being connected", peer=peer)
        now_ns = time.monotonic_ns()
        channel = ControlChannel.connect(
            remote,
            peer,
            self._settings.security,
            self._channel_settings,
            now_ns,
            source=self._settings.address_of_version(remote.ip.version),
        )
        link = Link(channel, peer)
        self._roster.links.append(link)
        self._start(link, now_ns)
        return link

    def give_up(self, link: Link) -> None:
        """Connect no more, where nothing has come of it; in the engine's thread."""
        if link is self._roster.dialled(link.expected):
            self._answer_instead(link)
            self._leave(link)

    def disconnect(self, peer: str, reason: str) -> None:
        """Say goodbye to one; nothing where it is not connected. In the engine's thread."""
        with suppress(PeerUnreachableError):
            self.connection(peer).close(reason, time.monotonic_ns())

    def connection(self, peer: str) -> Connection:
        """Of a peer that has said hello, to ask something of it; raises PeerUnreachableError."""
        link = self._roster.by_name.get(peer)
        if link is None or link.connection is None:
            raise PeerUnreachableError("is not connected", peer=peer)
        link.is_awake = True
        return link.connection

    def close(self, reason: str) -> None:
        """Say goodbye to all peers, end the thread, close the sockets; may be called again."""
        if self._thread.is_alive():
            with suppress(AgentError):  # it ends already
                self._calls.add(lambda: self._stop(reason))
            self._thread.join()
        self._waiter.close()

    def observe(self, observer: Observer, *, is_wanted: bool) -> None:
        """Tell it what happens, or nothing more; in the engine's thread."""
        if is_wanted:
            self.watch.add(observer)
        else:
            self.watch.remove(observer)
        for link in self._roster.links:
            if link.connection is not None:
                link.connection.observe(is_observed=bool(self.watch))

    def snapshot(self) -> AgentSnapshot:
        """What has been counted; in the engine's thread. Raises OSError where the sockets are closed."""
        return AgentSnapshot(
            self._settings.name,
            time.monotonic_ns(),
            self._ledger.peers(self._roster.links),
            socket_snapshots(self._sockets, self._arrivals.receivers),
            self.unknown_datagrams,
        )

    # The loop

    def _run(self) -> None:
        enter_engine()
        try:
            while not self._should_stop:
                self._turn()
        except BaseException:  # noqa: BLE001  (whatever it is, callers must not wait: they are told, and the log)
            _log.exception("the agent's engine has failed")
            self._failure = CancelledError("the agent's engine has failed; its log says how")
            self._calls.refuse(self._failure)
        finally:
            self._shut_down()

    def _turn(self) -> None:
        wait_ns = 0 if self._is_streaming else self._wait_ns(time.monotonic_ns())
        self._has_more = False
        self._waiter.watch(self._wanted())
        ready = self._waiter.wait(wait_ns)
        received, read_ns = 0, self._read_ns
        self._read_ns = time.monotonic_ns()
        if self._may_have_arrived(ready):
            received = self._arrivals.read(self._hand_over, self._acknowledge)
        self._calls.obey()
        now_ns = time.monotonic_ns()
        for link in self._roster.links:
            link.wake_if_due(ready, now_ns)
        self._serve_channels(ready, now_ns)
        if self._tcp is not None:
            self._has_more |= self._tcp.step(ready, time.monotonic_ns)
        for link in list(self._roster.links):
            if link.is_awake or self._tcp is not None:
                self._serve(link)
        if self.watch:
            self.watch.look(self._roster.links, self._arrivals.receivers, self.unknown_datagrams, now_ns)
        self._is_streaming = received > NAP_PACKETS and bool(self._settings.nap_seconds)
        if self._is_streaming and not (self._has_more or self._arrivals.has_more):
            elapsed_ns = self._read_ns - read_ns
            time.sleep(nap_seconds(self._settings.nap_seconds, received, elapsed_ns, self._room_packets))

    def _may_have_arrived(self, ready: set[int]) -> bool:
        """Whether data sockets must be read: what the wait told of them is older than an answer may be."""
        if self._is_streaming or not ready.isdisjoint(self._descriptors):
            return True
        return any(
            link.connection is not None and link.connection.is_answering for link in self._roster.links
        )

    def _wait_ns(self, now_ns: int) -> int:
        if self._has_more or self._calls:
            return 0
        times = [link.due_ns for link in self._roster.links]
        if self._listener is not None:
            times.append(self._listener.next_timer_ns())
        if self._tcp is not None:
            times.append(self._tcp.next_timer_ns(now_ns))
        soonest_ns = min((time_ns for time_ns in times if time_ns is not None), default=None)
        if soonest_ns is None:
            return LONGEST_WAIT_NS
        return min(max(0, soonest_ns - now_ns), LONGEST_WAIT_NS)

    def _hand_over(self, token: int, grids: Sequence[DatagramGrid], taken: Taken, now_ns: int) -> None:
        link = self._roster.by_token.get(token)
        if link is None or link.connection is None:
            self.unknown_datagrams += sum(grid.datagram_count for grid in grids)
            return
        link.is_awake = True
        with self._alone(link):
            link.connection.datagrams_read(grids, taken, now_ns)

    def _acknowledge(self) -> None:
        for link in list(self._roster.links):
            with self._alone(link):
                link.send_small(time.monotonic_ns())

    @contextmanager
    def _alone(self, link: Link) -> Iterator[None]:
        """What fails within fails this link, and nobody else's."""
        try:
            yield
        except AgentError as error:
            self._drop(link, error)
        except Exception as error:  # noqa: BLE001  (whatever a peer made us do, the others go on)
            is_ours = not isinstance(error, OSError)  # else no descriptors are left, say
            name = link.name or link.channel.remote
            _log.error("the connection with %s has failed: %s", name, error, exc_info=is_ours)
            self._drop(link, CancelledError("the agent failed on this connection; its log says how"))

    def _serve_channels(self, ready: set[int], now_ns: int) -> None:
        if self._listener is not None:
            self._listener.timer(now_ns)
            if self._listener.fileno() in ready:
                self._roster.links += [Link(channel, None) for channel in self._listener.accept(now_ns)]
        for link in [entry for entry in self._roster.links if entry.is_awake]:
            with self._alone(link):
                if link.channel.fileno() in ready:
                    data = link.channel.step(now_ns)
                    if link.connection is None and link.channel.is_open:
                        self._start(link, now_ns)
                    if data and link.connection is not None:
                        link.connection.control_received(data, now_ns)
                link.channel.timer(now_ns)

    def _serve(self, link: Link) -> None:
        connection, has_more = link.connection, False
        if connection is not None:
            with self._alone(link):
                now_ns = time.monotonic_ns()
                link.look_at_control(now_ns)
                connection.timer(now_ns, self._arrivals.read_until_ns)
                self._report(link)
                link.send_small(now_ns)
                has_more = link.send_data(time.monotonic_ns)
                self._report(link)
                link.flush_control()
                if connection.is_over:
                    self._drop(link, CancelledError("closed"))
        link.rest_until_due()
        link.is_awake = has_more
        self._has_more |= has_more

    def _wanted(self) -> dict[int, int]:
        """Descriptors and what to wait for; not data of a stream: telling us of each packet costs the kernel
        a twentieth of its time."""
        wanted: dict[int, int] = {} if self._is_streaming else dict.fromkeys(self._descriptors, READABLE)
        if self._listener is not None and self._listener.wants_read:
            wanted[self._listener.fileno()] = READABLE
        for link in self._roster.links:
            wanted |= link.wanted()
        if self._tcp is not None:
            wanted |= self._tcp.wanted(time.monotonic_ns())
        return wanted

    # Peers

    def _start(self, link: Link, now_ns: int) -> None:
        secrets = new_secrets()
        if self._tcp is not None:
            link.connection = self._tcp.connection(secrets, now_ns)
        else:
            link.connection = self._connection(secrets, now_ns)
        link.connection.greeting.is_quiet = link.expected is None
        link.connection.observe(is_observed=bool(self.watch))
        self._roster.by_token[secrets.token] = link

    def _connection(self, secrets: Secrets, now_ns: int) -> Connection:
        local, rate = self._paths.local_end(self._room_packets), Timely(self._settings.rate)
        settings = self._settings.connection
        return Connection(settings, local, secrets, self._sprayer, rate, now_ns, self._registry)

    def _sprayer(self, hello: PeerHello) -> PathSprayer:
        return PathSprayer(len(hello.data_addresses), self._settings.spraying)

    def _report(self, link: Link) -> None:
        connection = link.connection
        if connection is None:
            return
        for event in connection.events():
            if isinstance(event, PeerReady):
                if not self._greet(link, connection):
                    continue
            elif isinstance(event, ConnectionLost):
                if self._roster.is_another_call(link):
                    self.watch.lost(str(link.channel.remote), event)
                    continue
                if link is self._roster.dialled(link.expected) and self._answer_instead(link):
                    continue
                self._roster.forget_name(link)
            elif isinstance(event, TransferDone) and event.direction is Direction.SEND:
                link.forget(event.key)
            self._tell(link, connection, event)

    def _tell(self, link: Link, connection: Connection, event: Event) -> None:
        name = link.name or str(link.channel.remote)
        sprayer = link.sprayer
        if isinstance(event, TransferDone) and event.direction is Direction.SEND and sprayer is not None:
            event = replace(event, paths=sprayer.conditions() if event.statistics else ())
        if self.watch:
            self.watch.happened(name, connection, event)
        if not isinstance(event, TransferProgress):
            self._happened(name, event)

    def _greeting(self) -> Iterator[AgentEvent]:
        greeted = {
            name: link.connection.peer for name, link in self._roster.by_name.items() if link.connection
        }
        return greeting(self._settings.name, self._settings.addresses, self.warnings, greeted)

    def _greet(self, link: Link, connection: Connection) -> bool:
        """Whether the peer is connected by this link now. Raises AgentError.

        Where both ends call each other at once, the call of the lesser name stays: that one is the callee of
        the other call, and does not answer it before its own has failed.
        """
        hello = connection.peer
        if hello is None or connection.is_over:
            return False
        link.check_peer(hello)
        self._roster.check(link, hello.name)
        own = self._roster.dialled(hello.name)
        if own is not None and own is not link:
            if self._settings.name < hello.name and own.channel.is_open:
                link.is_held_back = True
                return False
            self._leave(own)
        self._welcome(link, connection, hello)
        return True

    def _welcome(self, link: Link, connection: Connection, hello: PeerHello) -> None:
        link.channel.greeted()
        connection.greeting.is_quiet = False
        if self._tcp is not None and isinstance(connection, TcpConnection):
            self._tcp.greeted(connection, time.monotonic_ns())
        else:
            paths = self._paths.to_peer(hello, lambda: connection.rate_bps)
            link.sender = paths.output
            pacer = paths.pacer(time.monotonic_ns())
            if pacer is not None:
                connection.pace(pacer)
            if self._shared_rate is not None:
                connection.share_rate(self._shared_rate.share())
        self._roster.welcome(link, hello.name)

    def _leave(self, link: Link) -> None:
        """Another call of the same two ends is answered: nobody is told of this one."""
        self._roster.links.remove(link)
        if link.connection is not None:
            self.watch.forget(link)
        self._close(link)

    def _close(self, link: Link) -> None:
        if link.connection is not None:
            self._roster.by_token.pop(link.connection.receive_token, None)
        link.close(self._waiter.leave)
        if self._tcp is not None and isinstance(link.connection, TcpConnection):
            self._tcp.forget(link.connection)

    def _answer_instead(self, link: Link) -> bool:
        """Whether the peer's own call is answered, which was held back for the sake of ours."""
        for held in self._roster.held_back_for(link):
            connection = held.connection
            hello = connection.peer if connection else None
            if (
                connection is None
                or hello is None
                or connection.is_over
                or hello.name in self._roster.by_name
            ):
                self._leave(held)
                continue
            held.is_held_back = False
            with self._alone(held):
                self._welcome(held, connection, hello)
                self._tell(held, connection, PeerReady(hello.name))
                held.is_awake = self._has_more = True
        return link.expected in self._roster.by_name

    def _drop(self, link: Link, error: AgentError) -> None:
        if link not in self._roster.links:
            return
        if link.is_held_back or (link is self._roster.dialled(link.expected) and self._answer_instead(link)):
            self._leave(link)
            return
        self._roster.links.remove(link)
        connection = link.connection
        link.rest = None
        if connection is not None:
            if isinstance(error, PeerRefusedError | PeerUnreachableError):
                link.tell_why(error)
            connection.control_ended(error, time.monotonic_ns())
            self.watch.forget(link)
            self._report(link)
            self._ledger.close(link)
        else:
            lost = ConnectionLost(error)
            self.watch.lost(link.name or str(link.channel.remote), lost)
            if link.expected is not None:
                self._happened(link.expected, lost)
        self._close(link)

    # The end

    def _stop(self, reason: str) -> None:
        self._roster.say_goodbye(reason, CLOSING_SECONDS)
        self._should_stop = True
        self._calls.refuse(CancelledError("the agent is closed"))

    def _shut_down(self) -> None:
        self._should_stop = True
        error = self._failure or CancelledError("the agent was closed")
        with ExitStack() as closing:  # whatever fails on the way
            closing.callback(self._ended, error)
            closing.callback(self._paths.close)
            if self._tcp is not None:
                closing.callback(self._tcp.close)
            if self._listener is not None:
                closing.callback(self._listener.close)
            for link in list(self._roster.links):
                self._drop(link, error)
            self._calls.refuse(error)
            self._calls.obey()  # what was posted too late must not wait for ever
