"""Which nodes a job goes on with: all that are left change to the same ones between two sums, or end.

A node that hears of a lost one stops, tells the others whom it has lost, and has all its open posts
withdrawn. Then it says how many results of each piece it has. Who has heard that from all that are left, of
the same lost nodes, goes on without these: what anybody left has is given to those who lack it, and all other
sums begin anew. Nobody gets on with an old sum after it has said how far it is, so that no sum is made twice.

Only those go on who are more than half of the nodes of the last view, or half with its first node: two parts
that do not hear each other are never both. (Birman and Joseph, "Exploiting Virtual Synchrony", section 3.)

    state       what happens                      then
    together    a node is lost, or said to be     stopping
    stopping    all posts are over                waiting
    waiting     all have said how far they are    together
    either      another node is lost              stopping
    any         too few are left                  the job ends here

Nodes that have left because they need nothing more are no fault; when the next node is lost, the others agree
on them, too, and they do not count among those of whom more than half must be left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from mltswitch.training.job import Job
from mltswitch.units import NANOSECONDS

CALM_SECONDS: Final = 10.0
"""Between two faults: where they follow each other, trees are given up."""
FIGURES_A_WORD: Final = 400
"""Of how far a node is, one digit each: words are short."""
MOST_GONE: Final = 255
"""Epochs of a sum's number."""
Nodes = frozenset[int]


class State(StrEnum):
    """Where a node is between two views, as in the table above."""

    TOGETHER = "together"
    STOPPING = "stopping"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class View:
    """With whom all go on, and from where."""

    gone: Nodes
    results: Mapping[int, Sequence[int]]
    """Of each node that is left and of each piece, how many sums it has the results of."""
    is_star: bool


class Views:
    """Of one node.

    Args:
        job: what all nodes agree on.
        number: of this node.
    """

    def __init__(self, job: Job, number: int) -> None:
        self._job = job
        self._number = number
        self.state = State.TOGETHER
        self.gone: Nodes = frozenset()
        """Nodes that this one has lost, or has heard of as lost."""
        self.since_ns = 0
        """When the last fault was heard of."""
        self.agreed: Nodes = frozenset()
        """Of them, those without which all have agreed to go on."""
        self._agreed_ns = -round(CALM_SECONDS * NANOSECONDS)
        self._departed: Nodes = frozenset()
        """Nodes that have left, and are not there any more."""
        self._pieces: Final = len(job.pieces)
        self._said: dict[tuple[int, Nodes], dict[int, list[int]]] = {}
        """How far nodes are who have lost these: figures by the first one's place."""
        self._hurried: set[Nodes] = set()
        """Lost nodes of which somebody says that they followed others too fast."""

    @property
    def left(self) -> Nodes:
        """Nodes that the job goes on with."""
        return frozenset(range(self._job.nodes)) - self.gone

    @property
    def problem(self) -> str:
        """Why this node cannot go on; empty: it can."""
        if self._number in self.gone:
            return "the others have lost it, and go on without it"
        before, left = frozenset(range(self._job.nodes)) - self.agreed - self._departed, self.left
        is_part = 2 * len(left) > len(before) or (2 * len(left) == len(before) and min(before) in left)
        names = ", ".join(self._job.node_name(node) for node in sorted(before - left)[:8])
        if not is_part:
            return f"is left with {len(left)} of {len(before)} nodes, not more than half, without {names}"
        if min(left) >= self._job.world or len(self.gone) > MOST_GONE:
            return f"{len(self.gone)} nodes are lost, the last ones {names}"
        return ""

    @property
    def missing(self) -> list[int]:
        """Nodes that have not said how far they are."""
        return [node for node in sorted(self.left) if not self._is_whole(node)]

    def lose(self, nodes: Nodes, now_ns: int) -> bool:
        """These are gone; whether that is news, after which all posts are to be withdrawn."""
        if nodes <= self.gone:
            return False
        self.gone |= nodes | self._departed
        self.state, self.since_ns = State.STOPPING, now_ns
        return True

    def depart(self, node: int) -> None:
        """A node that has left is not there any more."""
        self._departed |= {node}

    def stopped(self, results: Sequence[int], now_ns: int) -> list[dict[str, Any]]:
        """All posts of this node are over: what is to be told to the others.

        Args:
            results: of each piece, how many sums this node has the results of.
            now_ns: the time.
        """
        self.state = State.WAITING
        lost = self.gone - self.agreed - self._departed
        is_hurried = now_ns - self._agreed_ns < CALM_SECONDS * NANOSECONDS or len(lost) > 1
        *pieces, ballot = results
        least, words = min(pieces), list[dict[str, Any]]()
        for first in range(0, self._pieces, FIGURES_A_WORD):
            part = pieces[first : first + FIGURES_A_WORD]
            said = {
                "lost": self.mask,
                "hurried": is_hurried,
                "first": first,
                "least": least,
                "ballot": ballot,
            }
            words.append({**said, "more": "".join(f"{figure - least:x}" for figure in part)})
            self.heard(self._number, words[-1])
        return words

    def heard(self, peer: int, said: Mapping[str, Any]) -> Nodes:
        """A node says how far it is, or only whom it has lost: nodes that are lost by that.

        Raises ValueError, TypeError or LookupError for what no node says.
        """
        mask = int(said["lost"], 16)
        if not 0 <= mask < 1 << self._job.nodes:
            raise ValueError("no nodes")
        lost = frozenset(node for node in range(self._job.nodes) if mask >> node & 1)
        if "more" in said:
            first, least, ballot = (int(said[name]) for name in ("first", "least", "ballot"))
            part = [least + int(digit, 16) for digit in said["more"]]
            is_whole = len(part) == min(FIGURES_A_WORD, self._pieces - first)
            if first < 0 or first % FIGURES_A_WORD or not is_whole or min(least, ballot) < 0:
                raise ValueError("no figures of pieces")
            parts = self._said.setdefault((peer, lost), {})
            parts |= {first: part, self._pieces: [ballot]}
            if said["hurried"]:
                self._hurried.add(lost)
        return lost

    def installed(self, now_ns: int) -> View | None:
        """The next view, once all that are left have said how far they are."""
        if self.state is not State.WAITING or self.missing:
            return None
        results = {}
        for node in sorted(self.left):
            parts = self._said[node, self.gone]
            results[node] = [figure for first in sorted(parts) for figure in parts[first]]
        is_star = self.gone in self._hurried
        self._said = {key: parts for key, parts in self._said.items() if not key[1] <= self.gone}
        self._hurried = {lost for lost in self._hurried if not lost <= self.gone}
        self.agreed, self._agreed_ns = self.gone, now_ns
        self.state = State.TOGETHER
        return View(self.gone, results, is_star)

    @property
    def mask(self) -> str:
        """Of lost nodes, in a word."""
        return f"{sum(1 << node for node in self.gone):x}"

    def _is_whole(self, node: int) -> bool:
        return sum(map(len, self._said.get((node, self.gone), {}).values())) == self._pieces + 1
