"""The library: post tensors to peers and memory for theirs, and be told what became of them.

    with Agent(settings) as agent:
        agent.connect("host3", Endpoint("10.10.0.10", 18516))
        agent.post_send("host3", gradients, tensor=7, round_number=step, layer=7, dscp=34)
        done = agent.poll(timeout_seconds=10)

A posted tensor's memory is shared with the library until the completion: do not write what is being sent, do
not read what is being received.
"""

import logging
import os
import queue
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import MachineError, MltswitchError, UserInputError
from mltswitch.hostagent.arguments import (
    deadline_ns,
    dscp_of_chunk,
    endpoint_given,
    layer_number,
    peer_name,
    peer_names,
    policy_given,
    share,
    text_given,
    transfer_key,
    wait_limit,
)
from mltswitch.hostagent.completions import (
    Completion,
    CompletionQueue,
    Transfer,
    completion_queue,
    transfer_given,
)
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.engine import Engine
from mltswitch.hostagent.errors import AgentError, BufferReusedError, CancelledError, DeadlineExceededError
from mltswitch.hostagent.links import Link
from mltswitch.hostagent.peers import Peers
from mltswitch.hostagent.posts import Place, Post, ended, named, refuse_shared
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.tagging import ByMagnitude
from mltswitch.hostagent.tagging.ahead import MarkingThread, has_processors_to_spare
from mltswitch.hostagent.telemetry.events import AgentEnded, Observer, TransferPosted
from mltswitch.hostagent.telemetry.snapshot import AgentSnapshot
from mltswitch.hostagent.tensor.elements import refuse_big_endian, view_of
from mltswitch.hostagent.threads import check_process, refuse_to_wait
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
)
from mltswitch.hostagent.values import whole_number
from mltswitch.wire import Dscp, ElementType

_log = logging.getLogger(__name__)

DEFAULT_DEADLINE_SECONDS: Final = 60.0
MOST_BURST_PACKETS: Final = 1 << 20
"""More than any kernel takes at once: the rest is cut."""


