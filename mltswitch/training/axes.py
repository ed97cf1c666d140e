"""The interfaces of a job's two axes, synchronization and topology, each a module found by its name.

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
"""A range of elements of a piece: the first, and one beyond the last."""


class Stage(StrEnum):
    """When an exchange must be over: before the next step, or later."""

    NOW = "now"
    """The next step waits for the exchange."""
    LATER = "later"
    """The exchange overlaps the next computation, and its packets go in the last gradient class."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a member wants exchanged: for each piece one sum over all ranks, or one push of its own
    gradients."""

    step: int
    pieces: tuple[int, ...]
    stage: Stage = Stage.NOW
    origin: int | None = None
    """The member's rank where it pushes alone; None: the exchange is the sum of all ranks."""


class Sum(NamedTuple):
    """Identifies the sum of one piece in an exchange, by the same values at all nodes.

    Sums of a piece are numbered within their stage and origin, not by steps: so a server knows which one
    comes next, even where a step of the ranks has no sum of this piece in this stage.
    """

    piece: int
    number: int
    """The sum's number from 0, without gaps; equal to the step where every step has one."""
    stage: Stage = Stage.NOW
    origin: int | None = None
    """The rank that pushes alone; None: all ranks are in the sum."""

    @property
    def next(self) -> "Sum":
        """The sum that follows this one in the same stage from the same origin."""
        return self._replace(number=self.number + 1)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a synchronization asks of a topology, or what a topology offers."""

    lone_pushes: bool = False
    """Whether each rank's push reaches the node that keeps the parameters by itself, in no sum with
    others."""
    stale_pushes: bool = False
    """Whether ranks may be at different steps when they take part in the same sum."""


class Member(Protocol):
    """A synchronization's state and decisions at one rank."""

    lag: int
    """Steps beyond the last two of which sums may still be outstanding when a step begins."""
    prediction: str
    """How parameters are predicted until a late sum comes: by the `optimizer`'s step with own gradients, by p
    - lr · g (`local`), or not at all (`none`)."""

    @property
    def holds(self) -> bool:
        """Whether some exchanges of past steps have not begun yet."""

    def ready(self, step: int, pieces: Sequence[int], now_ns: int) -> list[Exchange]:
        """Own gradients of these pieces are ready: returns what is exchanged at once. Each piece comes once a
        step."""

    def computed(self, step: int, loss: float, seconds: float, now_ns: int) -> list[Exchange]:
        """All pieces of the step are ready: returns what is exchanged beside what `ready` returned, and the
        ballot."""

    def arrived(self, step: int, result: Sum, now_ns: int) -> list[Exchange]:
        """The result of this rank's part of a step has arrived: returns the exchanges of past steps that go
        now."""

    def later(self, step: int) -> frozenset[int]:
        """Pieces of a step whose sums arrive only after it: own gradients stand in for them until then.

        The set is known once `may_compute(step)` is true, and does not change.
        """

    def weighed(self, importance: Mapping[int, float]) -> None:
        """Takes the importance of some pieces, the sum of |gradient · parameter|: of those with `piece %
        world == rank`, where `Synchronization.votes`, whenever sums of them have come to the parameters."""

    def vote(self, step: int) -> Sequence[float]:
        """This rank's part of a step's ballot, where `Synchronization.votes`; called after `computed`."""

    def counted(self, step: int, ballot: Sequence[float]) -> list[int]:
        """Takes a step's ballot, the sum of all ranks' parts, and returns the ranks that disagree, which ends
        the job."""

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint needs after `drain`, as plain data for JSON."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from where a member of the same job was when `state` was taken. Raises UserInputError."""

    def may_compute(self, step: int) -> bool:
        """Whether the rank may begin a step."""

    def drain(self, step: int) -> list[Exchange]:
        """No step follows for now: returns the exchanges, beside those under way, that make all ranks hold
        the same.

        Args:
            step: the number of steps so far, also the exchanges' step; their own gradients are 0.
        """


