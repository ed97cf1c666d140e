"""Background traffic: sends flows from one host to others at a given load until its standard input ends.

    python -m mltswitch.training.bench.rivals OWN_ADDRESS BITS_PER_SECOND DIVISOR SEED ADDRESS...

Flows are TCP connections by cubic in the background class. They begin as a Poisson process, whatever has
become of those before; their sizes are those of a web search over DIVISOR, for a network that is as much
slower as the models in it are smaller. It prints `{}` when it listens, and sends from its first line of
input on; to each further one it answers how many flows there were, and how many have failed.
"""

import asyncio
import json
import random
import socket
import sys
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

from mltswitch.units import BITS_PER_BYTE

PORT: Final = 20_955
PACKET_BYTES: Final = 1460
CHUNK_BYTES: Final = 1 << 16
IP_BIND_ADDRESS_NO_PORT: Final = 24
"""Socket option of ip(7) without a name in Python: the port is chosen when both ends are known, so that
several connections may share it."""
SIZES: Final = (
    (0, 0.0),
    (6, 0.15),
    (13, 0.2),
    (19, 0.3),
    (33, 0.4),
    (53, 0.53),
    (133, 0.6),
    (667, 0.7),
    (1333, 0.8),
    (3333, 0.9),
    (6667, 0.97),
    (20_000, 1.0),
)
"""Pairs (packets, share of flows with at most as many), linear in between: the web search workload of
Alizadeh et al., DCTCP (SIGCOMM 2010), as in pFabric (SIGCOMM 2013, figure 4)."""
MEAN_BYTES: Final = PACKET_BYTES * sum(
    (high - low) * (first + last) / 2 for (first, low), (last, high) in pairwise(SIZES)
)


def size_bytes(share: float) -> float:
    """The flow size that a share (0 to 1) of all flows does not exceed."""
    at = max(1, bisect_left(SIZES, share, key=lambda point: point[1]))
    (first, low), (last, high) = SIZES[at - 1], SIZES[at]
    return PACKET_BYTES * (first + (last - first) * (share - low) / (high - low))


async def _discard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # the other end counts it
        while await reader.read(CHUNK_BYTES):
            pass
    writer.close()


class _Flows:
    """All that this host sends."""

    def __init__(self, source: str, targets: Sequence[str]) -> None:
        self._source = source
        self._targets = targets
        self.counts: dict[str, Any] = {"flows": 0, "failed": 0, "reason": ""}

    async def send(self, target: str, count: int) -> None:
        """One flow, counted."""
        self.counts["flows"] += 1
        try:
            await self._carry(target, count)
        except OSError as error:
            self.counts["failed"] += 1
            self.counts["reason"] = str(error)

    async def _carry(self, target: str, count: int) -> None:
        with socket.socket() as connection:
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
            connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            connection.bind((self._source, 0))
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, (target, PORT))
            chunk = bytes(CHUNK_BYTES)
            for first in range(0, count, CHUNK_BYTES):
                await loop.sock_sendall(connection, chunk[: count - first])

    async def run(self, bits_per_second: float, divisor: int, seed: int) -> None:
        """Begin flows as a Poisson process until the task is cancelled."""
        generator = random.Random(seed)  # noqa: S311  (no secret: the same flows for all methods)
        flows_per_second = bits_per_second * divisor / (MEAN_BYTES * BITS_PER_BYTE)
        loop = asyncio.get_running_loop()
        at = loop.time()
        async with asyncio.TaskGroup() as flows:
            while True:
                at += generator.expovariate(flows_per_second)
                await asyncio.sleep(at - loop.time())
                count = max(1, round(size_bytes(generator.random()) / divisor))
                flows.create_task(self.send(generator.choice(self._targets), count))


async def _run(source: str, bits_per_second: float, divisor: int, seed: int, targets: Sequence[str]) -> None:
    server = await asyncio.start_server(_discard, source, PORT)
    flows = _Flows(source, targets)
    sending: asyncio.Task[None] | None = None
    _say({})
    async with server, asyncio.TaskGroup() as tasks:
        while await asyncio.to_thread(sys.stdin.readline):
            if sending is None:
                sending = tasks.create_task(flows.run(bits_per_second, divisor, seed))
            else:
                _say(flows.counts)
        if sending is not None:
            sending.cancel()


def _say(counts: Mapping[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(counts)}\n")
    sys.stdout.flush()


def main() -> None:
    """Send flows until standard input ends."""
    source, bits_per_second, divisor, seed, *targets = sys.argv[1:]
    asyncio.run(_run(source, float(bits_per_second), int(divisor), int(seed), targets))


if __name__ == "__main__":
    main()
