"""The page of a simulated fabric."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mltswitch.report import SimulatedPlay, simulation_report
from mltswitch.report.simulation import MOST_POINTS
from tests.report.browser import Look
from tests.report.test_browser import browse  # noqa: F401  (a fixture)
from tests.report.test_page import own_part, pictures

TIMES = np.linspace(1e-5, 2e-3, 9000)


def play(name: str, **more: Any) -> SimulatedPlay:
    given: dict[str, Any] = {
        "completion_seconds": TIMES,
        "times_seconds": np.arange(50) * 1e-5,
        "depths_bytes": {"leaf1:port1": np.arange(50) * 100, "leaf2:port3": np.arange(50)[::-1] * 90},
        "link_loads": {f"leaf1:port{place}": place / 20 for place in range(20)},
        "losses": (("gradient-0", 1e-9, 0.0, 1e-4, 2e-4), ("gradient-1", 0.1, 0.2, 0.01, None)),
        "seeds": ("1", "2"),
    }
    return SimulatedPlay(name, **given | more)


@pytest.fixture(scope="module")
def page() -> str:
    cut_short = play("<b>newreno", completion_seconds=np.zeros(0), depths_bytes={}, losses=())
    return simulation_report("incast", "1.0", [play("mlt"), cut_short])


def test_the_page_has_all_pictures_of_what_there_is(page: str) -> None:
    assert set(pictures(page)) == {"completions", "queues-0", "loads", "losses-0"}
    assert "<b>newreno" not in own_part(page)
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', own_part(page))
    for text in ("leaf2:port3", "95.0%", "1.01 ms", "0.02 %"):
        assert text in own_part(page)


def test_curves_are_thinned_out_and_end_with_the_last_flow(page: str) -> None:
    figure = pictures(page)["completions"]
    curve, empty = figure["data"]
    assert len(curve["x"]) == MOST_POINTS
    assert (curve["x"][0], curve["x"][-1], curve["y"][-1]) == (1e-5, 2e-3, 1.0)
    half = int(np.searchsorted(curve["y"], 0.5))
    assert curve["x"][half] == pytest.approx(np.median(TIMES), rel=0.01)
    assert curve["y"] == sorted(curve["y"])
    assert empty["x"] == []
    assert figure["layout"]["xaxis"]["type"] == "log"
    assert curve["line"]["color"] != empty["line"]["color"]


def test_losses_stand_side_by_side(page: str) -> None:
    predicted_unimportant, simulated_unimportant, _, simulated_important = pictures(page)["losses-0"]["data"]
    assert predicted_unimportant["x"] == [1e-7, 0.1]  # drawn at the lower end of the axis
    assert simulated_unimportant["x"] == [1e-7, 0.2]
    assert simulated_important["y"] == ["gradient-0"]  # of the other class nothing important was sent


@pytest.mark.browser
@pytest.mark.parametrize("width", [1200, 400])
def test_every_picture_draws(browse: Callable[..., Look], page: str, width: int) -> None:  # noqa: F811
    look = browse(page, is_dark=width == 400, width=width)
    assert set(look.pictures) == set(pictures(page))
    for name, drawn in look.pictures.items():
        assert sum(count > 0 for count in drawn["traces"]) >= 1, name
        assert drawn["marks"] > 0, name
    assert look.overflow_pixels <= 0
    assert look.console == []
    assert look.requests == []
    assert look.violations == []
