"""Legends in HTML, one for all pictures of a section, so that no picture has to make room for one."""

from typing import Final

from markupsafe import Markup

from mltswitch.report.palette import BLUE, GREY, PALE_BLUE, VERMILLION, model_colour
from mltswitch.report.sweep import SIMULATE, origin

LegendEntry = tuple[Markup, str]


SHAPES: Final = {
    "circle": '<circle cx="7" cy="7" r="4.6" fill="{}" stroke="{}" stroke-width="1.8"/>',
    "diamond": '<path d="M7 1.5L12.5 7L7 12.5L1.5 7Z" fill="{}" stroke="{}" stroke-width="1.6"/>',
    "triangle": '<path d="M1.5 2.5H12.5L7 12Z" fill="{}" stroke="{}" stroke-width="1.6"/>',
    "cross": '<path d="M2 2L12 12M12 2L2 12" fill="{}" stroke="{}" stroke-width="2.6"/>',
    "end": '<path d="M7 1V13" fill="{}" stroke="{}" stroke-width="3"/>',
    "arrow": '<path d="M2 1.5L13 7L2 12.5Z" fill="{}" stroke="{}" stroke-width="1.6"/>',
}
"""SVG markers by name, with placeholders for the colours of area and edge."""


def line(colour: str, text: str, *, is_dashed: bool = False, width: float = 2.2) -> LegendEntry:
    """Legend entry of a line; the colour is one of the page or `currentColor`."""
    dash = Markup(' stroke-dasharray="6 4"') if is_dashed else ""
    form = Markup('<line x1="1" y1="7" x2="33" y2="7" stroke="{}" stroke-width="{}"{}/>')
    return _svg(34, form.format(colour, width, dash)), text


def square(colour: str, text: str) -> LegendEntry:
    """Legend entry of a filled area."""
    return _svg(14, Markup('<rect x="1" y="1" width="12" height="12" fill="{}"/>').format(colour)), text


def mark(shape: str, colour: str, text: str, *, is_filled: bool) -> LegendEntry:
    """Legend entry of a marker of this shape."""
    symbol = Markup(SHAPES[shape]).format(colour if is_filled else "none", colour)  # noqa: S704  (our text)
    return _svg(14, symbol), text


def _svg(width: int, body: Markup) -> Markup:
    return Markup('<svg width="{}" height="14" aria-hidden="true">{}</svg>').format(width, body)


def threshold_legend() -> tuple[LegendEntry, ...]:
    """Legend of the bars that show the ECN threshold S and the limit L."""
    return (
        square(BLUE, "below S: all packets are let in"),
        square(PALE_BLUE, "S to L: important packets are let in and marked, unimportant ones dropped"),
        square(GREY, "classes that do not mark, up to L"),
    )


def loss_legend(models: tuple[str, ...]) -> tuple[LegendEntry, ...]:
    """Legend of the pictures of loss against load and burst size."""
    entries = [line(model_colour(model), origin(model), width=3) for model in models if model != SIMULATE]
    entries += [
        line("currentColor", "important packets"),
        line("currentColor", "unimportant packets", is_dashed=True),
    ]
    if SIMULATE in models:
        colour = model_colour(SIMULATE)
        entries += [
            mark("diamond", colour, "simulated, important, with 95 % confidence interval", is_filled=True),
            mark("diamond", colour, "simulated, unimportant", is_filled=False),
            mark("triangle", colour, "simulated, none lost: 95 % upper bound", is_filled=True),
        ]
    return tuple(entries)


def sensitivity_legend(model: str) -> tuple[LegendEntry, ...]:
    """Legend of the sensitivity curves with the operating point."""
    colour = model_colour(model)
    return (
        line("currentColor", "important packets"),
        line("currentColor", "unimportant packets", is_dashed=True),
        mark("circle", colour, f"operating point, important ({origin(model)})", is_filled=True),
        mark("circle", colour, "operating point, unimportant", is_filled=False),
    )


def headroom_legend() -> tuple[LegendEntry, ...]:
    """Legend of the pictures of load and burst headroom."""
    return (
        line(BLUE, "important, within the bound", width=6),
        line(BLUE, "unimportant, within the bound", width=3.5),
        mark("end", BLUE, "the bound breaks here", is_filled=True),
        mark("arrow", BLUE, "holds to the end of the sweep", is_filled=True),
        mark("cross", VERMILLION, "broken at the planned point; would hold below the cross", is_filled=False),
        mark("diamond", model_colour(SIMULATE), "first simulated point above the bound", is_filled=True),
    )
