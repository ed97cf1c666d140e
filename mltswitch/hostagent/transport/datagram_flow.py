"""A peer's connection on a channel over datagrams: posts become data plane transfers, results completions."""

import errno
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from functools import partial
from typing import Any, Final

import numpy as np

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent.dataplane.binding import DataPlaneError, Fields, constant_name, lib
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
from mltswitch.hostagent.session import guarded
from mltswitch.hostagent.spraying.shares import path_weights
from mltswitch.hostagent.tagging.policies import Compiled, important_packets
from mltswitch.hostagent.telemetry.events import PacketsRefused, PathChanged
from mltswitch.hostagent.transport.datagram_plane import DatagramPlane, way_out
from mltswitch.hostagent.transport.records import (
    AtDeadline,
    Completion,
    ConnectionSnapshot,
    Direction,
    Moment,
    PathSnapshot,
    RateController,
    RateSample,
    Receive,
    Send,
    StopRule,
    TransferStatistics,
)
from mltswitch.hostagent.waiting import wait_in_slices

ECT: Final = 2
"""ECN bits of important packets in the DSCP/ECN byte: ECT(0), ECN-capable."""
SAMPLE_NS: Final = 1_000_000
"""Least time in ns between two samples for a user's rate controller."""
_CODES: Final[dict[str, int]] = {
    "all": lib.MLT_ALL_IMPORTANT,
    "none": lib.MLT_NONE_IMPORTANT,
    "edges": lib.MLT_EDGES,
    "magnitude": lib.MLT_BY_MAGNITUDE,
    Moment.POST: lib.MLT_FROM_POST,
    Moment.PEER_READY: lib.MLT_FROM_PEER_READY,
    Moment.FIRST_BYTE: lib.MLT_FROM_FIRST_BYTE,
    StopRule.PATIENT: lib.MLT_PATIENT,
    StopRule.PAPER: lib.MLT_PAPER,
    AtDeadline.FAIL: lib.MLT_FAIL,
    AtDeadline.TAKE: lib.MLT_TAKE,
}
"""Of the data plane, by our words."""
CONTROL_LAWS: Final = {"credit": lib.MLT_CREDIT, "timely": lib.MLT_TIMELY, "bbr": lib.MLT_BBR}
_ERRORS: Final[dict[int, tuple[type[AgentError], str]]] = {
    lib.MLT_CANCELLED: (CancelledError, "{said}"),
    lib.MLT_PEER_CANCELLED: (CancelledError, "the peer gave it up: {said}"),
    lib.MLT_PEER_DEADLINE: (DeadlineExceededError, "the peer's time for it was up"),
    lib.MLT_PEER_SILENT: (PeerUnreachableError, "has been silent for too long"),
    lib.MLT_MISMATCH: (TransferMismatchError, "{said}"),
    lib.MLT_PROTOCOL: (ProtocolViolationError, "{said}"),
    lib.MLT_BUSY: (
        TooManyTransfersError,
        "is on its way in this round already, or the peer has not yet ended it",
    ),
}
"""What a status means, where the data plane, or the peer, says more: with that."""
_ENDS: Final[dict[int, tuple[type[AgentError], str]]] = {
    lib.MLT_EVENT_SILENT: (PeerUnreachableError, "has been silent for too long"),
    lib.MLT_EVENT_PROTOCOL: (ProtocolViolationError, "breaks the protocol of the data plane"),
}
"""Events that end a connection."""
_ENDINGS: Final = ("complete", "bounds", "taken", "percentage", "deadline")
"""How a receive has ended well, by our words, in the order of `enum mlt_ending`."""
_PATH_COUNTS: Final = [
    field.name for field in fields(PathSnapshot) if field.type is int and field.name != "path"
]


