"""`mltswitch simulate reproduce`: figures of papers, in every reading."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType

from mltswitch.app.reproduced_network import (
    Cell,
    Compared,
    Reproduced,
    reproduced_network,
    scenarios_of,
    write_scenarios,
)
from mltswitch.cli.command import argument, command, option
from mltswitch.cli.options import FOLDER, SEED, Cells
from mltswitch.cli.output import Answer, figure, table
from mltswitch.cli.runs import COMPUTED, SIGNAL_EXIT_CODE, STATE, computing_of
from mltswitch.network.reproduction import load_reproduction
from mltswitch.units import format_seconds


@command(
    "mltswitch simulate reproduce mlt-fig14 --hosts 36",
    "mltswitch simulate reproduce mlt-fig14 --reading sliced --point googlenet --hosts 36 --json",
    "mltswitch simulate reproduce mlt-fig14 --hosts 36 --scenarios scenarios",
    name="reproduce",
)
def reproduce(
    name: str = argument("FIGURE"),
    readings: tuple[str, ...] = option(
        "A way to read what the paper leaves open; again for more. By default the first one.",
        None,
        "--reading",
        multiple=True,
    ),
    points: tuple[str, ...] = option(
        "What the figure shows beside each other, a model say; again for more. By default all.",
        None,
        "--point",
        multiple=True,
    ),
    hosts: tuple[int, ...] = option(
        "Size of the fabric; again for more. By default those of the figure: large ones take long.",
        click.IntRange(1, 100_000),
        "--hosts",
        multiple=True,
    ),
    transports: tuple[str, ...] = option(
        "Beside the paper's own; again for more. By default all of the figure.",
        None,
        "--transport",
        multiple=True,
    ),
    seeds: tuple[int, ...] = option(
        "In the place of the figure's; again for more.", SEED, "--seed", multiple=True
    ),
    scenarios: Path | None = option(
        "Write the scenarios here, to be read, changed and played by `mltswitch simulate`; play none.", FOLDER
    ),
    state: Path | None = STATE,
    computed: Cells = COMPUTED,
) -> Answer:
    """Play a figure of a paper, and compare.

    FIGURE is mlt-fig14, mlt-fig19 or mlt-fig2. What a paper leaves open is a reading of it, and each has
    its reason.
    """
    reproduction = load_reproduction(name)
    if transports:
        reproduction = reproduction.with_transports(transports)
    chosen = scenarios_of(reproduction, readings=readings, points=points, hosts=hosts, seeds=seeds)
    if scenarios is not None:
        paths = [str(path) for path in write_scenarios(reproduction, chosen, scenarios)]
        return Answer({"outputs": paths}, [f"Written: {path}" for path in paths])
    found = reproduced_network(reproduction, chosen, computing=computing_of(computed, state), state=state)
    document = {
        "figure": name,
        "source": reproduction.source,
        "missing_runs": found.missing_runs,
        "cells": found.cells,
        "compared": found.compared,
    }
    return Answer(document, _text(found), SIGNAL_EXIT_CODE + found.ended_by if found.ended_by else 0)


def _text(found: Reproduced) -> Iterator[RenderableType]:
    yield table(
        f"{found.reproduction.source} (simulated)",
        "reading | point | hosts # | transport | mean FCT # | p99 # | max # | sent/needed # | open #",
        map(_cell, found.cells),
    )
    if found.compared:
        yield table(
            f"{found.reproduction.compared}'s times over those of others less 1 (simulated), and as printed",
            "reading | point | hosts # | figure | simulated # | printed # | reproduced",
            map(_compared, found.compared),
        )
    for name in dict.fromkeys(each.case.reading for each in found.cells):
        yield f"{name}: {found.reproduction.readings[name].why}"


def _cell(each: Cell) -> tuple[object, ...]:
    case = each.case
    times = [None if value is None else format_seconds(value.mean) for value in each.times.values()]
    ratio = figure(each.sent_over_needed, ".3g")
    return case.reading, case.point, case.hosts, each.transport, *times, ratio, each.open_flows


def _compared(each: Compared) -> tuple[object, ...]:
    case = each.case
    verdict = {True: "yes", False: "no", None: "-"}[each.is_reproduced]
    return (
        case.reading,
        case.point,
        case.hosts,
        each.figure,
        _value(each.figure, each.simulated.mean, each.simulated.half_width),
        _printed(each),
        verdict,
    )


def _printed(each: Compared) -> str:
    return "-" if each.printed is None else _value(each.figure, each.printed, None)


def _value(name: str, value: float, half_width: float | None) -> str:
    """Milliseconds, or a difference in percent."""
    is_time = "_ms_" in name
    factor, unit, form = (1, "ms", ".2f") if is_time else (100, "%", "+.1f")
    error = "" if half_width is None else f" ± {factor * half_width:{form.removeprefix('+')}}"
    return f"{factor * value:{form}}{error} {unit}"
