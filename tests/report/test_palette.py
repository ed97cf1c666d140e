"""Colours read on both papers."""

import pytest

from mltswitch.report import palette


def luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_black_and_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", palette.THEMES)
@pytest.mark.parametrize("colour", [*palette.MODEL_COLOURS.values(), palette.GREY, palette.BLUE])
def test_data_stands_out(theme: str, colour: str) -> None:
    for paper in ("paper", "panel"):
        assert contrast(colour, palette.THEMES[theme][paper]) >= 3


@pytest.mark.parametrize("theme", palette.THEMES)
@pytest.mark.parametrize("text", ["ink", "muted"])
def test_text_is_legible(theme: str, text: str) -> None:
    for paper in ("paper", "panel"):
        assert contrast(palette.THEMES[theme][text], palette.THEMES[theme][paper]) >= 4.5
