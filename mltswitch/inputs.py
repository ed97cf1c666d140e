"""Remembers which files the running command has read: no output may replace one of them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

_INPUTS: ContextVar[set[tuple[int, int]] | None] = ContextVar("inputs", default=None)
"""Device and inode of each file that the command at work has read."""


@contextmanager
def inputs_noted() -> Iterator[None]:
    """Record every file that the command reads inside, so that `check_output` knows it by any name."""
    token = _INPUTS.set(set())
    try:
        yield
    finally:
        _INPUTS.reset(token)


def is_input(found: os.stat_result) -> bool:
    """Whether the running command has read this file."""
    return (found.st_dev, found.st_ino) in (_INPUTS.get() or ())


def note_input(file: int | Path) -> None:
    """Record a file that the command reads otherwise than by `read_text`, by its path or its descriptor."""
    if (inputs := _INPUTS.get()) is not None:
        with suppress(OSError):  # whoever reads it says what is wrong
            found = os.stat(file)  # noqa: PTH116  (a descriptor, too)
            inputs.add((found.st_dev, found.st_ino))
