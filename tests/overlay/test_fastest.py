"""Policies for slow, unequal networks: what their trees use and leave out, and that they are trees."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("networkx")

from benchmarks.geo_simulation import netstorm9
from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay, overlay_of_graph, seated
from mltswitch.overlay.exchange import Exchange
from mltswitch.overlay.fastest import disjoint_paths, networkx
from mltswitch.overlay.graph import fat_tree
from mltswitch.overlay.policies import route
from mltswitch.overlay.policies.packed import fullest_seconds, seconds_at_least
from mltswitch.training.axes import Network
from mltswitch.training.job import make_job
from mltswitch.training.virtual import VirtualJob

EXCHANGE = Exchange(8e6)
POLICIES = ("fapt", "mst", "packed")


def network(links: dict[tuple[int, int], float], ranks: int) -> Overlay:
    """Of sites, each with a rank; rates in Mbit/s of each direction."""
    return Overlay.model_validate(
        {
            "schema": "mltswitch/overlay/v1",
            "nodes": [{"name": f"s{rank}", "rank": rank} for rank in range(ranks)],
            "links": [
                {"source": f"s{source}", "target": f"s{target}", "rate": round(mbps * 1e6)}
                for (source, target), mbps in links.items()
            ],
        }
    )


@st.composite
def networks(draw: st.DrawFn) -> Overlay:
    count = draw(st.integers(2, 7))
    pairs = {(rank, draw(st.integers(0, rank - 1))) for rank in range(1, count)}
    pairs |= set(draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=8)))
    rates = st.floats(0.001, 1000)
    return network(
        {
            ends: draw(rates)
            for one, other in sorted(pairs)
            if one != other
            for ends in ((one, other), (other, one))
        },
        count,
    )


@settings(max_examples=40, deadline=None)
@given(networks(), st.sampled_from(POLICIES))
def test_whatever_the_network_they_are_trees_over_all_ranks(overlay: Overlay, policy: str) -> None:
    routes = route(overlay, policy, {}, EXCHANGE)  # a document checks that they are
    assert routes == route(overlay, policy, {}, EXCHANGE), "the same for the same network"
    links = {(link.source, link.target) for link in overlay.links}
    for each in routes.trees:
        assert all((f"s{child}", f"s{parent}") in links for child, parent in each.tree.items())
        assert all((f"s{parent}", f"s{child}") in links for child, parent in each.down_tree.items())


def test_slow_links_are_gone_around_in_each_direction_by_itself() -> None:
    """From 0 to 2 straight on is slow, and back is quick."""
    both = {(0, 1): 100.0, (1, 0): 100.0, (1, 2): 100.0, (2, 1): 100.0, (0, 2): 10.0, (2, 0): 90.0}
    [tree] = route(network(both, 3), "fapt", {"roots": 1}, EXCHANGE).trees
    assert tree.root == 1
    rows = {each.root: each for each in route(network(both, 3), "fapt", {}, EXCHANGE).trees}
    assert rows[0].tree == {1: 0, 2: 0}
    assert rows[0].down_tree == {1: 0, 2: 1}
    assert rows[1].down is None
    seconds = {0: 1 / 90 + 2 / 100, 1: 2 / 100, 2: 2 / 100 + 1 / 90}
    whole = sum(1 / each for each in seconds.values())
    for root, each in rows.items():
        assert each.share == pytest.approx(1 / seconds[root] / whole)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda ends: ends[0] != ends[1]),
        st.floats(1e3, 1e9),
        max_size=30,
    )
)
def test_paths_have_no_inner_node_in_common_and_the_fastest_is_first(
    rates: dict[tuple[int, int], float],
) -> None:
    paths = disjoint_paths(rates, 0, 1)
    inner = [node for path in paths for node in path[1:-1]]
    assert len(inner) == len({*inner}) >= len(paths)
    assert all({*pairwise(path)} <= rates.keys() for path in paths)
    assert all((path[0], path[-1]) == (0, 1) for path in paths)
    seconds = [sum(1 / rates[ends] for ends in pairwise(path)) for path in paths]
    assert seconds == sorted(seconds)
    graph = networkx().DiGraph([*rates])
    graph.add_nodes_from((0, 1))
    graph.remove_nodes_from(inner)
    graph.remove_edges_from([(0, 1)])
    assert not networkx().has_path(graph, 0, 1), "there is no other one"


def test_the_greatest_spanning_tree_leaves_the_slowest_link_out() -> None:
    rates = {(0, 1): 50.0, (1, 2): 60.0, (2, 3): 70.0, (3, 0): 40.0, (0, 2): 45.0}
    both = {ends: rate for (one, other), rate in rates.items() for ends in ((one, other), (other, one))}
    both[1, 0] = 44.0  # as fast as its slower direction
    [tree] = route(network(both, 4), "mst", {}, EXCHANGE).trees
    assert {frozenset(ends) for ends in tree.tree.items()} == {
        frozenset({0, 2}),
        frozenset({1, 2}),
        frozenset({2, 3}),
    }
    assert tree.root == 2


@pytest.mark.parametrize("seed", range(3))
def test_the_fullest_link_of_packed_trees_is_nearly_as_empty_as_can_be(seed: int) -> None:
    overlay = netstorm9(seed)
    packed = fullest_seconds(overlay, route(overlay, "packed", {}, EXCHANGE).trees)
    assert packed <= 1.1 * seconds_at_least(overlay)
    assert packed < 0.8 * fullest_seconds(overlay, route(overlay, "fapt", {}, EXCHANGE).trees)


def test_a_spanning_tree_needs_links_both_ways() -> None:
    overlay = network({(0, 1): 10.0, (1, 2): 20.0, (2, 0): 30.0}, 3)
    assert len(route(overlay, "fapt", {}, EXCHANGE).trees) == 3
    with pytest.raises(UserInputError, match="mst: has sites that links of both directions do not join"):
        route(overlay, "mst", {}, EXCHANGE)


@pytest.mark.parametrize("spread", [1.0, 10.0, 1e3, 1e5])
@pytest.mark.parametrize("seed", [1, 2])
def test_packed_trees_are_never_worse_than_those_of_one_kind(seed: int, spread: float) -> None:
    random = np.random.default_rng(seed)
    pairs = [(one, other) for one in range(6) for other in range(6) if one != other]
    overlay = network({ends: float(1e3 / spread ** random.random()) for ends in pairs}, 6)
    seconds = {name: fullest_seconds(overlay, route(overlay, name, {}, EXCHANGE).trees) for name in POLICIES}
    assert seconds["packed"] <= min(seconds.values())
    assert seconds["packed"] <= 1.7 * seconds_at_least(overlay)


@pytest.mark.parametrize("parts", [1, 9, 11, 32, 57])
def test_shares_of_parts_are_one_together(parts: int) -> None:
    both = {(0, 1): 10_000.0, (1, 0): 10_000.0, (1, 2): 10_000.0, (2, 1): 10_000.0, (0, 2): 3.0, (2, 0): 2.0}
    for links, ranks in ((both, 3), ({(0, 1): 1.0, (1, 0): 1.0}, 2)):
        route(network(links, ranks), "packed", {"parts": parts}, EXCHANGE)


def test_between_racks_the_fastest_ways_are_a_star() -> None:
    graph = fat_tree(4, 1e10)
    racks = {name: f"rack{number // 2}" for number, name in enumerate(graph.names[:16])}
    overlay = seated(overlay_of_graph(graph, racks), 6, 2)
    for each in route(overlay, "fapt", {}, EXCHANGE).trees:
        assert each.tree == dict.fromkeys(range(6), each.root)


def test_a_server_beside_a_rank_is_its_parent() -> None:
    both = {(0, 1): 100.0, (1, 0): 100.0, (1, 2): 100.0, (2, 1): 100.0}
    [tree] = route(seated(network(both, 3), 3, 1), "fapt", {}, EXCHANGE).trees
    assert tree.tree == {0: 3, 1: 3, 2: 1}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_sums_by_them(policy: str) -> None:
    settings_ = route(
        netstorm9(1), policy, {"parts": 8} if policy == "packed" else {}, EXCHANGE
    ).topology_settings
    job = make_job(
        [("a", 90_000)], world=9, topology="tree", topology_settings=settings_, element_type="float64"
    )
    report = VirtualJob(job, Network(1e8, 1e-3)).run(2, lambda rank, step: np.full(90_000, 4.0**rank))
    assert not report.errors
    for result in (report.results[rank, step] for rank in range(9) for step in range(2)):
        assert (result == sum(4.0**rank for rank in range(9)) / 9).all()


@pytest.mark.parametrize(
    ("policy", "given_settings", "servers", "problem"),
    [
        ("fapt", {"roots": 0}, 0, "fapt.roots"),
        ("fapt", {"roots": 10}, 0, "fapt.roots: 10 (expected 1 to 9)"),
        ("mst", {"roots": 1}, 0, "no settings"),
        ("packed", {"parts": 0}, 0, "packed.parts"),
        ("packed", {}, 1, "packed: has servers (expected ranks"),
    ],
)
def test_what_they_refuse(policy: str, given_settings: dict[str, Any], servers: int, problem: str) -> None:
    overlay = seated(netstorm9(1), None, servers)
    with pytest.raises(UserInputError) as refused:
        route(overlay, policy, given_settings, EXCHANGE)
    assert problem in str(refused.value)
