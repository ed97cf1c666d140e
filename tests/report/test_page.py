"""The page as text: complete by itself, the same every time, and honest about what it lacks."""

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mltswitch.errors import MachineError
from mltswitch.plan import Plan
from mltswitch.planning.predict import _remembered
from mltswitch.profile import ModelProfile
from mltswitch.report import plan_report, routes_report
from tests.report.conftest import QUICK


def own_part(page: str) -> str:
    """The page without plotly's own script."""
    return page[: page.index('id="pictures"')]


def pictures(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="pictures">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    figures: dict[str, Any] = json.loads(found[1])["figures"]
    return figures


def test_same_input_same_bytes(small_plan: Plan, quick_report: Callable[[Plan], str]) -> None:
    assert quick_report(small_plan) == quick_report(small_plan)


def test_every_picture_has_its_place_and_its_words(page: str) -> None:
    names = set(pictures(page))
    assert names == set(re.findall(r'<div class="picture" id="([^"]+)" role="img" aria-label="[^"]+"', page))
    assert {name.split("-")[0] for name in names} == {
        "thresholds",
        "load",
        "burst",
        "sensitivity",
        "headroom",
    }
    assert page.count("<details>") >= 2 * 4


def test_the_head_names_its_inputs(page: str, burst_plan: Plan) -> None:
    head = own_part(page)
    for text in (
        burst_plan.provenance.profile_sha256,
        burst_plan.provenance.fabric_sha256,
        burst_plan.provenance.tool_version,
        "resnet50 on small",
    ):
        assert text in head
    assert all(note in head.replace("&#39;", "'") for note in burst_plan.notes)
    assert '<table class="words"><caption' in head.replace("\n", "")
    assert "predicted" in head
    assert "simulated" in head


def test_nothing_is_fetched(page: str) -> None:
    assert "default-src 'none'" in own_part(page)
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', own_part(page))
    assert not re.findall(r"@import|url\(", own_part(page))


def test_plotly_is_inlined_once(page: str) -> None:
    assert page.count("<script>") == 2
    assert len(re.findall(r"plotly\.js v\d", page)) == 1


def test_names_are_escaped(small_plan: Plan, quick_report: Callable[[Plan], str]) -> None:
    evil = "<script>alert(1)</script>"
    plan = small_plan.model_copy(update={"notes": (evil,)})
    page = quick_report(plan)
    assert evil not in page
    assert "&lt;script&gt;alert(1)" in page
    assert routes_report(evil, [], [(evil, {"a": evil})], [(evil, 0.5)]).count("</script>") == 3


def test_without_the_simulator_the_page_says_so(
    small_plan: Plan, resnet50: ModelProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_given: Any, **_more: Any) -> Any:
        raise MachineError("numba is not installed", hint='pip install "mltswitch[sim]"')

    monkeypatch.setattr("mltswitch.queueing.simulation.simulate", absent)
    _remembered.cache_clear()  # an earlier test may have simulated the same port
    page = plan_report(small_plan, resnet50, QUICK)
    assert "simulate: numba is not installed" in own_part(page)
    assert "simulated, important, with 95 %" not in own_part(page)
    assert set(pictures(page))


def test_without_plotly_nothing_is_computed(
    small_plan: Plan, resnet50: ModelProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    steps: list[str] = []
    with pytest.raises(MachineError, match=r"mltswitch\[report\]"):
        plan_report(small_plan, resnet50, QUICK, lambda what, _done, _total: steps.append(what))
    assert steps == []


def test_progress_ends_where_it_said(small_plan: Plan, resnet50: ModelProfile) -> None:
    seen: list[tuple[int, int]] = []
    plan_report(small_plan, resnet50, QUICK, lambda _what, done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == list(range(len(seen)))
    assert seen[-1][0] == seen[-1][1]


def test_a_model_blind_to_bursts_is_named(page: str) -> None:
    assert "paper does not see the burst" in own_part(page)
