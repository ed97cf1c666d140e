"""Laws of every fabric that a file can describe: hosts reach each other by every path, ports exist."""

from collections import Counter
from ipaddress import IPv4Address
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from mltswitch.capabilities import Capabilities
from mltswitch.documents import dump_yaml, parse_yaml, validate
from mltswitch.errors import MltswitchError, UnsupportedPlanError, UserInputError
from mltswitch.plan import (
    Fabric,
    Host,
    PortRole,
    Route,
    Topology,
    attached_hosts,
    check_ports,
    resolve_fabric,
    underlay,
)
from mltswitch.plan.elements import NO_ADDRESS
from mltswitch.planning import build_plan
from mltswitch.profile import bundled_profile
from mltswitch.targets import target_for
from tests.plan.examples import SMALL

MODELS = {
    "cumulus/sn2700": (2, 4),
    "cumulus/sn3700": (2, 4),
    "onyx/sn2100": (2, 4),
    "sonic/sn2700": (2, 4),
    "sonic/trident3": (2, 4),
    "eos/tomahawk": (2, 4),
    "eos/tomahawk3": (2, 4, 8),
    "dell-sonic/tomahawk2": (2, 4),
    "icos/n4000": (),
    "linux/software": (2, 4, 8),
}
"""Model → into how many ports its ports can be broken out."""

RACK = """
schema: mltswitch/fabric/v1
name: rack
topology:
  leaf_spine:
    spines: {count: 4, platform: cumulus, hardware: sn2700}
    leaves:
      count: 8
      models:
        leaf[1-2]: onyx/sn2100
        leaf3: cumulus/sn2700
        leaf[4,6]: sonic/sn2700
        leaf5: eos/trident3
        leaf7: dell-sonic/trident3
        leaf8: linux
    hosts_per_leaf: 16
    host_ports: {rate: 25Gbps, breakout: 4}
    uplinks: {rate: 100Gbps}
addressing: {hosts: 10.10.0.0/16, links: 10.20.0.0/16, alias: 10.128.0.0/12}
ports: {rate: 25Gbps, buffer: 2MB, mtu_bytes: 9000}
traffic: {load: 0.9}
classes: {control: {dscp: [40]}, gradients: {dscp: [34, 36]}}
"""
"""128 hosts at 25G below leaves of six systems."""


def capabilities(platform: str, hardware: str | None) -> Capabilities:
    return target_for(platform).hardware(hardware)


def fabric(document: dict[str, Any]) -> Fabric:
    base = {name: SMALL[name] for name in ("schema", "name", "classes", "traffic")}
    ports = {"ports": {"rate": "1Gbps", "buffer": "384kB"}}
    return resolve_fabric(validate(base | ports | document, Fabric, where="fabric.yaml"), capabilities)


@st.composite
def documents(draw: DrawFn) -> dict[str, Any]:
    """Fabrics of two and three tiers, with every option of the generator."""
    rails, spines, pods = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    chosen = [draw(st.sampled_from(list(MODELS))) for _ in range(3)]
    allowed = [
        parts for parts in (1, 2, 4, 8) if parts == 1 or all(parts in MODELS[model] for model in chosen)
    ]
    breakout = st.sampled_from(allowed)
    lags = all(capabilities(*model.split("/")).port_numbering.lag_pattern for model in chosen)

    def links() -> dict[str, Any]:
        parallel = draw(st.integers(1, 3))
        return {
            "parallel": parallel,
            "lag": lags and parallel > 1 and draw(st.booleans()),
            "breakout": draw(breakout),
            "breakout_above": draw(breakout),
            "rate": draw(st.sampled_from(["1Gbps", "2Gbps"])),
        }

    leaves = rails * draw(st.integers(1, 2))
    shape: dict[str, Any] = {
        "spines": {"count": spines, "models": {f"spine[1-{spines * pods}]": chosen[1]}},
        "leaves": {"count": leaves, "models": {f"leaf[1-{leaves * pods}]": chosen[0]}},
        "hosts_per_leaf": draw(st.integers(0, 3)),
        "rails": rails,
        "pods": pods,
        "host_ports": {"breakout": draw(breakout), "rate": "1Gbps"},
        "uplinks": links(),
    }
    if pods > 1 or draw(st.booleans()):
        platform, hardware = chosen[2].split("/")
        cores = {"count": spines * draw(st.integers(1, 2)), "platform": platform, "hardware": hardware}
        shape |= {"cores": cores, "core_links": links()}
    addressing = {"hosts": "10.0.0.0/12", "links": "10.16.0.0/12", "alias": "11.0.0.0/8", "leaf_stride": 16}
    return {"topology": {"leaf_spine": shape}, "addressing": addressing}


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_every_host_reaches_every_other_by_every_path(document: dict[str, Any]) -> None:
    topology = Topology(fabric(document))
    routes = {switch.name: topology.routes(switch.name) for switch in topology.switches}
    for source in topology.hosts[:4]:
        for destination in topology.hosts:
            paths = topology.paths_between(source, destination)
            common = dict(source.aliases).keys() & dict(destination.aliases).keys()
            assert paths
            assert {path.name for path in paths} <= common
            for path in (path for path in topology.paths if path.name in common):
                address = dict(destination.aliases)[path.name]
                walked = _walk(topology, routes, source, address)
                expected = topology.walk(source, destination, path)
                assert walked == [(name, port.interface) for name, port in expected]
                assert len(walked) <= topology.hops
                if path in paths and source.leaf != destination.leaf:
                    assert path.top in {name for name, _ in walked}
            links = {_links(topology, source, destination, path.name) for path in paths}
            assert len(links) == (1 if source.leaf == destination.leaf else len(paths))


