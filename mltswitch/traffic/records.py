"""Packet records of pcap and pcapng files, read piece by piece into columns of numbers."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.units import NANOSECONDS

PIECE_BYTES: Final = 4 * 2**20
PADDING: Final = bytes(256)
"""Bytes appended to each piece of a file, so that header fields can be read without bounds checks."""
LARGEST_RECORD_BYTES: Final = 16 * 2**20
"""Size above which a record is taken for damage; no capture tool writes larger ones."""
LATEST_SECOND: Final = 2**33
"""Latest time stamp in seconds; its nanoseconds fit into 64 bits."""

PCAP_HEADER_BYTES: Final = 24
PCAP_RECORD_BYTES: Final = 16
PCAP_FORMATS: Final = {
    bytes.fromhex("d4c3b2a1"): ("<", 1000),
    bytes.fromhex("a1b2c3d4"): (">", 1000),
    bytes.fromhex("4d3cb2a1"): ("<", 1),
    bytes.fromhex("a1b23c4d"): (">", 1),
}
"""Maps a pcap file's first bytes to its byte order and the nanoseconds of its time stamps' sub-second
unit."""

SECTION: Final = 0x0A0D0D0A
SECTION_START: Final = SECTION.to_bytes(4, "big")
BYTE_ORDERS: Final = {bytes.fromhex("4d3c2b1a"): "<", bytes.fromhex("1a2b3c4d"): ">"}
INTERFACE: Final = 1
OBSOLETE_PACKET: Final = 2
SIMPLE_PACKET: Final = 3
ENHANCED_PACKET: Final = 6
PACKET_BLOCK_BYTES: Final = 32
RESOLUTION_OPTION: Final = 9
OFFSET_OPTION: Final = 14

Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Records:
    """Some consecutive packets of a capture."""

    content: NDArray[np.uint8]
    starts: Column
    """Offsets in `content` at which each frame begins."""
    ends: Column
    """Offsets in `content` at which the captured part of each frame ends."""
    original_bytes: Column
    times_nanoseconds: Column
    link_types: Column
    interfaces: Column


def is_capture(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes is a pcap or a pcapng."""
    return beginning[:4] in PCAP_FORMATS or beginning[:4] == SECTION_START


def read_records(stream: BinaryIO, where: str) -> Iterator[Records]:
    """All packets of a pcap or pcapng file, some thousand at a time.

    Raises:
        UserInputError: the file is damaged, cut off, or has packets without a time.
    """
    beginning = stream.read(4)
    if beginning in PCAP_FORMATS:
        return _read_pcap(stream, beginning, where)
    if beginning == SECTION_START:
        return _PcapngReader(where).read(stream, beginning)
    raise UserInputError("is no packet capture", where=where, expected="pcap or pcapng")


def _read_pcap(stream: BinaryIO, beginning: bytes, where: str) -> Iterator[Records]:
    order, unit = PCAP_FORMATS[beginning]
    header = beginning + stream.read(PCAP_HEADER_BYTES - 4)
    if len(header) < PCAP_HEADER_BYTES:
        raise UserInputError("ends inside the file header", where=where)
    link_type = struct.unpack_from(order + "I", header, 20)[0] & 0xFFFF
    captured_at = struct.Struct(order + "I").unpack_from
    rest, packets = b"", 0
    while piece := stream.read(PIECE_BYTES):
        content = rest + piece
        positions: list[int] = []
        position = 0
        while position + PCAP_RECORD_BYTES <= len(content):
            captured = captured_at(content, position + 8)[0]
            if captured > LARGEST_RECORD_BYTES:
                raise _damaged(where, packets + len(positions) + 1, f"says it has {captured} bytes")
            following = position + PCAP_RECORD_BYTES + captured
            if following > len(content):
                break
            positions.append(position)
            position = following
        rest = content[position:]
        if positions:
            yield _pcap_records(content, positions, order, unit, link_type, where, packets)
            packets += len(positions)
    if rest:
        raise UserInputError(f"ends inside packet {packets + 1}", where=where, hint="the file was cut off")


def _pcap_records(
    content: bytes, positions: list[int], order: str, unit: int, link_type: int, where: str, before: int
) -> Records:
    columns, at = _columns(content, positions)
    seconds, fraction, captured, original = _words(columns, at, PCAP_RECORD_BYTES, order)
    if (wrong := fraction * unit >= NANOSECONDS).any():
        number = before + int(np.argmax(wrong)) + 1
        raise _damaged(where, number, "has a time whose fraction is more than a second")
    starts = at + PCAP_RECORD_BYTES
    return Records(
        content=columns,
        starts=starts,
        ends=starts + captured,
        original_bytes=original,
        times_nanoseconds=seconds * NANOSECONDS + fraction * unit,
        link_types=np.full(len(at), link_type, dtype=np.int64),
        interfaces=np.zeros(len(at), dtype=np.int64),
    )


def _columns(content: bytes, positions: list[int]) -> tuple[NDArray[np.uint8], Column]:
    return np.frombuffer(content + PADDING, dtype=np.uint8), np.array(positions, dtype=np.int64)


