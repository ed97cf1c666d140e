"""What a training job makes of a killed rank, a killed parameter server and a cut link, on real processes.

    python -m benchmarks.train_kills [--sync NAME] [--quick] [--seed S] [--json]

Needs root, gcc, torch and scikit-learn. Two workers (DistributedDataParallel with `MltState`) and a parameter
server train a perceptron around one switch (mltswitch/lab/star.c) that loses 1 % of the packets. At a random
moment a process gets SIGKILL, or a host's interface goes down. Every node that is left must end by itself
with a typed error that names the node to blame; then the job starts again from rank 0's last checkpoint.
Where pushes count by themselves (`asp`, `ssp`, `r2sp`), the other worker must train on when a worker is
lost, and only the server's loss ends the job.

    trials, of_KINDs    faults; KIND: worker, server, link
    hung                nodes without an error, or that had not ended, a minute after the fault
    unnamed             errors of other types, or that do not name the node; one that is cut off may name any
    late                errors past the limit: 1 s where a process died, 14 s where a link was cut
    seconds_to_error_p50_KIND, …_p99_…, …_max_…: until a node has it, and its agent is closed
    went_on, of_gone    where they should have, and how often that was
    restarted           share of the trials after which both workers began at the checkpoint's step, trained
                        on, and had the same parameters after each step, bit by bit
    resumed_steps       the fewest that a restarted job trained until the next fault
"""

import hashlib
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from math import ceil
from multiprocessing import connection, get_context
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import click
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.figures import print_figures
from mltswitch.errors import MltswitchError
from mltswitch.hostagent.config import EXAMPLE_CLASSES, AgentConfig
from mltswitch.lab import NamespaceHandle, Star, running_star
from mltswitch.lab.programs import ip
from mltswitch.lab.star import INTERFACE
from mltswitch.training.agents import serve
from mltswitch.training.bench.tasks import load_bench_task
from mltswitch.training.pytorch.hook import MltState, mlt_hook

TRIALS: Final = {"worker": 20, "server": 20, "link": 12}
NODES: Final = ("rank 0", "rank 1", "server 0")
WORKERS: Final = 2
RATE_BPS: Final = 500_000_000
LIMIT_SECONDS: Final = {"worker": 1.0, "server": 1.0, "link": 14.0}
PATIENCE_SECONDS: Final = 60.0
PRELOADED: Final = ["mltswitch.training.pytorch.hook", "sklearn.datasets", "torch._dynamo"]
"""What each node would need half a minute to import."""
LEAST_STEPS: Final = 7
SAVED_EVERY: Final = 5
GOING_ON_STEPS: Final = 200
"""More than can be under way when a worker is lost."""
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "osp": {"share": 0.6, "slice_bytes": 16 << 10},
    "r2sp": {"turn_seconds": 2.0},
}
ALONE: Final = {"asp", "ssp", "r2sp"}


def last_checkpoint(folder: Path) -> Any:
    """Of rank 0."""
    path = folder / "checkpoint.pt"
    return torch.load(path) if path.exists() else {"step": 0}


def live(
    pipe: Any, node: int, host: NamespaceHandle, at: tuple[str, ...], folder: Path, run: int, sync: str
) -> None:
    """A node's whole life, in a process of its own; it tells each step, and its error."""
    meeting = f"file://{folder}/meeting-{run}"
    config = AgentConfig(addresses=at, line_rate=RATE_BPS, classes=EXAMPLE_CLASSES, plaintext=True)
    with host.entered():
        try:
            if node < WORKERS:
                train(
                    pipe,
                    node,
                    folder,
                    run,
                    {"config": config, "rendezvous": meeting, "synchronization": sync},
                )
            else:
                serve(node - WORKERS, WORKERS, 1, meeting, config=config)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is judged)
            where = getattr(error, "where", "")
            pipe.send(("error", (type(error).__name__, where, str(error), time.monotonic())))


