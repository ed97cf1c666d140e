"""The same laws against real tc and ip: what is loaded is what is read, and a change leads to the plan."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from mltswitch.capabilities import BitRate, BytesLimit
from mltswitch.errors import DeviceError
from mltswitch.plan import Plan
from mltswitch.targets import Change, QueueState, RunningState, SwitchState
from mltswitch.targets.linux import TARGET
from mltswitch.targets.state import differences
from tests.measuring import measured
from tests.targets.linux.test_golden import ANSWERS
from tests.targets.linux.uml import Machine
from tests.targets.stories import Case, stories
from tests.targets.strategies import plans

CAPABILITIES = TARGET.hardware(None)

pytestmark = pytest.mark.lab


def do(linux: Machine, command: str, stdin: str = "") -> str:
    answer = linux.run(command, stdin)
    assert answer.status == 0, f"{command}: {answer.error}"
    return answer.output


def load(linux: Machine, state: SwitchState) -> None:
    files = TARGET.render(state, CAPABILITIES)
    do(linux, "tc -batch -", files["qdiscs.tc"])
    do(linux, "ip -batch -", files["routes.ip"])


def read(linux: Machine, state: SwitchState) -> RunningState:
    return TARGET.read({query: do(linux, query) for query in TARGET.queries(state)}, state, CAPABILITIES)


def apply(linux: Machine, change: Change) -> None:
    for step in change.steps:
        do(linux, step.command, step.stdin)


def empty(linux: Machine) -> None:
    """Without ports, and without the routes that are no port's since they discard."""
    do(linux, "for port in $(ls /sys/class/net | grep eth); do ip link del $port; done")
    do(linux, "ip route flush proto 173 type blackhole")


def connect(linux: Machine, plan: Plan, switch: str) -> None:
    """Empty interfaces with the plan's addresses."""
    lines = ["link set lo up"]
    for port in plan.topology.switch(switch).ports:
        lines += [
            f"link add {port.name} type dummy",
            f"addr add {port.address}/30 dev {port.name}",
            f"link set {port.name} up",
        ]
    empty(linux)
    do(linux, "ip -batch -", "".join(f"{line}\n" for line in lines))


@pytest.fixture
def running(linux: Machine, small_plan: Plan, state: SwitchState) -> SwitchState:
    """The plan, in place: to build it anew takes user-mode-linux longer than most tests."""
    with suppress(AssertionError, DeviceError):
        if read(linux, state).state == state:
            return state
    connect(linux, small_plan, "leaf1")
    load(linux, state)
    assert read(linux, state).state == state
    return state


@settings(deadline=None, max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans(replace(TARGET.hardware(None), segment_routing=None)))
def test_random_plans_are_read_back_exactly(linux: Machine, plan: Plan) -> None:
    switch = plan.topology.switches[-1].name
    state = TARGET.fit_to_hardware(plan, switch).state
    connect(linux, plan, switch)
    load(linux, state)
    found = read(linux, state)
    assert differences(state, found.state) == ()
    assert found.state == state
    assert TARGET.diff(found, state, CAPABILITIES).is_empty


def test_a_second_load_changes_nothing(linux: Machine, running: SwitchState, update_golden: bool) -> None:
    load(linux, running)
    found = read(linux, running)
    assert found.state == running
    if update_golden:
        ANSWERS.write_text(json.dumps(found.answers, indent=1) + "\n")


def test_an_empty_switch_is_built_by_a_change(linux: Machine, small_plan: Plan, state: SwitchState) -> None:
    connect(linux, small_plan, "leaf1")
    found = read(linux, state)
    assert found.state == SwitchState((), ())
    assert [str(entry) for entry in differences(state, found.state)][:2] == [
        "port eth1: configuration expected present, found absent",
        "port eth2: configuration expected present, found absent",
    ]
    apply(linux, TARGET.diff(found, state, CAPABILITIES))
    assert read(linux, state).state == state


BACKGROUND = set(range(64)) - {10, 12, 40, 48, 56}
WORDS = {
    "BACKGROUND": BACKGROUND,
    "BACKGROUND_WITHOUT_20": BACKGROUND - {20},
    "BACKGROUND_AND_10": BACKGROUND | {10},
    "ALL_BUT_0": set(range(1, 64)),
}


@pytest.mark.parametrize(
    "case",
    stories(
        Path(__file__).parent / "by_hand.txt",
        {name: str(tuple(sorted(dscps))) for name, dscps in WORDS.items()},
    ),
)
def test_a_change_by_hand_is_named_and_mended(linux: Machine, running: SwitchState, case: Case) -> None:
    """Where a story says nothing of it, a push may build the port anew."""
    do(linux, *case.of("$"))
    found = read(linux, running)
    assert [str(entry) for entry in differences(running, found.state)] == case.of("=")
    change = TARGET.diff(found, running, CAPABILITIES)
    lines = [line for step in change.steps for line in step.stdin.splitlines()]
    assert case.of(">") in ([], lines)
    apply(linux, change)
    assert read(linux, running).state == running


