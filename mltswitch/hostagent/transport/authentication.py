"""Tags of datagrams: keyed BLAKE2b (RFC 7693) over header and elements."""

from collections.abc import Iterator
from hashlib import blake2b
from hmac import compare_digest

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.wire import AGENT_HEADER_BYTES, AUTHENTICATION_TAG_BYTES


def tag(key: bytes, *parts: bytes | memoryview) -> bytes:
    """Of the parts, one after the other."""
    state = blake2b(key=key, digest_size=AUTHENTICATION_TAG_BYTES)
    for part in parts:
        state.update(part)
    return state.digest()


def tags(
    key: bytes,
    headers: NDArray[np.void],
    tensor: NDArray[np.uint8],
    offsets_bytes: NDArray[np.int64],
    sizes_bytes: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """One for each packet, shape (packets, 16)."""
    header_bytes, elements = headers.view(np.uint8).data, tensor.data
    starts = range(0, len(header_bytes), AGENT_HEADER_BYTES)
    digests = [
        tag(key, header_bytes[at : at + AGENT_HEADER_BYTES], elements[offset : offset + size])
        for at, offset, size in zip(starts, offsets_bytes.tolist(), sizes_bytes.tolist(), strict=True)
    ]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, AUTHENTICATION_TAG_BYTES)


def genuine(key: bytes, grid: DatagramGrid) -> NDArray[np.bool_]:
    """Which datagrams carry the right tag, shape (messages, datagrams a message)."""
    found = np.fromiter(_checked(key, grid), np.bool_, grid.datagram_count)
    return found.reshape(grid.messages, grid.datagrams_per_message)


def is_genuine(key: bytes, datagram: memoryview) -> bool:
    """Whether it ends with the right tag."""
    end = len(datagram) - AUTHENTICATION_TAG_BYTES
    return end >= 0 and compare_digest(tag(key, datagram[:end]), datagram[end:])


def _checked(key: bytes, grid: DatagramGrid) -> Iterator[bool]:
    for message in range(grid.messages):
        for place in range(grid.datagrams_per_message):
            yield is_genuine(key, grid.datagram(message, place))
