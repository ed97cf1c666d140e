"""Reads a whole capture into columns of what a queue sees of its packets, some 18 bytes for each packet."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.documents import open_regular
from mltswitch.errors import UserInputError
from mltswitch.traffic.records import Column, Records, read_records
from mltswitch.units import ETHERNET_HEADER_BYTES, NANOSECONDS

MOST_PACKETS: Final = 50_000_000
MOST_STEP_BACK_NANOSECONDS: Final = NANOSECONDS
"""Largest step back in time that counts as reordering by a network card's queues; a larger one means that the
clock was set."""
COARSEST_TICK_NANOSECONDS: Final = 1_000_000

ETHERNET: Final = 1
RAW_IP: Final = frozenset({12, 14, 101, 228, 229})
"""Link types of raw IP: LINKTYPE_RAW, its old values, LINKTYPE_IPV4 and LINKTYPE_IPV6."""
PROTOCOL_AT: Final = {ETHERNET: 12, 113: 14, 276: 0}
"""Offset of the protocol field in a frame, by link type (Ethernet; Linux cooked capture SLL and SLL2)."""
PAYLOAD_AT: Final = {ETHERNET: 14, 113: 16, 276: 20}
VLAN_TAGS: Final = (0x8100, 0x88A8, 0x9100)
MOST_TAGS: Final = 4
IPV4: Final = 0x0800
IPV6: Final = 0x86DD
MIX: Final = np.uint64(0x9E3779B97F4A7C15)
"""Multiplier of Fibonacci hashing: 2^64 over the golden ratio."""

Progress = Callable[[int], None]
"""Called with the number of bytes read so far."""


@dataclass(frozen=True, slots=True)
class Packets:
    """Columns of the IP packets among some frames."""

    times_nanoseconds: Column
    sizes_bytes: NDArray[np.uint32]
    """Packet sizes as a queue counts them: with an Ethernet header, whatever header the capture had."""
    traffic_class_bytes: NDArray[np.uint8]
    """The IPv4 TOS or IPv6 traffic class byte of each packet, with DSCP and ECN."""
    senders: NDArray[np.uint32]
    """Hash of each packet's source address, since a host sends its bursts back to back whichever path they
    take."""
    other_frames: int
    """Frames that carry no IP, or were cut before its header."""


@dataclass(frozen=True, slots=True)
class Capture(Packets):
    """The IP packets of a capture, in order of time."""

    interfaces: int
    """Interfaces that packets were captured on."""
    reordered_packets: int
    """Number of packets that stood behind a later one in the file."""
    tick_nanoseconds: int
    """Resolution of the capture's clock, a power of ten."""

    @property
    def duration_seconds(self) -> float:
        """Time from the first packet to the last one."""
        return float(self.times_nanoseconds[-1] - self.times_nanoseconds[0]) / NANOSECONDS


def read_capture(path: Path, on_progress: Progress | None = None) -> Capture:
    """All IP packets of a pcap or pcapng file.

    Raises:
        UserInputError: the file is no capture, is damaged or cut off, holds no IP packets, or its times say
            nothing.
    """
    pieces: list[Packets] = []
    interfaces: set[int] = set()
    packets = 0
    with open_regular(path) as stream:
        for records in read_records(stream, str(path)):
            pieces.append(ip_packets(records, str(path)))
            interfaces.update(map(int, np.unique(records.interfaces)))
            packets += len(pieces[-1].senders)
            if packets > MOST_PACKETS:
                raise UserInputError(
                    f"holds more than {MOST_PACKETS:,} packets", where=str(path), hint="fit a shorter capture"
                )
            if on_progress is not None:
                on_progress(stream.tell())
    other = sum(piece.other_frames for piece in pieces)
    if packets == 0:
        what = f"holds no IP packet, and {other} other frames" if other else "holds no packets"
        raise UserInputError(what, where=str(path))
    columns: dict[str, Any] = {
        field.name: np.concatenate([getattr(piece, field.name) for piece in pieces])
        for field in fields(Packets)
        if field.name != "other_frames"
    }
    pieces.clear()
    reordered = _sort(columns, str(path))
    return Capture(
        **columns,
        other_frames=other,
        interfaces=len(interfaces),
        reordered_packets=reordered,
        tick_nanoseconds=_tick(columns["times_nanoseconds"]),
    )


