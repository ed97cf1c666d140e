"""Divides one port among the jobs of several agents: how much of it each may grant, by the jobs' priorities.

All agents of a host that name the same file write into it, a hundred times a second while they have open
receives, what they could use of the port, and read what others can: each then finds its own share by the
same rule. No agent is in charge, and one that falls silent, dead or not, has no part after 60 ms. Whoever may
write to the file may ask for any share.

The file is read and written, not mapped: an agent must not end because another program has cut it.
"""

import fcntl
import os
import stat
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Final, NamedTuple
from weakref import WeakSet

from pydantic import BaseModel, ConfigDict, Field

from mltswitch.errors import MachineError
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

HIGHEST: Final = 7
SEATS: Final = 64
"""The most agents of a host that share a port."""
TICK_SECONDS: Final = 0.01
MINIMUM_SHARE: Final = 0.05
SILENT_NS: Final = 60_000_000
"""Time in ns after which an agent that falls silent has no part of the port any more."""
WINDOW_NS: Final = 50_000_000
USED: Final = 0.8
"""Share of an agent's grant below which its senders are taken not to use the rest. The agent then wishes for
MORE times what arrives, but never less than LEAST, until FULL of its grant arrives."""
FULL: Final = 0.9
MORE: Final = 1.3
LEAST: Final = 0.01
PATIENCE_SECONDS: Final = 1.0
_MAGIC: Final = b"mltswitch/port/1"
_SEAT: Final = struct.Struct("<QddB7x")
"""When it was written, by the monotonic clock; the share of the port that the agent can use, and the least
that it keeps; its priority."""
_WHOLE_BYTES: Final = len(_MAGIC) + SEATS * _SEAT.size
_FLOCK: Final = struct.Struct("hhqqi4x")
"""`struct flock`: kind, from where, first byte, bytes, process."""


