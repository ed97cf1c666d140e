"""The options of `mltswitch plan`: which go together, what is written, and what is printed."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltswitch.cli import main
from mltswitch.cli.output import Answer
from mltswitch.cli.plan import plan_text
from mltswitch.documents import load_document
from mltswitch.plan import Plan, Prediction
from tests.plan.examples import SMALL

FEW = ("--packets", "20000")


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str
    files: tuple[str, ...]


PlanCommand = Callable[..., Outcome]


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanCommand:
    """`mltswitch plan` for two gradient classes, in a folder that holds nothing but the fabric."""
    given = SMALL | {"classes": SMALL["classes"] | {"gradients": {"dscp": [34, 36]}}}
    (tmp_path / "fabric.yaml").write_text(yaml.safe_dump(given))
    monkeypatch.chdir(tmp_path)

    def call(*options: str) -> Outcome:
        with pytest.raises(SystemExit) as end:
            main(["plan", "--profile", "resnet50", "--fabric", "fabric.yaml", *options])
        assert isinstance(end.value.code, int)
        files = tuple(sorted(path.name for path in tmp_path.iterdir() if path.name != "fabric.yaml"))
        return Outcome(end.value.code, *capsys.readouterr(), files)

    return call


def test_the_simulator_is_no_planning_model(plan: PlanCommand) -> None:
    outcome = plan("--model", "simulate")
    assert outcome.code == 2
    assert "--refine simulate" in outcome.err
    assert outcome.out == ""


@pytest.mark.parametrize("option", [("--packets", "50000"), ("--seed", "3")])
def test_options_without_effect_are_refused(plan: PlanCommand, option: tuple[str, str]) -> None:
    outcome = plan("--model", "paper", *option)
    assert outcome.code == 2
    assert outcome.err == f"mltswitch: {option[0]}: nothing is simulated. It goes with --refine or --report\n"


@pytest.mark.parametrize(
    "options",
    [
        ("--report", "missing/report.html"),
        ("-o", "plan.yaml", "--report", "./plan.yaml"),
        ("-o", "plan.yaml", "--report", "missing/report.html"),
        ("--report", "report.html", "--packets", "1"),
        ("--report", "report.html", "--seed", "-1"),
        ("--refine", "paper"),
    ],
)
def test_impossible_options_leave_nothing_behind(plan: PlanCommand, options: tuple[str, ...]) -> None:
    outcome = plan("--model", "paper", *options)
    assert (outcome.code, outcome.out, outcome.files) == (2, "", ())
    assert outcome.err.startswith("mltswitch: ")
    assert outcome.err.count("\n") == 1


def test_plan_and_report_are_written_together(plan: PlanCommand, tmp_path: Path) -> None:
    outcome = plan("--model", "paper", "-o", "plan.yaml", "--report", "report.html", *FEW)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.files == ("plan.yaml", "report.html")
    assert outcome.out.endswith("Written: plan.yaml\nWritten: report.html\n")
    page = (tmp_path / "report.html").read_text()
    assert load_document(tmp_path / "plan.yaml", Plan).provenance.fabric_sha256 in page


def test_a_report_that_fails_takes_the_plan_with_it(
    plan: PlanCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mltswitch.errors import MachineError
    from mltswitch.report import page

    def absent() -> str:
        raise MachineError("plotly is not installed", hint='pip install "mltswitch[report]"')

    monkeypatch.setattr(page, "plotly_script", absent)
    outcome = plan("--model", "paper", "-o", "plan.yaml", "--report", "report.html", *FEW)
    assert (outcome.code, outcome.out, outcome.files) == (3, "", ())
    assert "mltswitch[report]" in outcome.err


def test_the_seed_is_the_simulators(plan: PlanCommand, tmp_path: Path) -> None:
    pages = []
    for seed in ("1", "1", "2"):
        assert plan("--model", "paper", "--report", "report.html", "--seed", seed, *FEW).code == 0
        pages.append((tmp_path / "report.html").read_bytes())
    assert pages[0] == pages[1]
    assert pages[0] != pages[2]


def test_refined_figures_are_simulated(plan: PlanCommand) -> None:
    outcome = plan("--model", "paper", "--refine", "simulate", "--at-load", "0.5", *FEW)
    assert outcome.code == 0
    assert "losses and delays are simulated" in outcome.out
    assert "queues on the path (simulated)" in outcome.out
    assert "extra rounds (predicted)" not in outcome.out
    assert "20,000 packets" in outcome.out


def test_json_is_one_document(plan: PlanCommand) -> None:
    outcome = plan("--model", "paper", "--json", "--report", "report.html", *FEW)
    assert Plan.model_validate(json.loads(outcome.out)).provenance.queueing_model == "paper"
    assert outcome.files == ("report.html",)


def test_delays_are_printed_where_the_model_predicts_them(
    lab_plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(**figures: Any) -> str:
        prediction = Prediction(loss_unimportant=0.01, loss_important=0.0, **figures)
        profiles = tuple(
            entry.model_copy(
                update={
                    "queues": tuple(q.model_copy(update={"prediction": prediction}) for q in entry.queues),
                }
            )
            for entry in lab_plan.port_profiles
        )
        shown = lab_plan.model_copy(update={"port_profiles": profiles})
        Answer(shown, plan_text(shown)).print(as_json=False)
        return capsys.readouterr().out

    without = printed()
    assert "delay [µs]" not in without
    with_delays = printed(mean_delay_seconds=0.00123, p99_delay_seconds=0.0456, loss_important_error=0.002)
    assert "mean delay [µs]" in with_delays
    assert "1.23e+03" in with_delays
    assert "4.56e+04" in with_delays
    assert "0 (≤ 0.2 %)" in with_delays
