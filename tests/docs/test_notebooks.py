"""Notebooks in docs/: each runs from top to bottom as it stands, and none stores what it printed."""

from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
START_SECONDS = 600
"""For the kernel, on a busy machine, too."""


def read(notebook: Path) -> Any:
    found = nbformat.read(notebook, as_version=4)
    nbformat.validate(found)
    return found


def test_there_is_one() -> None:
    assert [each.stem for each in NOTEBOOKS] == ["plan-and-render"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda each: each.stem)
def test_it_stores_no_outputs(notebook: Path) -> None:
    cells = [cell for cell in read(notebook).cells if cell.cell_type == "code"]
    assert cells
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)


def test_plan_and_render_prints_thresholds_losses_and_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    [notebook] = NOTEBOOKS
    client = nbclient.NotebookClient(
        read(notebook),
        timeout=None,
        startup_timeout=START_SECONDS,
        resources={"metadata": {"path": str(notebook.parent)}},
    )
    cells = [cell for cell in client.execute().cells if cell.cell_type == "code"]
    printed = ["".join(part.get("text", "") for part in cell.outputs) for cell in cells]
    assert cells[0].outputs[0].data["text/plain"] == "('resnet50', 'completion')"
    assert "onyx sn2100\n  gradient-0: S = " in printed[1]
    assert printed[2].startswith("gradient-0: ")
    assert {line.partition(":")[0] for line in printed[3].splitlines()} == {
        "leaf1",
        "leaf2",
        "onyx1",
        "sonic1",
        "spine1",
        "spine2",
    }
    assert "traffic-class" in printed[4]
