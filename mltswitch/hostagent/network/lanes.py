"""Connected sockets that only send: one for each path, and DSCP/ECN byte, to a peer.

Where destination and byte come with each packet, the kernel copies a name and a control message, and looks up
a route, for each: a sixth of what a packet costs that leaves alone. A socket that is connected, and has the
byte as an option, knows all that. Nothing arrives here: peers send to the addresses that they were told.
"""

import resource
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import MltswitchError
from mltswitch.hostagent.network.sockets import PathSocket, open_sender

MOST_OF_A_PEER: Final = 64
"""Four paths, both kinds, eight classes."""
MOST_OF_AN_AGENT: Final = 512
_DESCRIPTOR_SHARE: Final = 4
"""Of the descriptors that the process may have, no more than one in so many."""
_BYTES: Final = 256
_NOT_OPEN: Final = -1
_REFUSED: Final = -2


@dataclass(slots=True)
class LaneBudget:
    """How many more sockets all peers of one agent may have."""

    left: int

    @classmethod
    def of_process(cls) -> "LaneBudget":
        """By its limit of descriptors."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        descriptors = MOST_OF_AN_AGENT if soft == resource.RLIM_INFINITY else soft // _DESCRIPTOR_SHARE
        return cls(min(MOST_OF_AN_AGENT, descriptors))


class Lanes:
    """Of one peer; opened when they are needed first."""

    def __init__(
        self,
        paths: Mapping[int, PathSocket],
        *,
        level: int,
        kind: int,
        send_buffer_bytes: int,
        budget: LaneBudget,
    ) -> None:
        """`paths`: where each leads, and the socket whose addresses it has. `level`, `kind`: of the socket
        option of the DSCP/ECN byte."""
        self._paths = dict(paths)
        self._level, self._kind = level, kind
        self._send_buffer_bytes = send_buffer_bytes
        self._budget = budget
        self._lane_of = np.full((max(paths) + 1, _BYTES), _REFUSED, np.int64)
        self._lane_of[list(paths)] = _NOT_OPEN
        self.sockets: list[socket.socket] = []
        self.descriptors = np.zeros(0, np.int32)
        """Of the sockets."""

    def of(self, paths: NDArray[np.int64], tos: NDArray[np.uint8]) -> NDArray[np.int64] | None:
        """The number of each burst's socket; None: not all of them have one. The paths are known ones."""
        lanes: NDArray[np.int64] = self._lane_of[paths, tos]
        if lanes.min() >= 0:
            return lanes
        missing = lanes == _NOT_OPEN
        for path, byte in sorted(set(zip(paths[missing].tolist(), tos[missing].tolist(), strict=True))):
            self._open(path, byte)
        lanes = self._lane_of[paths, tos]
        return lanes if lanes.min() >= 0 else None

    def refuse(self, paths: NDArray[np.int64], tos: NDArray[np.uint8]) -> None:
        """Use these no more: what they send does not leave."""
        self._lane_of[paths, tos] = _REFUSED

    def close(self) -> None:
        """Close all sockets; there are none afterwards."""
        self._lane_of[:] = _REFUSED
        for entry in self.sockets:
            entry.close()
        self._budget.left += len(self.sockets)
        self.sockets.clear()
        self.descriptors = np.zeros(0, np.int32)

    def _open(self, path: int, byte: int) -> None:
        self._lane_of[path, byte] = _REFUSED
        if len(self.sockets) >= MOST_OF_A_PEER or self._budget.left < 1:
            return
        try:
            opened = open_sender(self._paths[path], self._send_buffer_bytes)
        except (MltswitchError, OSError):  # no route, no descriptor: the socket of all paths says what it is
            return
        try:
            opened.setsockopt(self._level, self._kind, byte)
        except OSError:
            opened.close()
            return
        self._lane_of[path, byte] = len(self.sockets)
        self.sockets.append(opened)
        self._budget.left -= 1
        self.descriptors = np.append(self.descriptors, np.int32(opened.fileno()))
