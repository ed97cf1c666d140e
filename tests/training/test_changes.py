"""Routes that change: all ranks bind the same ones for the same step, whatever is offered, lost, or dies."""

import json
import math
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import geo_faults
from benchmarks.geo_simulation import netstorm9
from mltswitch.errors import UserInputError
from mltswitch.hostagent import AgentConfig
from mltswitch.hostagent.config import TraceSettings
from mltswitch.hostagent.telemetry.links import LinkWatch
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.wan import known_wan
from mltswitch.training.agents import AgentNode
from mltswitch.training.axes import axes_of
from mltswitch.training.changes import Changes
from mltswitch.training.fabric import FabricNetwork
from mltswitch.training.job import Job, make_job
from mltswitch.training.links import Arrival
from mltswitch.training.node import Node
from mltswitch.training.virtual import Report, VirtualJob
from tests.training.real_ranks import exchange, mesh, told_by_ranks

SECOND = 1_000_000_000
SLOW = 1e-3
RANKS = 9
STEPS = 30


def plain(overlay: Overlay, share: float = SLOW) -> dict[str, Any]:
    found = overlay.model_dump(mode="json", by_alias=True, exclude_none=True)
    for link in found["links"]:
        link["rate"] = round(link["rate"] * share)
    return found


def job_of(overlay: Overlay, **settings: Any) -> Job:
    options: dict[str, Any] = {"overlay": plain(overlay), "probe_bytes": 2_000, **settings}
    return make_job(
        [(f"layer-{number}", 3_000) for number in range(4)],
        world=RANKS,
        topology="fapt",
        topology_settings=options,
        piece_bytes=4_000,
        deadline_seconds=600.0,
        continues=True,
    )


def gradient(job: Job, rank: int, step: int) -> Any:
    return np.full(job.elements, 2.0**rank * (step + 1), np.float32)


def train(job: Job, seeds: Iterator[int], steps: int, befall: Any = None) -> tuple[VirtualJob, Report]:
    virtual = VirtualJob(job, FabricNetwork(netstorm9(next(seeds)), SLOW), in_turn=True)
    for number, seed in enumerate(seeds, 1):
        virtual.change(FabricNetwork(netstorm9(seed), SLOW), 30.0 * number)
    if befall is not None:
        befall(virtual)
    return virtual, virtual.run(steps, lambda rank, step: gradient(job, rank, step), lambda *_: 0.5)


@pytest.mark.parametrize("policy", ["fapt", "packed", "mst"])
def test_sums_are_right_and_all_ranks_bind_the_same_routes(policy: str) -> None:
    # packed needs a fifth of a second for a plan
    update_seconds = 30.0 if policy == "packed" else 5.0
    job = job_of(netstorm9(0), policy=policy, update_threshold=0.05, update_seconds=update_seconds)
    bound: dict[int, set[int]] = {}
    virtual = VirtualJob(job, FabricNetwork(netstorm9(0), SLOW), in_turn=True)
    virtual.arrived = lambda rank, step, _: bound.setdefault(step, set()).add(
        virtual.nodes[rank].version_of(step)
    )
    for number in range(1, 6):
        virtual.change(FabricNetwork(netstorm9(number), SLOW), 30.0 * number)
    steps = 60
    report = virtual.run(steps, lambda rank, step: gradient(job, rank, step), lambda *_: 0.5)
    assert not report.errors
    assert all(len(found) == 1 for found in bound.values())
    assert len({*map(frozenset, bound.values())}) > 2, "routes have changed"
    assert {node.changes.refused for node in virtual.nodes if node.changes is not None} == {0}
    for (_, step), result in report.results.items():
        if step < steps:
            assert (result == (2.0**RANKS - 1) * (step + 1) / RANKS).all()


@pytest.mark.parametrize("is_fixed", [False, True])
def test_roots_stay_where_they_are_to(is_fixed: bool) -> None:
    settings = {"policy_settings": {"roots": 3}, "fixed_roots": is_fixed}
    topology: Any = axes_of(job_of(netstorm9(0), **settings))[1]
    roots = {each.root for each in topology.branches}
    other: Any = axes_of(job_of(netstorm9(5), **settings))[1]
    changed = topology.changed(topology.planned(other.rates_bps))
    assert changed.branches != topology.branches
    assert ({each.root for each in changed.branches} == roots) == is_fixed


def test_without_updates_routes_stay_and_no_ballot_is_exchanged() -> None:
    virtual, report = train(job_of(netstorm9(0), update_seconds=0), iter(range(3)), 5)
    assert not report.errors
    assert all(node.changes is None and not node.ballots.are_held(1) for node in virtual.nodes)


