"""The target for EOS over its command line: one config session with a commit timer, confirmed after it was
read back.

Managed on a device: the DSCP map of the whole switch, and how traffic classes 0 to 6 that the plan uses map
to queues; trust, RED/ECN with its counter, priority, guarantee and rate of the used queues on the plan's
ports; CoS and DSCP of ports that are not trusted; the policy maps of these and of hosts' ports with all that
they name; static routes within the plan's prefixes. QoS profiles, the CoS map, buffers, queue 7, PFC,
addresses and `ip routing` stay as they are. A push is undone by aborting its commit while that waits, else by
the lines that ran before, in a session of their own.
"""

import re
from typing import Final

from mltswitch.targets.base import Guard, Release, SessionKind
from mltswitch.targets.eos import mapping, read, sessions, sheet
from mltswitch.targets.eos.capabilities import HARDWARE, REFUSED
from mltswitch.targets.eos.counters import COUNTER_SOURCE
from mltswitch.targets.lldp import eos_neighbours
from mltswitch.targets.target import Target

_LINES: Final = sessions.SessionTarget(
    file="mltswitch.txt",
    sheet=sheet.sheet_for,
    facts_of=mapping.facts_of,
    planned_state=mapping.planned_state,
    running_facts=read.running_facts,
    running_state=mapping.running_state,
    goal=mapping.goal,
    order=sheet.SessionOrder,
)
TARGET = Target(
    platform="eos",
    session=SessionKind.CLI,
    dialect="arista_eos",
    models=HARDWARE,
    refused=REFUSED,
    files=(_LINES.file,),
    port_name=sheet.PORT_NAME,
    port_examples="Ethernet1 or Ethernet1/1",
    check=mapping.check_expressible,
    write=_LINES.write,
    read_files=_LINES.read_files,
    queries=read.queries_for,
    read=read.read_answers,
    diff=_LINES.diff,
    guard=Guard(sessions.LOCK, compares=True, whole=read.RUNNING_CONFIG),
    restore=_LINES.restore,
    timer=sessions.TIMER,
    identity_queries=(read.HOSTNAME, read.VERSION),
    identify=read.identify,
    neighbour_query="show lldp neighbors | json",
    neighbours=eos_neighbours,
    hardware_of=read.hardware_of,
    counters=COUNTER_SOURCE,
    settled_by_acceptance=("red-per-packet",),
    network_os="arista.eos.eos",
    releases=(
        Release(
            "4.21 to 4.35",
            re.compile(r"4\.(?:2[1-9]|3[0-5])\D"),
            "aristanetworks/avd, whose tested configurations have the lines, asks for 4.21.8M or later; "
            "napalm's driver eos for config sessions with a commit timer",
        ),
    ),
)
