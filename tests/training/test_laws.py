"""The laws of every synchronization over every topology, built in or not, in virtual time."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.training_campaign import LAWS, broken, main, play, scenario
from mltswitch.errors import UserInputError
from mltswitch.training import axes
from mltswitch.training.axes import Network, Sum, axes_of, synchronizations, topologies
from mltswitch.training.job import OptimizerRule, make_job
from mltswitch.training.partial_sums import PartialSums, Ready
from mltswitch.training.plans import Work
from mltswitch.training.shortening import round_to_short
from mltswitch.training.synchronization.bsp import BspKeeper
from mltswitch.training.virtual import HungError, VirtualJob
from tests.training import strangers

FAULTS = ("", "kill", "cut", "never", "slow", "mismatch")
JOINT = ("bsp", "window", "osp")
ALONE = ("asp", "ssp", "r2sp", "switch")
TOPOLOGIES = ("star", "ring", "tree-2", "tree-3", "tree")
RULE = OptimizerRule("SGD", ({"lr": 1.0},), ((10_000, 0),))


@dataclass
class Entry:
    """An entry point of another package."""

    point: Any

    def load(self) -> Any:
        return self.point


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What `strangers` has, as another package would register it."""
    points = {
        "mltswitch.topologies": strangers.TOPOLOGIES,
        "mltswitch.synchronizations": strangers.SYNCHRONIZATIONS,
    }
    monkeypatch.setattr(axes, "entry_points", lambda group: [Entry(point) for point in points[group]])
    synchronizations.cache_clear()
    topologies.cache_clear()
    yield
    synchronizations.cache_clear()
    topologies.cache_clear()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("synchronization", "topology"),
    [*((name, topology) for name in JOINT for topology in TOPOLOGIES), *((name, "star") for name in ALONE)],
)
def test_no_law_is_broken(synchronization: str, topology: str, fault: str) -> None:
    first = 100 * ((*JOINT, *ALONE).index(synchronization) + 9 * TOPOLOGIES.index(topology))
    for seed in (first, first + 1, first + 2):
        case = scenario(seed, synchronization=synchronization, topology=topology, fault=fault)
        assert not broken(case), f"seed {seed}"


@pytest.mark.parametrize("synchronization", ALONE)
@pytest.mark.parametrize(("world", "servers"), [(1, 0), (3, 0), (3, 2)])
def test_each_push_is_one_step_with_an_nth_of_it(synchronization: str, world: int, servers: int) -> None:
    """And the answer has it: parameters are minus the sum of pushes, each a digit of base 4."""
    steps = 4
    job = make_job(
        [("a", 5), ("b", 900)],
        world=world,
        servers=servers,
        piece_bytes=2000,
        element_type="float64",
        synchronization=synchronization,
        optimizer=RULE,
    )
    virtual = VirtualJob(job, Network(1e8, 1e-4), parameters=np.zeros(job.elements))
    report = virtual.run(
        steps,
        lambda rank, step: np.full(job.elements, world * 4.0 ** (rank * steps + step)),
        lambda rank, step: 0.01 * (1 + rank),
    )
    assert not report.errors
    for rank in range(world):
        results = [-report.results[rank, step] for step in range(steps + 1)]
        assert np.array_equal(results[steps], np.full(job.elements, (4.0 ** (world * steps) - 1) / 3))
        for step, result in enumerate(results[:-1]):
            own = result // 4.0 ** (rank * steps) % 4.0 ** (step + 1)
            assert np.array_equal(own, np.full(job.elements, (4.0 ** (step + 1) - 1) / 3)), (
                "its own are in it"
            )


def _starts(synchronization: str, seconds: tuple[float, ...], **options: Any) -> dict[tuple[int, int], float]:
    """When each rank begins each of 8 steps."""
    job = make_job(
        [("a", 10)], world=3, servers=1, synchronization=synchronization, optimizer=RULE, **options
    )
    started: dict[tuple[int, int], float] = {}
    virtual = VirtualJob(job, Network(1e9, 1e-5), parameters=np.zeros(10, np.float32))

    def gradients(rank: int, step: int) -> Any:
        started[rank, step] = virtual.now_seconds
        return np.ones(10)

    report = virtual.run(8, gradients, lambda rank, step: seconds[rank])
    assert not report.errors
    return started