@pytest.mark.parametrize("seed", range(8))
def test_routes_change_while_ranks_die(seed: int) -> None:
    """Also the one that plans, and at any moment of an offer: results are means over those of one view."""
    random = np.random.default_rng(seed)
    dead = [int(rank) for rank in random.permutation(RANKS)[: 1 + seed % 3]]
    if seed % 4 == 0:
        dead[0] = 0
    at_seconds = [5.0 + 60.0 * random.random() for _ in dead]

    def befall(virtual: VirtualJob) -> None:
        for rank, seconds in zip(dead, at_seconds, strict=True):
            virtual.kill(rank, seconds)

    job = job_of(netstorm9(seed), update_threshold=0.02, update_seconds=2.0)
    virtual, report = train(job, iter(range(seed, seed + 4)), STEPS, befall)
    left = [rank for rank in range(RANKS) if rank not in dead]
    assert not report.errors
    assert len({virtual.nodes[rank].changes.version for rank in left}) == 1  # type: ignore[union-attr]
    means = {
        step: {
            sum(2.0**rank for rank in range(RANKS) if rank not in view.gone)
            * (step + 1)
            / (RANKS - len(view.gone))
            for _, view in report.views[left[0]]
        }
        for step in range(STEPS)
    }
    for step in range(STEPS):
        results = [report.results[rank, step] for rank in left]
        assert all(result.tobytes() == results[0].tobytes() for result in results)
        assert all(min(abs(figure - mean) for mean in means[step]) < 1e-3 * figure for figure in results[0])


@pytest.mark.parametrize("seed", range(1, 31))
def test_no_law_is_broken_between_sites(seed: int) -> None:
    found, _ = geo_faults.broken(geo_faults.case_of(seed))
    assert not {*found} & {*geo_faults.LAWS_OF_ROUTES}
    assert not found["refused"]


def test_the_last_rank_trains_on_alone() -> None:
    """It measures nothing more, and there is no route to save anything on."""
    overlay, slow = mesh(3), mesh(3, lambda _one, _other: 300_000)
    settings = {"overlay": overlay, "probe_bytes": 1_000, "update_seconds": 0.5}
    job = make_job([("a", 9_000)], world=3, topology="fapt", topology_settings=settings, continues=True)
    virtual = VirtualJob(job, FabricNetwork(Overlay.model_validate(overlay)), in_turn=True)
    virtual.change(FabricNetwork(Overlay.model_validate(slow)), 1.9)
    virtual.kill(2, 2.0)
    virtual.kill(1, 4.0)
    report = virtual.run(20, lambda rank, step: gradient(job, rank, step), lambda *_: 0.5)
    assert not report.errors
    assert (report.results[0, 19] == 20).all()


@pytest.mark.parametrize("policy", ["fapt", "mst", "packed"])
def test_plans_go_around_a_host_that_is_gone(policy: str) -> None:
    """Rank 0 was the hub, and two direct links are slow: the others need not pass these."""
    slow = ({1, 2}, {3, 4})
    overlay = mesh(5, lambda one, other: 20_000 if {one, other} in slow else 1_000_000)
    settings = {"overlay": overlay, "policy": policy, "probe_bytes": 1_000, "update_seconds": 2.0}
    job = make_job(
        [("a", 5_000)],
        world=5,
        topology="fapt",
        topology_settings=settings,
        piece_bytes=1_000,
        continues=True,
        deadline_seconds=600.0,
    )
    virtual = VirtualJob(job, FabricNetwork(Overlay.model_validate(overlay)), in_turn=True)
    virtual.kill(0, 5.0)
    report = virtual.run(60, lambda rank, step: gradient(job, rank, step), lambda *_: 0.5)
    assert not report.errors
    changes = virtual.nodes[1].changes
    assert changes is not None
    rates = {ends: bps for ends, bps in changes.topology.rates_bps.items() if 0 not in ends}
    assert changes.topology.seconds_a_bit(rates, {0}) < 1 / 20_000 / 10


def test_ranks_that_plan_other_routes_at_the_start_end_with_their_names() -> None:
    job = job_of(netstorm9(0), update_seconds=0)
    node, other = Node(job, 0), Node(job, 1)
    word = json.loads(other.take_words()[0])
    word["job"]["routes"] = "0"
    node.told(1, json.dumps(word).encode(), 0)
    assert "the jobs of rank 0 and rank 1 differ in: routes" in str(node.error)


def test_a_version_that_nobody_can_have_bound_ends_the_job_with_its_name() -> None:
    job = job_of(netstorm9(0))
    virtual = VirtualJob(job, FabricNetwork(netstorm9(0), SLOW), in_turn=True)
    virtual.kill(7, 5.0)
    assert virtual.nodes[8].changes is not None
    virtual.nodes[8].changes.version = 777
    report = virtual.run(10, lambda rank, step: gradient(job, rank, step), lambda *_: 0.5)
    assert "rank 8: says that routes are bound" in str(report.errors[0])


