"""The target for FASTPATH (ICOS) over its command line; a line takes effect at once, `write memory` keeps it.

Managed on a device: trust, queue of priority 0, scheduling, guarantees and RED/ECN with its averaging on the
plan's ports; the DSCP map of the whole switch (it has one, and a foreign port that trusts ip-dscp follows
it); the DiffServ policy of hosts' ports with its classes; static routes within the plan's prefixes.
Addresses, `ip routing`, PFC, other policies and all else stay as they are. A rollback gives all of it the
values that the switch showed before, and removes policies and classes that were not there.
"""

import re
from typing import Final

from mltswitch.targets.base import Guard, Release, SessionKind, Step
from mltswitch.targets.common import NO_PORT, without_route_ports
from mltswitch.targets.configuration_lock import configuration_lock
from mltswitch.targets.engine.facts import SERVICE
from mltswitch.targets.engine.target import LineTarget
from mltswitch.targets.icos import read, sheet
from mltswitch.targets.icos.capabilities import HARDWARE, PLATFORM, REFUSED
from mltswitch.targets.icos.order import ServiceOrder
from mltswitch.targets.lldp import fastpath_neighbours
from mltswitch.targets.target import Target

SAVE_SECONDS: Final = 120.0
_LINES: Final = LineTarget(
    file="mltswitch.txt",
    sheet=sheet.sheet_for,
    facts_of=sheet.facts_of,
    planned_state=sheet.planned_state,
    running_facts=read.running_facts,
    running_state=sheet.running_state,
    order=ServiceOrder,
    levelled=frozenset({SERVICE}),
    # Saving is a command of the privileged mode: the configuration mode is left for it.
    save=(Step(sheet.LEAVE), Step("write memory confirm", seconds=SAVE_SECONDS), Step("configure")),
)
TARGET = Target(
    platform=PLATFORM,
    session=SessionKind.CLI,
    dialect="broadcom_icos",
    models=HARDWARE,
    refused=REFUSED,
    files=(_LINES.file,),
    port_name=sheet.PORT_NAME,
    port_examples="0/1, 1/0/1 or te1/0/1 (unit/slot/port)",
    route_port_name=NO_PORT,
    adapt=without_route_ports,
    check=sheet.check_expressible,
    write=_LINES.write,
    read_files=_LINES.read_files,
    queries=read.queries_for,
    read=read.read_answers,
    diff=_LINES.diff,
    guard=Guard(
        configuration_lock(read.RUNNING_CONFIG, "class-map match-all {}", "no class-map {}"),
        compares=True,
        whole=read.RUNNING_CONFIG,
    ),
    identity_queries=(
        read.HOSTS,
        read.VERSION,
    ),
    identify=read.identify,
    neighbour_query="show lldp remote-device all",
    neighbours=fastpath_neighbours,
    hardware_of=read.hardware_of,
    no_counters="its switches count drops by colour for a whole port, and no CE marks",
    settled_by_acceptance=("red-per-packet", "queue-length", "strict-order"),
    play={
        "MODULE_SAVE": 'MODULE_command: {commands: ["write memory confirm"]}',
        "MODULE": "dellemc.os6.os6",
        "SHOW": read.RUNNING_CONFIG,
        "SOURCE": "file",
        "ABOUT": "dellemc.os6 1.0.7, made for another FASTPATH system: no collection names ICOS, and nobody "
        "tried this one there",
    },
    releases=(
        Release(
            "6.x",
            re.compile(r"6\.\d"),
            "Dell EMC Networking N-Series User's Configuration Guide and command reference, DNOS 6",
        ),
    ),
    restore=_LINES.restore,
)
