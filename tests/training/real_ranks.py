"""Ranks in processes of their own, over loopback, and what they tell of each step."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from mltswitch.training.job import Job


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
