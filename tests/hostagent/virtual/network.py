"""Connections on a virtual network: one clock, one seed, every fault a network and its hosts can have.

Nothing here sleeps, and nothing is random but what the seed says: the same seed gives the same trace, whose
sum is `VirtualNetwork.trace`.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol
from zlib import crc32

from mltswitch.hostagent.errors import AgentError, PeerUnreachableError
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram, DatagramGrid
from mltswitch.hostagent.transport.interfaces import ConnectionLost, Event
from tests.hostagent.virtual.grids import NOISE, TOKEN, Arrived, grids
from tests.hostagent.virtual.links import Link, LinkSettings

HANDED_OVER = 0.3
"""Chance that what was read until now goes to the connection before more is read."""

MOST_AT_ONE_INSTANT = 1000
"""Rounds of work of one end without time passing: more is a loop."""


class End(Protocol):
    """What the network drives: a `Connection`, or what stands in for one in the network's own tests."""

    @property
    def receive_token(self) -> int: ...
    def control_received(self, data: bytes, now_ns: int) -> None: ...
    def control_ended(self, error: AgentError, now_ns: int) -> None: ...
    def datagrams_received(self, grids: Sequence[DatagramGrid], now_ns: int) -> None: ...
    def timer(self, now_ns: int) -> None: ...
    def control_to_send(self) -> bytes: ...
    def bursts(self, now_ns: int, maximum_packets: int) -> Bursts | None: ...
    def markers_to_send(self, now_ns: int) -> list[Datagram]: ...
    def datagrams_to_send(self, now_ns: int) -> list[Datagram]: ...
    def next_timer_ns(self) -> int | None: ...
    def events(self) -> list[Event]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """The reliable channel of one pair."""

    delay_ns: int = 60_000
    jitter_ns: int = 0
    """If there is any, what is sent at once is cut in two, and each part may come so much later."""
    chunk_bytes: int = 65_536
    """Handed over in pieces up to so long."""
    breaks_ns: int | None = None
    dead: tuple[tuple[int, int], ...] = ()
    """(from, to): what is sent then waits for the end of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """How one host runs."""

    read_ns: int = 20_000
    """It reads its sockets up to so long after the first datagram came."""
    late_ns: int = 0
    """Its timers go off up to so late."""
    frozen: tuple[tuple[int, int], ...] = ()
    """(from, to): it does nothing; what comes meanwhile waits in its buffers."""
    buffer_datagrams: int = 10_000
    """More than so many waiting are lost."""
    maximum_run: int = 8
    """Datagrams coalesced into one message."""
    maximum_packets: int = 64
    """Asked for with one call of `bursts`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackSettings:
    """What an attacker adds to the datagrams that arrive, as shares of them."""

    forged: float = 0.0
    """As long as the one that arrives, with its DSCP/ECN byte and its path, right before it."""
    knows_token: bool = False
    """Forged datagrams carry the right flow token: an attacker on the path. Else a random one."""
    replayed: float = 0.0
    replay_ns: int = 0
    """Up to so much later."""


NO_ATTACK = AttackSettings()


class LoopError(AssertionError):
    """An end does not come to rest."""


@dataclass(eq=False, slots=True)
class Side:
    """One end of one connection."""

    name: str
    end: End
    host: HostSettings
    links: Mapping[int, Link]
    """By path, to the other side."""
    control: ControlSettings
    attack: AttackSettings
    peer: "Side" = None  # type: ignore[assignment]  # set as both exist
    inbox: list[Arrived] = field(default_factory=list)
    control_due_ns: int = 0
    control_inbox: list[bytes] = field(default_factory=list)
    control_open: bool = True
    timer_ns: int | None = None
    busy_ns: int = -1
    busy_rounds: int = 0
    most_control_bytes: int = 0
    """Waiting to be sent at one time."""
    datagrams_sent: int = 0
    refused: int = 0
    """Datagrams with a token that is not this end's."""
    is_reading: bool = False


