"""Reads an agent's data sockets: batch by batch, each batch to the peers whose flows it carries."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.network.sockets import DataSocket
from mltswitch.hostagent.transport.compiled import NOTHING, Registry, Taken
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.units import NANOSECONDS

CALLS: Final = 4
"""Of each socket in a turn; acknowledgements leave after each."""
MESSAGES: Final = 1024
"""There is room for at once; sockets of a path each share it."""
LEAST_MESSAGES: Final = 64
NAP_PACKETS: Final = 64
"""Fewer at once are no stream that a rest would help."""
NAP_SHARE: Final = 1 / 4
"""Of a receive buffer, that may fill meanwhile."""

HandOver = Callable[[int, Sequence[DatagramGrid], Taken, int], None]
"""Given a flow token, datagrams that begin with it, what was taken in of others, and the time."""


class Arrivals:
    """Of all data sockets of one agent; the sockets stay the caller's."""

    def __init__(self, sockets: Sequence[DataSocket], registry: Registry | None) -> None:
        """`registry`: packets of its transfers are taken in where they are read; None: there are no compiled
        passes. Raises MachineError as `DatagramReceiver`."""
        self._registry = registry
        messages = max(LEAST_MESSAGES, MESSAGES // max(1, len(sockets)))
        self.receivers: Final = tuple(DatagramReceiver(entry.socket, messages) for entry in sockets)
        self.has_more = False
        """Whether more had arrived than one turn takes."""
        self.read_until_ns = 0
        """What had arrived by then has been read."""

    def read(self, hand_over: HandOver, answer: Callable[[], None]) -> int:
        """One turn; returns how many datagrams. Between batches, if there are several, `answer` is called."""
        total = 0
        read_until_ns = time.monotonic_ns()
        pending = list(self.receivers)
        for _ in range(CALLS):
            for receiver in pending:  # in turn: the answers of one path must not wait for all of another
                total += self._read(receiver, hand_over)
            pending = [receiver for receiver in pending if receiver.was_full]
            if not pending:
                break
            answer()
        self.has_more = bool(pending)
        # What still waits in a socket arrived after all that was read of it.
        self.read_until_ns = min([read_until_ns, *(receiver.newest_ns for receiver in pending)])
        return total

    def _read(self, receiver: DatagramReceiver, hand_over: HandOver) -> int:
        registry = self._registry
        left = receiver.receive(0 if registry is None else registry.address)
        taken = {} if registry is None else registry.taken()
        total = sum(grid.datagram_count for grid in left) + (0 if registry is None else registry.datagrams)
        now_ns = time.monotonic_ns()
        by_token = _by_token(left)
        for token in taken | by_token:
            hand_over(token, by_token.get(token, ()), taken.get(token, NOTHING), now_ns)
        return total


def _by_token(grids: Sequence[DatagramGrid]) -> dict[int, list[DatagramGrid]]:
    found: dict[int, list[DatagramGrid]] = {}
    for grid in grids:
        tokens = grid.flow_tokens()
        if (tokens == tokens[0]).all():
            found.setdefault(int(tokens[0]), []).append(grid)
            continue
        different, which = np.unique(tokens, return_inverse=True)
        for number, token in enumerate(different.tolist()):
            found.setdefault(token, []).append(grid.picked(np.flatnonzero(which == number)))
    return found


def nap_seconds(most_seconds: float, received: int, elapsed_ns: int, room_packets: int) -> float:
    """How long to rest: so many packets had arrived in so long, and the next must not fill the buffer."""
    filling_seconds = elapsed_ns / NANOSECONDS * room_packets / received
    return min(most_seconds, NAP_SHARE * filling_seconds)
