"""Receives datagrams in batches: one system call, a handful of numpy calls, no work per datagram in Python.

Where there are compiled passes, they read, and take packets of open tensors in on the way, batch by batch in
memory that a cache holds; what they leave is told as if nothing else had come.

With UDP_GRO (Linux 5.0) a message may be several datagrams of one sender that the kernel coalesced. Their
size then stands in a control message; a lone datagram carries none. Which control messages come, and in what
order, depends on the kernel, so they are told apart by their type.

Each message comes with the time at which the kernel took it from the network (SO_TIMESTAMPNS): how long it
then waited for us is no delay of the network, and a busy host must not slow its peers down as a full queue
would.
"""

import ctypes
import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent import native
from mltswitch.hostagent.network import libc
from mltswitch.hostagent.network.clocks import STEP_NS, Clocks
from mltswitch.hostagent.network.grids import datagram_grids
from mltswitch.hostagent.network.sockets import kernel_drops
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.units import NANOSECONDS
from mltswitch.wire import AGENT_HEADER_BYTES

STRIDE_BYTES: Final = (1 << 16) + 64
"""Room for whatever the kernel coalesces (65,535 bytes). The odd cache line keeps the headers of neighbouring
messages out of each other's cache sets."""
MINIMUM_MESSAGES: Final = 32
BATCH_BYTES: Final = 4 << 20
"""About what is asked for at once: a cache holds it until it is copied into the tensor."""
COMPILED_MINIMUM_MESSAGES: Final = 4
COMPILED_BATCH_BYTES: Final = 256 << 10
"""The same of compiled passes, for which a call more costs little: half of a small second-level cache."""
READ_BYTES: Final = 4 << 20
READ_SLOTS: Final = 4
"""About what they read before others get their turn: bytes, and how often all slots may be used again."""
_CONTROLS: Final = 4
"""Control messages of one message that are looked at: time, segment size and DSCP/ECN byte are asked for."""
_CONTROL_WORDS: Final = 16
"""Room for them as 64-bit words: 32 bytes for the time, 24 for each of the others."""
_HEADER_WORDS: Final = 2

_KEY_OF_TOS: Final = {
    socket.AF_INET: socket.IPPROTO_IP | libc.IP_TOS << 32,
    socket.AF_INET6: socket.IPPROTO_IPV6 | libc.IPV6_TCLASS << 32,
}
_KEY_OF_SEGMENT: Final = libc.SOL_UDP | libc.UDP_GRO << 32
_KEY_OF_TIME: Final = libc.SOL_SOCKET | libc.SO_TIMESTAMPNS << 32
_SEGMENT_MASK: Final = 0xFFFF
"""A coalesced message has at most 65,535 bytes; the kernel writes four bytes."""
_NOTHING_THERE: Final = frozenset({errno.EAGAIN, errno.EINTR})
_OUR_FAULT: Final = frozenset({errno.EBADF, errno.ENOTSOCK, errno.EFAULT, errno.EINVAL, errno.ENOSYS})


@dataclass(slots=True)
class ReceiveCounters:
    """What a receiver has seen; datagrams unless said otherwise."""

    calls: int = 0
    messages: int = 0
    truncated: int = 0
    """Messages longer than the kernel may send, dropped."""
    short: int = 0
    """Shorter than our header, dropped."""
    errors: int = 0
    """Calls that the kernel answered with an error of the network."""


@dataclass(frozen=True, slots=True)
class Controls:
    """What came beside each message; shape (messages,), 0 where a message has none."""

    tos: NDArray[np.uint8]
    """DSCP/ECN byte."""
    segments: NDArray[np.int64]
    """Segment size in bytes."""
    times_ns: NDArray[np.int64]
    """Of arrival, on the clock of the day."""


