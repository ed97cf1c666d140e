"""The way back from any point of a push leads to exactly what ran before."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from mltswitch.plan import Plan
from mltswitch.targets import Change, SwitchState
from mltswitch.targets.eos import TARGET
from mltswitch.targets.eos.read import RUNNING_CONFIG, placed_lines
from switchsim.eos import EosDevice
from tests.targets.eos.device import apply, read, send
from tests.targets.eos.test_laws import CAPABILITIES, TRIDENT3_PLANS, few
from tests.targets.strategies import switch_names


def state_of(data: st.DataObject, plan: Plan) -> SwitchState:
    return TARGET.quantise(plan, data.draw(switch_names(plan))).state


@st.composite
def foreign_lines(draw: DrawFn, wanted: SwitchState) -> list[str]:
    """Maps, trust, queues, policies and routes that somebody may have set."""
    numbers = st.integers(0, 6)
    lines = [
        f"qos map dscp {dscp} to traffic-class {draw(numbers)}"
        + draw(st.sampled_from(["", " drop-precedence 0", " drop-precedence 1"]))
        for dscp in draw(st.sets(st.integers(0, 63), max_size=6))
    ]
    lines += [f"qos map traffic-class {n} to tx-queue {draw(numbers)}" for n in draw(st.sets(numbers))]
    own = "mltswitch-control-ipv4"
    policies = (
        *(["ip access-list " + own, "7 permit ip any any dscp 6", "900 deny ip any any"],),
        *(["ip access-list " + own, "7 permit ip any any dscp 9"],),
        ["class-map type qos match-any " + own, "match vlan 7"],
        [
            *("policy-map type quality-of-service mltswitch-host", "class " + own),
            *("set traffic-class 5", "set cos 3"),
        ],
    )
    for entry in draw(st.lists(st.sampled_from(policies), unique_by=str)):
        lines += entry
    queue_lines = (
        *("no priority", "bandwidth percent 7", "bandwidth guaranteed percent 9", "shape rate 50 percent"),
        *("shape rate 7000 kbps", "random-detect ecn count", "bandwidth guaranteed 4000 kbps"),
        *("bandwidth guaranteed 1000 pps", "shape rate 1000 pps"),
        "random-detect ecn minimum-threshold 9 kbytes maximum-threshold 90 kbytes",
        "random-detect ecn minimum-threshold 9 bytes maximum-threshold 9000000 bytes max-mark-probability 5",
        "random-detect drop minimum-threshold 9 kbytes maximum-threshold 90 kbytes drop-probability 5",
    )
    port_lines = (
        "no qos trust",
        "qos trust cos",
        "qos trust dscp",
        "no switchport",
        "qos cos 3",
        "qos dscp 9",
    )
    for port in wanted.ports:
        lines.append(f"interface {port.name}")
        lines += draw(st.lists(st.sampled_from(port_lines)))
        if not port.rewritten:
            lines += draw(st.sampled_from([[], ["service-policy type qos input FOREIGN"]]))
        for queue in draw(st.sets(st.integers(0, 7), max_size=3)):
            lines += [f"uc-tx-queue {queue}", *draw(st.lists(st.sampled_from(queue_lines), max_size=4))]
    for route in draw(st.lists(st.sampled_from(wanted.routes or [None]), max_size=3)):
        if route is not None:
            ways = ("Null0", "Null0 9", f"{route.next_hop} 7", f"{route.port} {route.next_hop} 5", "10.9.9.9")
            lines.append(
                f"ip route {route.prefix} {draw(st.sampled_from(ways))}".replace(" 0.0.0.0", " 10.9.8.7")
            )
    return lines


def configured(device: EosDevice) -> list[tuple[tuple[str, ...], str]]:
    """The whole configuration; routes, lists and policies stand in the order in which they came to be."""
    session = device.open_session("admin")
    session.enter("enable")
    shown = session.enter(RUNNING_CONFIG).text
    return sorted(placed_lines(shown))


@settings(few)
@given(st.data(), TRIDENT3_PLANS, TRIDENT3_PLANS)
def test_the_way_back_leads_to_what_ran(data: st.DataObject, former: Plan, plan: Plan) -> None:
    device = EosDevice()
    first = state_of(data, former)
    wanted = data.draw(st.sampled_from([state_of(data, plan), first]))
    if data.draw(st.booleans()):
        apply(device, TARGET.diff(read(device, first), first, CAPABILITIES))
    if data.draw(st.booleans()):
        # Where a line cannot be entered over the former plan, the others are foreign enough.
        device.configure(*data.draw(foreign_lines(wanted)))
    before = read(device, wanted).answers
    at_start = configured(device)
    change = TARGET.diff(read(device, wanted), wanted, CAPABILITIES)
    sent = (*change.steps, *change.save)
    everything = st.sampled_from([len(change.steps), len(sent)])
    send(device, sent[: data.draw(everything | st.integers(0, len(sent)))])

    def way_back() -> Change:
        return TARGET.restore(before, read(device, wanted), wanted, CAPABILITIES)

    apply(device, way_back())
    assert configured(device) == at_start
    assert way_back().is_empty
