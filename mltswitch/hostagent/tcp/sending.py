"""Tensors on their way out over TCP: chunk after chunk, front layers first."""

import heapq
from typing import ClassVar, Final

from mltswitch.hostagent.errors import TaggingError
from mltswitch.hostagent.tagging import checked_dscp
from mltswitch.hostagent.tcp.frames import GIVEN_UP, WHOLE, FrameHeader
from mltswitch.hostagent.transport.exchange import violation
from mltswitch.hostagent.transport.interfaces import Outgoing, TransferStatistics
from mltswitch.hostagent.transport.messages import Bitmap, Reason
from mltswitch.hostagent.transport.outbox import Outbox
from mltswitch.hostagent.transport.sending import Phase, SendTransfer, asked
from mltswitch.wire import Dscp

_END_MARK_PARTS: Final = 1


class Frame:
    """One chunk with its header and its end mark, as much of it as has not been written yet."""

    def __init__(self, sending: SendTransfer, header: FrameHeader, dscp: Dscp) -> None:
        self.dscp = dscp
        self._sending = sending
        first, last = header.offset_bytes, header.offset_bytes + header.size_bytes
        elements = sending.outgoing.tensor.data.data[first:last]
        self._parts = [memoryview(header.encode()), elements, memoryview(WHOLE)]
        self._is_begun = self._is_given_up = False

    def parts(self) -> list[memoryview]:
        """What is to be written next, in order; none: all has been.

        No memory of a tensor that has ended: it is the user's again.
        """
        if self._sending.phase is Phase.ENDED and not self._is_given_up:
            self._give_up()
        return self._parts

    def written(self, size_bytes: int) -> None:
        """So many of the bytes of `parts` have been."""
        self._is_begun = self._is_begun or size_bytes > 0
        while self._parts and size_bytes >= len(self._parts[0]):
            size_bytes -= len(self._parts.pop(0))
        if size_bytes:
            self._parts[0] = self._parts[0][size_bytes:]

    def _give_up(self) -> None:
        self._is_given_up = True
        if not self._is_begun:
            self._parts = []
        elif len(self._parts) > _END_MARK_PARTS:
            *header, elements, _ = self._parts
            self._parts = [*header, memoryview(bytes(len(elements))), memoryview(GIVEN_UP)]


class SendChunks(SendTransfer):
    """One tensor; every chunk is sent once."""

    def __init__(self, outgoing: Outgoing, order: int, posted_ns: int) -> None:
        super().__init__(outgoing, order, posted_ns)
        self._taken = 0

    def next_frame(self) -> Frame:
        """The next chunk; raises TaggingError where the user's code does not say its class."""
        dscp = asked(lambda: checked_dscp(self.outgoing.dscp()))
        layout = self.layout
        is_last = self._taken == layout.packet_count - 1
        header = FrameHeader(
            self.outgoing.key,
            self._taken * layout.full_bytes,
            layout.last_bytes if is_last else layout.full_bytes,
        )
        self._taken += 1
        self.tally.left_whole(dscp)
        return Frame(self, header, dscp)

    def statistics(
        self,
        packets_received: int | None,
        important_received: int | None,  # noqa: ARG002  (nothing is important)
        now_ns: int,
    ) -> TransferStatistics:
        """At the end; packets are chunks, and none is more important than others."""
        return super().statistics(packets_received, None, now_ns)

    @property
    def is_all_taken(self) -> bool:
        """Whether no chunk is left; the receiver will say stop."""
        return self._taken == self.layout.packet_count


class TcpOutbox(Outbox):
    """The sending half of a connection over TCP."""

    transfer_type: ClassVar[type[SendTransfer]] = SendChunks

    @property
    def has_frames(self) -> bool:
        """Whether `next_frame` has something to give, unless the user's code fails."""
        while self._sendable and self._sendable[0][2].phase is not Phase.SENDING:
            heapq.heappop(self._sendable)
        return len(self._sendable) > 0

    def next_frame(self, now_ns: int) -> Frame | None:
        """Of the front-most layer that waits; None: nothing does."""
        while self.has_frames:
            sending = self._sendable[0][2]
            assert isinstance(sending, SendChunks)  # noqa: S101  (made as `transfer_type`)
            try:
                frame = sending.next_frame()
            except TaggingError as error:
                self.give_up(sending.outgoing.key, Reason.CANCELLED, error, now_ns)
                continue
            if sending.is_all_taken:
                heapq.heappop(self._sendable)
                sending.phase = Phase.ASKED
            return frame
        return None

    def bitmap(self, bitmap: Bitmap, now_ns: int) -> None:  # noqa: ARG002  (nothing of it is looked at)
        """Nobody asks for one over TCP: raises ProtocolViolationError."""
        raise violation("says what has arrived, and nobody asked", bitmap.key)
