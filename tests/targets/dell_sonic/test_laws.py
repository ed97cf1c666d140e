"""What must hold for every plan, on the emulated switch."""

from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from mltswitch.plan import Plan
from mltswitch.targets import SwitchState
from mltswitch.targets.dell_sonic import TARGET
from mltswitch.targets.dell_sonic.capabilities import HARDWARE
from mltswitch.targets.state import differences
from switchsim.dell_sonic import DellSonicDevice
from switchsim.settings import Facts
from tests.targets.dell_sonic.device import apply, lines_of, read, session_of
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

CAPABILITIES = TARGET.hardware(None)

PLANS = st.sampled_from(list(HARDWARE.values())).flatmap(plans)
NEVER = 10**9
few = settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def state_of(data: st.DataObject, plan: Plan) -> SwitchState:
    return TARGET.quantise(plan, data.draw(switch_names(plan))).state


@few
@given(st.data(), PLANS)
def test_the_switch_takes_every_rendered_line(data: st.DataObject, plan: Plan) -> None:
    state = state_of(data, plan)
    device = DellSonicDevice()
    assert device.configure(*TARGET.render(state, CAPABILITIES)["mltswitch.txt"].splitlines()) == ""
    running = read(device, state)
    assert running.state == state
    assert TARGET.diff(running, state, CAPABILITIES).is_empty


