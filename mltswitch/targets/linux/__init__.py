"""The target for Linux with tc and ip, over a shell as root.

Managed on a device: every qdisc that sends packets by the plan's ports, whoever made it, routes with
mltswitch's protocol number, and the files that systemd runs at the next start (`save`). Ingress and clsact
qdiscs of these ports and routes of others within a prefix of the plan are reported, never removed. Where
another init than systemd runs, nothing survives a reboot, and verify and push say so.
"""

from mltswitch.targets.base import SessionKind
from mltswitch.targets.linux import capabilities, change, files, lines, ports, read, save
from mltswitch.targets.lldp import lldpd_neighbours
from mltswitch.targets.target import Target

TARGET = Target(
    platform=capabilities.PLATFORM,
    session=SessionKind.SHELL,
    models=capabilities.HARDWARE,
    files=(files.QDISC_FILE, files.ROUTE_FILE),
    port_name=lines.PORT_NAME,
    port_examples="at most 15 letters, digits, '.', '_' or '-'",
    check=ports.check_expressible,
    write=files.write_files,
    read_files=files.read_files,
    queries=read.queries_for,
    read=read.read_answers,
    diff=change.change_between,
    guard=change.GUARD,
    restore=change.restoring_change,
    counters=read.COUNTER_SOURCE,
    saved_files=save.saved_files,
    timer=change.TIMER,
    identity_queries=(read.IDENTITY_QUERY,),
    identify=read.identify,
    neighbour_query="lldpctl -f json0 2>/dev/null || true",
    neighbours=lldpd_neighbours,
)
