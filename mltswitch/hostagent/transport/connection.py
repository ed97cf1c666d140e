"""All transfers with one peer, in both directions; a state machine that is told the time.

Datagrams and control bytes come in, bursts, datagrams and control bytes go out. Tell it everything that
arrived before it is asked what to send: a probe on the control channel may overtake datagrams that the
kernel already has.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

import numpy as np

from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
)
from mltswitch.hostagent.tagging import congestion_marked, is_congestion_marked
from mltswitch.hostagent.transport.acknowledgements import Acknowledgements
from mltswitch.hostagent.transport.compiled import NOTHING, Registry, Taken, compiled_intake
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram, DatagramGrid
from mltswitch.hostagent.transport.deadlines import Deadlines
from mltswitch.hostagent.transport.exchange import Exchange
from mltswitch.hostagent.transport.feedback import Feedback, marker, path_probe
from mltswitch.hostagent.transport.greeting import Greeting
from mltswitch.hostagent.transport.hello import (
    LocalEnd,
    PeerHello,
    Secrets,
    decode_hello,
    disagreement,
    encode_hello,
)
from mltswitch.hostagent.transport.inbox import Inbox
from mltswitch.hostagent.transport.intake import Group, Packet, groups, packets
from mltswitch.hostagent.transport.interfaces import (
    ConnectionLost,
    Direction,
    Event,
    Incoming,
    Outgoing,
    PeerReady,
    RateController,
    Sprayer,
    TransferKey,
)
from mltswitch.hostagent.transport.messages import (
    Bitmap,
    Cancel,
    Goodbye,
    Hello,
    Message,
    MessageReader,
    Ping,
    Pong,
    Probe,
    Ready,
    Reason,
    Stop,
    Stopped,
)
from mltswitch.hostagent.transport.outbox import Outbox
from mltswitch.hostagent.transport.pacing import Pacer
from mltswitch.hostagent.transport.settings import ConnectionSettings, Transport
from mltswitch.hostagent.transport.sharing import Share
from mltswitch.hostagent.transport.tally import Traffic
from mltswitch.wire import AGENT_HEADER_BYTES, AgentKind, WireFormatError
from mltswitch.wire.codec import struct_of
from mltswitch.wire.headers import ACKNOWLEDGEMENT

FEW_DATAGRAMS: Final = 16
"""That arrive together are taken in one by one."""
_ACKNOWLEDGEMENT: Final = struct_of(ACKNOWLEDGEMENT)


class Connection:
    """One peer; raises `AgentError` where a caller asks for what cannot be."""

    outbox_type: ClassVar[type[Outbox]] = Outbox
    inbox_type: ClassVar[type[Inbox]] = Inbox

    def __init__(
        self,
        settings: ConnectionSettings,
        local: LocalEnd,
        secrets: Secrets,
        sprayer_for: Callable[[PeerHello], Sprayer | None],
        rate: RateController,
        now_ns: int,
        registry: Registry | None = None,
    ) -> None:
        """`registry`: of whoever reads the datagrams of several connections by compiled passes, and tells
        `datagrams_read`; None: one of its own, where there are compiled passes."""
        self.receive_token = secrets.token
        """In every datagram that comes to this connection."""
        self.dropped_datagrams = 0
        """That were no packets of the peer's, or said what makes no sense."""
        self._settings = settings
        self._exchange = Exchange(settings, local, secrets)
        self._rate = rate
        self._acknowledgements = Acknowledgements(rate, settings.silence_ns)
        self._feedback = Feedback(
            max(entry.path for entry in local.data_addresses) + 1,
            settings.acknowledge_every_packets,
            settings.acknowledge_delay_ns,
        )
        is_udp = local.transport is not Transport.TCP
        self._compiled = compiled_intake(registry, self.receive_token, self._feedback) if is_udp else None
        self._outbox = self.outbox_type(self._exchange, rate, now_ns)
        self._inbox = self.inbox_type(self._exchange, self._compiled)
        self._halves: dict[Direction, Outbox | Inbox] = {
            Direction.SEND: self._outbox,
            Direction.RECEIVE: self._inbox,
        }
        self._sprayer_for = sprayer_for
        self._sprayer: Sprayer | None = None
        self._reader = MessageReader(is_greeted=False)
        self.greeting = Greeting(self._exchange, Hello(encode_hello(local, secrets)))
        self._error: AgentError | None = None
        self._deadlines = Deadlines(lambda direction, key: self._halves[direction].is_open(key))
        self._began_ns = self._heard_ns = self._pinged_ns = now_ns

    def pace(self, pacer: Pacer) -> None:
        """Let data out by another bucket than the usual one: where the kernel spaces packets, say."""
        self._outbox.pace(pacer)

    def share_rate(self, share: Share) -> None:
        """Let no more data out than this share of what all peers may get together."""
        self._outbox.share_rate(share)

    # What the user asks for

    def send(self, transfer: Outgoing, now_ns: int) -> None:
        """Post a tensor; it leaves when the peer has memory for it."""
        self._check_open(transfer.key)
        self._exchange.now_ns = now_ns
        self._outbox.post(transfer, now_ns)
        self._deadlines.add(transfer.deadline_ns, transfer.key, Direction.SEND)

    def receive(self, transfer: Incoming, now_ns: int) -> None:
        """Post memory for a tensor."""
        self._check_open(transfer.key)
        self._exchange.now_ns = now_ns
        self._inbox.post(transfer, now_ns)
        self._deadlines.add(transfer.deadline_ns, transfer.key, Direction.RECEIVE)

    def cancel(self, key: TransferKey, direction: Direction, reason: str, now_ns: int) -> None:
        """Give a transfer up; nothing happens where it has ended already."""
        self._exchange.now_ns = now_ns
        error = CancelledError(f"cancelled: {reason}")
        self._halves[direction].give_up(key, Reason.CANCELLED, error, now_ns)

    def close(self, reason: str, now_ns: int) -> None:
        """Say goodbye; every open transfer ends with an error."""
        if self._error is None:
            self.greeting.goodbye(reason)
            self._end(CancelledError(f"the connection was closed here: {reason}"), now_ns)

    # What arrives

    def control_received(self, data: bytes, now_ns: int) -> None:
        """Bytes of the control channel, cut anywhere."""
        if self._error is not None:
            return
        self._exchange.now_ns = self._heard_ns = now_ns
        try:
            for message in self._reader.messages(data):
                self._handle(message, now_ns)
                if self._error is not None:
                    return
        except (WireFormatError, ProtocolViolationError) as error:
            self._violated(error, now_ns)

    def control_ended(self, error: AgentError, now_ns: int) -> None:
        """The control channel broke."""
        self._end(error, now_ns)

    def datagrams_received(self, grids: Sequence[DatagramGrid], now_ns: int) -> None:
        """Datagrams of the peer's; those without our token, or without the right tag, change nothing."""
        taken = NOTHING
        if self._compiled is not None and self._compiled.is_connected:
            grids, taken = self._compiled.take(grids, now_ns)
        self.datagrams_read(grids, taken, now_ns)

    def datagrams_read(self, grids: Sequence[DatagramGrid], taken: Taken, now_ns: int) -> None:
        """The same of what a compiled read has left, and of what it has taken in."""
        if self._error is not None or self.peer is None:
            return
        self._exchange.now_ns = now_ns
        if taken.transfers:
            self._heard_ns = now_ns
            self._feedback.counted(now_ns)
            for receiving in taken.transfers:
                self._inbox.taken(receiving)
        for path, arrived_ns, *answer in taken.answers:
            self._heard_ns = now_ns
            self._acknowledgements.add(path, arrived_ns, answer, now_ns)
        if grids:
            self._take_in_grids(grids, now_ns)
        self._acknowledgements.tell(self._sprayer, now_ns)
        self._inbox.settle(now_ns)

    def _take_in_grids(self, grids: Sequence[DatagramGrid], now_ns: int) -> None:
        key = self._exchange.secrets.key if self._exchange.authenticates else None
        false_ones = sum(grid.datagram_count for grid in grids)
        if false_ones <= FEW_DATAGRAMS:
            found = list(packets(grids, self.receive_token, key, now_ns))
            false_ones -= len(found)
            self._take_in_few(found, now_ns)
        else:
            for group in groups(grids, self.receive_token, key, now_ns):
                self._heard_ns = now_ns
                false_ones -= group.size
                self._take_in(group, now_ns)
        self.dropped_datagrams += false_ones

    def timer(self, now_ns: int, read_until_ns: int | None = None) -> None:
        """Do what is due; to be called at `next_timer_ns` or soon after.

        `read_until_ns`: of the datagrams, all that had arrived by then have been handed over; None: by now.
        """
        if self._error is not None:
            return
        self._exchange.now_ns = now_ns
        if self.peer is None and now_ns - self._began_ns >= self._settings.handshake_ns:
            self._end(PeerUnreachableError("said nothing after the control channel was open"), now_ns)
            return
        if now_ns - self._heard_ns >= self._settings.silence_ns:
            seconds = self._settings.silence_ns / 1e9
            self._end(PeerUnreachableError(f"nothing was heard for {seconds:g} s"), now_ns)
            return
        nudge_ns = self._exchange.nudge_ns
        if self.peer is not None and nudge_ns is not None and now_ns >= nudge_ns:
            self._ping(now_ns)
            self._exchange.nudged()
        if self.peer is not None and now_ns - self._pinged_ns >= self._settings.ping_interval_ns:
            self._ping(now_ns)
        for key, direction in self._deadlines.take_passed(now_ns):
            error = DeadlineExceededError("not complete within its bound in time")
            self._halves[direction].give_up(key, Reason.DEADLINE, error, now_ns)
        self._inbox.timer(now_ns, now_ns if read_until_ns is None else read_until_ns)
        self._outbox.timer(now_ns)

    # What is to be sent

    def control_to_send(self) -> bytes:
        """What waits for the control channel; taken. Raises PeerUnreachableError where that is too much."""
        return self.greeting.take_unsaid(is_over=self.is_over)

    def bursts(self, now_ns: int, maximum_packets: int) -> Bursts | None:
        """Data that may leave now, about so many packets; None: nothing may."""
        if self._error is not None or self._sprayer is None:
            return None
        self._exchange.now_ns = now_ns
        return self._outbox.bursts(self._sprayer, now_ns, maximum_packets)

    def datagrams_to_send(self, now_ns: int) -> list[Datagram]:
        """Acknowledgements and path probes that are due; taken."""
        peer, sprayer = self.peer, self._sprayer
        if self._error is not None or peer is None or sprayer is None:
            return []
        key, tos = self._exchange.send_key, self._exchange.control_tos
        due = self._feedback.due(peer.token, key, tos, now_ns, len(peer.data_addresses))
        timer = sprayer.next_timer_ns()
        if timer is not None and timer <= now_ns:
            probes = sprayer.probes_due(now_ns)
            due += [path_probe(path, peer.token, key, tos, now_ns) for path in probes]
        return due

    def markers_to_send(self, now_ns: int) -> list[Datagram]:
        """What follows the data that `bursts` has given, once all of that has left; taken."""
        markers, peer, sprayer = self._outbox.take_markers(), self.peer, self._sprayer
        if not markers or self._error is not None or peer is None or sprayer is None:
            return []
        paths = np.array([entry.path for entry in markers])
        each = np.ones_like(paths)
        sprayer.sent(paths, each, each * AGENT_HEADER_BYTES, now_ns)
        key = self._exchange.send_key
        return [marker(entry, peer.token, key, now_ns) for entry in markers]

    def next_timer_ns(self) -> int | None:
        """When `timer`, `datagrams_to_send` and `bursts` should be called, if nothing arrives before."""
        if self._error is not None:
            return None
        settings = self._settings
        is_greeted = self.peer is not None
        times: list[int | None] = [
            self._heard_ns + settings.silence_ns,
            self._pinged_ns + settings.ping_interval_ns
            if is_greeted
            else self._began_ns + settings.handshake_ns,
            self._deadlines.next_ns(),
            self._inbox.next_timer_ns(),
            self._outbox.next_timer_ns(),
            self._feedback.next_ns(),
            self._exchange.nudge_ns if is_greeted else None,
            self._sprayer.next_timer_ns() if self._sprayer else None,
        ]
        return min(time for time in times if time is not None)

    @property
    def is_waiting_to_be_heard(self) -> bool:
        """Whether it would help to know that the peer's kernel has what was said: see `control_arrived`."""
        return self._exchange.nudge_ns is not None and not self._exchange.has_more_to_say

    def control_arrived(self, now_ns: int) -> None:
        """The peer's kernel has all that `control_to_send` has given; nothing else waits."""
        self._exchange.heard(now_ns)

    def events(self) -> list[Event]:
        """What has happened; taken."""
        return self._exchange.take_events()

    @property
    def peer(self) -> PeerHello | None:
        """What the peer said of itself; None before its HELLO."""
        return self._exchange.peer

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended."""
        return self._error is not None

    @property
    def late_packets(self) -> int:
        """Of transfers that are not open here: over, or never posted."""
        return self._inbox.late_packets

    @property
    def is_answering(self) -> bool:
        """Whether the peer has asked what has arrived: it is told when all that had arrived has been read."""
        return self._inbox.is_answering

    def observe(self, *, is_observed: bool) -> None:
        """Whether `events` should tell how transfers get on (`TransferProgress`), too."""
        self._exchange.is_observed = is_observed

    @property
    def rate_bps(self) -> float:
        """That the peer may be sent to with."""
        return self._rate.rate_bps

    def traffic(self) -> Traffic:
        """All counts since the connection began."""
        return Traffic(
            sent=self._outbox.totals(),
            received=self._inbox.totals(),
            open_sends=self._outbox.open_transfers,
            open_receives=self._inbox.open_transfers,
            arrived_by_path=self._feedback.received_packets,
            marked_by_path=self._feedback.marked_packets,
            late_packets=self._inbox.late_packets,
            dropped_datagrams=self.dropped_datagrams,
            rate_bps=self._rate.rate_bps,
            in_flight_bytes=self._sprayer.in_flight_bytes if self._sprayer else 0,
        )

    @property
    def sprayer(self) -> Sprayer | None:
        """Of the paths to the peer; None before its HELLO."""
        return self._sprayer

    # Messages of the control channel

    def _handle(self, message: Message, now_ns: int) -> None:
        if isinstance(message, Goodbye):
            self._end(self._farewell(message.text or "no reason"), now_ns)
            return
        if isinstance(message, Hello) != (self.peer is None):
            raise ProtocolViolationError("hello comes first, and once")
        match message:
            case Hello():
                self.greeting.is_known = True
                self._greeted(decode_hello(message.body), now_ns)
            case Ready():
                self._outbox.peer_is_ready(message, now_ns)
            case Probe():
                self._inbox.probed(message, now_ns)
            case Bitmap():
                self._outbox.bitmap(message, now_ns)
            case Stop():
                self._outbox.stop(message, now_ns)
            case Cancel():
                half = self._inbox if message.direction is Direction.SEND else self._outbox
                half.given_up(message, now_ns)
            case Pong():
                self._exchange.heard(message.sent_ns)
                self._rate.base_measured(now_ns - message.sent_ns, now_ns)
            case Ping():
                self._exchange.say(Pong(message.sent_ns))
            case Stopped():
                pass  # the round is closed already: what still arrives of it is late

    def _farewell(self, text: str) -> AgentError:
        """Whoever says goodbye instead of hello does not want us; later it just goes."""
        if self.peer is None:
            return PeerRefusedError(f"refused the connection: {text}")
        return PeerUnreachableError(f"closed the connection: {text}")

    def _greeted(self, hello: PeerHello, now_ns: int) -> None:
        problem = disagreement(self._exchange.local, hello)
        if problem is not None:
            self.greeting.goodbye(problem)
            self._end(PeerRefusedError(problem, peer=hello.name), now_ns)
            return
        self._exchange.peer = hello
        self._sprayer = self._sprayer_for(hello)
        self._ping(now_ns)
        self._exchange.happened(PeerReady(hello.name))
        if self._compiled is not None and not self._exchange.authenticates:
            self._compiled.connect()
        self._inbox.greeted(now_ns)

    def _ping(self, now_ns: int) -> None:
        self._pinged_ns = now_ns
        self._exchange.say(Ping(now_ns))

    # Datagrams

    def _take_in(self, group: Group, now_ns: int) -> None:
        if group.kind == AgentKind.ACKNOWLEDGEMENT:
            self.dropped_datagrams += self._acknowledgements.add_group(group, now_ns)
        elif group.kind == AgentKind.PROBE and not group.has_bodies:
            self._arrived(group, now_ns)
            self._feedback.answer_at_once()
            for path, attempt in zip(group.paths.tolist(), group.sequences.tolist(), strict=True):
                self._inbox.marked(group.transfer, path, attempt)
        elif group.kind == AgentKind.DATA and group.has_bodies:
            self._arrived(group, now_ns)
            self._inbox.data(group)
        else:
            self.dropped_datagrams += group.size

    def _arrived(self, group: Group, now_ns: int) -> None:
        is_marked = congestion_marked(group.tos)
        self._feedback.arrived(group.paths, group.sent_ns, group.arrived_ns, is_marked, now_ns)

    def _take_in_few(self, found: Sequence[Packet], now_ns: int) -> None:
        for packet in found:
            self._heard_ns = now_ns
            header, body_bytes = packet.header, len(packet.body)
            if header.kind == AgentKind.ACKNOWLEDGEMENT and body_bytes == ACKNOWLEDGEMENT.size_bytes:
                answer = _ACKNOWLEDGEMENT.unpack(packet.body)
                self._acknowledgements.add(header.path, packet.arrived_ns, answer, now_ns)
                continue
            is_probe = header.kind == AgentKind.PROBE and not body_bytes
            if not is_probe and not (header.kind == AgentKind.DATA and body_bytes):
                self.dropped_datagrams += 1
                continue
            self._feedback.arrived_one(
                header.path,
                header.sent_nanoseconds,
                packet.arrived_ns,
                is_marked=is_congestion_marked(packet.tos),
                now_ns=now_ns,
            )
            if is_probe:
                self._feedback.answer_at_once()
                self._inbox.marked(TransferKey(header.tensor, header.round), header.path, header.sequence)
            else:
                self._inbox.one(packet)

    # The end

    def _check_open(self, key: TransferKey) -> None:
        if self._error is not None:
            raise self._exchange.of_transfer(self._error, key)

    def _violated(self, error: WireFormatError | ProtocolViolationError, now_ns: int) -> None:
        what = error.what if isinstance(error, ProtocolViolationError) else str(error)
        self.greeting.is_known |= self._reader.has_heard_doctor
        self.greeting.goodbye(f"protocol violation: {what}")
        self._end(ProtocolViolationError(what), now_ns)

    def _end(self, error: AgentError, now_ns: int) -> None:
        if self._error is not None:
            return
        self._error = type(error)(error.what, peer=self._exchange.peer_name or error.peer)
        if self._compiled is not None:  # first: whatever fails below, nothing is written any more
            self._compiled.close_all()
        self._outbox.end_all(self._error, now_ns)
        self._inbox.end_all(self._error, now_ns)
        self._deadlines.clear()
        self._exchange.happened(ConnectionLost(self._error))
