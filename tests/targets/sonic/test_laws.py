"""What must hold for every plan, on the emulated switch."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.lab.emulators.sonic import SonicDevice
from mltswitch.plan import Plan
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.state import differences
from tests.targets.sonic.device import apply, read
from tests.targets.strategies import plans, switch_names

PLANS = plans(TARGET.hardware(None))
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@few
@given(st.data(), PLANS)
def test_what_is_rendered_reads_back(data: st.DataObject, plan: Plan) -> None:
    state = TARGET.quantise(plan, data.draw(switch_names(plan))).state
    files = TARGET.render(state)
    assert TARGET.parse(files) == state
    assert TARGET.render(state) == files


@few
@given(st.data(), PLANS, PLANS)
def test_a_change_leads_from_any_plan_to_any_other(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = SonicDevice()
    for plan in (first, second):
        wanted = TARGET.quantise(plan, data.draw(switch_names(plan))).state
        apply(device, TARGET.diff(read(device, wanted), wanted))
        running = read(device, wanted)
        assert differences(wanted, running.state) == ()
        assert running.state == wanted
        assert TARGET.diff(running, wanted).is_empty
