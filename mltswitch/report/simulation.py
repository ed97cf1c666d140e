"""A page of a simulated fabric: completion times, queues over time, link loads, predicted loss."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
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
from mltswitch.report.legend import LegendEntry, line, mark
from mltswitch.report.page import render_page
from mltswitch.report.palette import BLUE, GREEN, GREY, PURPLE, VERMILLION
from mltswitch.report.sections import Block, Section
from mltswitch.report.tables import Table
from mltswitch.units import format_bytes, format_ratio, format_seconds

COLOURS: Final = (VERMILLION, BLUE, GREEN, PURPLE, GREY)
DASHES: Final = ("solid", "dash", "dot", "dashdot")
MOST_POINTS: Final = 400
"""Of one curve of completion times."""
BUSIEST_LINKS: Final = 10
"""Of a table."""
QUANTILES: Final = (0.5, 0.9, 0.99, 1.0)

Losses = tuple[str, float | None, float | None, float | None, float | None]
"""A class; its loss of unimportant packets, predicted and simulated, and that of important ones (None: no
packet was sent)."""


@dataclass(frozen=True, slots=True)
class SimulatedPlay:
    """All runs of one transport; queues, links and losses are of its first seed."""

    transport: str
    completion_seconds: NDArray[Any]
    """In rising order."""
    times_seconds: NDArray[Any]
    """When queues were looked at."""
    depths_bytes: Mapping[str, NDArray[Any]]
    """Bytes that wait at each of the busiest ports at these times."""
    link_loads: Mapping[str, float]
    losses: tuple[Losses, ...]
    seeds: tuple[str, ...]


def simulation_report(title: str, version: str, plays: Sequence[SimulatedPlay]) -> str:
    """The page; raises MachineError without plotly."""
    styles = [
        (COLOURS[at % len(COLOURS)], DASHES[at // len(COLOURS) % len(DASHES)]) for at in range(len(plays))
    ]
    seeds = dict.fromkeys(seed for play in plays for seed in play.seeds)
    head = {
        "Transports": ", ".join(play.transport for play in plays),
        "Seeds": ", ".join(seeds),
        "Figures": "simulated, but for those that say predicted",
        "Tool": f"mltswitch {version}",
    }
    sections = [_completions(plays, styles), _loads(plays, styles)]
    sections[1:1] = [_queues(number, play) for number, play in enumerate(plays) if play.depths_bytes]
    sections += [_losses(number, play) for number, play in enumerate(plays) if play.losses]
    return render_page(title, head.items(), sections)


def _legend(plays: Sequence[SimulatedPlay], styles: Sequence[tuple[str, str]]) -> tuple[LegendEntry, ...]:
    return tuple(
        line(colour, play.transport, is_dashed=dash != "solid")
        for play, (colour, dash) in zip(plays, styles, strict=True)
    )


def _curve(xs: Any, ys: Any, colour: str, dash: str, shape: str = "linear") -> Part:
    style = {"color": colour, "dash": dash, "shape": shape, "width": 2.2}
    return scatter("lines", map(significant, xs), map(significant, ys), line=style)


def _distribution(values: NDArray[Any], colour: str, dash: str) -> Part:
    """The share of values that are at most so large, thinned out to MOST_POINTS; the last one stays."""
    if not len(values):
        return _curve((), (), colour, dash)
    places = np.unique(np.linspace(0, len(values) - 1, MOST_POINTS).astype(int))
    return _curve(values[places], (places + 1) / len(values), colour, dash, "hv")


def _completions(plays: Sequence[SimulatedPlay], styles: Sequence[tuple[str, str]]) -> Section:
    curves = tuple(
        _distribution(play.completion_seconds, *style) for play, style in zip(plays, styles, strict=True)
    )
    picture = Figure(
        "completions",
        "Completion times of flows",
        "Share of flows of each transport that were complete after at most so long, over a logarithmic axis.",
        curves,
        {"xaxis": axis("completion time [s]", type="log"), "yaxis": axis("share of flows", range=[0, 1.02])},
    )
    rows = tuple(
        (play.transport, *(format_seconds(each) for each in np.quantile(play.completion_seconds, QUANTILES)))
        for play in plays
        if len(play.completion_seconds)
    )
    table = Table("Completion times", ("transport", "median", "p90", "p99", "max"), rows, is_open=True)
    text = "All flows that were complete at the end, of all seeds."
    return Section(
        "Completion times", text, (Block("", (picture,), (table,), is_wide=True),), _legend(plays, styles)
    )


def _queues(number: int, play: SimulatedPlay) -> Section:
    ports = list(zip(play.depths_bytes, cycle(COLOURS), strict=False))
    picture = Figure(
        f"queues-{number}",
        "Bytes that wait at the busiest ports",
        f"Bytes that wait at the ports with the longest queues over simulated time, {play.transport}.",
        tuple(
            _curve(1e3 * play.times_seconds, play.depths_bytes[port], colour, dash)
            for (port, colour), dash in zip(ports, cycle(DASHES), strict=False)
        ),
        {"xaxis": axis("time [ms]", rangemode="tozero"), "yaxis": axis("waiting [B]", rangemode="tozero")},
    )
    rows = tuple((port, format_bytes(int(depths.max()))) for port, depths in play.depths_bytes.items())
    text = f"Sampled {len(play.times_seconds)} times, of seed {play.seeds[0]}; in between they can be longer."
    legend = tuple(line(colour, port) for port, colour in ports)
    table = Table("Longest sampled queues", ("port", "longest"), rows)
    return Section(
        f"Queues, {play.transport}", text, (Block("", (picture,), (table,), is_wide=True),), legend
    )


def _loads(plays: Sequence[SimulatedPlay], styles: Sequence[tuple[str, str]]) -> Section:
    loads = [np.sort(np.array(list(play.link_loads.values()), float)) for play in plays]
    picture = Figure(
        "loads",
        "Load of the links that switches send on",
        "Share of links of each transport that were loaded at most so much.",
        tuple(_distribution(each, *style) for each, style in zip(loads, styles, strict=True)),
        {"xaxis": axis("load", range=[0, 1.02]), "yaxis": axis("share of links", range=[0, 1.02])},
    )
    rows = tuple(
        (f"{play.transport}: {port}", f"{load:.1%}")
        for play in plays
        for port, load in sorted(play.link_loads.items(), key=lambda each: (-each[1], each[0]))[
            :BUSIEST_LINKS
        ]
    )
    table = Table("Busiest links", ("sending port", "load"), rows)
    text = "Bytes sent over those that the link could have sent until the run's end, of the first seed."
    return Section("Link load", text, (Block("", (picture,), (table,)),), _legend(plays, styles))


def _losses(number: int, play: SimulatedPlay) -> Section:
    def points(column: int, colour: str, symbol: str) -> Iterator[Part]:
        shown = [
            (drawn_loss(loss), name) for name, *losses in play.losses if (loss := losses[column]) is not None
        ]
        if shown:
            xs, names = zip(*shown, strict=True)
            yield scatter("markers", xs, names, marker={"color": colour, "symbol": symbol, "size": 10})

    styles = (GREY, "circle-open"), (VERMILLION, "diamond-open"), (GREY, "circle"), (VERMILLION, "diamond")
    picture = Figure(
        f"losses-{number}",
        "Loss from end to end by class",
        f"Predicted and simulated loss of each class over a logarithmic axis, {play.transport}.",
        tuple(part for column, style in enumerate(styles) for part in points(column, *style)),
        {
            "xaxis": power_axis("loss", round(np.log10(LOSS_FLOOR))),
            "yaxis": axis("", type="category", autorange="reversed"),
        },
    )
    rows = tuple(
        (name, *("-" if loss is None else format_ratio(loss) for loss in losses))
        for name, *losses in play.losses
    )
    columns = ("class", "unimportant, predicted", "simulated", "important, predicted", "simulated")
    legend = (
        mark("circle", GREY, "predicted by the plan, important", is_filled=True),
        mark("circle", GREY, "predicted, unimportant", is_filled=False),
        mark("diamond", VERMILLION, "simulated, important", is_filled=True),
        mark("diamond", VERMILLION, "simulated, unimportant", is_filled=False),
    )
    text = "Predictions are for the plan's load, the simulation is of this scenario's first seed."
    return Section(
        f"The plan's predictions, {play.transport}",
        text,
        (Block("", (picture,), (Table("Losses", columns, rows, is_open=True),)),),
        legend,
    )
