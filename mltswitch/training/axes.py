"""The axes of a job as interfaces: synchronization and topology. Each is a module, found by its name.

Nothing behind them knows a socket, a clock, a thread or torch; time is an argument.
"""

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from mltswitch.documents import plain_words
from mltswitch.errors import UserInputError
from mltswitch.training.job import Divisor, Job

Elements = NDArray[np.floating[Any]]
Range = tuple[int, int]
"""Elements of a piece: first, and one beyond the last."""


class Stage(StrEnum):
    """When an exchange must be over."""

    NOW = "now"
    """The next step waits for the exchange."""
    LATER = "later"
    """It overlaps the next computation, and goes in the last gradient class."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a member wants exchanged: for each piece one sum of all ranks, or one push of its own."""

    step: int
    pieces: tuple[int, ...]
    stage: Stage = Stage.NOW
    origin: int | None = None
    """The member's rank where it pushes alone; None: the sum of all ranks."""


class Sum(NamedTuple):
    """One piece of an exchange, named alike at all nodes.

    Sums of a piece are numbered within their stage and origin, not by steps: so a server knows which one
    comes next, even where a step of the ranks has no sum of this piece in this stage.
    """

    piece: int
    number: int
    """From 0, without gaps; the step, where every step has one."""
    stage: Stage = Stage.NOW
    origin: int | None = None
    """The rank whose push it is; None: all ranks are in it."""

    @property
    def next(self) -> "Sum":
        """The one that follows it in the same stage from the same origin."""
        return self._replace(number=self.number + 1)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a synchronization asks of a topology, or what a topology offers."""

    lone_pushes: bool = False
    """The push of one rank reaches its keeper by itself, in no sum with others."""
    stale_pushes: bool = False
    """Ranks may be at different steps when they take part in the same sum."""


class Member(Protocol):
    """A rank's part of a synchronization."""

    lag: int
    """Steps beside the last two of which sums may be to come when a step begins."""
    prediction: str
    """What parameters are until a sum that comes later is there: the `optimizer`'s step with own gradients,
    p - lr · g (`local`), or as they were (`none`)."""

    @property
    def holds(self) -> bool:
        """Whether exchanges of past steps have not begun."""

    def ready(self, step: int, pieces: Sequence[int], now_ns: int) -> list[Exchange]:
        """Own gradients of these pieces are there: what is exchanged at once. Pieces come once a step."""

    def computed(self, step: int, loss: float, seconds: float, now_ns: int) -> list[Exchange]:
        """All pieces of the step are there: what is exchanged beside what `ready` said, and the ballot."""

    def arrived(self, step: int, result: Sum, now_ns: int) -> list[Exchange]:
        """The result of what this rank has given in a step is in its memory: what of past steps goes now."""

    def later(self, step: int) -> frozenset[int]:
        """Pieces of a step whose sums arrive only after it: own gradients stand in for them until then.

        It is known once `may_compute(step)`, and does not change.
        """

    def weighed(self, importance: Mapping[int, float]) -> None:
        """Importance of some pieces, the sum of |gradient · parameter|: of `piece % world == rank`, asked for
        where `Synchronization.votes`, whenever sums of them have come to the parameters."""

    def vote(self, step: int) -> Sequence[float]:
        """This rank's part of a step's ballot, where `Synchronization.votes`; asked after `computed`."""

    def counted(self, step: int, ballot: Sequence[float]) -> list[int]:
        """A step's ballot: the sum of all ranks' parts. Returns ranks that disagree, and end the job."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs of it after `drain`: plain data for JSON."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where another of the same job was when `state` was taken. Raises UserInputError."""

    def may_compute(self, step: int) -> bool:
        """Whether the rank may begin a step."""

    def drain(self, step: int) -> list[Exchange]:
        """No step follows for now: what is exchanged, beside what is on its way, before all hold the same.

        Args:
            step: the number of steps so far; that of the exchanges, whose own gradients are 0.
        """


@runtime_checkable
class Joining(Protocol):
    """A member that may begin in the midst of a job."""

    def enter(self, step: int) -> None:
        """Begin with this step: those before are others'."""


