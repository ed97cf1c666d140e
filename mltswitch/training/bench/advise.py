"""Measures on the user's own hosts whether a job gains by MLT, and by which of its parts.

Every rank calls `advise`, as it would train. The first one drives a `Team` whose workers are the ranks
themselves: requests and answers travel by a gloo group of their own.
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Any, Final

import torch.distributed as dist

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent import AgentConfig
from mltswitch.profile import profile_sha256, resolve_profile
from mltswitch.training.bench.ladder import Rung, ladder_of, rungs
from mltswitch.training.bench.links import Links, Prober, interface_of, own_address
from mltswitch.training.bench.results import GRADIENT_DSCP, Case, CaseResult
from mltswitch.training.bench.run import BLOCK, CONTROL_DSCP, WARM_UP, Settings, Team, WorkerProcess
from mltswitch.training.bench.tasks import SHAPE
from mltswitch.training.bench.worker import PATIENCE, Worker
from mltswitch.training.job import ELEMENT_BYTES
from mltswitch.units import BITS_PER_BYTE

LOOPBACK: Final = "127."
LOOPBACK_ADDRESS: Final = "127.0.0.1"
LOOPBACKS: Final = 250
LEAST_RANKS: Final = 2
STEP_SECONDS: Final = 0.4
"""Duration that a measured step aims at: as short as possible without being dominated by fixed costs."""
LADDER_SHARE: Final = 0.7
"""Share of the time that the ladder gets; measuring the network, meeting and opening get the rest."""
LADDER_METHODS: Final = 10
"""Number of methods that are measured: the ladder's rungs, and computing alone."""
MOST_BLOCKS: Final = 20
MOST_ELEMENTS: Final = 8_000_000
"""The most elements of the measured model; all rungs have a model, gradients and vectors at once, some 2
GB."""
NOT_SHARED: Final = frozenset({"data_port", "two_queues"})
"""Fields of the agent's configuration that cannot be shared by the agents of all rungs, which exist at
once."""
END: Final = ""
"""Message that tells a rank that no more requests follow."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The measurements of one run of `advise`, all made in the same minutes with the same bytes."""

    links: Links
    divisor: int
    """How many times smaller than the user's model the measured one is, and how many times shorter it
    computes."""
    result: CaseResult
    ladder: Sequence[Rung]


class _Remote:
    """A rank as a worker: the first one's own, or another's over the network."""

    def __init__(self, rank: int, worker: Worker, group: dist.ProcessGroup) -> None:
        self._rank = rank
        self._worker = worker
        self._group = group
        self._line = END

    def tell(self, line: str) -> None:
        """A request; the first one's own waits until its answer is asked for; all others have theirs then."""
        if self._rank:
            dist.send_object_list([line], self._rank, self._group)
        else:
            self._line = line

    def answer(self) -> dict[str, Any]:
        """What the rank answers to its last request."""
        if not self._rank:
            return self._worker.answer(json.loads(self._line))
        found: list[Any] = [None]
        dist.recv_object_list(found, self._rank, self._group)
        answer: dict[str, Any] = found[0]
        return answer