def test_a_route_of_somebody_else_is_never_replaced(
    linux: Machine, small_plan: Plan, state: SwitchState
) -> None:
    connect(linux, small_plan, "leaf1")
    batch = TARGET.diff(read(linux, state), state, CAPABILITIES).steps[1]
    do(linux, "ip route add 10.100.0.0/16 dev eth1 proto static")
    answer = linux.run(batch.command, batch.stdin)
    assert answer.status != 0
    assert "File exists" in answer.error
    assert "proto static" in do(linux, "ip route show 10.100.0.0/16")


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ("10.100.3.0/24 dev eth1 proto static", "within an alias prefix"),
        ("blackhole 10.100.0.0/17", "within an alias prefix"),
        ("10.100.0.1/32 dev eth2 metric 7", "within an alias prefix"),
        ("10.77.0.0/16 dev eth2 proto 173 metric 7", "Somebody else"),
    ],
)
def test_a_route_of_somebody_else_where_ours_stand_is_reported(
    linux: Machine, running: SwitchState, route: str, said: str
) -> None:
    do(linux, f"ip route add {route}")
    with pytest.raises(DeviceError, match=said) as caught:
        read(linux, running)
    do(linux, caught.value.hint.split("remove it: ")[1] if "alias" in said else f"ip route del {route}")
    assert read(linux, running).state == running


def test_other_routes_are_not_ours_to_judge(linux: Machine, running: SwitchState) -> None:
    do(linux, "ip route add 10.0.0.0/8 dev eth1 metric 9; ip route add blackhole 10.99.0.0/16")
    assert read(linux, running).state == running
    do(linux, "ip route del 10.0.0.0/8 metric 9; ip route del blackhole 10.99.0.0/16")


FILTER = "filter add dev eth2"


@pytest.mark.parametrize(
    ("command", "seen", "undo"),
    [
        (
            "qdisc del dev eth2 clsact; tc qdisc add dev eth2 ingress",
            "ingress",
            "qdisc del dev eth2 ingress; tc qdisc add dev eth2 clsact",
        ),
        (
            f"{FILTER} ingress protocol all prio 9 matchall action drop",
            "matchall for all, preference 9",
            "filter del dev eth2 ingress prio 9",
        ),
        (
            f"{FILTER} egress protocol all prio 9 matchall action drop",
            "matchall for all, preference 9",
            "filter del dev eth2 egress prio 9",
        ),
        (  # It rewrites ECN, too.
            f"{FILTER} ingress protocol ip prio 1 flower "
            "action pedit ex munge ip dsfield set 0x00 pipe action csum ip4h",
            "flower for ip, preference 1",
            "filter del dev eth2 ingress protocol ip prio 1",
        ),
    ],
)
def test_a_filter_of_somebody_else_is_seen_and_not_removed(
    linux: Machine, running: SwitchState, command: str, seen: str, undo: str
) -> None:
    do(linux, f"tc {command}")
    found = read(linux, running)
    with pytest.raises(DeviceError, match=f"eth2 has {seen}") as caught:
        TARGET.diff(found, running, CAPABILITIES)
    assert " filter del " not in caught.value.hint
    do(linux, f"tc {undo}")
    assert read(linux, running).state == running


def test_queues_of_somebody_else_are_shown_before_they_go(
    linux: Machine, small_plan: Plan, state: SwitchState
) -> None:
    connect(linux, small_plan, "leaf1")
    do(linux, "tc qdisc add dev eth1 root handle 77: htb")
    change = TARGET.diff(read(linux, state), state, CAPABILITIES)
    assert change.text.startswith(
        "# eth1: built anew; all packets that wait in its queues are dropped\n"
        "# eth1: removes root htb 77:, which has no way back\n"
    )
    assert "# eth2: removes" not in change.text
    apply(linux, change)
    assert read(linux, state).state == state


def test_a_second_change_moves_only_what_differs(linux: Machine, running: SwitchState) -> None:
    port = running.ports[0]
    queues = tuple(
        replace(queue, ecn_threshold_bytes=15140) if queue.queue == 4 else queue for queue in port.queues
    )
    wanted = SwitchState((replace(port, queues=queues), *running.ports[1:]), running.routes)
    change = TARGET.diff(read(linux, wanted), wanted, CAPABILITIES)
    assert change.steps[0].stdin.count("\n") == 1
    apply(linux, change)
    assert read(linux, wanted).state == wanted
    apply(linux, TARGET.diff(read(linux, running), running, CAPABILITIES))
    assert read(linux, running).state == running


