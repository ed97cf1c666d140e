"""Captures and counters of known processes, made for the tests."""

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RATE_BPS = 10_000_000_000
FRAME_BYTES = 1514
PACKET_NANOSECONDS = FRAME_BYTES * 8 / 10
"""At 10 Gbit/s."""
CAPTURED_BYTES = 54
START_SECONDS = 1_700_000_000
DSCP = 10
NOT_ECT, ECT_0 = 0, 2

Numbers = NDArray[np.int64]


def poisson_bursts(
    sizes: Numbers, load: float, ratio: float, seed: int, senders: int = 256
) -> tuple[NDArray[np.float64], Numbers]:
    """Times in nanoseconds and senders of the packets of bursts at exponential gaps, at this source rate."""
    draw = np.random.default_rng(seed)
    gaps = draw.exponential(sizes.mean() / load * PACKET_NANOSECONDS, len(sizes))
    starts, sender = np.cumsum(gaps), draw.integers(0, senders, len(sizes))
    place = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    times = np.repeat(starts, sizes) + place * (PACKET_NANOSECONDS / ratio)
    return times, np.repeat(sender, sizes)


def write_pcap(
    file: Path,
    times_nanoseconds: NDArray[np.float64],
    senders: Numbers,
    is_important: NDArray[np.bool_],
    *,
    tick: int = 1,
    dscp: int = DSCP,
    is_sorted: bool = True,
) -> Path:
    """A nanosecond capture of Ethernet frames with IPv4, cut to their headers."""
    if is_sorted:
        order = np.argsort(times_nanoseconds, kind="stable")
        times_nanoseconds, senders = times_nanoseconds[order], senders[order]
        is_important = is_important[order]
    times = times_nanoseconds.astype(np.int64) // tick * tick
    count = len(times)
    records = np.zeros((count, 16 + CAPTURED_BYTES), dtype=np.uint8)
    head = np.zeros((count, 4), dtype="<u4")
    head[:, 0], head[:, 1] = START_SECONDS + times // 10**9, times % 10**9
    head[:, 2], head[:, 3] = CAPTURED_BYTES, FRAME_BYTES
    records[:, :16] = head.view(np.uint8)
    records[:, 16 + 12], records[:, 16 + 14] = 0x08, 0x45
    records[:, 16 + 15] = dscp << 2 | np.where(is_important, ECT_0, NOT_ECT)
    records[:, 16 + 26] = 10
    records[:, 16 + 28], records[:, 16 + 29] = senders // 256, senders % 256
    header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, CAPTURED_BYTES, 1)
    file.write_bytes(header + records.tobytes())
    return file


def option(code: int, value: bytes) -> bytes:
    """One option of a pcapng block."""
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """One block of a pcapng."""
    size = 12 + len(body)
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def section(order: str = "<") -> bytes:
    """The beginning of a pcapng section."""
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(link_type: int = 1, options: bytes = b"", order: str = "<") -> bytes:
    """An interface of a pcapng section."""
    return block(1, struct.pack(order + "HHI", link_type, 0, 0) + options, order)


def packet(units: int, frame: bytes, index: int = 0, order: str = "<", original: int = 0) -> bytes:
    """An enhanced packet block."""
    head = struct.pack(
        order + "IIIII", index, units >> 32, units & 0xFFFFFFFF, len(frame), original or len(frame)
    )
    return block(6, head + frame + bytes(-len(frame) % 4), order)
