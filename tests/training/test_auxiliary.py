"""Auxiliary paths: sums stay what they are, whatever way pieces take, and nothing of what moved is left."""

import json
from typing import Any

import numpy as np
import pytest

from benchmarks.geo_awareness import slower
from benchmarks.geo_simulation import netstorm9
from mltswitch.errors import UserInputError
from mltswitch.hostagent import AgentConfig
from mltswitch.training.agents import AgentNode
from mltswitch.training.auxiliary import AuxiliaryPaths
from mltswitch.training.axes import Crossing, Direction, Post, Stage, axes_of
from mltswitch.training.fabric import FabricNetwork
from mltswitch.training.job import Job, make_job
from mltswitch.training.node import Node
from mltswitch.training.virtual import VirtualJob
from tests.training.real_ranks import exchange, mesh, told_by_ranks

RANKS = 9
SCALE = 1_000.0
OVERLAY = slower(netstorm9(3), SCALE)
"""Ranks 0, 1 and 2 are linked with each other, and 1 with 4, but 2 not with 4."""


def job_of(rule: str = "paper", **options: Any) -> Job:
    settings: dict[str, Any] = {"overlay": OVERLAY.model_dump(mode="json", by_alias=True), "auxiliary": rule}
    settings |= {"update_seconds": 0, "primary_busy_bound": 1, **options.pop("settings", {})}
    layers = [(f"layer-{number}", 7_000) for number in range(8)]
    given: dict[str, Any] = {
        "world": RANKS,
        "piece_bytes": 4_000,
        "deadline_seconds": 600.0,
        "check_every": 0,
    }
    return make_job(layers, topology="fapt", topology_settings=settings, **given | options)


def virtual_of(job: Job) -> VirtualJob:
    return VirtualJob(job, FabricNetwork(OVERLAY), in_turn=True)


def gradient(job: Job, rank: int, step: int) -> Any:
    return np.full(job.elements, 2.0**rank * (step + 1), np.float32)


def paths_of(node: Node) -> AuxiliaryPaths:
    assert node.auxiliary is not None
    return node.auxiliary


@pytest.mark.parametrize("wire_type", [None, "bfloat16"])
@pytest.mark.parametrize("rule", ["sooner", "paper"])
def test_sums_are_what_they_are_without_paths(rule: str, wire_type: str | None) -> None:
    job = job_of(rule, wire_type=wire_type, settings={"update_seconds": 5.0, "primary_busy_bound": 3})
    virtual = virtual_of(job)
    report = virtual.run(4, lambda rank, step: gradient(job, rank, step))
    assert not report.errors
    moved = [paths_of(node).pieces for node in virtual.nodes]
    assert sum(moved) > 20
    exact = (2.0**RANKS - 1) / RANKS
    for (_, step), result in report.results.items():
        assert step == 4 or (abs(result / (exact * (step + 1)) - 1) < (0.01 if wire_type else 1e-6)).all()


def test_a_free_link_has_all_pieces() -> None:
    job = job_of(settings={"primary_busy_bound": 1_000})
    virtual = virtual_of(job)
    assert not virtual.run(2, lambda rank, step: gradient(job, rank, step)).errors
    assert not any(paths_of(node).pieces for node in virtual.nodes)


def test_where_a_path_is_faster_a_step_is_shorter() -> None:
    job, seconds = job_of(), {}
    for rule in ("none", "sooner"):
        virtual = virtual_of(job_of(rule, settings={"primary_busy_bound": 6}))
        virtual.run(3, lambda rank, step: gradient(job, rank, step))
        seconds[rule] = virtual.now_seconds
    assert seconds["sooner"] < 0.9 * seconds["none"]