def _links(topology: Topology, source: Host, destination: Host, name: str) -> tuple[object, ...]:
    path = next(path for path in topology.paths if path.name == name)
    return tuple((switch, port.interface) for switch, port in topology.walk(source, destination, path))


def _walk(
    topology: Topology, routes: dict[str, tuple[Route, ...]], source: Host, address: IPv4Address
) -> list[tuple[str, str]]:
    """(switch, interface) that a packet to this address leaves by, from the rendered routes alone."""
    place, walked = source.leaf, list[tuple[str, str]]()
    while place in topology.by_name:
        matching = [route for route in routes[place] if address in route.prefix]
        longest = max(route.prefix.prefixlen for route in matching)
        [route] = [route for route in matching if route.prefix.prefixlen == longest]
        walked.append((place, route.port))
        assert len(walked) <= 5, "a loop"
        port = next(port for port in topology.switch(place).ports if port.interface == route.port)
        assert route.next_hop == port.peer_address
        place = port.peer
    return walked


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_ports_and_addresses_are_those_of_the_boxes_and_given_once(document: dict[str, Any]) -> None:
    made = fabric(document)
    topology = Topology(made)
    for switch in topology.switches:
        device = capabilities(switch.platform, switch.hardware)
        if not device.ports or len(switch.ports) <= device.ports[0].count // 2:
            check_ports(switch, device)
        assert len({port.name for port in switch.ports}) == len(switch.ports)
    addresses = Counter(
        address for switch in topology.switches for port in switch.links for address in [port.address]
    )
    addresses.update(host.address for host in topology.hosts)
    addresses.update(alias for host in topology.hosts for _, alias in host.aliases)
    assert set(addresses.values()) <= {1}
    assert len({host.name for host in topology.hosts}) == len(topology.hosts)
    again = validate(parse_yaml(dump_yaml(made), where="plan"), Fabric, where="plan")
    assert (Topology(again).switches, Topology(again).hosts) == (topology.switches, topology.hosts)


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(documents())
def test_the_underlay_reaches_every_host(document: dict[str, Any]) -> None:
    made = fabric(document)
    topology = Topology(made)
    routes = {switch.name: underlay(made.addressing, topology, switch) for switch in topology.switches}
    for host in topology.hosts:
        own = {route.port: route.next_hop for route in attached_hosts(topology.switch(host.leaf))}
        assert own[host.leaf_port] == host.address
        for start in topology.by_name:
            places = {start}
            for _ in range(4):
                places = {
                    port.peer
                    for place in places - {host.leaf}
                    for port in topology.switch(place).ports
                    if port.interface in _best(routes[place], host.address)
                } | (places & {host.leaf})
            assert places == {host.leaf}


def _best(routes: tuple[Route, ...], address: IPv4Address) -> set[str]:
    matching = [route for route in routes if address in route.prefix]
    longest = max(route.prefix.prefixlen for route in matching)
    return {route.port for route in matching if route.prefix.prefixlen == longest}


