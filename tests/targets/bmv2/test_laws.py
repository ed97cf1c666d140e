"""What must hold for every plan, on a model of the switch's tables."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from mltswitch.plan import Plan
from mltswitch.targets import SwitchState
from mltswitch.targets.bmv2 import TARGET
from mltswitch.targets.bmv2.ports import port_number
from mltswitch.targets.state import differences
from tests.targets.bmv2.device import Switch, apply, read, rendered
from tests.targets.service_order import inversions
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

CAPABILITIES = TARGET.hardware(None)

PLANS = plans(TARGET.hardware(None))
Ways = list[list[int]]
few = settings(
    max_examples=LAW_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def state_of(data: st.DataObject, plan: Plan) -> SwitchState:
    return TARGET.quantise(plan, data.draw(switch_names(plan))).state


def addressed_as(state: SwitchState, other: SwitchState) -> SwitchState:
    """With the MAC addresses that the ports have there: to others nobody sends."""
    addresses = {port.name: port.hardware_address for port in other.ports}
    ports = (
        replace(port, hardware_address=addresses.get(port.name, port.hardware_address))
        for port in state.ports
    )
    return replace(state, ports=tuple(ports))


@few
@given(st.data(), PLANS)
def test_the_switch_takes_every_rendered_line(data: st.DataObject, plan: Plan) -> None:
    state, switch = state_of(data, plan), Switch()
    rendered(switch, state)
    running = read(switch, state)
    assert running.state == state
    assert TARGET.diff(running, state, CAPABILITIES).is_empty


@few
@given(st.data(), PLANS)
def test_nothing_is_rounded_but_limits_that_bmv2_cannot_hold(data: st.DataObject, plan: Plan) -> None:
    quantised = TARGET.quantise(plan, data.draw(switch_names(plan)))
    assert {rounding.field for rounding in quantised.roundings} <= {"limit", "maximum"}
    assert list(quantised.class_queues.values())[:-1] == list(range(7, 8 - len(plan.classes), -1))
    assert quantised.class_queues["background"] == 0


@few
@given(st.data(), PLANS, PLANS)
def test_a_change_leads_from_any_plan_to_any_other(data: st.DataObject, first: Plan, second: Plan) -> None:
    switch = Switch(program="none")
    for plan in (first, second):
        wanted = state_of(data, plan)
        apply(switch, TARGET.diff(read(switch, wanted), wanted, CAPABILITIES))
        running = read(switch, wanted)
        assert running.state == wanted
        assert differences(wanted, running.state) == ()
        assert TARGET.diff(running, wanted, CAPABILITIES).is_empty
        assert switch.depth == 16384


def on_ports_of(state: SwitchState, other: SwitchState) -> SwitchState:
    """The ports that another state has, too, and the routes that lead there."""
    names = {port.name for port in other.ports}
    ports = tuple(port for port in state.ports if port.name in names)
    return replace(state, ports=ports, routes=tuple(route for route in state.routes if route.port in names))


@few
@given(st.data(), PLANS, PLANS)
def test_the_way_back_restores_what_was(data: st.DataObject, first: Plan, second: Plan) -> None:
    switch, before = Switch(), state_of(data, first)
    apply(switch, TARGET.diff(read(switch, before), before, CAPABILITIES))
    # The second plan's routes lie where the first one's are, so that the way back finds all that it owns.
    after = replace(on_ports_of(state_of(data, second), before), routes=before.routes)
    if len(after.ports) < len(before.ports):
        return
    entries = switch.answers()["entries"]
    apply(switch, TARGET.diff(read(switch, after), after, CAPABILITIES))
    apply(switch, TARGET.diff(read(switch, before), before, CAPABILITIES))
    assert read(switch, before).state == before
    assert len(switch.answers()["entries"].splitlines()) == len(entries.splitlines())


@few
@given(st.data(), PLANS, PLANS)
def test_a_change_that_ends_midway_is_finished_by_the_next(
    data: st.DataObject, first: Plan, second: Plan
) -> None:
    switch, start, wanted = Switch("none"), state_of(data, first), state_of(data, second)
    apply(switch, TARGET.diff(read(switch, start), start, CAPABILITIES))
    steps = TARGET.diff(read(switch, wanted), wanted, CAPABILITIES).steps
    apply(switch, steps[: data.draw(st.integers(0, len(steps)), "sent")])
    apply(switch, TARGET.diff(read(switch, wanted), wanted, CAPABILITIES))
    assert read(switch, wanted).state == wanted
    clean = Switch("none")
    apply(clean, TARGET.diff(read(clean, start), start, CAPABILITIES))
    apply(clean, TARGET.diff(read(clean, wanted), wanted, CAPABILITIES))
    assert len(switch.answers()["entries"]) == len(clean.answers()["entries"])


@few
@given(st.data(), PLANS, PLANS)
def test_nothing_foreign_is_touched(data: st.DataObject, first: Plan, second: Plan) -> None:
    switch = Switch()
    foreign = (
        "table_add queues set_limit 300 4 => 1000 0 1514",
        "table_add ports trust 300 02:00:00:00:00:02 =>",
        "table_add classes set_queue 300 02:00:00:00:00:02 34 => 4",
        "table_add ipv4_routes share_flows 192.168.0.0/16 => 7",
        "table_add groups forward 7 => 300 301",
        "table_add neighbours set_neighbour 300 => 02:00:00:00:00:02 02:00:00:00:00:01",
    )
    for line in foreign:
        switch.enter(line)
    for plan in (first, second):
        wanted = state_of(data, plan)
        running = read(switch, wanted)
        assert any("entries that no plan of these ports" in note for note in running.notes)
        apply(switch, TARGET.diff(running, wanted, CAPABILITIES))
        assert set(foreign) <= set(switch.answers()["entries"].splitlines())
        assert switch.depth == 16384


@few
@given(st.data(), PLANS, st.sets(st.integers(0, 511), max_size=4))
def test_a_stray_neighbour_is_told_and_removed_on_ports_of_the_plan_only(
    data: st.DataObject, plan: Plan, others: set[int]
) -> None:
    wanted, switch = state_of(data, plan), Switch()
    name = data.draw(st.sampled_from([port.name for port in wanted.ports]), "without routes")
    wanted = replace(wanted, routes=tuple(route for route in wanted.routes if route.port != name))
    apply(switch, TARGET.diff(read(switch, wanted), wanted, CAPABILITIES))
    clean = set(switch.answers()["entries"].splitlines())
    ports = {port_number(port.name) for port in wanted.ports}
    stray = "table_add neighbours set_neighbour {} => 02:4d:00:00:00:02 02:4d:00:00:00:01"
    foreign = {stray.format(port) for port in others - ports}
    for line in {*foreign, stray.format(port_number(name))}:
        switch.enter(line)
    running = read(switch, wanted)
    assert [(found.port, found.field) for found in differences(wanted, running.state)] == [
        (name, "configuration")
    ]
    change = TARGET.diff(running, wanted, CAPABILITIES)
    assert [step.command for step in change.steps] == [f"table_delete_match neighbours {port_number(name)}"]
    apply(switch, change)
    assert read(switch, wanted).state == wanted
    assert set(switch.answers()["entries"].splitlines()) == clean | foreign


def queues_led_to(switch: Switch, names: list[str]) -> Ways:
    """For each port the queue of each code point: the way out does not matter."""
    return [[switch.queue_of(port_number(name), dscp) for dscp in range(64)] for name in names]


@st.composite
def strange(draw: DrawFn, switch: Switch, wanted: SwitchState) -> None:
    """Classes as somebody else might leave them."""
    for port in wanted.ports:
        number, address = port_number(port.name), port.hardware_address
        for dscp in draw(st.lists(st.integers(0, 63), max_size=4, unique=True)):
            queue = draw(st.integers(0, 7))
            key = (number, int(address.replace(":", ""), 16), dscp)
            text = f"table_add classes set_queue {number} {address} {dscp} => {queue}"
            switch.tables["classes"][key] = "set_queue", (queue,), text


@few
@given(st.data(), PLANS, PLANS, st.booleans())
def test_no_step_serves_late_what_neither_end_does(
    data: st.DataObject, first: Plan, second: Plan, is_strange: bool
) -> None:
    switch, start, wanted = Switch(), state_of(data, first), state_of(data, second)
    start = addressed_as(start, wanted)
    names = [port.name for port in wanted.ports]
    apply(switch, TARGET.diff(read(switch, start), start, CAPABILITIES))
    if is_strange:
        data.draw(strange(switch, wanted))
    seen = [queues_led_to(switch, names)]
    for step in TARGET.diff(read(switch, wanted), wanted, CAPABILITIES).steps:
        switch.enter(step.command)
        seen.append(queues_led_to(switch, names))
    assert read(switch, wanted).state == wanted
    assert inversions(seen) == 0


@few
@given(st.data(), PLANS, PLANS)
def test_no_step_drops_what_neither_end_drops(data: st.DataObject, first: Plan, second: Plan) -> None:
    """On each way through the switch, for each code point: S, L, rate and burst."""
    switch, start, wanted = Switch(), state_of(data, first), state_of(data, second)
    start = addressed_as(start, wanted)
    apply(switch, TARGET.diff(read(switch, start), start, CAPABILITIES))
    ports = [port_number(port.name) for port in wanted.ports]
    queues = [queue for state in (start, wanted) for port in state.ports for queue in port.queues]
    code_points = sorted({queue.dscps[0] for queue in queues if queue.dscps})

    def taken() -> list[tuple[float, ...]]:
        return [
            switch.takes(leaving, switch.queue_of(entrance, dscp))
            for entrance in ports
            for leaving in ports
            for dscp in code_points
        ]

    steps = TARGET.diff(read(switch, wanted), wanted, CAPABILITIES).steps
    seen = [taken()]
    for step in steps:
        switch.enter(step.command)
        seen.append(taken())
    for between in seen[1:-1]:
        for before, now, after in zip(seen[0], between, seen[-1], strict=True):
            assert all(map(float.__ge__, map(float, now), map(float, map(min, before, after))))


@few
@given(st.data(), PLANS)
def test_no_prefix_is_without_its_route_meanwhile(data: st.DataObject, plan: Plan) -> None:
    """From a plan to one with other spines behind the same prefixes: packets always have a next hop."""
    wanted = state_of(data, plan)
    switch = Switch()
    shared = [route for route in wanted.routes if [r.prefix for r in wanted.routes].count(route.prefix) > 1]
    gone = data.draw(st.lists(st.sampled_from(shared), unique=True)) if shared else []
    start = replace(wanted, routes=tuple(route for route in wanted.routes if route not in gone))
    for first, second in ((start, wanted), (wanted, start)):
        apply(switch, TARGET.diff(read(switch, first), first, CAPABILITIES))
        present = set(switch.tables["ipv4_routes"])
        kept = {route.prefix for route in first.routes} & {route.prefix for route in second.routes}
        for step in TARGET.diff(read(switch, second), second, CAPABILITIES).steps:
            switch.enter(step.command)
            assert len(present & set(switch.tables["ipv4_routes"])) >= len(kept)
            for action, values, _ in switch.tables["ipv4_routes"].values():
                if action.startswith("share"):
                    assert values in switch.tables["groups"]
        running = read(switch, second)
        assert differences(second, running.state) == ()
        assert TARGET.diff(running, second, CAPABILITIES).is_empty


@few
@given(st.data(), PLANS)
def test_one_threshold_is_one_line(data: st.DataObject, plan: Plan) -> None:
    state, switch = state_of(data, plan), Switch()
    apply(switch, TARGET.diff(read(switch, state), state, CAPABILITIES))
    port = data.draw(st.sampled_from(state.ports))
    marking = [number for number, queue in enumerate(port.queues) if queue.ecn_threshold_bytes]
    index = data.draw(st.sampled_from(marking))
    queue = port.queues[index]
    assert queue.ecn_threshold_bytes is not None
    changed = replace(queue, ecn_threshold_bytes=queue.ecn_threshold_bytes - 1)
    queues = (*port.queues[:index], changed, *port.queues[index + 1 :])
    ports = tuple(replace(other, queues=queues) if other is port else other for other in state.ports)
    change = TARGET.diff(read(switch, state), replace(state, ports=ports), CAPABILITIES)
    assert [step.command.split(" ")[:3] for step in change.steps] == [
        ["table_modify_match", "queues", "set_threshold_and_limit"]
    ]
    [found] = differences(replace(state, ports=ports), read(switch, state).state)
    assert (found.port, found.queue, found.field) == (port.name, queue.queue, "ecn_threshold_bytes")
