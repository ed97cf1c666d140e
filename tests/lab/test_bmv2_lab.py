"""The lab of BMv2 switches, as root, by both engines: servers, links, records, and nothing left of it."""

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.lab import (
    DeviceKind,
    Engine,
    Lab,
    LabMode,
    NamespaceHandle,
    Records,
)
from mltswitch.lab.bmv2_node import GRPC_PORT, THRIFT_PORT
from mltswitch.lab.lab import answers
from mltswitch.lab.namespaces import our_namespaces
from mltswitch.plan import Fabric
from tests.lab.conftest import BMV2_DEVICES, SharedLab, on, quiet

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.bmv2]

SWITCHES = [device.name for device in BMV2_DEVICES]
MODES = {Engine.NAMESPACES: LabMode.BMV2, Engine.MININET: LabMode.BMV2_MININET}
NOBODY = 65534
GATEWAY_OF_HOST1 = "10.10.0.5"


@pytest.fixture
def running(bmv2_lab: SharedLab) -> SharedLab:
    """Up; what a test changes it changes back."""
    return bmv2_lab.up()


def test_status(running: SharedLab) -> None:
    status = running.lab.status()
    assert status.mode is MODES[running.engine]
    assert [device.name for device in status.devices if not device.answers] == []
    assert {device.kind for device in status.devices} == {DeviceKind.REAL}
    assert [host.namespace for host in status.hosts] == [f"mlt-host{number}" for number in range(1, 5)]


def test_a_switch_that_ended_does_not_answer(running: SharedLab) -> None:
    os.kill(_process_of("leaf2"), signal.SIGKILL)
    answering = {device.name: device.answers for device in running.lab.status().devices}
    running.down()
    assert answering == dict.fromkeys(SWITCHES, True) | {"leaf2": False}


def _process_of(switch: str) -> int:
    done = on(switch, "ss", "-Htlnp", f"sport = {GRPC_PORT}")
    found = re.search(r"pid=(\d+)", done.stdout)
    assert found, done.stdout + done.stderr
    return int(found[1])


@pytest.mark.parametrize("port", [GRPC_PORT, THRIFT_PORT])
def test_the_servers_are_inside_the_namespace_alone(running: SharedLab, port: int) -> None:
    for switch in SWITCHES:
        assert on(switch, "ss", "-Htln", f"sport = {port}").stdout.strip()
        addresses = json.loads(on(switch, "ip", "-j", "addr", "show").stdout)
        with_address = {link["ifname"] for link in addresses if link["addr_info"]}
        assert with_address == {"lo"}


@pytest.mark.parametrize("port", [GRPC_PORT, THRIFT_PORT])
def test_no_host_reaches_a_server(running: SharedLab, port: int) -> None:
    """Neither by the address that a Linux switch would have, nor by the loopback's on the data port."""
    probe = f"import socket; socket.create_connection(('{GATEWAY_OF_HOST1}', {port}), timeout=1)"
    assert "TimeoutError" in on("host1", sys.executable, "-c", probe).stderr
    mac = json.loads(on("leaf1", "ip", "-j", "link", "show", "eth1").stdout)[0]["address"]
    with NamespaceHandle("mlt-host1").entered():
        channel = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    with channel:
        channel.bind(("eth0", 0x0800))
        channel.send(_connection_request(mac, port))
        assert not _answers_from("127.0.0.1", channel)


def _answers_from(address: str, channel: socket.socket) -> list[bytes]:
    """Frames of this source within half a second; our own frame does not come back to its socket."""
    channel.settimeout(0.5)
    frames = []
    with suppress(TimeoutError):
        while True:
            frames.append(channel.recv(2048))
    return [frame for frame in frames if frame[26:30] == socket.inet_aton(address)]


def _connection_request(mac: str, port: int) -> bytes:
    """A TCP SYN to 127.0.0.1, with correct checksums: were it not for its address, Linux would answer."""
    source, target = socket.inet_aton("10.10.0.6"), socket.inet_aton("127.0.0.1")
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 1, 0, 64, 6, 0, source, target)
    ip = ip[:10] + _checksum(ip) + ip[12:]
    tcp = struct.pack("!HHIIBBHHH", 40000, port, 1, 0, 0x50, 2, 65535, 0, 0)
    tcp = tcp[:16] + _checksum(source + target + struct.pack("!BBH", 0, 6, 20) + tcp) + tcp[18:]
    return b"".join([bytes.fromhex(mac.replace(":", "") + "024d0a0a00060800"), ip, tcp])


def _checksum(data: bytes) -> bytes:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")


@pytest.mark.parametrize("port", [GRPC_PORT, THRIFT_PORT])
def test_another_user_of_this_machine_is_refused(running: SharedLab, port: int) -> None:

    def read(seconds: int) -> list[str]:
        code = "import socket; c = socket.create_connection(('127.77.9.11', PORT), timeout=60); "
        code += "c.settimeout(SECONDS); print(c.recv(1))"
        return ["/usr/bin/python3", "-c", code.replace("PORT", str(port)).replace("SECONDS", str(seconds))]

    as_nobody = subprocess.run(
        read(60), check=False, capture_output=True, text=True, user=NOBODY, group=NOBODY
    )
    assert as_nobody.stdout == "b''\n" or "ConnectionResetError" in as_nobody.stderr
    command = read(60 if port == GRPC_PORT else 1)
    as_root = subprocess.run(command, check=False, capture_output=True, text=True)
    if port == GRPC_PORT:
        assert as_root.stdout not in ("", "b''\n")  # the server's first frame
    else:
        assert "TimeoutError" in as_root.stderr  # it waits for a call