def test_the_rack_of_six_systems_has_a_plan() -> None:
    assert len(RACK.splitlines()) <= 60
    plan = build_plan(
        bundled_profile("resnet50"),
        validate(parse_yaml(RACK, where="fabric.yaml"), Fabric, where="fabric.yaml"),
        capabilities,
        "paper",
    )
    topology = plan.topology
    assert (len(topology.hosts), plan.hops, len({leaf.platform for leaf in topology.switches})) == (128, 3, 6)
    ports = {leaf.name: [port.name for port in leaf.ports] for leaf in topology.switches}
    assert ports["leaf1"][:5] == ["1/1/1", "1/1/2", "1/1/3", "1/1/4", "1/2/1"]
    assert ports["leaf3"][3:5] + ports["leaf3"][-1:] == ["swp1s3", "swp3s0", "swp12"]
    assert ports["leaf4"][3:5] + ports["leaf4"][-1:] == ["Ethernet3", "Ethernet8", "Ethernet44"]
    assert ports["leaf5"][3:5] + ports["leaf5"][-1:] == ["Ethernet1/4", "Ethernet2/1", "Ethernet8/1"]
    assert ports["leaf7"][3:5] + ports["leaf7"][-1:] == ["Eth1/1/4", "Eth1/2/1", "Eth1/8"]
    assert ports["leaf8"][3:5] + ports["leaf8"][-1:] == ["eth4", "eth5", "eth20"]
    assert {(p.role, p.rate_bps) for p in plan.port_profiles} == {
        (PortRole.LEAF_DOWN, 25 * 10**9),
        (PortRole.LEAF_UP, 100 * 10**9),
        (PortRole.SPINE_DOWN, 100 * 10**9),
    }
    assert topology.senders == {
        PortRole.LEAF_DOWN: 127,
        PortRole.LEAF_UP: 16,
        PortRole.SPINE_DOWN: 112,
        PortRole.SPINE_UP: 128,
        PortRole.CORE_DOWN: 0,
    }


def listed(model: str, port: str, rate: str = "1Gbps", **options: Any) -> dict[str, Any]:
    """One host below one leaf of this model."""
    platform, hardware = model.split("/")
    more = options.pop("more", [])
    links = [{"a": f"box:{port}", "b": "host1:eth0", "rate": rate} | options]
    links += [{"a": f"box:{name}", "b": f"other{name}:eth0"} for name in more]
    links = [link | {"b": link["b"].replace("/", "-", 3)} for link in links]
    return {
        "topology": {
            "switches": [{"name": "box", "role": "leaf", "platform": platform, "hardware": hardware}],
            "hosts": [{"name": "host1"}, *({"name": f"other{name}".replace("/", "-")} for name in more)],
            "links": links,
        },
        "addressing": {"hosts": "10.0.0.0/16"},
        "spraying": {"mode": "entropy"},
    }


@pytest.mark.parametrize(
    ("model", "port", "options", "message"),
    [
        ("onyx/sn2100", "1/99", {}, "box: port 1/99: sn2100 has 16 ports (expected 1/1 to 1/16)"),
        ("onyx/sn2100", "1/0", {}, "box: port 1/0: no port of sn2100 under onyx is called so (expected 1/1"),
        ("onyx/sn2100", "1/1", {"rate": "400Gbps"}, "box: port 1/1: 400 Gbit/s, but sn2100 has 100 Gbit/s"),
        ("onyx/sn2100", "1/1/3", {"rate": "50Gbps"}, "50 Gbit/s, but sn2100 has 25 Gbit/s there"),
        ("onyx/sn2100", "1/1/5", {}, "no port of sn2100 under onyx is called so"),
        ("onyx/sn2100", "1/1/1", {"more": ["1/1"]}, "box: port 1/1: is cabled whole, and broken out"),
        ("onyx/sn2100", "1/1", {"breakout_a": 8}, "broken out in 8, but a port of sn2100 has 4 lanes"),
        ("onyx/sn2100", "1/1", {"breakout_a": 4}, "is no part of 1/1 broken out in 4 (expected 1/1/1, 1/1/2"),
        ("cumulus/sn2700", "swp33", {}, "sn2700 has 32 ports (expected swp1 to swp32)"),
        ("cumulus/sn2700", "swp2s3", {}, "broken out in 4, a port of sn2700 switches off the next one"),
        ("cumulus/sn2700", "swp1s3", {"more": ["swp2"]}, "a port of sn2700 switches off the next one"),
        ("sonic/sn2700", "Ethernet00", {}, "no port of sn2700 under sonic is called so"),
        ("sonic/sn2700", "Ethernet3", {}, "box: port Ethernet3: is a part of Ethernet0, which is not broken"),
        ("sonic/sn2700", "Ethernet1", {"breakout_a": 2}, "is no part of Ethernet0 broken out in 2 (expected"),
        ("eos/trident3", "Ethernet1", {}, "no port of trident3 under eos is called so"),
        ("eos/trident3", "Ethernet33", {"rate": "25Gbps"}, "25 Gbit/s, but trident3 has 10 Gbit/s there"),
        ("eos/trident3", "Ethernet35", {}, "trident3 has 32 ports (expected Ethernet1/1 to Ethernet32/1)"),
        (
            "eos/trident3",
            "Ethernet1/1",
            {"rate": "100Gbps", "more": ["Ethernet1/2"]},
            "together exceed the 100",
        ),
    ],
)
def test_ports_that_a_box_has_not(model: str, port: str, options: dict[str, Any], message: str) -> None:
    made = fabric(listed(model, port, **options))
    [switch] = Topology(made).switches
    with pytest.raises(UnsupportedPlanError) as refusal:
        check_ports(switch, capabilities(switch.platform, switch.hardware))
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("model", "port", "options"),
    [
        ("onyx/sn2100", "1/1/1", {"rate": "50Gbps", "more": ["1/1/2", "1/2"]}),
        ("cumulus/sn2700", "swp1s1", {"more": ["swp2"]}),
        ("cumulus/sn2700", "swp1s3", {"rate": "25Gbps", "more": ["swp3"]}),
        ("sonic/sn2700", "Ethernet3", {"rate": "25Gbps", "breakout_a": 4}),
        ("sonic/sn2700", "Ethernet2", {"rate": "50Gbps", "breakout_a": 2}),
        ("eos/trident3", "Ethernet1/2", {"rate": "25Gbps", "more": ["Ethernet1/1", "Ethernet33"]}),
        ("eos/tomahawk3", "Ethernet1/8", {"rate": "50Gbps"}),
        ("dell-sonic/trident3", "Ethernet0", {}),
        ("icos/n4000", "fo1/1/1", {"rate": "400Gbps"}),
        ("linux/software", "enp2s0f0", {"rate": "400Gbps"}),
    ],
)
def test_ports_that_a_box_has(model: str, port: str, options: dict[str, Any]) -> None:
    [switch] = Topology(fabric(listed(model, port, **options))).switches
    check_ports(switch, capabilities(switch.platform, switch.hardware))