@few
@given(st.data(), PLANS, PLANS)
def test_a_change_leads_from_any_plan_to_any_other(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = DellSonicDevice()
    for plan in (first, second):
        wanted = state_of(data, plan)
        apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
        running = read(device, wanted)
        assert differences(wanted, running.state) == ()
        assert TARGET.diff(running, wanted, CAPABILITIES).is_empty
        assert device.saved == device.configuration


@few
@given(st.data(), PLANS, PLANS)
def test_the_way_back_restores_what_was(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = DellSonicDevice()
    before = state_of(data, first)
    apply(device, TARGET.diff(read(device, before), before, CAPABILITIES))
    configuration = device.configuration
    # Ports and routes lie where the first plan's are, so that the way back finds all that it owns.
    names = {port.name for port in before.ports}
    wanted = state_of(data, second)
    ports = tuple(port for port in wanted.ports if port.name in names)
    background = wanted.background_dscp if any(port.rewritten for port in ports) else 0
    after = SwitchState(ports, before.routes, background_dscp=background)
    apply(device, TARGET.diff(read(device, after), after, CAPABILITIES))
    apply(device, TARGET.diff(read(device, before), before, CAPABILITIES))
    assert read(device, before).state == before
    assert device.configuration == configuration


@few
@given(st.data(), PLANS, PLANS)
def test_no_object_of_an_old_plan_is_left(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = DellSonicDevice()
    wanted = state_of(data, first)
    apply(device, TARGET.diff(read(device, wanted), wanted, CAPABILITIES))
    after = state_of(data, second)
    names = {port.name for port in after.ports}
    apply(device, TARGET.diff(read(device, after), after, CAPABILITIES))
    if {port.name for port in wanted.ports} <= names:
        fresh = DellSonicDevice()
        apply(fresh, TARGET.diff(read(fresh, after), after, CAPABILITIES))
        assert objects(device.configuration) == objects(fresh.configuration)


def objects(configuration: Facts) -> object:
    """Policies and maps."""
    return {f: value for f, value in configuration.items() if f[0] and not f[0].startswith("interface ")}


@st.composite
def foreign_lines(draw: DrawFn) -> list[str]:
    """What somebody may have bound on a port: maps, thresholds on any queue, with and without marking."""
    queues, thresholds = st.integers(0, 7), st.integers(1, 12_480)
    lines: list[str] = []
    for name in ("A", "B"):
        low, high = sorted(draw(st.tuples(thresholds, thresholds)))
        ecn = draw(st.sampled_from(["none", "green", "all"]))
        lines += [
            f"qos wred-policy {name}",
            f"green minimum-threshold {low} maximum-threshold {high} drop-probability 100",
            *(f"ecn {ecn}", "exit"),
            f"qos map dscp-tc {name}",
            *(f"dscp {first}-{first + 15} traffic-class {draw(queues)}" for first in (0, 16, 32, 48)),
            "exit",
            f"qos map tc-queue {name}",
            *(f"traffic-class {number} queue {draw(queues)}" for number in range(8)),
            "exit",
            f"qos scheduler-policy {name}",
        ]
        for queue in draw(st.sets(queues, min_size=1)):
            lines += [f"queue {queue}", draw(st.sampled_from(["type strict", "type dwrr"]))]
            lines += draw(st.sampled_from([[], ["pir 900000"], ["pir 40000000"], ["pir 70000", "cir 50000"]]))
            lines.append("exit")
        lines.append("exit")
    for port in range(1, 5):
        lines.append(f"interface Eth1/{port}")
        for kind in ("dscp-tc", "tc-queue"):
            lines += draw(st.sampled_from([[], [f"qos-map {kind} A"], [f"qos-map {kind} B"]]))
        lines += draw(st.sampled_from([[], ["scheduler-policy A"], ["scheduler-policy B"]]))
        for queue in range(8):
            lines += draw(st.sampled_from([[], [f"queue {queue} wred-policy {draw(st.sampled_from('AB'))}"]]))
        lines.append("exit")
    return lines


Lot = tuple[int, int, int, int]
"""What becomes of a packet, more being better: kilobytes above which it is dropped if it is not ECN-capable,
and if it is; how its queue is served; and the rate at which, in kbit/s."""
UNNAMED, FAIR, WEIGHTED, STRICT = range(4)
"""By a policy that does not name the queue; by no policy; by weight; by priority."""


def lots(configuration: Facts, names: list[str], queues: frozenset[int]) -> list[Lot]:
    """For every way in and out and every code point; other queues than those that the plan
    configures drop nothing early."""
    ports = [bound(configuration, name) for name in names]
    reaches = {head: reach(configuration, head) for head in configuration.heads("qos wred-policy")}
    found: list[Lot] = []
    for entrance in ports:
        dscps = entries(configuration, entrance, "dscp-tc")
        classes = entries(configuration, entrance, "tc-queue")
        for exit_port in ports:
            for dscp in range(64):
                number = dscps.get(dscp, 0)
                queue = classes.get(number, number)
                curve = exit_port.get(f"queue {queue} wred-policy") if queue in queues else None
                lost = reaches[f"qos wred-policy {curve}"] if curve else (NEVER, NEVER)
                found.append((*lost, *service(configuration, exit_port.get("scheduler-policy", ""), queue)))
    return found


def bound(configuration: Facts, port: str) -> dict[str, str]:
    """The words before the name in each line of a port → the name."""
    lines = (line.rpartition(" ") for line in lines_of(configuration, f"interface {port}"))
    return {words: name for words, _, name in lines}


def entries(configuration: Facts, port: Mapping[str, str], kind: str) -> Mapping[int, int]:
    head = f"qos map {kind} {port.get(f'qos-map {kind}')}"
    return {fact[2]: target for fact, target in configuration.items() if fact[:2] == (head, "entry")}


def reach(configuration: Facts, head: str) -> tuple[int, int]:
    lines = [line.split(" ") for line in lines_of(configuration, head)]
    least = next((int(line[2]) for line in lines if line[0] == "green"), NEVER)
    return least, NEVER if lines[-1:] in ([["ecn", "green"]], [["ecn", "all"]]) else least


def service(configuration: Facts, policy: str, queue: int) -> tuple[int, int]:
    if not policy:
        return FAIR, NEVER
    lines = lines_of(configuration, f"qos scheduler-policy {policy}", f"queue {queue}")
    said = dict(line.split(" ") for line in lines)
    rate = int(said.get("pir", NEVER))
    return {"": UNNAMED, "strict": STRICT}.get(said.get("type", ""), WEIGHTED), rate


def steps_between(device: DellSonicDevice, wanted: SwitchState) -> list[list[Lot]]:
    names = [port.name for port in wanted.ports]
    used = frozenset(queue.queue for port in wanted.ports for queue in port.queues if not queue.is_lossless)
    steps = TARGET.diff(read(device, wanted), wanted, CAPABILITIES).steps
    seen = [lots(device.configuration, names, used)]
    session = session_of(device, "configure terminal")
    for step in steps:
        assert session.enter(step.command).text == ""
        seen.append(lots(device.configuration, names, used))
    return seen


def no_step_is_worse(seen: list[list[Lot]]) -> bool:
    distinct = {step: None for lot in seen for step in [tuple(lot)]}
    return all(
        now[kind] >= min(before[kind], after[kind])
        for between in distinct
        for now, before, after in zip(between, seen[0], seen[-1], strict=True)
        for kind in range(4)
    )


@settings(few, max_examples=min(10, LAW_EXAMPLES))
@given(st.data(), PLANS, PLANS)
def test_no_step_treats_a_packet_worse_than_both_ends(data: st.DataObject, first: Plan, second: Plan) -> None:
    device = DellSonicDevice()
    if data.draw(st.booleans(), "a plan before"):
        start = state_of(data, first)
        apply(device, TARGET.diff(read(device, start), start, CAPABILITIES))
    assert no_step_is_worse(steps_between(device, state_of(data, second)))


@settings(few, max_examples=min(10, LAW_EXAMPLES))
@given(st.data(), PLANS, foreign_lines())
def test_no_step_from_somebody_elses_objects_treats_a_packet_worse_than_both_ends(
    data: st.DataObject, plan: Plan, lines: list[str]
) -> None:
    device = DellSonicDevice()
    assert device.configure(*lines) == ""
    assert no_step_is_worse(steps_between(device, state_of(data, plan)))


@settings(few, max_examples=min(10, LAW_EXAMPLES))
@given(st.data(), PLANS, PLANS, foreign_lines())
def test_no_step_from_objects_of_ours_that_somebody_changed_treats_a_packet_worse_than_both_ends(
    data: st.DataObject, first: Plan, second: Plan, lines: list[str]
) -> None:
    device = DellSonicDevice()
    start = state_of(data, first)
    wanted = data.draw(st.sampled_from([start, state_of(data, second)]))
    apply(device, TARGET.diff(read(device, start), start, CAPABILITIES))
    heads = device.configuration.heads("interface")
    served = {
        head: line
        for head in heads
        for line in lines_of(device.configuration, head)
        if line.startswith("scheduler-policy ")
    }
    assert device.configure(*lines[: data.draw(st.sampled_from([0, len(lines)]))]) == ""
    for head, line in data.draw(st.sampled_from([{}, served])).items():
        assert device.configure(head, line) == ""
    for policy in device.configuration.heads("qos scheduler-policy"):
        queue = data.draw(st.integers(0, 7))
        words = data.draw(st.sampled_from(["type strict", "type dwrr", "pir 400000", "no pir"]))
        device.configure(policy, f"queue {queue}", words)
    assert no_step_is_worse(steps_between(device, wanted))
