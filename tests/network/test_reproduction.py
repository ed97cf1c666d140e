"""Figures of papers: bundled scenarios, their readings, and what MLT's readings do."""

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from mltswitch.app import simulated_network
from mltswitch.app.simulated_network import ground_of
from mltswitch.cli import main
from mltswitch.documents import load_document
from mltswitch.network import simulation
from mltswitch.network.fabric import Network
from mltswitch.network.reproduction import load_reproduction, reproduction_names
from mltswitch.network.scenario import LeafSpineNetwork, Scenario
from mltswitch.network.simulation import check
from mltswitch.network.transports.parameters import Mlt
from mltswitch.network.workloads import Flow, Stage, Workload
from mltswitch.plan import Topology
from tests.network.support import network, play, world


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "reproduce", *map(str, arguments)])
    return int(ended.value.code or 0)


@pytest.mark.parametrize("name", reproduction_names())
def test_every_reading_of_every_point_can_be_played(name: str) -> None:
    found = load_reproduction(name)
    assert found.name == name
    assert set(found.paper) <= set(found.points)
    leaves = found.scenario["fabric"]["leaves"]
    plays = set()
    for reading in found.readings:
        for point in found.points:
            scenario = found.scenario_of(reading, point, leaves)
            check(scenario, ground_of(scenario, Path()))
            assert found.compared in scenario.titles
            plays.add((point, scenario.model_dump_json(exclude={"name"})))
    assert len(plays) == len(found.readings) * len(found.points)  # no reading is another one again


