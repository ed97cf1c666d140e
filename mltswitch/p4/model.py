"""Reference model of the P4 program: one packet at a time, bytes in, verdict out. Needs no BMv2.

It says what `mlt.p4` must do, in as few words as possible, and shares the drop-or-mark decision with the
simulator. Time does not pass in it: a queue is served when `serve` is called, and whether a policer is
exceeded is asked of the caller. The real switch is compared with it packet by packet (`bmv2_tests`).
"""

import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from mltswitch.p4.model_packet import NetworkHeader, Packet, network_bytes
from mltswitch.p4.model_tables import NextHop, Share, Tables
from mltswitch.queueing.decision import Decision, decide
from mltswitch.wire.codec import WireFormatError
from mltswitch.wire.tos import Ecn

PORTS: Final = 512
BACKGROUND_QUEUE: Final = 0
GROUP_BIT: Final = 1
"""Of a MAC address's first byte (IEEE 802-2014, section 8.2.2)."""
_COUNTER_MODULUS: Final = 1 << 32
"""Byte counts of a queue are 32 bits wide in the switch, and wrap."""


class Refusal(IntEnum):
    """Why a packet is not forwarded, where no queue is to blame; the numbers of `refusals.p4`."""

    MALFORMED = 1
    CHECKSUM = 2
    NOT_IP = 3
    NO_ROUTE = 4
    EXPIRED = 5
    NO_QUEUE = 6
    GROUP_ADDRESS = 7
    UNTRUSTED = 8


