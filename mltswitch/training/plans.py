"""A node's steps for each sum, as its topology schedules them, and what each step waits for."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from mltswitch.training.axes import Action, Elements, Step, Sum, Topology
from mltswitch.training.job import Job

KEPT_VERSIONS: Final = 4
"""How many versions of a changing topology are kept; all sums of older versions are over."""


class Plan:
    """A node's steps for every sum of a piece from the same origin, and what each step waits for.

    Args:
        is_given: whether this rank gives vectors of its own to the sum.
    """

    def __init__(self, steps: tuple[Step, ...], *, is_given: bool) -> None:
        self.steps = steps
        self.adds = sum(step.action is Action.ADD for step in steps)
        self.is_root = self.adds > 0 and not any(
            step.action is Action.RECEIVE and step.is_result for step in steps
        )
        self.ranks = {step.peer: step.ranks for step in steps if step.action is Action.ADD}
        """Whose gradients come from a peer."""
        self.on_own = [number for number, step in enumerate(steps) if is_given and self._uses_own(step)]
        """Steps that wait for this rank's vectors."""
        self.on_release = [
            number for number, step in enumerate(steps) if step.action is Action.RESULT and self.is_root
        ]
        """Steps that wait for the keeper."""
        self.followers: list[list[int]] = [[] for _ in steps]
        """Steps that wait for each step."""
        for number, step in enumerate(steps):
            for before in step.after:
                self.followers[before].append(number)
        waits = Counter((*self.on_own, *self.on_release, *range(len(steps))))  # the last until it is begun
        self.waits = [waits[number] + len(step.after) for number, step in enumerate(steps)]

    def _uses_own(self, step: Step) -> bool:
        match step.action:
            case Action.SEND:
                return not step.is_result and not self.adds
            case Action.RECEIVE:
                return step.is_result
            case Action.ADD:
                return step.peer is None
            case Action.RESULT:
                return True


@dataclass(slots=True, eq=False)
class Work:
    """The progress of one open sum at a node."""

    of: Sum
    plan: Plan
    step: int | None = None
    """The step in which this rank gave its gradients; None: it has given none."""
    own: Elements | None = None
    result: Elements | None = None
    waits: list[int] = field(init=False)
    """For each step, how many other steps and conditions it still waits for."""
    left: int = field(init=False)
    """Number of steps that are not done."""
    adds_left: int = field(init=False)
    total: Elements | None = None
    """The sum as far as it has been added up; None: nothing has been added."""
    counts: Elements | None = None
    """For each element the total weight of the ranks whose values its sum has, by which a mean is divided;
    None: every rank is in every element's sum.
    """
    open: set[int] = field(default_factory=set)
    """Numbers of the steps whose transfers a carrier has."""

    def __post_init__(self) -> None:
        self.waits, self.left, self.adds_left = [*self.plan.waits], len(self.plan.steps), self.plan.adds


@dataclass(slots=True)
class _Version:
    """A topology, and the sums that it is for."""

    first: int
    """Number of the first sum."""
    topology: Topology
    hop_bound: float
    plans: dict[tuple[int, int | None], Plan] = field(default_factory=dict)


class Plans:
    """The plans of one node, by the topology that each sum uses."""

    def __init__(self, job: Job, number: int) -> None:
        self._job, self._number = job, number
        self._versions: list[_Version] = []
        """Topologies that open sums have, the newest one first."""

    def begin(self, topology: Topology) -> None:
        """Use this topology for all sums."""
        self._versions = []
        self.change(0, topology)

    def change(self, first: int, topology: Topology) -> None:
        """Use this topology for sums from this number on."""
        # not 1 - (1 - p) ** (1 / hops), which is right on average: hops may lose different elements
        bound = self._job.loss_bound / topology.lossy_hops(self._job)
        self._versions = [_Version(first, topology, bound), *self._versions][:KEPT_VERSIONS]

    @property
    def are_several(self) -> bool:
        """Whether open sums may have different topologies."""
        return len(self._versions) > 1

    def first_of(self, number: int) -> int:
        """Number of the first sums that use the same topology as the sums with this number."""
        return self._version(number).first

    def hop_bound(self, total: Sum) -> float:
        """The share of elements that each hop of a sum may lose."""
        return self._version(total.number).hop_bound

    def of(self, total: Sum) -> Plan:
        """This node's plan for a sum."""
        key, version = (total.piece, total.origin), self._version(total.number)
        plan = version.plans.get(key)
        if plan is None:
            steps = version.topology.schedule(self._job, total.piece, self._number, total.origin)
            is_given = self._number < self._job.world and total.origin in {None, self._number}
            plan = version.plans[key] = Plan(steps, is_given=is_given)
        return plan

    def _version(self, number: int) -> _Version:
        newest = self._versions[0]
        if newest.first <= number:
            return newest
        return next((each for each in self._versions if each.first <= number), self._versions[-1])