def _words(content: NDArray[np.uint8], at: Column, size: int, order: str) -> tuple[Column, ...]:
    """The 32-bit fields of the headers at these positions."""
    headers = content[at[:, None] + np.arange(size)]
    words = headers.view(np.dtype(np.uint32).newbyteorder("<" if order == "<" else ">"))
    return tuple(words[:, index].astype(np.int64) for index in range(size // 4))


def _damaged(where: str, number: int, why: str) -> UserInputError:
    return UserInputError(f"packet {number} {why}", where=where, hint="the file is damaged")


@dataclass(frozen=True, slots=True)
class _Interface:
    link_type: int
    units_per_second: int
    offset_seconds: int

    def times_nanoseconds(self, units: NDArray[np.uint64], where: str) -> Column:
        seconds, fraction = np.divmod(units, np.uint64(self.units_per_second))
        latest = int(seconds.max()) + self.offset_seconds
        if latest >= LATEST_SECOND or int(seconds.min()) + self.offset_seconds < 0:
            raise UserInputError(
                "a packet's time lies outside the years 1970 to 2242", where=where, hint="the file is damaged"
            )
        if self.units_per_second % NANOSECONDS == 0:
            nanoseconds = fraction // np.uint64(self.units_per_second // NANOSECONDS)
        else:
            shift = max(1, self.units_per_second // LATEST_SECOND)  # keeps the product within 64 bits
            nanoseconds = fraction // np.uint64(shift) * np.uint64(NANOSECONDS)
            nanoseconds //= np.uint64(self.units_per_second // shift)
        whole = seconds.astype(np.int64) + self.offset_seconds
        return np.asarray(whole * NANOSECONDS + nanoseconds.astype(np.int64), dtype=np.int64)


class _PcapngReader:
    """Walks the blocks of a pcapng file; each section has its own byte order and its own interfaces."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.order = "<"
        self.interfaces: list[_Interface] = []
        self.first_of_section = 0
        self.packets = 0
        self.positions: list[int] = []

    def read(self, stream: BinaryIO, rest: bytes) -> Iterator[Records]:
        while piece := stream.read(PIECE_BYTES):
            content = rest + piece
            position = 0
            while position + 12 <= len(content):
                if content[position : position + 4] == SECTION_START:
                    yield from self._collected(content)  # what is of another byte order, perhaps
                    self._begin_section(content[position + 8 : position + 12])
                kind, length = struct.unpack_from(self.order + "II", content, position)
                if length < 12 or length % 4 or length > LARGEST_RECORD_BYTES:
                    raise self._damaged(f"says it has {length} bytes")
                if position + length > len(content):
                    break
                self._take(kind, content, position, length)
                position += length
            yield from self._collected(content)
            rest = content[position:]
        if rest:
            raise UserInputError(
                f"ends inside the block after packet {self.packets}",
                where=self.where,
                hint="the file was cut off",
            )

    def _begin_section(self, mark: bytes) -> None:
        if mark not in BYTE_ORDERS:
            raise self._damaged("begins a section without a byte order")
        self.order = BYTE_ORDERS[mark]
        self.first_of_section = len(self.interfaces)

    def _take(self, kind: int, content: bytes, position: int, length: int) -> None:
        if kind == ENHANCED_PACKET:
            room = length - PACKET_BLOCK_BYTES
            if room < 0 or struct.unpack_from(self.order + "I", content, position + 20)[0] > room:
                raise self._damaged("is shorter than its packet")
            self.positions.append(position)
        elif kind == INTERFACE:
            self.interfaces.append(self._interface(content[position + 8 : position + length - 4]))
        elif kind in (SIMPLE_PACKET, OBSOLETE_PACKET):
            raise UserInputError(
                "holds packet blocks without a time, or of the obsolete kind",
                where=self.where,
                expected="enhanced packet blocks, as tcpdump and Wireshark write them",
            )

    def _interface(self, body: bytes) -> _Interface:
        if len(body) < 8:
            raise self._damaged("is too short for an interface")
        units, offset = 10**6, 0
        for code, value in self._options(body[8:]):
            if code == RESOLUTION_OPTION and len(value) == 1:
                exponent = value[0] & 0x7F
                units = 2**exponent if value[0] & 0x80 else 10**exponent
            elif code == OFFSET_OPTION and len(value) == 8:
                offset = struct.unpack(self.order + "q", value)[0]
        if units > 2**63:
            raise self._damaged("has an impossible clock resolution")
        return _Interface(struct.unpack_from(self.order + "H", body)[0], units, offset)

    def _options(self, body: bytes) -> Iterator[tuple[int, bytes]]:
        position = 0
        while position + 4 <= len(body):
            code, length = struct.unpack_from(self.order + "HH", body, position)
            if code == 0:
                return
            yield code, body[position + 4 : position + 4 + length]
            position += 4 + (length + 3) // 4 * 4

    def _collected(self, content: bytes) -> Iterator[Records]:
        if self.positions:
            yield self._records(*_columns(content, self.positions))
            self.packets += len(self.positions)
            self.positions = []

    def _records(self, content: NDArray[np.uint8], at: Column) -> Records:
        words = _words(content, at, PACKET_BLOCK_BYTES - 4, self.order)
        _, _, index, high, low, captured, original = words
        index = index + self.first_of_section
        if int(index.max()) >= len(self.interfaces):
            raise self._damaged("is of an interface that nothing describes")
        units = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
        times, link_types = np.empty_like(index), np.empty_like(index)
        for number in map(int, np.unique(index)):
            chosen = index == number
            times[chosen] = self.interfaces[number].times_nanoseconds(units[chosen], self.where)
            link_types[chosen] = self.interfaces[number].link_type
        starts = at + PACKET_BLOCK_BYTES - 4
        return Records(content, starts, starts + captured, original, times, link_types, index)

    def _damaged(self, why: str) -> UserInputError:
        after = self.packets + len(self.positions)
        return UserInputError(
            f"a block after packet {after} {why}", where=self.where, hint="the file is damaged"
        )
