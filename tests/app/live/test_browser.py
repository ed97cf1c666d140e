"""The live page as a reader meets it, in headless Chromium (Debian's package `chromium`)."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from mltswitch.app.live.picture import fabric_map, state
from mltswitch.app.live.server import LivePage, serve_page
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.plan import Plan
from tests.app.live.examples import reading
from tests.chromium import Browser, Tab, browsing, find_browser
from tests.cli.test_confirm import rack
from tests.cli.test_watch import Served
from tests.hostagent.background import eventually

pytestmark = pytest.mark.browser

FIRST = "document.querySelector('#queues tr')"
AGENT = {
    "agent": "host1-0",
    "step": 41,
    "step_seconds": 0.18,
    "age_seconds": 0.4,
    "received_bps": 7.3e8,
    "missing_share": 0.012,
    "marked_share": None,
    "resent_per_second": 3.0,
    "failed": 0,
    "reason": "",
    "left_out": None,
}
LOOKS = {"light": (1200, False), "dark": (1200, True), "narrow": (390, False)}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    with browsing(program, tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def opened(browser: Browser, url: str, look: str) -> Tab:
    width, is_dark = LOOKS[look]
    tab = browser.tab()
    tab.look(width=width, is_dark=is_dark)
    tab.open(url)
    return tab


@pytest.fixture
def page(lab_plan: Plan) -> Iterator[LivePage]:
    with serve_page(Endpoint("127.0.0.1", 0), fabric_map(lab_plan)) as served:
        yield served


@pytest.mark.parametrize("look", LOOKS)
def test_an_overloaded_port_turns_worst(browser: Browser, page: LivePage, lab_plan: Plan, look: str) -> None:
    tab = opened(browser, page.url, look)
    small = {"full": 0.1, "sent_bps": 1e6}
    page.publish(state(reading(lab_plan, leaf1__eth1__gradient_0=small), [AGENT], []))
    assert tab.wait(f"{FIRST} && {FIRST}.className") == "waits"
    assert tab.value("document.querySelectorAll('#map .node').length") == 12
    overload = {"full": 1.0, "sent_bps": 9e6, "dropped": 1830.0, "marked": 812.0, "at_limit": 40.0}
    bad = reading(lab_plan, "spine2", leaf1__eth1__gradient_0=small, leaf2__eth2__gradient_1=overload)
    page.publish(state(bad, [AGENT], []))
    assert tab.wait(f"{FIRST}.className === 'limit' && {FIRST}.innerText").count("at the limit") == 1
    assert "leaf2 eth2 → host4" in tab.value(f"{FIRST}.innerText")
    assert "1,830" in tab.value(f"{FIRST}.innerText")
    assert tab.value("document.title").startswith("■ lab")
    # not by colour alone: a mark on the cable and on its switch, and words
    assert tab.value("[...document.querySelectorAll('#map .seal.limit')].map(e => e.textContent)") == [
        "■",
        "■",
    ]
    names = tab.value("[...document.querySelectorAll('#map .node')].map(e => e.getAttribute('aria-label'))")
    assert {"leaf2, at the limit", "spine2, no answer", "leaf1, waits", "host1, host"} <= {*names}
    fill, tick = (
        tab.value(f"parseFloat({FIRST}.querySelector('.bar .{part}').style.{field})")
        for part, field in (("fill", "width"), ("tick", "left"))
    )
    assert 0 < tick < fill == 100
    assert "host1-0" in tab.value("document.querySelector('#agents').innerText")
    # what a device says is text
    assert "<b>not</b>" in tab.value("document.querySelector('#errors').innerText")
    paper = tab.value("getComputedStyle(document.documentElement).backgroundColor")
    assert paper == ("rgb(20, 23, 28)" if look == "dark" else "rgb(255, 255, 255)")
    assert tab.value("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert tab.value("performance.getEntriesByType('resource').map(e => e.name)") in (
        [],
        [f"{page.url}events"],
    )
    assert tab.console == []


def test_the_map_is_led_by_keys(browser: Browser, page: LivePage, lab_plan: Plan) -> None:
    tab = opened(browser, page.url, "light")
    busy = {"sent_bps": 1e6}
    page.publish(state(reading(lab_plan, leaf1__eth1__gradient_0=busy, leaf2__eth2__gradient_1=busy), [], []))
    rows = "document.querySelectorAll('#queues tr').length"
    tab.wait(f"{rows} === 2")
    focus = "document.activeElement.getAttribute('aria-label') || document.activeElement.id"
    seen: list[str] = []
    while not seen or not seen[-1].startswith("spine1"):
        tab.press("Tab")
        seen.append(tab.value(focus))
        assert len(seen) < 10, seen
    assert seen[:2] == ["idle", "pause"]
    for key in ("ArrowDown", "ArrowRight"):
        tab.press(key)
    assert tab.value(focus) in {"leaf2, sends", "leaf1, sends"}
    tab.press("Enter")
    assert tab.value(rows) == 1
    tab.press("Escape")
    assert tab.value(rows) == 2
    assert tab.console == []


def test_pause_holds_the_picture(browser: Browser, page: LivePage, lab_plan: Plan) -> None:
    tab = opened(browser, page.url, "light")
    page.publish(state(reading(lab_plan, leaf1__eth1__gradient_0={"sent_bps": 1e6}), [], []))
    tab.wait(f"{FIRST} !== null")
    tab.value("document.querySelector('#pause').click()")
    page.publish(state(reading(lab_plan, leaf1__eth1__gradient_0={"dropped": 9.0}), [], []))
    tab.wait("document.querySelector('#status').textContent.startsWith('paused at')")
    assert tab.value(f"{FIRST}.className") == "sends"
    tab.value("document.querySelector('#pause').click()")
    tab.wait(f"{FIRST}.className === 'drops'")


def test_what_could_run_foreign_text_is_refused(browser: Browser, page: LivePage) -> None:
    """The policy itself: were a device's words put in as HTML, the browser would refuse them and say so."""
    tab = opened(browser, page.url, "light")
    tab.wait("document.querySelector('#status').textContent.includes('waiting')")
    tab.value(
        "try { document.body.innerHTML = '<img src=x>'; 0 } catch (error) { window.refused = error.name; 0 }"
    )
    assert tab.value("window.refused") == "TypeError"
    tab.wait("document.querySelector('#status') !== null")


@pytest.mark.usefixtures("interruptible")
def test_counters_of_a_switch_reach_the_page(browser: Browser, tmp_path: Path) -> None:
    with rack("sonic", tmp_path) as (switch, words), Served(words, "--web", "127.0.0.1:0") as served:
        tab = opened(browser, served.places["page"], "light")
        tab.wait("!document.querySelector('#queues-none').hidden")
        counts = count(10, 10)

        def has_turned_worst() -> bool:
            switch.counted["Ethernet4", 5] = {"droppacket": next(counts)}
            return bool(tab.value(f"{FIRST}?.className === 'drops'"))

        eventually(has_turned_worst)
        assert "leaf1 Ethernet4 → host2" in tab.value(f"{FIRST}.innerText")
        served.interrupt()
        tab.wait("document.querySelector('#status').textContent.startsWith('no connection')")
