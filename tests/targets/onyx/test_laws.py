"""What must hold for every plan, on the emulated switch."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.lab.emulators.onyx import OnyxDevice
from mltswitch.lab.emulators.onyx_state import Port, Trust
from mltswitch.plan import Plan
from mltswitch.targets.onyx import TARGET
from mltswitch.targets.state import differences
from tests.targets.onyx.device import apply, read
from tests.targets.strategies import plans, switch_names

PLANS = plans(TARGET.hardware(None))
NEVER = 10**9
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@few
@given(st.data(), PLANS)
def test_what_is_rendered_reads_back(data: st.DataObject, plan: Plan) -> None:
    state = TARGET.quantise(plan, data.draw(switch_names(plan))).state
    files = TARGET.render(state)
    assert TARGET.parse(files) == state
    assert TARGET.render(state) == files


@few
@given(st.data(), PLANS)
def test_the_switch_takes_every_rendered_line(data: st.DataObject, plan: Plan) -> None:
    state = TARGET.quantise(plan, data.draw(switch_names(plan))).state
    device = OnyxDevice()
    for line in TARGET.render(state)["mltswitch.txt"].splitlines():
        if line and not line.startswith("##"):
            assert device.configure(line) == "", line
    running = read(device, state)
    assert running.state == state
    assert TARGET.diff(running, state).is_empty


@few
@given(st.data(), PLANS, PLANS)
def test_a_change_leads_from_any_plan_to_any_other(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = OnyxDevice()
    for plan in (first, second):
        wanted = TARGET.quantise(plan, data.draw(switch_names(plan))).state
        change = TARGET.diff(read(device, wanted), wanted)
        apply(device, change)
        running = read(device, wanted)
        assert differences(wanted, running.state) == ()
        assert TARGET.diff(running, wanted).is_empty
        assert device.files["initial"] == device.configuration


def early_drop_kb(entrance: Port, exit_port: Port, dscp: int) -> int:
    trusted = entrance.trust is Trust.L3
    priority = entrance.dscp_to_switch_priority[dscp] if trusted else 0
    entry = exit_port.traffic_classes[exit_port.switch_priority_to_class[priority]]
    return NEVER if entry.congestion_control is None else entry.congestion_control.minimum


def early_drops(device: OnyxDevice, names: list[str]) -> list[int]:
    ports = [device.ports[name] for name in names]
    return [early_drop_kb(a, b, dscp) for a in ports for b in ports for dscp in range(64)]


@settings(few, max_examples=10)
@given(st.data(), PLANS, PLANS)
def test_no_step_drops_what_neither_end_drops(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = OnyxDevice()
    start = TARGET.quantise(first, data.draw(switch_names(first))).state
    apply(device, TARGET.diff(read(device, start), start))
    wanted = TARGET.quantise(second, data.draw(switch_names(second))).state
    names = [port.name for port in wanted.ports]
    steps = TARGET.diff(read(device, wanted), wanted).steps
    seen = [early_drops(device, names)]
    for step in steps:
        assert device.configure(step.command) == ""
        seen.append(early_drops(device, names))
    for between in seen[1:-1]:
        assert all(map(int.__ge__, between, map(min, seen[0], seen[-1])))
