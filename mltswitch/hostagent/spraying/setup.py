"""What a host needs once, from root, before agents without privileges can use the plan's paths: as commands.

The kernel forgets all of it when the host starts again: put the lines where the host's network is configured.
"""

from collections.abc import Iterator
from typing import Final

from mltswitch.hostagent.spraying.paths import (
    DEFAULT_OPTIONS,
    Path,
    PathOptions,
    SegmentList,
    host_of,
    paths_between,
    segments_of,
)
from mltswitch.plan import Host, Plan

NOTHING: Final = ("# nothing: the host's own address does",)
RAW_FRAMES: Final = (
    "# nothing once; an agent that writes source routes sends whole Ethernet frames, and needs for that",
    "# the capability CAP_NET_RAW and no other, which root gives it as it starts, for example:",
    "# setpriv --reuid USER --init-groups --inh-caps +net_raw --ambient-caps +net_raw -- COMMAND",
)


def setup_commands(
    plan: Plan, name: str, peer: str, options: PathOptions = DEFAULT_OPTIONS
) -> tuple[str, ...]:
    """Commands for a host that exchanges tensors with this peer; lines with # explain.

    Each may be given again: what is there already stays as it is. Raises what `paths_between` raises.
    """
    host, paths = host_of(plan, name), paths_between(plan, name, peer, options)
    match plan.paths.mode:
        case "alias":
            return tuple(_aliases(host))
        case "srv6":
            return tuple(_segments(plan, host, paths))
        case "p4":
            return RAW_FRAMES
    return NOTHING


def _aliases(host: Host) -> Iterator[str]:
    """Addresses, and routes that leave by the fabric's interface with the source address of the same spine.

    The routes matter on hosts that have another interface: without them the alias of a peer goes by the
    default route, and strict reverse-path filtering (rp_filter 1) drops what comes from one.
    """
    for _, alias in host.aliases:
        yield f"ip addr replace {alias}/32 dev {host.interface}"
    for (_, prefix), (_, alias) in zip(host.alias_prefixes, host.aliases, strict=True):
        yield f"ip route replace {prefix} via {host.gateway} dev {host.interface} src {alias}"


def _segments(plan: Plan, host: Host, paths: tuple[Path, ...]) -> Iterator[str]:
    rules, name = segments_of(plan), host.interface
    # Of a host, the kernel takes a packet with a segment routing header only where both say so.
    yield "sysctl -w net.ipv6.conf.all.seg6_enabled=1"
    yield f"sysctl -w net.ipv6.conf.{name.replace('.', '/')}.seg6_enabled=1"
    for path in plan.topology.paths:
        address = rules.path_address(host, plan.topology.switch(path.top).index)
        yield f"ip -6 addr replace {address}/64 dev {name} nodad"
    port = plan.topology.switch(host.leaf).port(host.leaf_port)
    yield f"ip -6 route replace {rules.block} via {rules.port_addresses(port)[0]} dev {name}"
    for way, source in ((path.way, path.source) for path in paths):
        if isinstance(way, SegmentList) and not way.is_sticky:
            spine, destination = way.segments
            # Inline, the kernel itself puts the packet's destination behind the segments that are listed.
            inline = f"encap seg6 mode inline segs {spine} dev {name} src {source}"
            yield f"ip -6 route replace {destination}/128 {inline}"
