"""The way back from any point of a push leads to exactly what the kernel had before."""

import json
from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import DeviceError
from mltswitch.plan import Plan
from mltswitch.targets import Change, RouteState, RunningState, Step, SwitchState
from mltswitch.targets.linux import TARGET
from tests.targets.linux.test_kernel import all_trusted, connect, do, empty, load, read
from tests.targets.linux.uml import Machine

CAPABILITIES = TARGET.hardware(None)

STARTS = {
    "as delivered": "true",
    "pfifo_fast": "tc qdisc add dev eth1 root handle 8001: pfifo_fast",
    "fifos": "tc qdisc add dev eth1 root handle 8001: pfifo limit 77; "
    "tc qdisc add dev eth2 root handle 7: bfifo limit 7777",
    "fq_codel": "tc qdisc add dev eth1 root fq_codel; "
    "tc qdisc add dev eth2 root handle 9: fq_codel limit 500 flows 128 quantum 900 target 3ms interval 40ms "
    "memory_limit 3333333 noecn drop_batch 20 ce_threshold 1.5ms",
    "fq": "tc qdisc add dev eth1 root fq; "
    "tc qdisc add dev eth2 root fq limit 500 flow_limit 50 quantum 3000 initial_quantum 9000 maxrate 1gbit "
    "buckets 512 nopacing low_rate_threshold 1mbit orphan_mask 511 refill_delay 20ms timer_slack 5us "
    "horizon 3s horizon_cap ce_threshold 2ms",
    "mq": "tc qdisc add dev eth1 root handle 8003: mq; tc qdisc add dev eth1 parent 8003:2 handle 8004: fq",
    "clsact": "tc qdisc add dev eth2 clsact",
}
TBF = "tc qdisc add dev eth1 root handle 77: tbf rate 1mbit burst 2k limit 9k"
PRIOMAP = "tc qdisc change dev eth2 root handle 10: prio bands 3 priomap" + " 0" * 16
UNSPEAKABLE = {
    "classes": ("tc qdisc add dev eth1 root handle 77: htb", "eth1 had root htb 77:"),
    "options": (TBF, "eth1 had root tbf 77:"),
    "our queues by hand": (PRIOMAP, "eth2 had 10: priomap"),
    "a route": ("ip route replace unreachable 10.100.0.0/16 proto 173", "route 10.100.0.0/16 had"),
}
SHOW = """
tc -j -d qdisc show; ip -j -d -N route show; grep . /proc/sys/net/ipv6/conf/*/forwarding
for port in eth1 eth2; do
    tc class show dev $port
    for place in "parent 10:" "parent 20:" "parent 30:" ingress egress; do
        echo filter show dev $port $place
    done | tc -j -batch -
done
"""


def shown(linux: Machine) -> list[str]:
    """What the kernel has, without the numbers that it gives actions as they come."""
    found: list[str] = []
    for number, line in enumerate(do(linux, SHOW).splitlines()):
        entries = json.loads(line) if line.startswith("[") else [line]
        found += [f"{number} {text}" for text in sorted(json.dumps(_plain(each)) for each in entries)]
    return found


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key != "index"}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def plans(state: SwitchState) -> dict[str, SwitchState]:
    """Other numbers, another trust, other queues and other routes than the plan's."""
    first, second = state.ports
    queues = tuple(
        replace(queue, ecn_threshold_bytes=15140) if queue.queue == 4 else queue for queue in second.queues
    )
    slower = tuple(replace(queue, limit=BytesLimit(90000)) for queue in first.queues)
    elsewhere = RouteState(state.routes[0].prefix, IPv4Address(0), "")
    return {
        "the plan": state,
        "numbers": replace(state, ports=(first, replace(second, queues=queues))),
        "trust": all_trusted(state),
        "queues": replace(state, ports=(replace(first, shaped_bps=None, queues=slower), second), routes=()),
        "routes": replace(state, routes=(elsewhere,)),
        "one port": replace(state, ports=(second,)),
    }


def send(linux: Machine, steps: tuple[Step, ...], count: int) -> None:
    """The first lines of some steps, counted over all their batches."""
    for step in steps:
        lines = step.stdin.splitlines(keepends=True) or [""]
        if count and (sent := lines[:count]):
            do(linux, step.command, "".join(sent))
            count -= len(sent)


def lines_in(change: Change) -> int:
    return sum(max(1, step.stdin.count("\n")) for step in change.steps)


@pytest.mark.lab
@pytest.mark.parametrize("start", [*STARTS, "the plan", "trust"])
@settings(deadline=None, max_examples=1, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_way_back_leads_to_what_ran(
    data: st.DataObject, linux: Machine, small_plan: Plan, state: SwitchState, start: str
) -> None:
    connect(linux, small_plan, "leaf1")
    do(linux, "ip link del eth1; ip link add eth1 numtxqueues 2 type dummy; ip link set eth1 up")
    do(linux, "ip addr add 10.0.0.5/30 dev eth1")
    if start in STARTS:
        do(linux, STARTS[start])
    else:
        load(linux, plans(state)[start])
    wanted = plans(state)[data.draw(st.sampled_from(sorted(plans(state))), "wanted")]
    at_start, before = shown(linux), read(linux, wanted).answers

    def way_back() -> Change:
        return TARGET.restore(before, read(linux, wanted), wanted, CAPABILITIES)

    assert way_back().is_empty
    push = TARGET.diff(read(linux, wanted), wanted, CAPABILITIES)
    blind = TARGET.restore(before, RunningState(wanted, {}), wanted, CAPABILITIES)
    some = st.integers(0, lines_in(push))
    send(linux, push.steps, data.draw(st.just(lines_in(push)) | some, "sent"))
    if data.draw(st.booleans(), "blind"):
        send(linux, blind.steps, lines_in(blind))
    else:
        back = way_back()
        send(linux, back.steps, data.draw(st.integers(0, lines_in(back)), "sent back"))
        back = way_back()
        send(linux, back.steps, lines_in(back))
    assert shown(linux) == at_start
    assert way_back().is_empty
    empty(linux)


@pytest.mark.lab
@pytest.mark.parametrize("start", UNSPEAKABLE)
def test_what_cannot_return_is_said_before_and_refused_after(
    linux: Machine, small_plan: Plan, state: SwitchState, start: str
) -> None:
    """Nothing is sent then; where nothing was touched, there is nothing to refuse."""
    command, reason = UNSPEAKABLE[start]
    connect(linux, small_plan, "leaf1")
    if "change" in command:
        load(linux, state)
    do(linux, command)
    running = read(linux, state)
    assert TARGET.restore(running.answers, running, state, CAPABILITIES).is_empty
    push = TARGET.diff(running, state, CAPABILITIES)
    if "route" not in command:
        assert ", which has no way back\n" in push.text
    for found in (RunningState(state, {}), None):
        if found is None:
            send(linux, push.steps, lines_in(push))
        with pytest.raises(DeviceError, match=reason):
            TARGET.restore(running.answers, found or read(linux, state), state, CAPABILITIES)
    empty(linux)
