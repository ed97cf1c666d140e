"""The crowds of `agent_incast`: more senders, two receivers, a slow one, two jobs, TCP beside, thin uplinks.

What the figures mean stands there. All ports have 100 Mbit/s, a round trip is 0.2 ms.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.agent_ends import (
    CONTROL_DSCP,
    CONTROL_PORT,
    DSCP,
    Worker,
    agent_fields,
    connect,
    gathered,
    open_agent,
    post_gather,
    scatter_pairs,
    set_cap,
    streams_until,
)
from benchmarks.agent_network import LEAD_NS, percentile, sender_name
from benchmarks.agent_rivals import tcp_accept, tcp_connect, tcp_give_until, tcp_listen, tcp_take_until
from mltswitch.hostagent.port_share import HIGHEST
from mltswitch.lab import Queue, Star, one_queue, running_leaf_spine, running_star
from mltswitch.units import BITS_PER_BYTE

RATE_BPS: Final = 100_000_000
ROUND_TRIP_SECONDS: Final = 0.2e-3
SIZE_BYTES: Final = 128 << 10
STREAM_BYTES: Final = 1 << 20
BUFFER_BYTES: Final = 256_000
MARKED_BYTES: Final = 128_000
MOST_SENDERS: Final = 16
EIGHT: Final = 8
RECEIVER, OTHER, SECOND_JOB = "receiver", "other", "second-job"
SLOW_SHARE: Final = 1 / 20
"""Of its fair share of the port: the slow sender's own rate."""
ROUNDS, QUICK_ROUNDS = 30, 8
SECONDS, QUICK_SECONDS = 10.0, 6.0
PAUSE_SECONDS: Final = 0.02
SPINES: Final = 2
OVERSUBSCRIPTION: Final = 4.0
Pair = tuple[str, str]
"""A sender and a receiver."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Agents by name on a network's hosts: senders in one process, receivers in another."""

    network: Star
    senders: Worker
    receivers: Worker

    def incasts(self, pairs: Sequence[Pair], rounds: int) -> dict[Pair, list[float]]:
        """Rounds of a tensor over each pair, all at once: seconds until it has come; one more first."""
        found: dict[Pair, list[float]] = {pair: [] for pair in pairs}
        for number in range(rounds + 1):
            in_order = sorted(pairs, key=lambda pair: pair[1])
            for sender, receiver in in_order:
                self.receivers.call(post_gather, receiver, [sender], SIZE_BYTES, "default")
            at_ns = time.monotonic_ns() + LEAD_NS
            self.receivers.start(gathered)
            self.senders.start(scatter_pairs, at_ns, pairs, SIZE_BYTES)
            received = self.receivers.result()
            self.senders.result()
            for pair, ended_ns in zip(in_order, received["ended_ns"], strict=True):
                found[pair] += [(ended_ns - at_ns) / 1e9] if number else []
            time.sleep(PAUSE_SECONDS)
        return found

    def start_streams(self, pairs: Sequence[Pair], until_ns: int) -> None:
        """Tensors over each pair, one after the other, until that instant."""
        self.receivers.start(streams_until, False, until_ns, pairs, STREAM_BYTES)
        self.senders.start(streams_until, True, until_ns, pairs, STREAM_BYTES)

    def streamed(self, seconds: float) -> list[float]:
        """Bit/s of each pair of `start_streams`, over its time."""
        received = self.receivers.result()
        self.senders.result()
        return [count * BITS_PER_BYTE / seconds for count in received]


