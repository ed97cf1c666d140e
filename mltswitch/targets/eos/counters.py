"""What an EOS switch counts of its queues: packets that it marked CE, on chips that count them.

Drops by queue are in no public source.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from mltswitch.targets.base import CounterSource, EgressCounters, QueueCounters, QueuePlace
from mltswitch.targets.common import POLL_SECONDS, count_in, json_in, known_form

_QUERY: Final = "show qos interfaces ecn counters queue | json"


def _read(answers: Mapping[str, str], places: Iterable[QueuePlace]) -> QueueCounters:
    """`-` stands where the chip does not count."""
    with known_form(_QUERY):
        found = json_in(answers[_QUERY])["intfQueueCounters"]
        return {
            (port, queue): EgressCounters(
                ce_marked_packets=count_in(found[port]["queueCounters"][str(queue)])
            )
            for port, queue in places
        }


COUNTER_SOURCE: Final = CounterSource(lambda _: (_QUERY,), _read, POLL_SECONDS, tells_traffic=False)
