"""A sweep's parts: axes, the journal that it goes on from, processes, tables."""

import csv
import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.sweep import (
    Cell,
    check_table,
    executor,
    open_journal,
    parse_numbers,
    run_cells,
    write_table,
)

CELLS: list[Cell] = [(load, burst, None, "paper") for load in (0.5, 0.9) for burst in (1, 8)]


def evaluate(cell: Cell) -> list[dict[str, Any]]:
    """Here, so that other processes find it."""
    return [{"load": cell[0], "burst": cell[1], "nothing": None}]


def refuse(cell: Cell) -> list[dict[str, Any]]:
    """Raises in the other process what the user must see here."""
    if cell[1] == 8:
        raise UserInputError("cannot express it", where="queues[0].arrivals", expected="another model")
    return evaluate(cell)


def _nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0.5:1.2:0.1", (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)),
        ("0.8,0.9", (0.8, 0.9)),
        ("1, 0.5:0.7:0.1", (1.0, 0.5, 0.6, 0.7)),
        ("0.5:0.65:0.1", (0.5, 0.6)),
        ("1,1", (1.0,)),
    ],
)
def test_axes(text: str, numbers: tuple[float, ...]) -> None:
    assert parse_numbers(text, 0, 10) == numbers


@pytest.mark.parametrize(
    "text",
    ["", "a", "nan", "inf", "0.1:inf:0.1", "-1", "11", "1:2", "2:1:0.1", "1:2:0", "0:1:0.0001", "1,,2"],
)
def test_axes_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^'"):
        parse_numbers(text, 0, 10)


def test_whole_numbers_only() -> None:
    assert parse_numbers("1:5:2", 1, 10, whole=True) == (1, 3, 5)
    with pytest.raises(ValueError, match=r"1\.5 is not a whole number from 1 to 10"):
        parse_numbers("1.5", 1, 10, whole=True)


@given(text=st.text(alphabet="0123456789.,:-eE ", max_size=20))
def test_any_text_is_numbers_in_bounds_or_refused(text: str) -> None:
    try:
        numbers = parse_numbers(text, 0.5, 20)
    except ValueError:
        return
    assert numbers
    assert all(0.5 <= number <= 20 for number in numbers)


@pytest.mark.parametrize("processes", [1, 2])
def test_cells_are_computed_once(tmp_path: Path, processes: int) -> None:
    path = tmp_path / "journal"
    with open_journal(path, "a") as journal:
        run_cells(evaluate, CELLS[:2], journal, None, _nothing)
    advanced: list[int] = []
    with open_journal(path, "a") as journal:
        assert set(journal.finished) == set(CELLS[:2])
        with executor(processes) as pool:
            run_cells(evaluate, CELLS, journal, pool, lambda: advanced.append(1))
        assert journal.finished == {cell: evaluate(cell) for cell in CELLS}
    assert len(advanced) == 2
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_a_cell_is_the_users(tmp_path: Path, processes: int) -> None:
    with open_journal(tmp_path / "journal", "a") as journal:
        with pytest.raises(UserInputError) as refusal, executor(processes) as pool:
            run_cells(refuse, CELLS, journal, pool, _nothing)
        assert str(refusal.value) == "queues[0].arrivals: cannot express it (expected another model)"
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupt_keeps_what_is_finished(tmp_path: Path, processes: int) -> None:
    path = tmp_path / "journal"

    def interrupt() -> None:
        raise KeyboardInterrupt

    with open_journal(path, "a") as journal, pytest.raises(KeyboardInterrupt), executor(processes) as pool:
        run_cells(evaluate, CELLS, journal, pool, interrupt)
    assert not multiprocessing.active_children()
    with open_journal(path, "a") as journal:
        assert len(journal.finished) == 1
        run_cells(evaluate, CELLS, journal, None, _nothing)
        assert set(journal.finished) == set(CELLS)


def test_a_line_that_was_cut_off_is_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with open_journal(path, "a") as journal:
        run_cells(evaluate, CELLS, journal, None, _nothing)
    whole = path.read_text()
    path.write_text(whole[:-7])
    with open_journal(path, "a") as journal:
        assert set(journal.finished) == set(CELLS[:-1])
        run_cells(evaluate, CELLS, journal, None, _nothing)
    assert path.read_text() == whole


@pytest.mark.parametrize("spoil", [lambda text: text + "{}\n", lambda text: "x\n" + text, lambda _: "[]\n"])
def test_what_is_no_journal_is_refused(tmp_path: Path, spoil: Callable[[str], str]) -> None:
    path = tmp_path / "journal"
    with open_journal(path, "a") as journal:
        run_cells(evaluate, CELLS, journal, None, _nothing)
    path.write_text(spoil(path.read_text()))
    with (
        pytest.raises(UserInputError, match=r"--restart begins anew|of another sweep"),
        open_journal(path, "a"),
    ):
        pass


def test_another_sweep_is_refused_or_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with open_journal(path, "a") as journal:
        run_cells(evaluate, CELLS, journal, None, _nothing)
    before = path.read_bytes()
    with pytest.raises(UserInputError, match="it holds cells of another sweep"), open_journal(path, "b"):
        pass
    assert path.read_bytes() == before
    with open_journal(path, "b", restart=True) as journal:
        assert journal.finished == {}
        journal.add(CELLS[0], [])
    assert json.loads(path.read_text().splitlines()[0])["inputs_sha256"] == "b"


def test_a_journal_without_a_cell_is_not_left_behind(tmp_path: Path) -> None:
    with (
        pytest.raises(UserInputError),
        open_journal(tmp_path / "journal", "a") as journal,
    ):
        run_cells(refuse, CELLS[1:], journal, None, _nothing)
    assert list(tmp_path.iterdir()) == []


def test_two_sweeps_do_not_write_one_journal(tmp_path: Path) -> None:
    with (
        open_journal(tmp_path / "journal", "a"),
        pytest.raises(UserInputError, match="another sweep is writing it"),
        open_journal(tmp_path / "journal", "a", restart=True),
    ):
        pass


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="cannot be written"), open_journal(tmp_path / "no" / "j", "a"):
        pass


ROWS: list[dict[str, Any]] = [{"class": "a", "loss": 0.25}, {"class": "b", "loss": None}]


def test_csv(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", ROWS)
    with (tmp_path / "t.csv").open(newline="") as stream:
        assert list(csv.DictReader(stream)) == [{"class": "a", "loss": "0.25"}, {"class": "b", "loss": ""}]


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_table(tmp_path / "t.parquet", ROWS)
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == ROWS
    assert [path.name for path in tmp_path.iterdir()] == ["t.parquet"]
    with pytest.raises(UserInputError, match="cannot be written"):
        write_table(tmp_path / "no" / "t.parquet", ROWS)


def test_other_tables_are_refused_before_anything_is_computed() -> None:
    check_table(Path("t.csv"))
    with pytest.raises(UserInputError, match=r"t\.xls: is no table that is known \(expected \.csv or"):
        check_table(Path("t.xls"))
