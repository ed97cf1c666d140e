"""Which files the command at work has read: no output may take the place of one of them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

_INPUTS: ContextVar[set[tuple[int, int]] | None] = ContextVar("inputs", default=None)
"""Device and inode of each file that the command at work has read."""


@contextmanager
def inputs_noted() -> Iterator[None]:
    """What one command reads inside is known to `check_output`, by any name or link."""
    token = _INPUTS.set(set())
    try:
        yield
    finally:
        _INPUTS.reset(token)


def is_input(found: os.stat_result) -> bool:
    """Whether the command at work has read this file."""
    return (found.st_dev, found.st_ino) in (_INPUTS.get() or ())


def note_input(file: int | Path) -> None:
    """A file that this command reads by other means than `read_text`: its path, or its descriptor."""
    if (inputs := _INPUTS.get()) is not None:
        with suppress(OSError):  # whoever reads it says what is wrong
            found = os.stat(file)  # noqa: PTH116  (a descriptor, too)
            inputs.add((found.st_dev, found.st_ino))
