"""Reading OpenSSH key files for the emulators."""

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import paramiko

from mltswitch.errors import UserInputError

MAX_KEY_FILE_BYTES: Final = 1 << 16

_KEY_KIND: Final = "an ssh-ed25519, ecdsa-sha2-* or ssh-rsa key"


def load_host_key(path: Path) -> paramiko.PKey:
    """Private key of an emulator, unencrypted; raises UserInputError."""
    try:
        return paramiko.PKey.from_path(path)
    except (OSError, ValueError, paramiko.SSHException) as error:
        raise UserInputError(
            f"no private key can be read: {error}", where=str(path), expected=_KEY_KIND
        ) from None


def load_authorized_keys(path: Path) -> tuple[paramiko.PKey, ...]:
    """Public keys, one a line, without options (sshd(8), AUTHORIZED_KEYS); raises UserInputError."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if len(text) > MAX_KEY_FILE_BYTES:
        raise UserInputError(
            "the file is too long", where=str(path), expected=f"at most {MAX_KEY_FILE_BYTES} B"
        )
    return tuple(_parse(text.decode("utf-8", "replace"), path))


def _parse(text: str, path: Path) -> Iterator[paramiko.PKey]:
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        try:
            yield paramiko.PKey.from_type_string(fields[0], base64.b64decode(fields[1], validate=True))
        except (IndexError, binascii.Error, ValueError, paramiko.SSHException):
            raise UserInputError("no public key", where=f"{path}:{number}", expected=_KEY_KIND) from None