def test_a_figure_is_compared_with_what_its_paper_prints(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--hosts", "9", "--point", "rto100us-x32", "--seed", "3", "--seed", "4")
    readings = ("--reading", "sliced", "--reading", "push-at-once")
    assert run("mlt-fig19", *arguments, *readings, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    cells = {(each["case"]["reading"], each["transport"]): each for each in found["cells"]}
    assert set(cells) == {(name, each) for name in readings[1::2] for each in ("mlt", "dctcp")}
    assert {each["seeds"] for each in cells.values()} == {2}
    compared = {(each["case"]["reading"], each["figure"]): each for each in found["compared"]}
    for reading in readings[1::2]:
        mine, other = (cells[reading, name]["times"] for name in ("mlt", "dctcp"))
        for quantity in ("mean", "tail", "max"):
            each = compared[reading, f"{quantity}_vs_dctcp"]
            wanted = mine[quantity]["mean"] / other[quantity]["mean"] - 1
            assert each["simulated"]["mean"] == pytest.approx(wanted, rel=0.2)  # ratios are of each seed
            assert each["is_reproduced"] == (wanted <= -0.5 if quantity == "tail" else None)
        each = compared[reading, "tail_ms_mlt"]
        assert each["simulated"]["mean"] == pytest.approx(1e3 * mine["tail"]["mean"])
        assert (each["printed"], each["is_reproduced"]) == (4.12, None)


def test_what_ctrl_c_has_kept_is_not_played_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readings that change MLT alone share DCTCP's run, so that of 4 runs 3 are played."""
    played: list[tuple[str, int]] = []

    def interrupted(scenario: Scenario, ground: Any, place: int, seed: int, *rest: Any, **more: Any) -> Any:
        if len(played) == 2:
            raise KeyboardInterrupt
        played.append((scenario.name, place))
        return simulation.play_one(scenario, ground, place, seed, *rest, **more)

    monkeypatch.setattr(simulated_network, "play_one", interrupted)
    arguments = ("--hosts", "9", "--point", "rto100us-x32", "--seed", "1", "--state", tmp_path / "state")
    readings = ("--reading", "push-at-once", "--reading", "push-at-once-without-loss")
    assert run("mlt-fig19", *arguments, *readings, "--json") == 130
    said = capsys.readouterr()
    assert "interrupted: 0 of 1 runs have ended, and are kept" in said.err
    found = json.loads(said.out)
    assert found["missing_runs"] == 1
    assert [each["transport"] for each in found["cells"]] == ["mlt", "dctcp", "dctcp"]
    monkeypatch.undo()
    assert run("mlt-fig19", *arguments, *readings, "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["missing_runs"] == 0
    assert run("mlt-fig19", *arguments[:-2], *readings, "--json", "--processes", "2") == 0
    assert json.loads(capsys.readouterr().out)["cells"] == again["cells"]
    kept = [each for each in again["cells"] if each["transport"] == "dctcp"]
    assert kept == [each for each in found["cells"] if each["transport"] == "dctcp"]


def test_scenarios_are_written_to_be_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("mlt-fig14", "--hosts", "18", "--reading", "sliced", "--scenarios", tmp_path) == 0
    capsys.readouterr()
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == [
        f"mlt-fig14-sliced-{model}-18.yaml" for model in ("googlenet", "resnet50")
    ]
    scenario = load_document(paths[0], Scenario)
    played = load_reproduction("mlt-fig14").scenario_of("sliced", "googlenet", 18)
    for field in ("fabric", "hosts", "workload", "plays", "seeds"):
        assert getattr(scenario, field) == getattr(played, field)


BAD: dict[str, tuple[tuple[str, ...], str]] = {
    "figure": (("mlt-fig15",), "FIGURE: 'mlt-fig15' is not known, did you mean mlt-fig19?"),
    "reading": (("mlt-fig14", "--reading", "slice"), "--reading: 'slice' is not known, did you mean sliced?"),
    "point": (
        ("mlt-fig14", "--point", "vgg"),
        "--point: 'vgg' is not known (expected one of resnet50, googl",
    ),
    "size": (("mlt-fig14", "--hosts", "40"), "--hosts: 40 hosts are not the same number in each of 9 racks"),
    "transport": (("mlt-fig14", "--transport", "tcp"), "--transport: 'tcp' is not known"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_a_figure_has_not_is_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, line = BAD[case]
    assert run(*arguments, "--scenarios", tmp_path / "made") == 2
    said = capsys.readouterr()
    assert line in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", reproduction_names())
def test_transports_that_are_left_out_stay_out_of_all_readings(name: str) -> None:
    found = load_reproduction(name)
    found = found.with_transports((found.compared,))
    leaves = found.scenario["fabric"]["leaves"]
    for reading in found.readings:
        for point in found.points:
            assert found.scenario_of(reading, point, leaves).titles == (found.compared,)


def test_hosts_in_turn_are_spread_over_the_racks() -> None:
    shape = LeafSpineNetwork(leaves=3, spines=2, hosts_per_leaf=4, rate="10Gbps", oversubscription=2)
    rules = network().switch_rules
    made = Network(Topology(shape.fabric()), rules, 0.0, in_turn=True)
    leaf_of = {host.name: host.leaf for host in made.topology.hosts}
    leaves = [leaf_of[port.name] for port in made.ports[: made.hosts]]
    assert leaves == ["leaf1", "leaf2", "leaf3"] * 4
    uplinks = [port for port in made.ports if port.name.startswith("leaf1:") and port.rate_bps < 10**10 + 1]
    assert (
        sorted(port.rate_bps for port in uplinks) == [10**10] * 6
    )  # 40 Gbit/s of hosts over two spines, 2 : 1
    there, _, back = (made.ways(*ends)[1] for ends in ((0, 1), (0, 3), (4, 0)))
    assert (there, back) == (2, 2)
    assert made.ways(0, 3)[1] == 1  # the same rack


def small_tensors(**changes: Any) -> Any:
    """Six workers send 400 flows of three packets each to one server."""
    flows = [Flow(host, 7, 4000, 1) for _ in range(400) for host in range(6)]
    net = network(rules=(network().switch_rules.rules(None, None)[0],) * 2, buffer_bytes=60_000)  # type: ignore[arg-type]
    made = world(net, flows, Mlt.model_validate({"loss_bound": 0} | changes), spraying=True)
    while made.advance():
        pass
    assert made.count("finished") == len(flows)
    assert made.count("alive") == 0
    return made.flows


def test_a_pair_of_hosts_slows_down_for_small_tensors_together() -> None:
    """No flow of three packets ever hears an acknowledgement; all flows of a pair together do."""
    alone, together = (small_tensors(rates=rates) for rates in ("flow", "pair"))
    assert together["resent_packets"].sum() < 0.75 * alone["resent_packets"].sum()
    rates = together["rate"][together["rate"] > 0]
    assert len(rates) == 6
    assert rates.max() < 10e9
    assert (alone["rate"] == 10e9).all()


def test_the_printed_rule_slows_nobody_below_t_high() -> None:
    """A full port of 60 kB at 10 Gbit/s adds 48 µs to a round trip of 8 µs: T_high is never reached."""
    assert (small_tensors(gradient="printed")["rate"][:6] == 10e9).all()


def test_a_pair_of_one_flow_is_that_flow() -> None:
    """With one flow between two hosts, whose rate it is makes no difference."""
    switch = {"kind": "thresholds", "classes": [{"s": "20kB", "l": "60kB"}]}
    one, other = (
        play(transports=[{"transport": {"name": "mlt", "rates": rates}, "switch": switch}])[0].summary
        for rates in ("flow", "pair")
    )
    assert one == other
    assert one.resent_packets > 0


def test_the_commands_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path("docs/reproduced.md").read_text()
    lines = [line.strip() for line in page.splitlines() if line.startswith("    mltswitch simulate")]
    assert len(lines) == 3
    monkeypatch.chdir(tmp_path)
    for line in lines:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line)[1:])
        assert not ended.value.code
    assert "0" in capsys.readouterr().out
    for name in load_reproduction("mlt-fig14").readings:
        assert f"`{name}`" in page


def test_compression_makes_every_tensor_smaller() -> None:
    document = {"kind": "parameter-server", "profile": "mobilenet"}
    on = Stage(hosts=8, class_of=lambda _layer, _layers: 0, random=np.random.default_rng(1))
    whole, small = (
        TypeAdapter[Any](Workload).validate_python(document | {"compression": ratio}).flows(on)
        for ratio in (1, 32)
    )
    sums = [Counter[tuple[int, str]]() for _ in range(2)]
    for of_layer, flows in zip(sums, (whole, small), strict=True):
        for flow in flows:
            of_layer[flow.source, flow.label] += flow.size_bytes
    assert sums[0].keys() == sums[1].keys()
    for layer, size_bytes in sums[0].items():
        assert size_bytes / 32 <= sums[1][layer] <= size_bytes / 32 + 8  # two tensors, 4 B rounded up
