"""The way back from a push to exactly what ran before, on the emulated switch."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import DeviceError
from mltswitch.plan import Plan
from mltswitch.targets import PortState, SwitchState
from mltswitch.targets.base import Step
from mltswitch.targets.icos import TARGET
from mltswitch.targets.remap import HOST_POLICY, UNTRUSTED_POLICY, policy_of
from switchsim.icos import IcosDevice
from switchsim.settings import Facts
from tests.targets.icos.device import apply, policies_of, read
from tests.targets.icos.test_icos import STATE, WITH_HOSTS, serving
from tests.targets.icos.test_laws import CAPABILITIES, PLANS, early_drops, few, planned, state_of
from tests.targets.strategies import LAW_EXAMPLES

QUEUES = st.integers(0, 6)
ROW = st.lists(st.integers(0, 100), min_size=4, max_size=4).map(sorted)


@st.composite
def foreign_lines(draw: st.DrawFn, wanted: SwitchState) -> list[str]:
    """What somebody else may have configured where the plan goes."""
    lines = [
        f"classofservice ip-dscp-mapping {dscp} {draw(QUEUES)}"
        for dscp in draw(st.lists(st.integers(0, 63), max_size=4))
    ]
    lines += ["class-map match-all voice ipv4", "match vlan 7", "exit"]
    lines += ["policy-map theirs in", "class voice", "assign-queue 5", "exit", "exit"]
    # Names of ours with contents of somebody else.
    dscp = draw(st.sampled_from([8, 48, 56]))
    strange = [f"class-map match-all mltswitch-{dscp}-ipv4 ipv4", f"match ip dscp {draw(QUEUES)}", "exit"]
    lines += draw(st.sampled_from([[], strange]))
    for policy in (HOST_POLICY, UNTRUSTED_POLICY):
        action = draw(st.sampled_from([[], ["assign-queue 3"], ["assign-queue 3", "mark ip-dscp 9"]]))
        strange = [f"policy-map {policy} in", "class voice", *action, "exit", "exit"]
        lines += draw(st.sampled_from([[], strange]))
    for port in draw(st.lists(st.sampled_from(wanted.ports), unique=True)):
        low, high, scale = (" ".join(map(str, draw(ROW))) for _ in range(3))
        words = [
            f"classofservice trust {draw(st.sampled_from(['dot1p', 'ip-dscp', 'untrusted']))}",
            f"classofservice dot1p-mapping {draw(st.integers(0, 7))} {draw(QUEUES)}",
            f"cos-queue strict {draw(QUEUES)}",
            f"no cos-queue strict {draw(QUEUES)}",
            f"cos-queue random-detect {draw(QUEUES)}",
            f"random-detect queue-parms {draw(QUEUES)} min-thresh {low} max-thresh {high} "
            f"drop-prob-scale {scale}{draw(st.sampled_from(['', ' ecn']))}",
            f"random-detect exponential-weighting-constant {draw(st.integers(0, 15))}",
            "no cos-queue min-bandwidth",
            "traffic-shape 50",
        ]
        chosen = draw(st.lists(st.sampled_from(words), max_size=6))
        if not policy_of(port) and draw(st.booleans()):
            chosen += [f"no service-policy in {HOST_POLICY}", f"no service-policy in {UNTRUSTED_POLICY}"]
            chosen.append("service-policy in theirs")
        lines += [f"interface {port.name}", *chosen, "exit"]
    if wanted.routes:
        for route in draw(st.lists(st.sampled_from(wanted.routes), unique=True, max_size=3)):
            hop, preference = draw(st.sampled_from(["192.0.2.1", "Null0"])), draw(st.sampled_from(["", " 7"]))
            prefix = f"{route.prefix.network_address} {route.prefix.netmask}"
            lines.append(f"ip route {prefix} {hop}{preference}")
    return lines


def comparable(configuration: Facts) -> tuple[object, ...]:
    """Classes have no order; the classes of a policy do."""
    return configuration, {
        name: list(classes.items()) for name, classes in policies_of(configuration).items()
    }


def apply_some(device: IcosDevice, steps: tuple[Step, ...]) -> None:
    session = device.open_session("admin")
    for line in ("enable", "configure", *(step.command for step in steps)):
        assert session.enter(line).text == "", line


@few
@given(st.data(), st.lists(PLANS, max_size=2), PLANS, st.none() | PLANS)
def test_the_way_back_is_exact_from_every_step(
    data: st.DataObject, former: list[Plan], plan: Plan, over: Plan | None
) -> None:
    """From every step of a push, and of the push of a plan with the same settings over it."""
    device = IcosDevice()
    for old in former:
        planned(device, state_of(data, old))
    wanted = state_of(data, plan)
    device.configure(*data.draw(foreign_lines(wanted)))
    start, before = device.configuration, read(device, wanted)
    pushed = [wanted]
    if over is not None:
        pushed.append(retold(state_of(data, over), wanted))
    for state in pushed:
        steps = TARGET.diff(read(device, state), state, CAPABILITIES).steps
        apply_some(device, steps[: data.draw(st.integers(0, len(steps)) | st.just(len(steps)), "steps")])
    back = TARGET.restore(before.answers, read(device, wanted), wanted, CAPABILITIES)
    # It may be broken off, too.
    apply_some(device, back.steps[: data.draw(st.integers(0, len(back.steps)), "steps back")])
    apply(device, TARGET.restore(before.answers, read(device, wanted), wanted, CAPABILITIES))
    assert comparable(device.configuration) == comparable(start)
    assert device.saved == device.configuration
    assert TARGET.restore(before.answers, read(device, wanted), wanted, CAPABILITIES).is_empty


def retold(state: SwitchState, wanted: SwitchState) -> SwitchState:
    """The ports of the plan that have the same settings as the wanted one, so that the way back owns them."""
    owned = {port.name: owned_settings(port) for port in wanted.ports}
    ports = tuple(port for port in state.ports if owned_settings(port) == owned.get(port.name))
    return replace(state, ports=ports, routes=wanted.routes[::2])


def owned_settings(port: PortState) -> tuple[set[tuple[int, bool]], set[int], str]:
    """Of a queue without a threshold the curve is not ours."""
    queues = {(queue.queue, queue.ecn_threshold_bytes is None) for queue in port.queues}
    return queues, {dscp for queue in port.queues for dscp in queue.dscps}, policy_of(port)


@settings(few, max_examples=max(10, LAW_EXAMPLES // 4))
@given(st.data(), st.none() | PLANS, PLANS)
def test_no_step_back_drops_what_neither_end_drops(
    data: st.DataObject, former: Plan | None, plan: Plan
) -> None:
    device = IcosDevice()
    if former is not None:
        planned(device, state_of(data, former))
    wanted = state_of(data, plan)
    before, names = read(device, wanted).answers, [port.name for port in wanted.ports]
    planned(device, wanted)
    seen = [early_drops(device, names)]
    session = device.open_session("admin")
    for line in ("enable", "configure"):
        session.enter(line)
    for step in TARGET.restore(before, read(device, wanted), wanted, CAPABILITIES).steps:
        assert session.enter(step.command).text == ""
        seen.append(early_drops(device, names))
    for between in seen[1:-1]:
        assert all(map(int.__ge__, between, map(min, seen[0], seen[-1])))


def test_a_class_of_others_behind_ours_comes_back_behind_them() -> None:
    device = serving(WITH_HOSTS)
    voice = ("class-map match-all voice ipv4", "match vlan 7", "exit")
    device.configure(*voice, f"policy-map {HOST_POLICY} in", "class voice", "exit", "exit")
    wanted = replace(WITH_HOSTS, ports=(replace(STATE.ports[1], name=WITH_HOSTS.ports[2].name),))
    start, before = device.configuration, read(device, wanted)
    planned(device, wanted)
    assert HOST_POLICY not in policies_of(device.configuration)
    apply(device, TARGET.restore(before.answers, read(device, wanted), wanted, CAPABILITIES))
    assert comparable(device.configuration) == comparable(start)


def test_the_systems_queue_is_named_before_the_push() -> None:
    text = Path(__file__).with_name("example.txt").read_text()
    device, wanted = IcosDevice(), TARGET.parse({"mltswitch.txt": text}, CAPABILITIES)
    running = read(device, wanted)
    shown = "show classofservice ip-dscp-mapping"
    mapped = running.answers[shown].replace("56(cs7)            3", "56(cs7)            7")
    with pytest.raises(DeviceError, match="dscp 56 map 7, for which no command is known"):
        TARGET.restore({**running.answers, shown: mapped}, running, wanted, CAPABILITIES)


def test_guarantees_of_queues_that_are_not_the_plans_stay_on_the_way_back() -> None:
    device = IcosDevice()
    before = read(device, STATE).answers
    planned(device, STATE)
    device.configure("interface te1/0/2", "cos-queue min-bandwidth 0 0 7 0 0 0 0", "exit")
    apply(device, TARGET.restore(before, read(device, STATE), STATE, CAPABILITIES))
    assert device.fact("te1/0/2", "min-bandwidth") == (0, 0, 7, 0, 0, 0, 0)


def test_a_class_of_somebody_else_keeps_its_place_in_our_policy() -> None:
    device = IcosDevice()
    planned(device, WITH_HOSTS)
    (port,) = (port.name for port in WITH_HOSTS.ports if policy_of(port) == HOST_POLICY)
    names = [f"mltswitch-{dscp}-{family}" for dscp in (48, 56) for family in ("ipv4", "ipv6")]
    ours = [line for name in names for line in (f"class {name}", "assign-queue 0", "exit")]
    head = f"policy-map {HOST_POLICY} in"
    device.configure(f"interface {port}", f"no service-policy in {HOST_POLICY}", "exit")
    device.configure(head, *(f"no class {name}" for name in names), "exit")
    device.configure("class-map match-all theirs ipv4", "match any", "exit")
    device.configure(head, "class theirs", "assign-queue 5", "exit", *ours, "exit")
    device.configure(f"interface {port}", f"service-policy in {HOST_POLICY}", "exit")
    before, at_start = read(device, WITH_HOSTS).answers, device.configuration
    planned(device, WITH_HOSTS)
    apply(device, TARGET.restore(before, read(device, WITH_HOSTS), WITH_HOSTS, CAPABILITIES))
    assert device.configuration == at_start