class VirtualNetwork:
    """Pairs of ends, and the events between them, in the order of time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  (a simulation, no secret)
        self.now_ns = 0
        self.trace = 0
        self.sides: list[Side] = []
        self.happened: Callable[[Side, Event], None] = lambda side, event: None
        self._order = 0
        self._events: list[tuple[int, int, Callable[[Any], None], Any]] = []

    def join(
        self,
        names: tuple[str, str],
        ends: tuple[End, End],
        links: tuple[Mapping[int, LinkSettings], Mapping[int, LinkSettings]],
        control: ControlSettings,
        hosts: tuple[HostSettings, HostSettings],
        attack: AttackSettings = NO_ATTACK,
    ) -> tuple[Side, Side]:
        """Two ends and the paths between them; both sides' control channels are open from now on."""
        first, second = (
            Side(
                name,
                end,
                host,
                {path: Link(settings, self.random) for path, settings in paths.items()},
                control,
                attack,
            )
            for name, end, host, paths in zip(names, ends, hosts, links, strict=True)
        )
        first.peer, second.peer = second, first
        self.sides += [first, second]
        for side in (first, second):
            self.at(self.now_ns, self._pump, side)
            if control.breaks_ns is not None:
                late_ns = self.random.randrange(1 + control.delay_ns)
                self.at(control.breaks_ns + late_ns, self._break, side)
        return first, second

    def at(self, when_ns: int, action: Callable[[Any], None], argument: Any = None) -> None:
        """Do something then, or now if that has passed."""
        self._order += 1
        heapq.heappush(self._events, (max(when_ns, self.now_ns), self._order, action, argument))

    def run(self, until_ns: int, is_finished: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until then, or until it is finished, or nothing is left to happen."""
        events = self._events
        while events and events[0][0] <= until_ns and not is_finished():
            self.now_ns, _, action, argument = heapq.heappop(events)
            action(argument)

    def call(self, side: Side, when_ns: int, action: Callable[[int], None]) -> None:
        """Let a user of this side call it then, or when its host runs again; the side does what follows."""
        self.at(when_ns, self._act, (side, action))

    def _act(self, what: tuple[Side, Callable[[int], None]]) -> None:
        side, action = what
        thaws_ns = self._thaws_ns(side)
        if thaws_ns:
            self.at(thaws_ns, self._act, what)
            return
        action(self.now_ns)
        self._pump(side)

    def inject(self, side: Side, payload: bytes, tos: int = 0, path: int = 0) -> None:
        """A datagram arrives that the other side has not sent."""
        self._take((side, (payload, tos, path)))

    def _note(self, what: bytes) -> None:
        self.trace = crc32(b"%d " % self.now_ns, crc32(what, self.trace))

    def _thaws_ns(self, side: Side) -> int:
        if not side.host.frozen:
            return 0
        return max((last for first, last in side.host.frozen if first <= self.now_ns < last), default=0)

    def _pump(self, side: Side) -> None:
        """Take everything that a side wants to send, and tell what has happened."""
        thaws_ns = self._thaws_ns(side)
        if thaws_ns:
            self.at(thaws_ns, self._pump, side)
            return
        self._count_round(side)
        end, now_ns = side.end, self.now_ns
        while (bursts := end.bursts(now_ns, side.host.maximum_packets)) is not None:
            self._count_round(side)
            self._send_bursts(side, bursts)
        for datagram in end.markers_to_send(now_ns):
            self._send(side, datagram.payload, datagram.tos, datagram.path)
        for datagram in end.datagrams_to_send(now_ns):
            self._send(side, datagram.payload, datagram.tos, datagram.path)
        control = end.control_to_send()
        if control:
            self._send_control(side, control)
        for event in end.events():
            self._note(repr((side.name, type(event).__name__)).encode())
            self.happened(side, event)
            if isinstance(event, ConnectionLost):
                side.control_open = False
                ended_ns = max(side.control_due_ns, self.now_ns + side.control.delay_ns)
                self.at(ended_ns, self._break, side.peer)
        due_ns = end.next_timer_ns()
        if due_ns is not None and due_ns != side.timer_ns:
            side.timer_ns = due_ns
            late_ns = self.random.randrange(1 + side.host.late_ns) if side.host.late_ns else 0
            self.at(due_ns + late_ns, self._ring, (side, due_ns))

    def _count_round(self, side: Side) -> None:
        side.busy_rounds = side.busy_rounds + 1 if side.busy_ns == self.now_ns else 0
        side.busy_ns = self.now_ns
        if side.busy_rounds > MOST_AT_ONE_INSTANT:
            raise LoopError(f"{side.name} does not come to rest at {self.now_ns} ns")

    def _ring(self, which: tuple[Side, int]) -> None:
        side, due_ns = which
        if side.timer_ns != due_ns:
            return  # another one was set since
        thaws_ns = self._thaws_ns(side)
        if thaws_ns:
            self.at(thaws_ns, self._ring, which)
            return
        side.timer_ns = None
        side.end.timer(self.now_ns)
        self._pump(side)

    def _send_bursts(self, side: Side, bursts: Bursts) -> None:
        starts = bursts.starts.tolist()
        for burst, (path, tos) in enumerate(zip(bursts.paths.tolist(), bursts.tos.tolist(), strict=True)):
            first, last = starts[burst], starts[burst + 1]
            payloads = [bursts.datagram(packet) for packet in range(first, last)]
            sizes = {len(payload) for payload in payloads[:-1]}
            assert len(sizes) <= 1, "packets of a burst differ in length"
            assert not sizes or len(payloads[-1]) <= min(sizes), "the last packet of a burst is longer"
            for payload in payloads:
                self._send(side, payload, tos, path)

    def _send(self, side: Side, payload: bytes, tos: int, path: int) -> None:
        side.datagrams_sent += 1
        self._note(payload)
        for arrives_ns, arrived, arrived_tos in side.links[path].carry(payload, tos, self.now_ns):
            self.at(arrives_ns, self._arrive, (side.peer, (arrived, arrived_tos, path)))

    def _arrive(self, what: tuple[Side, Arrived]) -> None:
        side, arrived = what
        attack = side.attack
        if attack.forged and self.random.random() < attack.forged:
            self._take((side, (self._forged(arrived[0], attack.knows_token), *arrived[1:])))
        if attack.replayed and self.random.random() < attack.replayed:
            self.at(self.now_ns + self.random.randrange(1 + attack.replay_ns), self._take, what)
        self._take(what)

    def _forged(self, payload: bytes, knows_token: bool) -> bytes:
        """Like the one that arrives, but for what the attacker writes: elements, place, and a token."""
        changed = bytearray(payload)
        if not knows_token:
            changed[TOKEN] = self.random.randbytes(8)
        for _ in range(self.random.randint(1, 3)):
            first = self.random.randrange(TOKEN.stop, max(TOKEN.stop + 1, len(changed)))
            piece = self.random.randbytes(min(self.random.randint(1, 8), len(changed) - first))
            changed[first : first + len(piece)] = piece
        return bytes(changed)

    def _take(self, what: tuple[Side, Arrived]) -> None:
        side, arrived = what
        if len(side.inbox) >= side.host.buffer_datagrams:
            return
        side.inbox.append(arrived)
        if not side.is_reading:
            side.is_reading = True
            self.at(self.now_ns + self.random.randrange(1 + side.host.read_ns), self._read, side)

    def _read(self, side: Side) -> None:
        thaws_ns = self._thaws_ns(side)
        if thaws_ns:
            self.at(thaws_ns, self._read, side)
            return
        inbox, side.inbox, side.is_reading = side.inbox, [], False
        together: list[DatagramGrid] = []
        for token, grid in grids(inbox, self.random, side.host.maximum_run):
            if token != side.end.receive_token:
                side.refused += grid.datagram_count
                continue
            together.append(grid)
            if self.random.random() < HANDED_OVER:
                self._hand_over(side, together)
        self._hand_over(side, together)
        self._pump(side)

    def _hand_over(self, side: Side, together: list[DatagramGrid]) -> None:
        if together:
            side.end.datagrams_received(together, self.now_ns)
        for grid in together:
            grid.memory[:] = NOISE
        together.clear()

    def _send_control(self, side: Side, data: bytes) -> None:
        self._note(data)
        side.most_control_bytes = max(side.most_control_bytes, len(data))
        control, place = side.control, 0
        waits_ns = max(
            (last for first, last in control.dead if first <= self.now_ns < last), default=self.now_ns
        )
        ends = {len(data), self.random.randint(1, len(data))} if control.jitter_ns else {len(data)}
        for end in sorted(ends):
            late_ns = self.random.randrange(1 + control.jitter_ns) if control.jitter_ns else 0
            side.control_due_ns = max(side.control_due_ns, waits_ns + control.delay_ns + late_ns)
            self.at(side.control_due_ns, self._deliver_control, (side.peer, data[place:end]))
            place = end

    def _deliver_control(self, what: tuple[Side, bytes]) -> None:
        side, data = what
        side.control_inbox.append(data)
        self._read_control(side)

    def _read_control(self, side: Side) -> None:
        thaws_ns = self._thaws_ns(side)
        if thaws_ns:
            self.at(thaws_ns, self._read_control, side)
            return
        inbox, side.control_inbox = side.control_inbox, []
        for data in inbox:
            place = 0
            while side.control_open and place < len(data):
                end = place + self.random.randint(1, side.control.chunk_bytes)
                side.end.control_received(data[place:end], self.now_ns)
                place = end
        self._pump(side)

    def _break(self, side: Side) -> None:
        if side.control_open:
            side.control_open = False
            error = PeerUnreachableError("the control channel broke", peer=side.peer.name)
            side.end.control_ended(error, self.now_ns)
            self._pump(side)
