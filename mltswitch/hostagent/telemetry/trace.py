"""Traces: what an agent did, one JSON object a line.

The first line says when the trace began, on both clocks; every later one is an event, whose name stands in
`event` and whose fields docs/agent-telemetry.md lists. Events stand in the order in which they were told,
which need not be that of their times. A trace that its disk had no room for, or whose process was killed,
just ends; its last line may then be cut.
"""

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import BufferedIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from mltswitch import __version__
from mltswitch.errors import UserInputError
from mltswitch.hostagent.telemetry.events import EVENTS, AgentEvent
from mltswitch.hostagent.values import shown

FORMAT_VERSION: Final = 1
"""Rises when a name changes or goes; names may be added within a version."""
FLUSH_SECONDS: Final = 1.0
"""An event is in the file so long after it happened, about."""
MAXIMUM_WAITING: Final = 1 << 16
"""Events kept for a slow disk; those that come then are counted, and not written."""
EVENT_FIELD: Final = "event"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TraceStarted:
    """The first line."""

    name: ClassVar = "trace_started"
    time_ns: int
    wall_time: str
    """At `time_ns`, in UTC (ISO 8601)."""
    format_version: int
    software_version: str


@dataclass(frozen=True, slots=True)
class EventsLeftOut:
    """So many events before the next line came faster than the disk took them, and are not in the trace."""

    name: ClassVar = "events_left_out"
    time_ns: int
    events: int


TraceEvent = AgentEvent | TraceStarted | EventsLeftOut


ADAPTERS: Final[Mapping[str, TypeAdapter[Any]]] = {
    kind.name: TypeAdapter(kind) for kind in (*EVENTS, TraceStarted, EventsLeftOut)
}
"""Of each name of an event."""


def trace_line(event: TraceEvent) -> bytes:
    """In UTF-8, with its line end; what Unicode cannot say becomes a question mark."""
    try:
        fields = ADAPTERS[event.name].dump_json(event)  # ten times as fast as `json`
    except PydanticSerializationError:  # half of a surrogate pair
        fields = json.dumps(asdict(event), ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    return b'{"%s":"%s",%s\n' % (EVENT_FIELD.encode(), event.name.encode(), fields[1:])


class TraceWriter:
    """An `Observer` that writes a trace; a thread of its own does it, so that no disk holds up data."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Begins the file anew; raises UserInputError where it cannot be written, or is no path."""
        try:
            self._path = Path(path)
        except TypeError:
            raise UserInputError(
                f"{shown(path)} is no path", where="trace", expected="text, or a Path"
            ) from None
        self._waiting: deque[AgentEvent] = deque()
        self._left_out = 0
        self._is_closed = threading.Event()
        self._failure: Exception | None = None
        self._file: BufferedIOBase = self._begun()
        self._thread = threading.Thread(target=self._run, name="agent trace", daemon=True)
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        """Whether the disk refused a line: the trace has ended there."""
        return self._failure is not None

    def observe(self, event: AgentEvent) -> None:
        """From any thread; never waits for the disk."""
        if self._failure is not None or self._is_closed.is_set():
            return
        if len(self._waiting) >= MAXIMUM_WAITING:
            self._left_out += 1
        else:
            self._waiting.append(event)

    def close(self) -> None:
        """Write what waits; may be called again."""
        if not self._is_closed.is_set():
            self._is_closed.set()
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _begun(self) -> BufferedIOBase:
        started = TraceStarted(
            time.monotonic_ns(), datetime.now(UTC).isoformat(), FORMAT_VERSION, __version__
        )
        try:
            opened = self._path.open("wb")
            try:
                opened.write(trace_line(started))
                opened.flush()
            except OSError:
                _discard(opened)
                raise
        except (OSError, ValueError) as error:  # no path has the character 0 within
            reason = error.strerror if isinstance(error, OSError) else error
            raise UserInputError(f"cannot be written: {reason}", where=f"trace {self._path}") from None
        return opened

    def _run(self) -> None:
        is_last = False
        while not is_last and self._failure is None:
            is_last = self._is_closed.wait(FLUSH_SECONDS)
            try:
                self._write()
            except OSError as error:
                self._failure = error
                self._waiting.clear()
                _log.warning("trace %s ends here: %s", self._path, error.strerror)
            except Exception as error:  # noqa: BLE001  (a thread that dies silently would leave `has_failed` false)
                self._failure = error
                self._waiting.clear()
                _log.exception("trace %s ends here", self._path)
        try:
            self._file.close()
        except OSError as error:
            if self._failure is None:
                self._failure = error
                _log.warning("trace %s may lack its end: %s", self._path, error.strerror)

    def _write(self) -> None:
        for _ in range(len(self._waiting)):
            self._file.write(trace_line(self._waiting.popleft()))
        left_out, self._left_out = self._left_out, 0
        if left_out:
            self._file.write(trace_line(EventsLeftOut(time.monotonic_ns(), left_out)))
        self._file.flush()


def _discard(opened: BufferedIOBase) -> None:
    try:
        opened.close()
    except OSError as error:
        _log.debug("closed without its last bytes: %s", error)
