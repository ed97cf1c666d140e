"""A whole measurement: what it computes, that it goes on where it ended, and what it concludes."""

import math
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.profile import Layer, ModelProfile, Tensor, default_sensitivity, resolve_profile
from mltswitch.sweep import Cell, Rows
from mltswitch.training.tolerance import (
    Importance,
    Loss,
    Measurement,
    Settings,
    describe,
    load_task,
    measure,
    train,
)
from mltswitch.training.tolerance.results import rising
from tests.cli.test_cli import Run, refused, run
from tests.conftest import LAB_FABRIC

__all__ = ["run"]

TASKS = "tests.training.tolerance.tasks"
DOCUMENT = Path(__file__).parents[3] / "docs" / "measure-tolerance.md"
SETTINGS = Settings("imagined", 2, (0.1, 0.3), 5, 15)
LAYERS = (("0.weight", "0.bias"), ("2.weight", "2.bias"))


def imagined(cell: Cell, rounds: int = 200) -> Rows:
    """A training in which a lost important packet costs 2, another one 0.2; and more in back layers."""
    first, last, importance, ratio, seed, most = cell
    share = {"any": 1.1, "important": 1.0, "unimportant": 0.1}[str(importance)]
    layers = {(0, 0): 0.5, (1, 1): 1.5, (0, 1): 2.0}[int(first or 0), int(last or 0)]
    noise = np.random.default_rng([int(seed or 0), int(1000 * float(ratio or 0)), len(str(importance))])
    taken = rounds * (1 + layers * share * float(ratio or 0)) * math.exp(noise.normal(0, 0.02))
    row = {"rounds": round(min(taken, float(most or 0))), "is_reached": taken < float(most or 0)}
    return [{**row, "is_finite": True, "metric": 0.9, "packets": 100, "eligible": 50, "lost": 5}]


@pytest.fixture
def imagined_profile(monkeypatch: pytest.MonkeyPatch) -> ModelProfile:
    task = SimpleNamespace(evaluate_every=1, most_rounds=1000, target=0.9, ranks=4)
    monkeypatch.setattr(Settings, "load", lambda _: task)
    layers = tuple(
        Layer(name=f"{number}", tensors=(Tensor(name=f"{number}.weight", shape=(1000,)),))
        for number in range(2)
    )
    return ModelProfile(
        schema="mltswitch/profile/v1",
        name="imagined",
        layers=layers,
        sensitivity=default_sensitivity([4000, 4000]),
    )


class Computer:
    """Computes imagined trainings, and is interrupted after some."""

    def __init__(self, finished: dict[Cell, Rows], most: float = math.inf) -> None:
        self.finished, self.most, self.count = finished, most, 0

    def __call__(self, cells: Sequence[Cell]) -> None:
        for cell in reversed(cells):
            if cell in self.finished:
                continue
            if self.count >= self.most:
                raise KeyboardInterrupt
            self.finished[cell] = imagined(cell)
            self.count += 1


def measured(profile: ModelProfile, settings: Settings = SETTINGS) -> tuple[Measurement, int]:
    finished: dict[Cell, Rows] = {}
    found = measure(settings, profile, finished, Computer(finished))
    return found, len(finished)


@pytest.mark.parametrize("most", [0, 3, 40, 117])
def test_an_interrupted_measurement_goes_on_to_the_same_end(
    imagined_profile: ModelProfile, most: int
) -> None:
    whole, trainings = measured(imagined_profile)
    finished: dict[Cell, Rows] = {}
    with pytest.raises(KeyboardInterrupt):
        measure(SETTINGS, imagined_profile, finished, Computer(finished, most))
    assert len(finished) == most
    rest = Computer(finished)
    assert measure(SETTINGS, imagined_profile, finished, rest) == whole
    assert most + rest.count == trainings == whole.trainings


def test_what_was_measured_before_with_other_settings_changes_nothing(imagined_profile: ModelProfile) -> None:
    finished: dict[Cell, Rows] = {}
    more = replace(SETTINGS, ratios=(0.05, 0.1, 0.3), least_seeds=12, groups=1)
    measure(more, imagined_profile, finished, Computer(finished))
    assert measure(SETTINGS, imagined_profile, finished, Computer(finished)) == measured(imagined_profile)[0]


def test_signs_and_bounds_are_found(imagined_profile: ModelProfile) -> None:
    found, _ = measured(imagined_profile)
    assert [each.answer for each in found.comparisons] == ["front costs less"] * 2 + [
        "unimportant costs less"
    ] * 2
    for point in found.points:
        assert point.low is not None
        assert point.high is not None
        assert point.low <= point.extra_rounds <= point.high
    every, small = found.bounds
    assert (every.tolerated, every.refused) == (0, 0.1 * 0.5)  # half of the packets are of a kind here
    assert small.tolerated == pytest.approx(0.1 * 0.5)
    whole = [p for p in found.points if p.predicted is not None]
    assert {(p.first_layer, p.last_layer) for p in whole} == {(0, 1)}
    for point in whole:
        assert point.predicted == pytest.approx(point.extra_rounds, abs=0.06)


