"""`mltswitch sweep`: a grid over load, burst and buffer into one tidy table."""

import hashlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mltswitch import __version__
from mltswitch.cli.loss import BURSTS, LOADS, simulation_options, simulation_settings
from mltswitch.cli.output import Command, json_option, print_json, progress, stderr_console
from mltswitch.documents import load_document, sha256
from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.outputs import check_output
from mltswitch.plan import Fabric, Plan, PortRole, load_plan
from mltswitch.planning import build_plan
from mltswitch.planning.evaluate import PlanCells, with_buffer
from mltswitch.profile import profile_sha256, resolve_profile
from mltswitch.queueing import MODELS, SimulationSettings
from mltswitch.sweep import (
    JOURNAL_SUFFIX,
    MOST_CELLS,
    Cell,
    Evaluate,
    check_table,
    executor,
    open_journal,
    run_cells,
    write_table,
)
from mltswitch.targets import hardware_capabilities
from mltswitch.units import parse_bytes

MOST_PROCESSES: Final = 256

PlanOf = Callable[[int | None], Plan]
"""Of one buffer; None: the input's own."""


def processes_options(command: Command) -> Command:
    """`--processes`, `--dask`, `--restart`: where cells are computed, and whether earlier ones count."""
    for option in (
        click.option("--restart", is_flag=True, help="Forget what an earlier run finished."),
        click.option("--dask", "scheduler", metavar="ADDRESS", help="Compute on a Dask scheduler's workers."),
        click.option(
            "--processes", type=click.IntRange(1, MOST_PROCESSES), help="One for each CPU by default."
        ),
    ):
        command = option(command)
    return command


class _Models(click.ParamType[tuple[str, ...]]):
    name = "models"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = value.split(",") if isinstance(value, str) else list(value)
        for name in names:
            if name not in MODELS:
                self.fail(f"{name!r} is not one of {', '.join(MODELS)}.", param, ctx)
        return tuple(dict.fromkeys(names))


