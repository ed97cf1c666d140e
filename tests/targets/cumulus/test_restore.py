"""The way back from any point of a push leads to exactly what ran before."""

import copy

from hypothesis import given
from hypothesis import strategies as st

from mltswitch.plan import Plan
from mltswitch.targets import Change
from mltswitch.targets.cumulus import TARGET
from switchsim.cumulus import CumulusDevice
from tests.targets.cumulus.device import apply, read, run
from tests.targets.cumulus.test_laws import CAPABILITIES, FOREIGN, PLANS, few

ON_OUR_PORTS = (
    "nv set interface swp1-4 qos mapping profile theirs",
    "nv set interface swp2 qos egress-shaper profile theirs",
    "nv set qos egress-queue-mapping default-global switch-priority 5 traffic-class 2",
)


@few
@given(st.data(), PLANS, PLANS, st.booleans())
def test_the_way_back_leads_to_what_ran(
    data: st.DataObject, former: Plan, plan: Plan, is_foreign: bool
) -> None:
    device = CumulusDevice()
    wanted = TARGET.quantise(plan, data.draw(st.sampled_from(sorted(plan.topology.by_name)))).state
    if is_foreign:
        run(device, *FOREIGN[:-1])
        run(device, *ON_OUR_PORTS[: data.draw(st.integers(0, len(ON_OUR_PORTS)))])
        for route in wanted.routes:
            if data.draw(st.booleans()):
                run(device, f"nv set vrf default router static {route.prefix} via 10.9.9.9")
        run(device, "nv config apply -y", "nv config save")
    if data.draw(st.booleans()):
        first = TARGET.quantise(former, data.draw(st.sampled_from(sorted(former.topology.by_name)))).state
        apply(device, TARGET.diff(read(device, first), first, CAPABILITIES))
    before, at_start = read(device, wanted).answers, copy.deepcopy(device.applied)

    def way_back() -> Change:
        return TARGET.restore(before, read(device, wanted), wanted, CAPABILITIES)

    assert way_back().is_empty
    for change in (TARGET.diff(read(device, wanted), wanted, CAPABILITIES), None):
        steps = (change or way_back()).steps
        sent = data.draw(st.just(len(steps)) | st.integers(0, len(steps)))
        run(device, *(step.command for step in steps[:sent]))
    apply(device, way_back())
    assert device.applied == device.saved == at_start
    assert device.revisions.pending is None
    assert way_back().is_empty
