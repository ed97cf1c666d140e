"""Bursts as the structures that sendmmsg(2) takes, written by a compiled pass, or by numpy, into memory
that is used again and again."""

import errno
import socket
from collections.abc import Sequence
from ctypes import CDLL, addressof
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent import native
from mltswitch.hostagent.native import OutgoingArrays
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.transport.datagrams import (
    HEADER_DTYPE,
    UDP_MAXIMUM_PAYLOAD_BYTES,
    UDP_MAXIMUM_SEGMENTS,
    Bursts,
    Datagram,
    maximum_burst_packets,
)
from mltswitch.wire import AGENT_HEADER_BYTES, AUTHENTICATION_TAG_BYTES

FULL: Final = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM})
"""The socket's or the kernel's memory is used up for now, or the queue of the device is full."""
EXHAUSTED: Final = FULL - {errno.EAGAIN}
"""Of them those that have nothing to do with the socket: it can be written all the time."""
OUR_FAULT: Final = frozenset({errno.EBADF, errno.ENOTSOCK, errno.EFAULT, errno.ENOSYS})
_LEAST_PACKETS: Final = 1024
_CONTROL_BYTES: Final = libc.CONTROL.itemsize
_least: Final = np.minimum.reduce
_largest: Final = np.maximum.reduce


