"""What a node holds, hears and says, and the network in virtual time."""

import json
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.training.addition import Loss
from mltswitch.training.axes import Crossing, Direction, Network, Post, Stage, Sum
from mltswitch.training.errors import JobMismatchError, NodeLateError, NodeLostError, TrainingError
from mltswitch.training.job import Job, OptimizerRule, make_job
from mltswitch.training.left_out import LeftOut
from mltswitch.training.node import Node
from mltswitch.training.virtual import VirtualJob
from mltswitch.training.virtual_network import Pair, Timeline, VirtualNetwork, fill

JOB = make_job([("a", 300), ("b", 300)], world=3, piece_bytes=1_200)


def ones(job: Job) -> Any:
    return np.ones(job.elements, job.element_type)


@given(st.binary(max_size=40))
def test_a_word_that_nobody_says_is_a_mismatch_and_no_crash(word: bytes) -> None:
    node = Node(JOB, 0)
    node.told(1, word, 0)
    assert node.error is None or (isinstance(node.error, JobMismatchError) and node.error.where == "rank 1")


@pytest.mark.parametrize(
    "word", [b"[]", b'{"job": 1}', b'{"job": ["a"]}', b'{"given": "x"}', b'{"given": 1e999}']
)
def test_words_that_are_almost_right(word: bytes) -> None:
    node = Node(JOB, 0)
    node.told(1, word, 0)
    assert node.error is None or node.error.where == "rank 1"


def test_nothing_is_posted_before_all_have_met() -> None:
    nodes = [Node(JOB, number) for number in range(3)]
    nodes[0].ready(0, (0, 1), ones(JOB), ones(JOB), 0)
    (word,) = nodes[1].take_words()
    nodes[0].told(1, word, 0)
    assert not nodes[0].take_posts()
    nodes[0].told(2, nodes[2].take_words()[0], 0)
    assert nodes[0].has_met_all
    assert len({post.key for post in nodes[0].take_posts()}) == 4  # gradients of two ranks, a push and a pull


@pytest.mark.parametrize("kind", [NodeLostError, NodeLateError, JobMismatchError])
@pytest.mark.parametrize("where", ["rank 2", "server 0", "rank 0, server 12"])
def test_a_goodbye_carries_the_blame_on(kind: type[TrainingError], where: str) -> None:
    first, second = Node(JOB, 0), Node(JOB, 1)
    second.told(0, first.take_words()[0], 0)
    first.fail(kind("said: nothing", where=where))
    second.lost(0, f"the peer has left: {first.goodbye}", 0)
    assert type(second.error) is kind
    assert (second.error.where, second.error.what) == (where, "said: nothing")


def test_a_mismatch_is_of_the_node_that_does_not_agree_here() -> None:
    node, odd = Node(JOB, 0), Node(make_job([("a", 1)], world=3), 2)
    odd.told(1, Node(JOB, 1).take_words()[0], 0)
    node.lost(2, odd.goodbye, 0)
    assert node.error is not None
    assert node.error.where == "rank 2"
    assert "layers" in node.error.what


def test_a_crossing_that_fails_names_its_peer() -> None:
    node = Node(JOB, 0)
    for peer in (1, 2):
        node.told(peer, Node(JOB, peer).take_words()[0], 0)
    node.ready(0, (0, 1), ones(JOB), ones(JOB), 0)
    post = next(post for post in node.take_posts() if post.direction is Direction.SEND)
    node.crossed(Crossing(post.key, error=OSError("no route")), 0)
    assert isinstance(node.error, NodeLostError)
    assert node.error.where == "rank 1"
    assert "piece 1 of step 0: no route" in str(node.error)