@click.command(
    epilog="\b\nExamples:\n"
    "  mltswitch sweep plan.yaml --load 0.5:1.2:0.1 --burst 1,8,45 -o table.csv\n"
    "  mltswitch sweep plan.yaml --buffer 128kB,256kB --model completion,paper -o table.parquet\n"
    "  mltswitch sweep --profile resnet50 --fabric fabric.yaml --buffer 128kB,256kB -o table.csv"
)
@click.argument("plan_file", type=click.Path(path_type=Path), metavar="[PLAN]", required=False)
@click.option("--profile", "profile_name", help="With --fabric: plan anew for each buffer.")
@click.option("--fabric", "fabric_file", type=click.Path(path_type=Path))
@click.option("--load", "loads", type=LOADS, help="0.5:1.2:0.1 or 0.8,0.9; the input's own by default.")
@click.option("--burst", "bursts", type=BURSTS, help="1,8,45; the input's own by default.")
@click.option("--buffer", "buffers_text", help="64kB,128kB for each port; S and L follow.")
@click.option("--model", "models", type=_Models(), default=(MODELS[0],), help="completion,paper,simulate")
@click.option("--port-role", type=click.Choice([role.value for role in PortRole]))
@processes_options
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help=".csv or .parquet"
)
@simulation_options
@json_option
def sweep(
    plan_file: Path | None,
    profile_name: str | None,
    fabric_file: Path | None,
    loads: tuple[float, ...] | None,
    bursts: tuple[float, ...] | None,
    buffers_text: str | None,
    models: tuple[str, ...],
    port_role: str | None,
    processes: int | None,
    scheduler: str | None,
    restart: bool,
    output: Path,
    packets: int | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Predict losses over a grid of loads, bursts and buffers, and write one table.

    Finished cells are kept beside OUTPUT; the same command goes on where an earlier one was stopped.
    """
    if (plan_file is None) == (profile_name is None):
        raise click.UsageError("Give a plan, or --profile with --fabric")
    if (profile_name is None) != (fabric_file is None):
        raise click.UsageError("--profile and --fabric go together")
    check_table(output)
    settings = simulation_settings(models, packets, seed)
    buffers = _bytes(buffers_text)
    cells: list[Cell] = list(itertools.product(loads or (None,), bursts or (None,), buffers, models))
    if len(cells) > MOST_CELLS:
        raise UserInputError(f"the grid has {len(cells)} cells", expected=f"at most {MOST_CELLS}")
    journal_path = output.with_name(output.name + JOURNAL_SUFFIX)
    try:
        if plan_file is not None:
            plan_of, inputs = _scaled_plans(plan_file)
        else:
            plan_of, inputs = _new_plans(str(profile_name), Path(str(fabric_file)))
        role = None if port_role is None else PortRole(port_role)
        check_output(output)
        digest = _digest(inputs, port_role, settings)
        count = processes or os.cpu_count() or 1
        rows, kept = _run(
            lambda missing, bar: _plan_cells(plan_of, role, settings, missing, bar),
            cells,
            journal_path,
            digest,
            count,
            scheduler,
            restart=restart,
        )
    except MltswitchError as error:
        source = str(plan_file or fabric_file)
        names_a_file = error.where.startswith((source, str(journal_path), str(profile_name)))
        if not names_a_file:
            error.where = f"{source}: {error.where}" if error.where else source
        raise
    write_table(output, rows)
    if as_json:
        print_json(
            {
                "output": output,
                "journal": journal_path,
                "cells": len(cells),
                "kept_cells": kept,
                "rows": len(rows),
            }
        )
        return
    click.echo(f"Written: {output}, {len(rows)} rows of {len(cells)} cells ({', '.join(models)})")
    click.echo(f"Finished cells are kept in {journal_path}; a larger grid goes on from there.")


def _run(
    prepare: Callable[[Sequence[Cell], Progress], Evaluate],
    cells: list[Cell],
    journal_path: Path,
    digest: str,
    processes: int,
    scheduler: str | None,
    *,
    restart: bool,
) -> tuple[list[dict[str, Any]], int]:
    """(rows in the order of the grid, cells that an earlier run had finished)."""
    with ExitStack() as stack:
        journal = stack.enter_context(open_journal(journal_path, digest, restart=restart))
        kept = sum(cell in journal.finished for cell in cells)
        if kept:
            progress(f"{kept} of {len(cells)} cells were finished before ({journal_path}), and are skipped")
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=stderr_console(),
            disable=not sys.stderr.isatty(),
        )
        stack.enter_context(bar)
        missing = [cell for cell in cells if cell not in journal.finished]
        evaluate = prepare(missing, bar)
        pool = stack.enter_context(executor(min(processes, max(len(missing), 1)), scheduler))
        task = bar.add_task("sweep", total=len(cells), completed=kept)
        run_cells(evaluate, cells, journal, pool, lambda: bar.advance(task))
        return [row for cell in cells for row in journal.finished[cell]], kept


def _bytes(text: str | None) -> tuple[int | None, ...]:
    if text is None:
        return (None,)
    option, sizes = click.Option(["--buffer"]), []
    for part in text.split(","):
        try:
            size = parse_bytes(int(part) if part.strip().isdecimal() else part)
        except ValueError as error:
            raise click.BadParameter(str(error), param=option) from None
        if size < 1:
            raise click.BadParameter(f"{part!r} is no buffer", param=option)
        sizes.append(size)
    return tuple(dict.fromkeys(sizes))


def _plan_cells(
    plan_of: PlanOf, role: PortRole | None, settings: SimulationSettings, cells: Sequence[Cell], bar: Progress
) -> Evaluate:
    """With a plan for each buffer of these cells, and of no others: planning may take longer than they do."""
    buffers = {None if buffer is None else int(buffer): None for _, _, buffer, _ in cells}
    task = bar.add_task("plan", total=len(buffers))
    plans: dict[int | None, Plan] = {}
    for size in buffers:
        plans[size] = plan_of(size)
        bar.advance(task)
    return PlanCells(plans, role, settings)


def _scaled_plans(plan_file: Path) -> tuple[PlanOf, str]:
    """The same thresholds in proportion to each buffer, and what identifies them."""
    plan = load_plan(plan_file)
    return lambda size: plan if size is None else with_buffer(plan, size), sha256(plan)


def _new_plans(profile_name: str, fabric_file: Path) -> tuple[PlanOf, str]:
    """A plan made for each buffer, which all ports get, and what identifies them."""
    profile, fabric = resolve_profile(profile_name), load_document(fabric_file, Fabric)

    def plan_of(size: int | None) -> Plan:
        given = fabric if size is None else _with_ports_buffer(fabric, size)
        return build_plan(profile, given, hardware_capabilities)

    return plan_of, profile_sha256(profile) + sha256(fabric)


def _with_ports_buffer(fabric: Fabric, size_bytes: int) -> Fabric:
    overrides = {
        role: entry.model_copy(update={"buffer_bytes": None})
        for role, entry in fabric.ports.overrides.items()
    }
    ports = fabric.ports.model_copy(update={"buffer_bytes": size_bytes, "overrides": overrides})
    return fabric.model_copy(update={"ports": ports})


def _digest(inputs: str, port_role: str | None, settings: SimulationSettings) -> str:
    """What cells must have in common to stand in one journal; the axes are none of it, so a grid can grow."""
    text = json.dumps([__version__, inputs, port_role, asdict(settings)])
    return hashlib.sha256(text.encode()).hexdigest()
