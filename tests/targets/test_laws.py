"""What must hold for every plan on every hardware of every switch OS."""

import json
from ipaddress import IPv4Address

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import twins
from benchmarks.twins import snapshot
from mltswitch.errors import UserInputError
from mltswitch.plan import ClassKind, Plan, Route
from mltswitch.targets import SwitchState, target_for, targets
from switchsim import KINDS
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

COMMENTS = ("!", "#")
PREAMBLE = "no cli default prefix-modes enable"
"""A line that says nothing of a switch's state."""


@pytest.mark.parametrize("platform", targets())
@settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_is_rendered_reads_back_with_and_without_comments(platform: str, data: st.DataObject) -> None:
    target = target_for(platform)
    plan = data.draw(st.sampled_from(list(target.models.values())).flatmap(plans))
    fitted = target.fit_to_hardware(plan, data.draw(switch_names(plan)))
    state, capabilities = fitted.state, fitted.capabilities
    files = target.render(state, capabilities)
    assert target.parse(files, capabilities) == state
    bare = {name: "".join(filter(says_something, text.splitlines(True))) for name, text in files.items()}
    assert target.parse(bare, capabilities) == state
    assert target.render(state, capabilities) == files


def says_something(line: str) -> bool:
    """Whether it is neither empty nor a comment."""
    return not line.isspace() and not line.strip().startswith(COMMENTS)


@pytest.mark.parametrize("platform", targets())
@settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_changed_file_is_refused_or_means_what_it_says(platform: str, data: st.DataObject) -> None:
    """A line too many or too few, or another word: what is read has every line that stands there."""
    target = target_for(platform)
    plan = data.draw(st.sampled_from(list(target.models.values())).flatmap(plans))
    fitted = target.fit_to_hardware(plan, data.draw(switch_names(plan)))
    files = target.render(fitted.state, fitted.capabilities)
    name = data.draw(st.sampled_from(sorted(files)))
    lines = files[name].splitlines(True)
    numbers = st.integers(0, len(lines) - 1)
    number = data.draw(numbers)
    words = lines[number].split(" ")
    words[data.draw(st.integers(0, len(words) - 1))] = data.draw(
        st.sampled_from(lines[data.draw(numbers)].split(" ")) | st.text(max_size=5)
    )
    lines[number : number + 1] = data.draw(
        st.sampled_from([[], [" ".join(words)], [lines[number], lines[data.draw(numbers)]]])
    )
    changed = files | {name: "".join(lines)}
    try:
        state = target.parse(changed, fitted.capabilities)
    except UserInputError as error:
        assert str(error).isprintable()
        assert any(each in str(error) for each in files)
        return
    again = target.render(state, fitted.capabilities)
    assert said(again[name]) == said(changed[name])


def said(text: str) -> object:
    """A document, or the lines of a command line, which may stand in any order."""
    if text.startswith("{"):
        return json.loads(text)
    return {line.strip() for line in text.splitlines() if says_something(f"{line}\n")} - {PREAMBLE}


@pytest.mark.parametrize("platform", sorted({*KINDS} - {"eos"}))
def test_what_already_runs_is_saved_again(platform: str) -> None:
    """EOS saves with the commit that its lines wait for."""
    plan, _, (leaf,) = twins.fabric_plans(1, (platform,))
    switch, target = KINDS[platform](leaf.name, 4), target_for(platform)
    twins.send(switch, target, twins.planned(switch, target, plan).steps)
    change = twins.planned(switch, target, plan)
    assert (change.steps, change.text) == ((), "")
    running, saved = snapshot(switch, platform)
    assert running != saved
    twins.send(switch, target, change.save)
    assert snapshot(switch, platform) == (running, running)


@pytest.mark.parametrize("platform", targets())
def test_a_switch_without_ports_reads_back(platform: str) -> None:
    target = target_for(platform)
    capabilities, nothing = target.hardware(None), SwitchState((), ())
    assert target.parse(target.render(nothing, capabilities), capabilities) == nothing


