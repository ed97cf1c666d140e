"""SRv6 on a kernel that has it: leaf, spine, leaf, and a packet whose segment list names the spine."""

import contextlib
import json
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mltswitch.errors import DeviceError
from mltswitch.plan import Plan, Segments
from mltswitch.targets import RunningState, SwitchState
from mltswitch.targets.linux import TARGET
from mltswitch.targets.linux.answers import FORWARDING_QUERY, ROUTE_QUERY, SEGMENT_QUERY
from mltswitch.targets.state import differences
from tests.targets.linux.test_kernel import CAPABILITIES, apply, do, read
from tests.targets.linux.uml import Namespace

SPINE, LEAVES, HOSTS = "spine1", ("leaf1", "leaf2"), ("host1", "host2")


@pytest.fixture(scope="module")
def plan(small_plan: Plan) -> Plan:
    """One spine, two leaves with a host each, segment lists."""
    document = small_plan.model_dump(mode="json", by_alias=True)
    fabric = document["fabric"]
    fabric["topology"]["leaf_spine"]["leaves"]["count"] = 2
    fabric["addressing"]["segments"] = "fd00:6d6c::/32"
    fabric |= {"trusted_ports": "all", "spraying": {"mode": "srv6"}}
    document["paths"]["mode"] = "srv6"
    return Plan.model_validate(document)


@dataclass(frozen=True)
class Rack:
    """A namespace for each switch and each host, cabled and addressed as the plan says."""

    plan: Plan
    machines: Mapping[str, Namespace]

    @property
    def segments(self) -> Segments:
        addressing = self.plan.fabric.addressing
        assert addressing.segments is not None
        return Segments(addressing.segments, addressing)

    def do(self, name: str, command: str) -> str:
        return do(self.machines[name], command)

    def state(self, switch: str) -> SwitchState:
        """Routes of IPv6 alone: this kernel need not have the queues."""
        return replace(TARGET.fit_to_hardware(self.plan, switch).state, ports=(), routes=())

    def push(self, switch: str, wanted: SwitchState) -> None:
        machine = self.machines[switch]
        apply(machine, TARGET.diff(read(machine, wanted), wanted, CAPABILITIES))
        found = read(machine, wanted)
        assert found.state == wanted
        assert TARGET.diff(found, wanted, CAPABILITIES).is_empty


@pytest.fixture
def rack(plan: Plan, tmp_path: Path) -> Iterator[Rack]:
    prefix = f"mlt-{uuid.uuid4().hex[:6]}-"
    machines = {name: Namespace(prefix + name, tmp_path) for name in (SPINE, *LEAVES, *HOSTS)}
    with contextlib.ExitStack() as stack:
        for machine in machines.values():
            made = subprocess.run(["ip", "netns", "add", machine.name], capture_output=True, check=False)
            if made.returncode:
                pytest.skip("no network namespaces here")
            stack.callback(subprocess.run, ["ip", "netns", "del", machine.name], check=True)
        built = Rack(plan, machines)
        _cable(built)
        probe = "ip -6 route add fd00::1/128 encap seg6local action End dev eth1 && ip -6 route del fd00::1"
        if machines[SPINE].run(probe).status:
            pytest.skip("this kernel has no SRv6 (CONFIG_IPV6_SEG6_LWTUNNEL)")
        yield built


def _cable(rack: Rack) -> None:
    topology = rack.plan.topology
    for leaf, its_host, host in zip(LEAVES, HOSTS, topology.hosts, strict=True):
        for port in topology.switch(leaf).ports:
            other, peer = (its_host, "eth0") if port.peer_is_host else (port.peer, port.peer_port)
            own, far = rack.segments.port_addresses(port)
            netns = rack.machines[other].name
            rack.do(leaf, f"ip link add {port.name} type veth peer name {peer} netns {netns}")
            for name, interface, address in ((leaf, port.name, own), (other, peer, far)):
                rack.do(name, f"ip addr add {address}/64 dev {interface} nodad && ip link set {interface} up")
            if port.peer_is_host:
                assert far == rack.segments.host_address(host)
                enabled = " ".join(f"net.ipv6.conf.{which}.seg6_enabled=1" for which in ("all", "eth0"))
                rack.do(other, f"ip -6 route add default via {own}; sysctl -q -w {enabled}")


@pytest.mark.root
def test_a_segment_list_leads_over_the_spine(rack: Rack) -> None:
    for switch in (SPINE, *LEAVES):
        rack.push(switch, rack.state(switch))
    topology, segment = rack.plan.topology, rack.segments.locator(0).network_address
    near, far = map(rack.segments.host_address, topology.hosts)
    assert rack.machines["host1"].run(f"ping -6 -c 1 -W 1 {far}").status != 0
    for host, leaf, other in zip(HOSTS, LEAVES, (far, near), strict=True):
        gateway, _ = rack.segments.port_addresses(topology.switch(leaf).ports[0])
        way = f"encap seg6 mode inline segs {segment} dev eth0 via {gateway}"
        rack.do(host, f"ip -6 route add {other}/128 {way}")
    rack.do("host1", f"ping -6 -c 3 -i 0.2 -W 2 {far}")
    assert str(segment) in rack.do(SPINE, "ip -6 -s -j route show")


