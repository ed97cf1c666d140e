"""What must hold for every plan, on the emulated switch."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.plan import Plan
from mltswitch.targets import SwitchState
from mltswitch.targets.cumulus import TARGET
from mltswitch.targets.state import differences
from switchsim.cumulus import CumulusDevice
from switchsim.cumulus_tree import Tree, leaves
from tests.targets.cumulus.device import apply, read, run, undo
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

CAPABILITIES = TARGET.hardware(None)

PLANS = plans(TARGET.hardware(None))
few = settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

FOREIGN = (
    "nv set interface swp15-16 qos mapping profile theirs",
    "nv set interface swp1 description uplink",
    "nv set qos mapping theirs trust both",
    "nv set qos mapping default-global trust l3",
    "nv set qos egress-scheduler default-global traffic-class 0-7 mode strict",
    "nv set qos congestion-control default-global traffic-class 3 red enable",
    "nv set qos egress-queue-mapping default-global switch-priority 3 traffic-class 1",
    "nv set qos pfc lossless switch-priority 3",
    "nv set interface swp16 qos pfc profile lossless",
    "nv set qos egress-shaper theirs traffic-class 0 max-rate 1000",
    "nv set interface swp16 qos egress-shaper profile theirs",
    "nv set acl theirs type ipv4",
    "nv set acl theirs rule 10 action set dscp 46",
    "nv set interface swp15 acl theirs inbound",
    "nv set interface swp1-2 acl theirs inbound control-plane",
    "nv set vrf default router static 192.0.2.0/24 via 10.9.9.9",
    "nv set vrf red router static 10.0.0.0/8 via 10.9.9.9",
    "nv set vrf default router static 2001:db8::/32 via blackhole",
    "nv config apply -y",
)


def owned(path: tuple[str, ...], wanted: SwitchState) -> bool:
    ports = {port.name for port in wanted.ports}
    match path:
        case ("qos", "mapping" | "egress-scheduler" | "congestion-control" | "egress-shaper", name, *_):
            return name == "mlt" or name.startswith("mlt-")
        case ("acl", name, *_):
            return name.startswith("mlt-")
        case ("interface", name, "acl", acl, *_):
            return name in ports and acl.startswith("mlt-")
        case (
            "interface",
            name,
            "qos",
            "mapping" | "egress-scheduler" | "congestion-control" | "egress-shaper",
            *_,
        ):
            return name in ports
        case ("vrf", "default", "router", "static", prefix, *_):
            return prefix.startswith("10.")
        case _:
            return False


def rest(tree: Tree, *states: SwitchState) -> dict[tuple[str, ...], Any]:
    """What none of the states owns."""
    return {path: value for path, value in leaves(tree) if not any(owned(path, wanted) for wanted in states)}


@few
@given(st.data(), PLANS, st.sampled_from(["mltswitch.txt", "mltswitch.yaml"]))
def test_the_switch_takes_either_rendered_file(data: st.DataObject, plan: Plan, name: str) -> None:
    state = TARGET.quantise(plan, data.draw(switch_names(plan))).state
    device, text = CumulusDevice(), TARGET.render(state, CAPABILITIES)[name]
    if name.endswith(".txt"):
        run(device, *(line for line in text.split("\n") if line and not line.startswith("#")))
    else:
        assert device.execute("cumulus", "tee /tmp/mltswitch.yaml", text.encode).status == 0
        run(device, "nv config patch /tmp/mltswitch.yaml")
    run(device, "nv config apply -y")
    running = read(device, state)
    assert running.state == state
    assert TARGET.diff(running, state, CAPABILITIES).is_empty


@few
@given(st.data(), PLANS, PLANS)
def test_a_change_leads_from_any_plan_to_any_other(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = CumulusDevice()
    run(device, *FOREIGN)
    states: list[SwitchState] = []
    theirs = device.applied
    for plan in (first, second):
        wanted = TARGET.quantise(plan, data.draw(switch_names(plan))).state
        states.append(wanted)
        apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
        running = read(device, wanted)
        assert differences(wanted, running.state) == ()
        assert running.state == wanted
        assert TARGET.diff(running, wanted, CAPABILITIES).is_empty
        assert device.saved == device.applied
    assert rest(device.applied, *states) == rest(theirs, *states)


@few
@given(st.data(), PLANS, PLANS)
def test_what_a_change_says_leads_back_does(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = CumulusDevice()
    run(device, *FOREIGN)
    for plan in (first, second):
        before = device.applied
        wanted = TARGET.quantise(plan, data.draw(switch_names(plan))).state
        change = TARGET.diff(read(device, wanted), wanted, CAPABILITIES)
        if change.is_empty:
            continue
        apply(device, change)
        undo(device, change)
        assert device.applied == before
        apply(device, change)
        once = device.applied
        device.revisions.applied = before
        apply(device, change)
        assert device.applied == once
