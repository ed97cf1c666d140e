"""The EOS target: ties its parts to the contract."""

from collections.abc import Mapping
from dataclasses import replace

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan
from mltswitch.targets.base import Change, Quantised, RunningState, Session
from mltswitch.targets.common import checked_render, expressible, lookup
from mltswitch.targets.eos.capabilities import (
    HARDWARE,
    REFUSED,
    SHARED_QUEUE,
    SHARED_QUEUE_CHIPS,
    TRIDENT3,
)
from mltswitch.targets.eos.diff import change_between
from mltswitch.targets.eos.parse import parse_files
from mltswitch.targets.eos.read import queries_for, read_answers
from mltswitch.targets.eos.render import FILE, check_expressible, render_text
from mltswitch.targets.eos.state import switch_state
from mltswitch.targets.quantise import quantise
from mltswitch.targets.state import SwitchState


class EosTarget:
    """EOS over its command line: one config session with a commit timer, confirmed after it was read back.

    Ours on a device: the DSCP map of the whole switch, and how traffic classes 0 to 6 that the plan uses map
    to queues; trust, RED/ECN with its counter, priority, guarantee and rate of the used queues on the plan's
    ports; CoS and DSCP of ports that are not trusted; the policy map of hosts' ports with all that it names;
    static routes within the plan's prefixes. QoS profiles, the CoS map, buffers, queue 7, PFC, addresses and
    `ip routing` stay as they are.
    """

    platform = "eos"
    session = Session.CLI
    netmiko_type = "arista_eos"
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
        """The plan in whole buffer cells; raises UnsupportedPlanError."""
        capabilities = self.hardware(plan.topology.switch(switch).hardware)
        quantised = quantise(plan, switch, capabilities)
        if capabilities.hardware in SHARED_QUEUE_CHIPS:
            state = quantised.state
            shared = switch_state(SHARED_QUEUE, state.ports, state.routes, state.hardware)
            quantised = replace(quantised, state=shared)
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
        """A config session in a safe order."""
        return change_between(running, wanted)