@contextmanager
def running_ends(
    network: Star,
    places: Mapping[str, int],
    pairs: Sequence[Pair],
    queues: Sequence[Queue],
    priorities: Mapping[str, int] | None = None,
) -> Iterator[Ends]:
    """Agents connected over each pair.

    Args:
        network: of all.
        places: of each agent, the host.
        pairs: who is connected.
        queues: of all ports.
        priorities: of receivers that share their port by a file; None: nobody is told of others.

    Raises MachineError.
    """
    network.set_rate(RATE_BPS)
    network.set_queues(queues)
    network.set_round_trip(ROUND_TRIP_SECONDS, network.round_trip_seconds())
    hosts = [*places.values()]
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="mltswitch-crowd-"))
        ends = tuple(dict.fromkeys(pair[side] for pair in pairs) for side in range(2))
        senders, receivers = (
            stack.enter_context(Worker(network.hosts[places[next(iter(names))]])) for names in ends
        )
        listen = {}
        for number, (name, host) in enumerate(places.items()):
            listen[name] = f"{network.addresses(host)[0]}:{CONTROL_PORT + hosts[:number].count(host)}"
            fields = agent_fields(name, network.addresses(host), RATE_BPS, listen=listen[name])
            fields["queue"] = queues[0].threshold_bytes
            if priorities is not None and name in priorities:
                fields["port_share"] = {"file": f"{folder}/port", "priority": priorities[name]}
            (senders if name in ends[0] else receivers).call(open_agent, fields, network.hosts[host])
        for sender, receiver in pairs:
            senders.call(connect, sender, receiver, listen[receiver])
        yield Ends(network, senders, receivers)


def crowds(*, quick: bool) -> dict[str, float]:
    """All figures; raises MachineError."""
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if quick else (ROUNDS, SECONDS)
    two = two_jobs(seconds) | two_jobs_with_priorities(seconds)
    return many_and_slow(rounds) | two | beside_cubic(seconds) | thin_uplinks(seconds)


def planned() -> tuple[Queue, ...]:
    """One gradient class and the rest."""
    return (
        Queue(MARKED_BYTES, BUFFER_BYTES, (DSCP,)),
        Queue(BUFFER_BYTES, BUFFER_BYTES, (CONTROL_DSCP,)),
    )


def limit_seconds(senders: int) -> float:
    """Of so many tensors through one port."""
    return senders * SIZE_BYTES * BITS_PER_BYTE / RATE_BPS


def many_and_slow(rounds: int) -> dict[str, float]:
    """Sixteen senders; eight to two receivers; seven beside a slow one."""
    names = [sender_name(number) for number in range(MOST_SENDERS)]
    places = {name: number for number, name in enumerate(names)} | {
        RECEIVER: MOST_SENDERS,
        OTHER: MOST_SENDERS + 1,
    }
    to_one, to_other = [(name, RECEIVER) for name in names], [(name, OTHER) for name in names[:EIGHT]]
    with (
        running_star(MOST_SENDERS + 2) as star,
        running_ends(star, places, to_one + to_other, planned()) as ends,
    ):
        many = ends.incasts(to_one, rounds)
        two = ends.incasts(to_one[:EIGHT] + to_other, rounds)
        slow = names[0]
        ends.senders.call(set_cap, slow, RECEIVER, "default", SLOW_SHARE * RATE_BPS / EIGHT)
        beside = ends.incasts(to_one[:EIGHT], rounds)

    def ratio(found: Mapping[Pair, Sequence[float]], share: float, limit: float) -> float:
        return percentile([each for times in found.values() for each in times], share) / limit

    others = {pair: times for pair, times in beside.items() if pair[0] != slow}
    return {
        "p99_ratio_to_limit_16to1": ratio(many, 0.99, limit_seconds(MOST_SENDERS)),
        "p50_ratio_to_limit_16to1": ratio(many, 0.5, limit_seconds(MOST_SENDERS)),
        "p99_ratio_to_limit_8to2": ratio(two, 0.99, limit_seconds(EIGHT)),
        "p50_ratio_to_limit_8to2": ratio(two, 0.5, limit_seconds(EIGHT)),
        "others_p99_ratio_to_limit_slow_sender": ratio(others, 0.99, limit_seconds(EIGHT - 1)),
    }


def two_jobs(seconds: float) -> dict[str, float]:
    """Four senders to each of two agents on one host, which do not know of each other."""
    found = _two_jobs(seconds, None)
    half = EIGHT // 2
    jobs = sum(found[:half]), sum(found[half:])
    return {
        "jain_two_jobs": jain(jobs),
        "jain_flows_of_two_jobs": jain(found),
        "port_share_two_jobs": sum(jobs) / RATE_BPS,
    }