def test_sixteen_queues(linux: Machine, small_plan: Plan, running: SwitchState) -> None:
    port = running.ports[1]
    queues = tuple(QueueState(n, (n,), 3000 + n, BytesLimit(9000 + n)) for n in range(1, 17))
    last = replace(queues[-1], dscps=(0, *range(16, 64)))
    wanted = SwitchState((replace(port, trusted=True, queues=(*queues[:-1], last)),), ())
    load(linux, wanted)
    assert read(linux, wanted).state.ports == wanted.ports


# Neighbours are asked for once and not again, however slow the machine: ARP is counted.
HOSTS_UP = """
set -e
sysctl -qw net.ipv4.ip_forward=1
for host in near far; do unshare -n sleep 600 >/dev/null 2>&1 & echo $! >$host.pid; done
own=$(readlink /proc/self/ns/net)
for host in near far; do
    while test "$(readlink /proc/$(cat $host.pid)/ns/net)" = "$own"; do sleep 0.1; done
done
ip link add eth1 type veth peer name eth0 netns $(cat near.pid)
ip link add eth2 type veth peer name eth0 netns $(cat far.pid)
for port in eth1 eth2; do
    sysctl -eqw net.ipv6.conf.$port.disable_ipv6=1
    sysctl -qw net.ipv4.neigh.$port.delay_first_probe_time=600
done
ip addr add 10.0.0.5/30 dev eth1
ip addr add 10.1.0.1/30 dev eth2
ip link set eth1 up
ip link set eth2 up
up() {
    nsenter -t $(cat $1.pid) -n sh -ec "
        sysctl -eqw net.ipv6.conf.all.disable_ipv6=1
        sysctl -qw net.ipv4.neigh.eth0.delay_first_probe_time=600
        ip addr add $2/30 dev eth0
        ip link set eth0 up
        ip route add 0.0.0.0/0 via $3"
}
up near 10.0.0.6 10.0.0.5
up far 10.1.0.2 10.1.0.1
nsenter -t $(cat far.pid) -n tc qdisc add dev eth0 clsact
nsenter -t $(cat far.pid) -n tc filter add dev eth0 ingress protocol ip flower ip_tos 0x02/0xff action ok
"""


@pytest.fixture
def hosts(linux: Machine) -> Iterator[None]:
    """Namespaces `near`, behind eth1, and `far`, behind eth2, and no queues yet."""
    empty(linux)
    try:
        do(linux, HOSTS_UP)
        yield
    finally:
        do(linux, "kill $(cat near.pid far.pid)")
        # Ports go with the namespace of the host behind them, and not at once.
        do(linux, "for _ in $(seq 100); do ls /sys/class/net | grep -q eth || break; sleep 0.1; done")


def ping(linux: Machine, host: str, count: int, tos: int, address: str = "") -> None:
    to = address or {"near": "10.1.0.2", "far": "10.0.0.6"}[host]
    do(linux, f"nsenter -t $(cat {host}.pid) -n ping -c {count} -i 0.2 -Q {tos:#x} {to}")


def packets(linux: Machine, port: str) -> list[int]:
    """How many each queue has sent, the first queue's first."""
    return [sent for sent, _, _ in queues(linux, port).values()]


def queues(linux: Machine, port: str) -> dict[int, tuple[int, int, int]]:
    """Queue → packets sent, bytes sent, bytes that wait."""
    entries = json.loads(do(linux, f"tc -s -j qdisc show dev {port}"))
    found = {entry["handle"]: (entry["packets"], entry["bytes"], entry["backlog"]) for entry in entries}
    return {number: found[f"10{number}:"] for number in range(1, 6)}


def all_trusted(state: SwitchState) -> SwitchState:
    """Only the host at eth1 may not use CS6 and CS7."""
    first, *others = state.ports
    return replace(
        state,
        ports=(
            replace(first, trusted=True, rewritten=(48, 56)),
            *(replace(port, trusted=True, rewritten=()) for port in others),
        ),
    )


@pytest.mark.usefixtures("hosts")
def test_who_may_use_which_queue(linux: Machine, state: SwitchState) -> None:
    """Real pings: what the untrusted host sends loses its DSCP and keeps its ECN bits; ARP goes first."""
    do(linux, "tc -batch -", TARGET.render(state, CAPABILITIES)["qdiscs.tc"])
    ping(linux, "near", 3, 0x2A)
    ping(linux, "far", 2, 0x2A)
    assert packets(linux, "eth2") == [1, 0, 0, 0, 5]
    assert packets(linux, "eth1") == [1, 0, 2, 0, 3]
    shown = do(linux, "nsenter -t $(cat far.pid) -n tc -s filter show dev eth0 ingress")
    assert re.findall(r"Sent [0-9]+ bytes ([0-9]+) pkt", shown) == ["5"]


