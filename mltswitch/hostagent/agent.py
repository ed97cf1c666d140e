"""The library: post tensors to peers and memory for theirs, and be told what became of them.

    with Agent(settings) as agent:
        agent.connect("host3", Endpoint("10.10.0.10", 18516))
        agent.post_send("host3", gradients, tensor=7, round_number=step, layer=7, dscp=34)
        done = agent.poll(timeout_seconds=10)

A posted tensor's memory is shared with the library until the completion: do not write what is being sent, do
not read what is being received.
"""

import queue
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.engine import Engine
from mltswitch.hostagent.errors import AgentError, BufferReusedError, CancelledError, DeadlineExceededError
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.tagging import checked_dscp, policy_named
from mltswitch.hostagent.tensor.elements import refuse_big_endian, view_of
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.transport.datagrams import UDP_MAXIMUM_SEGMENTS
from mltswitch.hostagent.transport.interfaces import (
    ConnectionLost,
    Direction,
    Event,
    ImportancePolicy,
    Incoming,
    Outgoing,
    PeerReady,
    TransferDone,
    TransferKey,
    TransferStatistics,
)
from mltswitch.wire import Dscp, ElementType

DEFAULT_DEADLINE_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """What became of a post; its memory is the caller's again."""

    peer: str
    tensor: int
    round_number: int
    direction: Direction
    error: AgentError | None
    statistics: TransferStatistics | None
    """None where the transfer never began."""
    received: NDArray[np.bool_] | None
    """Receiver: which packets have arrived; `layout` says which elements they hold."""
    layout: PacketLayout | None
    completed_ns: int
    """time.monotonic_ns() when it ended."""


class CompletionQueue:
    """Completions in the order in which they happen; any thread may take them."""

    def __init__(self) -> None:
        self._entries: queue.SimpleQueue[Completion] = queue.SimpleQueue()

    def poll(self, timeout_seconds: float = 0.0) -> Completion | None:
        """The next one; None where none came in time."""
        try:
            if timeout_seconds <= 0:
                return self._entries.get_nowait()
            return self._entries.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def add(self, completion: Completion) -> None:
        """For the agent."""
        self._entries.put(completion)


