from dataclasses import replace
from typing import Any

import pytest

from mltswitch.errors import UserInputError
from mltswitch.lab.bmv2_node import NAMESPACE_PREFIX
from mltswitch.lab.layout import Layout, lay_out
from mltswitch.lab.supervisor import port_count
from mltswitch.plan import Fabric
from mltswitch.wire.hardware_address import hardware_address
from tests.lab.conftest import DEVICES


def test_every_namespace_carries_the_prefix(layout: Layout) -> None:
    names = layout.namespaces
    assert len(names) == len(set(names)) == 1 + 4 + 4
    assert all(name.startswith(NAMESPACE_PREFIX) for name in names)


def test_hosts_behind_emulated_switches_exist_on_paper_only(layout: Layout) -> None:
    names = [host.name for host in layout.topology.hosts]
    assert [name for name in names if not layout.namespace(name)] == ["host5", "host6"]
    spine = layout.topology.switch("spine1")
    assert {port.name for port in {*spine.ports} - {*layout.cabled_ports(spine)}} == {"eth3", "eth4"}


def test_underlay(layout: Layout) -> None:
    routes = {
        switch.name: {str(prefix): [*map(str, hops)] for prefix, hops in layout.routes(switch).items()}
        for switch in layout.switches
    }
    assert routes["leaf2"] == {"10.10.0.0/16": ["10.20.0.10", "10.20.0.14"]}
    assert routes["spine2"] == {"10.10.0.0/24": ["10.20.0.5"], "10.10.1.0/24": ["10.20.0.13"]}


def test_a_spine_route_holds_its_leafs_hosts(layout: Layout) -> None:
    spine = layout.switches[0]
    for host in layout.real_hosts:
        [hops] = [hops for prefix, hops in layout.routes(spine).items() if host.address in prefix]
        assert hops == [port.peer_address for port in spine.ports if port.peer == host.leaf]


def test_hardware_addresses_are_unique_and_locally_administered(layout: Layout) -> None:
    addresses = [port.address for switch in layout.switches for port in switch.ports]
    addresses += [host.address for host in layout.topology.hosts]
    macs = {hardware_address(address) for address in addresses}
    assert len(macs) == len(addresses)
    assert all(int(mac[:2], 16) & 0b11 == 0b10 for mac in macs)


def test_emulators_have_the_ports_that_the_fabric_cables(layout: Layout) -> None:
    assert {emulator.name: port_count(emulator) for emulator in layout.emulators} == {
        "onyx1": 16,
        "sonic1": 32,
    }


def test_without_switches_only_emulators_are_left(lab_fabric: Fabric) -> None:
    layout = lay_out(lab_fabric, DEVICES, with_switches=False)
    assert not layout.namespaces
    assert not layout.real_hosts
    assert len(layout.emulators) == 2


OPEN_ADDRESSES = ("0.0.0.0", "10.0.0.1", "128.0.0.1", "::1", "::", "localhost")  # noqa: S104  (to be refused)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "leaf9"}, "no switch 'leaf9'"),
        ({"platform": "onyx"}, "spine1: the inventory says platform onyx"),
        ({"address": DEVICES[1].address}, "is given to spine1 as well"),
        *(({"address": each}, f"spine1: the lab does not listen on {each}") for each in OPEN_ADDRESSES),
    ],
)
def test_what_is_no_device_of_the_lab(lab_fabric: Fabric, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserInputError, match=said):
        lay_out(lab_fabric, [replace(DEVICES[0], **changes), DEVICES[1]], with_switches=True)
