"""Trees of ranks that add up on the way: each link carries a tensor once up and once down (MLNET).

Each node that is a root, a server or a rank with its share of the pieces, has a tree of its own over all
ranks. Gradients go up and are added at each rank that has children, results come down the same way (MLNET,
section 3; there every parameter server is such a root).
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict

from mltswitch.errors import UserInputError
from mltswitch.overlay.trees import RACK, children_of, depths, tree
from mltswitch.training.axes import Action, Needs, Network, Step, settings_of
from mltswitch.training.job import Job
from mltswitch.units import BITS_PER_BYTE

AUTO: Final = "auto"
CANDIDATES: Final = (2, 4, 8)
"""In-degrees among which `AUTO` takes the best, with `RACK` where there are racks, and the star."""
Parents = Mapping[int, int]


def _checked_degree(value: Any) -> int | str:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not is_number and value not in (RACK, AUTO):
        raise ValueError("must be a whole number, 1 or more, rack or auto")
    return value  # type: ignore[no-any-return]  # it was looked at


class TreeSettings(BaseModel):
    """Of the topology `tree`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    in_degree: Annotated[Any, BeforeValidator(_checked_degree)] = 2
    """The most children that a node has; `rack`: one aggregator a rack; `auto`: the shortest exchange."""
    placement: Literal["spread", "fixed"] = "spread"
    """Whether ranks have other places in each tree, or are near the root in the order of their numbers."""
    locality: Literal["rack", "none"] = "rack"
    """Whether a tree enters each rack once, where racks are told."""
    racks: tuple[str | int, ...] = ()
    """Of each rank; none: nobody knows."""


class Tree:
    """The description that is registered, and what the settings of a job make of it."""

    name = "tree"
    offers = Needs()
    counts_arrivals = False
    has_servers = True

    def __init__(self, job: Job | None = None) -> None:
        self._job = job
        self._steps: dict[tuple[int, int], tuple[Step, ...]] = {}

    def of(self, job: Job) -> Self:
        """Its trees; raises UserInputError for settings that are none."""
        found = type(self)(job)
        settings = found._settings
        if settings.racks and len(settings.racks) != job.world:
            problem = f"{len(settings.racks)} racks of {job.world} ranks"
            raise UserInputError(problem, where="topology.tree.racks", expected="one for each rank")
        if settings.in_degree == RACK and not settings.racks:
            raise UserInputError("is missing", where="topology.tree.racks", hint="in_degree is rack")
        return found

    @cached_property
    def _configured(self) -> Job:
        if self._job is None:
            raise TypeError("of a job, by `of`")
        return self._job

    @cached_property
    def _settings(self) -> TreeSettings:
        return settings_of(self._configured, TreeSettings, axis="topology")

    def root(self, piece: int) -> int:
        """The node that completes the sums of a piece."""
        job = self._configured
        if job.colocated is not None:
            return job.colocated
        return job.world + piece % job.servers if job.servers else piece % job.world

    @cached_property
    def trees(self) -> Mapping[int, Parents]:
        """Root → parent of every rank below it."""
        degree = self._settings.in_degree
        return self._grown(self._best_degree() if degree == AUTO else degree)

    def _grown(self, in_degree: int | str) -> dict[int, Parents]:
        job, settings = self._configured, self._settings
        roots = dict.fromkeys(self.root(piece) for piece in range(max(job.servers, job.world)))
        is_near = settings.racks and RACK in {settings.locality, in_degree}
        racks: dict[int, Hashable] = dict(enumerate(settings.racks)) if is_near else {}
        found: dict[int, Parents] = {}
        for root in roots:
            order = [*range(job.world)]
            if settings.placement == "spread":
                order = np.random.default_rng(root).permutation(job.world).tolist()
            found[root] = tree(root, order, racks, in_degree)
        return found

    def _best_degree(self) -> int | str:
        """The one whose busiest link carries least, and of equal ones the lowest tree; all nodes find it."""
        job = self._configured
        candidates: list[int | str] = [each for each in CANDIDATES if each < job.world]
        candidates += [RACK] if self._settings.racks else []
        return min([*candidates, max(1, job.world)], key=lambda each: _cost(self._grown(each)))

    def schedule(self, job: Job, piece: int, node: int, origin: int | None = None) -> tuple[Step, ...]:  # noqa: ARG002
        """Own gradients first, then those of the children in the order of their ranks."""
        root = self.root(piece)
        if (root, node) not in self._steps:
            self._steps[root, node] = self._scheduled(root, node)
        return self._steps[root, node]

    def _scheduled(self, root: int, node: int) -> tuple[Step, ...]:
        parents = self.trees[root]
        if node != root and node not in parents:
            return ()
        children = sorted(children_of(parents).get(node, []))
        steps = [Step(Action.RECEIVE, child) for child in children]
        before: tuple[int, ...] = ()
        if node < self._configured.world and (children or node == root):
            before = (len(steps),)
            steps.append(Step(Action.ADD, ranks=(node,)))
        for number, child in enumerate(children):
            steps.append(Step(Action.ADD, child, (*before, number), ranks=_below(parents, child)))
            before = (len(steps) - 1,)
        if node != root:
            steps.append(Step(Action.SEND, parents[node], before))
            before = (len(steps),)
            steps.append(Step(Action.RECEIVE, parents[node], is_result=True))
        result = (len(steps),)
        steps.append(Step(Action.RESULT, after=before))
        return (*steps, *(Step(Action.SEND, child, result, is_result=True) for child in children))

    def lossy_hops(self, job: Job) -> int:  # noqa: ARG002
        """From the lowest rank of all trees to its root."""
        return max(
            (depth for parents in self.trees.values() for depth in depths(parents).values()), default=1
        )

    def seconds(self, job: Job, network: Network) -> float:
        """The busiest link carries its tensors, and the first piece has to come up and down before."""
        size_bits = job.elements * job.wire_bytes * BITS_PER_BYTE
        hops = 2 * self.lossy_hops(job)
        busiest = _busiest(self.trees) / len(self.trees)
        piece_bits = size_bits / len(job.pieces)
        filling = (hops - 2) * (piece_bits / network.link_bps) if hops > 2 else 0.0
        return busiest * size_bits / network.link_bps + filling + hops * network.latency_seconds


def _below(parents: Parents, node: int) -> tuple[int, ...]:
    """Ranks whose gradients a node's partial sum has."""
    children, found = children_of(parents), [node]
    for each in found:
        found += children.get(each, [])
    return tuple(sorted(found))


def _busiest(trees: Mapping[int, Parents]) -> int:
    """Tensors of one tree in each direction of the busiest node's link: its children's and its own."""
    load = Counter[int]()
    for parents in trees.values():
        load.update(parents.keys())
        load.update(parents.values())
    return max(load.values(), default=0)


def _cost(trees: Mapping[int, Parents]) -> tuple[int, int]:
    lowest = max((depth for parents in trees.values() for depth in depths(parents).values()), default=0)
    return _busiest(trees), lowest


TOPOLOGY: Final[Any] = Tree()
