"""Onyx over its command line; a line takes effect at once, `configuration write` keeps it.

Ours on a device: trust, DSCP map, bindings, RED/ECN and scheduling of the used traffic classes on the plan's
ports, and static routes within the plan's prefixes. Unused traffic classes, bandwidths, buffers, addresses,
PFC and `ip routing` stay as they are. One setting that is not ours changes: prefix modes are switched off for
the whole switch, and stay so (`grammar.PREAMBLE`). The way back gives the same settings the values that the
switch showed before; only prefix modes stay off, for no show command tells whether they were on.
"""

import re

from mltswitch.targets.base import Guard, Release, Session
from mltswitch.targets.common import NO_PORT, spectrum_hardware, without_route_ports
from mltswitch.targets.configuration_lock import configuration_lock
from mltswitch.targets.lldp import onyx_neighbours
from mltswitch.targets.onyx.capabilities import HARDWARE
from mltswitch.targets.onyx.diff import change_between, restoring_change
from mltswitch.targets.onyx.grammar import PORT_NAME
from mltswitch.targets.onyx.read import (
    HOSTS,
    INVENTORY,
    RUNNING_CONFIG,
    VERSION,
    identify,
    queries_for,
    read_answers,
)
from mltswitch.targets.onyx.render import FILE, read_files, write_files
from mltswitch.targets.target import Target

TARGET = Target(
    platform="onyx",
    session=Session.CLI,
    dialect="mellanox_mlnxos",
    models=HARDWARE,
    files=(FILE,),
    port_name=PORT_NAME,
    port_examples="1/1 or 1/1/1",
    route_port_name=NO_PORT,
    adapt=without_route_ports,
    write=write_files,
    read_files=read_files,
    queries=queries_for,
    read=read_answers,
    diff=change_between,
    guard=Guard(
        configuration_lock(RUNNING_CONFIG, "ipv4 access-list {}", "no ipv4 access-list {}"),
        compares=True,
        whole=RUNNING_CONFIG,
    ),
    identity_queries=(
        HOSTS,
        INVENTORY,
        VERSION,
    ),
    identify=identify,
    neighbour_query="show lldp interfaces ethernet remote | json-print",
    neighbours=onyx_neighbours,
    hardware_of=spectrum_hardware,
    releases=(
        Release(
            "3.6 to 3.10",
            re.compile(r"3\.(?:[6-9]|10)\."),
            "NVIDIA Onyx user manual 3.10 (QoS commands); Ansible collection mellanox.onyx, fixtures of 3.6; "
            "public configurations of 3.7 to 3.9",
        ),
    ),
    restore=restoring_change,
)
