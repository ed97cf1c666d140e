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
                found = _of(ports[port.name], queue.queue)
                counters[port.name, queue.queue] = EgressCounters(
                    sent_bytes=count_in(found.get("totalbytes")),
                    sent_packets=count_in(found.get("totalpacket")),
                    dropped_packets=count_in(found.get("droppacket")),
                    ce_marked_packets=count_in(
                        _of(marks.get(port.name, {}), queue.queue).get("ecnmarkedpacket")
                    ),
                )
    return counters


def _of(port: Mapping[str, Mapping[str, str]], queue: int) -> Mapping[str, str]:
    return next((port[name] for kind in TYPES if (name := f"{kind}{queue}") in port), {})
