"""Measures the network between hosts by TCP: round trip, rate of one and of all flows, and losses.

All hosts make the same calls in the same order; `gathered` gives each host the values of all.
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
"""How long the rate of a new flow keeps rising."""
SAMPLE_SECONDS: Final = 0.1
GENTLE_SHARE: Final = 0.1
"""Share of the rate at which a flow causes no losses in queues by itself."""
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
    """Speed of the slowest interface as the kernel reports it; None: it reports none."""
    round_trip_seconds: float
    """Median round trip between the first host and the farthest other one."""
    alone_bps: float
    """Rate of one flow from the first host to the second while no other host of the job sends."""
    ring_bps: float
    """Rate of the slowest flow while each host sends to the next."""
    incast_bps: float
    """Rate of all flows to the first host together."""
    loss_share: float
    """Share of segments that flows at a tenth of the rate send again: losses by other traffic or by bad
    cables."""
    steadiness: float
    """Rate of the lone flow in its slowest tenth of moments over the median one; other traffic makes it
    fall."""


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
        """Measure the network together with the other hosts; the result is the same on all of them."""
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
    """This host's address on the way to another host; raises MachineError where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((master, 9))
        except OSError as error:
            raise MachineError(f"{master} cannot be reached: {error}", where="MASTER_ADDR") from None
        found: str = probe.getsockname()[0]
        return found


def interface_of(address: str) -> str | None:
    """Name of the first interface that has an address; None: none has it."""
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
