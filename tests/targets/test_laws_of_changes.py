"""What must hold for every change from any plan, or anything else, to any other, on every switch OS.

A law is left out for an OS by what its description in `under_test.py` leaves out, and nowhere else.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.capabilities import AlphaLimit
from mltswitch.targets import Change, PortState, QueueState, Step, SwitchState, target_for
from mltswitch.targets.state import differences
from tests.targets.bmv2.under_test import Bmv2UnderTest
from tests.targets.cumulus.under_test import CumulusUnderTest
from tests.targets.dell_sonic.under_test import DellSonicUnderTest
from tests.targets.eos.under_test import EosUnderTest
from tests.targets.icos.under_test import IcosUnderTest
from tests.targets.linux.under_test import LinuxUnderTest
from tests.targets.onyx.under_test import OnyxUnderTest
from tests.targets.service_order import blurs, inversions, promotions
from tests.targets.sonic.under_test import SonicUnderTest
from tests.targets.strategies import LAW_EXAMPLES
from tests.targets.under_test import Lot, SwitchUnderTest

Look = TypeVar("Look")

UNDER_TEST: dict[str, type[SwitchUnderTest]] = {
    kind.target.platform: kind
    for kind in (
        *(Bmv2UnderTest, CumulusUnderTest, DellSonicUnderTest, EosUnderTest),
        *(IcosUnderTest, LinuxUnderTest, OnyxUnderTest, SonicUnderTest),
    )
}


def that_have(method: str) -> list[str]:
    """The platforms whose description has a method."""
    return [
        name
        for name, kind in UNDER_TEST.items()
        if getattr(kind, method) is not getattr(SwitchUnderTest, method)
    ]


def law(platforms: Sequence[str], share: int = 1) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """For each of these platforms, on as many random examples as there are, or a share of them."""
    examples = max(min(10, LAW_EXAMPLES), LAW_EXAMPLES // share)
    health = [HealthCheck.too_slow, HealthCheck.data_too_large]

    def marked(test: Callable[..., None]) -> Callable[..., None]:
        checked = settings(max_examples=examples, deadline=None, suppress_health_check=health)(
            given(st.data())(test)
        )
        return pytest.mark.parametrize("platform", platforms)(checked)  # type: ignore[no-any-return]

    return marked


def drawn(data: st.DataObject, platform: str) -> SwitchUnderTest:
    """A switch as delivered, of any hardware that its OS runs on."""
    models = list(target_for(platform).models.values())
    return UNDER_TEST[platform](data.draw(st.sampled_from(models), "hardware"))


def on_ports_of(state: SwitchState, other: SwitchState) -> SwitchState:
    """What a plan has for ports of another one, with their addresses, and routes that lead there.

    Ports of the first alone are nobody's business.
    """
    others = {port.name: port for port in other.ports}
    ports = tuple(
        replace(port, hardware_address=others[port.name].hardware_address)
        for port in state.ports
        if port.name in others
    )
    background = state.background_dscp if any(port.rewritten for port in ports) else 0
    routes = tuple(route for route in state.routes if route.port in {"", *(port.name for port in ports)})
    return replace(state, ports=ports, routes=routes, background_dscp=background)


def some(data: st.DataObject, steps: tuple[Step, ...], said: str) -> tuple[Step, ...]:
    """The first of some steps, often all."""
    return steps[: data.draw(st.just(len(steps)) | st.integers(0, len(steps)), said)]


@law([*UNDER_TEST])
def test_the_switch_takes_every_rendered_line(platform: str, data: st.DataObject) -> None:
    """Any of the files says all, but on Linux, where they are of two programs."""
    switch = drawn(data, platform)
    state = switch.state_of(data)
    files = switch.target.render(state, switch.capabilities)
    for name in files if platform == "linux" else [data.draw(st.sampled_from(sorted(files)))]:
        switch.paste(files, name)
    assert switch.read(state).state == state
    assert switch.change(state).is_empty
    for port in state.ports:
        for leaving in switch.leaving(port.name):
            assert port.rewritten == tuple(dscp for dscp in range(64) if leaving[dscp] != dscp)
            assert {leaving[dscp] for dscp in port.rewritten} <= {state.background_dscp}


@law([*UNDER_TEST])
def test_a_change_leads_from_any_plan_to_any_other(platform: str, data: st.DataObject) -> None:
    switch = drawn(data, platform)
    switch.start(data)
    switch.configure(*switch.settings_of_others)
    for _ in range(2):
        wanted = switch.state_of(data)
        theirs = switch.others(wanted)
        switch.push(wanted)
        running = switch.read(wanted)
        assert differences(wanted, running.state) == ()
        assert running.state == wanted
        assert switch.change(wanted).is_empty
        assert switch.is_saved()
        assert switch.others(wanted) == theirs


@law([*UNDER_TEST])
def test_a_change_that_breaks_off_is_finished_by_the_next(platform: str, data: st.DataObject) -> None:
    """And leaves no more than one that does not."""
    switch = drawn(data, platform)
    undisturbed = UNDER_TEST[platform](switch.capabilities)
    start, wanted = switch.state_of(data), switch.state_of(data)
    for each in (switch, undisturbed):
        each.push(start)
    switch.send(some(data, switch.change(wanted).steps, "sent"))
    for each in (switch, undisturbed):
        each.push(wanted)
    assert switch.read(wanted).state == wanted
    assert switch.is_saved()
    assert switch.configuration() == undisturbed.configuration()


@law([*UNDER_TEST])
def test_nothing_of_another_plan_is_left(platform: str, data: st.DataObject) -> None:
    """What a plan led to on a switch as delivered, its push leads to again after another plan.

    But what the other plan alone has of a port may stay: a queue, its curve, what follows from its trust.
    """
    switch = drawn(data, platform)
    plan = switch.state_of(data)
    switch.push(plan)
    pushed, objects = switch.configuration(), switch.objects()
    other = data.draw(st.sampled_from([on_ports_of(switch.state_of(data), plan), varied(plan)]), "other")
    routes = on_ports_of(plan, other).routes
    switch.push(replace(other, routes=routes, segment_routing=plan.segment_routing))
    switch.push(plan)
    assert switch.read(plan).state == plan
    assert switch.objects() == objects
    if settings_of(other) <= settings_of(plan):
        assert switch.configuration() == pushed


def varied(state: SwitchState) -> SwitchState:
    """The same queues with other numbers: the least threshold for all, and code points of the next one."""
    ports = []
    for port in state.ports:
        marking = [queue for queue in port.queues if queue.ecn_threshold_bytes]
        least = min(queue.ecn_threshold_bytes or 0 for queue in marking)
        dscps = dict(zip(marking, (queue.dscps for queue in marking[1:] + marking[:1]), strict=True))
        queues = (
            replace(queue, ecn_threshold_bytes=least, dscps=dscps[queue]) if queue in dscps else queue
            for queue in port.queues
        )
        ports.append(replace(port, queues=tuple(queues)))
    return replace(state, ports=tuple(ports))


def settings_of(state: SwitchState) -> set[tuple[object, ...]]:
    """What a plan sets of its ports, but for the numbers."""
    return {setting for port in state.ports for setting in settings_of_port(port)}


def settings_of_port(port: PortState) -> set[tuple[object, ...]]:
    """Of a queue without a threshold the curve is not ours."""
    of_queues = {(queue.queue, queue.ecn_threshold_bytes is None, queue.is_lossless) for queue in port.queues}
    return {(port.name, port.trusted, port.rewritten, *setting) for setting in of_queues}


@law(that_have("disturb"))
def test_the_way_back_leads_to_what_ran(platform: str, data: st.DataObject) -> None:
    """From every step of a push, of the push of a plan with the same settings over it, and of a way back."""
    switch = drawn(data, platform)
    switch.start(data)
    first = switch.state_of(data)
    wanted = data.draw(st.sampled_from([switch.state_of(data), first]), "wanted")
    for former in data.draw(st.sampled_from([[], [first], [switch.state_of(data), first]]), "former"):
        switch.push(former)
    if data.draw(st.booleans(), "disturbed"):
        switch.disturb(data, wanted)
    before, at_start = switch.read(wanted), switch.configuration()
    assert switch.way_back(before, wanted).is_empty
    pushed = [wanted]
    if switch.restores_after_others and data.draw(st.booleans(), "another plan over it"):
        pushed.append(retold(switch.state_of(data), wanted))
    for state in pushed:
        change = switch.change(state)
        sent = some(data, (*change.steps, *change.save), "sent")
        switch.send(sent)
        if switch.is_atomic and len(sent) < len(change.steps):
            break  # nobody else pushes where a change waits to take effect
    switch.send(some(data, switch.way_back(before, wanted).steps, "sent back"))
    switch.apply(switch.way_back(before, wanted))
    assert switch.configuration() == at_start
    assert switch.is_saved()
    assert switch.way_back(before, wanted).is_empty


def retold(state: SwitchState, wanted: SwitchState) -> SwitchState:
    """The ports of the plan that have the same settings as the wanted one, so that the way back owns them."""
    owned = {port.name: settings_of_port(port) for port in wanted.ports}
    ports = tuple(port for port in state.ports if settings_of_port(port) == owned.get(port.name))
    same = on_ports_of(replace(state, ports=ports), wanted)
    return replace(same, routes=on_ports_of(wanted, same).routes[::2], segment_routing=None)


@law(that_have("undo"))
def test_what_a_change_says_leads_back_does(platform: str, data: st.DataObject) -> None:
    """And the same change again leads to where it led."""
    switch = drawn(data, platform)
    switch.start(data)
    switch.configure(*switch.settings_of_others)
    for _ in range(2):
        wanted, before = switch.state_of(data), switch.configuration()
        change = switch.change(wanted)
        switch.apply(change)
        after = switch.configuration()
        if not change.is_empty:
            switch.undo(change)
            assert switch.configuration() == before
        switch.push(wanted)
        assert switch.configuration() == after


@law([name for name, kind in UNDER_TEST.items() if kind.is_atomic])
def test_every_step_leaves_a_queue_what_it_had_or_shall_have(platform: str, data: st.DataObject) -> None:
    """And no limit lies meanwhile below its threshold, which then could not act."""
    switch = drawn(data, platform)
    if data.draw(st.booleans(), "a plan before"):
        switch.push(switch.state_of(data))
    wanted = switch.state_of(data)
    start, change, enter = queues_of(switch.read(wanted).state), switch.change(wanted), switch.entering()
    for step in change.steps:
        enter(step)
        here = queues_of(switch.read(wanted).state)
        for place, queue in queues_of(wanted).items():
            for field in ("dscps", "ecn_threshold_bytes", "limit", "minimum", "maximum"):
                ends = getattr(start[place], field, None), getattr(queue, field)
                assert getattr(here[place], field) in ends
            limit, pool = here[place].limit, switch.capabilities.limit.pool_bytes
            if isinstance(limit, AlphaLimit) and isinstance(start[place].limit, AlphaLimit):
                assert pool is not None
                assert (here[place].ecn_threshold_bytes or 0) < limit.resting_bytes(pool)


def queues_of(state: SwitchState) -> dict[tuple[str, int], QueueState]:
    return {(port.name, queue.queue): queue for port in state.ports for queue in port.queues}


def seen(switch: SwitchUnderTest, change: Change, look: Callable[[], Look]) -> list[Look]:
    """What one sees before a change, after each of its steps that changes it, and after the last."""
    views, enter = [look()], switch.entering()
    for step in switch.steps_by_hand(change):
        before = switch.marker()
        enter(step)
        if switch.marker() is not before and (now := look()) != views[-1]:
            views.append(now)
    return views


@law(that_have("lots"), share=4)
def test_no_step_treats_a_packet_worse_than_both_ends(platform: str, data: st.DataObject) -> None:
    """No step drops what neither end drops, nor serves it worse."""
    switch, wanted = begun(data, platform)
    views = lots_of_steps(switch, switch.change(wanted), wanted)
    assert switch.read(wanted).state == wanted
    assert not any(is_worse(view, views[0], views[-1]) for view in views[1:-1])


@law([name for name in that_have("lots") if UNDER_TEST[name].spared_on_the_way_back != 0], share=4)
def test_no_step_back_treats_a_packet_worse_than_both_ends(platform: str, data: st.DataObject) -> None:
    switch, wanted = begun(data, platform)
    before = switch.read(wanted)
    switch.push(wanted)
    views = lots_of_steps(switch, switch.way_back(before, wanted), wanted)
    spared = switch.spared_on_the_way_back
    assert not any(is_worse(view, views[0], views[-1], spared) for view in views[1:-1])


def begun(data: st.DataObject, platform: str) -> tuple[SwitchUnderTest, SwitchState]:
    """A switch as delivered, with a plan or with anything, and what it shall run."""
    switch = drawn(data, platform)
    wanted = switch.state_of(data)
    switch.start(data)
    if data.draw(st.booleans(), "a plan before"):
        switch.push(on_ports_of(switch.state_of(data), wanted))
    if switch.spares_from_anything and data.draw(st.booleans(), "disturbed"):
        switch.disturb(data, wanted)
    return switch, wanted


def lots_of_steps(switch: SwitchUnderTest, change: Change, wanted: SwitchState) -> list[list[Lot]]:
    names = [port.name for port in wanted.ports]
    used = frozenset(queue.queue for port in wanted.ports for queue in port.queues if not queue.is_lossless)
    return seen(switch, change, lambda: switch.lots(names, used))


def is_worse(view: list[Lot], first: list[Lot], last: list[Lot], values: int | None = None) -> bool:
    """Whether any of the first values of any packet's lot is less than at both ends."""
    lots = {*zip(view, first, last, strict=True)}
    return any(now < min(ends) for lot in lots for now, *ends in list(zip(*lot, strict=True))[:values])


