"""Paths between hosts: checked by walking the plan's routes, not by repeating the rule."""

from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from mltswitch.errors import UnsupportedPlanError, UserInputError
from mltswitch.hostagent.spraying import MOST_PATHS, Spraying
from mltswitch.hostagent.spraying.paths import (
    Path,
    SegmentList,
    SourcePort,
    host_of,
    paths_between,
    segments_of,
    setup_commands,
)
from mltswitch.plan import Fabric, Paths, Plan
from mltswitch.wire import SourceRoute
from tests.plan.examples import SMALL

MODES = ("alias", "srv6", "p4", "entropy", "packet")


def plan_with(mode: str, *, spines: int = 4, port: str = "eth{n}", **changed: Any) -> Plan:
    """What paths need of a plan: mode and fabric; thresholds do not matter here."""
    tier = {"platform": "bmv2", "port_names": {"pattern": port}}
    addressing: dict[str, Any] = {
        "hosts": "10.10.0.0/16",
        "links": "10.20.0.0/16",
        "alias": {f"spine{n}": f"10.{100 + n}.0.0/16" for n in range(1, spines + 1)},
    }
    if mode == "srv6":
        addressing["segments"] = "fd00:6d6c::/32"
    shape = {"spines": tier | {"count": spines}, "leaves": tier | {"count": 3}, "hosts_per_leaf": 2}
    document = SMALL | {
        "topology": {"leaf_spine": shape},
        "addressing": addressing,
        "spraying": {"mode": mode},
    }
    fabric = Fabric.model_validate(document | changed)
    rule = "address = alias prefix of the spine + host index"
    fields: dict[str, Any] = {
        "fabric": fabric,
        "paths": Paths.model_validate({"mode": mode, "rule": rule, "burst_packets": 1}),
    }
    return Plan.model_construct(None, **fields)


def spine_crossed(plan: Plan, first_leaf: str, address: IPv4Address) -> list[str]:
    """Switches that a packet to this address crosses by the plan's routes, longest prefix first."""
    crossed, switch = [], first_leaf
    while switch in plan.topology.by_name:
        crossed.append(switch)
        assert len(crossed) < 5, "a loop"
        fitting = [route for route in plan.topology.routes(switch) if address in route.prefix]
        best = max(fitting, key=lambda route: route.prefix.prefixlen)
        port = plan.topology.switch(switch).port(best.port)
        switch = port.peer
    return [*crossed, switch]


def test_an_alias_crosses_its_spine_both_ways() -> None:
    plan = plan_with("alias")
    paths = paths_between(plan, "host1", "host3")
    assert [path.number for path in paths] == [0, 1, 2, 3]
    for path in paths:
        assert isinstance(path.source, IPv4Address)
        assert isinstance(path.destination, IPv4Address)
        assert spine_crossed(plan, "leaf1", path.destination) == ["leaf1", path.name, "leaf2", "host3"]
        assert spine_crossed(plan, "leaf2", path.source) == ["leaf2", path.name, "leaf1", "host1"]
    assert {path.name for path in paths} == {"spine1", "spine2", "spine3", "spine4"}


@pytest.mark.parametrize("mode", ["alias", "srv6", "p4", "entropy"])
def test_the_way_back_is_the_same_path_turned_round(mode: str) -> None:
    plan = plan_with(mode)
    there, back = paths_between(plan, "host1", "host3"), paths_between(plan, "host3", "host1")
    assert [(path.number, path.name, path.source, path.destination) for path in there] == [
        (path.number, path.name, path.destination, path.source) for path in back
    ]


def test_a_source_route_names_ports_that_lead_to_the_host() -> None:
    plan = plan_with("p4")
    for path in paths_between(plan, "host1", "host5"):
        assert isinstance(path.way, SourceRoute)
        switch, crossed = "leaf1", []
        for number in path.way.ports:
            crossed.append(switch)
            [switch] = [
                port.peer for port in plan.topology.switch(switch).ports if port.name == f"eth{number}"
            ]
        assert (crossed, switch) == (["leaf1", path.name, "leaf3"], "host5")


def test_a_port_without_a_number_has_no_source_route() -> None:
    plan = plan_with("p4", port="eth{n}a")
    with pytest.raises(UnsupportedPlanError, match="does not end with a number"):
        paths_between(plan, "host1", "host3")


@pytest.mark.parametrize("is_sticky", [False, True])
def test_a_segment_list_names_the_spine_then_the_host(is_sticky: bool) -> None:
    plan = plan_with("srv6")
    rules = segments_of(plan)
    paths = paths_between(plan, "host1", "host3", Spraying(sticky=is_sticky))
    assert len({path.destination for path in paths}) == 4
    for path in paths:
        assert isinstance(path.way, SegmentList)
        spine, destination = path.way.segments
        locator = rules.own_locator(plan.topology.switch(path.name))
        assert locator is not None
        assert spine == locator.network_address
        assert destination == path.destination
        assert destination in rules.hosts(1)
        assert path.way.is_sticky == is_sticky


