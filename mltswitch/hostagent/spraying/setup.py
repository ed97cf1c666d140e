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

    Each may be given again: what is there already stays as it is.

    Raises:
        UserInputError: no such host.
        UnsupportedPlanError: as `paths_between` does.
    """
    host = host_of(plan, name)
    paths = paths_between(plan, name, peer, options)
    match plan.paths.mode:
        case "alias":
            return tuple(_aliases(host))
        case "srv6":
            return (*_segment_addresses(plan, host), *_segment_routes(host, paths))
        case "p4":
            return RAW_FRAMES
        case _:
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


def _segment_addresses(plan: Plan, host: Host) -> Iterator[str]:
    rules = segments_of(plan)
    name = host.interface
    # Of a host, the kernel takes a packet with a segment routing header only where both say so.
    yield "sysctl -w net.ipv6.conf.all.seg6_enabled=1"
    yield f"sysctl -w net.ipv6.conf.{name.replace('.', '/')}.seg6_enabled=1"
    for path in plan.topology.paths:
        address = rules.path_address(host, plan.topology.switch(path.top).index)
        yield f"ip -6 addr replace {address}/64 dev {name} nodad"
    port = plan.topology.switch(host.leaf).port(host.leaf_port)
    yield f"ip -6 route replace {rules.block} via {rules.port_addresses(port)[0]} dev {name}"


def _segment_routes(host: Host, paths: tuple[Path, ...]) -> Iterator[str]:
    for path in paths:
        if isinstance(path.way, SegmentList) and not path.way.is_sticky:
            spine, destination = path.way.segments
            # Inline, the kernel itself puts the packet's destination behind the segments that are listed.
            yield (
                f"ip -6 route replace {destination}/128 encap seg6 mode inline segs {spine} "
                f"dev {host.interface} src {path.source}"
            )
