"""Tensors on their way out over TCP: chunk after chunk, front layers first."""

import heapq
from typing import ClassVar, Final

from mltswitch.hostagent.errors import AgentError, TaggingError
from mltswitch.hostagent.tagging import checked_dscp
from mltswitch.hostagent.tcp.frames import GIVEN_UP, WHOLE, FrameHeader
from mltswitch.hostagent.transport.exchange import violation
from mltswitch.hostagent.transport.interfaces import Outgoing, TransferKey, TransferStatistics
from mltswitch.hostagent.transport.messages import Bitmap, Reason
from mltswitch.hostagent.transport.outbox import Outbox
from mltswitch.hostagent.transport.sending import Phase, SendTransfer, asked
from mltswitch.wire import Dscp

ZEROS_BYTES: Final = 64 * 1024
_ZEROS: Final = memoryview(bytes(ZEROS_BYTES))


class Frame:
    """One chunk with its header and its end mark, as much of it as has not been written yet.

    It names its tensor, and never holds it: the memory is the user's again as soon as the transfer ends,
    whenever the socket has room. A key names one transfer, for rounds rise.
    """

    def __init__(self, outbox: "TcpOutbox", header: FrameHeader, dscp: Dscp) -> None:
        self.dscp = dscp
        self._outbox, self._key = outbox, header.key
        self._header, self._mark = memoryview(header.encode()), memoryview(WHOLE)
        self._first, self._last = header.offset_bytes, header.offset_bytes + header.size_bytes
        """Of the elements that have not been written."""
        self._is_begun = self._is_given_up = False

    def parts(self) -> list[memoryview]:
        """What is to be written next, in order; none: all has been.

        No memory of a tensor that has ended: it is the user's again.
        """
        if self._first == self._last:
            return [part for part in (self._header, self._mark) if part]
        sending = None if self._is_given_up else self._outbox.find(self._key)
        if sending is not None:
            elements = sending.outgoing.tensor.data.data[self._first : self._last]
        elif self._is_begun:
            self._is_given_up, self._mark = True, memoryview(GIVEN_UP)
            elements = _ZEROS[: self._last - self._first]
        else:
            return []
        is_rest = len(elements) == self._last - self._first
        return [part for part in (self._header, elements, self._mark if is_rest else None) if part]

    def written(self, size_bytes: int) -> None:
        """So many of the bytes of `parts` have been."""
        self._is_begun = self._is_begun or size_bytes > 0
        of_header = min(size_bytes, len(self._header))
        of_elements = min(size_bytes - of_header, self._last - self._first)
        self._header = self._header[of_header:]
        self._first += of_elements
        self._mark = self._mark[size_bytes - of_header - of_elements :]


class SendChunks(SendTransfer):
    """One tensor; every chunk is sent once."""

    def __init__(self, outgoing: Outgoing, order: int, posted_ns: int) -> None:
        super().__init__(outgoing, order, posted_ns)
        self._taken = 0

    def next_frame(self, outbox: "TcpOutbox") -> Frame:
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
        return Frame(outbox, header, dscp)

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

    def find(self, key: TransferKey) -> SendTransfer | None:
        """An open transfer, whose memory is still ours to read; None: it has ended."""
        return self._open.get(key)

    def end_all(self, error: AgentError, now_ns: int) -> None:
        """The connection is over."""
        self._sendable.clear()  # first: each would be looked for in it
        super().end_all(error, now_ns)

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
                frame = sending.next_frame(self)
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
