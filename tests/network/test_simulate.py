"""`mltswitch simulate` as a user has it."""

import csv
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltswitch.cli import main
from mltswitch.network import simulation
from mltswitch.network.workloads import Incast

INCAST: dict[str, Any] = {
    "schema": "mltswitch/simulation/v1",
    "name": "incast",
    "fabric": {"leaves": 2, "spines": 2, "hosts_per_leaf": 4, "rate": "10Gbps", "delay": 2e-6},
    "buffer": "512KB",
    "workload": {"kind": "incast", "senders": 4, "size": "200kB"},
    "transports": ["dctcp", "newreno"],
}
FABRIC = Path("benchmarks/fabric.yaml")
PAGE = Path("docs/simulate.md")


def run(*arguments: str | Path | int) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *map(str, arguments)])
    return int(ended.value.code or 0)


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(INCAST | changes))
    return path


def test_two_transports_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    output = tmp_path / "flows.parquet"
    assert run(written(tmp_path, seeds=[1, 2]), "-o", output, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["transport"] for each in found["transports"]] == ["dctcp", "newreno"]
    flows = parquet.read_table(output).to_pylist()
    assert len(flows) == 2 * 2 * 4
    of_first = [row["fct_seconds"] for row in flows if (row["transport"], row["seed"]) == ("dctcp", 1)]
    summary = found["transports"][0]["runs"][0]["summary"]
    assert summary["fct_max_seconds"] == max(of_first)
    assert summary["fct_mean_seconds"] == pytest.approx(sum(of_first) / 4)
    queues = parquet.read_table(tmp_path / "flows.queues.parquet").to_pylist()
    marked = sum(row["marked_packets"] for row in queues if (row["transport"], row["seed"]) == ("dctcp", 1))
    assert marked >= summary["marked_packets"] > 0


def test_people_read_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "flows.csv"
    assert run(written(tmp_path), "--transport", "newreno", "--seed", "3", "--seed", "4", "-o", output) == 0
    said = capsys.readouterr().out
    assert "incast (simulated)" in said
    assert "newreno" in said
    assert "dctcp" not in said
    rows = list(csv.DictReader(output.open()))
    assert {row["seed"] for row in rows} == {"3", "4"}


def test_the_commands_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    page, fabric = PAGE.read_text(), str(FABRIC.resolve())
    scenario = page.partition("```yaml\n")[2].partition("```")[0]
    lines = [line.strip() for line in page.splitlines() if line.startswith("    mltswitch simulate")]
    assert len(lines) == 4
    monkeypatch.chdir(tmp_path)
    (tmp_path / "incast.yaml").write_text(scenario)
    with pytest.raises(SystemExit):
        main(["plan", "--profile", "resnet50", "--fabric", fabric, "-o", "plan.yaml"])
    for line in lines:
        assert run(*shlex.split(line)[2:]) == 0
    assert {path.name for path in tmp_path.glob("flows*")} == {"flows.parquet", "flows.queues.parquet"}
    capsys.readouterr()


def test_a_plan_is_played_and_stands_beside_its_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.yaml"
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--profile", "mobilenet", "--fabric", str(FABRIC), "-o", str(plan)])
    assert not ended.value.code
    capsys.readouterr()
    assert run(plan, "--profile", "mobilenet", "--transport", "mlt,dctcp", "--json") == 0
    mlt, dctcp = json.loads(capsys.readouterr().out)["transports"]
    assert [row["traffic_class"] for row in mlt["beside_plan"]] == [f"gradient-{place}" for place in range(8)]
    assert dctcp["beside_plan"] == []
    assert mlt["runs"][0]["summary"]["open_flows"] == 0
    classes = {each["traffic_class"]: each for each in mlt["runs"][0]["classes"]}
    for row in mlt["beside_plan"]:
        counted = classes[row["traffic_class"]]
        assert row["simulated_unimportant"] == counted["dropped_unimportant"] / counted["sent_unimportant"]
    assert run(plan, "--profile", "vgg16") == 2
    assert "the plan is for a model of" in capsys.readouterr().err


