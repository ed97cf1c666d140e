"""Sweeps a grid of loads, bursts and buffers, cell by cell, into one table."""

import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mltswitch.app import Computing, naming
from mltswitch.documents import load_document, sha256
from mltswitch.errors import UserInputError
from mltswitch.outputs import check_output
from mltswitch.plan import Fabric, Plan, PortRole, load_plan
from mltswitch.planning import build_plan
from mltswitch.planning.evaluate import PlanCells, with_buffer
from mltswitch.profile import profile_sha256, resolve_profile
from mltswitch.queueing import SimulationSettings
from mltswitch.sweep import (
    JOURNAL_SUFFIX,
    MOST_CELLS,
    Cell,
    check_table,
    executor,
    open_journal,
    run_cells,
    write_table,
)
from mltswitch.targets import hardware_capabilities
from mltswitch.version import __version__

PlanOf = Callable[[int | None], Plan]
"""Buffer in bytes → the plan for it; None: the input's own buffer."""


@dataclass(frozen=True)
class Grid:
    """The values to vary in a sweep; None: the input's own value."""

    loads: Sequence[float] | None
    bursts: Sequence[float] | None
    buffers: Sequence[int] | None
    models: Sequence[str]

    def cells(self) -> list[Cell]:
        """All combinations of the values; raises UserInputError where there are too many."""
        axes = (self.loads or (None,), self.bursts or (None,), self.buffers or (None,), self.models)
        cells: list[Cell] = list(itertools.product(*axes))
        if len(cells) > MOST_CELLS:
            raise UserInputError(f"the grid has {len(cells)} cells", expected=f"at most {MOST_CELLS}")
        return cells


@dataclass(frozen=True)
class Swept:
    """The files that a sweep has written, and how many cells of the grid and rows are in them."""

    output: Path
    journal: Path
    cells: int
    kept_cells: int
    """How many of the cells an earlier run had finished."""
    rows: int


def sweep_plan(
    grid: Grid,
    output: Path,
    computing: Computing,
    settings: SimulationSettings,
    *,
    source: Path | tuple[str, Path],
    port_role: str | None,
) -> Swept:
    """Predict every cell of the grid, and write one table.

    Args:
        grid: The values to vary.
        output: The table; the journal of finished cells stands beside it.
        computing: Where cells are computed.
        settings: The settings of simulations.
        source: A plan, whose thresholds follow each buffer in proportion; or a profile's name and a
            fabric, of which each buffer gets a plan of its own.
        port_role: The ports to predict; None: all.

    Raises UserInputError naming the source.
    """
    check_table(output)
    cells = grid.cells()
    journal_path = output.with_name(output.name + JOURNAL_SUFFIX)
    file, names = (source, ()) if isinstance(source, Path) else (source[1], source[:1])
    with naming(file, named=(str(file), str(journal_path), *names)):
        plan_of, inputs = _scaled_plans(file) if not names else _new_plans(names[0], file)
        check_output(output)
        # What cells must have in common to stand in one journal; the axes are none of it, so a grid can grow.
        common = json.dumps([__version__, inputs, port_role, asdict(settings)])
        digest = hashlib.sha256(common.encode()).hexdigest()
        role = None if port_role is None else PortRole(port_role)
        with ExitStack() as stack:
            journal = stack.enter_context(open_journal(journal_path, digest, restart=computing.restart))
            missing = [cell for cell in cells if cell not in journal.finished]
            done = kept = len(cells) - len(missing)
            if kept:
                computing.tell(
                    f"{kept} of {len(cells)} cells were finished before ({journal_path}), and are skipped"
                )
            advance = stack.enter_context(computing.bar())
            # Of no other buffers: planning may take longer than the cells do.
            buffers = {None if buffer is None else int(buffer): None for _, _, buffer, _ in missing}
            plans: dict[int | None, Plan] = {}
            for size in buffers:
                advance("plan", len(plans), len(buffers))
                plans[size] = plan_of(size)
            processes = min(computing.processes, max(len(missing), 1))
            pool = stack.enter_context(executor(processes, computing.scheduler))

            def show() -> None:
                nonlocal done
                done += 1
                advance("sweep", done, len(cells))

            run_cells(PlanCells(plans, role, settings), cells, journal, pool, show)
            rows: list[dict[str, Any]] = [row for cell in cells for row in journal.finished[cell]]
    write_table(output, rows)
    return Swept(output, journal_path, len(cells), kept, len(rows))


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
