"""What a receiver tells of each path, and what it learns of queues from the packets' times."""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.native import FeedbackCounts
from mltswitch.hostagent.transport.authentication import tag
from mltswitch.hostagent.transport.datagrams import Datagram
from mltswitch.hostagent.transport.interfaces import TransferKey
from mltswitch.wire import AgentFlag, AgentHeader, AgentKind
from mltswitch.wire.codec import struct_of
from mltswitch.wire.headers import ACKNOWLEDGEMENT, AGENT, AGENT_VERSION

_ACKNOWLEDGEMENT = Struct(struct_of(AGENT).format + struct_of(ACKNOWLEDGEMENT).format.lstrip("!"))
"""Header and body."""
_COUNT_MASK = (1 << 32) - 1
_WINDOW_NS = 10_000_000_000
"""Clocks drift: a least delay is forgotten after one or two of these."""
_LARGEST_SPREAD_NS = 1_000_000_000
"""A time that makes more of it is no time of the sender's clock."""


class Feedback:
    """Counts of what has arrived on each path, and the acknowledgements that are due."""

    def __init__(self, paths: int, every_packets: int, delay_ns: int) -> None:
        self._every_packets = every_packets
        self._delay_ns = delay_ns
        self._received = np.zeros(paths, np.int64)
        self._marked = np.zeros(paths, np.int64)
        self._pending = np.zeros(paths, np.int64)
        self._newest_sent_ns = np.zeros(paths, np.uint64)
        self._newest_arrived_ns = np.zeros(paths, np.int64)
        self._waiting_since_ns: int | None = None
        self._is_urgent = False
        self._number = 0
        self.unknown_paths = 0
        arrays: Sequence[NDArray[np.generic]] = (
            self._received,
            self._marked,
            self._pending,
            self._newest_sent_ns,
            self._newest_arrived_ns,
        )
        self._counts = FeedbackCounts(*(array.ctypes.data for array in arrays), paths, 0)

    def arrived(
        self,
        paths: NDArray[np.uint32],
        sent_ns: NDArray[np.uint64],
        arrived_ns: NDArray[np.int64],
        is_marked: NDArray[np.bool_],
        now_ns: int,
    ) -> None:
        """Packets with our token, four arrays of shape (packets,)."""
        count = len(self._received)
        if int(paths.max(initial=0)) >= count:
            is_known = paths < count
            self.unknown_paths += int(np.count_nonzero(~is_known))
            paths, sent_ns, is_marked = paths[is_known], sent_ns[is_known], is_marked[is_known]
            arrived_ns = arrived_ns[is_known]
        if not len(paths):
            return
        numbers = np.bincount(paths, minlength=count)
        self._received += numbers
        self._pending += numbers
        if is_marked.any():
            self._marked += np.bincount(paths[is_marked], minlength=count)
        # Of assignments to one place the last one stays: of packets sent together the first to arrive.
        in_order = len(sent_ns) - 1 - np.argsort(sent_ns[::-1], kind="stable")
        newest = np.full(count, -1)
        newest[paths[in_order]] = in_order
        for path in np.flatnonzero(newest >= 0).tolist():
            place = newest[path]
            if sent_ns[place] > self._newest_sent_ns[path]:
                self._newest_sent_ns[path] = sent_ns[place]
                self._newest_arrived_ns[path] = arrived_ns[place]
        if self._waiting_since_ns is None:
            self._waiting_since_ns = now_ns

    def arrived_one(self, path: int, sent_ns: int, arrived_ns: int, *, is_marked: bool, now_ns: int) -> None:
        """The same of one packet."""
        if path >= len(self._received):
            self.unknown_paths += 1
            return
        self._received[path] += 1
        self._pending[path] += 1
        self._marked[path] += is_marked
        if sent_ns > self._newest_sent_ns[path]:
            self._newest_sent_ns[path], self._newest_arrived_ns[path] = sent_ns, arrived_ns
        if self._waiting_since_ns is None:
            self._waiting_since_ns = now_ns

    def compiled(self) -> FeedbackCounts:
        """The same counts, for compiled reads to add to: call `counted` after each."""
        return self._counts

    def counted(self, now_ns: int) -> None:
        """A compiled read has taken packets in."""
        self.unknown_paths += self._counts.unknown_paths
        self._counts.unknown_paths = 0
        if self._waiting_since_ns is None and self._pending.any():
            self._waiting_since_ns = now_ns

    @property
    def received_packets(self) -> tuple[int, ...]:
        """On each path, probes and duplicates included."""
        return tuple(self._received.tolist())

    @property
    def marked_packets(self) -> tuple[int, ...]:
        """Of them, with CE."""
        return tuple(self._marked.tolist())

    def answer_at_once(self) -> None:
        """A probe has arrived."""
        self._is_urgent = True

    def next_ns(self) -> int | None:
        """When `due` will have something, if nothing more arrives."""
        if self._waiting_since_ns is None:
            return None
        if self._is_urgent or max(self._pending.tolist()) >= self._every_packets:
            return self._waiting_since_ns
        return self._waiting_since_ns + self._delay_ns

    def due(self, token: int, key: bytes | None, tos: int, now_ns: int, paths_back: int) -> list[Datagram]:
        """The acknowledgements that should leave now, one a path; each is made once.

        `paths_back`: how many lead to the peer; each goes back by its own, as far as there are as many.
        """
        since = self._waiting_since_ns
        if since is None:
            return []
        is_late = self._is_urgent or now_ns - since >= self._delay_ns
        least = 1 if is_late else self._every_packets
        pending = self._pending.tolist()  # paths are few: lists are faster than arrays
        paths = [path for path, packets in enumerate(pending) if packets >= least]
        due = [Datagram(self._payload(path, token, key, now_ns), path % paths_back, tos) for path in paths]
        if is_late or sum(pending) == sum(pending[path] for path in paths):
            self._waiting_since_ns, self._is_urgent = None, False
        self._pending[paths] = self._newest_sent_ns[paths] = 0
        return due

    def _payload(self, path: int, token: int, key: bytes | None, now_ns: int) -> bytes:
        self._number += 1
        payload = _ACKNOWLEDGEMENT.pack(
            AGENT_VERSION,
            AgentKind.ACKNOWLEDGEMENT,
            0 if key is None else AgentFlag.AUTHENTICATED,
            0,
            token,
            0,
            0,
            0,
            path,
            self._number & _COUNT_MASK,
            0,
            now_ns,
            self._newest_sent_ns.item(path),
            min(max(0, now_ns - self._newest_arrived_ns.item(path)), _COUNT_MASK),
            self._received.item(path) & _COUNT_MASK,
            self._marked.item(path) & _COUNT_MASK,
        )
        return payload if key is None else payload + tag(key, payload)