def test_a_fabric_file_says_its_delays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = yaml.safe_load(FABRIC.read_text())
    times = []
    for delay in (0, 1e-3):
        document["topology"]["leaf_spine"]["host_ports"] = {"delay": delay}
        (tmp_path / "fabric.yaml").write_text(yaml.safe_dump(document))
        workload = {"kind": "incast", "senders": 1, "size": 1460}
        path = written(tmp_path, fabric="fabric.yaml", workload=workload, transports=["newreno"])
        assert run(path, "--json") == 0
        times.append(
            json.loads(capsys.readouterr().out)["transports"][0]["figures"]["fct_max_seconds"]["mean"]
        )
    assert times[1] - times[0] == pytest.approx(2e-3)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "too few hosts": (
        {"workload": {"kind": "incast", "senders": 8, "size": 1000}},
        "workload: 8 senders and their receiver need 9 hosts, the fabric has 8",
    ),
    "too many workers": (
        {"workload": {"kind": "parameter-server", "profile": "mobilenet", "workers": 8, "servers": 1}},
        "workload: 8 workers and 1 servers need 9 hosts, the fabric has 8",
    ),
    "timeout": (
        {"transports": [{"transport": {"name": "dctcp", "rto_min": 1e-9}}]},
        "transports[0].rto_min: 1e-09 s are less than the 1.2e-06 s that a link needs for a packet",
    ),
    "K above the buffer": ({"buffer": "64kB"}, "transports[0].switch.k: K of 97500 B lies above the 64000 B"),
    "packets past 32 bits": (
        {"workload": {"kind": "incast", "senders": 1, "size": 1460 * (2**31 - 2) + 1}},
        "workload: a flow of 3135326123161 B has 2147483647 packets (expected at most 2147483646 packets, "
        "3135326123160 B, in a flow)",
    ),
    "starts too late": (
        {"workload": {"kind": "incast", "senders": 1, "size": 1000, "rounds": 5000, "period": 1000}},
        "workload: the last flow starts after 4.999e+06 s (expected less than 4611686 s of simulated time)",
    ),
    "takes too long": (
        {
            "workload": {"kind": "incast", "senders": 1, "size": 1460},
            "link_loss": 0.999999,
            "transports": ["newreno"],
        },
        "1 flows are open, and the run takes longer than the 4611686 s that can be simulated: flow 0",
    ),
    "no buffer": ({"buffer": None}, "buffer: nobody says how much memory a port has"),
    "p = 1": (
        {"transports": [{"transport": {"name": "mlt", "loss_bound": 1}}]},
        "loss_bound: must be less than 1",
    ),
    "unknown transport": ({"transports": ["dctpc"]}, "'dctpc' is no transport, did you mean dctcp?"),
    "pfabric over marking": (
        {"transports": [{"transport": "pfabric", "switch": {"kind": "marking"}}]},
        "pfabric does not work with switches of kind marking (expected one of priority-dropping)",
    ),
    "dctcp over trimming": (
        {"transports": [{"transport": "dctcp", "switch": {"kind": "trimming"}}]},
        "dctcp does not work with switches of kind trimming (expected one of plan, thresholds, marking,",
    ),
    "thresholds that fall": (
        {"transports": [{"transport": {"name": "pias", "thresholds": ["20kB", "10kB"]}}]},
        "thresholds: each must be above the one before",
    ),
    "K of a port above the buffer": (
        {"transports": ["pias"], "buffer": "64kB"},
        "transports[0].switch.k: K of 97500 B lies above the 64000 B",
    ),
    "no buffer to trim in": ({"transports": ["ndp"], "buffer": None}, "buffer: nobody says how much memory"),
    "no plan": ({"transports": ["mlt"]}, "transports[0].switch: the scenario has no plan"),
    "one path": (
        {
            "fabric": {"leaves": 2, "spines": 1, "hosts_per_leaf": 4, "rate": "10Gbps"},
            "transports": [{"transport": "dctcp", "spraying": True}],
        },
        "transports[0].spraying: there is no second path",
    ),
    "S above L": (
        {
            "transports": [
                {"transport": "mlt", "switch": {"kind": "thresholds", "classes": [{"s": 9, "l": 8}]}}
            ]
        },
        "s 9 B lies above l 8 B",
    ),
    "link aggregation": (
        {"fabric": "lag.yaml", "buffer": "1MB"},
        "link aggregation groups are not simulated",
    ),
    "a timer that the agent has not": (
        {"transports": [{"transport": {"name": "mlt", "law": "compiled", "rto_min": 0.01}}]},
        "law compiled has no rto_min",
    ),
    "unknown law": (
        {"transports": [{"transport": {"name": "mlt", "law": "papr"}}]},
        "transports[0].transport: 'law' must be one of 'paper', 'compiled'",
    ),
    "too many agents": (
        {
            "fabric": {"leaves": 2, "spines": 2, "hosts_per_leaf": 33, "rate": "10Gbps"},
            "workload": {"kind": "incast", "senders": 64, "size": 1000},
            "transports": [
                {"transport": {"name": "mlt", "law": "compiled"}, "switch": {"kind": "drop-tail"}}
            ],
        },
        "transports[0].law: 65 hosts would run the compiled data plane (expected at most 64 of them)",
    ),
    "seed twice": ({"seeds": [1, 1]}, "seeds: one stands twice"),
    "no such file": ({"fabric": "none.yaml"}, "none.yaml: cannot be read: No such file"),
    "unknown profile": (
        {"workload": {"kind": "parameter-server", "profile": "resnet19"}},
        "unknown profile 'resnet19'",
    ),
}


