"""Two ends that speak TCP without sockets: bytes lie between them until somebody carries them on."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.tagging import AllImportant
from mltswitch.hostagent.tcp.connection import TcpConnection
from mltswitch.hostagent.tcp.receiving import FrameReader
from mltswitch.hostagent.tcp.sending import Frame
from mltswitch.hostagent.tcp.settings import LEAST_CHUNK_BYTES
from mltswitch.hostagent.tensor.view import TensorView
from mltswitch.hostagent.transport.hello import KEY_BYTES, LocalEnd, PathAddress, Secrets
from mltswitch.hostagent.transport.interfaces import Incoming, Outgoing, TransferKey
from mltswitch.hostagent.transport.settings import ConnectionSettings, Transport
from mltswitch.wire import ElementType
from tests.hostagent.transport.ends import talk

FAR_NS = 10**15
CHUNK_BYTES = LEAST_CHUNK_BYTES


def end(number: int, *, chunk_bytes: int = CHUNK_BYTES, authenticate: bool = False) -> TcpConnection:
    local = LocalEnd(
        name=f"host{number}",
        data_addresses=(PathAddress(0, f"10.0.0.{number}", 1000),),
        window_bytes=chunk_bytes,
        payload_bytes=1472,
        authenticate=authenticate,
        control_dscp=40,
        transport=Transport.TCP,
        chunk_bytes=chunk_bytes,
    )
    return TcpConnection(ConnectionSettings(), local, Secrets(number, bytes([number]) * KEY_BYTES), 0)


def greeted(**options: Any) -> tuple[TcpConnection, TcpConnection]:
    both = end(1, **options), end(2)
    talk(*both)
    return both


def outgoing(key: TransferKey, data: NDArray[np.uint8], layer: int = 0, dscp: int = 34) -> Outgoing:
    view = TensorView(data, ElementType.FLOAT32)
    return Outgoing(key, view, layer, lambda: dscp, AllImportant(), FAR_NS, 1)


def incoming(key: TransferKey, data: NDArray[np.uint8], loss_bound: float = 0.0) -> Incoming:
    return Incoming(key, TensorView(data, ElementType.FLOAT32), loss_bound, None, False, FAR_NS)


@dataclass(slots=True)
class Flow:
    """One data connection: what its sender has written, and its receiver not read."""

    sender: TcpConnection
    receiver: TcpConnection
    reader: FrameReader
    frame: Frame | None = None
    waiting: bytearray = field(default_factory=bytearray)
    now_ns: int = 1

    def write(self, most_bytes: int) -> int:
        """As a socket with so much room would; returns how many bytes were written."""
        parts = self.frame.parts() if self.frame else []
        if not parts:
            self.frame = self.sender.next_frame(self.now_ns)
            parts = self.frame.parts() if self.frame else []
        if not parts or self.frame is None:
            return 0
        piece = b"".join(parts)[:most_bytes]
        self.waiting += piece
        self.frame.written(len(piece))
        return len(piece)

    def read(self, most_bytes: int) -> int:
        """As a socket that holds so much would give it; returns how many bytes were read."""
        left = min(most_bytes, len(self.waiting))
        total = left
        while left and not self.receiver.is_over:
            taken = 0
            for space in self.reader.spaces():
                size_bytes = min(len(space), left)
                space[:size_bytes] = self.waiting[:size_bytes]
                del self.waiting[:size_bytes]
                taken, left = taken + size_bytes, left - size_bytes
            self.receiver.received(self.reader, taken, self.now_ns)
        return total


def flow(sender: TcpConnection, receiver: TcpConnection) -> Flow:
    return Flow(sender, receiver, receiver.reader())


def run(*flows: Flow) -> Iterator[int]:
    """Write and read until there is nothing more; yields the bytes."""
    while moved := sum(each.write(1 << 20) for each in flows) + sum(each.read(1 << 20) for each in flows):
        yield moved
