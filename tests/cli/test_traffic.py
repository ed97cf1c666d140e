"""`mltswitch traffic fit` as users meet it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltswitch.cli import main
from mltswitch.documents import dump_yaml, load_document
from mltswitch.plan import Plan
from mltswitch.traffic.document import Traffic
from tests.traffic.captures import DSCP, poisson_bursts, write_pcap

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["traffic", "fit", *map(str, arguments)])
        captured = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, captured.out, captured.err

    return call


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    times, senders = poisson_bursts(np.full(2_000, 8), 0.5, 1.0, seed=1)
    return write_pcap(tmp_path / "port.pcap", times, senders, np.arange(len(times)) % 2 == 0)


def test_table(run: Run, capture: Path) -> None:
    code, out, err = run(capture, "--rate", "10Gbps")
    assert (code, err) == (0, "")
    assert "all figures are measured" in out
    row = next(line for line in out.splitlines() if line.lstrip().startswith("dscp-10"))
    assert "16,000" in row
    assert "50 %" in row
    assert "dscp-10: fits" in out


def test_json_and_file_say_the_same(run: Run, capture: Path, tmp_path: Path) -> None:
    file = tmp_path / "traffic.yaml"
    code, out, _ = run(capture, "--rate", "10Gbps", "--mtu", "1500", "-o", file, "--json")
    assert code == 0
    document: dict[str, Any] = json.loads(out)
    assert document["schema"] == "mltswitch/traffic/v1"
    assert document["packet_bytes"] == 1514
    assert Traffic.model_validate(document) == load_document(file, Traffic)
    assert document["classes"][0]["mean_burst_packets"] == pytest.approx(8, rel=0.05)


def test_classes_and_rate_of_a_plan(run: Run, capture: Path, tmp_path: Path, lab_plan: Plan) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(dump_yaml(lab_plan))
    code, out, err = run(capture, "--plan", plan, "--port-role", "leaf-down", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    profile = next(each for each in lab_plan.port_profiles if each.role == "leaf-down")
    assert document["rate_bps"] == profile.rate_bps
    assert document["packet_bytes"] == profile.packet_bytes
    (entry,) = document["classes"]
    assert entry["name"] == next((each.name for each in lab_plan.classes if DSCP in each.dscp), "background")


def test_counters(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "counters.csv"
    totals = np.cumsum(np.random.default_rng(1).poisson(50, 300) * 4)
    rows = "".join(f"{number},gradient-0,{total}\n" for number, total in enumerate(totals))
    file.write_text("time_seconds,class,packets\n" + rows)
    code, out, _ = run(file, "--rate", "1Gbps", "--mtu", "1500")
    assert code == 0
    assert "gradient-0: estimated from counters" in out
    assert "Traffic (estimated)" in out
    assert "bursts estimated" in out
    assert "all figures are measured" not in out


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "--rate: is missing"),
        (("--rate", "10GBps"), "--rate:"),
        (("--rate", "0"), "--rate: '0' is out of range"),
        (("--rate", "10Gbps", "--mtu", "-3"), "--mtu:"),
        (("--rate", "10Gbps", "--gap", "soon"), "--gap: 'soon' cannot be used"),
        (("--rate", "10Gbps", "--gap", "nan"), "--gap: 'nan' cannot be used"),
        (("--rate", "10Gbps", "--plan", "absent.yaml"), "absent.yaml: cannot be read"),
        (("--rate", "10Gbps", "-o", "/absent/traffic.yaml"), "/absent/traffic.yaml: cannot be written"),
    ],
)
def test_options_that_cannot_be_used(run: Run, capture: Path, options: tuple[str, ...], line: str) -> None:
    code, out, err = run(capture, *options)
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


def test_what_is_no_capture(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "port.pcap"
    file.write_text("nothing\n")
    code, out, err = run(file, "--rate", "10Gbps")
    assert (code, out) == (2, "")
    assert err.startswith(f"mltswitch: {file}: is neither a capture nor queue counters")