def test_each_switch_has_a_place_for_notifications_where_nobody_else_comes(running: SharedLab) -> None:
    work = running.lab.paths.work
    assert work.stat().st_mode & 0o077 == 0
    for switch in SWITCHES:
        arguments = Path(f"/proc/{_process_of(switch)}/cmdline").read_text(encoding="utf-8").split("\0")
        address = arguments[arguments.index("--notifications-addr") + 1]
        assert address == f"ipc://{work / switch}.ipc"


def test_links_have_the_fabrics_rate_and_keep_bmv2_waiting(running: SharedLab) -> None:
    for switch in SWITCHES:
        qdiscs = json.loads(on(switch, "tc", "-j", "qdisc", "show").stdout)
        shaped = {entry["dev"]: entry["options"]["rate"] for entry in qdiscs if entry["kind"] == "tbf"}
        cabled = 2 if switch.startswith("spine") else 4
        assert shaped == dict.fromkeys((f"eth{n}" for n in range(1, cabled + 1)), 10_000_000 // 8)
        buffers = re.findall(r"tb(\d+)", on(switch, "ss", "-0Hm").stdout)
        assert len(buffers) == cabled
        assert max(map(int, buffers)) < 4 * 2304  # the kernel's figure for one full frame


def test_hosts_know_their_gateway_for_good(running: SharedLab) -> None:
    known = json.loads(on("host3", "ip", "-j", "neigh", "show").stdout)
    assert [(entry["dst"], entry["state"]) for entry in known] == [("10.10.1.5", ["PERMANENT"])]
    link = json.loads(on("leaf2", "ip", "-j", "link", "show", "eth1").stdout)[0]
    assert known[0]["lladdr"] == link["address"] == "02:4d:0a:0a:01:05"


@pytest.mark.parametrize(
    "feature", ["tx-checksumming", "tcp-segmentation-offload", "generic-receive-offload"]
)
def test_no_offload_merges_packets_before_a_queue(running: SharedLab, feature: str) -> None:
    for namespace, interface in (("host1", "eth0"), ("leaf1", "eth1"), ("leaf1", "eth3")):
        features = on(namespace, "ethtool", "-k", interface).stdout
        assert re.search(rf"^{feature}: off", features, re.MULTILINE), (namespace, interface, features)


def test_logs_and_captures_stay_on_request(bmv2_lab: SharedLab) -> None:
    bmv2_lab.down()
    bmv2_lab.up(Records(keep_logs=True, pcap=True))
    logs = bmv2_lab.lab.paths.logs
    captures = {"eth1_in.pcap", "eth1_out.pcap", "eth2_in.pcap", "eth2_out.pcap"}
    said: list[str] = []
    bmv2_lab.lab.down(said.append)
    assert any(str(logs) in line for line in said)
    assert our_namespaces() == ()
    assert {file.name for file in (logs / "spine1").iterdir()} == captures
    assert (logs / "leaf1.log").stat().st_size > 0
    bmv2_lab.up()
    bmv2_lab.down()
    assert not bmv2_lab.lab.paths.root.exists()


def test_an_address_where_something_else_listens_is_named(bmv2_lab: SharedLab) -> None:
    bmv2_lab.down()
    with socket.create_server(("127.77.9.12", 9090)), pytest.raises(MltswitchError) as failure:
        bmv2_lab.up()
    assert "127.77.9.12 port 9090" in str(failure.value)
    assert our_namespaces() == ()
    shutil.rmtree(bmv2_lab.lab.paths.logs, ignore_errors=True)


def test_linux_labs_take_no_engine_and_no_captures(lab_fabric: Fabric, tmp_path: Path) -> None:
    lab = Lab(tmp_path / "state")
    with pytest.raises(UserInputError, match="--engine: is for BMv2 switches"):
        lab.up(lab_fabric, (), progress=quiet, engine=Engine.MININET)
    with pytest.raises(UserInputError, match="--pcap: is for BMv2 switches"):
        lab.up(lab_fabric, (), progress=quiet, records=Records(pcap=True))


def test_who_answers() -> None:
    """A server of neither kind is no switch."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1]))\n"
        script += "for _ in range(2): c, _ = s.accept(); c.sendall(b'hello, who are you?'); c.close()"
        argv = [sys.executable, "-c", script, str(server.fileno())]
        process = subprocess.Popen(argv, pass_fds=[server.fileno()])
        assert not answers("linux", "127.0.0.1", port)
        assert not answers("bmv2", "127.0.0.1", port)
        process.wait(60)
    assert not answers("bmv2", "127.0.0.1", port)
