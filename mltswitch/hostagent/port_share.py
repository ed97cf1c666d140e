"""One port for the jobs of several agents: who may grant how much of it, by the priorities of the jobs.

All agents of a host that name the same file write into it, a hundred times a second while they have open
receives, what they could use of the port, and read what others can: each then finds its own share by the
same rule. Nobody is in charge, and who falls silent, dead or not, is out of it after 60 ms. Whoever may
write to the file may ask for any share.

The file is read and written, not mapped: an agent must not end because another program has cut it.
"""

import fcntl
import os
import stat
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from mltswitch.errors import MachineError

HIGHEST: Final = 7
SEATS: Final = 64
"""Agents of a host that share a port."""
TICK_SECONDS: Final = 0.01
SILENT_NS: Final = 60_000_000
"""After which an agent has no part of the port any more."""
USED: Final = 0.8
"""Of what an agent may grant: where less comes for IDLE_TICKS, its senders cannot use the rest, and it wishes
for MORE times what comes, but never for less than LEAST."""
IDLE_TICKS: Final = 5
MORE: Final = 1.25
LEAST: Final = 0.01
_MAGIC: Final = b"mltswitch/port/1"
_SEAT: Final = struct.Struct("<QdB7x")
"""When it was written, by the monotonic clock; the share of the port that the agent can use; its priority."""
_FLOCK: Final = struct.Struct("hhqqi4x")
PATIENCE_SECONDS: Final = 1.0


class PortShareSettings(BaseModel):
    """The section `port_share` of an agent's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(min_length=1)
    """That all agents of the port name, best on a tmpfs; made where it is missing, for its owner alone."""
    priority: Annotated[int, Field(ge=0, le=HIGHEST, strict=True)] = 0
    """Of the job: the highest goes first."""
    minimum_share: float = Field(default=0.05, gt=0, le=1 / 8)
    """Of the port, that lower priorities keep."""


class Wish(NamedTuple):
    """What one agent can use of the port."""

    priority: int
    share: float


def share_of(own: int, wishes: Sequence[Wish], minimum_share: float) -> float:
    """What an agent may grant of the port.

    Everybody has what it can use of the minimum; of the rest the highest priority takes what it can use, then
    the next; of one priority all get the same, or what they can use, and what nobody can use is divided.

    Args:
        own: its place in `wishes`.
        wishes: of all agents that have open receives.
        minimum_share: of the port.
    """
    kept = [min(wish.share, minimum_share) for wish in wishes]
    left, found = max(0.0, 1 - sum(kept)), list(kept)
    for priority in sorted({wish.priority for wish in wishes}, reverse=True):
        members = [place for place, wish in enumerate(wishes) if wish.priority == priority]
        members.sort(key=lambda place: wishes[place].share)
        for number, place in enumerate(members):
            part = min(wishes[place].share - kept[place], left / (len(members) - number))
            found[place] += part
            left -= part
    return min(1.0, found[own] + left / len(wishes))


class Demand:
    """What one agent can use of its port: all, until its senders have not used what they got for a while."""

    def __init__(self) -> None:
        self.share = 1.0
        """That it may grant now."""
        self._idle = 0

    def wish(self, port: Any, now_ns: int) -> float:
        """Of a `struct mlt_port`; 0: there is no open receive."""
        if not port.open_flows:
            self._idle = 0
            return 0.0
        if not port.bps:
            return 1.0
        is_old = now_ns - port.until_ns > SILENT_NS
        coming = 0.0 if is_old else port.arriving_bps / port.bps
        self._idle = 0 if coming >= USED * self.share else self._idle + 1
        return 1.0 if self._idle < IDLE_TICKS else min(1.0, max(LEAST, MORE * coming))


class PortShare:
    """An agent's seat at the port."""

    def __init__(self, settings: PortShareSettings) -> None:
        """Raises MachineError for a file that cannot be one, or that has no seat left."""
        self._settings = settings
        path = Path(settings.file)
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise MachineError(f"cannot be opened: {error.strerror}", where=str(path)) from None
        try:
            self._seat = self._seated(path)
        except BaseException:
            os.close(self._file)
            raise

    def _seated(self, path: Path) -> int:
        """By a lock, which ends with the process."""
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise MachineError("is no regular file", where=str(path), expected="a file for port_share")
        size = len(_MAGIC) + SEATS * _SEAT.size
        if not self._is_locked(0, PATIENCE_SECONDS):  # whoever comes first makes it
            raise MachineError("is locked by another program", where=str(path))
        head = os.pread(self._file, size, 0)
        if not head:
            os.pwrite(self._file, _MAGIC + bytes(size - len(_MAGIC)), 0)
        elif len(head) != size or not head.startswith(_MAGIC):
            problem = "is a file of something else"
            raise MachineError(
                problem, where=str(path), expected="a new name, or a file that port_share made"
            )
        self._lock(0, fcntl.F_UNLCK)
        for seat in range(SEATS):
            if self._is_locked(1 + seat):
                return seat
        raise MachineError(f"has no seat left of {SEATS}", where=str(path))

    def _is_locked(self, byte: int, patience_seconds: float = 0.0) -> bool:
        until = time.monotonic() + patience_seconds
        while True:
            try:
                self._lock(byte, fcntl.F_WRLCK)
            except OSError:
                if time.monotonic() >= until:
                    return False
                time.sleep(TICK_SECONDS)
            else:
                return True

    def _lock(self, byte: int, kind: int) -> None:
        """Of the open file, not of the process (fcntl(2)); raises OSError where another has it."""
        asked = _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, asked)

    def share(self, wish: float, now_ns: int) -> float:
        """Say what this agent can use now, and find what it may.

        Args:
            wish: share of the port; 0: nothing, and its seat is nobody's.
            now_ns: of the monotonic clock.
        """
        priority = self._settings.priority
        place = len(_MAGIC) + self._seat * _SEAT.size
        os.pwrite(self._file, _SEAT.pack(now_ns if wish > 0 else 0, wish, priority), place)
        if wish <= 0:
            return 1.0
        seats = os.pread(self._file, SEATS * _SEAT.size, len(_MAGIC))
        wishes, own = [Wish(priority, wish)], 0
        if len(seats) < SEATS * _SEAT.size:
            return share_of(own, wishes, self._settings.minimum_share)  # somebody has cut the file
        for number, (said_ns, share, rank) in enumerate(_SEAT.iter_unpack(seats)):
            is_there = -SILENT_NS < now_ns - said_ns < SILENT_NS and 0 < share <= 1 and rank <= HIGHEST
            if is_there and number != self._seat:
                wishes.append(Wish(rank, share))
        return share_of(own, wishes, self._settings.minimum_share)

    def close(self) -> None:
        """The seat is free."""
        os.close(self._file)
