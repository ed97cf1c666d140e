"""A training job: a model as one vector of elements, cut into the same pieces on every rank."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from enum import StrEnum
from itertools import accumulate, pairwise
from math import inf
from typing import Any, Final, TypedDict

from mltswitch.errors import UserInputError
from mltswitch.units import BITS_PER_BYTE

PIECE_BYTES: Final = 512 << 10
"""The largest size of a piece, long enough to outweigh its fixed cost."""
LEAST_PIECE_BYTES: Final = 16 << 10
"""Size below which neighbouring layers share a piece, since a transfer costs as much as a dozen packets."""
LEAST_PIECES_A_ROOT, MOST_PIECES_A_ROOT = 4, 16
"""The fewest and most pieces for each root on large models, so that some results travel while others are
still added."""
PIECE_SECONDS: Final = 10e-3
"""Least time that a piece takes on a slow link, so that it is mostly longer than its round trips."""
ELEMENT_BYTES: Final = {"float32": 4, "float64": 8}
"""Types in which gradients are added, with their size in bytes; shorter types are widened first."""
SHORT: Final = "bfloat16"
"""The shorter type in which gradients and their sums may travel where they are added in float32."""
SHORT_BYTES: Final = 2
DEADLINE_SECONDS: Final = 300.0
REPORT_EVERY: Final = 100
MOST_PIECES: Final = 1 << 20
MOST_ELEMENTS: Final = 1 << 36
BALLOT_FIGURES: Final = 8
"""How many numbers a ballot begins with: the vector by whose sum ranks agree on the next step. Behind them
are two numbers for each rank and one for each piece of the model.
"""


class Divisor(StrEnum):
    """What a sum of gradients is divided by."""

    RANKS = "ranks"
    """The number of ranks, so that missing elements count as 0 (MLT, section 4.1)."""
    ARRIVED = "arrived"
    """For each element the number of ranks whose element arrived."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A module's own parameters, as one of the model's layers in forward order."""

    name: str
    elements: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of the model's elements that crosses the network as one tensor."""

    layer: int
    """Index of the layer that the first element belongs to, from 0 in forward order."""
    first: int
    """Position of the first element in the vector of all the model's elements, layer after layer."""
    count: int

    @property
    def elements(self) -> slice:
        """The piece's range in the vector of all the model's elements."""
        return slice(self.first, self.first + self.count)


