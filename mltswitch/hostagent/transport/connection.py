"""All transfers with one peer, in both directions; a state machine that is told the time.

Datagrams and control bytes come in, bursts, datagrams and control bytes go out. Tell it everything that
arrived before it is asked what to send: a probe on the control channel may overtake datagrams that the
kernel already has.
"""

import heapq
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
    TaggingError,
    TransferMismatchError,
)
from mltswitch.hostagent.transport.authentication import genuine
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram, DatagramGrid
from mltswitch.hostagent.transport.feedback import Feedback, QueueDelay, path_probe
from mltswitch.hostagent.transport.hello import (
    PROTOCOL_VERSIONS,
    LocalEnd,
    PeerHello,
    Secrets,
    decode_hello,
    encode_hello,
)
from mltswitch.hostagent.transport.interfaces import (
    ConnectionLost,
    Direction,
    Event,
    Incoming,
    Outgoing,
    PeerReady,
    RateController,
    Sprayer,
    TransferDone,
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
    encode_message,
)
from mltswitch.hostagent.transport.pacing import Pacer
from mltswitch.hostagent.transport.packets import wire_overhead_bytes
from mltswitch.hostagent.transport.receiving import ReceiveTransfer
from mltswitch.hostagent.transport.sending import Phase, SendTransfer
from mltswitch.hostagent.transport.settings import ConnectionSettings
from mltswitch.units import BITS_PER_BYTE
from mltswitch.wire import AGENT_HEADER_BYTES, AUTHENTICATION_TAG_BYTES, AgentFlag, AgentKind, WireFormatError
from mltswitch.wire.codec import decode_fields
from mltswitch.wire.headers import ACKNOWLEDGEMENT, AGENT, AGENT_VERSION

