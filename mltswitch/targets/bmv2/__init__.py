"""simple_switch_grpc with our program, over P4Runtime; an entry takes effect at once, nothing is saved.

Ours on a device: the program; queues, meters, trust and neighbours of the plan's ports; routes within its
prefixes; `spraying`; every DSCP map and group that no other entry refers to. The switch has no routing but
what these tables say, so a state also holds the routes that other switches learn by themselves.
"""

from mltswitch.targets.base import Guard, Session, Step
from mltswitch.targets.bmv2.adapt import as_programmed
from mltswitch.targets.bmv2.capabilities import HARDWARE, PLATFORM
from mltswitch.targets.bmv2.contents import contents_of
from mltswitch.targets.bmv2.diff import change_between, restoring_change
from mltswitch.targets.bmv2.ports import STATE_NAME
from mltswitch.targets.bmv2.read import COUNTER_SOURCE, queries_for, read_answers
from mltswitch.targets.bmv2.render import FILE, read_files, write_files
from mltswitch.targets.p4runtime import BECOME_PRIMARY
from mltswitch.targets.target import Target

TARGET = Target(
    platform=PLATFORM,
    session=Session.P4RUNTIME,
    models=HARDWARE,
    files=(FILE,),
    port_name=STATE_NAME,
    port_examples="eth3",
    adapt=as_programmed,
    check=contents_of,
    write=write_files,
    read_files=read_files,
    queries=queries_for,
    read=read_answers,
    diff=change_between,
    guard=Guard(enter=(Step(BECOME_PRIMARY),), compares=True),
    restore=restoring_change,
    counters=COUNTER_SOURCE,
)
