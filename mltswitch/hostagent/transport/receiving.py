"""One tensor on its way in: packets go where they belong, until enough have arrived."""

from ctypes import c_uint8, pointer
from math import floor

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.native import COMMON_BYTES, FeedbackCounts, Transfer
from mltswitch.hostagent.tensor.bitmap import encode_bitmap, zero_missing
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.transport.exchange import violation
from mltswitch.hostagent.transport.intake import Group, Packet, Part
from mltswitch.hostagent.transport.interfaces import (
    Direction,
    Incoming,
    Stage,
    TransferProgress,
    TransferStatistics,
)
from mltswitch.hostagent.transport.messages import Probe
from mltswitch.hostagent.transport.tally import ReceivedTotals, ReceiveTally, bytes_in
from mltswitch.wire import AgentFlag


class ReceiveTransfer:
    """Of one tensor from one peer."""

    def __init__(self, incoming: Incoming, posted_ns: int, paths: int = 1) -> None:
        """`paths` on which packets may arrive."""
        self.incoming = incoming
        self.received = np.zeros(0, np.bool_)
        self.attempt = 0
        """Number of the last probe."""
        self.answer_ns: int | None = None
        """When to answer it; None: nothing to answer."""
        self.probed_ns = 0
        self._markers = [0] * paths
        """Attempt of the last marker on each path."""
        self._marked_paths: tuple[int, ...] = ()
        self.tally = ReceiveTally(paths)
        self._posted_ns = posted_ns if incoming.posted_ns is None else incoming.posted_ns
        self._layout: PacketLayout | None = None
        self._rows = np.zeros(0, np.dtype("V1"))
        self._important = np.zeros(0, np.bool_)
        """Which of the packets that have arrived are important."""
        self._received_count = 0
        self._important_count = 0
        self._important_packets: int | None = None
        """Of the tensor, as the sender says."""
        self._duplicates = 0
        self._compiled: Transfer | None = None

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

    @property
    def has_begun(self) -> bool:
        """Whether anything of the tensor was heard: a packet, a question of the sender's, or a marker."""
        return self._received_count > 0 or self.attempt > 0 or any(self._markers)

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

    def accept(self, group: Group) -> None:
        """Packets of this transfer; false ones are dropped."""
        layout = self._layout
        if layout is None:
            return
        sequences, is_important, tos, paths = group.sequences, group.is_important, group.tos, group.paths
        is_ours = group.element_offsets == sequences * layout.elements_per_packet
        for part in group.parts:
            is_ours[part.place] &= self._fits(sequences[part.place], part.body_bytes)
        are_all_ours = bool(is_ours.all())
        for part in group.parts:
            self._write(part, sequences[part.place], None if are_all_ours else is_ours[part.place])
        if not are_all_ours:
            sequences, is_important = sequences[is_ours], is_important[is_ours]
            tos, paths = tos[is_ours], paths[is_ours]
        if sequences.size:
            self._count(sequences, is_important)
            self.tally.arrived(tos, paths)

    def accept_one(self, packet: Packet) -> None:
        """The same of one packet."""
        layout, header, body = self._layout, packet.header, packet.body
        if layout is None:
            return
        sequence, last = header.sequence, layout.packet_count - 1
        size_bytes = layout.last_bytes if sequence == last else layout.full_bytes
        if (
            sequence > last
            or header.element_offset != sequence * layout.elements_per_packet
            or len(body) != size_bytes
        ):
            return
        start = sequence * layout.full_bytes
        self.incoming.tensor.data.data[start : start + size_bytes] = body
        if self.received[sequence]:
            self._duplicates += 1
        else:
            self.received[sequence] = True
            self._received_count += 1
            if header.flags & AgentFlag.IMPORTANT:
                self._important[sequence] = True
                self._important_count += 1
        self.tally.arrived_one(packet.tos, header.path)

    def compiled(self, common: bytes, feedback: FeedbackCounts) -> Transfer:
        """What compiled passes know its packets by, and where they put and count them.

        After each read that had packets of it `end_read` is to be called: only then do the counts stand here,
        too.
        """
        layout = self._layout
        assert layout is not None  # noqa: S101  (callers ask after `begin`)
        by_tos, by_path = self.tally.arrays
        self._compiled = Transfer(
            (c_uint8 * COMMON_BYTES)(*common),
            pointer(feedback),
            self.incoming.tensor.data.ctypes.data,
            self.received.ctypes.data,
            self._important.ctypes.data,
            by_tos.ctypes.data,
            by_path.ctypes.data,
            len(by_path),
            layout.packet_count,
            layout.elements_per_packet,
            layout.full_bytes,
            layout.last_bytes,
        )
        return self._compiled

    def end_read(self) -> tuple[int, int]:
        """Take over what a compiled read has counted; returns the least and the most that packets took, in
        nanoseconds."""
        counts = self._compiled
        assert counts is not None  # noqa: S101  (the read had packets of it)
        self._received_count += counts.different
        self._important_count += counts.different_important
        self._duplicates += counts.duplicates
        return counts.least_took_ns, counts.most_took_ns

    def probed(self, probe: Probe, now_ns: int) -> None:
        """The sender asks; `answer_ns` is the caller's to set.

        Raises ProtocolViolationError for what cannot be of this tensor.
        """
        if (
            probe.important_packets > len(self.received)
            or probe.attempt <= self.attempt
            or max(probe.marked_paths, default=-1) >= len(self._markers)
        ):
            raise violation(f"probe {probe.attempt} makes no sense", probe.key)
        self.attempt = probe.attempt
        self.probed_ns = now_ns
        self._important_packets = probe.important_packets
        self._marked_paths = probe.marked_paths

    def marked(self, path: int, attempt: int) -> None:
        """The marker of a probe has arrived, of the last one or of the next, which may come later itself."""
        if path < len(self._markers) and attempt <= self.attempt + 1:
            self._markers[path] = max(self._markers[path], attempt)

    @property
    def has_heard_all(self) -> bool:
        """Whether all markers of the last probe have arrived."""
        paths = self._marked_paths
        return bool(paths) and all(self._markers[path] >= self.attempt for path in paths)

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

    def progress(self, stage: Stage, now_ns: int) -> TransferProgress:
        """For observers."""
        return TransferProgress(
            self.incoming.key,
            Direction.RECEIVE,
            stage,
            self.attempt,
            self._layout.packet_count if self._layout else 0,
            None,
            self._received_count,
            None,
            now_ns,
        )

    @property
    def _received_bytes(self) -> int:
        """Elements in the packets that have arrived."""
        layout = self._layout
        return bytes_in(layout, self._received_count, has_last=bool(self.received[-1])) if layout else 0

    def totals(self) -> ReceivedTotals:
        """Until now."""
        return ReceivedTotals(
            self._received_count + self._duplicates,
            self._received_bytes,
            self.tally.packets_marked,
            self._duplicates,
            self._important_count,
        )

    def statistics(self, now_ns: int) -> TransferStatistics:
        """At the end."""
        return TransferStatistics(
            size_bytes=len(self.incoming.tensor.data),
            seconds=(now_ns - self._posted_ns) / 1e9,
            packets=self._layout.packet_count if self._layout else 0,
            packets_sent=0,
            packets_resent=0,
            packets_received=self._received_count,
            bytes_received=self._received_bytes,
            important_packets=self._known_important_packets(),
            important_received=self._important_count,
            packets_marked=self.tally.packets_marked,
            packets_duplicate=self._duplicates,
            probes=self.attempt,
            classes=self.tally.classes(),
            packets_by_path=self.tally.by_path,
        )

    def _known_important_packets(self) -> int | None:
        """Each packet says whether it is important, so that who has all knows without being told.

        Chunks over TCP, which are not tallied, do not say it.
        """
        layout = self._layout
        if layout is None or self._received_count < layout.packet_count or not self.tally.packets:
            return self._important_packets
        return self._important_count

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

    def _write(self, part: Part, sequences: NDArray[np.int64], is_ours: NDArray[np.bool_] | None) -> None:
        """`is_ours`: which of the part; None: all."""
        assert self._layout is not None  # noqa: S101  (its caller looked)
        is_last = part.body_bytes != self._layout.full_bytes
        if is_ours is None and not is_last:
            self._rows[sequences.reshape(part.shape)] = part.bodies()
            return
        if is_ours is not None and not is_ours.any():
            return
        bodies = part.bodies().reshape(-1)
        if is_ours is not None:
            sequences, bodies = sequences[is_ours], bodies[is_ours]
        if is_last:
            body = np.frombuffer(bodies[-1].tobytes(), np.uint8)
            self.incoming.tensor.data[-len(body) :] = body
        else:
            self._rows[sequences] = bodies

    def _count(self, sequences: NDArray[np.int64], is_important: NDArray[np.bool_]) -> None:
        first, end = int(sequences.min()), int(sequences.max()) + 1
        before = int(np.count_nonzero(self.received[first:end]))
        important_before = int(np.count_nonzero(self._important[first:end]))
        is_new = ~self.received[sequences]
        # Of copies the first to arrive counts: of several assignments to one place the last one stays.
        self._important[sequences[is_new][::-1]] = is_important[is_new][::-1]
        self.received[sequences] = True
        fresh = int(np.count_nonzero(self.received[first:end])) - before
        self._received_count += fresh
        self._duplicates += sequences.size - fresh
        self._important_count += int(np.count_nonzero(self._important[first:end])) - important_before
