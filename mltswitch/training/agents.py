"""A job's node over a host agent: one thread that drives it, adds up, and tells whoever waits.

with Group(rank, world, "env://", config=config) as group:
    node = AgentNode(job, group.rank, group.agent, group.names)
    node.ready(step, pieces, own, result)
    node.wait(step)
"""

import atexit
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np
from pydantic import TypeAdapter, ValidationError

from mltswitch.errors import UserInputError
from mltswitch.hostagent import (
    Agent,
    AgentConfig,
    AgentError,
    Completion,
    CompletionQueue,
    Group,
)
from mltswitch.hostagent.telemetry.events import AgentEvent, GradientsLeftOut, PeerLost
from mltswitch.training.axes import Crossing, Elements, Stage, axes_of
from mltswitch.training.carrier import AgentCarrier
from mltswitch.training.errors import (
    EXPLAINING_SECONDS,
    JobMismatchError,
    NodeLateError,
    NodeLostError,
    TrainingError,
    cause_of,
    ending_of,
    ending_of_process,
)
from mltswitch.training.job import Job
from mltswitch.training.node import Node
from mltswitch.training.sums import Loss
from mltswitch.units import NANOSECONDS

_log: Final = logging.getLogger(__name__)
TURN_SECONDS: Final = 0.5
"""Between looks at deadlines and at what other nodes say, or a part of the deadline:"""
LOOKS: Final = 8
MEETING_TURN_SECONDS: Final = 0.02
MEETING_SECONDS: Final = 60.0
LEAVING_SECONDS: Final = 10.0
"""For the others to be done, too, when a node leaves."""
EXIT_SECONDS: Final = 2.0
"""The same, where its process ends; and for the others to have heard why."""
MOST_LOSSES: Final = 10_000
"""Kept for `take_losses`, which nobody may call."""
JOB_TENSOR: Final = (1 << 32) - 1
PARAMETER_TENSOR: Final = JOB_TENSOR - 1
MOST_JOB_BYTES: Final = 256 << 20

_Call = Callable[[int], None]
"""Something for the node's thread to do, at a time in ns."""


