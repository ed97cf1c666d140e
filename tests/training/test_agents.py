"""Nodes of a job over real agents in one process: what crosses as important, and whom they blame."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mltswitch.hostagent import Agent, AgentConfig, Group
from mltswitch.lab import running_star
from mltswitch.training.agents import AgentNode
from mltswitch.training.errors import NodeLateError, NodeLostError, TrainingError
from mltswitch.training.job import Job, make_job
from tests.hostagent.ends import connect
from tests.hostagent.namespaces import can_make_namespaces

ECN_MASK = 3
STEPS = 3
DSCP = 34
SHORT: dict[str, Any] = {"mtu_bytes": 1500, "burst_packets": 1, "line_rate": "1Gbps"}
"""One datagram a packet, so that each has its own ECN field."""


def job_of(**options: Any) -> Job:
    return make_job([("front", 60_000), ("back", 40_000)], **{"world": 2, "deadline_seconds": 30.0} | options)


@pytest.fixture
def meet() -> Iterator[Callable[..., list[AgentNode]]]:
    """Makes the nodes of a job, each by an agent of its own: at `places`, a configuration and a context."""
    with ExitStack() as stack:

        def make(job: Job, places: Any = None) -> list[AgentNode]:
            agents = []
            for number in range(job.nodes):
                fields, place = places[number] if places else ({"listen": "127.0.0.1:0"}, nullcontext())
                with place:
                    config = AgentConfig(name=f"node{number}", **SHORT | fields)
                    agents.append(stack.enter_context(Agent(config)))
                    agents[-1].channel("training", transport=job.transport)
                    for other in agents[:-1]:
                        connect(agents[-1], other)
            names = [agent.name for agent in agents]
            with ThreadPoolExecutor(job.nodes) as pool:
                made = pool.map(
                    lambda number: AgentNode(job, number, agents[number], names), range(job.nodes)
                )
                nodes = [*made]
            for node in nodes:
                stack.callback(node.close, "the test is over")
            return nodes

        yield make


def train(node: AgentNode, steps: int = STEPS) -> None:
    own, result = np.random.default_rng(1).standard_normal((2, node.job.elements), np.float32)
    for step in range(steps):
        node.ready(step, range(len(node.job.pieces)), own, result)
        node.computed(step, 1.0, 0.01, own, result)
        node.wait(step)
        node.wait_until(lambda: node.node.is_drained)


def train_all(nodes: list[AgentNode]) -> None:
    with ThreadPoolExecutor(len(nodes)) as pool:
        for done in [pool.submit(train, node) for node in nodes]:
            done.result()


def droppable(node: AgentNode, peer: str) -> int:
    """Datagrams of a peer's that have come as Not-ECT."""
    counts = node._agent.snapshot().peers[peer]["training"].received_by_tos
    return sum(count for tos, count in counts.items() if not tos & ECN_MASK)


@pytest.mark.parametrize("synchronization", ["bsp", "osp"])
@pytest.mark.parametrize("transport", ["mlt", "ltp"])
def test_what_may_not_be_lost_is_never_dropped_first(
    meet: Callable[..., list[AgentNode]], transport: str, synchronization: str
) -> None:
    options = {"transport": transport, "synchronization": synchronization, "loss_bound": 0.1}
    root, other = nodes = meet(job_of(colocated=0, **options))
    train_all(nodes)
    assert droppable(root, "node1")  # pushes may lose
    assert not droppable(other, "node0")  # results and the sum of the ballots may not


@pytest.mark.root
@pytest.mark.skipif(not can_make_namespaces(), reason="needs root")
@pytest.mark.parametrize("transport", ["mlt", "ltp"])
def test_a_switch_sees_no_droppable_packet_of_a_job_without_a_bound(
    meet: Callable[..., list[AgentNode]], transport: str
) -> None:
    with running_star(2) as star:
        star.set_rate(1_000_000_000)
        star.set_classes(256_000, 40, [DSCP], 0.5)
        classes = {"control_dscp": 40, "gradient_dscp": [DSCP]}
        fields = [
            {"listen": f"{star.addresses(host)[0]}:18515", "classes": classes, "plaintext": True}
            for host in range(2)
        ]
        star.report()
        train_all(
            meet(
                job_of(transport=transport), [(fields[host], star.hosts[host].entered()) for host in range(2)]
            )
        )
        gradients = star.report()["queues"][1]
    assert gradients["important"] > 500
    assert gradients["unimportant"] == 0


