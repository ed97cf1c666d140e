"""The way back from a push to exactly what ran before, on the emulated switch."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import DeviceError
from mltswitch.plan import Plan
from mltswitch.targets import PortState, SwitchState
from mltswitch.targets.onyx import TARGET
from switchsim.onyx import OnyxDevice
from switchsim.settings import Fact, Facts
from tests.targets.onyx.device import apply, read
from tests.targets.onyx.test_laws import CAPABILITIES, PLANS, TRUSTS, delivered, few, leniency
from tests.targets.strategies import LAW_EXAMPLES, switch_names

PLAN = """no cli default prefix-modes enable
interface ethernet 1/1 traffic-class 6 dcb ets strict
interface ethernet 1/1 no traffic-class 6 congestion-control
interface ethernet 1/1 no qos rewrite dscp
interface ethernet 1/1 traffic-class 6 bind switch-priority 6
interface ethernet 1/1 qos map dscp 0 48 49 50 51 52 53 54 55 to switch-priority 6
interface ethernet 1/1 qos trust L3
"""
NUMBERS = st.integers(0, 7)
THRESHOLDS = st.tuples(st.integers(1, 100), st.integers(1, 100)).map(sorted)


@st.composite
def foreign_lines(draw: st.DrawFn, wanted: SwitchState) -> list[str]:
    """What somebody else may have configured where the plan goes."""
    lines: list[str] = []
    for port in draw(st.lists(st.sampled_from(wanted.ports), unique=True)):
        mode, (low, high) = draw(st.sampled_from(["absolute", "relative"])), draw(THRESHOLDS)
        control = draw(st.sampled_from(["red", "ecn", "both"]))
        lines += (
            f"interface ethernet {port.name} {words}"
            for words in draw(
                st.lists(
                    st.sampled_from(
                        [
                            f"qos trust {draw(st.sampled_from(['L2', 'L3', 'both', 'port']))}",
                            "qos rewrite dscp",
                            "bandwidth shape 10G",
                            f"qos map dscp {draw(st.integers(0, 63))} to switch-priority {draw(NUMBERS)}",
                            f"traffic-class {draw(NUMBERS)} bind switch-priority {draw(NUMBERS)}",
                            f"traffic-class {draw(NUMBERS)} dcb ets wrr {draw(st.integers(1, 100))}",
                            f"traffic-class {draw(NUMBERS)} dcb ets strict",
                            f"traffic-class {draw(NUMBERS)} congestion-control {control} "
                            f"minimum-{mode} {low} maximum-{mode} {high}",
                        ]
                    )
                )
            )
        )
    if wanted.routes:
        for route in draw(st.lists(st.sampled_from(wanted.routes), unique=True, max_size=3)):
            hop, distance = draw(st.sampled_from(["192.0.2.1", "null0"])), draw(st.sampled_from(["", " 7"]))
            lines.append(f"ip route vrf default {route.prefix} {hop}{distance}")
    return lines


def comparable(configuration: Facts) -> dict[Fact, Any]:
    """Whether prefix modes were on, the switch does not show."""
    return {fact: value for fact, value in configuration.items() if fact != ("", "prefix-modes")}


@few
@given(st.data(), st.lists(PLANS, max_size=2), PLANS, st.none() | PLANS)
def test_the_way_back_is_exact_from_every_step(
    data: st.DataObject, former: list[Plan], plan: Plan, over: Plan | None
) -> None:
    """From every step of a push, and of the push of a plan with the same settings over it."""
    device = OnyxDevice()
    for old in former:
        state = TARGET.quantise(old, data.draw(switch_names(old))).state
        apply(device, TARGET.diff(read(device, state), state, CAPABILITIES))
    wanted = TARGET.quantise(plan, data.draw(switch_names(plan))).state
    assert device.configure(*data.draw(foreign_lines(wanted))) == ""
    start, before = device.configuration, read(device, wanted)
    pushed = [wanted]
    if over is not None:
        pushed.append(retold(TARGET.quantise(over, data.draw(switch_names(over))).state, wanted))
    for state in pushed:
        change = TARGET.diff(read(device, state), state, CAPABILITIES)
        count = data.draw(st.integers(0, len(change.steps)) | st.just(len(change.steps)), "steps")
        apply(device, replace(change, steps=change.steps[:count], save=()))
    back = TARGET.restore(before.answers, read(device, wanted), wanted, CAPABILITIES)
    # It may be broken off, too.
    count = data.draw(st.integers(0, len(back.steps)), "steps back")
    apply(device, replace(back, steps=back.steps[:count], save=()))
    apply(device, TARGET.restore(before.answers, read(device, wanted), wanted, CAPABILITIES))
    assert comparable(device.configuration) == comparable(start)
    assert comparable(device.files["initial"]) == comparable(start)
    assert TARGET.restore(before.answers, read(device, wanted), wanted, CAPABILITIES).is_empty


def retold(state: SwitchState, wanted: SwitchState) -> SwitchState:
    """The ports of the plan that have the same settings as the wanted one, so that the way back owns them."""
    owned = {port.name: owned_settings(port) for port in wanted.ports}
    ports = tuple(port for port in state.ports if owned_settings(port) == owned.get(port.name))
    return replace(state, ports=ports, routes=wanted.routes[::2])


def owned_settings(port: PortState) -> tuple[list[tuple[int, bool]], set[int]]:
    queues = sorted((queue.queue, queue.is_lossless) for queue in port.queues)
    return queues, {dscp for queue in port.queues for dscp in queue.dscps}


@settings(few, max_examples=max(10, LAW_EXAMPLES // 5))
@given(st.data(), st.none() | PLANS, PLANS, TRUSTS)
def test_no_step_back_drops_what_neither_end_drops(
    data: st.DataObject, former: Plan | None, plan: Plan, trust: str
) -> None:
    device = delivered(trust)
    if former is not None:
        state = TARGET.quantise(former, data.draw(switch_names(former))).state
        apply(device, TARGET.diff(read(device, state), state, CAPABILITIES))
    wanted = TARGET.quantise(plan, data.draw(switch_names(plan))).state
    running, names = read(device, wanted), [port.name for port in wanted.ports]
    apply(device, TARGET.diff(running, wanted, CAPABILITIES))
    seen = [leniency(device, names)]
    for step in TARGET.restore(running.answers, read(device, wanted), wanted, CAPABILITIES).steps:
        assert device.configure(step.command) == ""
        seen.append(leniency(device, names))
    for between in seen[1:-1]:
        assert all(map(int.__ge__, between, map(min, seen[0], seen[-1])))


def test_a_value_without_a_command_is_named_before_the_push() -> None:
    """`dwrr` is a word that no source of ours has."""
    wanted = TARGET.parse({"mltswitch.txt": PLAN}, CAPABILITIES)
    running = read(OnyxDevice(), wanted)
    answers = {query: answer.replace("WRR", "DWRR") for query, answer in running.answers.items()}
    with pytest.raises(DeviceError, match="traffic-class 6 scheduling dwrr 12") as caught:
        TARGET.restore(answers, running, wanted, CAPABILITIES)
    assert caught.value.where == "port 1/1"
    assert "before the push" in caught.value.hint


def test_routes_that_go_with_another_distance_are_set_again() -> None:
    """A removal names no distance, so it takes all routes to a next hop with it."""
    line = "ip route vrf default 10.1.0.0/16 10.0.0.1"
    wanted = TARGET.parse({"mltswitch.txt": f"{PLAN}{line}\n"}, CAPABILITIES)
    answers = read(OnyxDevice(), wanted).answers
    before = {**answers, "show running-config": f"{line}\n{line} 5\n"}
    now = {**answers, "show running-config": f"{line}\n{line} 5\n{line} 6\n"}
    change = TARGET.restore(before, TARGET.read(now, wanted, CAPABILITIES), wanted, CAPABILITIES)
    assert [step.command for step in change.steps[1:]] == [f"no {line}", line, f"{line} 5"]