class _RefusedError(Exception):
    def __init__(self, reason: Refusal):
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a packet that reached a queue."""

    port: int
    queue: int
    decision: Decision
    data: bytes | None
    """The packet as it will leave; None where it is dropped."""


@dataclass(slots=True)
class Count:
    """Packets and their bytes, as they arrived."""

    packets: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        """One packet more."""
        self.packets += 1
        self.size_bytes += size_bytes


@dataclass(slots=True)
class QueueState:
    """One queue: byte counts of all packets ever admitted and left, the packets waiting, and its counters."""

    admitted_bytes: int = 0
    left_bytes: int = 0
    waiting: deque[tuple[int, bytes]] = field(default_factory=deque)
    """(ticket, packet as it will leave), the oldest first."""
    was_left_empty: bool = False
    """A packet left it empty, and none was admitted since."""
    arrived: Count = field(default_factory=Count)
    decided: dict[Decision, Count] = field(
        default_factory=lambda: {decision: Count() for decision in Decision}
    )

    @property
    def waiting_bytes(self) -> int:
        """What S and L are compared with; that a queue is empty, the switch believes after a second."""
        return 0 if self.was_left_empty else (self.admitted_bytes - self.left_bytes) % _COUNTER_MODULUS


class ReferenceSwitch:
    """The pipeline over its tables; the tables may be replaced at any time, queues stay as they are."""

    def __init__(self, lines: Iterable[str], is_exceeding: Callable[[int, int, int], bool] | None = None):
        """A switch with empty queues.

        Args:
            lines: the `table_add` lines that program the switch.
            is_exceeding: whether the packet of (port, queue, bytes) exceeds the policer of its queue; asked
                once for each packet that finds a policed queue below its limit. Never, where None.
        """
        self.tables = Tables.from_lines(lines)
        self.queues: defaultdict[tuple[int, int], QueueState] = defaultdict(QueueState)
        self.refused = dict.fromkeys(Refusal, 0)
        self._is_exceeding = is_exceeding or (lambda _port, _queue, _size_bytes: False)
        self._last_member: defaultdict[int, int] = defaultdict(int)

    def receive(self, ingress_port: int, frame: bytes) -> Verdict | Refusal:
        """Decide about one packet and, if it is admitted, put it into its queue."""
        try:
            return self._process(ingress_port, frame)
        except _RefusedError as refused:
            self.refused[refused.reason] += 1
            return refused.reason

    def serve(self, port: int, queue: int) -> bytes:
        """Send the oldest packet of a queue; raises IndexError where none waits."""
        state = self.queues[port, queue]
        ticket, data = state.waiting.popleft()
        state.left_bytes = ticket
        state.was_left_empty = not state.waiting
        return data

    def _process(self, ingress_port: int, frame: bytes) -> Verdict:
        packet, network = _read(frame)
        dscp_map = self.tables.map_of_port.get(ingress_port, 0)
        next_hop = self._next_hop(packet, network, is_trusted=dscp_map != 0)
        queue = self.tables.queue_of_dscp.get((dscp_map, network.dscp), BACKGROUND_QUEUE)
        decision = self._admit(next_hop.port, queue, len(frame), is_capable=Ecn(network.ecn).is_capable)
        if not decision.is_admitted:
            return Verdict(next_hop.port, queue, decision, None)
        ecn = Ecn.CE if decision is Decision.MARK else network.ecn
        sent = replace(
            packet,
            destination=next_hop.neighbour,
            source=packet.destination,
            ports=packet.ports[1:],
            data=network_bytes(packet.data, network, ecn=ecn, lifetime=network.lifetime - 1),
        ).encode()
        state = self.queues[next_hop.port, queue]
        state.waiting.append((state.admitted_bytes, sent))
        return Verdict(next_hop.port, queue, decision, sent)

    def _next_hop(self, packet: Packet, network: NetworkHeader, *, is_trusted: bool) -> NextHop:
        if packet.ports:
            if not is_trusted:
                raise _RefusedError(Refusal.UNTRUSTED)
            port = packet.ports[0]
            if port >= PORTS or port not in self.tables.neighbours:
                raise _RefusedError(Refusal.NO_QUEUE)
            return NextHop(port, self.tables.neighbours[port])
        route = self.tables.route_to(network.destination)
        if isinstance(route, Share):
            route = self.tables.members.get((route.group, self._member(route, network)))
        if route is None:
            raise _RefusedError(Refusal.NO_ROUTE)
        return route

    def _member(self, share: Share, network: NetworkHeader) -> int:
        if 0 not in self.tables.spraying:
            return flow_hash(network) % share.members
        member = self._last_member[share.group] + 1
        self._last_member[share.group] = member if member < share.members else 0
        return self._last_member[share.group]

    def _admit(self, port: int, queue: int, size_bytes: int, *, is_capable: bool) -> Decision:
        limits = self.tables.queues.get((port, queue))
        if limits is None:
            raise _RefusedError(Refusal.NO_QUEUE)
        state = self.queues[port, queue]
        state.arrived.add(size_bytes)
        decision = decide(
            state.waiting_bytes,
            is_capable=is_capable,
            ecn_threshold=limits.ecn_threshold_bytes,
            limit=limits.limit_bytes,
        )
        # What finds the queue full takes nothing from the policer.
        is_policed = limits.is_policed and decision is not Decision.DROP_LIMIT
        if is_policed and self._is_exceeding(port, queue, size_bytes):
            decision = Decision.DROP_LIMIT
        state.decided[decision].add(size_bytes)
        if decision.is_admitted:
            state.admitted_bytes = (state.admitted_bytes + size_bytes) % _COUNTER_MODULUS
            state.was_left_empty = False
        return decision


def _read(frame: bytes) -> tuple[Packet, NetworkHeader]:
    try:
        packet = Packet.decode(frame)
    except WireFormatError:
        raise _RefusedError(Refusal.MALFORMED) from None
    if packet.network is None:
        raise _RefusedError(Refusal.NOT_IP)
    if not packet.network.has_valid_checksum:
        raise _RefusedError(Refusal.CHECKSUM)
    if packet.destination[0] & GROUP_BIT:
        raise _RefusedError(Refusal.GROUP_ADDRESS)
    if packet.network.lifetime <= 1:
        raise _RefusedError(Refusal.EXPIRED)
    return packet, packet.network


def flow_hash(network: NetworkHeader) -> int:
    """CRC-32 over addresses (16 bytes each, zeros before IPv4's), protocol and ports.

    Remainders of it spread neighbouring ports evenly; those of its CRC-16 leave paths empty.
    """
    return zlib.crc32(
        network.source.rjust(16, b"\0")
        + network.destination.rjust(16, b"\0")
        + bytes([network.protocol])
        + network.source_port.to_bytes(2, "big")
        + network.destination_port.to_bytes(2, "big")
    )
