"""Cells computed by the workers of a Dask scheduler."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.sweep import Cell, executor, open_journal, run_cells
from tests.test_sweep import CELLS, evaluate, refuse


def die(cell: Cell) -> list[dict[str, Any]]:
    """What a worker meets that runs out of memory."""
    os._exit(1)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    """Address of a Dask scheduler with a worker in a process of its own."""
    distributed = pytest.importorskip("distributed", reason="pip install 'mltswitch[dask]'")
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
    ):
        yield cluster.scheduler_address


def test_dask_computes_the_same(tmp_path: Path, scheduler: str) -> None:
    with open_journal(tmp_path / "journal", "a") as journal, executor(1, scheduler) as pool:
        run_cells(evaluate, CELLS[:2], journal, pool, lambda: None)
        run_cells(evaluate, CELLS, journal, pool, lambda: None)
        assert journal.finished == {cell: evaluate(cell) for cell in CELLS}
        with pytest.raises(UserInputError, match="another model"):
            run_cells(refuse, [(1, 8, None, None)], journal, pool, lambda: None)


def test_dask_workers_that_die(tmp_path: Path, scheduler: str) -> None:
    with (
        pytest.raises(MachineError, match=r"workers died over one cell\. Run it again to go on"),
        open_journal(tmp_path / "journal", "a") as journal,
        executor(1, scheduler) as pool,
    ):
        run_cells(die, CELLS[:1], journal, pool, lambda: None)


def test_no_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="pip install 'mltswitch[dask]'")
    monkeypatch.setattr("mltswitch.sweep.DASK_PATIENCE", "300ms")
    with (
        pytest.raises(MachineError, match=r"127\.0\.0\.1:9: no Dask scheduler answers"),
        executor(1, "127.0.0.1:9"),
    ):
        pass
    with pytest.raises(MachineError, match="no Dask scheduler answers"), executor(1, "nonsense://x"):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MachineError, match=r"pip install 'mltswitch\[dask\]'"), executor(1, "127.0.0.1:9"):
        pass
