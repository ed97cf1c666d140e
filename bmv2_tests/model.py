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

from bmv2_tests.model_packet import (
    MartianError,
    NetworkHeader,
    NotIpError,
    Packet,
    network_bytes,
)
from bmv2_tests.model_tables import QueueLimits, RouteKind, Tables
from bmv2_tests.received import WireFormatError
from mltswitch.queueing.decision import Decision, decide
from mltswitch.wire.tos import Ecn

PORTS: Final = 512
BACKGROUND_QUEUE: Final = 0
_COUNTER_MODULUS: Final = 1 << 32
"""Byte counts of a queue are 32 bits wide in the switch, and wrap."""


class Refusal(IntEnum):
    """Why a packet is not forwarded, where no queue is to blame; the numbers of `refusals.p4`."""

    NO_QUEUE = 0
    MALFORMED = 1
    CHECKSUM = 2
    NOT_IP = 3
    NO_ROUTE = 4
    EXPIRED = 5
    UNREACHABLE = 6
    NOT_OURS = 7
    UNTRUSTED = 8
    MARTIAN = 9
    TOO_BIG = 10
    RETURNED = 11
    NO_NEIGHBOUR = 12


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
    waiting: deque[tuple[int, bytes | None]] = field(default_factory=deque)
    """(ticket, packet as it will leave or None where nobody is behind the port), the oldest first."""
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
        self._turns: defaultdict[int, int] = defaultdict(int)

    def receive(self, ingress_port: int, frame: bytes) -> Verdict | Refusal:
        """Decide about one packet and, if it is admitted, put it into its queue."""
        try:
            return self._process(ingress_port, frame)
        except _RefusedError as refused:
            self.refused[refused.reason] += 1
            return refused.reason

    def serve(self, port: int, queue: int) -> bytes | None:
        """Send the oldest packet of a queue, None if nobody is behind it; raises IndexError if none waits."""
        state = self.queues[port, queue]
        ticket, data = state.waiting.popleft()
        state.left_bytes = ticket
        state.was_left_empty = not state.waiting
        if data is None:
            self.refused[Refusal.NO_NEIGHBOUR] += 1
        return data

    def _process(self, ingress_port: int, frame: bytes) -> Verdict:
        packet = _read(frame)
        network = packet.network
        port_dscp = self.tables.ports.get((ingress_port, packet.destination), ...)
        known = self.tables.classes.get((ingress_port, packet.destination, network.dscp))
        if known is None and port_dscp is ...:
            raise _RefusedError(Refusal.NOT_OURS)
        is_trusted = known is not None or port_dscp is None
        queue = BACKGROUND_QUEUE if known is None else known.queue
        new_dscp = port_dscp if known is None else known.dscp
        port, may_return = self._port(packet, is_trusted=is_trusted)
        limits = self.tables.queues.get((port, queue))
        if limits is None:
            raise _RefusedError(Refusal.NO_QUEUE)
        if len(frame) > limits.frame_bytes + packet.more_link_bytes:
            raise _RefusedError(Refusal.TOO_BIG)
        if network.lifetime <= 1:
            raise _RefusedError(Refusal.EXPIRED)
        if port == ingress_port and not may_return:
            raise _RefusedError(Refusal.RETURNED)
        decision = self._admit(port, queue, len(frame), limits, is_capable=Ecn(network.ecn).is_capable)
        if not decision.is_admitted:
            return Verdict(port, queue, decision, None)
        sent = None
        addresses = self.tables.neighbours.get(port)
        if addresses is not None:
            ecn = Ecn.CE if decision is Decision.MARK else network.ecn
            dscp = network.dscp if new_dscp in (None, ...) else new_dscp
            sent = replace(
                packet,
                destination=addresses[1],
                source=addresses[0],
                hops=packet.hops[1:],
                data=network_bytes(packet.data, network, dscp=dscp, ecn=ecn),
            ).encode()
        state = self.queues[port, queue]
        state.waiting.append((state.admitted_bytes, sent))
        return Verdict(port, queue, decision, sent)

    def _port(self, packet: Packet, *, is_trusted: bool) -> tuple[int, bool]:
        """The port that a packet leaves by, and whether it may be the one that it came by."""
        if packet.hops:
            if not is_trusted:
                raise _RefusedError(Refusal.UNTRUSTED)
            return packet.hops[0], True
        route = self.tables.route_to(packet.network.destination)
        if route is None:
            raise _RefusedError(Refusal.NO_ROUTE)
        if route.number is None:
            raise _RefusedError(Refusal.UNREACHABLE)
        if route.kind in (RouteKind.FORWARD, RouteKind.FORWARD_BACK):
            return route.number, route.kind is RouteKind.FORWARD_BACK
        members = self.tables.groups.get(route.number)
        if not members:
            raise _RefusedError(Refusal.NO_QUEUE)
        if route.kind is RouteKind.SHARE_PACKETS:
            self._turns[route.number] += 1
            return members[self._turns[route.number] % len(members)], False
        return members[flow_hash(packet.network) % len(members)], False

    def _admit(
        self, port: int, queue: int, size_bytes: int, limits: QueueLimits, *, is_capable: bool
    ) -> Decision:
        state = self.queues[port, queue]
        state.arrived.add(size_bytes)
        decision = decide(
            state.waiting_bytes,
            is_capable=is_capable,
            ecn_threshold=limits.ecn_threshold_bytes,
            limit=limits.limit_bytes,
        )
        # What is dropped anyway takes nothing from the policer.
        if limits.is_policed and decision.is_admitted and self._is_exceeding(port, queue, size_bytes):
            decision = Decision.DROP_LIMIT
        state.decided[decision].add(size_bytes)
        if decision.is_admitted:
            state.admitted_bytes = (state.admitted_bytes + size_bytes) % _COUNTER_MODULUS
            state.was_left_empty = False
        return decision


def _read(frame: bytes) -> Packet:
    try:
        packet = Packet.decode(frame)
    except WireFormatError:
        raise _RefusedError(Refusal.MALFORMED) from None
    except NotIpError:
        raise _RefusedError(Refusal.NOT_IP) from None
    except MartianError:
        raise _RefusedError(Refusal.MARTIAN) from None
    if not packet.network.has_valid_checksum:
        raise _RefusedError(Refusal.CHECKSUM)
    return packet


def flow_hash(network: NetworkHeader) -> int:
    """CRC-32 over addresses, protocol and ports: its remainders spread neighbouring ports evenly."""
    return zlib.crc32(network.source + network.destination + bytes([network.protocol]) + network.ports)
