"""A page of a simulated fabric: completion times, queues over time, link loads, predicted loss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.report.figure import (
    LOSS_FLOOR,
    Figure,
    Part,
    axis,
    drawn_loss,
    power_axis,
    scatter,
    significant,
)
from mltswitch.report.legend import line, mark
from mltswitch.report.page import render_page
from mltswitch.report.palette import BLUE, GREEN, GREY, PURPLE, VERMILLION
from mltswitch.report.sections import Block, Section
from mltswitch.report.tables import Table
from mltswitch.units import format_bytes, format_ratio, format_seconds

COLOURS: Final = (VERMILLION, BLUE, GREEN, PURPLE, GREY)
STYLES: Final = tuple((colour, dash) for dash in ("solid", "dash", "dot", "dashdot") for colour in COLOURS)
"""Colour and dash of each curve."""
NOWHERE: Final = np.zeros(0, int)
LOSS_COLUMNS: Final = (
    "unimportant, predicted",
    "unimportant, simulated",
    "important, predicted",
    "important, simulated",
)
MOST_POINTS: Final = 400
"""Of one curve of completion times."""
BUSIEST_LINKS: Final = 10
"""How many links a table lists, the fullest first."""
QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)

Losses = tuple[str, float | None, float | None, float | None, float | None]
"""A class; its loss of unimportant packets, predicted and simulated, and that of important ones (None: no
packet was sent)."""


@dataclass(frozen=True, slots=True)
class SimulatedPlay:
    """All runs of one transport; queues, links and losses are of its first seed."""

    transport: str
    completion_seconds: NDArray[Any]
    """Completion times of all flows that ended, in seconds, in rising order."""
    times_seconds: NDArray[Any]
    """When queues were looked at."""
    depths_bytes: Mapping[str, NDArray[Any]]
    """Bytes that wait at each of the busiest ports at these times."""
    link_loads: Mapping[str, float]
    losses: tuple[Losses, ...]
    seeds: tuple[str, ...]


def simulation_report(title: str, version: str, plays: Sequence[SimulatedPlay]) -> str:
    """The page; raises MachineError without plotly."""
    head = {
        "Transports": ", ".join(play.transport for play in plays),
        "Seeds": ", ".join(dict.fromkeys(seed for play in plays for seed in play.seeds)),
        "Figures": "simulated, but for those that say predicted",
        "Tool": f"mltswitch {version}",
    }
    sections = [
        _completions(plays),
        *(_queues(number, play) for number, play in enumerate(plays) if play.depths_bytes),
        _loads(plays),
        *(_losses(number, play) for number, play in enumerate(plays) if play.losses),
    ]
    return render_page(title, head.items(), sections)


def _curve(xs: Any, ys: Any, style: tuple[str, str], shape: str = "linear") -> Part:
    line = {"color": style[0], "dash": style[1], "shape": shape, "width": 2.2}
    return scatter("lines", map(significant, xs), map(significant, ys), line=line)


def _distributions(
    name: str, title: str, x: Part, values: Mapping[str, NDArray[Any]], text: str, table: Table
) -> Section:
    """A section of cumulative distributions, a curve for each transport, thinned out to MOST_POINTS."""
    curves, legend = [], []
    for (of, each), style in zip(values.items(), STYLES, strict=False):
        places = np.unique(np.linspace(0, len(each) - 1, MOST_POINTS).astype(int)) if len(each) else NOWHERE
        curves.append(_curve(each[places], (places + 1) / max(len(each), 1), style, "hv"))
        legend.append(line(style[0], of, is_dashed=style[1] != "solid"))
    label = f"Cumulative distribution by transport: {title}."
    axes = {"xaxis": x, "yaxis": axis("share", range=[0, 1.02])}
    picture = Figure(name, title, label, tuple(curves), axes)
    return Section(title, text, (Block("", (picture,), (table,), is_wide=True),), tuple(legend))


def _completions(plays: Sequence[SimulatedPlay]) -> Section:
    rows = tuple(
        (play.transport, *(format_seconds(each) for each in np.quantile(play.completion_seconds, QUANTILES)))
        for play in plays
        if len(play.completion_seconds)
    )
    return _distributions(
        "completions",
        "Completion times of flows",
        axis("completion time [s]", type="log"),
        {play.transport: play.completion_seconds for play in plays},
        "All flows that were complete at the end, of all seeds.",
        Table("Completion times", ("transport", "median", "p90", "p99", "max"), rows, is_open=True),
    )


def _loads(plays: Sequence[SimulatedPlay]) -> Section:
    rows = tuple(
        (f"{play.transport}: {port}", f"{load:.1%}")
        for play in plays
        for port, load in sorted(play.link_loads.items(), key=lambda each: (-each[1], each[0]))[
            :BUSIEST_LINKS
        ]
    )
    return _distributions(
        "loads",
        "Load of the links that switches send on",
        axis("load", range=[0, 1.02]),
        {play.transport: np.sort(np.array(list(play.link_loads.values()), float)) for play in plays},
        "Bytes sent over those that the link could have sent until the run's end, of the first seed.",
        Table("Busiest links", ("sending port", "load"), rows),
    )


def _queues(number: int, play: SimulatedPlay) -> Section:
    styled = list(zip(play.depths_bytes.items(), STYLES, strict=False))
    picture = Figure(
        f"queues-{number}",
        "Bytes that wait at the busiest ports",
        f"Bytes that wait at the ports with the longest queues over simulated time, {play.transport}.",
        tuple(_curve(1e3 * play.times_seconds, depths, style) for (_, depths), style in styled),
        {"xaxis": axis("time [ms]", rangemode="tozero"), "yaxis": axis("waiting [B]", rangemode="tozero")},
    )
    rows = tuple((port, format_bytes(int(depths.max()))) for port, depths in play.depths_bytes.items())
    text = f"Sampled {len(play.times_seconds)} times, of seed {play.seeds[0]}; in between they can be longer."
    legend = tuple(line(colour, port, is_dashed=dash != "solid") for (port, _), (colour, dash) in styled)
    table = Table("Longest sampled queues", ("port", "longest"), rows)
    return Section(
        f"Queues, {play.transport}", text, (Block("", (picture,), (table,), is_wide=True),), legend
    )


def _losses(number: int, play: SimulatedPlay) -> Section:
    traces, legend = [], []
    for column, title in enumerate(LOSS_COLUMNS):
        colour = VERMILLION if column % 2 else GREY
        symbol, is_filled = ("diamond", "circle")[column % 2 == 0], column > 1
        legend.append(mark(symbol, colour, title, is_filled=is_filled))
        marker = {"color": colour, "symbol": symbol if is_filled else f"{symbol}-open", "size": 10}
        shown = [
            (drawn_loss(loss), name) for name, *each in play.losses if (loss := each[column]) is not None
        ]
        traces.append(scatter("markers", (x for x, _ in shown), (name for _, name in shown), marker=marker))
    x = power_axis("loss", round(np.log10(LOSS_FLOOR)))
    picture = Figure(
        f"losses-{number}",
        "Loss from end to end by class",
        f"Predicted and simulated loss of each class over a logarithmic axis, {play.transport}.",
        tuple(traces),
        {"xaxis": x, "yaxis": axis("", type="category", autorange="reversed")},
    )
    rows = tuple(
        (name, *("-" if loss is None else format_ratio(loss) for loss in each)) for name, *each in play.losses
    )
    table = Table("Losses", ("class", *LOSS_COLUMNS), rows, is_open=True)
    text = "Predictions are for the plan's load, the simulation is of this scenario's first seed."
    title = f"The plan's predictions, {play.transport}"
    return Section(title, text, (Block("", (picture,), (table,)),), tuple(legend))
