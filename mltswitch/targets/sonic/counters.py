"""What the queues of a SONiC switch have counted (sonic-utilities: queuestat and wredstat)."""

from collections.abc import Mapping
from typing import Final

from mltswitch.targets.base import EgressCounters, QueueCounters
from mltswitch.targets.common import count_in, json_in, known_form
from mltswitch.targets.state import SwitchState

QUEUES: Final = "show queue counters --json"
MARKS: Final = "show queue wredcounters --json || true"
"""Releases before 202505 have no such command, and many chips answer N/A."""
TYPES: Final = ("UC", "ALL")
"""Of a unicast queue, and of one for everything, where the chip has no others (queuestat, QUEUE_TYPE_ALL)."""


def counter_queries(_wanted: SwitchState) -> tuple[str, ...]:
    """Two commands for all ports."""
    return (QUEUES, MARKS)


def read_counters(answers: Mapping[str, str], wanted: SwitchState) -> QueueCounters:
    """The counters of all queues; how much waits in them, no command tells. Raises DeviceError."""
    counters: dict[tuple[str, int], EgressCounters] = {}
    with known_form(QUEUES):
        ports = json_in(answers[QUEUES])
        marks = json_in(answers[MARKS]) if "{" in answers[MARKS] else {}
        for port in wanted.ports:
            both = ports[port.name], marks.get(port.name, {})
            for queue in port.queues:
                found, marked = (
                    next(
                        (each[f"{kind}{queue.queue}"] for kind in TYPES if f"{kind}{queue.queue}" in each), {}
                    )
                    for each in both
                )
                counters[port.name, queue.queue] = EgressCounters(
                    sent_bytes=count_in(found.get("totalbytes")),
                    sent_packets=count_in(found.get("totalpacket")),
                    dropped_packets=count_in(found.get("droppacket")),
                    ce_marked_packets=count_in(marked.get("ecnmarkedpacket")),
                )
    return counters
