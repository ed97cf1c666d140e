"""Ranks in processes of their own, over loopback, what they tell of each step, and their sites."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from mltswitch.hostagent import AgentConfig, Group
from mltswitch.training.agents import AgentNode
from mltswitch.training.job import Job

Told = Callable[[AgentNode, int | None, Any], object]
"""What a rank tells of its node, by a step and its result, and once behind the last one."""


def mesh(
    count: int, rate: Callable[[int, int], int | str] = lambda _one, _other: 1_000_000
) -> dict[str, Any]:
    """An overlay of sites with a rank each, all of them linked with each other."""
    ends = [(one, other) for one in range(count) for other in range(count) if one != other]
    links = [{"source": f"s{one}", "target": f"s{other}", "rate": rate(one, other)} for one, other in ends]
    nodes = [{"name": f"s{rank}", "rank": rank} for rank in range(count)]
    return {"schema": "mltswitch/overlay/v1", "nodes": nodes, "links": links}


def exchange(
    job: Job, number: int, place: str, told: Connection, config: AgentConfig, steps: int, say: Told
) -> None:
    """One rank's work: in step s rank r gives r + s, for all elements."""
    with Group(number, job.world, f"file://{place}", config=config) as group:
        node = AgentNode(job, number, group.agent, group.names)
        vectors = np.zeros((2, 2, job.elements), np.float32)
        for step in range(steps):
            own, result = vectors[step % 2]
            own[:] = number + step
            node.ready(step, range(len(job.pieces)), own, result)
            node.computed(step, 0.0, 0.0, own, result)
            node.wait(step)
            told.send(say(node, step, result))
        told.send(say(node, None, None))
        node.close()


def told_by_ranks(
    work: Callable[[Job, int, str, Connection], None], job: Job, folder: Path, count: int
) -> list[list[Any]]:
    """Let each rank work, with a file to meet by; what each has told, `count` times, before it ended well."""
    context = multiprocessing.get_context("fork")
    ends, ranks = [], []
    for number in range(job.world):
        end, told = context.Pipe(duplex=False)
        ranks.append(context.Process(target=work, args=(job, number, f"{folder}/m", told), daemon=True))
        ranks[-1].start()
        told.close()
        ends.append(end)
    said = [[end.recv() for _ in range(count) if end.poll(60)] for end in ends]
    for rank in ranks:
        rank.join(20)
        assert rank.exitcode == 0
    return said
