"""Overlay documents: what they may say, and one line for what they may not."""

from pathlib import Path
from typing import Any

import pytest

from mltswitch.documents import dump_yaml, load_document, validate
from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay, overlay_of_graph, seated
from mltswitch.overlay.graph import fat_tree


def both_ways(*ends: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {"source": one, "target": other, "rate": "10Gbps"}
        for pair in ends
        for one, other in (pair, pair[::-1])
    ]


def document(**changes: Any) -> dict[str, Any]:
    nodes = [{"name": f"h{rank}", "rank": rank, "rack": f"r{rank // 2}"} for rank in range(4)]
    nodes += [{"name": "server", "server": 0, "rack": "r0"}, {"name": "leaf0"}, {"name": "leaf1"}]
    ends = [(f"h{rank}", f"leaf{rank // 2}") for rank in range(4)]
    links = both_ways(*ends, ("leaf0", "leaf1"), ("server", "leaf0"))
    return {"nodes": nodes, "links": links} | changes


def test_a_document_reads_back_as_it_was_written(tmp_path: Path) -> None:
    overlay = validate(document(), Overlay, where="here")
    (tmp_path / "overlay.yaml").write_text(dump_yaml(overlay))
    again = load_document(tmp_path / "overlay.yaml", Overlay)
    assert (again, again.sha256()) == (overlay, overlay.sha256())
    assert [node.name for node in overlay.ranks] == ["h0", "h1", "h2", "h3"]
    assert [node.name for node in overlay.members] == ["h0", "h1", "h2", "h3", "server"]
    assert ([*overlay.roots], overlay.racks) == ([4], ("r0", "r0", "r1", "r1"))
    graph = overlay.graph
    assert len(graph.links) == 12
    assert graph.rates_bps.tolist() == [10e9] * 12


NODES = document()["nodes"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"nodes": [*NODES, {"name": "h0"}]}, "node 'h0' stands twice"),
        ({"nodes": [*NODES, {"name": "x", "rank": 9}]}, "ranks are not 0 to 4, each once"),
        ({"nodes": [*NODES, {"name": "x", "rank": 3}]}, "ranks are not 0 to 4, each once"),
        ({"nodes": [*NODES, {"name": "x", "rank": -1}]}, "rank"),
        ({"nodes": [{**NODES[0], "rack": None}, *NODES[1:]]}, "racks do not cover the ranks: 'h0' has none"),
        ({"nodes": [*NODES, {"name": "x", "server": 2}]}, "servers are not 0 to 1, each once"),
        ({"nodes": [{"name": "leaf0"}], "links": []}, "ranks are not 0 to 0, each once"),
        ({"nodes": []}, "nodes"),
        ({"links": document()["links"][:-4]}, "is not connected: 'h0' does not reach 'h2'"),
        ({"links": document()["links"][1:]}, "is not connected: 'h0' does not reach"),
        ({"links": [document()["links"][0], *document()["links"][2:]]}, "'h1' does not reach 'h0'"),
        ({"links": [*document()["links"], *both_ways(("h0", "h9"))]}, "the end 'h9', which is no node"),
        ({"links": [*document()["links"], *both_ways(("h0", "leaf0"))]}, "link 'h0 to leaf0' stands twice"),
        ({"links": [{"source": "h0", "target": "h0", "rate": "1Gbps"}]}, "a link goes from 'h0' to itself"),
        ({"links": [{"source": "h0", "target": "h1", "rate": "0"}]}, "rate"),
        ({"links": [{"source": "h0", "target": "h1", "rate": "1Gbps", "loss": 1}]}, "loss"),
        (
            {"links": [{"source": "h0", "target": "h1", "rate": "1Gbps", "delay_seconds": -1}]},
            "delay_seconds",
        ),
        ({"schema": "mltswitch/overlay/v2"}, "schema"),
        ({"cycles": 1}, "cycles"),
    ],
)
def test_what_is_no_overlay_is_refused_in_a_line(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserInputError) as refused:
        validate(document(**changes), Overlay, where="overlay.yaml")
    assert problem in str(refused.value)
    assert "overlay.yaml" in str(refused.value)


def test_jobs_are_seated_on_hosts_servers_first_where_nobody_else_is() -> None:
    racks = {f"h{host}": f"leaf{host // 2}" for host in range(16)}
    whole = overlay_of_graph(fat_tree(4, 1e9), racks)
    assert [node.name for node in whole.ranks] == [*racks]
    assert seated(whole, None, 0) == whole
    few = seated(whole, 14, 3)
    assert [node.name for node in few.servers] == ["h14", "h15", "h0"]
    assert few.ranks[0].server == 2
    by_chance = seated(whole, 5, 2, seed=3)
    assert by_chance == seated(whole, 5, 2, seed=3) != seated(whole, 5, 2, seed=4)
    assert not {node.name for node in by_chance.ranks} & {node.name for node in by_chance.servers}
    for ranks, servers in ((17, 0), (2, 17)):
        with pytest.raises(UserInputError, match=r"17 \(expected at most 16, one a host\)"):
            seated(whole, ranks, servers)