class Agent:
    """One host's end of all its transfers; safe to use from several threads."""

    def __init__(self, settings: AgentSettings) -> None:
        """Opens the sockets and starts the engine; raises UserInputError or MachineError."""
        refuse_big_endian()
        self.completions = CompletionQueue()
        """Where posts complete that name no other queue."""
        self._settings = settings
        self._process = os.getpid()
        self._lock = threading.RLock()
        """Of who posts; a signal handler may come in between, and post, too."""
        self._peers = Peers()
        self._posts: dict[Place, Post] = {}
        self._is_closed = False
        self._marking = MarkingThread() if has_processors_to_spare() else None
        try:
            self._engine = Engine(settings, self._happened, self._no_more)
        except OSError as error:
            raise MachineError(f"cannot open what an agent needs: {error.strerror or error}") from error

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know about this machine."""
        return self._engine.warnings

    @property
    def listening_at(self) -> Endpoint | None:
        """Where peers connect to."""
        return self._engine.listening_at

    def connect(self, peer: str, remote: Endpoint, timeout_seconds: float = 10.0) -> None:
        """Open the control channel to a peer; where the peer has opened one meanwhile, there is that one.

        Raises AgentError or UserInputError.
        """
        self._may_wait("connecting")
        peer, remote = peer_name(peer), endpoint_given("remote", remote)
        if peer == self._settings.name:
            raise UserInputError("is this agent itself", where=f"peer {peer}", expected="another name")
        limit = wait_limit("timeout_seconds", timeout_seconds)
        begun: list[tuple[Link, AgentError | None]] = []
        failed: list[MltswitchError] = []

        def begin() -> None:
            try:
                before = self._peers.error_of(peer)
                begun.append((self._engine.connect(peer, remote), before))
            except MltswitchError as error:
                failed.append(error)
            except OSError as error:  # no descriptors are left, say
                failed.append(CancelledError(f"cannot be tried: {error.strerror or error}", peer=peer))
            except Exception:  # noqa: BLE001  (this attempt alone has failed; the log says how)
                _log.exception("connecting has failed")
                failed.append(CancelledError("failed; the log says how", peer=peer))
            finally:
                self._peers.changed()

        def give_up() -> None:
            for link, _ in begun:
                self._engine.give_up(link)

        self._engine.call(begin)
        until = time.monotonic() + limit
        self._peers.wait_until(lambda: bool(begun or failed), limit)
        if failed:
            raise failed[0]
        before = begun[0][1] if begun else None
        if not begun or not self._peers.wait_for_attempt(peer, before, until - time.monotonic()):
            self._engine.call(give_up)
            raise DeadlineExceededError(f"no connection within {limit:g} s", peer=peer)

    def wait_for_peers(self, names: Iterable[str], timeout_seconds: float) -> None:
        """Until these are connected; raises AgentError naming one that is not."""
        self._may_wait("waiting for peers")
        self._peers.wait_for(peer_names(names), wait_limit("timeout_seconds", timeout_seconds))

    def wait_for_a_peer(self, timeout_seconds: float) -> str:
        """The name of one that is connected, whoever it is; raises DeadlineExceededError."""
        self._may_wait("waiting for a peer")
        return self._peers.wait_for_one(wait_limit("timeout_seconds", timeout_seconds))

    def disconnect(self, peer: str, reason: str = "done") -> None:
        """Say goodbye to one peer, soon: its open transfers fail, here and there. Nothing happens where it is
        not connected, or after `close`."""
        check_process(self._process)
        peer, reason = peer_name(peer), text_given("reason", reason)
        with suppress(AgentError):  # closed: it is connected no more
            self._engine.call(lambda: self._engine.disconnect(peer, reason))

    def post_send(
        self,
        peer: str,
        data: object,
        *,
        tensor: int,
        round_number: int,
        dscp: Dscp | Callable[[], Dscp] | None = None,
        layer: int = 0,
        policy: ImportancePolicy | str = "magnitude",
        burst_packets: int = UDP_MAXIMUM_SEGMENTS,
        deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
        element_type: ElementType | str | None = None,
        completions: CompletionQueue | None = None,
    ) -> Transfer:
        """Send a tensor; it leaves when the peer has posted memory for it.

        Args:
            peer: a connected one.
            data: numpy array, CPU tensor of torch or anything with a buffer, C-contiguous; not copied.
            tensor: number that both ends use for it.
            round_number: rises with every exchange of the same tensor.
            dscp: of its traffic class, or a function that is asked for every chunk. None: by its layer and by
                what else is on its way, as the settings' `two_queues` have it.
            layer: in forward order; front layers leave first.
            policy: marks packets important; its name, or an object.
            burst_packets: n, packets with one path and one DSCP/ECN byte; never more than the kernel takes.
            deadline_seconds: after which it fails.
            element_type: where `data` does not say it.
            completions: the queue that is told; the agent's own by default.

        Raises UserInputError for data that cannot be sent, and for arguments that cannot be.
        """
        posted_ns = time.monotonic_ns()
        peer, completions = peer_name(peer), completion_queue(completions)
        key = transfer_key(tensor, round_number)
        self._may_post(peer, key)
        view = view_of(data, writable=False, element_type=element_type)
        layer = layer_number(layer)
        two_queues = self._settings.two_queues if dscp is None else None
        of_chunk = dscp_of_chunk(two_queues.of_layer(layer) if two_queues else dscp)
        outgoing = Outgoing(
            key,
            view,
            layer,
            of_chunk,
            self._ahead(policy_given(policy)),
            deadline_ns(posted_ns, deadline_seconds),
            whole_number("burst_packets", burst_packets, 1, MOST_BURST_PACKETS),
            posted_ns,
        )
        checksum = zlib.crc32(view.data.data) if self._settings.catch_reuse else None
        if two_queues is not None:
            two_queues.started(layer)
        try:
            transfer = self._post(
                (peer, key, Direction.SEND),
                posted_ns,
                completions,
                view.data,
                checksum,
                lambda: self._engine.connection(peer).send(outgoing, time.monotonic_ns()),
            )
        except BaseException:
            if two_queues is not None:
                two_queues.finished(layer)
            raise
        if two_queues is not None:
            transfer.when_ended(partial(two_queues.finished, layer))
        return transfer

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
        element_type: ElementType | str | None = None,
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

        Raises UserInputError for a buffer, a bound or another argument that cannot be used.
        """
        posted_ns = time.monotonic_ns()
        peer, completions = peer_name(peer), completion_queue(completions)
        key = transfer_key(tensor, round_number)
        self._may_post(peer, key)
        view = view_of(buffer, writable=True, element_type=element_type)
        incoming = Incoming(
            key,
            view,
            share("loss_bound", loss_bound),
            None if important_loss_bound is None else share("important_loss_bound", important_loss_bound),
            keep_missing,
            deadline_ns(posted_ns, deadline_seconds),
            posted_ns,
        )
        return self._post(
            (peer, key, Direction.RECEIVE),
            posted_ns,
            completions,
            view.data,
            None,
            lambda: self._engine.connection(peer).receive(incoming, time.monotonic_ns()),
        )

    def poll(self, timeout_seconds: float = 0.0) -> Completion | None:
        """The next completion of the agent's own queue; None where none came in time, or none is left at the
        agent's end."""
        check_process(self._process)
        return self.completions.poll(timeout_seconds)

    def cancel(self, transfer: Transfer, reason: str) -> None:
        """Give a transfer up; nothing happens where it has ended, or the agent has, or is another's."""
        transfer, reason = transfer_given(transfer), text_given("reason", reason)

        def give_up() -> None:
            post = self._posts.get((transfer.peer, transfer.key, transfer.direction))
            if post is None or post.transfer is not transfer:  # its numbers may be another one's by now
                return
            try:
                connection = self._engine.connection(transfer.peer)
            except AgentError:
                return  # it has ended with its connection
            connection.cancel(transfer.key, transfer.direction, reason, time.monotonic_ns())

        check_process(self._process)
        with suppress(AgentError):  # closed: whatever was open has ended, or does now
            self._engine.call(give_up)

    def observe(self, observer: Observer) -> None:
        """Tell it from now on what happens, first of all who is connected.

        Raises AgentError after `close`, UserInputError for what cannot be called.
        """
        check_process(self._process)
        if not callable(getattr(observer, "observe", None)):
            raise UserInputError(
                f"an object of type {type(observer).__name__} cannot be told", where="observer"
            )
        self._engine.call(lambda: self._engine.observe(observer, is_wanted=True))

    def stop_observing(self, observer: Observer) -> None:
        """Tell it nothing more, soon; nothing happens after `close`."""
        check_process(self._process)
        try:
            self._engine.call(lambda: self._engine.observe(observer, is_wanted=False))
        except AgentError:
            self._engine.watch.remove(observer)  # no thread is left to do it

    def snapshot(self, timeout_seconds: float = 1.0) -> AgentSnapshot:
        """What has been counted until now.

        Raises AgentError after `close`, DeadlineExceededError where the engine does not answer in time.
        """
        self._may_wait("a snapshot")
        limit = wait_limit("timeout_seconds", timeout_seconds)
        answers: queue.SimpleQueue[AgentSnapshot | OSError] = queue.SimpleQueue()

        def take() -> None:
            try:
                answers.put(self._engine.snapshot())
            except OSError as error:
                answers.put(error)

        self._engine.call(take)
        try:
            answer = answers.get(timeout=limit)
        except queue.Empty:
            raise DeadlineExceededError(f"the engine did not answer within {limit:g} s") from None
        if isinstance(answer, OSError):
            raise CancelledError("the agent is closed") from answer
        return answer

    def close(self, reason: str = "done") -> None:
        """End everything; open transfers complete with an error. Raises UserInputError in the agent's own
        thread."""
        self._may_wait("closing the agent")
        reason = text_given("reason", reason)
        self._engine.close(reason)
        if self._marking is not None:
            self._marking.close()
        for peer, key, direction in list(self._posts):
            self._end(peer, key, direction, CancelledError("the agent was closed", peer=peer), None)
        watch = self._engine.watch
        if watch and not self._is_closed:
            watch.tell(AgentEnded(time.monotonic_ns(), reason))
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if os.getpid() == self._process:  # a child that was forked inside leaves, too
            self.close()

    def _ahead(self, policy: ImportancePolicy) -> ImportancePolicy:
        if (
            self._marking is None or type(policy) is not ByMagnitude
        ):  # a user's own stays in the agent's thread
            return policy
        return self._marking.ahead(policy)

    def _may_post(self, peer: str, key: TransferKey) -> None:
        try:
            check_process(self._process)
        except AgentError as error:
            raise named(error, peer, key) from None

    def _post(
        self,
        place: Place,
        posted_ns: int,
        completions: CompletionQueue | None,
        memory: NDArray[np.uint8],
        checksum: int | None,
        begin: Callable[[], None],
    ) -> Transfer:
        peer, key, direction = place
        transfer = Transfer(peer, key, direction, self.cancel)
        told = self.completions if completions is None else completions
        post = Post(transfer, told, memory, checksum)
        with self._lock:
            if self._settings.catch_reuse:
                refuse_shared(post, place, self._posts.copy())
            if self._posts.setdefault(place, post) is not post:
                raise UserInputError(
                    f"round {key.round_number} of tensor {key.tensor} is posted already", where=f"peer {peer}"
                )

        def attempt() -> None:
            if self._engine.watch:
                size_bytes = memory.nbytes
                self._engine.watch.tell(
                    TransferPosted(posted_ns, peer, key.tensor, key.round_number, direction, size_bytes)
                )
            try:
                begin()
            except AgentError as error:
                # Why the connection is gone says more than that it is.
                self._end(peer, key, direction, self._peers.error_of(peer) or error, None)
            except Exception:  # noqa: BLE001  (this post alone has failed; the log says how)
                _log.exception("a post has failed")
                self._end(peer, key, direction, CancelledError("failed; the log says how", peer=peer), None)

        try:
            self._engine.call(attempt)
        except AgentError as error:
            self._posts.pop(place, None)
            raise named(error, peer, key) from error
        return transfer

    def _happened(self, peer: str, event: Event) -> None:
        """In the engine's thread."""
        match event:
            case TransferDone():
                self._end(peer, event.key, event.direction, event.error, event)
            case PeerReady():
                self._peers.connected(peer)
            case ConnectionLost():
                error = event.error
                if not error.peer:  # of the connection, which knows no name
                    error = type(error)(error.what, peer=peer)
                self._peers.lost(peer, error)

    def _no_more(self, error: AgentError) -> None:
        """In the engine's thread, at its end."""
        self._peers.close(error)
        self.completions.close()

    def _end(
        self,
        peer: str,
        key: TransferKey,
        direction: Direction,
        error: AgentError | None,
        event: TransferDone | None,
    ) -> None:
        post = self._posts.pop((peer, key, direction), None)
        if post is None:
            return
        if error is not None and error.tensor is None:  # of the connection, or of the agent
            error = named(error, peer, key)
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
            event.paths if event else (),
        )
        if post.checksum is not None and error is None and zlib.crc32(post.memory.data) != post.checksum:
            reused = BufferReusedError("its memory changed before the completion")
            completion = replace(completion, error=named(reused, peer, key))
        if self._engine.watch:
            self._engine.watch.tell(ended(completion))
        transfer, told = post.transfer, post.queue
        del post  # and its memory, which is the caller's as soon as he knows
        transfer.complete(completion, told.add)

    def _may_wait(self, what: str) -> None:
        check_process(self._process)
        refuse_to_wait(what)
