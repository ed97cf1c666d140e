"""`mltswitch profile measure`: how much gradient loss a training tolerates, as a profile."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from mltswitch.app.tolerance import measured_profile
from mltswitch.cli.command import argument, command, option
from mltswitch.cli.options import Cells, Checked, NumberRange, numbers, output_file
from mltswitch.cli.output import Answer, progress, table
from mltswitch.training.tolerance import Comparison, Measurement, Point, Settings


def _seeds(text: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    if not (least.isdecimal() and most.isdecimal() and 2 <= int(least) <= int(most) <= 1000):
        raise ValueError(f"{text!r} is not such as 5:20, from 2 to 1000.")
    return int(least), int(most)


@command(
    "mltswitch profile measure digits --ratio 0.05,0.1,0.2,0.5 --groups 2 -o measured.yaml",
    "mltswitch profile measure mypackage.train:make_task --seeds 5:40 -o measured.yaml",
    "mltswitch profile measure textures --dask tcp://10.0.0.1:8786 -o measured.yaml --json",
)
def measure(
    *,
    task: str = argument("TASK|PACKAGE.MODULE:FACTORY"),
    ratios: tuple[float, ...] = option(
        "Loss ratios; 0.05,0.1,0.2,0.5", numbers(0.0001, 1), "--ratio", default=(0.05, 0.1, 0.2, 0.5)
    ),
    groups: int = option("Ranges of layers, front to back; 2.", click.IntRange(1, 64), default=2),
    seeds: tuple[int, int] = option(
        "Pairs of trainings a point, least:most; 5:20.", Checked("least:most", _seeds), default=(5, 20)
    ),
    tolerance: float = option("Extra rounds that count as none; 0.05.", NumberRange(0, 1), default=0.05),
    target: float | None = option("Of the metric; the task's own by default.", float),
    ranks: int | None = option("Virtual ranks; the task's own by default.", click.IntRange(1, 256)),
    computed: Cells,
    output: Path = output_file("The profile.", required=True),
) -> Answer:
    """Measure what lost gradients cost a training.

    The extra rounds that they cost are written as its profile. TASK is digits, digits-finetune or textures;
    or FACTORY() returns a mltswitch.training.tolerance.TrainingTask. Finished trainings are kept beside
    OUTPUT; the same command goes on where an earlier one was stopped, also with more seeds, ratios or groups.
    """
    settings = Settings(task, groups, tuple(sorted(ratios)), *seeds, tolerance, target, ranks)
    journal, found = measured_profile(settings, output, computed.computing())
    if found.not_finite:
        progress(
            f"warning: {found.not_finite} of {found.trainings} trainings met a gradient that is not finite; "
            "they count as given up"
        )
    head = {"kind": "measured", "task": task, "output": output, "journal": journal, "tolerance": tolerance}
    names = ("lossless_rounds", "trainings", "not_finite", "points", "bounds", "comparisons")
    return Answer(head | {name: getattr(found, name) for name in names}, _text(settings, found, output))


def _text(settings: Settings, found: Measurement, output: Path) -> Iterator[RenderableType]:
    yield table(
        f"Extra rounds, measured: {settings.task}, {found.lossless_rounds:g} rounds without loss",
        "layers | packets | loss ratio [%] | seeds # | extra rounds [%] | 95 % interval | "
        f"within {settings.tolerance:.0%} | given up # | predicted by sum [%]",
        map(_row, found.points),
    )
    yield from (Text(_compared(each)) for each in found.comparisons)
    for bound in found.bounds:
        beyond = "no measured ratio" if bound.refused is None else f"{bound.refused:.2%}"
        yield Text(
            f"Bounded-loss ratio p, {bound.importance} packets: {bound.tolerated:.2%} of all packets "
            f"tolerated, {beyond} is too much (measured)"
        )
    yield f"Written: {output}, after {found.trainings} trainings"


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
