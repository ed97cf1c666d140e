"""What the doctor finds on a machine alone: kernel, addresses, routes and keys."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mltswitch.errors import MachineError
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.doctor import machine
from mltswitch.hostagent.doctor.machine import machine_findings
from mltswitch.hostagent.doctor.report import Finding, Report, Status, worst
from tests.hostagent.namespaces import INTERFACE, TwoHosts, can_make_namespaces, two_hosts

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


def test_buffers_are_compared_with_what_is_wanted() -> None:
    finding = found(config("127.0.0.1", buffer="1GB"))["net.core.rmem_max"]
    assert finding.status is Status.WARNING
    assert "1,000,000,000 wanted" in finding.what
    assert "sysctl -w net.core.rmem_max=1000000000" in finding.hint


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
