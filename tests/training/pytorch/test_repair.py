"""DistributedDataParallel that trains on when a rank is killed, and what it must not do by itself then."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402  (torch may be missing)

from mltswitch.errors import UserInputError  # noqa: E402
from mltswitch.training.pytorch.hook import MltState, mlt_hook  # noqa: E402
from mltswitch.training.pytorch.returning import returning  # noqa: E402
from tests.training.pytorch.ranks import Ranks, living  # noqa: E402

pytestmark = pytest.mark.torch
dist = torch.distributed
WORLD, STEPS, KILLED_AT, VICTIM = 3, 12, 4, 1
LIMIT_SECONDS = 300.0
"""Without a word; three processes that import torch take a minute on a busy machine."""
LONG_STEPS, STEP_SECONDS = 800, 0.05


def train(rank: int, folder: str, told: Connection, steps: int) -> None:
    """A rank in a process of its own; tells of each step its parameters, and who is gone."""
    torch.set_num_threads(1)
    meeting = f"file://{folder}/meeting"
    returns = returning(meeting, rank)
    if returns is None:
        dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=WORLD)
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(0 if returns is None else 1)  # whose parameters are those of the others all the same
    model = DistributedDataParallel(torch.nn.Linear(50, 40), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options: dict[str, Any] = {"topology": "tree", "topology_settings": {"in_degree": 1}, "check_every": 1}
    options |= {"continues": True, "rendezvous": meeting, "optimizer": optimizer, "returns": returns}
    with MltState(model, **options) as state:
        model.register_comm_hook(state, mlt_hook)
        draw = torch.Generator().manual_seed(rank)
        for step in range(state.first_step, steps):
            optimizer.zero_grad()
            model(torch.randn(8, 50, generator=draw)).square().mean().backward()
            optimizer.step()
            if returns is None and (rank, step) == (VICTIM, KILLED_AT):
                os.kill(os.getpid(), signal.SIGKILL)
            values = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
            told.send((step, values.numpy().tobytes(), state.gone))
            time.sleep(STEP_SECONDS if state.gone else 0)
    told.close()
    os._exit(0)  # the group waits for a rank that is gone


def trained(folder: Path, count: int, *, returns: bool) -> list[dict[int, tuple[bytes, frozenset[int]]]]:
    """Of each rank, what it has told of each step; one of them is killed, and started again."""
    context = multiprocessing.get_context("spawn")
    steps: list[dict[int, tuple[bytes, frozenset[int]]]] = [{} for _ in range(WORLD)]
    ends: dict[Connection, int] = {}
    processes = []

    def start(rank: int) -> None:
        end, told = context.Pipe(duplex=False)
        processes.append(context.Process(target=train, args=(rank, str(folder), told, count), daemon=True))
        processes[-1].start()
        told.close()
        ends[end] = rank

    for rank in range(WORLD):
        start(rank)
    is_back = not returns
    try:
        while ends and (ready := wait([*ends], LIMIT_SECONDS)):
            for end in ready:
                assert isinstance(end, Connection)
                try:
                    step, *said = end.recv()
                    steps[ends[end]][step] = (said[0], said[1])
                except EOFError:
                    if ends.pop(end) == VICTIM and not is_back:
                        is_back = True
                        start(VICTIM)
    finally:
        for process in processes:
            process.kill()
            process.join()
    return steps


def test_the_others_train_on_with_the_same_parameters(tmp_path: Path) -> None:
    steps = trained(tmp_path, STEPS, returns=False)
    assert len(steps[VICTIM]) == KILLED_AT
    assert [*steps[0]] == [*steps[2]] == [*range(STEPS)]
    assert {step: said for step, (said, _) in steps[0].items()} == {
        step: said for step, (said, _) in steps[2].items()
    }
    assert steps[0][STEPS - 1][1] == steps[2][STEPS - 1][1] == {VICTIM}


def test_a_rank_that_is_started_again_has_the_parameters_and_the_momentum_of_the_others(
    tmp_path: Path,
) -> None:
    steps = trained(tmp_path, LONG_STEPS, returns=True)
    assert [*steps[0]] == [*steps[2]] == [*range(LONG_STEPS)]
    later = {step: said for step, said in steps[VICTIM].items() if step > KILLED_AT}
    first = min(later)
    assert [*later] == [*range(first, LONG_STEPS)]
    assert first < LONG_STEPS - STEPS
    for step, (said, gone) in later.items():
        assert steps[0][step][0] == steps[2][step][0] == said
        assert not gone


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    yield from living(2, "cpu")


def _told(broadcasts: bool) -> str:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    model = DistributedDataParallel(model, broadcast_buffers=broadcasts)
    try:
        with MltState(model, continues=True):
            return ""
    except UserInputError as error:
        return str(error)


@pytest.mark.parametrize("broadcasts", [False, True])
def test_broadcasts_of_buffers_are_refused_at_the_start(
    ranks: Ranks, tmp_path: Path, broadcasts: bool
) -> None:
    for said in ranks.results(2, _told, broadcasts, store=tmp_path):
        assert ("broadcast_buffers=False" in said) == broadcasts
        assert bool(said) == broadcasts