@dataclass(frozen=True, slots=True)
class Cut:
    """Bursts as messages: contiguous runs of packets."""

    starts: NDArray[np.int64]
    """First packet of each message, and at the end the number of packets; shape (messages + 1,)."""
    packets: NDArray[np.int64]
    """Of each message."""
    paths: NDArray[np.int64]
    tos: NDArray[np.uint8]
    segment_bytes: NDArray[np.int64] | None
    """UDP payload of each packet but a message's last; None: every message is one packet."""
    has_single: bool = True
    """Whether a message may be one packet."""

    @property
    def count(self) -> int:
        """Messages."""
        return len(self.paths)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Packets that the kernel would not send, and never will as they are."""

    path: int
    error: int
    """errno(3)."""
    packets: int


@dataclass(slots=True)
class SendCounters:
    """What a sender has done."""

    calls: int = 0
    """Of compiled passes, where there are any: each may be several of the kernel."""
    messages: int = 0
    packets: int = 0
    """Taken by the kernel."""
    refused_packets: int = 0
    """The kernel could not send them (no route, longer than the MTU, a firewall): lost, as far as peers
    see."""


class Output(Protocol):
    """What sends the packets of all paths: `sender.BurstSender`, or `raw.SourceRouteSender`."""

    counters: SendCounters

    @property
    def blocked_socket(self) -> socket.socket | None:
        """Whose writability to wait for, after the last call took less than it was offered; None: nobody
        tells when there is room again, so it is to be tried a little later."""
        ...

    def send(self, bursts: Bursts) -> int:
        """How many leading packets are dealt with; never waits."""
        ...

    def send_datagrams(self, datagrams: Sequence[Datagram]) -> int:
        """How many leading ones are dealt with; never waits."""
        ...

    def refusals(self) -> tuple[Refusal, ...]:
        """What the kernel would not send since this was asked last."""
        ...


def send_messages(descriptor: int, address: int, count: int, pieces: int) -> int:
    """As `libc.send_messages`, in several system calls where that is faster. `pieces`: vectors of a packet,
    of which the second lies in the tensor; 0 where that is not so."""
    if native.LIBRARY is None or not pieces:
        return libc.send_messages(descriptor, address, count)
    sent: int = native.LIBRARY.mlt_send(descriptor, address, count, pieces)
    return sent


def push_messages(
    descriptor: int, address: int, first: int, end: int, counters: SendCounters, pieces: int = 0
) -> tuple[int, int]:
    """Send messages `first` to `end` - 1 of an array: (first one that was not sent, errno or 0)."""
    done = first
    while done < end:
        counters.calls += 1
        sent = send_messages(descriptor, address + done * libc.MESSAGE.itemsize, end - done, pieces)
        if sent > 0:
            done += sent
        elif sent != -errno.EINTR:
            counters.messages += done - first
            return done, -sent
    counters.messages += done - first
    return done, 0


def send_by_socket(
    descriptors: Sequence[int],
    sockets: NDArray[np.int64],
    address: int,
    counters: SendCounters,
    pieces: int,
) -> NDArray[np.int64]:
    """Send messages of which each has its socket, by its number, in their order; the errno of each, 0 where
    it left. Those of one socket that follow each other leave together."""
    count = len(sockets)
    errors = np.zeros(count, np.int64)
    if native.LIBRARY is not None:
        sockets, known = np.ascontiguousarray(sockets), np.array(descriptors, np.int32)
        counters.calls += 1
        failed = native.LIBRARY.mlt_send_by_socket(
            libc.address_of(known),
            len(known),
            libc.address_of(sockets),
            address,
            count,
            pieces,
            libc.address_of(errors),
        )
        if failed < 0:
            raise ValueError(f"there are {len(descriptors)} sockets")
        counters.messages += count - failed
        return errors
    first = 0
    for end in [*(np.flatnonzero(np.diff(sockets)) + 1).tolist(), count]:
        while first < end:
            descriptor = descriptors[sockets[first]]
            first, error = push_messages(descriptor, address, first, end, counters)
            if error:
                until = end if error in FULL else first + 1
                errors[first:until] = error
                first = until
    return errors


def rest_of(bursts: Bursts, taken: int) -> Bursts:
    """The packets from number `taken` on; a burst that was begun keeps its path and byte. Views, no
    copies."""
    first = int(np.searchsorted(bursts.starts, taken, side="right")) - 1
    starts = bursts.starts[first:] - taken
    starts[0] = 0
    return replace(
        bursts,
        headers=bursts.headers[taken:],
        payload_offsets_bytes=bursts.payload_offsets_bytes[taken:],
        payload_bytes=bursts.payload_bytes[taken:],
        starts=starts,
        paths=bursts.paths[first:],
        tos=bursts.tos[first:],
        tags=None if bursts.tags is None else bursts.tags[taken:],
    )


def leading(bursts: Bursts, count: int) -> Bursts:
    """The first bursts, so many; views, no copies."""
    packets = int(bursts.starts[count])
    return replace(
        bursts,
        headers=bursts.headers[:packets],
        payload_offsets_bytes=bursts.payload_offsets_bytes[:packets],
        payload_bytes=bursts.payload_bytes[:packets],
        starts=bursts.starts[: count + 1],
        paths=bursts.paths[:count],
        tos=bursts.tos[:count],
        tags=None if bursts.tags is None else bursts.tags[:packets],
    )


def picked(bursts: Bursts, cut: Cut, messages: NDArray[np.int64]) -> Bursts:
    """Some of the messages as bursts of their own, their headers copied."""
    counts = cut.packets[messages]
    ends = counts.cumsum()
    packets = np.arange(ends[-1]) + np.repeat(cut.starts[messages] - (ends - counts), counts)
    return replace(
        bursts,
        headers=bursts.headers[packets],
        payload_offsets_bytes=bursts.payload_offsets_bytes[packets],
        payload_bytes=bursts.payload_bytes[packets],
        starts=np.concatenate(([0], ends)),
        paths=cut.paths[messages],
        tos=cut.tos[messages],
        tags=None if bursts.tags is None else bursts.tags[packets],
    )


def check_bursts(bursts: Bursts) -> None:
    """Raise ValueError where memory outside of the tensor, the headers or the tags would be sent."""
    check_shapes(bursts)
    offsets, sizes, starts = bursts.payload_offsets_bytes, bursts.payload_bytes, bursts.starts
    if _least(offsets) < 0 or _least(sizes) < 0 or (sizes > bursts.tensor.size - offsets).any():
        raise ValueError("a packet's elements lie outside the tensor")
    if starts[0] != 0 or starts[-1] != bursts.packet_count:
        raise ValueError(f"bursts do not cover {bursts.packet_count} packets")


def check_shapes(bursts: Bursts) -> None:
    """Raise ValueError where an array is not as `Bursts` says, whatever its numbers are."""
    packets = bursts.packet_count
    offsets, sizes = bursts.payload_offsets_bytes, bursts.payload_bytes
    if bursts.headers.dtype.itemsize != HEADER_DTYPE.itemsize or not bursts.headers.flags.c_contiguous:
        raise ValueError("headers are no contiguous agent headers")
    if not bursts.tensor.flags.c_contiguous or bursts.tensor.itemsize != 1:
        raise ValueError("the tensor's bytes are not contiguous")
    if len(offsets) != packets or len(sizes) != packets:
        raise ValueError(f"{len(offsets)} offsets and {len(sizes)} sizes of {packets} packets")
    if len(bursts.starts) != len(bursts.paths) + 1 or len(bursts.tos) != len(bursts.paths):
        raise ValueError(f"bursts do not cover {packets} packets")
    tags = bursts.tags
    if tags is not None and (
        tags.shape != (packets, AUTHENTICATION_TAG_BYTES) or tags.itemsize != 1 or not tags.flags.c_contiguous
    ):
        raise ValueError(f"tags are no {AUTHENTICATION_TAG_BYTES} contiguous bytes of each packet")


def overhead_bytes(bursts: Bursts) -> int:
    """UDP payload of a packet that is not the tensor's."""
    return AGENT_HEADER_BYTES + (0 if bursts.tags is None else AUTHENTICATION_TAG_BYTES)


