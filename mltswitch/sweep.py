"""Computes cells of a sweep in local processes or by Dask, and keeps them in a journal to resume from."""

import csv
import fcntl
import io
import json
import multiprocessing
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from decimal import Decimal, DecimalException
from pathlib import Path
from typing import Any, Final, TextIO

from mltswitch.errors import MachineError, UserInputError
from mltswitch.outputs import check_output, write_outputs

Cell = tuple[float | int | str | None, ...]
"""One point of a sweep, with a value of each axis; values are what JSON can hold."""
MOST_VALUES: Final = 1000
"""The most values of one axis."""
MOST_CELLS: Final = 100_000
JOURNAL_SUFFIX: Final = ".cells.jsonl"
JOURNAL_SCHEMA: Final = "mltswitch/sweep-journal/v1"
TURN_SECONDS: Final = 0.2
"""Seconds of one wait for cells, after which signals that came just before the wait are handled."""
DASK_PATIENCE: Final = "10s"
"""How long a Dask scheduler may take to answer."""

Rows = list[dict[str, Any]]
Evaluate = Callable[[Cell], Rows]
"""A function from one cell to rows of the table; it must be picklable, for it runs in other processes."""


def parse_numbers(text: str, least: float, most: float, *, whole: bool = False) -> tuple[float, ...]:
    """Parse a list of numbers and ranges first:last:step, ends included: `0.5:1.2:0.1,1.5` → 0.5, 0.6, … 1.5.

    Raises:
        ValueError: the text is no such list, or a number is out of bounds.
    """
    numbers: list[float] = []
    for part in text.split(","):
        for number in _range(part):
            value = float(number)
            if not least <= value <= most or (whole and not value.is_integer()):
                kind = "a whole number" if whole else "a number"
                raise ValueError(f"{part.strip()!r}: {number} is not {kind} from {least:g} to {most:g}.")
            numbers.append(int(value) if whole else value)
            if len(numbers) > MOST_VALUES:
                raise ValueError(f"{text!r} has more than {MOST_VALUES} values.")
    return tuple(dict.fromkeys(numbers))


def _range(part: str) -> Iterator[Decimal]:
    try:
        bounds = [Decimal(bound.strip()) for bound in part.split(":")]
    except DecimalException:
        bounds = []
    if len(bounds) not in (1, 3) or not all(bound.is_finite() for bound in bounds):
        raise ValueError(f"{part!r} is no number and no range such as 0.5:1.2:0.1.")
    if len(bounds) == 1:
        yield bounds[0]
        return
    first, last, step = bounds
    if step <= 0 or last < first:
        raise ValueError(f"{part!r} does not rise from its first number to its last.")
    while first <= last:
        yield first
        first += step


class Journal:
    """Finished cells of one sweep, one line each; the first line has the hash of the sweep's inputs."""

    def __init__(self, stream: TextIO, finished: dict[Cell, Rows]) -> None:
        self._stream = stream
        self.finished = finished

    def add(self, cell: Cell, rows: Rows) -> None:
        """Write one finished cell to the disk, so that it survives a crash."""
        self._stream.write(json.dumps({"cell": cell, "rows": rows}) + "\n")
        self._stream.flush()
        self.finished[cell] = rows


@contextmanager
def open_journal(
    path: Path, inputs_sha256: str, *, restart: bool = False, of: str = "sweep"
) -> Iterator[Journal]:
    """Open the journal, with the cells of an earlier run; a cell whose line was cut off is computed again.

    A journal without any cell is not left behind.

    Raises:
        UserInputError: the journal belongs to other inputs, or another run writes it.
    """
    try:
        stream = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserInputError(f"another {of} is writing it", where=str(path)) from None
        if restart:
            stream.truncate(0)
        journal = Journal(stream, _read(stream, path, inputs_sha256, of))
        try:
            yield journal
        finally:
            if not journal.finished:
                path.unlink(missing_ok=True)


def _read(stream: TextIO, path: Path, inputs_sha256: str, of: str) -> dict[Cell, Rows]:
    stream.seek(0)
    text = stream.read()
    whole = text[: text.rfind("\n") + 1]
    stream.truncate(len(whole.encode()))
    stream.seek(0, os.SEEK_END)
    lines = whole.splitlines()
    if not lines:
        header = {"schema": JOURNAL_SCHEMA, "inputs_sha256": inputs_sha256}
        stream.write(json.dumps(header) + "\n")
        stream.flush()
        return {}
    try:
        header, *records = [json.loads(line) for line in lines]
        if header != {"schema": JOURNAL_SCHEMA, "inputs_sha256": inputs_sha256}:
            raise UserInputError(
                f"it holds cells of another {of}", where=str(path), hint="--restart begins anew"
            )
        return {tuple(record["cell"]): record["rows"] for record in records}
    except (ValueError, KeyError, TypeError):
        raise UserInputError(
            f"it is no journal of a {of}", where=str(path), hint="--restart begins anew"
        ) from None


