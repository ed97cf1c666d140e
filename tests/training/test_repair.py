"""Jobs that go on without nodes that are gone: in virtual time, and real processes that are killed."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.real_kills import kill_real
from benchmarks.tree_faults import broken, case_of
from mltswitch.errors import UserInputError
from mltswitch.overlay.trees import children_of, depths, rooted_at, tree, without
from mltswitch.overlay.wan import known_wan
from mltswitch.training import agents
from mltswitch.training.axes import Network, axes_of
from mltswitch.training.errors import NodeLateError, NodeLostError
from mltswitch.training.job import Job, make_job
from mltswitch.training.node import Node
from mltswitch.training.virtual import SILENCE_SECONDS, Report, VirtualJob

STEPS = 6
LONG = (59, 269, 289, 299)
"""Seeds of long jobs, in which ranks come back one after the other."""
NETWORK = Network(1e8, 1e-3)


AUXILIARY = {
    "overlay": known_wan("mesh5").overlay().model_dump(mode="json", by_alias=True),
    "update_seconds": 0,
    "auxiliary": "paper",
    "primary_busy_bound": 1,
}
"""Pieces go by other nodes, too."""


def job_of(world: int = 5, **options: Any) -> Job:
    defaults: dict[str, Any] = {
        "topology": "tree",
        "topology_settings": {"in_degree": 2, "placement": "fixed"},
        "continues": True,
        "deadline_seconds": 30.0,
        "piece_bytes": 40_000,
        "element_type": "float64",
    }
    layers = [("front", 20_000), ("back", 30_000)]
    return make_job(layers, world=world, **defaults | options)


def gradient(job: Job, rank: int, step: int) -> Any:
    return np.full(job.elements, 4.0**rank * (step + 1))


def mean(job: Job, ranks: set[int], step: int) -> float:
    weights = {rank: job.weight(rank) for rank in ranks}
    return sum(4.0**rank * (step + 1) for rank in ranks) / sum(weights.values())


def train(
    job: Job, befall: Callable[[VirtualJob], object], compute: Mapping[tuple[int, int], float] | None = None
) -> Report:
    virtual = VirtualJob(job, NETWORK)
    befall(virtual)
    return virtual.run(
        STEPS,
        lambda rank, step: gradient(job, rank, step),
        lambda rank, step: (compute or {}).get((rank, step), 0.05),
    )


def sets_of_ranks(job: Job, report: Report, left: set[int]) -> list[set[int]]:
    """Of each step, whose gradients are in its sums: all ranks' or those that are left."""
    found = []
    for step in range(STEPS):
        results = [report.results[rank, step] for rank in sorted(left)]
        assert all(result.tobytes() == results[0].tobytes() for result in results)
        inside = {
            piece: next(
                ranks
                for ranks in ({*range(job.world)}, left)
                if (results[0][place.elements] == mean(job, ranks, step)).all()
            )
            for piece, place in enumerate(job.pieces)
        }
        found.append(set.intersection(*inside.values()))
    return found


@pytest.mark.parametrize("seed", range(1, 61))
@pytest.mark.parametrize("topology", ["tree", "star"])
def test_no_law_is_broken_by_faults(seed: int, topology: str) -> None:
    laws, _, _ = broken(case_of(seed, topology))
    assert not laws


@pytest.mark.parametrize("seed", [105, 145, 2221, 11851, *LONG])
def test_late_pieces_and_ranks_that_come_back(seed: int) -> None:
    """Results of before a fault come late, after those that follow them, to a rank that was started again."""
    laws, _, returned = broken(case_of(seed))
    assert not laws
    assert returned


@pytest.mark.parametrize("dead", range(5), ids=["root", "inner", "inner-2", "leaf", "leaf-2"])
@pytest.mark.parametrize("kind", ["kill", "cut"])
@pytest.mark.parametrize("options", [{}, {"colocated": 0}, {"topology": "star", "topology_settings": {}}])
def test_one_node_dies_and_all_others_train_on(dead: int, kind: str, options: dict[str, Any]) -> None:
    job = job_of(**options)

    def befall(virtual: VirtualJob) -> None:
        virtual.kill(dead, 0.3) if kind == "kill" else virtual.cut([dead], 0.3)

    report = train(job, befall)
    left = {*range(5)} - {dead}
    assert {*report.errors} <= {dead}
    inside = sets_of_ranks(job, report, left)
    assert inside[0] == {*range(5)}
    assert inside[-1] == left
    assert report.views[min(left)][-1][1].gone == {dead}
    silence = 0.0 if kind == "kill" else SILENCE_SECONDS
    assert max(report.views[rank][-1][0] for rank in left) <= 0.3 + silence + 0.5


