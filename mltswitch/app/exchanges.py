"""Simulates the exchange of a job's gradients in a network: by routes, by policies, and by the ring."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mltswitch.app import Tell
from mltswitch.app.networks import known_network
from mltswitch.errors import UserInputError
from mltswitch.overlay.document import Overlay, seated
from mltswitch.overlay.exchange import Exchange, simulate_ring, simulate_routes
from mltswitch.overlay.policies import policies, route
from mltswitch.overlay.simulation import Times
from mltswitch.overlay.trees import RACK
from mltswitch.profile import resolve_profile
from mltswitch.units import BITS_PER_BYTE, format_bytes, parse_bytes

RING: Final = "ring"
"""Name of the ring, which is no policy, as its sums use no trees; it is compared where ranks serve."""
BETWEEN_SITES: Final = ("fapt", "mst", "packed")
"""Policies for networks of slow, unequal links between hosts."""


class Load(NamedTuple):
    """The load of one link, from one host to another, by an exchange."""

    busy: float
    """Share of the exchange's time in which the link is busy."""
    bits: float
    rate_bps: float
    source: str
    target: str


class Case(NamedTuple):
    """A network with a job in it, and what the job exchanges."""

    overlay: Overlay
    exchange: Exchange

    @property
    def size_bytes(self) -> int:
        """Bytes of all gradients of a rank."""
        return round(self.exchange.size_bits / BITS_PER_BYTE)

    @property
    def names(self) -> list[str]:
        """Names of the hosts of the job's members."""
        return [node.name for node in self.overlay.members]

    def __str__(self) -> str:
        ranks, servers = len(self.overlay.ranks), len(self.overlay.servers)
        who = f"{servers} servers" if servers else "who serve each other"
        return f"{format_bytes(self.size_bytes)} of {ranks} ranks, {who}"

    def loads(self, times: Times) -> list[Load]:
        """The loads of all links, the busiest first."""
        seconds = times.seconds or 1.0
        found = [
            Load(bits / link.rate_bps / seconds, bits, link.rate_bps, link.source, link.target)
            for link, bits in zip(self.overlay.graph.links, times.link_bits.tolist(), strict=True)
        ]
        return sorted(found, key=lambda load: (-load.busy, load.source, load.target))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job in a network and its exchange, as command options give them."""

    network: str
    """The network, in any form that `known_network` takes."""
    ranks: int | None = None
    """Number of ranks; None: one on every host."""
    servers: int = 0
    """Number of servers; 0: the ranks serve each other."""
    seed: int | None = None
    """Seed for placing ranks and servers at random; None: they are placed in order."""
    size: str | None = None
    """Size of all gradients of a rank; None: the model's, or 100 MB without a model."""
    model: str | None = None
    """Name of a model profile, or its file; None: no model."""
    pieces: int = 4
    """Into how many pieces a root's part is cut."""

    def case(self) -> Case:
        """The case of this job in its network; raises UserInputError naming the wrong option."""
        if self.model is not None and self.size is not None:
            raise UserInputError("goes without --model", where="--size")
        try:
            size_bytes = parse_bytes(self.size or "100MB")
        except ValueError as error:
            raise UserInputError(str(error), where="--size") from None
        if self.model is not None:
            layers = resolve_profile(self.model).layers
            size_bytes = sum(4 * tensor.elements for layer in layers for tensor in layer.tensors)
        overlay, is_seated = known_network(self.network)
        if is_seated and (self.ranks, self.servers, self.seed) != (None, 0, None):
            problem = "an overlay says where its ranks and servers are"
            raise UserInputError(problem, where="--ranks", hint="leave --ranks, --servers and --seed away")
        if not is_seated:
            overlay = seated(overlay, self.ranks, self.servers, self.seed)
        if size_bytes < 1:
            raise UserInputError(f"{size_bytes}", where="--size", expected="a byte or more")
        if len({node.name for node in overlay.members}) < 2:
            raise UserInputError("has one host in it", where="NETWORK", expected="a job on two or more")
        return Case(overlay, Exchange(float(size_bytes * BITS_PER_BYTE), self.pieces, self.seed or 0))


def longest_way(tree: Any, names: Sequence[str]) -> str:
    """The hosts of a tree's longest way to its root."""
    ways = []
    for rank in tree.tree:
        way = [rank]
        while way[-1] != tree.root:
            way.append(tree.tree[way[-1]])
        ways.append(way)
    return " > ".join(names[node] for node in max(ways, key=len, default=[tree.root]))


def _candidates(overlay: Overlay, tell: Tell) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, policy and settings of each way to exchange that suits the network."""
    ranks, found = len(overlay.ranks), [("star", "star", dict[str, Any]())]
    for degree in (2, 4, 8):
        if degree < ranks:
            settings = {"in_degree": degree}
            found.append((f"tree, in_degree {degree}", "tree", settings))
            if overlay.racks:
                far = settings | {"locality": "none"}
                found.append((f"tree, in_degree {degree}, locality none", "tree", far))
    if overlay.racks:
        found.append(("tree, in_degree rack", "tree", {"in_degree": RACK}))
    if not overlay.servers:
        found.append((RING, RING, {}))
    others = policies().keys() - {"star", "tree"}
    if any(node.rank is None and node.server is None for node in overlay.nodes):
        tell(f"left out: {', '.join(BETWEEN_SITES)}: below switches all ways are alike")
        others -= {*BETWEEN_SITES}
    else:
        found.append(("fapt, roots 1", "fapt", {"roots": 1}))
    return found + [(name, name, {}) for name in sorted(others)]


def compared(case: Case, tell: Tell) -> list[dict[str, Any]]:
    """Figures of the exchange by every policy, the star first, and by the ring where ranks serve."""
    found: list[dict[str, Any]] = []
    candidates = _candidates(case.overlay, tell)
    is_between_sites = any(policy in BETWEEN_SITES for _, policy, _ in candidates)
    for name, policy, settings in candidates:
        tell(f"{name} …")
        whole = {}
        if policy == RING:
            times = simulate_ring(case.overlay, case.exchange)
            hops, in_degree = 2 * len(case.overlay.ranks) - 2, 1
        else:
            try:
                routes = route(case.overlay, policy, settings, case.exchange)
            except UserInputError as error:  # of its kind of network
                tell(f"left out: {error}")
                continue
            times = simulate_routes(case.overlay, routes, case.exchange)
            hops, in_degree = routes.depth, routes.in_degree
            if is_between_sites:
                at_once = simulate_routes(case.overlay, routes, case.exchange._replace(pieces=1))
                whole = {"whole_seconds": at_once.seconds}
        models = times.link_bits / case.exchange.size_bits
        found.append(
            {"name": name, "policy": policy, "settings": settings, "seconds": times.seconds}
            | whole
            | {
                "ratio_to_star": times.seconds / (found[0]["seconds"] if found else times.seconds),
                "hops": hops,
                "in_degree": in_degree,
                "busiest_link_models": float(models.max(initial=0.0)),
                "all_links_models": float(models.sum()),
            }
        )
    return found
