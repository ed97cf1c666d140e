"""A process's agent, and what its `mlt` process groups share: how collectives begin, go on, end and fail."""

import atexit
import ctypes
import itertools
import json
import threading
import time
import weakref
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, Final

import torch
import torch.distributed as dist
from threadpoolctl import ThreadpoolController

from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.hostagent import (
    AgentConfig,
    AgentError,
    Channel,
    CompletionQueue,
    DeadlineExceededError,
    Group,
    ReceiveRequest,
    SendRequest,
    TransferMismatchError,
)
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerLost
from mltswitch.training.errors import (
    EXPLAINING_SECONDS,
    JobMismatchError,
    NodeLateError,
    NodeLostError,
    TrainingError,
    anew,
    cause_of,
    ending_of,
    ending_of_process,
    goodbye_of,
)
from mltswitch.training.pytorch.options import MltOptions
from mltswitch.wire import ElementType

LOOK_SECONDS: Final = 1.0
"""Time after which an open collective compares notes with other ranks by the store, and again after twice as
long."""
MOST_LOOKED_AT: Final = 8
"""The most ranks whose notes are read at a time, since the store is one process."""
MOST_GROUPS: Final = 1 << 9
TAG_BITS: Final = 22
KIND_BITS: Final = 11
PIECE_BITS: Final = 10
"""Bits of the piece's number in a tensor's number, which has: group (9 bits), whether it is a message between
two ranks; then the message's tag (22), or a digest of the collective (11), the piece (10), and whether it is
a result."""
MOST_REASON: Final = 300
STOP_SECONDS: Final = 5.0
_ELEMENT_TYPES: Final = {entry.name.lower() for entry in ElementType}


@cache
def _openmp() -> ThreadpoolController:
    """Torch's; its limit is that of the thread that sets it."""
    return ThreadpoolController().select(user_api="openmp")


_Posts = tuple[list[ReceiveRequest], list[SendRequest]]


