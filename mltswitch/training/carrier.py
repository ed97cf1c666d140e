"""The carrier over a host agent: turns a node's posts (transfers to start) into sends and receives of the
agent's channel `training`.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent import (
    Agent,
    AgentError,
    CancelledError,
    Channel,
    Completion,
    CompletionQueue,
    DeadlineExceededError,
    Gather,
    ProtocolViolationError,
    ReceiveRequest,
    SendRequest,
    TooManyTransfersError,
    Transfer,
    TransferMismatchError,
)
from mltswitch.training.auxiliary import detouring
from mltswitch.training.axes import Crossing, Direction, Elements, Key, Post, Stage, axes_of
from mltswitch.training.changes import changing
from mltswitch.training.errors import NodeLateError
from mltswitch.training.job import Job
from mltswitch.training.links import Arrival
from mltswitch.training.rounds import CHANNEL, priority_of, sums_have_ages
from mltswitch.training.shortening import lengthen, shortened

PATIENCE: Final = 2.0
"""Deadline of a transfer over that of its exchange, longer since the node knows better which peer is late."""
WITHDRAWN: Final = "withdrawn"
_FAULTS: Final = (TransferMismatchError, ProtocolViolationError, TooManyTransfersError)
ROUNDS_GATHERED: Final = 8
"""How many rounds the transport's gathers are kept, in which they may still get posts (transfers)."""


class AgentCarrier:
    """Sends and receives a node's gradients through its host agent, on the agent's channel `training`."""

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
        """The gathers of the last rounds, where the transport closes early."""
        self._open: dict[Key, Transfer] = {}
        """Those that may be withdrawn."""
        self._short: dict[Key, tuple[NDArray[np.uint16], Elements]] = {}
        """Receives that cross as bfloat16: what comes, and where it belongs."""
        kind, topology = axes_of(job)
        is_asked = changing(topology) is not None or detouring(topology) is not None
        self._is_kept = job.continues or is_asked
        """Whether somebody asks for what has come so far, or withdraws it."""
        self._has_age = sums_have_ages(job)
        self._varies = kind.votes
        """Whether pieces of one round belong to different steps: they end each by itself, and have no age."""

    def post(self, posts: Sequence[Post]) -> None:
        """Start these posts (transfers), with one call of the agent for each peer and direction."""
        groups: defaultdict[tuple[int, Direction], list[Post]] = defaultdict(list)
        for post in posts:
            groups[post.peer, post.direction].append(post)
        for (peer, direction), group in groups.items():
            name = self._names[peer]
            try:
                if direction is Direction.SEND:
                    begun = self.channel.post_sends(name, [*map(self._send, group)], self._inbox)
                else:
                    begun = self.channel.post_receives(name, [*map(self._receive, group)], self._inbox)
                if self._is_kept:
                    self._open.update(zip((post.key for post in group), begun, strict=True))
            except AgentError as error:
                for post in group:
                    self._short.pop(post.key, None)
                    self.failed.append(Crossing(post.key, error=error, is_fault=isinstance(error, _FAULTS)))

    def withdraw(self, keys: Iterable[Key]) -> None:
        """Cancel transfers; each ends soon with the reason at both ends."""
        for key in keys:
            if key in self._open:
                self._open[key].cancel(WITHDRAWN)

    def arriving(self) -> list[Arrival]:
        """What has come so far of pieces that are on their way to this node."""
        found = []
        for (direction, peer, _, _), transfer in self._open.items():
            if direction is Direction.RECEIVE:
                said = transfer.progress
                found.append(Arrival(peer, said.bytes_received, said.first_ns, said.last_ns))
        return found

    def abort(self, reason: str) -> None:
        """Disconnect from all other nodes, with the reason."""
        for name in self._names:
            if name != self._agent.name:
                self._agent.disconnect(name, reason[:200])

    def crossing(self, completion: Completion) -> Crossing:
        """The crossing that a completion of the agent stands for."""
        direction = Direction(completion.direction.value)
        peer = self._numbers[completion.peer]
        key = (direction, peer, completion.tensor, completion.round_number)
        self._open.pop(key, None)
        error: Exception | None = completion.error
        if isinstance(error, DeadlineExceededError):
            error = NodeLateError(str(error), where=self._job.node_name(peer))
        came = self._short.pop(key, None)
        if direction is Direction.SEND or error is not None:
            is_withdrawn = isinstance(error, CancelledError) and WITHDRAWN in error.what
            return Crossing(key, error=error, is_withdrawn=is_withdrawn, is_fault=isinstance(error, _FAULTS))
        if came is not None:
            lengthen(*came)
        said = completion.statistics
        # who has not been told how many packets are important has not been sent all
        is_cut = said.ending in {"taken", "percentage", "deadline"} or said.important_packets is None
        arrival = said.bytes_received, said.first_ns, said.last_ns
        return Crossing(key, tuple(completion.missing), is_cut=is_cut, arrival=arrival)

    def _send(self, post: Post) -> SendRequest:
        classes = self._agent.config.classes
        assert classes is not None, "a resolved configuration has classes"  # noqa: S101
        layers, points = len(self._job.layers), len(classes.gradient_dscp)
        is_planned = classes.layers == layers and post.stage is Stage.NOW
        number = points - 1 if post.stage is Stage.LATER else post.layer * points // layers
        return SendRequest(
            data=shortened(post.data) if post.is_short else post.data,
            element_type=self._job.wire_type if post.is_short else None,
            tensor=post.tensor,
            round_number=post.round_number,
            layer=post.layer * (classes.layers or layers) // layers,
            priority=priority_of(post, has_age=self._has_age),
            traffic_class=None if is_planned else f"gradient-{number}",
            importance=None if self._loss_bound(post) else "all",
            deadline_seconds=PATIENCE * self._job.deadline_seconds,
        )

    def _loss_bound(self, post: Post) -> float:
        """Where rounds close early, what comes later is waited for."""
        return 0.0 if self.channel.closes_early and post.stage is Stage.LATER else post.loss_bound

    def _receive(self, post: Post) -> ReceiveRequest:
        bound = self._loss_bound(post)
        buffer: NDArray[Any] = np.empty(len(post.data), np.uint16) if post.is_short else post.data
        if post.is_short:
            self._short[post.key] = buffer, post.data
        return ReceiveRequest(
            buffer=buffer,
            element_type=self._job.wire_type if post.is_short else None,
            tensor=post.tensor,
            round_number=post.round_number,
            loss_bound=bound,
            deadline_seconds=PATIENCE * self._job.deadline_seconds,
            deadline_from="first-byte" if post.is_early else "post",
            gather=self._gather(post) if self.channel.closes_early and bound and not self._varies else None,
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