@law(that_have("levels"), share=4)
@pytest.mark.parametrize("start", ["as delivered", "a plan", "anything"])
def test_no_step_serves_late_what_neither_end_does(platform: str, start: str, data: st.DataObject) -> None:
    """Nor do packets that two plans serve before others have to share with them.

    A lossless class is served as the operator wants, which no order of our lines can foresee.
    """
    if start == "anything" and platform not in that_have("disorder"):
        pytest.skip("nobody disorders it")
    switch = drawn(data, platform)
    wanted = switch.state_of(data, has_lossless=False)
    if start == "as delivered":
        switch.start(data)
    for _ in range({"as delivered": 0, "a plan": 1, "anything": 2}[start]):
        switch.push(on_ports_of(switch.state_of(data, has_lossless=False), wanted))
    if start == "anything":
        switch.disorder(data, wanted)
    names = sorted(data.draw(st.permutations([port.name for port in wanted.ports]), "ports")[:3])
    change = switch.change(wanted)
    views = seen(switch, change, lambda: switch.levels(names))
    assert switch.change(wanted).is_empty
    if start == "as delivered" and platform == "onyx":
        exits = range(len(names))
        assert promotions([[list(chain(*view[n :: len(names)])) for n in exits] for view in views]) == 0
    else:
        assert inversions(views) == 0
    if start == "a plan":
        assert blurs(views) == 0
