"""One exchange over trees as flows: sums go up, and results come down when the root has all."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.routes import Routes, Tree
from mltswitch.overlay.simulation import Flows, Times, simulate
from mltswitch.overlay.trees import children_of

Node = TypeVar("Node", bound=Hashable)


class Exchange(NamedTuple):
    """What a job exchanges at once."""

    size_bits: float
    """The size of all gradients of a rank."""
    pieces: int = 4
    """Into which what a root sums is cut; as in training, at least."""
    seed: int = 0
    """The seed of the choice among equal ways."""


MOST_FLOWS: Final = 2_000_000


def add_tree(
    flows: Flows,
    parents: Mapping[Node, Node],
    root: Node,
    place: Callable[[Node], int],
    bits: float,
    *,
    down_parents: Mapping[Node, Node] | None = None,
    pieces: int = 1,
    traffic_class: int = 0,
    has_delays: bool = False,
) -> list[int]:
    """Sums up and results down one tree.

    Args:
        flows: to which the tree's are added.
        parents: of all nodes but the root.
        root: where sums are complete.
        place: the number of the host on which a node is.
        bits: of each node's gradients.
        down_parents: from whom nodes get results; None: from their parents.
        pieces: that follow each other on every way; a node sends a piece on when all of it has come.
        traffic_class: of all its flows.
        has_delays: whether links have any.

    Returns the flows that end it: the last piece's results.
    """
    children, order = _ordered(parents, root)
    down_parents = parents if down_parents is None else down_parents
    down_order = _ordered(down_parents, root)[1]
    before: dict[tuple[Any, bool], int] = {}
    ends: list[int] = []

    def carry(source: Node, target: Node, node: Node, waits: list[int], *, is_up: bool) -> int:
        waits += [before[node, is_up]] if (node, is_up) in before else []
        ends = place(source), place(target)
        number = flows.add(
            *ends, bits / pieces, after=waits, traffic_class=traffic_class, arrives=not has_delays
        )
        before[node, is_up] = number  # the next piece follows when this one has left,
        return flows.add(*ends, 0.0, after=[number]) if has_delays else number  # sums when it has arrived

    for _ in range(pieces):
        up: dict[Node, int] = {}
        for node in reversed(order[1:]):
            waits = [up[child] for child in children.get(node, [])]
            up[node] = carry(node, parents[node], node, waits, is_up=True)
        down = {root: flows.join(place(root), [up[child] for child in children.get(root, [])])}
        for node in down_order[1:]:
            giver = down_parents[node]
            down[node] = carry(giver, node, node, [down[giver]], is_up=False)
        ends = [down[node] for node in down_order[1:]]
    return ends


def _ordered(parents: Mapping[Node, Node], root: Node) -> tuple[Mapping[Node, list[Node]], list[Node]]:
    """Children, and all nodes with parents before them."""
    children, order = children_of(parents), [root]
    for node in order:
        order += children.get(node, [])
    return children, order


def simulate_trees(overlay: Overlay, trees: Mapping[int, Tree], exchange: Exchange) -> Times:
    """One exchange of a job over trees with equal shares, all at once; computing is left out.

    Args:
        overlay: the network.
        trees: by their roots; results take the same ways.
        exchange: of the job.

    Raises UserInputError for more flows than MOST_FLOWS, MachineError without numba.
    """
    ways = [(root, tree, tree, 1 / len(trees)) for root, tree in trees.items()]
    return _simulate_ways(overlay, ways, exchange)


def _simulate_ways(
    overlay: Overlay, trees: Sequence[tuple[int, Tree, Tree, float]], exchange: Exchange
) -> Times:
    size_bits, pieces, seed = exchange
    count = 2 * pieces * sum(len(up) for _, up, _, _ in trees)
    if count > MOST_FLOWS:
        problem = f"{count:,} flows: {len(trees)} trees in {pieces} pieces"
        raise UserInputError(problem, where="simulation", expected=f"at most {MOST_FLOWS:,}")
    graph = overlay.graph
    places = [graph.number[node.name] for node in overlay.members]
    flows, has_delays = Flows(), bool(graph.delays_seconds.any())
    place = places.__getitem__
    for root, up, down, share in trees:
        options: dict[str, Any] = {"down_parents": down, "pieces": pieces, "has_delays": has_delays}
        add_tree(flows, up, root, place, share * size_bits, **options)
    return simulate(graph, flows, seed=seed)


def simulate_ring(overlay: Overlay, exchange: Exchange) -> Times:
    """One exchange by the topology `ring`, whose ranks send to the next: two models less two nth of one.

    Its many small pieces follow each other without a pause, so that each way is one flow; what the first
    piece needs to come around is left out.
    """
    graph, ranks = overlay.graph, len(overlay.ranks)
    places = [graph.number[node.name] for node in overlay.ranks]
    flows = Flows()
    for rank, place in enumerate(places):
        flows.add(place, places[(rank + 1) % ranks], 2 * (ranks - 1) / ranks * exchange.size_bits)
    return simulate(graph, flows, seed=exchange.seed)


def simulate_routes(overlay: Overlay, routes: Routes, exchange: Exchange) -> Times:
    """The same of a document, with its shares and ways down.

    Raises UserInputError, also where it is of another number of ranks or servers.
    """
    found, told = (len(overlay.ranks), len(overlay.servers)), (routes.ranks, routes.servers)
    if found != told:
        problem = f"are for {told[0]} ranks and {told[1]} servers, the network has {found[0]} and {found[1]}"
        raise UserInputError(problem, where="routes")
    ways = [(each.root, each.tree, each.down_tree, each.share) for each in routes.trees]
    return _simulate_ways(overlay, ways, exchange)
