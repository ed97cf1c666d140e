"""A process's agent and what its `mlt` process groups share: how ranks meet, how collectives go on and fail."""

import atexit
import json
import queue
import threading
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.hostagent import (
    AgentConfig,
    AgentError,
    Channel,
    Completion,
    CompletionQueue,
    DeadlineExceededError,
    Group,
    ReceiveRequest,
    SendRequest,
    TransferMismatchError,
)
from mltswitch.training.errors import JobMismatchError, NodeLateError, NodeLostError
from mltswitch.training.pytorch import MltOptions

LOOK_SECONDS: Final = 2.0
"""After which a collective that is not over asks what the others are doing; then after twice the time."""
MOST_LOOKED_AT: Final = 8
"""Ranks, each time: the store is one process."""
MOST_GROUPS: Final = 1 << 10
PIECES_BITS: Final = 10
"""A tensor's number: group (10 bits), what is done to what (11), piece (10), whether it is a result (1)."""
TAG_BITS: Final = 22
"""Of sends and receives between two ranks: group (10 bits), tag (22)."""
MOST_REASON: Final = 300

Steps = Generator[int | None, None, None]
"""A collective: posts, and yields the piece whose addends it waits for, or None to wait for all its posts."""


class MltWork(dist.Work):  # type: ignore[misc]  # torch is untyped here
    """A collective under way, as torch.distributed has it; `wait` raises the error that names the rank."""

    def __init__(self, what: str, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.what: Final = what
        self.outcome: Final[Future[Sequence[torch.Tensor]]] = Future()
        self._tensors = tensors

    def end(self, error: BaseException | None = None) -> None:
        """For the backend: it is over; once."""
        if error is None:
            self.outcome.set_result(self._tensors)
        else:
            self.outcome.set_exception(error)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Until it is over; 0: however long that takes, which the group's timeout bounds.

        Raises TrainingError that names the rank to blame; NodeLateError where it is not over in the time
        given here (it goes on).
        """
        try:
            error = self.outcome.exception(timeout.total_seconds() if timeout > timedelta(0) else None)
        except TimeoutError:
            raise NodeLateError(f"{self.what} is not over after {timeout.total_seconds():g} s") from None
        if error is not None:
            raise _anew(error)
        return True

    def get_future(self) -> Any:
        """torch's own, with the tensors; what C++ and hooks wait for. Its errors are RuntimeErrors."""
        started: torch.futures.Future[None] = torch.futures.Future()
        # only what a callback raises is an error to who waits in C++
        made = started.then(lambda _: list(self.outcome.result()))

        def tell(_: object) -> None:
            # a thread for each: a hook's callbacks may wait for collectives that come later
            threading.Thread(target=started.set_result, args=(None,), daemon=True).start()

        if self.outcome.done():
            started.set_result(None)
        else:
            self.outcome.add_done_callback(tell)
        return made

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return self.outcome.done()

    def is_success(self) -> bool:
        """Whether it is over, and well."""
        return self.outcome.done() and self.outcome.exception() is None

    def exception(self) -> BaseException | None:
        """None where it has gone well, or is not over."""
        return self.outcome.exception() if self.outcome.done() else None

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the result."""
        self.wait()
        return list(self._tensors)

    def synchronize(self) -> None:
        """Like `wait`: results are in the tensors once it is over, on GPUs, too."""
        self.wait()


@dataclass(frozen=True, slots=True)
class Members:
    """A process group as its family sees it."""

    number: int
    rank: int
    """This process's, within the group."""
    names: tuple[str, ...]
    """Of agents, by rank within the group."""
    options: MltOptions


class Collective(CompletionQueue):
    """One collective of this rank: the posts that it waits for, and the steps that go on when they end.

    Args:
        family: whose it is.
        members: the ranks that take part.
        what: is done to what; all ranks say the same, or their posts never meet.
        round_number: of the collective within its group, or of the message with its peer and tag.
        seconds: after which it fails.
        tag: None: a collective; else a message between two ranks.
    """

    def __init__(
        self,
        family: "Family",
        members: Members,
        what: str,
        round_number: int,
        seconds: float,
        tag: int | None = None,
    ) -> None:
        super().__init__()
        self.rank: Final = members.rank
        self.others: Final = [(members.rank + n) % len(members.names) for n in range(1, len(members.names))]
        """From the next rank on, so that not all send to one at once."""
        self.what: Final = what
        self.round_number: Final = round_number
        self.members: Final = members
        self.is_message: Final = tag is not None
        self._family = family
        self._seconds = seconds
        kind = tag if tag is not None else zlib.crc32(what.encode()) % (1 << 11) << 11
        self._first_tensor: Final = members.number << TAG_BITS | kind
        self._posts: defaultdict[int, tuple[list[SendRequest], list[ReceiveRequest]]] = defaultdict(
            lambda: ([], [])
        )
        self._lock = threading.Lock()
        self._open = 0
        self._open_addends: Counter[int] = Counter()
        """By piece."""
        self._open_first: Counter[str] = Counter()
        """By peer: posts that are not of results, so that whoever is late has some."""
        self._is_waiting = False
        self._wanted: int | None = None
        self._steps: Steps | None = None
        self.work: MltWork
        self.began = time.monotonic()
        self.look_at = self.began + LOOK_SECONDS

    def begin(self, steps: Steps, tensors: Sequence[torch.Tensor]) -> MltWork:
        """Its first posts, in the caller's thread."""
        self.work, self._steps = MltWork(self.what, tensors), steps
        self._family.begin(self)
        self.advance()
        return self.work

    def send(
        self, rank: int, data: torch.Tensor, *, piece: int = 0, is_result: bool = False, is_lossy: bool = False
    ) -> None:
        """To a rank, at the next yield; what is lossless is important, too. Empty tensors do not travel."""
        if data.numel():
            request = SendRequest(
                data=data,
                tensor=self._first_tensor + (piece << 1 | is_result),
                round_number=self.round_number,
                traffic_class=self.members.options.traffic_class,
                importance=None if is_lossy else "all",
                deadline_seconds=self._seconds,
            )
            self._posts[rank][0].append(request)

    def receive(
        self,
        rank: int,
        buffer: torch.Tensor,
        *,
        piece: int = 0,
        is_result: bool = False,
        loss_bound: float = 0.0,
    ) -> None:
        """From a rank, at the next yield."""
        if buffer.numel():
            request = ReceiveRequest(
                buffer=buffer,
                tensor=self._first_tensor + (piece << 1 | is_result),
                round_number=self.round_number,
                loss_bound=loss_bound,
                deadline_seconds=self._seconds,
            )
            self._posts[rank][1].append(request)

    def advance(self) -> None:
        """Take its next steps; by one thread at a time."""
        assert self._steps is not None, "it has begun"  # noqa: S101
        try:
            for wanted in self._steps:
                self._post()
                with self._lock:
                    if not self._is_there(wanted):
                        self._wanted, self._is_waiting = wanted, True
                        return
            self._family.end(self)
        except AgentError as error:
            self._family.fail(self._blame(error.peer, error))
        except Exception as error:  # noqa: BLE001  (whoever waits must hear of it, whatever it is)
            self._family.fail(error)

    def add(self, completion: Completion) -> None:
        """For the agent: a post has ended."""
        with self._lock:
            self._open -= 1
            if not self._is_result(completion.tensor):
                self._open_first[completion.peer] -= 1
                if completion.direction == "receive":
                    self._open_addends[self._piece(completion.tensor)] -= 1
            is_next = self._is_waiting and completion.error is None and self._is_there(self._wanted)
            self._is_waiting = self._is_waiting and not is_next
        if completion.error is not None and not self.work.is_completed():
            self._family.fail(self._blame(completion.peer, completion.error))
        elif is_next:
            self._family.inbox.put(self)

    def late(self) -> list[str]:
        """The names of those who have not done their part yet."""
        with self._lock:
            return [name for name, count in self._open_first.items() if count > 0]

    def _is_result(self, tensor: int) -> bool:
        return not self.is_message and bool(tensor & 1)

    def _piece(self, tensor: int) -> int:
        return 0 if self.is_message else tensor >> 1 & (1 << PIECES_BITS) - 1

    def _is_there(self, wanted: int | None) -> bool:
        return self._open == 0 if wanted is None else self._open_addends[wanted] == 0

    def _post(self) -> None:
        posts = dict(self._posts)
        self._posts.clear()
        channel = self._family.channel(self.members.options.transport, is_for_messages=self.is_message)
        for rank, (sends, receives) in posts.items():
            name = self.members.names[rank]
            firsts = [request for request in (*sends, *receives) if not self._is_result(request.tensor)]
            with self._lock:
                self._open += len(sends) + len(receives)
                self._open_first[name] += len(firsts)
                self._open_addends.update(
                    self._piece(each.tensor) for each in receives if not self._is_result(each.tensor)
                )
            if receives:  # memory first: a sender that finds it posted loses no round trip
                channel.post_receives(name, receives, self)
            if sends:
                channel.post_sends(name, sends, self)

    def _blame(self, name: str, error: AgentError) -> MltswitchError:
        where = self._family.where([name])
        label = f"{self.what} (number {self.round_number})"
        if isinstance(error, DeadlineExceededError):
            where = self._family.where(self.late() or [name])
            return NodeLateError(f"{label} is not over after {self._seconds:g} s: {error.what}", where=where)
        if isinstance(error, TransferMismatchError):
            return JobMismatchError(f"{label}: another shape or type than here: {error.what}", where=where)
        return NodeLostError(f"{label}: {error.what}", where=where)


class Family:
    """This process's agent and worker thread, shared by the groups whose ranks it knows.

    A rank that fails takes the whole family with it: no sum is whole without it.

    Args:
        options: of the group that opens it.
        store: of this group.
        rank: within this group.
        ranks: of torch's default group, by rank within this group; for errors.
        timeout: until all have met.

    Raises UserInputError, MachineError, NodeLostError that names ranks that did not come, JobMismatchError
    that names a rank with other settings.
    """

    def __init__(
        self, options: MltOptions, store: Any, rank: int, ranks: Sequence[int], timeout: timedelta
    ) -> None:
        self.options: Final = options
        self.store: Final = store
        self.rank: Final = rank
        self._ranks: Final = tuple(ranks)
        self.inbox: Final[queue.SimpleQueue[Collective | None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: dict[Collective, None] = {}
        self._groups: set[int] = set()
        self._error: BaseException | None = None
        self._is_closed = False
        config = options.config
        if config is not None and not isinstance(config, AgentConfig):
            config = AgentConfig.load(str(config))
        meet = _meeting(store, rank, len(ranks), self._settings(options), timeout)
        try:
            self._group: Final = Group(
                rank, len(ranks), meet, config=config, timeout_seconds=timeout.total_seconds()
            )
        except AgentError as error:
            raise NodeLostError(error.what, where=error.where) from None
        self.names: Final = self._group.names
        self._looked_store: Any = store.clone() if hasattr(store, "clone") else store
        """A connection of its own: the store's may be blocked by another thread."""
        self._thread = threading.Thread(target=self._run, name="mltswitch-collectives", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def join(self, options: MltOptions, store: Any, ranks: Sequence[int], timeout: timedelta) -> Members:
        """A new group of ranks of this family; all of them agree on its number and its options."""
        names = tuple(self.names[rank] for rank in ranks)
        settings = self._settings(options)
        if ranks[0] == self.rank:
            number = self.store.add("groups", 1) - 1
            store.set("group", json.dumps([number, settings]))
        number, theirs = json.loads(store.get("group"))
        if theirs != settings:
            raise JobMismatchError(f"has {theirs} where this rank has {settings}", where=self.where(names[:1]))
        if number >= MOST_GROUPS:
            raise UserInputError(f"is one more than {MOST_GROUPS}", where="process group")
        others = [name for name in names if name != self.names[self.rank]]
        for is_for_messages in (False, True):
            channel = self.channel(options.transport, is_for_messages=is_for_messages)
            try:
                channel.wait_for_peers(others, timeout.total_seconds())
            except AgentError as error:
                raise NodeLostError(error.what, where=self.where([error.peer])) from None
        self._groups.add(number)
        return Members(number, ranks.index(self.rank), names, options)

    def leave(self, number: int) -> None:
        """A group is destroyed; with the last one the agent says goodbye to all."""
        self._groups.discard(number)
        if not self._groups:
            self.close()

    def close(self) -> None:
        """Say goodbye to all; what is open fails."""
        with self._lock:
            is_closed, self._is_closed = self._is_closed, True
            if self._error is None:
                self._error = NodeLostError("the process group has been destroyed", where="this rank")
        if not is_closed:
            atexit.unregister(self.close)
            self._group.close()
            self._fail_all()
            self.inbox.put(None)
            if self._thread is not threading.current_thread():
                self._thread.join()

    @property
    def is_closed(self) -> bool:
        """Whether no group can join any more."""
        return self._is_closed

    def channel(self, transport: str, *, is_for_messages: bool) -> Channel:
        """Messages between two ranks have a space of tensor numbers of their own."""
        name = f"torch-{transport}{'-messages' * is_for_messages}"
        return self._group.agent.channel(name, transport=transport)

    def where(self, names: Iterable[str]) -> str:
        """The ranks behind agents' names."""
        ranks = sorted(self._ranks[self.names.index(name)] for name in names if name in self.names)
        return ", ".join(f"rank {rank}" for rank in ranks)

    def check(self) -> None:
        """Raises what has ended the family."""
        if self._error is not None:
            raise _anew(self._error)

    def begin(self, collective: Collective) -> None:
        """It is open from now on."""
        self.check()
        with self._lock:
            self._open[collective] = None

    def end(self, collective: Collective) -> None:
        """It is over, and well."""
        with self._lock:
            is_open = collective in self._open
            self._open.pop(collective, None)
        if is_open:
            collective.work.end()

    def fail(self, error: BaseException) -> None:
        """All that is open fails, here and, with the reason, at all others; only the first time."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
        reason = f"{error if isinstance(error, MltswitchError) else f'{type(error).__name__}: {error}'}"
        for name in self.names:
            if name != self.names[self.rank]:
                self._group.agent.disconnect(name, reason[:MOST_REASON])
        self._fail_all()

    def _fail_all(self) -> None:
        with self._lock:
            collectives, self._open = self._open, {}
        for collective in collectives:
            collective.work.end(self._error)

    def _settings(self, options: MltOptions) -> dict[str, Any]:
        """What all ranks must agree on."""
        return {"world": len(self._ranks)} | {k: v for k, v in asdict(options).items() if k != "config"}

    # The worker thread

    def _run(self) -> None:
        while not self._is_closed:
            try:
                collective = self.inbox.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                collective = None
            if collective is not None and self._error is None:
                collective.advance()
            self._look()

    def _look(self) -> None:
        """What others wait for, where a collective takes long: ranks that do different things never meet."""
        now = time.monotonic()
        with self._lock:
            waiting = [each for each in self._open if now > each.look_at and not each.is_message]
        for collective in waiting:
            collective.look_at = now + (now - collective.began)
            with suppress(RuntimeError):  # the store is gone, or answers too late: then the timeout has to do
                self._compare(collective)

    def _compare(self, collective: Collective) -> None:
        number, own = collective.members.number, [collective.round_number, collective.what]
        self._looked_store.set(f"waits/{number}/{self.names[self.rank]}", json.dumps(own))
        for name in collective.late()[:MOST_LOOKED_AT]:
            key = f"waits/{number}/{name}"
            if self._looked_store.check([key]):
                round_number, what = json.loads(self._looked_store.get(key))
                if round_number == own[0] and what != own[1]:
                    problem = f"does {what} where this rank does {own[1]} (number {round_number})"
                    self.fail(JobMismatchError(problem, where=self.where([name])))


def _meeting(
    store: Any, rank: int, world: int, settings: dict[str, Any], timeout: timedelta
) -> Callable[[str], list[str]]:
    """A rendezvous for `Group` by a store of torch.distributed."""

    def refuse(problem: str, most: int, where: str = "") -> JobMismatchError:
        """Tell those who still wait for a rank, in its place."""
        error = JobMismatchError(problem, where=where)
        for number in range(most):
            store.compare_set(f"agent/{number}", "", json.dumps({"problem": str(error)}))
        return error

    def meet(own: str) -> list[str]:
        if store.add(f"come/{rank}", 1) > 1:
            raise refuse("has come twice; a store serves one job", world, f"rank {rank}")
        keys = [f"agent/{number}" for number in range(world)]
        store.set(keys[rank], json.dumps({"settings": settings, "text": own}))
        with suppress(RuntimeError):  # who has not come in time is named by whoever asked
            store.wait(keys, timeout)
        lines = {number: json.loads(store.get(key)) for number, key in enumerate(keys) if store.check([key])}
        for number, line in lines.items():
            if "problem" in line:
                raise JobMismatchError(line["problem"])
            if line["settings"] != settings:
                problem = f"has {line['settings']} where rank {rank} has {settings}"
                raise refuse(problem, max(world, line["settings"]["world"]), f"rank {number}")
        return [line["text"] for line in lines.values()]

    return meet


def _anew(error: BaseException) -> BaseException:
    """A new one each time: it must not keep the frames of whoever was told before."""
    if isinstance(error, MltswitchError):
        return type(error)(error.what, where=error.where, expected=error.expected, hint=error.hint)
    return error
