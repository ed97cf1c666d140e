"""A job's node over a host agent: one thread that drives it, adds up, and tells whoever waits.

with Group(rank, world, "env://", config=config) as group:
    node = AgentNode(job, group.rank, group.agent, group.names)
    node.ready(step, pieces, own, result)
    node.wait(step)
"""

import logging
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
from pydantic import TypeAdapter, ValidationError

from mltswitch.errors import UserInputError
from mltswitch.hostagent import (
    Agent,
    AgentConfig,
    AgentError,
    Channel,
    Completion,
    CompletionQueue,
    DeadlineExceededError,
    Gather,
    Group,
    ReceiveRequest,
    SendRequest,
)
from mltswitch.hostagent.telemetry.events import AgentEvent, PeerLost
from mltswitch.training.axes import Crossing, Direction, Elements, Post, Stage, axes_of
from mltswitch.training.errors import JobMismatchError, NodeLateError, NodeLostError, TrainingError
from mltswitch.training.job import Job
from mltswitch.training.node import Node
from mltswitch.training.sums import Loss

_log: Final = logging.getLogger(__name__)
CHANNEL: Final = "training"
TURN_SECONDS: Final = 0.5
"""Between looks at deadlines and at what other nodes say."""
MEETING_TURN_SECONDS: Final = 0.02
PATIENCE: Final = 2.0
"""Deadline of a transfer over that of its exchange: the node knows better whom to blame."""
MEETING_SECONDS: Final = 60.0
LEAVING_SECONDS: Final = 10.0
"""For the others to be done, too, when a node leaves."""
ROUNDS_GATHERED: Final = 8
"""Of the transport's gathers that may still get posts."""
MOST_LOSSES: Final = 10_000
"""Kept for `take_losses`, which nobody may call."""
JOB_TENSOR: Final = (1 << 32) - 1
PARAMETER_TENSOR: Final = JOB_TENSOR - 1
MOST_JOB_BYTES: Final = 256 << 20

_Key = tuple[Direction, int, int, int]


_Call = Callable[[int], None]
"""Something for the node's thread to do, at a time in ns."""


