"""Examines the paths between two hosts with two ordinary agents and a channel for questions and answers.

One end sends small tensors with each code point and importance, in full packets, on one path at a time. The
other tells how many packets came, and with which DSCP/ECN bytes: what every agent counts, so that nothing but
tensors and messages crosses the network.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from mltswitch.documents import plain_words
from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.doctor.machine import Network, route_findings
from mltswitch.hostagent.doctor.report import (
    Arrival,
    Finding,
    PathReport,
    Report,
    Status,
    judge,
    loss,
    mtu,
)
from mltswitch.hostagent.errors import (
    AgentError,
    DeadlineExceededError,
    PeerRefusedError,
    PeerUnreachableError,
    ProtocolViolationError,
)
from mltswitch.hostagent.transport.records import Completion, ConnectionSnapshot
from mltswitch.wire import AGENT_HEADER_BYTES, AUTHENTICATION_TAG_BYTES, Dscp
from mltswitch.wire.internet import ip_udp_bytes

if TYPE_CHECKING:
    from mltswitch.hostagent.transport.datagram_flow import DatagramConnection

CHANNEL: Final = "doctor"
PACKETS: Final = 8
"""How many packets are sent with each combination of code point and importance."""
FIRST_PACKETS: Final = 200
"""How many packets the first tensor on each path has, whose losses are counted."""
FIRST_SECONDS: Final = 1.0
"""Deadline of the first tensor on a path, in seconds; later ones get many round trips."""
LEAST_SECONDS: Final = 0.3
ROUND_TRIPS: Final = 50
ANSWER_SECONDS: Final = 8.0
IDLE_SECONDS: Final = 120.0
"""Seconds after which a host that is being examined gives up an examiner that asks nothing."""
MOST_PROBE_BYTES: Final = 1 << 24
MOST_ANSWER_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 1000
"""Length in bytes of the pieces into which long messages are cut."""
_MORE, _LAST = b"+", b"."
_DEAD: Final = Finding(
    Status.ERROR,
    "path",
    "no packet arrives: agents leave the path out",
    "look at routes to the receiver's address, packet filters, and the receiver's rp_filter",
)


class _Receive(BaseModel):
    """Take a tensor as far as it comes, and count."""

    tensor: int = Field(default=0, ge=0, lt=1 << 32)
    size_bytes: int = Field(ge=0, le=MOST_PROBE_BYTES)
    """0: only count."""
    seconds: float = Field(default=1, gt=0, le=60)


class _Examine(BaseModel):
    """Examine the paths to whoever asks."""

    points: tuple[Annotated[Dscp, Field(ge=0, le=63)], ...] = Field(min_length=1, max_length=64)


class _Examined(BaseModel):
    machine: tuple[Finding, ...]
    paths: tuple[PathReport, ...]


class Examiner:
    """One end of an examination, which asks questions or answers those of the other end.

    Args:
        agent: the agent, connected with the peer.
        peer: name of the peer.
        machine: the findings about this host.
    """

    def __init__(self, agent: Agent, peer: str, machine: Sequence[Finding] = ()) -> None:
        self._agent, self._peer, self._machine = agent, peer, tuple(machine)
        self._channel = agent.channel(CHANNEL)
        self._channel.examines_paths = True
        self._tensors = 0
        self._counted = Arrival(0, (), Counter())

    def report(self, points: Sequence[Dscp]) -> Report:
        """Examine every path in both directions while the peer serves; raises AgentError if it does not."""
        try:
            self._channel.wait_for_peers([self._peer], ANSWER_SECONDS)
        except DeadlineExceededError:
            what = "is an agent, and no doctor: there, run `mltswitch agent doctor --listen`"
            raise PeerRefusedError(what, peer=self._peer) from None
        try:
            self._tell(_Examine(points=tuple(points)))  # the way back first, while all our paths have weight
            theirs = self.serve(ANSWER_SECONDS)
            paths = self._there(points)
        except DeadlineExceededError as error:  # messages take any path that answers
            what = f"no path carries messages both ways: {error.what}"
            raise PeerUnreachableError(what, peer=self._peer) from None
        return Report(
            name=self._agent.name,
            machine=self._machine,
            peer=self._peer,
            peer_machine=theirs.machine,
            paths=(*paths, *theirs.paths),
        )

    def serve(self, idle_seconds: float = IDLE_SECONDS) -> _Examined:
        """Answer the peer until it reports its results, or leaves with ours; else raises AgentError."""
        examined = None
        while True:
            try:
                request = self._hear(_Receive | _Examine | _Examined, idle_seconds)
            except PeerUnreachableError:
                if examined is None:
                    raise
                return examined
            match request:
                case _Receive():
                    self._tell(self._received(request))
                case _Examine():
                    examined = _Examined(machine=self._machine, paths=self._there(request.points))
                    self._tell(examined)
                case _:
                    return request  # type: ignore[no-any-return]

    # The sender

    def _there(self, points: Sequence[Dscp]) -> tuple[PathReport, ...]:
        connection, reports = cast("DatagramConnection", self._channel.connection(self._peer)), []
        with closing(Network()) as network:
            for path, remote in enumerate(connection.remotes):
                local, _ = self._agent.config.path_socket(path)
                routes = route_findings(network, local, [remote])
                connection.set_weights([int(number == path) for number in range(len(connection.remotes))])
                reports.append(self._path(path, local, remote, points, list(routes)))
        return tuple(reports)

    def _path(
        self, path: int, local: str, remote: str, points: Sequence[Dscp], findings: list[Finding]
    ) -> PathReport:
        config = self._agent.config
        overhead = ip_udp_bytes(remote) + AGENT_HEADER_BYTES + config.spraying.header_bytes
        overhead += AUTHENTICATION_TAG_BYTES if config.authenticate else 0
        self._count()
        before, counted = self._snapshot().paths[path].sent_packets, self._counted.paths[path]
        first, completion = self._send(FIRST_PACKETS * (config.mtu_bytes or 0), points[0])
        full = size = completion.elements_per_packet
        sent = lost = 0
        if first.data_packets <= 1:  # the last packet is shorter
            size = self._longest(full, points[0]) if first.paths[path] else 0
        else:
            sent = self._snapshot().paths[path].sent_packets - before  # a path without answers is asked on
            self._count()
            lost = max(0, sent - (self._counted.paths[path] - counted))
        findings.append(mtu(size + overhead, full + overhead) if first.paths[path] else _DEAD)
        if size:
            usual = self._snapshot().paths[path].round_trip_seconds or 0
            probe = size * PACKETS if size == full else size, max(LEAST_SECONDS, ROUND_TRIPS * usual)
            kinds = [(dscp, is_important) for dscp in points for is_important in (True, False)]
            findings += judge({kind: self._send(probe[0], *kind, probe[1])[0] for kind in kinds})
        if sent:
            findings.append(loss(sent, lost))
        now = self._snapshot().paths[path]
        return PathReport(
            path=path,
            sender=self._agent.name,
            receiver=self._peer,
            local=local,
            remote=remote,
            longest_packet_bytes=size and size + overhead,
            sent_packets=sent,
            lost_packets=lost,
            round_trip_seconds=now.round_trip_seconds,
            least_round_trip_seconds=now.least_round_trip_seconds,
            findings=tuple(findings),
        )

    def _longest(self, too_long: int, dscp: Dscp) -> int:
        """Bytes of the longest tensor of one packet that arrives, by search; 0: none."""
        fits = 0
        while too_long - fits > 1:
            size = (fits + too_long) // 2
            arrival, _ = self._send(size, dscp, seconds=LEAST_SECONDS)
            fits, too_long = (size, too_long) if arrival.data_packets else (fits, size)
        return fits

    def _send(
        self, size_bytes: int, dscp: Dscp, is_important: bool = True, seconds: float = FIRST_SECONDS
    ) -> tuple[Arrival, Completion]:
        """A tensor of zeros, and what the peer says of it."""
        self._tensors += 1
        self._tell(_Receive(tensor=self._tensors, size_bytes=size_bytes, seconds=seconds))
        transfer = self._channel.post_send(
            self._peer,
            bytes(size_bytes),
            tensor=self._tensors,
            dscp=dscp,
            importance="all" if is_important else "none",
            burst_packets=1,
            deadline_seconds=seconds + ANSWER_SECONDS,
        )
        before, self._counted = self._counted, self._hear(Arrival, seconds + ANSWER_SECONDS)
        with suppress(AgentError):  # the receiver has said what did not arrive
            transfer.wait()
        completion = transfer.completion
        assert completion is not None  # noqa: S101  (it has ended)
        return self._counted.since(before), completion

    def _count(self) -> None:
        self._tell(_Receive(size_bytes=0))
        self._counted = self._hear(Arrival)

    # The receiver

    def _received(self, request: _Receive) -> Arrival:
        """Take one of the peer's tensors, as far as it comes, and count."""
        data_packets = 0
        if request.size_bytes:
            transfer = self._channel.post_receive(
                self._peer,
                bytearray(request.size_bytes),
                tensor=request.tensor,
                loss_bound=0.0,
                deadline_seconds=request.seconds,
                at_deadline="take",
            )
            data_packets = transfer.wait().statistics.packets_received
        counts = self._snapshot()
        paths = tuple(path.received_packets for path in counts.paths)
        return Arrival(data_packets, paths, Counter(counts.received_by_tos))

    # Both

    def _snapshot(self) -> ConnectionSnapshot:
        return self._channel.connection(self._peer).snapshot()

    def _tell(self, value: object) -> None:
        text = to_json(value)
        while len(text) > PIECE_BYTES:
            self._channel.send_message(self._peer, _MORE + text[:PIECE_BYTES])
            text = text[PIECE_BYTES:]
        self._channel.send_message(self._peer, _LAST + text)

    def _hear(self, kind: Any, seconds: float | None = None) -> Any:
        text = piece = b""
        while piece[:1] != _LAST and len(text) < MOST_ANSWER_BYTES:
            piece = self._channel.receive_message(self._peer, ANSWER_SECONDS if seconds is None else seconds)
            text += piece[1:]
        try:
            return TypeAdapter(kind).validate_json(text)
        except ValidationError as error:
            what = f"is no doctor of this version: {plain_words(error.errors()[0])}"
            raise ProtocolViolationError(what, peer=self._peer) from None
