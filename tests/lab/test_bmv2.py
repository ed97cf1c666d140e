"""BMv2's part of the lab without starting anything."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mltswitch.errors import MachineError, UserInputError
from mltswitch.lab import (
    DeviceAddress,
    Engine,
    Lab,
    LabMode,
    bmv2_node,
    kernel,
    lab_bottleneck,
    mininet_bmv2,
    network_description,
)
from mltswitch.lab.bmv2_node import (
    HostDescription,
    InputError,
    NetworkDescription,
    PortDescription,
    SwitchDescription,
    bmv2_command,
    end_switch,
    finish_start,
    host_commands,
    read_network,
    shrink_send_buffers,
    switch_commands,
    takes_notifications,
)
from mltswitch.lab.layout import MANAGEMENT_NAMESPACE, lay_out
from mltswitch.lab.mininet_bmv2 import NetworkTopo, main
from mltswitch.lab.relay import relays_of
from mltswitch.plan import Fabric
from mltswitch.plan.fabric import RolePorts
from mltswitch.plan.topology_document import PortRole
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities
from tests.lab.conftest import BMV2_FABRIC, resolved
from tests.plan.examples import SMALL

LEAF1 = DeviceAddress("leaf1", "bmv2", "127.77.9.11", 9559, 9090)
SWITCH = SwitchDescription(
    name="leaf1",
    ports=[PortDescription(number=3, name="eth3", mac="02:4d:0a:14:00:01", rate_bps=8_000_000)],
    log_level="off",
    log_file="",
    pcap_folder="",
    notifications_file="/nowhere/leaf1.ipc",
)
NOBODY = 65534


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return resolved(BMV2_FABRIC)


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


def test_the_command_serves_grpc_inside_alone_and_records_on_request() -> None:
    words = " ".join(bmv2_command(SWITCH))
    for told in ("--grpc-server-addr 127.0.0.1:9559", "--priority-queues 8", "-i 3@eth3", "-L off"):
        assert told in words
    if takes_notifications():
        assert "--notifications-addr ipc:///nowhere/leaf1.ipc --thrift-port" in words
    assert "--pcap" not in words
    assert "--log-console" not in words
    words = " ".join(bmv2_command({**SWITCH, "log_level": "debug", "pcap_folder": "/tmp/captures"}))  # noqa: S108  (a word)
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
    relays = [*relays_of(layout)]
    assert {(relay.namespace, relay.target, relay.target_port, relay.port) for relay in relays} == {
        ("mlt-leaf1", "127.0.0.1", 9559, 9559),
        ("mlt-leaf1", "127.0.0.1", 9090, 9090),
    }
    assert not any(relay.authenticates for relay in relays)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ({"leaf1": (9559, 9090), "leaf2": (9560, 9090)}, "leaf2: 127.77.9.11 port 9090 is given to leaf1"),
        ({"leaf1": (9559, 9090), "leaf2": (9090, 9091)}, "leaf2: 127.77.9.11 port 9090 is given to leaf1"),
        ({"leaf1": (9559, 9559)}, "leaf1: 127.77.9.11 port 9559 is given to leaf1"),
    ],
)
def test_one_place_for_two_servers(fabric: Fabric, places: dict[str, tuple[int, int]], said: str) -> None:
    devices = [DeviceAddress(name, "bmv2", "127.77.9.11", *ports) for name, ports in places.items()]
    with pytest.raises(UserInputError, match=f"{re.escape(said)} as well"):
        lay_out(fabric, devices, with_switches=True)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has everything."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda program, path: f"/usr/bin/{program}")
    monkeypatch.setattr(kernel, "failing_features", lambda names: ())
    monkeypatch.setattr(kernel, "has_mininet", lambda: True)


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(
    ("engine", "has_mininet", "mode"),
    [
        (Engine.AUTO, True, LabMode.BMV2_MININET),
        (Engine.MININET, True, LabMode.BMV2_MININET),
        (Engine.NAMESPACES, True, LabMode.BMV2),
        (Engine.AUTO, False, LabMode.BMV2),
    ],
)
def test_the_engine(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, has_mininet: bool, mode: LabMode
) -> None:
    monkeypatch.setattr(kernel, "has_mininet", lambda: has_mininet)
    machine = kernel.examine_for_bmv2(engine)
    assert machine.mode is mode
    assert bool(machine.missing) is not has_mininet


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("simple_switch_grpc", "simple_switch_grpc is not installed"),
        ("ethtool", "ethtool is not installed"),
        ("tbf", "this kernel has no tbf"),
        ("mininet", r"mininet is not installed.*--engine namespaces"),
        ("root", "BMv2 switches need root"),
    ],
)
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, missing: str, said: str) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, path: None if program == missing else program)
    monkeypatch.setattr(kernel, "failing_features", lambda names: ("tbf",) if missing == "tbf" else ())
    monkeypatch.setattr(kernel, "has_mininet", lambda: missing != "mininet")
    monkeypatch.setattr(os, "geteuid", lambda: 1000 if missing == "root" else 0)
    with pytest.raises(MachineError, match=said):
        kernel.examine_for_bmv2(Engine.MININET)


def test_a_process_that_ended_is_named() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    with pytest.raises(ChildProcessError, match="leaf1: BMv2 ended while it started"):
        finish_start(ended.pid, "leaf1")


def test_a_process_that_becomes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bmv2_node, "START_SECONDS", 0.1)
    with pytest.raises(TimeoutError, match="leaf1: BMv2 did not serve gRPC"):
        finish_start(os.getpid(), "leaf1")


@pytest.mark.parametrize(
    ("then", "ended_by"), [("trap '' TERM; ", signal.SIGKILL), ("", signal.SIGTERM)], ids=["deaf", "obedient"]
)
def test_a_switch_is_told_to_end_and_killed_when_it_does_not(
    monkeypatch: pytest.MonkeyPatch, then: str, ended_by: signal.Signals
) -> None:
    monkeypatch.setattr(bmv2_node, "END_SECONDS", 0.05 if then else 60.0)
    command = ["sh", "-c", f"{then}echo ready; exec sleep 30"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        end_switch(process)
    assert process.returncode == -ended_by


def test_no_value_is_read_by_the_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every value tries to run a command; the programs that are called do nothing."""
    monkeypatch.setattr(bmv2_node, "QUIET_COMMANDS", ":")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("ip", "tc", "ethtool"):
        (programs / name).symlink_to("/bin/true")

    def evil(field: str) -> Any:  # also for what is a number by its type
        return f"x;: >{field} $(: >{field}) `: >{field}`"

    port = PortDescription(number=1, name=evil("name"), mac="", rate_bps=evil("rate"))
    host = HostDescription(
        name="",
        interface=evil("interface"),
        mac="",
        addresses=[evil("address"), evil("alias")],
        gateway=evil("gateway"),
        gateway_mac=evil("mac"),
    )
    for commands in (switch_commands({**SWITCH, "ports": [port]}, 1500), host_commands(host, 1500)):
        done = subprocess.run(
            ["/bin/sh", "-euc", commands],
            check=False,
            cwd=tmp_path,
            env={"PATH": str(programs)},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["programs"]


def test_the_networks_own_file_is_taken(fabric: Fabric, network: NetworkDescription, tmp_path: Path) -> None:
    file = tmp_path / "network.json"
    file.write_text(network_description(fabric), encoding="utf-8")
    assert read_network(str(file)) == network


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("mtu_bytes",), "1500; reboot", "mtu_bytes: '1500; reboot' is no whole number from 68 to 65535"),
        (("mtu_bytes",), True, "mtu_bytes: True is no whole number"),
        (("switches",), {}, "switches: is no list"),
        (("switches", 0, "name"), "../x", "switches[0].name: '../x' is no name"),
        (("switches", 0, "name"), "leaf1\n", "switches[0].name: 'leaf1\\n' is no name"),
        (("switches", 1, "name"), "spine1", "switches[1].name: 'spine1' is there twice"),
        (
            ("switches", 0, "log_level"),
            "loud",
            "switches[0].log_level: 'loud' is no log level of trace, debug",
        ),
        (("switches", 0, "log_file"), 3, "switches[0].log_file: 3 is no text"),
        (("switches", 0, "ports", 1, "name"), "-all", "switches[0].ports[1].name: '-all' is no name"),
        (("switches", 0, "ports", 1, "name"), "e" * 16, "is no name that a node or an interface can have"),
        (("switches", 0, "ports", 1, "mac"), "02:4d", "switches[0].ports[1].mac: '02:4d' is no MAC address"),
        (("switches", 0, "ports", 1, "rate_bps"), -1, "switches[0].ports[1].rate_bps: -1 is no whole number"),
        (("hosts", 2, "name"), "leaf1", "hosts[2].name: 'leaf1' is there twice"),
        (("hosts", 0, "interface"), "$(id)", "hosts[0].interface: '$(id)' is no name"),
        (("hosts", 0, "addresses"), [], "hosts[0].addresses: is empty"),
        (("hosts", 0, "addresses", 0), "10.0.0.1/33", "hosts[0].addresses[0]: '10.0.0.1/33' is no IPv4 add"),
        (("hosts", 0, "addresses", 0), 5, "hosts[0].addresses[0]: 5 is no IPv4 address"),
        (("hosts", 0, "gateway"), "10.0.0.1/24", "hosts[0].gateway: '10.0.0.1/24' is no IPv4 address"),
        (("hosts", 0, "gateway_mac"), "", "hosts[0].gateway_mac: '' is no MAC address"),
        (("links", 0, "a"), "leaf1:nowhere", "links[0].a: 'leaf1:nowhere' is no port that is described"),
    ],
)
def test_a_network_that_cannot_be(
    network: NetworkDescription,
    tmp_path: Path,
    place: tuple[str | int, ...],
    value: object,
    said: str,
) -> None:
    changed = json.loads(json.dumps(network))
    parent: Any = changed
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    file = tmp_path / "network.json"
    file.write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(InputError) as failure:
        NetworkTopo.__new__(NetworkTopo).build(str(file))
    assert str(failure.value).startswith(f"{file}: ")
    assert said in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[]", "mtu_bytes: is missing"),
        ('{"mtu_bytes": 1500, "switches": [7]}', r"switches\[0\]\.name: is missing"),
    ],
)
def test_no_network_at_all(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "network.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_network(str(tmp_path / "network.json"))


def test_the_error_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mininet_bmv2, "setLogLevel", lambda _: None, raising=False)
    monkeypatch.setattr(mininet_bmv2, "Mininet", type("Mininet", (), {}), raising=False)
    monkeypatch.setattr(mininet_bmv2, "NetworkTopo", read_network)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main([str(tmp_path / "none.json")]) == 2
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err == f"error: {tmp_path / 'none.json'}: No such file or directory\n"


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


