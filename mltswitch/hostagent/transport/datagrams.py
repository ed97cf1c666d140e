"""Datagrams as numpy sees them: many at once, where recvmmsg(2) left them or sendmmsg(2) takes them from."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.wire import AGENT_HEADER_BYTES
from mltswitch.wire.fields import Header
from mltswitch.wire.headers import ACKNOWLEDGEMENT, AGENT


def _record(header: Header) -> np.dtype[np.void]:
    return np.dtype([(field.name, f">u{field.bits // 8}") for field in header.fields])


HEADER_DTYPE: Final = _record(AGENT)
"""The agent header as a record, in network order."""
ACKNOWLEDGEMENT_DTYPE: Final = _record(ACKNOWLEDGEMENT)
"""What follows it in an acknowledgement."""
_TOKEN_OFFSET_BYTES: Final = next(
    offset // 8 for offset, field in AGENT.with_offsets() if field.name == "flow_token"
)
UDP_MAXIMUM_PAYLOAD_BYTES: Final = 65_507
"""65,535 less the headers of IPv4 and UDP."""
UDP_MAXIMUM_SEGMENTS: Final = 64
"""UDP_MAX_SEGMENTS of kernels before 6.9; later ones take 128 (linux/udp.h)."""


def maximum_burst_packets(datagram_bytes: int) -> int:
    """How many packets of so much UDP payload UDP_SEGMENT takes at once; longer bursts are cut unevenly."""
    return max(1, min(UDP_MAXIMUM_SEGMENTS, UDP_MAXIMUM_PAYLOAD_BYTES // datagram_bytes))


@dataclass(frozen=True, slots=True)
class DatagramGrid:
    """Received UDP payloads of equal length, at regular distances in memory.

    A *message* is what the kernel handed over at once: one datagram, or several that it coalesced (UDP_GRO),
    all with one DSCP/ECN byte and from one sender.
    """

    memory: NDArray[np.uint8]
    """One dimension; belongs to the receiver, who uses it again after the call."""
    offset_bytes: int
    """Of the first datagram."""
    messages: int
    message_stride_bytes: int
    datagrams_per_message: int
    datagram_bytes: int
    tos: NDArray[np.uint8]
    """DSCP/ECN byte of each message as received."""
    arrived_ns: NDArray[np.int64] | None = None
    """When the kernel took each message from the network, on the clock of `now_ns`; None: now."""

    @property
    def datagram_count(self) -> int:
        """All of them."""
        return self.messages * self.datagrams_per_message

    def headers(self) -> NDArray[np.void]:
        """`HEADER_DTYPE` records, shape (messages, datagrams a message); a view.

        Only where `datagram_bytes` is that of the header or more.
        """
        return self._rows(HEADER_DTYPE, 0)

    def header_bytes(self) -> NDArray[np.void]:
        """The same as items of plain bytes, which numpy copies faster."""
        return self._rows(np.dtype((np.void, AGENT_HEADER_BYTES)), 0)

    def flow_tokens(self) -> NDArray[np.uint64]:
        """Of each message's first datagram, in network order; shape (messages,), a view."""
        return np.ndarray(
            (self.messages,),
            HEADER_DTYPE["flow_token"],
            buffer=self.memory.data,
            offset=self.offset_bytes + _TOKEN_OFFSET_BYTES,
            strides=(self.message_stride_bytes,),
        )

    def bodies(self, size_bytes: int) -> NDArray[np.void]:
        """What follows the header, `size_bytes` of it, one item each, in the same shape; a view."""
        return self._rows(np.dtype((np.void, size_bytes)), AGENT_HEADER_BYTES)

    def datagram(self, message: int, place: int) -> memoryview:
        """The bytes of one."""
        start = self.offset_bytes + message * self.message_stride_bytes + place * self.datagram_bytes
        return self.memory.data[start : start + self.datagram_bytes]

    @property
    def end_bytes(self) -> int:
        """Where the last one ends in the memory."""
        last_bytes = (self.messages - 1) * self.message_stride_bytes
        return self.offset_bytes + last_bytes + self.datagrams_per_message * self.datagram_bytes

    def part(self, first: int, last: int) -> "DatagramGrid":
        """Messages `first` to `last` - 1."""
        return replace(
            self,
            offset_bytes=self.offset_bytes + first * self.message_stride_bytes,
            messages=last - first,
            tos=self.tos[first:last],
            arrived_ns=None if self.arrived_ns is None else self.arrived_ns[first:last],
        )

    def picked(self, messages: NDArray[np.int64]) -> "DatagramGrid":
        """These messages, by their numbers in order; copied unless they follow each other."""
        first, count = int(messages[0]), len(messages)
        if int(messages[-1]) - first == count - 1:
            return self.part(first, first + count)
        size_bytes = self.datagrams_per_message * self.datagram_bytes
        rows = np.ndarray(
            (self.messages,),
            np.dtype((np.void, size_bytes)),
            buffer=self.memory.data,
            offset=self.offset_bytes,
            strides=(self.message_stride_bytes,),
        )
        return replace(
            self,
            memory=rows[messages].view(np.uint8),
            offset_bytes=0,
            messages=count,
            message_stride_bytes=size_bytes,
            tos=self.tos[messages],
            arrived_ns=None if self.arrived_ns is None else self.arrived_ns[messages],
        )

    def _rows(self, dtype: np.dtype[np.void], skipped_bytes: int) -> NDArray[np.void]:
        if self.datagram_bytes < skipped_bytes + dtype.itemsize:
            raise ValueError(f"datagrams of {self.datagram_bytes} bytes have no {dtype.itemsize} bytes there")
        return np.ndarray(
            (self.messages, self.datagrams_per_message),
            dtype,
            buffer=self.memory.data,
            offset=self.offset_bytes + skipped_bytes,
            strides=(self.message_stride_bytes, self.datagram_bytes),
        )


@dataclass(frozen=True, slots=True)
class Bursts:
    """Data packets of one transfer that leave now, in order; a burst has one path and one DSCP/ECN byte.

    Within a burst all packets are equally long, but for the last, which may be shorter (UDP_SEGMENT).
    """

    headers: NDArray[np.void]
    """`HEADER_DTYPE` records, shape (packets,), C-contiguous."""
    tensor: NDArray[np.uint8]
    """The whole tensor's bytes; the memory stays the caller's until the transfer completes."""
    payload_offsets_bytes: NDArray[np.int64]
    """Where in the tensor each packet's elements begin, shape (packets,)."""
    payload_bytes: NDArray[np.int64]
    """How many, shape (packets,)."""
    starts: NDArray[np.int64]
    """First packet of each burst, and at the end the number of packets; shape (bursts + 1,)."""
    paths: NDArray[np.int64]
    """Shape (bursts,)."""
    tos: NDArray[np.uint8]
    """Shape (bursts,)."""
    tags: NDArray[np.uint8] | None = None
    """Authentication tags, shape (packets, 16), C-contiguous; None: not authenticated."""

    @property
    def packet_count(self) -> int:
        """All of them."""
        return len(self.headers)

    def datagram(self, packet: int) -> bytes:
        """One packet's UDP payload as it goes on the wire; for tests and for paths without vectors."""
        start = int(self.payload_offsets_bytes[packet])
        body = self.tensor[start : start + int(self.payload_bytes[packet])].tobytes()
        tag = b"" if self.tags is None else self.tags[packet].tobytes()
        return bytes(self.headers[packet].tobytes() + body + tag)


@dataclass(frozen=True, slots=True)
class Datagram:
    """One small datagram: an acknowledgement, or a probe of a path."""

    payload: bytes
    path: int
    tos: int
