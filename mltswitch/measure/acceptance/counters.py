"""The device's own counters of one queue, where we know how to read them, beside what the hosts saw.

A platform without a reader here is never said to count rightly: its check stays open.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from mltswitch.errors import DeviceError
from mltswitch.measure.acceptance.checks import Check, ExpectedQueue, Question
from mltswitch.measure.acceptance.observe import Trace

COUNTER_SHARE: Final = 0.03
COUNTER_PACKETS: Final = 5
"""By how much a counter may differ: other traffic of the class, losses on the way."""


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """Packets of one queue since somebody last cleared it."""

    marked: int
    """Marked CE at S, including those that were lost afterwards because the queue was full."""
    dropped: int
    """Dropped at S or because the queue was full."""

    def since(self, earlier: "QueueCounters") -> "QueueCounters":
        """What was counted meanwhile."""
        return QueueCounters(self.marked - earlier.marked, self.dropped - earlier.dropped)


@dataclass(frozen=True, slots=True)
class CounterReader:
    """How one platform's counters are asked for and read."""

    query: Callable[[str], str]
    """Port → command."""
    read: Callable[[str, int], QueueCounters]
    """(answer, hardware queue) → counters; raises DeviceError."""


class _Qdisc(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    kind: str
    handle: str = ""
    marked: int = 0
    early: int = 0
    pdrop: int = 0


_QDISCS: Final = TypeAdapter(list[_Qdisc])


def _linux_query(port: str) -> str:
    return f"tc -s -j qdisc show dev {port}"


def _linux_read(answer: str, queue: int) -> QueueCounters:
    """RED's own statistics (linux include/uapi/linux/pkt_sched.h, tc_red_xstats; tc-red(8)).

    `early` are drops at the threshold, `pdrop` drops at the limit, which is tested after the mark is set.
    """
    try:
        qdiscs = _QDISCS.validate_python(json.loads(answer))
    except (json.JSONDecodeError, ValidationError):
        raise DeviceError("the answer cannot be read", where="tc -s -j qdisc show") from None
    for qdisc in qdiscs:
        # A queue's qdisc is 1NN: (2NN: below a rate cap), NN its number, wherever it hangs.
        if qdisc.kind == "red" and qdisc.handle in (f"1{queue:02x}:", f"2{queue:02x}:"):
            return QueueCounters(qdisc.marked, qdisc.early + qdisc.pdrop)
    raise DeviceError(f"queue {queue} has no RED counters", where="tc -s -j qdisc show")


READERS: Final[Mapping[str, CounterReader]] = {"linux": CounterReader(_linux_query, _linux_read)}
"""Platform → reader."""


def judge_counters(
    trace: Trace, expected: ExpectedQueue, counted: QueueCounters | None, why_not: str = ""
) -> Check:
    """Whether the device counted the marks and drops that the hosts saw."""
    name = expected.traffic_class
    if counted is None:
        return Check(Question.COUNTERS, name, None, "", "", why_not)
    lost = int(np.sum(~trace.is_received))
    ect_lost = int(np.sum(~trace.is_received & trace.is_ect))
    marked = int(np.sum(trace.is_marked))
    # Of the ECT packets lost, those dropped at L were marked before, those dropped elsewhere were not.
    holds = _within(counted.marked, marked, marked + ect_lost) and _within(counted.dropped, lost, lost)
    return Check(
        Question.COUNTERS,
        name,
        holds,
        f"marked {counted.marked:,}, dropped {counted.dropped:,}",
        f"marked {marked:,} to {marked + ect_lost:,}, dropped {lost:,}",
        ""
        if holds
        else "the device counts other packets than the hosts saw: another queue of the port serves "
        "this class, packets are lost elsewhere, or other traffic crosses the port",
    )


def _within(counted: int, least: int, most: int) -> bool:
    slack = COUNTER_PACKETS + COUNTER_SHARE * most
    return least - slack <= counted <= most + slack
