"""What is counted of one transfer: by class and by path, a fixed number of numpy calls for each chunk."""

from dataclasses import dataclass, fields
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.tagging import are_important
from mltswitch.hostagent.tensor.layout import PacketLayout
from mltswitch.hostagent.transport.datagrams import Bursts
from mltswitch.hostagent.transport.interfaces import ClassStatistics
from mltswitch.wire import Ecn

_TOS_VALUES: Final = 256
_DSCP_VALUES: Final = 64
_ECN_VALUES: Final = 4


@dataclass(slots=True)
class Counters:
    """Fields that are added up."""

    def add(self, other: Self) -> None:
        """Count what was counted elsewhere."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@dataclass(slots=True)
class SentTotals(Counters):
    """Data packets that one end has sent."""

    packets: int = 0
    """Retransmissions included."""
    packets_important: int = 0
    """Of them."""
    packets_resent: int = 0
    """Of them."""
    packets_lost: int = 0
    """Sent in passes that the receiver answered, and not there when it did."""
    important_lost: int = 0
    """Of them."""


@dataclass(slots=True)
class ReceivedTotals(Counters):
    """Data packets that have arrived for open transfers."""

    packets: int = 0
    """Duplicates included."""
    payload_bytes: int = 0
    """Elements in different packets."""
    packets_marked: int = 0
    """With CE."""
    packets_duplicate: int = 0
    important_packets: int = 0
    """Different ones."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of one connection since it began, both directions."""

    sent: SentTotals
    received: ReceivedTotals
    open_sends: int
    open_receives: int
    arrived_by_path: tuple[int, ...]
    """Packets from the peer, probes and packets of no open transfer included."""
    marked_by_path: tuple[int, ...]
    late_packets: int
    """Of transfers that are not open here."""
    dropped_datagrams: int
    """With our token, and yet no packets of the peer's."""
    rate_bps: float
    in_flight_bytes: int
    """To the peer."""


@dataclass(slots=True)
class _Class:
    """Packets sent with one DSCP."""

    sent: int = 0
    important: int = 0
    resent: int = 0
    lost: int = 0
    important_lost: int = 0


class SendTally:
    """Of a tensor on its way out."""

    def __init__(self) -> None:
        self._classes: dict[int, _Class] = {}
        self._class = _Class()
        """Of the chunk that is being sent."""
        self._is_repeated = False
        self._dscps = np.zeros(0, np.uint8)
        """That each packet was last sent with, shape (packets,)."""
        self._by_path = np.zeros(0, np.int64)
        self._by_path_before = self._by_path
        """This pass."""
        self._was_answered = False

    def begin(self, packets: int) -> None:
        """The tensor has so many."""
        self._dscps = np.zeros(packets, np.uint8)

    def chunk(self, sequences: NDArray[np.int64], dscp: int, *, is_repeated: bool) -> None:
        """These leave next, all with one DSCP."""
        self._class = self._classes.setdefault(dscp, _Class())
        self._is_repeated = is_repeated
        self._dscps[sequences] = dscp

    def left(self, bursts: Bursts) -> None:
        """The next ones of the chunk."""
        packets, entry = bursts.packet_count, self._class
        lengths = bursts.starts[1:] - bursts.starts[:-1]
        entry.sent += packets
        entry.important += int(lengths @ are_important(bursts.tos))
        if self._is_repeated:
            entry.resent += packets
        by_path = np.bincount(bursts.paths, weights=lengths, minlength=len(self._by_path)).astype(np.int64)
        by_path[: len(self._by_path)] += self._by_path
        self._by_path = by_path

    def left_whole(self, dscp: int) -> None:
        """One piece over TCP, which loses none."""
        self._classes.setdefault(dscp, _Class()).sent += 1

    def answered(self, lost: NDArray[np.int64], important: NDArray[np.bool_]) -> None:
        """These packets of the last pass have not arrived; `important` says it of all packets."""
        self._was_answered = True
        self._by_path_before = self._by_path
        all_lost = np.bincount(self._dscps[lost], minlength=_DSCP_VALUES)
        important_lost = np.bincount(self._dscps[lost[important[lost]]], minlength=_DSCP_VALUES)
        for dscp in np.flatnonzero(all_lost).tolist():
            self._classes[dscp].lost += int(all_lost[dscp])
            self._classes[dscp].important_lost += int(important_lost[dscp])

    @property
    def was_answered(self) -> bool:
        """Whether the receiver has said of any pass what had arrived."""
        return self._was_answered

    @property
    def by_path(self) -> tuple[int, ...]:
        """Packets sent."""
        return tuple(self._by_path.tolist())

    @property
    def paths_of_pass(self) -> tuple[int, ...]:
        """That packets were sent on since the receiver said what had arrived."""
        sent = self._by_path.copy()
        sent[: len(self._by_path_before)] -= self._by_path_before
        return tuple(np.flatnonzero(sent).tolist())

    def totals(self) -> SentTotals:
        """All classes."""
        entries = self._classes.values()
        return SentTotals(
            sum(entry.sent for entry in entries),
            sum(entry.important for entry in entries),
            sum(entry.resent for entry in entries),
            sum(entry.lost for entry in entries),
            sum(entry.important_lost for entry in entries),
        )

    def classes(self) -> tuple[ClassStatistics, ...]:
        """Each DSCP that was used."""
        return tuple(
            ClassStatistics(
                dscp=dscp,
                packets_sent=entry.sent,
                important_sent=entry.important,
                packets_resent=entry.resent,
                packets_lost=entry.lost if self._was_answered else None,
                important_lost=entry.important_lost if self._was_answered else None,
                packets_received=None,
                packets_marked=None,
            )
            for dscp, entry in sorted(self._classes.items())
        )


