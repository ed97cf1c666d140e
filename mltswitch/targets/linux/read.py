"""Reads a host's answers as state: ports, routes, saved files, and counters of its queues.

Settings that others made on a port are reported, not touched.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Final

from pydantic import Field, TypeAdapter

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import (
    CounterSource,
    EgressCounters,
    Identity,
    QueueCounters,
    QueuePlace,
    RunningState,
)
from mltswitch.targets.linux.answers import (
    FORWARDING_QUERY,
    LINK_QUERY,
    QDISC_QUERY,
    ROUTE_QUERY,
    SEGMENT_QUERY,
    Qdisc,
    answer,
    class_query,
    filter_query,
    load,
)
from mltswitch.targets.linux.foreign import RULES_QUERY, elsewhere, unread_rules
from mltswitch.targets.linux.ports import Port, handles, port_of, ports_of
from mltswitch.targets.linux.routes import running_routes
from mltswitch.targets.linux.save import SAVED_QUERY, read_saved, save_notes
from mltswitch.targets.linux.tree import port_answers
from mltswitch.targets.state import SwitchState

_NAME_FILE, _ID_FILE = "/proc/sys/kernel/hostname", "/etc/machine-id"
_RELEASE_FILE, _MODEL_FILE = "/etc/os-release", "/sys/class/dmi/id/product_name"
IDENTITY_QUERY: Final = f"grep -s . {_NAME_FILE} {_ID_FILE} {_RELEASE_FILE} {_MODEL_FILE} || true"
"""The query for the host's identity: the answer has each line behind the name of its file and a colon."""
NOT_FORWARDING: Final = "IPv6 is not forwarded"


def identify(answers: Mapping[str, str]) -> Identity:
    """The identity that the host reports; raises DeviceError.

    The machine-id (machine-id(5)) stands for its serial number: that of the board (DMI) is often a filler
    such as `To be filled by O.E.M.`, and virtual machines have none.
    """
    lines = answers[IDENTITY_QUERY].splitlines()
    files = {file: text.strip() for file, _, text in (line.partition(":") for line in lines)}
    if not files.get(_NAME_FILE):
        raise DeviceError("does not tell its host name", where=IDENTITY_QUERY)
    beginning = f"{_RELEASE_FILE}:PRETTY_NAME="
    release = next((line.removeprefix(beginning) for line in lines if line.startswith(beginning)), "")
    return Identity(
        files[_NAME_FILE], files.get(_ID_FILE, ""), files.get(_MODEL_FILE, ""), release.strip("\"' ")
    )


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """One command each for qdiscs, filters, classes and routes of all ports, and for what is saved."""
    queries = [QDISC_QUERY, ROUTE_QUERY, SEGMENT_QUERY, SAVED_QUERY]
    if wanted.ports:
        queries += [filter_query(wanted), class_query(wanted), LINK_QUERY, RULES_QUERY]
    if wanted.segment_routing is not None:
        queries.append(FORWARDING_QUERY)
    return tuple(queries)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """The running state of the wanted ports that have mltswitch's qdisc tree; raises DeviceError."""
    del capabilities
    found: dict[str, Port] = {}
    for name, port in port_answers(answers, wanted).items():
        marks = port.marks
        if port.queues:
            found[name] = port_of({**port.queues[0], **marks}, port.queues[1])
    ports, background_dscp = ports_of(found)
    routes, segments = running_routes(answers, wanted)
    if wanted.segment_routing is not None and not forwards(answer(answers, FORWARDING_QUERY)) and ports:
        # Said of the first port, since nothing else of the state can say it.
        faults = (*ports[0].unexpected, NOT_FORWARDING)
        ports = (replace(ports[0], unexpected=faults), *ports[1:])
    foreign = tuple(elsewhere(answers, wanted))
    state = SwitchState(ports, routes, segments, background_dscp=background_dscp, unexpected=foreign)
    notes = save_notes(read_saved(answer(answers, SAVED_QUERY)), wanted)
    return RunningState(state, dict(answers), (*notes, *unread_rules(answers)))


def forwarding_interfaces(answered: str) -> list[str]:
    """Interfaces (also `all`, `default`) that forward IPv6, by the answer to `FORWARDING_QUERY`."""
    return re.findall(r"^/proc/sys/net/ipv6/conf/(.+)/forwarding:1$", answered, re.MULTILINE)


def forwards(answered: str) -> bool:
    """Whether the answer to `FORWARDING_QUERY` says that IPv6 is forwarded."""
    return "all" in forwarding_interfaces(answered)


COUNTER_QUERY: Final = "tc -s -j -d qdisc show"


_Count = Annotated[int, Field(ge=0, lt=2**64)]


class _Counted(Qdisc):
    """Statistics of a qdisc: gnet_stats of every kind, and tc_red_xstats of red (linux uapi pkt_sched.h).

    red counts a packet as marked when it sets CE at the threshold, also where the limit drops it then;
    `drops` are those at the threshold (`early`) and at the limit (`pdrop`) together. A packet is sent when it
    leaves the queue.
    """

    depth_bytes: _Count | None = Field(None, alias="backlog")
    sent_bytes: _Count | None = Field(None, alias="bytes")
    sent_packets: _Count | None = Field(None, alias="packets")
    dropped_packets: _Count | None = Field(None, alias="drops")
    ce_marked_packets: _Count | None = Field(None, alias="marked")
    dropped_at_threshold_packets: _Count | None = Field(None, alias="early")
    dropped_at_limit_packets: _Count | None = Field(None, alias="pdrop")


_COUNTED: Final = TypeAdapter(list[_Counted])


def _read_counters(answers: Mapping[str, str], places: Iterable[QueuePlace]) -> QueueCounters:
    """The counters of all queues that stand in their place; raises DeviceError if unreadable."""
    found = {(entry.dev, entry.handle): entry for entry in load(_COUNTED, answers, COUNTER_QUERY)}
    counters: dict[QueuePlace, EgressCounters] = {}
    for port, queue in places:
        above, below = handles(queue)
        if entry := found.get((port, below), found.get((port, above))):
            told = EgressCounters(**entry.model_dump(exclude={*Qdisc.model_fields}))
            # Other kinds than red mark nothing in a tree of ours.
            counters[port, queue] = told if entry.kind == "red" else replace(told, ce_marked_packets=0)
    return counters


COUNTER_SOURCE: Final = CounterSource(lambda _: (COUNTER_QUERY,), _read_counters)