class Keeper(Protocol):
    """When sums are given out, at the node that completes them: a server, a root, the last rank of a ring.

    The result of a joint sum goes to all ranks. A lone push is a step of the root's optimizer, and its
    result, the parameters when it is given out, goes to its rank; one that is `Stage.LATER` has zeros, and
    only asks for the parameters.
    """

    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        """Sums that can be pushed next, so that there is memory for them before anybody pushes.

        Args:
            after: a sum in which all pushes are by now; None at the beginning.
        """

    def pushed(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:
        """The gradients of a rank are in a sum: the sums whose results go out now."""

    def turned(self, now_ns: int) -> list[Sum]:
        """Sums that can be pushed by now although nobody has pushed; asked now and then."""

    def gone(self, rank: int) -> list[Sum]:
        """A rank pushes no more, and the job goes on: the sums whose results go out now.

        Where the synchronization `repairs`, servers are told of, too, and no push is in any sum now that is
        not out: all push anew.
        """


class Synchronization(Protocol):
    """When gradients count; registered as `SYNCHRONIZATION` of a module, or by an entry point."""

    name: str
    needs: Needs
    votes: bool
    """Whether ranks exchange a ballot in every step."""
    # `repairs`, where it has that and it is true: sums of all ranks may begin anew without one that is gone,
    # and its members are `Joining`

    def of(self, job: Job) -> "Synchronization":
        """The one that the settings of a job make of it; raises UserInputError for what they cannot be."""

    def member(self, job: Job, rank: int) -> Member:
        """A new one."""

    def keeper(self, job: Job) -> Keeper:
        """A new one."""


class Action(StrEnum):
    """What a node does with a piece."""

    SEND = "send"
    RECEIVE = "receive"
    ADD = "add"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class Step:
    """One action of one node for one piece of an exchange.

    SEND and RECEIVE carry a partial sum, or the result where `is_result`. ADD adds what was received from
    `peer`, or the node's own gradients where that is None, to the node's sum; sends of partial sums are of
    that sum, or of the own gradients where the node adds nothing. RESULT: the result is at the node. A node
    that adds and receives no result is the sum's root: its RESULT divides the sum once the keeper gives it
    out.
    """

    action: Action
    peer: int | None = None
    after: tuple[int, ...] = ()
    """Steps of this node and sum, by position, that must be done before."""
    is_result: bool = False
    ranks: tuple[int, ...] = ()
    """ADD: the ranks whose gradients these are."""


@dataclass(frozen=True, slots=True)
class Network:
    """One switch between all nodes; what a topology may know when it says how long an exchange takes."""

    link_bps: float
    """The rate of each node's link, in each direction."""
    latency_seconds: float
    """From node to node."""

    def way(self, source: int, target: int) -> tuple[Hashable, ...]:
        """The links that a flow from one node to another passes."""
        return (True, source), (False, target)

    def rate_bps(self, link: Hashable) -> float:  # noqa: ARG002  (all are equal)
        """The rate of a link."""
        return self.link_bps

    def delay_seconds(self, source: int, target: int) -> float:  # noqa: ARG002
        """From one node to another."""
        return self.latency_seconds

    def scaled(self, share: float) -> Self:
        """The same for a model of that share of the elements: all rates are as much less."""
        return replace(self, link_bps=self.link_bps * share)


class Topology(Protocol):
    """Who sends to whom, and who adds; registered as `TOPOLOGY` of a module, or by an entry point."""

    name: str
    offers: Needs
    counts_arrivals: bool
    """Whether each rank's gradients reach the root by themselves: it can count the ranks of each element."""
    has_servers: bool
    """Whether nodes that are no ranks can make sums."""

    def of(self, job: Job) -> "Topology":
        """The one that the settings of a job make of it; raises UserInputError for what they cannot be."""

    def schedule(self, job: Job, piece: int, node: int, origin: int | None = None) -> tuple[Step, ...]:
        """What a node does for a sum of a piece; empty: nothing. It is asked once, and the answer kept.

        Args:
            node: whose steps these are.
            origin: the rank that pushes alone, where the topology offers that; None: all ranks are in it.
        """

    def lossy_hops(self, job: Job) -> int:
        """How often a rank's gradients are sent before they are in the complete sum, at most; 1 or more."""

    def seconds(self, job: Job, network: Network) -> float:
        """For one exchange of the whole model, computing left out."""


@runtime_checkable
class Repairable(Protocol):
    """A topology that has one for those that are left when nodes are gone."""

    def without(self, job: Job, gone: Set[int], *, is_star: bool) -> Topology:
        """The same for the same arguments at all nodes; `is_star`: of one hop, for faults are frequent."""


class Direction(StrEnum):
    """Which end of a crossing a post is."""

    SEND = "send"
    RECEIVE = "receive"


Key = tuple[Direction, int, int, int]
"""What names a post: its direction, the node at the other end, tensor and round number."""


@dataclass(slots=True, eq=False)  # not frozen: that makes each of them three times as dear
class Post:
    """Memory for a carrier: to send from, or to receive into; the carrier's until its `Crossing`."""

    direction: Direction
    peer: int
    """The node at the other end."""
    data: Elements
    tensor: int
    round_number: int
    layer: int
    stage: Stage
    loss_bound: float
    """The share that the receiver may be without, which then reads as 0; both ends have the same. At 0 no
    packet may be dropped before others: a carrier sends all of them as important."""
    is_early: bool = False
    """A receive posted before anybody has begun: its time runs from the first byte."""
    is_short: bool = False
    """It crosses as the job's wire type, at both ends. What a root sends has been rounded to it."""

    @property
    def key(self) -> Key:
        """What tells open posts of one carrier apart."""
        return self.direction, self.peer, self.tensor, self.round_number


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    """A post has ended."""

    key: Key
    missing: tuple[Range, ...] = ()
    """Elements that a receive is without, in order."""
    error: Exception | None = None
    is_cut: bool = False
    """Whether what is missing was no longer waited for; else the network has lost it."""
    is_withdrawn: bool = False
    """Whether either end has withdrawn it, which is an error, too."""
    is_fault: bool = False
    """Whether the error is that the ends do not fit together: then neither is lost."""
    arrival: tuple[int, int, int] | None = None
    """What has come of a receive: bytes, and when the first and the last packet came, in ns."""


_Entry = TypeVar("_Entry", Synchronization, Topology)
BUILT_IN: Final = "mltswitch.training"


def _registered(kind: str, group: str) -> dict[str, Any]:
    package = import_module(f"{BUILT_IN}.{kind}")
    modules = [import_module(f"{package.__name__}.{found.name}") for found in iter_modules(package.__path__)]
    found = [getattr(module, kind.upper()) for module in modules if hasattr(module, kind.upper())]
    found += [entry.load() for entry in entry_points(group=group)]
    return {entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)}


