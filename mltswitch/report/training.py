"""A page of measured trainings, case by case: a ladder of methods, or accuracy over time and step times."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from mltswitch.report.figure import Figure, Part, axis, bars, scatter, significant
from mltswitch.report.legend import line
from mltswitch.report.page import render_page
from mltswitch.report.palette import BLUE, GREEN, GREY, MUTED, PURPLE, VERMILLION
from mltswitch.report.sections import Block, Section
from mltswitch.report.tables import Table

COLOURS: Final = (VERMILLION, BLUE, GREEN, PURPLE, GREY)
VERDICTS: Final = {"gloo": GREY, "pays": GREEN, "costs": VERMILLION, "": BLUE}
MEANINGS: Final = {
    "gloo": "gloo",
    "pays": "pays",
    "costs": "costs",
    "": "no clear difference to the rung before",
}
BAR_PIXELS: Final = 26


@dataclass(frozen=True, slots=True)
class Training:
    """The measurements of one training by one method."""

    method: str
    step_seconds: Sequence[float]
    accuracies: Sequence[tuple[float, float]]
    """Seconds of training, and accuracy after them."""
    figures: tuple[str, ...]
    """The training's cells in the table, after that of its method."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One method of a ladder, in which each method adds one feature to those before it."""

    name: str
    seconds: float
    verdict: str
    """How the method compares with the rung before it: a key of VERDICTS such as `pays` or `gloo`."""


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """Trainings by several methods in the same network."""

    title: str
    text: str
    trainings: tuple[Training, ...]
    ladder: tuple[Rung, ...] = ()
    """The methods from the first rung to the last one; empty where the trainings are no ladder."""


def training_report(
    title: str, head: Iterable[tuple[str, str]], columns: tuple[str, ...], cases: Iterable[TrainingCase]
) -> str:
    """The page of measured trainings; `columns` of its tables follow the method's. Raises MachineError
    without plotly."""
    return render_page(title, head, [_section(case, number, columns) for number, case in enumerate(cases)])


def _section(case: TrainingCase, number: int, columns: tuple[str, ...]) -> Section:
    coloured = [*zip(case.trainings, cycle(COLOURS))]
    accuracy = Figure(
        f"accuracy-{number}",
        "Accuracy over training time",
        "Accuracy of each method against seconds of training.",
        tuple(_curve(*_columns(each.accuracies), colour, "linear") for each, colour in coloured),
        {"xaxis": axis("training time [s]", rangemode="tozero"), "yaxis": axis("accuracy", range=[0, 1.02])},
    )
    steps = Figure(
        f"steps-{number}",
        "Step times",
        "Share of steps that took at most so long, by method.",
        tuple(_distribution(each.step_seconds, colour) for each, colour in coloured),
        {"xaxis": axis("step [ms]", rangemode="tozero"), "yaxis": axis("share of steps", range=[0, 1.02])},
    )
    rows = tuple((each.method, *each.figures) for each in case.trainings)
    table = Table(f"{case.title}, measured", ("method", *columns), rows, is_open=True)
    legend = tuple(line(colour, each.method) for each, colour in coloured)
    if not case.ladder:
        return Section(case.title, case.text, (Block("", (accuracy, steps), (table,)),), legend)
    verdicts = {each.verdict for each in case.ladder}
    legend = tuple(line(VERDICTS[each], MEANINGS[each]) for each in VERDICTS if each in verdicts)
    return Section(case.title, case.text, (Block("", (_ladder(case.ladder, number),), (table,)),), legend)


def _ladder(ladder: tuple[Rung, ...], number: int) -> Figure:
    steps = bars(
        [each.name for each in ladder],
        [significant(1e3 * each.seconds) for each in ladder],
        [VERDICTS[each.verdict] for each in ladder],
        hovertemplate="%{y}: %{x} ms<extra></extra>",
    )
    best = min(each.seconds for each in ladder if each.verdict == "gloo")
    shape: Part = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": 1e3 * best, "x1": 1e3 * best}
    return Figure(
        f"ladder-{number}",
        "The ladder: mean step, and gloo's better topology as a line",
        "Mean step of each rung, from gloo to all parts of MLT together.",
        (steps,),
        {"xaxis": axis("step [ms]", rangemode="tozero"), "yaxis": axis("", autorange="reversed")},
        height_pixels=70 + BAR_PIXELS * len(ladder),
        layout={"bargap": 0.3, "shapes": [{**shape, "line": {"color": MUTED, "dash": "dot"}}]},
    )


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _distribution(step_seconds: Sequence[float], colour: str) -> Part:
    ordered = sorted(step_seconds)
    shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
    return _curve([1e3 * seconds for seconds in ordered], shares, colour, "hv")


def _curve(xs: Sequence[float], ys: Sequence[float], colour: str, shape: str) -> Part:
    line = {"color": colour, "shape": shape, "width": 2.2}
    return scatter("lines", map(significant, xs), map(significant, ys), line=line)