class Transfer:
    """A post on its way: wait for it, or await it."""

    def __init__(self, agent: "Agent", peer: str, key: TransferKey, direction: Direction) -> None:
        self.peer, self.key, self.direction = peer, key, direction
        self._agent = agent
        self._ended = threading.Event()
        self._completion: Completion | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    @property
    def completion(self) -> Completion | None:
        """None while it is on its way."""
        return self._completion

    def wait(self, timeout_seconds: float | None = None) -> Completion:
        """Block until it ends; every post ends by its deadline.

        Raises the transfer's AgentError where it failed, DeadlineExceededError where it has not ended in the
        time given here (it goes on).
        """
        if not self._ended.wait(timeout_seconds):
            raise DeadlineExceededError(
                f"has not ended within {timeout_seconds:g} s",
                peer=self.peer,
                tensor=self.key.tensor,
                round_number=self.key.round_number,
            )
        return self._result()

    def cancel(self, reason: str = "asked to") -> None:
        """Give it up; it completes with a CancelledError, unless it ends otherwise first."""
        self._agent.cancel(self, reason)

    def __await__(self) -> Generator[Any, None, Completion]:
        """The completion; raises the transfer's AgentError."""
        import asyncio

        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not waiting.done():
                waiting.set_result(None)

        self._when_ended(lambda: loop.call_soon_threadsafe(done))
        yield from waiting.__await__()
        return self._result()

    def complete(self, completion: Completion) -> None:
        """For the agent; a second call changes nothing."""
        with self._lock:
            if self._completion is not None:
                return
            self._completion = completion
            callbacks, self._callbacks = self._callbacks, []
        self._ended.set()
        for callback in callbacks:
            callback()

    def _when_ended(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if self._completion is None:
                self._callbacks.append(callback)
                return
        callback()

    def _result(self) -> Completion:
        assert self._completion is not None  # noqa: S101  (it has ended)
        if self._completion.error is not None:
            raise self._completion.error
        return self._completion


@dataclass(slots=True, eq=False)
class _Post:
    transfer: Transfer
    queue: CompletionQueue
    memory: NDArray[np.uint8]
    """Keeps it alive."""
    checksum: int | None


class Agent:
    """One host's end of all its transfers; safe to use from several threads."""

    def __init__(self, settings: AgentSettings) -> None:
        """Opens the sockets and starts the engine; raises UserInputError or MachineError."""
        refuse_big_endian()
        self.completions = CompletionQueue()
        """Where posts complete that name no other queue."""
        self._settings = settings
        self._lock = threading.Condition()
        self._peers: dict[str, AgentError | None] = {}
        """Those that are, or were, connected; with the error that ended it."""
        self._posts: dict[tuple[str, TransferKey, Direction], _Post] = {}
        self._engine = Engine(settings, self._happened)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know about this machine."""
        return self._engine.warnings

    @property
    def listening_at(self) -> Endpoint | None:
        """Where peers connect to."""
        return self._engine.listening_at

    def connect(self, peer: str, remote: Endpoint, timeout_seconds: float = 10.0) -> None:
        """Open the control channel to a peer; raises AgentError or UserInputError."""
        problem: list[MltswitchError] = []

        def begin() -> None:
            try:
                self._engine.connect(peer, remote)
            except MltswitchError as error:
                with self._lock:
                    problem.append(error)
                    self._lock.notify_all()

        with self._lock:
            self._peers.pop(peer, None)
            self._engine.call(begin)
            is_there = self._lock.wait_for(lambda: problem or peer in self._peers, timeout_seconds)
            if problem:
                raise problem[0]
            self._raise_if_lost((peer,))
        if not is_there:
            raise DeadlineExceededError(f"no connection within {timeout_seconds:g} s", peer=peer)

    def wait_for_peers(self, names: Iterable[str], timeout_seconds: float) -> None:
        """Until these are connected; raises AgentError naming one that is not."""
        wanted = list(names)
        with self._lock:
            self._lock.wait_for(lambda: all(name in self._peers for name in wanted), timeout_seconds)
            missing = [name for name in wanted if name not in self._peers]
            self._raise_if_lost(name for name in wanted if name in self._peers)
        if missing:
            raise DeadlineExceededError(f"has not connected within {timeout_seconds:g} s", peer=missing[0])

    def post_send(
        self,
        peer: str,
        data: object,
        *,
        tensor: int,
        round_number: int,
        dscp: Dscp | Callable[[], Dscp],
        layer: int = 0,
        policy: ImportancePolicy | str = "magnitude",
        burst_packets: int = UDP_MAXIMUM_SEGMENTS,
        deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
        element_type: ElementType | None = None,
        completions: CompletionQueue | None = None,
    ) -> Transfer:
        """Send a tensor; it leaves when the peer has posted memory for it.

        Args:
            peer: a connected one.
            data: numpy array, CPU tensor of torch or anything with a buffer, C-contiguous; not copied.
            tensor: number that both ends use for it.
            round_number: rises with every exchange of the same tensor.
            dscp: of its traffic class, or a function that is asked for every chunk.
            layer: in forward order; front layers leave first.
            policy: marks packets important; its name, or an object.
            burst_packets: n, packets with one path and one DSCP/ECN byte; never more than the kernel takes.
            deadline_seconds: after which it fails.
            element_type: where `data` does not say it.
            completions: the queue that is told; the agent's own by default.

        Raises UserInputError for data that cannot be sent.
        """
        view = view_of(data, writable=False, element_type=element_type)
        if callable(dscp):
            of_chunk = dscp
        else:
            number = checked_dscp(dscp)

            def of_chunk() -> Dscp:
                return number

        outgoing = Outgoing(
            TransferKey(tensor, round_number),
            view,
            layer,
            of_chunk,
            policy_named(policy) if isinstance(policy, str) else policy,
            _deadline_ns(deadline_seconds),
            burst_packets,
        )
        checksum = zlib.crc32(view.data.data) if self._settings.catch_reuse else None
        return self._post(
            peer,
            outgoing.key,
            Direction.SEND,
            completions,
            view.data,
            checksum,
            lambda: self._engine.connection(peer).send(outgoing, time.monotonic_ns()),
        )

    def post_recv(
        self,
        peer: str,
        buffer: object,
        *,
        tensor: int,
        round_number: int,
        loss_bound: float = 0.0,
        important_loss_bound: float | None = None,
        keep_missing: bool = False,
        deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
        element_type: ElementType | None = None,
        completions: CompletionQueue | None = None,
    ) -> Transfer:
        """Receive a tensor into memory.

        Args:
            peer: a connected one.
            buffer: as `data` of `post_send`, and writable.
            tensor: see `post_send`.
            round_number: see `post_send`.
            loss_bound: p, the share of the packets, and of the elements, that may be missing.
            important_loss_bound: of the important packets; None: the loss bound alone counts.
            keep_missing: missing elements keep what the buffer held (parameters); else they become 0.
            deadline_seconds: after which it fails.
            element_type: where `buffer` does not say it.
            completions: the queue that is told; the agent's own by default.

        Raises UserInputError for a buffer or a bound that cannot be used.
        """
        for name, bound in (("loss_bound", loss_bound), ("important_loss_bound", important_loss_bound)):
            if bound is not None and not 0 <= bound < 1:
                raise UserInputError(
                    f"{bound} is no bound of loss", where=name, expected="0 or more, below 1"
                )
        view = view_of(buffer, writable=True, element_type=element_type)
        incoming = Incoming(
            TransferKey(tensor, round_number),
            view,
            loss_bound,
            important_loss_bound,
            keep_missing,
            _deadline_ns(deadline_seconds),
        )
        return self._post(
            peer,
            incoming.key,
            Direction.RECEIVE,
            completions,
            view.data,
            None,
            lambda: self._engine.connection(peer).receive(incoming, time.monotonic_ns()),
        )

    def poll(self, timeout_seconds: float = 0.0) -> Completion | None:
        """The next completion of the agent's own queue; None where none came in time."""
        return self.completions.poll(timeout_seconds)

    def cancel(self, transfer: Transfer, reason: str) -> None:
        """Give a transfer up."""

        def give_up() -> None:
            try:
                connection = self._engine.connection(transfer.peer)
            except AgentError:
                return  # it has ended with its connection
            connection.cancel(transfer.key, transfer.direction, reason, time.monotonic_ns())

        self._engine.call(give_up)

    def close(self, reason: str = "done") -> None:
        """End everything; open transfers complete with an error."""
        self._engine.close(reason)
        with self._lock:
            left = list(self._posts.items())
        for (peer, key, direction), _ in left:
            self._end(peer, key, direction, CancelledError("the agent was closed", peer=peer), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _post(
        self,
        peer: str,
        key: TransferKey,
        direction: Direction,
        completions: CompletionQueue | None,
        memory: NDArray[np.uint8],
        checksum: int | None,
        begin: Callable[[], None],
    ) -> Transfer:
        transfer = Transfer(self, peer, key, direction)
        place = peer, key, direction
        with self._lock:
            if place in self._posts:
                raise UserInputError(
                    f"round {key.round_number} of tensor {key.tensor} is posted already", where=f"peer {peer}"
                )
            self._posts[place] = _Post(transfer, completions or self.completions, memory, checksum)

        def attempt() -> None:
            try:
                begin()
            except AgentError as error:
                self._end(peer, key, direction, error, None)

        try:
            self._engine.call(attempt)
        except AgentError:
            with self._lock:
                self._posts.pop(place, None)
            raise
        return transfer

    def _happened(self, peer: str, event: Event) -> None:
        """In the engine's thread."""
        match event:
            case TransferDone():
                self._end(peer, event.key, event.direction, event.error, event)
            case PeerReady():
                with self._lock:
                    self._peers[peer] = None
                    self._lock.notify_all()
            case ConnectionLost():
                with self._lock:
                    self._peers[peer] = event.error
                    self._lock.notify_all()

    def _end(
        self,
        peer: str,
        key: TransferKey,
        direction: Direction,
        error: AgentError | None,
        event: TransferDone | None,
    ) -> None:
        with self._lock:
            post = self._posts.pop((peer, key, direction), None)
        if post is None:
            return
        completion = Completion(
            peer,
            key.tensor,
            key.round_number,
            direction,
            error,
            event.statistics if event else None,
            event.received if event else None,
            event.layout if event else None,
            time.monotonic_ns(),
        )
        if post.checksum is not None and error is None and zlib.crc32(post.memory.data) != post.checksum:
            reused = BufferReusedError(
                "its memory changed before the completion",
                peer=peer,
                tensor=key.tensor,
                round_number=key.round_number,
            )
            completion = replace(completion, error=reused)
        post.transfer.complete(completion)
        post.queue.add(completion)

    def _raise_if_lost(self, names: Iterable[str]) -> None:
        for name in names:
            error = self._peers.get(name)
            if error is not None:
                raise error


def _deadline_ns(seconds: float) -> int:
    if not 0 < seconds < 1e6:
        raise UserInputError(f"{seconds} s is no deadline", where="deadline_seconds", expected="above 0")
    return time.monotonic_ns() + int(seconds * 1e9)
