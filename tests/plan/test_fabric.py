"""The fabric file: what is refused, and what a topology expands to."""

import copy
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from mltswitch.capabilities import PortNumbering
from mltswitch.documents import validate
from mltswitch.errors import UserInputError
from mltswitch.plan import Fabric, Topology
from mltswitch.plan.cabling import MAXIMUM_LINKS
from mltswitch.plan.topology_document import PortName
from tests.plan.examples import LISTED, SMALL


def changed(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(base)
    *parents, last = path.split(".")
    place = data
    for key in parents:
        place = place[key]
    place[last] = value
    return data


def topology(data: dict[str, Any]) -> Topology:
    return Topology(validate(data, Fabric, where="fabric.yaml"))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("ports.buffer", -1, "ports.buffer: must be more than 0, not -1"),
        ("ports.buffer", "lots", "'lots' is not understood, write for example 200kB or 192KiB"),
        ("ports.rate", 0, "ports.rate"),
        ("ports.mtu_bytes", 100, "ports.mtu_bytes"),
        ("traffic.load", -0.5, "traffic.load"),
        ("traffic.load", float("nan"), "traffic.load"),
        ("traffic.burst_packets", 0, "traffic.burst_packets"),
        ("traffic.importance", "layer", "traffic.importance"),
        ("traffic.arrivals", "poisson", "traffic.arrivals"),
        ("traffic.source_rate_ratio", float("nan"), "traffic.source_rate_ratio"),
        ("traffic.senders", 8, "traffic: senders belongs to arrivals: incast, not to bursts"),
        ("traffic.jitter_seconds", 0.0, "traffic: jitter_seconds belongs to arrivals: incast"),
        ("traffic.arrivals", "incast", "traffic: arrivals: incast needs senders"),
        ("classes.gradients.burst_packets", [8, 0], "classes.gradients.burst_packets[1]"),
        ("classes.gradients.burst_packets", [8], "gradients: burst_packets lists 1 values for 8 gradient"),
        ("classes.gradients.delay_bound", [0.1] * 9, "delay_bound lists 9 values for 8 gradient classes"),
        ("classes.gradients.delay_bound", -1.0, "classes.gradients.delay_bound"),
        ("classes.gradients.delay_bound", float("nan"), "classes.gradients.delay_bound"),
        ("classes.gradients.ordered_thresholds", "often", "classes.gradients.ordered_thresholds"),
        ("classes.gradients.dscp", [48], "gradients.dscp: 48 is CS6, which belongs to routing protocols"),
        ("classes.gradients.dscp", [34, 56], "gradients.dscp: 56 is CS7, which belongs to routing protocols"),
        ("classes.gradients.dscp", [34, 64], "classes.gradients.dscp[1]"),
        ("classes.gradients.dscp", [40], "DSCP 40 is given to control and to gradients"),
        ("classes.gradients.dscp", [8, 8], "DSCP 8 is given to gradients twice"),
        ("classes.gradients.queues", 9, "gradients.queues is 9, gradients.dscp lists 8 code points"),
        ("addressing.alias.spine1", "10.10.4.0/24", "overlaps hosts 10.10.0.0/16"),
        ("addressing.hosts", "224.1.0.0/16", "hosts 224.1.0.0/16 overlaps 224.0.0.0/3, which is multicast"),
        ("addressing.hosts", 168427520, "addressing.hosts: is no prefix, write for example 10.10.0.0/16"),
        ("addressing.hosts", "0.0.0.0/0", "hosts 0.0.0.0/0 overlaps 0.0.0.0/8"),
        ("addressing.links", "127.1.0.0/16", "links 127.1.0.0/16 overlaps 127.0.0.0/8, which is loopback"),
        ("addressing.alias.spine2", "169.254.0.0/16", "alias.spine2 169.254.0.0/16 overlaps"),
        ("classes.network_control", {"dscp": []}, "classes.network_control.dscp"),
        ("classes.background", {"dscp": []}, "classes.background.dscp"),
        ("topology.leaf_spine.leaves.port_names.pattern", "../{n}", "port_names.pattern"),
        ("topology.leaf_spine.leaves.port_names.pattern", "-{n}", "port_names.pattern"),
        (
            "trusted_ports",
            "some",
            "trusted_ports: is the word all, or a list of ports such as leaf1:eth1, not 'some'",
        ),
        ("trusted_ports", [7], "trusted_ports: is the word all, or a list of ports such as leaf1:eth1"),
        ("addressing.leaf_stride", 48, "leaf_stride 48 is not a power of two"),
        ("name", "lab\nreload", "name"),
        ("topology", {}, "needs leaf_spine, or switches and links"),
        ("colour", "blue", "colour: is no field that is known here"),
        ("schema", "mltswitch/fabric/v9", "schema"),
    ],
)
def test_refused_values(path: str, value: Any, message: str) -> None:
    with pytest.raises(UserInputError) as refusal:
        validate(changed(SMALL, path, value), Fabric, where="fabric.yaml")
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("fabric.yaml")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("link", "message"),
    [
        (
            {"a": "leaf1:eth9", "b": "spine9:eth1"},
            "topology.links: leaf1:eth9 - spine9:eth1: unknown switch or host 'spine9'",
        ),
        ({"a": "leaf1:eth9", "b": "host9:eth0"}, "unknown switch or host 'host9'"),
        ({"a": "leaf1:eth1", "b": "spine2:eth7"}, "port leaf1:eth1 has two cables"),
        ({"a": "leaf1:eth9", "b": "leaf2:eth9"}, "the link joins leaf and leaf"),
        ({"a": "host1:eth1", "b": "host2:eth1"}, "the link joins host and host"),
        ({"a": "host1:eth1", "b": "spine1:eth9"}, "the link joins host and spine"),
    ],
)
def test_refused_links(link: dict[str, str], message: str) -> None:
    with pytest.raises(UserInputError) as refusal:
        topology(changed(LISTED, "topology.links", [*LISTED["topology"]["links"], link]))
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("addressing.alias", {"spine1": "10.101.0.0/16"}, "path spine2 has no alias prefix"),
        ("addressing.alias", {"spine3": "10.101.0.0/16"}, "'spine3' is no spine, core or parallel link"),
        (
            "addressing.alias.spine1",
            "10.101.0.0/26",
            "addressing.alias.spine1: 10.101.0.0/26 holds 64 addresses",
        ),
        ("addressing.links", "10.20.0.0/29", "addressing.links: 10.20.0.0/29 has no room for link 3"),
        ("addressing.leaf_stride", 2, "leaf leaf1 has 2 hosts or more"),
        ("trusted_ports", ["leaf1:eth77"], "trusted_ports: leaf1:eth77 is no port of the fabric"),
    ],
)
def test_topologies_that_do_not_fit(path: str, value: Any, message: str) -> None:
    with pytest.raises(UserInputError) as refusal:
        topology(changed(SMALL, path, value))
    assert message in str(refusal.value)


