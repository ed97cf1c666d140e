"""The target for Cumulus Linux over a shell; the user needs the right to run `nv config apply`, as `cumulus`
has.

Managed on a device: the profiles and access lists named mlt-…, which of them the plan's ports have, the
traffic classes of the plan's switch priorities, and static routes within the plan's prefixes. Buffers, PFC,
addresses and all other profiles and access lists stay as they are.
"""

import re

from mltswitch.targets.base import Release, SessionKind
from mltswitch.targets.common import NO_PORT, spectrum_hardware, without_route_ports
from mltswitch.targets.cumulus import change, files, read
from mltswitch.targets.cumulus.capabilities import HARDWARE
from mltswitch.targets.cumulus.leaves import PORT_NAME, leaves_of
from mltswitch.targets.lldp import nvue_neighbours
from mltswitch.targets.target import Target

TARGET = Target(
    platform="cumulus",
    session=SessionKind.SHELL,
    models=HARDWARE,
    files=(files.COMMANDS, files.YAML),
    port_name=PORT_NAME,
    port_examples="swp1 or swp1s0",
    route_port_name=NO_PORT,
    adapt=without_route_ports,
    check=leaves_of,
    write=files.write_files,
    read_files=files.read_files,
    queries=lambda _: read.QUERIES,
    read=read.read_answers,
    diff=change.diff,
    guard=change.GUARD,
    restore=change.restore,
    counters=read.COUNTER_SOURCE,
    settled_by_acceptance=("red-per-packet", "queue-length", "strict-order"),
    timer=change.TIMER,
    identity_queries=(read.PLATFORM, read.SYSTEM),
    identify=read.identify,
    neighbour_query="nv show interface lldp",
    neighbours=nvue_neighbours,
    hardware_of=spectrum_hardware,
    releases=(
        Release(
            "5.4 to 5.14",
            # 5.3 and earlier bind profiles and name thresholds in other words.
            re.compile(r"(?:Cumulus Linux )?5\.(?:[4-9]|1[0-4])(?!\d)"),
            "Cumulus Linux user guides 5.4 to 5.14, Quality of Service; NVUE reference",
        ),
    ),
)