def test_path_addresses_collide_with_no_other() -> None:
    plan = plan_with("srv6")
    rules = segments_of(plan)
    hosts = plan.topology.hosts
    found = [rules.path_address(host, spine) for host in hosts for spine in range(4)]
    found += [rules.host_address(host) for host in hosts]
    ports = [port for switch in plan.topology.switches for port in switch.ports]
    found += [rules.port_addresses(port)[0] for port in ports]
    assert len(found) == len(set(found))


@pytest.mark.parametrize(("spines", "expected"), [(2, 16), (4, 16), (6, 24), (16, 64), (20, 64)])
def test_source_ports_by_the_number_of_spines(spines: int, expected: int) -> None:
    paths = paths_between(plan_with("entropy", spines=spines), "host1", "host3")
    assert len(paths) == expected
    ports = [path.way.port for path in paths if isinstance(path.way, SourcePort)]
    assert ports == list(range(61_000, 61_000 + expected))
    assert len({path.destination for path in paths}) == 1


def test_source_ports_by_setting() -> None:
    options = Spraying(source_ports=3, first_source_port=65_472)
    paths = paths_between(plan_with("entropy"), "host1", "host3", options)
    assert [path.way for path in paths] == [SourcePort(65_472), SourcePort(65_473), SourcePort(65_474)]


@pytest.mark.parametrize("mode", MODES)
def test_hosts_below_one_leaf_have_one_path(mode: str) -> None:
    [path] = paths_between(plan_with(mode), "host1", "host2")
    assert path.name == "leaf1"
    assert not isinstance(path.way, SegmentList | SourcePort)


def test_where_the_switches_choose_there_is_one_path() -> None:
    plan = plan_with("packet")
    [path] = paths_between(plan, "host1", "host3")
    assert path == Path(0, "any spine", host_of(plan, "host1").address, host_of(plan, "host3").address, None)


@pytest.mark.parametrize(
    ("source", "destination", "what"),
    [
        ("host1", "host1", "no path to itself"),
        ("host9", "host1", "no host 'host9'"),
        ("host1", "", "no host ''"),
    ],
)
def test_hosts_that_cannot_be(source: str, destination: str, what: str) -> None:
    with pytest.raises(UserInputError, match=what):
        paths_between(plan_with("alias"), source, destination)


def test_more_spines_than_an_agent_keeps_paths() -> None:
    plan = plan_with("alias", spines=MOST_PATHS + 1)
    with pytest.raises(UnsupportedPlanError, match="65 spines"):
        paths_between(plan, "host1", "host3")


# What root sets up once, as text


def test_setup_of_aliases() -> None:
    lines = setup_commands(plan_with("alias", spines=2), "host3", "host1")
    assert lines == (
        "ip addr replace 10.101.0.65/32 dev eth0",
        "ip addr replace 10.102.0.65/32 dev eth0",
        "ip route replace 10.101.0.0/16 via 10.10.1.5 dev eth0 src 10.101.0.65",
        "ip route replace 10.102.0.0/16 via 10.10.1.5 dev eth0 src 10.102.0.65",
    )


def test_setup_of_segments() -> None:
    lines = setup_commands(plan_with("srv6", spines=2), "host1", "host3")
    assert lines[-2:] == (
        "ip -6 route replace fd00:6d6c:2002:1::101/128 encap seg6 mode inline segs fd00:6d6c:1:: "
        "dev eth0 src fd00:6d6c:2001:1::101",
        "ip -6 route replace fd00:6d6c:2002:1::102/128 encap seg6 mode inline segs fd00:6d6c:2:: "
        "dev eth0 src fd00:6d6c:2001:1::102",
    )
    sticky = setup_commands(plan_with("srv6", spines=2), "host1", "host3", Spraying(sticky=True))
    assert sticky == lines[:-2]


@pytest.mark.parametrize(
    ("mode", "what"), [("p4", "CAP_NET_RAW"), ("entropy", "nothing"), ("packet", "nothing")]
)
def test_setup_of_the_other_modes_runs_nothing(mode: str, what: str) -> None:
    lines = setup_commands(plan_with(mode), "host1", "host3")
    assert all(line.startswith("#") for line in lines)
    assert what in " ".join(lines)


def test_prefixes_of_the_setup_are_the_plans() -> None:
    plan = plan_with("alias")
    prefixes = [
        IPv4Network(line.split()[3]) for line in setup_commands(plan, "host1", "host3") if " route " in line
    ]
    assert prefixes == [prefix for _, prefix in plan.topology.hosts[0].alias_prefixes]