@pytest.mark.parametrize("back", range(5), ids=["root", "inner", "inner-2", "leaf", "leaf-2"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"servers": 1},
        {"topology": "star", "topology_settings": {}},
        {"samples": (1, 2, 3, 4, 5)},
        {"topology": "fapt", "topology_settings": AUXILIARY},
    ],
)
def test_one_that_is_started_again_takes_part_again(back: int, options: dict[str, Any]) -> None:
    job = job_of(check_every=2, **options)
    virtual = VirtualJob(job, NETWORK)
    virtual.kill(back, 0.3)
    virtual.restart(back, 0.45)
    for node in virtual.nodes:
        node.ballots.checksum = 7
    report = virtual.run(20, lambda rank, step: gradient(job, rank, step), lambda rank, step: 0.05)
    assert not report.errors
    first = virtual.nodes[back].first_step
    assert first is not None
    assert 3 < first < 12
    every, left = {*range(5)}, {*range(5)} - {back}
    for step in range(20):
        results = [report.results[rank, step] for rank in (every if step >= first else left)]
        assert all(result.tobytes() == results[0].tobytes() for result in results)
        for place in job.pieces:
            part = results[0][place.elements]
            inside = [ranks for ranks in (every, left) if (part == mean(job, ranks, step)).all()]
            assert inside, f"step {step} is no mean"
            assert inside == [left] if step == first - 1 else inside == [every] or step < first


def test_what_bounds_leave_out_is_not_counted_for_who_came_later() -> None:
    job = job_of(topology="star", topology_settings={}, divisor="arrived", loss_bound=0.2)
    virtual = VirtualJob(job, NETWORK, loss_ratio=0.1, seed=3)
    virtual.kill(2, 0.3)
    virtual.restart(2, 0.45)
    report = virtual.run(20, lambda rank, step: gradient(job, rank, step), lambda rank, step: 0.05)
    first = virtual.nodes[2].first_step
    assert first is not None
    epoch = report.views[0][-1][1].epoch
    losses = [loss for loss in report.losses if loss.epoch == epoch]
    assert any(2 in loss.ranks and loss.total.number >= first for loss in losses)
    assert not any(2 in loss.ranks and loss.total.number < first for loss in losses)


def test_one_of_another_job_is_not_taken_in() -> None:
    job = job_of()
    virtual = VirtualJob(job, NETWORK)
    virtual.kill(3, 0.3)
    virtual.restart(3, 0.45, job_of(report_every=3))
    report = virtual.run(20, lambda rank, step: gradient(job, rank, step), lambda rank, step: 0.05)
    assert {*report.errors} == {3}
    assert "differ in: report_every" in str(report.errors[3])
    assert report.views[0][-1][1].gone == {3}


def test_a_newcomer_that_gives_nothing_is_lost_and_the_others_train_on() -> None:
    job = job_of()
    virtual = VirtualJob(job, NETWORK)
    virtual.kill(3, 0.3)
    virtual.restart(3, 0.45)
    report = virtual.run(
        20,
        lambda rank, step: gradient(job, rank, step),
        lambda rank, step: math.inf if (rank, virtual.nodes[3].first_step) == (3, step) else 0.05,
    )
    assert {*report.errors} == {3}
    assert "the others have lost it" in str(report.errors[3])
    assert "it has given nothing within 30 s" in virtual.nodes[0].reasons[3]
    assert report.views[0][-1][1].gone == {3}


def test_nobody_is_taken_in_when_one_has_left() -> None:
    job = job_of()
    virtual = VirtualJob(job, NETWORK)
    virtual.kill(3, 0.3)
    virtual.nodes[0].leave()
    virtual.restart(3, 0.45)
    report = virtual.run(20, lambda rank, step: gradient(job, rank, step), lambda rank, step: 0.05)
    assert not report.errors
    assert virtual.nodes[3].first_step is None


def test_a_rank_comes_back_many_times() -> None:
    """Words say only the last eras, and each of them is another one."""
    job = job_of()
    virtual = VirtualJob(job, NETWORK)
    for number in range(20):
        virtual.kill(3, 0.3 + 1.5 * number)
        virtual.restart(3, 0.6 + 1.5 * number)
    steps = 300
    report = virtual.run(steps, lambda rank, step: gradient(job, rank, step), lambda rank, step: 0.1)
    assert not report.errors
    assert report.views[0][-1][1].epoch == 40
    for step in range(steps):
        results = [report.results[rank, step] for rank in (0, 1, 2, 4)]
        assert all(result.tobytes() == results[0].tobytes() for result in results)
    assert report.results[3, steps - 1].tobytes() == report.results[0, steps - 1].tobytes()


def test_who_takes_in_nobody_says_so() -> None:
    with pytest.raises(UserInputError, match="bsp over tree takes in nobody"):
        Node(job_of(continues=False), 0, absent=frozenset())


