"""The same packets through one port of the network simulator and through that of the loss models.

    python -m benchmarks.network_port [--quick] [--json]

Arrivals come from the sources of `queueing`, at whole picoseconds. `verdict_differences` counts the packets
that one of the two forwards and the other marks or drops; it must be 0.
"""

import json
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray

from mltswitch.network import engine as network_engine
from mltswitch.network.fabric import Network, Rule, SwitchRules
from mltswitch.network.ports import new_packet, offer
from mltswitch.network.records import DATA, Record, hop_at, packet_at, queue_at
from mltswitch.network.scenario import LeafSpineNetwork
from mltswitch.network.transports.parameters import NewReno
from mltswitch.network.workloads import Flow
from mltswitch.network.world import World
from mltswitch.plan import Topology
from mltswitch.queueing import Batch, Incast, Port, QueueThresholds, QueueTraffic
from mltswitch.queueing.jit import jit
from mltswitch.queueing.simulation import engine
from mltswitch.queueing.simulation.arrays import COUNTER, DELAY_BINS, DELAY_OCTAVES, IDLE, QUEUE, TRAIN
from mltswitch.queueing.simulation.records import (
    build_port,
    build_rules,
    build_sources,
    pending_capacity,
    random_streams,
)
from mltswitch.queueing.verdict import DROP_LIMIT, DROP_UNIMPORTANT, FORWARD, MARK

PACKET_BYTES: Final = 2048
PACKET_PICOSECONDS: Final = 1 << 17
"""A power of two, so that the loss models' packet times are exact."""
RATE_BPS: Final = PACKET_BYTES * 8 * 10**12 // PACKET_PICOSECONDS
RING_PLACES: Final = 1 << 12
FATES: Final = ("forward", "mark", "drop-unimportant", "drop-limit")


@dataclass(frozen=True, slots=True)
class Case:
    """One port and what it is offered."""

    port: Port
    traffic: tuple[QueueTraffic, ...]
    thresholds: tuple[QueueThresholds, ...]


CASES: Final = {
    "thresholds": Case(
        Port(),
        (QueueTraffic(0.4, 0.5, Batch(8)), QueueTraffic(0.4, 0.5, Batch(8), "burst"), QueueTraffic(0.3, 0.3)),
        (QueueThresholds(8, 20), QueueThresholds(16, 40), QueueThresholds(24, 64)),
    ),
    "shared buffer": Case(
        Port(buffer_packets=64),
        (QueueTraffic(0.5, 0.5, Batch(16)), QueueTraffic(0.6, 0.5, Batch(4, "geometric"))),
        (QueueThresholds(10, 100, alpha=2.0), QueueThresholds(20, 100, alpha=0.5)),
    ),
    "incast": Case(
        Port(buffer_packets=200),
        (QueueTraffic(0.9, 0.4, Incast(8, 24, 4.0, 1, 1.0)),),
        (QueueThresholds(30, 120),),
    ),
}


