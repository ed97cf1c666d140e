"""`mltswitch sweep`: a grid over load, burst and buffer into one tidy table."""

from pathlib import Path

import click

from mltswitch.app.sweeping import Grid, sweep_plan
from mltswitch.cli.command import command, option
from mltswitch.cli.loss import OPTIONAL_PLAN, ROLE, Simulation
from mltswitch.cli.options import BURSTS, LOADS, PATH, PROFILE, Cells, Checked, output_file
from mltswitch.cli.output import Answer
from mltswitch.queueing import MODELS
from mltswitch.units import parse_bytes


def _models(text: str) -> tuple[str, ...]:
    names = text.split(",")
    for name in names:
        if name not in MODELS:
            raise ValueError(f"{name!r} is not one of {', '.join(MODELS)}.")
    return tuple(dict.fromkeys(names))


def _buffers(text: str) -> tuple[int, ...]:
    sizes = []
    for part in text.split(","):
        size = parse_bytes(int(part) if part.strip().isdecimal() else part)
        if size < 1:
            raise ValueError(f"{part!r} is no buffer")
        sizes.append(size)
    return tuple(dict.fromkeys(sizes))


@command(
    "mltswitch sweep plan.yaml --load 0.5:1.2:0.1 --burst 1,8,45 -o table.csv",
    "mltswitch sweep plan.yaml --buffer 128kB,256kB --model completion,paper -o table.parquet",
    "mltswitch sweep --profile resnet50 --fabric fabric.yaml --buffer 128kB,256kB -o table.csv",
)
def sweep(
    *,
    plan_file: Path | None = OPTIONAL_PLAN,
    profile_name: str | None = option("With --fabric: plan anew for each buffer.", PROFILE, "--profile"),
    fabric_file: Path | None = option(None, PATH, "--fabric"),
    loads: tuple[float, ...] | None = option(
        "0.5:1.2:0.1 or 0.8,0.9; the input's own by default.", LOADS, "--load"
    ),
    bursts: tuple[float, ...] | None = option("1,8,45; the input's own by default.", BURSTS, "--burst"),
    buffers: tuple[int, ...] | None = option(
        "64kB,128kB for each port; S and L follow.", Checked("text", _buffers), "--buffer"
    ),
    models: tuple[str, ...] = option(
        "completion,paper,simulate", Checked("models", _models), "--model", default=(MODELS[0],)
    ),
    port_role: str | None = ROLE,
    computed: Cells,
    output: Path = output_file(".csv or .parquet", required=True),
    simulated: Simulation,
) -> Answer:
    """Predict losses over a grid of loads, bursts and buffers, and write one table.

    Finished cells are kept beside OUTPUT; the same command goes on where an earlier one was stopped.
    """
    if (plan_file is None) == (profile_name is None):
        raise click.UsageError("Give a plan, or --profile with --fabric")
    if (profile_name is None) != (fabric_file is None):
        raise click.UsageError("--profile and --fabric go together")
    source = plan_file or (str(profile_name), Path(str(fabric_file)))
    grid = Grid(loads, bursts, buffers, models)
    settings = simulated.settings(models)
    made = sweep_plan(grid, output, computed.computing(), settings, source=source, port_role=port_role)
    lines = (
        f"Written: {output}, {made.rows} rows of {made.cells} cells ({', '.join(models)})",
        f"Finished cells are kept in {made.journal}; a larger grid goes on from there.",
    )
    return Answer(made, lines)
