"""Traces, read on again and again while agents write them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final

from mltswitch.errors import UserInputError
from mltswitch.units import NANOSECONDS

MOST_FIRST_BYTES: Final = 4096
"""Of a trace's first line."""


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
                        self.take(json.loads(line, parse_constant=_no_number))
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
            raise UserInputError(problem, where=str(self.path)) from None
        except (ValueError, LookupError, TypeError, RecursionError):
            raise UserInputError("is no trace of an agent", where=str(self.path)) from None

    def _start(self, first: bytes) -> None:
        self._first, self._at_bytes, self._epoch_ns = first, len(first), 0
        self.begin()
        if first:  # its agent has begun to write
            started = json.loads(first)
            wall_ns = round(datetime.fromisoformat(started["wall_time"]).timestamp() * NANOSECONDS)
            self._epoch_ns = wall_ns - started["time_ns"]

    def _skip(self, size_bytes: int) -> None:
        """Go on near the end; the line in whose middle that is has no head that anybody takes."""
        if self.most_behind_bytes is not None:
            self._at_bytes = max(self._at_bytes, size_bytes - self.most_behind_bytes)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of a trace")


def trace_files(places: Sequence[Path]) -> Iterator[Path]:
    """Traces, and those that now lie in folders."""
    for place in places:
        yield from sorted(place.glob("*.jsonl")) if place.is_dir() else [place]