def test_a_slow_rank_holds_others_back_as_far_as_it_should() -> None:
    seconds = (0.1, 0.1, 1.0)
    assert _starts("bsp", seconds)[0, 4] == pytest.approx(4.0, rel=0.01)
    assert _starts("asp", seconds)[0, 4] == pytest.approx(0.4, rel=0.01)
    assert _starts("ssp", seconds, settings={"staleness": 0})[0, 4] == pytest.approx(4.0, rel=0.01)
    for staleness in (1, 2, 3):
        started = _starts("ssp", seconds, settings={"staleness": staleness})
        for step in range(8):
            slowest = step - staleness - 1  # which must be finished
            earliest = max(0.1 * step, 1.0 * (slowest + 1))
            assert started[0, step] == pytest.approx(earliest, abs=0.02)
    switch = _starts("switch", seconds, settings={"after": 3})
    assert switch[0, 3] == pytest.approx(3.0, rel=0.01)
    assert switch[0, 7] == pytest.approx(3.4, rel=0.01)


def test_turns_are_fixed_and_an_absent_ranks_turn_is_skipped() -> None:
    job = make_job(
        [("a", 125_000)],
        world=3,
        servers=1,
        synchronization="r2sp",
        optimizer=OptimizerRule("SGD", ({"lr": 1.0},), ((125_000, 0),)),
        settings={"turn_seconds": 3.0},
        piece_bytes=1 << 20,
    )
    started: dict[tuple[int, int], float] = {}
    virtual = VirtualJob(
        job, Network(1e8, 1e-5), parameters=np.zeros(job.elements, np.float32), backward_share=0
    )

    def gradients(rank: int, step: int) -> Any:
        started[rank, step] = virtual.now_seconds
        return np.ones(job.elements)

    slow = {(1, 3): 9.0}
    assert not virtual.run(6, gradients, lambda rank, step: slow.get((rank, step), 0.05)).errors
    push = 0.04
    for step in (1, 2, 3):
        begins = [started[rank, step] for rank in range(3)]
        assert np.diff(begins) == pytest.approx([push, push], rel=0.02), "one after the other"
    assert 3 < started[2, 4] - started[2, 3] < 5, "rank 1 computes for long, and its turn is skipped"
    assert started[0, 5] < started[1, 4]


@pytest.mark.parametrize("topology", ["star", "ring", "tree-2"])
def test_what_goes_later_overlaps_the_next_computation(topology: str) -> None:
    seconds = {}
    for synchronization, share in (("bsp", None), ("osp", 0.5)):
        job = make_job(
            [(f"layer-{number}", 30_000) for number in range(6)],
            world=3,
            synchronization=synchronization,
            topology=topology,
            settings={} if share is None else {"share": share, "slice_bytes": 1},
        )
        virtual = VirtualJob(job, Network(1e8, 1e-5), backward_share=0)
        report = virtual.run(8, partial(_ones, virtual), lambda r, s: 0.1)
        seconds[synchronization] = report.step_seconds[5]
    exchange = seconds["bsp"] - 0.1
    assert seconds["osp"] == pytest.approx(seconds["bsp"] - 0.5 * exchange, rel=0.12)


@pytest.mark.parametrize("topology", ["star", "ring", "tree-2"])
@pytest.mark.parametrize("synchronization", ["bsp", "osp"])
def test_sums_that_travel_short_are_the_same_at_all_ranks_in_half_of_the_time(
    topology: str, synchronization: str
) -> None:
    found = {}
    for wire_type in (None, "bfloat16"):
        job = make_job(
            [(f"layer-{number}", 30_000) for number in range(6)],
            world=3,
            synchronization=synchronization,
            topology=topology,
            wire_type=wire_type,
        )
        gradients = [np.random.default_rng(rank).standard_normal(job.elements) for rank in range(3)]
        virtual = VirtualJob(job, Network(1e8, 1e-5), backward_share=0)

        def given(rank: int, step: int, virtual: VirtualJob = virtual, gradients: Any = gradients) -> Any:
            _ones(virtual, rank, step)
            return gradients[rank]

        report = virtual.run(6, given, lambda rank, step: 0.1)
        assert not report.errors
        found[wire_type] = [report.results[rank, 5].copy() for rank in range(3)], report.step_seconds[3]
    (whole, *_), seconds = found[None]
    results, short_seconds = found["bfloat16"]
    if synchronization == "bsp":
        assert short_seconds - 0.1 == pytest.approx((seconds - 0.1) / 2, rel=0.1)
        round_to_short(whole)
    assert all(np.array_equal(result, results[0]) for result in results)
    if synchronization == "bsp":
        assert np.array_equal(results[0], whole), "the root adds float32, and rounds once"


