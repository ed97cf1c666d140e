"""The way between two hosts: two ordinary agents, and a channel that carries what either asks and tells.

One end sends small tensors with each code point and importance, in full packets, on one path at a time. The
other tells how many packets came, and with which DSCP/ECN bytes: what every agent counts, so that nothing but
tensors and messages crosses the network.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from mltswitch.hostagent.agent import Agent
from mltswitch.hostagent.doctor.machine import Network, route_findings
from mltswitch.hostagent.doctor.report import Finding, PathReport, Report
from mltswitch.hostagent.doctor.verdicts import Arrival, dead, judge, loss, mtu
from mltswitch.hostagent.errors import (
    AgentError,
    DeadlineExceededError,
    PeerRefusedError,
    ProtocolViolationError,
)
from mltswitch.hostagent.transfer import Completion
from mltswitch.hostagent.transport.description import ConnectionSnapshot
from mltswitch.wire import AGENT_HEADER_BYTES, AUTHENTICATION_TAG_BYTES, Dscp
from mltswitch.wire.internet import ip_udp_bytes

CHANNEL: Final = "doctor"
PACKETS: Final = 8
"""With each code point and importance."""
LOSS_PACKETS: Final = 200
"""In the count of losses."""
FIRST_SECONDS: Final = 1.0
"""For the first tensor of a path, and the count of losses; others have many round trips."""
LEAST_SECONDS: Final = 0.3
ROUND_TRIPS: Final = 50
ANSWER_SECONDS: Final = 8.0
IDLE_SECONDS: Final = 120.0
"""An examiner that asks nothing for so long is let go."""
MOST_PROBE_BYTES: Final = 1 << 24
MOST_ANSWER_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 1000
"""Of a message."""
_MORE, _LAST = b"+", b"."
_Addresses = Annotated[tuple[IPv4Address | IPv6Address, ...], Field(min_length=1)]
Points = tuple[Annotated[Dscp, Field(ge=0, le=63)], ...]


class _Request(BaseModel):
    ask: Literal["machine", "addresses", "receive", "examine", "done"]
    tensor: int = Field(default=0, ge=0, lt=1 << 32)
    size_bytes: int = Field(default=0, ge=0, le=MOST_PROBE_BYTES)
    """Of a tensor to receive; 0: only count."""
    seconds: float = Field(default=1, gt=0, le=60)
    points: Points = Field(default=(), max_length=64)


class _Counts(BaseModel):
    data_packets: int
    """Of the tensor."""
    paths: tuple[int, ...]
    """Packets that have arrived on each path, since the connection began."""
    by_byte: dict[int, int]


class Examiner:
    """One end of an examination; it asks, or serves the other end's questions.

    Args:
        agent: connected with the peer.
        peer: its name.
        machine: what was found of this host, for the peer.
    """

    def __init__(self, agent: Agent, peer: str, machine: Sequence[Finding] = ()) -> None:
        self._agent, self._peer, self._machine = agent, peer, machine
        self._channel = agent.channel(CHANNEL)
        self._tensors = 0
        self._counted = _Counts(data_packets=0, paths=(0,) * 64, by_byte={})

    def report(self, points: Sequence[Dscp]) -> Report:
        """Examine every path, there and back; the peer serves. Raises AgentError where it does not."""
        name, config = self._agent.name, self._agent.config
        try:
            self._channel.wait_for_peers([self._peer], ANSWER_SECONDS)
        except DeadlineExceededError:
            what = "is an agent, and no doctor: there, run `mltswitch agent doctor --listen`"
            raise PeerRefusedError(what, peer=self._peer) from None
        try:
            self._tell(_Request(ask="machine"))
            peer_machine = self._hear(tuple[Finding, ...])
            paths = self._there(points)
            self._tell(_Request(ask="examine", points=tuple(points)))
            self.serve()
            paths += self._hear(tuple[PathReport, ...])
            self._tell(_Request(ask="done"))
        except DeadlineExceededError:  # messages take any path that answers
            peer_machine = ()
            paths = tuple(
                PathReport(
                    path=path,
                    sender=name,
                    receiver=self._peer,
                    local=config.path_socket(path)[0],
                    findings=(dead(),),
                )
                for path in range(config.path_count)
            )
        return Report(
            name=name, machine=tuple(self._machine), peer=self._peer, peer_machine=peer_machine, paths=paths
        )

    def serve(self) -> None:
        """Answer the peer until it says that it is done; raises AgentError where it goes without."""
        while True:
            request = self._hear(_Request, IDLE_SECONDS)
            match request.ask:
                case "machine":
                    self._tell(tuple(self._machine))
                case "addresses":
                    config = self._agent.config
                    self._tell([config.path_socket(path)[0] for path in range(config.path_count)])
                case "receive":
                    self._tell(self._received(request))
                case "examine":
                    reports = self._there(request.points)
                    self._tell(_Request(ask="done"))
                    self._tell(reports)
                case "done":
                    return

    def _there(self, points: Sequence[Dscp]) -> tuple[PathReport, ...]:
        self._tell(_Request(ask="addresses"))
        remotes = [str(address) for address in self._hear(_Addresses)]
        config = self._agent.config
        with Network() as network:
            return tuple(
                self._path(path, network, config.path_socket(path)[0], remotes[path % len(remotes)], points)
                for path in range(len(self._snapshot().paths))
            )

    def _path(
        self, path: int, network: Network, local: str, remote: str, points: Sequence[Dscp]
    ) -> PathReport:
        weights = [int(number == path) for number in range(len(self._snapshot().paths))]
        self._channel.connection(self._peer).set_weights(weights)  # type: ignore[attr-defined]  # mlt's has it
        findings = list(route_findings(network, local, [remote]))
        config = self._agent.config
        overhead = ip_udp_bytes(remote) + AGENT_HEADER_BYTES + config.spraying.header_bytes
        overhead += AUTHENTICATION_TAG_BYTES if config.is_authenticated else 0
        self._count()
        first, completion = self._send(path, PACKETS * (config.mtu_bytes or 0), points[0])
        full_bytes = size_bytes = completion.elements_per_packet
        if first.data_packets <= 1:  # the last packet is shorter
            size_bytes = self._longest(path, full_bytes, points[0]) if first.packets else 0
        longest = size_bytes and size_bytes + overhead
        findings.append(mtu(longest, full_bytes + overhead) if first.packets else dead())
        sent = lost = 0
        if size_bytes:
            probe_bytes = size_bytes * (PACKETS if size_bytes == full_bytes else 1)
            seconds = max(LEAST_SECONDS, ROUND_TRIPS * (self._snapshot().paths[path].round_trip_seconds or 0))
            findings += judge(
                {
                    (dscp, is_important): self._send(
                        path, probe_bytes, dscp, seconds, is_important=is_important
                    )[0]
                    for dscp in points
                    for is_important in (True, False)
                }
            )
        if size_bytes == full_bytes:
            sent, lost = self._losses(path, full_bytes, points[0])
            findings.append(loss(sent, lost))
        now = self._snapshot().paths[path]
        return PathReport(
            path=path,
            sender=self._agent.name,
            receiver=self._peer,
            local=local,
            remote=remote,
            longest_packet_bytes=longest,
            sent_packets=sent,
            lost_packets=lost,
            round_trip_seconds=now.round_trip_seconds,
            least_round_trip_seconds=now.least_round_trip_seconds,
            findings=tuple(findings),
        )

    def _longest(self, path: int, too_long: int, dscp: Dscp) -> int:
        """Bytes of the longest tensor of one packet that arrives, by search; 0: none."""
        fits = 0
        while too_long - fits > 1:
            size_bytes = (fits + too_long) // 2
            arrival, _ = self._send(path, size_bytes, dscp, LEAST_SECONDS)
            fits, too_long = (size_bytes, too_long) if arrival.data_packets else (fits, size_bytes)
        return fits

    def _losses(self, path: int, packet_bytes: int, dscp: Dscp) -> tuple[int, int]:
        """Packets sent, and lost of them."""
        sent, arrived = self._snapshot().paths[path].sent_packets, self._counted.paths[path]
        self._send(path, LOSS_PACKETS * packet_bytes, dscp)
        counted = self._count()  # the last packets have come meanwhile
        sent = self._snapshot().paths[path].sent_packets - sent
        return sent, max(0, sent - (counted.paths[path] - arrived))

    def _send(
        self,
        path: int,
        size_bytes: int,
        dscp: Dscp,
        seconds: float = FIRST_SECONDS,
        *,
        is_important: bool = True,
    ) -> tuple[Arrival, Completion]:
        """A tensor of zeros, and what the peer says of it."""
        self._tensors += 1
        self._tell(_Request(ask="receive", tensor=self._tensors, size_bytes=size_bytes, seconds=seconds))
        transfer = self._channel.post_send(
            self._peer,
            bytes(size_bytes),
            tensor=self._tensors,
            dscp=dscp,
            importance="all" if is_important else "none",
            burst_packets=1,
            deadline_seconds=seconds + ANSWER_SECONDS,
        )
        arrival = self._arrived(path, self._hear(_Counts, seconds + ANSWER_SECONDS))
        with suppress(AgentError):  # nothing arrived: the receiver has said so already
            transfer.wait()
        completion = transfer.completion
        assert completion is not None  # noqa: S101  (it has ended)
        return arrival, completion

    def _arrived(self, path: int, counts: _Counts) -> Arrival:
        before, self._counted = self._counted, counts
        return Arrival(
            counts.data_packets,
            counts.paths[path] - before.paths[path],
            Counter(counts.by_byte) - Counter(before.by_byte),
        )

    def _received(self, request: _Request) -> _Counts:
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
        return _Counts(data_packets=data_packets, paths=paths, by_byte=dict(counts.received_by_tos))

    def _snapshot(self) -> ConnectionSnapshot:
        return self._channel.connection(self._peer).snapshot()

    # Messages

    def _count(self) -> _Counts:
        self._tell(_Request(ask="receive"))
        self._counted = self._hear(_Counts)
        return self._counted

    def _tell(self, value: object) -> None:
        text = to_json(value)
        pieces = [text[place : place + PIECE_BYTES] for place in range(0, len(text), PIECE_BYTES)]
        for piece in pieces[:-1]:
            self._channel.send_message(self._peer, _MORE + piece)
        self._channel.send_message(self._peer, _LAST + pieces[-1])

    def _hear(self, kind: Any, timeout_seconds: float = ANSWER_SECONDS) -> Any:
        text = b""
        while True:
            piece = self._channel.receive_message(self._peer, timeout_seconds)
            text += piece[1:]
            if len(text) > MOST_ANSWER_BYTES:
                raise ProtocolViolationError("says too much for a doctor", peer=self._peer)
            if piece[:1] == _LAST:
                break
        try:
            return TypeAdapter(kind).validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise ProtocolViolationError(
                f"is no doctor of this version: {where} {first['msg']}", peer=self._peer
            ) from None
