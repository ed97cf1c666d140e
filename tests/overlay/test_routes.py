"""Routes: documents that read back as they were written, policies, and how long exchanges by them take."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.documents import dump_yaml, load_document, validate
from mltswitch.errors import UserInputError
from mltswitch.overlay import exchange
from mltswitch.overlay import policies as room
from mltswitch.overlay.document import Overlay, overlay_of_graph, seated
from mltswitch.overlay.exchange import Exchange, simulate_routes
from mltswitch.overlay.graph import Graph, Link, fat_tree
from mltswitch.overlay.policies import policies, route
from mltswitch.overlay.routes import Routes

GBIT = 1e9
EXCHANGE = Exchange(GBIT)


def pod(hosts: int = 16, oversubscription: float = 1.0) -> Overlay:
    """Of a fat tree with racks of two hosts."""
    racks = {f"h{host}": f"leaf{host // 2}" for host in range(16)}
    return seated(overlay_of_graph(fat_tree(4, GBIT, oversubscription), racks), hosts, 0)


def one_switch(ranks: int, delay_seconds: float = 0.0) -> Overlay:
    names = [f"h{number}" for number in range(ranks)]
    links = [Link(*ends, GBIT, delay_seconds) for name in names for ends in ((name, "leaf"), ("leaf", name))]
    return overlay_of_graph(Graph((*names, "leaf"), tuple(links)), dict.fromkeys(names, "rack"))


@settings(max_examples=30, deadline=None)
@given(
    ranks=st.integers(2, 16),
    servers=st.integers(0, 4),
    in_degree=st.one_of(st.integers(1, 5), st.just("rack")),
    placement=st.sampled_from(["spread", "fixed"]),
    locality=st.sampled_from(["rack", "none"]),
)
def test_whatever_a_policy_makes_is_a_document_that_reads_back(
    ranks: int, servers: int, in_degree: Any, placement: str, locality: str
) -> None:
    overlay = seated(pod(), ranks, servers)
    shape = {"in_degree": in_degree, "placement": placement, "locality": locality}
    for policy, given_settings in (("star", {}), ("tree", shape)):
        routes = route(overlay, policy, given_settings, EXCHANGE)
        text = dump_yaml(routes)
        assert text == dump_yaml(route(overlay, policy, given_settings, EXCHANGE)), "same input, same bytes"
        assert validate(routes.model_dump(mode="json", by_alias=True), Routes, where="here") == routes
        assert [each.root for each in routes.trees] == [*overlay.roots]
        if policy == "star":
            assert routes.depth == 1
        elif in_degree != "rack":
            assert routes.in_degree <= in_degree


def rows(*trees: tuple[int, float, str]) -> dict[str, Any]:
    found = [{"root": root, "share": share, "parents": parents} for root, share, parents in trees]
    return {"policy": "mine", "overlay": "0", "ranks": 3, "servers": 1, "trees": found}


def test_a_document_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "routes.yaml").write_text(
        "schema: mltswitch/routes/v1\npolicy: mine\noverlay: x\nranks: 3\ntrees:\n"
        "- {root: 1, share: 1, parents: 1 - 0}\n"
    )
    routes = load_document(tmp_path / "routes.yaml", Routes)
    assert routes.trees[0].tree == {0: 1, 2: 0}
    assert (routes.depth, routes.in_degree) == (2, 1)
    assert routes.topology_settings == {"routes": {"servers": 0, "trees": [[1, 1.0, "1 - 0"]]}}


@pytest.mark.parametrize(
    ("trees", "problem"),
    [
        ([(3, 1, "1 0 3")], "the tree of root 3 has a circle at rank 0"),
        ([(3, 1, "0 3 3")], "the tree of root 3 has a circle at rank 0"),
        ([(3, 1, "3 3")], "the tree of root 3 has 2 parents for 3 ranks"),
        ([(3, 1, "3 3 7")], "7, parent of rank 2, is neither rank nor root"),
        ([(0, 1, "- 3 0")], "3, parent of rank 1, is neither rank nor root"),
        ([(0, 1, "- - 0")], "the tree of root 0: rank 1 has no parent"),
        ([(0, 1, "1 0 0")], "the tree of root 0: rank 0 has a parent"),
        ([(4, 1, "4 4 4")], "the tree of root 4: there are 3 ranks and 1 servers"),
        ([(0, 0.5, "- 0 0"), (1, 0.4, "1 - 1")], "shares are 0.9 together, not 1"),
        ([(0, 1, "- x 0")], "'x' is no node's number"),
        ([(0, 1, "- -1 0")], "'-1' is no node's number"),
        ([(0, 1, "- 1_0 0")], "'1_0' is no node's number"),
        ([(0, 0, "- 0 0")], "share"),
        ([], "trees"),
    ],
)
def test_what_are_no_routes_is_refused_in_a_line(trees: list[tuple[int, float, str]], problem: str) -> None:
    with pytest.raises(UserInputError) as refused:
        validate(rows(*trees), Routes, where="routes.yaml")
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("policy", "given_settings", "problem"),
    [
        ("ring", {}, "policy: 'ring' is unknown (expected fapt, mst, packed, star, tree)"),
        (
            "star",
            {"in_degree": 2},
            "star.in_degree: 2: is no field that is known here (expected no settings)",
        ),
        ("tree", {"in_degree": 0}, "tree.in_degree: 0: must be a whole number, 1 or more, rack or auto"),
        ("tree", {"placement": "x"}, "tree.placement: 'x'"),
    ],
)
def test_settings_that_are_none(policy: str, given_settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserInputError) as refused:
        route(pod(), policy, given_settings, EXCHANGE)
    assert problem in str(refused.value)


def test_racks_are_needed_where_aggregators_are_theirs() -> None:
    overlay = pod()
    without = overlay.model_copy(
        update={"nodes": tuple(node.model_copy(update={"rack": None}) for node in overlay.nodes)}
    )
    with pytest.raises(UserInputError, match="racks of the overlay: are missing"):
        route(without, "tree", {"in_degree": "rack"}, EXCHANGE)


class Chain:
    """Another package's policy."""

    name = "chain"
    settings = policies()["star"].settings

    def trees(self, overlay: Overlay, settings: Any, exchange: Exchange) -> Any:
        ranks = len(overlay.ranks)
        return {
            root: {rank: (rank + 1) % ranks for rank in range(ranks) if rank != root}
            for root in overlay.roots
        }


