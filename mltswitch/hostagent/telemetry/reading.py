"""Reads traces back, as the events that were written."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from mltswitch.errors import UserInputError, printable
from mltswitch.hostagent.telemetry.trace import (
    ADAPTERS,
    EVENT_FIELD,
    FORMAT_VERSION,
    TraceEvent,
    TraceStarted,
)

MAXIMUM_LINE_CHARACTERS: Final = 1 << 20
"""No event is as long; what is, is no trace."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What a file says."""

    started: TraceStarted
    events: tuple[TraceEvent, ...]
    """All later lines, in the order of the file, which is about that of their times; those of names that this
    version does not know are left out."""
    is_cut: bool
    """Whether the last line is unfinished, and left out: the process was killed, or the disk was full."""


def read_trace(path: Path) -> Trace:
    """Raises UserInputError, which names the line, for a file that cannot be read or is no trace."""
    started: TraceStarted | None = None
    events: list[TraceEvent] = []
    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            number = 0
            while line := lines.readline(MAXIMUM_LINE_CHARACTERS):
                number += 1
                is_cut = not line.endswith("\n")
                if is_cut and started is not None and len(line) < MAXIMUM_LINE_CHARACTERS:
                    return Trace(started, tuple(events), is_cut=True)
                event = _event(line, f"{path}, line {number}")
                if started is None:
                    started = _checked_start(event, f"{path}, line {number}")
                elif event is not None:
                    events.append(event)
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "is no UTF-8 text"
        raise UserInputError(f"cannot be read: {what}", where=f"trace {path}") from None
    if started is None:
        raise UserInputError("is empty", where=f"trace {path}", expected="a trace")
    return Trace(started, tuple(events), is_cut=False)


def _event(line: str, where: str) -> TraceEvent | None:
    """None for a name that this version does not know."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        raise UserInputError("is no JSON", where=where, expected="one event a line") from None
    name = content.get(EVENT_FIELD) if isinstance(content, dict) else None
    if not isinstance(name, str):
        raise UserInputError("names no event", where=where, expected=f"an object with {EVENT_FIELD!r}")
    adapter = ADAPTERS.get(name)
    if adapter is None:
        return None
    try:
        event: TraceEvent = adapter.validate_json(line, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UserInputError(printable(f"{name}: {place}: {first['msg']}"), where=where) from None
    return event


def _checked_start(event: TraceEvent | None, where: str) -> TraceStarted:
    if not isinstance(event, TraceStarted):
        raise UserInputError("is no trace", where=where, expected=f"{TraceStarted.name!r} first")
    if event.format_version != FORMAT_VERSION:
        raise UserInputError(
            f"has format {event.format_version}", where=where, expected=f"format {FORMAT_VERSION}"
        )
    return event
