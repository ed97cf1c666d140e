"""`mltswitch topology`: what it plans, compares, simulates and draws, and what it refuses in a line."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.geo_simulation import netstorm9
from mltswitch.cli import main
from mltswitch.documents import dump_yaml
from mltswitch.hostagent.telemetry.trace import TraceWriter
from tests.hostagent.telemetry.examples import learned

pytest.importorskip("numba")
FABRIC = str(Path(__file__).parents[2] / "inventories/lab/fabric.yaml")
Run = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command's exit code and what it prints."""

    def call(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main([*words])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.err if ended.value.code else said.out

    return call


def test_routes_are_planned_simulated_drawn_and_taken_by_a_job(run: Run, tmp_path: Path) -> None:
    routes, page = str(tmp_path / "routes.yaml"), str(tmp_path / "trees.html")
    code, text = run("topology", "plan", FABRIC, "--setting", "in_degree=rack", "-o", routes)
    assert (code, "6 trees over 6 ranks" in text) == (0, True)
    _, text = run("topology", "plan", FABRIC, "--setting", "in_degree=rack", "--json")
    document = json.loads(text)
    assert document["schema"] == "mltswitch/routes/v1"
    assert document["trees"][0]["parents"] == "- 0 3 0 0 0"

    _, text = run("topology", "simulate", FABRIC, "--routes", routes, "--size", "10MB", "--json")
    found = json.loads(text)
    busiest = found["links"][0]
    assert busiest["busy"] <= 1
    assert found["link_bytes_p100"] == max(link["bytes"] for link in found["links"])
    assert found["seconds"] == pytest.approx(
        busiest["bytes"] * 8 / (busiest["busy"] * 10_000_000), rel=0.01
    ), "the lab's lines"

    code, text = run("topology", "show", FABRIC, "--routes", routes, "-o", page, "--trees", "2", "--json")
    assert (code, json.loads(text)["trees"]) == (0, 2)
    drawn = Path(page).read_text()
    assert "Root host1" in drawn
    assert "Root host3" not in drawn

    job = ["train", "simulate", "--compute", "0.1", "--sync", "bsp", "--servers", "0", "--routes", routes]
    code, text = run(*job, "--workers", "6", "--json")
    assert (code, json.loads(text)["topology"]) == (0, "tree")
    code, text = run(*job, "--workers", "5")
    assert (code, "topology.tree.routes: the tree of root 0 has 6 parents for 5 ranks" in text) == (2, True)


def test_a_narrow_network_wants_trees(run: Run) -> None:
    words = ["topology", "compare", "fat-tree:4@1Gbps/4", "--servers", "2", "--model", "resnet50", "--json"]
    code, text = run(*words)
    found = json.loads(text)
    assert (code, found["ranks"], found["servers"]) == (0, 16, 2)
    by_name = {entry["name"]: entry for entry in found["policies"]}
    assert found["best"] != "star"
    assert by_name["star"]["ratio_to_star"] == 1
    racks = by_name["tree, in_degree rack"]
    assert racks["ratio_to_star"] < 0.65
    assert racks["all_links_models"] < by_name["star"]["all_links_models"]
    assert json.loads(run(*words)[1]) == found, "same input, same figures"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["plan", "fat-tree:5"], "NETWORK: 'fat-tree:5' (expected an even number of ports"),
        (["plan", "fat-tree:4@fast"], "NETWORK: "),
        (["plan", "fat-tree:4", "--ranks", "17"], "ranks: 17 (expected at most 16, one a host)"),
        (
            ["plan", "fat-tree:4", "--policy", "ring"],
            "policy: 'ring' is unknown (expected fapt, mst, packed, star, tree)",
        ),
        (["plan", "fat-tree:4", "--setting", "in_degree=0"], "tree.in_degree: 0: must be a whole number"),
        (
            ["plan", "fat-tree:4", "--setting", "in_degree"],
            "--setting: 'in_degree' (expected NAME=VALUE, each name once)",
        ),
        (["plan", "fat-tree:4", "-o", "/nowhere/x"], "/nowhere/x: cannot be written"),
        (["plan", "nothing.yaml"], "nothing.yaml: cannot be read"),
        (["compare", "fat-tree:4", "--size", "1MB", "--model", "vgg16"], "--size: goes without --model"),
        (["compare", "fat-tree:4", "--size", "much"], "--size: "),
        (["compare", "fat-tree:4", "--size=0"], "--size: 0 (expected a byte or more)"),
        (["compare", "fat-tree:4", "--size=-5"], "--size: "),
        (["compare", "fat-tree:2", "--ranks", "2", "--servers", "9"], "servers: 9 (expected at most 2"),
        (["plan", "fat-tree:4@0"], "NETWORK: "),
        (["plan", "fat-tree:4@100kbps/1000"], "NETWORK: 'fat-tree:4@100kbps/1000' (expected uplinks of"),
        (
            ["plan", "fat-tree:32"],
            "routes: 8,192 trees over 8,192 ranks (expected at most 4,000,000 parents)",
        ),
        (["simulate", "fat-tree:4", "--routes", "nothing.yaml"], "nothing.yaml: cannot be read"),
        (["simulate", "fat-tree:4", "--routes", FABRIC], "fabric.yaml"),
        (["watch", "nothing.jsonl"], "nothing.jsonl: cannot be read"),
        (["watch", FABRIC, "--once"], "fabric.yaml: is no trace of an agent"),
        (["watch"], "Missing argument 'TRACE…"),
        (["watch", FABRIC, "--every", "0"], "'--every'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(run: Run, words: list[str], problem: str) -> None:
    code, text = run("topology", *words)
    assert code == 2
    assert problem in text
    assert "Traceback" not in text


def test_an_overlay_says_itself_who_is_where(run: Run, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    links = [
        {"source": one, "target": other, "rate": "1Gbps"}
        for name in ("a", "b", "server")
        for one, other in ((name, "s"), ("s", name))
    ]
    nodes = [
        {"name": "a", "rank": 0},
        {"name": "b", "rank": 1},
        {"name": "server", "server": 0},
        {"name": "s"},
    ]
    overlay.write_text(json.dumps({"schema": "mltswitch/overlay/v1", "nodes": nodes, "links": links}))
    _, text = run("topology", "plan", str(overlay), "--policy", "star", "--json")
    assert json.loads(text)["trees"] == [{"root": 2, "share": 1.0, "parents": "2 2"}]
    overlay.write_text(
        json.dumps({"nodes": [{"name": "a", "rank": 0, "server": 0}]} | {"schema": "mltswitch/overlay/v1"})
    )
    for command in ("compare", "plan"):
        code, text = run("topology", command, str(overlay))
        assert (code, "NETWORK: has one host in it" in text) == (2, True)
    overlay.write_text(json.dumps({"schema": "mltswitch/overlay/v1", "nodes": nodes, "links": links}))
    code, text = run("topology", "plan", str(overlay), "--servers", "2")
    assert (code, "an overlay says where its ranks and servers are" in text) == (2, True)
    overlay.write_text(json.dumps({"schema": "mltswitch/overlay/v1", "nodes": nodes, "links": links[:-1]}))
    code, text = run("topology", "plan", str(overlay))
    assert (code, "is not connected" in text) == (2, True)


def test_between_sites_other_trees_are_shorter(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("networkx")
    overlay = tmp_path / "sites.yaml"
    overlay.write_text(dump_yaml(netstorm9(1)), encoding="utf-8")
    code, text = run("topology", "compare", str(overlay), "--size", "228MB", "--json")
    assert code == 0
    found = json.loads(text[text.index("{") :])
    seconds = {each["name"]: each["seconds"] for each in found["policies"]}
    assert {"fapt", "fapt, roots 1", "mst", "packed", "star", "tree, in_degree 2"} <= {*seconds}
    assert seconds["packed"] < seconds["fapt"] < seconds["star"]
    assert found["best"] == "packed"
    whole = {each["name"]: each.get("whole_seconds") for each in found["policies"]}
    assert whole["mst"] > 1.5 * seconds["mst"], "a deep tree pays for tensors that are forwarded whole"
    assert whole["ring"] is None


def test_networks_by_their_words(run: Run) -> None:
    pytest.importorskip("networkx")
    code, text = run("topology", "plan", "netstorm9:7", "--policy", "fapt", "--setting", "roots=2", "--json")
    assert code == 0
    assert len(json.loads(text[text.index("{") :])["trees"]) == 2
    code, text = run("topology", "plan", "mesh4", "--policy", "star")
    assert (code, "mesh5 to mesh16" in text) == (2, True)


@pytest.mark.usefixtures("interruptible")
def test_links_of_a_job_are_watched(run: Run, tmp_path: Path) -> None:
    code, text = run("topology", "watch", str(tmp_path), "--once")
    assert (code, text) == (0, "No job over fapt has told of its links here.\n")
    with TraceWriter(tmp_path / "host1-0.jsonl") as writer:
        writer.observe(learned(None, source="c"))
        writer.observe(learned(1_234_567, at_ns=time.monotonic_ns()))
    code, text = run("topology", "watch", str(tmp_path), "--once")
    assert code == 0
    rows = [line.split() for line in text.splitlines() if line.strip()]
    assert rows[0] == ["Links"]
    assert ["c", "b", "2", "Mbit/s", "-", "-"] in rows
    assert ["a", "b", "2", "Mbit/s", "1.23", "Mbit/s"] in [row[:6] for row in rows]
    assert "Routes of version 9, bound " in text
    assert "3 reports refused" in text
    found = json.loads(run("topology", "watch", str(tmp_path), "--once", "--json")[1])
    assert (found["version"], found["refused"], found["problem"]) == (9, 3, "")
    assert found["links"][1] | {"age_seconds": 0} == {
        "source": "a",
        "target": "b",
        "said_bps": 2e6,
        "measured_bps": 1_234_567,
        "age_seconds": 0,
    }
    words = ["topology", "watch", str(tmp_path), "--json", "--every", "0.1"]
    command = [sys.executable, "-m", "mltswitch", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            looks = [json.loads(process.stdout.readline()) for _ in range(2)]
            assert [look["version"] for look in looks] == [9, 9]
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (process.returncode, said) == (0, "")
