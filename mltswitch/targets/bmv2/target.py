"""The BMv2 target: ties its parts to the contract."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from mltswitch.capabilities import BitRate, Capabilities
from mltswitch.capabilities.meter_rate import rate_kept
from mltswitch.plan import Plan, attached_hosts, underlay
from mltswitch.targets.base import Change, Quantised, RunningState, Session
from mltswitch.targets.bmv2.capabilities import BACKGROUND_QUEUE, HARDWARE, PLATFORM, SIMPLE_SWITCH
from mltswitch.targets.bmv2.contents import contents_of
from mltswitch.targets.bmv2.diff import change_between
from mltswitch.targets.bmv2.parse import parse_files
from mltswitch.targets.bmv2.read import QUERIES, read_answers
from mltswitch.targets.bmv2.render import FILE, render_text
from mltswitch.targets.common import checked_render, expressible, lookup
from mltswitch.targets.quantise import quantise
from mltswitch.targets.state import PortState, QueueState, SwitchState
from mltswitch.units import BITS_PER_BYTE, format_bps
from mltswitch.wire.tos import DSCP_COUNT


class Bmv2Target:
    """simple_switch_grpc with our program, over P4Runtime; an entry takes effect at once, nothing is saved.

    Ours on a device: the program; queues, meters, trust and neighbours of the plan's ports; routes within its
    prefixes; `spraying`; every DSCP map and group that no other entry refers to. The switch has no routing
    but what these tables say, so a state also holds the routes that other switches learn by themselves.
    """

    platform = PLATFORM
    session = Session.P4RUNTIME
    netmiko_type = ""
    hardware_names = tuple(HARDWARE)

    def hardware(self, name: str | None) -> Capabilities:
        """Capabilities of the one model; raises UserInputError for another name."""
        return lookup(HARDWARE, name or SIMPLE_SWITCH.hardware, self.platform)

    def quantise(self, plan: Plan, switch: str) -> Quantised:
        """Exact but for limits above what BMv2 holds; raises UnsupportedPlanError."""
        entry = plan.topology.switch(switch)
        quantised = quantise(plan, switch, self.hardware(entry.hardware))
        state = replace(
            quantised.state,
            ports=_as_programmed(quantised.state.ports),
            routes=(
                *quantised.state.routes,
                *attached_hosts(entry),
                *underlay(plan.fabric.addressing, plan.topology, entry),
            ),
        )
        shortfalls = quantised.shortfalls
        if plan.fabric.ports.shaped:
            shortfalls += (
                f"BMv2 shapes no port: whoever makes its links holds them to "
                f"{format_bps(plan.fabric.ports.rate_bps)}, so that packets wait in BMv2",
            )
        return expressible(replace(quantised, state=state, shortfalls=shortfalls), switch, contents_of)

    def render(self, state: SwitchState) -> dict[str, str]:
        """`mltswitch.txt`, parsed again before it leaves."""
        return checked_render({FILE: render_text(state)}, parse_files, state)

    def parse(self, files: Mapping[str, str]) -> SwitchState:
        """Inverse of `render`."""
        return parse_files(files)

    def queries(self, wanted: SwitchState) -> tuple[str, ...]:  # noqa: ARG002  (they are the same for all)
        """Program, entries and meters."""
        return QUERIES

    def read(self, answers: Mapping[str, str], wanted: SwitchState) -> RunningState:
        """State from the answers."""
        return read_answers(answers, wanted)

    def diff(self, running: RunningState, wanted: SwitchState) -> Change:
        """Entries in a safe order."""
        return change_between(running, wanted)


def _as_programmed(ports: Sequence[PortState]) -> tuple[PortState, ...]:
    """What is not trusted has no map, and a rate is one that can be read again."""
    found: list[PortState] = []
    for (queues, trusted), alike in groupby(ports, lambda port: (port.queues, port.trusted)):
        programmed = tuple(_queue(queue, trusted) for queue in queues)
        found += [replace(port, shaped_bps=None, queues=programmed) for port in alike]
    return tuple(found)


def _queue(queue: QueueState, trusted: bool) -> QueueState:
    dscps = queue.dscps
    if not trusted:
        dscps = tuple(range(DSCP_COUNT)) if queue.queue == BACKGROUND_QUEUE else ()
    maximum = queue.maximum
    if isinstance(maximum, BitRate):
        maximum = BitRate(rate_kept(maximum.bps // BITS_PER_BYTE) * BITS_PER_BYTE)
    return replace(queue, dscps=dscps, maximum=maximum)