def test_hopeless_ratios_are_left_out_and_given_up_trainings_counted(imagined_profile: ModelProfile) -> None:
    found, _ = measured(imagined_profile, replace(SETTINGS, ratios=(0.1, 0.8, 0.9)))
    important = [
        p for p in found.points if p.first_layer == p.last_layer == 1 and p.importance == "important"
    ]
    assert [p.ratio for p in important] == [0.1, 0.8]
    found, _ = measured(imagined_profile, replace(SETTINGS, ratios=(1.0,), groups=1))
    assert found.profile.sensitivity.curves[0].important[-1][0] == 1


def test_the_profile_has_rising_curves_and_does_not_promise_that_the_rest_is_free(
    imagined_profile: ModelProfile,
) -> None:
    sensitivity = measured(imagined_profile)[0].profile.sensitivity
    assert (sensitivity.is_default, sensitivity.unimportant_share) == (False, 0.5)
    assert "packets of 1432 B" in sensitivity.provenance
    for curve in sensitivity.curves:
        for points in (curve.unimportant, curve.important):
            assert points[-1][0] == 1
            assert points[-1][1] > points[-2][1]


@given(values=st.lists(st.tuples(st.floats(-5, 5), st.integers(1, 20)), min_size=1, max_size=12))
def test_rising_values_keep_the_weighted_mean(values: list[tuple[float, int]]) -> None:
    numbers, weights = zip(*values, strict=True)
    found = rising(numbers, weights)
    assert found == sorted(found)
    means = [sum(w * v for w, v in zip(weights, each, strict=True)) for each in (numbers, found)]
    assert means[0] == pytest.approx(means[1], abs=1e-9)
    assert rising(found, weights) == pytest.approx(found)


