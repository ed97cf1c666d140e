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
def opened_key(path: Path) -> Iterator[int]:
    """A descriptor of a key's file; raises UserInputError where it is not its owner's alone."""
    try:
        # a pipe without a writer must not block the opening
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        hint = "`mltswitch agent keys` makes a folder of keys for each host"
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from None
    try:
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode):
            raise UserInputError("is no regular file", where=str(path))
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            what = f"others than its owner may use this key (mode {mode:04o})"
            hint = f"`chmod 600 {path}`; if somebody could read it, make a new one"
            raise UserInputError(what, where=str(path), hint=hint)
        if status.st_uid not in {0, os.geteuid()}:
            raise UserInputError(f"this key belongs to another user ({status.st_uid})", where=str(path))
        yield descriptor
    finally:
        os.close(descriptor)
