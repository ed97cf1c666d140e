"""The ICOS target: ties its parts to the contract."""

from collections.abc import Mapping

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan
from mltswitch.targets.base import Change, Quantised, RunningState, Session
from mltswitch.targets.common import checked_render, expressible
from mltswitch.targets.icos.capabilities import MODELS, N4000, PLATFORM, capabilities_of
from mltswitch.targets.icos.diff import change_between
from mltswitch.targets.icos.parse import parse_files
from mltswitch.targets.icos.read import queries_for, read_answers
from mltswitch.targets.icos.render import FILE, check_expressible, render_text
from mltswitch.targets.quantise import quantise
from mltswitch.targets.state import SwitchState


class IcosTarget:
    """FASTPATH over its command line; a line takes effect at once, `write memory` keeps it.

    Ours on a device: trust, queue of priority 0, scheduling, guarantees and RED/ECN with its averaging on the
    plan's ports; the DSCP map of the whole switch (it has one, and a foreign port that trusts ip-dscp follows
    it); the DiffServ policy of hosts' ports with its classes; static routes within the plan's prefixes.
    Addresses, `ip routing`, PFC, other policies and all else stay as they are.
    """

    platform = PLATFORM
    session = Session.CLI
    netmiko_type = "broadcom_icos"
    hardware_names = tuple(MODELS)

    def hardware(self, name: str | None) -> Capabilities:
        """Capabilities of a model; raises UserInputError for one that is unknown or not documented."""
        model = MODELS.get(name or N4000.name)
        if model is None:
            raise UserInputError(
                f"unknown hardware {name!r} for platform {self.platform}",
                expected=f"one of {', '.join(MODELS)}",
            )
        return capabilities_of(model)

    def quantise(self, plan: Plan, switch: str) -> Quantised:
        """The plan in whole percents; raises UnsupportedPlanError."""
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
        """Lines in a safe order, between `interface` and `exit` where they belong to a port."""
        return change_between(running, wanted)