def test_many_rates_are_told_in_several_words() -> None:
    names = [f"s{rank}" for rank in range(70)]
    links = [{"source": name, "target": "s0", "rate": "1Gbps"} for name in names[1:]]
    links += [{"source": "s0", "target": name, "rate": "1Gbps"} for name in names[1:]]
    nodes = [{"name": name, "rank": rank} for rank, name in enumerate(names)]
    overlay = {"schema": "mltswitch/overlay/v1", "nodes": nodes, "links": links}
    settings = {"overlay": overlay, "probe_bytes": 1, "probe_pieces": 1}
    job = make_job([("a", 5_000)], world=70, topology="fapt", topology_settings=settings)
    topology: Any = axes_of(job)[1]
    changes = Changes(job, 0, topology)
    come = [Arrival(rank, 123_456_789, 1, SECOND) for rank in range(1, 70)]
    words = [*changes.words(come, SECOND, is_first=False)]
    assert sum(len(word["rates"]) for word in words) == 69
    assert all(len(json.dumps(word)) < 1_000 for word in words)


def test_an_offer_that_a_rank_has_not_got_is_made_again() -> None:
    job = job_of(netstorm9(0), update_threshold=0.0)
    topology: Any = axes_of(job)[1]
    changes = Changes(job, 0, topology)
    ends = next(ends for ends in topology.rates_bps if ends[1] == 0)
    slow = topology.rates_bps[ends] / 50
    changes.hear(0, {"rates": [(ends[0], slow)]}, 0, is_first=False)
    first = [*changes.words([], SECOND, is_first=True)]
    assert first
    assert not [*changes.words([], 10 * SECOND, is_first=True)], "it is held"
    for _ in range(6):
        assert not changes.counted([changes.held] * 8 + [1])
    again = [*changes.words([], 20 * SECOND, is_first=True)]
    assert again
    assert again[0]["offer"] > first[0]["offer"]


def test_what_others_tell_is_looked_at() -> None:
    topology: Any = axes_of(job_of(netstorm9(0)))[1]
    changes = Changes(job_of(netstorm9(0)), 3, topology)
    ends = next(iter(topology.rates_bps))
    fastest = max(topology.rates_bps.values())
    for source, bps in [(ends[0], -1), (ends[0], 0), (ends[0], math.inf), (ends[0], 3 * fastest), (77, 5)]:
        changes.hear(ends[1], {"rates": [(source, bps)]}, 0, is_first=False)
    assert changes.refused == 5
    assert changes.problem.startswith(f"rank {ends[1]} measures -1 bit/s from rank {ends[0]}")
    assert not changes.measured
    learned = changes.take_learned()
    assert learned is not None
    assert (learned.version, learned.refused, learned.problem) == (1, 5, changes.problem)
    assert len(learned.links) == len(topology.rates_bps)
    assert {link.measured_bps for link in learned.links} == {None}
    assert changes.take_learned() is None
    changes.hear(ends[1], {"rates": [(ends[0], fastest / 7)]}, 0, is_first=False)
    assert changes.rates_bps(SECOND)[ends] == fastest / 7
    learned = changes.take_learned()
    assert learned is not None
    [link] = learned.links
    assert (topology.names.index(link.source), topology.names.index(link.target)) == ends
    assert link.measured_bps == fastest / 7
    assert changes.rates_bps(10_000 * SECOND)[ends] == topology.rates_bps[ends]


@pytest.mark.parametrize(
    "routes",
    [
        "",
        "[]",
        "{}",
        '{"servers":0,"trees":[[0,1.0,"- 8 0 0 0 0 0 0 0"]]}',
        '{"servers":0,"trees":[[0,1.0,"-"]]}',
    ],
)
def test_routes_that_are_none_are_held_by_nobody(routes: str) -> None:
    job = job_of(netstorm9(0))
    topology: Any = axes_of(job)[1]
    changes = Changes(job, 3, topology)
    changes.hear(0, {"offer": 9, "part": 0, "of": 1, "routes": routes}, 0, is_first=True)
    assert (changes.refused, changes.held) == (1, 1)


