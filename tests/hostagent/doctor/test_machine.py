"""A host alone: what is read is what the kernel says, and what is missing is named with its remedy."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltswitch.hostagent.doctor import interfaces, machine
from mltswitch.hostagent.doctor.addresses import address_findings, route_findings
from mltswitch.hostagent.doctor.clocks import ClockQuality
from mltswitch.hostagent.doctor.findings import Finding, Status
from mltswitch.hostagent.doctor.machine import machine_findings
from mltswitch.hostagent.doctor.settings import DoctorSettings, LocalPath
from mltswitch.hostagent.network.features import KernelFeatures
from mltswitch.hostagent.network.sockets import BufferSize
from tests.hostagent.doctor.pairs import settings_of
from tests.hostagent.namespaces import INTERFACE, TwoHosts, can_make_namespaces, two_hosts

HOST = settings_of("host1", ["127.0.0.1"])
PROGRAM = """
from mltswitch.hostagent.doctor.machine import machine_findings
from mltswitch.hostagent.doctor.settings import DoctorSettings

for entry in machine_findings(DoctorSettings(name="host1", mode="p4")):
    print(entry.status, entry.subject, "|", entry.seen, "|", entry.remedy)
"""


@pytest.fixture(scope="module")
def cabled() -> Iterator[TwoHosts]:
    if not can_make_namespaces():
        pytest.skip("network namespaces need root")
    with two_hosts() as hosts:
        yield hosts


def named(findings: tuple[Finding, ...], subject: str) -> Finding:
    (found,) = [entry for entry in findings if entry.subject == subject]
    return found


def test_this_machine_is_in_order() -> None:
    """Tests of the agent run here; so nothing may be a problem."""
    found = machine_findings(HOST)
    assert [entry for entry in found if entry.status is Status.PROBLEM] == []
    assert named(found, "DSCP and ECN per datagram").seen.startswith("256 of 256 values")
    assert len({entry.subject for entry in found}) == len(found)
    assert all(entry.remedy for entry in found if entry.status is not Status.OK)


def test_nothing_needs_a_privilege() -> None:
    """The same, without any capability."""
    prefix = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"] if can_make_namespaces() else []
    done = subprocess.run(
        [*prefix, sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "256 of 256 values set and told to the receiver, without privileges" in done.stdout
    assert [line for line in lines if line.startswith("problem")] == [
        "problem raw frames (CAP_NET_RAW) | not held | setpriv --reuid USER --init-groups "
        "--inh-caps +net_raw --ambient-caps +net_raw -- COMMAND"
    ]
    limit = int(Path("/proc/sys/net/core/rmem_max").read_text())
    (buffer,) = [line for line in lines if " receive buffer " in line]
    assert buffer.startswith("ok" if limit >= 32 << 20 else "warning")
    assert limit >= 32 << 20 or "sysctl -w net.core.rmem_max=33554432" in buffer


def test_a_small_buffer_has_its_line() -> None:
    finding = machine._buffer("receive buffer", BufferSize(33_554_432, 212_992, "net.core.rmem_max"))
    assert finding.status is Status.WARNING
    assert "sysctl -w net.core.rmem_max=33554432" in finding.remedy
    assert "212,992 bytes granted of 33,554,432 wanted" in finding.seen


def test_a_kernel_that_offers_nothing() -> None:
    features = KernelFeatures("4.4.0", True, False, False, True, False, False, None, None)
    found = tuple(machine._offload(features))
    assert {entry.status for entry in found} == {Status.WARNING}
    assert len(found) == 4


@pytest.mark.parametrize(
    ("source", "reading_ns", "status"),
    [
        ("tsc", 150.0, Status.OK),
        ("tsc", 3000.0, Status.OK),  # busy, not slow
        ("acpi_pm", 3000.0, Status.WARNING),
        ("hpet", 1500.0, Status.WARNING),
        ("", 120.0, Status.OK),
    ],
)
def test_clock_sources(
    monkeypatch: pytest.MonkeyPatch, source: str, reading_ns: float, status: Status
) -> None:
    monkeypatch.setattr(machine, "read_line", lambda _: source)
    found = tuple(machine._clock(ClockQuality(40, reading_ns)))
    assert named(found, "clock source").status is status
    assert named(found, "clock resolution").status is Status.OK
    coarse = tuple(machine._clock(ClockQuality(4_000_000, reading_ns)))
    assert named(coarse, "clock resolution").status is Status.WARNING


@pytest.mark.parametrize(
    ("governor", "driver", "status"),
    [
        ("performance", "acpi-cpufreq", Status.OK),
        ("powersave", "acpi-cpufreq", Status.WARNING),
        ("powersave", "intel_pstate", Status.OK),
        ("schedutil", "intel_cpufreq", Status.OK),
        (None, None, Status.OK),
    ],
)
def test_governors(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    governor: str | None,
    driver: str | None,
    status: Status,
) -> None:
    if governor is not None:
        folder = tmp_path / "cpu" / "cpu0" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
        (folder / "scaling_driver").write_text(f"{driver}\n")
    monkeypatch.setattr(machine, "_SYSTEM", tmp_path)
    assert named(tuple(machine._processors()), "processor frequency").status is status


def test_one_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert named(tuple(machine._processors()), "processors").status is Status.WARNING


def test_segment_routing(monkeypatch: pytest.MonkeyPatch) -> None:
    wants = DoctorSettings(name="host1", mode="srv6")
    for value, status in ((None, Status.PROBLEM), (0, Status.PROBLEM), (1, Status.OK)):
        monkeypatch.setattr(machine, "setting", lambda *_, value=value: value)
        assert machine._segment_routing(wants).status is status
        assert machine._segment_routing(HOST).status is Status.OK


def test_packages_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "OPTIONAL_PACKAGES", {"no-such-package": "for tests"})
    (finding,) = machine._packages()
    assert (finding.status, finding.seen, finding.meaning) == (
        Status.OK,
        "not installed",
        "needed only for tests",
    )


def test_no_such_interface_or_setting() -> None:
    assert interfaces.has_feature("no-such-one", interfaces.UDP_SEGMENTATION) is None
    assert interfaces.has_feature("lo", "no-such-feature") is None
    assert interfaces.setting("ipv4", "conf", "no-such-one", "rp_filter") is None


def test_loopback() -> None:
    found = address_findings(HOST)
    assert named(found, "addresses").seen == "1 on lo, one path each"
    assert [entry.status for entry in route_findings(HOST.paths[0], "127.0.0.9")] == [Status.OK, Status.OK]


def test_an_address_that_is_not_there() -> None:
    found = address_findings(settings_of("host1", ["127.0.0.1", "192.0.2.77", "fd99::1"]))
    finding = named(found, "addresses")
    assert finding.status is Status.PROBLEM
    assert "192.0.2.77, fd99::1" in finding.seen
    assert "agent paths --setup" in finding.remedy


@pytest.mark.root
def test_a_payload_that_does_not_fit(cabled: TwoHosts) -> None:
    with cabled.one.entered():
        found = address_findings(settings_of("one", cabled.one.aliases, payload_bytes=8972))
        finding = named(found, f"{INTERFACE}: MTU")
        assert finding.status is Status.PROBLEM
        assert finding.seen == "1,500 bytes: payload of 1,472 fits, 8,972 wanted"
        assert f"ip link set {INTERFACE} mtu 9000" in finding.remedy
        fits = address_findings(settings_of("one", cabled.one.aliases6, payload_bytes=1452))
        assert named(fits, f"{INTERFACE}: MTU").status is Status.OK
        segments = DoctorSettings(
            name="one", payload_bytes=1452, paths=(LocalPath(cabled.one.alias6(0), 0, ("fd77::9",)),)
        )
        # 8 bytes of routing header and 16 for each of two segments.
        assert "payload of 1,412 fits" in named(address_findings(segments), f"{INTERFACE}: MTU").seen


@pytest.mark.root
def test_an_offload_that_is_switched_off(cabled: TwoHosts) -> None:
    def found() -> Finding:
        with cabled.one.entered():
            return named(
                address_findings(settings_of("one", cabled.one.aliases)), f"{INTERFACE}: tx-udp-segmentation"
            )

    assert found().status is Status.OK
    try:
        cabled.one.run("ethtool", "-K", INTERFACE, "tx-udp-segmentation", "off")
        assert found().status is Status.WARNING
    finally:
        cabled.one.run("ethtool", "-K", INTERFACE, "tx-udp-segmentation", "on")
    assert found().status is Status.OK


@pytest.mark.root
def test_answers_that_strict_filtering_would_drop(cabled: TwoHosts) -> None:
    """The peer's alias is reached by another interface than our end of the path is on."""
    host = cabled.one
    host.run("ip", "link", "add", "side0", "type", "veth", "peer", "side1")
    try:
        host.run("ip", "address", "add", "10.88.0.1/24", "dev", "side0")
        host.run("ip", "link", "set", "side0", "up")
        for value, status in ((0, Status.WARNING), (2, Status.WARNING), (1, Status.PROBLEM)):
            host.run("sysctl", "-qw", f"net.ipv4.conf.side0.rp_filter={value}")
            with host.entered():
                found = route_findings(LocalPath("10.88.0.1", 0), cabled.other.alias(1))
            assert named(found, "route").status is status
        with host.entered():
            assert named(
                route_findings(LocalPath(host.alias(1), 0), cabled.other.alias(1)), "route"
            ).seen == (f"to {cabled.other.alias(1)} by {INTERFACE}")
            lost = route_findings(LocalPath(host.alias(1), 0), "203.0.113.1")
            assert named(lost, "route").status is Status.PROBLEM
    finally:
        host.run("ip", "link", "delete", "side0")


@pytest.mark.root
def test_segment_routing_of_the_interface(cabled: TwoHosts) -> None:
    wants = settings_of("one", cabled.one.aliases6, mode="srv6")
    subject = f"{INTERFACE}: seg6_enabled"
    with cabled.one.entered():
        finding = named(address_findings(wants), subject)
        assert finding.status is Status.PROBLEM
        assert f"sysctl -w net.ipv6.conf.{INTERFACE}.seg6_enabled=1" in finding.remedy
        cabled.one.run("sysctl", "-qw", f"net.ipv6.conf.{INTERFACE}.seg6_enabled=1")
        assert [entry for entry in address_findings(wants) if entry.subject == subject] == []


def test_the_byte_is_tried_for_all_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox that lets no control message through."""

    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket.socket, "sendmsg", refuse)
    finding = machine._traffic_class()
    assert finding.status is Status.PROBLEM
    assert "stopped after 0 of 256 values: Operation not permitted" in finding.seen
