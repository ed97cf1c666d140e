"""DistributedDataParallel that trains on when a rank is killed, and what it must not do by itself then."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.parallel import DistributedDataParallel  # noqa: E402  (torch may be missing)

from mltswitch.errors import UserInputError  # noqa: E402
from mltswitch.training.pytorch.hook import MltState, mlt_hook  # noqa: E402
from tests.training.pytorch.test_backend import Ranks, living  # noqa: E402

pytestmark = pytest.mark.torch
dist = torch.distributed
WORLD, STEPS, KILLED_AT, VICTIM = 3, 12, 4, 1
LIMIT_SECONDS = 60.0


def train(rank: int, folder: str, told: Connection) -> None:
    """A rank in a process of its own; tells of each step its parameters, and who is gone."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(50, 40), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options: dict[str, Any] = {"topology": "tree", "topology_settings": {"in_degree": 1}}
    with MltState(model, continues=True, rendezvous=f"file://{folder}/meeting", **options) as state:
        model.register_comm_hook(state, mlt_hook)
        draw = torch.Generator().manual_seed(rank)
        for step in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(8, 50, generator=draw)).square().mean().backward()
            optimizer.step()
            if (rank, step) == (VICTIM, KILLED_AT):
                os.kill(os.getpid(), signal.SIGKILL)
            values = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
            told.send((step, values.numpy().tobytes(), state.gone))
    told.close()
    os._exit(0)  # the group waits for a rank that is gone


def test_the_others_train_on_with_the_same_parameters(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ends, ranks = [], []
    for rank in range(WORLD):
        end, told = context.Pipe(duplex=False)
        ranks.append(context.Process(target=train, args=(rank, str(tmp_path), told), daemon=True))
        ranks[-1].start()
        told.close()
        ends.append(end)
    steps: list[list[Any]] = [[] for _ in ranks]
    open_ends = set(range(WORLD))
    try:
        while open_ends and wait([ends[rank] for rank in open_ends], LIMIT_SECONDS):
            for rank in [rank for rank in open_ends if ends[rank].poll()]:
                try:
                    steps[rank].append(ends[rank].recv())
                except EOFError:
                    open_ends.remove(rank)
    finally:
        for process in ranks:
            process.kill()
            process.join()
    first, other = steps[0], steps[2]
    assert len(steps[VICTIM]) == KILLED_AT
    assert [entry[0] for entry in first] == [entry[0] for entry in other] == [*range(STEPS)]
    assert [entry[1] for entry in first] == [entry[1] for entry in other]
    assert first[-1][2] == other[-1][2] == {VICTIM}


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
