"""The benchmarks answer with one flat object of figures."""

import json
from collections.abc import Iterator
from math import inf

import pytest
from click.testing import CliRunner

from benchmarks import queueing_accuracy, queueing_speed
from benchmarks.cells import tuning_cells
from benchmarks.heap_simulator import simulate_heap
from benchmarks.queueing_accuracy import Comparison, Judged, describe, figures, judge, meets_bars
from benchmarks.queueing_speed import agreement, eight_queues
from benchmarks.simulator_exactness import ExactComparison
from mltswitch.queueing import QueuePrediction

pytest.importorskip("numba")

CELL = tuning_cells()[0]


@pytest.fixture
def small_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick run takes half a minute; its shape does not depend on how much is simulated."""
    quick = queueing_accuracy.Effort(20_000, 20_000, 0, 150)
    monkeypatch.setattr(queueing_accuracy, "QUICK", quick)
    monkeypatch.setattr(queueing_speed, "QUICK", queueing_speed.Effort(1, 1, 200_000, 5_000))
    small = dict.fromkeys(queueing_speed.PREDICTIONS, (16, 2))
    monkeypatch.setattr(queueing_speed, "PREDICTIONS", small)
    monkeypatch.setattr(queueing_speed, "LAYERS", 20)
    monkeypatch.setattr(queueing_speed, "PLANS", {"plan_seconds": "paper", "plan_paper_seconds": "paper"})

    def few(_packets: int) -> Iterator[ExactComparison]:
        yield ExactComparison("inside", 1.0, 1.1, 0.2)
        yield ExactComparison("outside", 1.0, 1.3, 0.2)

    monkeypatch.setattr(queueing_accuracy, "compare_with_exact", few)


@pytest.mark.usefixtures("small_effort")
def test_accuracy_answers_one_flat_object() -> None:
    result = CliRunner().invoke(
        queueing_accuracy.main, ["--quick", "--json", "--processes", "1"], catch_exceptions=False
    )
    found = json.loads(result.stdout)
    assert all(isinstance(figure, int | float) for figure in found.values())
    for prefix in ("", "held_out_"):
        for name in (
            "cells",
            "relative_error_p95",
            "relative_error_p99",
            "relative_error_max",
            "small_loss_beyond_factor_2",
            "small_loss_beyond_factor_2_share",
            "undecided",
            "paper_relative_error_p95",
            "ratio_to_paper",
        ):
            assert prefix + name in found
    assert (found["cells"], found["held_out_cells"]) == (2, 1)
    assert (found["simulator_outside_interval"], found["simulator_comparisons"]) == (1, 2)


@pytest.mark.usefixtures("small_effort")
def test_speed_answers_one_flat_object() -> None:
    result = CliRunner().invoke(queueing_speed.main, ["--quick", "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert set(found) == {
        "completion_ms",
        "completion_ms_single_packets",
        "completion_1024_ms",
        "completion_1024_ms_single_packets",
        "plan_seconds",
        "plan_paper_seconds",
        "simulator_compile_seconds",
        "simulator_packets_per_second",
        "heap_simulator_packets_per_second",
        "ratio_to_heap_simulator",
        "simpy_packets_per_second",
        "ratio_to_simpy",
    }
    assert all(figure > 0 for figure in found.values())


def comparison(simulated: float, predicted: float, half_width: float = 0.0) -> Comparison:
    by_model = dict.fromkeys(queueing_accuracy.MODELS, predicted)
    return Comparison(0, "unimportant", simulated, half_width, by_model)


def test_a_comparison_is_judged_by_its_bar() -> None:
    assert comparison(0.1, 0.11).relative_error("completion") == pytest.approx(0.1)
    assert comparison(1e-4, 2.5e-5).factor("completion") == pytest.approx(4)
    assert comparison(1e-4, 0.0).factor("completion") == inf
    assert comparison(0.1, 0.1, 0.014).is_undecided is False
    assert comparison(0.1, 0.1, 0.016).is_undecided is True
    assert comparison(1e-4, 1e-4, 4.9e-5).is_undecided is False
    assert comparison(1e-4, 1e-4, 5.1e-5).is_undecided is True
    assert comparison(0.0, 0.0, 9e-6).is_undecided is False
    assert comparison(0.0, 0.0, 2e-5).is_undecided is True


def test_a_cell_is_as_bad_as_its_worst_comparison() -> None:
    good = Judged(CELL, (comparison(0.1, 0.1), comparison(1e-4, 1.5e-4)))
    bad = Judged(CELL, (comparison(0.1, 0.1), comparison(0.1, 0.15), comparison(1e-4, 3e-4)))
    undecided = Judged(CELL, (comparison(0.1, 0.9, 0.05), comparison(0.0, 1.0, 1e-4)))
    found = figures([good, bad, undecided])
    assert found["cells"] == 3
    assert found["cells_of_large_losses"] == 2
    assert found["relative_error_max"] == pytest.approx(0.5)
    assert found["small_loss_beyond_factor_2"] == 1
    assert found["small_loss_beyond_factor_2_share"] == 0.5
    assert (found["undecided"], found["undecided_below_1e-5"]) == (1, 1)
    assert not meets_bars(found, "")
    assert meets_bars(figures([good]), "")


def test_more_is_simulated_where_that_decides() -> None:
    assert comparison(0.1, 0.1, 0.03).packets_needed(100) == pytest.approx((400, 3600))
    assert comparison(0.0, 0.0, 2e-5).packets_needed(100) == pytest.approx((200, 200))
    assert comparison(0.0, 0.0, 9e-6).packets_needed(100) == (0, 0)
    judged = judge(CELL, 1, queueing_accuracy.Effort(10_000, 40_000, 0, 1))
    assert len(judged.comparisons) == 2 * len(CELL.traffic)
    assert json.loads(describe(judged).splitlines()[-1]) == CELL.as_spec()


def test_simulators_that_disagree_are_noticed() -> None:
    problem = eight_queues(16, 8)
    runs = [simulate_heap(*problem, 20_000, seed) for seed in range(8)]
    with pytest.raises(AssertionError, match="disagree"):
        agreement("heap", [QueuePrediction(0.5, 0.5)] * 8, runs)
