"""The laws of every synchronization over every topology, built in or not, in virtual time."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.training_campaign import LAWS, broken, main, play, scenario
from mltswitch.errors import UserInputError
from mltswitch.training import axes
from mltswitch.training.axes import Network, Sum, axes_of, synchronizations, topologies
from mltswitch.training.job import make_job
from mltswitch.training.synchronization.bsp import BspKeeper
from mltswitch.training.virtual import HungError, VirtualJob
from tests.training import strangers

FAULTS = ("", "kill", "cut", "never", "slow", "mismatch")
SYNCHRONIZATIONS = ("bsp", "window", "stages")
TOPOLOGIES = ("star", "ring", "tree-2", "tree-3")


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
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("synchronization", SYNCHRONIZATIONS)
def test_no_law_is_broken(synchronization: str, topology: str, fault: str) -> None:
    first = 100 * (SYNCHRONIZATIONS.index(synchronization) + 3 * TOPOLOGIES.index(topology))
    for seed in (first, first + 1):
        case = scenario(seed, synchronization=synchronization, topology=topology, fault=fault)
        assert not broken(case), f"seed {seed}"


@pytest.mark.parametrize("synchronization", ["asp-like", "r2sp-like"])
@pytest.mark.parametrize(("world", "servers"), [(1, 0), (3, 0), (3, 2)])
def test_each_lone_push_reaches_every_rank_once(synchronization: str, world: int, servers: int) -> None:
    steps = 4
    job = make_job(
        [("a", 5), ("b", 900)],
        world=world,
        servers=servers,
        piece_bytes=2000,
        element_type="float64",
        synchronization=synchronization,
    )
    virtual = VirtualJob(job, Network(1e8, 1e-4))
    report = virtual.run(
        steps,
        lambda rank, step: np.full(job.elements, 4.0 ** (rank * steps + step)),
        lambda rank, step: 0.01 * (1 + rank),
    )
    assert not report.errors
    for rank in range(world):
        results = [report.results[rank, step] * world for step in range(steps + 1)]
        assert np.array_equal(np.rint(sum(results)), np.full(job.elements, (4.0 ** (world * steps) - 1) / 3))
        own = [
            np.rint(result) // 4.0 ** (rank * steps + step) % 4 for step, result in enumerate(results[:-1])
        ]
        assert np.array_equal(own, np.ones((steps, job.elements))), "a push is in its own answer"


def test_a_slow_rank_does_not_hold_back_lone_pushes() -> None:
    seconds = {}
    for synchronization in ("bsp", "asp-like"):
        job = make_job([("a", 10)], world=3, servers=1, synchronization=synchronization)
        started: dict[tuple[int, int], float] = {}
        virtual = VirtualJob(job, Network(1e9, 1e-5))

        def gradients(rank: int, step: int) -> Any:
            started[rank, step] = virtual.now_seconds  # noqa: B023
            return np.ones(10)

        virtual.run(5, gradients, lambda rank, step: 1.0 if rank == 2 else 0.1)
        seconds[synchronization] = started[0, 4]
    assert seconds["bsp"] == pytest.approx(4.0, rel=0.01)
    assert seconds["asp-like"] == pytest.approx(0.4, rel=0.01)


@pytest.mark.parametrize("topology", ["star", "ring", "tree-2"])
def test_what_goes_later_overlaps_the_next_computation(topology: str) -> None:
    seconds = {}
    for synchronization in ("bsp", "stages"):
        job = make_job(
            [(f"layer-{number}", 30_000) for number in range(6)],
            world=3,
            synchronization=synchronization,
            topology=topology,
        )
        ones, virtual = np.ones(job.elements), VirtualJob(job, Network(1e8, 1e-5))
        report = virtual.run(6, lambda r, s: ones, lambda r, s: 0.1)  # noqa: B023
        seconds[synchronization] = sum(report.step_seconds[:5])  # the last step waits for what is left
    assert seconds["stages"] < 0.97 * seconds["bsp"]


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


@pytest.mark.parametrize(
    ("fields", "where", "problem"),
    [
        ({"synchronization": "none"}, "synchronization", "'none' is no synchronization"),
        ({"topology": "none"}, "topology", "'none' is no topology"),
        ({"synchronization": "asp-like", "topology": "ring"}, "topology", "asp-like over ring"),
        ({"synchronization": "asp-like", "topology": "tree-2"}, "topology", "(expected star)"),
        ({"topology": "ring", "servers": 2}, "servers", "ring has none"),
        ({"topology": "ring", "divisor": "arrived"}, "divisor", "does not know how many"),
        ({"synchronization": "asp-like", "divisor": "arrived"}, "divisor", "no sum of which"),
    ],
)
def test_axes_that_make_no_sense_together_are_refused(fields: Any, where: str, problem: str) -> None:
    with pytest.raises(UserInputError, match="expected") as raised:
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
    assert report.step_seconds == [pytest.approx(topologies()[topology].seconds(job, network), rel=0.15)]


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
