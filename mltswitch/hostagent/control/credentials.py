"""Where a host's certificates lie, and that nobody else may read its key."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mltswitch.errors import UserInputError

AUTHORITY_FILE: Final = "ca.pem"
CERTIFICATE_FILE: Final = "certificate.pem"
KEY_FILE: Final = "key.pem"
MAXIMUM_FILE_BYTES: Final = 1 << 20
"""More than any chain of certificates needs."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Credentials:
    """Three PEM files: the job's CA, and this host's certificate and key."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def in_folder(cls, folder: Path) -> "Credentials":
        """As `mltswitch agent keys` lays them out for each host."""
        return cls(folder / AUTHORITY_FILE, folder / CERTIFICATE_FILE, folder / KEY_FILE)


@contextmanager
def opened(path: Path, *, is_private: bool = False) -> Iterator[int]:
    """A descriptor of a regular file of sensible size.

    Raises:
        UserInputError: it cannot be read, or is private and not its owner's alone.
    """
    try:
        # a pipe without a writer must not block the opening
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UserInputError(
            f"cannot be read: {error.strerror}",
            where=str(path),
            hint="`mltswitch agent keys` makes a folder of keys for each host",
        ) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UserInputError("is no regular file", where=str(path))
        if status.st_size > MAXIMUM_FILE_BYTES:
            raise UserInputError(f"larger than {MAXIMUM_FILE_BYTES} bytes", where=str(path))
        if is_private:
            _check_private(status, path)
        yield descriptor
    finally:
        os.close(descriptor)


def read_pem(path: Path, *, is_private: bool = False) -> str:
    """The text of a PEM file; raises UserInputError as `opened` does."""
    with opened(path, is_private=is_private) as descriptor:
        content = os.read(descriptor, MAXIMUM_FILE_BYTES)
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise UserInputError("is not a PEM file", where=str(path)) from None


def _check_private(status: os.stat_result, path: Path) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if mode & _OTHERS:
        raise UserInputError(
            f"others than its owner may use this key (mode {mode:04o})",
            where=str(path),
            hint=f"`chmod 600 {path}`; if somebody could read it, make a new one",
        )
    if status.st_uid not in {0, os.geteuid()}:
        raise UserInputError(f"this key belongs to another user ({status.st_uid})", where=str(path))
