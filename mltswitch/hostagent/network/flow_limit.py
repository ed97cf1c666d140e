"""How much fq may have waiting of one path: beyond a limit of its own it drops, and tells nobody."""

import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.network.departures import Departures
from mltswitch.hostagent.network.outgoing import Output, Refusal, leading, overhead_bytes
from mltswitch.hostagent.transport.datagrams import Bursts, Datagram

FLOW_PACKETS: Final = 64
"""fq silently drops what one flow has waiting beyond 100 messages (`flow_limit`): a path is to get so many
packets at once on average,"""
FLOW_MESSAGES: Final = 96
"""and may never have more than so many messages waiting. A burst has no more than `UDP_MAXIMUM_SEGMENTS`."""


class FlowLimit:
    """Keeps back what fq would drop: bursts behind the first that finds too many messages of its path
    waiting. See `Output`.

    Only a path of which it is not known yet that the kernel cannot cut its bursts may get more, once.
    """

    def __init__(
        self,
        sender: Output,
        departures: Departures,
        paths: int,
        is_segmenting: Callable[[int], bool],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`departures`: the sender's own. `is_segmenting` says of a path whether each burst is one message;
        else each packet is one."""
        self.counters = sender.counters
        self._sender = sender
        self._departures = departures
        self._paths = paths
        self._is_segmenting = is_segmenting
        self._clock = clock
        self._blocked: socket.socket | None = None
        self._gone_ns: NDArray[np.int64] = np.zeros(0, np.int64)
        """When each burst that has been handed over is gone; they rise."""
        self._path_of: NDArray[np.int64] = np.zeros(0, np.int64)
        self._messages_of: NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def blocked_socket(self) -> socket.socket | None:
        """None where a path is full: it is to be tried a little later."""
        return self._blocked

    def send(self, bursts: Bursts) -> int:
        """How many leading packets are dealt with."""
        self._blocked = None
        admitted = self._admitted(bursts)
        if not admitted:
            return 0
        if admitted < len(bursts.paths):
            bursts = leading(bursts, admitted)
        begins_ns = max(self._departures.free_ns, self._clock())
        taken = self._sender.send(bursts)
        self._blocked = self._sender.blocked_socket
        if taken:
            self._handed_over(bursts, taken, begins_ns)
        return taken

    def send_datagrams(self, datagrams: Sequence[Datagram]) -> int:
        """They leave at once."""
        taken = self._sender.send_datagrams(datagrams)
        self._blocked = self._sender.blocked_socket
        return taken

    def refusals(self) -> tuple[Refusal, ...]:
        """The sender's."""
        return self._sender.refusals()

    def waiting(self) -> NDArray[np.int64]:
        """Messages of each path that are not gone yet, as planned."""
        gone = int(np.searchsorted(self._gone_ns, self._clock(), side="right"))
        if gone:
            self._gone_ns = self._gone_ns[gone:]
            self._path_of, self._messages_of = self._path_of[gone:], self._messages_of[gone:]
        return self._sums(self._path_of, self._messages_of)

    def _admitted(self, bursts: Bursts) -> int:
        """Leading bursts that their paths have room for."""
        paths, messages = bursts.paths, self._messages(bursts)
        waiting = self.waiting()
        admitted = len(paths)
        for path in np.flatnonzero(waiting + self._sums(paths, messages) > FLOW_MESSAGES).tolist():
            places = np.flatnonzero(paths == path)
            is_over = waiting[path] + messages[places].cumsum() > FLOW_MESSAGES
            admitted = min(admitted, int(places[is_over.argmax()]))
        return admitted

    def _handed_over(self, bursts: Bursts, packets: int, begins_ns: int) -> None:
        """So many leading packets; each takes its part of the time from `begins_ns` on."""
        count = int(np.searchsorted(bursts.starts, packets))
        sizes = bursts.payload_bytes[:packets] + (overhead_bytes(bursts) + self._departures.header_bytes)
        sums = sizes.cumsum()
        last = np.minimum(bursts.starts[1 : count + 1], packets) - 1
        takes_ns = (self._departures.free_ns - begins_ns) * (sums[last] / sums[-1])
        self._gone_ns = np.concatenate((self._gone_ns, begins_ns + np.ceil(takes_ns).astype(np.int64)))
        self._path_of = np.concatenate((self._path_of, bursts.paths[:count]))
        # A burst that was begun counts as a whole.
        self._messages_of = np.concatenate((self._messages_of, self._messages(bursts)[:count]))

    def _messages(self, bursts: Bursts) -> NDArray[np.int64]:
        """Of each burst."""
        packets = bursts.starts[1:] - bursts.starts[:-1]
        if len(packets) == bursts.packet_count:
            return packets
        segmenting = np.array([self._is_segmenting(path) for path in range(self._paths)])
        return np.where(segmenting[bursts.paths], 1, packets)

    def _sums(self, paths: NDArray[np.int64], messages: NDArray[np.int64]) -> NDArray[np.int64]:
        """By path."""
        return np.bincount(paths, weights=messages, minlength=self._paths).astype(np.int64)
