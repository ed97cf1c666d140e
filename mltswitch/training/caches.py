"""Bounded staleness over trees, where each node caches the parameters with a clock (MLNET, section 3).

Workers push updates that are added to the parameters, count their clock, and pull: what they get has all
updates that every worker has pushed before its clock was that of the pull. A pull is answered by the nearest
cache that has them; else it goes up. Updates go up, added to those of others, when somebody needs them.

Nothing here knows a socket, a thread or time: posts for a carrier collect in a list.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np

from mltswitch.errors import UserInputError
from mltswitch.training.axes import Crossing, Direction, Elements, Key, Post, Repairable, Stage, axes_of
from mltswitch.training.job import Job

TAIL: Final = 3
"""Number of figures at the end of each tensor: clock, number of the last update, clock that is asked for."""
NOTHING: Final = -1
MOST_SENT: Final = 4
"""Updates that are kept until parameters with them come down; beyond it the node asks for these
parameters."""
OVER: Final = 1 << 23
"""Clock of a worker that is done, and of a node that waits for nobody; exact in float32."""
UP, DOWN, WORD = range(3)
"""Kinds of tensors: updates (up), parameters (down), and a tail alone in either direction."""
KINDS: Final = 4


@runtime_checkable
class Shape(Protocol):
    """What caches need of a topology, as `tree` has it."""

    @property
    def branches(self) -> Sequence[tuple[int, Mapping[int, int], Mapping[int, int]]]:
        """Each tree's root, the parent of every rank below it, and from whom ranks get results, which caches
        do not need."""

    @property
    def branch_of(self) -> Sequence[int]:
        """The number of the tree that each piece belongs to."""


def shape_of(job: Job) -> Shape:
    """The trees of a job's topology. Raises UserInputError where it has none."""
    topology: object = axes_of(job)[1]
    if isinstance(topology, Repairable):
        topology = topology.without(job, frozenset(), is_star=False)
    if not isinstance(topology, Shape):
        raise UserInputError(f"{job.topology} has no trees", where="topology", expected="tree or star")
    return topology


@dataclass(slots=True)
class _Child:
    """What a node knows of a child."""

    clock: int = 0
    """That all updates of its subtree are in, which have come here."""
    last: int = 0
    """The number of its last update that is in."""
    asked: int = NOTHING
    """The clock of its pull that waits."""
    needed: int = NOTHING
    """What it has been told to come to."""
    is_answering: bool = False
    """Whether parameters are on their way to it."""