def test_too_many_links_are_refused_before_they_are_made() -> None:
    data = changed(SMALL, "topology.leaf_spine.hosts_per_leaf", 4096)
    data["topology"]["leaf_spine"]["leaves"]["count"] = 4096
    with pytest.raises(UserInputError) as refusal:
        topology(data)
    assert str(refusal.value) == (
        "topology.leaf_spine: 4096 leaves, each with 4096 hosts and 2 links to spines, have 16785408 links "
        f"(expected at most {MAXIMUM_LINKS})"
    )


def test_a_leaf_without_a_link_to_a_spine() -> None:
    links = [link for link in LISTED["topology"]["links"] if link != {"a": "leaf2:eth4", "b": "spine2:eth2"}]
    with pytest.raises(UserInputError, match=r"^topology.links: leaf leaf2 has no link to spine2\."):
        topology(changed(LISTED, "topology.links", links))


def test_spines_alone_are_no_fabric() -> None:
    spines = [entry for entry in LISTED["topology"]["switches"] if entry["role"] == "spine"]
    with pytest.raises(UserInputError, match=r"^topology: the fabric has no leaf"):
        topology(changed(LISTED, "topology", {"switches": spines}))


def test_incast_needs_no_jitter() -> None:
    incast = {"load": 0.9, "arrivals": "incast", "senders": 16, "round_packets": 40}
    traffic = validate(changed(SMALL, "traffic", incast), Fabric, where="fabric.yaml").traffic
    assert (traffic.senders, traffic.round_packets, traffic.jitter_seconds) == (16, 40, None)


def test_bursts_and_bounds_of_each_class() -> None:
    plain = validate(SMALL, Fabric, where="fabric.yaml")
    assert plain.gradient_bursts(3) == (8, 8, 8)
    assert plain.delay_bounds_seconds(2, 25_000_000_000) == (0.00025, 0.0005)
    assert plain.delay_bounds_seconds(1, 100_000_000) == (0.005,), "as many packets as at 1 Gbit/s"
    gradients = SMALL["classes"]["gradients"] | {
        "queues": 2,
        "burst_packets": [4, 16],
        "delay_bound": [0.0005, 0.002],
    }
    each = validate(changed(SMALL, "classes.gradients", gradients), Fabric, where="fabric.yaml")
    assert each.gradient_bursts(2) == (4, 16)
    assert each.delay_bounds_seconds(2, 10**10) == (0.0005, 0.002)
    one = changed(SMALL, "classes.gradients.delay_bound", 0.001)
    assert validate(one, Fabric, where="fabric.yaml").delay_bounds_seconds(3, 10**8) == (0.001,) * 3


@given(
    pattern=st.from_regex(r"[A-Za-z0-9/_.-]{0,21}\{n\}[A-Za-z0-9/_.-]{0,21}", fullmatch=True),
    first=st.integers(-1, 10_001),
    step=st.integers(0, 1001),
    index=st.integers(0, 8191),
)
def test_generated_port_names_are_port_names(pattern: str, first: int, step: int, index: int) -> None:
    try:
        names = PortNumbering(pattern=pattern, first=first, step=step)
    except ValidationError:
        return
    TypeAdapter(PortName).validate_python(names.name(index))


def test_generated_and_listed_topologies_agree() -> None:
    generated, listed = topology(SMALL), topology(LISTED)
    assert generated.switches == listed.switches
    assert generated.hosts == listed.hosts


def test_addresses_follow_the_rule() -> None:
    host = topology(SMALL).hosts[2]
    assert (host.name, host.leaf, host.index) == ("host3", "leaf2", 65)
    assert host.address == IPv4Address("10.10.1.6")
    assert dict(host.aliases)["spine2"] == IPv4Network("10.102.0.0/16").network_address + 65


def test_every_link_has_two_ends_on_one_subnet() -> None:
    network = topology(SMALL)
    for switch in network.switches:
        for port in switch.ports:
            subnet = IPv4Network((port.address, 30), strict=False)
            assert port.peer_address in subnet
            if not port.peer_is_host:
                assert network.switch(port.peer).port(port.peer_port).address == port.peer_address


def test_unknown_switch() -> None:
    with pytest.raises(UserInputError, match="expected one of spine1, spine2, leaf1, leaf2"):
        topology(SMALL).routes("leaf7")
