"""The target for Enterprise SONiC over `sonic-cli`; a line takes effect at once, `write memory` keeps it.

Managed on a device: the policies, maps, class-maps and policy-maps whose names begin with `mltswitch-`; on
the plan's ports the bound scheduler policy, dscp-tc and tc-queue map, mltswitch's policy-map, and the
wred-policies of the plan's queues; static routes within the plan's prefixes. Buffers, tc-pg and flow control
maps and all else stay as they are. A push is undone by binding what was bound before it; objects of
mltswitch's that are gone by then are made anew.
"""

from collections.abc import Mapping
from typing import Final

from mltswitch.capabilities import Capabilities
from mltswitch.targets.base import Change, Guard, RunningState, SessionKind, Step
from mltswitch.targets.configuration_lock import configuration_lock
from mltswitch.targets.dell_sonic import read, sheet, state
from mltswitch.targets.dell_sonic.capabilities import HARDWARE, PLATFORM, REFUSED
from mltswitch.targets.dell_sonic.passage import check_rollback, facts_after, order_between
from mltswitch.targets.engine.target import LineTarget
from mltswitch.targets.state import SwitchState
from mltswitch.targets.target import Target

_SAVE_SECONDS: Final = 120.0
_LINES: Final = LineTarget(
    file="mltswitch.txt",
    sheet=lambda _: sheet.SHEET,
    facts_of=sheet.facts_of,
    planned_state=state.planned_state,
    running_facts=read.running_facts,
    running_state=state.running_state,
    after=facts_after,
    order=order_between,
    levelled=frozenset({sheet.CLASS, sheet.POLICY}),
    # Saving is a command of the EXEC mode: the configuration mode is left for it.
    save=(Step("end"), Step("write memory", seconds=_SAVE_SECONDS), Step("configure terminal")),
)


def _restore(
    before: Mapping[str, str], running: RunningState, wanted: SwitchState, capabilities: Capabilities
) -> Change:
    former, now = (read.running_facts(each, wanted, capabilities) for each in (before, running.answers))
    check_rollback(former, now)
    return _LINES.restore(before, running, wanted, capabilities)


TARGET = Target(
    platform=PLATFORM,
    session=SessionKind.CLI,
    dialect="dell_sonic",
    models=HARDWARE,
    refused=REFUSED,
    files=(_LINES.file,),
    port_name=sheet.PORT_NAME,
    port_examples="Eth1/1, Eth1/1/1 or Ethernet0",
    check=state.check_expressible,
    write=_LINES.write,
    read_files=_LINES.read_files,
    queries=read.queries_for,
    read=read.read_answers,
    diff=_LINES.diff,
    guard=Guard(
        configuration_lock(read.QUERY, "class-map {} match-type fields match-all", "no class-map {}"),
        compares=True,
        whole=read.QUERY,
    ),
    restore=_restore,
    no_counters="what `show queue wred-ecn counters` prints is in no public source",
    network_os="dellemc.enterprise_sonic.sonic",
    has_enable_mode=False,
    play={
        "MODULE_SAVE": "MODULE_config: {save: true}",
        "MODULE": "dellemc.enterprise_sonic.sonic",
        "SHOW": read.QUERY,
        # Unlike the others, its action plugin reads no file: the module takes the path for a command.
        # A switch refuses to bind a policy that a port has: such lines go where all are bound already.
        "SOURCE": "lookup('ansible.builtin.file', file) | regex_replace('(?m)^ *service-policy .*$', '') if "
        "before.stdout[0] | regex_findall(bound) | sort == lookup('ansible.builtin.file', file) | "
        "regex_findall(bound) | sort else lookup('ansible.builtin.file', file)",
        "ABOUT": "dellemc.enterprise_sonic 3.2.0",
    },
)
