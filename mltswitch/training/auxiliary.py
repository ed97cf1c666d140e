"""Sends pieces along auxiliary paths, on which other nodes forward them, while their own link is busy.

The sender decides piece by piece when one may leave, and tells all nodes its path (NetStorm, section VII).
Nothing else of a job knows of paths: its sums send to their neighbours, and have what they send.

    sender                            node between                       receiver
    its link is free: the piece goes
    a path is free: it tells the path hears it: has memory, receives,    hears it: withdraws its receive,
    and sends to the path's next node and sends to the next node         and receives from the last node
    else: the piece waits             one piece of a path at a time
    a fault: all of it is withdrawn   likewise                           likewise

Pieces on a path are sent whole, whatever a link of their own may lose.
"""

import heapq
import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from pydantic import Field

from mltswitch.errors import UserInputError
from mltswitch.training.axes import Crossing, Direction, Key, NoSettings, Post, Stage, Topology
from mltswitch.training.changes import Ends
from mltswitch.training.job import Job
from mltswitch.training.rounds import EPOCHS, MOST_STEPS, priority_of
from mltswitch.units import BITS_PER_BYTE

Path = tuple[int, ...]
"""The nodes of a path in order; a path of two nodes is their own link."""
MOST_HOPS: Final = 16
MOST_TENSOR: Final = (1 << 32) - 1
_KINDS: Final = 4
"""Numbers of tensors that sums have for a piece: gradients and results, then those of later stages."""
KINDS_NOW: Final = (0, 1)


class AuxiliarySettings(NoSettings):
    """Settings that say when pieces leave along an auxiliary path instead of their own link."""

    auxiliary: Literal["none", "sooner", "paper"] = "none"
    """When pieces take another path: `none`: never; `paper`: the link is busy and a path is free; `sooner`:
    they also arrive earlier so."""
    primary_busy_bound: int = Field(default=6, ge=1, strict=True)
    """Number of pieces on their way over a link from which on it counts as busy."""
    auxiliary_queue_length: int = Field(default=1, ge=1, strict=True)
    """The most pieces of one sender on an auxiliary path at a time."""


@runtime_checkable
class Detouring(Topology, Protocol):
    """A topology that knows auxiliary paths between its neighbours."""

    auxiliary: AuxiliarySettings
    rates_bps: Mapping[Ends, float]
    """The configured rates of links, as they are known before the start."""

    def paths(self, source: int, target: int, rates_bps: Mapping[Ends, float]) -> Sequence[Path]:
        """Paths between two nodes without common inner nodes, the fastest first, except for the direct
        link."""

    def idle_bps(self, rates_bps: Mapping[Ends, float], gone: Set[int]) -> Mapping[Ends, float]:
        """The rate that pieces leave idle on each link while they cross the fullest one, without the gone
        nodes."""


def detouring(topology: Topology) -> Detouring | None:
    """The topology if its pieces may take auxiliary paths, else None."""
    return topology if isinstance(topology, Detouring) and topology.auxiliary.auxiliary != "none" else None


class _Told(NamedTuple):
    """A piece that takes a path, as its sender tells it."""

    path: Path
    tensor: int
    round_number: int


