"""`mltswitch loss`: a plan under any model, bare problems, and nonsense in."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from mltswitch.documents import load_document
from mltswitch.plan import Plan
from mltswitch.queueing import Batch, Port, QueueThresholds, QueueTraffic, predict
from tests.cli.test_cli import Run, refused, run

__all__ = ["run"]

GOLDEN_PLAN = Path(__file__).parents[1] / "golden" / "files" / "plan.yaml"
SPEC: dict[str, Any] = {
    "load": 0.9,
    "burst_packets": 8,
    "queues": [
        {"share": 0.1, "unimportant": 0.5, "ecn_threshold_packets": 8, "limit_packets": 16},
        {"share": 0.9, "unimportant": 0.5, "ecn_threshold_packets": 32, "limit_packets": 64},
    ],
}
FIELDS = {
    "loss_unimportant",
    "loss_important",
    "mean_delay_packet_times",
    "p50_delay_packet_times",
    "p99_delay_packet_times",
    "p999_delay_packet_times",
    "mean_queue_packets",
    "mark_share",
    "queue_probabilities",
    "loss_unimportant_error",
    "loss_important_error",
}


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    return Path(shutil.copy(GOLDEN_PLAN, tmp_path / "plan.yaml"))


def _spec(folder: Path, **changes: Any) -> Path:
    file = folder / "problem.json"
    file.write_text(json.dumps(SPEC | changes))
    return file


def _queue(position: int, **changes: Any) -> list[dict[str, Any]]:
    queues = [dict(queue) for queue in SPEC["queues"]]
    queues[position] |= changes
    return queues


@pytest.mark.parametrize("model", ["completion", "paper"])
def test_a_bare_problem_is_what_the_model_says(run: Run, tmp_path: Path, model: str) -> None:
    said = run("loss", "--spec", _spec(tmp_path), "--model", model, "--json").json()
    assert (said["model"], said["kind"]) == (model, "predicted")
    expected = predict(
        Port(),
        [QueueTraffic(0.09, 0.5, Batch(8)), QueueTraffic(0.81, 0.5, Batch(8))],
        [QueueThresholds(8, 16), QueueThresholds(32, 64)],
        model,
    )
    assert len(said["queues"]) == 2
    for queue, figure in zip(said["queues"], expected, strict=True):
        assert queue.keys() == FIELDS
        assert queue["loss_unimportant"] == pytest.approx(figure.loss_unimportant, rel=1e-9)
        assert queue["loss_important"] == pytest.approx(figure.loss_important, rel=1e-9)


def test_completion_is_the_default(run: Run, tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    plain = run("loss", "--spec", spec, "--json")
    assert plain.out == run("loss", "--spec", spec, "--json", "--model", "completion").out
    assert plain.json()["model"] == "completion"


def test_a_simulated_problem_says_so_and_has_errors(run: Run, tmp_path: Path) -> None:
    arguments = ("loss", "--spec", _spec(tmp_path), "--model", "simulate", "--packets", 20_000)
    said = run(*arguments, "--seed", 3, "--json").json()
    assert said["kind"] == "simulated"
    assert said["queues"][1]["loss_unimportant_error"] > 0
    assert run(*arguments, "--seed", 3, "--json").json() == said
    assert run(*arguments, "--seed", 4, "--json").json() != said
    table = run(*arguments).out
    assert "All figures simulated, loss model 'simulate'; delays in packet times" in table
    assert "±" in table


def test_a_plan_under_several_loads_and_bursts(run: Run, plan_file: Path) -> None:
    arguments = ("loss", plan_file, "--load", "0.5,1.1", "--burst", "1,8", "--port-role", "leaf-up")
    said = run(*arguments, "--model", "paper", "--json").json()
    assert (said["model"], said["kind"]) == ("paper", "predicted")
    plan = load_document(GOLDEN_PLAN, Plan)
    count = len(plan.gradient_classes)
    # One table for each kind of leaf-up port, of which the plan has several.
    asked = list(dict.fromkeys((entry["load"], *entry["burst_packets"]) for entry in said["tables"]))
    assert asked == [(load, *[burst] * count) for load in (0.5, 1.1) for burst in (1, 8)]
    for entry in said["tables"]:
        assert {port["role"] for port in entry["ports"]} == {"leaf-up"}
        assert [row["traffic_class"] for row in entry["classes"]] == [item.name for item in plan.classes]
        assert all((row["mean_delay_seconds"] or 0) >= 0 for row in entry["classes"])
    half = len(said["tables"]) // 2
    low, high = (said["tables"][number]["classes"][-2]["loss_important"] for number in (0, half))
    assert low < high


def test_the_table_of_a_plan_says_model_units_and_kind(run: Run, plan_file: Path) -> None:
    out = run("loss", plan_file, "--model", "paper").out
    assert "all losses, delays and queues are predicted, loss model 'paper'" in out
    for column in ("S [B]", "mean delay", "p99.9", "mean queue [B]", "CE marks"):
        assert column in out
    assert "gradient-0" in out


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"load": -0.5}, "load"),
        ({"load": float("nan")}, "load"),
        ({"queues": []}, "queues"),
        ({"queues": _queue(1, share=1.5)}, "queues[1].share"),
        ({"queues": _queue(1, unimportant=-0.1)}, "queues[1].unimportant"),
        ({"queues": _queue(0, limit_packets=4)}, "queues[0].limit_packets"),
        ({"queues": _queue(0, limit_packets=float("nan"))}, "queues[0].limit_packets"),
        ({"queues": _queue(0, ecn_threshold_packets=-1)}, "queues[0].ecn_threshold_packets"),
        ({"burst_packets": 0}, "burst_packets"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_nonsense_in_a_problem_names_its_field(
    run: Run, tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    spec = _spec(tmp_path, **changes)
    line = refused(run("loss", "--spec", spec), tmp_path, leaves=("problem.json",))
    assert re.search(rf"problem\.json(:1)?: {re.escape(field)}:", line)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--load", "-1"), "'--load': '-1': -1 is not a number from 0 to 10"),
        (("--load", "nan"), "'--load': 'nan' is no number"),
        (("--load", "0.5:0.9"), "'--load': '0.5:0.9' is no number and no range"),
        (("--burst", "0"), "'--burst': '0': 0 is not a whole number from 1 to 1024"),
        (("--burst", "1.5"), "'--burst'"),
        (("--model", "tarot"), "'--model'"),
        (("--port-role", "roof"), "'--port-role'"),
        (("--packets", "100000"), "--packets counts for --model simulate alone"),
        (("--seed", "1"), "--seed counts for --model simulate alone"),
        (("--model", "simulate", "--packets", "-1"), "'--packets'"),
        (("--spec", "problem.json"), "Give a plan, or --spec, not both"),
    ],
)
def test_nonsense_in_an_option_names_it(
    run: Run, tmp_path: Path, plan_file: Path, arguments: tuple[str, ...], text: str
) -> None:
    assert text in refused(run("loss", plan_file, *arguments), tmp_path, leaves=("plan.yaml",))


def test_options_of_a_plan_are_not_for_a_problem(run: Run, tmp_path: Path) -> None:
    spec = _spec(tmp_path)
    for option, value in (("--load", "0.5"), ("--burst", "8"), ("--port-role", "leaf-up")):
        line = refused(run("loss", "--spec", spec, option, value), tmp_path, leaves=("problem.json",))
        assert f"{option} varies a plan, and no problem" in line
    assert "Give a plan, or --spec" in refused(run("loss"), tmp_path, leaves=("problem.json",))


def test_a_file_that_does_not_exist(run: Run, tmp_path: Path) -> None:
    assert "nothing.json" in refused(run("loss", "--spec", "nothing.json"), tmp_path)
    assert "nothing.yaml" in refused(run("loss", "nothing.yaml"), tmp_path)
