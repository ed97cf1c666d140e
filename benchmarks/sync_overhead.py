"""What OSP's bookkeeping and a co-located server cost a rank's computing (OSP, section 5.4 and figure 9).

    python -m benchmarks.sync_overhead [--quick] [--json]

Two ranks train a perceptron of 5.8 million parameters (23 MB), batches of 1,024, over loopback. Computing is
the processor time of rank 0's training thread without any exchange. The same thread, and the thread that adds
up, are measured with `bsp` and a server of its own, with `osp` and such a server, and with `osp` where rank 0
serves all pieces. Processor time, for other ranks and the server share this machine's cores; transport is
not in it. `osp` has four fifths of the model later.

    colocated_overhead          what osp with a co-located server adds, over computing: the sum of the
                                parts below; the paper has 0.03 to 0.08
    ours_over_paper             colocated_overhead over the middle of that, 0.055
    colocated_difference        as figure 9 has it: both threads' time with co-located osp less that with bsp,
                                over computing; from run to run it differs by 0.05 and more
    separate_difference         likewise, osp with a server of its own
    bsp_overhead                (bsp - computing) / computing: DDP's and our copies
    compute_seconds             of a step; likewise WAY_wall_seconds, by the clock, transport with it
    adding_seconds              of the thread that adds up, beyond what it has with bsp
    before_seconds, after_seconds, accept_seconds, correct_seconds, importance_seconds
                                that parts of a step with a co-located server take: what is kept before the
                                optimizer's step, sums that are copied, steps made anew, ranking
    ranks_agree                 whether both ended with the same bits; 1: yes
"""

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from multiprocessing import get_context
from statistics import median
from typing import Any, Final

import click
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.figures import print_figures
from mltswitch.training.agents import serve
from mltswitch.training.pytorch.hook import MltState, mlt_hook
from mltswitch.training.pytorch.replica import Replica

RANKS: Final = 2
PAPER: Final = 0.055
STEPS: Final = 14
QUICK_STEPS: Final = 7
WARM_UP: Final = 4
BATCH: Final = 1024
OSP: Final = {"synchronization": "osp", "settings": {"share": 0.8}}
WAYS: Final[dict[str, dict[str, Any] | None]] = {
    "compute": None,
    "bsp": {"servers": 1},
    "separate": {**OSP, "servers": 1},
    "colocated": {**OSP, "colocated": 0},
}
PARTS: Final = {
    "before_step": "before_seconds",
    "after_step": "after_seconds",
    "accept": "accept_seconds",
    "correct": "correct_seconds",
    "importance": "importance_seconds",
}


def _model() -> Any:
    torch.manual_seed(1)
    nn = torch.nn
    return nn.Sequential(
        nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    )


def _timed(spent: defaultdict[str, float], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **options: Any) -> Any:
        began = time.thread_time()
        try:
            return call(*args, **options)
        finally:
            spent[name] += time.thread_time() - began

    return timed


def _times(clock: int | None) -> tuple[float, float, float]:
    """Of the training thread, of the thread that adds up, and of the clock."""
    return time.thread_time(), 0.0 if clock is None else time.clock_gettime(clock), time.perf_counter()


def _train(pipe: Any, rank: int, folder: str, way: str, steps: int) -> None:
    """A rank; tells seconds of each step's threads, what parts took, and its parameters."""
    torch.set_num_threads(1)
    spent = defaultdict[str, float](float)
    for method, name in PARTS.items():
        setattr(Replica, method, _timed(spent, name, getattr(Replica, method)))
    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo-{way}", rank=rank, world_size=RANKS)
    module, options = _model(), WAYS[way]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    model: Any = module
    state, clock = None, None
    if options is not None:
        model = DistributedDataParallel(module)
        state = MltState(model, optimizer=optimizer, rendezvous=f"file://{folder}/{way}", **options)
        model.register_comm_hook(state, mlt_hook)
        clock = time.pthread_getcpuclockid(state._node._thread.ident or 0)
    draw = torch.Generator().manual_seed(rank)
    inputs = torch.randn(BATCH, 784, generator=draw)
    labels = torch.randint(0, 10, (BATCH,), generator=draw)
    told = []
    for step in range(steps):
        if step == WARM_UP:
            spent.clear()
        before = _times(clock)
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        told.append([after - first for after, first in zip(_times(clock), before, strict=True)])
    if state is not None:
        state.close()
    digest = b"".join(parameter.detach().numpy().tobytes() for parameter in module.parameters())
    parts = {name: seconds / (steps - WARM_UP) for name, seconds in spent.items()}
    pipe.send((told[WARM_UP:], parts, digest))


def measure(steps: int) -> dict[str, float]:
    """All ways, one after the other."""
    processes, found = get_context("spawn"), dict[str, list[float]]()
    parts: dict[str, float] = {}
    agree = True
    with tempfile.TemporaryDirectory() as folder:
        for way, options in WAYS.items():
            pipes, started = [], []
            for rank in range(RANKS):
                ours, theirs = processes.Pipe(duplex=False)
                pipes.append(ours)
                started.append(processes.Process(target=_train, args=(theirs, rank, folder, way, steps)))
            if options and "servers" in options:
                arguments = (0, RANKS, 1, f"file://{folder}/{way}")
                started.append(processes.Process(target=serve, args=arguments))
            for process in started:
                process.start()
            answers = [pipe.recv() for pipe in pipes]
            for process in started:
                process.join()
            rows, parts, digest = answers[0]
            found[way] = [*map(median, zip(*rows, strict=True))]
            agree &= way == "compute" or digest == answers[1][2]
            click.echo(
                f"{way}: training {found[way][0]:.3f} s, adding {found[way][1]:.3f} s a step", err=True
            )
    compute = found["compute"][0]
    bsp = sum(found["bsp"][:2])
    parts = {name: parts.get(name, 0.0) for name in PARTS.values()}
    parts["adding_seconds"] = found["colocated"][1] - found["bsp"][1]
    overhead = sum(parts.values()) / compute
    return {
        "colocated_overhead": overhead,
        "ours_over_paper": overhead / PAPER,
        "colocated_difference": (sum(found["colocated"][:2]) - bsp) / compute,
        "separate_difference": (sum(found["separate"][:2]) - bsp) / compute,
        "bsp_overhead": bsp / compute - 1,
        "compute_seconds": compute,
        **{f"{way}_wall_seconds": times[2] for way, times in found.items()},
        **parts,
        "ranks_agree": float(agree),
    }


@click.command()
@click.option("--quick", is_flag=True, help=f"{QUICK_STEPS} steps of each.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(quick: bool, as_json: bool) -> None:
    """Measure what bookkeeping costs."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print_figures(measure(QUICK_STEPS if quick else STEPS), as_json=as_json)


if __name__ == "__main__":
    main()