@runtime_checkable
class Joining(Protocol):
    """A member that may begin in the midst of a job."""

    def enter(self, step: int) -> None:
        """Begin with this step: the steps before it are those of the other ranks."""


class Keeper(Protocol):
    """Decides when sums are given out, at the node that completes them: a server, a root, or the last rank of
    a ring.

    The result of a joint sum goes to all ranks. A lone push is a step of the root's optimizer, and its
    result, the parameters when it is given out, goes to its rank; one that is `Stage.LATER` has zeros, and
    only asks for the parameters.
    """

    def expected(self, piece: int, after: Sum | None) -> list[Sum]:
        """Sums that can be pushed next, for which the node provides memory before anybody pushes.

        Args:
            after: a sum that has all its pushes; None at the beginning.
        """

    def pushed(self, rank: int, total: Sum, now_ns: int) -> list[Sum]:
        """The gradients of a rank are in a sum: returns the sums whose results go out now."""

    def turned(self, now_ns: int) -> list[Sum]:
        """Sums that can be pushed by now although nobody has pushed; called from time to time."""

    def gone(self, rank: int) -> list[Sum]:
        """A rank pushes no more, and the job goes on: returns the sums whose results go out now.

        Where the synchronization `repairs` sums, servers are reported, too, and all pushes of unfinished sums
        come again.
        """


class Synchronization(Protocol):
    """Decides when gradients are exchanged; registered as `SYNCHRONIZATION` of a module, or by an entry
    point."""

    name: str
    needs: Needs
    votes: bool
    """Whether ranks exchange a ballot in every step."""
    # `repairs`, where it has that and it is true: sums of all ranks may begin anew without one that is gone,
    # and its members are `Joining`

    def of(self, job: Job) -> "Synchronization":
        """The synchronization that a job's settings describe; raises UserInputError for settings that it
        cannot have."""

    def member(self, job: Job, rank: int) -> Member:
        """A new member for one rank of the job."""

    def keeper(self, job: Job) -> Keeper:
        """A new keeper for one node of the job."""


class Action(StrEnum):
    """What a node does with a piece in one step of a schedule."""

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
    """Positions of the steps of this node and sum that must be done before this step."""
    is_result: bool = False
    ranks: tuple[int, ...] = ()
    """For ADD: the ranks whose gradients are added."""


@dataclass(frozen=True, slots=True)
class Network:
    """A network of one switch between all nodes, from which a topology estimates how long an exchange
    takes."""

    link_bps: float
    """Rate of each node's link in bit/s, in each direction."""
    latency_seconds: float
    """Delay from any node to any other."""

    def way(self, source: int, target: int) -> tuple[Hashable, ...]:
        """The links that a flow from one node to another passes."""
        return (True, source), (False, target)

    def rate_bps(self, link: Hashable) -> float:  # noqa: ARG002  (all are equal)
        """The rate of a link in bit/s."""
        return self.link_bps

    def delay_seconds(self, source: int, target: int) -> float:  # noqa: ARG002
        """Delay from one node to another."""
        return self.latency_seconds

    def scaled(self, share: float) -> Self:
        """The network for a model with only this share of the elements: all rates are lower by that
        factor."""
        return replace(self, link_bps=self.link_bps * share)


class Topology(Protocol):
    """Decides which node sends to which, and which adds; registered as `TOPOLOGY` of a module, or by an entry
    point."""

    name: str
    offers: Needs
    counts_arrivals: bool
    """Whether each rank's gradients reach the root separately, so that it can count the ranks of each
    element."""
    has_servers: bool
    """Whether nodes that are no ranks can make sums."""

    def of(self, job: Job) -> "Topology":
        """The topology that a job's settings describe; raises UserInputError for settings that it cannot
        have."""

    def schedule(self, job: Job, piece: int, node: int, origin: int | None = None) -> tuple[Step, ...]:
        """The steps of a node for a sum of a piece, none if it takes no part. It is called once and its
        result kept.

        Args:
            node: the node whose steps are asked for.
            origin: the rank that pushes alone, where the topology offers that; None: all ranks are in it.
        """

    def lossy_hops(self, job: Job) -> int:
        """The most hops on which a rank's gradients are sent before they are in the complete sum; 1 or
        more."""

    def seconds(self, job: Job, network: Network) -> float:
        """Estimated time of one exchange of the whole model, without computing."""


