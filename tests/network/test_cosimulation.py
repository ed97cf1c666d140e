"""The agent's compiled data plane behind simulated switches."""

import sys
from typing import Any

import numpy as np
import pytest

from benchmarks.network_agent import compared
from mltswitch.errors import MachineError
from mltswitch.hostagent import dataplane
from mltswitch.network.cosimulation import CosimulatedWorld
from mltswitch.network.fabric import Network, Rule
from mltswitch.network.faults import Fault
from mltswitch.network.records import SETTINGS
from mltswitch.network.transports.parameters import Dctcp, MltAgent
from mltswitch.network.workloads import Flow
from tests.network.support import MICROSECOND, network, play

ROOMY = (Rule(), Rule(3_000_000, 4_000_000))
"""More than the agent's credit, which is a millisecond of the port's rate and 1.25 round trips."""
TIGHT = (Rule(), Rule(20_000, 60_000))


def law(**parameters: Any) -> MltAgent:
    return MltAgent.model_validate({"law": "compiled"} | parameters)


def made(net: Network, flows: list[Flow], transport: MltAgent, seed: int = 1) -> CosimulatedWorld:
    return CosimulatedWorld(net, flows, transport.settings(), seed=seed, spraying=True, transport=transport)


def finished(run: CosimulatedWorld, events: int = 1_000_000) -> CosimulatedWorld:
    while run.advance(events=events):
        pass
    assert run.count("finished") == len(run.flows)
    return run


def incast(senders: int, size: int) -> list[Flow]:
    return [Flow(host, 7, size, 1) for host in range(senders)]


