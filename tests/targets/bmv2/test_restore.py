"""The way back from any point of a push leads to exactly what ran before."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import DeviceError
from mltswitch.plan import Plan
from mltswitch.targets import Change, SwitchState
from mltswitch.targets.bmv2 import TARGET
from tests.targets.bmv2.device import Switch, apply, read
from tests.targets.bmv2.test_laws import CAPABILITIES, PLANS, few, state_of

FOREIGN = (
    "table_add ipv4_routes share_flows 192.168.0.0/16 => 1",
    "table_add groups forward 1 => 300 301",
    "table_add queues set_limit 1 4 => 1000 0 1514",
    "table_add ports trust 1 02:00:00:00:00:02 =>",
    "table_add classes set_queue 1 02:00:00:00:00:02 34 => 4",
    "meter_set_rates policers 12 0.5:2000 0.5:2000",
    "table_add ipv4_routes forward 10.0.0.0/30 => 2",
)


def way_back(switch: Switch, before: Switch, wanted: SwitchState) -> Change:
    return TARGET.restore(before.answers(), read(switch, wanted), wanted, CAPABILITIES)


@few
@given(st.data(), PLANS, PLANS, st.sampled_from(["none", "foreign", "former", "foreign former"]))
def test_the_way_back_leads_to_what_ran(data: st.DataObject, former: Plan, plan: Plan, start: str) -> None:
    switch = Switch(program="none" if start == "none" else "mltswitch")
    for line in FOREIGN if "foreign" in start else ():
        switch.enter(line)
    if "former" in start:
        first = state_of(data, former)
        apply(switch, TARGET.diff(read(switch, first), first, CAPABILITIES))
    wanted = state_of(data, plan)
    before = copy.deepcopy(switch)
    assert way_back(switch, before, wanted).is_empty
    steps = TARGET.diff(read(switch, wanted), wanted, CAPABILITIES).steps
    apply(switch, steps[: data.draw(st.just(len(steps)) | st.integers(0, len(steps)))])
    back = way_back(switch, before, wanted).steps
    apply(switch, back[: data.draw(st.just(len(back)) | st.integers(0, len(back)))])
    apply(switch, way_back(switch, before, wanted))
    assert switch.answers()["entries"] == before.answers()["entries"]
    assert before.meters.items() <= switch.meters.items()
    assert way_back(switch, before, wanted).is_empty


@pytest.mark.parametrize(("ran", "runs"), [("other", "mltswitch"), ("mltswitch", "none"), ("none", "other")])
def test_what_was_another_program_cannot_come_back(ran: str, runs: str) -> None:
    wanted = SwitchState((), ())
    with pytest.raises(DeviceError, match=f"program {ran} ran before, and {runs} runs now"):
        way_back(Switch(program=runs), Switch(program=ran), wanted)