class _OwnWorker(Worker):
    """Takes its host's own settings where a request says nothing else."""

    def __init__(self, own: AgentConfig) -> None:
        super().__init__()
        fields = own.model_dump(exclude_unset=True, by_alias=True)
        self._own = {name: value for name, value in fields.items() if name not in NOT_SHARED}

    def agent_fields(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Which code points are used is the request's, and sections of transports are mixed."""
        merged: dict[str, Any] = dict(self._own)
        for field, value in told.items():
            section = merged.get(field)
            is_mixed = isinstance(section, dict) and field != "classes"
            merged[field] = {**section, **value} if is_mixed else value  # type: ignore[dict-item]  # a dict
        return merged

    def steps(self, name: str, count: int, at_ns: int) -> dict[str, Any]:
        """At once: hosts have no clock in common, and exchanges keep the ranks together."""
        return super().steps(name, count, 0 * at_ns)


class _Hosts:
    """The ranks' network, which nobody changes here: it keeps its own rate, delay, losses and queues."""

    def __init__(self, addresses: Sequence[Sequence[str]], links: Links) -> None:
        self._addresses = addresses
        self._links = links

    def start(self, host: int, command: Sequence[str]) -> AbstractContextManager[WorkerProcess]:
        """Ranks start themselves."""
        raise MachineError(f"{command[0]} is started on its own host", where=f"rank {host}")

    def addresses(self, host: int) -> tuple[str, ...]:
        """The addresses of a rank's agent."""
        return tuple(self._addresses[host])

    def routed_address(self, host: int) -> str:
        """The first one."""
        return self._addresses[host][0]

    def leaf_of(self, _host: int) -> int:
        """Nobody knows."""
        return 0

    def _kept(self, *_: object, **__: object) -> None:
        """Nothing changes."""

    set_rate = set_round_trip = set_loss = set_classes = set_buffer = _kept

    def round_trip_seconds(self) -> float:
        """As measured."""
        return self._links.round_trip_seconds

    def report(self) -> dict[str, Any]:
        """Nobody counts."""
        counts = dict.fromkeys(("arrived", "random_lost", "core_offered", "core_dropped", "core_bytes"), 0)
        return {"cpu_seconds": 0.0, "queues": [], **counts}


class _RanksTeam(Team):
    """The ranks, which have met before."""

    def meet(self, _master: str) -> list[dict[str, Any]]:
        """They have; each takes the task."""
        return self.ask("take", task=self.settings.task, seed=self.settings.seed)

    def agent_fields(self, _case: Case) -> dict[str, Any]:
        """Those of each host's own file."""
        return {}


def advise(
    profile: str,
    compute_seconds: float,
    *,
    config: AgentConfig | None = None,
    plaintext: bool = False,
    loss_bound: float = 0.1,
    seconds: float = 60.0,
    advance: Callable[[str, int, int], None] = lambda *_: None,
) -> Advice | None:
    """The step time of each rung of the ladder on these hosts; None on all ranks but the first.

    Args:
        profile: name or file of the model's profile, the same on all ranks.
        compute_seconds: duration of a step that exchanges nothing; the first rank's counts.
        config: this host's agent configuration; None: made from its address towards the first rank.
        plaintext: without a config, whether the agent may run without keys beyond loopback.
        loss_bound: share of the gradients that may be missing.
        seconds: about how long the measurement may take in all.
        advance: called with the work under way, and how much of how much is done.

    Raises:
        UserInputError: not started as ranks, fewer than two, two with one address, other profiles, or an
            agent that rungs cannot be measured with: IPv6, paths by anything but addresses.
        MachineError: a host cannot be reached, or a rank has failed.
    """
    missing = [
        name for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE") if not os.environ.get(name)
    ]
    if missing:
        raise UserInputError("is not set", where=missing[0], hint="start it by torchrun, on every host")
    rank, model = int(os.environ["RANK"]), resolve_profile(profile)
    own, is_told = _own_config(config, rank, plaintext=plaintext), config is not None
    name = interface_of(LOOPBACK_ADDRESS if own.addresses[0].startswith(LOOPBACK) else own.addresses[0])
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    with _process_group(rank):
        if dist.get_world_size() < LEAST_RANKS:
            raise UserInputError("there is one rank", where="WORLD_SIZE", expected="at least 2, one a host")
        told = _gathered((own.addresses, profile_sha256(model)))
        addresses = [each for each, _ in told]
        doubled = [each for each, count in Counter(each[0] for each in addresses).items() if count > 1]
        if doubled:
            raise UserInputError(
                f"two have the address {doubled[0]}", where="ranks", expected="one rank a host"
            )
        others = [number for number, (_, digest) in enumerate(told) if digest != told[0][1]]
        if others:
            raise UserInputError(f"rank {others[0]} has another profile than rank 0", where="--model")
        advance("the network", 0, 1)
        with Prober(rank, addresses[rank][0], _gathered) as prober:
            links = prober.measure()
        if not is_told:
            own = own.model_copy(update={"line_rate_bps": round(links.alone_bps)})
        worker, group = _OwnWorker(own), dist.new_group(timeout=PATIENCE + timedelta(seconds=seconds))
        worker.adopt(rank, len(addresses))
        if rank:
            _serve(worker, group)
            return None
        processes = [_Remote(number, worker, group) for number in range(len(addresses))]
        try:
            divisor, steps = size_of(model.total_parameters, compute_seconds, links, seconds)
            task = f"{SHAPE}{profile}/{divisor}@{compute_seconds / divisor:.9f}"
            settings = Settings(workers=len(addresses), task=task, loss_bound=loss_bound)
            settings.check()
            dscp = own.classes.gradient_dscp if own.classes else GRADIENT_DSCP
            case = Case(profile, round(links.alone_bps), links.round_trip_seconds, 0.0, 0, gradient_dscp=dscp)
            has_paths = len(set(addresses[0])) > 1
            contenders = rungs(dscp, has_paths=has_paths, control_dscp=own.control_dscp)
            team = _RanksTeam(_Hosts(addresses, links), settings, processes)
            result = team.run(case, steps, advance, contenders)
        finally:
            for process in processes:
                with suppress(RuntimeError):  # it is gone, and what was wrong has been said
                    process.tell(END)
        return Advice(links, divisor, result, ladder_of(result))


def size_of(elements: int, compute_seconds: float, links: Links, seconds: float) -> tuple[int, int]:
    """The divisor that makes the model smaller, and the steps of each rung, so that all fits into the time.

    A step then takes about `STEP_SECONDS`, or less where the whole model's does.
    """
    world = links.hosts
    bits = 2 * (world - 1) / world * elements * ELEMENT_BYTES["float32"] * BITS_PER_BYTE
    step_seconds = compute_seconds + bits / min(links.ring_bps, links.alone_bps)
    divisor = max(1, round(step_seconds / STEP_SECONDS), ceil(elements / MOST_ELEMENTS))
    affordable = seconds * LADDER_SHARE / LADDER_METHODS / (step_seconds / divisor) - WARM_UP
    return divisor, BLOCK * min(MOST_BLOCKS, max(1, int(affordable / BLOCK)))


def _serve(worker: Worker, group: dist.ProcessGroup) -> None:
    """Answer the first rank's requests until there are no more."""
    while True:
        line: list[Any] = [None]
        dist.recv_object_list(line, 0, group)
        if line[0] == END:
            return
        dist.send_object_list([worker.answer(json.loads(line[0]))], 0, group)


def _gathered(value: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def _own_config(config: AgentConfig | None, rank: int, *, plaintext: bool) -> AgentConfig:
    """This host's, resolved. Raises UserInputError for what rungs cannot be measured with."""
    if config is None:
        master = os.environ["MASTER_ADDR"]
        address = own_address(master)
        if address.startswith(LOOPBACK):
            if not (master.startswith(LOOPBACK) or master == "localhost"):
                hint = "say its address, not its name, or give each host its agent's file"
                raise UserInputError(f"{master} is a loopback address here", where="MASTER_ADDR", hint=hint)
            address = f"127.0.0.{rank % LOOPBACKS + 1}"  # several ranks on one machine
        classes = {"control_dscp": CONTROL_DSCP, "gradient_dscp": GRADIENT_DSCP}
        config = AgentConfig(addresses=(address,), classes=classes, plaintext=plaintext, line_rate="1Gbps")
    found = config.resolved()
    if ":" in found.addresses[0]:
        raise UserInputError(f"{found.addresses[0]} is IPv6", where="addresses", expected="IPv4")
    if found.spraying.mode not in {None, "alias"}:
        problem = f"{found.spraying.mode}: all rungs have agents at once, which cannot share its ports"
        raise UserInputError(problem, where="spraying.mode", expected="alias")
    return found


@contextmanager
def _process_group(rank: int) -> Iterator[None]:
    try:
        dist.init_process_group("gloo", timeout=PATIENCE)
        yield
    except RuntimeError as error:  # torch has many names for a peer that is gone
        reason = str(error).partition("\n")[0]
        raise MachineError(
            f"the ranks have lost each other: {reason:.150}", where="torch.distributed"
        ) from None
    except OSError as error:
        raise MachineError(str(error), where=f"rank {rank}") from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
