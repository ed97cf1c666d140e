"""`mltswitch sweep`: one tidy table, and a second run that goes on where the first one ended."""

import csv
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from mltswitch.documents import load_document
from mltswitch.plan import Fabric, Plan, PortRole
from mltswitch.planning.evaluate import predict_ports
from tests.cli.test_cli import Run, refused, run
from tests.cli.test_loss import GOLDEN_PLAN
from tests.conftest import LAB_FABRIC

__all__ = ["run"]

JOURNAL = "table.csv.cells.jsonl"
GRID = ("--load", "0.5,0.9", "--burst", "1,8", "--model", "paper,completion", "--processes", "1")


@pytest.fixture(autouse=True)
def _inputs(tmp_path: Path) -> None:
    shutil.copy(GOLDEN_PLAN, tmp_path / "plan.yaml")


def _table(folder: Path, name: str = "table.csv") -> list[dict[str, str]]:
    with (folder / name).open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_one_row_for_each_combination(run: Run, tmp_path: Path) -> None:
    outcome = run("sweep", "plan.yaml", *GRID, "--port-role", "leaf-up", "-o", "table.csv")
    assert outcome.code == 0
    plan = load_document(GOLDEN_PLAN, Plan)
    ports = [profile for profile in plan.port_profiles if profile.role is PortRole.LEAF_UP]
    rows = _table(tmp_path)
    assert len(rows) == 2 * 2 * 2 * len(ports) * len(plan.classes)
    keys = ("load", "burst_packets", "model", "platform", "port_role", "traffic_class")
    assert len({tuple(row[key] for key in keys) for row in rows}) == len(rows)
    made = predict_ports(plan, role=PortRole.LEAF_UP, load=0.9, burst_packets=8, model="completion")
    entry = next(each for each in made if ports[0] in each.profiles)
    (row,) = [
        row
        for row in rows
        if tuple(row[key] for key in keys)
        == ("0.9", "8", "completion", ports[0].platform, "leaf-up", "gradient-2")
    ]
    assert row["kind"] == "predicted"
    assert float(row["loss_unimportant"]) == entry.classes["gradient-2"].loss_unimportant
    assert float(row["mean_delay_seconds"]) == entry.classes["gradient-2"].mean_delay_seconds


def test_a_second_run_skips_what_is_finished_and_says_so(run: Run, tmp_path: Path) -> None:
    arguments = ("sweep", "plan.yaml", *GRID, "-o", "table.csv")
    first = run(*arguments)
    assert "finished before" not in first.err
    table, journal = (tmp_path / "table.csv").read_bytes(), (tmp_path / JOURNAL).read_text()
    lines = journal.splitlines(keepends=True)
    (tmp_path / JOURNAL).write_text("".join(lines[:4]) + lines[4][:10])
    (tmp_path / "table.csv").unlink()
    second = run(*arguments)
    assert second.err == f"3 of 8 cells were finished before ({JOURNAL}), and are skipped\n"
    assert (tmp_path / "table.csv").read_bytes() == table
    assert (tmp_path / JOURNAL).read_text() == journal
    third = run(*arguments, "--json").json()
    assert (third["cells"], third["kept_cells"]) == (8, 8)


def test_other_inputs_are_refused_or_begun_anew(run: Run, tmp_path: Path) -> None:
    run("sweep", "plan.yaml", *GRID, "-o", "table.csv")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    arguments = ("sweep", "plan.yaml", "--port-role", "leaf-up", *GRID, "-o", "table.csv")
    line = refused(run(*arguments), tmp_path, leaves=tuple(sorted(before)))
    assert f"{JOURNAL}: it holds cells of another sweep. --restart begins anew" in line
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert run(*arguments, "--restart").code == 0
    assert {row["port_role"] for row in _table(tmp_path)} == {"leaf-up"}


