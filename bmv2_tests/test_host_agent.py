"""Host agents in spray mode `p4`: their tensors cross two switches by the source routes that they write."""

import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np
import pytest

from bmv2_tests.namespace import Namespace
from bmv2_tests.switch import Bmv2
from mltswitch.hostagent import Agent, AgentConfig, PeerRefusedError
from mltswitch.p4.program import Program
from mltswitch.wire import ETHERTYPE_SOURCE_ROUTE

pytestmark = [pytest.mark.bmv2, pytest.mark.quiet]

MTU_BYTES: Final = 1500
DSCP, CONTROL_DSCP = 34, 40
QUEUE, CONTROL_QUEUE = 5, 7
THRESHOLD_BYTES: Final = 3_000
BETWEEN: Final = (2, 3)
"""Ports of either switch that lead to the other one; hosts are behind port 1."""
HOSTS: Final = {"left": "10.50.0.1", "right": "10.50.0.2"}
PATIENCE_SECONDS: Final = 60.0
RATE: Final = "20Mbps"
_CHECKSUMS_BY_DEVICE: Final = 0x17
"""linux/ethtool.h, ETHTOOL_STXCSUM."""
_SIOCETHTOOL: Final = 0x8946
_numbers = count()


def hardware_address(host: str) -> str:
    return f"02:4d:0a:32:00:{int(HOSTS[host].rsplit('.', 1)[1]):02x}"


@dataclass
class Road:
    """Host `left`, switch `left`, two cables, switch `right`, host `right`."""

    hosts: Mapping[str, Namespace]
    switches: Mapping[str, Bmv2]

    def agent(self, name: str, routes: Mapping[str, tuple[tuple[int, ...], ...]]) -> Agent:
        peer = next(host for host in HOSTS if host != name)
        fields = {
            "name": name,
            "listen": f"{HOSTS[name]}:0",
            "plaintext": True,
            "line_rate": RATE,
            "classes": {"control_dscp": CONTROL_DSCP, "gradient_dscp": [DSCP]},
            "spraying": {
                "mode": "p4",
                "interface": "data0",
                "gateway": hardware_address(peer),
                "routes": routes,
            },
        }
        with self.hosts[name].entered():  # its threads stay there
            return Agent(AgentConfig.model_validate(fields))


@pytest.fixture(scope="module")
def running_road() -> Iterator[Road]:
    prefix = f"bmv2-agent-{os.getpid()}-{next(_numbers)}"
    with ExitStack() as stack:
        fabric = stack.enter_context(Namespace(f"{prefix}-fabric"))
        hosts = {name: stack.enter_context(Namespace(f"{prefix}-{name}")) for name in HOSTS}
        for port in BETWEEN:
            fabric.cable(f"left{port}", f"right{port}")
        switches = {}
        for number, name in enumerate(HOSTS):
            connect(fabric, hosts[name], name)
            interfaces = {port: f"{name}{port}" for port in (1, *BETWEEN)}
            switches[name] = stack.enter_context(Bmv2(fabric, interfaces, {}, 9090 + number))
        yield Road(hosts, switches)
        for switch in switches.values():
            assert switch.is_alive, switch.log()


@pytest.fixture
def road(running_road: Road, program: Program) -> Road:
    for name, switch in running_road.switches.items():
        switch.load(program, lines(name))
    return running_road


def connect(fabric: Namespace, host: Namespace, name: str) -> None:
    """A host behind port 1."""
    fabric.cable(f"{name}1", "data0")
    fabric.run("ip", "link", "set", "data0", "netns", host.name)
    with host.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        # What the kernel leaves to the device is never done where a switch reads frames as they are.
        value = array("I", (_CHECKSUMS_BY_DEVICE, 0))
        fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP", b"data0", value.buffer_info()[0]))
    host.run("ip", "link", "set", "data0", "address", hardware_address(name), "up")
    host.run("ip", "address", "add", f"{HOSTS[name]}/24", "dev", "data0")
    for peer in HOSTS:
        if peer != name:
            neighbour = ("lladdr", hardware_address(peer), "dev", "data0")
            host.run("ip", "neigh", "add", HOSTS[peer], *neighbour)