def path_probe(path: int, token: int, key: bytes | None, tos: int, now_ns: int) -> Datagram:
    """Asks for an acknowledgement of one path."""
    return marker(Marker(path, TransferKey(0, 0), 0, tos), token, key, now_ns)


@dataclass(frozen=True, slots=True)
class Marker:
    """What has been sent of a transfer on one path, up to a probe, ends here.

    A path keeps the packets of a class in order, so that a receiver that hears it need not wait for more. It
    is so short that a queue that has just dropped a packet of data has room for it, mostly.
    """

    path: int
    key: TransferKey
    attempt: int
    """Of the probe."""
    tos: int
    """As important packets of the data have."""


def marker(mark: Marker, token: int, key: bytes | None, now_ns: int) -> Datagram:
    """On the wire it is a path probe that names transfer and attempt."""
    flags = AgentFlag(0) if key is None else AgentFlag.AUTHENTICATED
    tensor, round_number = mark.key.tensor, mark.key.round_number
    header = AgentHeader(
        AgentKind.PROBE, flags, 0, token, tensor, round_number, 0, mark.path, mark.attempt, 0, now_ns
    ).encode()
    payload = header if key is None else header + tag(key, header)
    return Datagram(payload, mark.path, mark.tos)


class QueueDelay:
    """How much longer packets take now than the fastest did: the queues, and whatever else made them wait.

    The sender's clock has another zero; differences of differences do not show it.
    """

    def __init__(self) -> None:
        self._least_ns: int | None = None
        self._previous_least_ns: int | None = None
        self._window_ns = 0
        self.spread_ns = 0
        """Of the packets that arrived last."""

    def arrived(self, fastest: int, slowest: int, now_ns: int) -> None:
        """Times of arrival here less those in the packets' headers: the least, and the most."""
        if now_ns >= self._window_ns:
            self._previous_least_ns, self._least_ns = self._least_ns, None
            self._window_ns = now_ns + _WINDOW_NS
        self._least_ns = fastest if self._least_ns is None else min(fastest, self._least_ns)
        least = min(
            self._least_ns, self._least_ns if self._previous_least_ns is None else self._previous_least_ns
        )
        self.spread_ns = max(0, min(slowest - least, _LARGEST_SPREAD_NS))