def rack(**shape: Any) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(RACK)
    data["topology"]["leaf_spine"] |= shape
    return data


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (rack(leaves={"count": 8, "models": {"leaf[1-7]": "eos"}}), "no pattern names leaf8"),
        (
            rack(leaves={"count": 2, "models": {"leaf[1-2]": "eos", "leaf2": "onyx"}}),
            "two patterns name leaf2",
        ),
        (rack(leaves={"count": 2}), "leaves: needs a platform, or models alone"),
        (
            rack(leaves={"count": 2, "platform": "icos", "hardware": "n4000"}),
            "no source names the ports of leaf1 that are broken out in 4",
        ),
        (rack(pods=2), "2 pods need cores that join them"),
        (rack(rails=3), "rails: 8 leaves in groups of 3 leave some over"),
        (rack(cores={"count": 6, "platform": "linux"}), "cores: 6 are no multiple of 4 spines"),
        (rack(uplinks={"parallel": 2, "lag": True}), "no source names link aggregation groups of leaf1"),
        (rack() | {"qos_only": True}, "qos_only: spraying.mode alias needs routes"),
        (rack() | {"addressing": {"hosts": "10.0.0.0/16"}}, "addressing.alias is missing"),
        (
            rack(uplinks={"parallel": 2})
            | {"spraying": {"mode": "srv6"}, "addressing": {"segments": "fd00:1::/32"}},
            "spraying.mode: srv6 has one segment for each spine",
        ),
    ],
)
def test_refused_fabrics(document: dict[str, Any], message: str) -> None:
    with pytest.raises(MltswitchError) as refusal:
        Topology(fabric(document))
    assert message in str(refusal.value)


EXPLICIT = listed("linux/software", "eth1")["topology"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"address": "10.9.0.3"}, "is no address with its prefix's length"),
        ({"address": "10.9.0.3/24", "gateway": "10.8.0.1"}, "gateway 10.8.0.1 is no other address"),
        ({"address": "10.9.0.3/24"}, "an address, but no gateway"),
        ({"address": "10.9.0.3/24", "gateway": "10.9.0.1", "vlan": 7}, "vlan 7 needs qos_only: true"),
        ({"address": "10.0.0.3/24", "gateway": "10.0.0.1"}, "lies in 10.0.0.0/16, whose addresses follow"),
        ({"address": "127.0.0.3/24", "gateway": "127.0.0.1"}, "address 127.0.0.3 cannot be a host's"),
    ],
)
def test_refused_addresses_of_hosts(entry: dict[str, Any], message: str) -> None:
    document = listed("linux/software", "eth1")
    document["topology"] |= {"hosts": [{"name": "host1"} | entry]}
    with pytest.raises(UserInputError, match=message.replace(".", r"\.")):
        Topology(fabric(document))


