"""The Enterprise SONiC target: ties its parts to the contract."""

from collections.abc import Mapping

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan
from mltswitch.targets.base import Change, Quantised, RunningState, Session
from mltswitch.targets.common import checked_render, expressible, lookup
from mltswitch.targets.dell_sonic.capabilities import HARDWARE, PLATFORM, REFUSED, TRIDENT3
from mltswitch.targets.dell_sonic.diff import change_between
from mltswitch.targets.dell_sonic.parse import parse_files
from mltswitch.targets.dell_sonic.read import QUERY, read_answers
from mltswitch.targets.dell_sonic.render import FILE, check_expressible, render_text
from mltswitch.targets.quantise import quantise
from mltswitch.targets.state import SwitchState


class DellSonicTarget:
    """Enterprise SONiC over `sonic-cli`; a line takes effect at once, `write memory` keeps it.

    Ours on a device: the policies and maps whose names begin with `mltswitch-`; on the plan's ports the bound
    scheduler policy, dscp-tc and tc-queue map, and the wred-policies of the plan's queues; static routes
    within the plan's prefixes. Buffers, tc-pg and flow control maps and all else stay as they are.
    """

    platform = PLATFORM
    session = Session.CLI
    netmiko_type = "dell_sonic"
    hardware_names = (*HARDWARE, *REFUSED)

    def hardware(self, name: str | None) -> Capabilities:
        """Capabilities of a chip; raises UserInputError where there is none, or too little is known."""
        if name is not None and name in REFUSED:
            raise UserInputError(
                f"hardware {name!r} cannot be planned for: {REFUSED[name]}",
                expected=f"one of {', '.join(HARDWARE)}",
            )
        return lookup(HARDWARE, name or TRIDENT3.hardware, self.platform)

    def quantise(self, plan: Plan, switch: str) -> Quantised:
        """The plan in whole KB and kbit/s; raises UnsupportedPlanError."""
        quantised = quantise(plan, switch, self.hardware(plan.topology.switch(switch).hardware))
        return expressible(quantised, switch, check_expressible)

    def render(self, state: SwitchState) -> dict[str, str]:
        """`mltswitch.txt`, parsed again before it leaves."""
        return checked_render({FILE: render_text(state)}, parse_files, state)

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
        """Lines in a safe order, between those that open and leave modes."""
        return change_between(running, wanted)
