"""One peer on one channel over `mlt`: posts become transfers of the data plane, results the agent's."""

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.errors import (
    AgentError,
    CancelledError,
    DeadlineExceededError,
    PeerUnreachableError,
    ProtocolViolationError,
    TooManyTransfersError,
    TransferMismatchError,
)
from mltswitch.hostagent.protocol.frames import text as printable
from mltswitch.hostagent.spraying.shares import path_weights
from mltswitch.hostagent.tagging.policies import Compiled, important_packets
from mltswitch.hostagent.transport.description import (
    AtDeadline,
    ConnectionSnapshot,
    Moment,
    Outcome,
    PathSnapshot,
    Progress,
    Receive,
    Send,
    StopRule,
    TransferStatistics,
)

if TYPE_CHECKING:
    from mltswitch.hostagent.dataplane import binding
    from mltswitch.hostagent.transport.mlt import MltEngine

ECT: Final = 2
"""ECT(0) in the DSCP/ECN byte: ECN-capable, which is what important means."""
LONGEST_WAIT_NS: Final = 200_000_000
"""In C, between two looks at whether the user has interrupted."""
NAME: Final = "mlt"


class MltConnection:
    """One flow."""

    def __init__(
        self, engine: "MltEngine", peer: str, channel: str, token: int, paths: int, body_bytes: int
    ) -> None:
        self.engine: Final = engine
        self.peer: Final = peer
        self.channel: Final = channel
        self.paths: Final = paths
        self.refused: Final[dict[int, str]] = {}
        """By path: why the kernel would not send."""
        self.closed_by: AgentError | None = None
        self._weighed: tuple[PathSnapshot, ...] = ()
        self._token = token
        self._body_bytes = body_bytes
        """Of a datagram, elements alone."""

    def post_sends(self, requests: Sequence[Send]) -> list["MltTicket"]:
        """See Connection."""
        binding = self.engine.binding
        return self._posted(
            self.engine.plane.post_sends, requests, [self._send(binding, r) for r in requests]
        )

    def post_receives(self, requests: Sequence[Receive]) -> list["MltTicket"]:
        """See Connection."""
        binding = self.engine.binding
        return self._posted(
            self.engine.plane.post_receives,
            requests,
            [self._receive(binding, request) for request in requests],
        )

    def _send(self, binding: Any, request: Send) -> Any:
        memory, policy, important = request.memory, request.importance, None
        if isinstance(policy, Compiled):
            kind = _COMPILED[policy.name]
        else:
            kind = binding.Importance.BITMAP
            flags = important_packets(policy, memory, self._body_bytes // memory.element_type.size_bytes)
            important = np.packbits(flags, bitorder="little").tobytes()
        return binding.Send(
            flow=self._token,
            elements=memory.data,
            element_count=memory.element_count,
            element_type=int(memory.element_type),
            tensor=request.tensor,
            round=request.round_number,
            layer=request.layer,
            priority=request.layer,
            burst_packets=request.burst_packets,
            importance=kind,
            important=important,
            tos_important=request.dscp << 2 | ECT,
            tos_unimportant=request.dscp << 2,
            deadline_ns=request.deadline_ns,
            moment=_MOMENTS[request.deadline_from],
        )

    def _receive(self, binding: Any, request: Receive) -> Any:
        memory = request.memory
        return binding.Receive(
            flow=self._token,
            elements=memory.data,
            element_count=memory.element_count,
            element_type=int(memory.element_type),
            tensor=request.tensor,
            round=request.round_number,
            policy=binding.Policy(
                loss_bound=request.loss_bound,
                important_bound=request.important_loss_bound,
                soft_ns=request.soft_ns,
                hard_ns=request.deadline_ns,
                moment=_MOMENTS[request.deadline_from],
                stop_rule=_STOPS[request.stop],
                at_hard_time=_AT_DEADLINE[request.at_deadline],
                keep_missing=request.keep_missing,
            ),
        )

    def _posted(
        self, post: Callable[[Any], list[int]], requests: Sequence[Send | Receive], entries: list[Any]
    ) -> list["MltTicket"]:
        statuses = self.engine.binding.Status
        try:
            numbers = post(entries)
        except self.engine.binding.DataPlaneError as error:
            first = requests[0]
            if error.status is statuses.INVALID:
                raise UserInputError("has too many packets", where=f"tensor {first.tensor}") from None
            if error.status is statuses.NO_MEMORY:
                raise MachineError("has no memory left for a transfer", where="data plane") from None
            problem = self._closed_error()
            if error.status is statuses.FULL:
                problem = TooManyTransfersError("more transfers are open than there may be", peer=self.peer)
            raise problem.of_transfer(first.tensor, first.round_number) from None
        self.engine.posted()
        return [MltTicket(self, request, number) for request, number in zip(requests, numbers, strict=True)]

    def send_message(self, message: bytes) -> bool:
        """See Connection."""
        try:
            return self.engine.plane.send_message(self._token, message)
        except self.engine.binding.DataPlaneError:
            raise self._closed_error() from None

    def take_message(self) -> bytes | None:
        """See Connection."""
        try:
            return self.engine.plane.take_message(self._token)
        except self.engine.binding.DataPlaneError:
            raise self._closed_error() from None

    def _closed_error(self) -> AgentError:
        """A new one each time: errors keep the frames of who raises them."""
        closed = self.closed_by
        if closed is None:
            return PeerUnreachableError("is not connected", peer=self.peer)
        return type(closed)(closed.what, peer=self.peer)

    def set_rate(self, options: "binding.RateOptions") -> None:
        """Another cap, other thresholds, or a controller outside; raises AgentError."""
        self.engine.plane.set_rate(self._token, options)

    def set_weights(self, weights: Sequence[int]) -> None:
        """Shares of the paths; 0: not used."""
        self.engine.plane.set_weights(self._token, weights)

    def frame_received(self, body: dict[str, Any]) -> None:  # noqa: ARG002  (whatever it says)
        """The data plane has a control stream of its own: here nothing is ever said."""
        raise ProtocolViolationError("speaks of mlt on the control channel", peer=self.peer)

    def close(self, error: AgentError) -> None:
        """See Connection."""
        self.closed_by = error
        self.engine.forget(self._token)

    def weigh(self) -> bool:
        """Set the paths' shares; whether something is on its way."""
        snapshot = self.snapshot()
        shares = path_weights(self.engine.host.config.spraying.policy, snapshot.paths, self._weighed)
        self._weighed = snapshot.paths
        with suppress(self.engine.binding.DataPlaneError):  # closed meanwhile: it has no paths
            self.engine.plane.set_weights(self._token, shares)
        return snapshot.open_transfers > 0

    def snapshot(self) -> ConnectionSnapshot:
        """See Connection."""
        try:
            counts = self.engine.plane.flow_statistics(self._token)
        except self.engine.binding.DataPlaneError:
            return ConnectionSnapshot(transport=NAME)
        return ConnectionSnapshot(
            transport=NAME,
            rate_bps=counts.rate_bps,
            window_bytes=int(counts.window_bytes),
            in_flight_bytes=counts.in_flight_bytes,
            round_trip_seconds=_seconds(counts.rtt_ns),
            open_transfers=counts.open_transfers,
            forged_datagrams=counts.forged,
            stale_datagrams=counts.stale,
            refused_datagrams=counts.refused,
            paths=tuple(self._path_snapshot(number, counts.path[number]) for number in range(counts.paths)),
            received_by_tos={tos: count for tos, count in enumerate(counts.received_by_tos) if count},
        )

    def _path_snapshot(self, number: int, counts: Any) -> PathSnapshot:
        return PathSnapshot(
            path=number,
            state=self.engine.binding.PathState(counts.state).name.lower(),
            weight=counts.weight,
            sent_packets=counts.sent_packets,
            sent_bytes=counts.sent_bytes,
            acknowledged_packets=counts.acknowledged_packets,
            lost_packets=counts.lost_packets,
            marked_packets=counts.marked_packets,
            received_packets=counts.received_packets,
            received_marked=counts.received_marked,
            round_trip_seconds=_seconds(counts.rtt_ns),
            least_round_trip_seconds=_seconds(counts.least_rtt_ns),
        )


class MltTicket:
    """One transfer of the data plane."""

    __slots__ = ("_connection", "_number", "request")

    def __init__(self, connection: MltConnection, request: Send | Receive, number: int) -> None:
        self.request = request
        self._connection = connection
        self._number = number

    @property
    def _plane(self) -> "binding.DataPlane":
        return self._connection.engine.plane

    @property
    def _gone(self) -> "type[binding.DataPlaneError]":
        """What the data plane raises of a transfer that it no longer knows."""
        error: type[binding.DataPlaneError] = self._connection.engine.binding.DataPlaneError
        return error

    def wait(self, timeout_seconds: float | None) -> bool:
        """See Ticket: in C, and in slices, so that the user can interrupt."""
        with suppress(self._gone):  # another thread has taken the outcome meanwhile
            return self._is_done(timeout_seconds)
        return True

    def _is_done(self, timeout_seconds: float | None) -> bool:
        until = None if timeout_seconds is None else time.monotonic_ns() + round(timeout_seconds * 1e9)
        while True:
            left = LONGEST_WAIT_NS if until is None else max(0, until - time.monotonic_ns())
            if self._plane.is_done(self._number, min(left, LONGEST_WAIT_NS)):
                return True
            if not left:
                return False

    def notify(self, callback: Callable[[], object]) -> None:
        """See Ticket."""
        engine = self._connection.engine
        engine.callbacks[self._number] = callback
        try:
            if self._plane.notify(self._number):
                engine.host.loop.call_soon_threadsafe(engine.done, self._number)
        except RuntimeError:  # the agent is closed, and has no thread any more
            engine.done(self._number)
        except engine.binding.DataPlaneError:  # taken meanwhile; or after a fork, where nothing ends
            engine.callbacks.pop(self._number, None)

    def outcome(self) -> Outcome | None:
        """See Ticket."""
        binding = self._connection.engine.binding
        try:
            result = self._plane.result(self._number)
        except self._gone:  # after a fork: here it never ends
            return None
        if result.status == binding.Status.PENDING:
            return None
        bits = np.frombuffer(self._plane.arrived(result), np.uint8)
        arrived: NDArray[np.bool_] = np.unpackbits(bits, count=result.packets, bitorder="little").astype(bool)
        outcome = Outcome(
            error=None if result.status == binding.Status.OK else self._error(result),
            statistics=self._statistics(result),
            arrived=arrived,
            elements_per_packet=result.elements_per_packet,
        )
        self._plane.release(self._number)
        return outcome

    def progress(self) -> Progress:
        """See Ticket."""
        result = self._plane.result(self._number)
        return Progress(
            packets=result.packets,
            arrived_packets=result.arrived_packets,
            important_packets=_important_packets(result),
            arrived_important=result.arrived_important,
        )

    def finish(self) -> None:
        """See Ticket."""
        self._unless_over(lambda: self._plane.finish(self._number))

    def cancel(self, reason: str) -> None:
        """See Ticket."""
        self._unless_over(lambda: self._plane.cancel(self._number, reason))

    def retag(self, dscp: int) -> None:
        """See Ticket."""
        self._unless_over(lambda: self._plane.set_tos(self._number, dscp << 2 | ECT, dscp << 2))

    def _unless_over(self, call: Callable[[], object]) -> None:
        with suppress(self._gone):
            call()

    def _statistics(self, result: Any) -> TransferStatistics:
        is_receive = isinstance(self.request, Receive)
        return TransferStatistics(
            size_bytes=len(self.request.memory.data),
            packets=result.packets,
            packets_sent=result.sent_packets,
            packets_resent=result.resent_packets,
            bytes_sent=result.sent_bytes,
            packets_received=result.arrived_packets,
            bytes_received=result.received_bytes,
            packets_duplicate=result.duplicate_packets if is_receive else None,
            packets_marked=result.marked_packets if is_receive else None,
            important_packets=_important_packets(result),
            important_received=result.arrived_important,
            passes=result.passes,
            packets_by_path=tuple(result.by_path[0 : self._connection.paths]),
            posted_ns=result.posted_ns,
            ready_ns=result.ready_ns,
            first_ns=result.first_ns,
            last_ns=result.last_ns,
            ended_ns=result.ended_ns,
        )

    def _error(self, result: Any) -> AgentError:
        statuses = self._connection.engine.binding.Status
        said, closed = printable(self._plane.text(result)), self._connection.closed_by
        kinds: dict[int, tuple[type[AgentError], str]] = {
            statuses.CANCELLED: (CancelledError, said or "cancelled"),
            statuses.PEER_CANCELLED: (CancelledError, f"the peer gave it up: {said or 'without a reason'}"),
            statuses.PEER_DEADLINE: (DeadlineExceededError, "the peer's time for it was up"),
            statuses.PEER_SILENT: (PeerUnreachableError, "has been silent for too long"),
            statuses.MISMATCH: (TransferMismatchError, said or "the ends name different types or sizes"),
            statuses.PROTOCOL: (ProtocolViolationError, said or "breaks the protocol of the data plane"),
            statuses.BUSY: (
                TooManyTransfersError,
                "is on its way in this round already, or the peer has not yet ended it",
            ),
        }
        kind, what = kinds.get(result.status, (CancelledError, said or "the connection was closed"))
        if result.status == statuses.DEADLINE:
            kind, what = DeadlineExceededError, self._what_was_there(result, said)
        elif result.status not in kinds and closed is not None:
            kind, what = type(closed), closed.what
        request = self.request
        return kind(
            what, peer=self._connection.peer, tensor=request.tensor, round_number=request.round_number
        )

    def _what_was_there(self, result: Any, said: str) -> str:
        """Of a deadline: how much had arrived, when the peer was heard, and whether any path answers."""
        state = f"{result.arrived_packets} of {result.packets} packets had arrived"
        if not result.ready_ns and not result.first_ns:
            state = f"the peer has not posted its {'memory' if isinstance(self.request, Send) else 'tensor'}"
        used = [path for path in self._connection.snapshot().paths if path.state == "used"]
        answering = sum(path.round_trip_seconds is not None or path.received_packets > 0 for path in used)
        heard = said.rpartition("; ")[2]
        refused = sorted(set(self._connection.refused.values()))
        told = f"; the kernel refused to send: {', '.join(refused)}" if refused else ""
        return f"not complete in time: {state}; {heard}, {answering} of {len(used)} used paths answer{told}"


_COMPILED: Final = {"all": 0, "none": 1, "magnitude": 2}
_MOMENTS: Final = {Moment.POST: 0, Moment.PEER_READY: 1, Moment.FIRST_BYTE: 2}
_STOPS: Final = {StopRule.PATIENT: 0, StopRule.PAPER: 1}
_AT_DEADLINE: Final = {AtDeadline.FAIL: 0, AtDeadline.TAKE: 1}


def _important_packets(result: Any) -> int | None:
    """A receiver learns it when the sender has sent all."""
    return None if result.important_packets < result.arrived_important else int(result.important_packets)


def _seconds(nanoseconds: int) -> float | None:
    return nanoseconds / 1e9 if nanoseconds else None


def errno_name(number: int) -> str:
    """EMSGSIZE, say."""
    return errno.errorcode.get(number, os.strerror(number))
