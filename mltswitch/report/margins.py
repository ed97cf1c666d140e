"""Pictures of the operating point: its place on the sensitivity curves, and how far load and burst size can
move."""

from collections.abc import Sequence
from math import log10
from typing import Final

from mltswitch.plan import PathPrediction, Plan, TrafficClass
from mltswitch.report.figure import (
    Figure,
    Part,
    axis,
    power_axis,
    scatter,
    significant,
    vertical_line,
    with_lines,
)
from mltswitch.report.headroom import Bound, Headroom, loss_of
from mltswitch.report.losses import AXIS_TITLES, class_title
from mltswitch.report.palette import BLUE, INK, VERMILLION, model_colour
from mltswitch.report.sweep import SIMULATE, Axis, origin

PERCENT: Final = 100.0
SENSITIVITY_FLOOR: Final = 1e-6
CURVE_POINTS: Final = 160
ROW_PIXELS: Final = 26


def sensitivity_figures(plan: Plan, bounds: tuple[Bound, ...]) -> tuple[Figure, ...]:
    """Pictures of extra rounds against loss, one for each gradient class."""
    predictions = {entry.traffic_class: entry for entry in plan.end_to_end}
    return tuple(
        _sensitivity(plan, entry, bounds, predictions[entry.name]) for entry in plan.gradient_classes
    )


def _sensitivity(
    plan: Plan, entry: TrafficClass, bounds: Sequence[Bound], prediction: PathPrediction
) -> Figure:
    curves = [
        (bound, loss_of(prediction, bound.is_important))
        for bound in bounds
        if bound.traffic_class == entry.name
    ]
    interesting = [SENSITIVITY_FLOOR * 10]
    for bound, loss in curves:
        interesting += [3 * (bound.tolerance or bound.curve.loss_ratios[1]), 1.5 * loss]
    start, end = log10(SENSITIVITY_FLOOR), log10(min(1.0, max(interesting)))
    steps = [start + (end - start) * step / (CURVE_POINTS - 1) for step in range(CURVE_POINTS)]
    losses = [significant(10**step) for step in steps]
    traces = [_line(bound, losses) for bound, _ in curves]
    traces += [_operating_point(plan, bound, loss) for bound, loss in curves]
    return Figure(
        f"sensitivity-{entry.name}",
        class_title(entry),
        f"Extra training rounds against end-to-end loss of {entry.name}. Operating point: "
        f"{prediction.extra_rounds * PERCENT:.3g} % extra rounds, {origin(plan.provenance.queueing_model)}.",
        tuple(traces),
        {
            "xaxis": power_axis("end-to-end loss ratio", int(start), range=[start - 0.1, end]),
            "yaxis": axis("extra rounds [%]", rangemode="tozero"),
        },
    )


def _line(bound: Bound, losses: Sequence[float]) -> Part:
    return scatter(
        "lines",
        losses,
        [significant(PERCENT * float(rounds)) for rounds in bound.curve(losses)],
        name=bound.importance,
        line={"color": INK, "dash": "solid" if bound.is_important else "dash", "width": 2},
        hovertemplate=f"{bound.importance}<br>loss %{{x:.3g}}: %{{y:.3g}} % extra rounds<extra></extra>",
    )


def _operating_point(plan: Plan, bound: Bound, loss: float) -> Part:
    kind, model = bound.importance, plan.provenance.queueing_model
    return scatter(
        "markers",
        [significant(max(loss, SENSITIVITY_FLOOR))],
        [significant(PERCENT * float(bound.curve(loss)))],
        name=f"operating point, {kind}",
        marker={
            "color": model_colour(model),
            "symbol": "circle" if bound.is_important else "circle-open",
            "size": 9 if bound.is_important else 13,
            "opacity": 1,
            "line": {"width": 2.4, "color": model_colour(model)},
        },
        cliponaxis=False,
        hovertemplate=f"{kind}, {origin(model)}<br>loss {loss:.3g}: %{{y:.3g}} % extra rounds<extra></extra>",
    )


def headroom_figure(found: Sequence[Headroom], axis_kind: Axis, model: str, name: str) -> Figure:
    """Picture of the range from the planned value to where the bound breaks, with a row per class and
    importance."""
    rows = [_row(entry, origin(model)) for entry in found]
    simulated = [entry for entry in found if model != SIMULATE and entry.simulated_break is not None]
    planned, (first, last) = found[0].planned, found[0].swept
    is_log = axis_kind == "burst_packets"
    edges = (
        {"type": "log", "range": [log10(first) - 0.05, log10(last) + 0.08]}
        if is_log
        else {"range": [first - 0.03, last + 0.04]}
    )
    ticks = {"tickvals": [2**power for power in range(11)]} if is_log else {}
    line = vertical_line(planned, "planned", at_log=log10(planned) if is_log else None)
    spoken = "; ".join(f"{row_name(entry)}: {break_text(entry)}" for entry in found)
    return Figure(
        name,
        "Load" if axis_kind == "load" else "Burst size",
        f"Headroom against {AXIS_TITLES[axis_kind]}, {origin(model)}, planned at {planned:g}. {spoken}.",
        (*rows, *([_simulated_breaks(simulated)] if simulated else [])),
        {
            "xaxis": axis(AXIS_TITLES[axis_kind], **edges, **ticks),
            "yaxis": axis("", autorange="reversed", type="category"),
        },
        height_pixels=80 + ROW_PIXELS * len(rows),
        layout=with_lines(line),
    )


def _simulated_breaks(found: Sequence[Headroom]) -> Part:
    return scatter(
        "markers",
        [entry.simulated_break for entry in found],
        map(row_name, found),
        name="simulated",
        marker={"color": model_colour(SIMULATE), "symbol": "diamond", "size": 10, "opacity": 1},
        cliponaxis=False,
        hovertemplate="%{y}<br>first simulated point above the bound: %{x:.4g}<extra></extra>",
    )


def row_name(entry: Headroom) -> str:
    """Label of a headroom's row, such as `gradient-0, important`."""
    return f"{entry.bound.traffic_class}, {entry.bound.importance}"


def break_text(entry: Headroom) -> str:
    """Text that says where the bound of a headroom breaks."""
    if entry.bound.tolerance == 0:
        return "no loss is tolerated without extra rounds"
    if entry.breaks_at is None:
        return f"holds up to {entry.swept[1]:g}, the end of the sweep"
    if entry.breaks_at <= entry.swept[0]:
        return f"broken at {entry.swept[0]:g} already"
    return f"breaks at {entry.breaks_at:.3g}"


def _row(entry: Headroom, how: str) -> Part:
    end = entry.swept[1] if entry.breaks_at is None else entry.breaks_at
    colour = BLUE if entry.holds else VERMILLION
    symbol = "arrow-right" if entry.breaks_at is None else "line-ns" if entry.holds else "x-thin"
    marker = {"symbol": ["circle", symbol], "size": [1, 13], "opacity": 1}
    return scatter(
        "lines+markers",
        [significant(entry.planned), significant(end)],
        [row_name(entry)] * 2,
        name=row_name(entry),
        line={"color": colour, "width": 7 if entry.bound.is_important else 4},
        marker={**marker, "color": colour, "line": {"color": colour, "width": 3}},
        cliponaxis=False,
        hovertemplate=f"{row_name(entry)}<br>{break_text(entry)} ({how})<extra></extra>",
    )