def test_an_incast_of_data_planes_takes_what_its_bottleneck_takes() -> None:
    run = finished(made(network(rules=ROOMY, buffer_bytes=4_000_000), incast(7, 400_000), law()))
    packets = 7 * -(-400_000 // 1432)
    limit = packets * 1500 * 8 * 100
    longest = int(run.flows["finish"].max())
    assert limit < longest < 1.15 * limit
    assert run.flows["dropped_packets"].sum() == 0
    # A question overtakes data, and is answered after a millisecond though they may still be in the queue.
    again = int(run.flows["resent_packets"].sum())
    assert run.flows["sent_packets"].sum() == packets + again
    assert again < 0.05 * packets
    assert (run.flows["arrived"] == run.flows["packets"]).all()


def test_a_data_plane_alone_begins_after_half_a_round_trip() -> None:
    """The receiver's announcement goes first; then one packet takes what its links take."""
    run = finished(made(network(), [Flow(0, 7, 1432, 0, 5 * MICROSECOND)], law()))
    there = 4 * (1500 * 8 * 100 + 2 * MICROSECOND)
    announced = int(run.flows["finish"][0]) - 5 * MICROSECOND - there
    assert 4 * 2 * MICROSECOND < announced < there


@pytest.mark.parametrize("rules", [ROOMY, TIGHT], ids=["roomy", "tight"])
def test_the_same_seed_is_the_same_run_also_in_pieces(rules: tuple[Rule, ...]) -> None:
    net, flows = network(rules=rules, buffer_bytes=4_000_000, loss=0.01), incast(6, 100_000)
    one, pieces = finished(made(net, flows, law())), finished(made(net, flows, law()), events=7)
    assert one.flows.tobytes() == pieces.flows.tobytes()
    assert one.tables["queues"]["offered"].tolist() == pieces.tables["queues"]["offered"].tolist()
    other = finished(made(net, flows, law(), seed=2))
    assert one.flows["finish"].tolist() != other.flows["finish"].tolist()


def test_what_is_lost_comes_again_unless_it_may_be_missing() -> None:
    """All that the network loses is sent again once; with a bound, flows end without some."""
    net, flows = network(rules=TIGHT, loss=0.02), incast(4, 200_000)
    whole = finished(made(net, flows, law()))
    lost = whole.flows["dropped_packets"].sum() + whole.tables["ports"]["lost_packets"].sum()
    assert 0 < whole.flows["resent_packets"].sum() <= lost
    bound = finished(made(net, flows, law(loss_bound=0.1, stop="paper")))
    share = bound.flows["arrived"] / bound.flows["packets"]
    assert (share >= 0.9).all()
    assert share.min() < 1
    assert np.median(bound.flows["finish"]) < np.median(whole.flows["finish"])


def test_faults_come_when_they_come_and_samples_change_nothing() -> None:
    net, flow = network(), [Flow(0, 1, 200_000, 0)]
    plain = finished(made(net, flow, law()))
    end = int(plain.flows["finish"][0])
    late = Fault.model_validate({"link": ["leaf1", "host1"], "from": "5ms", "to": "8ms"})
    for more in ({"faults": (late,)}, {"has_depths": True}):
        options: dict[str, Any] = {"seed": 1, "spraying": True, "transport": law(), **more}
        run = finished(CosimulatedWorld(net, flow, law().settings(), **options))
        assert int(run.flows["finish"][0]) == end
        assert (run.depths[:, 0] <= run.now_picoseconds).all()
    early = Fault.model_validate({"link": ["leaf1", "host1"], "from": 0, "to": "8ms"})
    options = {"seed": 1, "spraying": True, "transport": law(), "faults": (early,)}
    run = finished(CosimulatedWorld(net, flow, law().settings(), **options))
    assert int(run.flows["finish"][0]) > 8000 * MICROSECOND


def test_a_connection_keeps_to_the_ways_that_are_left() -> None:
    """One of two spines is known to be dead while a connection with two paths is open."""
    net, flow = network(), [Flow(0, 7, 4_000_000, 0)]
    fault = Fault.model_validate(
        {"link": ["leaf1", "spine1"], "from": "0.2ms", "to": "60ms", "detected_after": "0.1ms"}
    )
    options: dict[str, Any] = {"seed": 1, "spraying": True, "transport": law(), "faults": (fault,)}
    run = CosimulatedWorld(net, flow, law().settings(), **options)
    while run.advance(events=50):
        hops, packets = run.tables["hops"]["port"], run.tables["packets"]
        assert (packets["hop"] < len(hops)).all()
    assert run.count("finished") == 1
    assert run.flows["finish"][0] < 60_000 * MICROSECOND


def test_what_may_lose_nothing_loses_nothing() -> None:
    flows = [Flow(0, 7, 1_000_000, 0, lossless=True), Flow(1, 6, 1_000_000, 0)]
    run = finished(made(network(loss=0.02), flows, law(loss_bound=0.1, stop="paper")))
    kept = run.flows["arrived"] == run.flows["packets"]
    assert kept.tolist() == [True, False]


def test_flows_both_ways_share_the_connection_of_their_hosts() -> None:
    flows = [Flow(0, 7, 50_000, 1), Flow(7, 0, 50_000, 1), Flow(0, 7, 50_000, 1, 100 * MICROSECOND)]
    run = finished(made(network(rules=ROOMY, buffer_bytes=4_000_000), flows, law()))
    assert run.flows["sent_packets"].tolist() == [35, 35, 35]


def test_data_planes_run_beside_modelled_hosts() -> None:
    flows = incast(4, 200_000)
    run = made(network(rules=ROOMY, buffer_bytes=4_000_000), flows, law())
    both = np.zeros(2, SETTINGS)
    for row, transport in zip(both, (law(), Dctcp(payload=1432, header=68)), strict=True):
        for name, value in transport.settings().items():
            row[name] = value
    run.tables["settings"] = both
    run.state["settings"] = both.ctypes.data
    run.flows["settings"][2:] = 1
    finished(run)
    alone = finished(made(network(rules=ROOMY, buffer_bytes=4_000_000), flows[:2], law()))
    assert run.flows["finish"][:2].min() > alone.flows["finish"].max()
    assert run.flows["arrived"].tolist() == [140] * 4


def test_a_dead_network_is_told_by_the_data_plane() -> None:
    with pytest.raises(Exception, match=r"flow 0, .*: has failed after .* s: nothing was heard of the peer"):
        finished(made(network(loss=1 - 1e-12), [Flow(0, 7, 1432, 0)], law()))


def test_without_the_agents_build_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = "mltswitch.hostagent.dataplane"
    for name in ("mltswitch.network.cosimulation", f"{folder}.virtual", f"{folder}.binding"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(dataplane, "_dataplane")
    monkeypatch.setitem(sys.modules, f"{folder}._dataplane", None)
    compiled = {"transport": {"name": "mlt", "law": "compiled"}, "switch": {"kind": "drop-tail"}}
    with pytest.raises(MachineError, match="the host agent's compiled data plane was not built"):
        play(transports=[compiled])


def test_the_benchmark_sets_both_laws_side_by_side() -> None:
    figures, hops, _ = compared("8to1", "128k", "loss1pct", 1)
    case = "8to1_128k_loss1pct"
    assert hops > 8 * 90 * 2
    assert 0.5 < figures[f"p50_ratio_to_limit_{case}"] < 2
    assert 1 < figures[f"sent_over_needed_{case}"] < 1.2
    assert figures[f"p50_ms_{case}"] < figures[f"p99_ms_{case}"]
    assert figures[f"paper_sent_gap_{case}"] > 0.5
