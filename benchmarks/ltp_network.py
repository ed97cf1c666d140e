"""What the benchmarks of the transport `ltp` share: a star of slow ports, and everybody's ends on it.

Ports have 100 Mbit/s and one drop-tail queue of 128 kB for all: no switch here knows what is important. Each
agent has a channel named after its transport for each of ours; TCP's congestion controls are the kernel's.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from benchmarks.agent_network import StarEnds, running_star_ends
from mltswitch.lab import one_queue, running_star

RATE_BPS: Final = 100_000_000
QUEUE_BYTES: Final = 128_000
OURS: Final = ("mlt", "ltp")


@contextmanager
def running_ltp(senders: int, round_trip_seconds: float, loss: float = 0.0) -> Iterator[StarEnds]:
    """A fresh network, as nobody's memory of another round trip should count; raises MachineError."""
    with running_star(senders + 1) as star:
        star.set_rate(RATE_BPS)
        star.set_queues(one_queue(QUEUE_BYTES))
        star.set_round_trip(round_trip_seconds, star.round_trip_seconds())
        channels = {name: name for name in OURS}
        with running_star_ends(star, RATE_BPS, queue=QUEUE_BYTES, channels=channels) as ends:
            star.set_loss(loss)
            yield ends


def limit_seconds(size_bytes: int) -> float:
    """Of so many bytes through a port, headers not counted."""
    return size_bytes * 8 / RATE_BPS


def in_turn(transports: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Number of the round and transport, each round from another start."""
    for number in range(rounds):
        start = number % len(transports)
        for name in (*transports[start:], *transports[:start]):
            yield number, name
