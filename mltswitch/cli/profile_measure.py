"""`mltswitch profile measure`: how much gradient loss a training tolerates, as a profile."""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from mltswitch import __version__
from mltswitch.cli.bars import progress_bar
from mltswitch.cli.loss import Numbers
from mltswitch.cli.numbers import NumberRange
from mltswitch.cli.output import console, json_option, print_json, progress, table
from mltswitch.cli.sweep import processes_options
from mltswitch.documents import dump_yaml
from mltswitch.outputs import check_output, write_outputs
from mltswitch.profile import ModelProfile, profile_sha256
from mltswitch.sweep import JOURNAL_SUFFIX, Cell, executor, open_journal, run_cells
from mltswitch.training.tolerance import Comparison, Measurement, Point, Settings, describe
from mltswitch.training.tolerance import measure as run_measurement


class _Seeds(click.ParamType[tuple[int, int]]):
    name = "least:most"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if not isinstance(value, str):
            return (int(value[0]), int(value[1]))
        least, _, most = value.partition(":")
        if not (least.isdecimal() and most.isdecimal() and 2 <= int(least) <= int(most) <= 1000):
            self.fail(f"{value!r} is not such as 5:20, from 2 to 1000.", param, ctx)
        return int(least), int(most)


@click.command(
    epilog="\b\nExamples:\n"
    "  mltswitch profile measure digits --ratio 0.05,0.1,0.2,0.5 --groups 2 -o measured.yaml\n"
    "  mltswitch profile measure mypackage.train:make_task --seeds 5:40 -o measured.yaml\n"
    "  mltswitch profile measure textures --dask tcp://10.0.0.1:8786 -o measured.yaml --json"
)
@click.argument("task", metavar="TASK|PACKAGE.MODULE:FACTORY")
@click.option(
    "--ratio",
    "ratios",
    type=Numbers(0.0001, 1),
    default=(0.05, 0.1, 0.2, 0.5),
    help="Loss ratios; 0.05,0.1,0.2,0.5",
)
@click.option("--groups", type=click.IntRange(1, 64), default=2, help="Ranges of layers, front to back; 2.")
@click.option("--seeds", type=_Seeds(), default=(5, 20), help="Pairs of trainings a point, least:most; 5:20.")
@click.option(
    "--tolerance", type=NumberRange(0, 1), default=0.05, help="Extra rounds that count as none; 0.05."
)
@click.option("--target", type=float, help="Of the metric; the task's own by default.")
@click.option("--ranks", type=click.IntRange(1, 256), help="Virtual ranks; the task's own by default.")
@processes_options
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The profile."
)
@json_option
def measure(
    task: str,
    ratios: tuple[float, ...],
    groups: int,
    seeds: tuple[int, int],
    tolerance: float,
    target: float | None,
    ranks: int | None,
    processes: int | None,
    scheduler: str | None,
    restart: bool,
    output: Path,
    as_json: bool,
) -> None:
    """Measure what lost gradients cost a training.

    The extra rounds that they cost are written as its profile. TASK is digits, digits-finetune or textures;
    or FACTORY() returns a mltswitch.training.tolerance.TrainingTask. Finished trainings are kept beside
    OUTPUT; the same command goes on where an earlier one was stopped, also with more seeds, ratios or groups.
    """
    check_output(output)
    settings = Settings(task, groups, tuple(sorted(ratios)), *seeds, tolerance, target, ranks)
    profile, trainings = describe(settings)
    journal_path = output.with_name(output.name + JOURNAL_SUFFIX)
    digest = _digest(settings, profile)
    with ExitStack() as stack:
        journal = stack.enter_context(open_journal(journal_path, digest, restart=restart))
        if journal.finished:
            progress(f"{len(journal.finished)} trainings were finished before ({journal_path}), and are kept")
        pool = stack.enter_context(executor(processes or os.cpu_count() or 1, scheduler))
        advance = stack.enter_context(progress_bar())
        asked: dict[Cell, None] = {}

        def show() -> None:
            advance("trainings", sum(cell in journal.finished for cell in asked), len(asked))

        def compute(cells: Sequence[Cell]) -> None:
            asked.update(dict.fromkeys(cells))
            show()
            run_cells(trainings, cells, journal, pool, show)

        found = run_measurement(settings, profile, journal.finished, compute)
    write_outputs([(output, dump_yaml(found.profile))])
    if found.not_finite:
        progress(
            f"warning: {found.not_finite} of {found.trainings} trainings met a gradient that is not finite; "
            "they count as given up"
        )
    if as_json:
        print_json(_document(settings, found, output, journal_path))
    else:
        _print(settings, found, output)


def _digest(settings: Settings, profile: ModelProfile) -> str:
    """What trainings must have in common to stand in one journal; ratios, groups and seeds are none of it."""
    text = json.dumps([__version__, settings.task, settings.target, settings.ranks, profile_sha256(profile)])
    return hashlib.sha256(text.encode()).hexdigest()


def _document(settings: Settings, found: Measurement, output: Path, journal_path: Path) -> dict[str, object]:
    return {
        "kind": "measured",
        "task": settings.task,
        "output": output,
        "journal": journal_path,
        "tolerance": settings.tolerance,
        "lossless_rounds": found.lossless_rounds,
        "trainings": found.trainings,
        "not_finite": found.not_finite,
        "points": found.points,
        "bounds": found.bounds,
        "comparisons": found.comparisons,
    }


def _print(settings: Settings, found: Measurement, output: Path) -> None:
    screen = console()
    screen.print(
        table(
            f"Extra rounds, measured: {settings.task}, {found.lossless_rounds:g} rounds without loss",
            (
                "layers",
                "packets",
                "loss ratio [%]",
                "seeds #",
                "extra rounds [%]",
                "95 % interval",
                f"within {settings.tolerance:.0%}",
                "given up #",
                "predicted by sum [%]",
            ),
            [_row(point) for point in found.points],
        )
    )
    for comparison in found.comparisons:
        screen.print(_compared(comparison))
    for bound in found.bounds:
        beyond = (
            "no measured ratio is too much" if bound.refused is None else f"{bound.refused:.2%} is too much"
        )
        screen.print(
            f"Bounded-loss ratio p, {bound.importance} packets: {bound.tolerated:.2%} of all packets "
            f"tolerated, {beyond} (measured)"
        )
    click.echo(f"Written: {output}, after {found.trainings} trainings")


def _row(point: Point) -> tuple[object, ...]:
    return (
        f"{point.first_layer}-{point.last_layer}",
        point.importance,
        f"{point.ratio:.4g}" if point.ratio < 0.0001 else f"{point.ratio:.2%}".removesuffix("%"),
        point.seeds,
        f"{point.extra_rounds:+.1%}".removesuffix("%"),
        _interval(point.low, point.high),
        point.verdict,
        point.given_up,
        "" if point.predicted is None else f"{point.predicted:+.1%}".removesuffix("%"),
    )


def _compared(comparison: Comparison) -> str:
    return (
        f"{comparison.question} at {comparison.ratio:.2%}: {comparison.difference:+.1%} rounds "
        f"({_interval(comparison.low, comparison.high)}, {comparison.seeds} seeds): {comparison.answer}"
    ).capitalize()


def _interval(low: float | None, high: float | None) -> str:
    return "unbounded" if low is None or high is None else f"{low:+.1%} to {high:+.1%}"
