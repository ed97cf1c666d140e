"""Whom the engine tells of events, and what it looks at for them now and then."""

import errno
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from mltswitch.hostagent.links import Link
from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.telemetry.events import (
    AgentEvent,
    AgentStarted,
    DatagramsDropped,
    DropReason,
    Observer,
    PacketsRefused,
    PathChanged,
    PeerConnected,
    PeerLost,
    RateChanged,
    TransferAdvanced,
    Warned,
    kind_of,
)
from mltswitch.hostagent.transport.connection import Connection
from mltswitch.hostagent.transport.hello import PeerHello
from mltswitch.hostagent.transport.interfaces import ConnectionLost, Event, PeerReady, TransferProgress

SAMPLE_NS: Final = 100_000_000
"""Rates and drops are looked at no more often."""

_log = logging.getLogger(__name__)


class Watch:
    """Of one engine; belongs to its thread. False while nobody observes."""

    def __init__(self, greeting: Callable[[], Iterable[AgentEvent]]) -> None:
        """`greeting`: what every new observer is told first."""
        self._greeting = greeting
        self._observers: tuple[Observer, ...] = ()
        self._next_sample_ns = 0
        self._rates: dict[Link, float] = {}
        self._seen: dict[tuple[Link | None, DropReason], int] = {}

    def __bool__(self) -> bool:
        return bool(self._observers)

    def add(self, observer: Observer) -> None:
        """Tell it, too."""
        if self._is_told(observer):
            return
        self._observers += (observer,)
        for event in self._greeting():
            if not self._is_told(observer):
                break  # it has failed
            self._tell_one(observer, event)

    def remove(self, observer: Observer) -> None:
        """Nothing more for it."""
        self._observers = tuple(entry for entry in self._observers if entry is not observer)

    def tell(self, event: AgentEvent) -> None:
        """All of them."""
        for observer in self._observers:
            self._tell_one(observer, event)

    def happened(self, peer: str, connection: Connection, event: Event) -> None:
        """What a connection says of itself; the end of a transfer is told by who knows the post."""
        match event:
            case PeerReady():
                if connection.peer is not None:
                    self.tell(connected(peer, connection.peer))
            case ConnectionLost():
                self.lost(peer, event)
            case TransferProgress():
                self.tell(
                    TransferAdvanced(
                        event.now_ns,
                        peer,
                        event.key.tensor,
                        event.key.round_number,
                        event.direction,
                        event.stage,
                        event.attempt,
                        event.packets,
                        event.packets_sent,
                        event.packets_received,
                        event.packets_lost,
                    )
                )

    def lost(self, peer: str, event: ConnectionLost) -> None:
        """A peer is gone, or could not be reached."""
        self.tell(PeerLost(time.monotonic_ns(), peer, kind_of(event.error), event.error.what))

    def look(
        self,
        links: Collection[Link],
        receivers: Iterable[DatagramReceiver],
        unknown_datagrams: int,
        now_ns: int,
    ) -> None:
        """Paths in every turn of the engine, the rest where it is time to."""
        for link in links:
            self._look_at_paths(link)
        if now_ns < self._next_sample_ns:
            return
        self._next_sample_ns = now_ns + SAMPLE_NS
        drops = sum(receiver.kernel_drops() for receiver in receivers)
        self._count(None, DropReason.KERNEL, drops, now_ns)
        self._count(None, DropReason.UNKNOWN, unknown_datagrams, now_ns)
        for link in links:
            self._sample(link, now_ns)

    def forget(self, link: Link) -> None:
        """Its connection is over."""
        if self:
            self._look_at_paths(link)
            self._sample(link, time.monotonic_ns())
        self._rates.pop(link, None)
        for key in [key for key in self._seen if key[0] is link]:
            del self._seen[key]

    def _look_at_paths(self, link: Link) -> None:
        if link.sprayer is not None and link.is_welcome:
            for event in link.sprayer.take_events():
                self.tell(PathChanged(event.now_ns, link.name, event.path, event.state, event.reason))

    def _sample(self, link: Link, now_ns: int) -> None:
        connection = link.connection
        if connection is None or not link.is_welcome:
            return
        self._count(link, DropReason.FALSE, connection.dropped_datagrams, now_ns)
        self._count(link, DropReason.LATE, connection.late_packets, now_ns)
        sprayer = connection.sprayer
        if sprayer is not None and self._rates.get(link) != connection.rate_bps:
            self._rates[link] = connection.rate_bps
            self.tell(RateChanged(now_ns, link.name, connection.rate_bps, sprayer.in_flight_bytes))
        if link.sender is not None:
            for refusal in link.sender.refusals():
                error = errno.errorcode.get(refusal.error, str(refusal.error))
                self.tell(PacketsRefused(now_ns, link.name, refusal.path, error, refusal.packets))

    def _count(self, link: Link | None, reason: DropReason, count: int, now_ns: int) -> None:
        more = count - self._seen.get((link, reason), 0)
        if more > 0:
            self._seen[link, reason] = count
            self.tell(DatagramsDropped(now_ns, link.name if link else None, reason, more))

    def _is_told(self, observer: Observer) -> bool:
        """Who is equal to another one is told, too; and `==` would be code of the user's."""
        return any(entry is observer for entry in self._observers)

    def _tell_one(self, observer: Observer, event: AgentEvent) -> None:
        try:
            observer.observe(event)
        except BaseException:  # noqa: BLE001  (sys.exit, too: the job goes on; the log says it)
            _log.exception("an observer failed, it is told nothing more")
            self.remove(observer)


def connected(peer: str, hello: PeerHello) -> PeerConnected:
    """Now."""
    return PeerConnected(time.monotonic_ns(), peer, len(hello.data), hello.payload_bytes, hello.window_bytes)


def greeting(
    name: str, addresses: Sequence[str], warnings: Iterable[str], peers: Mapping[str, PeerHello | None]
) -> Iterator[AgentEvent]:
    """What a new observer is told of an agent that has begun before."""
    now_ns = time.monotonic_ns()
    yield AgentStarted(now_ns, name, tuple(addresses))
    for text in warnings:
        yield Warned(now_ns, text)
    for peer, hello in peers.items():
        if hello is not None:
            yield connected(peer, hello)
