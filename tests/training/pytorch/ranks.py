"""Ranks as processes that live as long as a module's tests, each in one process group after another."""

import faulthandler
import multiprocessing as mp
import os
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

dist = torch.distributed
PATIENCE = timedelta(seconds=30)
Work = Callable[..., Any]


def generator(seed: int) -> Any:
    """Of random tensors on the device where tensors are made."""
    return torch.Generator(torch.get_default_device()).manual_seed(seed)


def flat(model: Any) -> Any:
    """All parameters of a model, in one tensor."""
    return torch.cat([each.detach().double().reshape(-1) for each in model.parameters()]).cpu()


_FORKED = mp.get_context("forkserver")
_FORKED.set_forkserver_preload([__name__, "mltswitch.training.pytorch.hook"])  # once, not by each rank


class Ranks:
    """Processes, each a rank of one job after another, whose tensors are on a device."""

    def __init__(self, count: int, device: str = "cpu") -> None:
        self.device = device
        self.folder = tempfile.TemporaryDirectory()
        """Where each rank says what it does when it is asked by a signal."""
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        self.jobs = 0
        for number in range(count):
            self.start(number)

    def start(self, number: int) -> None:
        ours, theirs = mp.Pipe()
        arguments = (theirs, self.device, str(self._stacks(number)))
        process = _FORKED.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        self.pipes[number : number + 1] = [ours]
        self.processes[number : number + 1] = [process]

    def _stacks(self, number: int) -> Path:
        return Path(self.folder.name) / f"rank{number}"

    def run(self, work: Work, *args: Any, store: Path, jobs: list[dict[str, Any]]) -> list[Any]:
        """What a function answers at each rank: its result, or an exception; None: the process has died."""
        self.jobs += 1  # a store that is freed late works on the file of its name
        for pipe, job in zip(self.pipes, jobs, strict=False):
            pipe.send((work, args, str(store / f"store-{self.jobs}"), job))
        return [self._answer(number) for number, _ in enumerate(jobs)]

    def results(self, world: int, work: Work, *args: Any, store: Path, **options: Any) -> list[Any]:
        """What it answers where no rank fails."""
        found = self.run(work, *args, store=store, jobs=jobs_of(world, **options))
        assert not [each for each in found if isinstance(each, Exception)], found
        return found

    def _answer(self, number: int) -> Any:
        if not self.pipes[number].poll(150):  # the first one comes when torch has been loaded
            process = self.processes[number]
            os.kill(process.pid, signal.SIGUSR1)
            process.join(2)
            process.kill()
            where = f"rank {number} gives no answer:\n{self._stacks(number).read_text()}"
            self.start(number)  # else the tests behind this one would wait for it, too
            warnings.warn(where, stacklevel=1)  # which a second try that goes well does not hide
            pytest.fail(where)
        try:
            return self.pipes[number].recv()
        except EOFError:
            return None


def living(count: int, device: str) -> Iterator[Ranks]:
    """Ranks for a fixture, ended with it."""
    found = Ranks(count, device)
    yield found
    for process in found.processes:
        process.kill()
        process.join()


def jobs_of(world: int, **options: Any) -> list[dict[str, Any]]:
    """Arguments of `init_process_group` by rank."""
    return [{"rank": rank, "world_size": world, "timeout": PATIENCE} | options for rank in range(world)]


def _serve(pipe: Connection, device: str, stacks: str) -> None:
    file = os.open(stacks, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    faulthandler.register(signal.SIGUSR1, file, all_threads=True)
    torch.set_num_threads(1)
    torch.set_default_device(device)
    while True:
        work, args, store, job = pipe.recv()
        try:
            dist.init_process_group("mlt", store=dist.FileStore(store, job["world_size"]), **job)
            try:
                pipe.send(work(*args))
            finally:
                dist.destroy_process_group()
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  (the test says what it expects)
            pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))
            dist.distributed_c10d._world.group_count = 0  # a start that failed counts, and names differ
