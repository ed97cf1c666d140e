"""BMv2's part of the lab without starting anything."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from mltswitch.documents import load_document
from mltswitch.errors import MachineError, UserInputError
from mltswitch.lab import DeviceAddress, LabMode, kernel, mininet_bmv2, network_description
from mltswitch.lab.layout import MANAGEMENT_NAMESPACE, lay_out
from mltswitch.lab.mininet_bmv2 import (
    NetworkDescription,
    PortDescription,
    SwitchDescription,
    bmv2_command,
    finish_start,
    host_commands,
    listening_ports,
    shrink_send_buffers,
    switch_commands,
)
from mltswitch.lab.relay import connecting_user
from mltswitch.lab.state import describe
from mltswitch.plan import Fabric, resolve_fabric
from mltswitch.plan.fabric import PortRole, RolePorts
from mltswitch.targets import hardware_capabilities

FABRIC = Path(__file__).parents[2] / "inventories" / "bmv2" / "fabric.yaml"
LEAF1 = DeviceAddress("leaf1", "bmv2", "127.77.9.11", 9559, 9090)
SWITCH = SwitchDescription(
    name="leaf1",
    ports=[PortDescription(number=3, name="eth3", mac="02:4d:0a:14:00:01", rate_bps=8_000_000)],
    log_level="off",
    log_file="",
    pcap_folder="",
)


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return resolve_fabric(load_document(FABRIC, Fabric), hardware_capabilities)


@pytest.fixture(scope="module")
def network(fabric: Fabric) -> NetworkDescription:
    found: NetworkDescription = json.loads(network_description(fabric))
    return found


def test_every_cable_has_two_ends_that_exist(network: NetworkDescription) -> None:
    ends = [f"{switch['name']}:{port['name']}" for switch in network["switches"] for port in switch["ports"]]
    ends += [f"{host['name']}:{host['interface']}" for host in network["hosts"]]
    cabled = [end for link in network["links"] for end in (link["a"], link["b"])]
    assert sorted(cabled) == sorted(ends)


def test_port_numbers_are_what_the_names_end_with(network: NetworkDescription) -> None:
    leaf = next(switch for switch in network["switches"] if switch["name"] == "leaf2")
    assert [(port["number"], port["name"]) for port in leaf["ports"]] == [
        (number, f"eth{number}") for number in range(1, 5)
    ]


def test_a_hosts_neighbour_is_its_leafs_port(network: NetworkDescription) -> None:
    macs = {
        f"{switch['name']}:{port['name']}": port["mac"]
        for switch in network["switches"]
        for port in switch["ports"]
    }
    for host in network["hosts"]:
        link = next(link for link in network["links"] if link["b"] == f"{host['name']}:eth0")
        assert host["gateway_mac"] == macs[link["a"]]
        assert f"lladdr {host['gateway_mac']} nud permanent" in host_commands(host, 1500)


def test_a_role_with_its_own_rate(fabric: Fabric) -> None:
    overrides = {PortRole.SPINE_DOWN: RolePorts.model_validate({"rate": "40Mbps"})}
    ports = fabric.ports.model_copy(update={"overrides": overrides})
    found: NetworkDescription = json.loads(network_description(fabric.model_copy(update={"ports": ports})))
    rates = {switch["name"]: {port["rate_bps"] for port in switch["ports"]} for switch in found["switches"]}
    assert rates["spine1"] == {40_000_000}
    assert rates["leaf1"] == {10_000_000}


def test_the_command_serves_grpc_inside_alone_and_has_all_queues() -> None:
    command = bmv2_command(SWITCH)
    words = " ".join(command)
    assert "--grpc-server-addr 127.0.0.1:9559" in words
    assert "--priority-queues 8" in words
    assert "-i 3@eth3" in words
    assert "-L off" in words
    assert "--pcap" not in words
    assert "--log-console" not in words


def test_records_on_request() -> None:
    words = " ".join(bmv2_command({**SWITCH, "log_level": "debug", "pcap_folder": "/tmp/captures"}))  # noqa: S108
    assert "-L debug --log-console --pcap=/tmp/captures" in words


def test_a_link_never_drops_what_bmv2_sends() -> None:
    commands = switch_commands(SWITCH, 1500)
    assert "tc qdisc replace dev eth3 root tbf rate 8000000bit burst 12112 limit 1000000" in commands
    unlimited: SwitchDescription = {**SWITCH, "ports": [{**SWITCH["ports"][0], "rate_bps": 0}]}
    assert "tbf" not in switch_commands(unlimited, 1500)


def test_a_linux_fabric_is_no_network_of_bmv2(lab_fabric: Fabric) -> None:
    with pytest.raises(UserInputError, match="fabric lab: has no bmv2 switches"):
        network_description(lab_fabric)


def test_two_kinds_of_forwarding_switches(fabric: Fabric) -> None:
    shape = fabric.topology.leaf_spine
    assert shape is not None
    mixed = shape.model_copy(update={"spines": shape.spines.model_copy(update={"platform": "linux"})})
    topology = fabric.topology.model_copy(update={"leaf_spine": mixed})
    with pytest.raises(UserInputError, match="either linux switches or bmv2 switches"):
        lay_out(fabric.model_copy(update={"topology": topology}), (), with_switches=True)


def test_no_link_leads_to_management(fabric: Fabric) -> None:
    layout = lay_out(fabric, [LEAF1], with_switches=True)
    assert MANAGEMENT_NAMESPACE not in layout.namespaces
    state = describe(layout, mode=LabMode.BMV2, instance="0", missing=())
    assert {(relay.namespace, relay.target, relay.target_port, relay.port) for relay in state.relays} == {
        ("mlt-leaf1", "127.0.0.1", 9559, 9559),
        ("mlt-leaf1", "127.0.0.1", 9090, 9090),
    }
    assert not any(relay.authenticates for relay in state.relays)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("127.77.9.11", 9559, 9090), ("127.77.9.11", 9560, 9090)),
        (("127.77.9.11", 9559, 9090), ("127.77.9.11", 9090, 9091)),
    ],
)
def test_one_place_for_two_servers(
    fabric: Fabric, first: tuple[str, int, int], second: tuple[str, int, int]
) -> None:
    devices = [DeviceAddress("leaf1", "bmv2", *first), DeviceAddress("leaf2", "bmv2", *second)]
    with pytest.raises(UserInputError, match=r"leaf2: 127\.77\.9\.11 port 9090 is given to leaf1 as well"):
        lay_out(fabric, devices, with_switches=True)


def test_both_servers_of_a_switch_at_one_port(fabric: Fabric) -> None:
    with pytest.raises(UserInputError, match=r"leaf1: 127\.77\.9\.11 port 9559 is given to leaf1 as well"):
        lay_out(fabric, [DeviceAddress("leaf1", "bmv2", "127.77.9.11", 9559, 9559)], with_switches=True)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has everything."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda program, path: f"/usr/bin/{program}")
    monkeypatch.setattr(kernel, "failing_features", lambda names: ())
    monkeypatch.setattr(kernel, "has_mininet", lambda: True)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(
    ("wants_mininet", "has_mininet", "mode"),
    [
        (None, True, LabMode.BMV2_MININET),
        (True, True, LabMode.BMV2_MININET),
        (False, True, LabMode.BMV2),
        (None, False, LabMode.BMV2),
    ],
)
def test_the_engine(
    monkeypatch: pytest.MonkeyPatch, wants_mininet: bool | None, has_mininet: bool, mode: LabMode
) -> None:
    monkeypatch.setattr(kernel, "has_mininet", lambda: has_mininet)
    machine = kernel.examine_for_bmv2(wants_mininet=wants_mininet)
    assert machine.mode is mode
    assert bool(machine.missing) is (wants_mininet is None and not has_mininet)


@pytest.mark.usefixtures("as_root")
def test_a_missing_mininet_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "has_mininet", lambda: False)
    with pytest.raises(MachineError, match=r"mininet is not installed.*--engine namespaces"):
        kernel.examine_for_bmv2(wants_mininet=True)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("missing", ["simple_switch_grpc", "ethtool"])
def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, path: None if program == missing else program)
    with pytest.raises(MachineError, match=f"{missing} is not installed"):
        kernel.examine_for_bmv2(wants_mininet=None)


@pytest.mark.usefixtures("as_root")
def test_a_missing_kernel_feature_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "failing_features", lambda names: ("tbf",))
    with pytest.raises(MachineError, match="this kernel has no tbf"):
        kernel.examine_for_bmv2(wants_mininet=None)


def test_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MachineError, match="BMv2 switches need root"):
        kernel.examine_for_bmv2(wants_mininet=None)


def test_a_process_that_ended_is_named() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with pytest.raises(ChildProcessError, match="leaf1: BMv2 ended while it started"):
        finish_start(ended.pid, "leaf1")


def test_a_process_that_becomes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mininet_bmv2, "START_SECONDS", 0.1)
    with pytest.raises(TimeoutError, match="leaf1: BMv2 did not serve gRPC"):
        finish_start(os.getpid(), "leaf1")


def test_whose_connection_it_is() -> None:
    with socket.create_server(("127.77.9.99", 0)) as server:
        port = server.getsockname()[1]
        assert port in listening_ports(os.getpid())
        with socket.create_connection(server.getsockname()) as client:
            assert connecting_user(*client.getsockname()) == os.geteuid()
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as client:  # as gRPC's is
            client.connect(("::ffff:127.77.9.99", port))
            assert connecting_user("127.0.0.1", client.getsockname()[1]) == os.geteuid()
    assert connecting_user("127.77.9.99", 1) is None


@pytest.mark.root
def test_only_packet_sockets_get_small_buffers() -> None:
    if os.geteuid() != 0:
        pytest.skip("packet sockets need root")
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        before = other.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        assert shrink_send_buffers(os.getpid()) == 1
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) < 3 * 2304
        assert other.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before