def test_queues_alone_need_no_address_and_have_no_route() -> None:
    document = rack() | {"qos_only": True, "addressing": {}, "spraying": {"mode": "entropy"}}
    given = [
        {"name": "host1", "address": "10.1.2.3/24", "gateway": "10.1.2.1", "vlan": 12},
        {"name": "host2", "address": "10.1.2.4/24"},
    ]
    document["topology"]["hosts"] = given
    topology = Topology(fabric(document))
    assert {topology.routes(switch.name) for switch in topology.switches} == {()}
    assert [str(host.address) for host in topology.hosts[:3]] == ["10.1.2.3", "10.1.2.4", str(NO_ADDRESS)]
    assert [port.vlan for port in topology.switch("leaf1").ports[:2]] == [12, None]


def test_given_addresses_stand_beside_the_rule() -> None:
    document = rack(hosts_per_leaf=2)
    document["topology"]["hosts"] = [{"name": "host1", "address": "10.1.2.3/24", "gateway": "10.1.2.1"}]
    made = fabric(document)
    topology = Topology(made)
    first = topology.hosts[0]
    assert (str(first.address), str(first.gateway)) == ("10.1.2.3", "10.1.2.1")
    assert {str(route.next_hop) for route in topology.routes("leaf1")} >= {"10.1.2.3"}
    for switch in topology.switches[:5]:
        ways = (
            _best(underlay(made.addressing, topology, switch), first.address)
            if switch.name != "leaf1"
            else set()
        )
        assert {topology.switch(switch.name).port(way).peer for way in ways} <= {"leaf1"}


def test_hosts_with_several_ports_stand_below_neighbouring_leaves() -> None:
    topology = Topology(fabric(rack(rails=4)))
    ports = [host for host in topology.hosts if host.machine == "host17"]
    assert [(host.name, host.interface, host.leaf) for host in ports] == [
        (f"host17.eth{rail}", f"eth{rail}", f"leaf{rail + 5}") for rail in range(4)
    ]
    assert topology.senders[PortRole.LEAF_DOWN] == 128 - 4


def test_parallel_links_are_paths_unless_they_are_one_group() -> None:
    links = {"parallel": 2, "lag": False}
    leaves = {"count": 2, "models": {"leaf1": "sonic/trident3", "leaf2": "sonic/sn2700"}}
    apart = Topology(fabric(rack(leaves=leaves, uplinks=links)))
    assert [path.name for path in apart.paths[:4]] == ["spine1", "spine1.2", "spine2", "spine2.2"]
    joined = Topology(fabric(rack(leaves=leaves, uplinks=links | {"lag": True})))
    assert [path.name for path in joined.paths] == ["spine1", "spine2", "spine3", "spine4"]
    assert [route.port for route in joined.routes("leaf1")[:4]] == [f"PortChannel{n}" for n in range(1, 5)]
    assert [port.lag for port in joined.switch("spine1").ports] == ["bond1", "bond1", "bond2", "bond2"]


def test_links_may_be_listed_from_either_end_and_paths_follow_the_order_of_the_file() -> None:
    """One core with a link to both spines of a pod: its path crosses the spine that stands first."""
    names = {"core1": "core", "spine9": "spine", "spine1": "spine", "leaf1": "leaf"}
    links: list[dict[str, Any]] = [
        {"a": f"{spine}:{port}", "b": f"{other}:{spine}"}
        for spine in ("spine9", "spine1")
        for port, other in (("up", "core1"), ("down1", "leaf1"))
    ]
    group = {"a": "leaf1:bond.1", "b": "spine1:bond.1", "breakout_a": 2, "lag_a": "bond1", "lag_b": "bond2"}
    turned = {"a": "spine1:bond.2", "b": "leaf1:bond.2", "breakout_b": 2, "lag_a": "bond2", "lag_b": "bond1"}
    document = listed("linux/software", "eth1") | {
        "topology": {
            "switches": [{"name": name, "role": role, "platform": "linux"} for name, role in names.items()],
            "links": [*links, group, turned],
        },
        "addressing": {"links": "10.1.0.0/16", "alias": "10.128.0.0/9"},
        "spraying": {"mode": "alias"},
    }
    topology = Topology(fabric(document))
    assert [port.lag for port in topology.switch("leaf1").ports] == ["", "", "bond1", "bond1"]
    ways = dict(zip((path.name for path in topology.paths), topology.routes("leaf1"), strict=False))
    assert topology.switch("leaf1").port(ways["core1"].port).peer == "spine9"
