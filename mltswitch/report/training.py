"""A page of measured trainings: accuracy over time and the distribution of step times, case by case."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from mltswitch.report.figure import Figure, Part, axis, significant
from mltswitch.report.legend import line
from mltswitch.report.page import render_page
from mltswitch.report.palette import BLUE, GREEN, GREY, PURPLE, VERMILLION
from mltswitch.report.sections import Block, Section
from mltswitch.report.tables import Table

COLOURS: Final = (VERMILLION, BLUE, GREEN, PURPLE, GREY)


@dataclass(frozen=True, slots=True)
class Training:
    """One training by one method."""

    method: str
    step_seconds: Sequence[float]
    accuracies: Sequence[tuple[float, float]]
    """Seconds of training, and accuracy after them."""
    figures: tuple[str, ...]
    """Of the table."""


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """Trainings in the same network."""

    title: str
    text: str
    trainings: tuple[Training, ...]


def training_report(
    title: str, head: Iterable[tuple[str, str]], columns: tuple[str, ...], cases: Iterable[TrainingCase]
) -> str:
    """The page; `columns` of its tables follow the method's. Raises MachineError without plotly."""
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
    return Section(case.title, case.text, (Block("", (accuracy, steps), (table,)),), legend)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _distribution(step_seconds: Sequence[float], colour: str) -> Part:
    ordered = sorted(step_seconds)
    shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
    return _curve([1e3 * seconds for seconds in ordered], shares, colour, "hv")


def _curve(xs: Sequence[float], ys: Sequence[float], colour: str, shape: str) -> Part:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [significant(x) for x in xs],
        "y": [significant(y) for y in ys],
        "line": {"color": colour, "shape": shape, "width": 2.2},
    }