@runtime_checkable
class Repairable(Protocol):
    """A topology that can be rebuilt for the nodes that are left when others are gone."""

    def without(self, job: Job, gone: Set[int], *, is_star: bool) -> Topology:
        """The topology without the gone nodes, equal at all nodes; `is_star`: of one hop, since faults are
        frequent."""


class Direction(StrEnum):
    """Whether a post sends or receives."""

    SEND = "send"
    RECEIVE = "receive"


Key = tuple[Direction, int, int, int]
"""What names a post: its direction, the node at the other end, tensor and round number."""


@dataclass(slots=True, eq=False)  # not frozen: that makes each of them three times as dear
class Post:
    """A transfer for the carrier to start: memory to send from or to receive into, the carrier's until its
    `Crossing`."""

    direction: Direction
    peer: int
    """The number of the node at the other end."""
    data: Elements
    tensor: int
    round_number: int
    layer: int
    stage: Stage
    loss_bound: float
    """Share of the elements that the receiver may do without, reading 0 for them; equal at both ends. At 0
    the carrier sends all packets as important, so that none may be dropped early."""
    is_early: bool = False
    """Whether a receive was posted before any sender began: its deadline then runs from the first byte."""
    is_short: bool = False
    """Whether elements cross as the job's shorter wire type, at both ends. A root has rounded what it sends
    to that type."""

    @property
    def key(self) -> Key:
        """The key that distinguishes the open posts (transfers) of one carrier."""
        return self.direction, self.peer, self.tensor, self.round_number


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    """How a send or a receive with another node ended: what has arrived, or the error."""

    key: Key
    missing: tuple[Range, ...] = ()
    """Ranges of elements that a receive did not get, in ascending order."""
    error: Exception | None = None
    is_cut: bool = False
    """Whether the receiver stopped waiting for the missing elements; else the network has lost them."""
    is_withdrawn: bool = False
    """Whether either end withdrew the post, which is an error, too."""
    is_fault: bool = False
    """Whether the error is that the two ends do not match, so that neither node counts as lost."""
    arrival: tuple[int, int, int] | None = None
    """For a receive: the bytes that came, and when the first and the last packet came, in ns; None:
    unknown."""


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
    """The synchronizations by name, in alphabetical order, with those of entry points
    `mltswitch.synchronizations`."""
    return MappingProxyType(_registered("synchronization", "mltswitch.synchronizations"))


@cache
def topologies() -> Mapping[str, Topology]:
    """The topologies by name, in alphabetical order, with those of entry points `mltswitch.topologies`."""
    return MappingProxyType(_registered("topology", "mltswitch.topologies"))


def axes_of(job: Job) -> tuple[Synchronization, Topology]:
    """The synchronization and topology that a job names; raises UserInputError for an unknown one, or for two
    that do not go together."""
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
    """Whether sums of all ranks can continue without some ranks under this synchronization and topology."""
    return getattr(synchronization, "repairs", False) and isinstance(topology, Repairable)


Settings = TypeVar("Settings", bound=BaseModel)


def settings_of(job: Job, kind: type[Settings], *, axis: str = "synchronization") -> Settings:
    """A job's settings of its synchronization or topology; raises UserInputError that names the first wrong
    field.

    Args:
        kind: the model that the settings are checked against.
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
    """The settings of a synchronization or topology without any; the base of all other settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _offering(need: str) -> str:
    return ", ".join(name for name, entry in topologies().items() if getattr(entry.offers, need)) or "none"


def _named(where: str, name: str, known: Mapping[str, _Entry]) -> _Entry:
    if name not in known:
        expected = ", ".join(known)
        raise UserInputError(f"{name!r:.60} is no {where}", where=where, expected=expected)
    return known[name]
