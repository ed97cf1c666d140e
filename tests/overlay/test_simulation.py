"""Flows: max-min fair rates by their definition, classes, followers, changing links, what never ends."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.overlay.graph import Graph, Link, fat_tree
from mltswitch.overlay.simulation import Change, Flows, simulate

pytest.importorskip("numba")
GBPS = 1e9


def star(hosts: int, rate_bps: float = GBPS) -> Graph:
    names = [f"h{number}" for number in range(hosts)]
    links = [Link(*ends, rate_bps) for name in names for ends in ((name, "switch"), ("switch", name))]
    return Graph((*names, "switch"), tuple(links))


def test_a_fat_tree_is_the_papers() -> None:
    graph = fat_tree(16, 10 * GBPS, 4.0)
    hosts = [name for name in graph.names if name.startswith("h")]
    assert (len(hosts), len(graph.names) - len(hosts)) == (1024, 320)
    ports = np.bincount(graph.sources, minlength=len(graph.names))
    assert {*ports[len(hosts) :].tolist()} == {16}
    rates = {
        (link.source.rstrip("0123456789"), link.target.rstrip("0123456789")): link.rate_bps
        for link in graph.links
    }
    assert rates["leaf", "middle"] == rates["middle", "leaf"] == 2.5 * GBPS
    assert rates["h", "leaf"] == rates["middle", "core"] == 10 * GBPS


def test_ways_are_shortest_and_equal_ones_are_all_used() -> None:
    graph = fat_tree(4, GBPS)
    sources, targets = np.zeros(400, np.int64), np.full(400, 15)
    firsts, links = graph.ways(sources, targets)
    assert {*np.diff(firsts).tolist()} == {6}
    cores = Counter(graph.names[graph.targets[links[first + 2]]] for first in firsts[:-1])
    assert len(cores) == 4
    assert min(cores.values()) > 60
    for first, end in pairwise(firsts):
        way = links[first:end]
        assert graph.sources[way[0]] == 0
        assert graph.targets[way[-1]] == 15
        assert (graph.targets[way[:-1]] == graph.sources[way[1:]]).all()
    again, _ = graph.ways(sources, targets, seed=0), graph.ways(sources, targets, seed=1)
    assert (again[1] == links).all()


def test_flows_share_and_what_ends_leaves_its_part() -> None:
    flows = Flows()
    long, short, other = flows.add(0, 2, 2e9), flows.add(1, 2, 1e9), flows.add(1, 3, 1e9)
    times = simulate(star(4), flows, tolerance=0)
    assert times.ends_seconds.tolist() == pytest.approx([3.0, 2.0, 2.0])
    assert [long, short, other] == [0, 1, 2]
    carried = dict(zip([(link.source, link.target) for link in star(4).links], times.link_bits, strict=True))
    assert carried["switch", "h2"] == pytest.approx(3e9)
    assert carried["h1", "switch"] == pytest.approx(2e9)


def test_a_lower_class_goes_first_everywhere() -> None:
    flows = Flows()
    flows.add(0, 2, 1e9, traffic_class=1)
    flows.add(1, 2, 1e9, traffic_class=0)
    assert simulate(star(3), flows, tolerance=0).ends_seconds.tolist() == pytest.approx([2.0, 1.0])


def test_followers_begin_when_the_last_has_ended() -> None:
    flows = Flows()
    pushes = [flows.add(source, 3, 1e9) for source in (0, 1, 2)]
    joined = flows.join(3, pushes)
    flows.add(3, 0, 1e9, after=[joined])
    flows.add(3, 3, 5.0, after=[joined], start_seconds=7.0)
    ends = simulate(star(4), flows, tolerance=0).ends_seconds
    assert ends.tolist() == pytest.approx([3.0, 3.0, 3.0, 3.0, 4.0, 7.0])


def test_links_change_and_come_back() -> None:
    flows = Flows()
    flows.add(0, 1, 2e9)
    down = [Change(3.0, 0, GBPS), Change(1.0, 0, 0.0)]
    assert simulate(star(2), flows, changes=down, tolerance=0).seconds == pytest.approx(4.0)
    slower = [Change(1.0, 0, GBPS / 2)]
    assert simulate(star(2), flows, changes=slower, tolerance=0).seconds == pytest.approx(3.0)


def test_what_never_ends_is_refused() -> None:
    flows = Flows()
    flows.add(0, 1, 1e9, after=[1])
    flows.add(1, 0, 1e9, after=[0])
    with pytest.raises(UserInputError, match="2 of 2 flows never end"):
        simulate(star(2), flows)
    flows = Flows()
    flows.add(0, 1, 1e9)
    with pytest.raises(UserInputError, match="1 of 1 flows never end"):
        simulate(star(2), flows, changes=[Change(0.5, 0, 0.0)])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 2)), min_size=1, max_size=30),
    st.integers(0, 99),
)
def test_rates_are_max_min_fair(pairs: list[tuple[int, int, int]], seed: int) -> None:
    """Every flow has a full link on its way on which no flow of its class has more."""
    from mltswitch.overlay import engine

    graph = fat_tree(4, GBPS, 2.0)
    classes = np.array([each for _, _, each in pairs])
    firsts, links = graph.ways(
        np.array([one for one, _, _ in pairs]), np.array([two for _, two, _ in pairs]), seed
    )
    left, rates = graph.rates_bps.copy(), np.zeros(len(pairs))
    order = np.argsort(classes, kind="stable")
    engine.fill(firsts, links, order, classes, left, rates)
    assert left.min() > -1.0
    for flow in range(len(pairs)):
        way = links[firsts[flow] : firsts[flow + 1]]
        if not len(way):
            assert rates[flow] == np.inf
            continue
        others = {
            link: [each for each in range(len(pairs)) if link in links[firsts[each] : firsts[each + 1]]]
            for link in way
        }
        bottlenecks = [
            link
            for link in way
            if sum(rates[each] for each in others[link] if classes[each] <= classes[flow])
            >= graph.rates_bps[link] * (1 - 1e-9)
            and all(
                rates[each] <= rates[flow] + 1e-3 for each in others[link] if classes[each] == classes[flow]
            )
        ]
        assert bottlenecks
