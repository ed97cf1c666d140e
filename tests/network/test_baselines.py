"""What the papers of the baseline transports promise, against arithmetic."""

from typing import Any

import numpy as np
import pytest

from mltswitch.network.fabric import bandwidth_delay_bytes
from mltswitch.network.transports.parameters import Cubic, Ndp, Pfabric, Pias
from mltswitch.network.workloads import Flow
from mltswitch.network.world import World
from tests.network.support import MICROSECOND, made_for, network, play, world

PACKET_PICOSECONDS = 1500 * 8 * 100
"""At 10 Gbit/s."""
FOUR_LINKS_PICOSECONDS = 4 * (PACKET_PICOSECONDS + 2_000_000)
ONE_LATE_PACKET_A_LINK = 4 * PACKET_PICOSECONDS


def finished(run: World) -> World:
    while run.advance():
        pass
    return run


def times(run: World) -> list[int]:
    flows = finished(run).flows
    assert (flows["finish"] >= 0).all()
    return [int(time) for time in flows["finish"] - flows["start"]]


@pytest.mark.parametrize("size", [30_000, 500_000])
def test_an_incast_of_ndp_ends_when_its_bottleneck_has_sent_everything(size: int) -> None:
    net = made_for(Ndp(), 12_000, leaves=3, hosts_per_leaf=6)
    run = world(net, [Flow(host, 17, size, 1) for host in range(16)], Ndp(), spraying=True)
    limit = 16 * -(-size // 1460) * PACKET_PICOSECONDS + FOUR_LINKS_PICOSECONDS
    ended = times(run)
    assert max(ended) <= 1.04 * limit
    if size > 100_000:  # all are pulled in turn, so they end together
        assert min(ended) > 0.9 * max(ended)
    assert int(run.flows["dropped_packets"].sum()) == int(run.flows["resent_packets"].sum()) > 16


def test_ndp_keeps_a_queue_of_eight_packets() -> None:
    (run,) = play(transports=["ndp"], workload={"kind": "incast", "senders": 7, "size": 292_000})
    data = run.queues["traffic_class"] == "data"
    assert run.queues["longest_bytes"][data].max() == 8 * 1500
    assert run.queues["dropped_answer_packets"].sum() == 0
    trimmed = int(
        run.queues["dropped_important_packets"].sum() + run.queues["dropped_unimportant_packets"].sum()
    )
    assert trimmed == run.summary.dropped_packets > 0


def test_ndp_lives_without_its_pulls() -> None:
    """Every fifth packet of any kind is lost: refusals, pulls and acknowledgements, too."""
    net = made_for(Ndp(), 12_000, 0.2)
    run = finished(world(net, [Flow(host, 7, 100_000, 1) for host in range(4)], Ndp(), spraying=True))
    assert (run.flows["finish"] > 0).all()
    assert (run.flows["closed"] == 1).all()


@pytest.mark.parametrize("source", [0, 1], ids=["from its host", "from another"])
def test_a_short_flow_of_pfabric_is_as_if_alone_beside_a_long_one(source: int) -> None:
    net = made_for(Pfabric(), 54_000)
    short = [Flow(source, 7, size, 0, 10**8 + 3 * 10**8 * place) for place, size in enumerate((1460, 14_600))]
    alone = times(world(net, short, Pfabric()))
    beside = times(world(net, [*short, Flow(0, 7, 2_000_000, 0)], Pfabric()))
    for one, other in zip(alone, beside[:-1], strict=True):
        assert 0 <= other - one <= ONE_LATE_PACKET_A_LINK
    packets = sum(-(-size // 1460) for size in (1460, 14_600, 2_000_000))
    assert beside[-1] <= 1.01 * packets * PACKET_PICOSECONDS + FOUR_LINKS_PICOSECONDS


def test_pfabric_ends_flows_in_the_order_of_their_sizes() -> None:
    """The line loses little where a flow takes over from one that has ended, in slow start."""
    sizes = [400_000, 100_000, 300_000, 200_000, 20_000]
    net = made_for(Pfabric(), 54_000)
    ended = times(world(net, [Flow(host, 7, size, 0) for host, size in enumerate(sizes)], Pfabric()))
    assert sorted(ended) == [time for _, time in sorted(zip(sizes, ended, strict=True))]
    assert max(ended) < 1.15 * sum(-(-size // 1460) for size in sizes) * PACKET_PICOSECONDS


def test_pfabric_probes_after_five_timeouts() -> None:
    run = world(network(loss=0.999999), [Flow(0, 7, 1_460_000, 0)], Pfabric())
    run.advance(5 * 10**9)
    timeout = int(run.flows["rto"][0])
    assert timeout == pytest.approx(
        3 * (2 * FOUR_LINKS_PICOSECONDS - 4 * PACKET_PICOSECONDS * (1 - 64 / 1500)), rel=1e-3
    )
    assert int(run.flows["acked"][0]) == 5
    assert int(run.flows["resent_packets"][0]) == 4  # a window of one after each, but for the last
    probes = run.tables["ports"]["sent_packets"][0] - int(run.flows["sent_packets"][0])
    assert probes == 5 * 10**9 // timeout - 4


def test_the_buffer_of_pfabric_is_twice_what_a_round_trip_carries() -> None:
    net = network()
    carried = bandwidth_delay_bytes(net.topology, 1500, 64)
    assert carried == round((8 * 2e-6 + 4 * 1564 * 8 / 10e9) * 10e9 / 8)
    (run,) = play(transports=["pfabric"], workload={"kind": "incast", "senders": 7, "size": "300kB"})
    assert 2 * carried - 1500 < run.queues["longest_bytes"].max() <= 2 * carried


def test_packets_of_pias_fall_at_the_thresholds() -> None:
    thresholds = (14_600, 146_000)
    net = made_for(Pias(), 400_000)
    run = finished(world(net, [Flow(0, 7, 292_000, 0)], Pias(thresholds=thresholds)))
    assert run.tables["queues"]["offered"][:2].sum(axis=1).tolist() == [10, 190]
    (of_eight,) = play(
        workload={"kind": "incast", "senders": 1, "size": 292_000},
        transports=[{"transport": {"name": "pias", "thresholds": thresholds}}],
    )
    down = of_eight.queues["port"] == "leaf2:port4"
    packets = of_eight.queues["offered_important_packets"][down]
    assert packets.tolist() == [10, 90, 100, 0, 0, 0, 0, 0]


def test_a_short_flow_of_pias_passes_long_ones() -> None:
    document: dict[str, Any] = {"name": "pias", "thresholds": ["20kB", "100kB"]}
    transport = Pias.model_validate(document)
    net = made_for(transport, 300_000)
    short = [Flow(2, 7, 14_600, 0, 2 * 10**9)]
    (alone,) = times(world(net, short, transport))
    long = [Flow(host, 7, 5_000_000, 0) for host in (0, 1)]
    first, *others = times(world(net, [*short, *long], transport))
    assert 0 <= first - alone <= ONE_LATE_PACKET_A_LINK
    assert min(others) > 5 * 10**9


def test_pias_marks_by_port_or_by_queue() -> None:
    """Two flows in different classes: each queue stays below a K that both together exceed."""
    longest = []
    for marking in ("port", "queue"):
        (run,) = play(
            workload={"kind": "incast", "senders": 6, "size": "2MB", "jitter": 1e-3},
            buffer="2MB",
            transports=[
                {
                    "transport": {"name": "pias", "thresholds": ["100kB", "400kB"]},
                    "switch": {"kind": "priorities", "classes": 3, "k": 30, "marking": marking},
                }
            ],
        )
        assert run.summary.marked_packets > 0
        down = run.queues["port"] == "leaf2:port4"
        longest.append(int(run.queues["longest_bytes"][down].sum()))
    assert longest[0] < longest[1]


def test_pias_goes_through_the_classes_of_thresholds() -> None:
    gradients = [{"s": "100kB", "l": "300kB"}] * 3
    (run,) = play(
        workload={"kind": "incast", "senders": 1, "size": 292_000},
        transports=[
            {
                "transport": {"name": "pias", "thresholds": [14_600, 29_200, 58_400]},
                "switch": {"kind": "thresholds", "classes": gradients},
            }
        ],
    )
    down = run.queues["port"] == "leaf2:port4"
    assert run.queues["offered_important_packets"][down].tolist() == [0, 10, 10, 180]


def test_the_window_of_cubic_follows_its_curve() -> None:
    """RFC 9438, figure 1: from 400 packets back to 800 in the cube root of 400 / C, and beyond."""
    transport = Cubic(initial_window=400, rto_min=1)
    net = network(delay_seconds=5e-3, buffer_bytes=1 << 30)
    run = world(net, [Flow(0, 7, 1 << 40, 0)], transport)
    run.advance(1)
    run.tables["flows"]["slow_start_end"] = 400.0
    run.tables["flows"]["alpha"] = 800.0
    inflection = (400 / 0.4) ** (1 / 3)
    for seconds in np.arange(1.0, 15.0, 1.0):
        run.advance(round(seconds * 10**6) * MICROSECOND, events=1 << 40)
        since = seconds - 0.04 - inflection
        window = float(run.flows["window"][0])
        assert 800 + 0.4 * (since - 0.05) ** 3 <= window + 0.5
        assert window <= 800 + 0.4 * (since + 0.05) ** 3 + 0.5


def test_a_loss_leaves_seven_tenths_of_the_window_of_cubic() -> None:
    run = world(network(loss=1e-3), [Flow(0, 7, 20_000_000, 0)], Cubic())
    reductions: list[float] = []
    before = 0
    while len(reductions) < 6 and run.advance(events=1):
        row = run.flows[0]
        if row["state"] == 1 and before == 0:
            reductions.append(float(row["slow_start_end"]) / int(row["next"] - row["first"]))
        before = int(row["state"])
    assert reductions == pytest.approx([0.7] * 6)


@pytest.mark.parametrize("transport", ["dctcp", "cubic", "ndp", "pias"])
def test_equal_flows_get_equal_shares(transport: str) -> None:
    (run,) = play(
        fabric={"leaves": 1, "hosts_per_leaf": 5, "rate": "10Gbps", "delay": 2e-6},
        workload={"kind": "incast", "senders": 4, "size": "10MB"},
        transports=[transport],
    )
    ended = run.flows["fct_seconds"]
    tolerance = 0.01 if transport == "ndp" else 0.2
    assert ended.min() > (1 - tolerance) * ended.max()
    assert ended.max() == pytest.approx(4 * 10e6 * 1500 / 1460 * 8 / 10e9, rel=0.05)
