"""The Onyx target: ties its parts to the contract."""

from collections.abc import Mapping

from mltswitch.capabilities import Capabilities
from mltswitch.plan import Plan
from mltswitch.targets.base import Change, Quantised, RunningState, Session
from mltswitch.targets.common import checked_render, expressible, lookup
from mltswitch.targets.onyx.capabilities import HARDWARE, SN2100
from mltswitch.targets.onyx.diff import change_between
from mltswitch.targets.onyx.parse import parse_files
from mltswitch.targets.onyx.read import queries_for, read_answers
from mltswitch.targets.onyx.render import FILE, check_expressible, render_text
from mltswitch.targets.quantise import quantise
from mltswitch.targets.state import SwitchState


class OnyxTarget:
    """Onyx over its command line; a line takes effect at once, `configuration write` keeps it.

    Ours on a device: trust, DSCP map, bindings, RED/ECN and scheduling of the used traffic classes on the
    plan's ports, and static routes within the plan's prefixes. Unused traffic classes, bandwidths, buffers,
    addresses, PFC and `ip routing` stay as they are. One setting that is not ours changes: prefix modes are
    switched off for the whole switch, and stay so (`grammar.PREAMBLE`).
    """

    platform = "onyx"
    session = Session.CLI
    netmiko_type = "mellanox_mlnxos"
    hardware_names = tuple(HARDWARE)

    def hardware(self, name: str | None) -> Capabilities:
        """Capabilities of a model; raises UserInputError for an unknown one."""
        return lookup(HARDWARE, name or SN2100.hardware, self.platform)

    def quantise(self, plan: Plan, switch: str) -> Quantised:
        """The plan in steps of 6 KB; raises UnsupportedPlanError."""
        quantised = quantise(plan, switch, self.hardware(plan.topology.switch(switch).hardware))
        return expressible(quantised, switch, check_expressible)

    def render(self, state: SwitchState) -> dict[str, str]:
        """`mltswitch.txt`, parsed again before it leaves."""
        return checked_render({FILE: render_text(state)}, parse_files, state)

    def parse(self, files: Mapping[str, str]) -> SwitchState:
        """Inverse of `render`."""
        return parse_files(files)

    def queries(self, wanted: SwitchState) -> tuple[str, ...]:
        """Commands whose answers `read` needs."""
        return queries_for(wanted)

    def read(self, answers: Mapping[str, str], wanted: SwitchState) -> RunningState:
        """State from the answers."""
        return read_answers(answers, wanted)

    def diff(self, running: RunningState, wanted: SwitchState) -> Change:
        """One-line commands in a safe order."""
        return change_between(running, wanted)
