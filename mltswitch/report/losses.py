"""Pictures of loss against load and burst size, with a line for each model and the simulator's points."""

from math import log2, log10
from typing import Final

from mltswitch.plan import Plan, Prediction, TrafficClass
from mltswitch.report.figure import (
    LOSS_FLOOR,
    Figure,
    Part,
    axis,
    drawn_loss,
    horizontal_line,
    power_axis,
    scatter,
    significant,
    vertical_line,
    with_lines,
)
from mltswitch.report.headroom import Bound, error_of, importance, loss_of
from mltswitch.report.palette import model_colour
from mltswitch.report.sweep import SIMULATE, Sweep

AXIS_TITLES: Final = {
    "load": "gradient load [bits over port rate]",
    "burst_packets": "burst size [packets]",
}
LINE_PIXELS: Final = {"completion": 1.6, "paper": 3.2}
"""Line width of each loss model; where models agree, the wider line shows behind the narrower one."""
CLOSE_BOUNDS: Final = 1.6
"""Ratio within which two bounds share a label."""


def loss_figures(plan: Plan, sweep: Sweep, bounds: tuple[Bound, ...], name: str) -> tuple[Figure, ...]:
    """Pictures of loss against one axis of a sweep, one for each gradient class."""
    return tuple(_figure(entry, sweep, bounds, name) for entry in plan.gradient_classes)


def _figure(entry: TrafficClass, sweep: Sweep, bounds: tuple[Bound, ...], name: str) -> Figure:
    traces: list[Part] = []
    for model in sorted(sweep.outcomes, key=lambda name: -LINE_PIXELS.get(name, 0.0)):
        outcomes = sweep.outcomes[model]
        points = [(at, outcome.predictions[entry.name]) for at, outcome in outcomes if outcome.predictions]
        if points and model == SIMULATE:
            traces += [_simulated(points, flag) for flag in (False, True)]
        elif points:
            traces += [_curve(model, points, flag) for flag in (False, True)]
    is_log = sweep.axis == "burst_packets"
    planned = vertical_line(sweep.planned, "planned", at_log=log10(sweep.planned) if is_log else None)
    floor = round(log10(LOSS_FLOOR))
    tolerated = _bound_lines([bound for bound in bounds if bound.traffic_class == entry.name])
    return Figure(
        f"{name}-{entry.name}",
        class_title(entry),
        f"Loss ratio of {entry.name} against {AXIS_TITLES[sweep.axis]}, predicted by each model and "
        "simulated; the numbers stand in the table below.",
        tuple(traces),
        {
            "xaxis": _burst_axis(sweep) if is_log else axis(AXIS_TITLES["load"]),
            "yaxis": power_axis("loss ratio", floor, range=[floor - 0.25, 0.15], zeroline=False),
        },
        layout=with_lines(planned, *tolerated),
    )


def class_title(entry: TrafficClass) -> str:
    """Title of a class's picture, such as `gradient-0 (layers 0 to 35)`."""
    layers = entry.layers
    return entry.name if layers is None else f"{entry.name} (layers {layers.first} to {layers.last})"


def _burst_axis(sweep: Sweep) -> Part:
    ticks = sorted({point for outcomes in sweep.outcomes.values() for point, _ in outcomes})
    powers = [tick for tick in ticks if log2(tick).is_integer()]
    return axis(
        AXIS_TITLES["burst_packets"], type="log", tickvals=powers, ticktext=[f"{tick:g}" for tick in powers]
    )


def _bound_lines(bounds: list[Bound]) -> list[tuple[Part, Part]]:
    shown = [bound for bound in bounds if LOSS_FLOOR < bound.port_loss < 1]
    if len(shown) == 2 and max(b.port_loss for b in shown) < CLOSE_BOUNDS * min(b.port_loss for b in shown):
        shown = [min(shown, key=lambda bound: bound.port_loss)]
        return [_bound_line(shown[0], "bound")]
    return [_bound_line(bound, f"bound, {bound.importance}") for bound in shown]


def _bound_line(bound: Bound, text: str) -> tuple[Part, Part]:
    return horizontal_line(bound.port_loss, text, at_log=log10(bound.port_loss))


def _curve(model: str, points: list[tuple[float, Prediction]], is_important: bool) -> Part:
    name = f"{model}, {importance(is_important)}"
    losses = [loss_of(found, is_important) for _, found in points]
    dash, width = "solid" if is_important else "dash", LINE_PIXELS.get(model, 2.0)
    return scatter(
        "lines",
        [at for at, _ in points],
        map(drawn_loss, losses),
        name=name,
        customdata=[significant(loss) for loss in losses],
        line={"color": model_colour(model), "dash": dash, "width": width},
        hovertemplate=f"{name}<br>%{{x:.4g}}: loss %{{customdata:.3g}} predicted<extra></extra>",
    )


def _simulated(points: list[tuple[float, Prediction]], is_important: bool) -> Part:
    """Points with their intervals; where nothing was lost, the upper end of the interval."""
    rows: list[tuple[float, float, float, str, str]] = []
    for _, found in points:
        loss, error = loss_of(found, is_important), error_of(found, is_important) or 0.0
        if loss == 0:
            said = f"none lost; at most {error:.2g} (95 %)"
            rows.append((drawn_loss(error), 0.0, 0.0, "triangle-down", said))
        else:
            low = significant(min(error, drawn_loss(loss) - LOSS_FLOOR))
            rows.append((drawn_loss(loss), low, significant(error), "diamond", f"{loss:.3g} ± {error:.2g}"))
    drawn, lows, highs, symbols, texts = map(list, zip(*rows, strict=True))
    kind, colour = importance(is_important), model_colour(SIMULATE)
    interval = {"type": "data", "symmetric": False, "array": highs, "arrayminus": lows}
    return scatter(
        "markers",
        [at for at, _ in points],
        drawn,
        name=f"simulated, {kind}",
        error_y={**interval, "color": colour, "thickness": 1.5, "width": 4},
        marker={
            "color": colour,
            "symbol": [symbol if is_important else f"{symbol}-open" for symbol in symbols],
            "size": 7 if is_important else 11,
            "opacity": 1,
            "line": {"width": 1.6, "color": colour},
        },
        text=texts,
        hovertemplate=f"{kind}<br>%{{x:.4g}}: loss %{{text}} simulated<extra></extra>",
    )
