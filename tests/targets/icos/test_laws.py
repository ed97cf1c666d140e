"""What must hold for every plan, on the emulated switch."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from mltswitch.plan import Plan
from mltswitch.targets import SwitchState
from mltswitch.targets.icos import TARGET
from mltswitch.targets.remap import UNTRUSTED_POLICY
from mltswitch.targets.state import differences
from switchsim.icos import MODES, IcosDevice
from switchsim.icos_sheet import FAMILIES
from switchsim.settings import NO_FACTS, Fact, Facts
from tests.targets.icos.device import actions, apply, policy_of, read
from tests.targets.service_order import blurs, inversions
from tests.targets.strategies import CONTROL_CODE_POINTS, LAW_EXAMPLES, plans, switch_names

CAPABILITIES = TARGET.hardware(None)

PLANS = plans(TARGET.hardware("n4000"))
NEVER = 10**9
few = settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def state_of(data: st.DataObject, plan: Plan) -> SwitchState:
    return TARGET.quantise(plan, data.draw(switch_names(plan))).state


@few
@given(st.data(), PLANS)
def test_the_switch_takes_every_rendered_line(data: st.DataObject, plan: Plan) -> None:
    state = state_of(data, plan)
    device = IcosDevice(model="N4064F")
    assert device.configure(*TARGET.render(state, CAPABILITIES)["mltswitch.txt"].splitlines()) == ""
    running = read(device, state)
    assert running.state == state
    assert TARGET.diff(running, state, CAPABILITIES).is_empty
    for port in state.ports:
        policy = policy_of(device, port.name)
        for family in FAMILIES:
            does = [actions(device, policy, family, dscp) for dscp in range(64)]
            marks = [each.get("mark-ip-dscp", dscp) for dscp, each in enumerate(does)]
            assert port.rewritten == tuple(dscp for dscp in range(64) if marks[dscp] != dscp)
            assert {marks[dscp] for dscp in port.rewritten} <= {state.background_dscp}


@few
@given(st.data(), PLANS, PLANS)
def test_a_change_leads_from_any_plan_to_any_other(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = IcosDevice()
    for plan in (first, second):
        wanted = state_of(data, plan)
        apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
        running = read(device, wanted)
        assert differences(wanted, running.state) == ()
        assert TARGET.diff(running, wanted, CAPABILITIES).is_empty
        assert device.saved == device.configuration


@few
@given(st.data(), PLANS, PLANS)
def test_the_way_back_restores_what_was(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = IcosDevice()
    before = state_of(data, first)
    apply(device, TARGET.diff(read(device, before), before, CAPABILITIES))
    # The second plan's routes lie where the first one's are, so that the way back finds all that it owns.
    after = state_of(data, second)
    ports = tuple(port for port in after.ports if port.name in device.ports)
    after = replace(after, ports=ports, routes=before.routes)
    apply(device, TARGET.diff(read(device, after), after, CAPABILITIES))
    apply(device, TARGET.diff(read(device, before), before, CAPABILITIES))
    assert read(device, before).state == before


def queue_of(device: IcosDevice, entrance: str, dscp: int) -> int:
    policy = policy_of(device, entrance)
    number: int | None = actions(device, policy, "ipv4", dscp).get("assign-queue")
    if number is None and device.fact(entrance, "trust") == "ip-dscp":
        number = device.fact("", "queue-of-dscp", dscp)
    elif number is None:
        number = device.fact(entrance, "queue-of-priority", 0)
    return number


def early_drop_percent(device: IcosDevice, exit_port: str, queue: int) -> int:
    thresholds: tuple[int, ...] = device.fact(exit_port, "curve", queue)[1:5]
    return min(thresholds) if device.fact(exit_port, "random-detect", queue) else NEVER


def early_drops(device: IcosDevice, names: list[str]) -> list[int]:
    queues = [queue_of(device, entrance, dscp) for entrance in names for dscp in range(64)]
    percent = {(b, queue): early_drop_percent(device, b, queue) for b in names for queue in {*queues}}
    return [percent[b, queue] for b in names for queue in queues]


@settings(few, max_examples=max(10, LAW_EXAMPLES // 4))
@given(st.data(), PLANS, PLANS)
def test_no_step_drops_what_neither_end_drops(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = IcosDevice()
    if data.draw(st.booleans(), "a plan before"):
        start = state_of(data, first)
        apply(device, TARGET.diff(read(device, start), start, CAPABILITIES))
    wanted = state_of(data, second)
    names = [port.name for port in wanted.ports]
    steps = TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps
    seen = [early_drops(device, names)]
    session = device.open_session("admin")
    session.enter("enable")
    session.enter("configure")
    for step in steps:
        assert session.enter(step.command).text == ""
        seen.append(early_drops(device, names))
    for between in seen[1:-1]:
        assert all(map(int.__ge__, between, map(min, seen[0], seen[-1])))


def levels(device: IcosDevice, names: list[str]) -> list[list[int]]:
    """For each way through the switch the level at which each code point is served; weighted queues: 0."""
    ways = []
    for entrance in names:
        numbers = [queue_of(device, entrance, dscp) for dscp in range(64)]
        ways += [
            [number + 1 if device.fact(leaving, "strict", number) else 0 for number in numbers]
            for leaving in names
        ]
    return ways


def levels_of_steps(data: st.DataObject, device: IcosDevice, wanted: SwitchState) -> list[list[list[int]]]:
    """Before, after each step that changes some, and last; of a few ports, which may be all alike or not."""
    every = [port.name for port in wanted.ports]
    names = sorted(data.draw(st.permutations(every), "ports")[:3])
    session = device.open_session("admin")
    session.enter("enable")
    session.enter("configure")
    seen = [levels(device, names)]
    for step in TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps:
        assert session.enter(step.command).text == "", step
        if (now := levels(device, names)) != seen[-1]:
            seen.append(now)
    running = read(device, wanted)
    assert running.state == wanted
    assert TARGET.diff(running, wanted, CAPABILITIES).is_empty
    return seen


def planned(device: IcosDevice, state: SwitchState) -> None:
    apply(device, TARGET.diff(read(device, state), state, CAPABILITIES))


few_changes = settings(few, max_examples=max(10, LAW_EXAMPLES // 4))


@few_changes
@given(st.data(), PLANS)
def test_no_step_serves_late_what_neither_end_does_from_delivery(data: st.DataObject, plan: Plan) -> None:
    """Also where every port already trusts DSCP, so that the map of delivery leads to weighted queues."""
    wanted, device = state_of(data, plan), IcosDevice()
    if data.draw(st.booleans()):
        assert device.configure("classofservice trust ip-dscp") == ""
    assert inversions(levels_of_steps(data, device, wanted)) == 0


@few_changes
@given(st.data(), PLANS, PLANS)
def test_no_step_serves_late_what_neither_end_does_between_plans(
    data: st.DataObject, first: Plan, second: Plan
) -> None:
    """Nor do packets that both plans serve before others have to share with them."""
    device = IcosDevice()
    start, wanted = state_of(data, first), state_of(data, second)
    names = {port.name for port in wanted.ports}
    # Ports of the first plan alone are nobody's business; those of the second one alone are as delivered.
    ports = tuple(port for port in start.ports if port.name in names)
    planned(device, replace(start, ports=ports))
    seen = levels_of_steps(data, device, wanted)
    assert inversions(seen) == 0
    assert blurs(seen) == 0


@st.composite
def strange_port(draw: DrawFn, device: IcosDevice, port: str) -> Facts:
    """Facts of a port: any trust, any default queue, and strict service in any queues, or in those it has.

    The policy of ports that are not trusted is only there where nothing is trusted.
    """
    strict = draw(st.none() | st.lists(st.booleans(), min_size=7, max_size=7))
    changed, place = Facts(), f"interface {port}"
    if strict is not None:
        changed |= {(place, "strict", queue): on for queue, on in enumerate(strict)}
        changed[place, "min-bandwidth"] = (0,) * len(strict)
    trust = draw(st.sampled_from(["ip-dscp", "ip-dscp", "dot1p", "untrusted"]))
    if policy_of(device, port) != UNTRUSTED_POLICY:
        changed[place, "trust"] = trust
    return Facts({**changed, (place, "queue-of-priority", 0): draw(st.integers(0, 6))})


def with_control_together(queues: list[int]) -> list[int]:
    first = queues[CONTROL_CODE_POINTS[0]]
    return [first if dscp in CONTROL_CODE_POINTS else queue for dscp, queue in enumerate(queues)]


@few_changes
@given(st.data(), PLANS, PLANS, PLANS)
def test_no_step_serves_late_what_neither_end_does_from_mixed_starts(
    data: st.DataObject, zeroth: Plan, first: Plan, second: Plan
) -> None:
    """From ports of which some run a plan, some another, some are as delivered and some are anybody's.

    What hosts may not use lies in one queue. It moves by one line, the policy's, so from two queues it cannot
    keep its place among what moves from between them.
    """
    device = IcosDevice()
    wanted = state_of(data, second)
    for plan in (zeroth, first):
        planned(device, state_of(data, plan))
    facts = device.configuration
    changed: dict[Fact, Any] = {}
    for name in [port.name for port in wanted.ports]:
        kind = data.draw(st.sampled_from(["planned", "delivered", "trusting", "strange"]), name)
        if kind in {"delivered", "trusting"}:
            place = f"interface {name}"
            facts = facts.without_block(place).with_block(place)
            changed |= {(place, "trust"): "ip-dscp"} if kind == "trusting" else {}
        elif kind == "strange":
            changed |= data.draw(strange_port(device, name))
    running, delivered = (
        [each.fact("", "queue-of-dscp", dscp) for dscp in range(64)] for each in (device, IcosDevice())
    )
    dscp_map = data.draw(
        st.sampled_from([running, delivered])
        | st.lists(st.integers(0, 6), min_size=64, max_size=64).map(with_control_together)
    )
    changed |= {("", "queue-of-dscp", dscp): queue for dscp, queue in enumerate(dscp_map)}
    delivered_facts = {fact for fact, value in changed.items() if MODES.fact(NO_FACTS, *fact) == value}
    facts = Facts({**facts, **changed})
    device.configuration = Facts({fact: facts[fact] for fact in facts if fact not in delivered_facts})
    assert inversions(levels_of_steps(data, device, wanted)) == 0