@dataclass(frozen=True, slots=True)
class OptimizerRule:
    """The optimizer that roots run where they hold parameters and each push counts by itself (`asp` and its
    kin)."""

    kind: str
    """Name of the optimizer as torch has it: `SGD`, `Adam` or `AdamW`."""
    groups: tuple[Mapping[str, Any], ...]
    """Options of each parameter group, such as `lr` and `momentum`."""
    ranges: tuple[tuple[int, int], ...]
    """The group of each range of the model's elements, in order: (one beyond the range's last element, group
    number)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The settings of a training job that all its nodes must agree on.

    Nodes 0 to `world` - 1 are the ranks; nodes `world` and above are servers, if the job has any.
    """

    layers: tuple[Layer, ...]
    pieces: tuple[Piece, ...]
    world: int
    """How many ranks there are."""
    servers: int = 0
    """Number of parameter servers that are no ranks; 0: each rank serves its share of the pieces."""
    colocated: int | None = None
    """The one rank that serves all pieces, where there are no servers; None: each rank serves a share."""
    element_type: str = "float32"
    """The type that gradients are added in: `float32` or `float64`."""
    wire_type: str | None = None
    """Type in which gradients and sums travel: `bfloat16` halves the bytes on the network, by rounding, under
    `bsp` and `osp`; None: the type in which they are added."""
    loss_bound: float = 0.0
    """Share of a rank's gradients that may be missing from a sum, over all hops from the rank to the sum."""
    divisor: Divisor = Divisor.RANKS
    synchronization: str = "bsp"
    """Name of the synchronization: `bsp`, `osp`, `asp`, `ssp`, `r2sp`, or another registered one."""
    topology: str = "star"
    """Name of the topology: `star` (each rank serves a part), `ring`, `tree`, `fapt`, or another registered
    one."""
    transport: str = "mlt"
    """Name of the transport: `mlt`, `ltp`, `tcp`, or another registered one."""
    deadline_seconds: float = DEADLINE_SECONDS
    """The longest that an exchange may take, from when a node begins it to its result."""
    ranks: tuple[int, ...] = ()
    """Rank numbers to use in errors, where these ranks are some of a larger job's; empty: they count from
    0."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the synchronization, which `axes_of` checks."""
    topology_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the topology, such as `in_degree` and `racks` of a `tree`, which `axes_of` checks."""
    samples: tuple[int, ...] = ()
    """Each rank's samples in a step, by which its gradients are weighted; empty: all ranks weigh the same."""
    optimizer: OptimizerRule | None = None
    """The optimizer that roots run where pushes count by themselves; None: there is none."""
    report_every: int = REPORT_EVERY
    """Steps between rank 0's reports of what the loss bound left out at all nodes; 0: never."""
    continues: bool = False
    """Whether the others go on when a node is gone: `bsp` over `star` or `tree`, and `asp`, `ssp` or `r2sp`
    with servers."""
    check_every: int = 0
    """Steps between comparisons of the ranks' parameter checksums, where all must hold the same parameters;
    the job ends where they differ. 0: never."""

    def __post_init__(self) -> None:
        """Raises UserInputError for what no job can have, also where another node tells of it."""
        _check(self.layers, self.element_type, self.world, self.servers)
        short = [SHORT] * (self.element_type == "float32")
        is_rank = self.colocated is None or (not self.servers and 0 <= self.colocated < self.world)
        samples, pieces = self.samples, self.pieces
        are_samples = not samples or (len(samples) == self.world and min(samples) >= 0 and any(samples))
        firsts = [*accumulate((piece.count for piece in pieces), initial=0)]
        is_whole = firsts[-1] == self.elements and min((piece.count for piece in pieces), default=0) > 0
        covers = is_whole and all(piece.first == at for piece, at in zip(pieces, firsts, strict=False))
        for where, is_right, problem, expected in (
            (
                "wire_type",
                self.wire_type in (None, *short),
                f"{self.wire_type!r:.60}",
                ", ".join([self.element_type, *short]),
            ),
            ("loss_bound", 0 <= self.loss_bound < 1, f"{self.loss_bound!r:.60} is no share", "0 to below 1"),
            (
                "deadline_seconds",
                0 < self.deadline_seconds < inf,
                f"{self.deadline_seconds!r:.60}",
                "above 0",
            ),
            ("report_every", self.report_every >= 0, f"{self.report_every}", "0 or more steps"),
            (
                "colocated",
                is_rank,
                f"{self.colocated} with {self.servers} servers",
                f"a rank, 0 to {self.world - 1}, and no servers",
            ),
            ("check_every", self.check_every >= 0, f"{self.check_every}", "0 or more steps"),
            ("samples", are_samples, f"{samples!r:.60}", f"{self.world} numbers, 0 or more, not all 0"),
            ("piece_bytes", len(pieces) <= MOST_PIECES, f"{len(pieces)} pieces", f"{MOST_PIECES} at most"),
            ("pieces", covers, "does not cover the model once", ""),
        ):
            if not is_right:
                raise UserInputError(problem, where=where, expected=expected)

    @property
    def ballot(self) -> Piece:
        """The figures that voting ranks exchange in every step, as a piece after the model's last one."""
        return Piece(0, self.elements, BALLOT_FIGURES + 2 * self.world + len(self.pieces))

    @property
    def whole_ballot(self) -> Piece:
        """The ballot with the figures that follow it for each rank: the routes it holds, a checksum of its
        parameters, and the norm of its own gradients whose sums come later."""
        return replace(self.ballot, count=self.ballot.count + 3 * self.world)

    @property
    def wire_bytes(self) -> int:
        """Number of bytes of an element on the network."""
        return SHORT_BYTES if self.wire_type == SHORT else ELEMENT_BYTES[self.element_type]

    def weight(self, rank: int) -> float:
        """Factor of a rank's gradients before they are added up; 1 on average."""
        return self.samples[rank] * self.world / sum(self.samples) if self.samples else 1.0

    @property
    def nodes(self) -> int:
        """Number of nodes: ranks and servers."""
        return self.world + self.servers

    @property
    def elements(self) -> int:
        """How many elements the whole model has."""
        return sum(layer.elements for layer in self.layers)

    def node_name(self, node: int) -> str:
        """Name of a node in errors and reports, such as `rank 3` or `server 0`."""
        if node >= self.world:
            return f"server {node - self.world}"
        return f"rank {self.ranks[node] if self.ranks else node}"

    def fingerprints(self) -> dict[str, str]:
        """A short digest of each part that all nodes must agree on, by the part's name."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        parts |= {name: [*map(astuple, parts[name])] for name in ("layers", "pieces")}
        parts["optimizer"] = self.optimizer and astuple(self.optimizer)
        return {
            name: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
            for name, value in parts.items()
        }


_KINDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "divisor": Divisor,
    **dict.fromkeys(("loss_bound", "deadline_seconds"), float),
    **dict.fromkeys(("ranks", "samples"), tuple),
    **dict.fromkeys(("settings", "topology_settings"), dict),
}
"""What a caller may give in another form, so that all nodes have the same."""


class JobOptions(TypedDict, total=False):
    """Options that a training program may give to its job, each named as the field of `Job` that it sets.

    None stands for the field's default. `piece_bytes` is an argument of `make_job`.
    """

    loss_bound: float | None
    synchronization: str | None
    topology: str | None
    transport: str | None
    servers: int | None
    divisor: str | None
    deadline_seconds: float | None
    piece_bytes: int | None
    wire_type: str | None
    settings: Mapping[str, Any] | None
    topology_settings: Mapping[str, Any] | None
    colocated: int | None
    continues: bool | None
    report_every: int | None
    check_every: int | None


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those that are None; raises TypeError for one that `JobOptions` does not have."""
    for name in options:
        if name not in JobOptions.__annotations__:
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    return {name: value for name, value in options.items() if value is not None}


