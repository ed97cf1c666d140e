"""One tensor on its way in: packets go where they belong, until enough have arrived."""

from math import floor

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.tensor.bitmap import encode_bitmap, zero_missing
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.transport.interfaces import Incoming, TransferStatistics
from mltswitch.wire import AgentFlag


class ReceiveTransfer:
    """Of one tensor from one peer."""

    def __init__(self, incoming: Incoming, posted_ns: int) -> None:
        self.incoming = incoming
        self.received = np.zeros(0, np.bool_)
        self.attempt = 0
        """Number of the last probe."""
        self.answer_ns: int | None = None
        """When to answer it; None: nothing to answer."""
        self.probed_ns = 0
        self._posted_ns = posted_ns
        self._layout: PacketLayout | None = None
        self._rows = np.zeros(0, np.dtype("V1"))
        self._important = np.zeros(0, np.bool_)
        """Which of the packets that have arrived are important."""
        self._received_count = 0
        self._important_count = 0
        self._important_packets: int | None = None
        self._marked = 0
        self._duplicates = 0

    @property
    def layout(self) -> PacketLayout | None:
        """None before the peer has said how long packets may be."""
        return self._layout

    @property
    def received_count(self) -> int:
        """Different packets."""
        return self._received_count

    @property
    def important_count(self) -> int:
        """Different important packets that have arrived."""
        return self._important_count

    def begin(self, element_bytes: int) -> None:
        """Packets carry so many bytes of elements; raises ValueError where no tensor fits."""
        tensor = self.incoming.tensor
        layout = PacketLayout.fitting(tensor.element_type, tensor.element_count, element_bytes)
        full_packets = layout.element_count // layout.elements_per_packet
        self._layout = layout
        self._rows = np.ndarray(
            (full_packets,), np.dtype((np.void, layout.full_bytes)), buffer=tensor.data.data
        )
        self.received = np.zeros(layout.packet_count, np.bool_)
        self._important = np.zeros(layout.packet_count, np.bool_)

    def accept(
        self,
        headers: NDArray[np.void],
        bodies: NDArray[np.void],
        is_marked: NDArray[np.bool_],
    ) -> None:
        """Equally long packets of this transfer, three arrays of one shape; false ones are dropped."""
        layout = self._layout
        if layout is None:
            return
        sequences = headers["sequence"].astype(np.int64)
        is_ours = (headers["element_offset"] == sequences * layout.elements_per_packet) & self._fits(
            sequences, bodies.dtype.itemsize
        )
        if not is_ours.all():
            headers, bodies, is_marked = headers[is_ours], bodies[is_ours], is_marked[is_ours]
            sequences = sequences[is_ours]
        if not sequences.size:
            return
        if bodies.dtype.itemsize == layout.full_bytes:
            self._rows[sequences] = bodies
        else:
            self._write_last(bodies)
        self._count(sequences, (headers["flags"] & AgentFlag.IMPORTANT) != 0)
        self._marked += int(np.count_nonzero(is_marked))

    def probed(self, attempt: int, important_packets: int, now_ns: int) -> None:
        """The sender asks; `answer_ns` is the caller's to set."""
        self.attempt = attempt
        self.probed_ns = now_ns
        self._important_packets = important_packets

    @property
    def is_complete(self) -> bool:
        """Whether as much has arrived as the bounds ask."""
        layout, incoming = self._layout, self.incoming
        if layout is None:
            return False
        missing = layout.packet_count - self._received_count
        if missing == 0:
            return True
        missing_elements = missing * layout.elements_per_packet
        if not self.received[-1]:
            missing_elements -= layout.packet_count * layout.elements_per_packet - layout.element_count
        if missing > floor(incoming.loss_bound * layout.packet_count) or missing_elements > floor(
            incoming.loss_bound * layout.element_count
        ):
            return False
        if incoming.important_loss_bound is None:
            return True
        if self._important_packets is None:
            return False
        most = floor(incoming.important_loss_bound * self._important_packets)
        return self._important_packets - self._important_count <= most

    def finish(self) -> None:
        """Missing gradients read as 0."""
        if self._layout is not None and not self.incoming.keep_missing:
            zero_missing(self.incoming.tensor, self.received, self._layout)

    def bits(self) -> bytes:
        """What has arrived, for the control channel."""
        return encode_bitmap(self.received)

    def statistics(self, now_ns: int) -> TransferStatistics:
        """At the end."""
        return TransferStatistics(
            size_bytes=len(self.incoming.tensor.data),
            seconds=(now_ns - self._posted_ns) / 1e9,
            packets=self._layout.packet_count if self._layout else 0,
            packets_sent=0,
            packets_resent=0,
            packets_received=self._received_count,
            important_packets=self._important_packets,
            important_received=self._important_count,
            packets_marked=self._marked,
            packets_duplicate=self._duplicates,
            probes=self.attempt,
        )

    def _fits(self, sequences: NDArray[np.int64], body_bytes: int) -> NDArray[np.bool_]:
        layout = self._layout
        assert layout is not None  # noqa: S101  (its caller looked)
        last = layout.packet_count - 1
        if body_bytes == layout.full_bytes:
            fits = sequences <= (last if layout.last_bytes == layout.full_bytes else last - 1)
        elif body_bytes == layout.last_bytes:
            fits = sequences == last
        else:
            fits = np.zeros(sequences.shape, np.bool_)
        return np.asarray(fits, np.bool_)

    def _write_last(self, bodies: NDArray[np.void]) -> None:
        body = np.frombuffer(bodies.reshape(-1)[-1].tobytes(), np.uint8)
        self.incoming.tensor.data[-len(body) :] = body

    def _count(self, sequences: NDArray[np.int64], is_important: NDArray[np.bool_]) -> None:
        first, end = int(sequences.min()), int(sequences.max()) + 1
        before = int(np.count_nonzero(self.received[first:end]))
        important_before = int(np.count_nonzero(self._important[first:end]))
        self._important[sequences[is_important & ~self.received[sequences]]] = True
        self.received[sequences] = True
        fresh = int(np.count_nonzero(self.received[first:end])) - before
        self._received_count += fresh
        self._duplicates += sequences.size - fresh
        self._important_count += int(np.count_nonzero(self._important[first:end])) - important_before