@pytest.mark.torch
class TestWithTorch:
    """Real trainings, small ones."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        pytest.importorskip("torch", reason="torch is not installed: pip install 'mltswitch[torch]'")

    def trained(self, losses: list[Loss], task: Any = None, seed: int = 0, most: int = 300) -> Any:
        return train("tiny", task or load_task(f"{TASKS}:tiny"), LAYERS, losses, seed, most)

    def test_the_same_seed_gives_the_same_rounds(self) -> None:
        losses = [Loss(0, 1, Importance.ANY, 0.5)]
        assert self.trained(losses) == self.trained(losses)
        assert self.trained([]).is_reached

    def test_ranks_without_loss_are_one_rank_with_all_batches(self) -> None:
        import torch

        task = load_task(f"{TASKS}:tiny")
        seen: list[list[Any]] = []

        def metric(model: Any) -> float:
            seen.append([each.detach().clone() for each in model.parameters()])
            return 0.0

        self.trained([], replace(task, metric=metric), most=5)
        torch.manual_seed(0)
        model: Any = task.model()
        optimizer: Any = task.optimizer(model.parameters())
        for batch in zip(task.batches(0, 0, 2), task.batches(0, 1, 2), range(5), strict=False):
            optimizer.zero_grad()
            loss: Any = (task.loss(model, batch[0]) + task.loss(model, batch[1])) / 2
            loss.backward()
            optimizer.step()
        for expected, found in zip(model.parameters(), seen[-1], strict=True):
            assert torch.allclose(expected, found, atol=1e-6)

    def test_a_training_that_loses_everything_stands_still(self) -> None:
        outcome = self.trained([Loss(0, 1, Importance.ANY, 1)], most=30)
        assert (outcome.is_reached, outcome.rounds) == (False, 30)
        assert outcome.lost == outcome.eligible == outcome.packets == 30 * 2 * (5 + 1)

    def test_a_gradient_that_is_not_finite_ends_it(self) -> None:
        outcome = self.trained([], load_task(f"{TASKS}:not_finite"))
        assert (outcome.is_finite, outcome.is_reached, outcome.rounds) == (False, False, 1)

    @pytest.mark.parametrize(("name", "layers"), [("digits", 4), ("digits-finetune", 4), ("textures", 4)])
    def test_bundled_tasks_train(self, name: str, layers: int) -> None:
        pytest.importorskip("sklearn", reason="pip install 'mltswitch[train]'")
        profile, trainings = describe(Settings(name, 2, (0.1,)))
        assert len(profile.layers) == layers
        (row,) = trainings((0, layers - 1, "unimportant", 0.5, 0, 8))
        assert 0.4 < row["eligible"] / row["packets"] < 0.6
        assert 0 <= row["metric"] < load_task(name).target

    @pytest.mark.parametrize(
        ("task", "line"),
        [
            ("digit", "unknown task 'digit' (expected one of digits, "),
            (f"{TASKS}:missing", f"{TASKS}:missing: AttributeError"),
            (f"{TASKS}:number", "returned a int (expected a mltswitch.training.tolerance.TrainingTask)"),
            (f"{TASKS}:no_module", "model() returned a int (expected a torch.nn.Module)"),
            (f"{TASKS}:no_ranks", "ranks is 0 (expected a whole number from 1)"),
            (f"{TASKS}:bad_loader", "bad_loader: batches: RuntimeError: the disk is on fire"),
            (f"{TASKS}:empty_loader", "empty_loader: batches: gave no batch in pass 1 over the data"),
            (f"{TASKS}:bad_metric", "bad_metric: metric: RuntimeError: the disk is on fire"),
            (f"{TASKS}:out_of_reach", "of 1.1 in 20 rounds (seed 0). Choose a lower --target"),
            (
                f"{TASKS}:not_finite",
                "came to no number of 0.9 in 1 rounds (seed 0; a gradient is not finite)",
            ),
        ],
    )
    def test_one_line_for_each_failure(self, run: Run, tmp_path: Path, task: str, line: str) -> None:
        outcome = run("profile", "measure", task, "-o", "m.yaml", "--processes", 1)
        assert line in outcome.err
        assert outcome.code == 2
        assert outcome.err.count("\n") == 1
        assert not (tmp_path / "m.yaml").exists()

    @pytest.mark.parametrize(
        ("options", "line"),
        [
            (("--ratio", "0"), "0 is not a number from 0.0001 to 1"),
            (("--ratio", "0.5:"), "no number and no range"),
            (("--seeds", "8:5"), "'8:5' is not such as 5:20"),
            (("--groups", "3"), "3 groups of 2 layers"),
            (("--tolerance", "nan"), "nan"),
            (("-o", "no/m.yaml"), "no/m.yaml: cannot be written: no such folder"),
        ],
    )
    def test_bad_options(self, run: Run, tmp_path: Path, options: tuple[str, ...], line: str) -> None:
        assert line in refused(run("profile", "measure", f"{TASKS}:tiny", "-o", "m.yaml", *options), tmp_path)

    def test_gradients_that_are_not_finite_are_counted_and_said_once(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def compute(_self: object, cell: Cell) -> Rows:
            return [{**imagined(cell)[0], "is_finite": not cell[3], "is_reached": not cell[3]}]

        monkeypatch.setattr("mltswitch.training.tolerance.trial.Trainings.__call__", compute)
        arguments = ("--ratio", "0.5", "--seeds", "4:4", "-o", "m.yaml", "--processes", 1)
        outcome = run("profile", "measure", f"{TASKS}:tiny", *arguments)
        assert outcome.code == 0
        assert outcome.err.count("not finite") == outcome.err.count("\n") == 1
        assert "36 of 40 trainings" in outcome.err

    def test_the_page_measures_a_users_task_and_a_plan_takes_it(self, run: Run, tmp_path: Path) -> None:
        page = DOCUMENT.read_text(encoding="utf-8")
        (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
        (command,) = re.findall(r"^```sh\nmltswitch (.*?)^```$", page, re.DOTALL | re.MULTILINE)
        (tmp_path / "mytask.py").write_text(program)
        arguments = (*shlex.split(command), "--processes", 1)
        outcome = run(*arguments, "--json")
        assert outcome.code == 0, outcome.err
        found = outcome.json()
        assert (found["kind"], len(found["comparisons"]), len(found["bounds"])) == ("measured", 2, 2)
        assert {point["verdict"] for point in found["points"]} <= {"tolerated", "refused", "unclear"}
        profile = resolve_profile(str(tmp_path / "measured.yaml"))
        assert [layer.name for layer in profile.layers] == ["0", "2"]
        text = (tmp_path / "measured.yaml").read_bytes()
        again = run(*arguments)
        assert f"{found['trainings']} trainings were finished before" in again.err
        assert "Bounded-loss ratio p, any packets" in again.out
        assert (tmp_path / "measured.yaml").read_bytes() == text
        plan = run(
            "plan", "--profile", "measured.yaml", "--fabric", LAB_FABRIC, "--model", "paper", "--force"
        )
        assert plan.code in {0, 5}, plan.err


def test_without_torch_it_says_what_to_install(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    line = refused(run("profile", "measure", "digits", "-o", "m.yaml"), tmp_path, code=3)
    assert "`pip install 'mltswitch[torch]'`" in line