def bytes_in(layout: PacketLayout, packets: int, *, has_last: bool) -> int:
    """Elements in so many different packets, in bytes; `has_last`: the last one, if any, is among them."""
    shorter_bytes = layout.full_bytes - layout.last_bytes if has_last and packets else 0
    return packets * layout.full_bytes - shorter_bytes


class ReceiveTally:
    """Of a tensor on its way in."""

    def __init__(self, paths: int) -> None:
        self._by_tos = np.zeros(_TOS_VALUES, np.int64)
        self._by_path = np.zeros(paths, np.int64)

    def arrived(self, tos: NDArray[np.uint8], paths: NDArray[np.uint32]) -> None:
        """Packets with these DSCP/ECN bytes and paths, two arrays of shape (packets,)."""
        self._by_tos += np.bincount(tos, minlength=_TOS_VALUES)
        count = len(self._by_path)
        # Whatever number a header names: no more memory than that.
        self._by_path += np.bincount(np.minimum(paths, count), minlength=count + 1)[:count]

    @property
    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Counts by DSCP/ECN byte and by path, for a compiled pass to add to."""
        return self._by_tos, self._by_path

    def arrived_one(self, tos: int, path: int) -> None:
        """The same of one packet."""
        self._by_tos[tos] += 1
        if path < len(self._by_path):
            self._by_path[path] += 1

    @property
    def packets(self) -> int:
        """Duplicates included."""
        return int(self._by_tos.sum())

    @property
    def packets_marked(self) -> int:
        """With CE."""
        return int(self._by_tos[int(Ecn.CE) :: _ECN_VALUES].sum())

    @property
    def by_path(self) -> tuple[int, ...]:
        """Packets that have arrived."""
        return tuple(self._by_path.tolist())

    def classes(self) -> tuple[ClassStatistics, ...]:
        """Each DSCP that packets arrived with."""
        by_class = self._by_tos.reshape(_DSCP_VALUES, _ECN_VALUES)
        return tuple(
            ClassStatistics(
                dscp=dscp,
                packets_sent=None,
                important_sent=None,
                packets_resent=None,
                packets_lost=None,
                important_lost=None,
                packets_received=int(by_class[dscp].sum()),
                packets_marked=int(by_class[dscp, Ecn.CE]),
            )
            for dscp in np.flatnonzero(by_class.any(axis=1)).tolist()
        )