def arrivals(case: Case, packets: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Time in picoseconds, queue and importance of each packet, in the order of their arrival."""
    sources, sizes = build_sources(case.traffic)
    count = len(case.traffic)
    queues, trains, due = np.zeros(count, QUEUE), np.empty((count, 1 << 10), TRAIN), np.zeros(count)
    pending = np.empty((count, pending_capacity(case.traffic)))
    streams = random_streams(seed, 0, count)
    engine.prepare(sources, queues, due, pending, streams)
    table = np.zeros((3, packets), np.int64)
    _draw_arrivals(sources, sizes, queues, trains, due, pending, streams, table)
    return table[0], table[1], table[2]


@jit
def _draw_arrivals(
    sources: Any, sizes: Any, queues: Any, trains: Any, due: Any, pending: Any, streams: Any, table: Any
) -> None:
    at = 0
    while at < table.shape[1]:
        index = engine.earliest(due)
        time = round(due[index] * PACKET_PICOSECONDS)
        source, stream = sources[index], streams[index]
        count, tag, due[index] = engine.arrive(source, sizes, queues[index], trains, pending, stream, index)
        for _ in range(count):
            if at < table.shape[1]:
                kind = tag
                if tag == engine.UNTAGGED:
                    kind = 1 if engine.draw(stream) >= source.unimportant_share else 0
                table[0, at], table[1, at], table[2, at] = time, index, kind
                at += 1


def of_loss_models(case: Case, offered: tuple[NDArray[np.int64], ...]) -> NDArray[np.int8]:
    """The verdicts of `queueing`'s port."""
    count = len(case.traffic)
    fates = np.zeros(len(offered[0]), np.int8)
    _judge_all(
        build_rules(case.port, case.thresholds),
        np.zeros(count, QUEUE),
        build_port(case.port)[0],
        np.empty((count, RING_PLACES)),
        random_streams(0, 0, count),
        np.zeros(count, COUNTER),
        np.zeros((count, (DELAY_OCTAVES + 2) * DELAY_BINS), np.int64),
        np.zeros((count, RING_PLACES)),
        offered,
        fates,
    )
    return fates


@jit
def _judge_all(
    rules: Any, queues: Any, port: Any, rings: Any, streams: Any, counters: Any, delays: Any, lengths: Any,
    offered: Any, fates: Any,
) -> None:  # fmt: skip
    times, indices, kinds = offered
    places = rings.shape[1] - 1
    for at in range(len(times)):
        index, now = indices[at], times[at] / PACKET_PICOSECONDS
        port.now = now
        engine.catch_up(rules, queues, port, rings, streams[0], counters, delays, lengths)
        queue = queues[index]
        fate = engine.judge(rules[index], queue, port, index, kinds[at] == 1, streams[0])
        fates[at] = fate
        if fate in (DROP_UNIMPORTANT, DROP_LIMIT):
            continue
        if port.serving == IDLE:
            port.serving = index
            port.end = now + 1.0
            continue
        rings[index, (queue.head + queue.waiting) & places] = now
        queue.waiting += 1
        port.total += 1
        port.first = min(port.first, index)


def of_network(case: Case, offered: tuple[NDArray[np.int64], ...]) -> NDArray[np.int8]:
    """The verdicts of a switch's port of `network`; its line loses everything, so no host hears of it."""
    rules = tuple(
        Rule(
            None if each.ecn_threshold_packets is None else each.ecn_threshold_packets * PACKET_BYTES,
            None if each.limit_packets == inf else each.limit_packets * PACKET_BYTES,
            each.alpha,
        )
        for each in case.thresholds
    )
    buffer_packets = case.port.buffer_packets
    buffer_bytes = 1 << 50 if buffer_packets is None else round(buffer_packets * PACKET_BYTES)
    names = tuple(f"class{place}" for place in range(len(rules)))
    switch_rules = SwitchRules(
        names,
        (0,) * len(rules),
        (0,),
        lambda _switch, _port: rules,
        lambda switch, port: (f"{switch.name}:{port.name}", buffer_bytes),
    )
    shape = LeafSpineNetwork(leaves=1, hosts_per_leaf=2, rate=RATE_BPS)
    network = Network(Topology(shape.fabric()), switch_rules, 0.0)
    world = World(network, [Flow(0, 1, 1, 0, 1 << 61)], NewReno().settings(), seed=0, spraying=False)
    world.tables["ports"]["loss"] = 1.1
    world.state["packet_places"] = 1 << 40  # the table below is large enough for all that may wait
    world.tables["packets"] = np.concatenate([world.tables["packets"]] * 4)
    world.tables["packets"]["next"][:-1] = np.arange(1, len(world.tables["packets"]))
    world.tables["packets"]["next"][-1] = -1
    world.state["packets"] = world.tables["packets"].ctypes.data
    fates = np.zeros(len(offered[0]), np.int8)
    _offer_all(world.state[0], offered, fates)
    return fates


@jit
def _offer_all(world: Record, offered: Any, fates: Any) -> None:
    times, indices, kinds = offered
    hop = 0
    number = int(hop_at(world.hops, hop).port)
    for at in range(len(times)):
        network_engine.run(world, times[at], 1 << 60)
        world.now = times[at]
        index = new_packet(world)
        packet = packet_at(world.packets, index)
        packet.flow, packet.number, packet.size = 0, 0, PACKET_BYTES
        packet.kind, packet.queue = DATA, indices[at]
        packet.capable, packet.marked = kinds[at], 0
        packet.hop = hop + 1
        queue = queue_at(world.queues, number * world.classes + indices[at])
        dropped, marked = queue.dropped[0] + queue.dropped[1], queue.marked
        offer(world, number, index)
        if queue.dropped[0] + queue.dropped[1] > dropped:
            fates[at] = DROP_LIMIT
        else:
            fates[at] = MARK if queue.marked > marked else FORWARD


def compare(name: str, packets: int, seed: int) -> dict[str, int]:
    """How often the two forward, mark and drop, and differ."""
    case = CASES[name]
    offered = arrivals(case, packets, seed)
    one, other = of_loss_models(case, offered), of_network(case, offered)
    # The network's counters say that a packet was dropped, not why.
    without_reason = np.array([FORWARD, MARK, DROP_LIMIT, DROP_LIMIT], np.int8)
    differences = int((without_reason[one] != other).sum())
    counts = {fate: int((one == place).sum()) for place, fate in enumerate(FATES)}
    return counts | {"differences": differences}


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the packets.")
@click.option("--json", "as_json", is_flag=True, help="One flat object of figures.")
def main(quick: bool, as_json: bool) -> None:
    """Verdicts of one port, twice."""
    packets = 400_000 if quick else 4_000_000
    started, found = perf_counter(), {name: compare(name, packets, seed=1) for name in CASES}
    figures: dict[str, float] = {
        "verdict_differences": sum(each["differences"] for each in found.values()),
        "packets": packets * len(CASES),
        "seconds": perf_counter() - started,
    }
    if as_json:
        click.echo(json.dumps(figures))
        return
    for name, counts in found.items():
        click.echo(f"{name}: {', '.join(f'{count:,} {fate}' for fate, count in counts.items())} (simulated)")
    click.echo(f"verdict_differences: {figures['verdict_differences']:,.0f} of {figures['packets']:,.0f}")


if __name__ == "__main__":
    main()