def own_address(name: str, port: int) -> str:
    """MAC address of a switch's port; to that of port 1 its host sends whatever is for the other host."""
    far = next(host for host in HOSTS if host != name)
    return hardware_address(far) if port == 1 else f"02:4d:ff:00:{port:02x}:{list(HOSTS).index(name):02x}"


def lines(name: str) -> list[str]:
    """Of one switch: all ports trusted, a threshold for data, a way for the control channel."""
    far = next(host for host in HOSTS if host != name)
    found = [f"table_add ipv4_routes forward {HOSTS[name]}/32 => 1"]
    found.append(f"table_add ipv4_routes forward {HOSTS[far]}/32 => {BETWEEN[0]}")
    for port in (1, *BETWEEN):
        own = own_address(name, port)
        behind = hardware_address(name) if port == 1 else own_address(far, port)
        found += [
            f"table_add ports trust {port} {own} =>",
            f"table_add classes set_queue {port} {own} {DSCP} => {QUEUE}",
            f"table_add classes set_queue {port} {own} {CONTROL_DSCP} => {CONTROL_QUEUE}",
            f"table_add neighbours set_neighbour {port} => {own} {behind}",
            f"table_add queues set_limit {port} {CONTROL_QUEUE} => 500000 0 1514",
            f"table_add queues set_threshold_and_limit {port} {QUEUE} => {THRESHOLD_BYTES} 500000 0 1514",
        ]
    return found


def test_a_tensor_crosses_both_paths_and_comes_without_its_routes(road: Road) -> None:
    routes = tuple((port, 1) for port in BETWEEN)
    original = np.random.default_rng(3).standard_normal(150_000).astype(np.float32)
    buffer = np.zeros_like(original)
    with ExitStack() as stack:
        with road.hosts["right"].entered():
            left_over = stack.enter_context(
                socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE_SOURCE_ROUTE))
            )
        ends = {
            name: stack.enter_context(road.agent(name, {peer: routes}))
            for name, peer in (("left", "right"), ("right", "left"))
        }
        ends["left"].connect("right", ends["right"].listening_at, timeout_seconds=PATIENCE_SECONDS)
        ends["right"].wait_for_peers(["left"], PATIENCE_SECONDS)
        # Slower than what comes: the queue of the last port passes S, and the switch marks.
        road.switches["right"].cli.run("set_queue_rate 1000 1")
        before = {port: road.switches["left"].counts(port, QUEUE)["arrived"] for port in BETWEEN}
        there = ends["right"].post_receive("left", buffer, tensor=1)
        here = ends["left"].post_send("right", original, tensor=1, importance="all", burst_packets=1)
        received = there.wait(PATIENCE_SECONDS)
        here.wait(PATIENCE_SECONDS)
        assert (buffer == original).all()
        assert received.statistics.packets_marked
        sent = [path.sent_packets for path in ends["left"].snapshot().peers["right"]["default"].paths]
        arrived = [road.switches["left"].counts(port, QUEUE)["arrived"] - before[port] for port in BETWEEN]
        assert sum(arrived) >= received.statistics.packets
        assert abs(arrived[0] - arrived[1]) <= 0.03 * sum(arrived)
        for there_packets, here_packets in zip(arrived, sent, strict=True):
            assert abs(there_packets - here_packets) <= 0.05 * here_packets  # probes have another class
        left_over.setblocking(False)
        with pytest.raises(BlockingIOError):
            left_over.recv(2048)
        # 4 bytes of header and 2 for each of two switches, of what IPv4 and UDP leave.
        assert ends["left"].config.datagram_bytes == MTU_BYTES - 28 - 8
        # Asked before the ends close: what arrives later draws ICMP, which no queue here is for.
        assert {name: switch.refused() for name, switch in road.switches.items()} == {"left": {}, "right": {}}


def test_who_has_no_route_is_refused(road: Road) -> None:
    with (
        road.agent("right", {"left": ((2, 1),)}) as right,
        road.agent("left", {"other": ((2, 1),)}) as left,
        pytest.raises(PeerRefusedError, match="no source route leads to it"),
    ):
        left.connect("right", right.listening_at, timeout_seconds=PATIENCE_SECONDS)
