"""Trees of ranks that add gradients on the way: each link carries a tensor once up and once down (MLNET).

Each node that is a root, a server or a rank with its share of the pieces, has a tree of its own over all
ranks. Gradients go up and are added at each rank that has children, results come down the same way (MLNET,
section 3; there every parameter server is such a root).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, Final, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mltswitch.documents import plain_words
from mltswitch.errors import UserInputError
from mltswitch.overlay.policies.tree import TreeShape
from mltswitch.overlay.routes import Routes, RoutesTree
from mltswitch.overlay.trees import RACK, children_of, depths, rooted_at, without
from mltswitch.training.axes import Action, Needs, Network, Step, settings_of
from mltswitch.training.job import Job
from mltswitch.units import BITS_PER_BYTE

Parents = Mapping[int, int]


class JobRoutes(BaseModel):
    """The part of a routes document that a job uses."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    servers: int = 0
    """Number of servers that the routes were made for."""
    trees: tuple[tuple[int, float, str] | tuple[int, float, str, str], ...] = Field(min_length=1)
    """For each tree its root, its share of the model, the ranks' parents as a line of text, and, where they
    differ, the nodes from which ranks get results."""


class TreeSettings(TreeShape):
    """Settings of the topology `tree`."""

    racks: tuple[str | int, ...] = ()
    """The rack of each rank; empty: unknown."""
    window_pieces: int | None = Field(default=None, ge=1, strict=True)
    """Number of each child's pieces that a node has memory for at a time, the last ones first; None: all, so
    that front layers overtake others."""
    routes: JobRoutes | None = None
    """Trees that were made elsewhere (`Routes.topology_settings`), used in place of generated ones; None:
    generate them."""


class Branches(NamedTuple):
    """One tree: its root, the ways of gradients to the root, and those of results from it."""

    root: int
    up: Parents
    """For each rank the node that it sends gradients to."""
    down: Parents
    """For each rank the node that it gets results from."""