# Whom they blame, and when


def begin(node: AgentNode) -> None:
    own, result = np.zeros((2, node.job.elements), np.float32)
    node.ready(0, range(len(node.job.pieces)), own, result)


def ended(node: AgentNode) -> TrainingError:
    with pytest.raises(TrainingError) as caught:
        node.wait(0)
    return caught.value


@pytest.mark.parametrize("deadline_seconds", [1.0, 4.0])
def test_a_late_rank_is_named_when_the_deadline_passes(
    meet: Callable[..., list[AgentNode]], deadline_seconds: float
) -> None:
    first, second, _ = meet(job_of(world=3, deadline_seconds=deadline_seconds))
    began = time.monotonic()
    begin(first)
    time.sleep(0.4 * deadline_seconds)
    begin(second)  # has done its part by now, whatever it said of itself when it was asked first
    error, took = ended(first), time.monotonic() - began
    assert isinstance(error, NodeLateError)
    assert (error.where, error.what) == (
        "rank 2",
        f"has not done its part of step 0 within {deadline_seconds:g} s",
    )
    assert deadline_seconds <= took < deadline_seconds + 1.5
    assert str(ended(second)) == str(error)  # and not the first one, which has ended before


def test_an_exception_is_told_to_all_by_its_text(meet: Callable[..., list[AgentNode]]) -> None:
    nodes = meet(job_of(world=3))
    for node in nodes[:2]:
        begin(node)
    nodes[2].close("ValueError: no such batch")
    for node in nodes[:2]:
        error = ended(node)
        assert isinstance(error, NodeLostError)
        assert str(error) == "rank 2: ValueError: no such batch"


_FAILS = """
import sys
from mltswitch.hostagent import Group
from mltswitch.training.agents import AgentNode
from tests.training.test_agents import job_of
group = Group(1, 2, sys.argv[1])
node = AgentNode(job_of(), 1, group.agent, group.names)
raise ValueError("no such\\n\x1b[31m batch" + 1000 * "!")
"""


def test_a_process_that_ends_by_an_exception_tells_its_text(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/meeting"
    with subprocess.Popen([sys.executable, "-c", _FAILS, place], stderr=subprocess.DEVNULL) as process:
        with Group(0, 2, place) as group, pytest.raises(TrainingError) as caught:  # noqa: PT012  (any of them may hear it)
            node = AgentNode(job_of(), 0, group.agent, group.names)  # which may hear it already
            begin(node)
            node.wait(0)
        process.wait()
    error = caught.value
    assert error.where == "rank 1"
    assert error.what.startswith(r"ValueError: no such \x1b[31m batch!!!")
    assert len(error.what) <= 150


def test_one_that_fails_right_behind_one_that_dies_is_gone_as_well(
    meet: Callable[..., list[AgentNode]],
) -> None:
    """Its goodbye comes while the other's last words are still waited for."""
    nodes = meet(job_of(world=5, continues=True))
    for node in nodes[:3]:
        begin(node)
    nodes[4]._agent.close()
    time.sleep(0.1)
    nodes[3].close("ValueError: no such batch")
    for node in nodes[:3]:
        node.wait(0)
        assert node.node.agreed == {3, 4}


def test_who_has_left_is_no_fault_when_another_one_dies(meet: Callable[..., list[AgentNode]]) -> None:
    nodes = meet(job_of(world=5, continues=True, deadline_seconds=5.0))
    for gone in (3, 4):
        nodes[gone].close(patience_seconds=0.5)
        nodes[gone]._agent.close()
    nodes[2]._agent.close()
    for node in nodes[:2]:
        begin(node)
    for node in nodes[:2]:
        node.wait(0)
        assert node.node.agreed == {2, 3, 4}