def _sort(columns: dict[str, Any], where: str) -> int:
    """Bring the columns into order of time; how many packets were out of it."""
    times = columns["times_nanoseconds"]
    latest = np.maximum.accumulate(times)
    late = latest - times
    if len(times) > 1 and times.max() == times.min():
        raise UserInputError(f"has no timestamps: all {len(times)} packets have the same time", where=where)
    if late.max() > MOST_STEP_BACK_NANOSECONDS:
        worst = int(np.argmax(late))
        raise UserInputError(
            f"time runs back by {late[worst] / NANOSECONDS:g} s at IP packet {worst + 1}",
            where=where,
            hint="the clock was set, or captures were joined; sort them with reordercap, or fit one of them",
        )
    reordered = int(np.count_nonzero(late))
    if reordered:
        order = np.argsort(times, kind="stable")
        for name, column in columns.items():
            columns[name] = column[order]
    return reordered


def _tick(times: Column) -> int:
    """The largest power of ten that all distances are multiples of."""
    common = int(np.gcd.reduce(times - times[0]))
    tick = 1
    while tick < COARSEST_TICK_NANOSECONDS and common and common % (tick * 10) == 0:
        tick *= 10
    return tick


def ip_packets(records: Records, where: str) -> Packets:
    """The IP packets among these records; raises UserInputError for a link type that we cannot read."""
    payload, link_header_bytes, version = _network_layer(records, where)
    content, ends = records.content, records.ends
    source_at = payload + np.where(version == 6, 8, 12)
    source_bytes = np.where(version == 6, 16, 4)
    is_ip = (version > 0) & (source_at + source_bytes <= ends)
    rows = np.flatnonzero(is_ip)
    payload, version = payload[rows], version[rows]
    first, second = content[payload], content[payload + 1]
    traffic_class = np.where(version == 6, (first & 0x0F) << 4 | second >> 4, second).astype(np.uint8)
    sizes = records.original_bytes[rows] - link_header_bytes[rows] + ETHERNET_HEADER_BYTES
    return Packets(
        times_nanoseconds=records.times_nanoseconds[rows],
        sizes_bytes=np.clip(sizes, 1, 2**32 - 1).astype(np.uint32),
        traffic_class_bytes=traffic_class,
        senders=_senders(content, source_at[rows], version),
        other_frames=len(is_ip) - len(rows),
    )


def _network_layer(records: Records, where: str) -> tuple[Column, Column, Column]:
    """Per frame: where its IP header begins, how long its link header is, and 4, 6 or 0 for no IP."""
    payload = records.starts.copy()
    link_header_bytes = np.zeros(len(payload), dtype=np.int64)
    version = np.zeros(len(payload), dtype=np.int64)
    for link_type in map(int, np.unique(records.link_types)):
        rows = np.flatnonzero(records.link_types == link_type)
        starts = records.starts[rows]
        if link_type in RAW_IP:
            found = records.content[starts] >> 4
            version[rows] = np.where((found == 4) | (found == 6), found, 0)
        elif link_type in PROTOCOL_AT:
            payload[rows], version[rows] = _behind_link_header(records.content, starts, link_type)
            link_header_bytes[rows] = PAYLOAD_AT[link_type]
        else:
            raise UserInputError(
                f"frames of link type {link_type} cannot be read",
                where=where,
                expected="Ethernet, Linux cooked capture or raw IP",
            )
    return payload, link_header_bytes, version


def _behind_link_header(
    content: NDArray[np.uint8], starts: Column, link_type: int
) -> tuple[Column, NDArray[np.int64]]:
    protocol = _two_bytes(content, starts + PROTOCOL_AT[link_type])
    payload = starts + PAYLOAD_AT[link_type]
    for _ in range(MOST_TAGS):
        tagged = np.isin(protocol, VLAN_TAGS)
        if not tagged.any():
            break
        protocol = np.where(tagged, _two_bytes(content, payload + 2), protocol)
        payload = np.where(tagged, payload + 4, payload)
    found = (content[payload] >> 4).astype(np.int64)
    is_ip = ((protocol == IPV4) & (found == 4)) | ((protocol == IPV6) & (found == 6))
    return payload, np.where(is_ip, found, 0)


def _two_bytes(content: NDArray[np.uint8], at: Column) -> Column:
    return content[at].astype(np.int64) << 8 | content[at + 1]


def _senders(content: NDArray[np.uint8], source_at: Column, version: Column) -> NDArray[np.uint32]:
    hashed = version.astype(np.uint64)
    for word in range(4):
        at = source_at + 4 * word
        value = (_two_bytes(content, at) << 16 | _two_bytes(content, at + 2)).astype(np.uint64)
        mixed = (hashed ^ value) * MIX  # 64-bit overflow is what mixes
        hashed = np.where((version == 6) | (word == 0), mixed ^ mixed >> np.uint64(32), hashed)
    return (hashed & np.uint64(2**32 - 1)).astype(np.uint32)