def run_cells(
    evaluate: Evaluate,
    cells: Sequence[Cell],
    journal: Journal,
    pool: Executor | None,
    advance: Callable[[], None],
) -> None:
    """Compute the cells that the journal lacks and add each as it is finished.

    Args:
        evaluate: Picklable where there is a pool.
        cells: In any order; they are added to the journal in the order in which they finish.
        journal: What is finished already, and where results go.
        pool: Where to compute, as `executor` makes it; None: in this process, one after the other.
        advance: Called after each cell.

    Raises:
        MltswitchError: what a cell raised.
        MachineError: a process of the pool died.
        KeyboardInterrupt: the journal holds what was finished before.
    """
    missing = [cell for cell in cells if cell not in journal.finished]
    if pool is None:
        for cell in missing:
            journal.add(cell, evaluate(cell))
            advance()
        return
    futures = {pool.submit(evaluate, cell): cell for cell in missing}
    pending = set(futures)
    try:
        while pending:
            done, pending = wait(pending, TURN_SECONDS, FIRST_COMPLETED)
            for future in done:
                journal.add(futures[future], future.result())
                advance()
    except (BrokenExecutor, CancelledError):
        raise MachineError(
            "a process of the sweep ended", hint="run it again to go on, with fewer --processes"
        ) from None


@contextmanager
def executor(processes: int, scheduler: str | None = None) -> Iterator[Executor | None]:
    """Where `run_cells` computes: this process, several local ones, or the workers of a Dask scheduler.

    Local processes are started when they are first needed, and ended at once where the body raises.

    Args:
        processes: Local ones; 1 yields None, which means this process.
        scheduler: Address of a Dask scheduler, such as `tcp://10.0.0.1:8786`; goes before `processes`.

    Raises:
        MachineError: Dask is not installed, its scheduler does not answer, or its workers died.
    """
    if scheduler is not None:
        with _dask_executor(scheduler) as pool:
            yield pool
        return
    if processes == 1:
        yield None
        return
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _ignore_interrupts)
    try:
        yield pool
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _dask_executor(scheduler: str) -> Iterator[Executor]:
    try:
        import distributed
        from distributed.scheduler import KilledWorker
    except ImportError:
        raise MachineError(
            "a Dask scheduler needs the package distributed", hint="`pip install 'mltswitch[dask]'`"
        ) from None
    connect: Any = distributed.Client  # it has no types
    try:
        client = connect(scheduler, timeout=DASK_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        raise MachineError(f"no Dask scheduler answers: {problem}", where=scheduler) from None
    with client:
        try:
            yield client.get_executor(pure=False)
        except KilledWorker:
            raise MachineError(
                "workers died over one cell", where=scheduler, hint="run it again to go on"
            ) from None


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of the terminal; the first one ends the others, or its death does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(TURN_SECONDS)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def check_table(path: Path) -> None:
    """Refuse a file that `write_table` could not write, before hours are spent on its rows.

    Raises:
        UserInputError: another ending than .csv or .parquet, or as `check_output`.
        MachineError: .parquet without pyarrow.
    """
    if path.suffix == ".parquet":
        _pyarrow()
    elif path.suffix != ".csv":
        raise UserInputError("is no table that is known", where=str(path), expected=".csv or .parquet")
    check_output(path)


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write all rows or none, as CSV (unknown values empty) or Parquet (null), by the file name's ending."""
    columns = dict.fromkeys(name for row in rows for name in row)
    write_columns(path, {name: [row.get(name) for row in rows] for name in columns})


def write_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Write columns of one length, lists or numpy's arrays, as `write_table` writes rows."""
    if path.suffix == ".parquet":
        _write_parquet(path, columns)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    write_outputs([(path, text.getvalue())])


def _write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    arrow, parquet = _pyarrow()
    table = arrow.table(dict(columns))
    check_output(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        parquet.write_table(table, temporary)
        temporary.replace(path)
    except OSError as error:
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise MachineError(
            "Parquet needs the package pyarrow", hint="`pip install 'mltswitch[sim]'`, or write a .csv"
        ) from None
    return arrow, parquet
