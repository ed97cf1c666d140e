"""Agreement on the nodes that a job goes on with: all that are left adopt the same set between two sums, or
end.

A node that hears of a lost one stops, tells the others whom it has lost, and has all its open posts
withdrawn. Then it says how many results of each piece it has. Who has heard that from all that are left, of
the same lost nodes, goes on without these: what anybody left has is given to those who lack it, and all other
sums begin anew. Nobody gets on with an old sum after it has said how far it is, so that no sum is made twice.

Only those go on who are more than half of the nodes of the last view, or half with its first node: two parts
that do not hear each other are never both. (Birman and Joseph, "Exploiting Virtual Synchrony", section 3.)

A rank that has been started again is taken in by the same means: all stop, with it, and agree on the step in
which it enters. Each time begins an era, for in it one is not lost any more who was in the eras before.

    state       what happens                      then
    outside     the others stop, to take it in    stopping
    together    a node is lost, or said to be     stopping
    together    one that was lost asks            stopping
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
from typing import Any, Final, NamedTuple, Self

from mltswitch.training.job import Job
from mltswitch.units import NANOSECONDS

CALM_SECONDS: Final = 10.0
"""The shortest calm between two faults; where they follow faster, trees are given up. A rank that is to be
taken in has as long to say how far it is."""
MOST_BEHIND: Final = 15
"""How many sums one piece of a node may be behind another: figures are sent as digits of base 16."""
FIGURES_A_WORD: Final = 400
"""For how many pieces one message says how far a node is, a digit each, since messages are short."""
MOST_GONE: Final = 255
"""The most gone nodes, since a sum's number has room for that many epochs."""
Nodes = frozenset[int]
KEPT_ERAS: Final = 8
"""How many eras a message tells of; no node is further behind, for none goes on before all have agreed."""


class Era(NamedTuple):
    """The nodes that have been taken in again so far."""

    number: int = 0
    """How often a node was taken in again, since the beginning."""
    last: tuple[int, ...] = ()
    """The nodes taken in last, in this order, at most KEPT_ERAS."""

    @classmethod
    def read(cls, said: Sequence[Any], job: Job) -> Self:
        """The era in a message. Raises ValueError, TypeError or LookupError for an impossible one."""
        number, last = int(said[0]), tuple(int(node) for node in said[1])
        if not len(last) == min(number, KEPT_ERAS) or not {*last} <= {*range(job.world)}:
            raise ValueError("no era")
        return cls(number, last)

    @property
    def newest(self) -> int | None:
        """The node whose return began the era; None: none has been taken in."""
        return self.last[-1] if self.last else None

    def after(self, node: int) -> "Era":
        """The era that begins when this node is taken in."""
        return Era(self.number + 1, (*self.last, node)[-KEPT_ERAS:])

    def since(self, other: "Era") -> Nodes:
        """Nodes that were taken in after this era and the other one parted."""
        start, other_start = self.number - len(self.last), other.number - len(other.last)
        for place, node in enumerate(self.last, start):
            is_known = other_start <= place < other.number
            if place >= other.number or (is_known and other.last[place - other_start] != node):
                return frozenset(self.last[place - start :])
        return frozenset()

    def is_later(self, other: "Era") -> bool:
        """Whether this era began later; of two that began at once, the one with the lower node did."""
        return self.number > other.number or (self.number == other.number and self.last < other.last)


def mask_of(nodes: Nodes | set[int]) -> str:
    """A set of nodes as messages carry it: one bit for each node, in hexadecimal."""
    return f"{sum(1 << node for node in nodes):x}"


def nodes_of(mask: str, job: Job) -> Nodes:
    """The nodes of a mask in a message. Raises ValueError or TypeError for an impossible one."""
    bits = int(mask, 16)
    if not 0 <= bits < 1 << job.nodes:
        raise ValueError("no nodes")
    return frozenset(node for node in range(job.nodes) if bits >> node & 1)


class State(StrEnum):
    """A node's state between two views, as in the module's table."""

    OUTSIDE = "outside"
    TOGETHER = "together"
    STOPPING = "stopping"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class View:
    """The nodes that all go on with, and the results from which they go on."""

    gone: Nodes
    results: Mapping[int, Sequence[int]]
    """For each node that is left, how many sums of each piece it has the results of; one that enters has as
    many as the rank with least."""
    is_star: bool
    epoch: int = 0
    """Number of the view; later views have higher ones."""
    entering: tuple[int, int] | None = None
    """The last rank that was taken in again, and the first step that has its gradients; None: there is
    none."""
    version: int = 0
    """The newest version of routes that any node knows to be in force."""
    teller: int = 0
    """A node that knows that version to be in force."""