@pytest.mark.parametrize("platform", targets())
@settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_cap_or_a_share_is_configured_or_said_to_be_missing(platform: str, data: st.DataObject) -> None:
    target = target_for(platform)
    plan = data.draw(st.sampled_from(list(target.models.values())).flatmap(plans))
    fitted = target.fit_to_hardware(plan, data.draw(switch_names(plan)))
    told = " ".join(fitted.unsupported)
    for port in fitted.state.ports:
        queues = {queue.queue: queue for queue in port.queues}
        control, background = (queues[fitted.class_queues[name]] for name in ("control", "background"))
        assert (control.maximum is None) == ("control is not held to" in told)
        has_share = plan.classes[-1].guaranteed_share is not None
        assert (background.minimum is None and has_share) == ("background is not guaranteed" in told)


@pytest.mark.parametrize("platform", targets())
@settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_packet_leaves_with_a_class_that_its_port_may_not_have(platform: str, data: st.DataObject) -> None:
    """What a port rewrites, read back from what is rendered; where nothing is, push names the port."""
    target = target_for(platform)
    plan = data.draw(st.sampled_from(list(target.models.values())).flatmap(plans))
    switch = plan.topology.switch(data.draw(switch_names(plan)))
    fitted = target.fit_to_hardware(plan, switch.name)
    state = target.parse(target.render(fitted.state, fitted.capabilities), fitted.capabilities)
    class_of = {dscp: entry.kind for entry in plan.classes for dscp in entry.dscp}
    for port, planned in zip(state.ports, switch.ports, strict=True):
        leaving = {dscp: state.background_dscp if dscp in port.rewritten else dscp for dscp in range(64)}
        forged = {
            dscp
            for dscp, left in leaving.items()
            for kind in [class_of.get(left, ClassKind.BACKGROUND)]
            if (not planned.trusted and kind is not ClassKind.BACKGROUND)
            or (planned.peer_is_host and kind is ClassKind.NETWORK_CONTROL)
        }
        if forged and any(not entry.peer_is_host for entry in switch.ports):
            assert planned.name in fitted.leak or " to " in fitted.leak
            assert fitted.leak in fitted.unsupported
        honest = set(range(64)) if planned.trusted else set()
        assert all(
            leaving[dscp] == dscp
            for dscp in honest
            if not (planned.peer_is_host and class_of.get(dscp) is ClassKind.NETWORK_CONTROL)
        )
        if fitted.capabilities.rewrites_code_points:
            assert not forged
            assert not fitted.leak


@pytest.mark.parametrize("platform", targets())
@settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_address_goes_round_in_circles(platform: str, data: st.DataObject) -> None:
    """Every address of the plan's ranges from every switch, by the routes that are rendered.

    Between two ends of prefixes nothing changes from one address to the next, so one of them speaks for all.
    """
    target = target_for(platform)
    plan = data.draw(st.sampled_from(list(target.models.values())).flatmap(plans))
    routes: dict[str, tuple[Route, ...]] = {}
    for switch in plan.topology.switches:
        fitted = target.fit_to_hardware(plan, switch.name)
        files = target.render(fitted.state, fitted.capabilities)
        routes[switch.name] = target.parse(files, fitted.capabilities).routes
    prefixes = {route.prefix for table in routes.values() for route in table}
    ends = {int(prefix[0]) for prefix in prefixes} | {int(prefix[-1]) + 1 for prefix in prefixes}
    for address in map(IPv4Address, sorted(ends)):
        for start in plan.topology.switches:
            _ends_somewhere(plan, routes, start.name, address)


def _ends_somewhere(
    plan: Plan, routes: dict[str, tuple[Route, ...]], switch: str, address: IPv4Address
) -> None:
    """Follow every next hop that a switch may take, none twice by the same switch."""
    on_the_way = [(switch, frozenset[str]())]
    while on_the_way:
        place, before = on_the_way.pop()
        assert place not in before, f"{address} comes back to {place}"
        matching = [route for route in routes[place] if address in route.prefix]
        longest = max((route.prefix.prefixlen for route in matching), default=0)
        hops = {route.next_hop for route in matching if route.prefix.prefixlen == longest}
        ports = plan.topology.switch(place).ports
        nexts = {port.peer for port in ports if port.peer_address in hops and not port.peer_is_host}
        on_the_way += [(switch, before | {place}) for switch in nexts]
