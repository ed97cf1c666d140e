"""Runs benchmark cases: workers in the namespaces of a network, with the methods taking turns."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

from mltswitch.errors import MachineError
from mltswitch.hostagent.transport.description import transport_named
from mltswitch.training.axes import axes_of
from mltswitch.training.bench.results import Case, CaseResult, Contender, Method
from mltswitch.training.bench.tasks import load_bench_task
from mltswitch.training.job import OptimizerRule, make_job

CONTROL_DSCP: Final = 40
MASTER_PORT: Final = 29_400
CONTROL_PORT: Final = 20_811
BLOCK: Final = 5
"""Steps of one method before the next method has its turn, and between evaluations."""
WARM_UP: Final = 3
"""Steps that are trained but not timed, in which DDP arranges its buckets and connections open."""
LEAD_NS: Final = 30_000_000
"""Time from a request to the first step, by which all workers must have read the request."""
MARKED_SHARE: Final = 0.5
"""The threshold S of a gradient queue as a share of the buffer."""
BURST_SECONDS: Final = 0.5e-3
MOST_BURST_PACKETS: Final = 8
"""Largest burst of our agents, since waking up for each packet costs more than the packet."""
INTERFACE: Final = "path0"
MOST_FAILED: Final = 0.02
"""The largest share of the background's flows that may fail."""


class WorkerProcess(Protocol):
    """A process that reads and writes lines of text."""

    def tell(self, line: str) -> None:
        """Write one line to the process's standard input."""

    def answer(self) -> dict[str, Any]:
        """The next line that the process prints, from JSON; raises MachineError."""


class Network(Protocol):
    """Hosts around one switch, or between leaves and spines: `mltswitch.lab.Star`, `LeafSpine`."""

    def start(self, host: int, command: Sequence[str]) -> AbstractContextManager[WorkerProcess]:
        """Start a process on a host (0, 1, …), which ends with the block."""

    def addresses(self, host: int) -> tuple[str, ...]:
        """The addresses of a host, one a path."""

    def routed_address(self, host: int) -> str:
        """The address of a host for senders that do not choose paths."""

    def leaf_of(self, host: int) -> int:
        """Number of the switch that a host is connected to."""

    def set_rate(self, bits_per_second: int) -> None:
        """Set the rate of every port and line."""

    def set_round_trip(self, seconds: float, own_seconds: float) -> None:
        """Delay packets so that a round trip takes `seconds`; it takes `own_seconds` without any delay."""

    def round_trip_seconds(self) -> float:
        """The round trip between two hosts, measured by ping."""

    def set_loss(self, probability: float) -> None:
        """Make the network lose any packet at random with this probability."""

    def set_classes(
        self, buffer_bytes: int, control_dscp: int, gradient_dscp: Sequence[int], marked_share: float
    ) -> None:
        """Give every port a plan's queues for control and gradient classes."""

    def set_buffer(self, size_bytes: int) -> None:
        """Set the total buffer of every port."""

    def report(self) -> dict[str, Any]:
        """Packet and byte counts since the last report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that all cases of a benchmark have in common."""

    workers: int
    task: str
    seed: int = 0
    loss_bound: float = 0.1
    synchronization: str = "bsp"
    topology: str = "star"
    transport: str = "mlt"
    synchronization_settings: tuple[tuple[str, Any], ...] = ()
    topology_settings: tuple[tuple[str, Any], ...] = ()
    servers: int = 0
    """Number of parameter servers that are no workers; they run on the hosts after the workers."""
    colocated: int | None = None
    """The worker that adds up all gradients; None: there is none."""
    continues: bool = False
    rivals: int = 0
    """Number of hosts after those, an even one, that send background flows."""

    @property
    def hosts(self) -> int:
        """Number of hosts: workers, servers and background hosts."""
        return self.workers + self.servers + self.rivals

    def check(self) -> None:
        """Raises UserInputError for unknown or impossible settings, MachineError for missing packages."""
        transport_named(self.transport)
        rule = OptimizerRule("SGD", ({},), ((self.workers, 0),))
        options = self.options | {"servers": self.servers, "optimizer": rule}
        axes_of(make_job([("model", self.workers)], world=self.workers, **options))
        load_bench_task(self.task)

    @property
    def options(self) -> dict[str, Any]:
        """The options of `MltState` that follow from the settings."""
        names = ("loss_bound", "synchronization", "topology", "transport", "colocated", "continues")
        settings = {
            "settings": dict(self.synchronization_settings),
            "topology_settings": dict(self.topology_settings),
        }
        return {name: getattr(self, name) for name in names} | settings


