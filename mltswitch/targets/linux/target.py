"""The Linux target: ties its parts to the contract."""

import re
from collections.abc import Mapping
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.errors import UnsupportedPlanError
from mltswitch.plan import Plan
from mltswitch.targets.base import Change, Quantised, RunningState, Session
from mltswitch.targets.common import checked_render, expressible, lookup
from mltswitch.targets.linux.capabilities import HARDWARE, SOFTWARE
from mltswitch.targets.linux.diff import change_between
from mltswitch.targets.linux.parse import parse_files
from mltswitch.targets.linux.read import queries_for, read_answers
from mltswitch.targets.linux.render import check_expressible, render_files
from mltswitch.targets.quantise import quantise
from mltswitch.targets.state import SwitchState
from mltswitch.units import BITS_PER_BYTE

LEAST_BANDS: Final = 2
"""prio refuses fewer (linux net/sched/sch_prio.c, prio_tune)."""
_INTERFACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")


class LinuxTarget:
    """Linux with tc and ip, over a shell as root.

    Ours on a device: every qdisc that sends packets by the plan's ports, whoever made it, routes with our
    protocol number, and the files that systemd runs at the next start (`save`). Ingress and clsact qdiscs of
    these ports and routes of others within a prefix of the plan are reported, never removed. Where another
    init than systemd runs, nothing survives a reboot, and verify and push say so.
    """

    platform = "linux"
    session = Session.SHELL
    netmiko_type = "linux"
    hardware_names = tuple(HARDWARE)

    def hardware(self, name: str | None) -> Capabilities:
        """Capabilities of the one model; raises UserInputError for another name."""
        return lookup(HARDWARE, name or SOFTWARE.hardware, self.platform)

    def quantise(self, plan: Plan, switch: str) -> Quantised:
        """Exact but for whole percents; raises UnsupportedPlanError for what Linux has no words."""
        capabilities = self.hardware(plan.topology.switch(switch).hardware)
        quantised = quantise(plan, switch, capabilities)
        for port in quantised.state.ports:
            if not _INTERFACE.fullmatch(port.name):
                raise UnsupportedPlanError(
                    f"{port.name!r} is no name for an interface",
                    where=switch,
                    expected="at most 15 letters, digits, '.', '_' or '-'",
                )
            if port.shaped_bps is not None and port.shaped_bps % BITS_PER_BYTE:
                raise UnsupportedPlanError(
                    f"tc shapes to whole bytes per second, not to {port.shaped_bps} bit/s",
                    where=f"{switch}: ports.rate",
                    expected=f"a multiple of {BITS_PER_BYTE} bit/s",
                )
            if len(port.queues) < LEAST_BANDS:
                raise UnsupportedPlanError(
                    f"prio needs {LEAST_BANDS} bands or more", where=f"{switch}: classes"
                )
        return expressible(quantised, switch, check_expressible)

    def render(self, state: SwitchState) -> dict[str, str]:
        """`qdiscs.tc` and `routes.ip`, parsed again before they leave."""
        return checked_render(render_files(state), parse_files, state)

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
        """Batches for tc and ip."""
        return change_between(running, wanted)
