"""Traces: what an agent did, one JSON object a line.

The first line says when the trace began, on both clocks. The others are events, in the order in which
observers were told; docs/agent-telemetry.md lists their fields.
"""

import json
import logging
import re
import threading
from collections import deque
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from mltswitch.errors import UserInputError
from mltswitch.hostagent.telemetry import events
from mltswitch.hostagent.telemetry.events import AgentEvent
from mltswitch.version import __version__

FORMAT_VERSION: Final = 2
"""Version of the trace format; it rises when a name changes or goes, not when names are added."""
FLUSH_SECONDS: Final = 1.0
"""How long after it happened an event is in the file, about."""
MOST_WAITING: Final = 1 << 16
"""The most events kept for a slow disk; further ones are counted but not written."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStarted(AgentEvent):
    """The first line."""

    wall_time: str
    """At `time_ns`, in UTC (ISO 8601)."""
    format_version: int = FORMAT_VERSION
    software_version: str = __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsLeftOut(AgentEvent):
    """Events before the next line that came faster than the disk took them, and are not in the trace."""

    events: int


def event_name(kind: type[AgentEvent]) -> str:
    """Name of an event type in a trace: `transfer_ended` for TransferEnded."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


KINDS: Final = {
    event_name(kind): kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, AgentEvent) and kind is not AgentEvent
}
"""The types of events that an agent tells its observers, by their names in traces."""


def plain(value: Any) -> Any:
    """A value as JSON can hold it: dataclasses, also in tuples, become dicts of fields and properties."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if not is_dataclass(value):
        return value
    names = [field.name for field in fields(value)]
    names += [name for name, entry in vars(type(value)).items() if isinstance(entry, property)]
    return {name: plain(getattr(value, name)) for name in names}


class TraceWriter:
    """An observer that writes a trace in a thread of its own; as a context manager it ends with its block."""

    def __init__(self, path: Path) -> None:
        """Replaces a file of that name; raises UserInputError where it cannot be written."""
        self.path = path
        self.has_failed = False
        """Whether the disk refused a line: the trace has ended there."""
        self._left_out = 0
        self._is_closed = threading.Event()
        try:
            self._file = path.open("w", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            what = f"cannot be written: {error.strerror}"
            raise UserInputError(what, where=f"trace {path}") from None
        started = TraceStarted(wall_time=datetime.now(UTC).isoformat())
        self._waiting: deque[AgentEvent] = deque([started])
        self._thread = threading.Thread(target=self._run, name="agent trace", daemon=True)
        self._thread.start()

    def observe(self, event: AgentEvent) -> None:
        """Queue an event for writing, without waiting for the disk; call from one thread at a time."""
        if self.has_failed or self._is_closed.is_set():
            return
        if len(self._waiting) >= MOST_WAITING:
            self._left_out += 1
        else:
            self._waiting.append(event)

    def close(self) -> None:
        """Write the queued events and end the trace; may be called again."""
        self._is_closed.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            with self._file:
                while not self._is_closed.wait(FLUSH_SECONDS):
                    self._write()
                self._write()
        except OSError as error:
            self.has_failed = True
            self._waiting.clear()
            _log.warning("trace %s ends here: %s", self.path, error.strerror)

    def _write(self) -> None:
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        left_out, self._left_out = self._left_out, 0
        if left_out:
            waiting.append(EventsLeftOut(events=left_out))
        for event in waiting:
            line = {"event": event_name(type(event)), **plain(event)}
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._file.flush()