def test_files_of_a_scenario_lie_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sizes.txt").write_text("3000 1\n")
    workload = {"kind": "background", "load": 0.2, "duration": "1ms", "sizes": "sizes.txt"}
    parts = [{"workload": workload}, {"hosts": ["0-3"], "workload": {"kind": "permutation", "size": 3000}}]
    path = written(tmp_path, workload={"kind": "mix", "parts": parts})
    assert run(path, "-o", tmp_path / "flows.csv") == 0
    capsys.readouterr()
    sizes = {line.split(",")[7] for line in (tmp_path / "flows.csv").read_text().splitlines()[1:]}
    assert sizes == {"3000"}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, line = BAD[case]
    document = {name: value for name, value in (INCAST | changes).items() if value is not None}
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(document))
    fabric = yaml.safe_load(FABRIC.read_text())
    fabric["topology"]["leaf_spine"]["uplinks"] = {"parallel": 2, "lag": True}
    (tmp_path / "lag.yaml").write_text(yaml.safe_dump(fabric))
    output = tmp_path / "flows.csv"
    assert run(path, "-o", output) != 0
    said = capsys.readouterr()
    assert line in said.err
    assert said.err.count("\n") == 1
    assert not output.exists()


TWICE = ["dctcp", {"transport": "dctcp", "switch": {"kind": "drop-tail"}}, "newreno"]
OVER_MARKING, OVER_DROP_TAIL = "dctcp over marking", "dctcp over drop-tail"


@pytest.mark.parametrize(
    ("chosen", "titles"),
    [
        ("dctcp", [OVER_MARKING, OVER_DROP_TAIL]),
        (OVER_DROP_TAIL, [OVER_DROP_TAIL]),
        (f"newreno,{OVER_DROP_TAIL},dctcp", ["newreno", OVER_DROP_TAIL, OVER_MARKING]),
        ("newreno", ["newreno"]),
    ],
)
def test_a_transport_of_the_command_line_is_all_its_plays(
    chosen: str, titles: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(written(tmp_path, transports=TWICE), "--transport", chosen, "--json") == 0
    found = json.loads(capsys.readouterr().out)["transports"]
    assert [each["transport"] for each in found] == titles
    marked = {each["transport"]: each["runs"][0]["summary"]["marked_packets"] for each in found}
    assert not marked.get(OVER_DROP_TAIL)


def test_memory_is_asked_for_before_flows_are_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts what it can take from its page cache as available, and little as free."""
    memory = tmp_path / "meminfo"
    monkeypatch.setattr(simulation, "MEMORY_FILE", memory)
    monkeypatch.setattr(Incast, "flows", None)
    workload = {"kind": "incast", "senders": 4, "size": 1000, "rounds": 100_000}
    memory.write_text("MemTotal: 9000000 kB\nMemFree: 9000000 kB\nMemAvailable:     102400 kB\n")
    assert run(written(tmp_path, workload=workload)) != 0
    said = capsys.readouterr().err
    assert "workload: 400000 flows need about 458 MiB, and 100 MiB are free" in said
    monkeypatch.undo()
    monkeypatch.setattr(simulation, "MEMORY_FILE", memory)
    memory.write_text("MemTotal: 9000000 kB\nMemFree: 1000 kB\nMemAvailable: 8000000 kB\n")
    assert run(written(tmp_path)) == 0
    capsys.readouterr()


def test_an_unknown_transport_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(written(tmp_path), "--transport", "quic") == 2
    assert (
        "--transport: 'quic' is no transport (expected one of mlt, dctcp, newreno, "
        in capsys.readouterr().err
    )
