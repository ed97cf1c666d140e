"""What the traffic classes of a Cumulus Linux switch have counted.

NVUE's object `interface counters qos egress-queue-stats` (Cumulus Linux user guide, Quality of Service). Its
table prints `tx-uc-buffer-discards` with a unit of bytes, but they are frames.
"""

from collections.abc import Mapping

from mltswitch.targets.base import EgressCounters, QueueCounters
from mltswitch.targets.common import count_in, json_in, known_form
from mltswitch.targets.state import SwitchState


def _query(port: str) -> str:
    return f"nv show interface {port} counters qos -o json"


def counter_queries(wanted: SwitchState) -> tuple[str, ...]:
    """One `nv show` for each port of the plan."""
    return tuple(_query(port.name) for port in wanted.ports)


def read_counters(answers: Mapping[str, str], wanted: SwitchState) -> QueueCounters:
    """The counters of all queues; releases and chips that count no marks by class tell none.

    Raises DeviceError.
    """
    counters: dict[tuple[str, int], EgressCounters] = {}
    for port in wanted.ports:
        with known_form(_query(port.name)):
            classes = json_in(answers[_query(port.name)])["egress-queue-stats"]
            for queue in port.queues:
                found = classes[str(queue.queue)]
                dropped = [count_in(found.get(name)) for name in ("tx-uc-buffer-discards", "wred-discards")]
                counters[port.name, queue.queue] = EgressCounters(
                    sent_bytes=count_in(found.get("tx-bytes")),
                    sent_packets=count_in(found["tx-frames"]),
                    dropped_packets=None if None in dropped else sum(filter(None, dropped)),
                    ce_marked_packets=count_in(found.get("ecn-marked-frames")),
                )
    return counters