class DatagramConnection:
    """The connection with one peer on one channel: a flow of the data plane."""

    def __init__(
        self,
        plane: DatagramPlane,
        transport: str,
        peer: str,
        channel: str,
        token: int,
        remotes: Sequence[str],
        body_bytes: int,
        rate: Fields,
    ) -> None:
        self.plane: Final = plane
        self._transport = transport
        self.peer: Final = peer
        self.channel: Final = channel
        self.remotes: Final = remotes
        """The peer's address of each path."""
        self.refused: Final[dict[int, str]] = {}
        """By path: why the kernel would not send."""
        self.closed_by: AgentError | None = None
        self._unread: deque[bytes] = deque()
        """Messages that had come when the connection was closed."""
        self._taking = threading.Lock()
        self._weighed: tuple[PathSnapshot, ...] = ()
        self._controller: RateController | None = None
        self._opened_with = rate
        self._rate = rate.copy()
        self._token = token
        self._body_bytes = body_bytes
        """Of a datagram, elements alone."""

    def post_sends(self, requests: Sequence[Send]) -> list["_Ticket"]:
        """Post sends, all of which begin, or none; raises AgentError."""
        return self._posted(self.plane.core.post_sends, requests, [self._send(entry) for entry in requests])

    def post_receives(self, requests: Sequence[Receive]) -> list["_Ticket"]:
        """Post receives, all of which begin, or none; raises AgentError."""
        entries = [self._receive(entry) for entry in requests]
        return self._posted(self.plane.core.post_receives, requests, entries)

    def _transfer(self, request: Send | Receive) -> Fields:
        """What `struct mlt_send` and `struct mlt_receive` have in common."""
        memory = request.memory
        return {
            "flow": self._token,
            "elements": memory.data,
            "element_count": memory.element_count,
            "element_type": int(memory.element_type),
            "tensor": request.tensor,
            "round": request.round_number,
        }

    def _send(self, request: Send) -> Fields:
        entry, policy = self._transfer(request), request.importance
        entry |= {
            "layer": request.layer,
            "priority": request.priority,
            "burst_packets": request.burst_packets,
            "tos_important": request.dscp << 2 | ECT,
            "tos_unimportant": request.dscp << 2,
            "deadline_ns": request.deadline_ns,
            "moment": _CODES[request.deadline_from],
            "important_if_whole": request.important_if_whole,
        }
        if isinstance(policy, Compiled):
            entry["importance"] = _CODES[policy.name]
        else:
            elements = self._body_bytes // request.memory.element_type.size_bytes
            flags = important_packets(policy, request.memory, elements)
            entry["importance"] = lib.MLT_BY_BITMAP
            entry["important"] = np.packbits(flags, bitorder="little")
        return entry

    def _receive(self, request: Receive) -> Fields:
        entry = self._transfer(request)
        policy = entry["policy"] = {
            "loss_bound": request.loss_bound,
            "important_bound": request.important_loss_bound,
            "soft_ns": request.soft_ns,
            "hard_ns": request.deadline_ns,
            "moment": _CODES[request.deadline_from],
            "stop_rule": _CODES[request.stop],
            "at_hard_time": _CODES[request.at_deadline],
            "keep_missing": request.keep_missing,
        }
        if request.closing is not None:
            policy |= {"stop_rule": lib.MLT_GATHERED, "gather": asdict(request.closing)}
        return entry

    def _posted(
        self, post: Callable[[Any], list[int]], requests: Sequence[Send | Receive], entries: list[Fields]
    ) -> list["_Ticket"]:
        first = requests[0]
        try:
            numbers = post(entries)
        except DataPlaneError as error:
            if error.status == lib.MLT_INVALID:
                raise UserInputError("has too many packets", where=f"tensor {first.tensor}") from None
            if error.status == lib.MLT_NO_MEMORY:
                raise MachineError("has no memory left for a transfer", where="data plane") from None
            problem = self._closed_error()
            if error.status == lib.MLT_FULL:
                problem = TooManyTransfersError("more transfers are open than there may be", peer=self.peer)
            raise problem.of_transfer(first.tensor, first.round_number) from None
        self.plane.posted()
        return [_Ticket(self, request, number) for request, number in zip(requests, numbers, strict=True)]

    def send_message(self, message: bytes) -> bool:
        """Send a message, reliably and in order; False if the peer has too many unread messages."""
        try:
            return self.plane.core.send_message(self._token, message)
        except DataPlaneError:
            raise self._closed_error() from None

    def take_message(self) -> bytes | None:
        """The peer's next message; None if there is none."""
        with self._taking:
            if self._unread:
                return self._unread.popleft()
            try:
                return self.plane.core.take_message(self._token)
            except DataPlaneError:
                raise self._closed_error() from None

    def _closed_error(self) -> AgentError:
        """A new one each time: errors keep the frames of who raises them."""
        closed = self.closed_by
        if closed is None:
            return PeerUnreachableError("is not connected", peer=self.peer)
        return type(closed)(closed.what, peer=self.peer)

    def is_settled(self) -> bool:
        """Whether the peer has heard all that this end has said, above all how receives ended."""
        try:
            return bool(self.plane.core.flow_statistics(self._token).unsaid == 0)
        except DataPlaneError:
            return True  # closed

    def set_rate(self, cap_bps: float | None, controller: RateController | None) -> None:
        """Change the rate cap, or let a user's controller decide the rate."""
        options = self._opened_with.copy()
        if cap_bps is not None:
            options["cap_bps"] = cap_bps
        if controller is not None:
            options |= {"kind": lib.MLT_EXTERNAL, "rate_bps": options["cap_bps"], "sample_ns": SAMPLE_NS}
        self._controller, self._rate = controller, options
        self.plane.core.set_rate(self._token, options)

    def heard(self, event: Any) -> None:
        """Handle a `struct mlt_event` of this flow."""
        host, peer, channel = self.plane.host, self.peer, self.channel
        if event.kind == lib.MLT_EVENT_PATH:
            state = path_state(event.value)
            host.tell(PathChanged(peer=peer, channel=channel, path=event.path, state=state))
        elif event.kind == lib.MLT_EVENT_USER:
            host.message_arrived(peer, channel)
        elif event.kind == lib.MLT_EVENT_SEND_ERROR:
            self._packets_refused(event)
        elif event.kind == lib.MLT_EVENT_SAMPLE:
            guarded(partial(self._sampled, event.sample), "a rate controller")
        elif event.kind in _ENDS:
            kind, what = _ENDS[event.kind]
            host.connection_failed(peer, kind(what, peer=peer))

    def _packets_refused(self, event: Any) -> None:
        path, packets, host = int(event.path), int(event.transfer), self.plane.host
        if not event.value:
            self.refused.pop(path, None)
            return
        error = errno.errorcode.get(event.value, str(event.value))
        interface, mtu_bytes = way_out(self.remotes[path], host.config.spraying.interface)
        way = f"{interface} has MTU {mtu_bytes:,}" if interface else "there is no route"
        self.refused[path] = f"{error} ({way})"
        problem = f"refuses packets of {host.config.mtu_bytes:,} bytes"
        if packets > 1:
            problem = "cuts no bursts, whose packets are sent one by one for now"
        host.warn(f"path {path} to {self.peer}: the kernel {problem}: {error}; {way}")
        host.tell(
            PacketsRefused(
                peer=self.peer,
                channel=self.channel,
                path=path,
                error=error,
                packets=packets,
                interface=interface,
                mtu_bytes=mtu_bytes,
            )
        )

    def _sampled(self, sample: Any) -> None:
        """The data plane has heard something, and the user's controller decides."""
        if self._controller is None:
            return
        heard = RateSample(
            delivered_bytes=sample.delivered_bytes,
            delivered_packets=sample.delivered_packets,
            lost_packets=sample.lost_packets,
            marked_packets=sample.marked_packets,
            in_flight_bytes=sample.in_flight_bytes,
            window_bytes=sample.window_bytes,
            least_round_trip_seconds=_seconds(sample.least_rtt_ns),
            interval_seconds=sample.interval_ns / 1e9,
        )
        self._rate["rate_bps"] = float(self._controller.rate_bps(heard))
        with suppress(DataPlaneError):  # closed meanwhile
            self.plane.core.set_rate(self._token, self._rate)

    def set_weights(self, weights: Sequence[int]) -> None:
        """Set the shares in which packets are divided among the paths; 0: a path is not used."""
        self.plane.core.set_weights(self._token, weights)

    def frame_received(self, body: dict[str, Any]) -> None:  # noqa: ARG002  (whatever it says)
        """Does nothing: the data plane has a control stream of its own, so no frames come."""
        raise ProtocolViolationError("speaks of datagrams on the control channel", peer=self.peer)

    def close(self, error: AgentError) -> None:
        """Close the flow; all that is open fails with a copy of this error."""
        self.closed_by = error
        with self._taking, suppress(DataPlaneError):  # closed by the data plane
            self._unread.extend(iter(partial(self.plane.core.take_message, self._token), None))
        self.plane.forget(self._token)

    def weigh(self) -> bool:
        """Recompute the paths' shares; returns whether any transfer is open."""
        snapshot = self.snapshot()
        shares = path_weights(self.plane.host.config.spraying.policy, snapshot.paths, self._weighed)
        self._weighed = snapshot.paths
        with suppress(DataPlaneError):  # closed meanwhile: it has no paths
            self.plane.core.set_weights(self._token, shares)
        return snapshot.open_transfers > 0

    def snapshot(self) -> ConnectionSnapshot:
        """The connection's counters as they are now."""
        try:
            counts = self.plane.core.flow_statistics(self._token)
        except DataPlaneError:
            return ConnectionSnapshot(transport=self._transport)
        return ConnectionSnapshot(
            transport=self._transport,
            rate_bps=counts.rate_bps,
            window_bytes=int(counts.window_bytes),
            in_flight_bytes=counts.in_flight_bytes,
            round_trip_seconds=_seconds(counts.rtt_ns),
            base_round_trip_seconds=_seconds(counts.base_rtt_ns),
            bottleneck_bps=counts.bandwidth_bps or None,
            needless_packets=counts.needless_packets,
            open_transfers=counts.open_transfers,
            forged_datagrams=counts.forged,
            stale_datagrams=counts.stale,
            refused_datagrams=counts.refused,
            paths=tuple(self._path_snapshot(number, counts.path[number]) for number in range(counts.paths)),
            received_by_tos={tos: count for tos, count in enumerate(counts.received_by_tos) if count},
        )

    @staticmethod
    def _path_snapshot(number: int, counts: Any) -> PathSnapshot:
        return PathSnapshot(
            path=number,
            state=path_state(counts.state),
            round_trip_seconds=_seconds(counts.rtt_ns),
            least_round_trip_seconds=_seconds(counts.least_rtt_ns),
            **{name: getattr(counts, name) for name in _PATH_COUNTS},
        )