class Tree:
    """The topology `tree`: registered without a job, and made from a job's settings by `of`."""

    name = "tree"
    offers = Needs()
    counts_arrivals = False
    has_servers = True

    def __init__(self, job: Job | None = None) -> None:
        self._job = job
        self._steps: dict[tuple[int, int], tuple[Step, ...]] = {}

    def of(self, job: Job) -> Self:
        """The topology with a job's trees; raises UserInputError for wrong settings."""
        found = type(self)(job)
        settings = found._settings
        if settings.racks and len(settings.racks) != job.world:
            problem = f"{len(settings.racks)} racks of {job.world} ranks"
            raise UserInputError(problem, where="topology.tree.racks", expected="one for each rank")
        beside = settings.model_fields_set - {"routes", "window_pieces"}
        if settings.routes is not None and beside:
            problem = f"say all of the trees, and {', '.join(sorted(beside))} would say it again"
            raise UserInputError(problem, where="topology.tree.routes")
        if found._routes is not None and job.colocated is not None:
            raise UserInputError("have roots of their own", where="topology.tree.routes", hint="no colocated")
        if settings.window_pieces is not None and job.synchronization != "bsp":
            problem = f"{job.synchronization} exchanges pieces in an order of its own"
            where = "topology.tree.window_pieces"
            raise UserInputError(problem, where=where, expected="bsp, or none")
        if settings.in_degree == RACK and not (settings.racks or settings.routes):
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

    @property
    def window_pieces(self) -> int | None:
        """Pieces of each child for which a node has memory at a time; None: all (`training.partial_sums`)."""
        return self._settings.window_pieces

    @cached_property
    def _routes(self) -> Routes | None:
        """Those of the settings; raises UserInputError where they are no trees over this job's nodes."""
        job, routes = self._configured, self._settings.routes
        if routes is None:
            return None
        where = "topology.tree.routes"
        if routes.servers != job.servers:
            problem = f"are for {routes.servers} servers, the job has {job.servers}"
            raise UserInputError(problem, where=where)
        try:
            trees = tuple(
                RoutesTree(root=root, share=share, parents=up, down=down[0] if down else None)
                for root, share, up, *down in routes.trees
            )
            return Routes(policy="", overlay="", ranks=job.world, servers=job.servers, trees=trees)
        except ValidationError as error:
            problem = plain_words(error.errors()[0])
            hint = "`mltswitch topology plan` makes them for a network and its ranks"
            raise UserInputError(problem, where=where, hint=hint) from None

    @cached_property
    def branch_of(self) -> tuple[int, ...]:
        """The number of the tree of each piece and of the ballot, dealt in turn or by the trees' shares."""
        job, routes = self._configured, self._routes
        if routes is None:
            return tuple(piece % len(self.branches) for piece in range(len(job.pieces) + 1))
        return (*_dealt([each.share for each in routes.trees], [piece.count for piece in job.pieces]), 0)

    @cached_property
    def branches(self) -> tuple[Branches, ...]:
        """All trees of the job."""
        if self._routes is not None:
            return tuple(Branches(each.root, each.tree, each.down_tree) for each in self._routes.trees)
        return tuple(Branches(root, parents, parents) for root, parents in self._grown().items())

    def _grown(self) -> Mapping[int, Parents]:
        job, settings, racks = self._configured, self._settings, dict(enumerate(self._settings.racks))
        roots = [job.colocated] if job.colocated is not None else range(job.world, job.world + job.servers)
        candidates = settings.candidates(job.world, has_racks=bool(racks))
        grown = (settings.grown(each, roots or range(job.world), job.world, racks) for each in candidates)
        return min(grown, key=_cost)

    def schedule(self, job: Job, piece: int, node: int, origin: int | None = None) -> tuple[Step, ...]:  # noqa: ARG002
        """A node's steps for a piece: it adds its own gradients first, then those of its children in order of
        rank."""
        branch = self.branch_of[piece]
        if (branch, node) not in self._steps:
            self._steps[branch, node] = self._scheduled(self.branches[branch], node)
        return self._steps[branch, node]

    def _scheduled(self, branches: Branches, node: int) -> tuple[Step, ...]:
        root, parents, down = branches
        if node != root and node not in parents:
            return ()
        children, takers = (sorted(children_of(tree).get(node, [])) for tree in (parents, down))
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
            steps.append(Step(Action.RECEIVE, down[node], is_result=True))
        result = (len(steps),)
        steps.append(Step(Action.RESULT, after=before))
        return (*steps, *(Step(Action.SEND, taker, result, is_result=True) for taker in takers))

    def without(self, job: Job, gone: Set[int], *, is_star: bool) -> Self:
        """The topology for the nodes that are left: children go to their grandparents, pieces to the next
        root.

        Args:
            gone: the nodes that are lost.
            is_star: whether all nodes send directly to the roots.
        """
        found = type(self)(job)
        kept = [at for at, each in enumerate(self.branches) if each.root not in gone]
        heirs = [next((each for each in kept if each >= at), min(kept, default=0)) for at in self.branch_of]
        branches = [self.branches[at] for at in kept]
        if not kept:  # the next rank in order
            root, up, _ = self.branches[0]
            order = [*range(root + 1, job.world), *range(min(root, job.world))]
            heir = next(rank for rank in order if rank not in gone)
            up = rooted_at(heir, root, up)
            branches, heirs, kept = [Branches(heir, up, up)], [0] * len(heirs), [0]
        found.branch_of = tuple(kept.index(heir) for heir in heirs)
        found.branches = tuple(_left_of(each, job.world, gone, is_star=is_star) for each in branches)
        return found

    def lossy_hops(self, job: Job) -> int:  # noqa: ARG002
        """Number of hops from the lowest rank of all trees to its root."""
        return max((depth for each in self.branches for depth in depths(each.up).values()), default=1)

    def seconds(self, job: Job, network: Network) -> float:
        """Estimated time: the busiest link carries its tensors, after the first piece has come up and
        down."""
        size_bits = job.elements * job.wire_bytes * BITS_PER_BYTE
        hops = 2 * self.lossy_hops(job)
        shares = [1 / len(self.branches) for _ in self.branches]
        if self._routes is not None:
            shares = [each.share for each in self._routes.trees]
        busiest = _busiest(zip(self.branches, shares, strict=True))
        piece_bits = size_bits / len(job.pieces)
        filling = (hops - 2) * (piece_bits / network.link_bps) if hops > 2 else 0.0
        return busiest * size_bits / network.link_bps + filling + hops * network.latency_seconds


def _left_of(branches: Branches, ranks: int, gone: Set[int], *, is_star: bool) -> Branches:
    root, up, down = branches
    if is_star:
        near = {rank: root for rank in range(ranks) if rank != root and rank not in gone}
        return Branches(root, near, near)
    return Branches(root, without(root, up, gone), without(root, down, gone))


def _dealt(shares: Sequence[float], counts: Sequence[int]) -> Iterator[int]:
    """The tree of each piece: who has least of its share so far."""
    whole, dealt = sum(counts), [0] * len(shares)
    for count in counts:
        number = max(range(len(shares)), key=lambda each: shares[each] * whole - dealt[each])
        dealt[number] += count
        yield number


def _below(parents: Parents, node: int) -> tuple[int, ...]:
    """Ranks whose gradients a node's partial sum has."""
    children, found = children_of(parents), [node]
    for each in found:
        found += children.get(each, [])
    return tuple(sorted(found))


def _busiest(trees: Iterable[tuple[Branches, float]]) -> float:
    """Models in the busier direction of the busiest node's link: its children's and its own."""
    loads: defaultdict[tuple[int, bool], float] = defaultdict(float)
    for branches, share in trees:
        for is_down, parents in enumerate(branches[1:]):
            for child, parent in parents.items():
                loads[child, not is_down] += share  # out of the child, or into it,
                loads[parent, bool(is_down)] += share  # and at its parent the other way
    return max(loads.values(), default=0)


def _cost(trees: Mapping[int, Parents]) -> tuple[float, int]:
    lowest = max((depth for parents in trees.values() for depth in depths(parents).values()), default=0)
    found = [(Branches(root, parents, parents), 1 / len(trees)) for root, parents in trees.items()]
    return round(_busiest(found), 9), lowest


TOPOLOGY: Final[Any] = Tree()