@pytest.mark.root
def test_what_is_closed_meanwhile_or_no_socket_is_passed_over() -> None:
    """As the connection is closed by which the start looks whether BMv2 serves."""
    if os.geteuid() != 0:
        pytest.skip("other processes' sockets need root")
    one, other = os.pipe()  # and the folder of descriptors itself, which is closed when it was read
    before = len([*Path("/proc/self/fd").iterdir()])
    assert shrink_send_buffers(os.getpid()) == 0
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    os.close(one)
    os.close(other)


HELP = "BMv2 Switch\n  --device-id arg\n  --thrift-port arg\n"


@pytest.mark.parametrize(
    ("told", "takes"),
    [
        (f"{HELP}  --notifications-addr arg\n", True),
        (HELP, False),
        ("error while loading shared libraries", True),  # it is not to be started anyway
    ],
)
def test_a_bmv2_without_nanomsg_is_started_without_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, takes: bool
) -> None:
    program = tmp_path / "simple_switch_grpc"
    program.write_text(f"#!/bin/sh\necho '{told}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    takes_notifications.cache_clear()
    assert ("--notifications-addr" in bmv2_command(SWITCH)) is takes
    takes_notifications.cache_clear()


def test_a_probe_sends_from_ports_that_the_plan_trusts() -> None:
    """Hosts 1 and 2 of the receiver's leaf, of which the plan trusts the second; and the other leaf's."""
    fabric = SMALL | {
        "topology": {"leaf_spine": SMALL["topology"]["leaf_spine"] | {"hosts_per_leaf": 3}},
        "trusted_ports": ["leaf1:eth1", "leaf1:eth2", "leaf2:eth2"],
    }
    plan = build_plan(
        resolve_profile("resnet50"), Fabric.model_validate(fabric), hardware_capabilities, "paper"
    )
    hosts = [SimpleNamespace(name=host.name, namespace=host.name) for host in plan.topology.hosts]
    lab = SimpleNamespace(
        status=lambda: SimpleNamespace(fabric="small", hosts=hosts),
        host_namespace=lambda name: SimpleNamespace(command=lambda words: ("netns", name, *words)),
    )
    found = lab_bottleneck(cast("Lab", lab), plan, None)
    by_name = {host.name: f"{host.leaf}:{host.leaf_port}" for host in plan.topology.hosts}
    assert [by_name[host.name] for host in found.senders] == ["leaf1:eth1", "leaf1:eth2", "leaf2:eth2"]
    assert by_name[found.near_sender.name] == "leaf2:eth2"
    alone = Fabric.model_validate(fabric | {"trusted_ports": ["leaf1:eth1"]})
    distrustful = build_plan(resolve_profile("resnet50"), alone, hardware_capabilities, "paper")
    with pytest.raises(UserInputError, match="on leaf2 behind a port that the plan trusts"):
        lab_bottleneck(cast("Lab", lab), distrustful, None)
