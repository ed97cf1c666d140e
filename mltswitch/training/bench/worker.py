"""A worker of a benchmark: a process that reads requests and answers them, each a line of JSON.

    python -m mltswitch.training.bench.worker

`join` makes it a rank of a gloo process group. `open` makes a named model that trains by one method;
several can be open, so that methods take turns in the same minutes on a machine that others use, too.
"""

import hashlib
import json
import os
import resource
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from mltswitch.errors import MltswitchError
from mltswitch.hostagent import AgentConfig
from mltswitch.training.bench.tasks import load_bench_task
from mltswitch.training.pytorch.forward import MltForward
from mltswitch.training.pytorch.hook import MltState, mlt_hook
from mltswitch.training.pytorch.rank import Rank
from mltswitch.training.tolerance import TrainingTask

MOST_SAID: Final = 300
"""The most characters of an error that are reported."""
PATIENCE: Final = timedelta(seconds=120)
"""Timeout of one collective of gloo, and of one exchange of ours."""


@dataclass(slots=True, eq=False)
class _Training:
    """A model that trains by one method."""

    module: torch.nn.Module
    model: torch.nn.Module
    """The module, or what exchanges its gradients."""
    optimizer: torch.optim.Optimizer
    batches: Iterator[Any]
    state: Rank | None
    pause_seconds: float