@cache
def synchronizations() -> Mapping[str, Synchronization]:
    """Name → synchronization, in alphabetical order; others by entry points `mltswitch.synchronizations`."""
    return MappingProxyType(_registered("synchronization", "mltswitch.synchronizations"))


@cache
def topologies() -> Mapping[str, Topology]:
    """Name → topology, in alphabetical order; others by entry points `mltswitch.topologies`."""
    return MappingProxyType(_registered("topology", "mltswitch.topologies"))


def axes_of(job: Job) -> tuple[Synchronization, Topology]:
    """The points of a job's axes by their names; raises UserInputError for one that is not there, or for two
    that make no sense together."""
    synchronization = _named("synchronization", job.synchronization, synchronizations()).of(job)
    topology = _named("topology", job.topology, topologies())
    if job.servers and not topology.has_servers:
        raise UserInputError(f"{job.topology} has none", where="servers", expected="0")
    if job.colocated is not None and not topology.has_servers:
        raise UserInputError(f"{job.topology} has no server", where="colocated", expected="star")
    topology = topology.of(job)
    needs, offers, both = synchronization.needs, topology.offers, f"{job.synchronization} over {job.topology}"
    if needs.lone_pushes and not offers.lone_pushes:
        problem = f"{both}: each rank's push counts by itself, and {job.topology} adds on the way"
        raise UserInputError(problem, where="topology", expected=_offering("lone_pushes"))
    if needs.stale_pushes and not offers.stale_pushes:
        problem = f"{both}: ranks may be at different steps, and {job.topology} needs all at one"
        raise UserInputError(problem, where="topology", expected=_offering("stale_pushes"))
    if needs.lone_pushes and job.optimizer is None:
        problem = f"{job.synchronization} steps where sums are made, and no optimizer is told"
        raise UserInputError(problem, where="optimizer", expected="that of the model")
    if needs.lone_pushes and job.wire_type is not None:
        problem = f"{job.wire_type}: under {job.synchronization} parameters travel, too"
        raise UserInputError(problem, where="wire_type", expected=job.element_type)
    if job.continues and not (job.servers if needs.lone_pushes else may_repair(synchronization, topology)):
        problem = f"{both}: nobody can go on without a rank"
        expected = "bsp over star or tree, or asp, ssp or r2sp with servers"
        raise UserInputError(problem, where="continues", expected=expected)
    if job.divisor is Divisor.ARRIVED and needs.lone_pushes:
        problem = f"{job.synchronization} has no sum of which to count the ranks"
        raise UserInputError(problem, where="divisor", expected="ranks")
    if job.divisor is Divisor.ARRIVED and not topology.counts_arrivals:
        problem = f"{job.topology} does not know how many ranks' gradients are in a sum"
        raise UserInputError(problem, where="divisor", expected="ranks")
    return synchronization, topology


def may_repair(synchronization: Synchronization, topology: Topology) -> bool:
    """Whether sums of all ranks can go on without some of them."""
    return getattr(synchronization, "repairs", False) and isinstance(topology, Repairable)


Settings = TypeVar("Settings", bound=BaseModel)


def settings_of(job: Job, kind: type[Settings], *, axis: str = "synchronization") -> Settings:
    """A job's settings of one axis; raises UserInputError that names the first wrong field.

    Args:
        kind: what the settings are checked against.
        axis: `synchronization` or `topology`.
    """
    given = job.settings if axis == "synchronization" else job.topology_settings
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (axis, getattr(job, axis), *first["loc"])))
        expected = ", ".join(kind.model_fields) if first["type"] == "extra_forbidden" else ""
        raise UserInputError(
            f"{first['input']!r:.60}: {plain_words(first)}", where=where, expected=expected
        ) from None


class NoSettings(BaseModel):
    """Settings of a synchronization or a topology that has none; those of others begin from it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _offering(need: str) -> str:
    return ", ".join(name for name, entry in topologies().items() if getattr(entry.offers, need)) or "none"


def _named(where: str, name: str, known: Mapping[str, _Entry]) -> _Entry:
    if name not in known:
        expected = ", ".join(known)
        raise UserInputError(f"{name!r:.60} is no {where}", where=where, expected=expected)
    return known[name]
