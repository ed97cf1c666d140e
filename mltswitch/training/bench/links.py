"""What the network between hosts carries, measured by TCP: round trip, rate alone and together, and losses.

All hosts call the same in the same order; `gathered` gives each of them what all have said.
"""

import fcntl
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, Self

from mltswitch.errors import MachineError
from mltswitch.units import BITS_PER_BYTE

Gather = Callable[[Any], list[Any]]

PATIENCE_SECONDS: Final = 30.0
CHUNK_BYTES: Final = 1 << 18
PINGS: Final = 50
ALONE_SECONDS, GENTLE_SECONDS, TOGETHER_SECONDS = 2.0, 4.0, 2.0
BEGINNING_SECONDS: Final = 0.4
"""A flow's rate still rises for so long."""
SAMPLE_SECONDS: Final = 0.1
GENTLE_SHARE: Final = 0.1
"""At this share of the rate a flow loses nothing by queues of its own making."""
SO_MAX_PACING_RATE: Final = 47
SIOCGIFADDR: Final = 0x8915
_TOTAL_RETRANSMITS: Final = 100
_DATA_SEGMENTS_OUT: Final = 156
"""Places in Linux's struct tcp_info (include/uapi/linux/tcp.h)."""


@dataclass(frozen=True, slots=True)
class Links:
    """What the network between some hosts carries, by TCP."""

    hosts: int
    line_bps: float | None
    """The slowest interface's speed, as the kernel tells it; None: it tells none."""
    round_trip_seconds: float
    """Median between the first host and the others, of the farthest one."""
    alone_bps: float
    """One flow from the first host to the second, nobody else of ours sending."""
    ring_bps: float
    """The slowest flow, each host sending to the next."""
    incast_bps: float
    """All flows to the first host together."""
    loss_share: float
    """The share of segments sent again by flows at a tenth of the rate: what others, or bad cables, lose."""
    steadiness: float
    """The slowest tenth of moments of the flow alone over the median one. Others' flows make it fall."""


@dataclass(frozen=True, slots=True)
class _Flow:
    samples: Sequence[float]
    """Rates, in bit/s, of successive tenths of a second."""
    retransmitted: int
    segments: int

    @property
    def rate_bps(self) -> float:
        """Median of the samples."""
        found: float = median(self.samples)
        return found