class Cache:
    """The cache of one node in one tree.

    Args:
        number: the tree's, among those of the job.
        parent: the node above; None: this is the root.
        children: the nodes below.
        values: the parameters of this tree, which the cache takes over.
        is_worker: whether the node has a clock of its own.
    """

    def __init__(
        self, number: int, parent: int | None, children: Sequence[int], values: Elements, *, is_worker: bool
    ) -> None:
        self.values: Final = values
        """With all updates that are here, also those that have not gone up."""
        self.posts: list[Post] = []
        """For the carrier."""
        self._number = number
        self._parent = parent
        self._children = {child: _Child() for child in children}
        self._own = 0 if is_worker else OVER
        self._above = 0 if parent is not None else OVER
        """Clock of all that is not below: what has come down has their updates."""
        self._wanted = self._asked = self._needed = NOTHING
        """Clocks: of the own pull, of what the parent was asked for, and of what it needs."""
        self._said = 0
        """Clock of the updates that have gone up."""
        self._unsent: Elements | None = None
        self._sent: deque[tuple[int, Elements]] = deque()
        """Updates that were not in what has come down last."""
        self._last = 0
        self._is_sending = self._is_renewing = False
        self._rounds: dict[tuple[Direction, int, int], int] = {}
        self._open: dict[Key, Post] = {}
        for child in children:
            self._receive(child, UP, len(values) + TAIL)
            self._receive(child, WORD, TAIL)
        if parent is not None:
            self._receive(parent, DOWN, len(values) + TAIL)
            self._receive(parent, WORD, TAIL)

    # The worker

    def push(self, update: Elements) -> None:
        """Add an update to the parameters."""
        np.add(self.values, update, out=self.values)
        self._collect(update)

    def clock(self, to: int) -> None:
        """Note that the worker has pushed all its updates before this clock."""
        self._own = to
        self._turn()

    def want(self, clock: int) -> None:
        """Ask for all updates that others push before this clock."""
        self._wanted = max(self._wanted, clock)
        self._turn()

    def has(self, clock: int) -> bool:
        """Whether all updates of others before this clock are here."""
        return min([self._above, *(child.clock for child in self._children.values())]) >= clock

    # The network

    def crossed(self, crossing: Crossing) -> None:
        """Handle a post that has ended without an error."""
        post = self._open.pop(crossing.key)
        kind, peer = post.tensor % KINDS, post.peer
        figures = [round(float(figure)) for figure in post.data[-TAIL:]]
        if post.direction is Direction.SEND:
            if kind == UP:
                self._is_sending = False
            if kind == DOWN:
                self._children[peer].is_answering = False
        else:
            if kind == UP:
                self._update(self._children[peer], post.data[:-TAIL], figures)
            elif kind == DOWN:
                self._renew(post.data[:-TAIL], figures)
            elif peer == self._parent:
                self._needed = max(self._needed, figures[2])
            else:
                self._children[peer].asked = max(self._children[peer].asked, figures[2])
            self._receive(peer, kind, len(post.data), post.data)
        self._turn()

    def _update(self, child: _Child, update: Elements, figures: list[int]) -> None:
        clock, child.last, asked = figures
        child.clock, child.asked = max(child.clock, clock), max(child.asked, asked)
        self.push(update)

    def _renew(self, values: Elements, figures: list[int]) -> None:
        self._above, last, _ = figures
        self._is_renewing = False
        while self._sent and self._sent[0][0] <= last:
            self._sent.popleft()
        np.copyto(self.values, values)
        for _, update in self._sent:
            np.add(self.values, update, out=self.values)
        if self._unsent is not None:
            np.add(self.values, self._unsent, out=self.values)

    def _collect(self, update: Elements) -> None:
        if self._parent is None:
            return
        if self._unsent is None:
            self._unsent = update.copy()
        else:
            self._unsent += update

    def _turn(self) -> None:
        """Answer pulls, ask for what is missing, and send up what is needed there."""
        if not self.has(self._wanted):
            self._fetch(self._wanted, None)
        for peer, child in self._children.items():
            if child.asked == NOTHING or child.is_answering:
                continue
            if self._outside(peer) >= child.asked:
                self._answer(peer, child)
            else:
                self._fetch(child.asked, peer)
        below = self._below
        if self._needed > self._said:
            if below >= self._needed:
                self._send_up(NOTHING)
            else:
                self._demand(self._needed, None)

    @property
    def _below(self) -> int:
        return min([self._own, *(child.clock for child in self._children.values())])

    def _outside(self, peer: int) -> int:
        """Clock of all that is here and not from below a child."""
        others = [child.clock for other, child in self._children.items() if other != peer]
        return min([self._above, self._own, *others])

    def _answer(self, peer: int, child: _Child) -> None:
        data = self._tensor(self.values, self._outside(peer), child.last, NOTHING)
        child.asked, child.is_answering = NOTHING, True
        self._post(Direction.SEND, peer, DOWN, data)

    def _fetch(self, clock: int, asking: int | None) -> None:
        """Have what is missing come here, but for what the asking child has itself."""
        self._demand(clock, asking)
        if self._parent is not None and self._above < clock and self._asked < clock:
            self._asked = clock
            if self._below > self._said and not self._is_sending and self._unsent is not None:
                self._send_up(clock)
            else:
                self._say(self._parent, clock)

    def _demand(self, clock: int, asking: int | None) -> None:
        for peer, child in self._children.items():
            if peer != asking and child.clock < clock and child.needed < clock:
                child.needed = clock
                self._say(peer, clock)

    def _send_up(self, asked: int) -> None:
        if self._is_sending or self._parent is None:
            return
        update = np.zeros_like(self.values) if self._unsent is None else self._unsent
        self._last += 1
        self._sent.append((self._last, update))
        if len(self._sent) > MOST_SENT and self._above > NOTHING and not self._is_renewing:
            self._is_renewing = True
            self._say(self._parent, self._above)  # what comes down has those updates, and they can go
        self._unsent, self._is_sending, self._said = None, True, self._below
        data = self._tensor(update, self._said, self._last, asked)
        self._post(Direction.SEND, self._parent, UP, data)

    def _tensor(self, values: Elements, *tail: int) -> Elements:
        data = np.empty(len(values) + TAIL, values.dtype)
        data[:-TAIL], data[-TAIL:] = values, tail
        return data

    def _say(self, peer: int, clock: int) -> None:
        self._post(Direction.SEND, peer, WORD, np.array([NOTHING, NOTHING, clock], self.values.dtype))

    def _receive(self, peer: int, kind: int, count: int, memory: Elements | None = None) -> None:
        data = np.empty(count, self.values.dtype) if memory is None else memory
        self._post(Direction.RECEIVE, peer, kind, data)

    def _post(self, direction: Direction, peer: int, kind: int, data: Elements) -> None:
        place = direction, peer, kind
        number = self._rounds[place] = self._rounds.get(place, NOTHING) + 1
        post = Post(
            direction,
            peer,
            data,
            tensor=KINDS * self._number + kind,
            round_number=number,
            layer=0,
            stage=Stage.NOW,
            loss_bound=0.0,
            is_early=direction is Direction.RECEIVE,
        )
        self._open[post.key] = post
        self.posts.append(post)