def test_nodes_ask_each_other_before_they_blame() -> None:
    node = Node(JOB, 0)
    for peer in (1, 2):
        node.told(peer, Node(JOB, peer).take_words()[0], 0)
    node.take_words()
    node.ready(0, (0, 1), ones(JOB), ones(JOB), 0)
    second, late = 1_000_000_000, int(JOB.deadline_seconds) * 1_000_000_000
    node.check(late - 4 * second)
    assert not node.take_words()
    for time_ns in (late - 3 * second, late - second):  # before the deadline, and again
        node.check(time_ns)
        assert [json.loads(word) for word in node.take_words()] == [{"given": 2, "asks": True}]
    node.told(1, b'{"given": 2, "asks": true}', 0)
    assert not node.take_words(), "all know it already"
    node.check(late)
    assert node.error is None
    node.check(late + 1)
    assert isinstance(node.error, NodeLateError)
    assert node.error.where == "rank 2"


@pytest.mark.parametrize(
    ("topology", "servers", "synchronization"),
    [("star", 0, "bsp"), ("star", 2, "bsp"), ("ring", 0, "bsp"), ("star", 2, "asp"), ("star", 0, "osp")],
)
def test_all_nodes_tell_together_what_bounds_left_out(
    topology: str, servers: int, synchronization: str
) -> None:
    elements, steps = 40_000, 6
    job = make_job(
        [("small", elements // 4), ("large", 3 * elements // 4)],
        world=3,
        servers=servers,
        topology=topology,
        synchronization=synchronization,
        optimizer=OptimizerRule("SGD", ({"lr": 1.0},), ((elements, 0),)),
        loss_bound=0.2,
        report_every=2,
    )
    virtual = VirtualJob(job, Network(1e8, 1e-4), loss_ratio=0.1, parameters=np.zeros(elements, np.float32))
    run = virtual.run(steps, lambda rank, step: ones(job), lambda rank, step: 0.5)
    assert not run.errors
    told = [node.take_reports() for node in virtual.nodes]
    first = told[0]
    assert [(each.first_step, each.last_step) for each in first] == [(0, 1), (2, 3), (4, 5)]
    for others in told[1:]:
        assert [replace(each, time_ns=0) for each in others] == [replace(each, time_ns=0) for each in first]
    share = sum(loss.elements * len(loss.ranks) for loss in run.losses) / elements / 3 / steps
    assert sum(each.network_share for each in first) / 3 == pytest.approx(
        share, rel=0.25
    )  # what is told later
    assert all(each.bound_share == 0 and each.layer in {"small", "large"} for each in first)
    assert all(each.layer_share >= each.network_share for each in first)


@pytest.mark.parametrize("samples", [(30, 10), (10, 30), ()])
@pytest.mark.parametrize("servers", [0, 1])
def test_a_mean_of_what_arrives_is_weighted_as_the_ranks_are(samples: tuple[int, ...], servers: int) -> None:
    options: dict[str, Any] = {"loss_bound": 0.2, "divisor": "arrived", "servers": servers}
    job = replace(make_job([("a", 20_000)], world=2, **options), samples=samples)
    virtual = VirtualJob(job, Network(1e8, 1e-4), loss_ratio=0.1)
    run = virtual.run(2, lambda rank, step: job.weight(rank) * ones(job), lambda rank, step: 0.1)
    assert sum(loss.elements for loss in run.losses) > 1000
    for step, rank in ((0, 0), (0, 1), (1, 0), (1, 1)):
        found = np.unique(run.results[rank, step].round(6))
        assert found.tolist() in ([1.0], [0.0, 1.0]), "nothing of it, or all that counts"


def test_a_report_says_who_left_it_out() -> None:
    job = make_job([("a", 10_000), ("b", 30_000)], world=2, loss_bound=0.1)
    one, other = LeftOut(job), LeftOut(job)
    last = len(job.pieces) - 1
    one.count(Loss(Sum(0, 5), 1, 0, (1,), ((0, 100),)))
    other.count(Loss(Sum(last, 5), 0, 1, (0,), ((100, 4100), (5000, 6000)), is_cut=True))
    words = [json.loads(json.dumps(each.told(100))) for each in (one, other)]
    assert one.heard(0, words[0], {0, 1}) is None
    report = one.heard(1, words[1], {0, 1})
    assert report is not None
    assert report.text == (
        "steps 0-99: sums are without 0.06%: 0.00% by the network, 0.06% by the bound; most in layer b, 0.08%"
    )


@pytest.mark.parametrize(("topology", "servers"), [("star", 0), ("star", 2), ("ring", 0)])
def test_memory_is_that_of_two_steps(topology: str, servers: int) -> None:
    job = make_job([("a", 3_000)], world=4, servers=servers, topology=topology, piece_bytes=2_000)
    virtual = VirtualJob(job, Network(1e8, 1e-4))
    places: defaultdict[int, Counter[int]] = defaultdict(Counter)
    kept = []

    def watch(node: Node) -> None:
        take = node.take_posts

        def take_posts() -> Any:
            posts = take()
            for post in posts:
                if post.direction is Direction.RECEIVE and not post.tensor % 2:  # partial sums
                    places[node.number][post.data.ctypes.data] += 1
                    kept.append(post.data)
            return posts

        node.take_posts = take_posts  # type: ignore[method-assign]

    for node in virtual.nodes:
        watch(node)
    virtual.run(10, lambda rank, step: ones(job))
    for used in places.values():
        assert max(used.values()) >= 10
        assert len(used) <= len(job.pieces) * (job.world if servers else 1)
    assert all(node.is_over(step) for node in virtual.nodes for step in range(10))


def test_what_is_not_finite_is_counted_and_passed_on() -> None:
    own = ones(JOB)
    own[5] = np.nan
    own[400] = np.inf
    virtual = VirtualJob(JOB, Network(1e9, 1e-5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = virtual.run(1, lambda rank, step: own if rank == 1 else -own)
    assert not report.errors
    assert [node.ballots.nonfinite_pieces for node in virtual.nodes] == [2, 2, 2]
    assert np.flatnonzero(~np.isfinite(report.results[2, 0])).tolist() == [5, 400]


def test_large_gradients_are_finite() -> None:
    virtual = VirtualJob(JOB, Network(1e9, 1e-5))
    virtual.run(1, lambda rank, step: 3e38 * ones(JOB))
    assert not virtual.nodes[0].ballots.nonfinite_pieces


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2), st.integers(1, 4)),
        min_size=1,
        max_size=20,
        unique_by=lambda entry: entry[:3],
    ),
    st.booleans(),
)
def test_links_are_shared_max_min_fairly_and_each_class_gets_what_those_before_it_leave(
    entries: list[tuple[int, int, int, int]], in_turn: bool
) -> None:
    flow: Any = (0.0, 0, None)
    network = Network(100.0, 0.0)
    pairs = [
        Pair(source, target, order, network.way(source, target), flows=[flow] * count, in_turn=in_turn)
        for source, target, order, count in entries
    ]
    fill(pairs, network.rate_bps)

    def sharing(pair: Pair, is_up: bool) -> list[Pair]:
        end = pair.source if is_up else pair.target
        return [other for other in pairs if end == (other.source if is_up else other.target)]

    for pair in pairs:
        is_limited = []
        for is_up in (True, False):
            others = sharing(pair, is_up)
            used = sum(other.rate_bps * (1 if in_turn else len(other.flows)) for other in others)
            assert used <= 100.0 * (1 + 1e-9)
            rivals = [other.rate_bps for other in others if other.order == pair.order]
            is_limited.append(used >= 100.0 * (1 - 1e-9) and pair.rate_bps >= max(rivals) - 1e-6)
        assert any(is_limited), "no flow could go faster without one that is slower going slower still"
    first = [pair for pair in pairs if pair.order < 2]
    rates = [pair.rate_bps for pair in first]
    fill(first, network.rate_bps)
    assert [pair.rate_bps for pair in first] == pytest.approx(rates), "what is behind takes nothing from it"


