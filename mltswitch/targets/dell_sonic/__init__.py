"""Enterprise SONiC over `sonic-cli`; a line takes effect at once, `write memory` keeps it.

Ours on a device: the policies, maps, class-maps and policy-maps whose names begin with `mltswitch-`; on the
plan's ports the bound scheduler policy, dscp-tc and tc-queue map, our policy-map, and the wred-policies of
the plan's queues; static routes within the plan's prefixes. Buffers, tc-pg and flow control maps and all else
stay as they are. A push is undone by binding what was bound before it; objects of ours that are gone by then
are made anew.
"""

from mltswitch.targets.base import Guard, Session
from mltswitch.targets.configuration_lock import configuration_lock
from mltswitch.targets.dell_sonic.capabilities import HARDWARE, PLATFORM, REFUSED
from mltswitch.targets.dell_sonic.diff import change_between
from mltswitch.targets.dell_sonic.read import QUERY, queries_for, read_answers
from mltswitch.targets.dell_sonic.render import FILE, PORT_NAME, check_expressible, read_files, write_files
from mltswitch.targets.dell_sonic.restore import restore_to
from mltswitch.targets.target import Target

TARGET = Target(
    platform=PLATFORM,
    session=Session.CLI,
    dialect="dell_sonic",
    models=HARDWARE,
    refused=REFUSED,
    files=(FILE,),
    port_name=PORT_NAME,
    port_examples="Eth1/1, Eth1/1/1 or Ethernet0",
    check=check_expressible,
    write=write_files,
    read_files=read_files,
    queries=queries_for,
    read=read_answers,
    diff=change_between,
    guard=Guard(
        configuration_lock(QUERY, "class-map {} match-type fields match-all", "no class-map {}"),
        compares=True,
        whole=QUERY,
    ),
    restore=restore_to,
    no_counters="what `show queue wred-ecn counters` prints is in no public source",
    network_os="dellemc.enterprise_sonic.sonic",
    has_enable_mode=False,
    play={
        "MODULE_SAVE": "MODULE_config: {save: true}",
        "MODULE": "dellemc.enterprise_sonic.sonic",
        "SHOW": QUERY,
        # Unlike the others, its action plugin reads no file: the module takes the path for a command.
        # A switch refuses to bind a policy that a port has: such lines go where all are bound already.
        "SOURCE": "lookup('ansible.builtin.file', file) | regex_replace('(?m)^ *service-policy .*$', '') if "
        "before.stdout[0] | regex_findall(bound) | sort == lookup('ansible.builtin.file', file) | "
        "regex_findall(bound) | sort else lookup('ansible.builtin.file', file)",
        "ABOUT": "dellemc.enterprise_sonic 3.2.0",
    },
)