class Caches:
    """The caches of one node in all trees, which together hold a model's parameters.

    Args:
        values: a vector of all the model's elements, the same at all nodes.
    """

    def __init__(self, job: Job, number: int, shape: Shape, values: Elements) -> None:
        self._clock = 0
        self._places: list[list[slice]] = []
        self._caches: list[Cache | None] = []
        for at, (root, parents, _) in enumerate(shape.branches):
            places = [
                piece.elements for piece, its in zip(job.pieces, shape.branch_of, strict=False) if its == at
            ]
            self._places.append(places)
            if not places or (number != root and number not in parents):
                self._caches.append(None)
                continue
            children = sorted(child for child, parent in parents.items() if parent == number)
            own = np.concatenate([values[place] for place in places])
            self._caches.append(Cache(at, parents.get(number), children, own, is_worker=number < job.world))

    def push(self, update: Elements) -> None:
        """Add an update of all elements to the parameters."""
        for cache, places in self._used:
            cache.push(np.concatenate([update[place] for place in places]))

    def clock(self) -> int:
        """End this clock, whose updates are all pushed; returns the number of the next clock."""
        self._clock += 1
        for cache, _ in self._used:
            cache.clock(self._clock)
        return self._clock

    def leave(self) -> None:
        """Declare that this worker pushes no more."""
        for cache, _ in self._used:
            cache.clock(OVER)

    def want(self, clock: int) -> None:
        """Ask for all updates that others push before this clock."""
        for cache, _ in self._used:
            cache.want(clock)

    def has(self, clock: int) -> bool:
        """Whether all updates of others before this clock are here, of all trees."""
        return all(cache.has(clock) for cache, _ in self._used)

    def read(self, values: Elements) -> None:
        """Write the parameters as cached here into a vector of all elements."""
        for cache, places in self._used:
            first = 0
            for place in places:
                count = place.stop - place.start
                values[place] = cache.values[first : first + count]
                first += count

    def crossed(self, crossing: Crossing) -> None:
        """Handle a post that has ended without an error."""
        cache = self._caches[crossing.key[2] // KINDS]
        assert cache is not None, "no other posts anything"  # noqa: S101
        cache.crossed(crossing)

    def take_posts(self) -> list[Post]:
        """Take the posts (transfers to start) for the carrier."""
        posts = [post for cache, _ in self._used for post in cache.posts]
        for cache, _ in self._used:
            cache.posts.clear()
        return posts

    @property
    def _used(self) -> list[tuple[Cache, list[slice]]]:
        return [
            (cache, places)
            for cache, places in zip(self._caches, self._places, strict=True)
            if cache is not None
        ]
