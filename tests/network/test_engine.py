"""What must hold of every run, and what arithmetic says of simple ones."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.network.fabric import Network, Rule
from mltswitch.network.transports.parameters import Cubic, Dctcp, Mlt, Ndp, NewReno, Pfabric, Pias
from mltswitch.network.workloads import Flow
from mltswitch.network.world import World
from tests.network.support import MICROSECOND, made_for, network, play, world

PACKET_PICOSECONDS = 1500 * 8 * 100
"""At 10 Gbit/s."""
CABLE_PICOSECONDS = 2_000_000
TRANSPORTS: list[Any] = [
    NewReno(),
    Dctcp(),
    Mlt(loss_bound=0.0),
    Cubic(),
    Pias(thresholds=(5_000, 50_000)),
    Pfabric(),
    Ndp(),
    Mlt(),
    Mlt(rates="flow"),
]
TRANSPORT_NAMES = ["newreno", "dctcp", "mlt", "cubic", "pias", "pfabric", "ndp", "mlt-10%", "mlt-flow"]


def finished(run: World) -> World:
    while run.advance():
        pass
    return run


def checked(run: World) -> World:
    """Go on in small steps; after each, every byte and every packet is accounted for."""
    going = True
    while going:
        going = run.advance(events=97)
        packets, queues = run.tables["packets"], run.tables["queues"]
        free: set[int] = set()
        place = run.count("free")
        while place >= 0 and len(free) < len(packets):
            free.add(place)
            place = int(packets["next"][place])
        alive = np.array([each for each in range(len(packets)) if each not in free], int)
        assert len(alive) == run.count("alive")
        gone = int(queues["dropped_bytes"].sum() + run.tables["ports"]["lost_bytes"].sum())
        under_way = int(packets["size"][alive].sum())
        assert run.count("made_bytes") == run.count("delivered_bytes") + gone + under_way
        assert (run.tables["pools"]["used"] <= run.tables["pools"]["size"]).all()
        by_port = queues["bytes"].reshape(-1, run.network.classes).sum(axis=1)
        assert by_port.sum() == run.tables["pools"]["used"].sum()
    return run


@pytest.mark.parametrize("transport", TRANSPORTS, ids=TRANSPORT_NAMES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_every_byte_is_accounted_for(transport: Any, data: st.DataObject) -> None:
    hosts = st.integers(0, 7)
    flows = data.draw(
        st.lists(
            st.builds(
                Flow, hosts, hosts, st.integers(1, 120_000), st.integers(0, 1), st.integers(0, 50_000_000)
            ).filter(lambda flow: flow.source != flow.destination),
            min_size=1,
            max_size=12,
        )
    )
    limit = data.draw(st.sampled_from([6_000, 30_000, 200_000]))
    loss = data.draw(st.sampled_from([0.0, 0.02]))
    net = made_for(transport, limit, loss)
    flows = [replace(flow, traffic_class=_class_in(net, transport, flow)) for flow in flows]
    run = checked(
        world(net, flows, transport, seed=data.draw(st.integers(0, 9)), spraying=data.draw(st.booleans()))
    )
    assert run.count("finished") == len(flows)
    assert run.count("alive") == 0
    of_switches = run.tables["queues"].reshape(-1, net.classes)[net.hosts :]
    assert (of_switches["peak"][:, -1] <= limit + 1500).all()  # a packet is let in below the limit


def _class_in(net: Network, transport: Any, flow: Flow) -> int:
    return net.classes - 1 if isinstance(transport, Ndp | Pfabric) else flow.traffic_class


@pytest.mark.parametrize("transport", TRANSPORTS, ids=TRANSPORT_NAMES)
def test_one_packet_alone_takes_what_its_links_take(transport: Any) -> None:
    run = finished(world(network(), [Flow(0, 7, 1460, 0, 12_345)], transport))
    four_links = 4 * (PACKET_PICOSECONDS + CABLE_PICOSECONDS)
    assert int(run.flows["finish"][0]) == 12_345 + four_links


def test_a_window_alone_takes_what_its_links_take() -> None:
    """Ten packets leave back to back, and the last is as late as the first and nine transmissions."""
    for transport in TRANSPORTS[:-1]:
        run = finished(world(network(), [Flow(0, 7, 14_600, 0)], transport))
        assert int(run.flows["finish"][0]) == 13 * PACKET_PICOSECONDS + 4 * CABLE_PICOSECONDS


def test_line_rate_alone_takes_what_the_bottleneck_takes() -> None:
    run = finished(world(network(), [Flow(0, 7, 1_460_000, 0)], Mlt(loss_bound=0.0)))
    assert int(run.flows["finish"][0]) == 1003 * PACKET_PICOSECONDS + 4 * CABLE_PICOSECONDS
    assert int(run.flows["sent_packets"][0]) == 1000


@pytest.mark.parametrize("transport", TRANSPORTS, ids=TRANSPORT_NAMES)
def test_the_same_seed_is_the_same_run(transport: Any) -> None:
    net = made_for(transport, 60_000, 0.01)
    flows = [Flow(host, 7, 200_000, net.classes - 1) for host in range(6)]
    one, other, third = (
        finished(world(net, flows, transport, seed=seed, spraying=True)) for seed in (5, 5, 6)
    )
    assert one.flows.tobytes() == other.flows.tobytes()
    assert one.flows["finish"].tolist() != third.flows["finish"].tolist()


def test_a_run_in_pieces_is_the_same_run() -> None:
    net = network(rules=(Rule(), Rule(20_000, 60_000)))
    flows = [Flow(host, 7, 100_000, 1) for host in range(6)]
    whole, pieces = world(net, flows, Dctcp()), world(net, flows, Dctcp())
    finished(whole)
    while pieces.advance(events=13):
        pass
    assert whole.flows.tobytes() == pieces.flows.tobytes()


def test_a_class_before_others_has_the_line_to_itself() -> None:
    """Senders in the first class are as fast as without those in the second."""
    rules = (Rule(), Rule())
    first = [Flow(0, 7, 400_000, 0)]
    both = [*first, Flow(1, 7, 400_000, 1), Flow(2, 7, 400_000, 1)]
    alone = finished(world(network(rules=rules), first, Mlt(loss_bound=0.0)))
    beside = finished(world(network(rules=rules), both, Mlt(loss_bound=0.0)))
    # A packet of another class that is in transmission is not interrupted, once for each of the links.
    late = int(beside.flows["finish"][0] - alone.flows["finish"][0])
    assert 0 <= late <= 4 * PACKET_PICOSECONDS
    assert int(beside.flows["finish"][1]) > int(beside.flows["finish"][0])


def test_a_guaranteed_share_is_had_beside_a_full_line() -> None:
    rules = (Rule(), Rule(share=0.2))
    flows = [Flow(0, 7, 3_000_000, 0), Flow(1, 7, 400_000, 1)]
    times = finished(world(network(rules=rules), flows, NewReno())).flows["finish"]
    wanted = 400_000 / 1460 * PACKET_PICOSECONDS / 0.2
    assert times[1] == pytest.approx(wanted, rel=0.15)
    without = finished(world(network(rules=(Rule(), Rule())), flows, NewReno())).flows["finish"]
    assert without[1] > 1.5 * times[1]


def test_incast_fills_its_bottleneck() -> None:
    (run,) = play(workload={"kind": "incast", "senders": 7, "size": "2MB"})
    down = run.queues["port_sent_bytes"][run.queues["port"] == "leaf2:port4"]
    longest = run.summary.fct_max_seconds
    assert longest is not None
    assert int(down[0]) * 8 / 10e9 / longest > 0.97
    assert run.summary.dropped_packets == 0


def test_dctcp_keeps_a_queue_near_k() -> None:
    """Alizadeh et al. 2010, section 3.3: two long flows swing up to about K + N, and leave no line idle."""
    threshold, flows = 40, 2
    net = network(rules=(Rule(threshold * 1500),), spines=2)
    run = world(net, [Flow(host, 7, 20_000_000, 0) for host in (4, 5)], Dctcp())
    at_bottleneck = [port.name for port in net.ports].index("leaf2:port4")
    lengths = []
    for time in range(5_000, 30_000, 5):  # in microseconds; slow start is over
        run.advance(time * MICROSECOND)
        lengths.append(int(run.tables["queues"]["bytes"][at_bottleneck]) / 1500)
    finished(run)
    assert max(lengths) <= threshold + 2 * flows + 1  # windows grow for a round trip after the first mark
    assert min(lengths) > 0
    assert np.mean(lengths) == pytest.approx(threshold, rel=0.25)
    assert int(run.flows["finish"].max()) / 1e12 == pytest.approx(2 * 20e6 * 1500 / 1460 * 8 / 10e9, rel=0.01)


def test_packets_of_one_class_and_path_keep_their_order() -> None:
    """NewReno takes three packets out of order for a loss, and sends again; sprayed, it does so."""
    hashed, sprayed = (
        play(
            buffer="50MB",
            workload={"kind": "permutation", "size": "1MB", "flows_per_host": 4},
            transports=[{"transport": "newreno", "spraying": spraying}],
        )[0]
        for spraying in (False, True)
    )
    assert hashed.summary.resent_packets == 0
    assert sprayed.summary.resent_packets > 0


def test_a_dynamic_limit_is_a_share_of_what_is_free() -> None:
    """Choudhury and Hahne 1998: alone, a queue with alpha = 1 comes to rest at half of the memory."""
    net = network(rules=(Rule(alpha=1.0),), buffer_bytes=90_000)
    flows = [Flow(host, 7, 3_000_000, 0) for host in range(7)]
    run = checked(world(net, flows, NewReno()))
    longest = int(run.tables["queues"]["peak"][[port.name for port in net.ports].index("leaf2:port4")])
    assert longest == pytest.approx(45_000, abs=1500)


def test_a_run_ends_at_its_time() -> None:
    (run,) = play(end=100e-6)
    assert run.summary.open_flows == 4
    assert run.summary.duration_seconds == 100e-6
    assert np.isnan(run.flows["fct_seconds"]).all()


@pytest.mark.parametrize("end", [0.0005, 0.002, 0.0024, 0.01])
def test_a_packet_on_its_way_at_the_end_counts_by_what_has_left(end: float) -> None:
    """At 10 Mbit/s a packet takes 1.2 ms, and the first line is never idle; the second one begins so late."""
    (run,) = play(
        fabric={"leaves": 1, "hosts_per_leaf": 2, "rate": "10Mbps"},
        workload={"kind": "incast", "senders": 1, "size": "100kB"},
        end=end,
    )
    assert run.summary.duration_seconds == end
    assert run.summary.most_link_load == pytest.approx(1)
    of_switch = run.queues["port_sent_bytes"][run.queues["port"] == "leaf1:port2"]
    assert of_switch == max(0, round((end - 0.0012) * 10e6 / 8))


def test_a_run_that_is_over_before_its_time_lasts_as_long_as_without() -> None:
    (whole,), (bounded,) = play(), play(end=1)
    assert whole.summary == bounded.summary


def test_a_packet_that_is_lost_again_leaves_the_threshold_of_slow_start() -> None:
    """RFC 5681, section 3.1: ssthresh stays where the timer has sent the segment again before."""
    net = network(loss=0.999999)
    run = world(net, [Flow(0, 7, 1_460_000, 0)], NewReno())
    seen = []
    for timeouts in range(4):
        run.advance(round((2**timeouts - 0.5) * 10**10))  # the timer starts at 10 ms, and doubles
        assert int(run.flows["resent_packets"][0]) == timeouts
        seen.append(float(run.flows["slow_start_end"][0]))
    assert seen == [np.inf, 5, 5, 5]  # half of the first window of ten


def test_acknowledgements_do_not_die_at_k() -> None:
    """Both directions are busy, and K is one packet: acknowledgements wait behind data above K."""
    (run,) = play(
        workload={"kind": "permutation", "size": "500kB", "flows_per_host": 2},
        transports=[{"transport": "dctcp", "switch": {"kind": "marking", "k": 1}}],
    )
    assert run.summary.marked_packets > 100
    assert int(run.queues["dropped_answer_packets"].sum()) == 0


def test_a_probe_behind_its_data_asks_for_nothing_that_still_waits() -> None:
    """Nothing is lost here, so whatever is sent again was asked for while it waited in the switch."""
    control, data = (
        play(
            buffer="50MB",
            transports=[
                {
                    "transport": {"name": "mlt", "loss_bound": 0, "probe": probe},
                    "spraying": False,
                    "switch": {"kind": "thresholds", "classes": [{"s": "50MB", "l": "50MB"}]},
                }
            ],
        )[0].summary
        for probe in ("control", "data")
    )
    assert control.dropped_packets == data.dropped_packets == data.open_flows == 0
    assert control.resent_packets > 0
    assert data.resent_packets == 0


def test_mlt_completes_without_the_share_that_it_may_lose() -> None:
    lossless, bounded = (
        play(
            link_loss=0.02,
            transports=[
                {
                    "transport": {"name": "mlt", "loss_bound": bound},
                    "switch": {"kind": "thresholds", "classes": [{"s": "100kB", "l": "300kB"}]},
                }
            ],
        )[0]
        for bound in (0.0, 0.3)
    )
    assert lossless.summary.resent_packets > 0
    assert lossless.summary.open_flows == 0
    assert bounded.summary.resent_packets < lossless.summary.resent_packets
    assert bounded.summary.open_flows == 0
