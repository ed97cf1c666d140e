"""Numbers of a header's fields to bytes and back, for any definition."""

import struct
from collections.abc import Sequence
from typing import Final

from mltswitch.errors import MltswitchError
from mltswitch.wire.fields import Header

Received = bytes | bytearray | memoryview
"""What a socket gives."""
_LETTERS: Final = {8: "B", 16: "H", 32: "I", 64: "Q"}


class WireFormatError(MltswitchError):
    """Bytes that came from the network are no packet of ours: the peer, or the path, is at fault."""


def struct_of(header: Header) -> struct.Struct:
    """The header as one `struct`, the fastest codec; raises ValueError for a field of, say, 15 bits."""
    odd = [field.name for field in header.fields if field.bits not in _LETTERS]
    if odd:
        raise ValueError(f"{header.name}: a struct has no field as wide as {', '.join(odd)}")
    return struct.Struct("!" + "".join(_LETTERS[field.bits] for field in header.fields))


def encode_fields(header: Header, numbers: Sequence[int]) -> bytes:
    """The bytes of one header; raises ValueError for a number that its field cannot hold."""
    word = 0
    for field, number in zip(header.fields, numbers, strict=True):
        if not 0 <= number <= field.maximum:
            raise ValueError(f"{header.name}.{field.name}: {number} is outside 0-{field.maximum}")
        word = word << field.bits | number
    return word.to_bytes(header.size_bytes, "big")


def decode_fields(header: Header, data: Received, offset_bytes: int = 0) -> tuple[int, ...]:
    """The numbers of one header, in its order; raises WireFormatError where the data ends early."""
    check_length(header, data, offset_bytes)
    word = int.from_bytes(data[offset_bytes : offset_bytes + header.size_bytes], "big")
    size_bits = 8 * header.size_bytes
    return tuple(
        word >> size_bits - offset_bits - field.bits & field.maximum
        for offset_bits, field in header.with_offsets()
    )


def check_length(header: Header, data: Received, offset_bytes: int = 0) -> None:
    """Raise WireFormatError where a header that begins at the offset would end behind the data."""
    if len(data) - offset_bytes < header.size_bytes:
        raise WireFormatError(
            f"{max(0, len(data) - offset_bytes)} bytes",
            where=header.title.lower(),
            expected=f"{header.size_bytes} bytes or more",
        )