class AuxiliaryPaths:
    """Chooses the way of each piece that one node sends, between its sums and its carrier.

    Raises UserInputError for a job with too many pieces.
    """

    def __init__(self, job: Job, number: int, topology: Detouring) -> None:
        self._job, self._number = job, number
        self._settings: Final = topology.auxiliary
        self._ends: Final = topology.rates_bps.keys()
        self._first_moved: Final = _KINDS * (len(job.pieces) + 1)
        """Numbers of tensors on paths; below are those that sums have."""
        if self._first_moved * (job.nodes**2 + 1) > MOST_TENSOR:
            problem = f"{len(job.pieces)} pieces of {job.nodes} nodes are too many for paths"
            raise UserInputError(problem, where="auxiliary", expected="none, or larger pieces")
        self._most_told: Final = job.nodes * (job.nodes * self._settings.auxiliary_queue_length + MOST_HOPS)
        """Pieces of one sender that are on paths, or about to be: no sender has more."""
        self._posts: list[Post] = []
        """That the carrier is to take, as it knows them."""
        self._words: list[dict[str, Any]] = []
        self._withdrawals: list[Key] = []
        self.pieces = 0
        """How many pieces of this node have taken a path."""
        self._held: defaultdict[int, list[tuple[int, int, Post]]] = defaultdict(list)
        """Sends of sums that wait, by peer: a heap by priority, then in the order of coming."""
        self._ties = itertools.count()
        self._busy: Counter[Path] = Counter()
        """Pieces of this node on their way, by path."""
        self._link_bits: Counter[int] = Counter()
        """What this node has on its way to a neighbour, whatever its path."""
        self._sends: dict[Key, tuple[Post, Path]] = {}
        """Posts of sums that are on their way, by the key that the carrier knows."""
        self._receives: dict[Key, Post] = {}
        """Posts of sums that are open, by their own keys."""
        self._by_path: dict[Key, tuple[Key, _Told]] = {}
        """Receives from the last node of a path: the carrier's key, and that of the sums' post."""
        self._told: dict[tuple[int, int], _Told] = {}
        """What others have told of pieces that this node passes on or gets, until it has: by moved tensor and
        round."""
        self._passing: dict[Path, deque[_Told]] = {}
        """Pieces of others that this node passes on, the first of which is on its way."""
        self._open: dict[Key, tuple[Path, Post]] = {}
        """Posts for these that the carrier has."""
        self._epoch, self._is_stopped = 0, False
        self._later: list[_Told] = []
        """What was told of an epoch that has not begun here."""
        self._gone: Set[int] = frozenset()
        self._rates: Mapping[Ends, float] = {}
        self.refresh(topology, topology.rates_bps)

    def refresh(self, topology: Detouring, rates_bps: Mapping[Ends, float]) -> None:
        """Use these routes and link rates from now on."""
        self._topology = topology
        rates = {ends: bps for ends, bps in rates_bps.items() if self._gone.isdisjoint(ends)}
        if rates != self._rates:
            self._rates = rates
            self._paths: dict[int, Sequence[Path]] = {}
        self._idle = topology.idle_bps(rates, self._gone)

    # Sums and the carrier

    def post(self, posts: Sequence[Post]) -> None:
        """Accept the transfers that sums ask for; ballots go at once, and over their own link."""
        for post in posts:
            if post.tensor >= _KINDS * len(self._job.pieces):
                self._posts.append(post)
            elif post.direction is Direction.SEND:
                entry = priority_of(post, has_age=True), next(self._ties), post
                heapq.heappush(self._held[post.peer], entry)
            else:
                self._receives[post.key] = post
                told = self._told_of(post)
                self._posts.append(post) if told is None else self._receive_by(post, told)

    def take_withdrawals(self) -> list[Key]:
        """Keys of the transfers that the carrier must withdraw."""
        withdrawals, self._withdrawals = self._withdrawals, []
        return withdrawals

    def take_words(self) -> list[dict[str, Any]]:
        """Messages to all nodes that tell the paths of pieces that leave now."""
        words, self._words = self._words, []
        return words

    def take_posts(self) -> list[Post]:
        """The posts (transfers to start) for the carrier, with the sends that may leave now."""
        for held in self._held.values():
            while held and (path := self._chosen(held[0][-1])) is not None:
                post = heapq.heappop(held)[-1]
                if len(path) > 2:
                    self.pieces += 1
                    self._words.append({"path": path, "tensor": post.tensor, "round": post.round_number})
                on_its_way = post if len(path) == 2 else self._moved(post, path, path[1])
                self._busy[path] += 1
                self._link_bits[path[1]] += self._bits(post)
                self._sends[on_its_way.key] = post, path
                self._posts.append(on_its_way)
        posts, self._posts = self._posts, []
        return posts

    def crossed(self, crossing: Crossing) -> Crossing | None:
        """Handle a post of the carrier that has ended, and return it as sums know it; None: it does not
        concern them.

        A failure between two other nodes is not reported here: they notice it themselves.
        """
        key = crossing.key
        if key in self._sends:
            post, path = self._sends.pop(key)
            self._busy[path] -= 1
            self._link_bits[path[1]] -= self._bits(post)
            return replace(crossing, key=post.key)
        if key in self._by_path:
            own, told = self._by_path.pop(key)
            del self._told[self._key(told)]
            self._receives.pop(own, None)
            return replace(crossing, key=own)
        if key[2] >= self._first_moved:
            if key in self._open:
                self._passed(*self._open.pop(key), crossing)
            return None
        own_post = self._receives.get(key)
        if own_post is not None and crossing.is_withdrawn and not self._is_stopped:
            moved = self._told_of(own_post)
            if moved is not None:
                self._receive_by(own_post, moved)
                return None
        self._receives.pop(key, None)
        return crossing

    def between(self, keys: Iterable[Key]) -> set[int]:
        """Nodes that must still forward the open transfers of sums with these keys."""
        paths = {post.key: path for post, path in self._sends.values()}
        paths |= {own: told.path for own, told in self._by_path.values()}
        return {node for key in keys for node in paths.get(key, ())[1:-1]}

    # The sender

    def _chosen(self, post: Post) -> Path | None:
        """The path of a piece that may leave now; None: it waits."""
        own, settings = (self._number, post.peer), self._settings
        if self._busy[own] < settings.primary_busy_bound:
            return own
        paths = self._paths_to(post.peer)
        for path in paths:
            if self._busy[path] < settings.auxiliary_queue_length and (
                settings.auxiliary == "paper" or self._is_sooner(path, post)
            ):
                return path
        return None if paths else own

    def _paths_to(self, peer: int) -> Sequence[Path]:
        if (self._number, peer) not in self._rates:  # trees of after a fault
            return ()
        if peer not in self._paths:
            found = self._topology.paths(self._number, peer, self._rates)
            self._paths[peer] = [path for path in found if len(path) <= MOST_HOPS + 1]
        return self._paths[peer]

    def _is_sooner(self, path: Path, post: Post) -> bool:
        """Whether it arrives earlier so, with what this node has on its way, and what routes leave."""
        bits, own = self._bits(post), (self._number, post.peer)
        direct_seconds = (self._link_bits[post.peer] + bits) / self._rates[own]
        waiting_seconds = self._link_bits[path[1]] / self._rates[path[0], path[1]]
        seconds = sum(bits / self._idle[ends] for ends in itertools.pairwise(path))
        return waiting_seconds + seconds < direct_seconds

    def _bits(self, post: Post) -> int:
        return len(post.data) * self._job.wire_bytes * BITS_PER_BYTE

    # Between two nodes of a path

    def _moved_tensor(self, path: Path, tensor: int) -> int:
        """Another number than sums have, and one for each pair of a path's ends."""
        return tensor + self._first_moved * (1 + path[0] * self._job.nodes + path[-1])

    def _moved(self, post: Post, path: Path, peer: int) -> Post:
        """The same piece, whole, as two neighbours on its path know it."""
        return replace(post, peer=peer, tensor=self._moved_tensor(path, post.tensor), loss_bound=0.0)

    def _told_of(self, receive: Post) -> _Told | None:
        """What its sender has told of it."""
        ends = (receive.peer, self._number)
        return self._told.get((self._moved_tensor(ends, receive.tensor), receive.round_number))

    def _receive_by(self, post: Post, told: _Told) -> None:
        moved = self._moved(post, told.path, told.path[-2])
        self._by_path[moved.key] = post.key, told
        self._posts.append(moved)

    def _key(self, told: _Told) -> tuple[int, int]:
        return self._moved_tensor(told.path, told.tensor), told.round_number

    # What others tell

    def hear(self, peer: int, said: Mapping[str, Any]) -> None:
        """Take another node's message about the path of a piece; raises ValueError for an impossible one."""
        told = _Told(tuple(said["path"]), said["tensor"], said["round"])
        path = told.path
        if not all(type(each) is int for each in (*path, *told[1:])):
            raise ValueError(f"{told} is not of whole numbers")
        is_path = 2 < len(path) <= MOST_HOPS + 1 and len({*path}) == len(path) and path[0] == peer
        if not is_path or not self._ends >= {*itertools.pairwise(path)}:
            raise ValueError(f"{path} is no path")
        piece, kind = divmod(told.tensor, _KINDS)
        if not (0 <= piece < len(self._job.pieces) and kind in KINDS_NOW):
            raise ValueError(f"{told.tensor} is no tensor that is sent now")
        if not 0 <= told.round_number < MOST_STEPS * EPOCHS:
            raise ValueError(f"{told.round_number} is no round")
        if self._number not in path:
            return
        known = [*self._told.values(), *self._later]
        if sum(each.path[0] == peer for each in known) >= self._most_told:
            raise ValueError("too many pieces are on paths")
        if self._key(told) in map(self._key, known):
            raise ValueError("a piece takes two paths")
        if self._is_stopped or told.round_number % EPOCHS != self._epoch:
            self._later.append(told)
        else:
            self._heed(told)

    def _heed(self, told: _Told) -> None:
        path = told.path
        self._told[self._key(told)] = told
        if self._number != path[-1]:
            waiting = self._passing.setdefault(path, deque())
            waiting.append(told)
            if len(waiting) == 1:
                self._pass(told)
            return
        own = self._receives.get((Direction.RECEIVE, path[0], told.tensor, told.round_number))
        if own is None:
            return  # this node asks for it later
        if own in self._posts:  # the carrier has it not yet
            self._posts.remove(own)
            self._receive_by(own, told)
        else:
            self._withdrawals.append(own.key)

    # A node between

    def _pass(self, told: _Told) -> None:
        """Ask the node before this one for a piece, and have memory for it."""
        piece = self._job.pieces[told.tensor // _KINDS]
        post = Post(
            Direction.RECEIVE,
            told.path[told.path.index(self._number) - 1],
            np.empty(piece.count, self._job.element_type),
            tensor=self._moved_tensor(told.path, told.tensor),
            round_number=told.round_number,
            layer=piece.layer,
            stage=Stage.NOW,
            loss_bound=0.0,
            is_early=True,
            is_short=self._job.wire_type is not None,
        )
        self._open[post.key] = told.path, post
        self._posts.append(post)

    def _passed(self, path: Path, post: Post, crossing: Crossing) -> None:
        """A piece of others has come, or has left."""
        if self._is_stopped:
            return
        if post.direction is Direction.RECEIVE and crossing.error is None:
            onward = replace(post, direction=Direction.SEND, peer=path[path.index(self._number) + 1])
            self._open[onward.key] = path, onward
            self._posts.append(onward)
            return
        waiting = self._passing[path]
        del self._told[self._key(waiting.popleft())]
        if waiting:
            self._pass(waiting[0])
        else:
            del self._passing[path]

    # Faults

    def stop(self, keys: Sequence[Key] = ()) -> tuple[list[Key], list[Key]]:
        """Withdraw all transfers of this node: keys that the carrier knows, and keys of sums that it never
        got."""
        unposted = {post.key for post in self._posts}
        carried = {post.key: key for key, (post, _) in self._sends.items()}
        carried |= {own: key for key, (own, _) in self._by_path.items()}
        held = {post.key for waiting in self._held.values() for *_, post in waiting}
        withdrawn, ended = [key for key in self._open if key not in unposted], list[Key]()
        for key in keys:
            known = carried.get(key, key)
            if key in held or known in unposted:
                ended.append(key)
            else:
                withdrawn.append(known)
        self._posts, self._words, self._withdrawals, self._is_stopped = [], [], [], True
        self._held.clear()
        return withdrawn, ended

    def resume(self, topology: Detouring, epoch: int, gone: Set[int]) -> None:
        """Begin again after a fault: earlier transfers are over, and messages of the new epoch take effect.

        Args:
            topology: the one whose routes are in force.
            gone: nodes that no longer forward anything.
        """
        self._epoch, self._gone, self._is_stopped = epoch % EPOCHS, gone, False
        for state in (
            self._busy,
            self._link_bits,
            self._sends,
            self._receives,
            self._by_path,
            self._told,
            self._passing,
            self._open,
        ):
            state.clear()
        self.refresh(topology, self._rates)
        later, self._later = self._later, []
        for told in later:
            if told.round_number % EPOCHS == self._epoch:
                self._heed(told)