def two_jobs_with_priorities(seconds: float) -> dict[str, float]:
    """Likewise, and they share their port by a file: once equal, once one before the other."""
    half, figures = EIGHT // 2, {}
    for name, priority in (("equal", 0), ("higher", HIGHEST)):
        found = _two_jobs(seconds, {RECEIVER: priority, SECOND_JOB: 0})
        jobs = sum(found[:half]), sum(found[half:])
        figures[f"port_share_of_both_{name}"] = sum(jobs) / RATE_BPS
        if priority:
            figures["share_of_lower_job"] = jobs[1] / sum(jobs)
        else:
            figures["jain_two_jobs_told"] = jain(jobs)
    return figures


def _two_jobs(seconds: float, priorities: Mapping[str, int] | None) -> list[float]:
    """Bit/s of each flow, the first half to one agent."""
    names = [sender_name(number) for number in range(EIGHT)]
    places = {name: number for number, name in enumerate(names)} | {RECEIVER: EIGHT, SECOND_JOB: EIGHT}
    half = EIGHT // 2
    pairs = [(name, RECEIVER) for name in names[:half]] + [(name, SECOND_JOB) for name in names[half:]]
    with running_star(EIGHT + 1) as star, running_ends(star, places, pairs, planned(), priorities) as ends:
        ends.start_streams(pairs, time.monotonic_ns() + round(seconds * 1e9))
        return ends.streamed(seconds)


def jain(rates: Sequence[float]) -> float:
    """Jain, Chiu and Hawe, 1984: 1 where all are equal."""
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))


def beside_cubic(seconds: float) -> dict[str, float]:
    """Four senders of ours and four of TCP in one drop-tail queue."""
    half = EIGHT // 2
    names = [sender_name(number) for number in range(half)]
    places = {name: number for number, name in enumerate(names)} | {RECEIVER: EIGHT}
    pairs = [(name, RECEIVER) for name in names]
    numbers = range(half, EIGHT)
    with (
        running_star(EIGHT + 1) as star,
        running_ends(star, places, pairs, one_queue(BUFFER_BYTES)) as ends,
        Worker(star.hosts[half]) as theirs,
        Worker(star.hosts[EIGHT]) as their_receiver,
    ):
        address = star.addresses(EIGHT)[0]
        their_receiver.call(tcp_listen, half)
        their_receiver.start(tcp_accept, half)
        for number in numbers:
            theirs.call(tcp_connect, number, address, star.hosts[number])
        their_receiver.result()
        until_ns = time.monotonic_ns() + round(seconds * 1e9)
        their_receiver.start(tcp_take_until, until_ns, "cubic", numbers)
        theirs.start(tcp_give_until, until_ns, "cubic", numbers)
        ends.start_streams(pairs, until_ns)
        ours_bps, theirs_bps = sum(ends.streamed(seconds)), their_receiver.result() * BITS_PER_BYTE / seconds
        theirs.result()
    return {
        "share_beside_cubic": 2 * ours_bps / (ours_bps + theirs_bps),
        "port_share_beside_cubic": (ours_bps + theirs_bps) / RATE_BPS,
    }


def thin_uplinks(seconds: float) -> dict[str, float]:
    """Eight senders of one leaf, each to its own receiver of the other, sprayed over two spines."""
    places = {
        f"{end}{number}": number + first
        for end, first in (("sender", 0), (RECEIVER, EIGHT))
        for number in range(EIGHT)
    }
    pairs = [(f"sender{number}", f"{RECEIVER}{number}") for number in range(EIGHT)]
    with (
        running_leaf_spine(
            2 * EIGHT, SPINES, RATE_BPS, oversubscription=OVERSUBSCRIPTION, in_turn=EIGHT
        ) as network,
        running_ends(network, places, pairs, planned()) as ends,
    ):
        network.report()
        ends.start_streams(pairs, time.monotonic_ns() + round(seconds * 1e9))
        found = ends.streamed(seconds)
        report = network.report()
    return {
        "core_loss_share": report["core_dropped"] / max(1, report["core_offered"]),
        "uplinks_share": sum(found) / (EIGHT * RATE_BPS / OVERSUBSCRIPTION),
        "jain_thin_uplinks": jain(found),
    }
