"""What the queues of a host's ports have counted, by `tc -s`."""

from collections.abc import Mapping
from typing import Final

from pydantic import Field, TypeAdapter

from mltswitch.targets.base import EgressCounters, QueueCounters
from mltswitch.targets.linux.answers import Qdisc, load
from mltswitch.targets.state import SwitchState

COUNTER_QUERY: Final = "tc -s -j -d qdisc show"
RED: Final = "red"


class _Counted(Qdisc):
    """Statistics of a qdisc: gnet_stats of every kind, and tc_red_xstats of red (linux uapi pkt_sched.h).

    red counts a packet as marked when it sets CE at the threshold, also where the limit drops it then;
    `drops` are those at the threshold (`early`) and at the limit (`pdrop`) together. A packet is sent when it
    leaves the queue.
    """

    sent_bytes: int | None = Field(None, alias="bytes")
    sent_packets: int | None = Field(None, alias="packets")
    drops: int | None = None
    backlog: int | None = None
    marked: int | None = None

    @property
    def counters(self) -> EgressCounters:
        # Other kinds than red mark nothing in a tree of ours.
        marked = self.marked if self.kind == RED else 0
        return EgressCounters(self.backlog, self.sent_bytes, self.sent_packets, self.drops, marked)


_COUNTED: Final = TypeAdapter(list[_Counted])


def counter_queries(_wanted: SwitchState) -> tuple[str, ...]:
    """One command for all ports."""
    return (COUNTER_QUERY,)


def read_counters(answers: Mapping[str, str], wanted: SwitchState) -> QueueCounters:
    """The counters of all queues that stand in their place; raises DeviceError if unreadable."""
    found = {(entry.dev, entry.handle): entry for entry in load(_COUNTED, answers, COUNTER_QUERY)}
    counters: dict[tuple[str, int], EgressCounters] = {}
    for port in wanted.ports:
        for queue in port.queues:
            # A queue's qdisc is 1NN:, NN its number; where a tbf caps it, that is the tbf, and 2NN: below it.
            own = found.get((port.name, f"1{queue.queue:02x}:"))
            entry = found.get((port.name, f"2{queue.queue:02x}:"), own)
            if entry is not None:
                counters[port.name, queue.queue] = entry.counters
    return counters
