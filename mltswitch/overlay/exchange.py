"""Simulates one exchange of gradients over trees: sums flow up, and results down once sums are complete."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay
from mltswitch.overlay.routes import Routes, Tree
from mltswitch.overlay.simulation import Flows, Times, simulate
from mltswitch.overlay.trees import children_of

Node = TypeVar("Node", bound=Hashable)


class Exchange(NamedTuple):
    """What a job's ranks exchange in one step."""

    size_bits: float
    """Size of all gradients of one rank, in bits."""
    pieces: int = 4
    """The number of pieces into which each root's share of the model is cut, at least, as in training."""
    seed: int = 0
    """Seed of the choice among equally short ways."""


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
    """Add the flows of one tree, sums up and results down, and return the flows that complete the exchange.

    Args:
        flows: the simulation's flows, to which the tree's are added.
        parents: the parent of each node but the root.
        root: the node where sums are complete.
        place: returns the number of the host on which a node runs.
        bits: size of each node's gradients.
        down_parents: the node from which each node gets results; None: from its parent.
        pieces: how many pieces follow each other on every way; a node sends a piece on when it has all of it.
        traffic_class: the class of all added flows.
        has_delays: whether links have delays.

    The returned flows are those of the last piece's results.
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
    """Simulate one exchange over several trees at once, each with the same share; computing time is left out.

    Args:
        overlay: the network.
        trees: the tree of each root; results take the same ways back.
        exchange: what the job exchanges.

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
    """Simulate one exchange of n ranks by the topology `ring`: each sends 2 - 2/n models to the next rank.

    The many small pieces follow each other without a pause, so that each way is one flow; the time that the
    first piece needs to come around is left out.
    """
    graph, ranks = overlay.graph, len(overlay.ranks)
    places = [graph.number[node.name] for node in overlay.ranks]
    flows = Flows()
    for rank, place in enumerate(places):
        flows.add(place, places[(rank + 1) % ranks], 2 * (ranks - 1) / ranks * exchange.size_bits)
    return simulate(graph, flows, seed=exchange.seed)


def simulate_routes(overlay: Overlay, routes: Routes, exchange: Exchange) -> Times:
    """Simulate one exchange over the trees of a routes document, with their shares and ways of results.

    Raises UserInputError, also where the document is for another number of ranks or servers.
    """
    found, told = (len(overlay.ranks), len(overlay.servers)), (routes.ranks, routes.servers)
    if found != told:
        problem = f"are for {told[0]} ranks and {told[1]} servers, the network has {found[0]} and {found[1]}"
        raise UserInputError(problem, where="routes")
    ways = [(each.root, each.tree, each.down_tree, each.share) for each in routes.trees]
    return _simulate_ways(overlay, ways, exchange)
