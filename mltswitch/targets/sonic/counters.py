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
            for queue in port.queues:
                names = [f"{kind}{queue.queue}" for kind in TYPES]
                found = next((ports[port.name][name] for name in names if name in ports[port.name]), None)
                if found is None:
                    continue
                marked = next(
                    (marks[port.name][name] for name in names if name in marks.get(port.name, {})), {}
                )
                counters[port.name, queue.queue] = EgressCounters(
                    sent_bytes=count_in(found["totalbytes"]),
                    sent_packets=count_in(found["totalpacket"]),
                    dropped_packets=count_in(found["droppacket"]),
                    ce_marked_packets=count_in(marked.get("ecnmarkedpacket")),
                )
    return counters