_OFFSETS_BYTES = {field.name: bits // 8 for bits, field in AGENT.with_offsets()}
_PREFIX = np.dtype(
    {
        "names": ["lead", "token", "key"],
        "formats": [">u4", ">u8", ">u8"],
        "offsets": [0, _OFFSETS_BYTES["flow_token"], _OFFSETS_BYTES["tensor"]],
        "itemsize": AGENT_HEADER_BYTES,
    }
)
"""Version, kind, flags and element type; the token; tensor and round."""
_WITHOUT_FLAGS = 0xFFFF00FF
_COMMON_WORDS = 3
_COMMON_MASK = np.frombuffer(b"\xff\xff\x00\xff" + b"\xff" * 16 + b"\x00" * 4, np.uint64)
"""What packets of one kind and transfer have in common: all before the layer, but for the flags."""
_REASONS: dict[Reason, type[AgentError]] = {
    Reason.CANCELLED: CancelledError,
    Reason.DEADLINE: DeadlineExceededError,
    Reason.MISMATCH: TransferMismatchError,
}


class Connection:
    """One peer; raises `AgentError` where a caller asks for what cannot be."""

    def __init__(
        self,
        settings: ConnectionSettings,
        local: LocalEnd,
        secrets: Secrets,
        sprayer_for: Callable[[PeerHello], Sprayer],
        rate: RateController,
        now_ns: int,
    ) -> None:
        self.peer: PeerHello | None = None
        self.receive_token = secrets.token
        self.dropped_datagrams = 0
        """That carried our token, but were no packets of ours."""
        self.late_packets = 0
        """Of transfers that are not open here: over, or never posted."""
        self._settings = settings
        self._local = local
        self._secrets = secrets
        self._sprayer_for = sprayer_for
        self._sprayer: Sprayer | None = None
        self._rate = rate
        self._pacer = Pacer(now_ns)
        self._feedback = Feedback(
            max(entry.path for entry in local.data_addresses) + 1,
            settings.acknowledge_every_packets,
            settings.acknowledge_delay_ns,
        )
        self._queue_delay = QueueDelay()
        self._reader = MessageReader()
        self._outgoing_control = bytearray(encode_message(Hello(encode_hello(local, secrets))))
        self._events: list[Event] = []
        self._error: AgentError | None = None
        self._sending: dict[TransferKey, SendTransfer] = {}
        self._receiving: dict[TransferKey, ReceiveTransfer] = {}
        self._ready: dict[TransferKey, Ready | Cancel] = {}
        """What the peer said of tensors that are not posted here yet."""
        self._refused_by_sender: dict[TransferKey, Cancel] = {}
        self._last_sent_round: dict[int, int] = {}
        self._last_received_round: dict[int, int] = {}
        self._order = 0
        self._sendable: list[tuple[int, int, SendTransfer]] = []
        """Heap: front layers first, then in the order of posting."""
        self._resting: list[tuple[int, int, SendTransfer]] = []
        self._deadlines: list[tuple[int, int, Direction, TransferKey]] = []
        self._answers: dict[TransferKey, ReceiveTransfer] = {}
        """Transfers with a probe to be answered."""
        self._began_ns = self._heard_ns = self._pinged_ns = now_ns
        self._blocked_until_ns: int | None = None

    # What the user asks for

    def send(self, transfer: Outgoing, now_ns: int) -> None:
        """Post a tensor; it leaves when the peer has memory for it."""
        self._check_post(transfer.key, self._sending, self._last_sent_round)
        self._order += 1
        sending = SendTransfer(transfer, self._order, now_ns)
        self._sending[transfer.key] = sending
        self._add_deadline(transfer.deadline_ns, Direction.SEND, transfer.key)
        said = self._ready.pop(transfer.key, None)
        if isinstance(said, Cancel):
            self._end_sending(sending, self._cancelled_by_peer(said), now_ns)
        elif said is not None:
            self._begin_sending(sending, said, now_ns)

    def receive(self, transfer: Incoming, now_ns: int) -> None:
        """Post memory for a tensor."""
        self._check_post(transfer.key, self._receiving, self._last_received_round)
        receiving = ReceiveTransfer(transfer, now_ns)
        self._receiving[transfer.key] = receiving
        self._order += 1
        self._add_deadline(transfer.deadline_ns, Direction.RECEIVE, transfer.key)
        said = self._refused_by_sender.pop(transfer.key, None)
        if said is not None:
            self._end_receiving(receiving, self._cancelled_by_peer(said), now_ns)
        elif self.peer is not None:
            self._announce(receiving, now_ns)

    def cancel(self, key: TransferKey, direction: Direction, reason: str, now_ns: int) -> None:
        """Give a transfer up; nothing happens where it has ended already."""
        error = CancelledError(f"cancelled: {reason}", peer=self._peer_name)
        self._give_up(key, direction, Reason.CANCELLED, error, now_ns)

    def close(self, reason: str, now_ns: int) -> None:
        """Say goodbye; every open transfer ends with an error."""
        if self._error is None:
            self._say(Goodbye(reason))
            self._end(CancelledError(f"the connection was closed here: {reason}"), now_ns)

    # What arrives

    def control_received(self, data: bytes, now_ns: int) -> None:
        """Bytes of the control channel, cut anywhere."""
        if self._error is not None:
            return
        self._heard_ns = now_ns
        try:
            for message in self._reader.messages(data):
                self._handle(message, now_ns)
                if self._error is not None:
                    return
        except WireFormatError as error:
            self._violated(str(error), now_ns)
        except ProtocolViolationError as error:
            self._violated(error.what, now_ns)

    def control_ended(self, error: AgentError, now_ns: int) -> None:
        """The control channel broke."""
        self._end(error, now_ns)

    def datagrams_received(self, grid: DatagramGrid, now_ns: int) -> None:
        """Datagrams of the peer's; those without our token, or without the right tag, change nothing."""
        peer = self.peer
        if self._error is not None or peer is None:
            return
        if grid.datagram_bytes < AGENT_HEADER_BYTES + self._tag_bytes:
            self.dropped_datagrams += grid.datagram_count
            return
        headers = np.ascontiguousarray(grid.headers())
        words = headers.view(np.uint64).reshape(*headers.shape, -1)[..., :_COMMON_WORDS]
        is_uniform = not ((words ^ words[0, 0]) & _COMMON_MASK).any()
        is_valid = self._valid(grid, headers[:1, :1] if is_uniform else headers)
        if self._authenticates and is_uniform and is_valid.all():
            is_valid = genuine(self._secrets.key, grid)
        if not is_valid.all():
            self.dropped_datagrams += (
                int(np.count_nonzero(~is_valid)) if is_valid.size > 1 else grid.datagram_count
            )
            if not is_valid.any():
                return
        self._heard_ns = now_ns
        marked = np.broadcast_to(((grid.tos & 3) == 3)[:, np.newaxis], headers.shape)
        if is_uniform and is_valid.all():
            self._same(grid, headers, marked, None, now_ns)
            return
        prefix = headers.view(_PREFIX)
        kinds, key = prefix["lead"] & _WITHOUT_FLAGS, prefix["key"]
        is_valid = np.broadcast_to(is_valid, headers.shape)
        pairs = set(zip(kinds[is_valid].tolist(), key[is_valid].tolist(), strict=True))
        for kind, transfer in sorted(pairs):
            chosen = is_valid & (kinds == kind) & (key == transfer)
            self._same(grid, headers[chosen], marked[chosen], chosen, now_ns)

    def _valid(self, grid: DatagramGrid, headers: NDArray[np.void]) -> NDArray[np.bool_]:
        """Which carry our token and version, and where all of the grid is asked for, the right tag."""
        is_valid = (headers["flow_token"] == self.receive_token) & (headers["version"] == AGENT_VERSION)
        if self._authenticates:
            is_valid &= (headers["flags"] & AgentFlag.AUTHENTICATED) != 0
            if headers.size == grid.datagram_count and is_valid.any():
                is_valid &= genuine(self._secrets.key, grid)
        return np.asarray(is_valid)

    def timer(self, now_ns: int) -> None:
        """Do what is due; to be called at `next_timer_ns` or soon after."""
        if self._error is not None:
            return
        if self.peer is None and now_ns - self._began_ns >= self._settings.handshake_ns:
            self._end(PeerUnreachableError("said nothing after the control channel was open"), now_ns)
            return
        if now_ns - self._heard_ns >= self._settings.silence_ns:
            seconds = self._settings.silence_ns / 1e9
            self._end(PeerUnreachableError(f"nothing was heard for {seconds:g} s"), now_ns)
            return
        if self.peer is not None and now_ns - self._pinged_ns >= self._settings.ping_interval_ns:
            self._pinged_ns = now_ns
            self._say(Ping(now_ns))
        while self._deadlines and self._deadlines[0][0] <= now_ns:
            _, _, direction, key = heapq.heappop(self._deadlines)
            error = DeadlineExceededError("not complete within its bound in time", peer=self._peer_name)
            self._give_up(key, direction, Reason.DEADLINE, error, now_ns)
        for receiving in [entry for entry in self._answers.values() if (entry.answer_ns or 0) <= now_ns]:
            self._answer(receiving)
        while self._resting and self._resting[0][0] <= now_ns:
            sending = heapq.heappop(self._resting)[2]
            if sending.phase is Phase.RESTING:
                sending.phase = Phase.SENDING
                self._push(sending)

    # What is to be sent

    def control_to_send(self) -> bytes:
        """What waits for the control channel; taken."""
        data = bytes(self._outgoing_control)
        self._outgoing_control.clear()
        return data

    def bursts(self, now_ns: int, maximum_packets: int) -> Bursts | None:
        """Data that may leave now, about so many packets; None: nothing may."""
        self._blocked_until_ns = None
        sprayer, peer = self._sprayer, self.peer
        while self._error is None and sprayer is not None and peer is not None and self._sendable:
            sending = self._sendable[0][2]
            if sending.phase is not Phase.SENDING:
                heapq.heappop(self._sendable)
                continue
            under_way = sprayer.in_flight_bytes
            window = peer.window_bytes - under_way
            allowed = min(self._pacer.may_leave_bytes(self._rate.rate_bps, now_ns), window)
            if under_way and window <= 0:
                return None  # an acknowledgement, or the sprayer's timer, goes on
            if allowed <= 0:
                if window > 0:
                    self._blocked_until_ns = self._pacer.next_ns(self._rate.rate_bps, now_ns)
                    return None
                allowed = 1
            try:
                bursts = sending.take(
                    allowed,
                    maximum_packets,
                    token=peer.token,
                    key=peer.key_bytes if self._authenticates else None,
                    chunk_packets=self._chunk_packets(),
                    sprayer=sprayer,
                    now_ns=now_ns,
                )
            except TaggingError as error:
                self._give_up(sending.outgoing.key, Direction.SEND, Reason.CANCELLED, error, now_ns)
                continue
            overhead = self._packet_overhead_bytes * bursts.packet_count
            self._pacer.left(int(bursts.payload_bytes.sum()) + overhead)
            if sending.is_pass_over:
                heapq.heappop(self._sendable)
                key = sending.outgoing.key
                self._say(Probe(key, sending.ask(), sending.important_packets))
            return bursts
        return None

    def datagrams_to_send(self, now_ns: int) -> list[Datagram]:
        """Acknowledgements and path probes that are due; taken."""
        peer, sprayer = self.peer, self._sprayer
        if self._error is not None or peer is None or sprayer is None:
            return []
        key = peer.key_bytes if self._authenticates else None
        tos = self._local.control_dscp << 2
        due = self._feedback.due(peer.token, key, tos, now_ns)
        timer = sprayer.next_timer_ns()
        if timer is not None and timer <= now_ns:
            probes = sprayer.probes_due(now_ns)
            due += [path_probe(path, peer.token, key, tos, now_ns) for path in probes]
        return due

    def next_timer_ns(self) -> int | None:
        """When `timer`, `datagrams_to_send` and `bursts` should be called, if nothing arrives before."""
        if self._error is not None:
            return None
        times = [self._heard_ns + self._settings.silence_ns]
        if self.peer is None:
            times.append(self._began_ns + self._settings.handshake_ns)
        else:
            times.append(self._pinged_ns + self._settings.ping_interval_ns)
        if self._deadlines:
            times.append(self._deadlines[0][0])
        times += [entry.answer_ns for entry in self._answers.values() if entry.answer_ns is not None]
        if self._resting:
            times.append(self._resting[0][0])
        feedback = self._feedback.next_ns()
        sprayer = self._sprayer.next_timer_ns() if self._sprayer else None
        times += [time for time in (feedback, sprayer, self._blocked_until_ns) if time is not None]
        return min(times)

    def events(self) -> list[Event]:
        """What has happened; taken."""
        events, self._events = self._events, []
        return events

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended."""
        return self._error is not None

    @property
    def sprayer(self) -> Sprayer | None:
        """Of the paths to the peer; None before its HELLO."""
        return self._sprayer

    # Messages of the control channel

    def _handle(self, message: Message, now_ns: int) -> None:
        if isinstance(message, Goodbye):
            self._end(PeerUnreachableError(f"closed the connection: {message.text or 'no reason'}"), now_ns)
            return
        if isinstance(message, Hello) != (self.peer is None):
            raise ProtocolViolationError("hello comes first, and once")
        match message:
            case Hello():
                self._greeted(decode_hello(message.body), now_ns)
            case Ready():
                self._peer_is_ready(message, now_ns)
            case Probe():
                self._probed(message, now_ns)
            case Bitmap():
                self._bitmap(message, now_ns)
            case Stop():
                self._stopped(message, now_ns)
            case Cancel():
                self._peer_gives_up(message, now_ns)
            case Pong():
                self._rate.base_measured(now_ns - message.sent_ns, now_ns)
            case Ping():
                self._say(Pong(message.sent_ns))
            case Stopped():
                pass  # the round is closed already: what still arrives of it is late

    def _greeted(self, hello: PeerHello, now_ns: int) -> None:
        if not set(hello.versions) & set(PROTOCOL_VERSIONS):
            ours = ", ".join(map(str, PROTOCOL_VERSIONS))
            theirs = ", ".join(map(str, hello.versions))
            text = f"no common version of the protocol: {ours} here, {theirs} there"
            self._say(Goodbye(text))
            self._end(PeerRefusedError(text, peer=hello.name), now_ns)
            return
        self.peer = hello
        self._sprayer = self._sprayer_for(hello)
        self._pinged_ns = now_ns
        self._say(Ping(now_ns))
        self._events.append(PeerReady(hello.name))
        for receiving in list(self._receiving.values()):
            self._announce(receiving, now_ns)

    def _peer_is_ready(self, ready: Ready, now_ns: int) -> None:
        sending = self._sending.get(ready.key)
        if sending is not None:
            if sending.has_begun:
                raise ProtocolViolationError(f"is ready twice for tensor {ready.key.tensor}")
            self._begin_sending(sending, ready, now_ns)
        elif ready.key.round_number <= self._last_sent_round.get(ready.key.tensor, -1):
            self._say(Cancel(ready.key, Direction.SEND, Reason.CANCELLED, "the sender has given it up"))
        elif len(self._ready) >= self._settings.maximum_transfers:
            raise ProtocolViolationError(f"is ready for more than {len(self._ready)} tensors at once")
        else:
            self._ready[ready.key] = ready

    def _probed(self, probe: Probe, now_ns: int) -> None:
        receiving = self._receiving.get(probe.key)
        if receiving is None or receiving.layout is None:
            return
        if probe.important_packets > receiving.layout.packet_count or probe.attempt <= receiving.attempt:
            raise ProtocolViolationError(f"probe {probe.attempt} of tensor {probe.key.tensor} makes no sense")
        receiving.probed(probe.attempt, probe.important_packets, now_ns)
        if not self._finish_if_complete(receiving, now_ns):
            self._answers[probe.key] = receiving
            self._set_answer_time(receiving)

    def _bitmap(self, bitmap: Bitmap, now_ns: int) -> None:
        sending = self._sending.get(bitmap.key)
        if sending is None:
            return
        if sending.phase is not Phase.ASKED or bitmap.attempt != sending.attempt:
            raise ProtocolViolationError(f"a bitmap of tensor {bitmap.key.tensor} that nobody asked for")
        if sending.answered(bitmap.bits, now_ns) is Phase.RESTING:
            heapq.heappush(self._resting, (sending.rest_until_ns, sending.order, sending))
        else:
            self._push(sending)

    def _stopped(self, stop: Stop, now_ns: int) -> None:
        sending = self._sending.get(stop.key)
        if sending is None:
            return
        if not sending.has_begun or stop.packets_received > sending.layout.packet_count:
            raise ProtocolViolationError(f"stops tensor {stop.key.tensor} without having received it")
        self._say(Stopped(stop.key, sending.packets_sent, sending.important_packets))
        self._end_sending(sending, None, now_ns, stop.packets_received)

    def _peer_gives_up(self, cancel: Cancel, now_ns: int) -> None:
        error = self._cancelled_by_peer(cancel)
        if cancel.direction is Direction.SEND:
            receiving = self._receiving.get(cancel.key)
            if receiving is not None:
                self._end_receiving(receiving, error, now_ns)
            elif cancel.key.round_number > self._last_received_round.get(cancel.key.tensor, -1):
                self._remember(self._refused_by_sender, cancel)
            return
        sending = self._sending.get(cancel.key)
        if sending is not None:
            self._end_sending(sending, error, now_ns)
        elif cancel.key in self._ready:
            self._ready[cancel.key] = cancel
        elif cancel.key.round_number > self._last_sent_round.get(cancel.key.tensor, -1):
            self._remember(self._ready, cancel)

    def _remember(
        self, place: dict[TransferKey, Cancel] | dict[TransferKey, Ready | Cancel], cancel: Cancel
    ) -> None:
        if len(place) >= self._settings.maximum_transfers:
            raise ProtocolViolationError("cancels more tensors than could be open")
        place[cancel.key] = cancel

    # Datagrams

    def _same(
        self,
        grid: DatagramGrid,
        headers: NDArray[np.void],
        marked: NDArray[np.bool_],
        chosen: NDArray[np.bool_] | None,
        now_ns: int,
    ) -> None:
        """Datagrams of one kind, element type and transfer: those chosen, or all."""
        first = headers.reshape(-1)[0]
        agent_kind, element_type = int(first["kind"]), int(first["element_type"])
        body_bytes = grid.datagram_bytes - AGENT_HEADER_BYTES - self._tag_bytes
        if agent_kind == AgentKind.ACKNOWLEDGEMENT:
            self._acknowledged(grid, headers, chosen, body_bytes, now_ns)
        elif agent_kind == AgentKind.PROBE and body_bytes == 0:
            self._feedback.arrived(headers, marked, now_ns)
            self._feedback.answer_at_once()
        elif agent_kind == AgentKind.DATA and body_bytes > 0:
            self._feedback.arrived(headers, marked, now_ns)
            self._queue_delay.arrived(headers["sent_nanoseconds"], now_ns)
            receiving = self._receiving.get(TransferKey(int(first["tensor"]), int(first["round"])))
            if receiving is None:
                self.late_packets += headers.size
            elif element_type != receiving.incoming.tensor.element_type:
                self.dropped_datagrams += headers.size
            else:
                bodies = grid.bodies(body_bytes)
                receiving.accept(headers, bodies if chosen is None else bodies[chosen], marked)
                if not self._finish_if_complete(receiving, now_ns) and receiving.answer_ns is not None:
                    self._set_answer_time(receiving)
        else:
            self.dropped_datagrams += headers.size

    def _acknowledged(
        self,
        grid: DatagramGrid,
        headers: NDArray[np.void],
        chosen: NDArray[np.bool_] | None,
        body_bytes: int,
        now_ns: int,
    ) -> None:
        if body_bytes != ACKNOWLEDGEMENT.size_bytes or self._sprayer is None:
            self.dropped_datagrams += headers.size
            return
        bodies = grid.bodies(body_bytes)
        bodies = bodies.reshape(-1) if chosen is None else bodies[chosen]
        for path, body in zip(headers["path"].reshape(-1).tolist(), bodies, strict=True):
            echoed, held, received, marked = decode_fields(ACKNOWLEDGEMENT, body.tobytes())
            delay_ns = now_ns - echoed - held
            self._sprayer.acknowledged(path, echoed, received, marked, delay_ns, now_ns)
            if 0 < delay_ns <= self._settings.silence_ns:
                self._rate.acknowledged(delay_ns, now_ns)

    # Transfers

    def _chunk_packets(self) -> int:
        settings = self._settings
        size_bytes = self._rate.rate_bps / BITS_PER_BYTE * settings.chunk_ns / 1e9
        packets = int(size_bytes / (self._element_bytes + self._packet_overhead_bytes))
        return min(settings.chunk_packets, max(packets, settings.least_chunk_packets))

    def _begin_sending(self, sending: SendTransfer, ready: Ready, now_ns: int) -> None:
        try:
            sending.begin(ready, self._element_bytes)
        except (TransferMismatchError, TaggingError) as error:
            is_mismatch = isinstance(error, TransferMismatchError)
            reason = Reason.MISMATCH if is_mismatch else Reason.CANCELLED
            self._give_up(ready.key, Direction.SEND, reason, error, now_ns)
            return
        self._push(sending)

    def _announce(self, receiving: ReceiveTransfer, now_ns: int) -> None:
        incoming = receiving.incoming
        try:
            receiving.begin(self._element_bytes)
        except ValueError as error:
            mismatch = TransferMismatchError(str(error))
            self._give_up(incoming.key, Direction.RECEIVE, Reason.MISMATCH, mismatch, now_ns)
            return
        self._say(
            Ready(
                incoming.key,
                incoming.tensor.element_type,
                incoming.tensor.element_count,
                incoming.loss_bound,
                incoming.important_loss_bound,
            )
        )

    def _finish_if_complete(self, receiving: ReceiveTransfer, now_ns: int) -> bool:
        if not receiving.is_complete:
            return False
        receiving.finish()
        key = receiving.incoming.key
        self._say(Stop(key, receiving.received_count, receiving.important_count))
        self._end_receiving(receiving, None, now_ns)
        return True

    def _set_answer_time(self, receiving: ReceiveTransfer) -> None:
        """What was sent before the probe arrives later than it by the queues' delay at most."""
        delay_ns = self._queue_delay.spread_ns + self._settings.answer_margin_ns
        receiving.answer_ns = max(receiving.answer_ns or 0, receiving.probed_ns + delay_ns)

    def _answer(self, receiving: ReceiveTransfer) -> None:
        key = receiving.incoming.key
        del self._answers[key]
        receiving.answer_ns = None
        self._say(Bitmap(key, receiving.attempt, receiving.bits()))

    def _give_up(
        self, key: TransferKey, direction: Direction, reason: Reason, error: AgentError, now_ns: int
    ) -> None:
        """End a transfer that is open, and tell the peer."""
        if direction is Direction.SEND:
            sending = self._sending.get(key)
            if sending is not None:
                self._say(Cancel(key, direction, reason, error.what))
                self._end_sending(sending, error, now_ns)
        else:
            receiving = self._receiving.get(key)
            if receiving is not None:
                if receiving.layout is not None or self.peer is None or reason is Reason.MISMATCH:
                    self._say(Cancel(key, direction, reason, error.what))
                self._end_receiving(receiving, error, now_ns)

    def _end_sending(
        self, sending: SendTransfer, error: AgentError | None, now_ns: int, received: int | None = None
    ) -> None:
        key = sending.outgoing.key
        del self._sending[key]
        sending.phase = Phase.ASKED  # what the heaps still hold of it is not sent
        statistics = sending.statistics(received, now_ns)
        self._events.append(TransferDone(key, Direction.SEND, self._of(error, key), statistics, None, None))

    def _end_receiving(self, receiving: ReceiveTransfer, error: AgentError | None, now_ns: int) -> None:
        key = receiving.incoming.key
        del self._receiving[key]
        self._answers.pop(key, None)
        self._events.append(
            TransferDone(
                key,
                Direction.RECEIVE,
                self._of(error, key),
                receiving.statistics(now_ns),
                receiving.received if receiving.layout else None,
                receiving.layout,
            )
        )

    def _push(self, sending: SendTransfer) -> None:
        heapq.heappush(self._sendable, (sending.outgoing.layer, sending.order, sending))

    # The rest

    def _check_post(
        self,
        key: TransferKey,
        open_transfers: dict[TransferKey, SendTransfer] | dict[TransferKey, ReceiveTransfer],
        last_rounds: dict[int, int],
    ) -> None:
        if self._error is not None:
            raise self._of(self._error, key) or self._error
        if not 0 <= key.tensor < 1 << 32 or not 0 <= key.round_number < 1 << 32:
            raise TransferMismatchError("tensor and round are numbers of 32 bits", peer=self._peer_name)
        last = last_rounds.get(key.tensor)
        if last is not None and key.round_number <= last:
            problem = f"round {last} of it was posted before; rounds rise, so that old packets are told apart"
        elif last is None and len(last_rounds) >= self._settings.maximum_tensors:
            problem = f"more than {len(last_rounds)} tensors"
        elif len(open_transfers) >= self._settings.maximum_transfers:
            problem = f"{len(open_transfers)} transfers are open"
        else:
            problem = ""
        if problem:
            raise TransferMismatchError(
                problem, peer=self._peer_name, tensor=key.tensor, round_number=key.round_number
            )
        last_rounds[key.tensor] = key.round_number

    def _add_deadline(self, deadline_ns: int, direction: Direction, key: TransferKey) -> None:
        heapq.heappush(self._deadlines, (deadline_ns, self._order, direction, key))

    def _violated(self, what: str, now_ns: int) -> None:
        self._say(Goodbye(f"protocol violation: {what}"))
        self._end(ProtocolViolationError(what), now_ns)

    def _end(self, error: AgentError, now_ns: int) -> None:
        if self._error is not None:
            return
        named = type(error)(error.what, peer=error.peer or self._peer_name)
        for sending in list(self._sending.values()):
            self._end_sending(sending, named, now_ns)
        for receiving in list(self._receiving.values()):
            self._end_receiving(receiving, named, now_ns)
        for forgotten in (self._ready, self._refused_by_sender):
            forgotten.clear()
        self._sendable.clear()
        self._resting.clear()
        self._deadlines.clear()
        self._error = named
        self._events.append(ConnectionLost(named))

    def _cancelled_by_peer(self, cancel: Cancel) -> AgentError:
        return _REASONS[cancel.reason](f"given up by the peer: {cancel.text}", peer=self._peer_name)

    def _of(self, error: AgentError | None, key: TransferKey) -> AgentError | None:
        """The same error, of one transfer."""
        if error is None:
            return None
        peer = error.peer or self._peer_name
        return type(error)(error.what, peer=peer, tensor=key.tensor, round_number=key.round_number)

    def _say(self, message: Message) -> None:
        self._outgoing_control += encode_message(message)

    @property
    def _peer_name(self) -> str:
        return self.peer.name if self.peer else ""

    @property
    def _authenticates(self) -> bool:
        return self._local.authenticate or (self.peer is not None and self.peer.authenticate)

    @property
    def _tag_bytes(self) -> int:
        return AUTHENTICATION_TAG_BYTES if self._authenticates else 0

    @property
    def _element_bytes(self) -> int:
        """Of a full packet."""
        assert self.peer is not None  # noqa: S101  (asked after the hello)
        payload = min(self._local.payload_bytes, self.peer.payload_bytes)
        return payload - AGENT_HEADER_BYTES - self._tag_bytes

    @property
    def _packet_overhead_bytes(self) -> int:
        return wire_overhead_bytes(b"" if self._authenticates else None)