class Entry:
    """An entry point of it."""

    def load(self) -> Any:
        return Chain()


def test_a_policy_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "entry_points", lambda group: [Entry()] * (group == "mltswitch.routes"))
    policies.cache_clear()
    try:
        assert [*policies()] == ["chain", "fapt", "mst", "packed", "star", "tree"]
        assert route(one_switch(3), "chain", {}, EXCHANGE).trees[0].parents == (None, 2, 0)
    finally:
        policies.cache_clear()


def test_how_long_exchanges_take() -> None:
    """By hand: one server, whose link carries the model once for each child, up and then down."""
    pytest.importorskip("numba")
    overlay = seated(one_switch(9), 8, 1)
    star, pairs = (route(overlay, *how, EXCHANGE) for how in (("star", {}), ("tree", {"in_degree": 2})))
    assert simulate_routes(overlay, star, Exchange(GBIT, 1)).seconds == pytest.approx(16.0, rel=0.01)
    assert simulate_routes(overlay, pairs, Exchange(GBIT, 1)).seconds == pytest.approx(10.0, rel=0.01), (
        "1 + 2 + 2, twice"
    )
    pieces = simulate_routes(overlay, pairs, Exchange(GBIT, 32)).seconds
    assert 3.0 < pieces < 3.5, "two sums and a result come into the busiest node, piece by piece"
    uneven = Routes(
        policy="",
        overlay="",
        ranks=2,
        trees=({"root": 0, "share": 0.75, "parents": "- 0"}, {"root": 1, "share": 0.25, "parents": "1 -"}),
    )
    two = simulate_routes(one_switch(2), uneven, Exchange(GBIT, 1))
    # 3/4 up from t = 0; from 1/4 to 3/4 it shares its way with the results of the other root; then 3/4 down
    assert two.seconds == pytest.approx(1.75, rel=0.01)
    late = simulate_routes(one_switch(2, 0.1), uneven, Exchange(GBIT, 1))
    assert late.seconds - two.seconds == pytest.approx(0.4, abs=0.1), "two links up, two down"


def test_pieces_follow_each_other_without_waiting_for_delays() -> None:
    pytest.importorskip("numba")
    overlay = seated(one_switch(5, 1.0), 4, 1)
    for policy in ("star", "tree"):
        routes = route(overlay, policy, {}, EXCHANGE)
        seconds = [simulate_routes(overlay, routes, Exchange(GBIT, pieces)).seconds for pieces in (1, 8)]
        assert seconds[1] <= seconds[0] * 1.01
        assert seconds[1] > 4.0 * routes.depth, "two links up and two down, for each hop"


def test_the_best_tree_depends_on_the_network() -> None:
    pytest.importorskip("numba")
    narrow = route(pod(oversubscription=4.0), "tree", {"in_degree": "auto"}, EXCHANGE)
    assert narrow.depth > 1, "sums of a rack cross its uplinks once"
    wide = route(one_switch(8), "tree", {"in_degree": "auto"}, EXCHANGE)
    assert wide.depth == 1, "one switch: who talks to all carries no more, and waits for nobody"


def test_routes_of_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = route(pod(), "star", {}, EXCHANGE)
    with pytest.raises(UserInputError, match="are for 16 ranks and 0 servers, the network has 8 and 0"):
        simulate_routes(pod(8), routes, EXCHANGE)
    monkeypatch.setattr(exchange, "MOST_FLOWS", 15_359)
    with pytest.raises(UserInputError, match="15,360 flows: 16 trees in 32 pieces"):
        simulate_routes(pod(), routes, Exchange(GBIT, 32))
