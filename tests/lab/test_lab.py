"""The real lab, as root: SSH, packets, queues, and nothing left of it afterwards."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from mltswitch.errors import UserInputError
from mltswitch.lab import DeviceKind, LabMode
from mltswitch.lab.layout import Layout
from tests.lab.conftest import DEVICES, SharedLab

pytestmark = [pytest.mark.lab, pytest.mark.root]

LINUX = [device.name for device in DEVICES if device.platform == "linux"]
QUEUES = """\
tc qdisc replace dev eth1 root handle 1: tbf rate 50mbit burst 6200 limit 6200
tc qdisc replace dev eth1 parent 1:1 handle 10: prio bands 8 priomap 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7
tc qdisc replace dev eth1 parent 10:1 handle 101: red limit 60000 min 20000 max 20000 avpkt 1000 \
burst 20 bandwidth 50mbit probability 1 ecn
tc filter replace dev eth1 parent 10: protocol ip prio 1 handle 1 flower ip_tos 0x88/0xfc classid 10:1
tc -j qdisc show dev eth1
tc qdisc delete dev eth1 root
"""


def test_status(running_lab: SharedLab, lab_mode: LabMode) -> None:
    status = running_lab.lab.status()
    assert status.mode is lab_mode
    assert [device.name for device in status.devices if not device.answers] == []
    assert status.all_answer
    kinds = {device.name: device.kind for device in status.devices}
    assert kinds == dict.fromkeys(LINUX, DeviceKind.REAL) | dict.fromkeys(
        ("onyx1", "sonic1"), DeviceKind.EMULATED
    )


@pytest.mark.parametrize("device", LINUX)
def test_login_lands_in_the_switch(running_lab: SharedLab, layout: Layout, device: str) -> None:
    done = running_lab.ssh(device, "hostname; ip -j link show")
    assert done.returncode == 0, done.stderr
    name, _, links = done.stdout.partition("\n")
    assert name == device
    up = {link["ifname"] for link in json.loads(links) if "UP" in link["flags"]}
    switch = next(entry for entry in layout.switches if entry.name == device)
    assert {"lo", "mgmt0", *(port.name for port in switch.ports)} <= up


def test_a_large_configuration_arrives_whole(running_lab: SharedLab) -> None:
    text = "# a line of a configuration\n" * 100_000
    assert running_lab.ssh("leaf2", "wc -c", text=text).stdout.strip() == str(len(text))
    assert len(running_lab.ssh("leaf2", "seq 300000").stdout) == 1_988_895


def test_another_key_is_refused(running_lab: SharedLab, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    argv = ["ssh", "-F", "none", "-i", str(tmp_path / "other"), "-p", "2222", "-o", "BatchMode=yes"]
    argv += ["-o", f"UserKnownHostsFile={running_lab.lab.paths.known_hosts}", "-o", "IdentitiesOnly=yes"]
    for place in ("root@127.77.9.11", "admin@127.77.9.21"):
        done = subprocess.run([*argv, place, "true"], check=False, capture_output=True, text=True)
        assert done.returncode == 255
        assert "Permission denied" in done.stderr


def test_the_switches_take_the_queues_of_a_plan(running_lab: SharedLab) -> None:
    done = running_lab.ssh("leaf2", QUEUES)
    assert done.returncode == 0, done.stderr
    kinds = [entry["kind"] for entry in json.loads(done.stdout)]
    assert {"tbf", "prio", "red"} <= set(kinds)


@pytest.mark.parametrize("target", ["host2", "host3", "host4"])
def test_hosts_reach_each_other(running_lab: SharedLab, layout: Layout, target: str) -> None:
    address = next(host.address for host in layout.topology.hosts if host.name == target)
    done = running_lab.on_host("host1", ["ping", "-q", "-c", "20", "-i", "0.1", "-W", "30", str(address)])
    # a switch is a process, which loses packets where others have the processors
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("feature", ["tx-checksumming", "tcp-segmentation-offload", "generic-segmentation"])
def test_hosts_send_single_finished_packets(running_lab: SharedLab, feature: str) -> None:
    features = running_lab.on_host("host1", ["ethtool", "-k", "eth0"]).stdout
    assert re.search(rf"^{feature}\S*: off", features, re.MULTILINE), features


def test_no_offload_merges_packets_before_a_queue(running_lab: SharedLab) -> None:
    features = running_lab.ssh("leaf2", "for port in eth1 eth3; do ethtool -k $port; done").stdout
    assert len(re.findall(r"^generic-receive-offload: off", features, re.MULTILINE)) == 2
    assert len(re.findall(r"^generic-segmentation-offload: off", features, re.MULTILINE)) == 2


def test_a_socket_opened_inside_stays_inside(running_lab: SharedLab, layout: Layout) -> None:
    import socket

    host = layout.real_hosts[0]
    own = Path("/proc/thread-self/ns/net").readlink()
    with running_lab.lab.host_namespace(host.name).entered():
        inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    assert Path("/proc/thread-self/ns/net").readlink() == own
    with inside, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outside:
        inside.bind((str(host.address), 0))
        with pytest.raises(OSError, match="Cannot assign"):
            outside.bind((str(host.address), 0))


def test_run_and_unknown_hosts(running_lab: SharedLab) -> None:
    assert running_lab.lab.run(["sh", "-c", "exit 7"]) == 7
    with pytest.raises(UserInputError, match="'host5' is no host with packets behind it"):
        running_lab.lab.host_namespace("host5")
