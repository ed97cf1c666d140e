"""Packets of open tensors in one compiled pass; whatever else arrived is left to `intake`.

Both ways tell the same of the same packets (the tests compare them), and only `intake` knows every kind of
datagram: this one knows data without tags.
"""

from collections.abc import Sequence
from ctypes import CDLL, addressof
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.hostagent.native import Grid
from mltswitch.hostagent.transport.datagrams import DatagramGrid
from mltswitch.hostagent.transport.feedback import Feedback
from mltswitch.hostagent.transport.inbox import Inbox
from mltswitch.hostagent.transport.intake import read_packet
from mltswitch.hostagent.transport.interfaces import TransferKey
from mltswitch.hostagent.transport.receiving import ReceiveTransfer
from mltswitch.wire import AGENT_HEADER_BYTES, AgentKind

TRANSFERS: Final = 8
"""That packets of one grid may belong to; those of more are left,"""
LEAST_SHARE: Final = 1 / 8
"""and so is a grid of which a pass took less: `intake` sorts such mixtures faster."""


class CompiledIntake:
    """For one connection without keys."""

    def __init__(self, library: CDLL, token: int, inbox: Inbox, feedback: Feedback) -> None:
        self._accept = library.mlt_accept
        self._token = token
        self._inbox = inbox
        self._feedback = feedback
        self._counts = feedback.compiled()

    def take(
        self, grids: Sequence[DatagramGrid], now_ns: int
    ) -> tuple[list[DatagramGrid], list[ReceiveTransfer]]:
        """(what is left of them, the transfers that got something, for `Inbox.settle`)."""
        begun: dict[TransferKey, ReceiveTransfer] = {}
        rests = [self._rest_of(grid, begun, now_ns) for grid in grids]
        if begun:
            self._feedback.counted(self._counts, now_ns)
        for receiving in begun.values():
            self._inbox.counted(receiving, now_ns)
        return [rest for rest in rests if rest is not None], list(begun.values())

    def _rest_of(
        self, grid: DatagramGrid, begun: dict[TransferKey, ReceiveTransfer], now_ns: int
    ) -> DatagramGrid | None:
        """None: nothing; adds the transfers that got something.

        What is left begins with a datagram that is of no open transfer, or is too mixed.
        """
        for _ in range(TRANSFERS):
            receiving = self._transfer(grid)
            if receiving is None:
                break
            if receiving.incoming.key not in begun:
                begun[receiving.incoming.key] = receiving
                receiving.begin_pass()
            is_left, left_count = self._pass(grid, receiving, now_ns)
            if not left_count:
                return None
            is_too_mixed = grid.datagram_count - left_count < LEAST_SHARE * grid.datagram_count
            grid = grid.chosen(is_left)
            if is_too_mixed:
                break
        return grid

    def _transfer(self, grid: DatagramGrid) -> ReceiveTransfer | None:
        """That of the first datagram."""
        if grid.datagram_bytes <= AGENT_HEADER_BYTES or not grid.datagram_count:
            return None
        found = read_packet(grid.datagram(0, 0), self._token, None)
        if found is None or found[0].kind != AgentKind.DATA:
            return None
        header = found[0]
        receiving = self._inbox.receiving(TransferKey(header.tensor, header.round), header.element_type)
        return None if receiving is None or receiving.layout is None else receiving

    def _pass(
        self, grid: DatagramGrid, receiving: ReceiveTransfer, now_ns: int
    ) -> tuple[NDArray[np.bool_], int]:
        """(which datagrams were left, how many)."""
        arrived_ns = np.full(grid.messages, now_ns) if grid.arrived_ns is None else grid.arrived_ns
        tos, arrived_ns = np.ascontiguousarray(grid.tos), np.ascontiguousarray(arrived_ns)
        if grid.end_bytes > grid.memory.size or not len(tos) == len(arrived_ns) == grid.messages:
            raise ValueError("datagrams lie outside their memory")
        first = grid.memory.ctypes.data + grid.offset_bytes
        datagrams = Grid(
            first,
            tos.ctypes.data,
            arrived_ns.ctypes.data,
            grid.messages,
            grid.message_stride_bytes,
            grid.datagrams_per_message,
            grid.datagram_bytes,
        )
        is_left = np.empty(grid.datagram_count, np.bool_)
        left_count: int = self._accept(
            addressof(datagrams),
            first,
            addressof(self._counts),
            addressof(receiving.compiled()),
            is_left.ctypes.data,
        )
        return is_left, left_count
