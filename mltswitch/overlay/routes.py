"""The routes document: the trees along which one job's sums go up and its results come down."""

from collections.abc import Mapping
from functools import cached_property
from math import isclose
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from mltswitch.documents import SparseDocument, sha256
from mltswitch.overlay.trees import children_of, depths

ROUTES_SCHEMA: Final = "mltswitch/routes/v1"
MOST_DIGITS: Final = 9
NOBODY: Final = "-"
"""Written in place of a parent for the root itself, if the root is a rank."""
Tree = Mapping[int, int]
"""The parent of each rank but the root, by node number: ranks are numbered first, then servers."""


def _read_parents(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(None if word == NOBODY else _number(word) for word in value.split())


def _number(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) <= MOST_DIGITS):
        raise ValueError(f"{word[:20]!r} is no node's number")
    return int(word)


def _written_parents(parents: tuple[int | None, ...]) -> str:
    return " ".join(NOBODY if parent is None else str(parent) for parent in parents)


Parents = Annotated[
    tuple[Annotated[int, Field(ge=0)] | None, ...],
    BeforeValidator(_read_parents, json_schema_input_type=str),
    PlainSerializer(_written_parents, return_type=str),
]


class RoutesTree(SparseDocument):
    """One tree: its root and the way of each rank's gradients to it, which results take back by default."""

    root: int = Field(ge=0)
    """The node that completes the sums."""
    share: float = Field(gt=0, le=1)
    """The part of the model's elements that is summed along this tree."""
    parents: Parents
    """The parent of each rank in order, as one line: `1 - 1` for three ranks of which rank 1 is the root."""
    down: Parents | None = None
    """The node from which each rank gets results, written as `parents` is; None: from its parent."""

    @cached_property
    def tree(self) -> Tree:
        """The way of gradients as a mapping from each rank to its parent."""
        return {rank: parent for rank, parent in enumerate(self.parents) if parent is not None}

    @cached_property
    def down_tree(self) -> Tree:
        """The way of results as a mapping from each rank to the node from which it gets them."""
        down = self.parents if self.down is None else self.down
        return {rank: parent for rank, parent in enumerate(down) if parent is not None}


class Routes(BaseModel):
    """Trees over all ranks of a job; a root may have several."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal["mltswitch/routes/v1"] = Field(default=ROUTES_SCHEMA, alias="schema")
    policy: str
    """Name of the policy that has made the trees."""
    settings: dict[str, Any] = Field(default_factory=dict)
    overlay: str
    """`Overlay.sha256()` of the network for which the trees were made."""
    ranks: int = Field(ge=1)
    servers: int = Field(default=0, ge=0)
    trees: tuple[RoutesTree, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not isclose(sum(each.share for each in self.trees), 1, abs_tol=1e-6):
            raise ValueError(f"shares are {sum(each.share for each in self.trees):g} together, not 1")
        for each in self.trees:
            self._check(each)
        return self

    def _check(self, each: RoutesTree) -> None:
        where = f"the tree of root {each.root}"
        if each.root >= self.ranks + self.servers:
            raise ValueError(f"{where}: there are {self.ranks} ranks and {self.servers} servers")
        for parents in (each.parents, *([] if each.down is None else [each.down])):
            if len(parents) != self.ranks:
                raise ValueError(f"{where} has {len(parents)} parents for {self.ranks} ranks")
            for rank, parent in enumerate(parents):
                if (parent is None) != (rank == each.root):
                    raise ValueError(f"{where}: rank {rank} has {'no' if parent is None else 'a'} parent")
                if parent is not None and parent >= self.ranks and parent != each.root:
                    raise ValueError(f"{where}: {parent}, parent of rank {rank}, is neither rank nor root")
        for tree in (each.tree, each.down_tree):
            reaching = {each.root}
            for rank in tree:
                way, node = set[int](), rank
                while node not in reaching:
                    way.add(node)
                    node = tree[node]
                    if node in way:
                        raise ValueError(f"{where} has a circle at rank {node}")
                reaching |= way

    @cached_property
    def topology_settings(self) -> dict[str, Any]:
        """Settings of the training topology `tree`, as plain data, for a job that takes these routes."""
        rows = [
            [each.root, each.share, _written_parents(each.parents)]
            + ([] if each.down is None else [_written_parents(each.down)])
            for each in self.trees
        ]
        return {"routes": {"servers": self.servers, "trees": rows}}

    @property
    def depth(self) -> int:
        """The largest number of hops from a rank to its root in any tree."""
        trees = [tree for each in self.trees for tree in (each.tree, each.down_tree)]
        return max((depth for tree in trees for depth in depths(tree).values()), default=0)

    @property
    def in_degree(self) -> int:
        """The largest number of children that a node has in any tree."""
        trees = [tree for each in self.trees for tree in (each.tree, each.down_tree)]
        return max((len(found) for tree in trees for found in children_of(tree).values()), default=0)

    def sha256(self) -> str:
        """SHA-256 of the document's content, independent of the formatting of its file."""
        return sha256(self)


def row(root: int, share: float, up: Tree, down: Tree, ranks: int) -> RoutesTree:
    """One tree for a routes document, which stores the way of results only where it is another one."""
    parents, down_parents = (tuple(tree.get(rank) for rank in range(ranks)) for tree in (up, down))
    return RoutesTree(root=root, share=share, parents=parents, down=None if up == down else down_parents)
