"""All tensors on their way from one peer: where packets go, and what the peer is told of them."""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from mltswitch.hostagent.errors import AgentError, TransferMismatchError
from mltswitch.hostagent.transport.compiled import CompiledIntake
from mltswitch.hostagent.transport.exchange import Exchange, Rounds
from mltswitch.hostagent.transport.feedback import QueueDelay
from mltswitch.hostagent.transport.intake import Group, Packet
from mltswitch.hostagent.transport.interfaces import Direction, Incoming, Stage, TransferDone, TransferKey
from mltswitch.hostagent.transport.messages import Bitmap, Cancel, Probe, Ready, Reason, Stop
from mltswitch.hostagent.transport.receiving import ReceiveTransfer
from mltswitch.hostagent.transport.tally import ReceivedTotals


class Inbox:
    """The receiving half of a connection."""

    transfer_type: ClassVar[type[ReceiveTransfer]] = ReceiveTransfer

    def __init__(self, exchange: Exchange, compiled: CompiledIntake | None) -> None:
        """`compiled`: told which packets it may take in; None: there are no compiled passes."""
        self.late_packets = 0
        """Of transfers that are not open here: over, or never posted."""
        self._exchange = exchange
        self._compiled = compiled
        self._rounds = Rounds(exchange)
        self._open: dict[TransferKey, ReceiveTransfer] = {}
        self._answers: dict[TransferKey, ReceiveTransfer] = {}
        """Those with a probe to be answered."""
        self._arrived: dict[tuple[int, int, int], tuple[int, int]] = {}
        """Tensor, round and element type of what has arrived since `settle`: the least and the most that its
        packets took."""
        self._queue_delay = QueueDelay()
        self._paths = max(entry.path for entry in exchange.local.data_addresses) + 1
        self._ended_totals = ReceivedTotals()
        """Of transfers that are over."""
        self._given_up_early: dict[TransferKey, Cancel] = {}
        """Before the peer has said hello."""

    def post(self, transfer: Incoming, now_ns: int) -> None:
        """Raises TransferMismatchError or TooManyTransfersError."""
        given_up = self._rounds.post(transfer.key, len(self._open))
        receiving = self._open[transfer.key] = self.transfer_type(transfer, now_ns, self._paths)
        if given_up is not None:
            # The sender knows that; what it learns is that earlier rounds will not be posted any more.
            text = "the sender has given it up"
            self._exchange.say(Cancel(transfer.key, Direction.RECEIVE, Reason.CANCELLED, text))
            self._end(receiving, given_up, now_ns)
        elif self._exchange.peer is not None:
            self._announce(receiving, now_ns)

    def greeted(self, now_ns: int) -> None:
        """The peer has said hello: it may be told what is posted, and what has been given up since."""
        early, self._given_up_early = self._given_up_early, {}
        # Of each tensor in order: nothing is said of a round before all earlier ones.
        for key in sorted([*self._open, *early], key=lambda key: key.round_number):
            if key in early:
                self._exchange.say(early[key])
            else:
                self._announce(self._open[key], now_ns)

    def give_up(self, key: TransferKey, reason: Reason, error: AgentError, now_ns: int) -> None:
        """End a transfer, and tell the peer; nothing where it has ended."""
        receiving = self._open.get(key)
        if receiving is not None:
            cancel = Cancel(key, Direction.RECEIVE, reason, error.what)
            if self._exchange.peer is None:
                self._given_up_early[key] = cancel
            else:
                self._exchange.say(cancel)
            self._end(receiving, error, now_ns)

    def end_all(self, error: AgentError, now_ns: int) -> None:
        """The connection is over."""
        for receiving in list(self._open.values()):
            self._end(receiving, error, now_ns)

    def is_open(self, key: TransferKey) -> bool:
        """Whether it is posted and not over."""
        return key in self._open

    @property
    def open_transfers(self) -> int:
        """Posted and not over."""
        return len(self._open)

    @property
    def is_answering(self) -> bool:
        """Whether a probe waits for its answer."""
        return bool(self._answers)

    def totals(self) -> ReceivedTotals:
        """Since the connection began."""
        totals = ReceivedTotals()
        totals.add(self._ended_totals)
        for receiving in self._open.values():
            if receiving.received_count:  # most of many wait for their turn
                totals.add(receiving.totals())
        return totals

    def _progressed(self, receiving: ReceiveTransfer, stage: Stage, now_ns: int) -> None:
        if self._exchange.is_observed:
            self._exchange.happened(receiving.progress(stage, now_ns))

    # What the peer says

    def probed(self, probe: Probe, now_ns: int) -> None:
        """Raises ProtocolViolationError."""
        receiving = self._open.get(probe.key)
        if receiving is None or receiving.layout is None:
            return
        receiving.probed(probe, now_ns)
        self._progressed(receiving, Stage.ASKED, now_ns)
        if not self._finish_if_complete(receiving, now_ns):
            self._answers[probe.key] = receiving
            self._set_answer_time(receiving)

    def given_up(self, cancel: Cancel, now_ns: int) -> None:
        """The sender gives a transfer up."""
        receiving = self._open.get(cancel.key)
        if receiving is not None:
            self._end(receiving, cancel.error(), now_ns)
        else:
            self._rounds.give_up(cancel.key, cancel.error())

    def data(self, group: Group) -> None:
        """Packets of one transfer; those of none, or of another element type, change nothing.

        What arrives together, in this and the following ways, is to be followed by `settle`.
        """
        took_ns = group.arrived_ns - group.sent_ns.astype(np.int64)
        self._took(group.transfer, group.element_type, int(took_ns.min()), int(took_ns.max()))
        receiving = self._receiving(group.transfer, group.element_type)
        if receiving is None:
            self.late_packets += group.size
        else:
            receiving.accept(group)

    def one(self, packet: Packet) -> None:
        """The same of one packet."""
        header = packet.header
        key, took_ns = TransferKey(header.tensor, header.round), packet.arrived_ns - header.sent_nanoseconds
        self._took(key, header.element_type, took_ns, took_ns)
        receiving = self._receiving(key, header.element_type)
        if receiving is None:
            self.late_packets += 1
        else:
            receiving.accept_one(packet)

    def taken(self, receiving: ReceiveTransfer) -> None:
        """The same of what a compiled read has taken in of one open transfer."""
        incoming = receiving.incoming
        self._took(incoming.key, incoming.tensor.element_type, *receiving.end_read())

    def marked(self, key: TransferKey, path: int, attempt: int) -> None:
        """Nothing that left before this probe is on its way on this path any more."""
        receiving = self._open.get(key)
        if receiving is not None:
            receiving.marked(path, attempt)
            if receiving.answer_ns is not None:
                self._set_answer_time(receiving)

    def settle(self, now_ns: int) -> None:
        """All that has arrived together has been taken in: whoever waits for it may go on.

        The order is that of the transfers, and not by which of the ways above their packets were taken in.
        """
        for (tensor, round_number, element_type), took_ns in sorted(self._arrived.items()):
            self._queue_delay.arrived(*took_ns, now_ns)
            receiving = self._receiving(TransferKey(tensor, round_number), element_type)
            if receiving is None or self._finish_if_complete(receiving, now_ns):
                continue
            if receiving.answer_ns is not None:
                self._set_answer_time(receiving)
        self._arrived.clear()

    def _took(self, key: TransferKey, element_type: int, fastest_ns: int, slowest_ns: int) -> None:
        place = key.tensor, key.round_number, element_type
        least_ns, most_ns = self._arrived.get(place, (fastest_ns, slowest_ns))
        self._arrived[place] = min(fastest_ns, least_ns), max(slowest_ns, most_ns)

    def _receiving(self, key: TransferKey, element_type: int) -> ReceiveTransfer | None:
        """That packets say they belong to; None: it is not open, or of another element type."""
        receiving = self._open.get(key)
        if receiving is None or element_type != receiving.incoming.tensor.element_type:
            return None
        return receiving

    # Answers to probes

    def timer(self, now_ns: int, read_until_ns: int) -> None:
        """Answer the probes that have waited long enough: what arrived meanwhile must have been read."""
        due_ns = min(now_ns, read_until_ns)
        for receiving in [entry for entry in self._answers.values() if (entry.answer_ns or 0) <= due_ns]:
            key = receiving.incoming.key
            del self._answers[key]
            receiving.answer_ns = None
            self._exchange.say(Bitmap(key, receiving.attempt, receiving.bits()))
            self._progressed(receiving, Stage.ANSWERED, now_ns)

    def next_timer_ns(self) -> int | None:
        """When `timer` should be called."""
        times = (entry.answer_ns for entry in self._answers.values())
        return min((time for time in times if time is not None), default=None)

    def _set_answer_time(self, receiving: ReceiveTransfer) -> None:
        """What was sent before the probe arrives later than it by the queues' delay at most."""
        if receiving.has_heard_all:
            receiving.answer_ns = receiving.probed_ns
            return
        delay_ns = self._queue_delay.spread_ns + self._exchange.settings.answer_margin_ns
        receiving.answer_ns = max(receiving.answer_ns or 0, receiving.probed_ns + delay_ns)

    def _announce(self, receiving: ReceiveTransfer, now_ns: int) -> None:
        incoming = receiving.incoming
        try:
            receiving.begin(self._exchange.element_bytes)
        except ValueError as error:
            self.give_up(incoming.key, Reason.MISMATCH, TransferMismatchError(str(error)), now_ns)
            return
        if self._compiled is not None and not self._exchange.authenticates:
            self._compiled.open(receiving)
        self._exchange.say(
            Ready(
                incoming.key,
                incoming.tensor.element_type,
                incoming.tensor.element_count,
                incoming.loss_bound,
                incoming.important_loss_bound,
            )
        )
        self._progressed(receiving, Stage.BEGUN, now_ns)

    def _finish_if_complete(self, receiving: ReceiveTransfer, now_ns: int) -> bool:
        if not receiving.is_complete:
            return False
        receiving.finish()
        key = receiving.incoming.key
        self._exchange.say(Stop(key, receiving.received_count, receiving.important_count))
        self._end(receiving, None, now_ns)
        return True

    def _end(self, receiving: ReceiveTransfer, error: AgentError | None, now_ns: int) -> None:
        if self._compiled is not None:
            self._compiled.close(receiving)
        key = receiving.incoming.key
        del self._open[key]
        self._answers.pop(key, None)
        self._ended_totals.add(receiving.totals())
        named = None if error is None else self._exchange.of_transfer(error, key)
        done = TransferDone(key, Direction.RECEIVE, named, None, None, None)
        if receiving.has_begun:
            statistics = receiving.statistics(now_ns)
            done = replace(done, statistics=statistics, received=receiving.received, layout=receiving.layout)
        self._exchange.happened(done)
