"""The target for community SONiC over a shell; the user needs sudo without a password, as SONiC's admin has.

Managed on a device: the objects named MLT…, the queues and maps of the plan's ports, the counters of marks
and drops, and static routes within the plan's prefixes. `config qos clear` and `config qos reload` remove
them: run those before, never after.
"""

import re

from mltswitch.targets.base import SessionKind
from mltswitch.targets.lldp import lldpd_neighbours
from mltswitch.targets.sonic import change, objects, read
from mltswitch.targets.sonic.capabilities import HARDWARE
from mltswitch.targets.target import Target

TARGET = Target(
    platform="sonic",
    session=SessionKind.SHELL,
    models=HARDWARE,
    files=(objects.FILE,),
    port_name=re.compile(r"Ethernet(0|[1-9][0-9]{0,3})"),
    route_port_name=re.compile(r"(?:Ethernet|PortChannel)(0|[1-9][0-9]{0,3})"),
    port_examples="Ethernet0, Ethernet4, …",
    check=objects.document,
    write=objects.write_files,
    read_files=objects.read_files,
    queries=lambda _: read.QUERIES,
    read=read.read_answers,
    diff=change.change_between,
    guard=change.GUARD,
    restore=change.restoring_change,
    counters=read.COUNTER_SOURCE,
    settled_by_acceptance=("strict-order",),
    takes_down=True,
    timer=change.TIMER,
    identity_queries=(read.HOSTNAME, read.SHOW_VERSION),
    identify=read.identify,
    neighbour_query="sudo docker exec lldp lldpctl -f json0 || true",
    neighbours=lldpd_neighbours,
    # lldpmgrd makes the port's alias its identifier (sonic-buildimage, dockers/docker-lldp).
    tells_port_names=False,
)
