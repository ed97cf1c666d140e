"""Runs that are killed, interrupted, spread over processes, or too large for the machine."""

import csv
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.app import simulated_network
from mltswitch.errors import UserInputError
from mltswitch.network import simulation, snapshot
from mltswitch.network.faults import Fault
from mltswitch.network.snapshot import load_world, save_world
from mltswitch.network.transports.parameters import Dctcp, Mlt, NewReno
from mltswitch.network.workloads import Flow
from mltswitch.network.world import MOST_DEPTHS, World
from tests.network.support import network
from tests.network.test_faults import fault
from tests.network.test_simulate import run, written
from tests.test_sweep_dask import scheduler  # noqa: F401  (a fixture)

ADDRESSES = {
    "packets",
    "ports",
    "pools",
    "queues",
    "flows",
    "rings",
    "hops",
    "words",
    "starts",
    "heaps",
    "settings",
}


def state_of(world: World) -> dict[str, bytes]:
    """All that a world is, but for where its tables lie."""
    tables = dict(world.all_tables())
    table, heaps = tables.pop("state"), tables.pop("heap table")
    counts = {name: table[name].tobytes() for name in table.dtype.names or () if name not in ADDRESSES}
    return (
        counts | {name: each.tobytes() for name, each in tables.items()} | {"count": heaps["count"].tobytes()}
    )


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_run_goes_on_from_any_event(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    transport = data.draw(st.sampled_from([NewReno(), Dctcp(), Mlt(), Mlt(loss_bound=0.0)]))
    faults: list[Fault] = data.draw(
        st.sampled_from(
            [[], [fault(loss=0.3)], [fault(detected_after=3e-5, to="90us"), fault(link=["host1", "leaf1"])]]
        )
    )
    spraying, has_depths = data.draw(st.booleans()), data.draw(st.booleans())
    loss = data.draw(st.sampled_from([0.0, 0.01]))
    flows = [Flow(host, 7 - host % 3, 60_000, 0, 9_000_000 * host) for host in range(4)]

    def made() -> World:
        net, settings = network(loss=loss), transport.settings()
        return World(net, flows, settings, seed=3, spraying=spraying, faults=faults, has_depths=has_depths)

    whole, killed = made(), made()
    while whole.advance():
        pass
    path = tmp_path_factory.mktemp("snapshots") / "run.npz"
    for events in data.draw(st.lists(st.integers(0, 3000), min_size=1, max_size=3)):
        killed.advance(events=events)
        save_world(path, "digest", killed)
        so_far, killed = killed.count("events"), made()
        load_world(path, "digest", killed)
        assert killed.count("events") == so_far
    while killed.advance():
        pass
    assert state_of(killed) == state_of(whole)
    assert whole.count("finished") == len(flows)


def test_samples_are_few_and_change_nothing() -> None:
    flows = [Flow(host, 7, 2_000_000, 0) for host in range(6)]
    plain, sampled = (
        World(network(), flows, Dctcp().settings(), seed=1, spraying=False, has_depths=has)
        for has in (False, True)
    )
    for world in (plain, sampled):
        while world.advance(events=1001):
            pass
    assert plain.flows.tobytes() == sampled.flows.tobytes()
    assert not len(plain.depths)
    assert MOST_DEPTHS / 2 <= len(sampled.depths) <= MOST_DEPTHS
    times = sampled.depths[:, 0]
    assert set(np.diff(times)) == {sampled.count("depth_interval")}
    assert times[-1] + sampled.count("depth_interval") > sampled.now_picoseconds - times[1]
    by_port = sampled.tables["queues"]["peak"].reshape(-1, 1)[:, 0]
    assert (sampled.depths[:, 1:].max(axis=0) <= by_port).all()
    down = 18 + 3  # leaf2's port to host 8, where all flows meet
    assert int(sampled.depths[:, 1:].max(axis=0)[8:].argmax()) + 8 == down


KILLED = """
import os, signal, sys
from mltswitch.cli import main
from mltswitch.network import simulation, snapshot, world
simulation.SNAPSHOT_SECONDS, world.EVENTS_AT_ONCE = 0.0, 2000
syncs = []
def fsync(number):
    syncs.append(number)
    if len(syncs) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
snapshot.os = type("os", (), {"fsync": fsync, "fstat": os.fstat, "geteuid": os.geteuid})
main(sys.argv[2:])
"""
LONGER = {"kind": "incast", "senders": 7, "size": "1MB"}


def test_a_process_that_is_killed_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It dies as it writes a snapshot, in its first run and again in its second one."""
    path, state = written(tmp_path, workload=LONGER, seeds=[1, 2], transports=["dctcp"]), tmp_path / "state"
    arguments = ("simulate", path, "--json", "-o", tmp_path / "killed.csv", "--state", state)
    for syncs in (4, 16):
        process = subprocess.run(
            [sys.executable, "-c", KILLED, str(syncs), *map(str, arguments)], check=False
        )
        assert process.returncode == -signal.SIGKILL
        assert list(state.glob("*.snapshot.npz"))
        assert list(state.glob(".mltswitch-*"))
    assert not (tmp_path / "killed.csv").exists()
    texts = {}
    for name, more in (("killed", ("--state", state)), ("whole", ())):
        assert run(path, "--json", "-o", tmp_path / f"{name}.csv", *more) == 0
        texts[name] = capsys.readouterr().out.replace(f"{name}.", "")
    assert texts["killed"] == texts["whole"]
    for ending in ("csv", "queues.csv"):
        assert (tmp_path / f"killed.{ending}").read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()
    assert not list(state.glob(".mltswitch-*"))


def test_runs_that_ended_are_not_played_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, state = written(tmp_path), tmp_path / "state"
    assert run(path, "--state", state, "--json", "--seed", 1) == 0
    first = capsys.readouterr().out
    played: list[str] = []

    def noted(path: Path, digest: str, world: World) -> None:
        played.append(path.name.rpartition("-")[0])
        save_world(path, digest, world)

    monkeypatch.setattr(snapshot, "save_world", noted)  # which follows events alone
    assert run(path, "--state", state, "--json", "--seed", 1) == 0
    said = capsys.readouterr()
    assert said.out == first
    assert played == []
    assert run(path, "--state", state, "--seed", 1, "--seed", 2) == 0
    assert run(path, "--state", state, "--transport", "newreno") == 0
    assert played == ["dctcp-2", "newreno-2"]
    assert run(path, "--state", state, "--restart") == 0
    assert played[2:] == ["dctcp-1", "newreno-1"]
    capsys.readouterr()


def _scenario(folder: Path, _patch: pytest.MonkeyPatch) -> None:
    written(folder, buffer="600KB")


def _version(_folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(snapshot, "__version__", "0.0.1")


@pytest.mark.parametrize("change", [_scenario, _version])
def test_a_state_of_something_else_is_refused(
    change: Callable[[Path, pytest.MonkeyPatch], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, state = written(tmp_path), tmp_path / "state"
    assert run(path, "--state", state) == 0
    capsys.readouterr()
    change(tmp_path, monkeypatch)
    assert run(path, "--state", state, "-o", tmp_path / "flows.csv") == 2
    said = capsys.readouterr().err
    assert said == (
        f"mltswitch: {state}/runs.cells.jsonl: it holds cells of another simulation. --restart begins anew\n"
    )
    assert not (tmp_path / "flows.csv").exists()
    assert run(path, "--state", state, "--restart") == 0
    capsys.readouterr()


def test_a_snapshot_of_something_else_is_refused(tmp_path: Path) -> None:
    world = World(network(), [Flow(0, 7, 9000, 0)], Dctcp().settings(), seed=1, spraying=False)
    save_world(tmp_path / "one.npz", "digest", world)
    with pytest.raises(UserInputError, match="is a snapshot of another scenario or version"):
        load_world(tmp_path / "one.npz", "other", world)
    (tmp_path / "two.npz").write_bytes(b"PK")
    with pytest.raises(UserInputError, match="is no snapshot of a simulation"):
        load_world(tmp_path / "two.npz", "digest", world)
    load_world(tmp_path / "three.npz", "digest", world)


@pytest.mark.parametrize(
    "change", [{"words": np.zeros(0, np.uint8)}, {"packets": np.zeros(0, np.uint8)}, {"queues": None}]
)
def test_a_snapshot_whose_tables_are_too_short_is_none(change: dict[str, Any], tmp_path: Path) -> None:
    """The engine would write beyond them."""
    world = World(network(), [Flow(0, 7, 9000, 0)], Dctcp().settings(), seed=1, spraying=False)
    tables = {name: table.view(np.uint8) for name, table in world.all_tables().items()} | change
    kept = {name: table for name, table in tables.items() if table is not None}
    np.savez(tmp_path / "one.npz", digest=np.array("digest"), **kept)
    before = world.tables["words"].ctypes.data
    with pytest.raises(UserInputError, match="is no snapshot of a simulation"):
        load_world(tmp_path / "one.npz", "digest", world)
    assert world.tables["words"].ctypes.data == before


def test_a_run_that_fails_leaves_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*given: Any, **more: Any) -> Any:
        if given[3] == 2:
            raise UserInputError("has failed", where="flow 0")
        return simulation.play_one(*given, **more)

    monkeypatch.setattr(simulated_network, "play_one", failing)
    path = written(tmp_path, seeds=[1, 2, 3], transports=["dctcp"])
    assert run(path, "-o", tmp_path / "flows.csv") == 2
    said = capsys.readouterr().err
    assert "1 of 3 runs ended before one failed, and are kept" in said
    assert said.splitlines()[-1] == "mltswitch: flow 0: has failed"
    assert {line.split(",")[1] for line in (tmp_path / "flows.csv").read_text().splitlines()[1:]} == {"1"}


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("ended", [0, 2])
def test_a_signal_keeps_what_has_ended(
    number: signal.Signals,
    code: int,
    ended: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def signalled(*given: Any, **more: Any) -> Any:
        if given[3] > ended:
            os.kill(os.getpid(), number)
        return simulation.play_one(*given, **more)

    monkeypatch.setattr(simulated_network, "play_one", signalled)
    output = tmp_path / "flows.csv"
    path = written(tmp_path, seeds=[1, 2, 3], transports=["dctcp"])
    assert run(path, "-o", output, "--json", "--report", tmp_path / "page.html") == code
    said = capsys.readouterr()
    assert said.err.splitlines()[-1] == f"interrupted: {ended} of 3 runs have ended, and are kept"
    document = json.loads(said.out)
    assert document["missing_runs"] == 3 - ended
    assert [each["seed"] for played in document["transports"] for each in played["runs"]] == [1, 2][:ended]
    assert output.exists() == bool(ended) == (tmp_path / "page.html").exists()


def test_processes_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, seeds=[1, 2])
    for processes in (1, 2):
        assert run(path, "-o", tmp_path / f"{processes}.csv", "--processes", processes) == 0
        assert capsys.readouterr().err.count("of 4 runs") == 4
    for ending in ("csv", "queues.csv"):
        assert (tmp_path / f"1.{ending}").read_bytes() == (tmp_path / f"2.{ending}").read_bytes()


def test_dask_changes_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    scheduler: str,  # noqa: F811  (the fixture)
) -> None:
    path, state = written(tmp_path), tmp_path / "state"
    assert run(path, "-o", tmp_path / "1.csv") == 0
    for _ in range(2):
        assert run(path, "-o", tmp_path / "dask.csv", "--dask", scheduler, "--state", state) == 0
        assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "dask.csv").read_bytes()
    assert {path.name.rpartition("-")[0] for path in state.glob("*.snapshot.npz")} == {"dctcp-1", "newreno-1"}
    capsys.readouterr()


@pytest.fixture
def _interrupted_after_a_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    others = set(multiprocessing.active_children())  # Dask's, of another test

    def told(line: str) -> None:
        if "(1 of" in line:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("mltswitch.cli.options.progress", told)
    yield
    assert set(multiprocessing.active_children()) <= others


@pytest.mark.usefixtures("_interrupted_after_a_run")
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_all_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "flows.csv"
    path = written(tmp_path, seeds=list(range(50)))
    assert run(path, "-o", output, "--processes", 2, "--json") == 130
    document = json.loads(capsys.readouterr().out)
    assert 0 < 100 - document["missing_runs"] < 100
    assert len({(row["transport"], row["seed"]) for row in csv.DictReader(output.open())}) == 1


def test_each_process_needs_its_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "meminfo"
    monkeypatch.setattr(simulation, "MEMORY_FILE", memory)
    memory.write_text("MemAvailable:     51200 kB\n")
    path = written(
        tmp_path, workload={"kind": "incast", "senders": 4, "size": 1000, "rounds": 5000}, seeds=[1, 2]
    )
    assert run(path, "--processes", 3, "-o", tmp_path / "flows.csv") == 3
    said = capsys.readouterr().err
    assert (
        "20000 flows need about 23 MiB in each of 3 runs at once, and 50 MiB are free. Take fewer --processes"
        in said
    )
    assert said.count("\n") == 1
    assert not (tmp_path / "flows.csv").exists()


def test_packets_that_wait_need_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "meminfo"
    monkeypatch.setattr(simulation, "MEMORY_FILE", memory)
    memory.write_text("MemAvailable:     51200 kB\n")
    workload = {"kind": "incast", "senders": 4, "size": "1GB"}
    assert run(written(tmp_path, workload=workload, buffer="100MB")) == 3
    assert (
        "4 flows need about 147 MiB, and 50 MiB are free. Take a smaller workload" in capsys.readouterr().err
    )


def test_restart_forgets_a_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(written(tmp_path), "--restart") == 2
    assert "--restart forgets what lies in --state" in capsys.readouterr().err
    assert run(written(tmp_path), "--state", tmp_path / "no" / "state") == 2
    assert "no/state: cannot be made: No such file or directory" in capsys.readouterr().err
