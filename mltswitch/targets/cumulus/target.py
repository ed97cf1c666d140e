"""The Cumulus target: ties its parts to the contract."""

from collections.abc import Mapping

from mltswitch.capabilities import Capabilities
from mltswitch.plan import Plan
from mltswitch.targets.base import Change, Quantised, RunningState, Session
from mltswitch.targets.common import checked_render, expressible, lookup
from mltswitch.targets.cumulus.capabilities import HARDWARE, SN2700
from mltswitch.targets.cumulus.diff import change_between
from mltswitch.targets.cumulus.parse import parse_files
from mltswitch.targets.cumulus.read import QUERIES, read_answers
from mltswitch.targets.cumulus.render import COMMANDS, YAML, check_expressible, render_commands, render_yaml
from mltswitch.targets.quantise import quantise
from mltswitch.targets.state import SwitchState


class CumulusTarget:
    """Cumulus Linux over a shell; the user needs the right to run `nv config apply`, as `cumulus` has.

    Ours on a device: the profiles named mlt…, which of them the plan's ports have, the traffic classes of the
    plan's switch priorities, and static routes within the plan's prefixes. Buffers, PFC, addresses and all
    other profiles stay as they are.
    """

    platform = "cumulus"
    session = Session.SHELL
    netmiko_type = "cumulus_linux"
    hardware_names = tuple(HARDWARE)

    def hardware(self, name: str | None) -> Capabilities:
        """Capabilities of a model; raises UserInputError for an unknown one."""
        return lookup(HARDWARE, name or SN2700.hardware, self.platform)

    def quantise(self, plan: Plan, switch: str) -> Quantised:
        """The plan in steps of 64 cells; raises UnsupportedPlanError."""
        quantised = quantise(plan, switch, self.hardware(plan.topology.switch(switch).hardware))
        return expressible(quantised, switch, check_expressible)

    def render(self, state: SwitchState) -> dict[str, str]:
        """`mltswitch.txt` and `mltswitch.yaml`, parsed again before they leave."""
        check_expressible(state)
        files = {COMMANDS: render_commands(state), YAML: render_yaml(state)}
        return checked_render(files, parse_files, state)

    def parse(self, files: Mapping[str, str]) -> SwitchState:
        """Inverse of `render`."""
        return parse_files(files)

    def queries(self, wanted: SwitchState) -> tuple[str, ...]:
        """The applied configuration, and what is pending."""
        del wanted
        return QUERIES

    def read(self, answers: Mapping[str, str], wanted: SwitchState) -> RunningState:
        """State from the answers."""
        return read_answers(answers, wanted)

    def diff(self, running: RunningState, wanted: SwitchState) -> Change:
        """Commands for one revision."""
        return change_between(running, wanted)
