"""`mltswitch train bench`: one clear line for what cannot be, and a tiny training for real."""

import json
import os
from pathlib import Path

import pytest

from mltswitch.cli import main
from mltswitch.errors import MachineError
from mltswitch.lab.programs import need


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["train", "bench", *arguments])
    return int(ended.value.code or 0)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--sync", "x"], "synchronization: 'x' is no synchronization (expected bsp"),
        (["--topology", "x"], "topology: 'x' is no topology (expected "),
        (["--transport", "x"], "transport: unknown transport 'x' (expected one of "),
        (["--model", "x"], "unknown task 'x' (expected one of digits"),
        (["--loss", "2"], "--loss: '2': 2 is not a number from 0 to 0.5."),
        (["--rate", "1kbps"], "--rate"),
        (["--buffer", "1kB"], "--buffer: 1,000 B (expected 16kB to 1GB)"),
        (["--workers", "1"], "Invalid value for '--workers'"),
        (["-o", "/nowhere/a.html"], "/nowhere/a.html: cannot be written: there is no folder /nowhere"),
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
    assert "gcc is not installed. Install the package gcc" in capsys.readouterr().err


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
