"""The target for Onyx over its command line; a line takes effect at once, `configuration write` keeps it.

Managed on a device: trust, DSCP map, bindings, RED/ECN and scheduling of the used traffic classes on the
plan's ports, and static routes within the plan's prefixes. Unused traffic classes, bandwidths, buffers,
addresses, PFC and `ip routing` stay as they are. One other setting changes: prefix modes are switched off for
the whole switch, and stay so (`sheet.PREAMBLE`). A rollback gives the same settings the values that the
switch showed before; only prefix modes stay off, for no show command tells whether they were on.
"""

import re
from typing import Final

from mltswitch.targets.base import Guard, Release, SessionKind, Step
from mltswitch.targets.common import NO_PORT, spectrum_hardware, without_route_ports
from mltswitch.targets.configuration_lock import configuration_lock
from mltswitch.targets.engine.target import LineTarget
from mltswitch.targets.lldp import onyx_neighbours
from mltswitch.targets.onyx import read, sheet
from mltswitch.targets.onyx.capabilities import HARDWARE
from mltswitch.targets.onyx.counters import COUNTER_SOURCE
from mltswitch.targets.onyx.order import ServiceOrder
from mltswitch.targets.target import Target

_LINES: Final = LineTarget(
    file="mltswitch.txt",
    sheet=lambda _: sheet.SHEET,
    facts_of=sheet.facts_of,
    planned_state=sheet.planned_state,
    running_facts=read.running_facts,
    running_state=sheet.running_state,
    order=ServiceOrder,
    first=(sheet.PREAMBLE,),
    save=(Step("configuration write"),),
)
TARGET = Target(
    platform="onyx",
    session=SessionKind.CLI,
    dialect="mellanox_mlnxos",
    models=HARDWARE,
    files=(_LINES.file,),
    port_name=sheet.PORT_NAME,
    port_examples="1/1 or 1/1/1",
    route_port_name=NO_PORT,
    adapt=without_route_ports,
    write=_LINES.write,
    read_files=_LINES.read_files,
    queries=read.queries_for,
    read=read.read_answers,
    diff=_LINES.diff,
    guard=Guard(
        configuration_lock(read.RUNNING_CONFIG, "ipv4 access-list {}", "no ipv4 access-list {}"),
        compares=True,
        whole=read.RUNNING_CONFIG,
    ),
    identity_queries=(
        read.HOSTS,
        read.INVENTORY,
        read.VERSION,
    ),
    identify=read.identify,
    neighbour_query="show lldp interfaces ethernet remote | json-print",
    neighbours=onyx_neighbours,
    hardware_of=spectrum_hardware,
    counters=COUNTER_SOURCE,
    settled_by_acceptance=("red-per-packet", "queue-length", "strict-order"),
    network_os="mellanox.onyx.onyx",
    play={
        "MODULE_SAVE": "MODULE_config: {save: true}",
        "MODULE": "mellanox.onyx.onyx",
        "SHOW": read.RUNNING_CONFIG,
        "SOURCE": "file",
        "ABOUT": "mellanox.onyx 1.0.0",
    },
    releases=(
        Release(
            "3.6 to 3.10",
            re.compile(r"3\.(?:[6-9]|10)\."),
            "NVIDIA Onyx user manual 3.10 (QoS commands); Ansible collection mellanox.onyx, fixtures of 3.6; "
            "public configurations of 3.7 to 3.9",
        ),
    ),
    restore=_LINES.restore,
)
