"""Tensors on their way in over TCP: the bytes of each chunk go straight to their place."""

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from mltswitch.hostagent.tcp.frames import END_MARK_BYTES, FRAME_HEADER_BYTES, FrameHeader, is_whole
from mltswitch.hostagent.transport.exchange import violation
from mltswitch.hostagent.transport.inbox import Inbox
from mltswitch.hostagent.transport.interfaces import TransferKey, TransferStatistics
from mltswitch.hostagent.transport.messages import Probe
from mltswitch.hostagent.transport.receiving import ReceiveTransfer

SCRATCH_BYTES: Final = 64 * 1024
_SCRATCH: Final = memoryview(bytearray(SCRATCH_BYTES))
"""Where the bytes go that are nobody's any more; it is never read."""


class ReceiveChunks(ReceiveTransfer):
    """One tensor; complete when all of it is there, whatever the loss bound."""

    _is_placed = False
    """A chunk has begun, whose bytes go to its place as they come."""

    @property
    def has_begun(self) -> bool:
        """Whether anything of the tensor has come."""
        return self._is_placed

    @property
    def is_complete(self) -> bool:
        """Whether every chunk has arrived."""
        return self.layout is not None and self.received_count == self.layout.packet_count

    def statistics(self, now_ns: int) -> TransferStatistics:
        """At the end; packets are chunks, and what the kernel makes of them on the wire is not seen."""
        return replace(super().statistics(now_ns), important_received=None, packets_marked=None)

    def place(self, header: FrameHeader) -> int:
        """Number of the chunk; raises ProtocolViolationError for one that is none, or has come before."""
        layout = self.layout
        number, rest = divmod(header.offset_bytes, layout.full_bytes) if layout else (0, 1)
        if layout is None or rest or number >= layout.packet_count or self.received[number]:
            raise violation(f"sends no chunk, or one twice, at {header.offset_bytes}", header.key)
        expected = layout.last_bytes if number == layout.packet_count - 1 else layout.full_bytes
        if header.size_bytes != expected:
            raise violation(f"sends a chunk of {header.size_bytes} bytes for {expected}", header.key)
        self._is_placed = True
        return number

    def arrived(self, number: int) -> None:
        """All bytes of the chunk are in their place."""
        if self.received[number]:
            self._duplicates += 1
        else:
            self.received[number] = True
            self._received_count += 1


@dataclass(slots=True, eq=False)
class _Chunk:
    """One that is arriving.

    It names its tensor, and never holds it: the memory is the user's again as soon as the transfer ends,
    whenever the next bytes come. A key names one transfer, for rounds rise.
    """

    key: TransferKey | None
    """None: its tensor was not open here when the chunk began."""
    number: int
    first: int
    """Where in the tensor the next byte goes."""
    left_bytes: int


class TcpInbox(Inbox):
    """The receiving half of a connection over TCP."""

    transfer_type: ClassVar[type[ReceiveTransfer]] = ReceiveChunks

    def find(self, key: TransferKey | None) -> ReceiveChunks | None:
        """An open transfer, whose memory is still ours to write; None: it has ended, or there is none."""
        receiving = None if key is None else self._open.get(key)
        return receiving if isinstance(receiving, ReceiveChunks) else None

    def arrived(self, receiving: ReceiveChunks, number: int, now_ns: int) -> None:
        """A chunk is whole."""
        receiving.arrived(number)
        self._finish_if_complete(receiving, now_ns)

    def probed(self, probe: Probe, now_ns: int) -> None:  # noqa: ARG002  (nothing of it is looked at)
        """Nobody probes over TCP: raises ProtocolViolationError."""
        raise violation("asks what has arrived, over TCP", probe.key)


class FrameReader:
    """What arrives on one data connection behind its opening, however it is cut.

    Ask `spaces` where the next bytes belong, write them there, and tell `filled` how many.
    """

    def __init__(self, inbox: TcpInbox, longest_chunk_bytes: int) -> None:
        self._inbox = inbox
        self._longest_chunk_bytes = longest_chunk_bytes
        self._between = memoryview(bytearray(END_MARK_BYTES + FRAME_HEADER_BYTES))
        """The end mark of one frame and the header of the next."""
        self._between_bytes = END_MARK_BYTES
        self._chunk: _Chunk | None = None
        """None: before the first frame."""

    def spaces(self) -> list[memoryview]:
        """Memory for the next bytes, in order; never empty. It is good until the next event."""
        chunk = self._chunk
        if chunk is None or not chunk.left_bytes:
            return [self._between[self._between_bytes :]]
        receiving = self._inbox.find(chunk.key)
        if receiving is not None:
            elements = receiving.incoming.tensor.data.data[chunk.first : chunk.first + chunk.left_bytes]
        else:
            elements = _SCRATCH[: chunk.left_bytes]
        return [elements] if len(elements) < chunk.left_bytes else [elements, self._between]

    def filled(self, size_bytes: int, now_ns: int) -> None:
        """So many bytes, no more than were asked for, lie where they belong.

        Raises ProtocolViolationError or WireFormatError; then nothing more can be read.
        """
        chunk = self._chunk
        if chunk is not None and chunk.left_bytes:
            of_chunk = min(size_bytes, chunk.left_bytes)
            chunk.first += of_chunk
            chunk.left_bytes -= of_chunk
            size_bytes -= of_chunk
            self._between_bytes = 0
        if not size_bytes:
            return
        had_mark = self._between_bytes >= END_MARK_BYTES
        self._between_bytes += size_bytes
        if chunk is not None and not had_mark:
            self._ended(chunk, self._between[0], now_ns)
        if self._between_bytes == len(self._between):
            self._begin(FrameHeader.decode(self._between[END_MARK_BYTES:]))

    def _ended(self, chunk: _Chunk, mark: int, now_ns: int) -> None:
        receiving = self._inbox.find(chunk.key)
        if not is_whole(mark) or receiving is None:
            self._inbox.late_packets += 1
        else:
            self._inbox.arrived(receiving, chunk.number, now_ns)

    def _begin(self, header: FrameHeader) -> None:
        if not 1 <= header.size_bytes <= self._longest_chunk_bytes:
            raise violation(f"sends a chunk of {header.size_bytes} bytes", header.key)
        receiving = self._inbox.find(header.key)
        key, number = (None, 0) if receiving is None else (header.key, receiving.place(header))
        self._chunk = _Chunk(key, number, header.offset_bytes, header.size_bytes)
