"""What a config session of EOS does by itself: what is not confirmed in time goes back."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.targets.state import differences
from switchsim.eos import EosDevice
from tests.targets.eos.under_test import EosUnderTest
from tests.targets.strategies import LAW_EXAMPLES


@settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_is_not_confirmed_is_rolled_back_exactly(data: st.DataObject) -> None:
    now = [0.0]
    switch = EosUnderTest(EosUnderTest.target.hardware(None))
    device = switch.device = EosDevice(clock=lambda: now[0])
    start, wanted = switch.state_of(data), switch.state_of(data)
    switch.push(start)
    former = device.configuration
    switch.send(switch.change(wanted).steps)
    assert differences(wanted, switch.read(wanted).state) == ()
    now[0] += 601.0
    assert device.configuration == former == device.saved
    assert switch.read(start).state == start
