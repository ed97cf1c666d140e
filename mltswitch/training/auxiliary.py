"""Pieces that take an auxiliary path, along which other nodes pass them on, while their own link is busy.

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
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from mltswitch.training.axes import Crossing, Direction, Key, Post, Stage, Topology
from mltswitch.training.changes import Ends
from mltswitch.training.job import Job
from mltswitch.training.sums import EPOCHS, priority_of
from mltswitch.units import BITS_PER_BYTE

Path = tuple[int, ...]
"""Nodes in order: of two, a link of their own."""
MOST_HOPS: Final = 16
MOST_TOLD: Final = 1 << 14
"""Paths of pieces for which a node has no memory yet: more than that, no job has."""
_KINDS: Final = 4
"""Numbers of tensors that sums have for a piece."""


class AuxiliarySettings(BaseModel):
    """When pieces leave by another path than their own link."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    auxiliary: Literal["none", "sooner", "paper"] = "sooner"
    """`paper`: when the link is busy and a path is free; `sooner`: if a piece also arrives earlier so."""
    primary_busy_bound: int = Field(default=6, ge=1, strict=True)
    """Pieces on their way over a link that make it busy."""
    auxiliary_queue_length: int = Field(default=1, ge=1, strict=True)
    """Pieces of one sender on a path, at most."""


@runtime_checkable
class Detouring(Topology, Protocol):
    """A topology that knows paths between its neighbours."""

    auxiliary: AuxiliarySettings
    rates_bps: Mapping[Ends, float]
    """Of links, as somebody has said before the start."""

    def paths(self, source: int, target: int, rates_bps: Mapping[Ends, float]) -> Sequence[Path]:
        """Those without common inner nodes, the fastest first, but for the link itself."""

    def idle_bps(self, rates_bps: Mapping[Ends, float]) -> Mapping[Ends, float]:
        """What the topology's own pieces leave of each link while they cross the fullest one."""


