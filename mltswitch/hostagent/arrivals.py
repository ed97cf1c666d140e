"""Reads an agent's data sockets: batch by batch, each batch to the peers whose flows it carries."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from mltswitch.hostagent.network.receiver import DatagramReceiver
from mltswitch.hostagent.network.sockets import DataSocket
from mltswitch.hostagent.transport.datagrams import DatagramGrid

CALLS: Final = 4
"""Of each socket in a turn; acknowledgements leave after each."""
MESSAGES: Final = 1024
"""By one call of each socket; sockets of a path each share it."""
LEAST_MESSAGES: Final = 64

HandOver = Callable[[int, Sequence[DatagramGrid], int], None]
"""Given a flow token, datagrams that begin with it, and the time."""


class Arrivals:
    """Of all data sockets of one agent; the sockets stay the caller's."""

    def __init__(self, sockets: Sequence[DataSocket]) -> None:
        """Raises MachineError as `DatagramReceiver`."""
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
            newest_ns = {}
            for receiver in pending:  # in turn: the answers of one path must not wait for all of another
                grids = receiver.receive()
                now_ns = time.monotonic_ns()
                total += sum(grid.datagram_count for grid in grids)
                for token, parts in _by_token(grids).items():
                    hand_over(token, parts, now_ns)
                if receiver.was_full:
                    newest_ns[receiver] = _newest_ns(grids, now_ns)
            pending = list(newest_ns)
            if not pending:
                break
            answer()
        self.has_more = bool(pending)
        # What still waits in a socket arrived after all that was read of it.
        self.read_until_ns = min(read_until_ns, *newest_ns.values()) if pending else read_until_ns
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


def _newest_ns(grids: Sequence[DatagramGrid], now_ns: int) -> int:
    """When the last of them arrived."""
    times = [int(grid.arrived_ns.max()) for grid in grids if grid.arrived_ns is not None]
    return max(times, default=now_ns)