def test_an_interrupt_leaves_a_journal_to_go_on_from(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mltswitch.planning.evaluate import PlanCells

    whole = PlanCells.__call__
    cells: list[Any] = []

    def interrupted(self: PlanCells, cell: Any) -> Any:
        if len(cells) == 3:
            raise KeyboardInterrupt
        cells.append(cell)
        return whole(self, cell)

    arguments = ("sweep", "plan.yaml", *GRID, "-o", "table.csv")
    with monkeypatch.context() as patch:
        patch.setattr(PlanCells, "__call__", interrupted)
        outcome = run(*arguments)
    assert outcome.code == 130
    assert outcome.err.splitlines()[-1] == "mltswitch: interrupted"
    assert not (tmp_path / "table.csv").exists()
    assert run(*arguments).err.startswith("3 of 8 cells were finished before")


def test_a_plan_with_its_thresholds_in_proportion(run: Run, tmp_path: Path) -> None:
    run(
        "sweep", "plan.yaml", "--buffer", "128kB,256kB", "--port-role", "leaf-up", "-o", "table.csv",
        "--model", "paper", "--processes", 1,
    )  # fmt: skip
    rows = [row for row in _table(tmp_path) if row["traffic_class"] == "gradient-2"]
    half, whole = ([row for row in rows if row["buffer_bytes"] == size] for size in ("128000", "256000"))
    assert half
    for small, large in zip(half, whole, strict=True):
        assert int(small["limit_bytes"]) == int(large["limit_bytes"]) // 2


def test_planned_anew_for_each_buffer(run: Run, tmp_path: Path) -> None:
    data = yaml.safe_load(LAB_FABRIC.read_text())
    data["classes"]["gradients"]["queues"] = 1
    (tmp_path / "fabric.yaml").write_text(yaml.safe_dump(data))
    outcome = run(
        "sweep", "--profile", "vgg16", "--fabric", "fabric.yaml", "--buffer", "256kB,300kB", "--load", "0.9",
        "--model", "paper", "-o", "table.csv", "--processes", 1,
    )  # fmt: skip
    assert outcome.code == 0
    limits: dict[tuple[str, str], set[int]] = {}
    for row in _table(tmp_path):
        if row["platform"] == "linux":  # the others have no limit in bytes
            key = (row["traffic_class"], row["buffer_bytes"])
            limits.setdefault(key, set()).add(int(row["limit_bytes"]))
    assert limits["control", "256000"] == limits["control", "300000"] == {48448}
    assert max(limits["gradient-0", "256000"]) <= 256_000 - 16 * 1514 - 2 * 48_448


def test_buffers_that_are_finished_are_not_planned_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = yaml.safe_load(LAB_FABRIC.read_text())
    data["classes"]["gradients"]["queues"] = 1
    (tmp_path / "fabric.yaml").write_text(yaml.safe_dump(data))
    planned: list[int | None] = []

    def same_plan(profile: object, fabric: Fabric, *others: object) -> Plan:
        planned.append(fabric.ports.buffer_bytes)
        return load_document(GOLDEN_PLAN, Plan)

    monkeypatch.setattr("mltswitch.app.sweeping.build_plan", same_plan)

    def sweep(buffers: str) -> list[int | None]:
        planned.clear()
        outcome = run(
            "sweep", "--profile", "vgg16", "--fabric", "fabric.yaml", "--buffer", buffers, "--load", "0.9",
            "--model", "paper", "-o", "table.csv", "--processes", 1,
        )  # fmt: skip
        assert outcome.code == 0
        return list(planned)

    assert sweep("256kB,300kB") == [256_000, 300_000]
    assert sweep("256kB,300kB") == []
    assert sweep("256kB,280kB,300kB") == [280_000]


@pytest.mark.parametrize("output", ["no/table.csv", "folder.csv/table.csv", "pipe.csv"])
def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    def too_soon(*_: object) -> None:
        raise AssertionError("it began to work")

    for name in ("load_document", "resolve_profile", "build_plan"):
        monkeypatch.setattr(f"mltswitch.app.sweeping.{name}", too_soon)
    (tmp_path / "folder.csv").write_text("a file")
    os.mkfifo(tmp_path / "pipe.csv")
    leaves = ("folder.csv", "pipe.csv", "plan.yaml")
    for source in (("plan.yaml",), ("--profile", "vgg16", "--fabric", LAB_FABRIC)):
        line = refused(run("sweep", *source, "--load", "0.9", "-o", output), tmp_path, leaves=leaves)
        assert f"{output}: cannot be written" in line or f"{output}: is no regular file" in line


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("plan.yaml", "--load", "-1"), "'--load': '-1': -1 is not a number from 0 to 10"),
        (("plan.yaml", "--load", "1.2:0.5:0.1"), "does not rise"),
        (("plan.yaml", "--burst", "nan"), "'--burst'"),
        (("plan.yaml", "--buffer", "64kb"), "'--buffer': '64kb': b means bits"),
        (("plan.yaml", "--buffer", "0"), "'--buffer'"),
        (("plan.yaml", "--buffer", "1"), "plan.yaml: buffer: 1 B leave leaf-down ports thresholds below"),
        (("plan.yaml", "--model", "paper,tarot"), "'--model': 'tarot' is not one of"),
        (("plan.yaml", "--processes", "0"), "'--processes'"),
        (("plan.yaml", "--seed", "5"), "--seed counts for --model simulate alone"),
        (("plan.yaml", "--load", "0:10:0.01"), "'--load': '0:10:0.01' has more than 1000 values"),
        (("plan.yaml", "--load", "0:9:0.01", "--burst", "1:900:1"), "the grid has 810900 cells"),
        (("plan.yaml", "-o", "table.xls"), "table.xls: is no table that is known"),
        (("--profile", "vgg16"), "--profile and --fabric go together"),
        (("plan.yaml", "--profile", "vgg16", "--fabric", "f"), "Give a plan, or --profile with --fabric"),
        ((), "Give a plan, or --profile with --fabric"),
    ],
)
def test_nonsense_is_refused_before_anything_is_written(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    output = () if "-o" in arguments else ("-o", "table.csv")
    line = refused(run("sweep", *arguments, *output), tmp_path, leaves=("plan.yaml",))
    assert text in line


def test_a_folder_that_does_not_exist(run: Run, tmp_path: Path) -> None:
    outcome = run("sweep", "plan.yaml", *GRID, "-o", "no/table.csv")
    assert "cannot be written" in refused(outcome, tmp_path, leaves=("plan.yaml",))


def test_a_model_without_layers(run: Run, tmp_path: Path) -> None:
    profile = run("profile", "show", "vgg16", "--json").json() | {"layers": []}
    (tmp_path / "empty.yaml").write_text(yaml.safe_dump(profile))
    outcome = run("sweep", "--profile", "./empty.yaml", "--fabric", LAB_FABRIC, "-o", "table.csv")
    line = refused(outcome, tmp_path, leaves=("empty.yaml", "plan.yaml"))
    assert "empty.yaml:2: layers: " in line
