"""What must hold for every plan, on the emulated switch."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.plan import Plan
from mltswitch.targets.eos import TARGET
from mltswitch.targets.eos.capabilities import HARDWARE, queue_word
from mltswitch.targets.state import differences
from switchsim.eos import MODES, EosDevice
from switchsim.settings import Facts
from tests.targets.eos.device import (
    FAMILIES,
    MODELS,
    actions,
    apply,
    lines_of,
    policy_of,
    read,
    send,
    spelled,
)
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

CAPABILITIES = TARGET.hardware(None)

PLANS = st.sampled_from(list(HARDWARE.values())).flatmap(plans)
TRIDENT3_PLANS = plans(TARGET.hardware(None))
NEVER = 10**9
few = settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def switch_for(plan: Plan) -> EosDevice:
    [chip] = {switch.hardware or "trident3" for switch in plan.topology.switches}
    return EosDevice(queue_word=queue_word(HARDWARE[chip]), model=MODELS[chip])


@few
@given(st.data(), PLANS)
def test_the_switch_takes_every_rendered_line(data: st.DataObject, plan: Plan) -> None:
    quantised = TARGET.quantise(plan, data.draw(switch_names(plan)))
    state, capabilities = quantised.state, quantised.capabilities
    device = switch_for(plan)
    assert device.configure(*TARGET.render(state, capabilities)["mltswitch.txt"].splitlines()) == ""
    running = read(device, state, capabilities)
    assert running.state == state
    assert TARGET.diff(running, state, capabilities).is_empty
    configuration = device.configuration
    for port in state.ports:
        policy = policy_of(configuration, port.name)
        for family in FAMILIES:
            sets = [actions(configuration, policy, family, dscp).get("dscp") for dscp in range(64)]
            changed = [dscp for dscp in range(64) if sets[dscp] not in {None, *spelled(dscp)}]
            assert port.rewritten == tuple(changed)
            assert {sets[dscp] for dscp in changed} <= set(spelled(state.background_dscp))


@few
@given(st.data(), TRIDENT3_PLANS, TRIDENT3_PLANS)
def test_a_change_leads_from_any_plan_to_any_other(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = EosDevice()
    for plan in (first, second):
        wanted = TARGET.quantise(plan, data.draw(switch_names(plan))).state
        apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
        running = read(device, wanted)
        assert differences(wanted, running.state) == ()
        assert TARGET.diff(running, wanted, CAPABILITIES).is_empty
        assert device.saved == device.configuration


@few
@given(st.data(), TRIDENT3_PLANS, TRIDENT3_PLANS)
def test_what_is_not_confirmed_is_rolled_back_exactly(data: st.DataObject, first: Plan, second: Plan) -> None:
    now = [0.0]
    device = EosDevice(clock=lambda: now[0])
    start = TARGET.quantise(first, data.draw(switch_names(first))).state
    apply(device, TARGET.diff(read(device, start), start, CAPABILITIES))
    former = device.configuration
    wanted = TARGET.quantise(second, data.draw(switch_names(second))).state
    send(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps)
    assert differences(wanted, read(device, wanted).state) == ()
    now[0] += 601.0
    assert device.configuration == former == device.saved
    assert read(device, start).state == start


def fact(running: Facts, what: str, *keys: int) -> Any:
    """A setting of the whole switch."""
    return MODES["tx-queue"].fact(running, "", what, *keys)


def queue_of(running: Facts, entrance: str, dscp: int) -> int:
    lines = lines_of(running, f"interface {entrance}")
    cos = next((int(line.split()[2]) for line in lines if line.startswith("qos cos ")), 0)
    trusted = "qos trust dscp" in lines or ("no switchport" in lines and "no qos trust" not in lines)
    traffic_class = fact(running, "class-of-dscp", dscp)[0] if trusted else fact(running, "class-of-cos", cos)
    done = actions(running, policy_of(running, entrance), "ip", dscp)
    queue: int = fact(running, "queue-of-class", int(done.get("traffic-class", traffic_class)))
    return queue


def early_drop_bytes(running: Facts, exit_name: str, queue: int) -> int:
    for line in lines_of(running, f"interface {exit_name}", f"uc-tx-queue {queue}"):
        if line.startswith("random-detect ecn minimum-threshold "):
            return int(line.split()[3])
    return NEVER


def early_drops(device: EosDevice, names: list[str]) -> list[int]:
    running = device.configuration
    queues = [queue_of(running, entrance, dscp) for entrance in names for dscp in range(64)]
    bytes_of = {(b, queue): early_drop_bytes(running, b, queue) for b in names for queue in {*queues}}
    return [bytes_of[b, queue] for b in names for queue in queues]


@settings(few, max_examples=max(10, LAW_EXAMPLES // 4))
@given(st.data(), TRIDENT3_PLANS, TRIDENT3_PLANS)
def test_no_line_drops_what_neither_end_drops(data: st.DataObject, first: Plan, second: Plan) -> None:
    """Also where the lines are entered one by one, without the session."""
    device = EosDevice()
    if data.draw(st.booleans(), "a plan before"):
        start = TARGET.quantise(first, data.draw(switch_names(first))).state
        apply(device, TARGET.diff(read(device, start), start, CAPABILITIES))
    wanted = TARGET.quantise(second, data.draw(switch_names(second))).state
    names = [port.name for port in wanted.ports]
    steps = TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps
    session = device.open_session("admin")
    for line in ("enable", "configure terminal"):
        session.enter(line)
    seen = [early_drops(device, names)]
    for step in steps:
        if step.command != "end" and not step.command.startswith("configure session"):
            assert session.enter(step.command).text == ""
            seen.append(early_drops(device, names))
    assert read(device, wanted).state == wanted
    for between in seen[1:-1]:
        assert all(map(int.__ge__, between, map(min, seen[0], seen[-1])))
