"""A model that workers share: what a pull has, whom errors name, and what is refused."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.stale_runs import play
from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.training.errors import JobMismatchError, NodeLateError, NodeLostError
from mltswitch.training.stale import SharedModel

ELEMENTS, CLOCKS, BASE = 50_000, 12, 32


def run(
    place: Path, world: int, work: Callable[[SharedModel, int], object], values: Any = None, **options: Any
) -> dict[int, Any]:
    """Workers in threads; by rank, what `work` returns, or the error that it ends by."""
    found: dict[int, Any] = {}

    def worker(rank: int) -> None:
        mine = np.zeros(ELEMENTS) if values is None else values(rank)
        try:
            with SharedModel(mine, rank, world, f"file://{place}/meeting", **options) as model:
                found[rank] = work(model, rank)
        except MltswitchError as error:
            found[rank] = error

    threads = [threading.Thread(target=worker, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def digits(values: Any, world: int) -> list[list[int]]:
    """Of each worker, how many of its updates are in, wherever that differs."""
    found = [int(value) for value in np.unique(values)]
    return [[value // BASE**rank % BASE for value in found] for rank in range(world)]


@pytest.mark.parametrize("staleness", [0, 3])
@pytest.mark.parametrize(
    "options",
    [
        {"topology_settings": {"in_degree": 2}},
        {"topology_settings": {"in_degree": 1, "placement": "fixed"}, "transport": "tcp"},
        {"topology": "star"},
    ],
)
def test_a_pull_has_all_own_updates_and_others_but_the_last(
    tmp_path: Path, options: dict[str, Any], staleness: int
) -> None:
    world = 4

    def work(model: SharedModel, rank: int) -> Any:
        random = np.random.default_rng(rank)
        for clock in range(CLOCKS):
            for other, counts in enumerate(digits(model.pull(staleness), world)):
                assert min(counts) >= (clock if other == rank else clock - staleness)
                assert max(counts) <= CLOCKS
            time.sleep(random.exponential(0.005))
            model.push(np.full(ELEMENTS, float(BASE**rank)))
            model.clock()
        return model.flush().copy()

    found = run(tmp_path, world, work, **options)
    for values in found.values():
        assert digits(values, world) == [[CLOCKS]] * world


def test_what_is_pushed_last_reaches_the_others(tmp_path: Path) -> None:
    """Without a flush, who leaves at once answers until all have left."""

    def work(model: SharedModel, rank: int) -> float:
        model.push(np.ones(ELEMENTS))
        model.clock()
        time.sleep(0.2 * rank)
        return float(model.pull()[0]) if rank == 2 else 0.0

    assert run(tmp_path, 3, work)[2] == 3


def test_a_worker_that_fails_is_named(tmp_path: Path) -> None:
    def work(model: SharedModel, rank: int) -> None:
        for clock in range(100):
            if (rank, clock) == (1, 3):
                raise UserInputError("no such batch")
            model.push(np.ones(ELEMENTS))
            model.clock()
            model.pull()

    found = run(tmp_path, 3, work)
    assert isinstance(found[1], UserInputError)
    for rank in (0, 2):
        assert isinstance(found[rank], NodeLostError)
        assert found[rank].where == "rank 1"
        assert "no such batch" in found[rank].what


def test_a_worker_that_does_not_come_on_is_named(tmp_path: Path) -> None:
    over = threading.Event()

    def work(model: SharedModel, rank: int) -> None:
        model.push(np.ones(ELEMENTS))
        model.clock()
        if rank == 1:
            over.wait(20)
        else:
            model.pull()
        try:
            for _ in range(2):
                model.clock()
                model.pull()
        finally:
            over.set()

    found = run(tmp_path, 3, work, deadline_seconds=1.0)
    assert {type(found[rank]) for rank in (0, 2)} == {NodeLateError}
    assert {found[rank].where for rank in (0, 2)} == {"rank 1"}
    assert "has not come to clock 2 within 1 s" in found[0].what


def test_other_parameters_and_other_trees_are_refused(tmp_path: Path) -> None:
    found = run(tmp_path, 2, lambda model, _: model.pull(), values=lambda rank: np.full(9, float(rank)))
    assert {type(error) for error in found.values()} == {JobMismatchError}
    assert "differ in: values" in str(found[0])


def test_who_pushes_and_does_not_pull_keeps_few_updates(tmp_path: Path) -> None:
    def work(model: SharedModel, rank: int) -> int:
        for _ in range(60):
            model.push(np.ones(ELEMENTS))
            model.clock()
            if rank:
                model.pull()
            else:
                time.sleep(0.005)
        model.flush()
        caches = [cache for cache in model.node.caches._caches if cache is not None]
        return sum(len(cache._sent) for cache in caches)

    found = run(tmp_path, 3, work, topology="star")
    assert max(found.values()) <= 20


def test_who_leaves_early_waits_for_others_as_long_as_they_get_on(tmp_path: Path) -> None:
    def work(model: SharedModel, rank: int) -> float:
        for _ in range(2 if rank == 0 else 8):
            model.push(np.ones(ELEMENTS))
            model.clock()
            if rank:
                time.sleep(0.3)
                model.pull()
        return float(model.flush()[0]) if rank else 0.0

    found = run(tmp_path, 3, work, deadline_seconds=1.0)
    assert found == {0: 0.0, 1: 18.0, 2: 18.0}


@pytest.mark.parametrize("update", [np.ones(3), 1.0, np.ones(ELEMENTS, complex)])
def test_what_is_no_update(tmp_path: Path, update: Any) -> None:
    found = run(tmp_path, 1, lambda model, _: model.push(update))
    assert isinstance(found[0], UserInputError)
    assert found[0].where == "update"


@pytest.mark.parametrize("staleness", [-1, 0.5, True])
def test_stalenesses_that_are_none(tmp_path: Path, staleness: Any) -> None:
    found = run(tmp_path, 1, lambda model, _: model.pull(staleness))
    assert isinstance(found[0], UserInputError)
    assert found[0].where == "staleness"


@pytest.mark.parametrize(
    ("values", "options", "problem"),
    [
        (np.zeros((2, 2)), {}, "2 dimensions of float64"),
        (np.zeros(4, np.int32), {}, "1 dimensions of int32"),
        (np.zeros(4), {"topology": "ring"}, "ring has no trees"),
        (np.zeros(4), {"topology_settings": {"in_degree": 0}}, "in_degree"),
    ],
)
def test_models_that_are_refused(tmp_path: Path, values: Any, options: dict[str, Any], problem: str) -> None:
    found = run(tmp_path, 1, lambda model, _: model.pull(), values=lambda _: values, **options)
    assert isinstance(found[0], UserInputError)
    assert problem in str(found[0])


@pytest.mark.parametrize("first", range(1, 301, 50))
def test_no_bound_is_broken_in_virtual_time(first: int) -> None:
    assert [seed for seed in range(first, first + 50) if play(seed)] == []
