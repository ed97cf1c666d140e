"""Connected sockets that only send: one for each path to a peer.

Where destination and DSCP/ECN byte come with each packet, the kernel copies a name and a control message, and
looks up a route, for each: a sixth of what a packet costs that leaves alone. A socket that is connected knows
where to, and has the byte as an option; a *lane* is such a socket with one byte. Only the byte changes, so
that all packets of a path stay one flow, whose order queues keep. Nothing arrives here: peers send to the
addresses that they were told.
"""

import resource
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import MltswitchError
from mltswitch.hostagent.native import LaneArrays
from mltswitch.hostagent.network.sockets import PathSocket, open_sender

MOST_LANES: Final = 1024
"""Of a peer; sending.c has room for so many."""
MOST_OF_AN_AGENT: Final = 512
_DESCRIPTOR_SHARE: Final = 4
"""Of the descriptors that the process may have, no more than one in so many."""
_BYTES: Final = 256
_NOT_OPEN: Final = -1
_REFUSED: Final = -2
_UNKNOWN: Final = -1


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
        self._socket_of_path: dict[int, int] = {}
        self.sockets: list[socket.socket] = []
        self.socket_of = np.zeros(0, np.int32)
        """Number of each lane's socket."""
        self._byte_of = np.zeros(0, np.int32)
        self._descriptors = np.zeros(0, np.int32)
        self._bytes = np.zeros(0, np.int32)

    def of(self, paths: NDArray[np.int64], tos: NDArray[np.uint8]) -> NDArray[np.int64] | None:
        """The number of each burst's lane; None: not all of them have one. The paths are known ones."""
        lanes: NDArray[np.int64] = self._lane_of[paths, tos]
        if lanes.min() >= 0:
            return lanes
        missing = lanes == _NOT_OPEN
        for path, byte in sorted(set(zip(paths[missing].tolist(), tos[missing].tolist(), strict=True))):
            self._open(path, byte)
        lanes = self._lane_of[paths, tos]
        return lanes if lanes.min() >= 0 else None

    def arrays(self) -> LaneArrays:
        """For `mlt_send_in_lanes`; good until another lane is opened."""
        return LaneArrays(
            self._descriptors.ctypes.data,
            self._bytes.ctypes.data,
            self.socket_of.ctypes.data,
            self._byte_of.ctypes.data,
            len(self.socket_of),
            self._level,
            self._kind,
        )

    def socket_on(self, path: int) -> socket.socket | None:
        """Of a path, if it has one."""
        number = self._socket_of_path.get(path)
        return None if number is None else self.sockets[number]

    def refuse(self, paths: NDArray[np.int64], tos: NDArray[np.uint8]) -> None:
        """Use these no more: what they send does not leave."""
        self._lane_of[paths, tos] = _REFUSED

    def close(self, leave: Callable[[int], None]) -> None:
        """Close all sockets, which `leave` is told of before; there are none afterwards."""
        self._lane_of[:] = _REFUSED
        self._socket_of_path.clear()
        self._budget.left += len(self.sockets)
        for entry in self.sockets:
            leave(entry.fileno())
            entry.close()
        self.sockets.clear()

    def _open(self, path: int, byte: int) -> None:
        self._lane_of[path, byte] = _REFUSED
        if len(self.socket_of) >= MOST_LANES:
            return
        number = self._socket_of_path.get(path)
        if number is None:
            number = self._open_socket(path)
        if number is None:
            return
        self._lane_of[path, byte] = len(self.socket_of)
        self.socket_of = np.append(self.socket_of, np.int32(number))
        self._byte_of = np.append(self._byte_of, np.int32(byte))

    def _open_socket(self, path: int) -> int | None:
        if self._budget.left < 1:
            return None
        try:
            opened = open_sender(self._paths[path], self._send_buffer_bytes)
        except (MltswitchError, OSError):  # no route, no descriptor: the socket of all paths says what it is
            return None
        number = self._socket_of_path[path] = len(self.sockets)
        self.sockets.append(opened)
        self._budget.left -= 1
        self._descriptors = np.append(self._descriptors, np.int32(opened.fileno()))
        self._bytes = np.append(self._bytes, np.int32(_UNKNOWN))
        return number
