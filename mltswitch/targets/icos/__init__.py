"""FASTPATH over its command line; a line takes effect at once, `write memory` keeps it.

Ours on a device: trust, queue of priority 0, scheduling, guarantees and RED/ECN with its averaging on the
plan's ports; the DSCP map of the whole switch (it has one, and a foreign port that trusts ip-dscp follows
it); the DiffServ policy of hosts' ports with its classes; static routes within the plan's prefixes.
Addresses, `ip routing`, PFC, other policies and all else stay as they are. The way back gives all of it the
values that the switch showed before, and takes away policies and classes that were not there.
"""

import re

from mltswitch.targets.base import Guard, Release, Session
from mltswitch.targets.common import NO_PORT, without_route_ports
from mltswitch.targets.configuration_lock import configuration_lock
from mltswitch.targets.icos.capabilities import HARDWARE, PLATFORM, REFUSED
from mltswitch.targets.icos.diff import change_between
from mltswitch.targets.icos.grammar import PORT_NAME
from mltswitch.targets.icos.read import (
    HOSTS,
    RUNNING_CONFIG,
    VERSION,
    hardware_of,
    identify,
    queries_for,
    read_answers,
)
from mltswitch.targets.icos.render import FILE, check_expressible, read_files, write_files
from mltswitch.targets.icos.restore import restoring_change
from mltswitch.targets.lldp import fastpath_neighbours
from mltswitch.targets.target import Target

TARGET = Target(
    platform=PLATFORM,
    session=Session.CLI,
    dialect="broadcom_icos",
    models=HARDWARE,
    refused=REFUSED,
    files=(FILE,),
    port_name=PORT_NAME,
    port_examples="0/1, 1/0/1 or te1/0/1 (unit/slot/port)",
    route_port_name=NO_PORT,
    adapt=without_route_ports,
    check=check_expressible,
    write=write_files,
    read_files=read_files,
    queries=queries_for,
    read=read_answers,
    diff=change_between,
    guard=Guard(
        configuration_lock(RUNNING_CONFIG, "class-map match-all {}", "no class-map {}"),
        compares=True,
        whole=RUNNING_CONFIG,
    ),
    identity_queries=(
        HOSTS,
        VERSION,
    ),
    identify=identify,
    neighbour_query="show lldp remote-device all",
    neighbours=fastpath_neighbours,
    hardware_of=hardware_of,
    no_counters="its switches count drops by colour for a whole port, and no CE marks",
    settled_by_acceptance=("red-per-packet", "queue-length", "strict-order"),
    network_os="dellemc.os6.os6",
    play={
        "MODULE_SAVE": 'MODULE_command: {commands: ["write memory confirm"]}',
        "MODULE": "dellemc.os6.os6",
        "SHOW": RUNNING_CONFIG,
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
    restore=restoring_change,
)
