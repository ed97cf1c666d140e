"""All tensors on their way to one peer: what leaves next, and what the peer says of it."""

import heapq
from typing import ClassVar, Final

from mltswitch.hostagent.errors import AgentError, CancelledError, TaggingError, TransferMismatchError
from mltswitch.hostagent.transport.datagrams import Bursts
from mltswitch.hostagent.transport.exchange import Exchange, Rounds, reason_of, violation
from mltswitch.hostagent.transport.feedback import Marker
from mltswitch.hostagent.transport.interfaces import (
    Direction,
    Outgoing,
    RateController,
    Sprayer,
    Stage,
    TransferDone,
    TransferKey,
)
from mltswitch.hostagent.transport.messages import Bitmap, Cancel, Ready, Reason, Stop, Stopped
from mltswitch.hostagent.transport.pacing import Pacer
from mltswitch.hostagent.transport.rounds import ByRound, Latest
from mltswitch.hostagent.transport.sending import Phase, SendTransfer
from mltswitch.hostagent.transport.sharing import Share
from mltswitch.hostagent.transport.tally import SentTotals
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

HEARD_BYTES: Final = 4 << 20
"""Of a pass: if it is longer, round trips have told of the queues that it meets."""


class Outbox:
    """The sending half of a connection."""

    transfer_type: ClassVar[type[SendTransfer]] = SendTransfer

    def __init__(self, exchange: Exchange, rate: RateController, now_ns: int) -> None:
        self._exchange = exchange
        self._rate = rate
        self._pacer = Pacer(now_ns)
        self._leaves_later = False
        self._share: Share | None = None
        self._rounds = Rounds(exchange)
        self._open: dict[TransferKey, SendTransfer] = {}
        self._ready: ByRound[Ready] = ByRound()
        """Memory of the peer's for tensors that are not posted here yet."""
        self._waiting: ByRound[SendTransfer] = ByRound()
        """Those that wait for memory of the peer's."""
        self._peers_latest = Latest(exchange.settings.maximum_transfers)
        self._posts = 0
        self._sendable: list[tuple[int, int, SendTransfer]] = []
        """Heap: front layers first, then in the order of posting."""
        self._resting: list[tuple[int, int, SendTransfer]] = []
        self._blocked_until_ns: int | None = None
        self._markers: list[Marker] = []
        """Behind the data that has been taken."""
        self._ended_totals = SentTotals()
        """Of transfers that are over."""

    def pace(self, pacer: Pacer) -> None:
        """Send by another bucket than the usual one: what has been handed over leaves in its own time."""
        self._pacer = pacer
        self._leaves_later = True

    def share_rate(self, share: Share) -> None:
        """Send no more than this share of all peers' rate either."""
        self._share = share

    def post(self, transfer: Outgoing, now_ns: int) -> None:
        """Raises TransferMismatchError or TooManyTransfersError."""
        given_up = self._rounds.post(transfer.key, len(self._open))
        self._posts += 1
        sending = self._open[transfer.key] = self.transfer_type(transfer, self._posts, now_ns)
        ready = self._ready.pop(transfer.key)
        for skipped, _ in self._ready.pop_earlier(transfer.key):
            self._give_up_unposted(skipped)
        if given_up is not None:
            self._end(sending, given_up, now_ns)
        elif ready is not None:
            self._begin(sending, ready, now_ns)
        elif self._peers_latest.is_past(transfer.key):
            self._end(sending, _skipped(), now_ns)
        else:
            self._waiting.add(transfer.key, sending)

    def give_up(self, key: TransferKey, reason: Reason, error: AgentError, now_ns: int) -> None:
        """End a transfer, and tell the peer; nothing where it has ended."""
        sending = self._open.get(key)
        if sending is not None:
            self._exchange.say(Cancel(key, Direction.SEND, reason, error.what))
            self._end(sending, error, now_ns)

    def end_all(self, error: AgentError, now_ns: int) -> None:
        """The connection is over."""
        self._sendable.clear()
        self._resting.clear()
        for sending in list(self._open.values()):
            self._end(sending, error, now_ns)
        self._ready.clear()
        if self._share is not None:
            self._share.leave()

    def is_open(self, key: TransferKey) -> bool:
        """Whether it is posted and not over."""
        return key in self._open

    @property
    def open_transfers(self) -> int:
        """Posted and not over."""
        return len(self._open)

    def totals(self) -> SentTotals:
        """Since the connection began."""
        totals = SentTotals()
        totals.add(self._ended_totals)
        for sending in self._open.values():
            totals.add(sending.tally.totals())
        return totals

    def _progressed(self, sending: SendTransfer, stage: Stage, now_ns: int) -> None:
        if self._exchange.is_observed:
            self._exchange.happened(sending.progress(stage, now_ns))

    # What the peer says

    def peer_is_ready(self, ready: Ready, now_ns: int) -> None:
        """Raises ProtocolViolationError."""
        sending = self._open.get(ready.key)
        if sending is not None:
            if sending.has_begun:
                raise violation("is ready twice", ready.key)
            self._begin(sending, ready, now_ns)
        elif self._rounds.is_past(ready.key):
            self._give_up_unposted(ready.key)
        elif self._ready.pop(ready.key) is None and self._is_full:
            self._keep_no_more(ready.key)
        else:
            self._ready.add(ready.key, ready)
        self._peer_has_posted(ready.key, now_ns)

    def _peer_has_posted(self, key: TransferKey, now_ns: int) -> None:
        """It says of each round that it has memory, in order, before it says anything of a later one: what it
        has not said that of by now it never will."""
        self._peers_latest.heard(key)
        for _, sending in self._waiting.pop_earlier(key):
            self._end(sending, _skipped(), now_ns)

    @property
    def _is_full(self) -> bool:
        """Whether as much memory of the peer's is kept in mind as may be."""
        return len(self._ready) >= self._exchange.settings.maximum_transfers

    def _keep_no_more(self, key: TransferKey) -> None:
        """The ends may allow for different numbers of transfers: this one ends, at both, and the others go
        on."""
        text = (
            f"the sender has posted neither it nor {len(self._ready)} others that there is memory for, and"
            " keeps no more in mind (its `maximum_transfers`)"
        )
        self._exchange.say(Cancel(key, Direction.SEND, Reason.CANCELLED, text))
        self._rounds.give_up(key, CancelledError(f"the receiver had memory for it too early: {text}"))

    def _give_up_unposted(self, key: TransferKey) -> None:
        """A round that can be posted no more; its receiver would wait until its deadline."""
        self._exchange.say(Cancel(key, Direction.SEND, Reason.CANCELLED, "the sender has given it up"))

    def bitmap(self, bitmap: Bitmap, now_ns: int) -> None:
        """Raises ProtocolViolationError or WireFormatError."""
        sending = self._posted(bitmap.key, "says what has arrived")
        if sending is None:
            return
        if sending.phase is not Phase.ASKED or bitmap.attempt != sending.attempt:
            raise violation("says what has arrived, and nobody asked", bitmap.key)
        if sending.answered(bitmap.bits, now_ns) is Phase.RESTING:
            heapq.heappush(self._resting, (sending.rest_until_ns, sending.order, sending))
        else:
            if not (self._sendable or self._leaves_later):
                # As at the start: nothing else leaves, and the receiver waits for these packets.
                self._pacer.refill(now_ns)
            self._push(sending)
        self._progressed(sending, Stage.ANSWERED, now_ns)

    def stop(self, stop: Stop, now_ns: int) -> None:
        """Raises ProtocolViolationError."""
        sending = self._posted(stop.key, "stops")
        if sending is None:
            return
        if not sending.has_begun or stop.packets_received > sending.layout.packet_count:
            raise violation("stops what it cannot have received", stop.key)
        self._exchange.say(Stopped(stop.key, sending.packets_sent, sending.important_packets))
        self._end(sending, None, now_ns, stop)

    def _posted(self, key: TransferKey, doing: str) -> SendTransfer | None:
        """None: it is over. Raises ProtocolViolationError where it never was posted."""
        sending = self._open.get(key)
        if sending is None and not self._rounds.is_past(key):
            raise violation(f"{doing} and nothing was sent", key)
        return sending

    def given_up(self, cancel: Cancel, now_ns: int) -> None:
        """The receiver gives a transfer up."""
        sending = self._open.get(cancel.key)
        if sending is not None:
            self._end(sending, cancel.error(), now_ns)
        else:
            self._ready.pop(cancel.key)
            self._rounds.give_up(cancel.key, cancel.error())
        self._peer_has_posted(cancel.key, now_ns)

    # What leaves

    def timer(self, now_ns: int) -> None:
        """Rests may be over."""
        while self._resting and self._resting[0][0] <= now_ns:
            sending = heapq.heappop(self._resting)[2]
            if sending.phase is Phase.RESTING:
                sending.phase = Phase.SENDING
                self._push(sending)

    def next_timer_ns(self) -> int | None:
        """When `timer` or `bursts` should be asked, if nothing arrives before."""
        times = [self._resting[0][0]] if self._resting else []
        if self._blocked_until_ns is not None:
            times.append(self._blocked_until_ns)
        return min(times, default=None)

    def bursts(self, sprayer: Sprayer, now_ns: int, maximum_packets: int) -> Bursts | None:
        """Data that may leave now, about so many packets; None: nothing may."""
        self._blocked_until_ns = None
        while self._sendable:
            sending = self._sendable[0][2]
            if sending.phase is not Phase.SENDING:
                heapq.heappop(self._sendable)
                continue
            allowed = self._allowed_bytes(sprayer, now_ns)
            if allowed <= 0:
                return None
            try:
                return self._take(sending, allowed, maximum_packets, sprayer, now_ns)
            except TaggingError as error:
                self.give_up(sending.outgoing.key, Reason.CANCELLED, error, now_ns)
        if self._share is not None:
            self._share.rest()
        return None

    def take_markers(self) -> list[Marker]:
        """To be sent behind all that `bursts` has given until now."""
        taken, self._markers = self._markers, []
        return taken

    @property
    def _is_calm(self) -> bool:
        """Nothing slows this peer's flow down: neither the network nor other peers."""
        return self._rate.is_highest and self._share is None

    def _allowed_bytes(self, sprayer: Sprayer, now_ns: int) -> int:
        peer = self._exchange.peer
        under_way = sprayer.in_flight_bytes
        window = max(0, peer.window_bytes - under_way) if peer else 0
        if under_way and not window:
            return 0  # an acknowledgement, or the sprayer's timer, goes on
        self._pacer.calm(is_calm=self._is_calm)
        if self._leaves_later:
            self._pacer.spread(sprayer.largest_share)
        credit = self._pacer.may_leave_bytes(self._rate.rate_bps, now_ns)
        if not credit:
            self._blocked_until_ns = self._pacer.next_ns(self._rate.rate_bps, now_ns)
        elif self._share is not None:
            credit = min(credit, self._share.may_leave_bytes(now_ns))
            if not credit:
                self._blocked_until_ns = self._share.next_ns(now_ns)
        return min(credit, max(window, 1))

    def _take(
        self, sending: SendTransfer, allowed_bytes: int, maximum_packets: int, sprayer: Sprayer, now_ns: int
    ) -> Bursts:
        exchange = self._exchange
        bursts = sending.take(
            allowed_bytes,
            maximum_packets,
            token=exchange.peer.token if exchange.peer else 0,
            key=exchange.send_key,
            overhead_bytes=exchange.packet_overhead_bytes,
            chunk_packets=self._chunk_packets(),
            sprayer=sprayer,
            now_ns=now_ns,
        )
        overhead = exchange.packet_overhead_bytes * bursts.packet_count
        size_bytes = int(bursts.payload_bytes.sum()) + overhead
        self._pacer.left(size_bytes)
        if self._share is not None:
            self._share.left(size_bytes)
        if sending.is_pass_over:
            heapq.heappop(self._sendable)
            probe = sending.ask(with_markers=self._may_wait_in_queues(sending))
            exchange.say(probe)
            if sending.marker_tos is not None:
                self._markers += [
                    Marker(path, probe.key, probe.attempt, sending.marker_tos) for path in probe.marked_paths
                ]
            self._progressed(sending, Stage.ASKED, now_ns)
        return bursts

    def _may_wait_in_queues(self, sending: SendTransfer) -> bool:
        """Whether the receiver would wait for stragglers. A marker costs as much as dozens of packets, and
        would overtake data that the kernel keeps for later."""
        if self._leaves_later:
            return False
        pass_bytes = sending.pass_packets * self._exchange.element_bytes
        return not self._is_calm or pass_bytes < HEARD_BYTES

    def _chunk_packets(self) -> int:
        settings = self._exchange.settings
        size_bytes = self._rate.rate_bps / BITS_PER_BYTE * settings.chunk_ns / NANOSECONDS
        packet_bytes = self._exchange.element_bytes + self._exchange.packet_overhead_bytes
        return min(settings.chunk_packets, max(int(size_bytes / packet_bytes), settings.least_chunk_packets))

    def _begin(self, sending: SendTransfer, ready: Ready, now_ns: int) -> None:
        self._waiting.pop(ready.key)
        try:
            sending.begin(ready, self._exchange.element_bytes)
        except (TransferMismatchError, TaggingError) as error:
            self.give_up(ready.key, reason_of(error), error, now_ns)
        else:
            self._push(sending)
            self._progressed(sending, Stage.BEGUN, now_ns)

    def _push(self, sending: SendTransfer) -> None:
        heapq.heappush(self._sendable, (sending.outgoing.layer, sending.order, sending))

    def _end(
        self, sending: SendTransfer, error: AgentError | None, now_ns: int, stop: Stop | None = None
    ) -> None:
        key = sending.outgoing.key
        del self._open[key]
        self._waiting.pop(key)
        if sending.phase in {Phase.SENDING, Phase.RESTING}:
            # Behind others it would keep its memory until they have left.
            waiting = self._sendable if sending.phase is Phase.SENDING else self._resting
            waiting[:] = [entry for entry in waiting if entry[2] is not sending]
            heapq.heapify(waiting)
        self._markers = [marker for marker in self._markers if marker.key != key]
        sending.end()
        named = None if error is None else self._exchange.of_transfer(error, key)
        self._ended_totals.add(sending.tally.totals())
        received, important = (
            (None, None)
            if stop is None
            else (stop.packets_received, min(stop.important_received, stop.packets_received))
        )
        statistics = sending.statistics(received, important, now_ns) if sending.has_begun else None
        self._exchange.happened(TransferDone(key, Direction.SEND, named, statistics, None, None))


def _skipped() -> CancelledError:
    return CancelledError("the receiver has skipped it")