def cut_for_segmentation(bursts: Bursts, segmenting: NDArray[np.bool_] | None = None) -> Cut:
    """Each burst a message, or several where UDP_SEGMENT cannot take it at once.

    `segmenting` says for each burst whether it may be a message at all; else each of its packets is one.
    None: all may. Raises ValueError for a burst without a packet.
    """
    firsts = bursts.starts[:-1]
    counts = bursts.starts[1:] - firsts
    fewest = int(_least(counts))
    if fewest < 1:
        raise ValueError("a burst has no packet")
    if len(counts) == bursts.packet_count:
        return Cut(bursts.starts, counts, bursts.paths, bursts.tos, None)
    most = int(_largest(counts))
    sizes = bursts.payload_bytes[firsts] + overhead_bytes(bursts)
    if segmenting is None and most <= maximum_burst_packets(int(_largest(sizes))):
        return Cut(bursts.starts, counts, bursts.paths, bursts.tos, sizes, fewest == 1)
    fitting = np.minimum(UDP_MAXIMUM_PAYLOAD_BYTES // sizes, UDP_MAXIMUM_SEGMENTS)
    if segmenting is not None:
        fitting = np.where(segmenting, fitting, 1)
    parts = -(-counts // fitting)
    ends = parts.cumsum()
    burst = np.repeat(np.arange(len(counts)), parts)
    place = np.arange(ends[-1]) - (ends - parts)[burst]
    starts = np.append(firsts[burst] + place * fitting[burst], bursts.packet_count)
    return Cut(starts, starts[1:] - starts[:-1], bursts.paths[burst], bursts.tos[burst], sizes[burst])


class Vectors:
    """struct iovec of many packets, several each."""

    def __init__(self, pieces: int) -> None:
        """`pieces` of each packet lie in different places."""
        self.pieces = pieces
        self._make(_LEAST_PACKETS)

    def _make(self, packets: int) -> None:
        self._array = np.zeros((packets, self.pieces), libc.VECTOR)
        stride_bytes = self.pieces * libc.VECTOR.itemsize
        self.addresses = libc.address_of(self._array) + np.arange(packets) * stride_bytes
        """Of each packet's first; others when more packets come than ever before."""
        self._bases = [self._array["base"][:, piece] for piece in range(self.pieces)]
        self._lengths = [self._array["length"][:, piece] for piece in range(self.pieces)]
        self._numbers = np.arange(packets)
        self._evenly: dict[int, tuple[int, NDArray[np.int64]]] = {}

    def reserve(self, packets: int) -> None:
        """Make room for so many; what was written before is lost where there was not enough."""
        if packets > len(self._array):
            self._make(max(packets, 2 * len(self._array)))

    @property
    def address(self) -> int:
        """Of the first packet's first; another when more packets come than ever before."""
        return libc.address_of(self._array)

    def write_evenly(self, piece: int, packets: int, address: int, stride_bytes: int) -> None:
        """A piece of every packet that lies in an array: `stride_bytes` long, one behind the other."""
        known = self._evenly.get(piece)
        if known is None or known[0] != stride_bytes:
            known = (stride_bytes, self._numbers * stride_bytes)
            self._evenly[piece] = known
            self._lengths[piece][:] = stride_bytes
        np.add(known[1][:packets], address, out=self._bases[piece][:packets])

    def write(
        self, piece: int, address: int, offsets_bytes: NDArray[np.int64], sizes_bytes: NDArray[np.int64]
    ) -> None:
        """A piece of every packet that lies anywhere behind an address."""
        self._evenly.pop(piece, None)
        packets = len(offsets_bytes)
        np.add(offsets_bytes, address, out=self._bases[piece][:packets])
        self._lengths[piece][:packets] = sizes_bytes

    def write_bursts(self, bursts: Bursts, first_piece: int) -> None:
        """Header, elements, and the tag where there is one, from a piece on."""
        packets = bursts.packet_count
        self.write_evenly(first_piece, packets, libc.address_of(bursts.headers), AGENT_HEADER_BYTES)
        self.write(
            first_piece + 1,
            libc.address_of(bursts.tensor),
            bursts.payload_offsets_bytes,
            bursts.payload_bytes,
        )
        if bursts.tags is not None:
            tags = libc.address_of(bursts.tags)
            self.write_evenly(first_piece + 2, packets, tags, AUTHENTICATION_TAG_BYTES)


class Messages:
    """struct mmsghdr of many messages with their control messages: traffic class, departure, segment size."""

    def __init__(self, level: int, kind: int, name_bytes: int, *, with_departures: bool = False) -> None:
        """`level`, `kind`: of the control message of the DSCP/ECN byte."""
        self._level, self._kind, self._name_bytes = level, kind, name_bytes
        columns = [(4, level, kind), (2, libc.SOL_UDP, libc.UDP_SEGMENT)]
        if with_departures:
            columns.insert(1, (8, libc.SOL_SOCKET, libc.SCM_TXTIME))
        self._columns = columns
        self._single_bytes = (len(columns) - 1) * _CONTROL_BYTES
        """Of the control messages without a segment size."""
        self._make(_LEAST_PACKETS)

    def _make(self, messages: int) -> None:
        columns = len(self._columns)
        self._controls = np.zeros((messages, columns), libc.CONTROL)
        for column, (value_bytes, level, kind) in enumerate(self._columns):
            self._controls["length"][:, column] = libc.CONTROL_HEADER_BYTES + value_bytes
            self._controls["level"][:, column] = level
            self._controls["type"][:, column] = kind
        self._array = np.zeros(messages, libc.MESSAGE)
        self.address = libc.address_of(self._array)
        """Of the first; changes when more messages come than ever before."""
        self._array["name_length"] = self._name_bytes
        self._array["control"] = (
            libc.address_of(self._controls) + np.arange(messages) * columns * _CONTROL_BYTES
        )
        self._array["control_length"] = self._single_bytes
        self._tos = self._controls["value"][:, 0]
        self._segments = self._controls["value"][:, -1]
        words = self._controls.view(np.int64).reshape(messages, columns, -1)
        self._departures = words[:, 1, libc.CONTROL_HEADER_BYTES // words.itemsize]
        self._names = self._array["name"]
        self._vectors = self._array["vectors"]
        self._counts = self._array["vector_count"]
        self._control_lengths = self._array["control_length"]
        self._singles: tuple[NDArray[np.int64] | None, int] = (None, 0)

    def write(
        self,
        cut: Cut,
        names: NDArray[np.int64],
        vectors: Vectors,
        departures_ns: NDArray[np.int64] | None = None,
    ) -> None:
        """`names`: the address of each message's struct sockaddr.

        `departures_ns`: of each message; given always or never, as the constructor was told.
        """
        firsts, packets, segments = cut.starts[:-1], cut.packets, cut.segment_bytes
        count = len(firsts)
        if count > len(self._array):
            self._make(max(count, 2 * len(self._array)))
        self._names[:count] = names
        self._tos[:count] = cut.tos
        if departures_ns is not None:
            self._departures[:count] = departures_ns
        if segments is None:
            self._write_singles(vectors, count)
            return
        self._singles = (None, 0)
        self._vectors[:count] = vectors.addresses[firsts]
        np.multiply(packets, vectors.pieces, out=self._counts[:count])
        self._segments[:count] = segments
        self._control_lengths[:count] = self._single_bytes + _CONTROL_BYTES
        if cut.has_single:
            # Kernels before 5.1 drop a message of one segment that asks for segmentation.
            self._control_lengths[(packets == 1).nonzero()[0]] = self._single_bytes

    def write_compiled(
        self, library: CDLL, bursts: Bursts, names: NDArray[np.int64], vectors: Vectors
    ) -> Cut | None:
        """The same with the vectors, in one compiled pass, where every burst is one message.

        `names`: of each path, 0 where there is none. Only where messages carry no departures. None: something
        is not as it should be, or a burst is too long; `check_bursts` and the ways above know what.
        """
        count, packets = len(bursts.paths), bursts.packet_count
        if count > len(self._array):
            self._make(max(count, 2 * len(self._array)))
        vectors.reserve(packets)
        self._singles = (None, 0)
        starts = np.ascontiguousarray(bursts.starts, np.int64)
        paths = np.ascontiguousarray(bursts.paths, np.int64)
        tos = np.ascontiguousarray(bursts.tos, np.uint8)
        offsets = np.ascontiguousarray(bursts.payload_offsets_bytes, np.int64)
        sizes = np.ascontiguousarray(bursts.payload_bytes, np.int64)
        arrays = OutgoingArrays(
            libc.address_of(bursts.headers),
            libc.address_of(bursts.tensor),
            None if bursts.tags is None else libc.address_of(bursts.tags),
            libc.address_of(offsets),
            libc.address_of(sizes),
            libc.address_of(starts),
            libc.address_of(paths),
            libc.address_of(tos),
            libc.address_of(names),
            self.address,
            vectors.address,
            libc.address_of(self._controls),
            packets,
            count,
            len(names),
            bursts.tensor.size,
            AUTHENTICATION_TAG_BYTES if bursts.tags is not None else 0,
            UDP_MAXIMUM_SEGMENTS,
            UDP_MAXIMUM_PAYLOAD_BYTES,
        )
        if not library.mlt_messages(addressof(arrays)):
            return None
        return Cut(starts, starts[1:] - starts[:-1], paths, tos, None)

    def _write_singles(self, vectors: Vectors, count: int) -> None:
        """Every packet a message, in order: mostly they are written already."""
        addresses, written = self._singles
        if addresses is vectors.addresses and written >= count:
            return
        self._vectors[:count] = vectors.addresses[:count]
        self._counts[:count] = vectors.pieces
        self._control_lengths[:count] = self._single_bytes
        self._singles = (vectors.addresses, count)