def _ones(virtual: VirtualJob, rank: int, _step: int) -> Any:
    """Gradients of a rank, which also tells how important its share of the pieces is."""
    job, member = virtual.job, virtual.nodes[rank].member
    assert member is not None
    member.weighed({piece: 1.0 + piece for piece in range(rank, len(job.pieces), job.world)})
    return np.ones(job.elements, job.element_type)


def test_a_window_bounds_how_far_ranks_are_apart() -> None:
    job = make_job([("a", 10)], world=3, synchronization="window")
    at = [0, 0, 0]

    def gradients(rank: int, step: int) -> Any:
        at[rank] = step
        assert max(at) - min(at) <= 3
        apart.append(max(at) - min(at))
        return np.ones(10)

    apart: list[int] = []
    VirtualJob(job, Network(1e9, 1e-5)).run(8, gradients, lambda rank, step: 0.1 * (1 + 4 * (rank == 1)))
    assert max(apart) >= 2


def by(synchronization: str, **settings: Any) -> dict[str, Any]:
    return {"synchronization": synchronization, "settings": settings}


def over(topology: str, **settings: Any) -> dict[str, Any]:
    return {"topology": topology, "topology_settings": settings}


def routed(parents: str, **settings: Any) -> dict[str, Any]:
    return over("tree", routes={"trees": [[0, 1.0, parents]]}, **settings)


@pytest.mark.parametrize(
    ("fields", "where", "problem"),
    [
        (by("none"), "synchronization", "'none' is no synchronization"),
        (over("none"), "topology", "'none' is no topology"),
        (by("asp") | over("ring"), "topology", "asp over ring"),
        (by("ssp") | over("ring"), "topology", "ssp over ring"),
        (by("r2sp") | over("tree-2"), "topology", "(expected star)"),
        (by("asp"), "optimizer", "no optimizer is told"),
        (by("asp") | {"optimizer": RULE, "continues": True}, "continues", "without a rank"),
        (over("ring") | {"continues": True}, "continues", "bsp over ring: nobody can go on"),
        (over("ring") | {"colocated": 1}, "colocated", "no server"),
        (by("bsp", share=1), "synchronization.bsp.share", "is no field"),
        (by("ssp", staleness=-1), "synchronization.ssp.staleness", "-1: "),
        (by("ssp", staleness=1.5), "synchronization.ssp.staleness", "1.5: "),
        (by("r2sp", turn_seconds=0), "synchronization.r2sp.turn_seconds", "0: "),
        (by("osp", share=1.01), "synchronization.osp.share", "1.01: "),
        (by("osp", most_share=-0.1), "synchronization.osp.most_share", "-0.1: "),
        (by("osp", shares=1), "synchronization.osp.shares", "slice_bytes"),
        (by("osp", tuning="paper"), "synchronization.osp.link_bps", "equation 5"),
        (by("osp", prediction="ema"), "synchronization.osp.prediction", "'ema'"),
        (over("ring") | {"servers": 2}, "servers", "ring has none"),
        (over("star", in_degree=2), "topology.star.in_degree", "is no field"),
        (over("tree", in_degree=0), "topology.tree.in_degree", "1 or more"),
        (routed("- 0") | {"servers": 1}, "topology.tree.routes", "are for 0 servers, the job has 1"),
        (routed("- 0", in_degree=2), "topology.tree.routes", "and in_degree would say it again"),
        (over("tree", window_pieces=0), "topology.tree.window_pieces", "at least 1"),
        (by("osp") | over("tree", window_pieces=4), "topology.tree.window_pieces", "an order of its own"),
        (over("tree", in_degree="x"), "topology.tree.in_degree", "'x'"),
        (over("tree", in_degree="rack"), "topology.tree.racks", "is missing"),
        (over("tree", racks=["a"]), "topology.tree.racks", "1 racks of 2 ranks"),
        (routed("- 0 0"), "topology.tree.routes", "the tree of root 0 has 3 parents for 2 ranks"),
        (routed("- 1"), "topology.tree.routes", "the tree of root 0 has a circle at rank 1"),
        (routed("- 0") | {"colocated": 0}, "topology.tree.routes", "have roots of their own"),
        (over("tree") | {"divisor": "arrived"}, "divisor", "does not know how many"),
        (over("ring") | {"divisor": "arrived"}, "divisor", "does not know how many"),
        (by("asp") | {"optimizer": RULE, "divisor": "arrived"}, "divisor", "no sum of which"),
    ],
)
def test_axes_that_make_no_sense_together_are_refused(fields: Any, where: str, problem: str) -> None:
    with pytest.raises(UserInputError) as raised:
        axes_of(make_job([("a", 1)], world=2, **fields))
    assert raised.value.where == where
    assert problem in str(raised.value)


