"""Jobs in a fabric: the code of production in virtual time takes as long as the flow simulation says."""

from typing import Any

import numpy as np
import pytest

from mltswitch.cli import main
from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay, overlay_of_graph, seated
from mltswitch.overlay.exchange import Exchange, simulate_routes
from mltswitch.overlay.graph import fat_tree
from mltswitch.overlay.policies import route
from mltswitch.training.axes import Direction, Network, Post, Stage
from mltswitch.training.fabric import FabricNetwork
from mltswitch.training.job import Job, make_job
from mltswitch.training.virtual import VirtualJob
from mltswitch.training.virtual_network import Timeline, VirtualNetwork

pytest.importorskip("numba")
RATE_BPS = 1e8
PIECES = 4


def fabric(ranks: int, servers: int, oversubscription: float = 4.0) -> Overlay:
    racks = {f"h{host}": f"leaf{host // 2}" for host in range(16)}
    return seated(overlay_of_graph(fat_tree(4, RATE_BPS, oversubscription), racks), ranks, servers)


def job_of(overlay: Overlay, **options: Any) -> Job:
    count = PIECES * len(overlay.roots)
    each = 64_000 // count
    layers = [(f"layer-{number}", each) for number in range(count)]
    world, servers = len(overlay.ranks), len(overlay.servers)
    return make_job(layers, world=world, servers=servers, piece_bytes=4 * each, **options)


def step_seconds(job: Job, network: FabricNetwork) -> float:
    """Of an exchange whose pieces come in turn, as senders have it."""
    virtual = VirtualJob(job, network, classes=len(job.layers))
    report = virtual.run(1, lambda rank, step: np.ones(job.elements), lambda rank, step: 1e-9)
    assert not report.errors
    return report.step_seconds[0]


@pytest.mark.parametrize(("ranks", "servers"), [(8, 0), (12, 2), (16, 1)])
@pytest.mark.parametrize("degree", [None, 2, "rack"])
def test_what_the_flows_say_is_what_the_code_of_production_does(
    ranks: int, servers: int, degree: int | str | None
) -> None:
    overlay = fabric(ranks, servers)
    how: tuple[str, dict[str, Any]] = ("star", {}) if degree is None else ("tree", {"in_degree": degree})
    routes = route(overlay, *how, Exchange(1.0))
    options = {} if degree is None else {"topology": "tree", "topology_settings": routes.topology_settings}
    job = job_of(overlay, **options)
    flows = simulate_routes(overlay, routes, Exchange(job.elements * 32.0, PIECES))
    assert step_seconds(job, FabricNetwork(overlay)) == pytest.approx(flows.seconds, rel=0.3)


def test_a_narrow_fabric_is_slower_than_its_lines() -> None:
    wide, narrow = (FabricNetwork(fabric(8, 0, each)) for each in (1.0, 4.0))
    job = job_of(fabric(8, 0))
    assert narrow.link_bps == RATE_BPS
    assert narrow.scaled(0.5).link_bps == RATE_BPS / 2
    seconds = step_seconds(job, wide)
    assert step_seconds(job, narrow) > 2 * seconds
    assert step_seconds(job, wide.scaled(0.5)) == pytest.approx(2 * seconds, rel=0.01)


def test_a_job_that_is_not_the_fabrics() -> None:
    with pytest.raises(UserInputError, match="has 8 ranks and 1 servers, the job 3 and 0"):
        FabricNetwork(fabric(8, 1)).check(make_job([("a", 10)], world=3))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--network", "fat-tree:4", "--rate", "1Gbps"], "--network: has rates of its own"),
        (["--network", "fat-tree:4", "--workers", "17"], "--workers: 17 (expected at most 16, one a host)"),
        (["--network", "nothing.yaml"], "nothing.yaml: cannot be read"),
    ],
)
def test_networks_that_cannot_be(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "simulate", "--compute", "0.1", *words])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_a_key_is_no_other_posts_again() -> None:
    network = VirtualNetwork(Timeline(), Network(1e9, 1e-3), lambda node, crossing: None)
    early, late = (Post(Direction.SEND, 1, np.ones(4), 0, number, 0, Stage.NOW, 0.0) for number in (7, 7))
    network.post(0, early)
    network.withdraw(0, early.key)
    with pytest.raises(AssertionError, match=r"node 0 posts .* again"):
        network.post(0, late)
