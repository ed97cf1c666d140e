"""A bare problem in a file."""

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.queueing import Batch, Incast, Poisson, QueueThresholds, Trace
from mltswitch.traffic.problem import load_problem

ISSUE: dict[str, Any] = {
    "load": 0.9,
    "burst_packets": 8,
    "queues": [
        {"share": 0.1, "unimportant": 0.5, "ecn_threshold_packets": 8, "limit_packets": 16},
        {"share": 0.9, "unimportant": 0.25, "ecn_threshold_packets": None, "limit_packets": 32},
    ],
}

INCAST = {"kind": "incast", "senders": 8, "round_packets": 64}
TRACE: dict[str, Any] = {"kind": "trace", "sizes_packets": [1, 9], "probabilities": [0.5, 0.5]}
FIELDS = [*ISSUE, *ISSUE["queues"][0], "arrivals", "kind", "weights"]


def written(tmp_path: Path, data: Any) -> Path:
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(data))
    return file


def with_queue(**changes: Any) -> dict[str, Any]:
    first, second = ISSUE["queues"]
    queue = {name: value for name, value in (second | changes).items() if value != "absent"}
    return ISSUE | {"queues": [first, queue]}


def test_the_example_of_the_issue(tmp_path: Path) -> None:
    port, traffic, thresholds = load_problem(written(tmp_path, ISSUE))
    assert not port.count_in_service
    assert [queue.load for queue in traffic] == pytest.approx([0.09, 0.81])
    assert {queue.arrivals for queue in traffic} == {Batch(8.0)}
    assert [queue.unimportant_share for queue in traffic] == [0.5, 0.25]
    assert {queue.importance for queue in traffic} == {"packet"}
    assert thresholds == (QueueThresholds(8, 16), QueueThresholds(None, 32))


def test_single_packets_are_poisson(tmp_path: Path) -> None:
    problem = with_queue(burst_packets=1) | {"count_in_service": True}
    port, traffic, _ = load_problem(written(tmp_path, problem))
    assert port.count_in_service
    assert [queue.arrivals for queue in traffic] == [Batch(8.0), Poisson()]


def test_numbers_with_an_exponent_are_numbers(tmp_path: Path) -> None:
    _, traffic, _ = load_problem(written(tmp_path, with_queue(share=1e-05)))
    assert traffic[1].load == pytest.approx(9e-06)


def test_a_queue_may_have_another_process(tmp_path: Path) -> None:
    incast = {"kind": "incast", "senders": 8, "round_packets": 64, "burst_packets": 16}
    _, traffic, _ = load_problem(
        written(tmp_path, with_queue(arrivals=incast, importance="burst") | {"source_rate_ratio": 2})
    )
    assert traffic[0].arrivals == Batch(8.0, "fixed", 2.0)
    assert traffic[1].arrivals == Incast(8, 64, burst_packets=16)
    assert traffic[1].importance == "burst"
    _, traffic, _ = load_problem(written(tmp_path, with_queue(arrivals=TRACE)))
    assert traffic[1].arrivals == Trace((1, 9), (0.5, 0.5), inf)


def test_a_queues_own_burst_replaces_the_ports_process(tmp_path: Path) -> None:
    problem = {"load": 0.5, "arrivals": INCAST, "queues": with_queue(burst_packets=4)["queues"]}
    _, traffic, _ = load_problem(written(tmp_path, problem))
    assert [queue.arrivals for queue in traffic] == [Incast(8, 64), Batch(4.0)]


def test_loads_instead_of_shares_and_shares_below_one(tmp_path: Path) -> None:
    _, traffic, _ = load_problem(written(tmp_path, with_queue(share="absent", load=0.4)))
    assert [queue.load for queue in traffic] == pytest.approx([0.09, 0.4])
    _, traffic, _ = load_problem(written(tmp_path, with_queue(share=0.2)))
    assert [queue.load for queue in traffic] == pytest.approx([0.09, 0.18])


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (with_queue(share=0.95), "queues[1].share"),
        (with_queue(share=1.5), "queues[1].share"),
        (with_queue(share="absent"), "queues[1].share"),
        (with_queue(load=0.1), "queues[1].share"),
        (with_queue(share=True), "queues[1].share"),
        (with_queue(share="0.1"), "queues[1].share"),
        (with_queue(unimportant=1.5), "queues[1].unimportant"),
        (with_queue(unimportant=float("nan")), "queues[1].unimportant"),
        (with_queue(ecn_threshold_packets=64), "queues[1].limit_packets"),
        (with_queue(limit_packets=-1), "queues[1].limit_packets"),
        (with_queue(limit_packets="absent"), "queues[1].limit_packets"),
        (with_queue(limit_packets=10**30), "queues[1].limit_packets"),
        (with_queue(burst_packets=2.5), "queues[1].burst_packets"),
        (with_queue(burst_packets=0), "queues[1].burst_packets"),
        (with_queue(mark_probability=0), "queues[1].mark_probability"),
        (with_queue(treshold=3), "queues[1].treshold"),
        (
            with_queue(arrivals={"kind": "incast", "senders": 0, "round_packets": 1}),
            "queues[1].arrivals.senders",
        ),
        (
            with_queue(arrivals={"kind": "trace", "sizes_packets": [2], "probabilities": [0.5]}),
            "queues[1].prob",
        ),
        (ISSUE | {"load": -0.1}, "load"),
        (ISSUE | {"load": float("inf")}, "load"),
        ({name: value for name, value in ISSUE.items() if name != "load"}, "load"),
        (ISSUE | {"queues": []}, "queues"),
        (ISSUE | {"weights": [1]}, "weights"),
        (ISSUE | {"weights": [1, -1]}, "weights[1]"),
        (ISSUE | {"buffer_packets": 0}, "buffer_packets"),
        (ISSUE | {"count_in_service": "yes"}, "count_in_service"),
    ],
)
def test_nonsense_is_refused_by_name(tmp_path: Path, data: Any, field: str) -> None:
    file = written(tmp_path, data)
    with pytest.raises(UserInputError) as refusal:
        load_problem(file)
    assert f": {field}" in refusal.value.where


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(max_size=80)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5)
        ),
        max_leaves=12,
    ).map(json.dumps)
)
def test_any_file_is_a_problem_or_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "problem.json"
    file.write_text(text)
    try:
        load_problem(file)
    except UserInputError as error:
        assert str(error).startswith(str(file))