class _Inbox(CompletionQueue):
    """Where completions and everything else meet, in the order in which they happen."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: queue.SimpleQueue[Completion | _Call | PeerLost | None] = queue.SimpleQueue()

    def add(self, completion: Completion) -> None:
        self.entries.put(completion)


class AgentCarrier:
    """Posts of one node on the channel `training` of its agent."""

    def __init__(self, job: Job, agent: Agent, names: Sequence[str], inbox: CompletionQueue) -> None:
        self._job = job
        self._agent = agent
        self._names: Final = tuple(names)
        self._numbers: Final = {name: number for number, name in enumerate(names)}
        self._inbox = inbox
        self.channel: Final[Channel] = agent.channel(CHANNEL, transport=job.transport)
        self.failed: list[Crossing] = []
        """Posts that could not begin."""
        self._gathers: dict[int, Gather] = {}
        """Of the last rounds, where the transport closes early."""
        self._varies = axes_of(job)[0].votes
        """Whether pieces of one round belong to different steps, so that they end each by itself."""

    def post(self, posts: Sequence[Post]) -> None:
        """One post of the agent for each peer and direction."""
        groups: defaultdict[tuple[int, Direction], list[Post]] = defaultdict(list)
        for post in posts:
            groups[post.peer, post.direction].append(post)
        for (peer, direction), group in groups.items():
            name = self._names[peer]
            try:
                if direction is Direction.SEND:
                    self.channel.post_sends(name, [*map(self._send, group)], self._inbox)
                else:
                    self.channel.post_receives(name, [*map(self._receive, group)], self._inbox)
            except AgentError as error:
                self.failed += [Crossing(post.key, error=error) for post in group]

    def abort(self, reason: str) -> None:
        """Say goodbye to all others, with the reason."""
        for name in self._names:
            if name != self._agent.name:
                self._agent.disconnect(name, reason[:200])

    def crossing(self, completion: Completion) -> Crossing:
        """What a completion means to the node."""
        direction = Direction(completion.direction.value)
        peer = self._numbers[completion.peer]
        key = (direction, peer, completion.tensor, completion.round_number)
        error: Exception | None = completion.error
        if isinstance(error, DeadlineExceededError):
            error = NodeLateError(str(error), where=self._job.node_name(peer))
        is_receive = direction is Direction.RECEIVE and error is None
        return Crossing(key, tuple(completion.missing) if is_receive else (), error)

    def _send(self, post: Post) -> SendRequest:
        classes = self._agent.config.classes
        assert classes is not None, "a resolved configuration has classes"  # noqa: S101
        layers, points = len(self._job.layers), len(classes.gradient_dscp)
        is_planned = classes.layers == layers and post.stage is Stage.NOW
        number = points - 1 if post.stage is Stage.LATER else post.layer * points // layers
        return SendRequest(
            data=post.data,
            tensor=post.tensor,
            round_number=post.round_number,
            layer=post.layer * (classes.layers or layers) // layers,
            traffic_class=None if is_planned else f"gradient-{number}",
            deadline_seconds=PATIENCE * self._job.deadline_seconds,
        )

    def _receive(self, post: Post) -> ReceiveRequest:
        closes_early = self.channel.closes_early and post.stage is Stage.NOW
        waits_for_all = self.channel.closes_early and post.stage is Stage.LATER
        return ReceiveRequest(
            buffer=post.data,
            tensor=post.tensor,
            round_number=post.round_number,
            loss_bound=0.0 if waits_for_all else post.loss_bound,
            deadline_seconds=PATIENCE * self._job.deadline_seconds,
            deadline_from="first-byte" if post.is_early else "post",
            gather=self._gather(post) if closes_early and post.loss_bound and not self._varies else None,
        )

    def _gather(self, post: Post) -> Gather:
        """All that this node receives in a round ends together."""
        gather = self._gathers.get(post.round_number)
        if gather is None:
            gather = self._gathers[post.round_number] = self.channel.gather(
                least_percentage=1 - post.loss_bound
            )
            if len(self._gathers) > ROUNDS_GATHERED:
                del self._gathers[next(iter(self._gathers))]
        return gather


def share_job(job: Job, group: Group, parameters: Elements | None = None) -> None:
    """Rank 0 tells the servers, which have no model, what the job is, and the parameters that they keep.

    Raises NodeLostError.
    """
    text = np.frombuffer(TypeAdapter(Job).dump_json(job), np.uint8)
    try:
        for server in range(job.world, job.nodes):
            peer = group.peer(server)
            group.agent.send_message(peer, str(len(text)).encode(), MEETING_SECONDS)
            send = partial(group.agent.post_send, peer, traffic_class="gradient-0")
            send(text, tensor=JOB_TENSOR).wait(MEETING_SECONDS)
            if parameters is not None:
                send(parameters, tensor=PARAMETER_TENSOR).wait(job.deadline_seconds)
    except AgentError as error:
        raise NodeLostError(str(error), where=job.node_name(server)) from None


def serve(
    server: int,
    world: int,
    servers: int,
    rendezvous: str,
    *,
    config: AgentConfig | None = None,
    timeout_seconds: float = MEETING_SECONDS,
) -> Job:
    """A parameter server's whole life: meets the ranks, makes sums, ends with them.

    Args:
        server: its number, from 0.
        world: how many ranks there are.
        servers: how many servers there are.
        rendezvous: as `Group` takes it; the ranks have the same one.
        config: of this server's agent; None: one for loopback.
        timeout_seconds: until all have come, and rank 0 has told the job.

    Returns the job. Raises UserInputError, MachineError, AgentError where not all come, and TrainingError
    where the job ends otherwise than by the ranks' goodbye.
    """
    number = world + server
    with Group(number, world + servers, rendezvous, config=config, timeout_seconds=timeout_seconds) as group:
        size = group.agent.receive_message(group.peer(0), timeout_seconds)
        if not size.isdigit() or int(size) > MOST_JOB_BYTES:
            raise JobMismatchError("tells no job of this version", where="rank 0")
        text = np.empty(int(size), np.uint8)
        group.agent.post_receive(group.peer(0), text, tensor=JOB_TENSOR).wait(timeout_seconds)
        try:
            job = TypeAdapter(Job).validate_json(text.tobytes())
        except (ValidationError, UserInputError):
            raise JobMismatchError("tells no job of this version", where="rank 0") from None
        if (job.world, job.servers) != (world, servers):
            problem = f"has {job.world} ranks and {job.servers} servers, and here are {world} and {servers}"
            raise JobMismatchError(problem, where="rank 0")
        parameters = None
        if axes_of(job)[0].needs.lone_pushes:
            parameters = np.empty(job.elements, job.element_type)
            into = group.agent.post_receive(group.peer(0), parameters, tensor=PARAMETER_TENSOR)
            into.wait(timeout_seconds)
        node = AgentNode(
            job, number, group.agent, group.names, parameters=parameters, timeout_seconds=timeout_seconds
        )
        node.serve()
    return job


class AgentNode:
    """A rank or a server over its agent; any thread may call.

    Args:
        job: what all nodes agree on.
        number: of this node.
        agent: connected with all the others.
        names: of all nodes' agents, by number.
        arrived: is called in this node's thread for each piece whose result is there, with step, piece and
            stage.
        failed: is called in this node's thread with what ends the job.
        parameters: as `Node` has them.
        timeout_seconds: until all nodes have come.

    Raises UserInputError for axes that make no sense, and what `wait` raises where the nodes do not meet or
    disagree on the job.
    """

    def __init__(
        self,
        job: Job,
        number: int,
        agent: Agent,
        names: Sequence[str],
        *,
        arrived: Callable[[int, int, Stage], object] | None = None,
        failed: Callable[[TrainingError], object] | None = None,
        parameters: Elements | None = None,
        timeout_seconds: float = MEETING_SECONDS,
    ) -> None:
        self.job: Final = job
        self.node: Final = Node(job, number, parameters)
        self._inbox = _Inbox()
        self._carrier = AgentCarrier(job, agent, names, self._inbox)
        self._agent = agent
        self._names: Final = tuple(names)
        self._arrived = arrived
        self._failed = failed
        self._changed = threading.Condition()
        self._error: TrainingError | None = None
        self._losses: deque[Loss] = deque(maxlen=MOST_LOSSES)
        self._is_closing = self._is_leaving = False
        self._has_told = False
        """Whether the others have been told that this node leaves."""
        self._has_warned = False
        self._listened_seconds = 0.0
        others = [name for name in names if name != agent.name]
        try:
            self._carrier.channel.wait_for_peers(others, timeout_seconds)
        except AgentError as error:
            raise NodeLostError(str(error)) from None
        agent.observe(self)
        self._thread = threading.Thread(target=self._run, name=f"training-{number}", daemon=True)
        self._thread.start()
        self._meet(timeout_seconds)

    def ready(self, step: int, pieces: Sequence[int], own: Elements, result: Elements) -> None:
        """Own gradients of pieces are there; see `Node.ready`. Raises what has ended the job."""
        self.call(lambda now_ns: self.node.ready(step, pieces, own, result, now_ns))

    def computed(self, step: int, loss: float, seconds: float, own: Elements, result: Elements) -> None:
        """All of a step are there; see `Node.computed`. Raises what has ended the job."""
        self.call(lambda now_ns: self.node.computed(step, loss, seconds, own, result, now_ns))

    def drain(self, step: int, zeros: Elements, result: Elements) -> None:
        """See `Node.drain`; waits until it is. Raises what has ended the job."""
        is_asked = threading.Event()

        def ask(now_ns: int) -> None:
            self.node.drain(step, zeros, result, now_ns)
            is_asked.set()

        self.call(ask)
        self.wait_until(lambda: is_asked.is_set() and self.node.is_drained)

    def call(self, call: _Call) -> None:
        """Do something in the node's thread, before what is asked later. Raises what has ended the job."""
        self._check()
        self._inbox.entries.put(call)

    def wait(self, step: int) -> None:
        """Until the rank may begin the step after this one, and that step's vectors are its own again.

        Vectors serve every second step, or as many as the synchronization's lag adds to that. Raises
        TrainingError that names the node to blame where the job has ended.
        """
        assert self.node.member is not None, "a server has no steps"  # noqa: S101
        before = step - 1 - self.node.member.lag
        self.wait_until(lambda: self.node.may_compute(step + 1) and self.node.is_over(before))

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Until something is true that only the node's thread changes; raises what has ended the job."""
        with self._changed:
            while self._error is None and not is_true():
                self._changed.wait(TURN_SECONDS)
        self._check()

    def serve(self) -> None:
        """A server's life: until the ranks say goodbye. Raises TrainingError where they end otherwise."""
        self.wait_until(lambda: self.node.has_left_all)
        self.close()

    def take_losses(self) -> list[Loss]:
        """What bounds have left out of sums at this node since the last call; of many the last ones."""
        with self._changed:
            losses = [*self._losses]
            self._losses.clear()
        return losses

    def close(self, reason: str = "") -> None:
        """Take no more part; the agent stays.

        Waits a little for the others to be done, too, for they may still need what this node has. With a
        reason, that of an error here, it ends the job for all at once.
        """
        with self._changed:
            if reason:
                self.node.fail(NodeLostError(reason, where=self.job.node_name(self.node.number)))
                self._end()
            elif self._error is None and self.node.has_met_all:
                self.node.leave()
                self._is_leaving = True
                self._inbox.entries.put(None)
                until = time.monotonic() + LEAVING_SECONDS
                while self._error is None and time.monotonic() < until:
                    if self.node.is_idle and self.node.has_left_all and self._has_told:
                        break
                    self._changed.wait(MEETING_TURN_SECONDS)
        self._is_closing = True
        self._agent.stop_observing(self)
        self._inbox.entries.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(MEETING_SECONDS)
        with self._changed:
            if self._error is None:  # whoever comes later, or still waits, must not wait for ever
                self._error = NodeLostError("has left the job", where=self.job.node_name(self.node.number))
            self._changed.notify_all()

    def observe(self, event: AgentEvent) -> None:
        """For the agent."""
        if isinstance(event, PeerLost):
            self._inbox.entries.put(event)

    def _check(self) -> None:
        error = self._error
        if error is not None:
            # a new one each time: it must not keep the frames of whoever was told before
            raise type(error)(error.what, where=error.where, hint=error.hint)

    def _meet(self, timeout_seconds: float) -> None:
        until = time.monotonic() + timeout_seconds
        with self._changed:
            while self._error is None and not self.node.has_met_all:
                if time.monotonic() > until:
                    problem = f"not all nodes have told their job within {timeout_seconds:g} s"
                    self._error = NodeLateError(problem)
                self._changed.wait(MEETING_TURN_SECONDS)
        if self._error is not None:
            self.close()
            self._check()

    # The node's own thread

    def _run(self) -> None:
        try:
            while not self._is_closing and self._error is None:
                self._turn()
        except Exception as error:  # noqa: BLE001  (whoever waits must hear of it, whatever it is)
            here = self.job.node_name(self.node.number)
            self.node.fail(NodeLostError(f"{type(error).__name__}: {error}", where=here))
            self._end()

    def _turn(self) -> None:
        is_talking = self._is_leaving or not self.node.has_met_all
        pause = MEETING_TURN_SECONDS if is_talking else TURN_SECONDS
        if time.monotonic() - self._listened_seconds > pause:
            self._listened_seconds = time.monotonic()
            is_leaving = self._is_leaving
            self._tell_and_listen()
            self._has_told = is_leaving
        try:
            entry = self._inbox.entries.get(timeout=pause)
        except queue.Empty:
            entry = None
        with self._changed:
            while entry is not None:
                self._take(entry)
                try:
                    entry = self._inbox.entries.get_nowait()
                except queue.Empty:
                    entry = None
            self.node.check(time.monotonic_ns())
            self._do()

    def _take(self, entry: Completion | _Call | PeerLost) -> None:
        now_ns = time.monotonic_ns()
        match entry:
            case Completion():
                if entry.error is not None:
                    self._listen(self._names.index(entry.peer))
                self.node.crossed(self._carrier.crossing(entry), now_ns)
            case PeerLost(peer=peer) if peer in self._names:
                number = self._names.index(peer)
                self._listen(number)
                self.node.lost(number, entry.reason, now_ns)
            case PeerLost():
                pass  # of another job
            case _:
                entry(now_ns)
                step = self.node.first_nonfinite_step
                if step is not None and not self._has_warned:
                    self._has_warned = True
                    name = self.job.node_name(self.node.number)
                    _log.warning("%s, step %d: gradients with NaN or infinity are passed on", name, step)

    def _do(self) -> None:
        """What the node wants done; a post that cannot begin ends at once."""
        while self.node.error is None and (posts := self.node.take_posts()):
            self._carrier.post(posts)
            failed, self._carrier.failed = self._carrier.failed, []
            for crossing in failed:
                self.node.crossed(crossing, time.monotonic_ns())
        self._losses += self.node.take_losses()
        arrived = self.node.take_arrived()
        if self._arrived is not None:
            for step, total in arrived:
                self._arrived(step, total.piece, total.stage)
        if self.node.error is not None:
            self._end()
        self._changed.notify_all()

    def _tell_and_listen(self) -> None:
        """Short messages of nodes to all others: their job at first, and how far they are past a deadline."""
        for word in self.node.take_words():
            for name in self._names:
                if name != self._agent.name:
                    self._message(name, word)
        for number, name in enumerate(self._names):
            if name != self._agent.name:
                with self._changed:
                    self._listen(number)

    def _listen(self, number: int) -> None:
        """What a node has said; also the last words of one that has left."""
        for word in self._heard(self._names[number]):
            self.node.told(number, word)

    def _message(self, name: str, word: bytes) -> None:
        try:
            self._carrier.channel.send_message(name, word)
        except AgentError as error:
            with self._changed:
                self.node.lost(self._names.index(name), error.what, time.monotonic_ns())

    def _heard(self, name: str) -> list[bytes]:
        words: list[bytes] = []
        try:
            while True:
                words.append(self._carrier.channel.receive_message(name, 0.0))
        except (DeadlineExceededError, AgentError):
            return words  # there is no more; that it is gone is told as an event

    def _end(self) -> None:
        """The job is over here: whoever waits hears why, and so do all others."""
        self._error = self.node.error
        self._carrier.abort(self.node.goodbye)
        if self._failed is not None and self._error is not None:
            self._failed(self._error)
