"""What must hold for every plan, on a model of the switch's tables."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.errors import DeviceError
from mltswitch.plan import Plan
from mltswitch.targets import Change, SwitchState
from mltswitch.targets.bmv2 import TARGET, sheet
from mltswitch.targets.bmv2.ports import port_number
from mltswitch.targets.state import differences
from tests.p4.schemas import entry_lines
from tests.targets.bmv2.device import CAPABILITIES, SCHEMA, Switch, apply, diff, push, read, rendered
from tests.targets.bmv2.under_test import FOREIGN, Bmv2UnderTest
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

PLANS = plans(CAPABILITIES)
Seen = TypeVar("Seen")
few = settings(
    max_examples=LAW_EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
ELSEWHERE = Bmv2UnderTest.settings_of_others


def state_of(data: st.DataObject, plan: Plan) -> SwitchState:
    return TARGET.fit_to_hardware(plan, data.draw(switch_names(plan))).state


def watched(switch: Switch, wanted: SwitchState, look: Callable[[], Seen]) -> list[Seen]:
    """What one sees before a push, between its steps and behind the last, which has to bring the plan."""
    seen = [look()]
    for step in diff(switch, wanted).steps:
        apply(switch, [step])
        seen.append(look())
    running = read(switch, wanted)
    assert (running.state, differences(wanted, running.state)) == (wanted, ())
    assert TARGET.diff(running, wanted, CAPABILITIES).is_empty
    assert switch.depth == 16384
    return seen


@given(st.data())
@settings(max_examples=4 * LAW_EXAMPLES)
def test_a_line_of_the_program_is_one_of_ours(data: st.DataObject) -> None:
    """And one whose number is too wide for its field is not."""
    line = data.draw(entry_lines(SCHEMA))
    found = sheet.read_line(line)
    assert found is not None
    assert [sheet.added(*fact) for fact in found.facts] == [line]
    words = line.split(" ")
    numbers = [place for place, word in enumerate(words) if word.isdecimal()]
    if numbers:
        place = data.draw(st.sampled_from(numbers))
        words[place] = str(1 << 32)
        assert sheet.read_line(" ".join(words)) is None


@few
@given(st.data(), PLANS)
def test_the_switch_takes_every_rendered_line(data: st.DataObject, plan: Plan) -> None:
    fitted = TARGET.fit_to_hardware(plan, data.draw(switch_names(plan)))
    assert {rounding.field for rounding in fitted.roundings} <= {"limit", "maximum"}
    assert [*fitted.class_queues.values()] == [*range(7, 8 - len(plan.classes), -1), 0]
    switch = rendered(fitted.state)
    assert read(switch, fitted.state).state == fitted.state
    assert diff(switch, fitted.state).is_empty


@few
@given(st.data(), PLANS, PLANS, st.sampled_from(["none", "mltswitch"]), st.booleans())
def test_a_push_leads_from_any_plan_to_any_other(
    data: st.DataObject, first: Plan, second: Plan, program: str, is_shared: bool
) -> None:
    """Also where one before it ended midway; what is foreign stays."""
    switch, clean, foreign = Switch(program), Switch(program), set()
    if is_shared and program == "mltswitch":
        foreign = {*ELSEWHERE}
        switch.enter(*ELSEWHERE)
        clean.enter(*ELSEWHERE)
    for plan in (first, second):
        wanted = state_of(data, plan)
        notes = read(switch, wanted).notes
        assert not foreign or any("entries that no plan of these ports" in note for note in notes)
        steps = diff(switch, wanted).steps
        apply(switch, steps[: data.draw(st.integers(0, len(steps)), "sent")])
        watched(switch, wanted, lambda: None)
        watched(clean, wanted, lambda: None)
        entries = switch.answers()["entries"].splitlines()
        assert len(entries) == len(clean.answers()["entries"].splitlines())
        assert foreign <= {*entries}


@few
@given(st.data(), PLANS, st.sets(st.integers(0, 511), max_size=4))
def test_a_stray_neighbour_is_told_and_removed_on_ports_of_the_plan_only(
    data: st.DataObject, plan: Plan, others: set[int]
) -> None:
    wanted = state_of(data, plan)
    name = data.draw(st.sampled_from([port.name for port in wanted.ports]), "without routes")
    wanted = replace(wanted, routes=tuple(route for route in wanted.routes if route.port != name))
    switch, number = push(Switch(), wanted), port_number(name)
    clean = {*switch.answers()["entries"].splitlines()}
    stray = "table_add neighbours set_neighbour {} => 02:4d:00:00:00:02 02:4d:00:00:00:01"
    foreign = {stray.format(port) for port in others - {port_number(port.name) for port in wanted.ports}}
    switch.enter(*foreign, stray.format(number))
    found = differences(wanted, read(switch, wanted).state)
    assert [(each.port, each.field) for each in found] == [(name, "configuration")]
    change = diff(switch, wanted)
    assert change.text == f"# removes: {stray.format(number)}\ntable_delete_match neighbours {number}\n"
    apply(switch, change.steps)
    assert {*switch.answers()["entries"].splitlines()} == clean | foreign


@few
@given(st.data(), PLANS)
def test_no_prefix_is_without_its_route_meanwhile(data: st.DataObject, plan: Plan) -> None:
    """From a plan to one with other spines behind the same prefixes: packets always have a next hop."""
    wanted = state_of(data, plan)
    prefixes = [route.prefix for route in wanted.routes]
    shared = [route for route in wanted.routes if prefixes.count(route.prefix) > 1]
    gone = data.draw(st.lists(st.sampled_from(shared), unique=True)) if shared else []
    start = replace(wanted, routes=tuple(route for route in wanted.routes if route not in gone))
    switch = Switch()
    for first, second in ((start, wanted), (wanted, start)):
        push(switch, first)
        present = {*switch.tables["ipv4_routes"]}
        kept = {route.prefix for route in first.routes} & {route.prefix for route in second.routes}

        def look(present: set[tuple[int, ...]] = present) -> int:
            for route in switch.tables["ipv4_routes"].values():
                assert not route.action.startswith("share") or route.parameters in switch.tables["groups"]
            return len(present & switch.tables["ipv4_routes"].keys())

        assert min(watched(switch, second, look)) >= len(kept)


@few
@given(st.data(), PLANS)
def test_one_threshold_is_one_line(data: st.DataObject, plan: Plan) -> None:
    state = state_of(data, plan)
    switch, port = push(Switch(), state), data.draw(st.sampled_from(state.ports))
    queue = data.draw(st.sampled_from([queue for queue in port.queues if queue.ecn_threshold_bytes]))
    changed = replace(queue, ecn_threshold_bytes=(queue.ecn_threshold_bytes or 0) - 1)
    queues = tuple(changed if each is queue else each for each in port.queues)
    ports = tuple(replace(each, queues=queues) if each is port else each for each in state.ports)
    wanted = replace(state, ports=ports)
    [found] = differences(wanted, read(switch, state).state)
    assert (found.port, found.queue, found.field) == (port.name, queue.queue, "ecn_threshold_bytes")
    [step] = diff(switch, wanted).steps
    assert step.command.startswith("table_modify_match queues set_threshold_and_limit")


def way_back(switch: Switch, before: Switch, wanted: SwitchState) -> Change:
    return TARGET.restore(before.answers(), read(switch, wanted), wanted, CAPABILITIES)


@few
@given(st.data(), PLANS, PLANS, st.sampled_from(["none", "foreign", "former", "foreign former"]))
def test_the_way_back_leads_to_what_ran(data: st.DataObject, former: Plan, plan: Plan, start: str) -> None:
    """From any point of a push, and from any point of a way back."""
    switch = Switch(program="none" if start == "none" else "mltswitch")
    switch.enter(*FOREIGN if "foreign" in start else ())
    if "former" in start:
        push(switch, state_of(data, former))
    wanted, before = state_of(data, plan), copy.deepcopy(switch)
    assert way_back(switch, before, wanted).is_empty
    for is_back in (False, True):
        steps = (way_back(switch, before, wanted) if is_back else diff(switch, wanted)).steps
        apply(switch, steps[: data.draw(st.just(len(steps)) | st.integers(0, len(steps)))])
    apply(switch, way_back(switch, before, wanted).steps)
    assert switch.answers()["entries"] == before.answers()["entries"]
    assert before.meters.items() <= switch.meters.items()
    assert way_back(switch, before, wanted).is_empty


@pytest.mark.parametrize(("ran", "runs"), [("other", "mltswitch"), ("mltswitch", "none"), ("none", "other")])
def test_what_was_another_program_cannot_come_back(ran: str, runs: str) -> None:
    with pytest.raises(DeviceError, match=f"program {ran} ran before, and {runs} runs now"):
        way_back(Switch(program=runs), Switch(program=ran), SwitchState((), ()))