def test_only_the_first_rank_offers_and_only_what_is_newer_and_whole() -> None:
    job = job_of(netstorm9(0))
    topology: Any = axes_of(job)[1]
    changes, text = Changes(job, 3, topology), topology.planned(topology.rates_bps)
    word = {"offer": 9, "part": 0, "of": 1, "routes": text[:600]}
    changes.hear(5, word, 0, is_first=False)
    assert changes.held == 1
    parts = [text[first : first + 600] for first in range(0, len(text), 600)]
    for part in reversed(range(len(parts))):
        assert changes.held == 1
        changes.hear(0, {**word, "part": part, "of": len(parts), "routes": parts[part]}, 0, is_first=True)
    assert changes.held == 9
    assert not changes.counted([9, 9, 9, 9, 1, 9, 9, 9, 9]), "one does not hold it"
    assert changes.counted([9, 9, 9, 9, 0, 9, 9, 9, 9]), "one is gone"
    assert not changes.counted([9] * 9), "it is bound"
    changes.hear(0, {**word, "offer": 9}, 0, is_first=True)
    assert changes.refused == 1


MESH = plain(known_wan("mesh9").overlay())
NO_WAY = {"trees": [(0, 1.0, "- 8 0 0 0 0 0 0 0")]}


@pytest.mark.parametrize(
    ("settings", "options", "problem"),
    [
        ({"overlay": MESH, "policy": "none"}, {}, "'none' is unknown"),
        ({"overlay": MESH, "update_seconds": -1}, {}, "update_seconds"),
        ({}, {}, "overlay"),
        ({"overlay": MESH, "policy": "mst", "fixed_roots": True}, {}, "mst chooses no roots"),
        ({"overlay": MESH}, {"world": 4}, "has 9 ranks and 0 servers"),
        ({"overlay": MESH}, {"synchronization": "osp"}, "osp: routes change under bsp alone"),
        ({"overlay": plain(netstorm9(0)), "routes": NO_WAY}, {}, "no link"),
    ],
)
def test_settings_that_are_none(settings: dict[str, Any], options: dict[str, Any], problem: str) -> None:
    given = {"world": 9, "topology": "fapt", "topology_settings": settings, **options}
    with pytest.raises(UserInputError, match=problem):
        axes_of(make_job([("a", 100)], **given))


def real(job: Job, number: int, place: str, told: Connection) -> None:
    """A rank over loopback, whose links are all as fast as another, whatever the overlay says."""
    config = AgentConfig(trace=TraceSettings(folder=str(Path(place).parent), events=("links_measured",)))

    def say(node: AgentNode, step: int | None, result: Any) -> Any:
        return None if step is None else (node.node.version_of(step), result.min(), result.max())

    exchange(job, number, place, told, config, 40, say)


@pytest.mark.parametrize("transport", ["mlt", "tcp"])
def test_real_agents_measure_and_change_their_routes(tmp_path: Path, transport: str) -> None:
    overlay = mesh(4, lambda one, other: "400Gbps" if {one, other} != {0, 1} else "100Gbps")
    settings = {"overlay": overlay, "update_seconds": 0.2, "probe_bytes": 100_000, "update_threshold": 0.0}
    job = make_job(
        [(f"layer-{number}", 1_000_000) for number in range(4)],
        world=4,
        topology="fapt",
        topology_settings=settings,
        transport=transport,
        deadline_seconds=60.0,
    )
    said = told_by_ranks(real, job, tmp_path, 40)
    assert said[0] == said[1] == said[2] == said[3]
    assert [each[1:] for each in said[0]] == [(1.5 + step, 1.5 + step) for step in range(40)]
    assert len({version for version, _, _ in said[0]}) > 1
    traces, versions = [*tmp_path.glob("*.jsonl")], set[int]()
    assert len(traces) == 4
    for trace in traces:  # each rank's tells all
        events = [json.loads(line) for line in trace.read_text().splitlines()]
        assert {event["event"] for event in events} == {"trace_started", "links_measured"}
        known = LinkWatch([trace]).read()
        assert known is not None
        assert (known["refused"], len(known["links"])) == (0, 12)
        versions.add(known["version"])
        assert {link["said_bps"] for link in known["links"]} == {4e11, 1e11}
        measured = [link for link in known["links"] if link["measured_bps"] is not None]
        assert measured
        assert all(0 < link["age_seconds"] < 120 for link in measured)
    assert len(versions) == 1
    assert versions != {1}


def test_what_is_open_is_measured() -> None:
    job = job_of(netstorm9(0))
    topology: Any = axes_of(job)[1]
    changes = Changes(job, 1, topology)
    source = next(source for source, target in topology.rates_bps if target == 1)
    open_pieces = [Arrival(source, 1_000, 1 + number, SECOND) for number in range(4)]
    [word] = changes.words(open_pieces, SECOND, is_first=False)
    assert word == {"rates": [(source, 32_000)]}
    assert not changes.is_due(SECOND)
    assert changes.is_due(6 * SECOND)