def make_job(
    layers: Iterable[tuple[str, int]],
    *,
    world: int,
    servers: int = 0,
    element_type: str = "float32",
    piece_bytes: int = PIECE_BYTES,
    link_bps: float | None = None,
    **options: Any,
) -> Job:
    """A job whose model is cut into pieces; the same arguments give the same job on every node.

    Args:
        layers: name and number of elements of each layer, in forward order.
        world: number of ranks.
        servers: number of parameter servers that are no ranks.
        element_type: `float32` or `float64`.
        piece_bytes: largest size of a piece, which has at least one element.
        link_bps: rate of the slowest rank's link; None: fast. Slow links get more pieces, for an adder waits
            for whole ones.
        options: any other fields of `Job`; None is the field's default. A `wire_type` may be the element
            type.

    Raises UserInputError for values that no job can have.
    """
    entries = tuple(Layer(name, elements) for name, elements in layers)
    _check(entries, element_type, world, servers)  # before they are cut
    if piece_bytes < 1:
        raise UserInputError(f"{piece_bytes} bytes", where="piece_bytes", expected="1 or more")
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("divisor", Divisor.RANKS) not in list(Divisor):
        problem = f"{given['divisor']!r:.60} is unknown"
        raise UserInputError(problem, where="divisor", expected=", ".join(Divisor))
    for where in ("settings", "topology_settings"):
        if where not in given:
            continue
        try:
            json.dumps(dict(given[where]))
        except (TypeError, ValueError):
            expected = "a mapping of names to numbers, texts and null"
            raise UserInputError(f"{given[where]!r:.60}", where=where, expected=expected) from None
    given |= {name: kind(given[name]) for name, kind in _KINDS.items() if name in given}
    if given.get("wire_type") == element_type:
        del given["wire_type"]
    element_bytes, roots = ELEMENT_BYTES[element_type], servers or world
    wire_bytes = SHORT_BYTES if given.get("wire_type") == SHORT else element_bytes
    bits_a_root = sum(layer.elements for layer in entries) * wire_bytes * BITS_PER_BYTE / roots
    pieces_a_root = 0 if link_bps is None else int(bits_a_root / link_bps / PIECE_SECONDS)
    pieces_a_root = min(max(pieces_a_root, LEAST_PIECES_A_ROOT), MOST_PIECES_A_ROOT)
    pieces = cut(entries, element_bytes, piece_bytes, pieces_a_root * roots)
    return Job(
        layers=entries, pieces=pieces, world=world, servers=servers, element_type=element_type, **given
    )


def _check(layers: tuple[Layer, ...], element_type: str, world: int, servers: int) -> None:
    if element_type not in ELEMENT_BYTES:
        expected = ", ".join(ELEMENT_BYTES)
        raise UserInputError(f"{element_type!r:.60} is no such type", where="element_type", expected=expected)
    if world < 1 or servers < 0:
        problem = f"{world} ranks and {servers} servers"
        raise UserInputError(problem, where="world", expected="1 or more ranks")
    negative = next((layer for layer in layers if layer.elements < 0), None)
    if negative is not None:
        raise UserInputError(f"{negative.name!r:.60} has {negative.elements} elements", where="model")
    total = sum(layer.elements for layer in layers)
    if not total:
        raise UserInputError("has no elements to train", where="model")
    if total > MOST_ELEMENTS:
        raise UserInputError(f"has {total} elements", where="model", expected=f"{MOST_ELEMENTS} at most")


def cut(
    layers: tuple[Layer, ...], element_bytes: int, piece_bytes: int, least_pieces: int
) -> tuple[Piece, ...]:
    """Pieces of the model's elements in forward order, each of at most `piece_bytes`, covering it once.

    A piece lies within a layer, but for neighbours of less than `LEAST_PIECE_BYTES`, which share one. Large
    layers are cut into equal parts. Where the model is large enough, none is above its share of
    `least_pieces`, so that each node that adds has some.
    """
    total = sum(layer.elements for layer in layers)
    share = max(LEAST_PIECE_BYTES // element_bytes, -(-total // least_pieces))
    most = max(1, min(piece_bytes // element_bytes, share))
    least = min(most, LEAST_PIECE_BYTES // element_bytes)
    ends = accumulate(layer.elements for layer in layers)
    pieces: list[Piece] = []
    start, start_layer = 0, 0
    for number, (layer, end) in enumerate(zip(layers, ends, strict=True)):
        begin = end - layer.elements
        if begin > start and (begin - start >= least or end - start > most):
            pieces.append(Piece(start_layer, start, begin - start))
            start = begin
        if start == begin:
            start_layer = number
        if end - start > most:
            parts = -(-(end - start) // most)
            bounds = [start + (end - start) * part // parts for part in range(parts + 1)]
            pieces += [Piece(number, first, last - first) for first, last in pairwise(bounds)]
            start, start_layer = end, number + 1
    if total > start:
        pieces.append(Piece(start_layer, start, total - start))
    return tuple(pieces)
