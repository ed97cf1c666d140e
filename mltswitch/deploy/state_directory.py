"""A user's state directory: where it lies, who may read it, and which process is at work on which device.

changes/…        the journal of every change (journal.py)
running/…        a file for each process at work, locked as long as it lives
"""

import fcntl
import getpass
import os
import platform
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from mltswitch.errors import MachineError, UserInputError

STATE_VARIABLE: Final = "MLTSWITCH_STATE"
OTHERS: Final = 0o007
"""Permissions that the state directory must not give: a configuration may hold hashes of passwords."""


class Record(BaseModel):
    """A part of a JSON file in the state directory."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Work(Record):
    """A process at work on devices: what a second operator is told."""

    command: str
    user: str
    host: str
    process: int
    since: str
    """When the work began, in UTC, as ISO 8601 writes it."""
    devices: dict[str, str]
    """Name of a device → its address and port, in the inventory's order."""

    def __str__(self) -> str:
        what = f"process {self.process}, `mltswitch {self.command}`, since {self.since}"
        return f"{self.user} on {self.host} ({what})"


def state_directory() -> Path:
    """The state directory: $MLTSWITCH_STATE, else `mltswitch` in the XDG state directory of the user.

    Raises MachineError for a user without a home directory.
    """
    if given := os.environ.get(STATE_VARIABLE):
        return Path(given).absolute()
    home = os.environ.get("XDG_STATE_HOME", "")
    if home.startswith("/"):
        return Path(home) / "mltswitch"
    try:
        return Path.home() / ".local" / "state" / "mltswitch"
    except RuntimeError:
        hint = f"`export {STATE_VARIABLE}=FOLDER`"
        raise MachineError("this user has no home directory", where="state directory", hint=hint) from None


def subfolder(name: str) -> Path:
    """A folder of the state directory, which is made if it is missing.

    Raises MachineError where it cannot be made, UserInputError where others may read it.
    """
    folder = state_directory() / name
    with named_errors(folder):
        for path in (folder.parent, folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.parent.stat().st_mode & OTHERS:
            raise UserInputError(
                "others may read or write it, and configurations of switches will lie there",
                where=str(folder.parent),
                hint=f"`chmod o-rwx {folder.parent}`, or name another folder in {STATE_VARIABLE}",
            )
    return folder


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn system errors inside into a MachineError that names the path."""
    try:
        yield
    except OSError as error:
        raise MachineError(
            f"cannot be used: {error.strerror}",
            where=str(path),
            hint=f"what becomes of switches is written there; {STATE_VARIABLE} names another folder",
        ) from None


@contextmanager
def working(command: str, devices: Mapping[str, str]) -> Iterator[Work]:
    """Lock these devices for this process while the body runs; raises UserInputError naming who has them.

    The lock is the kernel's (flock), so it ends with its process, in whichever way that ends.
    """
    work = Work(
        command=command,
        user=getpass.getuser(),
        host=platform.node(),
        process=os.getpid(),
        since=timestamp(),
        devices=dict(devices),
    )
    folder = subfolder("running")
    path = folder / f"{os.getpid()}-{secrets.token_hex(4)}"
    with named_errors(path), (folder / ".lock").open("w") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        for other in folder.glob("[0-9]*"):
            _check_free(other, work)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(file, work.model_dump_json().encode())
        except OSError:
            os.close(file)
            path.unlink()
            raise
    try:
        yield work
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def _check_free(path: Path, work: Work) -> None:
    """Raise UserInputError where a living process has one of the devices; forget those that have died."""
    try:
        file = path.open("r+b")  # NFS locks only what is open for writing
    except FileNotFoundError:
        return  # its process has just ended
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = Work.model_validate_json(file.read())
        else:
            path.unlink(missing_ok=True)
            return
    taken = set(other.devices.values())
    shared = [name for name, address in work.devices.items() if address in taken]
    if shared:
        more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
        raise UserInputError(
            f"{other} works on it{more}",
            where=shared[0],
            hint="wait for it, or end that process: `mltswitch status` tells then how far it came",
        )


def operator() -> str:
    """The user and machine of this operator, as others are shown them."""
    return re.sub(r"[^A-Za-z0-9._@-]", "_", f"{getpass.getuser()}@{platform.node()}")


def timestamp() -> str:
    """The time now in UTC, as ISO 8601 writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
