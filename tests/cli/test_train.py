"""`mltswitch train`: one clear line for what cannot be, and tiny trainings for real."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mltswitch.cli import main
from mltswitch.errors import MachineError
from mltswitch.lab.programs import need

PATIENCE_SECONDS = 120.0
RANK = """\
import sys

import torch
from torch.nn.parallel import DistributedDataParallel

from mltswitch.training.pytorch.hook import MltState, mlt_hook

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(300, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
with MltState(model, servers=1, rendezvous=f"file://{folder}/ranks") as state:
    model.register_comm_hook(state, mlt_hook)
    for step in range(5):
        print("step", step, flush=True)
        model(torch.randn(8, 300)).square().mean().backward()
        optimizer.step()
        if "--stop" in sys.argv and step == 1:
            sys.stdin.read()
print(model.module.weight.sum().item())
"""


def run(*arguments: str, command: str = "bench") -> int:
    with pytest.raises(SystemExit) as ended:
        main(["train", command, *arguments])
    return int(ended.value.code or 0)


def start(command: list[str], folder: Path) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=folder)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--sync", "x"], "synchronization: 'x' is no synchronization (expected asp, bsp"),
        (["--topology", "x"], "topology: 'x' is no topology (expected "),
        (["--transport", "x"], "transport: unknown transport 'x' (expected one of "),
        (["--model", "x"], "unknown task 'x' (expected one of digits"),
        (["--loss", "2"], "--loss: '2': 2 is not a number from 0 to 0.5."),
        (["--rate", "1kbps"], "--rate"),
        (["--buffer", "1kB"], "--buffer: 1,000 B (expected 16kB to 1GB)"),
        (["--workers", "1"], "Invalid value for '--workers'"),
        (["-o", "/nowhere/a.html"], "/nowhere/a.html: cannot be written: no such folder"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


@pytest.mark.torch
def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert run("--workers", "2") == 3
    assert "needs root, for network namespaces" in capsys.readouterr().err


@pytest.mark.torch
def test_without_a_compiler_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name == "gcc" else f"/usr/bin/{name}")
    assert run("--workers", "2") == 3
    assert "gcc is not installed. `apt-get install gcc`" in capsys.readouterr().err


@pytest.mark.root
@pytest.mark.lab
@pytest.mark.torch
def test_two_workers_train_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    try:
        need("gcc", "ip", "tc", "ping")
    except MachineError as error:
        pytest.skip(str(error))
    page = tmp_path / "bench.html"
    options = ["--workers", "2", "--steps", "15", "--loss", "0.01", "--rate", "20Mbps", "--rtt", "1"]
    assert run(*options, "-o", str(page), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["workers"], found["elements"]) == ("measured", 2, 33_738)
    lossy, incast = found["cases"]
    assert [entry["method"] for entry in lossy["methods"]] == ["gloo", "mlt"]
    assert [entry["method"] for entry in incast["methods"]] == ["gloo", "gloo-ring", "mlt"]
    for case in (lossy, incast):
        for entry in case["methods"]:
            assert len(entry["steps"]) == 15
            assert entry["ranks_agree"]
            assert 0 < entry["goodput_bps"] < 20e6
            assert entry["step_seconds"] > case["limit_seconds"]
    assert all(entry["packets_lost_at_random"] > 0 for entry in lossy["methods"])
    assert lossy["tcp_limit_bps"] == pytest.approx(1.22 * 1448 * 8 / (1e-3 * 0.1))
    text = page.read_text(encoding="utf-8")
    assert "Accuracy over training time" in text
    assert "Step times" in text
    assert not [*Path("/run/netns").glob(f"mltswitch-star-{os.getpid()}-*")]


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ([], 2, "Missing option '--world'"),
        (["--world", "2", "--server", "1"], 2, "--server: is 1 of 1 (expected 0 to --servers - 1)"),
        (["--world", "0"], 2, "Invalid value for '--world'"),
        (["--world", "2", "--timeout", "0"], 2, "Invalid value for '--timeout'"),
        (["--world", "2"], 2, "MASTER_ADDR: is not set (expected as torchrun sets it)"),
        (["--world", "2", "--rendezvous", "x"], 2, "rendezvous: 'x' (expected env://, file:///PATH"),
        (["--world", "2", "--rendezvous", "file:///nowhere/x"], 2, "/nowhere/x: cannot be used: No such"),
        (["--world", "2", "-c", "none.yaml"], 2, "none.yaml: "),
        (["--world", "2", "--timeout", "0.2", "--rendezvous", "file://{}/ranks"], 6, "did not come: 0, 1"),
    ],
)
def test_what_no_server_can_be_is_one_line(
    arguments: list[str],
    code: int,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("WORLD_SIZE", "MASTER_ADDR", "MLTSWITCH_AGENT_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    assert run(*(argument.format(tmp_path) for argument in arguments), command="serve") == code
    captured = capsys.readouterr()
    errors = [said for said in captured.err.splitlines() if not said.startswith("server 0 waits for ")]
    assert captured.out == ""
    assert len(errors) == 1
    assert line in errors[0]


@pytest.mark.torch
@pytest.mark.parametrize("is_killed", [False, True])
def test_two_ranks_and_a_server_of_their_own(is_killed: bool, tmp_path: Path) -> None:
    """It ends with 0 on their goodbye, and says who is to blame where one of them dies."""
    pytest.importorskip("torch")
    options = ["--world", "2", "--rendezvous", f"file://{tmp_path}/ranks", "--json"]
    nodes = [start([sys.executable, "-m", "mltswitch", "train", "serve", *options], tmp_path)]
    stop = ["--stop"] if is_killed else []
    own = [sys.executable, "-c", RANK]
    nodes += [start([*own, str(rank), str(tmp_path), *stop], tmp_path) for rank in range(2)]
    try:
        if is_killed:
            assert nodes[2].stdout is not None
            assert [nodes[2].stdout.readline() for _ in range(2)] == ["step 0\n", "step 1\n"]
            nodes[2].send_signal(signal.SIGKILL)
        (out, errors), *ranks = [node.communicate(timeout=PATIENCE_SECONDS) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    if is_killed:
        assert (nodes[0].returncode, out) == (7, "")
        assert errors.splitlines()[1].startswith("mltswitch: rank 1: ")
        return
    assert [node.returncode for node in nodes] == [0, 0, 0], (errors, ranks)
    found = json.loads(out)
    assert (found["server"], found["world"], found["servers"], found["elements"]) == (0, 2, 1, 3010)
    assert ranks[0][0].splitlines()[-1] == ranks[1][0].splitlines()[-1]
