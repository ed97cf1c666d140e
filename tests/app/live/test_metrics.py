"""Metrics of watched queues and the dashboards over them, by a scrape and by Prometheus itself."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from mltswitch.app.live.metrics import PREFIX, QueueCollector
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.telemetry.events import GradientsLeftOut
from mltswitch.hostagent.telemetry.metrics import AgentCollector, serve_registry
from mltswitch.plan import Plan
from tests.app.live.examples import reading
from tests.hostagent.background import eventually
from tests.hostagent.telemetry.examples import Example, ended, learned

DOCS = Path(__file__).parents[3] / "docs"
BOARDS = sorted((DOCS / "grafana").glob("*.json"))
PAGE = DOCS / "watch.md"
ANYWHERE = Endpoint("127.0.0.1", 0)
LABELS_OF_PROMETHEUS = {"instance", "job", "le"}


def of_queues(plan: Plan) -> QueueCollector:
    collector = QueueCollector(plan)
    busy = {"full": 0.5, "sent_bps": 1e6, "dropped": 3.0}
    collector.show(reading(plan, "spine2", leaf1__eth1__gradient_0=busy))
    return collector


def of_agent() -> AgentCollector:
    agent = Example()
    collector = AgentCollector(cast(Any, agent))
    agent.observe(collector)
    agent.tell(ended(direction="receive"))
    out = partial(GradientsLeftOut, first_step=0, last_step=99, layer="conv1", layer_share=0.1)
    for event in (out(network_share=0.02, bound_share=0.01), learned()):
        collector.observe(event)
    return collector


def labels(*collectors: QueueCollector | AgentCollector) -> dict[str, set[str]]:
    """Sample's name → its labels; a family without samples has those of the others of its kind."""
    found: dict[str, set[str]] = {}
    for collector in collectors:
        for family in collector.registry.collect():
            name = family.name + ("_total" if family.type == "counter" else "")
            found[name] = {label for sample in family.samples for label in sample.labels}
            for sample in family.samples:
                found[sample.name] = {*sample.labels}
    return found


def queries() -> Iterator[tuple[str, str]]:
    for file in BOARDS:
        for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]:
            for target in panel["targets"]:
                yield f"{file.stem}: {panel['title']}", target["expr"]


def test_a_scrape_tells_queues_plan_and_who_is_silent(lab_plan: Plan) -> None:
    samples = {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in of_queues(lab_plan).registry.collect()
        for sample in family.samples
    }
    assert samples["up", "leaf1", "leaf1"] == 1
    assert samples["up", "spine2", "spine2"] == 0
    assert samples["port_rate_bits_per_second", "leaf1", "eth1", "host1"] == 1e7
    assert samples["reading_timestamp_seconds",] == 1796072673.12
    place = ("leaf1", "leaf1", "eth1", "2", "gradient-0")
    threshold, limit = samples["queue_threshold_bytes", *place], samples["queue_limit_bytes", *place]
    assert 0 < threshold < limit
    assert samples["queue_depth_bytes", *place] == limit // 2
    assert not [key for key in samples if key[0].startswith("queue_") and "spine2" in key]
    assert ("queue_admitted_packets_total", *place) not in samples  # the device does not tell


def test_before_the_first_reading_there_is_nothing(lab_plan: Plan) -> None:
    assert [*QueueCollector(lab_plan).registry.collect()] == []