@pytest.mark.root
def test_a_change_and_back_on_a_real_kernel(rack: Rack) -> None:
    wanted = rack.state(SPINE)
    assert wanted.segment_routing is not None
    fewer = replace(wanted, segment_routing=None)
    for goal in (wanted, fewer, fewer, wanted, wanted):
        rack.push(SPINE, goal)
    segment = (
        f"ip -6 route del {wanted.segment_routing.segment}; ip -6 route add {wanted.segment_routing.segment}"
    )
    rack.do(SPINE, f"{segment} encap seg6local action End dev eth2 proto 173")
    (found,) = differences(wanted, read(rack.machines[SPINE], wanted).state)
    assert found.field == "segment routing locator"
    rack.push(SPINE, wanted)


@pytest.mark.root
@pytest.mark.parametrize("sent", [0, 1, 2, 3, None])
@pytest.mark.parametrize("blind", [True, False])
@pytest.mark.parametrize("start", ["empty", "another segment"])
def test_the_way_back_leads_to_what_ran(rack: Rack, start: str, sent: int | None, blind: bool) -> None:
    """Forwarding, too: setting it for all interfaces had set it for each."""
    show = "ip -j -N -6 route show proto 173; grep . /proc/sys/net/ipv6/conf/*/forwarding"
    spine, wanted = rack.machines[SPINE], rack.state(SPINE)
    assert wanted.segment_routing is not None
    do(spine, "sysctl -q -w net.ipv6.conf.eth2.forwarding=1")
    if start != "empty":
        way = wanted.segment_routing.routes[0]
        do(spine, f"ip -6 route add {way.prefix} dev {way.port} proto 173")
        local = "encap seg6local action End dev eth2 proto 173"
        do(spine, f"ip -6 route add {wanted.segment_routing.segment} {local}")
    at_start, before = do(spine, show), read(spine, wanted)
    forwarding, routes = TARGET.diff(before, wanted, CAPABILITIES).steps
    if sent != 0:
        do(spine, forwarding.command)
        lines = routes.stdin.splitlines(keepends=True)
        do(spine, routes.command, "".join(lines[: len(lines) if sent is None else sent - 1]))
    now = RunningState(wanted, {}) if blind else read(spine, wanted)
    apply(spine, TARGET.restore(before.answers, now, wanted, CAPABILITIES))
    assert do(spine, show) == at_start
    assert TARGET.restore(before.answers, read(spine, wanted), wanted, CAPABILITIES).is_empty


@pytest.mark.root
def test_a_route_of_somebody_else_within_the_plans_prefixes_is_reported(rack: Rack) -> None:
    leaf, wanted = rack.machines["leaf1"], rack.state("leaf1")
    rack.push("leaf1", wanted)
    assert wanted.segment_routing is not None
    prefix = wanted.segment_routing.routes[0].prefix
    do(leaf, f"ip -6 route add {prefix.network_address + 5}/128 dev eth1 proto static")
    with pytest.raises(DeviceError, match="lies within a prefix") as caught:
        read(leaf, wanted)
    do(leaf, caught.value.hint.split("remove it: ")[1])
    assert read(leaf, wanted).state == wanted


ANSWERS = [
    {"type": "1", "dst": "fd00:6d6c:1::", "encap": "seg6local", "action": "End", "dev": "eth1"},
    {"type": "1", "dst": "fd00:6d6c:2001::/48", "gateway": "fd00:6d6c:3000::1", "dev": "eth1"},
    {"type": "1", "dst": "fd00:6d6c:2002::/48", "gateway": "fd00:6d6c:3000:1::1", "dev": "eth2"},
]
"""What iproute2 6.1 on Linux 6.18 answered, without the fields that all of them share."""


FORWARDS = "/proc/sys/net/ipv6/conf/all/forwarding:1\n"


def answered(wanted: SwitchState, changes: Mapping[str, object]) -> RunningState:
    """What is read where these fields of the segment's route are others."""
    entries = [entry | {"protocol": "173", "metric": 1024, "pref": "medium"} for entry in ANSWERS]
    entries[0] |= changes
    answers = dict.fromkeys(TARGET.queries(wanted), "") | {ROUTE_QUERY: "[]", FORWARDING_QUERY: FORWARDS}
    return TARGET.read(answers | {SEGMENT_QUERY: json.dumps(entries)}, wanted, CAPABILITIES)


@pytest.fixture
def spine(plan: Plan) -> SwitchState:
    return TARGET.fit_to_hardware(plan, SPINE).state


@pytest.fixture
def bare(spine: SwitchState) -> SwitchState:
    return replace(spine, ports=(), routes=())


def test_recorded_routes_are_the_plan(bare: SwitchState) -> None:
    assert answered(bare, {}).state == bare


@pytest.mark.parametrize(
    "changes", [{"dev": "eth2"}, {"action": "End.DT6"}, {"dst": "fd00:6d6c:1::2"}, {"encap": "seg6"}]
)
def test_a_segment_that_is_not_the_plans_is_none(bare: SwitchState, changes: dict[str, object]) -> None:
    found = answered(bare, changes)
    assert found.state.segment_routing is not None
    assert found.state.segment_routing.locator is None
    assert "action End dev eth1 proto 173" in TARGET.diff(found, bare, CAPABILITIES).steps[-1].stdin


def test_a_metric_is_somebody_elses(bare: SwitchState) -> None:
    with pytest.raises(DeviceError, match="metric or several next hops"):
        answered(bare, {"metric": 7})


def test_a_switch_that_does_not_forward_is_told_to(spine: SwitchState) -> None:
    """Without a queue being touched."""
    first, *others = spine.ports
    running = replace(spine, ports=(replace(first, unexpected=("IPv6 is not forwarded",)), *others))
    change = TARGET.diff(RunningState(running, {}), spine, CAPABILITIES)
    assert [step.command for step in change.steps] == ["sysctl -q -w net.ipv6.conf.all.forwarding=1"]
