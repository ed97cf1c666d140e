"""What must hold for every plan, on the emulated switch."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from mltswitch.lab.emulators.icos import IcosDevice
from mltswitch.lab.emulators.icos_state import IcosConfiguration, Port, Trust
from mltswitch.plan import Plan
from mltswitch.targets import SwitchState
from mltswitch.targets.icos import TARGET
from mltswitch.targets.state import differences
from tests.targets.icos.device import apply, read
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

PLANS = plans(TARGET.hardware("n4000"))
PLANS_OF_ANY_MODEL: SearchStrategy[Plan] = PLANS | plans(TARGET.hardware("n3000"))
NEVER = 10**9
few = settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def state_of(data: st.DataObject, plan: Plan) -> SwitchState:
    return TARGET.quantise(plan, data.draw(switch_names(plan))).state


@few
@given(st.data(), PLANS_OF_ANY_MODEL)
def test_what_is_rendered_reads_back(data: st.DataObject, plan: Plan) -> None:
    state = state_of(data, plan)
    files = TARGET.render(state)
    assert TARGET.parse(files) == state
    assert TARGET.render(state) == files


@few
@given(st.data(), PLANS_OF_ANY_MODEL)
def test_the_switch_takes_every_rendered_line(data: st.DataObject, plan: Plan) -> None:
    state = state_of(data, plan)
    device = IcosDevice(model={"n4000": "N4064F", "n3000": "N3132PX-ON"}[state.hardware])
    assert device.configure(*TARGET.render(state)["mltswitch.txt"].splitlines()) == ""
    running = read(device, state)
    assert running.state == state
    assert TARGET.diff(running, state).is_empty


@few
@given(st.data(), PLANS, PLANS)
def test_a_change_leads_from_any_plan_to_any_other(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = IcosDevice()
    for plan in (first, second):
        wanted = state_of(data, plan)
        apply(device, TARGET.diff(read(device, wanted), wanted))
        running = read(device, wanted)
        assert differences(wanted, running.state) == ()
        assert TARGET.diff(running, wanted).is_empty
        assert device.saved == device.configuration


@few
@given(st.data(), PLANS, PLANS)
def test_the_way_back_restores_what_was(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = IcosDevice()
    before = state_of(data, first)
    apply(device, TARGET.diff(read(device, before), before))
    # The second plan's routes lie where the first one's are, so that the way back finds all that it owns.
    after = SwitchState(
        tuple(port for port in state_of(data, second).ports if port.name in device.ports), before.routes
    )
    apply(device, TARGET.diff(read(device, after), after))
    apply(device, TARGET.diff(read(device, before), before))
    assert read(device, before).state == before


def early_drop_percent(running: IcosConfiguration, entrance: Port, exit_port: Port, dscp: int) -> int:
    number = running.diffserv.queue(entrance.policy, "ipv4", dscp)
    if number is None:
        trusted = entrance.trust is Trust.IP_DSCP
        number = running.dscp_to_queue[dscp] if trusted else entrance.priority_to_queue[0]
    queue = exit_port.queues[number]
    return min(queue.curve.minimum) if queue.random_detect else NEVER


def early_drops(device: IcosDevice, names: list[str]) -> list[int]:
    running = device.configuration
    ports = [running.ports[name] for name in names]
    return [early_drop_percent(running, a, b, dscp) for a in ports for b in ports for dscp in range(64)]


@settings(few, max_examples=max(10, LAW_EXAMPLES // 4))
@given(st.data(), PLANS, PLANS)
def test_no_step_drops_what_neither_end_drops(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = IcosDevice()
    start = state_of(data, first)
    apply(device, TARGET.diff(read(device, start), start))
    wanted = state_of(data, second)
    names = [port.name for port in wanted.ports]
    steps = TARGET.diff(read(device, wanted), wanted).steps
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
    running = device.configuration
    ports = [running.ports[name] for name in names]
    ways = []
    for entrance in ports:
        trusted = entrance.trust is Trust.IP_DSCP
        numbers = []
        for dscp in range(64):
            number = running.diffserv.queue(entrance.policy, "ipv4", dscp)
            if number is None:
                number = running.dscp_to_queue[dscp] if trusted else entrance.priority_to_queue[0]
            numbers.append(number)
        ways += [
            [number + 1 if leaving.queues[number].strict else 0 for number in numbers] for leaving in ports
        ]
    return ways


def is_inverted(first: list[int], last: list[int], between: list[int]) -> bool:
    """Whether code points are served after others that both ends serve after them, or no end before them."""
    found = set(zip(first, last, between, strict=True))
    return any(a[0] >= b[0] and a[1] >= b[1] and a[:2] != b[:2] and a[2] < b[2] for a in found for b in found)


def check_order(device: IcosDevice, wanted: SwitchState) -> None:
    names = [port.name for port in wanted.ports][:3]
    session = device.open_session("admin")
    session.enter("enable")
    session.enter("configure")
    seen = [levels(device, names)]
    for step in TARGET.diff(read(device, wanted), wanted).steps:
        assert session.enter(step.command).text == "", step
        if (now := levels(device, names)) != seen[-1]:
            seen.append(now)
    assert read(device, wanted).state == wanted
    for between in seen[1:-1]:
        for first, last, way in zip(seen[0], seen[-1], between, strict=True):
            assert not is_inverted(first, last, way)


@settings(few, max_examples=max(10, LAW_EXAMPLES // 4))
@given(st.data(), PLANS)
def test_no_step_serves_late_what_neither_end_does_from_delivery(data: st.DataObject, plan: Plan) -> None:
    """Also where every port already trusts DSCP, so that the map of delivery leads to weighted queues."""
    wanted, device = state_of(data, plan), IcosDevice()
    if data.draw(st.booleans()):
        assert device.configure("classofservice trust ip-dscp") == ""
    check_order(device, wanted)
