"""Reads and writes tensors in .npy files."""

import os
import secrets
import stat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mltswitch.errors import UserInputError
from mltswitch.inputs import note_input
from mltswitch.outputs import check_output


def read_array(path: Path) -> NDArray[Any]:
    """The array in a .npy file, in C order and this machine's byte order; raises UserInputError.

    Files of Python objects are refused: reading one can run code.
    """
    try:
        # A pipe without a writer must not block the opening.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise UserInputError("is no regular file", where=str(path))
            note_input(stream.fileno())
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


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write the array as a .npy file, whole or not at all; raises UserInputError, as `check_output` does."""
    check_output(path)
    temporary = path.with_name(f".{secrets.token_hex(8)}")  # not the name, which may be as long as can be
    try:
        with temporary.open("xb") as stream:
            content = np.ascontiguousarray(array).reshape(array.shape)
            np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(content))
            # numpy itself would count elements where the disk is full, and not say that it is.
            stream.write(content.reshape(-1).view(np.uint8).data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UserInputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
