"""One tensor on its way out: passes of packets, each ended by a probe, until the receiver says stop."""

import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.errors import TaggingError, TransferMismatchError
from mltswitch.hostagent.tagging import checked_dscp, tos
from mltswitch.hostagent.tensor.bitmap import decode_bitmap
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.transport.datagrams import Bursts
from mltswitch.hostagent.transport.interfaces import (
    Direction,
    LookingAhead,
    Marking,
    Outgoing,
    Sprayer,
    Stage,
    TransferProgress,
    TransferStatistics,
)
from mltswitch.hostagent.transport.messages import MAXIMUM_MARKED_PATHS, Probe, Ready
from mltswitch.hostagent.transport.packets import Chunk, burst_length
from mltswitch.hostagent.transport.tally import SendTally, bytes_in
from mltswitch.hostagent.words import words_of
from mltswitch.wire import Dscp, ElementType, WireFormatError

RESEND_MARGIN: Final = 1.1
"""More than the losses of the last pass explain."""
RESEND_LEAST: Final = 2
LOSS_MOST: Final = 0.9
"""Beyond it, resending by the loss of the last pass alone floods whatever loses so much."""
REST_LEAST_NS: Final = 1_000_000
REST_MOST_NS: Final = 500_000_000
"""Between passes of which nothing arrives."""

Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


class Phase(Enum):
    """Where a transfer stands."""

    WAITING = auto()
    """For the receiver's memory."""
    SENDING = auto()
    ASKED = auto()
    """The receiver has been asked what has arrived."""
    RESTING = auto()
    """Nothing arrives: the next pass waits."""
    ENDED = auto()


