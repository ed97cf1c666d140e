import re
import subprocess
from pathlib import Path

import pytest

from mltswitch.lab.layout import Layout
from mltswitch.lab.paths import LabPaths
from mltswitch.lab.script import (
    hosts_script,
    native_script,
    switch_files,
    switches_script,
    taps_script,
    vector_devices,
)

PATHS = LabPaths(Path("/srv/lab"))


def scripts(layout: Layout) -> dict[str, str]:
    return {
        "native": native_script(layout, PATHS),
        "switches": switches_script(layout, PATHS),
        "taps": taps_script(layout),
        "hosts": hosts_script(layout),
    }


@pytest.mark.parametrize("name", ["native", "switches", "taps", "hosts"])
def test_the_shell_understands_it(layout: Layout, name: str) -> None:
    script = scripts(layout)[name]
    done = subprocess.run(["sh", "-n"], check=False, input=script, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_it_is_the_same_for_the_same_fabric(layout: Layout) -> None:
    assert scripts(layout) == scripts(layout)


def test_only_our_namespaces_are_named(layout: Layout) -> None:
    for text in scripts(layout).values():
        named = re.findall(r"(?:netns add|netns exec|ip -n|netns) (\S+)", text)
        assert {name for name in named if name not in {"add", "exec"}} <= set(layout.namespaces)


def test_each_cable_is_made_once(layout: Layout) -> None:
    made = re.findall(
        r"link add (\S+) mtu 1500 address \S+ netns (\S+) type veth", native_script(layout, PATHS)
    )
    assert len(made) == len(set(made)) == 4 + 4  # hosts, and two leaves on two spines


def test_both_ways_of_building_give_a_switch_the_same_ports(layout: Layout) -> None:
    for switch in layout.switches:
        for port in switch.ports:
            up = f"link set {port.name} up\naddr add {port.address}/30 dev {port.name}"
            assert up in native_script(layout, PATHS)
            assert up in switches_script(layout, PATHS)


def test_alias_routes_are_left_to_push(layout: Layout) -> None:
    routes = re.findall(r"route add (\S+)", native_script(layout, PATHS))
    assert not [route for route in routes if route.startswith("10.10") is False and route != "default"]


def test_every_vector_device_has_its_tap(layout: Layout) -> None:
    vectors = vector_devices(layout)
    assert list(vectors.values()) == [f"vec{n}" for n in range(5)]
    assert re.findall(r"tuntap add dev tap(\d)", taps_script(layout)) == ["0", "1", "2", "3", "4"]
    for host in layout.real_hosts:
        namespace = layout.namespace(host.name)
        tap = vectors[namespace].replace("vec", "tap")
        assert f"link set {tap} netns {namespace} name eth0" in hosts_script(layout)


def test_sshd_takes_keys_only(layout: Layout) -> None:
    config = switch_files(layout)["sshd_leaf1"]
    assert "PasswordAuthentication no" in config
    assert "StrictModes yes" in config
    assert "ListenAddress 169.254." in config