@pytest.mark.usefixtures("hosts")
def test_hosts_have_no_business_in_network_control(linux: Machine, state: SwitchState) -> None:
    """CS6 from the host's port goes last and says so; from the fabric's first; its gradients are believed."""
    do(linux, "tc -batch -", TARGET.render(all_trusted(state), CAPABILITIES)["qdiscs.tc"])
    ping(linux, "near", 3, 0xC0)
    assert packets(linux, "eth2") == [1, 0, 0, 0, 3]
    assert packets(linux, "eth1") == [1, 0, 0, 0, 3]
    ping(linux, "far", 3, 0xC0)
    assert packets(linux, "eth2") == [1, 0, 0, 0, 6]
    assert packets(linux, "eth1") == [4, 0, 0, 0, 3]
    ping(linux, "near", 2, 0xA0)
    ping(linux, "near", 2, 0x30)
    assert packets(linux, "eth2") == [1, 2, 0, 2, 6]


VLANS_UP = """
set -e
ip link add link eth1 name eth1.7 type vlan id 7
ip link add link eth2 name eth2.7 type vlan id 7
ip addr add 10.7.0.5/30 dev eth1.7
ip addr add 10.7.1.1/30 dev eth2.7
ip link set eth1.7 up
ip link set eth2.7 up
tagged() {
    nsenter -t $(cat $1.pid) -n sh -ec "
        ip link add link eth0 name eth0.7 type vlan id 7
        ip addr add $2/30 dev eth0.7
        ip link set eth0.7 up
        ip route replace 10.7.0.0/16 via $3"
}
tagged near 10.7.0.6 10.7.0.5
tagged far 10.7.1.2 10.7.1.1
"""


@pytest.mark.usefixtures("hosts")
def test_tagged_frames_go_last_and_a_vlan_is_another_port(linux: Machine, state: SwitchState) -> None:
    """tc sees the tag before the IP header; what arrives by a VLAN does not arrive by the port below it."""
    do(linux, VLANS_UP)
    do(linux, "tc -batch -", TARGET.render(all_trusted(state), CAPABILITIES)["qdiscs.tc"])
    ping(linux, "near", 3, 0x28, "10.7.1.2")
    *others, last = packets(linux, "eth2")
    assert (others, last >= 3) == ([0, 0, 0, 0], True)
    before = packets(linux, "eth2")[0]
    do(linux, "nsenter -t $(cat near.pid) -n ip route add 10.1.0.2/32 via 10.7.0.5")
    ping(linux, "near", 3, 0xC0)
    assert packets(linux, "eth2")[0] - before >= 3


FLOOD = """
import socket
SO_SNDBUFFORCE = 32
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 4_000_000)
    for tos, count in ((0xA0, 45), (0x2A, 190), (0x00, 45)):
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        for _ in range(count):
            sender.sendto(bytes(972), ("10.0.0.6", 9))
"""


def share_of_background(linux: Machine) -> tuple[int, int, set[int]]:
    """Bytes of the gradient and of background between two looks, and which queues were empty at one."""
    do(linux, f"{sys.executable} -", FLOOD)
    first = second = queues(linux, "eth1")
    while second[3][1] - first[3][1] < 80_000 and all(second[number][2] for number in (2, 3, 5)):
        second = queues(linux, "eth1")
    empty = {number for number in (2, 3, 5) if not second[number][2]}
    return second[3][1] - first[3][1], second[5][1] - first[5][1], empty


def test_background_has_its_share_and_a_capped_class_holds_nobody_up(
    linux: Machine, small_plan: Plan, state: SwitchState
) -> None:
    """Two looks at a port in which control, a gradient and background wait all the time."""

    def look() -> tuple[int, int, set[int]]:
        connect(linux, small_plan, "leaf1")
        port = state.ports[0]
        first, second, *others = port.queues
        queues_of_port = (first, replace(second, maximum=BitRate(8000)), *others)
        slow = replace(port, shaped_bps=200_000, trusted=True, rewritten=(), queues=queues_of_port)
        load(linux, replace(state, ports=(slow, *state.ports[1:])))
        do(linux, "ip neigh replace 10.0.0.6 lladdr 02:00:00:00:00:06 dev eth1")
        return share_of_background(linux)

    # A machine that is too slow for two looks in time sees empty queues: nothing was measured then.
    gradient, background, empty = measured(look, lambda seen: not seen[2])
    assert not empty, f"queues {empty} were empty too soon"
    frame_bytes, quantum_bytes = 1014, 1500
    wanted_bytes = 0.05 * (gradient + background)
    assert abs(background - wanted_bytes) <= quantum_bytes + frame_bytes
    assert background > 0
