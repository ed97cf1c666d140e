"""What exchanging gradients costs a small model on one machine, where the network costs nothing.

    python -m benchmarks.train_overhead [--quick] [--json]

Needs torch. Two ranks train a perceptron of 667,000 parameters (2.7 MB), batches of 64, over loopback. All
ways stand in the same two processes and take turns of ten steps; a ratio is of the medians of all steps.

    hook_step_ratio_to_gloo     DistributedDataParallel with `mlt_hook`, over the same with gloo
    forward_step_ratio_to_gloo  `MltForward`
    backend_step_ratio_to_gloo  DistributedDataParallel with a process group of the backend `mlt`
    fsdp_step_ratio_to_gloo     FullyShardedDataParallel with that, over the same with gloo
    WAY_step_ms                 and `compute`, which exchanges nothing
    WAY_cpu_ms                  processor time of a rank's process in a step, transport with it
"""

import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from statistics import median
from typing import Any, Final

import click
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

from benchmarks.figures import print_figures
from mltswitch.training.pytorch.forward import MltForward
from mltswitch.training.pytorch.hook import MltState, mlt_hook

RANKS: Final = 2
BATCH: Final = 64
BLOCK: Final = 10
BLOCKS, QUICK_BLOCKS = 20, 5
WARM_UP: Final = 5
RATIOS: Final = {"hook": "gloo", "forward": "gloo", "backend": "gloo", "fsdp": "fsdp_gloo"}


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def _trainings(closing: list[Any]) -> dict[str, tuple[Any, torch.optim.Optimizer]]:
    """Model and optimizer of each way."""

    def model() -> Any:
        torch.manual_seed(1)
        nn = torch.nn
        return nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )

    models: dict[str, Any] = {"compute": model(), "gloo": DistributedDataParallel(model())}
    hooked = models["hook"] = DistributedDataParallel(model())
    state = MltState(hooked)
    hooked.register_comm_hook(state, mlt_hook)
    backend = dist.new_group(backend="mlt")
    models["backend"] = DistributedDataParallel(model(), process_group=backend)
    models["fsdp_gloo"] = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    models["fsdp"] = FullyShardedDataParallel(
        model(), process_group=dist.new_group(backend="mlt"), device_id=torch.device("cpu")
    )
    found = {name: (each, _sgd(each.parameters())) for name, each in models.items()}
    module = model()
    forward = MltForward(module, _sgd)
    closing += [state, forward]
    return found | {"forward": (module, forward.optimizer)}


def _train(pipe: Any, rank: int, folder: str, blocks: int) -> None:
    """A rank; tells wall and processor seconds of each way's steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=rank, world_size=RANKS)
    closing: list[Any] = []
    trainings = _trainings(closing)
    draw = torch.Generator().manual_seed(rank)
    inputs = torch.randn(BATCH, 784, generator=draw)
    labels = torch.randint(0, 10, (BATCH,), generator=draw)
    told: dict[str, list[tuple[float, float]]] = {name: [] for name in trainings}
    for block in range(blocks + 1):
        for name, (model, optimizer) in trainings.items():
            dist.barrier()
            for _ in range(BLOCK if block else WARM_UP):
                before = time.perf_counter(), time.process_time()
                optimizer.zero_grad()
                loss: Any = torch.nn.functional.cross_entropy(model(inputs), labels)
                loss.backward()
                optimizer.step()
                if block:
                    after = time.perf_counter(), time.process_time()
                    told[name].append((after[0] - before[0], after[1] - before[1]))
    for each in closing:
        each.close()
    pipe.send(told)
    dist.barrier()
    os._exit(0)  # gloo's threads wait for peers that have gone


def measure(blocks: int, advance: Callable[[str], object] = lambda _: None) -> dict[str, float]:
    """All ways in turns."""
    processes, answers = get_context("spawn"), []
    with tempfile.TemporaryDirectory() as folder:
        pipes, started = [], []
        for rank in range(RANKS):
            ours, theirs = processes.Pipe(duplex=False)
            pipes.append(ours)
            started.append(processes.Process(target=_train, args=(theirs, rank, folder, blocks)))
        for process in started:
            process.start()
        answers = [pipe.recv() for pipe in pipes]
        for process in started:
            process.join()
    steps = {
        name: [
            median(part) for part in zip(*(pair for answer in answers for pair in answer[name]), strict=True)
        ]
        for name in answers[0]
    }
    for name, (seconds, _) in steps.items():
        advance(f"{name}: {seconds * 1e3:.1f} ms a step")
    found = {f"{name}_step_ratio_to_gloo": steps[name][0] / steps[peer][0] for name, peer in RATIOS.items()}
    found |= {f"{name}_step_ms": seconds * 1e3 for name, (seconds, _) in steps.items()}
    return found | {f"{name}_cpu_ms": cpu * 1e3 for name, (_, cpu) in steps.items()}


@click.command()
@click.option("--quick", is_flag=True, help="A quarter of the steps.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """What exchanging gradients costs a small model on one machine."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    figures = measure(QUICK_BLOCKS if quick else BLOCKS, lambda line: click.echo(line, err=True))
    print_figures(figures, as_json=as_json)


if __name__ == "__main__":
    main()