def train(pipe: Any, rank: int, folder: Path, run: int, options: dict[str, Any]) -> None:
    """A worker, from the last checkpoint until the job ends; raises why."""
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/gloo-{run}", rank=rank, world_size=WORKERS)
    task = load_bench_task("digits-wide")
    module = task.model()
    optimizer = task.optimizer(module.parameters())
    saved = last_checkpoint(folder)
    if step := saved["step"]:
        module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    model = DistributedDataParallel(module)
    alone = options["synchronization"] in ALONE
    options |= {"settings": SETTINGS.get(options["synchronization"]), "continues": alone}
    options |= {"optimizer": optimizer, "servers": 1, "loss_bound": 0.1, "deadline_seconds": 10.0}
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, SAVED_EVERY, 0.9999)
    with MltState(model, **options) as state:
        if "state" in saved:
            state.load_state_dict(saved["state"])
        model.register_comm_hook(state, mlt_hook)
        for batch in task.batches(run, rank, WORKERS):
            optimizer.zero_grad()
            try:
                task.loss(model, batch).backward()
                optimizer.step()
            except (RuntimeError, MltswitchError) as error:
                raise (state.error or error) from None
            step += 1
            schedule.step()
            if step % SAVED_EVERY == 0 and not alone:
                try:
                    state.drain()
                except MltswitchError as error:
                    raise (state.error or error) from None
            if rank == 0 and step % SAVED_EVERY == 0:
                saved = {"step": step, "model": module.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(saved | ({} if alone else {"state": state.state_dict()}), folder / "fresh")
                (folder / "fresh").rename(folder / "checkpoint.pt")  # whole, whenever it is killed
            parameters = b"".join(entry.detach().numpy().tobytes() for entry in module.parameters())
            is_alike = not alone and (options["synchronization"] == "bsp" or step % SAVED_EVERY == 0)
            pipe.send((step, hashlib.sha256(parameters).hexdigest() if is_alike else ""))


class Run:
    """The job, started from the last checkpoint, and what its nodes have told."""

    def __init__(self, star: Star, folder: Path, number: int, sync: str) -> None:
        self._first, processes = last_checkpoint(folder)["step"] + 1, get_context("forkserver")
        self.told: list[dict[Any, Any]] = [{} for _ in NODES]  # the digest after each step, and `error`
        self.living: dict[Any, int] = {}  # pipes of the nodes whose processes have not ended
        self.sync = sync
        self.processes, self.is_whole = list[Any](), True
        for node, host in enumerate(star.hosts):
            pipe, theirs = processes.Pipe(duplex=False)
            arguments = (theirs, node, host, star.addresses(node), folder, number, sync)
            self.processes.append(processes.Process(target=live, args=arguments, daemon=True))
            self.processes[-1].start()
            theirs.close()
            self.living[pipe] = node

    def watch(self, seconds: float, is_done: Callable[[], bool]) -> None:
        """Hear what nodes tell for so long, or until it is done."""
        until = time.monotonic() + seconds
        while not is_done() and (left := until - time.monotonic()) > 0:
            for pipe in cast(list[Any], connection.wait([*self.living], left)):
                try:
                    key, value = pipe.recv()
                    self.told[self.living[pipe]][key] = value
                    self.is_whole &= key != "error"
                except (EOFError, OSError):  # also in the midst of a word
                    del self.living[pipe]
                    self.is_whole = False

    def goes_on(self, more_seconds: float) -> bool:
        """Train the least steps, and then for so long; whether all is well, from the checkpoint on."""
        one, other = self.told[:WORKERS]
        self.watch(PATIENCE_SECONDS, lambda: min(len(one), len(other)) >= LEAST_STEPS or not self.is_whole)
        self.watch(more_seconds, lambda: not self.is_whole)
        is_long = min(len(one), len(other)) >= LEAST_STEPS
        is_alike = all(one[step] == other[step] for step in one.keys() & other.keys())
        return self.is_whole and is_long and is_alike and min(one) == min(other) == self._first


def befall(star: Star, run: Run, kind: str, victim: int, found: Counter[str]) -> list[float]:
    """Do the fault; seconds to the error of each node that is left."""
    at_seconds, host = time.monotonic(), star.hosts[victim].name
    if kind == "link":
        ip([f"link set {INTERFACE} down"], host)
    else:
        run.processes[victim].kill()
    goes_on = run.sync in ALONE and victim < WORKERS
    if goes_on:
        other, before = run.told[1 - victim], len(run.told[1 - victim])
        run.watch(PATIENCE_SECONDS, lambda: len(other) >= before + GOING_ON_STEPS or "error" in other)
        found["of_gone"] += 1
        found["went_on"] += len(other) >= before + GOING_ON_STEPS and "error" not in other
    else:
        run.watch(PATIENCE_SECONDS, lambda: not run.living)
    if kind == "link":  # whose routes went with it
        route = f"route add 10.0.0.0/8 dev {INTERFACE} src {star.addresses(victim)[0]}"
        ip([f"link set {INTERFACE} up", route], host)
    seconds: list[float] = []
    if goes_on:
        return seconds
    for node in {*range(len(NODES))} - ({victim} if kind != "link" else set()):
        if "error" not in run.told[node] or node in run.living.values():
            found["hung"] += 1
            continue
        name, where, text, error_seconds = run.told[node]["error"]
        right = {*NODES} - {NODES[node]} if node == victim else {NODES[victim]}
        is_typed = name in {"NodeLostError", "NodeLateError"}
        found["unnamed"] += not (is_typed and {*str(where).split(", ")} <= right)
        seconds.append(error_seconds - at_seconds)
        found["late"] += seconds[-1] > LIMIT_SECONDS[kind]
        click.echo(f"  {NODES[node]}: {seconds[-1]:.3f} s, {name}: {text}", err=True)
    return seconds


def measure(trials: dict[str, int], seed: int, sync: str = "bsp") -> dict[str, float]:
    """One fault after the other; each befalls the job that was restarted after the one before."""
    chance = Random(seed)  # noqa: S311  (no secret)
    kinds = chance.sample([*trials], sum(trials.values()), counts=trials.values())
    found, steps, seconds = Counter[str](), list[int](), defaultdict[str, list[float]](list)
    get_context("forkserver").set_forkserver_preload(PRELOADED)
    with running_star(len(NODES)) as star, tempfile.TemporaryDirectory() as folder:
        star.set_rate(RATE_BPS)
        star.set_loss(0.01)
        for number, kind in enumerate([*kinds, "none"]):
            victim = {"worker": chance.randrange(WORKERS), "server": WORKERS}.get(kind, chance.randrange(3))
            run = Run(star, Path(folder), number, sync)
            goes_on = run.goes_on(chance.uniform(0, 1.5))
            if number:
                found["restarted"] += goes_on
                steps.append(min(map(len, run.told[:WORKERS])))
            click.echo(f"{number}: {kind}, {NODES[victim]}{'' if goes_on else run.told}", err=True)
            if goes_on and kind in trials:
                seconds[kind] += befall(star, run, kind, victim, found)
                found.update(("trials", f"of_{kind}s"))
            for process in run.processes:
                process.kill()
                process.join()
    laws = ("trials", *(f"of_{kind}s" for kind in trials), "hung", "unnamed", "late", "went_on", "of_gone")
    figures = {law: float(found[law]) for law in laws}
    for kind, each in seconds.items():
        if not each:
            continue
        for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
            figures[f"seconds_to_error_{name}_{kind}"] = sorted(each)[ceil(share * len(each)) - 1]
    return figures | {"restarted": found["restarted"] / len(kinds), "resumed_steps": float(min(steps))}


@click.command()
@click.option("--sync", default="bsp", show_default=True, help="Synchronization.")
@click.option("--quick", is_flag=True, help="Six faults.")
@click.option("--seed", default=1, show_default=True, help="Of the moments and the victims.")
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
def main(sync: str, quick: bool, seed: int, as_json: bool) -> None:
    """Kill ranks and servers, cut links, and start again."""
    try:
        found = measure(dict.fromkeys(TRIALS, 2) if quick else TRIALS, seed, sync)
    except MltswitchError as error:
        raise click.ClickException(str(error)) from None
    print_figures(found, as_json=as_json)


if __name__ == "__main__":
    main()