class Prober:
    """One host's part in measuring the network between all: it listens, connects and sends in turn."""

    def __init__(self, rank: int, address: str, gathered: Gather) -> None:
        self.rank = rank
        self._address = address
        self._gathered = gathered
        self._server = socket.create_server((address, 0), backlog=256)
        self._server.settimeout(PATIENCE_SECONDS)
        self._places = [tuple(place) for place in gathered(self._server.getsockname())]

    def measure(self) -> Links:
        """All that there is to know; the same on all hosts."""
        hosts = len(self._places)
        everybody = range(hosts)
        round_trip = self._round_trip_seconds()
        (alone,) = self._flows({0: 1}, ALONE_SECONDS)
        ring = {rank: (rank + 1) % hosts for rank in everybody}
        gentle = self._flows(ring, GENTLE_SECONDS, GENTLE_SHARE * alone.rate_bps)
        together = self._flows(ring, TOGETHER_SECONDS)
        incast = self._flows(dict.fromkeys(everybody[1:], 0), TOGETHER_SECONDS)
        speeds = [speed for speed in self._gathered(line_bps(self._address)) if speed is not None]
        slowest = sorted(alone.samples)[len(alone.samples) // 10]
        return Links(
            hosts=hosts,
            line_bps=min(speeds, default=None),
            round_trip_seconds=round_trip,
            alone_bps=alone.rate_bps,
            ring_bps=min(flow.rate_bps for flow in together),
            incast_bps=sum(flow.rate_bps for flow in incast),
            loss_share=sum(flow.retransmitted for flow in gentle)
            / max(1, sum(flow.segments for flow in gentle)),
            steadiness=slowest / alone.rate_bps,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End listening."""
        self._server.close()

    def _round_trip_seconds(self) -> float:
        found: list[float] = []
        for other in range(1, len(self._places)):
            seconds: list[float] = []
            if self.rank == other:
                connection, _ = self._server.accept()
                with connection:
                    while byte := connection.recv(1):
                        connection.sendall(byte)
            elif self.rank == 0:
                with self._connected(other) as connection:
                    for _ in range(PINGS):
                        began = time.perf_counter()
                        connection.sendall(b".")
                        connection.recv(1)
                        seconds.append(time.perf_counter() - began)
            found.append(max(median(each) for each in self._gathered(seconds) if each))
        return max(found)

    def _connected(self, other: int) -> socket.socket:
        host, port = self._places[other][:2]
        try:
            found = socket.create_connection((host, port), PATIENCE_SECONDS, (self._address, 0))
        except OSError as error:
            raise MachineError(f"cannot connect to {host}: {error}", where=f"rank {self.rank}") from None
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    def _flows(self, targets: Mapping[int, int], seconds: float, rate_bps: float = 0.0) -> list[_Flow]:
        """One flow from each rank to its target, all at once; a rate of 0: as fast as they can."""
        sources = [source for source, target in targets.items() if target == self.rank]
        with ThreadPoolExecutor(max(1, len(sources))) as pool:
            received = [pool.submit(self._receive) for _ in sources]
            self._gathered(None)
            sent = None
            if self.rank in targets:
                sent = self._send(targets[self.rank], seconds, rate_bps)
            came = [each.result() for each in received]
        told = self._gathered((sent, came))
        rates = [samples for _, of_rank in told for samples in of_rank]
        counts = [told[source][0] for source in targets]
        return [_Flow(samples, *count) for samples, count in zip(rates, counts, strict=True)]

    def _send(self, target: int, seconds: float, rate_bps: float) -> tuple[int, int]:
        data = bytes(CHUNK_BYTES)
        with self._connected(target) as connection:
            if rate_bps:
                rate = min(int(rate_bps / BITS_PER_BYTE), (1 << 32) - 1)
                connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("I", rate))
                data = data[: max(1448, rate // 50)]
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)  # the end: all has come
            told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        retransmitted, segments = (
            struct.unpack_from("I", told.ljust(256, b"\0"), at)[0]
            for at in (_TOTAL_RETRANSMITS, _DATA_SEGMENTS_OUT)
        )
        return retransmitted, segments

    def _receive(self) -> list[float]:
        """Rates of all moments but the first ones, and the last."""
        buffer = bytearray(CHUNK_BYTES)
        connection, _ = self._server.accept()
        with connection:
            connection.settimeout(PATIENCE_SECONDS)
            count, began, marks = 0, time.monotonic(), []
            next_at = began + BEGINNING_SECONDS
            while got := connection.recv_into(buffer):
                count += got
                if (now := time.monotonic()) >= next_at:
                    marks.append((now, count))
                    next_at = now + SAMPLE_SECONDS
        rates = [
            (after - before) * BITS_PER_BYTE / (later - earlier)
            for (earlier, before), (later, after) in pairwise(marks)
        ]
        return rates or [count * BITS_PER_BYTE / max(time.monotonic() - began, SAMPLE_SECONDS)]


def own_address(master: str) -> str:
    """The address of this host on the way to another; raises MachineError where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((master, 9))
        except OSError as error:
            raise MachineError(f"{master} cannot be reached: {error}", where="MASTER_ADDR") from None
        found: str = probe.getsockname()[0]
        return found


def interface_of(address: str) -> str | None:
    """The interface that has an address first; None: none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, request)
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None


def line_bps(address: str) -> float | None:
    """Speed of the interface with an address, as the kernel tells it (sysfs); None: it tells none."""
    name = interface_of(address)
    if name is None:
        return None
    try:
        megabits = int(Path(f"/sys/class/net/{name}/speed").read_text(encoding="ascii"))
    except (OSError, ValueError):  # loopback and tunnels have no speed
        return None
    return megabits * 1e6 if megabits > 0 else None
