"""What the doctor finds on a machine alone: kernel, addresses, routes and keys."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mltswitch.errors import MachineError
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.dataplane.binding import set_buffers
from mltswitch.hostagent.doctor import machine
from mltswitch.hostagent.doctor.machine import machine_findings
from mltswitch.hostagent.doctor.report import Finding, Report, Status, worst
from tests.hostagent.namespaces import INTERFACE, TwoHosts, can_make_namespaces, two_hosts

BUFFER_SETTINGS = ("net.core.rmem_max", "net.core.wmem_max")
needs_root = pytest.mark.skipif(not can_make_namespaces(), reason="needs root")


def config(*addresses: str, **more: object) -> AgentConfig:
    fields = {"addresses": addresses, "line_rate": "1Gbps", "plaintext": True, "name": "one"}
    classes = {"control_dscp": 40, "gradient_dscp": [34]}
    return AgentConfig.model_validate({**fields, "classes": classes, **more}).resolved()


def found(settings: AgentConfig) -> dict[str, Finding]:
    return {finding.where: finding for finding in machine_findings(settings)}


def test_a_machine_in_order() -> None:
    findings = found(config("127.0.0.1", "127.0.91.2"))
    assert worst(findings.values()) is not Status.ERROR
    assert {"data plane", "UDP_SEGMENT", "UDP_GRO", "net.core.rmem_max"} <= set(findings)
    assert findings["address 127.0.91.2"].status is Status.OK


_BUFFERS = """
import json, os, subprocess, sys
from mltswitch.hostagent import Agent
from tests.hostagent.doctor.test_machine import BUFFER_SETTINGS, config, found
settings = config("127.0.0.1", buffer=sys.argv[1], listen="127.0.0.1:0")
findings = found(settings)
with Agent(settings) as agent:
    ports = subprocess.run(["ss", "-uamnpO"], capture_output=True, text=True, check=True).stdout
    own = next(line for line in ports.splitlines() if f"pid={os.getpid()}," in line)
    told = {name: (findings[name].status, findings[name].what) for name in BUFFER_SETTINGS}
    print(json.dumps([own, agent.warnings, told]))
"""


@pytest.mark.parametrize("is_privileged", [True, False])
def test_buffers_are_those_that_the_sockets_have(is_privileged: bool) -> None:
    if is_privileged and not can_make_namespaces():
        pytest.skip("needs root")
    limits = {name: int(Path("/proc/sys", name.replace(".", "/")).read_text()) for name in BUFFER_SETTINGS}
    wanted = 1 + max(limits.values())
    plain = ["setpriv", "--bounding-set=-net_admin"] if not is_privileged and can_make_namespaces() else []
    done = subprocess.run(
        [*plain, sys.executable, "-c", _BUFFERS, str(wanted)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    socket_line, warnings, findings = json.loads(done.stdout.splitlines()[-1])
    for (name, limit), kind in zip(limits.items(), ("rb", "tb"), strict=True):
        granted = wanted if is_privileged else limit
        assert f",{kind}{2 * granted}," in socket_line
        what = f"sockets get {granted:,} bytes of buffer, {wanted:,} wanted"
        assert findings[name] == ["ok" if is_privileged else "warning", what]
        assert [text.split("; ")[0] for text in warnings if text.startswith(name)] == (
            [] if is_privileged else [f"{name}: {what}"]
        )


def test_the_setting_that_is_short_is_named() -> None:
    class Narrow(socket.socket):
        """A socket of a kernel that grants no large receive buffer."""

        def getsockopt(self, level: int, option: int) -> int:  # type: ignore[override]
            return 2 * 212_992 if option == socket.SO_RCVBUF else super().getsockopt(level, option)

    with Narrow(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        receiving, sending = set_buffers(bound, 250_000)
    assert receiving.granted_bytes == 212_992
    assert receiving.hint.startswith("bursts may be lost here; as root: sysctl -w net.core.rmem_max=250000")
    assert (sending.setting, sending.granted_bytes >= 212_992) == ("net.core.wmem_max", True)


def test_without_the_compiled_data_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mltswitch.hostagent.dataplane._dataplane", None)
    monkeypatch.delitem(sys.modules, "mltswitch.hostagent.dataplane.binding", raising=False)
    monkeypatch.delattr("mltswitch.hostagent.dataplane._dataplane", raising=False)
    finding = found(config("127.0.0.1"))["data plane"]
    assert finding.status is Status.ERROR
    assert "only the transport tcp works" in finding.what
    assert "install a C compiler" in finding.hint


def test_without_pyroute2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyroute2", None)
    with pytest.raises(MachineError, match=r"needs the package pyroute2.*mltswitch\[agent\]"):
        machine_findings(config("127.0.0.1"))


def test_exit_codes() -> None:
    bad, good = Finding(Status.ERROR, "here", "seen"), Finding(Status.WARNING, "here", "seen")
    assert Report(name="one", machine=(good,)).exit_code == 0
    assert Report(name="one", machine=(bad,)).exit_code == 3
    assert Report(name="one", machine=(good,), peer="other", peer_machine=(bad,)).exit_code == 6


@contextmanager
def inside(mtu: int = 1500) -> Iterator[TwoHosts]:
    with two_hosts(mtu) as hosts, hosts.one.entered():
        yield hosts


@pytest.mark.root
@needs_root
def test_addresses_and_routes() -> None:
    with inside() as hosts:
        own, there = hosts.one.alias(0), hosts.other.alias(0)
        settings = config(own, "192.0.2.77", mtu_bytes=9000, peers={"a": there, "b": "198.51.100.9"})
        findings = found(settings)
    assert findings["address 192.0.2.77"].what == "this host does not have it"
    short = findings[f"address {own}"]
    assert (short.status, short.what) == (Status.ERROR, f"on {INTERFACE}, whose MTU is 1,500, 9,000 wanted")
    assert f"ip link set {INTERFACE} mtu 9000" in short.hint
    assert (findings[f"route to {there}"].status, findings[f"route to {there}"].what) == (
        Status.OK,
        f"by {INTERFACE}",
    )
    missing = findings["route to 198.51.100.9"]
    assert (missing.status, missing.what) == (
        Status.ERROR,
        "there is no route: Network is unreachable",
    )


@pytest.mark.root
@needs_root
@pytest.mark.parametrize(("value", "status"), [(1, Status.WARNING), (2, Status.OK)])
def test_a_path_that_leaves_by_another_interface(value: int, status: Status) -> None:
    with inside() as hosts:
        hosts.one.run("ip", "link", "add", "data1", "type", "veth", "peer", "name", "data2")
        hosts.one.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
        hosts.one.run("ip", "link", "set", "data1", "up")
        hosts.one.run("ip", "address", "add", "10.88.0.1/24", "dev", "data1")
        hosts.one.run("sysctl", "-qw", f"net.ipv4.conf.data1.rp_filter={value}")
        alone = found(config(hosts.one.alias(0), "10.88.0.1"))
        network = machine.Network()
        [finding] = machine.route_findings(network, "10.88.0.1", [hosts.other.alias(0)])
        network.close()
    assert alone["rp_filter of data1"].status is status
    assert finding.status is Status.WARNING
    assert finding.what.startswith(f"by {INTERFACE}, and 10.88.0.1 is on data1")
