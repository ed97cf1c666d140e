"""Traces, read on again and again while agents write them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Final

from mltswitch.errors import UserInputError
from mltswitch.units import NANOSECONDS

MOST_FIRST_BYTES: Final = 4096
"""Of a trace's first line."""
MOST_NUMBER: Final = 1 << 63
"""The largest integer of a trace, either way."""


class TraceReader:
    """One file, read on from where it was read last; from its beginning where another agent writes it.

    A subclass says which events it takes, what it knows before the first one, and what it learns from each.
    """

    events: ClassVar[tuple[str, ...]]
    """Names of the events that `take` is given."""
    most_behind_bytes: ClassVar[int | None] = None
    """Of a longer file only so much is read when it is first seen; None: all."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._heads = tuple(f'{{"event": "{name}"'.encode() for name in self.events)
        self._start(b"")

    @property
    def is_trace(self) -> bool:
        """Whether the file has begun as a trace does."""
        return bool(self._first)

    def begin(self) -> None:
        """Forget what another agent has written here."""
        raise NotImplementedError

    def take(self, event: Mapping[str, Any]) -> None:
        """Learn from one event; LookupError, TypeError and ValueError say that no agent has written it."""
        raise NotImplementedError

    def wall_ns(self, time_ns: int) -> int:
        """A time of the trace's clock, in ns since 1970."""
        return self._epoch_ns + time_ns

    def read(self) -> None:
        """Take what has been written since; raises UserInputError for what is no trace."""
        try:
            with self.path.open("rb") as file:
                first = file.readline(MOST_FIRST_BYTES)
                if first != self._first:
                    self._start(first)
                    self._skip(file.seek(0, 2))
                file.seek(self._at_bytes)
                for line in file:
                    if not line.endswith(b"\n"):  # the rest is being written
                        break
                    self._at_bytes += len(line)
                    if line.startswith(self._heads):
                        self.take(_parsed(line))
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
            raise UserInputError(problem, where=str(self.path)) from None
        except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
            raise UserInputError("is no trace of an agent", where=str(self.path)) from None

    def _start(self, first: bytes) -> None:
        self._first, self._at_bytes, self._epoch_ns = b"", 0, 0  # until its first line is known to be one
        self.begin()
        if first:  # its agent has begun to write
            started = _parsed(first)
            wall_ns = round(datetime.fromisoformat(started["wall_time"]).timestamp() * NANOSECONDS)
            self._epoch_ns = wall_ns - whole(started["time_ns"])
            self._first, self._at_bytes = first, len(first)

    def _skip(self, size_bytes: int) -> None:
        """Go on near the end; the line in whose middle that is has no head that anybody takes."""
        if self.most_behind_bytes is not None:
            self._at_bytes = max(self._at_bytes, size_bytes - self.most_behind_bytes)


def whole(value: Any) -> int:
    """The value, if it is an integer that an agent could have counted; raises TypeError or ValueError."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no integer")
    if abs(value) > MOST_NUMBER:
        raise ValueError("no agent counts so far")
    return value


def real(value: Any) -> float:
    """The value, if it is a finite number; raises TypeError or ValueError."""
    if type(value) is float and isfinite(value):
        return value
    return float(whole(value))


def _parsed(line: bytes) -> Any:
    return json.loads(line, parse_constant=_no_number)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of a trace")


def trace_files(places: Sequence[Path]) -> Iterator[Path]:
    """Traces, and those that now lie in folders."""
    for place in places:
        yield from sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
