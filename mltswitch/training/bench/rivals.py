"""Other people's flows through the same network: one host's, to some others, at a load, until its input ends.

    python -m mltswitch.training.bench.rivals OWN_ADDRESS BITS_PER_SECOND DIVISOR SEED ADDRESS...

Flows are TCP connections by cubic in the background class. They begin as a Poisson process, whatever has
become of those before; their sizes are those of a web search over DIVISOR, for a network that is as much
slower as the models in it are smaller. It prints `{}` when it listens, and sends from its first line of
input on.
"""

import asyncio
import random
import socket
import sys
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from mltswitch.units import BITS_PER_BYTE

PORT: Final = 20_955
PACKET_BYTES: Final = 1460
CHUNK_BYTES: Final = 1 << 16
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
"""(packets, share of flows that have at most so many), linear between: the web search workload of Alizadeh et
al., DCTCP (SIGCOMM 2010), as pFabric (SIGCOMM 2013, figure 4) uses it."""
MEAN_BYTES: Final = PACKET_BYTES * sum(
    (high - low) * (first + last) / 2 for (first, low), (last, high) in pairwise(SIZES)
)


def size_bytes(share: float) -> float:
    """Of the flow that so large a share of all flows, 0 to 1, does not exceed."""
    at = max(1, bisect_left(SIZES, share, key=lambda point: point[1]))
    (first, low), (last, high) = SIZES[at - 1], SIZES[at]
    return PACKET_BYTES * (first + (last - first) * (share - low) / (high - low))


async def _discard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(CHUNK_BYTES):
        pass
    writer.close()


async def _flow(source: str, target: str, count: int) -> None:
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
        connection.bind((source, 0))
        loop = asyncio.get_running_loop()
        await loop.sock_connect(connection, (target, PORT))
        chunk = bytes(CHUNK_BYTES)
        for first in range(0, count, CHUNK_BYTES):
            await loop.sock_sendall(connection, chunk[: count - first])


async def _send(source: str, bits_per_second: float, divisor: int, seed: int, targets: Sequence[str]) -> None:
    generator = random.Random(seed)  # noqa: S311  (no secret: the same flows for all methods)
    flows_per_second = bits_per_second * divisor / (MEAN_BYTES * BITS_PER_BYTE)
    loop = asyncio.get_running_loop()
    at = loop.time()
    async with asyncio.TaskGroup() as flows:
        while True:
            at += generator.expovariate(flows_per_second)
            await asyncio.sleep(at - loop.time())
            count = max(1, round(size_bytes(generator.random()) / divisor))
            flows.create_task(_flow(source, generator.choice(targets), count))


async def _run(source: str, bits_per_second: float, divisor: int, seed: int, targets: Sequence[str]) -> None:
    server = await asyncio.start_server(_discard, source, PORT)
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    async with server, asyncio.TaskGroup() as both:
        await asyncio.to_thread(sys.stdin.readline)
        sending = both.create_task(_send(source, bits_per_second, divisor, seed, targets))
        await asyncio.to_thread(sys.stdin.read)
        sending.cancel()


def main() -> None:
    """Send until standard input ends."""
    source, bits_per_second, divisor, seed, *targets = sys.argv[1:]
    asyncio.run(_run(source, float(bits_per_second), int(divisor), int(seed), targets))


if __name__ == "__main__":
    main()