class Views:
    """One node's knowledge of which nodes the job goes on with.

    Args:
        gone: nodes that a restarted node does not find; None: it takes part from the beginning.
    """

    def __init__(self, job: Job, number: int, gone: Nodes | None = None) -> None:
        self._job = job
        self._number = number
        self.state = State.TOGETHER if gone is None else State.OUTSIDE
        self.gone: Nodes = gone or frozenset()
        """Nodes that this one has lost, or has heard of as lost."""
        self.since_ns = 0
        """When the last fault was heard of."""
        self.agreed: Nodes = frozenset()
        """Those of them without which all have agreed to go on."""
        self.entering: tuple[int, int] | None = None
        """As in the last view."""
        self._entered = Era()
        """The era of that view."""
        self._is_new = gone is not None
        """Whether it has not been taken in yet."""
        self.era = Era()
        """Whom all have taken in, or are about to."""
        self._agreed_ns = -round(CALM_SECONDS * NANOSECONDS)
        self._departed: Nodes = frozenset()
        """Nodes that have left, and are not there any more."""
        self._pieces: Final = len(job.pieces)
        self._said: dict[tuple[int, Era, Nodes], dict[int, list[int]]] = {}
        """How far nodes are who have lost these: figures by the first one's place."""
        self._hurried: set[tuple[Era, Nodes]] = set()
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
        if self.state is State.OUTSIDE:
            is_over = self.gone.issuperset({*range(self._job.world)} - {self._number})
            return "nobody is left who could take it in" if is_over else ""
        before = frozenset(range(self._job.nodes)) - self.agreed - self._departed
        left = self.left & before
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
        """Note that nodes are gone; returns whether that is news, after which all transfers must be
        withdrawn."""
        if nodes <= self.gone:
            return False
        self.gone |= nodes | self._departed
        if self.state is not State.OUTSIDE:
            self._stop(now_ns)
        return True

    def _stop(self, now_ns: int) -> None:
        self.state, self.since_ns = State.STOPPING, now_ns

    def depart(self, node: int) -> None:
        """Note that a node has left because it needs nothing more."""
        self._departed |= {node}

    def find(self, node: int) -> None:
        """Note another node that this one, while outside, had not found before."""
        self.gone -= {node}

    def takes_in(self, node: int, said: Mapping[str, Any]) -> bool:
        """Whether a message of a gone node says that others are about to take this one in."""
        era = Era.read(said["era"], self._job)
        return era.newest == node and era.is_later(self.era)

    def take_in(self, node: int, gone: Nodes, now_ns: int) -> bool:
        """Note that a lost node is there again; returns whether all nodes must stop because of it.

        Args:
            node: a rank that this node has a connection with, and that has the same job.
            gone: the nodes that it does not find.
        """
        here = self.agreed | self._departed
        if self.state is not State.TOGETHER or not gone <= here - {node}:
            return False
        self.era = self.era.after(node)
        self.gone, self._departed = here - {node}, self._departed - {node}
        self._stop(now_ns)
        return True

    def stopped(
        self, results: Sequence[int], begun: int, now_ns: int, version: int = 0
    ) -> list[dict[str, Any]]:
        """All transfers of this node are over: returns the messages that tell the others how far it is.

        Args:
            results: for each piece, how many sums this node has the results of.
            begun: number of steps to which it has given gradients.
            version: that of its routes.
        """
        self.state = State.WAITING
        *pieces, ballot = results
        # of pieces that others make a server has none; what is so old nobody asks for
        pieces = [max(figure, max(pieces) - MOST_BEHIND) for figure in pieces]
        least, words = min(pieces), list[dict[str, Any]]()
        said = {"lost": mask_of(self.gone), "era": self.era}
        if self._is_entering:
            words.append({**said, "enters": True})
        for first in () if self._is_entering else range(0, self._pieces, FIGURES_A_WORD):
            part = pieces[first : first + FIGURES_A_WORD]
            figures = {"first": first, "least": least, "ballot": ballot, "begun": begun, "at": self._at}
            figures["version"] = version
            more = "".join(f"{figure - least:x}" for figure in part)
            words.append({**said, "hurried": self._is_hurried(now_ns), **figures, "more": more})
        for word in words:
            self.heard(self._number, word, now_ns)
        return words

    @property
    def _is_entering(self) -> bool:
        """Whether this node is to be taken in, and has not been."""
        return self._is_new and self.era.newest == self._number

    @property
    def _at(self) -> int:
        """In which step the last one has entered, where this node has agreed on that; -1: it has not."""
        return self.entering[1] if self.entering is not None and self._entered == self.era else -1

    def _is_hurried(self, now_ns: int) -> bool:
        lost = self.gone - self.agreed - self._departed
        is_soon = now_ns - self._agreed_ns < CALM_SECONDS * NANOSECONDS
        return len(lost) > 1 or (bool(lost) and is_soon)

    def heard(self, peer: int, said: Mapping[str, Any], now_ns: int) -> bool:
        """Take a message that says how far a node is, or only whom it has lost; returns whether that is news,
        as `lose` does.

        Raises ValueError, TypeError or LookupError for an impossible message.
        """
        lost, era = nodes_of(said["lost"], self._job), Era.read(said["era"], self._job)
        key = (peer, era, lost)
        if "enters" in said:
            self._said[key] = {}
        elif "more" in said:
            self._note(key, said)
        if self.state is State.OUTSIDE and (era.newest != self._number or self._number in lost):
            return False
        lost -= self.era.since(era)  # who was lost in an era before may be there again
        is_later = era.is_later(self.era)
        is_other = is_later and era.newest != self._number
        if self._is_new and (is_other or self._number in lost):  # it asks again
            self.state, self.era, self.gone = State.OUTSIDE, Era(), lost - {self._number}
            return True
        if not is_later:
            return self.lose(lost, now_ns)
        if self.state is State.OUTSIDE:
            self.agreed = lost | {self._number}
        self.gone, self.era = (self.gone - era.since(self.era)) | lost, era
        self._stop(now_ns)
        return True

    def _note(self, key: tuple[int, Era, Nodes], said: Mapping[str, Any]) -> None:
        names = ("first", "least", "ballot", "version", "begun", "at")
        first, least, *figures = (int(said[name]) for name in names)
        part = [least + int(digit, 16) for digit in said["more"]]
        is_whole = len(part) == min(FIGURES_A_WORD, self._pieces - first)
        is_count = min(first, least, *figures[:3], 1 + figures[3]) >= 0
        if first % FIGURES_A_WORD or not is_whole or not is_count:
            raise ValueError("no figures of pieces")
        self._said.setdefault(key, {}).update({first: part, self._pieces: figures})
        if said["hurried"]:
            self._hurried.add(key[1:])

    def installed(self, now_ns: int) -> View | None:
        """The next view, once all that are left have said how far they are; None: not yet."""
        if self.state is not State.WAITING or self.missing:
            return None
        said = {node: self._said[node, self.era, self.gone] for node in sorted(self.left)}
        figures = {
            node: [figure for first in sorted(parts) for figure in parts[first]]
            for node, parts in said.items()
            if parts
        }
        results = {node: each[: self._pieces + 1] for node, each in figures.items()}
        counts = [each for node, each in results.items() if node < self._job.world]
        self.entering = None
        newest = self.era.newest
        if newest in self.left:
            at = max(each[-1] for each in figures.values())
            begun = max(each[-2] for node, each in figures.items() if node != newest)
            # who has begun that many steps may be about to give gradients of the next one
            self.entering, self._entered = (newest, at if at >= 0 else begun + 1), self.era
            least = [min(each) for each in zip(*counts, strict=True)]
            results.setdefault(newest, least)
        is_star = (self.era, self.gone) in self._hurried
        if self.gone - self.agreed - self._departed:
            self._agreed_ns = now_ns
        self.agreed, self.state, self._is_new = self.gone, State.TOGETHER, False
        self._said = {key: parts for key, parts in self._said.items() if self._is_ahead(*key[1:])}
        self._hurried = {key for key in self._hurried if self._is_ahead(*key)}
        teller = max(figures, key=lambda node: figures[node][-3])
        version = figures[teller][-3]
        return View(self.gone, results, is_star, self.epoch, self.entering, version, teller)

    def _is_ahead(self, era: Era, lost: Nodes) -> bool:
        return era.is_later(self.era) or (era == self.era and not lost <= self.gone)

    @property
    def epoch(self) -> int:
        """How often nodes of the job have gone or come back, as far as this view has it."""
        return len(self.gone) + 2 * self.era.number

    def overdue(self, now_ns: int) -> Nodes:
        """The node that is to be taken in but has not said how far it is in time, as a set; empty: there is
        none."""
        is_late = now_ns - self.since_ns > CALM_SECONDS * NANOSECONDS
        return frozenset(self.era.last[-1:]) & frozenset(self.missing) if is_late else frozenset()

    def _is_whole(self, node: int) -> bool:
        parts = self._said.get((node, self.era, self.gone))
        return parts is not None and (not parts or sum(map(len, parts.values())) == self._pieces + 4)