@pytest.mark.parametrize(
    "word",
    [
        {"path": [1, 2, 4], "tensor": 0, "round": 0},
        {"path": [1, 2], "tensor": 0, "round": 0},
        {"path": [1, 2, 1, 4], "tensor": 0, "round": 0},
        {"path": [2, 1, 4], "tensor": 0, "round": 0},
        {"path": [1, 8, 4], "tensor": 0, "round": 0},
        {"path": [1, 2, 77], "tensor": 0, "round": 0},
        {"path": [1, 0, 2], "tensor": 1 << 40, "round": 0},
        {"path": [1, 0, 2], "tensor": -1, "round": 0},
        {"path": "102", "tensor": 0, "round": 0},
        {"path": [1, 0, 2.0], "tensor": 0, "round": 0},
        {"path": [1, 0, 2], "tensor": 2, "round": 0},
        {"path": [1, 0, 2], "tensor": 0, "round": -256},
        {"path": [1, 0, 2], "tensor": 0, "round": 1 << 40},
        {"path": [1, 0, 2], "round": 0},
    ],
)
def test_a_path_that_is_none_ends_the_job_with_the_name_of_who_tells_it(word: dict[str, Any]) -> None:
    job = job_of()
    node, others = Node(job, 2), [Node(job, rank) for rank in range(RANKS) if rank != 2]
    for other in others:
        for said in other.take_words():
            node.told(other.number, said, 0)
    assert node.error is None
    node.told(1, json.dumps(word).encode(), 0)
    assert str(node.error) == "rank 1: says what no node of this version says"


def test_a_word_that_comes_before_its_piece_is_asked_for_counts_then() -> None:
    job = job_of()
    topology: Any = axes_of(job)[1]
    paths = AuxiliaryPaths(job, 2, topology)
    paths.hear(1, {"path": [1, 0, 2], "tensor": 0, "round": 0})
    own = Post(Direction.RECEIVE, 1, np.zeros(875, np.float32), 0, 0, 0, Stage.NOW, 0.0)
    paths.post([own])
    [post] = paths.take_posts()
    assert (post.peer, post.data is own.data) == (0, True)
    assert not paths.take_withdrawals()
    crossing = paths.crossed(Crossing(post.key))
    assert crossing is not None
    assert crossing.key == own.key
    assert not paths.between([own.key])


def test_who_is_between_passes_one_piece_of_a_path_at_a_time() -> None:
    job = job_of()
    topology: Any = axes_of(job)[1]
    paths = AuxiliaryPaths(job, 0, topology)
    for tensor in (0, 4):
        paths.hear(1, {"path": [1, 0, 2], "tensor": tensor, "round": 0})
    [first] = paths.take_posts()
    assert (first.direction, first.peer) == (Direction.RECEIVE, 1)
    first.data[:] = 7
    assert paths.crossed(Crossing(first.key)) is None
    [passed] = paths.take_posts()
    assert (passed.direction, passed.peer, passed.tensor) == (Direction.SEND, 2, first.tensor)
    assert (passed.data == 7).all()
    assert paths.crossed(Crossing(passed.key)) is None
    [second] = paths.take_posts()
    assert (second.direction, second.peer, second.tensor) == (Direction.RECEIVE, 1, first.tensor + 4)


def test_words_of_an_epoch_that_has_not_begun_here_wait_for_it() -> None:
    job = job_of(continues=True)
    topology: Any = axes_of(job)[1]
    paths = AuxiliaryPaths(job, 0, topology)
    paths.hear(1, {"path": [1, 0, 2], "tensor": 0, "round": 1})
    paths.hear(1, {"path": [1, 0, 2], "tensor": 0, "round": 2})
    assert not paths.take_posts()
    assert paths.stop([]) == ([], [])
    paths.resume(topology, 1, frozenset({5}))
    [post] = paths.take_posts()
    assert (post.peer, post.round_number) == (1, 1)


