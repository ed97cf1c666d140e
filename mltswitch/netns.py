"""Runs code in another network namespace of this kernel (setns(2))."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_OWN: Final = Path("/proc/thread-self/ns/net")
_libc: Final = ctypes.CDLL(None, use_errno=True)


@contextmanager
def inside(namespace: Path) -> Iterator[None]:
    """Run the body with the calling thread in the namespace of this file; a socket opened there stays there.

    Other threads of the process are not affected. Without CAP_SYS_ADMIN only the present namespace can be
    entered. Raises OSError where the namespace is gone or cannot be entered.
    """
    own = os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            is_own = os.path.sameopenfile(own, target)
            if not is_own:
                _enter(target)
        finally:
            os.close(target)
        try:
            yield
        finally:
            if not is_own:
                _enter(own)
    finally:
        os.close(own)


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