def test_a_keeper_that_gives_nothing_out_hangs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Never(BspKeeper):
        def pushed(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:
            return []

    monkeypatch.setattr(strangers.Window, "keeper", lambda self, job: Never(job))
    job = make_job([("a", 10)], world=2, synchronization="window", deadline_seconds=5)
    report = VirtualJob(job, Network(1e9, 1e-5)).run(2, lambda rank, step: np.ones(10))
    assert len(report.errors) == 2
    assert max(report.failed_seconds.values()) < 11


def test_a_hung_job_is_told_from_a_slow_one() -> None:
    job = make_job([("a", 10)], world=1, deadline_seconds=5)
    report = VirtualJob(job, Network(1e9, 1e-5)).run(1, lambda r, s: np.ones(10), lambda r, s: 10_000.0)
    assert report.seconds == pytest.approx(10_000)
    with pytest.raises(HungError, match=r"ranks \[0\] wait"):
        VirtualJob(job, Network(1e9, 1e-5)).run(1, lambda r, s: np.ones(10), lambda r, s: np.inf)


@pytest.mark.parametrize("topology", ["star", "ring"])
@pytest.mark.parametrize(("servers", "world"), [(0, 4), (0, 7), (2, 6)])
def test_a_topology_says_how_long_an_exchange_takes(topology: str, servers: int, world: int) -> None:
    if servers and not topologies()[topology].has_servers:
        return
    piece_bytes = 504_000 * 4 // (8 * (servers or world))
    job = make_job([("a", 504_000)], world=world, servers=servers, topology=topology, piece_bytes=piece_bytes)
    network = Network(1e9, 5e-6)
    report = VirtualJob(job, network).run(1, lambda r, s: np.ones(job.elements), lambda r, s: 1e-9)
    assert report.step_seconds == [pytest.approx(axes_of(job)[1].seconds(job, network), rel=0.15)]


@pytest.mark.parametrize("in_degree", [1, 2, 4])
@pytest.mark.parametrize(("servers", "world"), [(0, 4), (0, 7), (2, 6), (1, 8)])
def test_a_tree_says_so_for_pieces_that_come_in_turn(servers: int, world: int, in_degree: int) -> None:
    count = 16 * (servers or world)
    job = make_job(
        [(f"layer-{number}", 504_000 // count) for number in range(count)],
        world=world,
        servers=servers,
        topology="tree",
        topology_settings={"in_degree": in_degree},
        piece_bytes=504_000 * 4 // count,
    )
    network = Network(1e9, 5e-6)
    report = VirtualJob(job, network, classes=16).run(
        1, lambda r, s: np.ones(job.elements), lambda r, s: 1e-9
    )
    assert report.step_seconds == [pytest.approx(axes_of(job)[1].seconds(job, network), rel=0.4)]


@pytest.mark.parametrize("window", [1, 3, 8])
@pytest.mark.parametrize(("servers", "in_degree"), [(0, 2), (1, 4), (2, 1)])
def test_a_window_bounds_memory_and_nothing_waits_for_ever(
    window: int, servers: int, in_degree: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks reach steps at other times, and trees of several roots cross."""
    most = Counter[PartialSums]()
    peers: defaultdict[PartialSums, set[int]] = defaultdict(set)

    def counted(memory: PartialSums, ready: Ready) -> Ready:
        places = [place for place in memory._received if place[0] < len(job.pieces)]  # ballots come beside
        most[memory] = max(most[memory], len(places))
        peers[memory].update(peer for _, peer, _ in places)
        return ready

    def added(memory: PartialSums, work: Work, peer: int, *, may_change: bool) -> Ready:
        return counted(memory, add(memory, work, peer, may_change=may_change))

    want, add = PartialSums.wanted, PartialSums.added
    monkeypatch.setattr(PartialSums, "wanted", lambda memory, receive: counted(memory, want(memory, receive)))
    monkeypatch.setattr(PartialSums, "added", added)
    settings = {"in_degree": in_degree, "window_pieces": window}
    job = make_job(
        [("a", 40_000)],
        world=8,
        servers=servers,
        topology="tree",
        topology_settings=settings,
        piece_bytes=8000,
        element_type="float64",
        check_every=1,
    )
    seconds = np.random.default_rng(window).random((8, 4)) / 20
    report = VirtualJob(job, Network(1e8, 1e-4)).run(
        4, lambda rank, step: np.full(job.elements, 8 * 10.0**rank), lambda rank, step: seconds[rank, step]
    )
    assert not report.errors
    assert all(
        np.array_equal(report.results[rank, step], np.full(job.elements, 11_111_111.0))
        for rank in range(8)
        for step in range(4)
    )
    assert most
    assert all(count <= window * len(peers[memory]) for memory, count in most.items())
    assert len(job.pieces) > 8


def test_results_come_down_by_a_way_of_their_own() -> None:
    """And a root may have two trees."""
    routes = [[0, 0.5, "- 0 1 2", "- 2 3 0"], [0, 0.3, "- 0 0 0", "- 0 1 2"], [3, 0.2, "3 3 3 -"]]
    job = make_job(
        [("a", 60_000)],
        world=4,
        topology="tree",
        topology_settings={"routes": {"trees": routes}},
        element_type="float64",
        piece_bytes=16_000,
    )
    report = VirtualJob(job, Network(1e8, 1e-4)).run(2, lambda rank, step: np.full(60_000, 4.0**rank))
    assert not report.errors
    for result in (report.results[rank, step] for rank in range(4) for step in range(2)):
        assert (result == (1 + 4 + 16 + 64) / 4).all()
    tree: Any = axes_of(job)[1]
    piece = tree.branch_of.index(0)
    takes = {
        rank: next(step.peer for step in tree.schedule(job, piece, rank) if step.is_result)
        for rank in (1, 2, 3)
    }
    assert takes == {1: 2, 2: 3, 3: 0}


def test_a_job_takes_routes_with_shares() -> None:
    """Elements of roots are as the shares say, up to a piece; sums and results are exact."""
    routes = [[0, 0.6, "- 0 1 2"], [3, 0.4, "3 3 3 -"]]
    job = make_job(
        [("a", 60_000)],
        world=4,
        topology="tree",
        topology_settings={"routes": {"trees": routes}},
        piece_bytes=4000,
        element_type="float64",
    )
    tree: Any = axes_of(job)[1]
    assert tree.lossy_hops(job) == 3
    counts = dict.fromkeys((0, 3), 0)
    roots = [tree.branches[at].root for at in tree.branch_of]
    for piece, root in zip(job.pieces, roots, strict=False):
        counts[root] += piece.count
    assert counts[0] == pytest.approx(0.6 * job.elements, abs=job.pieces[0].count)
    report = VirtualJob(job, Network(1e8, 1e-4)).run(
        2, lambda rank, step: np.full(job.elements, 4.0 * 10.0**rank + step), lambda rank, step: 0.01
    )
    assert not report.errors
    for step in range(2):
        for rank in range(4):
            assert np.array_equal(report.results[rank, step], np.full(job.elements, 1111.0 + step))


def test_the_judge_sees_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign that finds nothing must be able to find something."""
    case = replace(scenario(3, synchronization="bsp", topology="star", fault=""), loss_ratio=0.4)
    case = replace(case, job=make_job([("a", 3000)], world=4, loss_bound=0.5))
    report, _ = play(case)
    assert report.losses
    report.losses.clear()
    monkeypatch.setattr("benchmarks.training_campaign.play", lambda case: (report, 0))
    assert broken(case)["pushes_lost_unreported"]
    report.results[0, 0] *= 2
    assert broken(case)["pushes_counted_twice"]
    assert broken(case)["ranks_that_differed"]


def test_the_campaign_prints_its_figures() -> None:
    ended = CliRunner().invoke(main, ["--jobs", "8", "--json"])
    assert ended.exit_code == 0, ended.output
    figures = json.loads(ended.output)
    assert figures.pop("seconds") > 0
    assert figures == {"jobs": 8.0, **dict.fromkeys(LAWS, 0.0)}
