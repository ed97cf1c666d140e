"""The ladder: what it says of measured steps; every rung trains; what it cannot be made of."""

import json
import re
from pathlib import Path

import pytest

from mltswitch.cli import main
from mltswitch.errors import MachineError
from mltswitch.lab.programs import need
from mltswitch.training.bench import GRADIENT_DSCP, Case, CaseResult, Method
from mltswitch.training.bench.ladder import advice, ladder_of, rungs, said

NAMES = [*rungs(GRADIENT_DSCP)]


def _result(**milliseconds: float) -> CaseResult:
    taken = {"compute": 10.0, **dict.fromkeys(NAMES, 100.0)}
    taken |= {name.replace("_", "-"): each for name, each in milliseconds.items()}
    methods = {name: Method(name, step_seconds=[each / 1e3] * 2) for name, each in taken.items()}
    return CaseResult(Case("loss 0", 10**7, 1e-3, 0.0, 96_000), 2, 1000, 0.5, methods)


def test_each_rung_stands_beside_the_one_before_and_gloos_better_topology() -> None:
    ladder = {rung.name: rung for rung in ladder_of(_result(gloo_star=80.0, loss=50.0, credit=125.0))}
    assert [*ladder] == NAMES
    assert ladder["gloo-ring"].over_gloo == pytest.approx(0.8)
    assert (ladder["gloo-star"].gain, ladder["tcp"].gain) == (None, None)
    assert ladder["loss"].over_gloo == pytest.approx(1.6)
    found = {name: (round(rung.gain, 2), rung.verdict) for name, rung in ladder.items() if rung.gain}
    assert found == {
        "loss": (1.0, "pays"),
        "importance": (-0.5, "costs"),
        "credit": (-0.2, "costs"),
        "forward": (0.25, "pays"),
    }


@pytest.mark.parametrize(
    ("milliseconds", "line", "advised"),
    [
        (
            {},
            "no rung differs clearly from the one before",
            "Stay with gloo (NCCL with GPUs): tcp, the fastest of ours, makes a step 1.00 times as fast",
        ),
        (
            {"queues": 80.0, "credit": 79.0, "forward": 88.0},
            "pays: queues (25 %); costs: forward (10.2 %)",
            "Take credit: a step is 1.27 times as fast as with gloo",
        ),
        (
            {"gloo_star": 70.0, "credit": 79.0},
            "pays: credit (26.6 %); costs: forward (21 %)",
            "Stay with gloo (NCCL with GPUs): credit, the fastest of ours, makes a step 0.89 times as fast",
        ),
    ],
)
def test_lines_say_which_rung_pays_and_what_to_do(
    milliseconds: dict[str, float], line: str, advised: str
) -> None:
    ladder = ladder_of(_result(**milliseconds))
    assert said(ladder) == line
    assert advice(ladder) == advised


@pytest.mark.parametrize("option", [("--sync", "osp"), ("--transport", "tcp"), ("--servers", "1")])
def test_it_is_made_of_bsp_over_mlt(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "bench", "--ladder", *option])
    assert ended.value.code == 2
    assert "--ladder: " in (said_ := capsys.readouterr().err)
    assert "(expected bsp over mlt without servers)" in said_


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (["--background", "0.2"], "--background: "),
        (["--spines", "2", "--workers", "16", "--servers", "1"], "--spines: "),
    ],
)
def test_two_tiers_have_conditions(
    options: list[str], where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "bench", *options])
    assert ended.value.code == 2
    assert where in capsys.readouterr().err


@pytest.mark.root
@pytest.mark.lab
@pytest.mark.torch
def test_every_rung_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    try:
        need("gcc", "ip", "tc", "ping")
    except MachineError as error:
        pytest.skip(str(error))
    options = ["--workers", "2", "--steps", "5", "--loss", "0.01", "--rate", "20Mbps", "--no-incast"]
    options += ["--model", "shape:vgg16/4000@0.05", "--spines", "2", "--background", "0.2"]
    names = [*rungs(GRADIENT_DSCP, has_paths=True)]
    with pytest.raises(SystemExit) as ended:
        main(["train", "bench", "--ladder", *options, "--json", "-o", str(tmp_path / "page.html")])
    assert not ended.value.code
    case = json.loads(capsys.readouterr().out)["cases"][0]
    assert [entry["method"] for entry in case["methods"]] == names
    assert all(entry["ranks_agree"] for entry in case["methods"])
    assert [rung["name"] for rung in case["ladder"]] == names
    by_name = {entry["method"]: entry for entry in case["methods"]}
    for name, rung in zip(names, case["ladder"], strict=True):
        assert rung["step_seconds"] == by_name[name]["step_seconds"] > case["limit_seconds"]
    drawn = re.search(r'"y":\s*(\[[^]]*"gloo-ring"[^]]*\])', (tmp_path / "page.html").read_text())
    assert drawn is not None
    assert json.loads(drawn.group(1)) == names
    assert by_name["tcp"]["missing_share_by_class"] == [0.0, 0.0], "it is lossless"
