"""Linux with tc and ip, over a shell as root.

Ours on a device: every qdisc that sends packets by the plan's ports, whoever made it, routes with our
protocol number, and the files that systemd runs at the next start (`save`). Ingress and clsact qdiscs of
these ports and routes of others within a prefix of the plan are reported, never removed. Where another init
than systemd runs, nothing survives a reboot, and verify and push say so.
"""

from mltswitch.targets.base import Session
from mltswitch.targets.linux.capabilities import HARDWARE, PLATFORM
from mltswitch.targets.linux.change import GUARD, TIMER, change_between, restoring_change
from mltswitch.targets.linux.files import QDISC_FILE, ROUTE_FILE, read_files, write_files
from mltswitch.targets.linux.lines import PORT_NAME
from mltswitch.targets.linux.ports import check_expressible
from mltswitch.targets.linux.read import COUNTER_SOURCE, IDENTITY_QUERY, identify, queries_for, read_answers
from mltswitch.targets.linux.save import saved_files
from mltswitch.targets.lldp import lldpd_neighbours
from mltswitch.targets.target import Target

TARGET = Target(
    platform=PLATFORM,
    session=Session.SHELL,
    models=HARDWARE,
    files=(QDISC_FILE, ROUTE_FILE),
    port_name=PORT_NAME,
    port_examples="at most 15 letters, digits, '.', '_' or '-'",
    check=check_expressible,
    write=write_files,
    read_files=read_files,
    queries=queries_for,
    read=read_answers,
    diff=change_between,
    guard=GUARD,
    restore=restoring_change,
    counters=COUNTER_SOURCE,
    saved_files=saved_files,
    timer=TIMER,
    identity_queries=(IDENTITY_QUERY,),
    identify=identify,
    neighbour_query="lldpctl -f json0 2>/dev/null || true",
    neighbours=lldpd_neighbours,
)
