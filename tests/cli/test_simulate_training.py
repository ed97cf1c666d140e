"""`mltswitch train simulate`: a table and timelines, one JSON document, one line for what cannot be."""

import json

import pytest

from mltswitch.cli import main

BASE = ["train", "simulate", "--model", "googlenet", "--compute", "0.1", "--workers", "3", "--steps", "2"]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main([*BASE, *arguments])
    return int(ended.value.code or 0)


def test_all_that_goes_over_a_ring(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--topology", "ring", "--slow", "1=2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["compute_seconds"]) == ("simulated", [0.1, 0.2, 0.1])
    assert "asp over ring" in found["left_out"]["asp"]
    steps = {each["synchronization"]: each for each in found["synchronizations"]}
    assert steps["bsp"]["step_seconds"] > steps["osp"]["step_seconds"] > 0.2
    assert steps["bsp"]["samples_per_second"] == pytest.approx(3 * 64 / steps["bsp"]["step_seconds"])


def test_a_timeline_of_each_rank(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--sync", "bsp,osp", "--setting", "osp.share=0.5", "--slow", "0=2") == 0
    out = capsys.readouterr().out
    assert "googlenet, 3 workers, star, 10 Gbit/s (simulated)" in out
    lines = [line.split() for line in out.splitlines() if line.strip().startswith("rank")]
    assert [line[:2] for line in lines] == [["rank", "0"], ["ranks", "1-2"]] * 2
    assert all(len(line[2]) == 60 and {*line[2]} == {"=", ">"} for line in lines)
    assert lines[0][2].count("=") == pytest.approx(2 * lines[1][2].count("="), abs=2)


def test_forward_passes_stand_beside_bsp_with_their_bound(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--sync", "bsp", "--forward", "--backward-share", "0.6", "--servers", "0")
    assert run(*arguments, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    plain, forward = found["synchronizations"]
    assert (plain["forward"], forward["forward"]) == (False, True)
    assert found["forward_gain"]["simulated"] == plain["step_seconds"] / forward["step_seconds"]
    assert run(*arguments) == 0
    out = capsys.readouterr().out
    assert "bsp, layer by layer" in out
    assert f"{found['forward_gain']['at_most']:.2f} at most" in out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["--sync", "asp", "--topology", "ring"],
            "topology: asp over ring: each rank's push counts by itself",
        ),
        (["--sync", "asp", "--forward"], "--sync: 'asp' lacks it (expected bsp, for --forward)"),
        (["--topology", "x"], "topology: 'x' is no topology (expected "),
        (["--setting", "osp.share=2"], "synchronization.osp.share: 2: "),
        (["--setting", "x.share=0.5"], "--setting: 'x.share=0.5' (expected NAME=VALUE"),
        (["--rate", "0"], "--rate: 0 bit/s (expected above 0)"),
        (["--slow", "3=2"], "--slow: '3=2' (expected a rank, 0 to 2, = and a factor"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


def test_trees_between_sites_know_the_links(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("networkx")
    seconds = {}
    for topology in ("star", "fapt"):
        options = ("--network", "netstorm9:16", "--workers", "9", "--servers", "0", "--sync", "bsp", "--json")
        assert run("--topology", topology, *options) == 0
        found = json.loads(capsys.readouterr().out)
        seconds[topology] = found["synchronizations"][0]["step_seconds"]
    assert seconds["fapt"] < seconds["star"]