class Worker:
    """One worker of a benchmark; each public method but `answer` is a request."""

    def __init__(self) -> None:
        self._trainings: dict[str, _Training] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The result of a request, or `error` and its time: workers that wait for this one fail later."""
        do = request.pop("do")
        try:
            answer: dict[str, Any] = getattr(self, do)(**request)
        except (MltswitchError, OSError, RuntimeError, ValueError) as error:
            return {"error": shorten(f"{do}: {error}", MOST_SAID), "at": time.time()}
        return answer

    def join(
        self, rank: int, world: int, master: str, interface: str, folder: str, task: str, seed: int
    ) -> dict[str, Any]:
        """Become a rank; rank 0 listens at `master`, and a user's own task is imported from `folder`."""
        os.chdir(folder)
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        dist.init_process_group(
            "gloo", init_method=f"tcp://{master}", rank=rank, world_size=world, timeout=PATIENCE
        )
        _use_cubic()
        self.adopt(rank, world)
        return self.take(task, seed)

    def adopt(self, rank: int, world: int) -> None:
        """Use the process group that exists already, as this rank."""
        torch.set_num_threads(1)
        self._rank, self._world = rank, world

    def take(self, task: str, seed: int) -> dict[str, Any]:
        """Set the task to train from now on, and its seed."""
        self._task: TrainingTask = load_bench_task(task)
        self._seed = seed
        return {"target": self._task.target}

    def agent_fields(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        """The configuration of this rank's agents, with the fields that a request gives."""
        return told

    def open(
        self,
        name: str,
        method: str,
        config: dict[str, Any],
        options: dict[str, Any],
        ddp: dict[str, Any],
        pause_seconds: float,
    ) -> dict[str, Any]:
        """Make a new model from the benchmark's seed, with this method of exchange.

        Args:
            name: for further requests.
            method: `compute` (exchanges nothing), `gloo` (DDP as it is), `gloo-incast`, `mlt` (the hook), or
                `forward` (forward passes that wait layer by layer).
            config: fields of the agent's `AgentConfig`.
            options: of `MltState`, or `MltForward`.
            ddp: options of DistributedDataParallel.
            pause_seconds: pause before each backward pass.
        """
        torch.manual_seed(self._seed)
        module = self._task.model()
        model: torch.nn.Module = module
        state: Rank | None = None
        own = {
            "config": AgentConfig(**self.agent_fields(config)),
            "deadline_seconds": PATIENCE.total_seconds(),
            **options,
        }
        if method == "forward":
            state = MltForward(module, self._task.optimizer, **own)
            optimizer = state.optimizer
        else:
            optimizer = self._task.optimizer(module.parameters())
        if method not in {"compute", "forward"}:
            model = exchanging = DistributedDataParallel(module, **ddp)
            if method == "gloo-incast":
                exchanging.register_comm_hook(None, _all_to_all_hook)
            elif method == "mlt":
                stepped = None if options["synchronization"] == "bsp" else optimizer
                state = MltState(module, optimizer=stepped, **own)
                exchanging.register_comm_hook(state, mlt_hook)
        training = _Training(module, model, optimizer, self._batches(), state, pause_seconds)
        self._trainings[name] = training
        pieces = () if state is None else state.job.pieces
        of_layers = Counter[int]()
        for piece in pieces:
            of_layers[piece.layer] += piece.count
        return {
            "elements": sum(parameter.numel() for parameter in module.parameters()),
            "layers": len(state.job.layers) if state is not None else 0,
            "of_layers": dict(of_layers),
        }

    def steps(self, name: str, count: int, at_ns: int) -> dict[str, Any]:
        """Train some steps, beginning at a given time; returns each step's seconds and the elements that the
        loss bound left out.

        What is left out is counted by the layer of its piece, at the nodes that made the sums. All workers
        have all sums then, and where each push counts alone the same parameters; their seconds do not count.
        """
        training = self._trainings[name]
        time.sleep(max(0.0, (at_ns - time.monotonic_ns()) / 1e9))
        cpu = _cpu_seconds()
        seconds = [self._step(training) for _ in range(count)]
        cpu = _cpu_seconds() - cpu
        missing = Counter[int]()
        later_share = 0.0
        if training.state is not None:
            if isinstance(training.state, MltState):
                later_share = training.state.later_share
            training.state.drain()
            for loss in training.state.take_losses():
                missing[training.state.job.pieces[loss.total.piece].layer] += loss.elements
        return {"seconds": seconds, "cpu_seconds": cpu, "missing": dict(missing), "later_share": later_share}

    def accuracy(self, name: str) -> dict[str, Any]:
        """The task's metric of a model on the task's evaluation data."""
        module = self._trainings[name].module
        module.eval()
        with torch.no_grad():
            found = self._task.metric(module)
        module.train()
        return {"accuracy": found}

    def close(self, name: str) -> dict[str, Any]:
        """End a training; returns a digest of its parameters, equal at all ranks after synchronous steps."""
        training = self._trainings.pop(name)
        if training.state is not None:
            training.state.close()
        digest = hashlib.sha256()
        for parameter in training.module.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        return {"digest": digest.hexdigest()}

    def _batches(self) -> Iterator[Any]:
        while True:
            yield from self._task.batches(self._seed, self._rank, self._world)

    def _step(self, training: _Training) -> float:
        started = time.perf_counter()
        batch = next(training.batches)
        training.optimizer.zero_grad()
        loss: Any = self._task.loss(training.model, batch)
        if isinstance(training.state, MltState):
            training.state.observe_loss(loss)
        if training.pause_seconds:
            time.sleep(training.pause_seconds)
        loss.backward()
        training.optimizer.step()
        return time.perf_counter() - started


def _all_to_all_hook(_state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The traffic of parameter servers by gloo: each rank sums its share, and all send to all at once."""
    buffer, world = bucket.buffer(), dist.get_world_size()
    share = -(-buffer.numel() // world)
    pushed = torch.nn.functional.pad(buffer, (0, share * world - buffer.numel()))
    received = torch.empty_like(pushed)
    dist.all_to_all_single(received, pushed)
    mean = received.view(world, share).mean(0)
    dist.all_to_all_single(received, mean.repeat(world))
    buffer.copy_(received[: buffer.numel()])
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(buffer)
    return done


def _use_cubic() -> None:
    """All TCP connections of this process: machines differ in their default, which is Linux's own here."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(entry.name))) as found:  # or no socket
            if found.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_TCP:
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Answer requests until standard input ends."""
    worker = Worker()
    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no answer
    for line in sys.stdin:
        out.write(json.dumps(worker.answer(json.loads(line))) + "\n")
        out.flush()
    os._exit(0)  # gloo's threads wait for peers that have gone


if __name__ == "__main__":
    main()