@pytest.mark.parametrize(
    ("priority", "ends"),
    [
        (None, {0: 2.75, 1: 2.75, 2: 3.0}),
        (lambda post: post.layer, {0: 1.0, 1: 2.0, 2: 3.0}),
        (lambda post: -post.layer, {0: 3.0, 1: 2.0, 2: 1.5}),  # 2 overtakes in the middle of 1
    ],
)
def test_what_a_node_sends_shares_the_way_or_leaves_in_turn(
    priority: Callable[[Post], int] | None, ends: dict[int, float]
) -> None:
    timeline, found = Timeline(), dict[int, float]()

    def cross(node: int, crossing: Crossing) -> None:
        if node == 1:
            found[crossing.key[2]] = timeline.now_seconds

    network = VirtualNetwork(timeline, Network(32_000.0, 0.0), cross, priority=priority)

    def post(tensor: int) -> None:
        for node, direction in ((0, Direction.SEND), (1, Direction.RECEIVE)):
            data = np.full(1_000, tensor, np.float32)
            network.post(node, Post(direction, 1 - node, data, tensor, 0, tensor, Stage.NOW, 0.0))

    timeline.after(0.0, partial(post, 0))
    timeline.after(0.0, partial(post, 1))
    timeline.after(0.5, partial(post, 2))
    while network.goes_on():
        pass
    assert found == pytest.approx(ends)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("settings", {"settings": {"share": 0.2}}),
        ("samples", {"samples": (1, 2)}),
        ("colocated", {"colocated": 1}),
        ("optimizer", {"optimizer": OptimizerRule("SGD", ({"lr": 0.1},), ((1, 0),))}),
    ],
)
def test_settings_that_differ_are_named_at_the_start(part: str, change: dict[str, Any]) -> None:
    job = make_job([("a", 1)], world=2, synchronization="osp", settings={"share": 0.1})
    node, odd = Node(job, 0), Node(replace(job, **change), 1)
    node.told(1, odd.take_words()[0], 0)
    assert isinstance(node.error, JobMismatchError)
    assert str(node.error) == f"rank 1: the jobs of rank 0 and rank 1 differ in: {part}"


