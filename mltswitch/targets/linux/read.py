"""What a host answers, as state: ports, routes and what stands on its disk."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets.base import Identity, RunningState
from mltswitch.targets.linux.answers import (
    CLSACT,
    FORWARDING_QUERY,
    IDENTITY_QUERY,
    INGRESS_PARENT,
    QDISC_QUERY,
    QDISCS,
    ROUTE_QUERY,
    ROUTES,
    SEGMENT_QUERY,
    Qdisc,
    answer,
    class_query,
    class_sections,
    filter_query,
    filter_sections,
    load,
)
from mltswitch.targets.linux.layout import LEVELS
from mltswitch.targets.linux.read_port import (
    FoundRewriting,
    filters_in,
    foreign_filters,
    rewriting_in,
    tree_of,
)
from mltswitch.targets.linux.read_routes import alias_routes, segment_routing
from mltswitch.targets.linux.save import SAVED_QUERY, read_saved, save_notes
from mltswitch.targets.linux.tree import Tree, switch_state
from mltswitch.targets.routes import OwnPrefixes, in_order_of
from mltswitch.targets.state import SwitchState

OS_RELEASE: Final = "/etc/os-release"
_PRETTY_NAME: Final = "PRETTY_NAME="
NOT_FORWARDING: Final = "IPv6 is not forwarded"


def identify(answers: Mapping[str, str]) -> Identity:
    """Who the host says it is; raises DeviceError.

    The machine-id (machine-id(5)) stands for its serial number: that of the board (DMI) is often a filler
    such as `To be filled by O.E.M.`, and virtual machines have none.
    """
    lines = [line.partition(":")[::2] for line in answers[IDENTITY_QUERY].splitlines()]
    files = dict(lines)
    name = files.get("/proc/sys/kernel/hostname", "").strip()
    if not name:
        raise DeviceError("does not tell its host name", where=IDENTITY_QUERY)
    release = next((text for file, text in lines if file == OS_RELEASE and text.startswith(_PRETTY_NAME)), "")
    return Identity(
        name,
        files.get("/etc/machine-id", "").strip(),
        files.get("/sys/class/dmi/id/product_name", "").strip(),
        release.removeprefix(_PRETTY_NAME).strip("\"' "),
    )


def queries_for(wanted: SwitchState) -> tuple[str, ...]:
    """One command each for qdiscs, filters, classes and routes of all ports, and for what is saved."""
    queries = [QDISC_QUERY, ROUTE_QUERY, SEGMENT_QUERY, SAVED_QUERY]
    if wanted.ports:
        queries += [filter_query(wanted), class_query(wanted)]
    if wanted.segment_routing is not None:
        queries.append(FORWARDING_QUERY)
    return tuple(queries)


def read_answers(answers: Mapping[str, str], wanted: SwitchState, capabilities: Capabilities) -> RunningState:
    """State of `wanted`'s ports, without those that lack our tree; raises DeviceError if unreadable."""
    del capabilities
    on_ports = port_answers(answers, wanted)
    found: dict[str, Tree] = {}
    for port in wanted.ports:
        tree = on_ports.tree(port.name, rewriting_in(on_ports.filters, port.name))
        if tree is not None:
            found[port.name] = tree
    entries = load(ROUTES, answers, ROUTE_QUERY)
    routes = alias_routes(entries, OwnPrefixes(wanted.routes))
    six = load(ROUTES, answers, SEGMENT_QUERY)
    segments = segment_routing(six, wanted.segment_routing)
    state = switch_state(found, in_order_of(wanted.routes, routes), segments)
    if wanted.segment_routing is not None and not forwards(answer(answers, FORWARDING_QUERY)):
        state = _not_forwarding(state)
    notes = save_notes(read_saved(answer(answers, SAVED_QUERY)), wanted)
    return RunningState(state, dict(answers), notes)


@dataclass(frozen=True, slots=True)
class PortAnswers:
    """What a host answers of its ports."""

    qdiscs: Sequence[Qdisc]
    filters: Mapping[str, str]
    """Port and handle, or port and side of clsact → what tc printed."""
    classes: Mapping[str, str]

    def of(self, port: str) -> list[Qdisc]:
        """What `tc qdisc show` lists for one port."""
        return [entry for entry in self.qdiscs if entry.dev == port]

    def tree(self, port: str, rewriting: FoundRewriting) -> Tree | None:
        """A port's tree; None where it is not ours from the top."""
        return tree_of(
            self.of(port),
            {handle: filters_in(self.filters, port, handle) for handle in LEVELS},
            self.classes.get(port, ""),
            rewriting,
        )


def port_answers(answers: Mapping[str, str], wanted: SwitchState) -> PortAnswers:
    """The answers of `wanted`'s ports; raises DeviceError if unreadable."""
    qdiscs = load(QDISCS, answers, QDISC_QUERY)
    if not wanted.ports:
        return PortAnswers(qdiscs, {}, {})
    return PortAnswers(qdiscs, filter_sections(answers, wanted), class_sections(answers, wanted))


def forwarding_interfaces(answered: str) -> list[str]:
    """Whose IPv6 packets are forwarded by the answer to `FORWARDING_QUERY`: `all`, `default` and ports."""
    return re.findall(r"^/proc/sys/net/ipv6/conf/(.+)/forwarding:1$", answered, re.MULTILINE)


def forwards(answered: str) -> bool:
    """Whether the answer to `FORWARDING_QUERY` says that IPv6 is forwarded."""
    return "all" in forwarding_interfaces(answered)


def _not_forwarding(state: SwitchState) -> SwitchState:
    """Said of the first port, since nothing else of the state can say it."""
    if not state.ports:
        return state
    first = state.ports[0]
    return replace(
        state, ports=(replace(first, unexpected=(*first.unexpected, NOT_FORWARDING)), *state.ports[1:])
    )


def obstacles(answers: Mapping[str, str], wanted: SwitchState, port: str) -> tuple[str, ...]:
    """What somebody else made that sees packets beside the plan's queues, and stays when these change."""
    found = [entry for entry in standing_qdiscs(answers, port) if entry.parent == INGRESS_PARENT]
    filters = filter_sections(answers, wanted) if found and filter_query(wanted) in answers else {}
    return (
        *(entry.kind for entry in found if entry.kind != CLSACT),
        *foreign_filters(filters, port),
    )


def standing_qdiscs(answers: Mapping[str, str], port: str) -> list[Qdisc]:
    """What somebody gave the port, ours included; the kernel's own default queues have no handle."""
    if QDISC_QUERY not in answers:
        return []
    entries = load(QDISCS, answers, QDISC_QUERY)
    return [entry for entry in entries if entry.dev == port and entry.handle != "0:"]
