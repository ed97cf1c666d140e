"""Trees of ranks that add up on the way: each link carries a tensor once up and once down (MLNET).

Each node that is a root, a server or a rank with its share of the pieces, has a tree of its own over all
ranks. Gradients go up and are added at each rank that has children, results come down the same way (MLNET,
section 3; there every parameter server is such a root).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, Final, Self

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
    """Of a routes document, what a job takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    servers: int = 0
    """That the routes are for."""
    trees: tuple[tuple[int, float, str], ...] = Field(min_length=1)
    """Of each root its share, and the parents of the ranks as a line."""


class TreeSettings(TreeShape):
    """Of the topology `tree`."""

    racks: tuple[str | int, ...] = ()
    """Of each rank; none: nobody knows."""
    window_pieces: int | None = Field(default=None, ge=1, strict=True)
    """Of each child: pieces that a node has memory for at a time, the last ones first; none: all, so that
    front layers overtake."""
    routes: JobRoutes | None = None
    """Trees that somebody has made (`Routes.topology_settings`), in the place of what makes others."""


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
        """Of each child, pieces for which a node has memory at a time; None: all (`training.sums`)."""
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
                RoutesTree(root=root, share=share, parents=row) for root, share, row in routes.trees
            )
            return Routes(policy="", overlay="", ranks=job.world, servers=job.servers, trees=trees)
        except ValidationError as error:
            problem = plain_words(error.errors()[0])
            hint = "`mltswitch topology plan` makes them for a network and its ranks"
            raise UserInputError(problem, where=where, hint=hint) from None

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """Of each piece and of the ballot, the node that completes its sums: in turn, or as shares say."""
        job, routes = self._configured, self._routes
        if job.colocated is not None:
            return (job.colocated,) * (len(job.pieces) + 1)
        if routes is None:
            first, count = (job.world, job.servers) if job.servers else (0, job.world)
            return tuple(first + piece % count for piece in range(len(job.pieces) + 1))
        return (*_dealt(routes.trees, [piece.count for piece in job.pieces]), routes.trees[0].root)

    @cached_property
    def trees(self) -> Mapping[int, Parents]:
        """Root → parent of every rank below it."""
        job, settings, racks = self._configured, self._settings, dict(enumerate(self._settings.racks))
        if self._routes is not None:
            return {each.root: each.tree for each in self._routes.trees}
        roots = [job.colocated] if job.colocated is not None else range(job.world, job.world + job.servers)
        candidates = settings.candidates(job.world, has_racks=bool(racks))
        grown = (settings.grown(each, roots or range(job.world), job.world, racks) for each in candidates)
        return min(grown, key=_cost)

    @property
    def _shares(self) -> Mapping[int, float]:
        routes = self._routes
        return {} if routes is None else {each.root: each.share for each in routes.trees}

    def schedule(self, job: Job, piece: int, node: int, origin: int | None = None) -> tuple[Step, ...]:  # noqa: ARG002
        """Own gradients first, then those of the children in the order of their ranks."""
        root = self.roots[piece]
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

    def without(self, job: Job, gone: Set[int], *, is_star: bool) -> Self:
        """The trees of those that are left: children go to their grandparents, pieces to the next root.

        Args:
            job: of all nodes.
            gone: nodes that are not there any more.
            is_star: whether all send to the roots themselves.
        """
        found = type(self)(job)
        old, trees = [*self.trees], dict(self.trees)
        living = [root for root in old if root not in gone]
        if not living:  # the next rank in order
            order = [*range(old[0] + 1, job.world), *range(min(old[0], job.world))]
            living = [next(rank for rank in order if rank not in gone)]
            trees = {living[0]: rooted_at(living[0], old[0], trees[old[0]])}
        heirs = {
            root: next(each for each in (*old[at:], *living) if each in living) for at, root in enumerate(old)
        }
        found.roots = tuple(heirs[root] for root in self.roots)
        found.trees = {
            root: {rank: root for rank in range(job.world) if rank != root and rank not in gone}
            if is_star
            else without(root, trees[root], gone)
            for root in living
        }
        return found

    def lossy_hops(self, job: Job) -> int:  # noqa: ARG002
        """From the lowest rank of all trees to its root."""
        return max(
            (depth for parents in self.trees.values() for depth in depths(parents).values()), default=1
        )

    def seconds(self, job: Job, network: Network) -> float:
        """The busiest link carries its tensors, and the first piece has to come up and down before."""
        size_bits = job.elements * job.wire_bytes * BITS_PER_BYTE
        hops = 2 * self.lossy_hops(job)
        busiest = _busiest(self.trees, self._shares)
        piece_bits = size_bits / len(job.pieces)
        filling = (hops - 2) * (piece_bits / network.link_bps) if hops > 2 else 0.0
        return busiest * size_bits / network.link_bps + filling + hops * network.latency_seconds


def _dealt(trees: Sequence[RoutesTree], counts: Sequence[int]) -> Iterator[int]:
    """The root of each piece: who has least of its share so far."""
    whole, dealt = sum(counts), [0] * len(trees)
    for count in counts:
        number = max(range(len(trees)), key=lambda each: trees[each].share * whole - dealt[each])
        dealt[number] += count
        yield trees[number].root


def _below(parents: Parents, node: int) -> tuple[int, ...]:
    """Ranks whose gradients a node's partial sum has."""
    children, found = children_of(parents), [node]
    for each in found:
        found += children.get(each, [])
    return tuple(sorted(found))


def _busiest(trees: Mapping[int, Parents], shares: Mapping[int, float]) -> float:
    """Models in each direction of the busiest node's link: its children's and its own."""
    load: defaultdict[int, float] = defaultdict(float)
    for root, parents in trees.items():
        share = shares.get(root, 1 / len(trees))
        for node in (*parents, *parents.values()):
            load[node] += share
    return max(load.values(), default=0)


def _cost(trees: Mapping[int, Parents]) -> tuple[float, int]:
    lowest = max((depth for parents in trees.values() for depth in depths(parents).values()), default=0)
    return round(_busiest(trees, {}), 9), lowest


TOPOLOGY: Final[Any] = Tree()
