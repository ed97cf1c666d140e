"""Colours of the page and of its pictures, in light and in dark.

Data keeps its colour in both themes: every colour stands out from both papers by a contrast of at least 3
(WCAG 2.1, 1.4.11). Hues are Okabe and Ito's, which colour-blind readers tell apart; shape and dash say the
rest.
"""

from typing import Final

THEMES: Final = {
    "light": {
        "paper": "#ffffff",
        "panel": "#f6f7f9",
        "ink": "#1b1f24",
        "muted": "#57606a",
        "grid": "#d8dde3",
    },
    "dark": {"paper": "#14171c", "panel": "#1c2027", "ink": "#e8eaed", "muted": "#9aa4af", "grid": "#363d47"},
}
"""Colours of each theme, by names that pictures use as `@ink`, and the style sheet as `--ink`."""

INK: Final = "@ink"
PAPER: Final = "@paper"
GRID: Final = "@grid"
MUTED: Final = "@muted"
"""The muted text colour, which follows the theme: the page's script replaces the name."""

BLUE: Final = "#0d77b8"
VERMILLION: Final = "#d55e00"
GREEN: Final = "#00976e"
PURPLE: Final = "#b8609a"
GREY: Final = "#7d858e"
PALE_BLUE: Final = "#4f9ecf"

MODEL_COLOURS: Final = {"completion": BLUE, "paper": VERMILLION, "simulate": PURPLE}


def model_colour(model: str) -> str:
    """Colour of a loss model; grey for a model without a colour of its own."""
    return MODEL_COLOURS.get(model, GREY)


def style_variables(theme: str) -> str:
    """The theme as CSS custom properties."""
    return "".join(f"--{name}:{colour};" for name, colour in THEMES[theme].items())
