"""What the agents of a training job do, read from their traces."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mltswitch.errors import UserInputError, printable
from mltswitch.hostagent.telemetry.reader import TraceReader, real, trace_files, whole
from mltswitch.hostagent.telemetry.snapshot import COMPLETED
from mltswitch.hostagent.transport.records import Direction
from mltswitch.training.rounds import CHANNEL, EPOCHS
from mltswitch.units import BITS_PER_BYTE, NANOSECONDS

STEPS_AVERAGED: Final = 10
"""The time of a step is the mean over so many."""
MOST_AGENTS: Final = 256
"""Files of a folder that are read; a job of more ranks is watched by naming some of them."""
MOST_REASON: Final = 500
"""Characters of an error that are shown."""
_COUNTED: Final = ("bytes_received", "packets", "packets_received", "packets_marked", "packets_resent")


class _Trace(TraceReader):
    """What one agent has told of its transfers."""

    events = ("transfer_ended", "gradients_left_out")
    most_behind_bytes = 4 << 20

    def begin(self) -> None:
        """Forget what another agent told in this file."""
        self.step: int | None = None
        self.told_ns = 0
        self.failed, self.reason = 0, ""
        self.left_out: Mapping[str, Any] | None = None
        self._steps: deque[tuple[int, int]] = deque(maxlen=STEPS_AVERAGED + 1)
        """Steps and when the first transfer of each ended, by the trace's clock."""
        self._since_ns: int | None = None
        self._counts = dict.fromkeys(_COUNTED, 0)

    def take(self, event: Mapping[str, Any]) -> None:
        """Count a transfer, or remember what sums are without; all is checked before any of it is taken."""
        time_ns = whole(event["time_ns"])
        if event["event"] == "gradients_left_out":
            steps = {name: whole(event[name]) for name in ("first_step", "last_step")}
            self.left_out = steps | {name: real(event[name]) for name in ("network_share", "bound_share")}
            self.told_ns = self.wall_ns(time_ns)
            return
        names = _COUNTED[:-1] if event["direction"] == Direction.RECEIVE else _COUNTED[-1:]
        told = {name: event["statistics"][name] for name in names}
        counts = {name: whole(count) for name, count in told.items() if count is not None}
        step = whole(event["round_number"]) // (EPOCHS if event["channel"] == CHANNEL else 1)
        if event["result"] != COMPLETED:
            reason = str(event["reason"] or event["result"])
            self.failed, self.reason = self.failed + 1, printable(reason[:MOST_REASON])
        for name, count in counts.items():
            self._counts[name] += count
        self.told_ns = self.wall_ns(time_ns)
        if self.step is None or step > self.step:
            self.step = step
            self._steps.append((step, time_ns))

    def told(self, now_ns: int) -> dict[str, Any]:
        """The agent now; rates are of the time since this was asked before."""
        seconds = None if self._since_ns is None else max(1, now_ns - self._since_ns) / NANOSECONDS
        counts, self._counts, self._since_ns = self._counts, dict.fromkeys(_COUNTED, 0), now_ns
        (first, first_ns), *_, (last, last_ns) = (*self._steps, *self._steps) or ((0, 0), (0, 0))
        packets, received = counts["packets"], counts["packets_received"]
        return {
            "agent": printable(self.path.stem),
            "step": self.step,
            "step_seconds": (last_ns - first_ns) / NANOSECONDS / (last - first) if last > first else None,
            "age_seconds": (now_ns - self.told_ns) / NANOSECONDS if self.told_ns else None,
            "received_bps": counts["bytes_received"] * BITS_PER_BYTE / seconds if seconds else None,
            "missing_share": 1 - received / packets if packets else None,
            "marked_share": counts["packets_marked"] / received if received else None,
            "resent_per_second": counts["packets_resent"] / seconds if seconds else None,
            "failed": self.failed,
            "reason": self.reason,
            "left_out": self.left_out,
        }


class AgentWatch:
    """Reads the traces of a job's agents again and again.

    Args:
        places: traces, or folders with traces.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = places
        self._traces: dict[Path, _Trace] = {}

    def check(self) -> None:
        """Raise UserInputError for a place that cannot be read, or a file that is no trace."""
        for path in trace_files(self._places):
            self._trace(path).read()

    def read(self) -> tuple[list[dict[str, Any]], list[str]]:
        """(what each agent does, who is behind first; a line for each trace that can no longer be read)."""
        problems: list[str] = []
        files = [*trace_files(self._places)]
        for path in files[:MOST_AGENTS]:
            try:
                self._trace(path).read()
            except UserInputError as error:
                problems.append(str(error))
        if len(files) > MOST_AGENTS:
            problems.append(f"{len(files) - MOST_AGENTS} more traces are not read")
        now_ns = time.time_ns()
        traces = [self._traces[path] for path in files[:MOST_AGENTS]]
        told = [each.told(now_ns) for each in traces if each.is_trace]
        behind = sorted(told, key=lambda each: -1 if each["step"] is None else each["step"])
        return behind, problems

    def _trace(self, path: Path) -> _Trace:
        return self._traces.setdefault(path, _Trace(path))
