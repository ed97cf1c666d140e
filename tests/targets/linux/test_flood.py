"""An untrusted host floods Linux switches with network control's code point; nobody else loses anything."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities
from mltswitch.targets.linux import TARGET
from tests.plan.examples import SMALL
from tests.targets.linux.conftest import GROUP
from tests.targets.linux.test_kernel import do
from tests.targets.linux.uml import Machine

pytestmark = pytest.mark.lab

PREFIX = f"flood{os.getpid()}-"
PATH = (("leaf1", "eth3"), ("spine1", "eth2"), ("leaf2", "eth1"))
"""Switches from the two senders to the receiver, and the port by which each sends."""
RECEIVER = "host3"
FAST_BPS, SLOW_BPS = 10_000_000, 1_000_000
"""Of all ports, and of the one where the queue builds up: 120 packets a second."""
ROUNDS, VICTIM_PACKETS, FLOOD_PACKETS = 50, 2, 30
"""A round is 40 ms: the victim sends 40 % of what the slow port can, the flood six times what it can."""
TRAFFIC = """
import json, socket, sys, time
from pathlib import Path
from mltswitch.netns import inside

prefix, address, rounds, victim_packets, flood_packets = *sys.argv[1:3], *map(int, sys.argv[3:])

def udp(host, tos):
    with inside(Path("/run/netns") / (prefix + host)):
        end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    return end

flooder, victim, receiver = udp("host1", 48 << 2), udp("host2", 34 << 2 | 2), udp("host3", 0)
receiver.bind((address, 9))
receiver.setblocking(False)
arrived = set()

def look():
    try:
        while True:
            arrived.add(int.from_bytes(receiver.recv(2000)[:4], "big"))
    except BlockingIOError:
        pass

sent = 0
for _ in range(rounds):
    begun = time.monotonic()
    for _ in range(victim_packets):
        sent += 1
        victim.sendto(sent.to_bytes(4, "big") + bytes(996), (address, 9))
        for _ in range(flood_packets // victim_packets):
            flooder.sendto(bytes(1000), (address, 9))
    look()
    time.sleep(max(0, begun + 0.04 - time.monotonic()))
time.sleep(1)
look()
print(json.dumps({"sent": sent, "lost": sent - len(arrived - {0}), "flooded": 0 in arrived}))
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Two leaves and a spine; nobody trusts the port of the first host."""
    tiers = {"spines": GROUP, "leaves": GROUP | {"count": 2}, "hosts_per_leaf": 2}
    document = SMALL | {
        "topology": {"leaf_spine": tiers},
        "addressing": SMALL["addressing"] | {"alias": {"spine1": "10.101.0.0/16"}},
        "ports": {"rate": "10Mbps", "buffer": "256kB", "shaped": True},
        "traffic": {"load": 0.9, "burst_packets": 1},
        "trusted_ports": [f"leaf1:eth{n}" for n in (2, 3)]
        + [f"leaf2:eth{n}" for n in (1, 2, 3)]
        + [f"spine1:eth{n}" for n in (1, 2)],
    }
    fabric = Fabric.model_validate(document)
    return build_plan(resolve_profile("resnet50"), fabric, hardware_capabilities, "paper")


@pytest.fixture(scope="module")
def network(linux: Machine, plan: Plan) -> Iterator[Machine]:
    """The plan's network; its switches route, and have no queues yet."""
    topology = plan.topology
    nodes = [each.name for each in topology.switches] + [each.name for each in topology.hosts]
    try:
        do(linux, "\n".join(["set -e", *map(NODE_UP.format, nodes), *cables(plan)]))
        yield linux
    finally:
        for node in nodes:
            linux.run(f"ip netns del {PREFIX}{node}")


NODE_UP = f"""
ip netns add {PREFIX}{{0}}
ip -n {PREFIX}{{0}} link set lo up
ip netns exec {PREFIX}{{0}} sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 \
    net.ipv4.conf.default.rp_filter=0
"""


def cables(plan: Plan) -> Iterator[str]:
    """Commands that make ports, addresses, and the hosts' routes."""
    topology = plan.topology
    ports = [(f"ip -n {PREFIX}{switch.name}", port) for switch in topology.switches for port in switch.ports]
    for own, port in ports:
        if port.peer_is_host or port.address < port.peer_address:
            peer = f"{port.peer_port} netns {PREFIX}{port.peer}"
            yield f"{own} link add {port.name} type veth peer name {peer}"
    for own, port in ports:
        yield f"{own} addr add {port.address}/30 dev {port.name}"
        yield f"{own} link set {port.name} up"
    for host in topology.hosts:
        own = f"ip -n {PREFIX}{host.name}"
        yield f"{own} addr add {host.address}/30 dev {host.interface}"
        yield f"{own} addr add {alias_of(plan, host.name)}/32 dev lo"
        yield f"{own} link set {host.interface} up"
        yield f"{own} route add default via {host.gateway}"


def alias_of(plan: Plan, name: str) -> IPv4Address:
    host = next(host for host in plan.topology.hosts if host.name == name)
    return host.alias_prefixes[0][1].network_address + host.index


def set_up(linux: Machine, plan: Plan, bottleneck: tuple[str, str]) -> None:
    """What the plan renders, with one port that is slower than the others."""
    for name, _ in PATH:
        fitted = TARGET.fit_to_hardware(plan, name)
        ports = tuple(
            replace(port, shaped_bps=SLOW_BPS if (name, port.name) == bottleneck else FAST_BPS)
            for port in fitted.state.ports
        )
        files = TARGET.render(replace(fitted.state, ports=ports), fitted.capabilities)
        for program, file in (("tc", "qdiscs.tc"), ("ip", "routes.ip")):
            do(linux, f"ip netns exec {PREFIX}{name} {program} -batch -", files[file])


def lost_in_a_flood(linux: Machine, plan: Plan) -> int:
    """How many important packets of the victim do not arrive."""
    arguments = f"{PREFIX} {alias_of(plan, RECEIVER)} {ROUNDS} {VICTIM_PACKETS} {FLOOD_PACKETS}"
    found = json.loads(do(linux, f"PYTHONPATH={Path.cwd()} {sys.executable} - {arguments}", TRAFFIC))
    assert (found["sent"], found["flooded"]) == (ROUNDS * VICTIM_PACKETS, True)
    lost: int = found["lost"]
    return lost


@pytest.mark.parametrize("switch", PATH, ids=lambda place: place[0])
def test_the_victim_loses_nothing_unless_code_points_stay(
    network: Machine, plan: Plan, switch: tuple[str, str]
) -> None:
    """The queue is that of the first, the second or the third switch; believed, the flood takes most."""
    set_up(network, plan, switch)
    assert lost_in_a_flood(network, plan) == 0
    do(network, f"tc -n {PREFIX}leaf1 qdisc del dev eth1 clsact")
    assert lost_in_a_flood(network, plan) > ROUNDS * VICTIM_PACKETS // 2