def test_a_rank_that_lies_fills_no_memory_and_nobody_else_is_blamed() -> None:
    topology: Any = axes_of(job_of())[1]
    paths = AuxiliaryPaths(job_of(), 0, topology)
    most = RANKS * (RANKS + 16)
    for number in range(most):
        paths.hear(1, {"path": [1, 0, 2], "tensor": 0, "round": 256 * number})
    with pytest.raises(ValueError, match="too many pieces"):
        paths.hear(1, {"path": [1, 0, 2], "tensor": 0, "round": 256 * most})
    assert len(paths.take_posts()) == 1, "memory is for the first piece of a path"
    paths.hear(2, {"path": [2, 0, 1], "tensor": 0, "round": 0})
    with pytest.raises(ValueError, match="two paths"):
        paths.hear(2, {"path": [2, 0, 1], "tensor": 0, "round": 0})
    assert len(paths.take_posts()) == 1


def test_after_a_fault_links_that_trees_fill_are_still_not_idle() -> None:
    topology: Any = axes_of(job_of())[1]
    rates = {ends: bps for ends, bps in topology.rates_bps.items() if 4 not in ends}
    shares = {ends: bps / rates[ends] for ends, bps in topology.idle_bps(rates, {4}).items()}
    assert shares.keys() == rates.keys()
    assert len({round(share, 6) for share in shares.values()}) > 3
    assert min(shares.values()) == pytest.approx(0.02)


def test_a_fault_withdraws_what_is_open_and_ends_what_waits() -> None:
    job = job_of(continues=True, settings={"primary_busy_bound": 1, "auxiliary_queue_length": 1})
    topology: Any = axes_of(job)[1]
    paths = AuxiliaryPaths(job, 1, topology)
    ways = len(topology.paths(1, 4, topology.rates_bps))
    data = np.zeros(875, np.float32)
    sends = [Post(Direction.SEND, 4, data, 4 * piece, 0, 0, Stage.NOW, 0.0) for piece in range(ways + 3)]
    paths.post(sends)
    carried = paths.take_posts()
    assert len(carried) == 1 + ways
    withdrawn, ended = paths.stop([send.key for send in sends])
    assert {*withdrawn} == {post.key for post in carried}
    assert {*ended} == {send.key for send in sends[1 + ways :]}
    crossings = [paths.crossed(Crossing(key, is_withdrawn=True)) for key in withdrawn]
    assert {crossing.key for crossing in crossings if crossing is not None} == {
        send.key for send in sends[: 1 + ways]
    }


@pytest.mark.parametrize(
    ("settings", "options", "problem"),
    [
        ({"auxiliary": "often"}, {}, "auxiliary"),
        ({"primary_busy_bound": 0}, {}, "primary_busy_bound"),
        ({"auxiliary_queue_length": True}, {}, "auxiliary_queue_length"),
        ({}, {"synchronization": "osp"}, "osp: pieces take other paths under bsp alone"),
    ],
)
def test_settings_that_are_none(settings: dict[str, Any], options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserInputError, match=problem):
        axes_of(job_of(settings=settings, **options))


def real(job: Job, number: int, place: str, told: Any) -> None:
    def say(node: AgentNode, step: int | None, result: Any) -> Any:
        return paths_of(node.node).pieces if step is None else (result.min(), result.max())

    exchange(job, number, place, told, AgentConfig(), 10, say)


@pytest.mark.parametrize("transport", ["mlt", "tcp", "ltp"])
def test_real_agents_pass_pieces_on(tmp_path: Any, transport: str) -> None:
    overlay = mesh(4, lambda _one, _other: "1Gbps")
    settings = {"overlay": overlay, "auxiliary": "paper", "primary_busy_bound": 1, "update_seconds": 1.0}
    job = make_job(
        [(f"layer-{number}", 100_000) for number in range(4)],
        world=4,
        topology="fapt",
        topology_settings=settings,
        transport=transport,
        piece_bytes=40_000,
        loss_bound=0.0 if transport == "tcp" else 0.1,
        deadline_seconds=60.0,
    )
    said = told_by_ranks(real, job, tmp_path, 11)
    assert [each[:10] for each in said] == [[(1.5 + step, 1.5 + step) for step in range(10)]] * 4
    assert sum(each[10] for each in said) > 50
