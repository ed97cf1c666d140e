"""Processes that outlive the command that started them: they are recorded first, and ended by identity."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal

from mltswitch.errors import MachineError

KILL_SECONDS: Final = 30.0
_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)

_RECORD_THEN_RUN: Final = 'read -r line </proc/$$/stat && printf "%s\\n" "$line" >"$1" && shift && exec "$@"'
_START_TICKS_FIELD: Final = 19
"""proc(5): starttime is field 22, the 20th after the command's name."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process and its start time, so that another one with a recycled number is never taken for it."""

    pid: int
    start_ticks: int

    @classmethod
    def parse(cls, stat: str) -> "ProcessIdentity":
        """Read the identity from a /proc/PID/stat line, whose command may hold spaces; raises ValueError."""
        head, bracket, tail = stat.rpartition(")")
        fields = tail.split()
        if not bracket or len(fields) <= _START_TICKS_FIELD:
            raise ValueError("no line of /proc/PID/stat")
        return cls(int(head.split(maxsplit=1)[0]), int(fields[_START_TICKS_FIELD]))

    @property
    def alive(self) -> bool:
        """Whether this very process runs; a zombie does not."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        return ProcessIdentity.parse(stat) == self and stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def start_recorded(
    argv: Sequence[str],
    record: Path,
    *,
    log: IO[bytes],
    environment: Mapping[str, str] | None = None,
    namespace: str = "",
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own; it writes its identity into `record` before it becomes `argv`.

    So even a command that is killed half-way leaves no process behind that `down` cannot find.
    """
    prefix = ["ip", "netns", "exec", namespace] if namespace else []
    return subprocess.Popen(
        ["sh", "-c", _RECORD_THEN_RUN, "sh", str(record), *prefix, *argv],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env=None if environment is None else {**os.environ, **environment},
    )


def end_with_parent() -> None:
    """Called in a child before it runs its program: the kernel kills it when its parent dies (prctl(2))."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def read_record(record: Path) -> ProcessIdentity | None:
    """The process recorded in a file; None where the file is missing or was cut short."""
    try:
        return ProcessIdentity.parse(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def end(identity: ProcessIdentity, *, grace_seconds: float = 0.0) -> None:
    """Send a process SIGTERM, after the grace SIGKILL; does nothing if another one has its number by now."""
    if grace_seconds and identity.alive:
        _signal(identity.pid, signal.SIGTERM)
        _wait_until_gone([identity], grace_seconds)
    if identity.alive:
        _signal(identity.pid, signal.SIGKILL)
        _wait_until_gone([identity], KILL_SECONDS)


def end_recorded(record: Path, *, grace_seconds: float = 0.0) -> None:
    """End the process recorded in a file, if there is one."""
    if (identity := read_record(record)) is not None:
        end(identity, grace_seconds=grace_seconds)


def wait_for_line(
    log: Path, line: str, process: subprocess.Popen[bytes], seconds: float, *, where: str, failure: str = "\0"
) -> None:
    """Wait until a started process has logged a line.

    Raises MachineError if it logs the line `failure`, ends, or takes longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    while line not in (text := log.read_text(encoding="utf-8", errors="replace")):
        if failure in text or process.poll() is not None:
            raise MachineError("failed while it started", where=where)
        if time.monotonic() > deadline:
            raise MachineError(f"was not ready after {seconds:g} s", where=where)
        time.sleep(0.05)


def end_group(leader: ProcessIdentity) -> None:
    """SIGKILL a group leader that still runs, with its process group; does nothing once the leader has ended.

    What a finished script left running in its group is no part of the script.
    """
    if not leader.alive:
        return
    _signal(-leader.pid, signal.SIGKILL)  # kill(2): a negative number is a group
    members = [pid for pid in _process_ids() if _group_of(pid) == leader.pid]
    _wait_until_gone([identity for pid in members if (identity := identify(pid)) is not None], KILL_SECONDS)


def kill_and_wait(process_ids: Iterable[int]) -> None:
    """SIGKILL these processes and wait until they are gone."""
    identities = [identity for pid in process_ids if (identity := identify(pid)) is not None]
    for identity in identities:
        _signal(identity.pid, signal.SIGKILL)
    _wait_until_gone(identities, KILL_SECONDS)


def identify(pid: int) -> ProcessIdentity | None:
    """Identity of the running process with this number; None if there is none."""
    return read_record(Path(f"/proc/{pid}/stat"))


def processes_with_argument(argument: str) -> list[int]:
    """Processes that carry this very argument on their command line, zombies excepted (theirs is empty)."""
    return [pid for pid in _process_ids() if carries(pid, "cmdline", argument)]


def carries(pid: int, place: Literal["cmdline", "environ"], word: str) -> bool:
    """Whether a process carries this very word among its arguments or variables; False once it has ended."""
    try:
        return word.encode() in Path(f"/proc/{pid}/{place}").read_bytes().split(b"\0")
    except OSError:
        return False


def _process_ids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:  # it ended meanwhile
        return None


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _wait_until_gone(identities: Sequence[ProcessIdentity], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(identity.alive for identity in identities) and time.monotonic() < deadline:
        time.sleep(0.02)
