"""What a job's ranks know of their links and routes, read from traces while agents write them."""

import json
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from mltswitch.errors import UserInputError
from mltswitch.units import NANOSECONDS

MOST_FIRST_BYTES: Final = 4096
"""Longest first line of a trace."""
EVENT: Final = b'{"event": "links_measured"'
"""Beginning of the lines of a trace that report on links."""


class _Trace:
    """One file, read on from where it was read last; from its beginning where another agent writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin(b"")

    def read(self) -> None:
        """Take what has been written since; raises UserInputError for what is no trace."""
        try:
            with self._path.open("rb") as file:
                first = file.readline(MOST_FIRST_BYTES)
                if first != self._first:
                    self._begin(first)
                file.seek(self._at_bytes)
                for line in file:
                    if not line.endswith(b"\n"):  # the rest is being written
                        break
                    self._at_bytes += len(line)
                    if line.startswith(EVENT):
                        self._take(json.loads(line))
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
            raise UserInputError(problem, where=str(self._path)) from None
        except (ValueError, LookupError, TypeError, RecursionError):
            raise UserInputError("is no trace of an agent", where=str(self._path)) from None

    def _begin(self, first: bytes) -> None:
        self._first, self._at_bytes, self._epoch_ns = first, len(first), 0
        self.told_ns = self._bound_ns = 0
        """When this rank told something last, and when its routes were bound, since 1970."""
        self._last: Mapping[str, Any] = {}
        self._links: dict[tuple[str, str], tuple[dict[str, Any], int | None]] = {}
        """By source and target; with when the rank heard of the figure."""
        if first:  # its agent has begun to write
            started = json.loads(first)
            wall_ns = round(datetime.fromisoformat(started["wall_time"]).timestamp() * NANOSECONDS)
            self._epoch_ns = wall_ns - started["time_ns"]

    def _take(self, event: Mapping[str, Any]) -> None:
        self.told_ns = self._epoch_ns + event["time_ns"]
        if event["version"] != self._last.get("version"):
            self._bound_ns = self.told_ns
        self._last = {name: event[name] for name in ("version", "refused", "problem")}
        for link in event["links"]:
            known = {name: link[name] for name in ("source", "target", "said_bps", "measured_bps")}
            heard_ns = self._epoch_ns + link["measured_ns"] if link["measured_ns"] else None
            self._links[link["source"], link["target"]] = known, heard_ns

    def known(self, now_ns: int) -> dict[str, Any]:
        """The links and routes as their rank knows them, with ages at this time, in ns since 1970."""
        links = [
            link | {"age_seconds": None if heard_ns is None else (now_ns - heard_ns) / NANOSECONDS}
            for link, heard_ns in self._links.values()
        ]
        age_seconds = (now_ns - self._bound_ns) / NANOSECONDS
        return {**self._last, "version_age_seconds": age_seconds, "links": links}


class LinkWatch:
    """Reads the traces of one job's agents again and again.

    Args:
        places: paths of traces, or of folders with traces.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = places
        self._traces: dict[Path, _Trace] = {}

    def read(self) -> dict[str, Any] | None:
        """What the rank with the latest report knows now, as in docs/json.md; None: no rank has reported yet.

        Raises UserInputError for a file that is not a trace.
        """
        for place in self._places:
            for path in place.glob("*.jsonl") if place.is_dir() else [place]:
                self._traces.setdefault(path, _Trace(path)).read()
        newest = max(self._traces.values(), key=lambda trace: trace.told_ns, default=None)
        return newest.known(time.time_ns()) if newest is not None and newest.told_ns else None
