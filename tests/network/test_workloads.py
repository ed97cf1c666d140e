"""Who sends what to whom."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from pydantic import TypeAdapter

from mltswitch.errors import UserInputError
from mltswitch.network.workloads import (
    Background,
    Incast,
    Mix,
    ParameterServer,
    Permutation,
    Stage,
    Work,
    Workload,
)
from mltswitch.network.workloads.distributions import resolve_distribution
from mltswitch.network.workloads.parameter_server import PARTITION_BYTES
from mltswitch.profile import resolve_profile
from tests.network.support import play, scenario


def stage(hosts: int = 8, **changes: Any) -> Stage:
    settings: dict[str, Any] = {
        "hosts": hosts,
        "class_of": lambda layer, layers: layer * 4 // layers,
        "random": np.random.default_rng(1),
        "rates_bps": (10**10,) * hosts,
    }
    return Stage(**settings | changes)


def push(hosts: int = 8, **changes: Any) -> Work:
    document = {"kind": "parameter-server", "profile": "mobilenet"} | changes
    return ParameterServer.model_validate(document).flows(stage(hosts))


@pytest.mark.parametrize("mapping", ["whole", "sliced"])
def test_every_worker_pushes_the_whole_model(mapping: str) -> None:
    profile = resolve_profile("mobilenet")
    flows = push(mapping=mapping)
    sent, got = Counter[int](), Counter[int]()
    for flow in flows:
        sent[flow.source] += flow.size_bytes
        got[flow.destination] += flow.size_bytes
    assert sent == dict.fromkeys(range(6), profile.total_bytes)
    assert set(got) == {6, 7}
    of_layers = Counter[str]()
    for flow in flows:
        of_layers[flow.label] += flow.size_bytes
    assert of_layers == {layer.name: 6 * layer.size_bytes for layer in profile.layers}
    if mapping == "sliced":
        assert abs(got[6] - got[7]) <= 6 * len(profile.layers)
    else:
        assert max(flow.size_bytes for flow in flows) <= PARTITION_BYTES


WORKLOADS: list[Any] = [
    {"kind": "incast", "senders": 5, "size": 1001, "rounds": 3, "period": 0.002, "jitter": 1e-4},
    {"kind": "permutation", "size": 1001, "flows_per_host": 3},
    *(
        {
            "kind": "parameter-server",
            "profile": "mobilenet",
            "mapping": mapping,
            "servers": servers,
            "rounds": rounds,
            "pull": rounds > 1,
            "colocated": colocated,
        }
        for mapping in ("whole", "sliced")
        for servers in (1, 7)
        for rounds in (1, 2)
        for colocated in (False, True)
    ),
    {"kind": "ring", "profile": "mobilenet", "rounds": 2, "bucket": "1MB"},
    {"kind": "ring", "profile": "mobilenet", "workers": 3},
    {"kind": "tree", "profile": "mobilenet", "rounds": 2, "settings": {"in_degree": 3}},
    {"kind": "tree", "profile": "mobilenet", "workers": 3, "servers": 2},
    {
        "kind": "mix",
        "parts": [
            {"start": 1e-3, "workload": {"kind": "permutation", "size": 5}},
            {"hosts": ["2-4", 7], "workload": {"kind": "ring", "profile": "mobilenet"}},
        ],
    },
]


@pytest.mark.parametrize("document", WORKLOADS, ids=str)
def test_a_workload_knows_its_extent_before_its_flows(document: Any) -> None:
    workload: Any = TypeAdapter(Workload).validate_python(document)
    on = stage()
    flows, extent = workload.flows(on), workload.extent(on)
    sizes = [flow.size_bytes for flow in flows]
    assert (len(sizes), sum(sizes), max(sizes)) == (extent.flows, extent.size_bytes, extent.largest_bytes)
    last = max(flow.start_picoseconds for flow in flows) / 1e12
    assert last <= extent.last_start_seconds <= last + 1e-3


def test_front_layers_go_in_the_first_class_and_come_last() -> None:
    work = push(backward=0.01)
    layers = [layer.name for layer in resolve_profile("mobilenet").layers]
    by_layer = {flow.label: flow for flow in work}
    classes = [by_layer[name].traffic_class for name in layers]
    assert classes == sorted(classes)
    assert (classes[0], classes[-1]) == (0, 3)
    ready, after = [], by_layer[layers[0]].after
    while after:
        (number,) = after
        ready.append(number)
        after = work.steps[~number].after
    assert ready == [by_layer[name].after[0] for name in layers]
    assert sum(work.steps[~number].picoseconds for number in ready) == pytest.approx(10**10)


def test_all_hosts_that_are_no_servers_work() -> None:
    assert {flow.source for flow in push(servers=3)} == set(range(5))


def test_a_permutation_is_one_cycle() -> None:
    flows = Permutation.model_validate({"kind": "permutation", "size": 1000}).flows(stage(13))
    following = {flow.source: flow.destination for flow in flows}
    host, seen = 0, set[int]()
    while host not in seen:
        seen.add(host)
        host = following[host]
    assert seen == set(range(13))


def test_rounds_of_an_incast_come_one_after_the_other() -> None:
    document = {"kind": "incast", "senders": 5, "size": "1kB", "rounds": 3, "period": 0.002, "jitter": 1e-4}
    flows = Incast.model_validate(document).flows(stage())
    assert len({flow.source for flow in flows}) == 5
    assert {flow.destination for flow in flows} == {7}
    for turn in range(3):
        starts = [flow.start_picoseconds for flow in flows if flow.label == f"round {turn}"]
        assert len(starts) == 5
        assert turn * 2 * 10**9 <= min(starts) <= max(starts) <= turn * 2 * 10**9 + 10**8


def test_a_plan_of_another_model_is_refused() -> None:
    document = {"kind": "parameter-server", "profile": "mobilenet"}
    with pytest.raises(UserInputError, match="the plan is for a model of 3 layers"):
        ParameterServer.model_validate(document).extent(stage(plan_layers=3))


def background(**changes: Any) -> Background:
    document = {"kind": "background", "load": 0.4, "sizes": "web-search", "duration": 2.0}
    return Background.model_validate(document | changes)


def test_background_arrives_as_a_poisson_process_with_its_load(tmp_path: Path) -> None:
    (tmp_path / "sizes").write_text("# bytes, probability\n100000, 1\n")
    workload = background(sizes=str(tmp_path / "sizes"))
    flows, extent = workload.flows(stage()), workload.extent(stage())
    expected = 0.4 * 8 * 10e9 / 8 * 2.0 / 1e5
    assert abs(len(flows) - expected) < 4 * expected**0.5
    assert len(flows) <= extent.flows
    assert {flow.size_bytes for flow in flows} == {100_000}
    times = np.array([flow.start_picoseconds for flow in flows]) / 1e12
    gaps = np.diff(times)
    assert times[-1] < 2.0
    assert gaps.mean() == pytest.approx(gaps.std(), rel=0.03)  # as of exponential ones
    pairs = Counter((flow.source, flow.destination) for flow in flows)
    assert len(pairs) == 8 * 7
    assert max(pairs.values()) < 1.2 * min(pairs.values())
    assert workload.flows(stage()) == flows


@pytest.mark.parametrize(("name", "mean_bytes"), [("web-search", 1.66e6), ("data-mining", 7.47e6)])
def test_sizes_are_those_of_their_papers(name: str, mean_bytes: float) -> None:
    """The means that pFabric's authors print for their tables: 1,138 and 5,116 segments."""
    sizes = resolve_distribution(name)
    drawn = sizes.draw(np.random.default_rng(1), 1_000_000)
    assert sizes.mean_bytes == pytest.approx(mean_bytes, rel=0.01)
    assert drawn.mean() == pytest.approx(mean_bytes, rel=0.03)
    assert drawn.max() <= sizes.largest_bytes
    assert (drawn <= 1460).mean() == pytest.approx(sizes.probabilities[0], abs=0.005)


