"""What root sets up once, as text."""

from ipaddress import IPv4Network

import pytest

from mltswitch.hostagent.fields import Spraying
from mltswitch.hostagent.spraying.paths import setup_commands
from tests.hostagent.spraying.test_paths import plan_with


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
