"""What our program has counted for each queue: docs/p4.md, the array `decisions`."""

from collections.abc import Mapping

from mltswitch.plan import trailing_number
from mltswitch.targets.base import EgressCounters, QueueCounters
from mltswitch.targets.common import json_in, known_form
from mltswitch.targets.p4runtime import COUNTERS
from mltswitch.targets.state import SwitchState


def counter_queries(_wanted: SwitchState) -> tuple[str, ...]:
    """One question for all ports."""
    return (COUNTERS,)


def read_counters(answers: Mapping[str, str], wanted: SwitchState) -> QueueCounters:
    """Packets; as sent counts what was let into the queue, which leaves it. Raises DeviceError."""
    with known_form(COUNTERS):
        cells = json_in(answers[COUNTERS]) if answers[COUNTERS] else {}
        return {
            (port.name, queue.queue): EgressCounters(
                sent_packets=found["forwarded_unmarked"] + found["forwarded_marked"],
                dropped_packets=found["dropped_unimportant"] + found["dropped_limit"],
                ce_marked_packets=found["forwarded_marked"],
            )
            for port in wanted.ports
            for queue in port.queues
            if (found := cells.get(f"{trailing_number(port.name)} {queue.queue}")) is not None
        }
