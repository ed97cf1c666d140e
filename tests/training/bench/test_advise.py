"""Advice on real hosts, which are ranks on loopback here; and how it must not be started."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mltswitch.cli import main
from mltswitch.training.bench import Case, CaseResult, Method
from mltswitch.training.bench.ladder import ladder_of, rungs
from mltswitch.training.bench.links import Links

pytest.importorskip("torch")
from mltswitch.cli.advise import advice_lines
from mltswitch.training.bench.advise import Advice, size_of

pytestmark = pytest.mark.torch

COMMAND = [sys.executable, "-m", "mltswitch", "train", "advise"]
MEETING = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def advised(*arguments: str, files: Sequence[Path] = (), world: int = 2) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each rank, which may have an agent's file."""
    port, ranks = free_port(), []
    for number in range(world):
        values = ("127.0.0.1", str(port), str(number), str(world))
        environment = os.environ | dict(zip(MEETING, values, strict=True))
        if files:
            environment["MLTSWITCH_AGENT_CONFIG"] = str(files[number])
        ranks.append(
            subprocess.Popen(
                [*COMMAND, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        told = [rank.communicate(timeout=400) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return [(rank.returncode, *each) for rank, each in zip(ranks, told, strict=True)]


def test_five_lines() -> None:
    names = [*rungs((34, 26))]
    taken = {"compute": 0.1} | dict.fromkeys(names, 0.4) | {"gloo-ring": 0.3, "credit": 0.2}
    methods = {name: Method(name, step_seconds=[each], cpu_load=[0.5]) for name, each in taken.items()}
    result = CaseResult(Case("vgg16", 10**9, 1e-4, 0.0, 0), 4, 1_000_000, 1.0, methods)
    links = Links(4, 10e9, 123.4e-6, 8.765e9, 4.4e9, 9.1e9, 0.00012, 0.91)
    assert [*advice_lines("vgg16", Advice(links, 100, result, ladder_of(result)))] == [
        "4 hosts: a flow alone has 8.76 Gbit/s of a line of 10 Gbit/s, 4.4 Gbit/s where each host sends to "
        "the next, 9.1 Gbit/s come where all send to one, a tenth of the time 91 % of its rate, round trip "
        "123 µs, 0.012 % lost",
        "vgg16: 553 MB of gradients, measured 100 times smaller, computing 10 s a step, the link alone 4.8 s",
        "gloo-ring takes 30 s a step; times as fast: tcp 0.75, loss 0.75, importance 0.75, queues 0.75, "
        "credit 1.50, forward 0.75",
        "pays: credit (100 %); costs: forward (50 %)",
        "Take credit: a step is 1.50 times as fast as with gloo",
    ]
    methods["tcp"].cpu_load[:] = [0.95, 0.97]
    *_, last = advice_lines("vgg16", Advice(links, 100, result, ladder_of(result)))
    assert str(last).endswith("as with gloo (the first host's processors were busy to 96 %)")


def agent_file(folder: Path, *addresses: str) -> Path:
    path = folder / f"{addresses[0]}.json"
    classes = {"control_dscp": 8, "gradient_dscp": [16, 24, 32]}
    path.write_text(json.dumps({"addresses": addresses, "line_rate": "500Mbps", "classes": classes}))
    return path


@pytest.mark.lab
def test_all_of_it_as_json_by_agents_of_the_hosts_own_files(tmp_path: Path) -> None:
    files = [agent_file(tmp_path, f"127.0.1.{rank}", f"127.0.2.{rank}") for rank in (1, 2)]
    options = ["--model", "resnet50", "--step", "0.5", "--seconds", "10", "--json"]
    (code, output, errors), (other_code, _, _) = advised(*options, files=files)
    assert (code, other_code) == (0, 0), errors
    found = json.loads(output)
    assert found["links"]["hosts"] == 2
    assert found["divisor"] >= 1
    names = [*rungs([16, 24, 32], has_paths=True)]
    assert [rung["name"] for rung in found["ladder"]] == names, "each host has two addresses, and so paths"
    assert all(method["ranks_agree"] for method in found["methods"])
    assert [len(m["missing_share_by_class"]) for m in found["methods"]] == [0] * 2 + [3] * (len(names) - 2)
    assert found["compute_seconds"] >= 0.5 / found["divisor"]
    assert found["advice"].startswith(("Stay with gloo", "Take "))


def test_two_ranks_with_one_address_are_refused(tmp_path: Path) -> None:
    files = [agent_file(tmp_path, "127.0.1.1")] * 2
    for code, _, errors in advised("--model", "resnet50", "--step", "0.5", files=files):
        assert code == 2
        assert "two have the address 127.0.1.1 (expected one rank a host)" in errors


def test_a_rank_alone_is_refused() -> None:
    ((code, _, errors),) = advised("--model", "resnet50", "--step", "0.5", world=1)
    assert code == 2
    assert "there is one rank (expected at least 2, one a host)" in errors


@pytest.mark.parametrize("missing", MEETING)
def test_it_is_started_as_ranks_are(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in zip(MEETING, ("127.0.0.1", "1", "0", "2"), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(missing)
    with pytest.raises(SystemExit) as ended:
        main(["train", "advise", "--model", "resnet50", "--step", "0.5"])
    assert ended.value.code == 2
    assert f"{missing}: is not set" in (said := capsys.readouterr().err)
    assert "torchrun" in said


@pytest.mark.parametrize(
    ("elements", "compute_seconds", "rate_bps", "seconds", "size"),
    [
        (25_557_032, 0.0, 1e9, 60.0, (4, 10)),
        (25_557_032, 0.25, 1e9, 60.0, (4, 5)),
        (25_557_032, 0.25, 1e9, 20.0, (4, 5)),
        (1000, 0.0, 1e9, 60.0, (1, 100)),
        (10**9, 4.0, 1e10, 600.0, (125, 100)),
    ],
)
def test_a_model_is_made_as_small_as_the_time_asks_for(
    elements: int, compute_seconds: float, rate_bps: float, seconds: float, size: tuple[int, int]
) -> None:
    links = Links(4, None, 1e-4, rate_bps, rate_bps, rate_bps, 0.0, 1.0)
    assert size_of(elements, compute_seconds, links, seconds) == size