class Team:
    """All workers of a benchmark; each request goes to all, and is over when the last has answered."""

    def __init__(self, network: Network, settings: Settings, processes: Sequence[WorkerProcess]) -> None:
        self.network = network
        self.settings = settings
        self._processes = processes
        self.own_round_trip_seconds = network.round_trip_seconds()
        self.target: float = self.meet(f"{network.routed_address(0)}:{MASTER_PORT}")[0]["target"]

    def meet(self, master: str) -> list[dict[str, Any]]:
        """Make all workers ranks of a process group, and give them the task."""
        return self.ask(
            "join",
            [{"rank": rank} for rank in range(self.settings.workers)],
            world=self.settings.workers,
            master=master,
            interface=INTERFACE,
            folder=str(Path.cwd()),
            task=self.settings.task,
            seed=self.settings.seed,
        )

    def agent_fields(self, case: Case) -> dict[str, Any]:
        """Agent configuration fields common to all workers in a case."""
        return {
            "line_rate": case.rate_bps,
            "classes": {"control_dscp": CONTROL_DSCP, "gradient_dscp": case.gradient_dscp},
            "queue": round((MARKED_SHARE if case.has_plan else 1) * case.buffer_bytes),
            "plaintext": True,
            "burst_packets": min(MOST_BURST_PACKETS, 1 + int(case.rate_bps * BURST_SECONDS / 8 / 1514)),
        }

    def ask(
        self, do: str, each: Sequence[Mapping[str, Any]] | None = None, **same: Any
    ) -> list[dict[str, Any]]:
        """Send a request to all workers and return their answers by rank; raises MachineError that names the
        worker that failed first."""
        for rank, process in enumerate(self._processes):
            process.tell(json.dumps({"do": do, **same, **(each[rank] if each else {})}))
        answers = [process.answer() for process in self._processes]
        failed = [(answer.get("at", 0.0), rank) for rank, answer in enumerate(answers) if "error" in answer]
        if failed:
            rank = min(failed)[1]
            raise MachineError(answers[rank]["error"], where=f"worker {rank}")
        return answers

    def accuracy(self, name: str) -> float:
        """The accuracy of rank 0's model of this name."""
        self._processes[0].tell(json.dumps({"do": "accuracy", "name": name}))
        answer = self._processes[0].answer()
        if "error" in answer:
            raise MachineError(answer["error"], where="worker 0")
        return float(answer["accuracy"])

    def run(
        self,
        case: Case,
        steps: int,
        advance: Callable[[str, int, int], None],
        contenders: Mapping[str, Contender] | None = None,
        *,
        block: int = BLOCK,
        warm_up: int = WARM_UP,
    ) -> CaseResult:
        """Run one case: computing alone and all methods in turns, from the same parameters and batches.

        Args:
            case: the network.
            steps: steps of each method, rounded up to whole blocks.
            advance: called with the method that runs, and how many blocks of how many are done.
            contenders: methods by name; None: gloo, and ours as the settings say.
            block: steps of one method before the next has its turn, and between evaluations; all sums come
                to the parameters then, and that is in no step's time.
            warm_up: steps before the losses begin, which count as training and not in times.
        """
        self._prepare(case)
        if contenders is None:
            gloo = {"gloo": "gloo-incast", "gloo-ring": "gloo"} if case.is_incast else {"gloo": "gloo"}
            named = {**gloo, self.settings.transport: "mlt"}
            contenders = {name: Contender(method=method) for name, method in named.items()}
        methods = {"compute": Contender(method="compute"), **contenders}
        found = {name: Method(name) for name in methods}
        missing = {name: Counter[int]() for name in methods}
        with ExitStack() as others:
            opened = {
                name: self._open(name, number, contender, case, others)
                for number, (name, contender) in enumerate(methods.items())
            }
            for name in methods:
                self._steps(name, warm_up)
            self.network.set_loss(case.loss)
            rivals = self._start_rivals(case, others)
            blocks = -(-steps // block)
            for done in range(blocks):
                turn = done % len(methods)
                for name in [*methods][turn:] + [*methods][:turn]:
                    advance(f"{case.name}: {name}", done, blocks)
                    self._block(found[name], block, missing[name])
            self.network.set_loss(0.0)
            _check_rivals(rivals)
            for name, method in found.items():
                digests = [answer["digest"] for answer in self.ask("close", name=name)]
                method.ranks_agree, method.digest = len({*digests}) == 1, digests[0]
                self._count_missing(method, opened[name], missing[name], len(case.gradient_dscp))
        elements = opened["compute"]["elements"]
        return CaseResult(case, self.settings.workers, elements, self.target, found)

    def _prepare(self, case: Case) -> None:
        network = self.network
        network.set_loss(0.0)
        network.set_rate(case.rate_bps)
        gradient_dscp = case.gradient_dscp if case.has_plan else ()
        network.set_classes(case.buffer_bytes, CONTROL_DSCP, gradient_dscp, MARKED_SHARE)
        if case.background:  # as a plan has it: the background's queue takes no room of the others
            network.set_buffer(2 * case.buffer_bytes)
        network.set_round_trip(case.round_trip_seconds, self.own_round_trip_seconds)

    def _open(
        self, name: str, number: int, contender: Contender, case: Case, servers: ExitStack
    ) -> dict[str, Any]:
        config = {**self.agent_fields(case), **contender.config}
        network, nodes = self.network, range(self.settings.workers + self.settings.servers)
        addresses = [
            network.addresses(host) if contender.is_sprayed else (network.routed_address(host),)
            for host in nodes
        ]
        configs = [
            config | {"addresses": at, "listen": f"{at[0]}:{CONTROL_PORT + number}"} for at in addresses
        ]
        options = {**self.settings.options, **contender.options}
        if self.settings.servers and contender.method in {"mlt", "forward"}:
            options |= self._serve(configs[self.settings.workers :], servers)
        return self.ask(
            "open",
            [{"config": each} for each in configs[: self.settings.workers]],
            name=name,
            method=contender.method,
            options=options,
            ddp=dict(contender.ddp),
            pause_seconds=case.pause_seconds,
        )[0]

    def _start_rivals(self, case: Case, stack: ExitStack) -> list[WorkerProcess]:
        """Each to those of the other leaf; they end with the stack."""
        if not case.background:
            return []
        network, settings = self.network, self.settings
        hosts = range(settings.hosts - settings.rivals, settings.hosts)
        bits_per_second = 2 * case.background * case.rate_bps / len(hosts)
        processes: list[WorkerProcess] = []
        for host in hosts:
            words = [
                network.routed_address(host),
                bits_per_second,
                case.background_divisor,
                settings.seed + host,
            ]
            far = [other for other in hosts if network.leaf_of(other) != network.leaf_of(host)]
            words += map(network.routed_address, far)
            command = [sys.executable, "-m", "mltswitch.training.bench.rivals", *map(str, words)]
            processes.append(stack.enter_context(network.start(host, command)))
        for process in processes:
            process.answer()
        for process in processes:
            process.tell("go")
        return processes

    def _serve(self, configs: Sequence[Mapping[str, Any]], stack: ExitStack) -> dict[str, Any]:
        """Start the servers of one contender, which end by themselves; options of its `MltState`."""
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="mltswitch-bench-")))
        meeting = f"file://{folder}/meeting"
        for server, config in enumerate(configs):
            path = folder / f"{server}.yaml"
            path.write_text(json.dumps(config), encoding="utf-8")
            options = {
                "--server": server,
                "--world": self.settings.workers,
                "--servers": self.settings.servers,
                "--rendezvous": meeting,
                "--config": path,
            }
            words = [str(word) for option in options.items() for word in option]
            command = [sys.executable, "-m", "mltswitch", "train", "serve", *words]
            stack.enter_context(self.network.start(self.settings.workers + server, command))
        return {"servers": self.settings.servers, "rendezvous": meeting}

    def _steps(self, name: str, count: int) -> list[dict[str, Any]]:
        return self.ask("steps", name=name, count=count, at_ns=time.monotonic_ns() + LEAD_NS)

    def _block(self, method: Method, steps: int, missing: Counter[int]) -> None:
        """So many steps of one method, what they took, and the accuracy after them."""
        switch_seconds = self.network.report()["cpu_seconds"]
        before = _processor_times()
        answers = self._steps(method.name, steps)
        busy, total = (after - first for after, first in zip(_processor_times(), before, strict=True))
        counts = self.network.report()
        method.step_seconds += [fmean(step) for step in zip(*(a["seconds"] for a in answers), strict=True)]
        method.later_shares.append(answers[0]["later_share"])
        method.cpu_load.append(busy / max(total, 1))
        method.cpu_seconds += sum(answer["cpu_seconds"] for answer in answers)
        method.lost_at_random += counts["random_lost"]
        for queue in counts["queues"]:
            method.dropped += queue["important_dropped"] + queue["unimportant_dropped"]
        method.packets += counts["arrived"]
        method.core_packets += counts["core_offered"]
        method.core_dropped += counts["core_dropped"]
        method.core_bytes += counts["core_bytes"]
        method.switch_cpu_seconds += counts["cpu_seconds"] - switch_seconds
        for answer in answers:
            missing.update({int(layer): count for layer, count in answer["missing"].items()})
        if method.name != "compute":
            method.accuracies.append((sum(method.step_seconds), self.accuracy(method.name)))

    def _count_missing(
        self, method: Method, opened: Mapping[str, Any], missing: Counter[int], classes: int
    ) -> None:
        """By gradient class, and in all; each element crosses the network to its sum from all ranks but one.

        Steps before the losses count in neither. Servers that are no workers do not say what they miss.
        """
        layers = opened["layers"]
        if not layers or self.settings.servers:
            return
        lost, crossed = [0] * classes, [0] * classes
        for layer, count in opened["of_layers"].items():
            number = int(layer) * classes // layers
            crossed[number] += count * (self.settings.workers - 1) * len(method.step_seconds)
            lost[number] += missing[int(layer)]
        method.missing_share = tuple(each / max(all_, 1) for each, all_ in zip(lost, crossed, strict=True))
        method.delivered_share = 1 - sum(lost) / sum(crossed)


@contextmanager
def running_team(network: Network, settings: Settings) -> Iterator[Team]:
    """Start workers on the first hosts of a network, which end with the block. Raises what `check` and `ask`
    raise."""
    settings.check()
    command = [sys.executable, "-m", "mltswitch.training.bench.worker"]
    with ExitStack() as stack:
        processes = [stack.enter_context(network.start(host, command)) for host in range(settings.workers)]
        yield Team(network, settings, processes)


def _check_rivals(processes: Sequence[WorkerProcess]) -> None:
    """Raises MachineError where the background was not what was asked for."""
    for process in processes:
        process.tell("how many")
    for number, process in enumerate(processes):
        counts = process.answer()
        if counts["failed"] > MOST_FAILED * counts["flows"]:
            problem = f"{counts['failed']} of {counts['flows']} flows have failed: {counts['reason']}"
            raise MachineError(problem, where=f"the background's host {number}")


def _processor_times() -> tuple[int, int]:
    """Ticks that this machine's processors were busy, and all; of proc(5)'s stat."""
    line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    ticks = [int(word) for word in line.split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)
