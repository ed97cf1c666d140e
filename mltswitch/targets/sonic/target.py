"""The SONiC target: ties its parts to the contract."""

import re
from collections.abc import Mapping
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UnsupportedPlanError
from mltswitch.plan import Plan
from mltswitch.targets.base import Change, Quantised, RunningState, Session
from mltswitch.targets.common import checked_render, lookup
from mltswitch.targets.quantise import quantise
from mltswitch.targets.sonic.capabilities import HARDWARE, SN2700
from mltswitch.targets.sonic.database import dump
from mltswitch.targets.sonic.diff import change_between
from mltswitch.targets.sonic.document import document
from mltswitch.targets.sonic.parse import FILE, parse_files
from mltswitch.targets.sonic.read import QUERY, read_answers
from mltswitch.targets.state import RouteState, SegmentRouteState, SwitchState

_PORT: Final = re.compile(r"Ethernet(0|[1-9][0-9]{0,3})")


class SonicTarget:
    """Community SONiC over a shell; the user needs sudo without a password, as SONiC's admin has.

    Ours on a device: the objects named MLT…, the queues and maps of the plan's ports, the counters of marks
    and drops, and static routes within the plan's prefixes. `config qos clear` and `config qos reload`
    remove them: run those before, never after.
    """

    platform = "sonic"
    session = Session.SHELL
    netmiko_type = "linux"
    hardware_names = tuple(HARDWARE)

    def hardware(self, name: str | None) -> Capabilities:
        """Capabilities of a model; raises UserInputError for an unknown one."""
        return lookup(HARDWARE, name or SN2700.capabilities.hardware, self.platform)

    def quantise(self, plan: Plan, switch: str) -> Quantised:
        """The plan in the chip's steps and powers of two; raises UnsupportedPlanError."""
        quantised = quantise(plan, switch, self.hardware(plan.topology.switch(switch).hardware))
        _check_ports(quantised.state, f"{switch}: ")
        return quantised

    def render(self, state: SwitchState) -> dict[str, str]:
        """`mltswitch.json`, a document for `config load`, parsed again before it leaves."""
        _check_ports(state)
        return checked_render({FILE: dump(document(state))}, parse_files, state)

    def parse(self, files: Mapping[str, str]) -> SwitchState:
        """Inverse of `render`."""
        return parse_files(files)

    def queries(self, wanted: SwitchState) -> tuple[str, ...]:
        """The one command whose answer `read` needs."""
        del wanted
        return (QUERY,)

    def read(self, answers: Mapping[str, str], wanted: SwitchState) -> RunningState:
        """State from the answer."""
        return read_answers(answers, wanted)

    def diff(self, running: RunningState, wanted: SwitchState) -> Change:
        """Checkpoints and patches."""
        return change_between(running, wanted)


def _check_ports(state: SwitchState, where: str = "") -> None:
    routes: list[RouteState | SegmentRouteState] = list(state.routes)
    if state.segment_routing is not None:
        routes += state.segment_routing.routes
    names = {route.port for route in routes}
    unknown = {name for name in names if not _PORT.fullmatch(name)}
    for route in routes if unknown else ():
        if route.port in unknown:
            raise UnsupportedPlanError(
                f"{route.port[:60]!r} is no name for a port", where=f"{where}route {route.prefix}"
            )
    for port in state.ports:
        if not _PORT.fullmatch(port.name):
            raise UnsupportedPlanError(
                "is no name for a port", where=f"{where}port {port.name}", expected="Ethernet0, Ethernet4, …"
            )
        if port.shaped_bps is not None:
            raise UnsupportedPlanError(
                f"SONiC ports have the rate of their link, they are not shaped to {port.shaped_bps} bit/s",
                where=f"{where}port {port.name}",
            )
