"""What an Onyx switch counts of its queues: drops at the threshold by class, CE marks of the whole port."""

from collections.abc import Iterable, Mapping
from typing import Final

from mltswitch.targets.base import CounterSource, EgressCounters, QueueCounters, QueuePlace
from mltswitch.targets.common import POLL_SECONDS, count_in, json_in, known_form
from mltswitch.targets.onyx.read import CONGESTION


def _queries(ports: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(CONGESTION.format, ports))


def _read(answers: Mapping[str, str], places: Iterable[QueuePlace]) -> QueueCounters:
    """Packets that the port marked count for each of its queues."""
    counters: dict[QueuePlace, EgressCounters] = {}
    for port, queue in places:
        with known_form(CONGESTION.format(port)):
            whole, *classes = json_in(answers[CONGESTION.format(port)])
            counters[port, queue] = EgressCounters(
                ce_marked_packets=count_in(whole["ECN marked packets"]),
                dropped_at_threshold_packets=count_in(classes[queue]["RED dropped packets"]),
            )
    return counters


COUNTER_SOURCE: Final = CounterSource(_queries, _read, POLL_SECONDS, tells_traffic=False)
