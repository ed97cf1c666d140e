"""A job's node over a host agent: one thread that drives the node, adds gradients, and wakes waiting callers.

with Group(rank, world, "env://", config=config) as group:
    node = AgentNode(job, group.rank, group.agent, group.names)
    node.ready(step, pieces, own, result)
    node.wait(step)
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from mltswitch.errors import UserInputError
from mltswitch.hostagent import Agent, AgentConfig, AgentError, DeadlineExceededError, Group, Transfer
from mltswitch.hostagent.telemetry.events import GradientsLeftOut
from mltswitch.training.addition import Loss
from mltswitch.training.axes import Elements, Stage, axes_of
from mltswitch.training.driver import MEETING_SECONDS, Driver
from mltswitch.training.errors import JobMismatchError, NodeLostError, TrainingError, ending_of
from mltswitch.training.job import Job
from mltswitch.training.node import Node
from mltswitch.training.views import View

_log: Final = logging.getLogger(__name__)
MOST_LOSSES: Final = 10_000
"""The most losses that are kept for `take_losses`, which nobody may call."""
JOB_TENSOR: Final = (1 << 32) - 1
PARAMETER_TENSOR: Final = JOB_TENSOR - 1
STATE_TENSOR: Final = JOB_TENSOR - 2
MOST_JOB_BYTES: Final = 256 << 20
MOST_STATE_BYTES: Final = 1 << 40
PART_BYTES: Final = 1 << 30
"""The most elements that a tensor has, since they are counted in 32 bits."""
NO_STATE: Final = b"!"
MOST_REASON_BYTES: Final = 300
AGAIN: Final = "start this rank again"
STATE_PAUSE_SECONDS: Final = 1.0


def share_job(job: Job, group: Group, parameters: Elements | None = None) -> None:
    """Send the job, and the parameters that they keep, from rank 0 to the servers, which have no model.

    Raises NodeLostError.
    """
    text = np.frombuffer(TypeAdapter(Job).dump_json(job), np.uint8)
    try:
        for server in range(job.world, job.nodes):
            peer = group.peer(server)
            for transfer in _send_all(group.agent, peer, text, JOB_TENSOR, MEETING_SECONDS):
                transfer.wait(MEETING_SECONDS)
            if parameters is not None:
                seconds = job.deadline_seconds
                _post(group.agent, peer, parameters, PARAMETER_TENSOR, seconds).wait(seconds)
    except AgentError as error:
        raise NodeLostError(str(error), where=job.node_name(server)) from None


def _post(
    agent: Agent, peer: str, data: NDArray[Any], tensor: int, seconds: float, *, number: int = 0
) -> Transfer:
    return agent.post_send(
        peer,
        data,
        tensor=tensor,
        round_number=number,
        traffic_class="gradient-0",
        importance="all",
        deadline_seconds=seconds,
    )


def _send_all(
    agent: Agent, peer: str, data: NDArray[np.uint8], tensor: int, seconds: float
) -> list[Transfer]:
    """Bytes of which the peer does not know how many there are."""
    agent.send_message(peer, str(len(data)).encode(), MEETING_SECONDS)
    parts = enumerate(range(0, len(data), PART_BYTES))
    return [
        _post(agent, peer, data[first : first + PART_BYTES], tensor, seconds, number=number)
        for number, first in parts
    ]


def _receive_all(
    agent: Agent, peer: str, size: bytes, tensor: int, most: int, seconds: float
) -> NDArray[np.uint8]:
    """The other end; raises JobMismatchError for what no node of this version sends, AgentError."""
    if not size.isdigit() or int(size) > most:
        raise JobMismatchError("tells no job of this version", where=peer)
    data = np.empty(int(size), np.uint8)
    options: dict[str, Any] = {"loss_bound": 0.0, "deadline_seconds": seconds, "tensor": tensor}
    parts = enumerate(range(0, len(data), PART_BYTES))
    for transfer in [
        agent.post_receive(peer, data[first : first + PART_BYTES], round_number=number, **options)
        for number, first in parts
    ]:
        transfer.wait(seconds)
    return data


def serve(
    server: int,
    world: int,
    servers: int,
    rendezvous: str,
    *,
    config: AgentConfig | None = None,
    timeout_seconds: float = MEETING_SECONDS,
) -> Job:
    """Run a parameter server from its start to its end: it meets the ranks, makes sums, and ends with the
    ranks.

    Args:
        rendezvous: as `Group` takes it; the ranks have the same one.
        config: this server's agent configuration; None: one for loopback.
        timeout_seconds: how long to wait for all nodes, and for the job from rank 0.

    Returns the job. Raises UserInputError, MachineError, AgentError where not all come, and TrainingError
    where the job ends otherwise than by the ranks' goodbye.
    """
    number = world + server
    with Group(number, world + servers, rendezvous, config=config, timeout_seconds=timeout_seconds) as group:
        peer = group.peer(0)
        size = group.agent.receive_message(peer, timeout_seconds)
        text = _receive_all(group.agent, peer, size, JOB_TENSOR, MOST_JOB_BYTES, timeout_seconds)
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
            receive = group.agent.post_receive(peer, parameters, tensor=PARAMETER_TENSOR, loss_bound=0.0)
            receive.wait(timeout_seconds)
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


class AgentNode(Driver[Node]):
    """A rank or a server that runs over its host agent; its methods may be called from any thread.

    Arguments are those of `Driver` and of `Node`, and callbacks that run in the node's thread.

    Args:
        arrived: called with step, piece and stage when a piece's result has arrived.
        failed: called with the error that ends the job.
        absent: nodes that a restarted rank does not find; its first step is `node.first_step`.

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
        absent: frozenset[int] | None = None,
    ) -> None:
        self._arrived = arrived
        self._losses: deque[Loss] = deque(maxlen=MOST_LOSSES)
        self._has_warned = False
        self._view: View | None = None
        """The last one that has been told."""
        self.report: GradientsLeftOut | None = None
        """The last one of what bounds left out, over all nodes."""
        node = Node(job, number, parameters, absent)
        self._planner = None if node.changes is None else ThreadPoolExecutor(1, thread_name_prefix="routes")
        if node.changes is not None:
            node.changes.executor = self._planner
        self._problem = ""
        super().__init__(node, agent, names, failed=failed, timeout_seconds=timeout_seconds)

    def ready(self, step: int, pieces: Sequence[int], own: Elements, result: Elements) -> None:
        """Report that this rank's gradients of some pieces are ready, as `Node.ready`. Raises the error that
        ended the job."""
        self.call(lambda now_ns: self.node.ready(step, pieces, own, result, now_ns))

    def computed(self, step: int, loss: float, seconds: float, own: Elements, result: Elements) -> None:
        """Report that a step's backward pass is over, as `Node.computed`. Raises the error that ended the
        job."""
        self.call(lambda now_ns: self.node.computed(step, loss, seconds, own, result, now_ns))

    def drain(self, step: int, zeros: Elements, result: Elements) -> None:
        """Exchange what is still outstanding, as `Node.drain`, and wait for it. Raises the error that ended
        the job."""
        is_asked = threading.Event()

        def ask(now_ns: int) -> None:
            self.node.drain(step, zeros, result, now_ns)
            is_asked.set()

        self.call(ask)
        self.wait_until(lambda: is_asked.is_set() and self.node.is_drained)

    def wait(self, step: int) -> None:
        """Wait until the rank may begin the next step, and the vectors of this one may be used again.

        Vectors serve every second step, or later ones if the synchronization has a lag. Raises
        TrainingError that names the node to blame where the job has ended.
        """
        assert self.node.member is not None, "a server has no steps"  # noqa: S101
        before = step - 1 - self.node.member.lag
        self.wait_until(lambda: self.node.may_compute(step + 1) and self.node.is_over(before))

    def close(self, reason: str = "", patience_seconds: float | None = None) -> None:
        """Leave the job as `Driver.close` does, and stop planning routes."""
        super().close(reason, patience_seconds)
        if self._planner is not None:
            self._planner.shutdown(wait=False)

    def newcomer(self, step: int) -> int | None:
        """The rank that begins with this step and gets the ranks' common state from this node; None: there is
        none.

        It must be called at the beginning of each step, after `wait` for the step before.
        """
        with self._changed:
            rank, first = self.node.entering or (None, 0)
            return rank if first == step and self.node.giver == self.node.number else None

    def give_state(self, rank: int, make: Callable[[], NDArray[np.uint8]]) -> None:
        """Send the training state, the bytes that `make` returns, to a rank that comes back to the job.

        The rank takes it by `take_state`. Where sending fails, this node trains on.
        """
        name = self._names[rank]
        try:
            _send_all(self._agent, name, make(), STATE_TENSOR, self.job.deadline_seconds)
        except Exception as error:  # noqa: BLE001  (the newcomer's matter alone)
            _log.warning("%s gets no state: %s", self.job.node_name(rank), error)
            with suppress(AgentError):
                self._agent.send_message(name, NO_STATE + str(error).encode()[:MOST_REASON_BYTES], 1.0)

    def take_state(self) -> NDArray[np.uint8]:
        """At a rank that returns: wait for the state that another rank gives it at its first step. Raises
        NodeLostError where that rank is gone or cannot give it, and the error that ended the job."""
        giver = self.node.giver
        while giver is not None and giver == self.node.giver and not self.node.has_left(giver):
            self._check()
            name, seconds = self._names[giver], self.job.deadline_seconds
            try:
                size = self._agent.receive_message(name, STATE_PAUSE_SECONDS)
                if size.startswith(NO_STATE):
                    raise NodeLostError(size[1:].decode(errors="replace"), where=self.job.node_name(giver))
                state = _receive_all(self._agent, name, size, STATE_TENSOR, MOST_STATE_BYTES, seconds)
            except DeadlineExceededError:
                continue
            except AgentError as error:
                problem = f"was to give this rank its state, and {error.what}"
                raise NodeLostError(problem, where=self.job.node_name(giver), hint=AGAIN) from None
            self.wait_until(lambda: self.node.has_caught_up)
            return state
        self._check()
        raise NodeLostError("nobody is left who gives this rank its state", hint=AGAIN)

    def serve(self) -> None:
        """Run a server until the ranks say goodbye. Raises TrainingError where the job ends otherwise."""
        self.wait_until(lambda: self.node.has_left_all)
        self.close()

    def take_losses(self) -> list[Loss]:
        """Elements that loss bounds left out of sums at this node since the last call, at most the newest
        MOST_LOSSES."""
        with self._changed:
            losses = [*self._losses]
            self._losses.clear()
        return losses

    def _tell_view(self) -> None:
        before, view = self._view, self.node.view
        assert view is not None  # noqa: S101
        self._view, here = view, self.job.node_name(self.node.number)
        lost = sorted(view.gone - (frozenset() if before is None else before.gone))
        reasons = ((node, self.node.reasons.get(node, "")) for node in lost)
        names = ", ".join(self.job.node_name(node) + (f" ({why})" if why else "") for node, why in reasons)
        if names:
            _log.warning("%s goes on without %s", here, names)
        if view.entering is not None and (before is None or before.entering != view.entering):
            node, step = view.entering
            _log.warning("%s: %s is there again, from step %d on", here, self.job.node_name(node), step)

    def _tell_user(self) -> None:
        step, here = self.node.ballots.first_nonfinite_step, self.job.node_name(self.node.number)
        if step is not None and not self._has_warned:
            self._has_warned = True
            _log.warning("%s, step %d: gradients with NaN or infinity are passed on", here, step)
        if self.node.view is not self._view:
            self._tell_view()
        learned = self.node.changes.take_learned() if self.node.changes is not None else None
        if learned is not None:
            self._agent.engine.tell(learned)
            if learned.problem != self._problem:
                self._problem = learned.problem
                _log.warning("%s, routes: %s", here, learned.problem)
        self._losses += self.node.take_losses()
        for report in self.node.take_reports():
            self.report = report
            self._agent.engine.tell(report)
            if self.node.gone.issuperset(range(self.node.number)):
                is_whole = not report.layer
                _log.log(logging.INFO if is_whole else logging.WARNING, "%s", report.text)
        arrived = self.node.take_arrived()
        if self._arrived is not None:
            for step, total in arrived:
                self._arrived(step, total.piece, total.stage)
