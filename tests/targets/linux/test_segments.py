"""SRv6 on a kernel that has it: leaf, spine, leaf, and a packet whose segment list names the spine."""

import contextlib
import json
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from mltswitch.errors import DeviceError
from mltswitch.plan import Fabric, Plan, Segments
from mltswitch.targets import RunningState, SwitchState
from mltswitch.targets.linux import TARGET
from mltswitch.targets.linux.answers import FORWARDING_QUERY, ROUTE_QUERY, SEGMENT_QUERY
from mltswitch.targets.state import differences

CAPABILITIES = TARGET.hardware(None)

SPINE, LEAVES, HOSTS = "spine1", ("leaf1", "leaf2"), ("host1", "host2")


@pytest.fixture(scope="module")
def plan(small_plan: Plan) -> Plan:
    """One spine, two leaves with a host each, segment lists."""
    document = small_plan.model_dump(mode="json", by_alias=True)
    fabric = document["fabric"]
    fabric["topology"]["leaf_spine"]["leaves"]["count"] = 2
    fabric["trusted_ports"] = "all"
    fabric["spraying"] = fabric.get("spraying", {}) | {"mode": "srv6"}
    fabric["addressing"]["segments"] = "fd00:6d6c::/32"
    document["fabric"] = Fabric.model_validate(fabric).model_dump(mode="json", by_alias=True)
    document["paths"]["mode"] = "srv6"
    return Plan.model_validate(document)