def parse_controls(words: NDArray[np.int64], key_of_tos: int) -> Controls:
    """The control messages of each message.

    `words` has the shape (messages, 16): struct cmsghdr as its length, its level and type in one number, then
    its value. The end is a length of 0.
    """
    count = len(words)
    tos, segments = np.zeros(count, np.uint8), np.zeros(count, np.int64)
    times_ns = np.zeros(count, np.int64)
    rows, places = np.arange(count), np.zeros(count, np.int64)
    for _ in range(_CONTROLS):
        lengths, keys = words[rows, places], words[rows, places + 1]
        values = words[rows, places + _HEADER_WORDS]
        found = (keys == _KEY_OF_TIME).nonzero()[0]
        times_ns[found] = values[found] * NANOSECONDS + words[rows[found], places[found] + _HEADER_WORDS + 1]
        found = (keys == _KEY_OF_SEGMENT).nonzero()[0]
        segments[found] = values[found] & _SEGMENT_MASK
        found = (keys == key_of_tos).nonzero()[0]
        tos[found] = values[found].astype(np.uint8)  # one byte was written, what follows is old
        # The next one begins at a multiple of eight bytes; a length of 0 is the end, and its key is none.
        places = np.minimum(places + (lengths + 7) // 8, _CONTROL_WORDS - _HEADER_WORDS - 2)
    return Controls(tos, segments, times_ns)


class DatagramReceiver:
    """Reads one socket; the socket stays the caller's, who must not ask it for other control messages."""

    def __init__(
        self,
        source: socket.socket,
        messages: int = 256,
        *,
        coalescing: bool = True,
        minimum_bytes: int = AGENT_HEADER_BYTES,
    ) -> None:
        """`messages` is the most that one call takes, each of them 64 KiB of address space.

        Raises MachineError where the machine is none of ours, OSError where the kernel cannot tell DSCP/ECN
        bytes.
        """
        libc.require_supported_machine()
        if not 1 <= messages <= libc.MAXIMUM_MESSAGES:
            raise ValueError(f"{messages} messages; expected 1-{libc.MAXIMUM_MESSAGES}")
        self._socket = source
        self._key_of_tos = _KEY_OF_TOS[socket.AddressFamily(source.family)]
        if source.family == socket.AF_INET6:
            source.setsockopt(socket.IPPROTO_IPV6, libc.IPV6_RECVTCLASS, 1)
        else:
            source.setsockopt(socket.IPPROTO_IP, libc.IP_RECVTOS, 1)
        source.setsockopt(libc.SOL_SOCKET, libc.SO_TIMESTAMPNS, 1)
        self.is_coalescing = coalescing and _switch_coalescing_on(source)
        """Whether the kernel may hand over several datagrams as one message."""
        self.counters = ReceiveCounters()
        self.was_full = False
        """Whether the last call took all that it had room for: there may be more."""
        self.newest_ns = 0
        """When the last datagram that was received by the last call had arrived, on our clock."""
        self._clocks = Clocks()
        self._library = native.LIBRARY
        self._minimum_bytes = max(1, minimum_bytes)
        self._limit = messages
        self._wanted = min(messages, MINIMUM_MESSAGES)
        self._memory = np.empty(messages * STRIDE_BYTES, np.uint8)
        self._make_messages(messages)

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    def receive(self, registry: int = 0) -> list[DatagramGrid]:
        """What has come, up to the limit; empty where nothing has. Never waits.

        `registry`: where the compiled passes' open transfers lie; what is theirs is taken in, and not told.
        The grids lie in memory that the next call uses again. Raises OSError for a socket that is closed.
        """
        found = self._read() if self._library is None else self._read_compiled(self._library, registry)
        return [] if found is None else self._grids(*found)

    def _read(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]] | None:
        """DSCP/ECN bytes, segment sizes and times of arrival of the messages in the first slots."""
        wanted = self._wanted
        self.counters.calls += 1
        count = libc.receive_messages(self._socket.fileno(), self._messages_address, wanted)
        self.was_full = count == wanted
        if count <= 0:
            self._failed(-count)
            return None
        self.counters.messages += count
        controls = self._controls[:count]
        found = parse_controls(controls, self._key_of_tos)
        controls[:] = 0
        # The kernel has overwritten what the next call reads.
        self._control_lengths[:count] = controls.shape[1] * controls.itemsize
        total_bytes = int(self._lengths[:count].sum())
        self._wanted = min(self._limit, max(MINIMUM_MESSAGES, BATCH_BYTES * count // max(1, total_bytes)))
        arrived_ns = self._clocks.on_ours(found.times_ns)
        self.newest_ns = int(arrived_ns.max())
        return found.tos, found.segments, arrived_ns

    def _read_compiled(
        self, library: ctypes.CDLL, registry: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]] | None:
        """The same of what was left; messages that were taken in have a length of 0."""
        compiled = self._compiled
        compiled.ahead_ns, compiled.longest_wait_ns, _ = self._clocks.read()
        count: int = library.mlt_receive(self._socket.fileno(), ctypes.addressof(compiled), registry)
        self.counters.calls += compiled.calls
        self.counters.messages += compiled.received
        self.was_full, self.newest_ns = bool(compiled.was_full), compiled.newest_ns
        if compiled.error:
            self._failed(compiled.error)
        if not count:
            return None
        found = self._found
        return found.tos[:count], found.segments[:count], found.times_ns[:count]

    def _grids(
        self, tos: NDArray[np.uint8], segments: NDArray[np.int64], arrived_ns: NDArray[np.int64]
    ) -> list[DatagramGrid]:
        count = len(tos)
        lengths = self._lengths[:count].astype(np.int64)
        flags = self._flags[:count]
        if flags.any():
            truncated = (flags & libc.MSG_TRUNC) != 0
            self.counters.truncated += int(truncated.sum())
            lengths[truncated] = 0
        segments = self._without_short(lengths, segments)
        return datagram_grids(self._memory, STRIDE_BYTES, lengths, segments, tos, arrived_ns)

    def kernel_drops(self) -> int:
        """See `sockets.kernel_drops`."""
        return kernel_drops(self._socket)

    def _failed(self, error: int) -> None:
        if error in _OUR_FAULT:
            raise OSError(error, os.strerror(error))
        if error not in _NOTHING_THERE:
            self.counters.errors += 1

    def _without_short(self, lengths: NDArray[np.int64], segments: NDArray[np.int64]) -> NDArray[np.int64]:
        """Segment sizes from 1 on; lengths are cut, in place, so that no datagram is below the minimum."""
        alone = (segments == 0) | (segments > lengths)
        segments = np.where(alone, np.maximum(lengths, 1), segments)
        rests = lengths % segments
        if segments.min() >= self._minimum_bytes and not ((rests > 0) & (rests < self._minimum_bytes)).any():
            return segments
        short = segments < self._minimum_bytes
        self.counters.short += int((-(-lengths // segments))[short].sum())
        lengths[short] = 0
        cut = (lengths > 0) & (rests > 0) & (rests < self._minimum_bytes)
        self.counters.short += int(cut.sum())
        lengths[cut] -= rests[cut]
        return segments

    def _make_messages(self, count: int) -> None:
        vectors = np.zeros(count, libc.VECTOR)
        vectors["base"] = libc.address_of(self._memory) + np.arange(count) * STRIDE_BYTES
        vectors["length"] = STRIDE_BYTES
        self._controls = np.zeros((count, _CONTROL_WORDS), np.int64)
        size_bytes = self._controls[0].nbytes
        messages = np.zeros(count, libc.MESSAGE)
        messages["vectors"] = libc.address_of(vectors) + np.arange(count) * libc.VECTOR.itemsize
        messages["vector_count"] = 1
        messages["control"] = libc.address_of(self._controls) + np.arange(count) * size_bytes
        messages["control_length"] = size_bytes
        self._keep: Sequence[object] = (vectors, messages)  # the kernel knows them by address alone
        self._messages_address = libc.address_of(messages)
        self._lengths = messages["length"]
        self._flags = messages["flags"]
        self._control_lengths = messages["control_length"]
        self._found = Controls(
            np.zeros(count, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64)
        )
        self._compiled = native.Receiver(
            self._messages_address,
            libc.address_of(self._controls),
            libc.address_of(self._found.tos),
            libc.address_of(self._found.segments),
            libc.address_of(self._found.times_ns),
            count,
            _CONTROL_WORDS,
            self._key_of_tos,
            _KEY_OF_SEGMENT,
            _KEY_OF_TIME,
            COMPILED_MINIMUM_MESSAGES,
            COMPILED_BATCH_BYTES,
            READ_BYTES,
            READ_SLOTS * count,
            min(count, COMPILED_MINIMUM_MESSAGES),
            step_ns=STEP_NS,
        )


def _switch_coalescing_on(source: socket.socket) -> bool:
    try:
        source.setsockopt(libc.SOL_UDP, libc.UDP_GRO, 1)
    except OSError:  # ENOPROTOOPT before Linux 5.0
        return False
    return True
