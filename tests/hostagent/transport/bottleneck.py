"""Senders under rate control meet at one queue: a packet model with a clock of its own."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random

from mltswitch.hostagent.transport.interfaces import RateController
from mltswitch.hostagent.transport.pacing import Pacer

PACKET_BYTES = 1500
PACKETS_AN_ACKNOWLEDGEMENT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """What all packets go through."""

    rate_bps: float
    base_round_trip_ns: int
    queue_bytes: int
    noise_ns: int = 0
    """Added to a share of the round trips, evenly from nothing to twice this."""
    noise_share: float = 0.0


@dataclass(slots=True)
class Sender:
    """One flow that never runs out of data."""

    rate: RateController
    starts_ns: int = 0
    sent: int = 0
    delivered: list[int] = field(default_factory=list)
    """When each packet left the queue."""
    rates_bps: list[float] = field(default_factory=list)
    """After each acknowledgement."""

    def delivered_bps(self, first_ns: int, last_ns: int) -> float:
        """Goodput of a stretch of time."""
        packets = sum(first_ns <= at < last_ns for at in self.delivered)
        return packets * PACKET_BYTES * 8e9 / (last_ns - first_ns)


def run(bottleneck: Bottleneck, senders: Sequence[Sender], until_ns: int, seed: int = 1) -> list[int]:
    """The waiting time that each packet found in the queue, in ns; a full queue drops at its tail."""
    random = Random(seed)  # noqa: S311  (noise of a model, no secret)
    order = count()
    events: list[tuple[int, int, Callable[[int], None]]] = []
    waits: list[int] = []
    free_at = 0
    packet_ns = round(PACKET_BYTES * 8e9 / bottleneck.rate_bps)
    limit_ns = bottleneck.queue_bytes // PACKET_BYTES * packet_ns

    def at(when_ns: int, what: Callable[[int], None]) -> None:
        heapq.heappush(events, (when_ns, next(order), what))

    def noise() -> int:
        if random.random() >= bottleneck.noise_share:
            return 0
        return round(random.uniform(0, 2 * bottleneck.noise_ns))

    def sending(sender: Sender, pacer: Pacer) -> Callable[[int], None]:
        def send(now_ns: int) -> None:
            nonlocal free_at
            while pacer.may_leave_bytes(sender.rate.rate_bps, now_ns):
                pacer.left(PACKET_BYTES)
                sender.sent += 1
                waited = max(0, free_at - now_ns)
                if waited > limit_ns:
                    continue
                waits.append(waited)
                free_at = max(free_at, now_ns) + packet_ns
                sender.delivered.append(free_at)
                if len(sender.delivered) % PACKETS_AN_ACKNOWLEDGEMENT == 0:
                    round_trip = free_at - now_ns + bottleneck.base_round_trip_ns + noise()
                    at(now_ns + round_trip, acknowledging(sender, round_trip))
            gap_ns = pacer.next_ns(sender.rate.rate_bps, now_ns) - now_ns
            at(now_ns + 1 + round(gap_ns * random.uniform(0.9, 1.1)), send)

        return send

    def acknowledging(sender: Sender, round_trip_ns: int) -> Callable[[int], None]:
        def acknowledge(now_ns: int) -> None:
            sender.rate.acknowledged(round_trip_ns, now_ns)
            sender.rates_bps.append(sender.rate.rate_bps)

        return acknowledge

    for sender in senders:
        pacer = Pacer(sender.starts_ns, least_credit_bytes=2 * PACKET_BYTES, slack_ns=0, pause_ns=0)
        at(sender.starts_ns, sending(sender, pacer))
    while events and events[0][0] < until_ns:
        now, _, what = heapq.heappop(events)
        what(now)
    return waits