@dataclass(frozen=True)
class Rack:
    """A namespace for each switch and each host, cabled and addressed as the plan says."""

    prefix: str
    plan: Plan

    def run(self, name: str, command: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["ip", "netns", "exec", self.prefix + name, "sh", "-c", command],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def do(self, name: str, command: str, stdin: str = "") -> str:
        done = self.run(name, command, stdin)
        assert done.returncode == 0, f"{name}: {command}: {done.stderr}"
        return done.stdout

    def state(self, switch: str) -> SwitchState:
        """Routes of IPv6 alone: this kernel need not have the queues."""
        return replace(TARGET.quantise(self.plan, switch).state, ports=(), routes=())

    def read(self, switch: str, wanted: SwitchState) -> RunningState:
        answers = {query: self.do(switch, query) for query in TARGET.queries(wanted)}
        return TARGET.read(answers, wanted, CAPABILITIES)

    def push(self, switch: str) -> None:
        wanted = self.state(switch)
        for step in TARGET.diff(self.read(switch, wanted), wanted, CAPABILITIES).steps:
            self.do(switch, step.command, step.stdin)


@pytest.fixture
def rack(plan: Plan) -> Iterator[Rack]:
    prefix = f"mlt-{uuid.uuid4().hex[:6]}-"
    names = (SPINE, *LEAVES, *HOSTS)
    with contextlib.ExitStack() as stack:
        for name in names:
            made = subprocess.run(["ip", "netns", "add", prefix + name], capture_output=True, check=False)
            if made.returncode:
                pytest.skip("no network namespaces here")
            stack.callback(subprocess.run, ["ip", "netns", "del", prefix + name], check=True)
        built = Rack(prefix, plan)
        _cable(built)
        probe = built.run(
            SPINE,
            "ip -6 route add fd00::1/128 encap seg6local action End dev eth1 && ip -6 route del fd00::1",
        )
        if probe.returncode:
            pytest.skip("this kernel has no SRv6 (CONFIG_IPV6_SEG6_LWTUNNEL)")
        yield built


def _cable(rack: Rack) -> None:
    segments = Segments(
        rack.plan.fabric.addressing.segments or pytest.fail("no block"), rack.plan.fabric.addressing
    )
    topology = rack.plan.topology
    for leaf in LEAVES:
        for port in topology.switch(leaf).ports:
            peer = "eth0" if port.peer_is_host else port.peer_port
            host = topology.hosts[LEAVES.index(leaf)]
            other = HOSTS[LEAVES.index(leaf)] if port.peer_is_host else port.peer
            own, far = segments.port_addresses(port)
            rack.do(leaf, f"ip link add {port.name} type veth peer name {peer} netns {rack.prefix}{other}")
            for name, interface, address in ((leaf, port.name, own), (other, peer, far)):
                rack.do(name, f"ip addr add {address}/64 dev {interface} nodad && ip link set {interface} up")
            if port.peer_is_host:
                assert far == segments.host_address(host)
                rack.do(
                    other, f"ip -6 route add default via {own}; sysctl -q -w net.ipv6.conf.all.seg6_enabled=1"
                )
                rack.do(other, "sysctl -q -w net.ipv6.conf.eth0.seg6_enabled=1")


@pytest.mark.root
def test_a_segment_list_leads_over_the_spine(rack: Rack) -> None:
    for switch in (SPINE, *LEAVES):
        rack.push(switch)
        wanted = rack.state(switch)
        found = rack.read(switch, wanted)
        assert differences(wanted, found.state) == ()
        assert TARGET.diff(found, wanted, CAPABILITIES).is_empty
    segments = Segments(
        rack.plan.fabric.addressing.segments or pytest.fail("no block"), rack.plan.fabric.addressing
    )
    near, far = (segments.host_address(host) for host in rack.plan.topology.hosts)
    segment = segments.locator(0).network_address
    assert rack.run("host1", f"ping -6 -c 1 -W 1 {far}").returncode != 0
    for host, other in (("host1", far), ("host2", near)):
        rack.do(
            host,
            f"ip -6 route add {other}/128 encap seg6 mode inline segs {segment} dev eth0 via "
            + str(segments.port_addresses(rack.plan.topology.switch(LEAVES[HOSTS.index(host)]).ports[0])[0]),
        )
    rack.do("host1", f"ping -6 -c 3 -i 0.2 -W 2 {far}")
    text = rack.do(SPINE, "ip -6 -s -j route show")
    assert str(segment) in text


@pytest.mark.root
def test_a_change_and_back_on_a_real_kernel(rack: Rack) -> None:
    rack.push(SPINE)
    wanted = rack.state(SPINE)
    assert wanted.segment_routing is not None
    fewer = replace(wanted, segment_routing=None)
    for goal in (fewer, fewer, wanted, wanted):
        for step in TARGET.diff(rack.read(SPINE, goal), goal, CAPABILITIES).steps:
            rack.do(SPINE, step.command, step.stdin)
        assert rack.read(SPINE, goal).state == goal
    segment = wanted.segment_routing.segment
    rack.do(
        SPINE,
        f"ip -6 route del {segment}; ip -6 route add {segment} encap seg6local action End dev eth2 proto 173",
    )
    (found,) = differences(wanted, rack.read(SPINE, wanted).state)
    assert found.field == "segment routing locator"
    rack.push(SPINE)
    assert rack.read(SPINE, wanted).state == wanted


@pytest.mark.root
@pytest.mark.parametrize("sent", [0, 1, 2, 3, None])
@pytest.mark.parametrize("blind", [True, False])
@pytest.mark.parametrize("start", ["empty", "another segment"])
def test_the_way_back_leads_to_what_ran(rack: Rack, start: str, sent: int | None, blind: bool) -> None:
    """Forwarding, too: setting it for all interfaces had set it for each."""
    show = "ip -j -N -6 route show proto 173; grep . /proc/sys/net/ipv6/conf/*/forwarding"
    wanted = rack.state(SPINE)
    assert wanted.segment_routing is not None
    rack.do(SPINE, "sysctl -q -w net.ipv6.conf.eth2.forwarding=1")
    if start != "empty":
        way = wanted.segment_routing.routes[0]
        rack.do(
            SPINE,
            f"ip -6 route add {way.prefix} dev {way.port} proto 173; ip -6 route add "
            f"{wanted.segment_routing.segment} encap seg6local action End dev eth2 proto 173",
        )
    at_start, before = rack.do(SPINE, show), rack.read(SPINE, wanted)
    forwarding, routes = TARGET.diff(before, wanted, CAPABILITIES).steps
    if sent != 0:
        rack.do(SPINE, forwarding.command)
        lines = routes.stdin.splitlines(keepends=True)
        rack.do(SPINE, routes.command, "".join(lines[: len(lines) if sent is None else sent - 1]))
    now = RunningState(wanted, {}) if blind else rack.read(SPINE, wanted)
    for step in TARGET.restore(before.answers, now, wanted, CAPABILITIES).steps:
        rack.do(SPINE, step.command, step.stdin)
    assert rack.do(SPINE, show) == at_start
    assert TARGET.restore(before.answers, rack.read(SPINE, wanted), wanted, CAPABILITIES).is_empty


@pytest.mark.root
def test_a_route_of_somebody_else_within_the_plans_prefixes_is_reported(rack: Rack) -> None:
    rack.push("leaf1")
    wanted = rack.state("leaf1")
    assert wanted.segment_routing is not None
    prefix = wanted.segment_routing.routes[0].prefix
    rack.do("leaf1", f"ip -6 route add {prefix.network_address + 5}/128 dev eth1 proto static")
    with pytest.raises(DeviceError, match="lies within a prefix") as caught:
        rack.read("leaf1", wanted)
    rack.do("leaf1", caught.value.hint.split("remove it: ")[1])
    assert rack.read("leaf1", wanted).state == wanted


ANSWERS = [
    {"type": "1", "dst": "fd00:6d6c:1::", "encap": "seg6local", "action": "End", "dev": "eth1"},
    {"type": "1", "dst": "fd00:6d6c:2001::/48", "gateway": "fd00:6d6c:3000::1", "dev": "eth1"},
    {"type": "1", "dst": "fd00:6d6c:2002::/48", "gateway": "fd00:6d6c:3000:1::1", "dev": "eth2"},
]
"""What iproute2 6.1 on Linux 6.18 answered, without the fields that all of them share."""


FORWARDS = "/proc/sys/net/ipv6/conf/all/forwarding:1\n"


def answered(wanted: SwitchState, changes: dict[str, object]) -> dict[str, str]:
    entries = [entry | {"protocol": "173", "metric": 1024, "pref": "medium"} for entry in ANSWERS]
    entries[0] |= changes
    answers = dict.fromkeys(TARGET.queries(wanted), "")
    return answers | {SEGMENT_QUERY: json.dumps(entries), FORWARDING_QUERY: FORWARDS, ROUTE_QUERY: "[]"}


@pytest.fixture
def spine(plan: Plan) -> SwitchState:
    return TARGET.quantise(plan, SPINE).state


def test_recorded_routes_are_the_plan(spine: SwitchState) -> None:
    bare = replace(spine, ports=(), routes=())
    found = TARGET.read(answered(bare, {}), bare, CAPABILITIES)
    assert found.state == bare


@pytest.mark.parametrize(
    "changes", [{"dev": "eth2"}, {"action": "End.DT6"}, {"dst": "fd00:6d6c:1::2"}, {"encap": "seg6"}]
)
def test_a_segment_that_is_not_the_plans_is_none(spine: SwitchState, changes: dict[str, object]) -> None:
    bare = replace(spine, ports=(), routes=())
    found = TARGET.read(answered(bare, changes), bare, CAPABILITIES)
    assert found.state.segment_routing is not None
    assert found.state.segment_routing.locator is None
    assert "action End dev eth1 proto 173" in TARGET.diff(found, bare, CAPABILITIES).steps[-1].stdin


def test_a_metric_is_somebody_elses(spine: SwitchState) -> None:
    bare = replace(spine, ports=(), routes=())
    with pytest.raises(DeviceError, match="metric or several next hops"):
        TARGET.read(answered(bare, {"metric": 7}), bare, CAPABILITIES)


def test_a_switch_that_does_not_forward_is_told_to(spine: SwitchState) -> None:
    """Without a queue being touched."""
    running = replace(
        spine, ports=(replace(spine.ports[0], unexpected=("IPv6 is not forwarded",)), *spine.ports[1:])
    )
    change = TARGET.diff(RunningState(running, {}), spine, CAPABILITIES)
    assert [step.command for step in change.steps] == ["sysctl -q -w net.ipv6.conf.all.forwarding=1"]
