"""A picture as plotly takes it, and what all pictures have in common."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from mltswitch.report.palette import GRID, INK, MUTED

Part = dict[str, Any]
"""A part of a plotly figure as a dict: a trace, an axis, a shape or an annotation, named as in plotly's
reference."""

LOSS_FLOOR: Final = 1e-7
"""Loss ratio at which smaller losses are drawn."""
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture; colours may be names of the theme, such as `@ink`."""

    name: str
    """The figure's HTML id in the page."""
    title: str
    label: str
    """Text alternative for readers who cannot see the picture."""
    traces: tuple[Part, ...]
    axes: dict[str, Part]
    """The figure's axes by name, `xaxis` and `yaxis`."""
    height_pixels: int = 290
    layout: Part = field(default_factory=dict)
    """Layout options that differ from the common layout."""

    def document(self) -> Part:
        """The figure as plotly takes it: a dict with `data` and `layout`."""
        layout: Part = {
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": INK, "size": 12, "family": "system-ui, sans-serif"},
            "hoverlabel": {"font": {"family": "system-ui, sans-serif"}},
            "showlegend": False,
            "margin": {"l": 62, "r": 14, "t": 22, "b": 46},
            "height": self.height_pixels,
            "shapes": [],
            "annotations": [],
        }
        return {"data": list(self.traces), "layout": layout | self.axes | self.layout}


def scatter(mode: str, x: Iterable[Any], y: Iterable[Any], **more: object) -> Part:
    """A trace of lines, markers or texts."""
    return {"type": "scatter", "mode": mode, "x": list(x), "y": list(y), **more}


def bars(names: Iterable[str], sizes: Iterable[float], colour: str | list[str], **more: object) -> Part:
    """A trace of horizontal bars."""
    bar = {"type": "bar", "orientation": "h", "y": list(names), "x": list(sizes)}
    return {**bar, "marker": {"color": colour}, **more}


def axis(title: str, **more: object) -> Part:
    """An axis with the grid style of all pictures."""
    common = {"gridcolor": GRID, "linecolor": MUTED, "zerolinecolor": GRID, "automargin": True}
    return common | {"title": {"text": title, "standoff": 8}} | more


def power_axis(title: str, first: int, **more: object) -> Part:
    """A logarithmic axis from a power of ten to 1; smaller values are drawn at its lower end."""
    powers = range(first, 1)
    labels = ["≤ " * (power == first) + power_of_ten(power) for power in powers]
    return axis(title, type="log", tickvals=[10.0**power for power in powers], ticktext=labels, **more)


def power_of_ten(exponent: int) -> str:
    """A power of ten as text, such as `10⁻³`, or 1 for the exponent 0."""
    return "1" if exponent == 0 else "10" + str(exponent).translate(_SUPERSCRIPTS)


def drawn_loss(loss: float) -> float:
    """The value at which a loss is drawn on a logarithmic axis, at least LOSS_FLOOR."""
    return significant(max(loss, LOSS_FLOOR))


def significant(value: float, digits: int = 5) -> float:
    """A figure rounded to the digits that a picture shows, the same on every machine."""
    return float(f"{value:.{digits}g}")


def with_lines(*lines: tuple[Part, Part]) -> Part:
    """Layout entries of a picture for these lines and their labels."""
    return {"shapes": [line for line, _ in lines], "annotations": [label for _, label in lines]}


def vertical_line(at: float, text: str, *, at_log: float | None = None) -> tuple[Part, Part]:
    """A line over the whole height and its label; `at_log`: where the label stands on a logarithmic axis."""
    ends = {"x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1}
    place = {"x": at if at_log is None else at_log, "yref": "paper", "y": 1}
    return _line(ends, {"color": INK, "width": 1}), _label(place, text, {"size": 11})


def horizontal_line(at: float, text: str, *, at_log: float) -> tuple[Part, Part]:
    """A dotted line over the whole width and its label; `at_log` is the label's position on the logarithmic
    axis."""
    ends = {"xref": "paper", "x0": 0, "x1": 1, "y0": at, "y1": at}
    place = {"xref": "paper", "x": 0, "xanchor": "left", "y": at_log}
    line = _line(ends, {"color": MUTED, "width": 1.2, "dash": "dot"})
    return line, _label(place, text, {"size": 10, "color": MUTED})


def _line(ends: Part, style: Part) -> Part:
    return {"type": "line", "layer": "between", **ends, "line": style}


def _label(place: Part, text: str, font: Part) -> Part:
    return {**place, "yanchor": "bottom", "text": text, "showarrow": False, "font": font}
