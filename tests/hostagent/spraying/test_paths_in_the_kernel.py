"""Linux follows the paths as printed: every packet crosses the spine that it names, out and home."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.spraying import Spraying
from mltswitch.hostagent.spraying.paths import Path, SegmentList, paths_between, segments_of, setup_commands
from mltswitch.plan import Plan, PortRole, Switch
from tests.hostagent.spraying.test_paths import plan_with

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare"),
]
PACKETS = (5, 3)
"""Of each path."""
PAYLOAD_BYTES = 1200
"""So much that headers and the chatter of neighbours do not reach another packet's."""

SEND = """
import socket, sys
source, destination, packets, header = sys.argv[1], sys.argv[2], int(sys.argv[3]), bytes.fromhex(sys.argv[4])
family = socket.AF_INET6 if ":" in source else socket.AF_INET
sender = socket.socket(family, socket.SOCK_DGRAM)
if header:
    sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RTHDR, header)
sender.bind((source, 0))
sender.settimeout(5)
for _ in range(packets):
    sender.sendto(bytes(1200), (destination, 18515))
    assert sender.recv(2000) == bytes(1200)
"""
ECHO = """
import socket, sys
sockets = []
for address in sys.argv[1:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    receiver = socket.socket(family, socket.SOCK_DGRAM)
    receiver.bind((address, 18515))
    sockets.append(receiver)
print("ready", flush=True)
import select
while True:
    for receiver in select.select(sockets, [], [])[0]:
        data, peer = receiver.recvfrom(2000)
        receiver.sendto(data, peer)
"""


def network(plan: Plan) -> Iterator[str]:
    """The fabric as namespaces: cables, addresses, and the plan's routes."""
    topology = plan.topology
    yield "mkdir -p /run/netns && mount -t tmpfs none /run/netns"
    for name in (*topology.by_name, *(host.name for host in topology.hosts)):
        yield f"ip netns add {name} && ip -n {name} link set lo up"
        # Duplicate address detection would hold addresses back for a second.
        yield f"ip netns exec {name} sysctl -qw net.ipv6.conf.default.accept_dad=0"
    for switch in topology.switches:
        name = switch.name
        yield f"ip netns exec {name} sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"
        for port in switch.ports:
            if port.role is not PortRole.SPINE_DOWN:
                far = f"name {port.peer_port} netns {port.peer}"
                yield f"ip -n {name} link add {port.name} type veth peer {far}"
    for host in topology.hosts:
        yield f"ip -n {host.name} link set {host.interface} up"
        yield f"ip -n {host.name} addr add {host.address}/30 dev {host.interface}"
    for switch in topology.switches:
        yield from addresses(plan, switch)
    for switch in topology.switches:
        yield from routes(plan, switch)


def addresses(plan: Plan, switch: Switch) -> Iterator[str]:
    for port in switch.ports:
        yield f"ip -n {switch.name} link set {port.name} up"
        yield f"ip -n {switch.name} addr add {port.address}/30 dev {port.name}"
        if plan.paths.mode == "srv6":
            address, _ = segments_of(plan).port_addresses(port)
            yield f"ip -n {switch.name} -6 addr add {address}/64 dev {port.name} nodad"


def routes(plan: Plan, switch: Switch) -> Iterator[str]:
    add = f"ip -n {switch.name} route add"
    for route in plan.topology.routes(switch.name):
        yield (
            f"{add} blackhole {route.prefix}"
            if route.discards
            else f"{add} {route.prefix} via {route.next_hop}"
        )
    if plan.paths.mode == "srv6":
        rules = segments_of(plan)
        for segment_route in rules.routes(switch, plan.topology.tier_index):
            yield f"{add} {segment_route.prefix} via {segment_route.next_hop}"
        locator = rules.own_locator(switch)
        if locator is not None:
            end = f"encap seg6local action End dev {switch.ports[0].name}"
            yield f"{add} {locator.network_address}/128 {end}"


@pytest.mark.parametrize("mode", ["alias", "srv6", "srv6 sticky"])
def test_every_packet_crosses_its_spine_and_so_does_the_answer(mode: str) -> None:
    plan = plan_with(mode.removesuffix(" sticky"), spines=2)
    is_sticky = mode.endswith("sticky")
    if plan.fabric.addressing.segments is not None and not has_segment_routing():
        pytest.skip("the kernel has no SRv6")
    # What comes back is inserted by a route in either case: a socket that answers everybody has no header.
    setup = [
        *(f"ip netns exec host1 {command}" for command in commands(plan, "host1", is_sticky=is_sticky)),
        *(f"ip netns exec host3 {command}" for command in commands(plan, "host3", is_sticky=False)),
    ]
    paths = paths_between(plan, "host1", "host3", Spraying(sticky=is_sticky))
    spines = [plan.topology.switch(path.name) for path in paths]
    counters = [
        f"ip netns exec {spine.name} cat /sys/class/net/{port.name}/statistics/rx_bytes"
        for spine in spines
        for port in spine.ports
        if port.peer in {"leaf1", "leaf2"}
    ]
    destinations = " ".join(str(path.destination) for path in paths)
    script = [
        *network(plan),
        *setup,
        *setup,  # each command may be given again
        f"ip netns exec host3 {sys.executable} -c '{ECHO}' {destinations} >/run/netns/ready &",
        "until grep -q ready /run/netns/ready; do sleep 0.05; done",
        *(send(path, 1) for path in paths),  # neighbours find each other
        *counters,
        *(send(path, packets) for path, packets in zip(paths, PACKETS, strict=True)),
        *counters,
        "kill $!",
    ]
    done = subprocess.run(
        ["unshare", "-n", "-m", "sh", "-eu", "-c", "\n".join(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    numbers = [int(line) for line in done.stdout.splitlines() if line.isdigit()]
    before, after = numbers[: len(counters)], numbers[len(counters) :]
    crossed = [(late - early) // PAYLOAD_BYTES for early, late in zip(before, after, strict=True)]
    assert crossed == [packets for packets in PACKETS for _ in ("there", "back")]


def commands(plan: Plan, host: str, *, is_sticky: bool) -> tuple[str, ...]:
    peer = {"host1": "host3", "host3": "host1"}[host]
    return setup_commands(plan, host, peer, Spraying(sticky=is_sticky))


def send(path: Path, packets: int) -> str:
    header = b""
    if isinstance(path.way, SegmentList) and path.way.is_sticky:
        spraying = Spraying(mode="srv6", sticky=True, segments=(path.way.segments[:-1],))
        header = AgentConfig(addresses=(str(path.source),), spraying=spraying).segment_header(0)
    arguments = f"{path.source} {path.destination} {packets} '{header.hex()}'"
    return f"ip netns exec host1 {sys.executable} -c '{SEND}' {arguments}"


def has_segment_routing() -> bool:
    script = (
        "ip link add eth0 type veth peer name leaf && ip link set eth0 up && "
        "ip -6 route add fd00::/64 encap seg6 mode inline segs fd01:: dev eth0"
    )
    return (
        subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, check=False).returncode
        == 0
    )
