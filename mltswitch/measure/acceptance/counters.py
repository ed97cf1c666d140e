"""The device's own counters of one queue, where we know how to read them, beside what the hosts saw.

The counters of a platform without a reader here are not read, and the check says so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from mltswitch.errors import DeviceError
from mltswitch.measure.acceptance.checks import Check, ExpectedQueue, Question
from mltswitch.measure.acceptance.observe import Trace
from mltswitch.plan import trailing_number
from mltswitch.targets.common import count_in, json_in
from mltswitch.targets.p4runtime import COUNTERS

COUNTER_SHARE: Final = 0.03
COUNTER_PACKETS: Final = 5
"""By how much a counter may differ: other traffic of the class, losses on the way."""
POLL_SECONDS: Final = 10.0
"""How often SONiC copies its chip's counters, where nobody sets it otherwise; of others nobody says it."""
NOT_READ: Final[Mapping[str, str]] = {
    "dell-sonic": "what `show queue wred-ecn counters` prints is in no public source",
    "icos": "its switches count drops by colour for a whole port, and no CE marks",
}
"""Platform → why it has no reader."""

Ask = Callable[[str], str]
"""Command → the device's answer."""


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """Packets of one queue since somebody last cleared it; None: the device does not count them."""

    marked: int | None
    """Marked CE at S, including those that were lost afterwards because the queue was full."""
    early: int | None = None
    """Dropped at S."""
    full: int | None = None
    """Dropped because the queue was full."""

    def since(self, earlier: "QueueCounters") -> "QueueCounters":
        """What was counted meanwhile."""
        return QueueCounters(
            _difference(self.marked, earlier.marked),
            _difference(self.early, earlier.early),
            _difference(self.full, earlier.full),
        )


def _difference(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def _linux(ask: Ask, port: str, queue: int) -> QueueCounters:
    """RED's own statistics (linux include/uapi/linux/pkt_sched.h, tc_red_xstats; tc-red(8)).

    `early` are drops at the threshold, `pdrop` drops at the limit, which is tested after the mark is set.
    """
    # A queue's qdisc is 1NN: (2NN: below a rate cap), NN its number, wherever it hangs.
    for qdisc in json_in(ask(f"tc -s -j qdisc show dev {port}")):
        if qdisc["kind"] == "red" and qdisc["handle"] in (f"1{queue:02x}:", f"2{queue:02x}:"):
            return QueueCounters(qdisc["marked"], qdisc["early"], qdisc["pdrop"])
    raise DeviceError(f"queue {queue} has no RED counters", where=f"port {port}")


def _onyx(ask: Ask, port: str, queue: int) -> QueueCounters:
    """CE marks are those of the whole port, on which the class under test is the one that queues."""
    whole, *classes = json_in(ask(f"show interfaces ethernet {port} congestion-control | json-print"))
    return QueueCounters(
        count_in(whole["ECN marked packets"]), count_in(classes[queue]["RED dropped packets"])
    )


def _cumulus(ask: Ask, port: str, queue: int) -> QueueCounters:
    """CE marks by queue are counted by newer releases, from Spectrum-3 on."""
    found = json_in(ask(f"nv show interface {port} counters qos -o json"))["egress-queue-stats"][str(queue)]
    return QueueCounters(count_in(found.get("ecn-marked-frames")), count_in(found["wred-discards"]))


def _sonic(ask: Ask, port: str, queue: int) -> QueueCounters:
    """By sonic-utilities' wredstat; `N/A` where the chip cannot count."""
    found = json_in(ask(f"show queue wredcounters --json {port}"))[port][f"UC{queue}"]
    return QueueCounters(count_in(found["ecnmarkedpacket"]), count_in(found["wreddroppacket"]))


def _eos(ask: Ask, port: str, queue: int) -> QueueCounters:
    """CE marks alone, `-` where the chip does not count them; drops by queue are in no public source."""
    found = json_in(ask("show qos interfaces ecn counters queue | json"))["intfQueueCounters"]
    return QueueCounters(count_in(found[port]["queueCounters"][str(queue)]))


def _bmv2(ask: Ask, port: str, queue: int) -> QueueCounters:
    """The counters of mltswitch's own program: docs/p4.md."""
    found = json_in(ask(COUNTERS))[f"{trailing_number(port)} {queue}"]
    return QueueCounters(found["forwarded_marked"], found["dropped_unimportant"], found["dropped_limit"])


@dataclass(frozen=True, slots=True)
class CounterReader:
    """How one platform's counters are asked for and read."""

    read_answer: Callable[[Ask, str, int], QueueCounters]
    poll_seconds: float = POLL_SECONDS
    """How old an answer may be."""

    def read(self, ask: Ask, port: str, queue: int) -> QueueCounters:
        """The counters of a port's hardware queue; raises DeviceError."""
        try:
            counters = self.read_answer(ask, port, queue)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise DeviceError(f"the counters of queue {queue} cannot be read", where=f"port {port}") from None
        if counters == QueueCounters(None):
            raise DeviceError(
                f"the chip does not count marks or drops of queue {queue}", where=f"port {port}"
            )
        return counters


READERS: Final[Mapping[str, CounterReader]] = {
    "linux": CounterReader(_linux, 0.0),
    "bmv2": CounterReader(_bmv2, 0.0),
    "onyx": CounterReader(_onyx),
    "cumulus": CounterReader(_cumulus),
    "sonic": CounterReader(_sonic),
    "eos": CounterReader(_eos),
}
"""Platform → reader."""


def judge_counters(
    trace: Trace, expected: ExpectedQueue, counted: QueueCounters | None, why_not: str = ""
) -> Check:
    """Whether the device counted the marks and drops that the hosts saw."""
    name = expected.traffic_class
    if counted is None:
        return Check(Question.COUNTERS, name, None, "not read", "", why_not)
    lost = int(np.sum(~trace.is_received))
    ect_lost = int(np.sum(~trace.is_received & trace.is_ect))
    marked = int(np.sum(trace.is_marked))
    # Of the ECT packets lost, those dropped at L were marked before, those dropped elsewhere were not.
    found = [("marked", counted.marked, marked, marked + ect_lost)]
    if counted.early is None or counted.full is None:
        found += [("dropped at S", counted.early, lost - ect_lost, lost - ect_lost)]
    else:
        found += [("dropped", counted.early + counted.full, lost, lost)]
    seen = [(what, count, least, most) for what, count, least, most in found if count is not None]
    holds = all(_within(count, least, most) for _, count, least, most in seen)
    return Check(
        Question.COUNTERS,
        name,
        holds,
        ", ".join(f"{what} {count:,}" for what, count, _, _ in seen),
        ", ".join(
            f"{what} {least:,}" + (f" to {most:,}" if most > least else "") for what, _, least, most in seen
        ),
        ""
        if holds
        else "the device counts other packets than the hosts saw: another queue of the port serves "
        "this class, packets are lost elsewhere, or other traffic crosses the port",
    )


def _within(counted: int, least: int, most: int) -> bool:
    slack = COUNTER_PACKETS + COUNTER_SHARE * most
    return least - slack <= counted <= most + slack
