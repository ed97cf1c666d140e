"""Who sends what to whom."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from mltswitch.errors import UserInputError
from mltswitch.network.workloads import Incast, ParameterServer, Permutation, Stage, Work, Workload
from mltswitch.network.workloads.parameter_server import PARTITION_BYTES
from mltswitch.profile import resolve_profile


def stage(hosts: int = 8, **changes: Any) -> Stage:
    settings: dict[str, Any] = {
        "hosts": hosts,
        "class_of": lambda layer, layers: layer * 4 // layers,
        "random": np.random.default_rng(1),
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
