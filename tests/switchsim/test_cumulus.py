"""Cumulus: what NVUE takes and refuses, its revisions, and what it prints."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsim.cumulus import CumulusDevice
from switchsim.cumulus_tree import difference, joined
from switchsim.device import CommandResult
from tests.switchsim.conftest import Serve, Ssh

ACCEPTED = [
    # The examples of the user guide, Quality of Service.
    "qos mapping default-global trust l3",
    "qos mapping default-global dscp 10,21,36 switch-priority 0",
    "qos mapping default-global pcp 2,3,4 switch-priority 0",
    "qos mapping default-global port-default-sp 3",
    "qos remark default-global rewrite l3",
    "qos link-pause my_pause_ports tx enable",
    "qos pfc default-global switch-priority 0",
    "qos congestion-control default-global traffic-class 4,5,7 min-threshold 40000",
    "qos congestion-control default-global traffic-class 4,5,7 red enable",
    "qos congestion-control default-global traffic-class 0 ecn disable",
    "qos egress-queue-mapping default-global switch-priority 2 traffic-class 7",
    "qos egress-scheduler default-global traffic-class 2,6 mode dwrr",
    "qos egress-scheduler default-global traffic-class 0,1,5,7 mode strict",
    "qos egress-shaper shaper1 port-max-rate 200000",
    # The same, Access Control List Configuration.
    "acl EXAMPLE1 type ipv4",
    "acl EXAMPLE1 rule 10 action set dscp 14",
    "acl EXAMPLE1 rule 10 match ip source-ip 10.0.14.2/32",
    "acl EXAMPLE1 rule 10 action deny",
    "interface swp1-8 acl EXAMPLE1 inbound",
    "interface swp1 acl EXAMPLE1 inbound control-plane",
    "interface swp1-swp4,swp6 qos link-pause profile my_pause_ports",
    "interface swp1-4,swp6 qos pfc profile my_pfc_ports",
    "vrf default router static 10.8.1.0/24 via 10.0.1.2",
    "vrf default router static 10.8.1.0/24 distance 2 via 10.0.1.2",
]
REFUSED = [
    "qos",
    "qos mapping mlt trust l4",
    "qos mapping mlt dscp 64 switch-priority 0",
    "qos mapping mlt dscp 1 switch-priority 8",
    "qos mapping mlt dscp 1,x switch-priority 1",
    "qos egress-queue-mapping mlt switch-priority 2 traffic-class 7",
    "qos congestion-control mlt traffic-class 8 ecn enable",
    "qos congestion-control mlt traffic-class 6 ecn on",
    "qos congestion-control mlt traffic-class 6 min-threshold-bytes 40000",
    "qos congestion-control mlt traffic-class 6 min-threshold 60KB",
    "qos congestion-control mlt traffic-class 6 probability 101",
    "qos egress-scheduler mlt traffic-class 6 bw-percent 0",
    "acl EXAMPLE1 type ip",
    "acl EXAMPLE1 rule 0 action deny",
    "acl EXAMPLE1 rule 10 action set dscp 64",
    "interface swp1 acl EXAMPLE1",
    "interface swp1 acl EXAMPLE1 in",
    "interface swp1 qos congestion-control mlt",
    "interface swp1 qos mapping profile",
    "interface swp1 qos trust l3",
    "vrf default router static 10.8.1.0 via 10.0.1.2",
    "vrf default router static 10.8.1.0/33 via 10.0.1.2",
    "vrf default router static 10.8.1.0/24 10.0.1.2",
    "vrf default router static 10.8.1.0/24 via 10.0.1",
]


@pytest.fixture
def device() -> CumulusDevice:
    return CumulusDevice(ports=8)


def nv(device: CumulusDevice, line: str) -> CommandResult:
    return device.execute("cumulus", f"nv {line}")


def config(device: CumulusDevice) -> Any:
    header, body = json.loads(nv(device, "config show -o json").stdout)
    assert header["header"]["version"].startswith("Cumulus Linux 5.")
    return body["set"]


@pytest.mark.parametrize("line", ACCEPTED)
def test_accepted(device: CumulusDevice, line: str) -> None:
    before = device.applied
    assert nv(device, f"set {line}") == CommandResult()
    assert device.applied == before
    assert nv(device, "config diff").stdout != b""


@pytest.mark.parametrize("line", REFUSED)
def test_refused_changes_nothing(device: CumulusDevice, line: str) -> None:
    result = nv(device, f"set {line}")
    assert (result.status, result.stdout) == (1, b"")
    assert result.stderr.startswith(b"Invalid Command: set")
    assert nv(device, "config diff").stdout == b""


@pytest.mark.parametrize(
    "line",
    ["", "show", "config", "config apply 99", "config patch", "config show -o xml", "unset", "unset qos2 x"],
)
def test_no_command_at_all(device: CumulusDevice, line: str) -> None:
    assert nv(device, line).status == 1


SHAPER = "qos egress-shaper x traffic-class 1"
CLASS = "qos egress-scheduler x traffic-class 1"
UNAPPLICABLE = [
    (["interface swp9 link mtu 9000"], "interface.swp9"),
    (["interface swp1 qos mapping profile nowhere"], "interface.swp1.qos.mapping.profile"),
    (["interface swp1 acl nowhere inbound"], "interface.swp1.acl.nowhere"),
    (["acl x rule 1 action deny", "interface swp1 acl x inbound"], "swp1.acl.x: no access list with a type"),
    (["qos congestion-control x traffic-class 1 min-threshold 2000000"], "traffic-class.1"),
    (["qos congestion-control x traffic-class 1 min-threshold 0"], "traffic-class.1"),
    ([f"{CLASS} mode dwrr"], "needs bw-percent"),
    ([f"{CLASS},2,3 mode dwrr", f"{CLASS},2,3 bw-percent 40"], "120 in all"),
    ([f"{CLASS} mode strict", f"{CLASS} bw-percent 40"], "does not fit mode strict"),
    (
        [f"{SHAPER} min-rate 9", f"{SHAPER} max-rate 8"],
        "min-rate 9, max-rate 8",
    ),
    ([f"{SHAPER} max-rate 9", "qos egress-shaper x port-max-rate 8"], "port-max-rate 8"),
    (["interface swp1 qos egress-shaper profile nowhere"], "interface.swp1.qos.egress-shaper.profile"),
]


@pytest.mark.parametrize(("lines", "reason"), UNAPPLICABLE)
def test_a_refused_revision_changes_nothing(device: CumulusDevice, lines: list[str], reason: str) -> None:
    before = device.applied
    for line in lines:
        assert nv(device, f"set {line}").status == 0
    result = nv(device, "config apply -y")
    assert result.status == 1
    assert result.stderr.startswith(b"Invalid config [rev_id: 2]\n  Config invalid at ")
    assert reason in result.stderr.decode()
    assert device.applied == before
    assert nv(device, "config diff").stdout != b""


ROUTE = {"via": {"10.0.1.2": {"type": "ipv4-address"}}, "address-family": "ipv4-unicast"}
PORTS = {f"swp{n}": {"qos": {"mapping": {"profile": "a"}}} for n in (1, 2)}
VRF = {"default": {"router": {"static": {"10.8.1.0/24": ROUTE}}}}
SWP = {"type": "swp", "qos": {"mapping": {"profile": "default-global"}}}
PATCH = "- set: {interface: {swp1-2: {qos: {mapping: {profile: default-global}}}}}"
STARTUP = "config diff startup applied -o json"


@pytest.mark.parametrize(
    "transcript",
    [
        [
            ("set qos congestion-control x traffic-class 1 min-threshold 6144", ""),
            ("set qos congestion-control x traffic-class 1 max-threshold 6144", ""),
            ("config apply -y", "applied [rev_id: 2]\n"),
        ],
        [
            ("set system hostname other", ""),
            ("config apply", "Are you sure? [y/N] Declined apply after warnings\n"),  # nobody answers
            ("config apply -y", "applied [rev_id: 2]\n"),
            (STARTUP, [{"set": {"system": {"hostname": "other"}}}]),
            ("config save", "saved [rev_id: applied]\n"),
            (STARTUP, []),
            ("config apply -y", "config apply executed with no config diff\n"),
            ("config apply 1 -y", "applied [rev_id: 3]\n"),
            (STARTUP, [{"set": {"system": {"hostname": "cumulus1"}}}]),
            ("set system hostname third", ""),
            ("config detach", ""),
            ("config diff -o json", []),
        ],
        [
            ("set system hostname other", ""),
            ("config apply -y --confirm 999", "applied [rev_id: 2]\n"),
            ("config apply -y", "Error: a configuration waits to be confirmed [emulator]\n"),
            ("config apply --confirm-no", "Confirmed\n"),
            (STARTUP, []),
            ("config apply --confirm-yes", "Error: no configuration waits [emulator]\n"),
        ],
        [
            ("set interface swp1-2 qos mapping profile a", ""),
            ("set vrf default router static 10.8.1.0/24 via 10.0.1.2", ""),
            ("config diff -o json", [{"set": {"interface": PORTS, "vrf": VRF}}]),
            ("unset interface swp1 qos", ""),
            ("unset interface swp2 qos mapping profile", ""),
            ("unset vrf default router static 10.8.1.0/24", ""),
            ("config diff -o json", []),
            ("unset interface swp1 link", ""),
            ("config diff -o json", [{"unset": {"interface": {"swp1": {"link": {"mtu": {}}}}}}]),
        ],
        [
            ("config patch /tmp/a.yaml", ""),  # it merges
            ("config apply -y", "applied [rev_id: 2]\n"),
            (STARTUP, [{"set": {"interface": {f"swp{n}": {"qos": SWP["qos"]} for n in (1, 2)}}}]),
            ("config replace /tmp/a.yaml", ""),
            ("config apply -y", "applied [rev_id: 3]\n"),
            ("config show -o json", {"interface": {"swp1-2": SWP}}),
            ("show system -o json", {"build": "Cumulus Linux 5.9.2", "hostname": "cumulus"}),
        ],
    ],
)
def test_transcript(device: CumulusDevice, transcript: list[tuple[str, Any]]) -> None:
    device.execute("cumulus", "cat > /tmp/a.yaml", PATCH.encode)
    for line, expected in transcript:
        result = nv(device, line)
        shown: Any = (result.stdout + result.stderr).decode()
        if not isinstance(expected, str):
            shown = json.loads(shown)
        assert (shown[1]["set"] if line.startswith("config show") else shown) == expected, line


def test_neighbours_are_printed_as_a_range(device: CumulusDevice) -> None:
    nv(device, "set qos mapping a dscp 0-3,7 switch-priority 1")
    nv(device, "set interface swp1-2 qos mapping profile a")
    nv(device, "set interface swp3 description x")
    nv(device, "config apply -y")
    printed = config(device)
    assert printed["qos"]["mapping"]["a"]["dscp"] == {"0-3,7": {"switch-priority": 1}}
    assert printed["interface"]["swp1-8"] == {"link": {"mtu": 9216}, "type": "swp"}
    assert printed["interface"]["swp3"] == {"description": "x"}
    assert yaml.safe_load(nv(device, "config show").stdout)[1]["set"] == printed
    assert b"nv set interface swp3 description x\n" in nv(device, "config show -o commands").stdout


TRUST = "- set:\n    qos: {mapping: {a: {trust: l9}}}"


@pytest.mark.parametrize("text", ["{", "qos: {}", "- replace: {}", TRUST, "- set: {qos2: {a: 1}}"])
@pytest.mark.parametrize("verb", ["patch", "replace"])
def test_a_bad_file_changes_nothing(device: CumulusDevice, verb: str, text: str) -> None:
    device.execute("cumulus", "tee /tmp/a.yaml", text.encode)
    result = nv(device, f"config {verb} /tmp/a.yaml")
    assert (result.status, result.stderr[:6]) == (1, b"Error:")
    assert nv(device, "config diff -o json").stdout == b"[]\n"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("nv config diff && true", 0),
        ("nv set x y || true", 0),
        ("reboot", 127),
        ("sudo nv config save", 0),
        ("nv config show > /etc/passwd", 1),
        ("nv config show | tee /tmp/a", 0),
        ("nv config show $(reboot)", 2),
        ("nv config diff < /tmp/a", 1),
    ],
)
def test_shell(device: CumulusDevice, line: str, status: int) -> None:
    assert device.execute("cumulus", line).status == status


names = st.sampled_from(["qos", "interface", "swp1", "swp2", "swp3", "dscp", "1", "2", "5", "profile", "a"])
trees = st.dictionaries(
    names,
    st.recursive(st.integers(0, 2), lambda inner: st.dictionaries(names, inner, min_size=1, max_size=3)),
)


@settings(max_examples=50, deadline=None)
@given(trees)
def test_nothing_differs_from_itself(tree: Any) -> None:
    assert difference(tree, tree) == []
    if "interface" not in tree:
        joined(tree)


def test_over_ssh(serve: Serve, ssh: Ssh) -> None:
    server = serve(CumulusDevice())
    result = ssh(server, "nv", "config", "diff", "-o", "json")
    assert (result.returncode, result.stdout) == (0, b"[]\n")
    assert ssh(server, "nv", "set", "qos", "nonsense").returncode == 1
