"""What a job's ranks know of their links and routes, read from traces while agents write them."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mltswitch.hostagent.telemetry.reader import TraceReader, trace_files, whole
from mltswitch.units import NANOSECONDS


class _Trace(TraceReader):
    """What one rank has told."""

    events = ("links_measured",)

    def begin(self) -> None:
        """Forget what another agent told in this file."""
        self.told_ns = self._bound_ns = 0
        """When this rank told something last, and when its routes were bound, since 1970."""
        self._last: Mapping[str, Any] = {}
        self._links: dict[tuple[str, str], tuple[dict[str, Any], int | None]] = {}
        """By source and target; with when the rank heard of the figure."""

    def take(self, event: Mapping[str, Any]) -> None:
        """Remember its links."""
        self.told_ns = self.wall_ns(whole(event["time_ns"]))
        if event["version"] != self._last.get("version"):
            self._bound_ns = self.told_ns
        self._last = {name: event[name] for name in ("version", "refused", "problem")}
        for link in event["links"]:
            known = {name: link[name] for name in ("source", "target", "said_bps", "measured_bps")}
            heard_ns = self.wall_ns(whole(link["measured_ns"])) if link["measured_ns"] else None
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
        for path in trace_files(self._places):
            self._traces.setdefault(path, _Trace(path)).read()
        newest = max(self._traces.values(), key=lambda trace: trace.told_ns, default=None)
        return newest.known(time.time_ns()) if newest is not None and newest.told_ns else None