class _Inbox(CompletionQueue):
    """Where completions and everything else meet, in the order in which they happen."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: queue.SimpleQueue[Completion | _Call | PeerLost | None] = queue.SimpleQueue()

    def add(self, completion: Completion) -> None:
        self.entries.put(completion)


def share_job(job: Job, group: Group, parameters: Elements | None = None) -> None:
    """Rank 0 tells the servers, which have no model, what the job is, and the parameters that they keep.

    Raises NodeLostError.
    """
    text = np.frombuffer(TypeAdapter(Job).dump_json(job), np.uint8)
    try:
        for server in range(job.world, job.nodes):
            peer = group.peer(server)
            group.agent.send_message(peer, str(len(text)).encode(), MEETING_SECONDS)
            send = partial(group.agent.post_send, peer, traffic_class="gradient-0", importance="all")
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
        receive = partial(group.agent.post_receive, group.peer(0), loss_bound=0.0)
        receive(text, tensor=JOB_TENSOR).wait(timeout_seconds)
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
            receive(parameters, tensor=PARAMETER_TENSOR).wait(timeout_seconds)
        node = AgentNode(
            job, number, group.agent, group.names, parameters=parameters, timeout_seconds=timeout_seconds
        )
        try:
            node.serve()
        except TrainingError:
            raise
        except BaseException as error:
            node.close(ending_of(error))
            raise
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
        self._agreed: frozenset[int] = frozenset()
        self.report: GradientsLeftOut | None = None
        """The last one of what bounds left out, over all nodes."""
        self._listened_seconds = 0.0
        self._pause = min(TURN_SECONDS, job.deadline_seconds / LOOKS)
        self._unexplained: deque[tuple[int, int, _Call]] = deque()
        """(time in ns, node, what ends the job unless somebody says goodbye with the cause until then)."""
        others = [name for name in names if name != agent.name]
        try:
            self._carrier.channel.wait_for_peers(others, timeout_seconds)
        except AgentError as error:
            raise NodeLostError(str(error)) from None
        agent.observe(self, PeerLost)
        self._thread = threading.Thread(target=self._run, name=f"training-{number}", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)
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

    def _at_exit(self) -> None:
        """The process ends, and nobody has closed this: the others hear of an exception."""
        self.close(ending_of_process(), EXIT_SECONDS)

    def close(self, reason: str = "", patience_seconds: float = LEAVING_SECONDS) -> None:
        """Take no more part; the agent stays.

        Waits a little for the others to be done, too, for they may still need what this node has. With a
        reason, that of an error here, it ends the job for all at once.
        """
        atexit.unregister(self._at_exit)
        with self._changed:
            if reason:
                self.node.fail(NodeLostError(reason, where=self.job.node_name(self.node.number)))
                self._end()
            elif self._error is None and self.node.has_met_all:
                self.node.leave()
                self._is_leaving = True
                self._inbox.entries.put(None)
                until = time.monotonic() + patience_seconds
                while self._error is None and time.monotonic() < until:
                    if self.node.is_idle and self.node.has_left_all and self._has_told:
                        break
                    self._changed.wait(MEETING_TURN_SECONDS)
        self._is_closing = True
        self._agent.stop_observing(self)
        self._inbox.entries.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(MEETING_SECONDS)
        until = time.monotonic() + EXIT_SECONDS
        while self._error is not None and self._is_connected and time.monotonic() < until:
            time.sleep(MEETING_TURN_SECONDS)  # the others hear why before they hear that the agent closes
        with self._changed:
            if self._error is None:  # whoever comes later, or still waits, must not wait for ever
                self._error = NodeLostError("has left the job", where=self.job.node_name(self.node.number))
            self._changed.notify_all()

    def observe(self, event: AgentEvent) -> None:
        """For the agent."""
        if isinstance(event, PeerLost):
            self._inbox.entries.put(event)

    @property
    def _is_connected(self) -> bool:
        return bool({*self._agent.peers} & {*self._names})

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
        node = self.node
        is_talking = self._is_leaving or not node.has_met_all or node.is_asking or node.is_stopping
        pause = MEETING_TURN_SECONDS if is_talking or self._unexplained else self._pause
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
            now_ns = time.monotonic_ns()
            while self._unexplained and self._unexplained[0][0] <= now_ns:
                self._unexplained.popleft()[2](now_ns)
            self.node.check(now_ns)
            self._do()

    def _take(self, entry: Completion | _Call | PeerLost) -> None:
        now_ns = time.monotonic_ns()
        match entry:
            case Completion():
                self._cross(self._carrier.crossing(entry), now_ns)
            case PeerLost(peer=peer) if peer in self._names:
                self._lose(self._names.index(peer), entry.reason, now_ns)
            case PeerLost():
                pass  # of another job
            case _:
                entry(now_ns)
                step = self.node.first_nonfinite_step
                if step is not None and not self._has_warned:
                    self._has_warned = True
                    name = self.job.node_name(self.node.number)
                    _log.warning("%s, step %d: gradients with NaN or infinity are passed on", name, step)

    def _cross(self, crossing: Crossing, now_ns: int) -> None:
        if crossing.error is None or crossing.is_withdrawn or self.node.is_stopping:
            self.node.crossed(crossing, now_ns)
            return
        self._listen(crossing.key[1])
        self._explain(crossing.key[1], str(crossing.error), partial(self.node.crossed, crossing), now_ns)

    def _lose(self, number: int, reason: str, now_ns: int) -> None:
        self._listen(number)
        self._explain(number, reason, partial(self.node.lost, number, reason), now_ns)

    def _explain(self, number: int, reason: str, call: _Call, now_ns: int) -> None:
        """What breaks with a node that is gone may be noticed before its goodbye, which may blame another.

        A node that ends by an exception of its own, behind one that was lost, has ended because of it.
        """
        cause = cause_of(reason)
        if cause is None:
            until_ns = now_ns + round(EXPLAINING_SECONDS * NANOSECONDS)
            self._unexplained.append((until_ns, number, call))
            return
        earlier = (lost for _, other, lost in self._unexplained if other != number)
        blames_itself = cause.where == self.job.node_name(number)
        (next(earlier, call) if blames_itself else call)(now_ns)

    def _do(self) -> None:
        """What the node wants done; a post that cannot begin ends at once."""
        self._carrier.withdraw(self.node.take_withdrawals())
        while self.node.error is None and (posts := self.node.take_posts()):
            self._carrier.post(posts)
            failed, self._carrier.failed = self._carrier.failed, []
            for crossing in failed:
                self._cross(crossing, time.monotonic_ns())
        if self.node.agreed != self._agreed:
            names = ", ".join(map(self.job.node_name, sorted(self.node.agreed - self._agreed)))
            self._agreed = self.node.agreed
            _log.warning("%s goes on without %s", self.job.node_name(self.node.number), names)
        self._losses += self.node.take_losses()
        for report in self.node.take_reports():
            self.report = report
            self._agent.engine.tell(report)
            if self.node.number == 0:
                is_whole = not report.layer
                _log.log(logging.INFO if is_whole else logging.WARNING, "%s", report.text)
        arrived = self.node.take_arrived()
        if self._arrived is not None:
            for step, total in arrived:
                self._arrived(step, total.piece, total.stage)
        if self.node.error is not None:
            self._end()
        self._changed.notify_all()

    def _tell_and_listen(self) -> None:
        """Short messages of nodes to all others: their job at first, and how far they are past a deadline."""
        for number, name in enumerate(self._names):
            if name != self._agent.name:
                with self._changed:
                    self._listen(number)
        for word in self.node.take_words():
            for number, name in enumerate(self._names):
                try:
                    if name != self._agent.name:
                        self._carrier.channel.send_message(name, word)
                except AgentError as error:
                    with self._changed:
                        self._lose(number, error.what, time.monotonic_ns())

    def _listen(self, number: int) -> None:
        """What a node has said; also the last words of one that has left."""
        with suppress(AgentError):  # there is no more; that it is gone is told as an event
            while True:
                word = self._carrier.channel.receive_message(self._names[number], 0.0)
                self.node.told(number, word, time.monotonic_ns())

    def _end(self) -> None:
        """The job is over here: whoever waits hears why, and so do all others."""
        error = self.node.error
        if self._failed is not None and error is not None:
            self._failed(error)  # first: who is told by an exception finds it there
        self._error = error
        self._carrier.abort(self.node.goodbye)
