"""The page as a reader meets it, in headless Chromium (Debian's package `chromium`)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mltswitch.report.palette import THEMES
from tests.chromium import find_browser
from tests.report.browser import Look, visit
from tests.report.test_page import pictures

pytestmark = pytest.mark.browser

Visit = Callable[..., Look]


@pytest.fixture
def browse(tmp_path: Path) -> Visit:
    program = find_browser()
    if program is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")

    def open_page(page: str, **more: object) -> Look:
        return visit(program, page, tmp_path, **more)  # type: ignore[arg-type]

    return open_page


def rgb(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"


@pytest.mark.parametrize(("theme", "width"), [("light", 1200), ("dark", 500)])
def test_every_picture_draws(browse: Visit, page: str, theme: str, width: int) -> None:
    look = browse(page, is_dark=theme == "dark", width=width)
    expected = pictures(page)
    assert set(look.pictures) == set(expected)
    for name, drawn in look.pictures.items():
        shown = [trace for trace in expected[name]["data"] if any(trace["x"])]
        assert len(drawn["traces"]) >= len(shown), name
        assert sum(count > 0 for count in drawn["traces"]) >= len(shown), name
        assert drawn["marks"] > 0, name
        assert 200 < drawn["width"] <= drawn["room"] <= width, name
        assert drawn["height"] > 80, name
        assert drawn["ink"] == rgb(THEMES[theme]["ink"]), name
    assert look.paper == rgb(THEMES[theme]["paper"])
    assert look.overflow_pixels <= 0
    assert look.console == []
    assert look.requests == []
    assert look.violations == []


def test_a_request_would_be_seen(browse: Visit, small_page: str) -> None:
    image = '<img src="http://figures.example/a.png">'
    caught = browse(small_page.replace("</h1>", f"</h1>{image}", 1))
    assert caught.violations == ["http://figures.example/a.png"]
    assert caught.console != []


def test_a_picture_that_does_not_draw_would_be_seen(browse: Visit, small_page: str) -> None:
    broken = small_page.replace(
        '"use strict";\n(function', '"use strict";\nPlotly.react = function () {};\n(function', 1
    )
    assert broken != small_page
    with pytest.raises(AssertionError):
        browse(broken)