def metric_table(plan: Plan) -> str:
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    known = labels(of_queues(plan))
    queue = known[f"{PREFIX}queue_depth_bytes"]
    for family in of_queues(plan).registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        words = known[name] or (queue if "queue_" in name else set())
        cells = (family.type, ", ".join(sorted(words)), family.documentation)
        lines.append(f"| `{name.removeprefix(PREFIX)}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_metrics_is_current(lab_plan: Plan, update_golden: bool) -> None:
    page = PAGE.read_text(encoding="utf-8")
    begin, end = "<!-- made from metrics -->\n\n", "\n<!-- end -->"
    first = page.index(begin) + len(begin)
    wanted = page[:first] + metric_table(lab_plan) + page[page.index(end, first) :]
    if update_golden:
        PAGE.write_text(page := wanted, encoding="utf-8")
    assert page == wanted, "docs/watch.md is out of date: make golden"


@pytest.mark.parametrize(("panel", "query"), [pytest.param(*each, id=each[0]) for each in queries()])
def test_a_dashboard_asks_for_what_there_is(panel: str, query: str, lab_plan: Plan) -> None:
    known = labels(of_queues(lab_plan), of_agent())
    names = re.findall(r"mltswitch_\w+", query)
    assert names, panel
    assert {*names} <= known.keys()
    used = {
        word
        for group in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", query)
        for word in group.replace(" ", "").split(",")
    } | {*re.findall(r'(\w+)\s*(?:=~|!=|=)\s*"', query)}
    queue = known[f"{PREFIX}queue_depth_bytes"]  # of families without a sample here
    assert used <= LABELS_OF_PROMETHEUS.union(queue, *(known[name] for name in names))


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_a_dashboard_is_laid_out(file: Path) -> None:
    board = json.loads(file.read_text(encoding="utf-8"))
    cells = [
        (x, y)
        for panel in board["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len({*cells})
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in board["panels"])
    variables = {each["name"] for each in board["templating"]["list"]} | {"__rate_interval", "__range"}
    assert {*re.findall(r"\$\{?(\w+)", json.dumps(board["panels"]))} <= variables


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def test_prometheus_itself_scrapes_and_answers_every_panel(tmp_path: Path, lab_plan: Plan) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus on this machine (Debian: apt-get install prometheus)")
    with ExitStack() as stack:
        registries = {"switches": of_queues(lab_plan).registry, "training": of_agent().registry}
        places = {
            name: str(stack.enter_context(serve_registry(registry, ANYWHERE)))
            for name, registry in registries.items()
        }
        jobs = [
            {"job_name": name, "static_configs": [{"targets": [place]}]} for name, place in places.items()
        ]
        settings = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": jobs}
        (tmp_path / "prometheus.yml").write_text(json.dumps(settings))  # YAML has JSON in it
        port = free_port()
        command = [program, "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        log = stack.enter_context((tmp_path / "log").open("wb"))
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], cwd=tmp_path, stdout=log, stderr=log
        )
        stack.callback(process.wait)
        stack.callback(process.kill)

        def ask(query: str) -> list[dict[str, Any]]:
            words = urlencode({"query": query})
            with urlopen(f"http://127.0.0.1:{port}/api/v1/query?{words}", timeout=60) as answer:
                document = json.load(answer)
            assert document["status"] == "success", document
            found: list[dict[str, Any]] = document["data"]["result"]
            return found

        def has_scraped() -> bool:
            assert process.poll() is None, (tmp_path / "log").read_text()
            counters = (f"{PREFIX}queue_sent_bytes_total", "mltswitch_agent_transferred_bytes_total")
            try:
                return all(ask(f"rate({name}[1m])") for name in counters)
            except URLError:
                return False  # it does not listen yet

        eventually(has_scraped)
        for panel, query in queries():
            given = query.replace("$__rate_interval", "1m").replace("$__range", "1m")
            found = ask(re.sub(r'"\$\w+"', '".*"', given))
            assert found or "> 0" in query, panel
        full = ask(f'{PREFIX}queue_depth_bytes{{port="eth1",switch="leaf1"}} / {PREFIX}queue_limit_bytes')
        assert max(float(each["value"][1]) for each in full) == pytest.approx(0.5, abs=0.01)
        assert ask(f"count({PREFIX}up == 0)")[0]["value"][1] == "1"


def test_a_label_that_is_no_text_ends_no_scrape(lab_plan: Plan) -> None:
    seen = reading(lab_plan)
    collector = QueueCollector(lab_plan)
    collector.show(replace(seen, devices=(replace(seen.devices[0], device="leaf\ud800"), *seen.devices[1:])))
    with serve_registry(collector.registry, ANYWHERE) as place, urlopen(f"http://{place}/metrics") as answer:
        assert 'device="leaf\\\\ud800"' in answer.read().decode()