class PortShareSettings(BaseModel):
    """The section `port_share` of an agent's file: how its job shares a port with those of other agents."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(min_length=1)
    """Path that all agents of the port name, best on a tmpfs; a missing file is made, for its owner alone."""
    priority: Annotated[int, Field(ge=0, le=HIGHEST, strict=True)] = 0
    """Priority of the job: the highest goes first."""
    minimum_share: float = Field(default=MINIMUM_SHARE, gt=0, le=1 / 8)
    """Share of the port that the job keeps even if jobs with higher priority could use it."""


class Wish(NamedTuple):
    """What one agent can use of the port."""

    priority: int
    share: float
    minimum_share: float = MINIMUM_SHARE


def share_of(own: int, wishes: Sequence[Wish]) -> float:
    """The share of the port that an agent may grant to its senders.

    Each agent has what it can use of its minimum. Of the rest the highest priority takes what it can use,
    then the next; agents of one priority get equal parts, or what they can use, and what none can use is
    divided. All shares together are the port; minima that are more than that shrink alike.

    Args:
        own: index of this agent in `wishes`.
        wishes: the wishes of all agents that have open receives.
    """
    kept = [min(wish.share, wish.minimum_share) for wish in wishes]
    kept = [share / max(1.0, sum(kept)) for share in kept]
    left, found = max(0.0, 1 - sum(kept)), list(kept)
    for priority in sorted({wish.priority for wish in wishes}, reverse=True):
        members = [place for place, wish in enumerate(wishes) if wish.priority == priority]
        members.sort(key=lambda place: wishes[place].share - kept[place])
        for number, place in enumerate(members):
            part = min(wishes[place].share - kept[place], left / (len(members) - number))
            found[place] += part
            left -= part
    return min(1.0, found[own] + left / len(wishes))


class Demand:
    """Estimates what one agent can use of its port: all, unless its senders have used less for a while."""

    def __init__(self) -> None:
        self.share = 1.0
        """Of the port, what the agent may grant now."""
        self._is_idle = False
        self._seen: deque[tuple[int, int, float]] = deque()
        """Times, bytes that had come until then, and what might be granted from then on."""

    def wish(self, port: Any, now_ns: int) -> float:
        """Share of the port that this agent can use, by its `struct mlt_port`; 0: no receive is open."""
        if not port.open_flows:
            self._seen.clear()
            self._is_idle = False
            return 0.0
        self._seen.append((now_ns, port.arrived_bytes, self.share))
        while len(self._seen) > 2 and now_ns - self._seen[1][0] >= WINDOW_NS:
            self._seen.popleft()
        first_ns, first_bytes, _ = self._seen[0]
        if not port.bps or now_ns - first_ns < WINDOW_NS:
            return 1.0
        bps = (port.arrived_bytes - first_bytes) * BITS_PER_BYTE * NANOSECONDS / (now_ns - first_ns)
        coming, granted = bps / port.bps, fmean(share for _, _, share in self._seen)
        self._is_idle = coming < (FULL if self._is_idle else USED) * granted
        return min(1.0, max(LEAST, MORE * coming)) if self._is_idle else 1.0


class PortShare:
    """One agent's entry in the file by which agents share a port."""

    def __init__(self, settings: PortShareSettings) -> None:
        """Raises MachineError for a file that cannot be one, or that has no seat left."""
        self._settings, self._path = settings, Path(settings.file)
        self._file, self._seat = _seated(self._path)
        _seats.add(self)

    def share(self, wish: float, now_ns: int) -> float:
        """Publish what share of the port this agent can use now, and return the share that it may use.

        Args:
            wish: share of the port that the agent can use; 0: nothing, and its entry in the file is freed.
            now_ns: time of the monotonic clock.

        Raises OSError, MachineError where the file has gone and cannot be made again.
        """
        if not _has_name(self._file, self._path):
            file, seat = _seated(self._path)
            os.close(self._file)
            self._file, self._seat = file, seat
        place = len(_MAGIC) + self._seat * _SEAT.size
        own = Wish(self._settings.priority, wish, self._settings.minimum_share)
        said = _SEAT.pack(now_ns if wish > 0 else 0, own.share, own.minimum_share, own.priority)
        os.pwrite(self._file, said, place)
        if wish <= 0:
            return 1.0
        seats = os.pread(self._file, SEATS * _SEAT.size, len(_MAGIC))
        if len(seats) < SEATS * _SEAT.size:
            _mend(self._file)
        wishes = [own]
        for number in range(len(seats) // _SEAT.size):
            said_ns, share, minimum, priority = _SEAT.unpack_from(seats, number * _SEAT.size)
            is_there = -SILENT_NS < now_ns - said_ns < SILENT_NS and 0 < share <= 1 and priority <= HIGHEST
            if is_there and 0 < minimum <= 1 and number != self._seat:
                wishes.append(Wish(priority, share, minimum))
        return share_of(0, wishes)

    def close(self) -> None:
        """Free the agent's entry, even if a forked child has the file open, too."""
        if self in _seats:
            _seats.discard(self)
            with suppress(OSError):
                _lock(self._file, 1 + self._seat, fcntl.F_UNLCK)
            os.close(self._file)

    def forget(self) -> None:
        """In a forked child: close its copy of the file; the entry stays its parent's."""
        _seats.discard(self)
        os.close(self._file)


def _has_name(file: int, path: Path) -> bool:
    """Whether nobody has removed the file, or put another one in its place."""
    try:
        named, held = path.stat(), os.fstat(file)
    except FileNotFoundError:
        return False
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def _seated(path: Path) -> tuple[int, int]:
    """The file, and a seat that is free."""
    file = _opened(path)
    try:
        return file, _free_seat(file, path)
    except BaseException:
        os.close(file)
        raise


def _free_seat(file: int, path: Path) -> int:
    """By a lock of the open file."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise MachineError("is no regular file", where=str(path), expected="a file for port_share")
    if not _is_locked(file, 0, PATIENCE_SECONDS):  # whoever comes first makes it
        raise MachineError("is locked by another program", where=str(path))
    head, is_short = os.pread(file, len(_MAGIC), 0), os.fstat(file).st_size <= _WHOLE_BYTES
    is_new_or_cut = is_short and _MAGIC.startswith(head.rstrip(b"\0"))
    if head != _MAGIC and not is_new_or_cut:
        problem = "is a file of something else"
        raise MachineError(problem, where=str(path), expected="a new name, or port_share's own file")
    _mend(file)
    _lock(file, 0, fcntl.F_UNLCK)
    for seat in range(SEATS):
        if _is_locked(file, 1 + seat):
            return seat
    raise MachineError(f"has no seat left of {SEATS}", where=str(path))


def _mend(file: int) -> None:
    """A new file, and one that somebody has cut, gets its head and its length."""
    if os.fstat(file).st_size < _WHOLE_BYTES:
        os.ftruncate(file, _WHOLE_BYTES)
    os.pwrite(file, _MAGIC, 0)


def _is_locked(file: int, byte: int, patience_seconds: float = 0.0) -> bool:
    until = time.monotonic() + patience_seconds
    while True:
        try:
            _lock(file, byte, fcntl.F_WRLCK)
        except OSError:
            if time.monotonic() >= until:
                return False
            time.sleep(TICK_SECONDS)
        else:
            return True


def _lock(file: int, byte: int, kind: int) -> None:
    """Of the open file, not of the process (fcntl(2)); raises OSError where another has it."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))


_seats: Final["WeakSet[PortShare]"] = WeakSet()


def _after_fork() -> None:
    for seat in list(_seats):
        seat.forget()


os.register_at_fork(after_in_child=_after_fork)


def _opened(path: Path) -> int:
    """One that is there may be another user's: a sticky folder refuses who would make it, too (sysctl
    fs.protected_regular)."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(2):  # between the two, another agent may make it
        for more in (0, os.O_CREAT | os.O_EXCL):
            try:
                return os.open(path, flags | more, 0o600)
            except (FileNotFoundError, FileExistsError) as error:
                problem = error.strerror
            except OSError as error:
                raise MachineError(f"cannot be opened: {error.strerror}", where=str(path)) from None
    raise MachineError(f"cannot be opened: {problem}", where=str(path))
