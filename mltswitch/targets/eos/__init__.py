"""EOS over its command line: one config session with a commit timer, confirmed after it was read back.

Ours on a device: the DSCP map of the whole switch, and how traffic classes 0 to 6 that the plan uses map to
queues; trust, RED/ECN with its counter, priority, guarantee and rate of the used queues on the plan's ports;
CoS and DSCP of ports that are not trusted; the policy maps of these and of hosts' ports with all that they
name; static routes within the plan's prefixes. QoS profiles, the CoS map, buffers, queue 7, PFC, addresses
and `ip routing` stay as they are. A push goes back by aborting its commit while that waits, else by the lines
that ran before, in a session of their own.
"""

import re

from mltswitch.targets.base import Release, Session
from mltswitch.targets.eos.capabilities import HARDWARE, REFUSED
from mltswitch.targets.eos.counters import COUNTER_SOURCE
from mltswitch.targets.eos.diff import GUARD, TIMER, change_between
from mltswitch.targets.eos.grammar import PORT_NAME
from mltswitch.targets.eos.read import HOSTNAME, VERSION, hardware_of, identify, queries_for, read_answers
from mltswitch.targets.eos.render import FILE, check_expressible, read_files, write_files
from mltswitch.targets.eos.restore import restore_to
from mltswitch.targets.lldp import eos_neighbours
from mltswitch.targets.target import Target

TARGET = Target(
    platform="eos",
    session=Session.CLI,
    dialect="arista_eos",
    models=HARDWARE,
    refused=REFUSED,
    files=(FILE,),
    port_name=PORT_NAME,
    port_examples="Ethernet1 or Ethernet1/1",
    check=check_expressible,
    write=write_files,
    read_files=read_files,
    queries=queries_for,
    read=read_answers,
    diff=change_between,
    guard=GUARD,
    restore=restore_to,
    timer=TIMER,
    identity_queries=(HOSTNAME, VERSION),
    identify=identify,
    neighbour_query="show lldp neighbors | json",
    neighbours=eos_neighbours,
    hardware_of=hardware_of,
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