class MltWork(dist.Work):
    """Collectives under way, as one work of torch.distributed.

    Args:
        what: name of the collectives, for errors.
        outcomes: one for each collective.
        tensors: the tensors, also on GPUs, that hold the results once all are over.
    """

    def __init__(self, what: str, outcomes: Sequence[Future[None]], tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.what, self.outcomes, self._tensors = what, outcomes, tensors

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Wait until the collectives are over; a timeout of 0: as long as the group's timeout allows.

        Raises TrainingError that names the rank to blame, or NodeLateError where they are not over in the
        time given here (they go on).
        """
        try:
            for outcome in self.outcomes:
                error = outcome.exception(timeout.total_seconds() if timeout > timedelta(0) else None)
                if error is not None:
                    raise anew(error)
        except TimeoutError:
            raise NodeLateError(f"{self.what} is not over after {timeout.total_seconds():g} s") from None
        return True

    def get_future(self) -> Any:
        """A future with the tensors, for C++ and communication hooks; its errors are RuntimeErrors."""
        started: torch.futures.Future[None] = torch.futures.Future()
        left = itertools.count(len(self.outcomes) - 1, -1)

        def tell(_: object) -> None:
            if next(left) == 0:
                started.set_result(None)

        for outcome in self.outcomes:
            outcome.add_done_callback(tell)
        return started.then(lambda _: self.result())  # C++ hears of no other error than a callback's

    def is_completed(self) -> bool:
        """Whether the collectives are over, with or without an error."""
        return all(outcome.done() for outcome in self.outcomes)

    def result(self) -> list[torch.Tensor]:
        """The result tensors; waits for them, and raises what `wait` raises."""
        self.wait()
        return list(self._tensors)


@dataclass(frozen=True, slots=True)
class Members:
    """The ranks of one process group, with the names of their agents."""

    number: int
    rank: int
    """Rank of this process in the group."""
    names: tuple[str, ...]
    """Names of the agents, in order of the ranks in the group."""
    options: MltOptions
    channel: Channel


class Collective:
    """One collective at this rank, in a thread of its own, which starts transfers and waits for what it needs
    next.

    Args:
        family: the groups' shared state; an error of the collective ends it.
        members: the ranks that take part.
        what: the operation and its tensors as text; ranks with different texts never meet.
        number: the collective's in its group, or the message's among those with its peer and tag.
        seconds: the time after which it fails.
        tag: the tag of a message between two ranks; None: a collective of all.
    """

    def __init__(
        self, family: "Family", members: Members, what: str, number: int, seconds: float, tag: int | None
    ) -> None:
        world = len(members.names)
        self.rank: Final = members.rank
        self.others: Final = [(self.rank + step) % world for step in range(1, world)]
        """From the next rank on, so that not all send to one at once."""
        self._what: Final = f"{what}, number {number}"
        kind = zlib.crc32(what.encode()) % (1 << KIND_BITS) << PIECE_BITS + 1 if tag is None else tag
        self._first_tensor: Final = (members.number << 1 | (tag is not None)) << TAG_BITS | kind
        self._family, self._members = family, members
        self._number, self._seconds, self._is_message = number, seconds, tag is not None
        self._posts: defaultdict[int, _Posts] = defaultdict(lambda: ([], []))
        self._completions: Final = CompletionQueue()
        self._open: Counter[int | str | None] = Counter()
        """None: all posts; by piece: addends to come; by peer: those that it needs nothing for."""
        self._outcome: Final[Future[None]] = Future()

    def start(self, steps: Callable[[], None], tensors: Sequence[torch.Tensor]) -> MltWork:
        """Run the steps in the collective's thread. Raises the error that ended the family; later errors are
        the work's."""
        self._family.start(threading.Thread(target=self._run, args=(steps,), name=self._what, daemon=True))
        return MltWork(self._what, [self._outcome], tensors)

    def _run(self, steps: Callable[[], None]) -> None:
        torch.get_num_threads()  # sets a new thread's count at its first use: the limit must come behind it
        try:
            with _openmp().limit(limits=1):  # a team made for one addition spins on cores that ranks need
                steps()
        except AgentError as error:
            self._outcome.set_exception(self._family.fail(self._blamed(error.peer, error)))
        except Exception as error:  # noqa: BLE001  (whoever waits must hear of it, whatever it is)
            self._outcome.set_exception(self._family.fail(error))
        else:
            self._outcome.set_result(None)

    def send(
        self,
        rank: int,
        data: torch.Tensor,
        piece: int = 0,
        *,
        is_result: bool = False,
        is_lossy: bool = False,
    ) -> None:
        """Queue a send to a rank, which starts at the next `wait`; without `is_lossy` all its packets are
        important. Empty tensors are not sent."""
        if data.numel():
            importance, traffic_class = None if is_lossy else "all", self._members.options.traffic_class
            fields = self._fields(data, piece, is_result)
            request = SendRequest(importance=importance, traffic_class=traffic_class, **fields)
            self._posts[rank][1].append(request)

    def receive(
        self, rank: int, buffer: torch.Tensor, piece: int = 0, *, is_result: bool = False, loss: float = 0.0
    ) -> None:
        """Queue a receive from a rank, which starts at the next `wait`."""
        if buffer.numel():
            fields = self._fields(buffer, piece, is_result)
            request = ReceiveRequest(buffer=fields.pop("data"), loss_bound=loss, **fields)
            self._posts[rank][0].append(request)

    def _fields(self, row: torch.Tensor, piece: int, is_result: bool) -> dict[str, Any]:
        kind, memory = str(row.dtype).removeprefix("torch."), (ctypes.c_uint8 * row.nbytes)
        data: Any = memory.from_address(row.data_ptr())  # after `numpy()` torch could not resize it (FSDP)
        data.row = row  # lives as long as this
        return {
            "data": data,
            "element_type": kind if kind in _ELEMENT_TYPES else None,
            "tensor": self._first_tensor + (piece << 1 | is_result),
            "round_number": self._number,
            "deadline_seconds": self._seconds,
        }

    def wait(self, piece: int | None = None) -> None:
        """Start queued transfers, then wait for a piece's addends, or for all transfers; raises AgentError,
        TrainingError."""
        self._post()
        patience = LOOK_SECONDS
        while self._open[piece]:
            completion = self._completions.poll(patience)
            if completion is not None:
                is_receive = completion.direction == "receive"
                self._open.subtract(_counted(completion.peer, completion.tensor, is_receive))
                if completion.error is not None:
                    raise self._blamed(completion.peer, completion.error)
            elif not self._is_message:
                self._family.compare_notes(self._members.number, self._what, self._late())
                patience *= 2

    def _late(self) -> list[str]:
        """The agents of ranks that have not done their part."""
        return [name for name, count in self._open.items() if isinstance(name, str) and count]

    def _post(self) -> None:
        posts, channel = dict(self._posts), self._members.channel
        self._posts.clear()
        for rank, (receives, sends) in posts.items():
            name = self._members.names[rank]
            for receive in receives:
                self._open.update(_counted(name, receive.tensor, True))
            for send in sends:
                self._open.update(_counted(name, send.tensor, False))
            if receives:  # memory first: a sender that finds it posted loses no round trip
                channel.post_receives(name, receives, self._completions)
            if sends:
                channel.post_sends(name, sends, self._completions)

    def _blamed(self, name: str, error: AgentError) -> MltswitchError:
        where, what = self._family.where([name]), f"{self._what}: {error.what}"
        if isinstance(error, DeadlineExceededError):
            late = self._family.where(self._late() or [name])
            return NodeLateError(f"not over after {self._seconds:g} s: {what}", where=late)
        if isinstance(error, TransferMismatchError):
            return JobMismatchError(f"not of the size that it has here: {what}", where=where)
        cause = self._family.cause(name, error.what) or self._family.explanation()
        return cause if isinstance(cause, TrainingError) else NodeLostError(what, where=where)


def _counted(peer: str, tensor: int, is_receive: bool) -> list[int | str | None]:
    """What a post counts for in `Collective._open`."""
    piece, is_result = divmod(tensor % (1 << PIECE_BITS + 1), 2)
    return [None] if is_result else [None, peer, *[piece] * is_receive]


class Family:
    """This process's agent and adding thread, shared by all groups whose ranks the agent is connected with.

    A rank that fails ends the whole family, here and at the others: no sum is whole without it.

    Args:
        options: those of the group that opens the family.
        store: that group's store.
        rank: this process's rank in that group.
        ranks: the ranks in torch's default group, by rank in that group.
        timeout: how long to wait for all ranks to meet.

    Raises UserInputError, MachineError, NodeLostError that names ranks that did not come, JobMismatchError
    that names a rank that has come twice or with other options.
    """

    def __init__(
        self, options: MltOptions, store: Any, rank: int, ranks: Sequence[int], timeout: timedelta
    ) -> None:
        self.options, self._store, self._rank, self._ranks = options, store, rank, ranks
        self._threads: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()
        """The threads of collectives."""
        self._changed = threading.Condition()
        self._groups: set[int] = set()
        self._error: BaseException | None = None
        seconds = timeout.total_seconds()
        self._until = time.monotonic() + seconds
        config = options.config
        if config is not None and not isinstance(config, AgentConfig):
            config = AgentConfig.load(str(config))
        try:
            self._agents = Group(rank, len(ranks), self._meet, config=config, timeout_seconds=seconds)
        except AgentError as error:
            raise NodeLostError(error.what, where=error.where) from None
        self._agents.agent.observe(self, PeerLost)
        self._notes: Any = store.clone() if hasattr(store, "clone") else store
        """The store by a connection of its own: another thread may wait at the other one."""
        self._notes.set(f"met/{rank}", "")
        atexit.register(self._at_exit)

    def join(self, options: MltOptions, store: Any, ranks: Sequence[int]) -> Members:
        """Add a new group of ranks of this family, which agree on the group's number and options."""
        names = tuple(self._agents.names[rank] for rank in ranks)
        rank = ranks.index(self._rank)
        if rank == 0:
            store.set("group", json.dumps([self._store.add("groups", 1) - 1, self._settings(options)]))
        number, settings = json.loads(store.get("group"))
        self._compare_settings(ranks[0], settings, options)
        if number >= MOST_GROUPS:
            raise UserInputError(f"is one more than {MOST_GROUPS}", where="process group")
        # The first post waits until it is open: a rank that needs nothing of the others may have left by now.
        channel = self._agents.agent.channel(f"torch-{options.transport}", transport=options.transport)
        self._groups.add(number)
        return Members(number, rank, names, options, channel)

    def leave(self, number: int) -> None:
        """Remove a destroyed group; with the last one the agent leaves all peers."""
        self._groups.discard(number)
        if not self._groups:
            self.close()

    def _at_exit(self) -> None:
        ending = ending_of_process()
        if ending:
            self.fail(NodeLostError(ending, where=self._name(self._rank)))
        self.close()

    def close(self) -> None:
        """Say goodbye to all peers; open collectives fail."""
        atexit.unregister(self._at_exit)
        if self._error is None:
            with suppress(RuntimeError):  # who has not met all by now, or cannot, will find this one gone
                left = max(0.01, self._until - time.monotonic())
                self._notes.wait([f"met/{rank}" for rank in range(len(self._ranks))], timedelta(seconds=left))
        with self._changed:
            if self._error is None:
                self._error = NodeLostError("has destroyed the group", where=self._name(self._rank))
            else:  # the others hear why before they hear that the agent closes
                self._changed.wait_for(lambda: not self._agents.agent.peers, STOP_SECONDS)
        self._agents.close()
        with self._changed:
            threads = [*self._threads]
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(STOP_SECONDS)

    def observe(self, event: AgentEvent) -> None:
        """Take an event of the agent: a lost peer may have said why it left, which ends the family."""
        if isinstance(event, PeerLost):
            cause = self.cause(event.peer, event.reason) if event.peer in self._agents.names else None
            if cause is not None:
                self.fail(cause)
            with self._changed:
                self._changed.notify_all()

    def cause(self, peer: str, reason: str) -> TrainingError | None:
        """The error in a peer's goodbye, or None; where two ranks differ from each other, each names the
        other one."""
        cause = cause_of(reason)
        if isinstance(cause, JobMismatchError) and cause.where == self._name(self._rank):
            cause.where = self.where([peer])
        return cause

    def explanation(self) -> BaseException | None:
        """The error that ended the family, or None; waits a moment, since it may become known after its first
        effects."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None, EXPLAINING_SECONDS)
            return self._error

    def where(self, names: Iterable[str]) -> str:
        """Text that names the ranks of these agents."""
        return ", ".join(self._name(rank) for rank in sorted(map(self._agents.names.index, names)))

    def _name(self, rank: int) -> str:
        return f"rank {self._ranks[rank]}"

    @property
    def is_over(self) -> bool:
        """Whether the family has failed or was closed."""
        return self._error is not None

    def start(self, thread: threading.Thread) -> None:
        """Start a collective's thread; raises the error that ended the family."""
        with self._changed:
            if self._error is not None:
                raise anew(self._error)
            self._threads.add(thread)
            thread.start()

    def fail(self, error: BaseException) -> BaseException:
        """End all collectives, here and, with the reason, at the other ranks; returns the first error, which
        is the cause."""
        with self._changed:
            if self._error is not None:
                return self._error
            self._error = error
            self._changed.notify_all()
        here = NodeLostError(ending_of(error), where=self._name(self._rank))
        reason = goodbye_of(error if isinstance(error, TrainingError) else here)
        for rank, name in enumerate(self._agents.names):
            if rank != self._rank:
                self._agents.agent.disconnect(name, reason[:MOST_REASON])
        return error

    def compare_notes(self, number: int, own: str, late: Sequence[str]) -> None:
        """Publish what this rank does in a group, and compare it with the ranks that are late.

        Raises JobMismatchError that names a rank that does something else, with which this one would never
        meet.
        """
        with suppress(RuntimeError):  # the store is gone: then the timeout has to do
            self._notes.set(f"waits/{number}/{self._agents.names[self._rank]}", own)
            for name in late[:MOST_LOOKED_AT]:
                key = f"waits/{number}/{name}"
                theirs = self._notes.get(key).decode() if self._notes.check([key]) else own
                if theirs != own and theirs.rpartition(" ")[2] == own.rpartition(" ")[2]:  # of one number
                    problem = f"does {theirs}, where this rank does {own}"
                    raise JobMismatchError(problem, where=self.where([name]))

    def _settings(self, options: MltOptions) -> str:
        return f"world {len(self._ranks)}, {replace(options, config=None)}"

    def _compare_settings(self, rank: int, theirs: str, options: MltOptions) -> None:
        own = self._settings(options)
        if theirs != own:
            raise JobMismatchError(f"has {theirs} where this rank has {own}", where=self._name(rank))

    def _meet(self, own: str) -> list[str]:
        """A rendezvous for `Group`, by the store."""
        if self._store.add(f"come/{self._rank}", 1) > 1:
            hint = "a store serves one job: take a new one"
            raise JobMismatchError("has come twice", where=self._name(self._rank), hint=hint)
        self._store.set(f"agent/{self._rank}", json.dumps([self._settings(self.options), own]))
        texts = []
        for rank in range(len(self._ranks)):
            key, left = f"agent/{rank}", max(0.01, self._until - time.monotonic())
            with suppress(RuntimeError):  # who has not come in time is named by `Group`
                self._store.wait([key], timedelta(seconds=left))
                settings, text = json.loads(self._store.get(key))
                self._compare_settings(rank, settings, self.options)
                texts.append(text)
        return texts