class AuxiliaryPaths:
    """Of one node, between its sums and its carrier.

    Args:
        job: what all nodes agree on.
        number: of this node.
        topology: of the job.
    """

    def __init__(self, job: Job, number: int, topology: Detouring) -> None:
        self._job, self._number = job, number
        self._settings: Final = topology.auxiliary
        self._ends: Final = topology.rates_bps.keys()
        self._first_moved: Final = _KINDS * (len(job.pieces) + 1)
        """Above the numbers of sums' own tensors."""
        self._posts: list[Post] = []
        """For the carrier, which are not taken yet."""
        self._words: list[dict[str, Any]] = []
        self._withdrawals: list[Key] = []
        self.pieces = 0
        """Of this node, that have taken a path."""
        self._held: defaultdict[int, list[tuple[int, int, Post]]] = defaultdict(list)
        """Sends that wait, by peer: older sums first, then front layers."""
        self._ties = itertools.count()
        self._busy: Counter[Path] = Counter()
        """Pieces of this node on their way, by path."""
        self._link_bits: Counter[int] = Counter()
        """What this node has on its way to a neighbour, whatever its path."""
        self._sends: dict[Key, tuple[Post, Path]] = {}
        """Those that the carrier has: as sums have posted them."""
        self._receives: dict[Key, Post] = {}
        """Of sums, by the keys that these know."""
        self._by_path: dict[Key, Key] = {}
        """Keys that the carrier knows of receives by a path, and those that sums know."""
        self._told: dict[Key, Path] = {}
        """Of receives that the carrier has otherwise, or not yet."""
        self._passing: defaultdict[Path, deque[Post]] = defaultdict(deque)
        """Pieces of others, the first of which the carrier has."""
        self._open: dict[Key, Path] = {}
        """Posts of these."""
        self._epoch, self._is_stopped = 0, False
        self._later: list[tuple[Path, int, int]] = []
        """Words of an epoch that has not begun here."""
        self._gone: Set[int] = frozenset()
        self.refresh(topology, topology.rates_bps)

    def refresh(self, topology: Detouring, rates_bps: Mapping[Ends, float]) -> None:
        """Routes and rates are these from now on."""
        self._topology = topology
        self._rates = {ends: bps for ends, bps in rates_bps.items() if self._gone.isdisjoint(ends)}
        self._idle = topology.idle_bps(self._rates)
        self._paths: dict[int, Sequence[Path]] = {}

    def post(self, posts: Sequence[Post]) -> None:
        """What sums want; ballots go at once, and by themselves."""
        for post in posts:
            if post.tensor >= _KINDS * len(self._job.pieces):
                self._posts.append(post)
            elif post.direction is Direction.SEND:
                entry = priority_of(post, has_age=True), next(self._ties), post
                heapq.heappush(self._held[post.peer], entry)
            else:
                self._receives[post.key] = post
                path = self._told.pop(post.key, None)
                self._posts.append(post) if path is None else self._receive_by(post, path)

    def take_withdrawals(self) -> list[Key]:
        """Likewise."""
        withdrawals, self._withdrawals = self._withdrawals, []
        return withdrawals

    def take_words(self) -> list[dict[str, Any]]:
        """For all nodes."""
        words, self._words = self._words, []
        return words

    def take_posts(self) -> list[Post]:
        """For the carrier: what may leave, too."""
        for held in self._held.values():
            while held and (path := self._chosen(held[0][-1])) is not None:
                post = heapq.heappop(held)[-1]
                if len(path) > 2:
                    self.pieces += 1
                    self._words.append({"path": path, "tensor": post.tensor, "round": post.round_number})
                self._send(post, path)
        posts, self._posts = self._posts, []
        return posts

    def _chosen(self, post: Post) -> Path | None:
        """The path of a piece that may leave now."""
        own, settings = (self._number, post.peer), self._settings
        paths = self._paths_to(post.peer)
        if not paths or self._busy[own] < settings.primary_busy_bound:
            return own
        for path in paths:
            if self._busy[path] < settings.auxiliary_queue_length and (
                settings.auxiliary == "paper" or self._is_sooner(path, post)
            ):
                return path
        return None

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

    def _send(self, post: Post, path: Path) -> None:
        on_its_way = post if path[1] == post.peer else self._moved(post, path[1], path)
        self._busy[path] += 1
        self._link_bits[path[1]] += self._bits(post)
        self._sends[on_its_way.key] = post, path
        self._posts.append(on_its_way)

    def _moved(self, post: Post, peer: int, path: Path) -> Post:
        """The same piece between two nodes of its path: a tensor of another number, for they have others."""
        ends = 1 + path[0] * self._job.nodes + path[-1]
        return replace(post, peer=peer, tensor=post.tensor + self._first_moved * ends, loss_bound=0.0)

    def _receive_by(self, post: Post, path: Path) -> None:
        moved = self._moved(post, path[-2], path)
        self._by_path[moved.key] = post.key
        self._posts.append(moved)

    def hear(self, peer: int, said: Mapping[str, Any]) -> None:
        """Another node tells the path of a piece; raises ValueError for one that is none."""
        path, tensor, round_number = tuple(map(int, said["path"])), int(said["tensor"]), int(said["round"])
        is_path = 2 < len(path) <= MOST_HOPS + 1 and len({*path}) == len(path) and path[0] == peer
        if not is_path or not self._ends >= {*itertools.pairwise(path)}:
            raise ValueError(f"{path} is no path")
        if not 0 <= tensor < _KINDS * len(self._job.pieces) or len(self._told) + len(self._later) > MOST_TOLD:
            raise ValueError(f"tensor {tensor}")
        if self._number in path:
            if self._is_stopped or round_number % EPOCHS != self._epoch:
                self._later.append((path, tensor, round_number))
            else:
                self._heed(path, tensor, round_number)

    def _heed(self, path: Path, tensor: int, round_number: int) -> None:
        if self._number != path[-1]:
            piece = self._job.pieces[tensor // _KINDS]
            data = np.empty(piece.count, self._job.element_type)
            post = Post(
                Direction.RECEIVE,
                path[path.index(self._number) - 1],
                data,
                tensor=tensor,
                round_number=round_number,
                layer=piece.layer,
                stage=Stage.NOW,
                loss_bound=0.0,
                is_early=True,
                is_short=self._job.wire_type is not None,
            )
            self._passing[path].append(self._moved(post, post.peer, path))
            if len(self._passing[path]) == 1:
                self._pass(path)
            return
        key = (Direction.RECEIVE, path[0], tensor, round_number)
        own = self._receives.get(key)
        if own is not None and own in self._posts:  # the carrier has it not yet
            self._posts.remove(own)
            self._receive_by(own, path)
            return
        self._told[key] = path
        if own is not None:
            self._withdrawals.append(key)

    def _pass(self, path: Path) -> None:
        """The carrier gets what is first of a path."""
        post = self._passing[path][0]
        self._open[post.key] = path
        self._posts.append(post)

    def crossed(self, crossing: Crossing) -> Crossing | None:
        """A post of the carrier has ended; as sums know it, and none where they are not to know.

        What breaks between two others is not this node's to tell: they notice by themselves.
        """
        key = crossing.key
        if key in self._sends:
            post, path = self._sends.pop(key)
            self._busy[path] -= 1
            self._link_bits[path[1]] -= self._bits(post)
            return replace(crossing, key=post.key)
        own = self._by_path.pop(key, key)
        if own == key and key[2] >= self._first_moved:  # of others
            if key in self._open:
                self._passed(self._open.pop(key), crossing)
            return None
        if own == key and crossing.is_withdrawn and not self._is_stopped and key in self._told:
            self._receive_by(self._receives[key], self._told.pop(key))
            return None
        self._receives.pop(own, None)
        self._told.pop(own, None)
        return replace(crossing, key=own)

    def _passed(self, path: Path, crossing: Crossing) -> None:
        if self._is_stopped:
            return
        waiting = self._passing[path]
        is_received = crossing.key[0] is Direction.RECEIVE
        if is_received and crossing.error is None:
            peer = path[path.index(self._number) + 1]
            waiting[0] = replace(waiting[0], direction=Direction.SEND, peer=peer)
        else:
            waiting.popleft()
        if waiting:
            self._pass(path)

    @property
    def is_idle(self) -> bool:
        """Whether nothing that this node sends or passes on waits, or is on its way."""
        return not (self._sends or any(self._held.values()) or any(self._passing.values()))

    def stop(self, keys: Sequence[Key]) -> tuple[list[Key], list[Key]]:
        """All of this node is withdrawn: keys that the carrier knows, and those that it has not.

        Args:
            keys: that sums know, of all that is open.
        """
        unposted = {post.key for post in self._posts}
        known = {self._sends[key][0].key: key for key in self._sends}
        known |= {own: key for key, own in self._by_path.items()}
        held = {post.key for waiting in self._held.values() for *_, post in waiting}
        carried = [known.get(key, key) for key in keys if key not in held]
        ended = [key for key in keys if key in held or known.get(key, key) in unposted]
        self._posts, self._words, self._withdrawals, self._is_stopped = [], [], [], True
        self._held.clear()
        relays = [key for key in self._open if key not in unposted]
        return [key for key in carried if key not in unposted] + relays, ended

    def resume(self, epoch: int, gone: Set[int]) -> None:
        """Sums begin anew: what was before is over, and what others have told of this epoch counts.

        Args:
            epoch: of the sums.
            gone: nodes that nothing passes any more.
        """
        self._epoch, self._gone, self._is_stopped = epoch % EPOCHS, gone, False
        self.refresh(self._topology, self._rates)
        for state in (self._busy, self._link_bits, self._sends, self._receives, self._by_path):
            state.clear()
        self._told.clear()
        self._passing.clear()
        self._open.clear()
        later, self._later = self._later, []
        for path, tensor, round_number in later:
            if round_number % EPOCHS == self._epoch:
                self._heed(path, tensor, round_number)
