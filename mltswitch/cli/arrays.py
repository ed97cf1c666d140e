"""Tensors in .npy files."""

import os
import secrets
import stat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import UserInputError


def read_array(path: Path) -> NDArray[Any]:
    """What a .npy file holds, in C order and this machine's byte order; raises UserInputError.

    Files of Python objects are refused: reading one can run code.
    """
    try:
        # A pipe without a writer must not block the opening.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UserInputError("is no regular file", where=str(path))
            found: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    except OSError as error:
        raise UserInputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, EOFError, MemoryError) as error:
        raise UserInputError(
            f"cannot be read: {error or type(error).__name__}",
            where=str(path),
            expected="a .npy file of numbers",
        ) from None
    return np.ascontiguousarray(found, found.dtype.newbyteorder("=")).reshape(found.shape)


def check_writable(path: Path) -> None:
    """Raises UserInputError where `write_array` is sure to fail; what can be known before long work."""
    try:
        if not path.parent.is_dir():
            raise UserInputError("cannot be written: no such folder", where=str(path))
        if not os.access(path.parent, os.W_OK):
            raise UserInputError("cannot be written: its folder is read-only", where=str(path))
        if path.exists() and not path.is_file():
            raise UserInputError("is no regular file", where=str(path))
    except OSError as error:  # a folder on the way that this user may not enter, a name that is too long
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(path)) from None


def write_array(path: Path, array: NDArray[Any]) -> None:
    """The whole file or nothing; a link is followed. Raises UserInputError."""
    check_writable(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}")  # not the name, which may be as long as can be
    try:
        with temporary.open("xb") as stream:
            content = np.ascontiguousarray(array).reshape(array.shape)
            np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(content))
            # numpy itself would count elements where the disk is full, and not say that it is.
            stream.write(content.reshape(-1).view(np.uint8).data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(target)
    except OSError as error:
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
