"""What must hold for every plan, on the emulated switch."""

from dataclasses import replace
from itertools import product
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.plan import Plan
from mltswitch.targets import SwitchState
from mltswitch.targets.onyx import TARGET
from mltswitch.targets.state import differences
from switchsim.onyx import OnyxDevice
from switchsim.settings import Fact, Facts
from tests.targets.onyx.device import apply, read
from tests.targets.service_order import blurs, inversions
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

CAPABILITIES = TARGET.hardware(None)

PLANS = plans(TARGET.hardware(None))
STRICT_PLANS = plans(TARGET.hardware(None), has_lossless=False)
"""A lossless class is served as the operator wants, which no order of our lines can foresee."""
NEVER = 10**9
few = settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@few
@given(st.data(), PLANS)
def test_the_switch_takes_every_rendered_line(data: st.DataObject, plan: Plan) -> None:
    state = TARGET.quantise(plan, data.draw(switch_names(plan))).state
    device = OnyxDevice()
    for line in TARGET.render(state, CAPABILITIES)["mltswitch.txt"].splitlines():
        if line and not line.startswith("##"):
            assert device.configure(line) == "", line
    running = read(device, state)
    assert running.state == state
    assert TARGET.diff(running, state, CAPABILITIES).is_empty


@few
@given(st.data(), PLANS, PLANS)
def test_a_change_leads_from_any_plan_to_any_other(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = OnyxDevice()
    for plan in (first, second):
        wanted = TARGET.quantise(plan, data.draw(switch_names(plan))).state
        change = TARGET.diff(read(device, wanted), wanted, CAPABILITIES)
        apply(device, change)
        running = read(device, wanted)
        assert differences(wanted, running.state) == ()
        assert TARGET.diff(running, wanted, CAPABILITIES).is_empty
        assert device.files["initial"] == device.configuration


@few
@given(st.data(), PLANS, PLANS)
def test_the_way_back_restores_what_was(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = OnyxDevice()
    before = TARGET.quantise(first, data.draw(switch_names(first))).state
    apply(device, TARGET.diff(read(device, before), before, CAPABILITIES))
    pushed = device.configuration
    # The second plan's routes lie where the first one's are, so that the way back finds all that it owns.
    after = replace(TARGET.quantise(second, data.draw(switch_names(second))).state, routes=before.routes)
    apply(device, TARGET.diff(read(device, after), after, CAPABILITIES))
    apply(device, TARGET.diff(read(device, before), before, CAPABILITIES))
    assert read(device, before).state == before
    used = {queue.queue for port in before.ports for queue in port.queues if not queue.is_lossless}
    names = {port.name for port in before.ports}
    assert of_ports(device.configuration, names, used) == of_ports(pushed, names, used)


def of_ports(configuration: Facts, names: set[str], used: set[int]) -> dict[Fact, Any]:
    """Traffic classes to which no code point leads keep what a plan in between gave them."""
    return {
        (where, what, *keys): value
        for (where, what, *keys), value in configuration.items()
        if where in names and (what not in {"congestion-control", "scheduling"} or keys[0] in used)
    }


def class_of(device: OnyxDevice, entrance: str, exit_port: str, dscp: int) -> int:
    trusted = device.fact(entrance, "trust") == "L3"
    priority = device.fact(entrance, "switch-priority", dscp) if trusted else 0
    number: int = device.fact(exit_port, "traffic-class", priority)
    return number


def rank(device: OnyxDevice, entrance: str, exit_port: str, dscp: int) -> int:
    """The number of a strict class, from 1; 0 for the others."""
    number = class_of(device, entrance, exit_port, dscp)
    return number + 1 if device.fact(exit_port, "scheduling", number) == "strict" else 0


def leniency(device: OnyxDevice, names: list[str]) -> list[int]:
    """Thresholds of every way through the switch: the more, the less is dropped."""
    controls = (
        device.fact(exit_port, "congestion-control", class_of(device, entrance, exit_port, dscp))
        for exit_port, entrance in product(names, names)
        for dscp in range(64)
    )
    return [NEVER if control is None else control[2] for control in controls]


def ranks(device: OnyxDevice, names: list[str]) -> list[list[int]]:
    """For each port that packets leave through, the rank of every way to it: the greater is served first.

    Ways of equal rank share what is left, by weight or in turn.
    """
    return [
        [rank(device, entrance, exit_port, dscp) for entrance in names for dscp in range(64)]
        for exit_port in names
    ]


def delivered(ports_trust: str) -> OnyxDevice:
    device = OnyxDevice()
    assert device.configure(f"interface ethernet 1/1-1/16 qos trust {ports_trust}") == ""
    return device


TRUSTS = st.sampled_from(["L2", "L3"])
"""As delivered, and as whoever has only switched trust on leaves it."""


@settings(few, max_examples=max(10, LAW_EXAMPLES // 5))
@given(st.data(), PLANS, PLANS)
def test_no_step_drops_what_neither_end_drops(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = delivered(data.draw(TRUSTS))
    if data.draw(st.booleans(), "a plan before"):
        start = TARGET.quantise(first, data.draw(switch_names(first))).state
        apply(device, TARGET.diff(read(device, start), start, CAPABILITIES))
    wanted = TARGET.quantise(second, data.draw(switch_names(second))).state
    names = [port.name for port in wanted.ports]
    steps = TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps
    seen = [leniency(device, names)]
    for step in steps:
        assert device.configure(step.command) == ""
        seen.append(leniency(device, names))
    for between in seen[1:-1]:
        assert all(map(int.__ge__, between, map(min, seen[0], seen[-1])))


@settings(few, max_examples=max(10, LAW_EXAMPLES // 5))
@given(st.data(), STRICT_PLANS, TRUSTS)
def test_from_the_switch_as_delivered_no_step_serves_first_what_neither_end_does(
    data: st.DataObject, plan: Plan, trust: str
) -> None:
    device = delivered(trust)
    wanted = TARGET.quantise(plan, data.draw(switch_names(plan))).state
    names = [port.name for port in wanted.ports]
    seen = [ranks(device, names)]
    for step in TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps:
        assert device.configure(step.command) == ""
        seen.append(ranks(device, names))
    for between in seen[1:-1]:
        for start, now, end in zip(seen[0], between, seen[-1], strict=True):
            ways = set(zip(start, now, end, strict=True))
            for way, other in product(ways, ways):
                if way[1] > other[1]:
                    assert way[0] > other[0] or way[2] > other[2]


def levels_of_steps(data: st.DataObject, device: OnyxDevice, wanted: SwitchState) -> list[list[list[int]]]:
    """Before, after each step that changes some, and last: of each way, the level of each code point."""
    names = sorted(data.draw(st.permutations([port.name for port in wanted.ports]), "ports")[:3])
    seen = [levels(device, names)]
    for step in TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps:
        assert device.configure(step.command) == "", step
        if (now := levels(device, names)) != seen[-1]:
            seen.append(now)
    assert TARGET.diff(read(device, wanted), wanted, CAPABILITIES).is_empty
    return seen


def levels(device: OnyxDevice, names: list[str]) -> list[list[int]]:
    ways = product(names, names)
    return [[rank(device, entrance, exit_port, dscp) for dscp in range(64)] for entrance, exit_port in ways]


@settings(few, max_examples=max(10, LAW_EXAMPLES // 4))
@given(st.data(), STRICT_PLANS, STRICT_PLANS)
def test_between_plans_no_step_serves_late_what_neither_end_does(
    data: st.DataObject, first: Plan, second: Plan
) -> None:
    """Nor do packets that both plans serve before others have to share with them."""
    device = OnyxDevice()
    start = TARGET.quantise(first, data.draw(switch_names(first))).state
    wanted = TARGET.quantise(second, data.draw(switch_names(second))).state
    names = {port.name for port in wanted.ports}
    # Ports of the first plan alone are nobody's business; those of the second one alone are as delivered.
    ports = tuple(port for port in start.ports if port.name in names)
    before = replace(start, ports=ports)
    apply(device, TARGET.diff(read(device, before), before, CAPABILITIES))
    seen = levels_of_steps(data, device, wanted)
    assert inversions(seen) == 0
    assert blurs(seen) == 0


@few
@given(st.data(), PLANS)
def test_what_is_not_configured_is_said(data: st.DataObject, plan: Plan) -> None:
    quantised = TARGET.quantise(plan, data.draw(switch_names(plan)))
    assert "bandwidth" not in TARGET.render(quantised.state, CAPABILITIES)["mltswitch.txt"]
    told = " ".join(quantised.shortfalls)
    assert "control is not held to" in told
    assert ("background is not guaranteed" in told) == (plan.classes[-1].guaranteed_share is not None)