class _Ticket:
    """One transfer of the data plane."""

    __slots__ = ("_connection", "_number", "_plane", "request")

    def __init__(self, connection: DatagramConnection, request: Send | Receive, number: int) -> None:
        self.request = request
        self._connection = connection
        self._plane = connection.plane.core
        self._number = number

    def wait(self, timeout_seconds: float | None) -> bool:
        try:  # in C
            return wait_in_slices(
                lambda left: self._plane.is_done(self._number, round(left * 1e9)), timeout_seconds
            )
        except DataPlaneError:  # another thread has taken the outcome meanwhile
            return True

    def notify(self, callback: Callable[[], object]) -> None:
        plane = self._connection.plane
        plane.callbacks[self._number] = callback
        try:
            if self._plane.notify(self._number):
                plane.host.loop.call_soon_threadsafe(plane.done, self._number)
        except RuntimeError:  # the agent is closed, and has no thread any more
            plane.done(self._number)
        except DataPlaneError:  # taken meanwhile; or after a fork, where nothing ends
            plane.callbacks.pop(self._number, None)

    def completion(self) -> Completion | None:
        try:
            result = self._plane.result(self._number)
        except DataPlaneError:  # after a fork: here it never ends
            return None
        if result.status == lib.MLT_PENDING:
            return None
        connection, request = self._connection, self.request
        completion = Completion(
            connection.peer,
            connection.channel,
            request.tensor,
            request.round_number,
            Direction.SEND if isinstance(request, Send) else Direction.RECEIVE,
            None if result.status == lib.MLT_OK else self._error(result),
            self._statistics(result),
            self._plane.arrived(result),
            result.elements_per_packet,
            request.memory.element_count,
        )
        self._plane.release(self._number)
        return completion

    def statistics(self) -> TransferStatistics:
        return self._statistics(self._plane.result(self._number))

    def finish(self) -> None:
        with suppress(DataPlaneError):
            self._plane.finish(self._number)

    def cancel(self, reason: str) -> None:
        with suppress(DataPlaneError):
            self._plane.cancel(self._number, reason)

    def retag(self, dscp: int) -> None:
        with suppress(DataPlaneError):
            self._plane.set_tos(self._number, dscp << 2 | ECT, dscp << 2)

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
            packets_needless=None if is_receive else result.needless_packets,
            ending=_ENDINGS[result.ending] if result.status == lib.MLT_OK else None,
            lt_seconds=_seconds(result.lt_ns),
            deadline_seconds=_seconds(result.deadline_ns),
            packets_by_path=tuple(result.by_path[0 : len(self._connection.remotes)]),
            posted_ns=result.posted_ns,
            ready_ns=result.ready_ns,
            first_ns=result.first_ns,
            last_ns=result.last_ns,
            ended_ns=result.ended_ns,
        )

    def _error(self, result: Any) -> AgentError:
        said, closed = printable(self._plane.text(result)), self._connection.closed_by
        kind, what = _ERRORS.get(result.status, (CancelledError, "the connection was closed"))
        if result.status == lib.MLT_DEADLINE:
            kind, what = DeadlineExceededError, self._what_was_there(result, said)
        elif result.status in _ERRORS:
            what = what.format(said=said or "without a reason")
        elif closed is not None:
            kind, what = type(closed), closed.what
        return kind(what, peer=self._connection.peer).of_transfer(
            self.request.tensor, self.request.round_number
        )

    def _what_was_there(self, result: Any, said: str) -> str:
        """Of a deadline: how much had arrived, when the peer was heard, and whether any path answers."""
        state = f"{result.arrived_packets} of {result.packets} packets had arrived"
        if not result.ready_ns and not result.first_ns:
            state = f"the peer has not posted its {'memory' if isinstance(self.request, Send) else 'tensor'}"
        used = [path for path in self._connection.snapshot().paths if path.state == "used"]
        answering = sum(path.round_trip_seconds is not None or path.received_packets > 0 for path in used)
        if "grants nothing more" in said:
            state += ", and the peer grants nothing more"
        heard = said.rpartition("; ")[2]
        refused = sorted(set(self._connection.refused.values()))
        told = f"; the kernel refused to send: {', '.join(refused)}" if refused else ""
        return f"not complete in time: {state}; {heard}, {answering} of {len(used)} used paths answer{told}"


def _important_packets(result: Any) -> int | None:
    """A receiver learns it when the sender has sent all."""
    return None if result.important_packets < result.arrived_important else int(result.important_packets)


def _seconds(nanoseconds: int) -> float | None:
    return nanoseconds / 1e9 if nanoseconds else None


def path_state(value: int) -> str:
    """Name of a path state of the data plane: `used`, `dead` or `gray`."""
    return constant_name("path_state", value).removeprefix("MLT_PATH_").lower()