def test_nothing_to_send_is_a_run_too() -> None:
    (run,) = play(workload={"kind": "background", "load": 0.0001, "duration": "1us"})
    assert (run.summary.flows, run.summary.sent_over_needed) == (0, 1.0)


def test_parts_are_on_their_hosts_and_wait_for_their_own() -> None:
    parts = [
        {
            "hosts": [6, "1-2"],
            "start": 0.5,
            "workload": {"kind": "ring", "profile": "mobilenet"},
        },
        {"workload": {"kind": "background", "load": 0.5, "duration": 0.01}},
        {"hosts": ["0-7"], "workload": {"kind": "ring", "profile": "mobilenet", "forward": 1e-3}},
    ]
    work = Mix.model_validate({"kind": "mix", "parts": parts}).flows(stage())
    flows = {
        name: [flow for flow in work if flow.label.startswith(name)] for name in ("ring-0", "ring-2", "back")
    }
    assert sum(map(len, flows.values())) == len(work)
    assert {(flow.source, flow.destination) for flow in flows["ring-0"]} == {(6, 1), (1, 2), (2, 6)}
    assert {flow.start_picoseconds for flow in flows["ring-0"]} == {10**12 // 2}
    for flow in flows["ring-2"]:
        for number in flow.after:
            if number >= 0:
                assert work[number].destination == flow.source
                assert work[number].label.startswith("ring-2")
            else:
                assert work.steps[~number].host == flow.source
    assert Counter(each.job for each in work.rounds) == {"ring-0": 3, "ring-2": 8}
    assert all(work.steps[each.end].host == each.host for each in work.rounds)


BAD: dict[str, tuple[Any, str]] = {
    "falls": ("100 0.5\n90 1\n", "sizes:2: '90 1' (expected bytes, from 1, and a probability"),
    "shares fall": ("100, 0.5\n200, 0.4\n", "sizes:2: '200, 0.4'"),
    "ends below 1": ("100 0.5\n200 0.9\n", "sizes: ends at a probability of 0.9 (expected 1)"),
    "is empty": ("# nothing\n", "sizes: ends at a probability of 0 (expected 1)"),
    "no rows": ("100\n", "sizes:1: '100' (expected bytes, from 1"),
    "not a number": ("100 nan\n", "sizes:1: '100 nan'"),
    "no file": (None, "workload.sizes: there is no distribution"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_distribution_that_is_none_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    text, line = BAD[case]
    if text is not None:
        (tmp_path / "sizes").write_text(text)
    with pytest.raises(UserInputError) as caught:
        background(sizes=str(tmp_path / "sizes")).extent(stage())
    assert line in str(caught.value)


RING = {"kind": "ring", "profile": "mobilenet"}
UNFIT: list[tuple[Any, str]] = [
    (
        RING | {"workers": 4, "forward": 0.1, "stragglers": {"hosts": [4], "factor": 2}},
        "workload.stragglers.hosts: there is no worker 4 (expected 0 to 3)",
    ),
    (RING | {"workers": 9}, "workload: 9 workers in a ring need 9 hosts, the fabric has 8"),
    (
        {"kind": "parameter-server", "profile": "mobilenet", "colocated": True, "workers": 2, "servers": 3},
        "workload.servers: 3 servers on the hosts of 2 workers (expected at most 2)",
    ),
    (
        {"kind": "mix", "parts": [{"workload": RING}, {"hosts": [0, 1], "workload": RING | {"workers": 3}}]},
        "workload.parts[1].workload: 3 workers in a ring need 3 hosts, the fabric has 2",
    ),
    (
        {"kind": "mix", "parts": [{"hosts": ["6-8"], "workload": RING}]},
        "workload.parts[0].hosts: there is no host 8 (expected 0 to 7)",
    ),
    ({"kind": "tree", "profile": "mobilenet", "settings": {"in_degree": 0}}, "in_degree"),
]


@pytest.mark.parametrize(("document", "line"), UNFIT, ids=str)
def test_a_workload_that_does_not_fit_is_refused_in_one_line(document: Any, line: str) -> None:
    workload: Any = TypeAdapter(Workload).validate_python(document)
    with pytest.raises(UserInputError) as caught:
        workload.extent(stage())
    assert line in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"noise": 0.1}, "noise and stragglers are of computing times"),
        ({"forward": 1, "stragglers": {"factor": 2}}, "either a share of the workers or hosts"),
        ({"lossy_pull": True}, "nothing is pulled"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        push(**changes)


def test_the_mix_of_the_page_is_one() -> None:
    text = Path("docs/simulate.md").read_text().split("```yaml\nworkload:\n")[1].partition("```")[0]
    workload: Any = TypeAdapter(Workload).validate_python(yaml.safe_load(text))
    work = workload.flows(stage(16, class_of=lambda layer, layers: 0))
    assert {flow.label.partition(":")[0] for flow in work} == {"ring-0", "parameter-server-1", "background-2"}
    assert {each.job for each in work.rounds} == {"ring-0", "parameter-server-1"}


@pytest.mark.parametrize(
    ("hosts", "problem"),
    [
        (["0-3", [1]], r"hosts: '?\[1\] is no host's number"),
        (["0-3", -1], "hosts: -1 is no host's number"),
        (["3-0"], "hosts: '3-0' falls"),
        (["0-99999999"], "hosts: '0-99999999' falls, or goes beyond 99999"),
        (["0-3", 2], "hosts: one stands twice"),
    ],
)
def test_hosts_that_are_none_are_refused_in_one_line(hosts: Any, problem: str) -> None:
    parts = [{"hosts": hosts, "workload": RING}]
    with pytest.raises(UserInputError, match=problem):
        scenario(workload={"kind": "mix", "parts": parts})