class SendTransfer:
    """Of one tensor to one peer."""

    def __init__(self, outgoing: Outgoing, order: int, posted_ns: int) -> None:
        self.outgoing = outgoing
        self.order = order
        self.phase = Phase.WAITING
        self.attempt = 0
        self.rest_until_ns = 0
        self.tally = SendTally()
        self._posted_ns = posted_ns if outgoing.posted_ns is None else outgoing.posted_ns
        self._layout: PacketLayout | None = None
        self._marking: Marking | None = None
        self._loss_bound = 0.0
        self._chunk: Chunk | None = None
        self._to_send: NDArray[np.int64] | None = None
        """Sequence numbers of this pass; None: all, in order."""
        self._position = 0
        self._pass_packets = 0
        self._pass_dscps: set[Dscp] = set()
        self._important = np.zeros(0, np.bool_)
        self._tagged_packets = 0
        """They are tagged in order, once each."""
        self._known_received = 0
        self._is_last_known = False
        """The last packet is among them."""
        self._rest_ns = 0

    @property
    def layout(self) -> PacketLayout:
        """Known once it has begun."""
        assert self._layout is not None  # noqa: S101  (callers ask after `begin`)
        return self._layout

    @property
    def has_begun(self) -> bool:
        """Whether the receiver was ready."""
        return self._layout is not None

    @property
    def important_packets(self) -> int:
        """Of those tagged so far: of all, once `has_tagged_all`."""
        return int(np.count_nonzero(self._important))

    @property
    def has_tagged_all(self) -> bool:
        """Whether the last chunk of the first pass was prepared."""
        return self._layout is not None and self._tagged_packets == self._layout.packet_count

    @property
    def packets_sent(self) -> int:
        """Retransmissions included."""
        return self.tally.totals().packets

    def begin(self, ready: Ready, element_bytes: int) -> None:
        """The receiver is ready: cut and sample the tensor.

        Raises TransferMismatchError where it expects another tensor, TaggingError where the policy fails.
        """
        tensor = self.outgoing.tensor
        if (ready.element_type, ready.element_count) != (tensor.element_type, tensor.element_count):
            raise TransferMismatchError(
                f"the receiver expects {ready.element_count} elements of {_type_name(ready.element_type)},"
                f" the sender has {tensor.element_count} of {_type_name(tensor.element_type)}"
            )
        try:
            layout = PacketLayout.fitting(tensor.element_type, tensor.element_count, element_bytes)
        except ValueError as error:
            raise TransferMismatchError(str(error)) from None
        self._marking = asked(lambda: self._marking_of(layout))
        self._layout = layout
        self._loss_bound = ready.loss_bound
        self._important = np.zeros(layout.packet_count, np.bool_)
        self.tally.begin(layout.packet_count)
        self.phase = Phase.SENDING

    def take(
        self,
        allowed_bytes: int,
        maximum_packets: int,
        *,
        token: int,
        key: bytes | None,
        overhead_bytes: int,
        chunk_packets: int,
        sprayer: Sprayer,
        now_ns: int,
    ) -> Bursts:
        """The next bursts of this pass; afterwards the pass may be over: `is_pass_over`.

        `overhead_bytes`: what a packet is longer than its elements, as a queue counts it. Raises TaggingError
        where the policy fails.
        """
        if self._chunk is None or self._chunk.is_over:
            self._chunk = self._next_chunk(chunk_packets, overhead_bytes, token, key)
        bursts = self._chunk.take(allowed_bytes, maximum_packets, sprayer, now_ns)
        self.tally.left(bursts)
        self._pass_packets += bursts.packet_count
        return bursts

    def end(self) -> None:
        """The tensor is the user's again: nobody looks at it any more.

        Whatever a policy of the user's raises then goes into the log.
        """
        self.phase = Phase.ENDED
        marking, self._marking, self._chunk = self._marking, None, None
        try:
            if isinstance(marking, LookingAhead):
                marking.look_no_more()
        except BaseException:  # noqa: BLE001  (the transfer has ended as it has, and others go on)
            _log.exception("a policy was told to look at its tensor no more, and has failed")

    @property
    def is_pass_over(self) -> bool:
        """Whether everything of this pass has been taken."""
        total = self.layout.packet_count if self._to_send is None else len(self._to_send)
        return self._position >= total and (self._chunk is None or self._chunk.is_over)

    @property
    def pass_packets(self) -> int:
        """That have left in this pass."""
        return self._pass_packets

    def ask(self, *, with_markers: bool) -> Probe:
        """The pass is over: what to ask the receiver."""
        self.attempt += 1
        self.phase = Phase.ASKED
        paths = self.tally.paths_of_pass if with_markers else ()
        if self.marker_tos is None or len(paths) > MAXIMUM_MARKED_PATHS:
            paths = ()
        return Probe(self.outgoing.key, self.attempt, self.important_packets, paths)

    @property
    def marker_tos(self) -> int | None:
        """The byte that holds markers behind the data of this pass; None: there is none, because the data is
        of several classes, and so in several queues."""
        if len(self._pass_dscps) != 1:
            return None
        return tos(next(iter(self._pass_dscps)), important=True)

    def answered(self, bits: bytes, now_ns: int) -> Phase:
        """What has arrived: begins the next pass, or a rest before it; raises WireFormatError."""
        received = decode_bitmap(bits, self.layout.packet_count)
        missing = np.flatnonzero(~received)
        if not len(missing):
            raise WireFormatError("nothing is missing", where="bitmap", expected="a stop instead")
        arrived = len(received) - len(missing)
        has_progressed = arrived > self._known_received
        pass_loss = 1 - (arrived - self._known_received) / max(1, self._pass_packets)
        self._known_received, self._is_last_known = arrived, bool(received[-1])
        sent = self._to_send
        self.tally.answered(missing if sent is None else sent[~received[sent]], self._important)
        self._to_send = self._chosen(missing, arrived, min(max(pass_loss, 0.0), LOSS_MOST))
        self._position = self._pass_packets = 0
        self._pass_dscps.clear()
        self._chunk = None
        if has_progressed:
            self._rest_ns = 0
            self.phase = Phase.SENDING
        else:
            self._rest_ns = min(max(2 * self._rest_ns, REST_LEAST_NS), REST_MOST_NS)
            self.rest_until_ns = now_ns + self._rest_ns
            self.phase = Phase.RESTING
        return self.phase

    def progress(self, stage: Stage, now_ns: int) -> TransferProgress:
        """For observers."""
        totals = self.tally.totals()
        return TransferProgress(
            self.outgoing.key,
            Direction.SEND,
            stage,
            self.attempt,
            self.layout.packet_count,
            totals.packets,
            self._known_received,
            totals.packets_lost if self.tally.was_answered else None,
            now_ns,
        )

    def statistics(
        self, packets_received: int | None, important_received: int | None, now_ns: int
    ) -> TransferStatistics:
        """At the end; what was received as the receiver says, if it does."""
        layout, totals, was_answered = self._layout, self.tally.totals(), self.tally.was_answered
        received = self._known_received if packets_received is None else packets_received
        return TransferStatistics(
            size_bytes=len(self.outgoing.tensor.data),
            seconds=(now_ns - self._posted_ns) / 1e9,
            packets=layout.packet_count if layout else 0,
            packets_sent=totals.packets,
            packets_resent=totals.packets_resent,
            packets_received=received,
            bytes_received=self._bytes_in(received),
            important_packets=self.important_packets if self.has_tagged_all else None,
            important_received=important_received,
            packets_marked=None,
            packets_duplicate=None,
            probes=self.attempt,
            packets_lost=totals.packets_lost if was_answered else None,
            important_lost=totals.important_lost if was_answered else None,
            classes=self.tally.classes(),
            packets_by_path=self.tally.by_path,
        )

    def _bytes_in(self, packets: int) -> int:
        """Elements that have arrived with so many packets. Who says how many does not say which: the last
        one, which may be shorter, is taken to be there where it may be."""
        layout = self._layout
        if layout is None:
            return 0
        has_left = self._to_send is not None or self._position == layout.packet_count
        may_have_come = has_left and packets > self._known_received
        has_last = self._is_last_known or may_have_come or packets == layout.packet_count
        return bytes_in(layout, packets, has_last=has_last)

    def _chosen(self, missing: NDArray[np.int64], arrived: int, loss: float) -> NDArray[np.int64]:
        """Important ones and enough of the others to come within the bound, if as many are lost as before."""
        count = self.layout.packet_count
        wanted = count - int(self._loss_bound * count) - arrived
        resent = int(max(wanted, 1) / (1 - loss) * RESEND_MARGIN) + RESEND_LEAST
        if resent >= len(missing):
            return missing
        is_important = self._important[missing]
        important, others = missing[is_important], missing[~is_important]
        return np.sort(np.concatenate((important, others[: max(0, resent - len(important))])))

    def _next_chunk(self, chunk_packets: int, overhead_bytes: int, token: int, key: bytes | None) -> Chunk:
        layout, first = self.layout, self._position
        # Whole bursts: where a rest ends each chunk, one path would get the full bursts, another the rests.
        burst = burst_length(self.outgoing.burst_packets, layout, key)
        chunk_packets = max(1, chunk_packets // burst) * burst
        is_repeated = self._to_send is not None
        if self._to_send is None:
            self._position = min(first + chunk_packets, layout.packet_count)
            sequences = np.arange(first, self._position)
            important = self._mark(first, self._position)
            mixed_packets = self._last_mixed(burst, chunk_packets) - first
        else:
            sequences = self._to_send[first : first + chunk_packets]
            self._position = first + len(sequences)
            important = self._important[sequences]
            mixed_packets = 0
        dscp = asked(lambda: checked_dscp(self.outgoing.dscp()))
        self._pass_dscps.add(dscp)
        self.tally.chunk(sequences, dscp, is_repeated=is_repeated)
        return Chunk(
            self.outgoing.tensor,
            layout,
            sequences,
            important,
            transfer=self.outgoing.key,
            layer=self.outgoing.layer,
            token=token,
            key=key,
            dscp=dscp,
            burst_packets=self.outgoing.burst_packets,
            overhead_bytes=overhead_bytes,
            is_repeated=is_repeated,
            mixed_packets=max(0, mixed_packets),
        )

    def _last_mixed(self, burst_packets: int, chunk_packets: int) -> int:
        """From which packet on important ones go first: a receiver that loses nothing has enough before it
        has heard all, and what it does without should be unimportant. Half of the packets are, mostly, some
        of which leave with a burst that began before; and no queue should meet only important ones for longer
        than a chunk takes.
        """
        count = self.layout.packet_count
        spared = int(self._loss_bound * count)
        return count - min(2 * (spared + burst_packets), chunk_packets) if spared else count

    def _marking_of(self, layout: PacketLayout) -> Marking:
        marking = self.outgoing.policy.mark(self.outgoing.tensor, layout)
        if not callable(getattr(marking, "important", None)):
            name = type(marking).__name__
            raise TaggingError(
                f"`mark` of the policy returned an object of type {name}, without a method `important`"
            )
        return marking

    def _mark(self, first: int, last: int) -> NDArray[np.bool_]:
        marking = self._marking
        assert marking is not None  # noqa: S101  (made by `begin`)
        important = asked(lambda: np.asarray(marking.important(first, last)))
        if important.shape != (last - first,) or important.dtype != np.bool_:
            raise TaggingError(
                f"the policy answered {important.dtype} of shape {important.shape} for {last - first} packets"
            )
        ours = self._important[first:last]  # the policy's array may change
        ours[:] = important
        self._tagged_packets = last
        return ours


def asked(question: Callable[[], Answer]) -> Answer:
    """What code of the user's answers; raises TaggingError whatever it raises, for its transfer alone.

    Also where it asks to leave (`sys.exit`): the thread that it is called in serves all transfers.
    """
    try:
        return question()
    except BaseException as error:
        raise TaggingError(words_of(error)) from error


def _type_name(number: int) -> str:
    """Of elements; whatever number the peer says."""
    try:
        return ElementType(number).name.lower()
    except ValueError:
        return f"a type that is not known here ({number})"
