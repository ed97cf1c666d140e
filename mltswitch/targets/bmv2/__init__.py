"""The target for BMv2's simple_switch_grpc with mltswitch's P4 program, over P4Runtime; an entry takes effect
at once, nothing is saved.

Managed on a device: the program; queues, meters, trust and neighbours of the plan's ports; routes within its
prefixes; `spraying`; every DSCP map and group that no other entry refers to. The switch has no routing but
what these tables say, so a state also holds the routes that other switches learn by themselves.
"""

from mltswitch.targets.base import Guard, SessionKind, Step
from mltswitch.targets.bmv2 import change, mapping, read
from mltswitch.targets.bmv2.adapt import as_programmed
from mltswitch.targets.bmv2.capabilities import HARDWARE, PLATFORM
from mltswitch.targets.bmv2.ports import STATE_NAME
from mltswitch.targets.p4runtime import BECOME_PRIMARY
from mltswitch.targets.target import Target

TARGET = Target(
    platform=PLATFORM,
    session=SessionKind.P4RUNTIME,
    models=HARDWARE,
    files=(mapping.FILE,),
    port_name=STATE_NAME,
    port_examples="eth3",
    adapt=as_programmed,
    check=mapping.facts_of,
    write=mapping.write_files,
    read_files=mapping.read_files,
    queries=lambda _: read.QUERIES,
    read=read.read_answers,
    diff=change.diff,
    guard=Guard(enter=(Step(BECOME_PRIMARY),), compares=True),
    restore=change.restore,
    counters=read.COUNTER_SOURCE,
)