def test_the_cut_off_part_ends_and_says_why() -> None:
    job = job_of()
    report = train(job, lambda virtual: virtual.cut([0, 3], 0.3))
    assert {*report.errors} == {0, 3}
    for node in (0, 3):
        error = report.errors[node]
        assert isinstance(error, NodeLostError)
        assert error.where == job.node_name(node)
        assert "of 5 nodes, not more than half, without rank" in error.what
    assert sets_of_ranks(job, report, {1, 2, 4})[-1] == {1, 2, 4}


def test_a_child_that_is_only_slow_is_not_cut_off() -> None:
    job = job_of()
    report = train(job, lambda virtual: None, {(3, 2): 25.0})
    assert not report.errors
    assert sets_of_ranks(job, report, {*range(5)}) == [{*range(5)}] * STEPS


def test_a_deadline_names_who_never_comes() -> None:
    job = job_of()
    report = train(job, lambda virtual: virtual.kill(4, 0.3), {(3, 2): math.inf})
    for node in range(4):
        error = report.errors[node]
        assert isinstance(error, NodeLateError)
        assert error.where == "rank 3"


def test_ranks_weigh_what_they_weighed() -> None:
    job = job_of(samples=(1, 2, 3, 4, 5))
    report = train(job, lambda virtual: virtual.kill(1, 0.3))
    sets_of_ranks(job, report, {0, 2, 3, 4})


@pytest.mark.parametrize("servers", [1, 2])
def test_ranks_take_over_from_servers(servers: int) -> None:
    job = job_of(servers=servers)

    def befall(virtual: VirtualJob) -> None:
        for server in range(servers):
            virtual.kill(5 + server, 0.3 + server)

    report = train(job, befall)
    assert not report.errors
    assert sets_of_ranks(job, report, {*range(5)}) == [{*range(5)}] * STEPS


def test_parameters_are_compared_after_a_fault_as_before() -> None:
    job = job_of(check_every=1)
    virtual = VirtualJob(job, NETWORK)
    virtual.kill(2, 0.3)
    for rank, node in enumerate(virtual.nodes):
        node.ballots.checksum = 7 if rank != 4 else 8  # from step 0 on, which the first ballot tells
    report = virtual.run(STEPS, lambda rank, step: gradient(job, rank, step), lambda rank, step: 0.2)
    assert {error.where for error in report.errors.values()} == {"rank 4"}


def test_who_can_go_on() -> None:
    with pytest.raises(Exception, match="bsp over ring: nobody can go on"):
        axes_of(job_of(topology="ring", topology_settings={}))
    with pytest.raises(Exception, match="osp over tree: nobody can go on"):
        axes_of(job_of(synchronization="osp"))


@given(
    st.integers(2, 40).flatmap(
        lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1), max_size=count - 1))
    ),
    st.integers(1, 5),
)
def test_trees_without_nodes_are_trees_of_the_others(places: tuple[int, set[int]], in_degree: int) -> None:
    count, gone = places
    left = {*range(count)} - gone
    parents = tree(0, range(count), {}, in_degree)
    root = min(left)
    if root != 0:
        parents = rooted_at(root, 0, parents)
    found = without(root, parents, gone)
    assert {*found} == left - {root}
    assert {*depths(found)} == {*found}, "each way ends"
    assert {*found.values()} <= left
    before = depths(parents)
    assert all(depth <= before[node] for node, depth in depths(found).items())
    assert {child for each in children_of(found).values() for child in each} == left - {root}


@pytest.mark.parametrize("seed", [3, 4, 6, 8, 10])
def test_real_processes_that_are_killed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "PART_BYTES", 100_000)  # of what one that is started again gets
    assert not kill_real(seed).problem  # trees over tcp and mlt, and a star; of even ones ranks come back


@pytest.mark.parametrize("topology", ["star", "tree"])
@pytest.mark.parametrize("servers", [2, 3])
def test_servers_that_have_made_other_pieces_for_long(topology: str, servers: int) -> None:
    """Their figures of the pieces that others make are as old as the job."""
    options: dict[str, Any] = {} if topology == "tree" else {"topology_settings": {}}
    job = job_of(servers=servers, topology=topology, check_every=1, **options)
    virtual = VirtualJob(job, NETWORK)
    virtual.kill(3, 1.5)
    virtual.restart(3, 1.7)
    report = virtual.run(50, lambda rank, step: gradient(job, rank, step), lambda rank, step: 0.05)
    assert not report.errors
    assert [view.gone for _, view in report.views[0]] == [frozenset(), frozenset({3}), frozenset()]
    assert (report.results[0, 45] == mean(job, {*range(5)}, 45)).all()