def test_who_is_cut_off_hands_out_nothing_more() -> None:
    """Also where all of it happens in one turn: sums of its own gradients alone are nobody's."""
    job = make_job([("a", 9_000)], world=5, continues=True, piece_bytes=4_000)
    node = Node(job, 2)
    for peer in {*range(5)} - {2}:
        node.told(peer, Node(job, peer).take_words()[0], 0)
    own = np.ones(job.elements, np.float32)
    node.ready(0, range(len(job.pieces)), own, np.zeros_like(own), 0)
    posts = node.take_posts()
    for peer in (0, 1, 3, 4):
        node.lost(peer, "silent for too long", 0)
    assert isinstance(node.error, NodeLostError)
    assert node.error.where == "rank 2"
    for post in posts:
        node.crossed(Crossing(post.key, error=RuntimeError("withdrawn"), is_withdrawn=True), 0)
    assert node.take_arrived() == []
    assert node.agreed == set()


@pytest.mark.parametrize("ballot", [0, 900])
def test_results_that_nobody_can_have_end_the_job(ballot: int) -> None:
    job = make_job([("a", 9_000)], world=3, continues=True, piece_bytes=4_000)
    node = Node(job, 0)
    for peer in (1, 2):
        node.told(peer, Node(job, peer).take_words()[0], 0)
    node.lost(2, "connection reset", 0)
    for post in node.take_posts():
        node.crossed(Crossing(post.key, error=RuntimeError("withdrawn"), is_withdrawn=True), 0)
    for key in node.take_withdrawals():
        node.crossed(Crossing(key, error=RuntimeError("withdrawn"), is_withdrawn=True), 0)
    least = 0 if ballot else 7
    word = {"lost": "4", "era": [0, []], "hurried": False, "first": 0, "least": least, "ballot": ballot}
    word |= {"begun": 1, "version": 0, "at": -1}
    node.told(1, json.dumps({**word, "more": "0" * len(job.pieces)}).encode(), 0)
    assert isinstance(node.error, JobMismatchError)
    assert node.error.where == "rank 1"
    assert "cannot have" in node.error.what


def test_the_goodbye_of_one_that_is_gone_ends_nothing() -> None:
    job = make_job([("a", 9_000)], world=3, continues=True)
    node = Node(job, 0)
    for peer in (1, 2):
        node.told(peer, Node(job, peer).take_words()[0], 0)
    node.lost(2, "connection reset", 0)
    node.lost(2, "was disconnected: NodeLateError: rank 1: has not done its part", 0)
    assert node.error is None
